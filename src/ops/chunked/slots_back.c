/* Gradients of slots, walking back over the chunks; in stages (chunk.h) those of all weights, those
 * of the slots between chunks, then the rest. With the weights a from the kept logits s, the
 * slots of each token made again from the border before its chunk, and dP_t, dQ_t those of the
 * slots after token t:
 *   da_i = dy.Q_i,   ds = a (da - sum a da + dlse),   z = ds / sqrt(D),   dq = sum_i z_i P_i
 *   dP_t = e^(l_t+1) dP_t+1 + z_t q_t^T,   dQ_t = e^(l_t+1) dQ_t+1 + a_t dy_t^T + dmean_t / S
 *   du_i = k.dP_i + v.dQ_i,   dk = sum_i u_i dP_i,   dv = sum_i u_i dQ_i
 * What fades by l_t is all that later tokens see of the slots before t, so
 *   dl_t = e^(l_t) (P_t-1.dP_t + Q_t-1.dQ_t) = dl_t+1 + (ds s + a da + Q.dmean / S - u du)_t
 * The products are taken once in a part of a chunk, where the slots were saved: for each token they
 * would cost 2 S (D + E) and all its slots. In between are sums, and those lose digits: every
 * rounding, of the slots and of their gradients too, stays in them, however little a slot keeps.
 * It shows in the temperature of routed gates. A slot with u near 1 has a small dl among large
 * terms, and it counts there times the distance between logits, which is large. Relative errors of
 * that gradient, 4 / 16 slots: 13e-6 / 3e-6 with sums from the end of a chunk on, 5e-6 / 2e-6 with
 * both ends of the chunk known, 3e-6 / 1e-6 with parts of 32 tokens, 2e-6 / 0.8e-6 with 16, which
 * take 3 % longer, 0.2e-6 with products alone. */
#include "ops/chunked/slots.h"

enum { CHUNK = DRA_SLOTS_CHUNK, PART = 32 /* tokens */ };

enum { OUT_Q, OUT_K, OUT_V, OUT_L, OUT_U, OUT_P_START, OUT_Q_START };

static dra_status infer_slots_back(dra_graph *g, const dra_node *n, dra_type *out)
{
    for (int i = 0; i < DRA_SLOTS_INPUTS; i++) out[i] = *dra_type_of(g, n->in[i]);
    out[OUT_P_START] = *dra_type_of(g, n->in[DRA_SLOTS_DP]);
    out[OUT_Q_START] = *dra_type_of(g, n->in[DRA_SLOTS_DQ]);
    return DRA_OK;
}

/* ---- where things are ------------------------------------------------------------------------ */

typedef struct walk {
    const dra_call   *c;
    dra_slots_sizes   z;
    int64_t           tile, number; /* of the chunk */
    bool              alone;        /* the chunk after it is another tile's */
    dra_chunk         k;
    int32_t           mark[CHUNK + 1]; /* of its tokens and of the one after it */
    const dra_tensor *dlse, *dmean;    /* or NULL */
    dra_slots_part   *part;            /* (readers + 1) */
    real             *a, *d;           /* (readers, n, row): the weights; da, then z */
    real             *dlog_scale;      /* (n, row): what adds up to dl, but u du */
    real             *dmean_dots;      /* (n, row): dmean.Q */
    real             *owners;          /* the memory of each */
    real             *du;              /* (n, S): of one owner, where nobody reads it */
    real             *uniform;         /* (S): 1 / S */
    real             *saved;           /* (parts, S, D): P after each part but the last */
    real             *exact;           /* (parts + 1, S): dl before each part and after the last */
    real             *dlse_rows;       /* (n) */
} walk;

typedef struct owner { /* of slots */
    int64_t h;
    real   *dP, *dQ; /* (S, D), (S, E): of after the chunk but for its fading, then of before it */
    real   *fade;    /* (n + 1, S): of the chunk's tokens and of the one after it */
    real   *next;    /* (S): dl of the first token after the chunk */
    real   *saved;   /* (parts, S, E): Q after each part but the last */
} owner;

