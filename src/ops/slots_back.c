/* Gradients of slots, walking back over the chunks (W, D, p, weigh, spread, gather: see slots.h).
 * With the weights a from the kept logits s, dP and dQ those of the slots after the chunk:
 *   da = weigh(dy.v, dy.Q_0),   ds = a (da - sum a da),   z = ds / sqrt(D)
 *   M = spread(a),   N = spread(z)
 *   dq = N k + (z p) P_0,   dk = N^T q + W_n dP,   dv = M^T dy + W_n dQ
 *   du = gather(z q.k + a dy.v) + D_n (k.dP + v.dQ)
 *   dl_t = P_n.dP + Q_n.dQ + sum_{j >= t} (ds s + a da - u du)_j
 *   dP_0 = p_n dP + (z p)^T q,   dQ_0 = p_n dQ + (a p)^T dy
 * What several readers make of one owner's slots adds up in all but dq. */
#include "ops/slots.h"

enum { CHUNK = DRA_SLOTS_CHUNK };

enum { OUT_Q, OUT_K, OUT_V, OUT_L, OUT_U, OUT_P_START, OUT_Q_START };

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    for (int i = 0; i < DRA_SLOTS_INPUTS; i++) out[i] = *dra_type_of(g, n->in[i]);
    out[OUT_P_START] = *dra_type_of(g, n->in[DRA_SLOTS_DP]);
    out[OUT_Q_START] = *dra_type_of(g, n->in[DRA_SLOTS_DQ]);
    return DRA_OK;
}

/* ---- where things are ------------------------------------------------------------------------ */

typedef struct walk {
    const dra_call *c;
    dra_slots_sizes z;
    int64_t         tile, number;                       /* of the chunk */
    real           *owners;                             /* the memory of each, then */
    real           *M, *room, *x0;                      /* (n, DRA_CHUNK), (3, n, S), (n, S) */
    real           *q_rows, *k_rows, *v_rows, *dy_rows; /* for chunks with pads */
} walk;

typedef struct owner { /* of slots, in one chunk */
    dra_chunk       k;
    const real     *P, *Q, *P_end, *Q_end; /* before and after it */
    real           *dP, *dQ;               /* (S, D), (S, E): of after it, then of before it */
    real           *sum;                   /* (S): of dl, from the end on */
    real           *du, *grow;             /* (n, S); grow: ds s + a da */
    real           *a, *ds;                /* (n, S): of one reader, and */
    real           *qk, *dyv;              /* (n, DRA_CHUNK) */
    dra_slots_gates gates;
} owner;

static int64_t owner_size(const dra_slots_sizes *z)
{
    const int64_t n = dra_imin(CHUNK, z->T);
    return z->S * (z->D + z->E + 1) + 4 * n * z->S + 2 * n * DRA_CHUNK +
           dra_slots_gates_size(z, true);
}

static int64_t tile_size(const dra_slots_sizes *z)
{
    const int64_t n = dra_imin(CHUNK, z->T);
    return z->owners * owner_size(z) + n * (DRA_CHUNK + 4 * z->S + 2 * z->D + 2 * z->E);
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
    w.owners = (real *)c->scratch + i * tile_size(&w.z);
    w.M = w.owners + w.z.owners * owner_size(&w.z);
    w.room = w.M + n * DRA_CHUNK;
    w.x0 = w.room + 3 * n * S;
    w.q_rows = w.x0 + n * S;
    w.k_rows = w.q_rows + n * w.z.D;
    w.v_rows = w.k_rows + n * w.z.D;
    w.dy_rows = w.v_rows + n * w.z.E;
    return w;
}

static owner owner_of(const walk *w, int64_t j)
{
    const dra_slots_sizes *z = &w->z;
    const dra_tensor      *P = &w->c->in[DRA_SLOTS_P_BORDERS], *Q = P + 1;
    const int64_t          head = dra_slots_owner(w->c, w->tile, j);
    owner                  o = {.k = dra_slots_chunk(w->c, z, w->tile, head, w->number)};
    const int64_t          rows = o.k.n * z->S;
    o.P = dra_recur_at(P, o.k.b, head, w->number), o.P_end = o.P + P->stride[2];
    o.Q = dra_recur_at(Q, o.k.b, head, w->number), o.Q_end = o.Q + Q->stride[2];
    o.dP = w->owners + j * owner_size(z);
    o.dQ = o.dP + z->S * z->D;
    o.sum = o.dQ + z->S * z->E;
    o.du = o.sum + z->S;
    o.grow = o.du + rows;
    o.a = o.grow + rows;
    o.ds = o.a + rows;
    o.qk = o.ds + rows;
    o.dyv = o.qk + o.k.n * DRA_CHUNK;
    o.gates = dra_slots_gates_at(z, o.k.n, true, o.dyv + o.k.n * DRA_CHUNK);
    return o;
}

