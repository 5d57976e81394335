/* slots: S slots for each head, drawn towards each token, and a softmax over them. For slot i
 *   P_t = e^(l_t) P_t-1 + u_t k_t,   Q_t = e^(l_t) Q_t-1 + u_t v_t
 *   a_t = softmax_i (q_t.P_t,i / sqrt(D)),   y_t = sum_i a_t,i Q_t,i
 * over the slots of the query's own head, over those of all heads, or one softmax over all pairs of
 * a head's query and its own slots. A reset before t takes 0 for P_t-1; a pad writes nothing.
 *
 * In chunks of tokens, from the slots P_0, Q_0 before each (W and p: see slots.h):
 *   logits_t = weigh(q.k, q.P_0) / sqrt(D),   y = M v + (a p) Q_0,   M = spread(a)
 *   P_n = p_n P_0 + W_n^T k,   Q_n = p_n Q_0 + W_n^T v */
#include "ops/slots.h"

enum { CHUNK = DRA_SLOTS_CHUNK };

/* ---- forward: (q, k, v, l, u[, P][, Q][, mark]) ---------------------------------------------- */

enum {
    Y,
    P_LAST,
    Q_LAST,
    P_BORDERS, /* (B, H, chunks + 1, S, D): slots before each chunk and after the last */
    Q_BORDERS,
    LOGITS, /* (B, pairs of reader and owner, T, S) */
    OUTPUTS
};

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_slots_attr *a = n->attr;
    const int64_t        *k = dra_type_of(g, n->in[DRA_SLOTS_K])->shape.dim;
    const int64_t         B = k[0], T = k[1], H = k[2], D = k[3];
    const int64_t         E = dra_type_of(g, n->in[DRA_SLOTS_V])->shape.dim[3];
    const int64_t         S = dra_type_of(g, n->in[DRA_SLOTS_L])->shape.dim[3];
    const int64_t         borders = dra_div_up(T, CHUNK) + 1;
    const int64_t         pairs = a->read == DRA_READ_ALL ? H * H : H;
    for (int i = 0; i < OUTPUTS; i++) out[i].dtype = DRA_REAL;
    out[Y].shape = DRA_SHAPE(B, T, a->read == DRA_READ_POOLED ? 1 : H, E);
    out[P_LAST].shape = DRA_SHAPE(B, H, S, D);
    out[Q_LAST].shape = DRA_SHAPE(B, H, S, E);
    out[P_BORDERS].shape = DRA_SHAPE(B, H, borders, S, D);
    out[Q_BORDERS].shape = DRA_SHAPE(B, H, borders, S, E);
    out[LOGITS].shape = DRA_SHAPE(B, pairs, T, S);
    return DRA_OK;
}

typedef struct owner { /* of slots, in one chunk */
    dra_chunk       k;
    dra_slots_gates gates;
    real           *P, *Q; /* (S, D), (S, E): the slots before it, after it in the end */
} owner;

typedef struct walk {
    const dra_call *c;
    dra_slots_sizes z;
    int64_t         tile, number;             /* of the chunk */
    real           *at;                       /* the owners' memory, then */
    real           *pairs;                    /* (CHUNK, DRA_CHUNK) */
    real           *logits, *a;               /* (owners, n, S) */
    real           *x0, *room;                /* (n, S) */
    real           *q_rows, *k_rows, *v_rows; /* for chunks with pads */
} walk;

static int64_t owner_size(const dra_slots_sizes *z)
{
    return dra_slots_gates_size(z, false) + z->S * (z->D + z->E);
}

static int64_t tile_size(const dra_slots_sizes *z)
{
    const int64_t n = dra_imin(CHUNK, z->T);
    return z->owners * (owner_size(z) + 2 * n * z->S) +
           n * (DRA_CHUNK + 2 * z->S + 2 * z->D + z->E);
}

static size_t scratch(const dra_call *c)
{
    const dra_slots_sizes z = dra_slots_sizes_of(c);
    return (size_t)(z.tiles * tile_size(&z)) * sizeof(real);
}

static int64_t tiles(const dra_call *c) { return dra_slots_sizes_of(c).tiles; }

static walk walk_of(const dra_call *c, int64_t i)
{
    walk          w = {.c = c, .z = dra_slots_sizes_of(c), .tile = i};
    const int64_t n = dra_imin(CHUNK, w.z.T), S = w.z.S;
    w.at = (real *)c->scratch + i * tile_size(&w.z);
    w.pairs = w.at + w.z.owners * owner_size(&w.z);
    w.logits = w.pairs + n * DRA_CHUNK;
    w.a = w.logits + w.z.owners * n * S;
    w.x0 = w.a + w.z.owners * n * S;
    w.room = w.x0 + n * S;
    w.q_rows = w.room + n * S;
    w.k_rows = w.q_rows + n * w.z.D;
    w.v_rows = w.k_rows + n * w.z.D;
    return w;
}

