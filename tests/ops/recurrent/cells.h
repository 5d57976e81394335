/* What tests of recurrent cells share: the oracle in double around the formula of a unit, refused
 * shapes. A test names its cell before it includes this:
 *   enum { GATES, STATES, SLOTS };   parts of D of x; h, or h and c; 0: one state a head, else S of
 *                                    them, with u (H, S) or (B, T, H, S) in the place of beta */
#ifndef DRA_TESTS_OPS_RECURRENT_CELLS_H
#define DRA_TESTS_OPS_RECURRENT_CELLS_H

#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

typedef struct cell_values {
    dra_value x, w, b, beta, start[STATES];
} cell_values;

/* ---- what the test itself has ---------------------------------------------------------------- */

static void add_cells(dra_graph *g, int cells, const cell_values *v, dra_value mark, dra_value *h,
                      dra_value *const *last);
/* What is mixed into h, from x and u = w h + b of each gate, the old h and c; c becomes the new. */
static double unit(const double *x, const double *u, double h, double *c);

/* ---- one cell or two: inputs x, w, then what `has` names, in this order; mark is the last ---- */

static const dra_value none;

typedef struct parts {
    int         cells;
    const char *has[2]; /* letters: b, beta as g, the start of every state as s */
    bool        mark;
} parts;

typedef struct part { /* where the inputs of a cell are; -1: there is none */
    int x, w, b, beta, start;
} part;

/* `next` becomes the place after all cells up to this one. */
static part part_at(const parts *p, int cell, int *next)
{
    part at = {0};
    *next = 0;
    for (int k = 0; k <= cell; k++) {
        at = (part){.x = *next, .w = *next + 1, .b = -1, .beta = -1, .start = -1};
        *next += 2;
        if (strchr(p->has[k], 'b')) at.b = (*next)++;
        if (strchr(p->has[k], 'g')) at.beta = (*next)++;
        if (strchr(p->has[k], 's')) at.start = *next;
        if (at.start >= 0) *next += STATES;
    }
    return at;
}

static dra_value or_none(const dra_value *in, int i) { return i < 0 ? none : in[i]; }

/* h of every cell, then for each state the last of every cell. */
static void build(dra_graph *g, const void *args, const dra_value *in, dra_value *out)
{
    const parts *p = args;
    cell_values  cell[2];
    dra_value   *last[STATES];
    int          next = 0;
    for (int k = 0; k < p->cells; k++) {
        const part at = part_at(p, k, &next);
        cell[k] = (cell_values){
            in[at.x], in[at.w], or_none(in, at.b), or_none(in, at.beta), {none}};
        for (int i = 0; i < STATES && at.start >= 0; i++) cell[k].start[i] = in[at.start + i];
    }
    for (int i = 0; i < STATES; i++) last[i] = out + (1 + i) * p->cells;
    add_cells(g, p->cells, cell, p->mark ? in[next] : none, out, last);
}

static double sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

/* b + w h for gate `gate` of unit j. */
static double sum_of(const check_tensor *w, const check_tensor *b, int64_t D, int64_t head,
                     int gate, int64_t j, const double *h)
{
    const int64_t row = gate * D + j;
    const double *from = w->at + (w->shape.rank == 3 ? head * GATES * D * D : 0) + row * D;
    double        sum = b ? b->at[(b->shape.rank == 2 ? head * GATES * D : 0) + row] : 0;
    for (int64_t k = 0; k < D; k++) sum += from[k] * h[k];
    return sum;
}

typedef struct spot { /* a token of a state: the token of all, states of each */
    int64_t token, head, state, states;
} spot;

/* The weight of what is new in unit j. */
static double mix_of(const check_tensor *beta, const spot *p, int64_t D, int64_t j)
{
    if (!beta) return 1;
    if (!SLOTS) return sigmoid(-beta->at[p->state * D + j]);
    return beta->at[(beta->shape.rank == 4 ? p->token * p->states : 0) + p->state];
}

/* state: h, then c where there is one, D each. */
static void oracle_token(const check_tensor *in, const part *at, const spot *p, const double *x,
                         int64_t D, double *state)
{
    const check_tensor *w = &in[at->w], *b = at->b < 0 ? NULL : &in[at->b];
    double             *old = malloc((size_t)D * sizeof *old);
    memcpy(old, state, (size_t)D * sizeof *old);
    for (int64_t j = 0; j < D; j++) {
        double       own[GATES], u[GATES];
        const double mix = mix_of(at->beta < 0 ? NULL : &in[at->beta], p, D, j);
        for (int k = 0; k < GATES; k++) {
            own[k] = x[k * D + j];
            u[k] = sum_of(w, b, D, p->head, k, j, old);
        }
        const double new = unit(own, u, old[j], state + (STATES - 1) * D + j);
        state[j] = old[j] + mix * (new - old[j]);
    }
    free(old);
}