static int64_t parts_of(int64_t n) { return dra_div_up(n, PART); }

static int64_t owner_size(const dra_slots_sizes *z)
{
    return z->S * (z->D + z->E + z->most + 2 + parts_of(z->most) * z->E);
}

static size_t tile_size(const dra_slots_sizes *z)
{
    const int64_t numbers = (2 * z->readers + 2) * z->most * z->row + z->owners * owner_size(z) +
                            z->most * (z->S + 1) + z->S * (2 + parts_of(z->most) * (z->D + 1));
    return dra_slots_bytes(z, numbers);
}

static dra_chunk_stages plan_stages(const dra_call *c)
{
    return dra_slots_stages(c, (dra_chunk_work){25, 3, 100, true});
}

/* Memory of the tiles; in stages of all chunks, and parts for tiles that pass slots. */
static size_t scratch_size(const dra_call *c)
{
    const dra_slots_sizes  z = dra_slots_sizes_of(c);
    const dra_chunk_stages s = plan_stages(c);
    if (!s.two) return (size_t)z.tiles * tile_size(&z);
    return (size_t)(s.heads * s.chunks) * tile_size(&z) +
           (size_t)(s.heads * s.blocks) * dra_slots_bytes(&z, 0);
}

/* Of tile i at chunk `number`. */
static walk walk_of(const dra_call *c, const dra_chunk_stages *s, int64_t i, int64_t number)
{
    const dra_slots_attr  *attr = c->attr;
    walk                   w = {.c = c, .tile = i, .number = number, .alone = s->two};
    const dra_slots_sizes *z = &w.z;
    const int64_t          at = s->two ? i * s->chunks + number : i;
    w.z = dra_slots_sizes_of(c);
    char *memory = (char *)c->scratch + (size_t)at * tile_size(z);
    w.dlse = dra_chunk_option(c, attr->dlse);
    w.dmean = dra_chunk_option(c, attr->dmean);
    w.part = (dra_slots_part *)memory;
    w.a = (real *)(void *)(memory + dra_slots_bytes(z, 0));
    w.d = w.a + z->readers * z->most * z->row;
    w.dlog_scale = w.d + z->readers * z->most * z->row;
    w.dmean_dots = w.dlog_scale + z->most * z->row;
    w.owners = w.dmean_dots + z->most * z->row;
    w.du = w.owners + z->owners * owner_size(z);
    w.uniform = w.du + z->most * z->S;
    w.saved = w.uniform + z->S;
    w.exact = w.saved + parts_of(z->most) * z->S * z->D;
    w.dlse_rows = w.exact + (parts_of(z->most) + 1) * z->S;
    w.k = dra_slots_chunk(c, z, i, number);
    return w;
}

static owner owner_of(const walk *w, int64_t j)
{
    owner o = {.h = dra_slots_owner(w->c, w->tile, j), .dP = w->owners + j * owner_size(&w->z)};
    o.dQ = o.dP + w->z.S * w->z.D;
    o.fade = o.dQ + w->z.S * w->z.E;
    o.next = o.fade + (w->z.most + 1) * w->z.S;
    o.saved = o.next + w->z.S;
    return o;
}

/* The slots of head h, P or Q, before chunk `number`. */
static const real *find_border(const walk *w, int input, int64_t h, int64_t number)
{
    return dra_recur_at(&w->c->in[input], w->k.b, h, number);
}

/* ---- runs over the chunk --------------------------------------------------------------------- */

static const dra_slots_loops *loops_of(const walk *w)
{
    return dra_slots_loops_of(dra_simd_of(w->c));
}

