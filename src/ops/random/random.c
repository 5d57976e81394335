/* Random numbers and dropout. Nothing is stored: a number is Philox of a key and a counter,
 *   key      hash of seed, step and the path of scopes with the name   (dra_philox_key)
 *   counter  (inner index / numbers a block: 64 bits, time: 32, row: 32)
 * for element (b, t, inner) of shape (B, T, ...), at row row[b] and time pos[b] + t. So it depends
 * on nothing else: not on batch, chunk, tile or thread.
 *   uniform  24 of 32 bits (double: 53 of 64) as a fraction of 1
 *   normal   Box-Muller of pairs: sqrt(-2 ln(1 - u)) (cos, sin)(2 pi v)
 *   dropout  y = x / (1-p) where u >= p, else 0;    dx = dropout of dy, same key and path */
#include <string.h>
#include <tgmath.h>

#include "base/philox.h"
#include "ops/common.h"

enum {
    TILE = 16384,                               /* elements, fixed by shape                  */
    BLOCK = 4 * sizeof(uint32_t) / sizeof(real) /* numbers from one call of Philox: 4, or 2 */
};

/* ---- shape rules ----------------------------------------------------------------------------- */

/* Input i is i32 (size). */
static dra_status check_i32(dra_graph *g, const dra_node *n, int i, const char *name, int64_t size)
{
    const dra_type *t = dra_type_of(g, n->in[i]);
    if (t->dtype == DRA_I32 && t->shape.rank == 1 && t->shape.dim[0] == size) return DRA_OK;
    return dra_op_fail(g, n, t->dtype == DRA_I32 ? DRA_ERR_SHAPE : DRA_ERR_DTYPE,
                       "%s is %s, expected i32 (%lld)", name, dra_type_text(g, n->in[i]),
                       (long long)size);
}

/* Rank 1 is (T): one row. */
static int64_t count_batch(const dra_shape *s) { return s->rank > 1 ? s->dim[0] : 1; }

/* The inputs from `first` on: key (4), pos (B), row (B). */
static dra_status check_keys(dra_graph *g, const dra_node *n, int first, const dra_shape *s)
{
    const dra_random_attr *a = n->attr;
    int                    i = first;
    dra_status             st = check_i32(g, n, i++, "key", 4);
    if (st == DRA_OK && a->has_pos) st = check_i32(g, n, i++, "pos", count_batch(s));
    if (st == DRA_OK && a->has_row) st = check_i32(g, n, i++, "row", count_batch(s));
    return st;
}

static dra_status random_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_random_attr *a = n->attr;
    *out = (dra_type){DRA_REAL, a->shape};
    return check_keys(g, n, 0, &a->shape);
}

static dra_status dropout_infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    *out = *dra_type_of(g, n->in[0]);
    if (out->shape.rank == 0) return dra_op_fail(g, n, DRA_ERR_SHAPE, "x has no axis");
    const dra_status st = dra_expect_dtype(g, n, 0, "x", DRA_REAL);
    return st == DRA_OK ? check_keys(g, n, 1, &out->shape) : st;
}

/* ---- numbers --------------------------------------------------------------------------------- */

typedef struct source { /* what all numbers of one (b, t) share */
    uint64_t key;
    uint32_t time, row;
    bool     normal;
} source;

static void uniform_block(const uint32_t word[4], real u[BLOCK])
{
#ifdef DRA_REAL_DOUBLE
    for (int i = 0; i < BLOCK; i++)
        u[i] = (real)(((uint64_t)word[2 * i] << 32 | word[2 * i + 1]) >> 11) * (real)0x1p-53;
#else
    for (int i = 0; i < BLOCK; i++) u[i] = (real)(word[i] >> 8) * (real)0x1p-24;
#endif
}

static void make_normal(real u[BLOCK])
{
    const real two_pi = (real)6.28318530717958647693;
    for (int i = 0; i < BLOCK; i += 2) {
        const real length = sqrt(-2 * log1p(-u[i])), angle = two_pi * u[i + 1];
        u[i] = length * cos(angle);
        u[i + 1] = length * sin(angle);
    }
}

