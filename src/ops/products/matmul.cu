/* matmul, and what the passes of graph/fuse.c make of it: matmul_then, a product followed by a
 * pointwise program on its elements, and matmuls, several products of one a. See matmul.c. */
#include "ops/products/gemm.cuh"
#include "ops/pointwise/pointwise.cuh"
#include "device/cuda/stored.cuh"

/* ---- one product ----------------------------------------------------------------------------- */

/* Leading axes of y along which a, b and y move by a step each, from matrix to matrix. */
struct lead_axis {
    int64_t n, a, b, y;
};

struct product {
    dra_cuda_gemm g;    /* the innermost or longest axis is its batch */
    int           axes; /* that the host walks */
    lead_axis     axis[DRA_MAX_RANK];
    bool          bias_apart; /* its elements are not adjacent: added afterwards */
};

/* The step of x along an axis of y; x's own may be fewer, or of size 1. */
static int64_t step_along(const dra_tensor *x, const dra_shape *y, int32_t axis)
{
    const int32_t own = axis - (y->rank - x->shape.rank);
    return own >= 0 && x->shape.dim[own] != 1 ? x->stride[own] : 0;
}

/* Axes of more than one matrix, the last one first, joined where they run on. */
static void find_axes(product *p, const dra_tensor *a, const dra_tensor *b, const dra_shape *y)
{
    int64_t step = p->g.M * p->g.N;
    for (int32_t i = y->rank - 3; i >= 0; i--) {
        const lead_axis x = {y->dim[i], step_along(a, y, i), step_along(b, y, i), step};
        lead_axis      *last = p->axes ? &p->axis[p->axes - 1] : nullptr;
        step *= x.n;
        if (x.n == 1) continue;
        if (last && x.a == last->a * last->n && x.b == last->b * last->n)
            last->n *= x.n;
        else
            p->axis[p->axes++] = x;
    }
}

static void drop_axis(product *p, int k)
{
    p->axes--;
    for (; k < p->axes; k++) p->axis[k] = p->axis[k + 1];
}

/* One b for all matrices along the last axis, whose rows of a run on: rows of one product. */
static void fold_rows(product *p)
{
    dra_cuda_gemm *g = &p->g;
    if (!p->axes || p->axis[0].b != 0 || p->axis[0].a == 0) return;
    if (g->M == 1) g->a_row = p->axis[0].a;
    if (p->axis[0].a != g->M * g->a_row) return;
    g->M *= p->axis[0].n;
    drop_axis(p, 0);
}

/* The longest axis is the batch of the product. */
static void find_batch(product *p)
{
    int k = 0;
    for (int i = 1; i < p->axes; i++)
        if (p->axis[i].n > p->axis[k].n) k = i;
    p->g.batch = 1;
    if (!p->axes) return;
    p->g.batch = p->axis[k].n;
    p->g.a_next = p->axis[k].a;
    p->g.b_next = p->axis[k].b;
    p->g.y_next = p->axis[k].y;
    drop_axis(p, k);
}

static product product_of(const dra_call *c)
{
    const dra_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    const dra_shape  *s = &y->shape;
    product           p = {};
    dra_cuda_gemm    *g = &p.g;
    g->M = s->dim[s->rank - 2];
    g->N = s->dim[s->rank - 1];
    g->K = dra_last(a);
    g->a = a->data, g->a_dtype = a->dtype;
    g->a_row = a->stride[a->shape.rank - 2], g->a_column = a->stride[a->shape.rank - 1];
    g->b = b->data, g->b_dtype = b->dtype;
    g->b_row = b->stride[b->shape.rank - 2], g->b_column = b->stride[b->shape.rank - 1];
    g->y = y->data;
    g->y_bf16 = y->dtype == DRA_BF16;
    g->y_row = g->N;
    g->precision = static_cast<const dra_matmul_attr *>(c->attr)->precision;
    g->scratch = c->scratch;
    p.bias_apart = c->n_in == 3 && g->N > 1 && c->in[2].stride[0] != 1;
    if (c->n_in == 3 && !p.bias_apart) g->bias = c->in[2].data;
    find_axes(&p, a, b, s);
    fold_rows(&p);
    find_batch(&p);
    return p;
}