static owner owner_of(const walk *w, int64_t j)
{
    const dra_slots_sizes *z = &w->z;
    real                  *memory = w->at + j * owner_size(z);
    owner                  o;
    o.k = dra_slots_chunk(w->c, z, w->tile, dra_slots_owner(w->c, w->tile, j), w->number);
    o.P = memory;
    o.Q = o.P + z->S * z->D;
    o.gates = dra_slots_gates_at(z, o.k.n, false, o.Q + z->S * z->E);
    return o;
}

/* The logits of reader r for owner j: where they are kept, or here. */
static real *logits_of(const walk *w, int64_t r, int64_t j, int64_t *apart)
{
    const dra_slots_sizes *z = &w->z;
    real                  *kept = w->c->out[LOGITS].data;
    *apart = (kept ? z->T : dra_imin(CHUNK, z->T)) * z->S;
    if (!kept) return w->logits + j * *apart;
    return kept + ((w->tile * z->readers + r) * z->owners + j) * *apart + w->number * CHUNK * z->S;
}

/* Logits of the queries of reader r for the slots of one owner. */
static void find_logits(const walk *w, const owner *o, int64_t r, int64_t j, real *to)
{
    const dra_slots_sizes *z = &w->z;
    const dra_simd        *simd = w->c->simd;
    const int64_t          n = o->k.n, S = z->S;
    const dra_chunk        query = dra_slots_of_head(o->k, dra_slots_query(w->c, w->tile, r, j));
    const dra_block        q = dra_chunk_rows(&query, &w->c->in[DRA_SLOTS_Q], w->q_rows);
    const dra_block        k = dra_chunk_rows(&o->k, &w->c->in[DRA_SLOTS_K], w->k_rows);
    dra_chunk_pairs(simd, n, z->D, q, k, w->pairs);
    dra_slots_dots(simd, &o->gates, z->D, q, o->P, w->x0, false);
    dra_slots_weigh(simd, &o->gates, w->pairs, w->x0, w->room, to);
    simd->scale(n * S, z->scale, to);
}

/* y += M v + (a p) Q_0 */
static void add_values(const walk *w, const owner *o, const real *a, dra_block y)
{
    const dra_slots_sizes *z = &w->z;
    const dra_simd        *simd = w->c->simd;
    const int64_t          n = o->k.n, S = z->S;
    const dra_block        v = dra_chunk_rows(&o->k, &w->c->in[DRA_SLOTS_V], w->v_rows);
    dra_slots_spread(simd, &o->gates, a, w->room, w->pairs);
    dra_chunk_below(simd, n, z->E, w->pairs, v, y, true);
    simd->mul(n * S, a, o->gates.p, w->room);
    dra_block_multiply(simd, n, z->E, S, (dra_block){w->room, S, 1}, (dra_block){o->Q, z->E, 1}, y,
                       true);
}

/* What reader r makes of the chunk. */
static void read_chunk(const walk *w, int64_t r)
{
    const dra_slots_sizes *z = &w->z;
    const dra_tensor      *y = &w->c->out[Y];
    const int64_t          target = dra_slots_target(w->c, w->tile, r);
    const dra_chunk        k = dra_slots_chunk(w->c, z, w->tile, target, w->number);
    int64_t                apart = 0;
    for (int64_t j = 0; j < z->owners; j++) {
        const owner o = owner_of(w, j);
        find_logits(w, &o, r, j, logits_of(w, r, j, &apart));
    }
    if (!y->data) return;
    const dra_block to = {dra_recur_at(y, k.b, k.t, target), y->stride[1], 1};
    for (int64_t t = 0; t < k.n; t++) dra_recur_clear(z->E, to.at + t * to.row);
    if (z->owners == 0) return;
    dra_slots_softmax(z, &k, logits_of(w, r, 0, &apart), apart, w->a, k.n * z->S);
    for (int64_t j = 0; j < z->owners; j++) {
        const owner o = owner_of(w, j);
        add_values(w, &o, w->a + j * k.n * z->S, to);
    }
    dra_chunk_clear_pads(&k, z->E, to);
}

/* The slots before chunk `border`, where the way back finds them. */
static void store_border(const walk *w, const owner *o, int64_t border)
{
    const dra_tensor *P = &w->c->out[P_BORDERS], *Q = &w->c->out[Q_BORDERS];
    const int64_t     b = o->k.b, h = o->k.h, S = w->z.S;
    if (P->data) dra_recur_copy(S * w->z.D, o->P, dra_recur_at(P, b, h, border));
    if (Q->data) dra_recur_copy(S * w->z.E, o->Q, dra_recur_at(Q, b, h, border));
}