/* From the border forwards: slots as the tokens see them. */
static dra_slots_run run_forwards(const walk *w, const owner *o, int64_t W, const real *from,
                                  const dra_slots_part *write)
{
    return (dra_slots_run){.n = w->k.n,
                           .S = w->z.S,
                           .W = W,
                           .ahead = -CHUNK,
                           .mark = w->mark,
                           .fade = o->fade,
                           .from = from,
                           .write = write,
                           .writes = 1,
                           .read = w->part};
}

/* From the end of the chunk backwards: their gradients. */
static dra_slots_run run_backwards(const walk *w, const owner *o, int64_t W, const real *from,
                                   const dra_slots_part *read)
{
    return (dra_slots_run){.n = w->k.n,
                           .S = w->z.S,
                           .W = W,
                           .ahead = -CHUNK,
                           .back = true,
                           .mark = w->mark,
                           .fade = o->fade,
                           .from = from,
                           .write = w->part,
                           .read = read,
                           .reads = 1};
}

static bool wants_decay(const walk *w) { return w->c->out[OUT_L].data != NULL; }

/* The weights u of owner o with the chunk's rows of x. */
static dra_slots_part with_gates(const walk *w, const owner *o, const dra_tensor *x)
{
    const dra_tensor *u = &w->c->in[DRA_SLOTS_U];
    return dra_slots_rows(&w->k, dra_recur_at(u, w->k.b, w->k.t, o->h), u->stride[1], x, o->h,
                          false);
}

/* Rows of du, where they go or in a place of their own, with those of x. */
static dra_slots_part gate_rows(const walk *w, const owner *o, const dra_tensor *x, bool add)
{
    const dra_tensor *du = &w->c->out[OUT_U];
    if (!du->data) return dra_slots_rows(&w->k, w->du, w->z.S, x, o->h, add);
    return dra_slots_rows(&w->k, dra_recur_at(du, w->k.b, w->k.t, o->h), du->stride[1], x, o->h,
                          add);
}

/* The weights of reader r for owner j, (n, row) at x. */
static real *weights_of(const walk *w, real *x, int64_t r, int64_t j)
{
    return x + r * w->z.most * w->z.row + j * w->z.S;
}

/* da = dy.Q of all readers, and dmean.Q */
static void weight_grads(const walk *w, int64_t j)
{
    const dra_tensor    *dy = &w->c->in[DRA_SLOTS_DY];
    const owner          o = owner_of(w, j);
    const dra_slots_part write = with_gates(w, &o, &w->c->in[DRA_SLOTS_V]);
    const real          *from = find_border(w, DRA_SLOTS_Q_BORDERS, o.h, w->number);
    dra_slots_run        run = run_forwards(w, &o, w->z.E, from, &write);
    for (int64_t r = 0; r < w->z.readers; r++)
        w->part[run.reads++] = dra_slots_rows(&w->k, weights_of(w, w->d, r, j), w->z.row, dy,
                                              dra_slots_target(w->c, w->tile, r), false);
    if (w->dmean)
        w->part[run.reads++] = dra_slots_rows(&w->k, w->dmean_dots + j * w->z.S, w->z.row, w->dmean,
                                              o.h, false);
    run.every = wants_decay(w) ? PART : 0;
    run.saved = o.saved;
    loops_of(w)->dots(&run);
}

/* Back through the softmax of reader r: z in the place of da, and dlog_scale. */
static void logit_grads(const walk *w, int64_t r)
{
    const dra_slots_sizes *z = &w->z;
    const real            *logits = w->c->in[DRA_SLOTS_LOGITS].data;
    const int64_t          from = dra_slots_target(w->c, w->tile, r);
    logits += ((w->tile * z->readers + r) * z->T + w->k.t) * z->row;
    dra_slots_softmax(z, &w->k, logits, weights_of(w, w->a, r, 0), NULL);
    for (int64_t t = 0; t < w->k.n && w->dlse; t++)
        w->dlse_rows[t] = dra_chunk_pad(&w->k, t)
                              ? 0
                              : *dra_recur_at(w->dlse, w->k.b, w->k.t + t, from);
    loops_of(w)->softmax_backward(&(dra_softmax_backward){.rows = w->k.n,
                                                          .n = z->row,
                                                          .s = logits,
                                                          .a = weights_of(w, w->a, r, 0),
                                                          .dlse = w->dlse ? w->dlse_rows : NULL,
                                                          .scale = z->scale,
                                                          .d = weights_of(w, w->d, r, 0),
                                                          .dlog_scale = w->dlog_scale,
                                                          .add = r > 0});
}

