/* slots: S slots for each head, drawn towards each token, and a softmax over them. For slot i
 *   P_t = e^(l_t) P_t-1 + u_t k_t,   Q_t = e^(l_t) Q_t-1 + u_t v_t
 *   a_t = softmax_i (q_t.P_t,i / sqrt(D)),   y_t = sum_i a_t,i Q_t,i
 * over the slots of the query's own head, over those of all heads, or one softmax over all pairs of
 * a head's query and its own slots. A reset before t takes 0 for P_t-1; a pad writes nothing.
 * Beside y, if asked for: lse, the logarithm of the softmax's denominator, and mean, that of Q_t
 * over the slots of a head. How it is computed: see slots.h. */
#include "ops/chunked/slots.h"

/* ---- forward: (q, k, v, l, u[, P][, Q][, mark]) ---------------------------------------------- */

enum {
    Y,
    P_LAST,
    Q_LAST,
    LSE,       /* (B, T, H), or 1 in the place of H where y has it */
    MEAN,      /* (B, T, H, E) */
    P_BORDERS, /* (B, H, chunks + 1, S, D): slots before each chunk and after the last */
    Q_BORDERS,
    LOGITS, /* (B, readers, T, slots that each reads) */
    OUTPUTS
};

static dra_status infer_slots(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_slots_attr *a = n->attr;
    const int64_t        *k = dra_type_of(g, n->in[DRA_SLOTS_K])->shape.dim;
    const int64_t         B = k[0], T = k[1], H = k[2], D = k[3];
    const int64_t         E = dra_type_of(g, n->in[DRA_SLOTS_V])->shape.dim[3];
    const int64_t         S = dra_type_of(g, n->in[DRA_SLOTS_L])->shape.dim[3];
    const int64_t         borders = dra_div_up(T, DRA_SLOTS_CHUNK) + 1;
    const int64_t         reads = a->read == DRA_READ_POOLED ? 1 : H;
    for (int i = 0; i < OUTPUTS; i++) out[i].dtype = DRA_REAL;
    out[Y].shape = DRA_SHAPE(B, T, reads, E);
    out[P_LAST].shape = DRA_SHAPE(B, H, S, D);
    out[Q_LAST].shape = DRA_SHAPE(B, H, S, E);
    out[LSE].shape = DRA_SHAPE(B, T, reads);
    out[MEAN].shape = DRA_SHAPE(B, T, H, E);
    out[P_BORDERS].shape = DRA_SHAPE(B, H, borders, S, D);
    out[Q_BORDERS].shape = DRA_SHAPE(B, H, borders, S, E);
    out[LOGITS].shape = DRA_SHAPE(B, reads, T, a->read == DRA_READ_OWN ? S : H * S);
    return DRA_OK;
}

typedef struct walk {
    const dra_call *c;
    dra_slots_sizes z;
    int64_t         tile, number; /* of the chunk */
    dra_chunk       k;
    dra_tensor      borders[2]; /* of P and Q; data may be NULL */
    bool            ready;      /* are the borders made? */
    dra_slots_part *part;       /* (readers + 1) */
    real           *P, *Q;      /* (owners, S, D), (owners, S, E): where borders are not kept */
    real           *fade;       /* (owners, n, S) */
    real           *a;          /* (readers, n, row) */
    real           *uniform;    /* (S): 1 / S */
    real           *lse;        /* (n) */
} walk;

static size_t tile_size(const dra_slots_sizes *z)
{
    const int64_t numbers = z->row * (z->D + z->E + z->most) + z->readers * z->most * z->row +
                            z->S + z->most;
    return dra_slots_bytes(z, numbers);
}

static dra_chunk_stages plan_stages(const dra_call *c)
{
    return dra_slots_stages(c, (dra_chunk_work){65, 5, 100});
}

/* Scratch of the tiles and, in two stages, the states at all borders, which may be no output. */
static size_t scratch_size(const dra_call *c)
{
    const dra_slots_sizes  z = dra_slots_sizes_of(c);
    const dra_chunk_stages s = plan_stages(c);
    const int64_t          states = s.two ? z.B * z.H * (z.chunks + 1) * z.S * (z.D + z.E) : 0;
    return (size_t)dra_chunk_most_tiles(&s) * tile_size(&z) + (size_t)states * sizeof(real);
}