/* out: h, then the last of each state, `apart` tensors apart. */
static void oracle_cell(const check_tensor *in, const part *at, const check_tensor *mark,
                        check_tensor *out, int apart)
{
    const int64_t *dim = in[at->x].shape.dim, B = dim[0], T = dim[1], H = dim[2], N = dim[3];
    const int64_t  D = N / GATES, S = SLOTS ? check_last(&in[at->beta]) : 1, states = H * S;
    const size_t   size = (size_t)D * sizeof(double);
    double        *state = calloc(STATES * (size_t)D + 1, sizeof *state);
    for (int64_t row = 0; row < B * states; row++) {
        spot p = {.head = row % states / S, .state = row % states, .states = states};
        memset(state, 0, STATES * size);
        for (int k = 0; k < STATES && at->start >= 0; k++)
            memcpy(state + k * D, in[at->start + k].at + row * D, size);
        for (int64_t t = 0; t < T; t++) {
            p.token = row / states * T + t;
            const int bits = mark ? (int)mark->at[p.token] : 0;
            if (bits & DRA_MARK_RESET) memset(state, 0, STATES * size);
            if (!(bits & DRA_MARK_PAD))
                oracle_token(in, at, &p, in[at->x].at + (p.token * H + p.head) * N, D, state);
            memcpy(out->at + (p.token * states + p.state) * D, state, size);
        }
        for (int k = 0; k < STATES; k++)
            memcpy(out[(1 + k) * apart].at + row * D, state + k * D, size);
    }
    free(state);
}

static void oracle(const void *args, const check_tensor *in, check_tensor *out)
{
    const parts *p = args;
    int          end, next;
    part_at(p, p->cells - 1, &end);
    for (int k = 0; k < p->cells; k++) {
        const part at = part_at(p, k, &next);
        oracle_cell(in, &at, p->mark ? &in[end] : NULL, &out[k], p->cells);
    }
}

/* clang-format off */
#define X(b, t, h, d)   {{4, {b, t, h, GATES * (d)}}}
#define W(d)            {{2, {GATES * (d), d}}}
#define EACH(h, d)      {{3, {h, GATES * (d), d}}} /* weights of its own for each head */
#define BIAS(d)         {{1, {GATES * (d)}}}
#define EACH_BIAS(h, d) {{2, {h, GATES * (d)}}}
#define MARK(b, t)      {{2, {b, t}}, CHECK_I32}
/* clang-format on */

static const double all_pads[] = {1, 1, 1, 1, 1, 1}, all_resets[] = {2, 2, 2, 2, 2, 2};
static const double late[] = {0, 0, 3, 0, 1, 2};

/* ---- refused --------------------------------------------------------------------------------- */

typedef struct sketch { /* shapes of a cell; rank -1: none */
    dra_shape x, w, b, beta, start[STATES];
} sketch;

static dra_value sketched(dra_graph *g, const char *name, int k, dra_shape shape)
{
    char text[16];
    snprintf(text, sizeof text, "%s%d", name, k);
    return shape.rank < 0 ? none : check_real(g, text, shape);
}

static void refused(int cells, const sketch *from, dra_shape mark, const char *text)
{
    dra_graph  *g = check_graph();
    cell_values v[2];
    dra_value   h[2] = {{1}, {1}}, last[STATES][2], *at[STATES];
    for (int k = 0; k < cells; k++) {
        v[k] = (cell_values){sketched(g, "x", k, from[k].x),
                             sketched(g, "w", k, from[k].w),
                             sketched(g, "b", k, from[k].b),
                             sketched(g, "beta", k, from[k].beta),
                             {none}};
        for (int i = 0; i < STATES; i++)
            v[k].start[i] = sketched(g, i ? "c" : "h", k, from[k].start[i]);
    }
    for (int i = 0; i < STATES; i++) at[i] = last[i];
    add_cells(g, cells, v, mark.rank < 0 ? none : dra_input(g, "mark", DRA_I32, mark), h, at);
    for (int k = 0; k < cells; k++)
        for (int i = 0; i < STATES; i++) assert_true(!h[k].id && !last[i][k].id);
    check_refused(g, DRA_ERR_SHAPE, text);
}

static const dra_shape no = {.rank = -1};

#endif