/* Numbers first .. first+n-1 of a source. */
static void draw_numbers(const source *s, int64_t first, int64_t n, real *out)
{
    for (int64_t done = 0; done < n;) {
        const uint64_t block = (uint64_t)(first + done) / BLOCK;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), s->time, s->row};
        uint32_t       word[4];
        real           u[BLOCK];
        dra_philox(counter, s->key, word);
        uniform_block(word, u);
        if (s->normal) make_normal(u);
        for (int64_t i = (first + done) % BLOCK; i < BLOCK && done < n; i++) out[done++] = u[i];
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct inputs { /* the inputs from the key on; all are dense */
    uint64_t       key;
    const int32_t *pos, *row;    /* NULL: none */
    int64_t        times, inner; /* T, elements of one (b, t) */
} inputs;

static int64_t count_random_tiles(const dra_call *c)
{
    return dra_div_up(dra_shape_count(&c->out[0].shape), TILE);
}

static inputs inputs_of(const dra_call *c, int first)
{
    const dra_random_attr *a = c->attr;
    const dra_shape       *s = &c->out[0].shape;
    inputs                 in = {.key = dra_philox_key(c->in[first++].data, a->path), .inner = 1};
    if (a->has_pos) in.pos = c->in[first++].data;
    if (a->has_row) in.row = c->in[first++].data;
    in.times = s->dim[s->rank > 1 ? 1 : 0];
    for (int32_t i = 2; i < s->rank; i++) in.inner *= s->dim[i];
    return in;
}

static source source_at(const dra_random_attr *a, const inputs *in, int64_t cell)
{
    const int64_t  b = cell / in->times, t = cell % in->times;
    const uint32_t start = in->pos ? (uint32_t)in->pos[b] : 0;
    return (source){in->key, start + (uint32_t)t, in->row ? (uint32_t)in->row[b] : (uint32_t)b,
                    a->normal};
}

static void random_tile(const dra_call *c, int64_t tile)
{
    const inputs  in = inputs_of(c, 0);
    const int64_t end = dra_imin(dra_shape_count(&c->out[0].shape), (tile + 1) * TILE);
    real         *y = c->out[0].data;
    for (int64_t at = tile * TILE, n; at < end; at += n) {
        const source  s = source_at(c->attr, &in, at / in.inner);
        const int64_t first = at % in.inner;
        n = dra_imin(in.inner - first, end - at);
        draw_numbers(&s, first, n, y + at);
    }
}

static void dropout_tile(const dra_call *c, int64_t tile)
{
    enum { CHUNK = 256 };
    const dra_random_attr *a = c->attr;
    const inputs           in = inputs_of(c, 1);
    const int64_t          end = dra_imin(dra_shape_count(&c->out[0].shape), (tile + 1) * TILE);
    const real             p = (real)a->p, scale = (real)(1 / (1 - a->p)), *x = c->in[0].data;
    real                  *y = c->out[0].data, u[CHUNK];
    for (int64_t at = tile * TILE, n; at < end; at += n) {
        const source  s = source_at(a, &in, at / in.inner);
        const int64_t first = at % in.inner;
        n = dra_imin(CHUNK, dra_imin(in.inner - first, end - at));
        draw_numbers(&s, first, n, u);
        for (int64_t i = 0; i < n; i++) y[at + i] = u[i] >= p ? x[at + i] * scale : 0;
    }
}

static void dropout_gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    dra_value in[4] = {dy[0]};
    memcpy(in + 1, n->in + 1, (size_t)(n->n_in - 1) * sizeof *in);
    dx[0] = dra_add_op(g, n->op, n->n_in, in, n->attr);
}

static dra_cost cost_random(const dra_call *c)
{
    dra_cost k = dra_pointwise_cost(c);
    k.flops *= 60.0 / BLOCK; /* ten rounds of six operations a block */
    return k;
}