/* Of tile `tile`, with memory number `memory`. */
static walk walk_of(const dra_call *c, const dra_chunk_stages *s, int64_t tile, int64_t memory)
{
    walk                   w = {.c = c, .z = dra_slots_sizes_of(c), .tile = tile};
    const dra_slots_sizes *z = &w.z;
    char                  *at = (char *)c->scratch + (size_t)memory * tile_size(z);
    char *end = (char *)c->scratch + (size_t)dra_chunk_most_tiles(s) * tile_size(z);
    w.part = (dra_slots_part *)at;
    w.P = (real *)(void *)(at + dra_slots_bytes(z, 0));
    w.Q = w.P + z->row * z->D;
    w.fade = w.Q + z->row * z->E;
    w.a = w.fade + z->row * z->most;
    w.uniform = w.a + z->readers * z->most * z->row;
    w.lse = w.uniform + z->S;
    for (int64_t i = 0; i < z->S; i++) w.uniform[i] = 1 / (real)z->S;
    for (int i = 0; i < 2; i++) w.borders[i] = c->out[P_BORDERS + i];
    if (s->two && !w.borders[0].data) w.borders[0].data = end;
    if (s->two && !w.borders[1].data)
        w.borders[1].data = (real *)(void *)end + z->B * z->H * (z->chunks + 1) * z->S * z->D;
    w.k = dra_slots_chunk(c, z, tile, 0);
    return w;
}

static int64_t head_of(const walk *w, int64_t j) { return dra_slots_owner(w->c, w->tile, j); }

/* The slots of owner j before chunk `number`: the border, or one place for all. */
static real *slots_at(const walk *w, int output, real *spare, int64_t j, int64_t number)
{
    const dra_tensor *borders = &w->borders[output - P_BORDERS];
    const int64_t     W = dra_last(borders);
    if (!borders->data) return spare + j * w->z.S * W;
    return dra_recur_at(borders, w->k.b, head_of(w, j), number);
}

/* The run of owner j over the chunk that writes an input into its slots. */
static dra_slots_run run_of(const walk *w, int64_t j, const dra_slots_part *write, int output,
                            real *spare)
{
    return (dra_slots_run){.n = w->k.n,
                           .S = w->z.S,
                           .W = dra_last(&w->c->out[output]),
                           .ahead = w->k.n,
                           .mark = w->k.mark,
                           .fade = w->fade + j * w->z.most * w->z.S,
                           .from = slots_at(w, output, spare, j, w->number),
                           .to = w->ready ? NULL : slots_at(w, output, spare, j, w->number + 1),
                           .write = write,
                           .writes = 1,
                           .read = w->part};
}

static dra_slots_part write_of(const walk *w, int input, int64_t j)
{
    const dra_tensor *u = &w->c->in[DRA_SLOTS_U];
    const int64_t     h = head_of(w, j);
    return dra_slots_rows(&w->k, dra_recur_at(u, w->k.b, w->k.t, h), u->stride[1], &w->c->in[input],
                          h, false);
}

/* The logits of reader r: where they are kept, or where the weights come. */
static real *logits_of(const walk *w, int64_t r)
{
    const dra_slots_sizes *z = &w->z;
    real                  *kept = w->c->out[LOGITS].data;
    return kept ? kept + ((w->tile * z->readers + r) * z->T + w->k.t) * z->row
                : w->a + r * z->most * z->row;
}

/* P over the chunk, asked by all readers. */
static void ask_keys(const walk *w, int64_t j, bool asked)
{
    const dra_slots_sizes *z = &w->z;
    const dra_slots_part   write = write_of(w, DRA_SLOTS_K, j);
    dra_slots_run          run = run_of(w, j, &write, P_BORDERS, w->P);
    for (int64_t r = 0; r < z->readers && asked; r++)
        w->part[run.reads++] = dra_slots_rows(&w->k, logits_of(w, r) + j * z->S, z->row,
                                              &w->c->in[DRA_SLOTS_Q],
                                              dra_slots_query(w->c, w->tile, r, j), false);
    dra_slots_loops_of(dra_simd_of(w->c))->dots(&run);
}

