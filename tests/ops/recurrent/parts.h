/* A memory over time in one call and in several, each from the state of the one before: outputs,
 * states and gradients come out equal. And causality: what comes later changes no bit before it. */
#ifndef DRA_TESTS_OPS_RECURRENT_PARTS_H
#define DRA_TESTS_OPS_RECURRENT_PARTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#ifdef DRA_REAL_DOUBLE
#define PARTS_TOL 1e-12
#else
#define PARTS_TOL 1e-5
#endif

enum { PARTS_NAME = 16, PARTS_IN = 5, PARTS_STATE = 2 };
enum { PARTS_RESULTS = 1 + PARTS_IN + 2 * PARTS_STATE };

typedef struct parts_input {
    dra_shape shape; /* (B, T, ..); of a state anything */
    double    lo, hi;
} parts_input;

typedef struct parts_spec {
    int         n_in, n_state;
    parts_input in[PARTS_IN], state[PARTS_STATE];
    void (*build)(dra_graph *g, const dra_value *in, dra_value mark, const dra_value *state,
                  dra_value *y, dra_value *last);
} parts_spec;

typedef struct parts_result { /* y, last states, gradients of the inputs and of the first states */
    int       n;
    int64_t   count[PARTS_RESULTS];
    dra_real *at[PARTS_RESULTS];
} parts_result;

static dra_real *parts_fill(const parts_input *x, int64_t later, uint64_t seed)
{
    const int64_t n = dra_shape_count(&x->shape), B = x->shape.dim[0], T = x->shape.dim[1];
    dra_real     *at = malloc((size_t)(n + 1) * sizeof *at);
    for (int64_t i = 0; i < n; i++) {
        const double  u = check_random(&seed), v = check_random(&seed);
        const int64_t t = later >= 0 ? i / (n / B / T) % T : -1;
        at[i] = (dra_real)(x->lo + (x->hi - x->lo) * (later >= 0 && t >= later ? v : u));
    }
    return at;
}

static int32_t *parts_marks(int64_t B, int64_t T)
{
    int32_t *mark = malloc((size_t)(B * T) * sizeof *mark);
    uint64_t seed = 5;
    for (int64_t i = 0; i < B * T; i++) {
        const int kind = (int)(40 * check_random(&seed));
        mark[i] = kind < 4 ? kind : 0;
    }
    return mark;
}

/* Calls of `size` tokens each, chained by their states; their outputs put together. */
static dra_value parts_chain(dra_graph *g, const parts_spec *s, const dra_value *in, dra_value mark,
                             const dra_value *state, int64_t size, dra_value *last)
{
    const int64_t T = s->in[0].shape.dim[1];
    dra_value    *y = malloc((size_t)T * sizeof *y), part[PARTS_IN], from[PARTS_STATE];
    int           n = 0;
    for (int i = 0; i < s->n_state; i++) last[i] = state[i];
    for (int64_t t = 0; t < T; t += size) {
        const int64_t many = T - t < size ? T - t : size;
        for (int i = 0; i < s->n_in; i++) part[i] = dra_slice(g, in[i], 1, t, many);
        memcpy(from, last, sizeof from);
        s->build(g, part, dra_slice(g, mark, 1, t, many), from, &y[n++], last);
    }
    const dra_value all = n == 1 ? y[0] : dra_concat(g, n, y, 1);
    free(y);
    return all;
}

static const parts_input *parts_source(const parts_spec *s, int i) /* inputs, then states */
{
    return i < s->n_in ? &s->in[i] : &s->state[i - s->n_in];
}

static const char *parts_name(char *text, char letter, int i)
{
    snprintf(text, PARTS_NAME, "%c%d", letter, i);
    return text;
}