static dra_block rows_of(const walk *w, int input, const dra_chunk *k, int64_t head, real *room)
{
    const dra_chunk of = dra_slots_of_head(*k, head);
    return dra_chunk_rows(&of, &w->c->in[input], room);
}

/* The chunk's rows of an output (B, T, H, W); at is NULL where nobody reads it. */
static dra_block output_of(const walk *w, int output, const dra_chunk *k, int64_t head)
{
    const dra_tensor *x = &w->c->out[output];
    return (dra_block){x->data ? dra_recur_at(x, k->b, k->t, head) : NULL, x->stride[1], 1};
}

static dra_block dense(const real *x, int64_t W) { return (dra_block){(real *)x, W, 1}; }

/* ---- from the slots after the chunk ---------------------------------------------------------- */

/* du = D_n (k.dP + v.dQ),  dk = W_n dP,  dv = W_n dQ */
static void open_tokens(const walk *w, const owner *o)
{
    const dra_simd *simd = w->c->simd;
    const int64_t   n = o->k.n, S = w->z.S, D = w->z.D, E = w->z.E;
    const dra_block k = dra_chunk_rows(&o->k, &w->c->in[DRA_SLOTS_K], w->k_rows);
    const dra_block v = dra_chunk_rows(&o->k, &w->c->in[DRA_SLOTS_V], w->v_rows);
    const dra_block dP = dense(o->dP, D), dQ = dense(o->dQ, E);
    const dra_block dk = output_of(w, OUT_K, &o->k, o->k.h);
    const dra_block dv = output_of(w, OUT_V, &o->k, o->k.h);
    const dra_block last = dense(dra_slots_last(&o->gates, &o->gates.write), S);
    dra_slots_dots(simd, &o->gates, D, k, o->dP, o->du, false);
    dra_slots_dots(simd, &o->gates, E, v, o->dQ, o->du, true);
    simd->mul(n * S, o->du, dra_slots_last(&o->gates, &o->gates.carry), o->du);
    if (dk.at) dra_block_multiply(simd, n, D, S, last, dP, dk, false);
    if (dv.at) dra_block_multiply(simd, n, E, S, last, dQ, dv, false);
}

static void open_owner(const walk *w, const owner *o)
{
    const dra_simd *simd = w->c->simd;
    const int64_t   S = w->z.S, D = w->z.D, E = w->z.E;
    dra_slots_gates_fill(&o->k, &w->c->in[DRA_SLOTS_L], &w->c->in[DRA_SLOTS_U], &o->gates);
    open_tokens(w, o);
    for (int64_t i = 0; i < S; i++)
        o->sum[i] = simd->dot(D, o->P_end + i * D, o->dP + i * D) +
                    simd->dot(E, o->Q_end + i * E, o->dQ + i * E);
    dra_slots_decay(simd, &o->gates, D, o->dP);
    dra_slots_decay(simd, &o->gates, E, o->dQ);
    dra_recur_clear(o->k.n * S, o->grow);
}

/* ---- from a reader --------------------------------------------------------------------------- */

/* q.k, dy.v, and da in the place of ds. */
static void weigh_slots(const walk *w, const owner *o, int64_t query, int64_t target)
{
    const dra_simd *simd = w->c->simd;
    const int64_t   n = o->k.n, D = w->z.D, E = w->z.E;
    const dra_block q = rows_of(w, DRA_SLOTS_Q, &o->k, query, w->q_rows);
    const dra_block k = rows_of(w, DRA_SLOTS_K, &o->k, o->k.h, w->k_rows);
    const dra_block v = rows_of(w, DRA_SLOTS_V, &o->k, o->k.h, w->v_rows);
    const dra_block dy = rows_of(w, DRA_SLOTS_DY, &o->k, target, w->dy_rows);
    dra_chunk_pairs(simd, n, D, q, k, o->qk);
    dra_chunk_pairs(simd, n, E, dy, v, o->dyv);
    dra_slots_dots(simd, &o->gates, E, dy, o->Q, w->x0, false);
    dra_slots_weigh(simd, &o->gates, o->dyv, w->x0, w->room, o->ds);
}

