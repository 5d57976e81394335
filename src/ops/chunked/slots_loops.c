/* Slots over a run of tokens, see slots.h. A block of slots and columns stays in registers while
 * the tokens pass, so that a slot is neither loaded nor stored for a token. Which way it is laid
 * out there is set by what is read: sums over columns want slots next to each other in a vector,
 * sums over slots want columns. Sums go by blocks of LANES columns or HELD slots, so their order is
 * fixed by W or S. */
#include "ops/chunked/slots_loops.h"

#include <float.h>

#include "device/simd_level.h"

/* How many tokens of the run are done where slots are saved next, or at its end, when k are. */
static inline int64_t next_stop(const dra_slots_run *s, int64_t k)
{
    if (!s->every) return s->n;
    const int64_t left = (s->n - 1 - k) / s->every * s->every, next = k - k % s->every + s->every;
    return s->back ? s->n - left : next < s->n ? next : s->n;
}

/* The number of those that are saved there. */
static inline int64_t saved_at(const dra_slots_run *s, int64_t k)
{
    return (s->back ? s->n - k : k) / s->every - 1;
}

#ifndef LEVEL_REF

enum { HELD = LANES == 8 ? 8 : 16 }; /* slots in registers; level avx2 has 16 of these */

typedef struct slots_token { /* token t, and the one whose fading comes before it */
    int64_t t, fades;
    bool    reset, pad;
} slots_token;

static inline slots_token token_at(const dra_slots_run *s, int64_t i)
{
    const int64_t t = s->back ? s->n - 1 - i : i, fades = t + s->back;
    const int32_t before = s->mark ? s->mark[fades] : 0, own = s->mark ? s->mark[t] : 0;
    return (slots_token){t, fades, before & DRA_MARK_RESET, own & DRA_MARK_PAD};
}

/* Rows of tokens lie far apart, the processor does not guess them. Asked for in here a token and
 * head take 730 ns, asked for all at once before each chunk 800 (S = 16, D = 64, Zen 4). */
static ALWAYS_INLINE void fetch_rows(const dra_slots_run *s, const float *x, int64_t row, int made)
{
    fetch(x, s->ahead * row, made);
}

/* ---- sums over columns ----------------------------------------------------------------------- */

typedef struct slots_block {
    int64_t i, d;         /* first slot and column */
    int64_t slots, width; /* from there on */
} slots_block;

/* Columns of the block as numbers to be broadcast; in `room` with zeros where there are none. */
static ALWAYS_INLINE const float *numbers_of(const float *x, int64_t width, float *room)
{
    if (width >= LANES) return x;
    store(room, load_part(x, width, vset(0)));
    return room;
}

/* Vector c holds column c of LANES slots. */
static ALWAYS_INLINE void load_transposed(const dra_slots_run *s, slots_block b, const float *from,
                                          vf x[LANES])
{
    UNROLL
    for (int j = 0; j < LANES; j++)
        x[j] = j < b.slots ? load_some(from + (b.i + j) * s->W + b.d, b.width, vset(0)) : vset(0);
    transpose_tile(x);
}

static ALWAYS_INLINE void store_transposed(const dra_slots_run *s, slots_block b, float *to,
                                           vf x[LANES])
{
    transpose_tile(x);
    UNROLL
    for (int j = 0; j < LANES; j++)
        if (j < b.slots) store_some(to + (b.i + j) * s->W + b.d, b.width, x[j]);
}

