/* Slots over a run of tokens in plain C: some columns of one slot after the other. Part of
 * simd_ref.c. */
#ifndef DRA_SRC_SIMD_SLOTS_REF_H
#define DRA_SRC_SIMD_SLOTS_REF_H

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

static void slots_dots(const dra_slots_run *s) { take_all(s, read_dot); }
static void slots_mix(const dra_slots_run *s) { take_all(s, read_mix); }

static void softmax_rows(int64_t rows, int64_t n, const dra_real *s, dra_real *a, dra_real *lse)
{
    for (int64_t r = 0; r < rows; r++, s += n, a += n) {
        const dra_real top = max(n, s), total = exp_sum(n, s, top, a);
        scale(n, 1 / total, a);
        if (lse) lse[r] = top + (dra_real)log((double)total);
    }
}

static void softmax_bend(const dra_softmax_bend *f)
{
    for (int64_t r = 0; r < f->rows; r++) {
        const dra_real *s = f->s + r * f->n, *a = f->a + r * f->n;
        dra_real       *d = f->d + r * f->n, *grow = f->grow + r * f->n;
        const dra_real  mean = dot(f->n, a, d) - (f->dlse ? f->dlse[r] : 0);
        for (int64_t i = 0; i < f->n; i++) {
            const dra_real ds = a[i] * (d[i] - mean), own = ds * s[i] + a[i] * d[i];
            grow[i] = f->add ? grow[i] + own : own;
            d[i] = f->scale * ds;
        }
    }
}

#endif
