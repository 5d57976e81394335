/* Slots over a run of tokens, see src/ops/slots.h: part of simd_vector.h. A block of slots and
 * columns stays in registers while the tokens pass, so that a slot is neither loaded nor stored for
 * a token. Which way it lies there is set by what is read: sums over columns want slots side by
 * side in a vector, sums over slots want columns. Sums go by blocks of LANES columns or HELD slots,
 * so their order is fixed by W or S. */
#ifndef DRA_SRC_SIMD_SLOTS_H
#define DRA_SRC_SIMD_SLOTS_H

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

static inline void add_some(float *to, int64_t left, bool add, vf x)
{
    store_some(to, left, add ? load_some(to, left, vset(0)) + x : x);
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
static ALWAYS_INLINE void load_turned(const dra_slots_run *s, slots_block b, vf x[LANES])
{
    UNROLL
    for (int j = 0; j < LANES; j++)
        x[j] = j < b.slots ? load_some(s->from + (b.i + j) * s->W + b.d, b.width, vset(0))
                           : vset(0);
    turn_square(x);
}

static ALWAYS_INLINE void store_turned(const dra_slots_run *s, slots_block b, vf x[LANES])
{
    turn_square(x);
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

static void slots_dots_block(const dra_slots_run *s, slots_block b)
{
    _Alignas(64) float room[LANES];
    vf                 x[LANES];
    load_turned(s, b, x);
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
    if (s->to) store_turned(s, b, x);
}

static void slots_dots(const dra_slots_run *run)
{
    const dra_slots_run s = *run; /* a copy that no store can change */
    for (int64_t i = 0; i < s.S; i += LANES)
        for (int64_t d = 0; d < s.W || d == 0; d += LANES)
            slots_dots_block(&s, (slots_block){i, d, s.S - i, s.W - d});
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
static int64_t slots_mix_block(const dra_slots_run *s, slots_block b)
{
    if (b.slots >= HELD) return mix_block(s, b, HELD), HELD;
    if (b.slots >= 8) return mix_block(s, b, 8), 8;
    if (b.slots >= 4) return mix_block(s, b, 4), 4;
    return mix_block(s, b, 1), 1;
}

static void slots_mix(const dra_slots_run *run)
{
    const dra_slots_run s = *run;
    for (int64_t d = 0; d < s.W; d += LANES)
        for (int64_t i = 0; i < s.S;)
            i += slots_mix_block(&s, (slots_block){i, d, s.S - i, s.W - d});
}

/* ---- softmax of short rows ------------------------------------------------------------------- */

/* A row that fills one vector at most stays in it. */
static ALWAYS_INLINE float softmax_short(int64_t n, const float *s, float *a, float *top)
{
    const vf x = load_some(s, n, vset(-INFINITY));
    *top = fold_max(x); /* forgets NaN, the sum does not */
    const vf    e = first_of(v_exp(x - vset(*top)), n);
    const float total = fold_sum(e);
    store_some(a, n, e * vset(1 / total));
    return total;
}

static void softmax_rows(int64_t rows, int64_t n, const float *s, float *a, float *lse)
{
    for (int64_t r = 0; r < rows; r++, s += n, a += n) {
        float top, total;
        if (n <= LANES) {
            total = softmax_short(n, s, a, &top);
        } else {
            top = max(n, s);
            total = exp_sum(n, s, top, a);
            scale(n, 1 / total, a);
        }
        if (lse) lse[r] = top + logf(total);
    }
}

static void softmax_bend(const dra_softmax_bend *bend)
{
    const dra_softmax_bend f = *bend;
    const vf               zero = vset(0), times = vset(f.scale);
    for (int64_t r = 0; r < f.rows; r++) {
        const float *s = f.s + r * f.n, *a = f.a + r * f.n;
        float       *d = f.d + r * f.n, *grow = f.grow + r * f.n;
        const vf     mean = vset(dot(f.n, a, d) - (f.dlse ? f.dlse[r] : 0));
        for (int64_t i = 0; i < f.n; i += LANES) {
            const int64_t left = f.n - i;
            const vf      w = load_some(a + i, left, zero), dw = load_some(d + i, left, zero);
            const vf ds = w * (dw - mean), own = vfma(ds, load_some(s + i, left, zero), w * dw);
            add_some(grow + i, left, f.add, own);
            store_some(d + i, left, ds * times);
        }
    }
}

#endif