/* The way back through the softmax: ds from da, of all owners, and grow. */
static void bend_weights(const walk *w, const real *logits, int64_t apart)
{
    const dra_simd *simd = w->c->simd;
    const int64_t   S = w->z.S, n = owner_of(w, 0).k.n;
    real           *delta = w->x0; /* (n) */
    dra_recur_clear(n, delta);
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        for (int64_t t = 0; t < n; t++) delta[t] += simd->dot(S, o.a + t * S, o.ds + t * S);
    }
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        simd->add_mul(n * S, o.a, o.ds, o.grow);
        for (int64_t t = 0; t < n; t++) simd->affine(S, 1, -delta[t], o.ds + t * S, o.ds + t * S);
        simd->mul(n * S, o.a, o.ds, o.ds);
        simd->add_mul(n * S, o.ds, logits + j * apart, o.grow);
        simd->scale(n * S, w->z.scale, o.ds);
    }
}

/* dq, dk and what comes to P_0, from z in the place of ds. */
static void return_keys(const walk *w, const owner *o, int64_t query, bool add)
{
    const dra_simd *simd = w->c->simd;
    const int64_t   n = o->k.n, S = w->z.S, D = w->z.D;
    const dra_block q = rows_of(w, DRA_SLOTS_Q, &o->k, query, w->q_rows);
    const dra_block k = rows_of(w, DRA_SLOTS_K, &o->k, o->k.h, w->k_rows);
    const dra_block dq = output_of(w, OUT_Q, &o->k, query);
    const dra_block dk = output_of(w, OUT_K, &o->k, o->k.h), zp = dense(w->room, S);
    dra_slots_spread(simd, &o->gates, o->ds, w->room, w->M);
    if (dk.at) dra_chunk_above(simd, n, D, w->M, q, dk, true);
    if (dq.at) dra_chunk_below(simd, n, D, w->M, k, dq, add);
    simd->mul(n * S, o->ds, o->gates.p, w->room);
    if (dq.at) dra_block_multiply(simd, n, D, S, zp, dense(o->P, D), dq, true);
    dra_block_multiply(simd, S, D, n, dra_block_turned(zp), q, dense(o->dP, D), true);
}

/* dv and what comes to Q_0. */
static void return_values(const walk *w, const owner *o, int64_t target)
{
    const dra_simd *simd = w->c->simd;
    const int64_t   n = o->k.n, S = w->z.S, E = w->z.E;
    const dra_block dy = rows_of(w, DRA_SLOTS_DY, &o->k, target, w->dy_rows);
    const dra_block dv = output_of(w, OUT_V, &o->k, o->k.h), ap = dense(w->room, S);
    if (dv.at) {
        dra_slots_spread(simd, &o->gates, o->a, w->room, w->M);
        dra_chunk_above(simd, n, E, w->M, dy, dv, true);
    }
    simd->mul(n * S, o->a, o->gates.p, w->room);
    dra_block_multiply(simd, S, E, n, dra_block_turned(ap), dy, dense(o->dQ, E), true);
}

