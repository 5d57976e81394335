/* What tests of recurrent cells share: the oracle in double around the formula of a unit, cases,
 * refused shapes. A test names its cell before it includes this:
 *   enum { GATES, STATES };         parts of D of x; h, or h and c
 *   #define START(b, h, d)          an input for each state: STATE(b, h, d), .. */
#ifndef DRA_TESTS_OPS_CELLS_H
#define DRA_TESTS_OPS_CELLS_H

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

/* `next` becomes the place behind all cells up to this one. */
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

/* state: h, then c where there is one, D each. */
static void oracle_token(const check_tensor *in, const part *at, int64_t head, const double *x,
                         int64_t D, double *state)
{
    const check_tensor *w = &in[at->w], *b = at->b < 0 ? NULL : &in[at->b];
    double             *old = malloc((size_t)D * sizeof *old);
    memcpy(old, state, (size_t)D * sizeof *old);
    for (int64_t j = 0; j < D; j++) {
        double       own[GATES], u[GATES];
        const double mix = at->beta < 0 ? 1 : sigmoid(-in[at->beta].at[head * D + j]);
        for (int k = 0; k < GATES; k++) {
            own[k] = x[k * D + j];
            u[k] = sum_of(w, b, D, head, k, j, old);
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
    const int64_t  D = N / GATES;
    const size_t   size = (size_t)D * sizeof(double);
    double        *state = calloc(STATES * (size_t)D + 1, sizeof *state);
    for (int64_t row = 0; row < B * H; row++) {
        memset(state, 0, STATES * size);
        for (int k = 0; k < STATES && at->start >= 0; k++)
            memcpy(state + k * D, in[at->start + k].at + row * D, size);
        for (int64_t t = 0; t < T; t++) {
            const int64_t b = row / H, head = row % H, token = (b * T + t) * H + head;
            const int     bits = mark ? (int)mark->at[b * T + t] : 0;
            if (bits & DRA_MARK_RESET) memset(state, 0, STATES * size);
            if (!(bits & DRA_MARK_PAD))
                oracle_token(in, at, head, in[at->x].at + token * N, D, state);
            memcpy(out->at + token * D, state, size);
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

static const parts plain = {1, {""}, false}, marked = {1, {"gs"}, true};
static const parts whole = {1, {"bgs"}, true}, fed = {1, {"bgs"}, false};
static const parts two = {2, {"", ""}, false}, two_full = {2, {"bg", "bs"}, true};

/* clang-format off */
#define X(b, t, h, d)   {{4, {b, t, h, GATES * (d)}}}
#define W(d)            {{2, {GATES * (d), d}}}
#define EACH(h, d)      {{3, {h, GATES * (d), d}}} /* weights of its own for each head */
#define BIAS(d)         {{1, {GATES * (d)}}}
#define EACH_BIAS(h, d) {{2, {h, GATES * (d)}}}
#define BETA(h, d)      {{2, {h, d}}, CHECK_REAL, -3, 3}
#define STATE(b, h, d)  {{3, {b, h, d}}}
#define MARK(b, t)      {{2, {b, t}}, CHECK_I32}
/* clang-format on */

static const double all_pads[] = {1, 1, 1, 1, 1, 1}, all_resets[] = {2, 2, 2, 2, 2, 2};
static const double late[] = {0, 0, 3, 0, 1, 2};

static const check_case one_cases[] = {
    {"plain", 2, {X(2, 4, 3, 5), W(5)}, &plain},
    {"one unit",
     5 + STATES,
     {X(1, 3, 1, 1), W(1), BIAS(1), BETA(1, 1), START(1, 1, 1), MARK(1, 3)},
     &whole},
    {"all parts",
     5 + STATES,
     {X(2, 5, 2, 3), W(3), BIAS(3), BETA(2, 3), START(2, 2, 3), MARK(2, 5)},
     &whole},
    {"own weights",
     5 + STATES,
     {X(3, 4, 2, 3), EACH(2, 3), EACH_BIAS(2, 3), BETA(2, 3), START(3, 2, 3), MARK(3, 4)},
     &whole},
    {"own weights, one b",
     5 + STATES,
     {X(2, 3, 3, 2), EACH(3, 2), BIAS(2), BETA(3, 2), START(2, 3, 2), MARK(2, 3)},
     &whole},
    {"own b, one w",
     5 + STATES,
     {X(2, 3, 3, 2), W(2), EACH_BIAS(3, 2), BETA(3, 2), START(2, 3, 2), MARK(2, 3)},
     &whole},
    {"no tokens", 4 + STATES, {X(2, 0, 2, 3), W(3), BIAS(3), BETA(2, 3), START(2, 2, 3)}, &fed},
    {"no rows", 4 + STATES, {X(0, 3, 2, 3), W(3), BIAS(3), BETA(2, 3), START(0, 2, 3)}, &fed},
    {"no heads",
     4 + STATES,
     {X(2, 3, 0, 3), EACH(0, 3), BIAS(3), BETA(0, 3), START(2, 0, 3)},
     &fed},
    {"no units", 4 + STATES, {X(2, 3, 2, 0), W(0), BIAS(0), BETA(2, 0), START(2, 2, 0)}, &fed},
    {"pads",
     4 + STATES,
     {X(2, 3, 2, 2),
      W(2),
      BETA(2, 2),
      START(2, 2, 2),
      {{2, {2, 3}}, CHECK_I32, .values = all_pads}},
     &marked},
    {"resets",
     4 + STATES,
     {X(2, 3, 2, 2),
      W(2),
      BETA(2, 2),
      START(2, 2, 2),
      {{2, {2, 3}}, CHECK_I32, .values = all_resets}},
     &marked},
    {"a reset at a pad",
     4 + STATES,
     {X(1, 6, 2, 2), W(2), BETA(2, 2), START(1, 2, 2), {{2, {1, 6}}, CHECK_I32, .values = late}},
     &marked},
    {"a vector and one", 2, {X(1, 2, 2, 17), W(17)}, &plain},
    {"several groups",
     4 + STATES,
     {X(5, 2, 4, 3), W(3), BETA(4, 3), START(5, 4, 3), MARK(5, 2)},
     &marked},
    {"groups of own weights",
     4 + STATES,
     {X(11, 2, 2, 2), EACH(2, 2), BETA(2, 2), START(11, 2, 2), MARK(11, 2)},
     &marked},
    {"several segments",
     4 + STATES,
     {X(2, 45, 4, 2), W(2), BETA(4, 2), START(2, 4, 2), MARK(2, 45)},
     &marked},
    {"a segment of one row", 2, {X(1, 131, 1, 2), W(2)}, &plain},
    {"wide",
     4 + STATES,
     {X(2, 3, 1, 40), W(40), BETA(1, 40), START(2, 1, 40), MARK(2, 3)},
     &marked,
     .no_grad = true},
    {"saturated",
     2,
     {{{4, {2, 5, 2, GATES * 3}}, CHECK_REAL, -60, 60}, {{2, {GATES * 3, 3}}, CHECK_REAL, -20, 20}},
     &plain},
};

static const check_case two_cases[] = {
    {"two", 4, {X(2, 3, 2, 4), W(4), X(2, 3, 2, 4), W(4)}, &two},
    {"two widths", 4, {X(2, 3, 2, 2), W(2), X(2, 3, 2, 5), EACH(2, 5)}, &two},
    {"two, all parts",
     8 + STATES,
     {X(3, 3, 3, 3), EACH(3, 3), BIAS(3), BETA(3, 3), X(3, 3, 3, 2), W(2), BIAS(2), START(3, 3, 2),
      MARK(3, 3)},
     &two_full},
    {"two of no rows", 4, {X(0, 3, 2, 2), W(2), X(0, 3, 2, 5), EACH(2, 5)}, &two},
};

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