/* Inputs x0.., upstreams u0.. and mark; results r0.., whose numbers of elements are noted. */
static check_program parts_compile(const parts_spec *s, int64_t size, parts_result *r)
{
    dra_graph *g = check_graph();
    dra_value  x[PARTS_IN + PARTS_STATE], dx[PARTS_IN + PARTS_STATE];
    dra_value  y[1 + PARTS_STATE], up[1 + PARTS_STATE];
    char       name[PARTS_NAME];
    const int  n_x = s->n_in + s->n_state, n_y = 1 + s->n_state;
    for (int i = 0; i < n_x; i++)
        x[i] = check_real(g, parts_name(name, 'x', i), parts_source(s, i)->shape);
    const dra_shape tokens = DRA_SHAPE(s->in[0].shape.dim[0], s->in[0].shape.dim[1]);
    y[0] = parts_chain(g, s, x, dra_input(g, "mark", DRA_I32, tokens), x + s->n_in, size, y + 1);
    for (int i = 0; i < n_y; i++)
        up[i] = check_real(g, parts_name(name, 'u', i), dra_shape_of(g, y[i]));
    dra_gradient(g, n_y, y, up, n_x, x, dx);
    r->n = n_y + n_x;
    for (int i = 0; i < r->n; i++) {
        const dra_value v = i < n_y ? y[i] : dx[i - n_y];
        const dra_shape shape = dra_shape_of(g, v);
        r->count[i] = dra_shape_count(&shape);
        dra_output(g, parts_name(name, 'r', i), v);
    }
    return check_compile(g, 2);
}

/* Calls of `size` tokens; tokens from `later` on (-1: none) are others. */
static parts_result parts_run(const parts_spec *s, int64_t size, int64_t later)
{
    const int     n_x = s->n_in + s->n_state, n_y = 1 + s->n_state;
    const int64_t B = s->in[0].shape.dim[0], T = s->in[0].shape.dim[1];
    parts_result  r = {0};
    check_program p = parts_compile(s, size, &r);
    dra_real     *data[PARTS_RESULTS] = {0};
    int32_t      *mark = parts_marks(B, T);
    char          name[PARTS_NAME];
    for (int i = 0; i < r.n; i++) { /* result i of y has its upstream, of dx its x */
        const parts_input up = {DRA_SHAPE(1, r.count[i]), -1, 1};
        const int         k = i - n_y;
        data[i] = i < n_y ? parts_fill(&up, -1, (uint64_t)(30 + i))
                          : parts_fill(parts_source(s, k), k < s->n_in ? later : -1,
                                       (uint64_t)(10 + k));
        check_bind(&p, i < n_y ? parts_name(name, 'u', i) : parts_name(name, 'x', k), data[i],
                   (size_t)r.count[i] * sizeof(dra_real));
    }
    check_bind(&p, "mark", mark, (size_t)(B * T) * sizeof *mark);
    check_run(&p);
    for (int i = 0; i < n_y + n_x; i++) {
        r.at[i] = data[i];
        memcpy(r.at[i], check_result(&p, parts_name(name, 'r', i)),
               (size_t)r.count[i] * sizeof(dra_real));
    }
    check_free(&p);
    free(mark);
    return r;
}

static void parts_free(parts_result *r)
{
    for (int i = 0; i < r->n; i++) free(r->at[i]);
}

static void parts_equal(const parts_spec *s, const int *sizes, size_t n_sizes)
{
    parts_result whole = parts_run(s, s->in[0].shape.dim[1], -1);
    for (size_t k = 0; k < n_sizes; k++) {
        parts_result parts = parts_run(s, sizes[k], -1);
        for (int i = 0; i < whole.n; i++) {
            char    name[64];
            double *want = malloc((size_t)(whole.count[i] + 1) * sizeof *want);
            for (int64_t j = 0; j < whole.count[i]; j++) want[j] = (double)whole.at[i][j];
            snprintf(name, sizeof name, "parts of %d, result %d", sizes[k], i);
            check_close(name, whole.count[i], parts.at[i], want, PARTS_TOL);
            free(want);
        }
        parts_free(&parts);
    }
    parts_free(&whole);
}

/* y before token `later` has the same bits whatever comes from there on. */
static void parts_causal(const parts_spec *s, int64_t later)
{
    const int64_t B = s->in[0].shape.dim[0], T = s->in[0].shape.dim[1];
    parts_result  one = parts_run(s, T, -1), other = parts_run(s, T, later);
    const int64_t row = one.count[0] / B, token = row / T;
    for (int64_t b = 0; b < B; b++)
        assert_memory_equal(one.at[0] + b * row, other.at[0] + b * row,
                            (size_t)(later * token) * sizeof(dra_real));
    assert_memory_not_equal(one.at[0], other.at[0], (size_t)one.count[0] * sizeof(dra_real));
    parts_free(&one);
    parts_free(&other);
}

#endif