static void weigh_slots(const walk *w, int64_t r)
{
    const dra_slots_sizes *z = &w->z;
    const dra_tensor      *lse = &w->c->out[LSE];
    real                  *logits = logits_of(w, r);
    const int64_t          to = dra_slots_target(w->c, w->tile, r);
    dra_simd_of(w->c)->scale(w->k.n * z->row, z->scale, logits);
    dra_slots_softmax(z, &w->k, logits, w->a + r * z->most * z->row, lse->data ? w->lse : NULL);
    for (int64_t t = 0; t < w->k.n && lse->data; t++)
        *dra_recur_at(lse, w->k.b, w->k.t + t, to) = w->lse[t];
}

/* Q over the chunk, mixed for all readers. */
static void mix_values(const walk *w, int64_t j)
{
    const dra_slots_sizes *z = &w->z;
    const dra_tensor      *y = &w->c->out[Y], *mean = &w->c->out[MEAN];
    const dra_slots_part   write = write_of(w, DRA_SLOTS_V, j);
    dra_slots_run          run = run_of(w, j, &write, Q_BORDERS, w->Q);
    for (int64_t r = 0; r < z->readers && y->data; r++)
        w->part[run.reads++] = dra_slots_rows(&w->k, w->a + r * z->most * z->row + j * z->S, z->row,
                                              y, dra_slots_target(w->c, w->tile, r), j > 0);
    if (mean->data)
        w->part[run.reads++] = dra_slots_rows(&w->k, w->uniform, 0, mean, head_of(w, j), false);
    dra_slots_loops_of(dra_simd_of(w->c))->mix(&run);
}

/* No owner of slots: a softmax over nothing gives nothing. */
static void read_nothing(const walk *w)
{
    const dra_tensor *y = &w->c->out[Y], *lse = &w->c->out[LSE];
    if (y->data) dra_recur_clear(w->z.T * w->z.E, dra_recur_at(y, w->k.b, 0, 0));
    if (lse->data) dra_recur_clear(w->z.T, dra_recur_at(lse, w->k.b, 0, 0));
}

static void walk_chunk(walk *w)
{
    const dra_tensor *in = w->c->in, *out = w->c->out;
    const bool        asked = out[Y].data || out[LSE].data || out[LOGITS].data;
    w->k = dra_slots_chunk(w->c, &w->z, w->tile, w->number);
    for (int64_t j = 0; j < w->z.owners; j++) {
        dra_slots_fade(&w->k, head_of(w, j), &in[DRA_SLOTS_L], w->fade + j * w->z.most * w->z.S);
        ask_keys(w, j, asked);
    }
    for (int64_t r = 0; r < w->z.readers && asked; r++) weigh_slots(w, r);
    for (int64_t j = 0; j < w->z.owners; j++) mix_values(w, j);
}

static void walk_head(const dra_call *c, const dra_chunk_stages *s, int64_t i)
{
    const dra_slots_attr *a = c->attr;
    walk                  w = walk_of(c, s, i, i);
    const int64_t         P = w.z.S * w.z.D, Q = w.z.S * w.z.E;
    for (int64_t j = 0; j < w.z.owners; j++) {
        w.k.h = head_of(&w, j);
        dra_chunk_load(&w.k, dra_chunk_option(c, a->keys), P, slots_at(&w, P_BORDERS, w.P, j, 0));
        dra_chunk_load(&w.k, dra_chunk_option(c, a->values), Q, slots_at(&w, Q_BORDERS, w.Q, j, 0));
    }
    if (w.z.owners > 0)
        for (; w.number < w.z.chunks; w.number++) walk_chunk(&w);
    else
        read_nothing(&w);
    for (int64_t j = 0; j < w.z.owners; j++) {
        w.k.h = head_of(&w, j);
        dra_chunk_store(&w.k, &c->out[P_LAST], P, slots_at(&w, P_BORDERS, w.P, j, w.z.chunks));
        dra_chunk_store(&w.k, &c->out[Q_LAST], Q, slots_at(&w, Q_BORDERS, w.Q, j, w.z.chunks));
    }
}

