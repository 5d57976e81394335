/* pointwise: a program of functions over elements, see graph/pointwise.h. Made by the pass in
 * fuse.c out of neighbouring instructions, never by a builder, so it has no gradient rule.
 *
 * All tensors have one number of elements. These are taken in strips short enough that the
 * results of all steps stay in the first cache. A dense input is read where it is; another one
 * is gathered into a strip first, so functions see dense rows alone and a result does not depend
 * on how its operands are laid out. */
#include <string.h>

#include "ops/pointwise/pointwise.h"

enum {
    STRIP = 256, /* 1 KiB of floats, so 20 to 30 values fit the first cache of any processor */
    LONG = 64    /* rows of an input worth a strip of their own, read where they are */
};

/* ---- inputs ---------------------------------------------------------------------------------- */

void dra_strips_open(dra_strips *s, const dra_simd *simd, int steps, const dra_pointwise_step *step,
                     const dra_tensor *out)
{
    s->simd = simd;
    s->step = step;
    s->out = out;
    s->inputs = 0;
    s->steps = steps;
    s->most = steps > 1 ? STRIP : DRA_POINTWISE_TILE;
}

/* Axes from the last to the first, merged where one runs on into the next. */
void dra_strips_input(dra_strips *s, const dra_tensor *x)
{
    dra_strip_input *in = &s->in[s->inputs++];
    in->data = x->data;
    in->size = (int64_t)dra_dtype_bytes(x->dtype);
    in->rank = 0;
    if (dra_tensor_is_dense(x)) return;
    for (int32_t axis = x->shape.rank - 1; axis >= 0; axis--) {
        const int64_t dim = x->shape.dim[axis], stride = x->stride[axis];
        if (dim == 1) continue;
        const int last = in->rank - 1;
        if (last >= 0 && stride == in->stride[last] * in->dim[last]) {
            in->dim[last] *= dim;
            continue;
        }
        in->dim[in->rank] = dim;
        in->stride[in->rank++] = stride;
    }
    if (in->rank && !(in->dim[0] >= LONG && in->stride[0] == 1)) s->most = STRIP;
}

/* To the end of the row in which element `at` stands. */
static int64_t row_rest(const dra_strip_input *in, int64_t at)
{
    return in->dim[0] - at % in->dim[0];
}

static const unsigned char *find_element(const dra_strip_input *in, int64_t at)
{
    int64_t offset = in->rank ? 0 : at;
    for (int axis = 0; axis < in->rank; axis++) {
        offset += at % in->dim[axis] * in->stride[axis];
        at /= in->dim[axis];
    }
    return in->data + offset * in->size;
}

static void gather_row(int64_t n, int64_t size, const unsigned char *x, int64_t stride,
                       unsigned char *y)
{
    if (stride == 1)
        memcpy(y, x, (size_t)(n * size));
    else if (size == 4 && stride == 0) /* apart, so that it becomes stores of vectors */
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)y)[i] = *(const uint32_t *)(const void *)x;
    else if (size == 4)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)y)[i] = ((const uint32_t *)(const void *)x)[i * stride];
    else
        for (int64_t i = 0; i < n; i++) memcpy(y + i * size, x + i * stride * size, (size_t)size);
}

/* Elements at..at+n-1, rows of which are short: the next row is found by divisions only where the
 * second axis ends, too. */
static void gather_strip(const dra_strip_input *in, int64_t at, int64_t n, unsigned char *strip)
{
    const int64_t        rows = in->rank > 1 ? in->dim[1] : 1;
    const int64_t        next = in->rank > 1 ? in->stride[1] * in->size : 0;
    int64_t              inside = at % in->dim[0], left = rows - at / in->dim[0] % rows;
    const unsigned char *row = find_element(in, at - inside);
    for (int64_t i = 0; i < n;) {
        const int64_t m = dra_imin(in->dim[0] - inside, n - i);
        gather_row(m, in->size, row + inside * in->stride[0] * in->size, in->stride[0],
                   strip + i * in->size);
        i += m;
        inside = 0;
        row += next;
        if (--left > 0 || i == n) continue;
        row = find_element(in, at + i);
        left = rows;
    }
}

