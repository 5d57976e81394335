/* What the passes of graph/fuse.c make of products: one followed by a pointwise program on its
 * tiles, while they are in the cache; several of one a. Each product has the tiles, the order of
 * sums and so the bits that it has by itself. */
#include <assert.h>

#include "ops/products/matmul.h"

/* Never built, so never asked for. */
static dra_status infer_matmul_fused(dra_graph *g, const dra_node *n, dra_type *out)
{
    return dra_op_fail(g, n, DRA_ERR_VALUE, "made when compiling only");
}

/* ---- a product, then a pointwise program on its tiles ---------------------------------------- */

typedef struct then_attr {
    dra_matmul_attr product;
    dra_then_attr   then;
} then_attr;

enum { ATTR_END = (sizeof(dra_matmul_attr) + 7) / 8 * 8 }; /* see dra_attr_end() */
static_assert(offsetof(then_attr, then) == ATTR_END, "where the passes write it");
static_assert(offsetof(then_attr, then.program) + sizeof(dra_pointwise_attr) == sizeof(then_attr),
              "where the passes find it");

/* Computes the product alone into *y, in the memory of one of the outputs. */
static dra_call product_of(const dra_call *c, dra_tensor *y)
{
    const dra_then_attr *a = &((const then_attr *)c->attr)->then;
    dra_call             product = *c;
    *y = (dra_tensor){.data = c->out[a->home].data, .dtype = DRA_REAL, .shape = a->shape};
    dra_tensor_make_dense(y);
    product.n_in = a->inputs;
    product.out = y;
    product.n_out = 1;
    return product;
}

static int64_t then_tiles(const dra_call *c)
{
    dra_tensor     y;
    const dra_call product = product_of(c, &y);
    return dra_matmul_tiles(&product);
}

static int64_t then_stages(const dra_call *c)
{
    dra_tensor     y;
    const dra_call product = product_of(c, &y);
    return dra_matmul_stages(&product);
}

static size_t then_scratch(const dra_call *c)
{
    dra_tensor     y;
    const dra_call product = product_of(c, &y);
    return dra_matmul_scratch(&product);
}

static void then_tile(const dra_call *c, int64_t i)
{
    const dra_then_attr *a = &((const then_attr *)c->attr)->then;
    dra_tensor           y;
    const dra_call       product = product_of(c, &y);
    dra_gemm             m;
    dra_strips           s;
    if (!dra_matmul_tile(&product, i, &m)) return;
    dra_strips_open(&s, dra_simd_of(c), a->program.steps, a->program.step, c->out);
    dra_strips_input(&s, &y);
    for (int k = a->inputs; k < c->n_in; k++) dra_strips_input(&s, &c->in[k]);
    const int64_t first = m.c - (const real *)y.data;
    for (int64_t row = 0; row < m.M; row++)
        dra_strips_run(&s, first + row * m.c_row, first + row * m.c_row + m.N);
}

static dra_cost then_cost(const dra_call *c)
{
    const dra_then_attr *a = &((const then_attr *)c->attr)->then;
    dra_tensor           y;
    const dra_call       product = product_of(c, &y);
    dra_cost             of = dra_matmul_cost(&product);
    of.flops += a->program.steps * (double)dra_shape_count(&y.shape);
    of.bytes = dra_call_bytes(c);
    return of;
}

const dra_op dra_op_matmul_then = {.name = "matmul_then",
                                   .n_in = DRA_MANY,
                                   .n_out = DRA_MANY,
                                   .flags = DRA_OP_PROGRAM,
                                   .attr_size = sizeof(then_attr),
                                   .infer = infer_matmul_fused,
                                   .cost = then_cost};

const dra_cpu_kernel dra_cpu_matmul_then = {
    .base = {.op = "matmul_then", .dtypes = DRA_ANY_DTYPE | DRA_QUANTISED, .scratch = then_scratch},
    .tiles = then_tiles,
    .tile = then_tile,
    .stages = then_stages,
};

/* ---- several products of one a --------------------------------------------------------------- */

typedef struct several_attr {
    dra_matmul_attr  product;
    dra_several_attr several;
} several_attr;

static_assert(offsetof(several_attr, several) == ATTR_END, "where the passes write it");
static_assert(sizeof(dra_matmul_attr) == sizeof(int32_t) + sizeof(dra_precision),
              "padding would be compared too");

typedef struct one { /* product k of several */
    dra_tensor in[DRA_SEVERAL_INPUTS];
    dra_call   call;
} one;

static int several_of(const dra_call *c) { return ((const several_attr *)c->attr)->several.n; }

/* *at: where its inputs begin, moved on to the next one's. */
static void take_one(const dra_call *c, int k, int *at, one *p)
{
    p->call = *c;
    p->call.n_in = ((const several_attr *)c->attr)->several.inputs[k];
    p->in[0] = c->in[0];
    for (int i = 1; i < p->call.n_in; i++) p->in[i] = c->in[(*at)++];
    p->call.in = p->in;
    p->call.out = &c->out[k];
    p->call.n_out = 1;
}

static size_t scratch_lines(const dra_call *c) { return (dra_matmul_scratch(c) + 63) / 64 * 64; }

static int64_t several_stages(const dra_call *c)
{
    int64_t most = 1;
    one     p;
    for (int k = 0, at = 1; k < several_of(c); k++) {
        take_one(c, k, &at, &p);
        most = dra_imax(most, dra_matmul_stages(&p.call));
    }
    return most;
}

static size_t several_scratch(const dra_call *c)
{
    size_t bytes = 0;
    one    p;
    for (int k = 0, at = 1; k < several_of(c); k++) {
        take_one(c, k, &at, &p);
        bytes += scratch_lines(&p.call);
    }
    return bytes;
}

static int64_t tiles_now(const dra_call *c)
{
    return c->stage < dra_matmul_stages(c) ? dra_matmul_tiles(c) : 0;
}

static int64_t several_tiles(const dra_call *c)
{
    int64_t all = 0;
    one     p;
    for (int k = 0, at = 1; k < several_of(c); k++) {
        take_one(c, k, &at, &p);
        all += tiles_now(&p.call);
    }
    return all;
}

static void several_tile(const dra_call *c, int64_t i)
{
    unsigned char *room = c->scratch;
    dra_gemm       m;
    one            p;
    for (int k = 0, at = 1; k < several_of(c); k++) {
        take_one(c, k, &at, &p);
        p.call.scratch = room;
        const int64_t n = tiles_now(&p.call);
        if (i < n) {
            dra_matmul_tile(&p.call, i, &m);
            return;
        }
        i -= n;
        if (room) room += scratch_lines(&p.call);
    }
}

static dra_cost several_cost(const dra_call *c)
{
    dra_cost all = {.bytes = dra_call_bytes(c)};
    one      p;
    for (int k = 0, at = 1; k < several_of(c); k++) {
        take_one(c, k, &at, &p);
        all.flops += dra_matmul_cost(&p.call).flops;
    }
    return all;
}

const dra_op dra_op_matmuls = {.name = "matmuls",
                               .n_in = DRA_MANY,
                               .n_out = DRA_MANY,
                               .attr_size = sizeof(several_attr),
                               .infer = infer_matmul_fused,
                               .cost = several_cost};

const dra_cpu_kernel dra_cpu_matmuls = {
    .base = {.op = "matmuls", .dtypes = DRA_WEIGHTS, .scratch = several_scratch},
    .tiles = several_tiles,
    .tile = several_tile,
    .stages = several_stages,
};