/* y += bias, for a bias of any stride. */
static void add_bias(const dra_call *c)
{
    const dra_tensor  *y = &c->out[0];
    dra_tensor         in[2] = {*y, c->in[2]};
    dra_pointwise_step step = {};
    in[1].shape = y->shape;
    for (int32_t i = 0; i < y->shape.rank; i++) in[1].stride[i] = 0;
    in[1].stride[y->shape.rank - 1] = c->in[2].stride[0];
    step.function = DRA_FUNCTION_ADD;
    step.dtype = DRA_F32;
    step.x[1] = 1;
    dra_cuda_run_program(c, 2, in, 1, y, 1, &step, dra_shape_count(&y->shape));
}

static void run_product(const dra_call *c, const product *p)
{
    const int64_t a_bytes = (int64_t)dra_dtype_bytes(p->g.a_dtype);
    int64_t       all = 1;
    for (int k = 0; k < p->axes; k++) all *= p->axis[k].n;
    for (int64_t i = 0; i < all; i++) {
        dra_cuda_gemm g = p->g;
        int64_t       rest = i, a = 0, b = 0;
        for (int k = 0; k < p->axes; k++) {
            const int64_t at = rest % p->axis[k].n;
            rest /= p->axis[k].n;
            a += at * p->axis[k].a;
            b += at * p->axis[k].b;
            g.y = dra_cuda_gemm_y(g, at * p->axis[k].y);
        }
        if (g.K > 0) { /* else they may have no memory */
            g.a = static_cast<const char *>(g.a) + a * a_bytes;
            g.b = static_cast<const char *>(g.b) + dra_elements_bytes(g.b_dtype, b);
        }
        dra_cuda_gemm_run(c, &g);
    }
    if (p->bias_apart) add_bias(c);
}

static void launch(const dra_call *c)
{
    const product p = product_of(c);
    if (dra_shape_count(&c->out[0].shape) > 0) run_product(c, &p);
}

static size_t scratch(const dra_call *c)
{
    const product p = product_of(c);
    return dra_cuda_gemm_scratch(&p.g);
}

/* ---- what is rounded to bf16, see graph/narrow.c --------------------------------------------- */

static bool is_rounded(const dra_call *c)
{
    return static_cast<const dra_matmul_attr *>(c->attr)->precision == DRA_PRECISION_BF16;
}

/* Input i, if it then can be read as it is. */
static uint32_t factor_bit(const dra_call *c, int i)
{
    return is_rounded(c) && dra_even_lines(&c->in[i]) ? 1u << i : 0;
}

static uint32_t rounds(const dra_call *c) { return factor_bit(c, 0) | factor_bit(c, 1); }

/* Whether the library can add the bias, the last of n_in inputs. */
static bool adds_bias(const dra_call *c, int n_in, int last)
{
    return n_in == 2 || c->in[last].stride[0] == 1;
}

static uint32_t narrows(const dra_call *c) { return is_rounded(c) && adds_bias(c, c->n_in, 2); }

enum { FACTORS = DRA_BIT(DRA_F32) | DRA_BIT(DRA_BF16) | DRA_BIT(DRA_F16) | DRA_QUANTISED };

const dra_cuda_kernel dra_cuda_matmul = {{"matmul", FACTORS, DRA_LAYOUT_ANY, 0, false, scratch,
                                          nullptr, rounds, narrows, true, nullptr, nullptr, true},
                                         launch,
                                         false};

/* ---- a product, then a pointwise program ----------------------------------------------------- */

struct then_attr {
    dra_matmul_attr product;
    dra_then_attr   then;
};

static const dra_then_attr *then_of(const dra_call *c)
{
    return &static_cast<const then_attr *>(c->attr)->then;
}

