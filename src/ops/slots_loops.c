/* Slots over a run of tokens, see slots.h. A block of slots and columns stays in registers while
 * the tokens pass, so that a slot is neither loaded nor stored for a token. Which way it is laid
 * out there is set by what is read: sums over columns want slots next to each other in a vector,
 * sums over slots want columns. Sums go by blocks of LANES columns or HELD slots, so their order is
 * fixed by W or S. */
#include "ops/slots_loops.h"

#include "device/simd_level.h"

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
static ALWAYS_INLINE void load_transposed(const dra_slots_run *s, slots_block b, vf x[LANES])
{
    UNROLL
    for (int j = 0; j < LANES; j++)
        x[j] = j < b.slots ? load_some(s->from + (b.i + j) * s->W + b.d, b.width, vset(0))
                           : vset(0);
    transpose_tile(x);
}

static ALWAYS_INLINE void store_transposed(const dra_slots_run *s, slots_block b, vf x[LANES])
{
    transpose_tile(x);
    UNROLL
    for (int j = 0; j < LANES; j++)
        if (j < b.slots) store_some(s->to + (b.i + j) * s->W + b.d, b.width, x[j]);
}

static ALWAYS_INLINE vf dot_columns(const float *q, const vf x[LANES])
{
    vf sum[4] = {vset(0), vset(0), vset(0), vset(0)};
    UNROLL
    for (int c = 0; c < LANES; c++) sum[c % 4] = vfma(vset(q[c]), x[c], sum[c % 4]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static void dots_block(const dra_slots_run *s, slots_block b)
{
    _Alignas(64) float room[LANES];
    vf                 x[LANES];
    load_transposed(s, b, x);
    for (int64_t k = 0; k < s->n; k++) {
        const slots_token at = token_at(s, k);
        const vf          f = load_some(s->fade + at.fades * s->S + b.i, b.slots, vset(0));
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
    if (s->to) store_transposed(s, b, x);
}

static void dots(const dra_slots_run *run)
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

/* `slots` is a constant where this is called. */
static ALWAYS_INLINE void mix_block(const dra_slots_run *s, slots_block b, int slots)
{
    vf x[HELD];
    UNROLL
    for (int j = 0; j < slots; j++)
        x[j] = load_some(s->from + (b.i + j) * s->W + b.d, b.width, vset(0));
    for (int64_t k = 0; k < s->n; k++) {
        const slots_token at = token_at(s, k);
        const float      *f = s->fade + at.fades * s->S + b.i;
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
    UNROLL
    for (int j = 0; j < slots; j++)
        if (s->to) store_some(s->to + (b.i + j) * s->W + b.d, b.width, x[j]);
}

/* As many slots as fit; returns how many. */
static int64_t mix_blocks(const dra_slots_run *s, slots_block b)
{
    if (b.slots >= HELD) return mix_block(s, b, HELD), HELD;
    if (b.slots >= 8) return mix_block(s, b, 8), 8;
    if (b.slots >= 4) return mix_block(s, b, 4), 4;
    return mix_block(s, b, 1), 1;
}

static void mix(const dra_slots_run *run)
{
    const dra_slots_run s = *run;
    for (int64_t d = 0; d < s.W; d += LANES)
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
    }
    for (int64_t d = 0; d < o->width && s->to; d++) s->to[at + d] = o->m[d];
}

static void take_all(const dra_slots_run *s,
                     void (*read)(const dra_slots_part *, const slot *, int64_t t, bool pad))
{
    for (int64_t i = 0; i < s->S; i++)
        for (int64_t d = 0; d < s->W || d == 0; d += COLUMNS) {
            slot o = {.i = i, .d = d, .width = s->W - d < COLUMNS ? s->W - d : COLUMNS};
            take_run(s, &o, read);
        }
}

static void dots(const dra_slots_run *s) { take_all(s, read_dot); }
static void mix(const dra_slots_run *s) { take_all(s, read_mix); }

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

#endif

const dra_slots_loops LEVEL_NAMED(dra_slots_loops) = {
    .dots = dots, .mix = mix, .softmax_backward = softmax_backward};
