/* sample: the next token of each row.
 *   logits (B, V)   rows i32 (B, words of a dra_sample_row)   ->   ids i32 (B)
 * bias, penalty, temperature, filters and draw as in sample_row.c. Settings and places are inputs:
 * rows differ from each other and from step to step, and the program stays the same. No gradient.
 */
#include "ops/common.h"
#include "ops/sampling/sample_row.h"

_Static_assert(sizeof(dra_sample_row) == 4 * DRA_SAMPLE_WORDS, "a row is whole words");

enum { TILES = 16 }; /* at most: each has room for the choices of a row */

/* ---- shape rule ------------------------------------------------------------------------------ */

/* An option: its number among the inputs, 0: none. Of dtype, (V) or (B, V). */
static dra_status check_option(dra_graph *g, const dra_node *n, int i, const char *name,
                               dra_dtype dtype, bool shared)
{
    const dra_shape *x = &dra_type_of(g, n->in[DRA_SAMPLE_LOGITS])->shape;
    if (i == 0) return DRA_OK;
    const dra_shape *s = &dra_type_of(g, n->in[i])->shape;
    const dra_status st = dra_expect_dtype(g, n, i, name, dtype);
    if (st != DRA_OK || dra_shape_equal(s, x)) return st;
    if (shared && s->rank == 1 && s->dim[0] == x->dim[1]) return DRA_OK;
    return dra_op_fail(g, n, DRA_ERR_SHAPE, "%s %s of logits %s, expected (B, V)%s", name,
                       dra_type_text(g, n->in[i]), dra_type_text(g, n->in[DRA_SAMPLE_LOGITS]),
                       shared ? " or (V)" : "");
}

static dra_status infer_sample(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_sample_attr *a = n->attr;
    const dra_shape       *x = &dra_type_of(g, n->in[DRA_SAMPLE_LOGITS])->shape;
    const dra_shape       *rows = &dra_type_of(g, n->in[DRA_SAMPLE_ROWS])->shape;
    dra_status             st = dra_expect_dtype(g, n, DRA_SAMPLE_LOGITS, "logits", DRA_REAL);
    if (st == DRA_OK) st = dra_expect_dtype(g, n, DRA_SAMPLE_ROWS, "rows", DRA_I32);
    if (st != DRA_OK) return st;
    if (x->rank != 2 || x->dim[1] < 1 || x->dim[1] > INT32_MAX)
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "logits %s, expected (B, V), V 1 to %d",
                           dra_type_text(g, n->in[DRA_SAMPLE_LOGITS]), INT32_MAX);
    if (!dra_shape_equal(rows, &DRA_SHAPE(x->dim[0], DRA_SAMPLE_WORDS)))
        return dra_op_fail(g, n, DRA_ERR_SHAPE, "rows %s of logits %s, expected (B, %d)",
                           dra_type_text(g, n->in[DRA_SAMPLE_ROWS]),
                           dra_type_text(g, n->in[DRA_SAMPLE_LOGITS]), DRA_SAMPLE_WORDS);
    out[0] = (dra_type){DRA_I32, DRA_SHAPE(x->dim[0])};
    st = check_option(g, n, a->bias, "bias", DRA_REAL, true);
    if (st == DRA_OK) st = check_option(g, n, a->allowed, "allowed", DRA_BOOL, false);
    return st == DRA_OK ? check_option(g, n, a->seen, "seen", DRA_BOOL, false) : st;
}

/* ---- kernel ---------------------------------------------------------------------------------- */

static int64_t count_sample_tiles(const dra_call *c)
{
    return dra_imin(TILES, c->in[DRA_SAMPLE_LOGITS].shape.dim[0]);
}

static size_t size_sample_scratch(const dra_call *c)
{
    return (size_t)(count_sample_tiles(c) * c->in[DRA_SAMPLE_LOGITS].shape.dim[1]) *
           sizeof(dra_choice);
}

/* Row b of a mask (B, V). */
static const bool *mask_of(const dra_call *c, int i, int64_t b, int64_t V)
{
    return i ? (const bool *)c->in[i].data + b * V : NULL;
}

static dra_sample_from from_of(const dra_call *c, int64_t b)
{
    const dra_sample_attr *a = c->attr;
    const int64_t          V = c->in[DRA_SAMPLE_LOGITS].shape.dim[1];
    const dra_tensor      *bias = a->bias ? &c->in[a->bias] : NULL;
    return (dra_sample_from){
        .V = V,
        .logits = (const real *)c->in[DRA_SAMPLE_LOGITS].data + b * V,
        .bias = bias ? (const real *)bias->data + (bias->shape.rank == 2 ? b * V : 0) : NULL,
        .allowed = mask_of(c, a->allowed, b, V),
        .seen = mask_of(c, a->seen, b, V)};
}

static void run_sample_tile(const dra_call *c, int64_t i)
{
    const int64_t         B = c->in[DRA_SAMPLE_LOGITS].shape.dim[0];
    const dra_sample_row *rows = c->in[DRA_SAMPLE_ROWS].data;
    int32_t              *ids = c->out[0].data;
    for (int64_t b = i; b < B; b += count_sample_tiles(c)) {
        const dra_sample_from from = from_of(c, b);
        ids[b] = dra_sample_choose(&rows[b], &from, (dra_choice *)c->scratch + i * from.V);
    }
}

const dra_op dra_op_sample = {.name = "sample",
                              .n_in = DRA_MANY,
                              .n_out = 1,
                              .flags = DRA_OP_NO_GRAD,
                              .attr_size = sizeof(dra_sample_attr),
                              .infer = infer_sample};

const dra_cpu_kernel dra_cpu_sample = {
    .base = {.op = "sample",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32) | DRA_BIT(DRA_BOOL),
             .layout = DRA_LAYOUT_DENSE,
             .scratch = size_sample_scratch},
    .tiles = count_sample_tiles,
    .tile = run_sample_tile,
};

/* ---- builder --------------------------------------------------------------------------------- */

static int append_option(dra_value v, dra_value *in, int *n)
{
    if (!v.id) return 0;
    in[*n] = v;
    return (*n)++;
}

dra_value dra_sample_ids(dra_graph *g, dra_value logits, dra_value rows,
                         const dra_sample_config *config)
{
    const dra_sample_config c = config ? *config : (dra_sample_config){0};
    dra_value               in[DRA_SAMPLE_INPUTS + 3] = {logits, rows};
    int                     n = DRA_SAMPLE_INPUTS;
    dra_sample_attr         a = {0};
    a.bias = append_option(c.bias, in, &n);
    a.allowed = append_option(c.allowed, in, &n);
    a.seen = append_option(c.seen, in, &n);
    return dra_add_op(g, &dra_op_sample, n, in, &a);
}