/* dq of all readers, from one owner's slots, and these to be met by dP. */
static void return_queries(const walk *w, const owner *o, int64_t j)
{
    const dra_slots_attr *attr = w->c->attr;
    const dra_tensor     *dq = &w->c->out[OUT_Q];
    const dra_slots_part  write = with_gates(w, o, &w->c->in[DRA_SLOTS_K]);
    const real           *from = find_border(w, DRA_SLOTS_P_BORDERS, o->h, w->number);
    dra_slots_run         run = run_forwards(w, o, w->z.D, from, &write);
    if (!dq->data && !wants_decay(w)) return;
    for (int64_t r = 0; r < w->z.readers && dq->data; r++)
        w->part[run.reads++] = dra_slots_rows(&w->k, weights_of(w, w->d, r, j), w->z.row, dq,
                                              dra_slots_query(w->c, w->tile, r, j),
                                              attr->read == DRA_READ_ALL && j > 0);
    run.every = wants_decay(w) ? PART : 0;
    run.saved = w->saved;
    loops_of(w)->mix(&run);
}

/* to (S) = x.dx for each slot, or += */
static void dot_slots(const walk *w, int64_t W, const real *x, const real *dx, bool add, real *to)
{
    const dra_simd *simd = dra_simd_of(w->c);
    for (int64_t i = 0; i < w->z.S; i++)
        to[i] = (add ? to[i] : 0) + simd->dot(W, x + i * W, dx + i * W);
}

/* What is written into dP, and into dQ. */
static int64_t key_writes(const walk *w, int64_t j)
{
    int64_t writes = 0;
    for (int64_t r = 0; r < w->z.readers; r++)
        w->part[writes++] = dra_slots_rows(&w->k, weights_of(w, w->d, r, j), w->z.row,
                                           &w->c->in[DRA_SLOTS_Q],
                                           dra_slots_query(w->c, w->tile, r, j), false);
    return writes;
}

static int64_t value_writes(const walk *w, const owner *o, int64_t j)
{
    int64_t writes = 0;
    for (int64_t r = 0; r < w->z.readers; r++)
        w->part[writes++] = dra_slots_rows(&w->k, weights_of(w, w->a, r, j), w->z.row,
                                           &w->c->in[DRA_SLOTS_DY],
                                           dra_slots_target(w->c, w->tile, r), false);
    if (w->dmean) w->part[writes++] = dra_slots_rows(&w->k, w->uniform, 0, w->dmean, o->h, false);
    return writes;
}

/* Through the slots x, P or Q, with gradients dx, to what was written, x_t = u k or u v: its row
 * and its share of du; and the products x.dx where slots are known. */
static void return_writes(const walk *w, const owner *o, int64_t writes, int input, real *dx,
                          bool add)
{
    const bool           keys = input == DRA_SLOTS_K;
    const int            borders = keys ? DRA_SLOTS_P_BORDERS : DRA_SLOTS_Q_BORDERS;
    const dra_tensor    *x = &w->c->in[input], *row = &w->c->out[input];
    const dra_slots_part to_u = gate_rows(w, o, x, add);
    dra_slots_part       to_x = with_gates(w, o, x);
    dra_slots_run        run = run_backwards(w, o, dra_last(x), dx, &to_u);
    run.writes = writes;
    run.every = wants_decay(w) ? PART : 0;
    run.saved = keys ? w->saved : o->saved;
    run.saved_dots = w->exact + w->z.S;
    run.add_dots = add;
    if (w->c->out[OUT_U].data || wants_decay(w)) loops_of(w)->dots(&run);
    run.every = 0;
    run.to = dx;
    run.read = &to_x;
    run.reads = row->data != NULL;
    if (row->data) to_x = with_gates(w, o, row);
    loops_of(w)->mix(&run);
    if (wants_decay(w))
        dot_slots(w, run.W, find_border(w, borders, o->h, w->number), dx, add, w->exact);
}