/* Bytes of the product, where the output whose memory was meant for it is stored in bf16: then it
 * is in bf16 itself, in scratch memory, before that of the product. */
static size_t apart_bytes(const dra_call *c)
{
    const dra_then_attr *a = then_of(c);
    const size_t         bytes = (size_t)dra_shape_count(&a->shape) * sizeof(uint16_t);
    return c->out[a->home].dtype == DRA_F32 ? 0 : dra_div_up(bytes, (size_t)64) * 64;
}

/* The product alone, into *y, in the memory of one of the outputs, or in scratch memory. */
static dra_call before_program(const dra_call *c, dra_tensor *y)
{
    const dra_then_attr *a = then_of(c);
    dra_call             call = *c;
    *y = {};
    y->dtype = DRA_F32;
    y->shape = a->shape;
    dra_tensor_make_dense(y);
    y->data = c->out[a->home].data;
    if (apart_bytes(c)) y->dtype = DRA_BF16;
    if (apart_bytes(c) && c->scratch)
        y->data = c->scratch, call.scratch = static_cast<char *>(c->scratch) + apart_bytes(c);
    call.n_in = a->inputs;
    call.out = y;
    call.n_out = 1;
    return call;
}

static size_t then_scratch(const dra_call *c)
{
    dra_tensor     y;
    const dra_call call = before_program(c, &y);
    return scratch(&call) + apart_bytes(c);
}

static uint32_t then_narrows(const dra_call *) { return ~0u; } /* the program writes them */

static uint32_t then_widens(const dra_call *c) { return ~0u << then_of(c)->inputs; }

/* What the program adds to the product, such as the residual stream, if it does nothing else: the
 * library adds it while it has the product in registers. NULL: it is another program. */
static const float *added(const dra_call *c)
{
    const dra_then_attr      *a = then_of(c);
    const dra_pointwise_step *s = &a->program.step[0];
    const dra_tensor         *x = &c->in[a->inputs], *y = &c->out[0];
    if (a->program.steps != 1 || a->program.inputs != 2 || s->function != DRA_FUNCTION_ADD ||
        s->x[0] == s->x[1] || x->dtype != DRA_F32 || y->dtype != DRA_F32 ||
        !dra_tensor_is_dense(x) || (uintptr_t)x->data % 16 != 0)
        return nullptr;
    return static_cast<const float *>(x->data);
}

static bool add_in_product(const dra_call *c)
{
    dra_tensor     y;
    const dra_call call = before_program(c, &y);
    product        p = product_of(&call);
    p.g.plus = added(c);
    if (!p.g.plus || p.axes || p.bias_apart) return false;
    run_product(&call, &p);
    return true;
}

static void then_launch(const dra_call *c)
{
    const dra_then_attr *a = then_of(c);
    dra_tensor           y, in[DRA_POINTWISE_INPUTS];
    const dra_call       call = before_program(c, &y);
    if (add_in_product(c)) return;
    launch(&call);
    in[0] = y;
    for (int k = a->inputs; k < c->n_in; k++) in[1 + k - a->inputs] = c->in[k];
    dra_cuda_run_program(c, a->program.inputs, in, c->n_out, c->out, a->program.steps,
                         a->program.step, dra_shape_count(&y.shape));
}

const dra_cuda_kernel dra_cuda_matmul_then = {{"matmul_then", DRA_ANY_DTYPE | DRA_QUANTISED,
                                               DRA_LAYOUT_ANY, 0, false, then_scratch, nullptr,
                                               rounds, then_narrows, true, nullptr, then_widens},
                                              then_launch,
                                              false};

/* ---- several products of one a --------------------------------------------------------------- */

struct several_attr {
    dra_matmul_attr  product;
    dra_several_attr several;
};

struct one_call { /* product k of several */
    dra_tensor in[DRA_SEVERAL_INPUTS];
    dra_call   call;
};

static int several_of(const dra_call *c)
{
    return static_cast<const several_attr *>(c->attr)->several.n;
}