/* ---- in two stages --------------------------------------------------------------------------- */

/* Some columns of an owner's slots between state and chunks: from the first one, or to the last. */
static void copy_columns(const walk *w, const dra_slots_columns *x, const dra_tensor *from,
                         int64_t from_i, const dra_tensor *to, int64_t to_i)
{
    const int64_t    h = head_of(w, x->owner);
    dra_matrix_block source = dra_chunk_matrix(from, w->k.b, h, from_i);
    dra_matrix_block there = dra_chunk_matrix(to, w->k.b, h, to_i);
    if (!there.at) return;
    if (source.at) source.at += x->first;
    there.at += x->first;
    dra_matrix_block_copy(w->z.S, x->end - x->first, source, there);
}

/* Columns of P or Q over the chunk. */
static void write_columns(const walk *w, const dra_slots_columns *x)
{
    const dra_slots_part write = write_of(w, x->keys ? DRA_SLOTS_K : DRA_SLOTS_V, x->owner);
    dra_slots_run        run = run_of(w, x->owner, &write, x->keys ? P_BORDERS : Q_BORDERS, NULL);
    run.first = x->first;
    run.end = x->end;
    dra_slots_loops_of(dra_simd_of(w->c))->mix(&run);
}

/* Some columns of the slots before all chunks and after the last. */
static void pass_slots(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_slots_attr *a = c->attr;
    const dra_chunk_span  at = dra_chunk_block_at(s, tile);
    walk                  w = walk_of(c, s, at.head, tile);
    dra_slots_columns     x;
    for (w.number = 0; w.number < s->chunks; w.number++) {
        int64_t faded = -1; /* an owner */
        w.k = dra_slots_chunk(c, &w.z, at.head, w.number);
        for (int64_t i = at.first; i < at.end;) {
            i += dra_slots_columns_at(&w.z, i, at.end, &x);
            const dra_tensor *borders = &w.borders[!x.keys];
            const dra_tensor *start = dra_chunk_option(c, x.keys ? a->keys : a->values);
            if (x.owner != faded)
                dra_slots_fade(&w.k, head_of(&w, x.owner), &c->in[DRA_SLOTS_L],
                               w.fade + x.owner * w.z.most * w.z.S);
            faded = x.owner;
            if (w.number == 0) copy_columns(&w, &x, start, 0, borders, 0);
            write_columns(&w, &x);
            if (w.number + 1 == s->chunks)
                copy_columns(&w, &x, borders, s->chunks, &c->out[x.keys ? P_LAST : Q_LAST], 0);
        }
    }
}

/* What is read of some chunks. */
static void read_run(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_chunk_span at = dra_chunk_run_at(s, tile);
    walk                 w = walk_of(c, s, at.head, tile);
    w.ready = true;
    for (w.number = at.first; w.number < at.end; w.number++) walk_chunk(&w);
}

static int64_t count_stages(const dra_call *c) { return dra_chunk_stage_count(plan_stages(c)); }

static int64_t count_tiles(const dra_call *c) { return dra_chunk_tile_count(c, plan_stages(c)); }

static void walk_tile(const dra_call *c, int64_t tile)
{
    static void (*const by_part[])(const dra_call *, const dra_chunk_stages *,
                                   int64_t) = {walk_head, NULL, pass_slots, read_run};
    const dra_chunk_stages s = plan_stages(c);
    by_part[dra_chunk_part_of(c, &s)](c, &s, tile);
}

/* ---- the op ---------------------------------------------------------------------------------- */