/* ---- dl -------------------------------------------------------------------------------------- */

/* dl of token t, from the products of slots before it and of the gradients it left. */
static void fade_dots(const walk *w, const owner *o, int64_t t, real *dots)
{
    const real *fade = o->fade + t * w->z.S;
    const bool  reset = w->mark[t] & DRA_MARK_RESET;
    for (int64_t i = 0; i < w->z.S; i++)
        dots[i] = reset || fade[i] == -1 ? 0 : dots[i] + fade[i] * dots[i];
}

/* dl of the first token after the chunk; after the last chunk nothing fades any more. */
static void open_decay(const walk *w, const owner *o)
{
    const real *P = find_border(w, DRA_SLOTS_P_BORDERS, o->h, w->number + 1);
    const real *Q = find_border(w, DRA_SLOTS_Q_BORDERS, o->h, w->number + 1);
    dot_slots(w, w->z.D, P, o->dP, false, o->next);
    dot_slots(w, w->z.E, Q, o->dQ, true, o->next);
    if (w->number + 1 < w->z.chunks) fade_dots(w, o, w->k.n, o->next);
}

/* dl from one token where it is known to the next. */
static void return_decay(const walk *w, const owner *o, int64_t j)
{
    const int64_t        S = w->z.S, n = w->k.n, parts = parts_of(n);
    const dra_tensor    *v = &w->c->in[DRA_SLOTS_V], *dl = &w->c->out[OUT_L];
    const dra_slots_part u = with_gates(w, o, v), du = gate_rows(w, o, v, false);
    dra_recur_copy(S, o->next, w->exact + parts * S);
    for (int64_t p = parts - 1; p >= 0; p--) {
        real *exact = w->exact + p * S;
        fade_dots(w, o, p * PART, exact);
        loops_of(w)->decay_backward(
            &(dra_decay_backward){.first = p * PART,
                                  .n = dra_imin(PART, n - p * PART),
                                  .S = S,
                                  .mark = w->mark,
                                  .fade = o->fade,
                                  .own = w->dlog_scale + j * S,
                                  .own_row = w->z.row,
                                  .u = u.w,
                                  .u_row = u.w_row,
                                  .du = du.w,
                                  .du_row = du.w_row,
                                  .dl = dra_recur_at(dl, w->k.b, w->k.t, o->h),
                                  .dl_row = dl->stride[1],
                                  .start = exact,
                                  .end = exact + S});
    }
    dra_recur_copy(S, w->exact, o->next); /* of the chunk before */
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* The chunk and its marks, followed by the mark of the first token of the next chunk, if any. */
static void open_chunk(walk *w, int64_t number)
{
    const dra_slots_attr *attr = w->c->attr;
    w->number = number;
    w->k = dra_slots_chunk(w->c, &w->z, w->tile, number);
    for (int64_t t = 0; t < w->k.n; t++) w->mark[t] = w->k.mark ? w->k.mark[t] : 0;
    w->mark[w->k.n] = number + 1 < w->z.chunks && attr->mark ? w->k.mark[w->k.n] : 0;
}

/* How its tokens, and the one after them, fade. */
static void fade_chunk(const walk *w, const owner *o)
{
    const dra_slots_attr *attr = w->c->attr;
    const dra_tensor     *l = &w->c->in[DRA_SLOTS_L];
    const int64_t         after = w->k.t + w->k.n;
    real                 *last = o->fade + w->k.n * w->z.S;
    dra_slots_fade(&w->k, o->h, l, o->fade);
    dra_recur_clear(w->z.S, last);
    if (after == w->z.T) return;
    const dra_chunk next = dra_chunk_cut(w->c, dra_chunk_option(w->c, attr->mark), w->k.b, 0,
                                         w->z.T, after, 1);
    dra_slots_fade(&next, o->h, l, last);
}

/* The gradients of the chunk's weights. */
static void weigh_chunk(const walk *w)
{
    for (int64_t i = 0; i < w->z.S; i++) w->uniform[i] = 1 / (real)w->z.S;
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        fade_chunk(w, &o);
        weight_grads(w, j);
    }
    for (int64_t r = 0; r < w->z.readers && w->z.owners > 0; r++) logit_grads(w, r);
    if (w->dmean)
        dra_simd_of(w->c)->axpy(w->k.n * w->z.row, 1 / (real)w->z.S, w->dmean_dots, w->dlog_scale);
}