/* *at: where its inputs begin, moved on to the next one's. */
static void take_one(const dra_call *c, int k, int *at, one_call *one)
{
    one->call = *c;
    one->call.n_in = static_cast<const several_attr *>(c->attr)->several.inputs[k];
    one->in[0] = c->in[0];
    for (int i = 1; i < one->call.n_in; i++) one->in[i] = c->in[(*at)++];
    one->call.in = one->in;
    one->call.out = &c->out[k];
    one->call.n_out = 1;
}

/* The a of the first product that is packed whole; without rows: there is none. */
static dra_cuda_matrix shared_a(const dra_call *c)
{
    one_call one;
    for (int k = 0, at = 1; k < several_of(c); k++) {
        take_one(c, k, &at, &one);
        const product p = product_of(&one.call);
        if (!dra_cuda_gemm_is_small(&p.g) && !p.axes) return dra_cuda_factor_a(&p.g);
    }
    return {};
}

/* Product k; where its a is the shared one, it reads that as packed. */
static product product_with(const one_call *one, const dra_cuda_matrix *a,
                            const dra_cuda_matrix *packed)
{
    product              p = product_of(&one->call);
    const dra_cuda_gemm *g = &p.g;
    if (!dra_cuda_gemm_is_small(g) && !p.axes && g->M == a->rows && g->batch == a->batch &&
        g->a_row == a->row && g->a_next == a->next)
        dra_cuda_set_a(&p.g, packed);
    return p;
}

static size_t several_scratch(const dra_call *c)
{
    const dra_precision   precision = static_cast<const several_attr *>(c->attr)->product.precision;
    const dra_cuda_matrix a = shared_a(c), packed = dra_cuda_packed_at(&a, precision, nullptr);
    size_t                most = 0;
    one_call              one;
    for (int k = 0, at = 1; k < several_of(c); k++) {
        take_one(c, k, &at, &one);
        const product p = product_with(&one, &a, &packed);
        const size_t  bytes = dra_cuda_gemm_scratch(&p.g);
        if (bytes > most) most = bytes;
    }
    return dra_cuda_pack_bytes(&a, precision) + most;
}

static void several_launch(const dra_call *c)
{
    const dra_precision   precision = static_cast<const several_attr *>(c->attr)->product.precision;
    const dra_cuda_matrix a = shared_a(c), packed = dra_cuda_pack(c, &a, precision, c->scratch);
    one_call              one;
    for (int k = 0, at = 1; k < several_of(c); k++) {
        take_one(c, k, &at, &one);
        product p = product_with(&one, &a, &packed);
        if (!one.call.out->data || dra_shape_count(&one.call.out->shape) == 0) continue;
        if (c->scratch)
            p.g.scratch = static_cast<char *>(c->scratch) + dra_cuda_pack_bytes(&a, precision);
        run_product(&one.call, &p);
    }
}

static uint32_t several_rounds(const dra_call *c)
{
    uint32_t bits = factor_bit(c, 0);
    for (int k = 0, at = 1; k < several_of(c); k++) {
        bits |= factor_bit(c, at);
        at += static_cast<const several_attr *>(c->attr)->several.inputs[k] - 1;
    }
    return bits;
}

static uint32_t several_narrows(const dra_call *c)
{
    const dra_several_attr *a = &static_cast<const several_attr *>(c->attr)->several;
    uint32_t                bits = 0;
    for (int k = 0, at = 1; k < a->n; k++) {
        at += a->inputs[k] - 1;
        if (is_rounded(c) && adds_bias(c, a->inputs[k], at - 1)) bits |= 1u << k;
    }
    return bits;
}

const dra_cuda_kernel dra_cuda_matmuls = {{"matmuls", FACTORS, DRA_LAYOUT_ANY, 0, false,
                                           several_scratch, nullptr, several_rounds,
                                           several_narrows, true, nullptr, nullptr, true},
                                          several_launch,
                                          false};