const dra_op dra_op_random = {.name = "random",
                              .n_in = DRA_MANY,
                              .n_out = 1,
                              .flags = DRA_OP_NO_GRAD,
                              .attr_size = sizeof(dra_random_attr),
                              .infer = random_infer,
                              .cost = cost_random};

const dra_cpu_kernel dra_cpu_random = {
    .base = {.op = "random", .dtypes = DRA_REALS | DRA_BIT(DRA_I32), .layout = DRA_LAYOUT_DENSE},
    .tiles = count_random_tiles,
    .tile = random_tile,
};

const dra_op dra_op_dropout = {.name = "dropout",
                               .n_in = DRA_MANY,
                               .n_out = 1,
                               .attr_size = sizeof(dra_random_attr),
                               .infer = dropout_infer,
                               .gradient = dropout_gradient,
                               .cost = cost_random};

const dra_cpu_kernel dra_cpu_dropout = {
    .base = {.op = "dropout",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_DENSE,
             .in_place = 1},
    .tiles = count_random_tiles,
    .tile = dropout_tile,
};

/* ---- builders -------------------------------------------------------------------------------- */

/* Appends the inputs after in[0..n) and their attributes; returns how many there are now, or 0
 * with the error set. */
static int add_keys(dra_graph *g, const char *op, const dra_random_config *c, int n, dra_value *in,
                    dra_random_attr *a)
{
    if (dra_graph_failed(g)) return 0;
    if (!c || !c->name || !*c->name || strchr(c->name, '/')) { /* '/' divides scopes */
        dra_build_fail(g, op, DRA_ERR_NAME, "needs a name without '/'");
        return 0;
    }
    if (!c->key.id) {
        dra_build_fail(g, op, DRA_ERR_VALUE, "'%s' has no key", c->name);
        return 0;
    }
    a->path = dra_scope_hash(g, c->name);
    a->has_pos = c->pos.id != 0;
    a->has_row = c->row.id != 0;
    in[n++] = c->key;
    if (a->has_pos) in[n++] = c->pos;
    if (a->has_row) in[n++] = c->row;
    return n;
}

static dra_value build_random(dra_graph *g, const char *name, bool normal, dra_shape shape,
                              const dra_random_config *c)
{
    dra_random_attr a = {.shape = shape, .normal = normal};
    dra_value       in[3];
    const int       n = add_keys(g, name, c, 0, in, &a);
    if (n == 0) return (dra_value){0};
    if (shape.rank < 1 || shape.rank > DRA_MAX_RANK) {
        dra_build_fail(g, name, DRA_ERR_SHAPE, "rank %d, expected 1 to %d", (int)shape.rank,
                       DRA_MAX_RANK);
        return (dra_value){0};
    }
    return dra_add_op(g, &dra_op_random, n, in, &a);
}

dra_value dra_random_uniform(dra_graph *g, dra_shape shape, const dra_random_config *c)
{
    return build_random(g, "random_uniform", false, shape, c);
}

dra_value dra_random_normal(dra_graph *g, dra_shape shape, const dra_random_config *c)
{
    return build_random(g, "random_normal", true, shape, c);
}

dra_value dra_dropout(dra_graph *g, dra_value x, double p, const dra_random_config *c)
{
    dra_random_attr a = {.p = p};
    dra_value       in[4] = {x};
    if (!dra_check_values(g, "dropout", 1, &x)) return (dra_value){0};
    if (!(p >= 0 && p < 1)) {
        dra_build_fail(g, "dropout", DRA_ERR_VALUE, "p %g, expected 0 <= p < 1", p);
        return (dra_value){0};
    }
    if (p == 0) return x; /* nothing is drawn, so no key is needed */
    const int n = add_keys(g, "dropout", c, 1, in, &a);
    return n ? dra_add_op(g, &dra_op_dropout, n, in, &a) : (dra_value){0};
}