/* x (S, W) = p_n x + W_n^T rows */
static void write_slots(const owner *o, int64_t W, dra_block rows, real *x)
{
    const real     *last = dra_slots_last(&o->gates, &o->gates.write);
    const int64_t   S = o->gates.S;
    const dra_block turned = {(real *)last, 1, S};
    dra_slots_decay(o->k.simd, &o->gates, W, x);
    dra_block_multiply(o->k.simd, S, W, o->k.n, turned, rows, (dra_block){x, W, 1}, true);
}

static void walk_chunk(const walk *w)
{
    const dra_tensor *in = w->c->in;
    const bool        reads = w->c->out[Y].data || w->c->out[LOGITS].data;
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        for (int i = 0; i < DRA_SLOTS_INPUTS; i++)
            dra_slots_fetch(&w->z, o.k, w->number + 1, &in[i]);
        if (dra_chunk_starts(&o.k)) {
            dra_recur_clear(w->z.S * w->z.D, o.P);
            dra_recur_clear(w->z.S * w->z.E, o.Q);
        }
        store_border(w, &o, w->number);
        dra_slots_gates_fill(&o.k, &in[DRA_SLOTS_L], &in[DRA_SLOTS_U], &o.gates);
    }
    for (int64_t r = 0; r < w->z.readers && reads; r++) read_chunk(w, r);
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        write_slots(&o, w->z.D, dra_chunk_rows(&o.k, &in[DRA_SLOTS_K], w->k_rows), o.P);
        write_slots(&o, w->z.E, dra_chunk_rows(&o.k, &in[DRA_SLOTS_V], w->v_rows), o.Q);
    }
}

static void tile(const dra_call *c, int64_t i)
{
    const dra_slots_attr *a = c->attr;
    walk                  w = walk_of(c, i);
    const int64_t         P = w.z.S * w.z.D, Q = w.z.S * w.z.E;
    for (int64_t j = 0; j < w.z.owners; j++) {
        const owner o = owner_of(&w, j);
        dra_chunk_load(&o.k, dra_chunk_option(c, a->keys), P, o.P);
        dra_chunk_load(&o.k, dra_chunk_option(c, a->values), Q, o.Q);
    }
    for (; w.number < w.z.chunks; w.number++) walk_chunk(&w);
    w.number = 0;
    for (int64_t j = 0; j < w.z.owners; j++) {
        const owner o = owner_of(&w, j);
        store_border(&w, &o, w.z.chunks);
        dra_chunk_store(&o.k, &c->out[P_LAST], P, o.P);
        dra_chunk_store(&o.k, &c->out[Q_LAST], Q, o.Q);
    }
}

/* ---- the op ---------------------------------------------------------------------------------- */

static void gradient(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_slots_attr *a = n->attr;
    dra_value             in[DRA_SLOTS_BACK_INPUTS + 1];
    for (int i = 0; i < DRA_SLOTS_INPUTS; i++) in[i] = n->in[i];
    in[DRA_SLOTS_P_BORDERS] = n->out[P_BORDERS];
    in[DRA_SLOTS_Q_BORDERS] = n->out[Q_BORDERS];
    in[DRA_SLOTS_LOGITS] = n->out[LOGITS];
    in[DRA_SLOTS_DY] = dra_recur_upstream(g, dy[Y], n->out[Y]);
    in[DRA_SLOTS_DP] = dra_recur_upstream(g, dy[P_LAST], n->out[P_LAST]);
    in[DRA_SLOTS_DQ] = dra_recur_upstream(g, dy[Q_LAST], n->out[Q_LAST]);
    if (a->mark) in[DRA_SLOTS_BACK_INPUTS] = n->in[a->mark];
    const dra_node *back = dra_slots_back(g, a->read, a->mark != 0, in);
    if (!back) return;
    for (int i = 0; i < DRA_SLOTS_INPUTS; i++) dx[i] = back->out[i];
    if (a->keys) dx[a->keys] = back->out[DRA_SLOTS_INPUTS];
    if (a->values) dx[a->values] = back->out[DRA_SLOTS_INPUTS + 1];
}

/* For each token and pair of reader and owner: two products with the slots, and with the n/2 tokens
 * of the chunk before it; for each owner two more to write. */
static dra_cost cost(const dra_call *c)
{
    const dra_slots_sizes z = dra_slots_sizes_of(c);
    const double          n = (double)dra_imin(CHUNK, z.T), wide = (double)(z.D + z.E);
    const double          S = (double)z.S, tokens = (double)(z.B * z.T * z.H);
    const double          read = wide * (S + n / 2) + n * S, write = S * (wide + n / 2);
    return (dra_cost){2 * tokens * (read * (double)z.readers + write), dra_call_bytes(c)};
}