static ALWAYS_INLINE vf dot_columns(const float *q, const vf x[LANES])
{
    vf sum[4] = {vset(0), vset(0), vset(0), vset(0)};
    UNROLL
    for (int c = 0; c < LANES; c++) sum[c % 4] = vfma(vset(q[c]), x[c], sum[c % 4]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static ALWAYS_INLINE void dots_token(const dra_slots_run *s, slots_block b, slots_token at,
                                     vf x[LANES])
{
    _Alignas(64) float room[LANES];
    const vf           f = load_some(s->fade + at.fades * s->S + b.i, b.slots, vset(0));
    UNROLL
    for (int c = 0; c < LANES; c++) x[c] = at.reset ? vset(0) : vfma(f, x[c], x[c]);
    for (const dra_slots_part *p = s->write; p < s->write + s->writes && !at.pad; p++) {
        const float *row = p->x + at.t * p->x_row + b.d, *v = numbers_of(row, b.width, room);
        const vf     w = load_some(p->w + at.t * p->w_row + b.i, b.slots, vset(0));
        fetch_rows(s, row, p->x_row, 0);
        UNROLL
        for (int c = 0; c < LANES; c++) x[c] = vfma(w, vset(v[c]), x[c]);
    }
    for (const dra_slots_part *p = s->read; p < s->read + s->reads; p++) {
        const float *q = p->x + at.t * p->x_row + b.d;
        fetch_rows(s, q, p->x_row, 0);
        const vf sum = at.pad ? vset(0) : dot_columns(numbers_of(q, b.width, room), x);
        add_some(p->w + at.t * p->w_row + b.i, b.slots, p->add || b.d > 0, sum);
    }
}

static ALWAYS_INLINE void save_block(const dra_slots_run *s, slots_block b, float *saved,
                                     const vf x[LANES])
{
    vf m[LANES];
    UNROLL
    for (int c = 0; c < LANES; c++) m[c] = x[c];
    store_transposed(s, b, saved, m);
}

static ALWAYS_INLINE void dot_saved(const dra_slots_run *s, slots_block b, const float *saved,
                                    const vf x[LANES], float *to)
{
    vf m[LANES], sum[2] = {vset(0), vset(0)};
    load_transposed(s, b, saved, m);
    UNROLL
    for (int c = 0; c < LANES; c++) sum[c % 2] = vfma(m[c], x[c], sum[c % 2]);
    add_some(to + b.i, b.slots, s->add_dots || b.d > 0, sum[0] + sum[1]);
}

static void dots_block(const dra_slots_run *s, slots_block b)
{
    vf x[LANES];
    load_transposed(s, b, s->from, x);
    for (int64_t k = 0; k < s->n;) {
        for (const int64_t stop = next_stop(s, k); k < stop; k++)
            dots_token(s, b, token_at(s, k), x);
        if (k == s->n) break;
        const int64_t p = saved_at(s, k);
        if (s->back)
            dot_saved(s, b, s->saved + p * s->S * s->W, x, s->saved_dots + p * s->S);
        else
            save_block(s, b, s->saved + p * s->S * s->W, x);
    }
    if (s->to) store_transposed(s, b, s->to, x);
}

static void dot_run(const dra_slots_run *run)
{
    const dra_slots_run s = *run; /* a copy that no store can change */
    for (int64_t i = 0; i < s.S; i += LANES)
        for (int64_t d = 0; d < s.W || d == 0; d += LANES)
            dots_block(&s, (slots_block){i, d, s.S - i, s.W - d});
}

/* ---- sums over slots ------------------------------------------------------------------------- */

static ALWAYS_INLINE vf mix_slots(const float *a, int slots, const vf *x)
{
    vf sum[2] = {vset(0), vset(0)};
    UNROLL
    for (int j = 0; j < slots; j++) sum[j % 2] = vfma(vset(a[j]), x[j], sum[j % 2]);
    return sum[0] + sum[1];
}

/* `slots` is a constant where these are called. */
static ALWAYS_INLINE void mix_token(const dra_slots_run *s, slots_block b, slots_token at,
                                    int slots, vf *x)
{
    const float *f = s->fade + at.fades * s->S + b.i;
    UNROLL
    for (int j = 0; j < slots; j++) x[j] = at.reset ? vset(0) : vfma(vset(f[j]), x[j], x[j]);
    for (const dra_slots_part *p = s->write; p < s->write + s->writes && !at.pad; p++) {
        const float *row = p->x + at.t * p->x_row + b.d, *w = p->w + at.t * p->w_row + b.i;
        const vf     v = load_some(row, b.width, vset(0));
        fetch_rows(s, row, p->x_row, 0);
        UNROLL
        for (int j = 0; j < slots; j++) x[j] = vfma(vset(w[j]), v, x[j]);
    }
    for (const dra_slots_part *p = s->read; p < s->read + s->reads; p++) {
        const float *a = p->w + at.t * p->w_row + b.i;
        float       *y = p->x + at.t * p->x_row + b.d;
        fetch_rows(s, y, p->x_row, 1);
        add_some(y, b.width, p->add || b.i > 0, at.pad ? vset(0) : mix_slots(a, slots, x));
    }
}

static ALWAYS_INLINE void mix_block(const dra_slots_run *s, slots_block b, int slots)
{
    vf x[HELD];
    UNROLL
    for (int j = 0; j < slots; j++)
        x[j] = load_some(s->from + (b.i + j) * s->W + b.d, b.width, vset(0));
    for (int64_t k = 0; k < s->n;) {
        for (const int64_t stop = next_stop(s, k); k < stop; k++)
            mix_token(s, b, token_at(s, k), slots, x);
        float *to = k < s->n ? s->saved + saved_at(s, k) * s->S * s->W : s->to;
        UNROLL
        for (int j = 0; j < slots; j++)
            if (to) store_some(to + (b.i + j) * s->W + b.d, b.width, x[j]);
    }
}

/* As many slots as fit; returns how many. */
static int64_t mix_blocks(const dra_slots_run *s, slots_block b)
{
    if (b.slots >= HELD) return mix_block(s, b, HELD), HELD;
    if (b.slots >= 8) return mix_block(s, b, 8), 8;
    if (b.slots >= 4) return mix_block(s, b, 4), 4;
    return mix_block(s, b, 1), 1;
}

static void mix_run(const dra_slots_run *run)
{
    const dra_slots_run s = *run;
    const int64_t       end = s.end ? s.end : s.W;
    for (int64_t d = s.first; d < end; d += LANES)
        for (int64_t i = 0; i < s.S;) i += mix_blocks(&s, (slots_block){i, d, s.S - i, s.W - d});
}

/* ---- softmax --------------------------------------------------------------------------------- */

static void softmax_backward(const dra_softmax_backward *terms)
{
    const dra_softmax_backward f = *terms;
    const vf                   zero = vset(0), times = vset(f.scale);
    for (int64_t r = 0; r < f.rows; r++) {
        const float *s = f.s + r * f.n, *a = f.a + r * f.n;
        float       *d = f.d + r * f.n, *dlog_scale = f.dlog_scale + r * f.n;
        const vf     mean = vset(dot(f.n, a, d) - (f.dlse ? f.dlse[r] : 0));
        for (int64_t i = 0; i < f.n; i += LANES) {
            const int64_t left = f.n - i;
            const vf      w = load_some(a + i, left, zero), dw = load_some(d + i, left, zero);
            const vf ds = w * (dw - mean), own = vfma(ds, load_some(s + i, left, zero), w * dw);
            add_some(dlog_scale + i, left, f.add, own);
            store_some(d + i, left, ds * times);
        }
    }
}

/* ---- decay ----------------------------------------------------------------------------------- */

typedef struct decay_block { /* of LANES slots */
    int64_t i, slots;        /* first slot, how many from there on */
    vf      sum;             /* dl of the token reached */
    vf      known;           /* the last token whose dl was */
} decay_block;

/* dl of token t is `exact` in these lanes: what the sum is off there grew by a step a token. */
static void settle_decay(const dra_decay_backward *s, decay_block *b, int64_t t, vmask lanes,
                         vf exact)
{
    const vf zero = vset(0);
    const vf step = pick(lanes, (b->sum - exact) / (b->known - vset((float)t)), zero);
    for (int64_t j = t; j < s->first + s->n; j++) {
        float   *dl = s->dl + j * s->dl_row + b->i;
        const vf x = load_some(dl, b->slots, zero), steps = b->known - vset((float)j);
        const vf mended = pick(less(zero, steps), x - step * steps, x);
        if (s->mark[j] & DRA_MARK_PAD) continue;
        store_some(dl, b->slots, j == t ? pick(lanes, exact, mended) : mended);
    }
    b->sum = pick(lanes, exact, b->sum);
    b->known = pick(lanes, vset((float)t), b->known);
}

static void decay_token(const dra_decay_backward *s, decay_block *b, int64_t t)
{
    const vf    zero = vset(0), fade = load_some(s->fade + t * s->S + b->i, b->slots, zero);
    const vf    u = load_some(s->u + t * s->u_row + b->i, b->slots, zero);
    const vf    du = load_some(s->du + t * s->du_row + b->i, b->slots, zero);
    const vf    own = load_some(s->own + t * s->own_row + b->i, b->slots, zero);
    const bool  pad = s->mark[t] & DRA_MARK_PAD, reset = s->mark[t] & DRA_MARK_RESET;
    const vmask gone = less(reset ? zero : fade + vset(1), vset(FLT_MIN)); /* nothing, not NaN */
    if (!pad) b->sum = b->sum + vfma(-u, du, own);
    store_some(s->dl + t * s->dl_row + b->i, b->slots, pad ? zero : b->sum);
    if (any(gone)) settle_decay(s, b, t, gone, zero);
}

static void decay_backward(const dra_decay_backward *terms)
{
    const dra_decay_backward s = *terms;
    const int64_t            end = s.first + s.n;
    for (int64_t i = 0; i < s.S; i += LANES) {
        decay_block b = {i, s.S - i, load_some(s.end + i, s.S - i, vset(0)), vset((float)end)};
        for (int64_t t = end - 1; t >= s.first; t--) decay_token(&s, &b, t);
        settle_decay(&s, &b, s.first, less(vset((float)s.first), b.known),
                     load_some(s.start + i, b.slots, vset(0)));
    }
}

#else /* plain: some columns of one slot after the other */

enum { COLUMNS = 64 };

typedef struct slot { /* columns d..d+width-1 of slot i */
    int64_t  i, d, width;
    dra_real m[COLUMNS];
} slot;

static void take_token(const dra_slots_run *s, slot *o, int64_t t, bool pad)
{
    const int64_t  before = t + s->back;
    const bool     reset = s->mark && s->mark[before] & DRA_MARK_RESET;
    const dra_real fade = s->fade[before * s->S + o->i];
    for (int64_t d = 0; d < o->width; d++) o->m[d] = reset ? 0 : o->m[d] + fade * o->m[d];
    for (const dra_slots_part *p = s->write; p < s->write + s->writes && !pad; p++)
        axpy(o->width, p->w[t * p->w_row + o->i], p->x + t * p->x_row + o->d, o->m);
}

static void read_dot(const dra_slots_part *p, const slot *o, int64_t t, bool pad)
{
    dra_real      *w = p->w + t * p->w_row + o->i;
    const dra_real found = pad ? 0 : dot(o->width, o->m, p->x + t * p->x_row + o->d);
    *w = p->add || o->d > 0 ? *w + found : found;
}

static void read_mix(const dra_slots_part *p, const slot *o, int64_t t, bool pad)
{
    dra_real *x = p->x + t * p->x_row + o->d;
    for (int64_t d = 0; d < o->width && !p->add && o->i == 0; d++) x[d] = 0;
    if (!pad) axpy(o->width, p->w[t * p->w_row + o->i], o->m, x);
}

static void save_or_dot(const dra_slots_run *s, const slot *o, int64_t p)
{
    dra_real *saved = s->saved + (p * s->S + o->i) * s->W + o->d;
    for (int64_t d = 0; d < o->width && !s->back; d++) saved[d] = o->m[d];
    if (!s->back) return;
    dra_real *to = s->saved_dots + p * s->S + o->i;
    *to = (s->add_dots || o->d > 0 ? *to : 0) + dot(o->width, saved, o->m);
}

static void take_run(const dra_slots_run *s, slot *o,
                     void (*read)(const dra_slots_part *, const slot *, int64_t t, bool pad))
{
    const int64_t at = o->i * s->W + o->d;
    for (int64_t d = 0; d < o->width; d++) o->m[d] = s->from[at + d];
    for (int64_t k = 0; k < s->n; k++) {
        const int64_t t = s->back ? s->n - 1 - k : k;
        const bool    pad = s->mark && s->mark[t] & DRA_MARK_PAD;
        take_token(s, o, t, pad);
        for (int64_t r = 0; r < s->reads; r++) read(&s->read[r], o, t, pad);
        if (k + 1 < s->n && k + 1 == next_stop(s, k)) save_or_dot(s, o, saved_at(s, k + 1));
    }
    for (int64_t d = 0; d < o->width && s->to; d++) s->to[at + d] = o->m[d];
}

static void take_all(const dra_slots_run *s,
                     void (*read)(const dra_slots_part *, const slot *, int64_t t, bool pad))
{
    const int64_t end = s->end ? s->end : s->W;
    for (int64_t i = 0; i < s->S; i++)
        for (int64_t d = s->first; d < end || d == 0; d += COLUMNS) {
            slot o = {.i = i, .d = d, .width = end - d < COLUMNS ? end - d : COLUMNS};
            take_run(s, &o, read);
        }
}

static void dot_run(const dra_slots_run *s) { take_all(s, read_dot); }
static void mix_run(const dra_slots_run *s) { take_all(s, read_mix); }

static void softmax_backward(const dra_softmax_backward *f)
{
    for (int64_t r = 0; r < f->rows; r++) {
        const dra_real *s = f->s + r * f->n, *a = f->a + r * f->n;
        dra_real       *d = f->d + r * f->n, *dlog_scale = f->dlog_scale + r * f->n;
        const dra_real  mean = dot(f->n, a, d) - (f->dlse ? f->dlse[r] : 0);
        for (int64_t i = 0; i < f->n; i++) {
            const dra_real ds = a[i] * (d[i] - mean), own = ds * s[i] + a[i] * d[i];
            dlog_scale[i] = f->add ? dlog_scale[i] + own : own;
            d[i] = f->scale * ds;
        }
    }
}

static void settle_decay(const dra_decay_backward *s, int64_t i, int64_t t, int64_t known,
                         dra_real off)
{
    for (int64_t j = t; j < known; j++)
        if (!(s->mark[j] & DRA_MARK_PAD))
            s->dl[j * s->dl_row + i] -= off / (dra_real)(known - t) * (dra_real)(known - j);
}

static void decay_slot(const dra_decay_backward *s, int64_t i)
{
    dra_real sum = s->end[i];
    int64_t  known = s->first + s->n;
    for (int64_t t = known - 1; t >= s->first; t--) {
        const bool pad = s->mark[t] & DRA_MARK_PAD, reset = s->mark[t] & DRA_MARK_RESET;
        const bool gone = reset || s->fade[t * s->S + i] == -1;
        dra_real  *dl = s->dl + t * s->dl_row + i;
        if (!pad)
            sum += s->own[t * s->own_row + i] - s->u[t * s->u_row + i] * s->du[t * s->du_row + i];
        *dl = pad ? 0 : sum;
        if (!gone && t > s->first) continue;
        const dra_real exact = gone ? 0 : s->start[i];
        settle_decay(s, i, t, known, sum - exact);
        if (!pad) *dl = exact;
        known = t;
        sum = exact;
    }
}

static void decay_backward(const dra_decay_backward *s)
{
    for (int64_t i = 0; i < s->S; i++) decay_slot(s, i);
}

#endif

const dra_slots_loops LEVEL_NAMED(dra_slots_loops) = {.dots = dot_run,
                                                      .mix = mix_run,
                                                      .softmax_backward = softmax_backward,
                                                      .decay_backward = decay_backward};