/* All that follows from them, and from those of the slots after the chunk. */
static void return_chunk(const walk *w)
{
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        if (wants_decay(w) && (w->alone || w->number + 1 == w->z.chunks)) open_decay(w, &o);
        return_queries(w, &o, j);
        return_writes(w, &o, key_writes(w, j), DRA_SLOTS_K, o.dP, false);
        return_writes(w, &o, value_writes(w, &o, j), DRA_SLOTS_V, o.dQ, true);
        if (wants_decay(w)) return_decay(w, &o, j);
    }
}

/* x + fade x; nothing of x where it has faded entirely, be it NaN. */
static void fade_slot(const dra_simd *simd, int64_t n, real fade, real *x)
{
    if (fade == -1)
        dra_recur_clear(n, x);
    else
        simd->axpy(n, fade, x, x);
}

/* dx (S, W) before the first token, by its own fading; to an output. */
static void store_start(walk *w, const owner *o, int output, real *dx)
{
    const dra_tensor *to = &w->c->out[output];
    const int64_t     W = dra_last(to);
    for (int64_t i = 0; i < w->z.S; i++)
        fade_slot(dra_simd_of(w->c), W, w->mark[0] & DRA_MARK_RESET ? -1 : o->fade[i], dx + i * W);
    w->k.h = o->h;
    dra_chunk_store(&w->k, to, w->z.S * W, dx);
}

/* From those of the last slots. */
static void load_last(walk *w)
{
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        w->k.h = o.h;
        dra_recur_clear(w->z.S, o.fade); /* stays so without tokens */
        dra_chunk_load(&w->k, &w->c->in[DRA_SLOTS_DP], w->z.S * w->z.D, o.dP);
        dra_chunk_load(&w->k, &w->c->in[DRA_SLOTS_DQ], w->z.S * w->z.E, o.dQ);
    }
}

static void store_first(walk *w)
{
    for (int64_t j = 0; j < w->z.owners; j++) {
        const owner o = owner_of(w, j);
        store_start(w, &o, OUT_P_START, o.dP);
        store_start(w, &o, OUT_Q_START, o.dQ);
    }
}

static void walk_head(const dra_call *c, const dra_chunk_stages *s, int64_t i)
{
    walk w = walk_of(c, s, i, 0);
    load_last(&w);
    for (int64_t number = w.z.chunks - 1; number >= 0; number--) {
        open_chunk(&w, number);
        weigh_chunk(&w);
        return_chunk(&w);
    }
    store_first(&w);
}

/* ---- in stages ------------------------------------------------------------------------------- */

static void weigh_run(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_chunk_span at = dra_chunk_run_at(s, tile);
    for (int64_t number = at.first; number < at.end; number++) {
        walk w = walk_of(c, s, at.head, number);
        if (number + 1 == s->chunks) load_last(&w);
        open_chunk(&w, number);
        weigh_chunk(&w);
    }
}