const dra_op     dra_op_slots = {.name = "slots",
                                 .n_in = DRA_MANY,
                                 .n_out = OUTPUTS,
                                 .layout = DRA_LAYOUT_ROWS,
                                 .attr_size = sizeof(dra_slots_attr),
                                 .infer = infer,
                                 .gradient = gradient,
                                 .cost = cost};
const dra_kernel dra_cpu_slots = {&dra_op_slots, DRA_REALS | DRA_BIT(DRA_I32), tiles, tile, NULL,
                                  scratch};

/* ---- checks ---------------------------------------------------------------------------------- */

/* l or u: (B, T, H, S), or (H, S). */
static bool fits_gate(dra_graph *g, const char *name, dra_value v, const dra_shape *k, int64_t S)
{
    const int64_t  *d = k->dim;
    const dra_shape all = DRA_SHAPE(d[0], d[1], d[2], S), each = DRA_SHAPE(d[2], S);
    const bool      fixed = dra_type_of(g, v)->shape.rank == 2;
    return dra_recur_expect(g, "slots", name, v, DRA_REAL, fixed ? each : all);
}

static bool fits(dra_graph *g, const dra_slots_config *s)
{
    const dra_shape k = dra_type_of(g, s->k)->shape, v = dra_type_of(g, s->v)->shape;
    const dra_shape l = dra_type_of(g, s->l)->shape;
    const int64_t   B = k.dim[0], T = k.dim[1], H = k.dim[2];
    const int64_t   D = k.dim[3], E = v.dim[3], S = l.rank > 0 ? l.dim[l.rank - 1] : 0;
    if ((unsigned)s->read > DRA_READ_POOLED) {
        dra_build_fail(g, "slots", DRA_ERR_VALUE, "read is %d, expected own, all or pooled",
                       (int)s->read);
        return false;
    }
    if (k.rank != 4 || v.rank != 4 || S < 1) {
        dra_build_fail(g, "slots", DRA_ERR_SHAPE,
                       "k is %s, v %s, l %s, expected (B, T, H, D), (B, T, H, E) and S > 0 slots",
                       dra_type_text(g, s->k), dra_type_text(g, s->v), dra_type_text(g, s->l));
        return false;
    }
    return dra_recur_expect(g, "slots", "q", s->q, DRA_REAL, k) &&
           dra_recur_expect(g, "slots", "k", s->k, DRA_REAL, k) &&
           dra_recur_expect(g, "slots", "v", s->v, DRA_REAL, DRA_SHAPE(B, T, H, E)) &&
           fits_gate(g, "l", s->l, &k, S) && fits_gate(g, "u", s->u, &k, S) &&
           (!s->P.id || dra_recur_expect(g, "slots", "P", s->P, DRA_REAL, DRA_SHAPE(B, H, S, D))) &&
           (!s->Q.id || dra_recur_expect(g, "slots", "Q", s->Q, DRA_REAL, DRA_SHAPE(B, H, S, E))) &&
           (!s->mark.id || dra_recur_expect(g, "slots", "mark", s->mark, DRA_I32, DRA_SHAPE(B, T)));
}

dra_value dra_slots(dra_graph *g, const dra_slots_config *s, dra_value *P_last, dra_value *Q_last)
{
    dra_slots_attr a = {.read = s->read};
    dra_value      in[DRA_SLOTS_INPUTS + 3] = {s->q, s->k, s->v, s->l, s->u};
    int            n = DRA_SLOTS_INPUTS;
    if (P_last) *P_last = (dra_value){0};
    if (Q_last) *Q_last = (dra_value){0};
    a.keys = dra_chunk_append(s->P, in, &n);
    a.values = dra_chunk_append(s->Q, in, &n);
    a.mark = dra_chunk_append(s->mark, in, &n);
    if (!dra_check_values(g, "slots", n, in) || !fits(g, s)) return (dra_value){0};
    const dra_shape k = dra_type_of(g, s->k)->shape, l = dra_type_of(g, s->l)->shape;
    const dra_shape gates = DRA_SHAPE(k.dim[0], k.dim[1], k.dim[2], l.dim[l.rank - 1]);
    in[DRA_SLOTS_L] = dra_broadcast(g, s->l, gates);
    in[DRA_SLOTS_U] = dra_broadcast(g, s->u, gates);
    const dra_node *node = dra_node_add(g, &dra_op_slots, n, in, &a);
    if (!node) return (dra_value){0};
    if (P_last) *P_last = node->out[P_LAST];
    if (Q_last) *Q_last = node->out[Q_LAST];
    return node->out[Y];
}