static void derive_slots(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    const dra_slots_attr    *a = n->attr;
    const dra_slots_upstream options = {a->mark ? n->in[a->mark] : (dra_value){0}, dy[LSE],
                                        dy[MEAN]};
    dra_value                in[DRA_SLOTS_BACK_INPUTS + 3];
    for (int i = 0; i < DRA_SLOTS_INPUTS; i++) in[i] = n->in[i];
    in[DRA_SLOTS_P_BORDERS] = n->out[P_BORDERS];
    in[DRA_SLOTS_Q_BORDERS] = n->out[Q_BORDERS];
    in[DRA_SLOTS_LOGITS] = n->out[LOGITS];
    in[DRA_SLOTS_DY] = dra_recur_upstream(g, dy[Y], n->out[Y]);
    in[DRA_SLOTS_DP] = dra_recur_upstream(g, dy[P_LAST], n->out[P_LAST]);
    in[DRA_SLOTS_DQ] = dra_recur_upstream(g, dy[Q_LAST], n->out[Q_LAST]);
    const dra_node *back = dra_slots_back(g, a->read, in, options);
    if (!back) return;
    for (int i = 0; i < DRA_SLOTS_INPUTS; i++) dx[i] = back->out[i];
    if (a->keys) dx[a->keys] = back->out[DRA_SLOTS_INPUTS];
    if (a->values) dx[a->values] = back->out[DRA_SLOTS_INPUTS + 1];
}

/* For each token and number of a slot: it fades, is written, and read by each reader. */
static dra_cost cost_slots(const dra_call *c)
{
    const dra_slots_sizes z = dra_slots_sizes_of(c);
    const double          slots = (double)(z.B * z.T * z.H * z.S) * (double)(z.D + z.E);
    return (dra_cost){2 * slots * (double)(2 + z.readers), dra_call_bytes(c)};
}

const dra_op dra_op_slots = {.name = "slots",
                             .n_in = DRA_MANY,
                             .n_out = OUTPUTS,
                             .attr_size = sizeof(dra_slots_attr),
                             .infer = infer_slots,
                             .gradient = derive_slots,
                             .cost = cost_slots};

const dra_cpu_kernel dra_cpu_slots = {
    .base = {.op = "slots",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch_size},
    .tiles = count_tiles,
    .tile = walk_tile,
    .stages = count_stages,
};

/* ---- checks ---------------------------------------------------------------------------------- */

/* l or u: (B, T, H, S), or (H, S). */
static bool fits_gate(dra_graph *g, const char *name, dra_value v, const dra_shape *k, int64_t S)
{
    const int64_t  *d = k->dim;
    const dra_shape all = DRA_SHAPE(d[0], d[1], d[2], S), each = DRA_SHAPE(d[2], S);
    const bool      fixed = dra_type_of(g, v)->shape.rank == 2;
    return dra_recur_expect(g, "slots", name, v, DRA_REAL, fixed ? each : all);
}

static bool check_slots(dra_graph *g, const dra_slots_config *s)
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
    if (s->lse) *s->lse = (dra_value){0};
    if (s->mean) *s->mean = (dra_value){0};
    a.keys = dra_chunk_append(s->P, in, &n);
    a.values = dra_chunk_append(s->Q, in, &n);
    a.mark = dra_chunk_append(s->mark, in, &n);
    if (!dra_check_values(g, "slots", n, in) || !check_slots(g, s)) return (dra_value){0};
    const dra_shape k = dra_type_of(g, s->k)->shape, l = dra_type_of(g, s->l)->shape;
    const dra_shape gates = DRA_SHAPE(k.dim[0], k.dim[1], k.dim[2], l.dim[l.rank - 1]);
    in[DRA_SLOTS_L] = dra_broadcast(g, s->l, gates);
    in[DRA_SLOTS_U] = dra_broadcast(g, s->u, gates);
    const dra_node *node = dra_node_add(g, &dra_op_slots, n, in, &a);
    if (!node) return (dra_value){0};
    if (P_last) *P_last = node->out[P_LAST];
    if (Q_last) *Q_last = node->out[Q_LAST];
    if (s->lse) *s->lse = node->out[LSE];
    if (s->mean) *s->mean = node->out[MEAN];
    return node->out[Y];
}