static void return_read(const walk *w, int64_t r)
{
    const dra_slots_attr  *attr = w->c->attr;
    const dra_slots_sizes *z = &w->z;
    const int64_t          target = dra_slots_target(w->c, w->tile, r), apart = z->T * z->S;
    const real            *logits = w->c->in[DRA_SLOTS_LOGITS].data;
    logits += (w->tile * z->readers + r) * z->owners * apart + w->number * CHUNK * z->S;
    for (int64_t j = 0; j < z->owners; j++) {
        const owner o = owner_of(w, j);
        weigh_slots(w, &o, dra_slots_query(w->c, w->tile, r, j), target);
    }
    const owner first = owner_of(w, 0);
    dra_slots_softmax(z, &first.k, logits, apart, first.a, owner_size(z));
    bend_weights(w, logits, apart);
    for (int64_t j = 0; j < z->owners; j++) {
        const owner   o = owner_of(w, j);
        const int64_t query = dra_slots_query(w->c, w->tile, r, j);
        return_keys(w, &o, query, attr->read == DRA_READ_ALL && j > 0);
        return_values(w, &o, target);
        dra_slots_gather(w->c->simd, &o.gates, o.ds, o.qk, o.a, o.dyv, w->room, o.du);
    }
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Row t of du and dl; either may be NULL. The sum ends where nothing came through. */
static void close_token(const owner *o, int64_t t, real *to_u, real *to_l)
{
    const int64_t S = o->gates.S, at = t * S;
    const real   *u = o->gates.write.near + at, *du = o->du + at;
    const real   *keep = o->gates.keep + at, *grow = o->grow + at;
    const bool    pad = dra_chunk_pad(&o->k, t);
    for (int64_t i = 0; i < S; i++)
        o->sum[i] = keep[i] == 0 ? 0 : o->sum[i] + (grow[i] - u[i] * du[i]);
    if (to_u) dra_recur_copy(S, du, to_u);
    if (to_l) dra_recur_copy(S, o->sum, to_l);
    if (to_u && pad) dra_recur_clear(S, to_u);
    if (to_l && pad) dra_recur_clear(S, to_l);
}

/* What the chunk before this one reads and writes of an owner's head. */
static void fetch_next(const walk *w, const dra_chunk *k)
{
    const dra_tensor *dy = &w->c->in[DRA_SLOTS_DY];
    const int64_t     next = w->number - 1;
    for (int i = 0; i < DRA_SLOTS_INPUTS; i++) {
        dra_slots_fetch(&w->z, *k, next, &w->c->in[i]);
        dra_slots_fetch(&w->z, *k, next, &w->c->out[i]);
    }
    if (k->h < dy->shape.dim[2]) dra_slots_fetch(&w->z, *k, next, dy); /* pooled: one for all */
}

static void walk_chunk(const walk *w)
{
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        fetch_next(w, &o.k);
        open_owner(w, &o);
    }
    for (int64_t r = 0; r < w->z.readers && w->z.owners > 0; r++) return_read(w, r);
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner     o = owner_of(w, j);
        const dra_block du = output_of(w, OUT_U, &o.k, o.k.h);
        const dra_block dl = output_of(w, OUT_L, &o.k, o.k.h);
        for (int64_t t = o.k.n - 1; t >= 0; t--)
            close_token(&o, t, du.at ? du.at + t * du.row : NULL,
                        dl.at ? dl.at + t * dl.row : NULL);
    }
}

static void tile(const dra_call *c, int64_t i)
{
    walk          w = walk_of(c, i);
    const int64_t P = w.z.S * w.z.D, Q = w.z.S * w.z.E;
    for (int64_t j = 0; j < w.z.owners; j++) {
        const owner o = owner_of(&w, j);
        dra_chunk_load(&o.k, &c->in[DRA_SLOTS_DP], P, o.dP);
        dra_chunk_load(&o.k, &c->in[DRA_SLOTS_DQ], Q, o.dQ);
    }
    for (w.number = w.z.chunks - 1; w.number >= 0; w.number--) walk_chunk(&w);
    w.number = 0;
    for (int64_t j = 0; j < w.z.owners; j++) {
        const owner o = owner_of(&w, j);
        dra_chunk_store(&o.k, &c->out[OUT_P_START], P, o.dP);
        dra_chunk_store(&o.k, &c->out[OUT_Q_START], Q, o.dQ);
    }
}

/* For each token and pair of reader and owner four products with the slots and five with the n/2
 * tokens of the chunk before it; for each owner four more with the slots. */
static dra_cost cost(const dra_call *c)
{
    const dra_slots_sizes z = dra_slots_sizes_of(c);
    const double          n = (double)dra_imin(CHUNK, z.T), D = (double)z.D, E = (double)z.E;
    const double          S = (double)z.S, tokens = (double)(z.B * z.T * z.H);
    const double          read = 2 * S * (D + E) + n / 2 * (3 * D + 2 * E) + 2.5 * n * S;
    const double          write = 2 * S * (D + E) + n * S;
    return (dra_cost){2 * tokens * (read * (double)z.readers + write), dra_call_bytes(c)};
}

const dra_op     dra_op_slots_back = {.name = "slots_back",
                                      .n_in = DRA_MANY,
                                      .n_out = DRA_SLOTS_BACK_OUTPUTS,
                                      .layout = DRA_LAYOUT_ROWS,
                                      .attr_size = sizeof(dra_slots_attr),
                                      .infer = infer,
                                      .cost = cost};
const dra_kernel dra_cpu_slots_back = {
    &dra_op_slots_back, DRA_REALS | DRA_BIT(DRA_I32), tiles, tile, NULL, scratch};

const dra_node *dra_slots_back(dra_graph *g, dra_slots_read read, bool marked, const dra_value *in)
{
    const dra_slots_attr a = {.read = read, .mark = marked ? DRA_SLOTS_BACK_INPUTS : 0};
    return dra_node_add(g, &dra_op_slots_back, DRA_SLOTS_BACK_INPUTS + marked, in, &a);
}
