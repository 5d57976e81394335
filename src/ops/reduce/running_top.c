/* running_top: the largest exponent so far, under decay.
 *   mu_t = max(mu_{t-1} + l_t, top_t),  shift_t = (mu_{t-1} - mu_t) + l_t
 * in this order: where mu only decays, mu_{t-1} + l_t was rounded, and shift holds what is left of
 * l_t after that, so that e^shift undoes the rounding. A pad keeps mu, with shift 0; a reset takes
 * an empty mu_{t-1}. Nothing depends on the choice of mu, so all is constant to the gradient but
 * the l_t in shift: dl = dshift, not at pads. */
#include "ops/chunked/chunk.h"

enum { TOP, START, OPTIONS };
enum { MU, SHIFT, LAST };

static dra_status infer_running_top(dra_graph *g, const dra_node *n, dra_type *out)
{
    out[MU] = out[SHIFT] = *dra_type_of(g, n->in[TOP]);
    out[LAST] = *dra_type_of(g, n->in[START]);
    return DRA_OK;
}

/* dl where the token is none of the pads. */
static void derive_running_top(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_running_top_attr *a = n->attr;
    if (!a->l || !dy[SHIFT].id) return;
    dx[a->l] = dy[SHIFT];
    if (!a->mark) return;
    const dra_shape tokens = dra_shape_of(g, n->in[a->mark]);
    const dra_value odd = dra_mod(g, n->in[a->mark], dra_integer(g, 2));
    const dra_value pad = dra_equal(g, odd, dra_integer(g, DRA_MARK_PAD));
    const dra_value each = dra_reshape(g, pad, DRA_SHAPE(tokens.dim[0], tokens.dim[1], 1));
    dx[a->l] = dra_select(g, each, dra_number(g, 0), dy[SHIFT]);
}

static int64_t count_running_top_tiles(const dra_call *c)
{
    return c->in[START].shape.dim[0] * c->in[START].shape.dim[1];
}

static void put_number(const dra_tensor *to, int64_t b, int64_t t, int64_t h, real x)
{
    if (to->data) *dra_recur_at(to, b, t, h) = x;
}

/* One head of one row of the batch. */
static void run_running_top_tile(const dra_call *c, int64_t i)
{
    const dra_running_top_attr *a = c->attr;
    const dra_tensor           *l = dra_chunk_option(c, a->l), *mark = dra_chunk_option(c, a->mark);
    const int64_t               T = c->in[TOP].shape.dim[1], H = c->in[TOP].shape.dim[2];
    const int64_t               b = i / H, h = i % H;
    real                        mu = *dra_recur_at(&c->in[START], b, h, 0);
    for (int64_t t = 0; t < T; t++) {
        const int32_t bits = dra_recur_mark(mark, b, t);
        const real    top = *dra_recur_at(&c->in[TOP], b, t, h);
        const real    by = l ? *dra_recur_at(l, b, t, h) : 0;
        const real    old = bits & DRA_MARK_RESET ? DRA_WKV_EMPTY : mu;
        const real    faded = old + by;
        const bool    pad = bits & DRA_MARK_PAD;
        mu = pad ? old : faded > top ? faded : top;
        put_number(&c->out[MU], b, t, h, mu);
        put_number(&c->out[SHIFT], b, t, h, pad ? 0 : old - mu + by);
    }
    put_number(&c->out[LAST], b, h, 0, mu);
}

const dra_op dra_op_running_top = {.name = "running_top",
                                   .n_in = DRA_MANY,
                                   .n_out = LAST + 1,
                                   .attr_size = sizeof(dra_running_top_attr),
                                   .infer = infer_running_top,
                                   .gradient = derive_running_top};

const dra_cpu_kernel dra_cpu_running_top = {
    .base = {.op = "running_top",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS},
    .tiles = count_running_top_tiles,
    .tile = run_running_top_tile,
};

dra_value dra_running_top(dra_graph *g, dra_value top, dra_value l, dra_value start, dra_value mark,
                          dra_value *shift, dra_value *last)
{
    const char *const op = "running_top";
    dra_value         in[OPTIONS + 2] = {top};
    int               n = 1;
    if (shift) *shift = (dra_value){0};
    if (last) *last = (dra_value){0};
    dra_chunk_append(l, in, &n);
    dra_chunk_append(start, in, &n);
    dra_chunk_append(mark, in, &n);
    if (!dra_check_values(g, op, n, in)) return (dra_value){0};
    const dra_shape s = dra_type_of(g, top)->shape, heads = DRA_SHAPE(s.dim[0], s.dim[2]);
    if (s.rank != 3)
        dra_build_fail(g, op, DRA_ERR_SHAPE, "top is %s, expected (B, T, H)",
                       dra_type_text(g, top));
    if (dra_graph_failed(g) || !dra_recur_expect(g, op, "top", top, DRA_REAL, s) ||
        (l.id && !dra_chunk_check_decay(g, op, s, &l)) ||
        (start.id && !dra_recur_expect(g, op, "start", start, DRA_REAL, heads)) ||
        (mark.id && !dra_recur_expect(g, op, "mark", mark, DRA_I32, DRA_SHAPE(s.dim[0], s.dim[1]))))
        return (dra_value){0};
    if (!start.id) start = dra_broadcast(g, dra_number(g, (double)DRA_WKV_EMPTY), heads);
    dra_running_top_attr a;
    in[START] = start, n = OPTIONS;
    a.l = dra_chunk_append(l, in, &n);
    a.mark = dra_chunk_append(mark, in, &n);
    const dra_node *node = dra_node_add(g, &dra_op_running_top, n, in, &a);
    if (node && shift) *shift = node->out[SHIFT];
    if (node && last) *last = node->out[LAST];
    return node ? node->out[MU] : (dra_value){0};
}