/* Elements at..at+n-1 as a dense row. */
static const void *fetch_strip(const dra_strip_input *in, int64_t at, int64_t n,
                               unsigned char *strip)
{
    if (!in->rank || (in->stride[0] == 1 && row_rest(in, at) >= n)) return find_element(in, at);
    gather_strip(in, at, n, strip);
    return strip;
}

/* ---- strips ---------------------------------------------------------------------------------- */

static int64_t strip_length(const dra_strips *s, int64_t at, int64_t end)
{
    int64_t n = dra_imin(s->most, end - at);
    for (int k = 0; k < s->inputs; k++)
        if (s->in[k].rank && s->in[k].dim[0] >= LONG) n = dra_imin(n, row_rest(&s->in[k], at));
    return n;
}

static void run_strip(const dra_strips *s, int64_t at, int64_t n)
{
    _Alignas(
        64) unsigned char strip[DRA_POINTWISE_INPUTS + DRA_POINTWISE_STEPS][STRIP * sizeof(double)];
    const void           *value[DRA_POINTWISE_INPUTS + DRA_POINTWISE_STEPS];
    for (int k = 0; k < s->inputs; k++) value[k] = fetch_strip(&s->in[k], at, n, strip[k]);
    for (int k = 0; k < s->steps; k++) {
        const dra_pointwise_step *f = &s->step[k];
        const int                 to = s->inputs + k, operands = dra_function_operands(f->function);
        const void               *x[DRA_POINTWISE_OPERANDS] = {NULL};
        void                     *y = strip[to];
        if (f->output >= 0) {
            const dra_tensor *out = &s->out[f->output];
            y = (unsigned char *)out->data + at * (int64_t)dra_dtype_bytes(out->dtype);
        }
        for (int i = 0; i < operands; i++) x[i] = value[f->x[i]];
        dra_function_run(s->simd, f, n, x, y);
        value[to] = y;
    }
}

void dra_strips_run(const dra_strips *s, int64_t from, int64_t end)
{
    while (from < end) {
        const int64_t n = strip_length(s, from, end);
        run_strip(s, from, n);
        from += n;
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void run_tile(const dra_call *c, int64_t i, int steps, const dra_pointwise_step *step)
{
    dra_strips s;
    dra_strips_open(&s, dra_simd_of(c), steps, step, c->out);
    for (int k = 0; k < c->n_in; k++) dra_strips_input(&s, &c->in[k]);
    dra_strips_run(&s, i * DRA_POINTWISE_TILE,
                   dra_imin((i + 1) * DRA_POINTWISE_TILE, dra_shape_count(&c->out[0].shape)));
}

void dra_function_tile(const dra_call *c, int64_t i)
{
    const dra_function_attr *a = c->attr;
    const dra_pointwise_step step = {.function = a->function,
                                     .dtype = c->in[c->n_in - 1].dtype,
                                     .x = {0, 1, 2},
                                     .output = 0,
                                     .a = a->a,
                                     .b = a->b};
    run_tile(c, i, 1, &step);
}

static void run_pointwise_tile(const dra_call *c, int64_t i)
{
    const dra_pointwise_attr *a = c->attr;
    run_tile(c, i, a->steps, a->step);
}

/* Never built, so never asked for. */
static dra_status infer_pointwise(dra_graph *g, const dra_node *n, dra_type *out)
{
    return dra_op_fail(g, n, DRA_ERR_VALUE, "made when compiling only");
}

static dra_cost cost_pointwise(const dra_call *c)
{
    const dra_pointwise_attr *a = c->attr;
    const double              elements = (double)dra_shape_count(&c->out[0].shape);
    return (dra_cost){a->steps * elements, dra_call_bytes(c)};
}

const dra_op dra_op_pointwise = {.name = "pointwise",
                                 .n_in = DRA_MANY,
                                 .n_out = DRA_MANY,
                                 .flags = DRA_OP_PROGRAM,
                                 .attr_size = sizeof(dra_pointwise_attr),
                                 .infer = infer_pointwise,
                                 .cost = cost_pointwise};

const dra_cpu_kernel dra_cpu_pointwise = {
    .base = {.op = "pointwise", .dtypes = DRA_ANY_DTYPE, .takes = dra_pointwise_takes},
    .tiles = dra_pointwise_tiles,
    .tile = run_pointwise_tile,
};