/* Columns of dP or dQ from after the chunk to before it: after the one before. */
static void pass_columns(const walk *w, const walk *before, const dra_slots_columns *x)
{
    const owner   o = owner_of(w, x->owner), to = owner_of(before, x->owner);
    dra_slots_run run = run_backwards(w, &o, x->keys ? w->z.D : w->z.E, x->keys ? o.dP : o.dQ,
                                      NULL);
    run.writes = x->keys ? key_writes(w, x->owner) : value_writes(w, &o, x->owner);
    run.reads = 0;
    run.to = x->keys ? to.dP : to.dQ;
    run.first = x->first;
    run.end = x->end;
    loops_of(w)->mix(&run);
}

/* Some columns of the gradients of slots after all chunks. */
static void pass_slots(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_chunk_span at = dra_chunk_block_at(s, tile);
    dra_slots_columns    x;
    for (int64_t number = s->chunks - 1; number > 0; number--) {
        walk       w = walk_of(c, s, at.head, number);
        const walk before = walk_of(c, s, at.head, number - 1);
        char      *parts = (char *)c->scratch + (size_t)(s->heads * s->chunks) * tile_size(&w.z);
        w.part = (dra_slots_part *)(void *)(parts + (size_t)tile * dra_slots_bytes(&w.z, 0));
        open_chunk(&w, number);
        for (int64_t i = at.first; i < at.end;) {
            i += dra_slots_columns_at(&w.z, i, at.end, &x);
            pass_columns(&w, &before, &x);
        }
    }
}

static void return_run(const dra_call *c, const dra_chunk_stages *s, int64_t tile)
{
    const dra_chunk_span at = dra_chunk_run_at(s, tile);
    for (int64_t number = at.end - 1; number >= at.first; number--) {
        walk w = walk_of(c, s, at.head, number);
        open_chunk(&w, number);
        return_chunk(&w);
        if (number == 0) store_first(&w);
    }
}

static int64_t count_stages(const dra_call *c) { return dra_chunk_stage_count(plan_stages(c)); }

static int64_t count_tiles(const dra_call *c) { return dra_chunk_tile_count(c, plan_stages(c)); }

static void walk_tile(const dra_call *c, int64_t tile)
{
    static void (*const by_part[])(const dra_call *, const dra_chunk_stages *,
                                   int64_t) = {walk_head, weigh_run, pass_slots, return_run};
    const dra_chunk_stages s = plan_stages(c);
    by_part[dra_chunk_part_of(c, &s)](c, &s, tile);
}

/* For each token and number of a slot: three runs over it, for da and dq, du, dk and dv, in each of
 * which it fades, and is written and read by all readers and by the token itself. */
static dra_cost cost_slots_back(const dra_call *c)
{
    const dra_slots_sizes z = dra_slots_sizes_of(c);
    const double          slots = (double)(z.B * z.T * z.H * z.S) * (double)(z.D + z.E);
    return (dra_cost){6 * slots * (double)(2 + z.readers), dra_call_bytes(c)};
}

const dra_op dra_op_slots_back = {.name = "slots_back",
                                  .n_in = DRA_MANY,
                                  .n_out = DRA_SLOTS_BACK_OUTPUTS,
                                  .attr_size = sizeof(dra_slots_attr),
                                  .infer = infer_slots_back,
                                  .cost = cost_slots_back};

const dra_cpu_kernel dra_cpu_slots_back = {
    .base = {.op = "slots_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch_size},
    .tiles = count_tiles,
    .tile = walk_tile,
    .stages = count_stages,
};

const dra_node *dra_slots_back(dra_graph *g, dra_slots_read read, dra_value *in,
                               dra_slots_upstream options)
{
    dra_slots_attr a = {.read = read};
    int            n = DRA_SLOTS_BACK_INPUTS;
    a.mark = dra_chunk_append(options.mark, in, &n);
    a.dlse = dra_chunk_append(options.dlse, in, &n);
    a.dmean = dra_chunk_append(options.dmean, in, &n);
    return dra_node_add(g, &dra_op_slots_back, n, in, &a);
}
