/* Moments and delta rules that fade by channel: golden numbers of RWKV 6 and 7, what pads may hold,
 * what is refused. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shared.h"

#ifdef DRA_REAL_DOUBLE
#define REAL "f64"
#else
#define REAL "f32"
#endif

static const dra_value none;

/* ---- golden numbers of RWKV 6 and 7 ---------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE
static const double GOLDEN_TOL = 1e-12;
#else
static const double GOLDEN_TOL = 2e-6;
#endif

enum { GT = 29, GH = 2, GS = 8, GMOST = 8 };

typedef struct golden { /* inputs of the file in the order of letters; M is the state */
    const char *prefix, *letters;
    bool        delta;
} golden;

static dra_real *golden_numbers(const dra_tensors *f, const golden *s, const char *name,
                                int64_t *count)
{
    char                   path[64];
    dra_error              err = {0};
    static dra_real        room[24][GT * GH * GS];
    static int             next;
    dra_real              *to = room[next++ % 24];
    const dra_tensor_info *info;
    snprintf(path, sizeof path, "%s.%s", s->prefix, name);
    info = dra_tensors_find(f, path);
    assert_non_null(info);
    *count = dra_shape_count(&info->shape);
    assert_int_equal(dra_tensors_read(f, path, DRA_REAL, info->shape, to, &err), DRA_OK);
    return to;
}

/* (N, T, S) as (1, T, N, S), and back. */
static dra_value by_token(dra_graph *g, dra_value x)
{
    return dra_reshape(g, dra_permute(g, x, (const int[]){1, 0, 2}), DRA_SHAPE(1, GT, GH, GS));
}

static dra_value by_head(dra_graph *g, dra_value y)
{
    return dra_permute(g, dra_reshape(g, y, DRA_SHAPE(GT, GH, GS)), (const int[]){1, 0, 2});
}

/* The state of RWKV 7 is stored by value, then key. */
static dra_value transposed(dra_graph *g, const golden *s, dra_value M, dra_shape to)
{
    const int32_t rank = dra_shape_of(g, M).rank;
    const int     three[] = {0, 2, 1}, four[] = {0, 1, 3, 2};
    return dra_reshape(g, s->delta ? dra_permute(g, M, rank == 3 ? three : four) : M, to);
}

static dra_value golden_value(dra_graph *g, const golden *s, const dra_value *x, char letter)
{
    const char *at = strchr(s->letters, letter);
    if (!at) return none;
    if (letter == 'u') return x[at - s->letters];
    if (letter == 'M') return transposed(g, s, x[at - s->letters], DRA_SHAPE(1, GH, GS, GS));
    return by_token(g, x[at - s->letters]);
}

static void golden_build(dra_graph *g, const golden *s, const dra_value *x, dra_value y[2])
{
    dra_value         in[GMOST];
    static const char order[] = "rkvwuabM";
    for (int i = 0; i < GMOST; i++) in[i] = golden_value(g, s, x, order[i]);
    const dra_moment_config m = {
        .q = in[0], .k = in[1], .v = in[2], .l = in[3], .u = in[4], .S = in[7]};
    const dra_delta_config d = {.q = in[0],
                                .k = in[1],
                                .v = in[2],
                                .l = in[3],
                                .recall = in[5],
                                .replace = in[6],
                                .S = in[7]};
    dra_value              last;
    y[0] = by_head(g, s->delta ? dra_delta(g, &d, &last) : dra_moment(g, &m, &last, NULL));
    y[1] = transposed(g, s, last, DRA_SHAPE(GH, GS, GS));
}

static void golden_check(const dra_tensors *f, const golden *s, check_program *p,
                         const char *output, const char *name)
{
    int64_t         n;
    const dra_real *want = golden_numbers(f, s, name, &n);
    double          exact[GT * GH * GS];
    char            what[64];
    for (int64_t i = 0; i < n; i++) exact[i] = (double)want[i];
    snprintf(what, sizeof what, "%s.%s", s->prefix, name);
    check_close(what, n, check_result(p, output), exact, GOLDEN_TOL);
}

static void golden_run(const dra_tensors *f, const golden *s)
{
    const int  n = (int)strlen(s->letters);
    dra_graph *g = check_graph();
    dra_value  x[GMOST], dx[GMOST], y[2], up[2];
    int64_t    count;
    for (int i = 0; i < n; i++) {
        const char name[] = {s->letters[i], 0};
        x[i] = check_real(g, name,
                          *name == 'u'   ? DRA_SHAPE(GH, GS)
                          : *name == 'M' ? DRA_SHAPE(GH, GS, GS)
                                         : DRA_SHAPE(GH, GT, GS));
    }
    golden_build(g, s, x, y);
    up[0] = check_real(g, "up.y", DRA_SHAPE(GH, GT, GS));
    up[1] = check_real(g, "up.M_out", DRA_SHAPE(GH, GS, GS));
    dra_gradient(g, 2, y, up, n, x, dx);
    dra_output(g, "y", y[0]);
    dra_output(g, "M_out", y[1]);
    for (int i = 0; i < n; i++) dra_output(g, (const char[]){'d', s->letters[i], 0}, dx[i]);
    check_program p = check_compile(g, 2);
    for (int i = 0; i < n + 2; i++) {
        const char *name = i < n ? (const char[]){s->letters[i], 0} : i == n ? "up.y" : "up.M_out";
        dra_real   *at = golden_numbers(f, s, name, &count);
        check_bind(&p, name, at, (size_t)count * sizeof *at);
    }
    check_run(&p);
    golden_check(f, s, &p, "y", "y");
    golden_check(f, s, &p, "M_out", "M_out");
    for (int i = 0; i < n; i++) {
        const char name[] = {'d', s->letters[i], 0};
        golden_check(f, s, &p, name, name);
    }
    check_free(&p);
}

static void agrees_with_rwkv(void **unused)
{
    static const golden all_of_them[] = {{"wkv6", "rkvwuM", false},
                                         {"wkv6.strong", "rkvwuM", false},
                                         {"wkv7", "rkvwabM", true},
                                         {"wkv7.strong", "rkvwabM", true}};
    FILE               *there = shared_file("rwkv567/ops.safetensors");
    char                path[1024];
    dra_tensors        *f;
    dra_error           err = {0};
    if (!there) skip();
    fclose(there);
    snprintf(path, sizeof path, "%s/rwkv567/ops.safetensors", shared_data());
    assert_int_equal(dra_tensors_open(path, &f, &err), DRA_OK);
    for (size_t i = 0; i < COUNT(all_of_them); i++) golden_run(f, &all_of_them[i]);
    dra_tensors_close(f);
}

/* ---- pads ------------------------------------------------------------------------------------ */

/* One head of width 1: q, k, v, l, b over T tokens and the first state. */
enum { PT = 4, PX = 6 };
static const char *const pad_names[PX] = {"q", "k", "v", "l", "b", "S"};

static dra_value build_padded(dra_graph *g, bool delta, const dra_value *x, dra_value *last)
{
    const dra_value         mark = dra_input(g, "mark", DRA_I32, DRA_SHAPE(1, PT));
    const dra_delta_config  d = {x[0], x[1], x[2], x[4], x[3], x[5], mark};
    const dra_moment_config m = {.q = x[0],
                                 .k = x[1],
                                 .v = x[2],
                                 .l = x[3],
                                 .S = x[5],
                                 .mark = mark,
                                 .u = dra_reshape(g, dra_number(g, 2), DRA_SHAPE(1, 1))};
    return delta ? dra_delta(g, &d, last) : dra_moment(g, &m, last, NULL);
}

/* Results y, last, dq, dk, ..: those of x but the state; returns how many of these. */
static int output_padded(dra_graph *g, bool delta)
{
    const int n = delta ? 5 : 4;
    dra_value x[PX], dx[PX], y[2], up[2];
    for (int i = 0; i < PX; i++)
        x[i] = check_real(g, pad_names[i],
                          i == 5   ? DRA_SHAPE(1, 1, 1, 1)
                          : i == 4 ? DRA_SHAPE(1, PT, 1)
                                   : DRA_SHAPE(1, PT, 1, 1));
    y[0] = build_padded(g, delta, x, &y[1]);
    up[0] = x[2], up[1] = dra_reshape(g, dra_number(g, 1), DRA_SHAPE(1, 1, 1, 1));
    dra_gradient(g, 2, y, up, n, x, dx);
    dra_output(g, "y", y[0]);
    dra_output(g, "last", y[1]);
    for (int i = 0; i < n; i++) dra_output(g, (const char[]){'d', *pad_names[i], 0}, dx[i]);
    return n;
}

/* Pads may hold anything; so may what a reset cuts off: nothing of it reaches a result. */
static void pads_may_hold_anything(void **unused)
{
    for (int delta = 0; delta < 2; delta++) {
        dra_real      row[PT] = {1, NAN, 2, 3}, l[PT] = {-1, NAN, -1, -2}, S[1] = {NAN};
        int32_t       mark[PT] = {2, 1, 0, 0};
        dra_graph    *g = check_graph();
        const int     n = output_padded(g, delta);
        check_program p = check_compile(g, 1);
        for (int i = 0; i < PX; i++)
            if (check_has_input(&p, pad_names[i]))
                check_bind(&p, pad_names[i],
                           i == 5   ? S
                           : i == 3 ? l
                                    : row,
                           i == 5 ? sizeof S : sizeof row);
        check_bind(&p, "mark", mark, sizeof mark);
        check_run(&p);
        assert_true(isfinite((double)*check_result(&p, "last")));
        for (int i = 0; i <= n; i++) {
            const char      name[] = {'d', i ? *pad_names[i - 1] : 0, 0};
            const dra_real *at = check_result(&p, i ? name : "y");
            for (int t = 0; t < PT; t++) assert_true(isfinite((double)at[t]));
            assert_true(at[1] == 0);
        }
        check_free(&p);
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refused_moment(dra_shape l, dra_shape u, bool normalise, dra_status code,
                           const char *text)
{
    dra_graph              *g = check_graph();
    const dra_value         x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 4));
    const dra_moment_config m = {.q = x,
                                 .k = x,
                                 .v = x,
                                 .l = check_real(g, "l", l),
                                 .u = check_real(g, "u", u),
                                 .normalise = normalise};
    assert_int_equal(dra_moment(g, &m, NULL, NULL).id, 0);
    check_refused(g, code, text);
}

static void refused_delta(bool b, bool a, dra_shape c, dra_status code, const char *text)
{
    dra_graph             *g = check_graph();
    const dra_value        x = check_real(g, "x", DRA_SHAPE(2, 5, 3, 4));
    const dra_delta_config m = {.q = x,
                                .k = x,
                                .v = x,
                                .b = b ? check_real(g, "b", DRA_SHAPE(2, 5, 3)) : none,
                                .recall = a ? x : none,
                                .replace = check_real(g, "c", c)};
    assert_int_equal(dra_delta(g, &m, NULL).id, 0);
    check_refused(g, code, text);
}

static void refuses(void **unused)
{
    const dra_shape each = DRA_SHAPE(3, 4), rows = DRA_SHAPE(2, 5, 3, 4);
    refused_moment(DRA_SHAPE(3, 5), each, false, DRA_ERR_SHAPE,
                   "moment: l is " REAL " (3, 5), expected " REAL " (3, 4)");
    refused_moment(DRA_SHAPE(2, 5, 3, 1), each, false, DRA_ERR_SHAPE,
                   "moment: l is " REAL " (2, 5, 3, 1), expected " REAL " (2, 5, 3, 4)");
    refused_moment(each, DRA_SHAPE(3), false, DRA_ERR_SHAPE,
                   "moment: u is " REAL " (3), expected " REAL " (3, 4)");
    refused_moment(each, each, true, DRA_ERR_VALUE,
                   "moment: u is given, which cannot be normalised");
    refused_delta(true, true, rows, DRA_ERR_VALUE,
                  "delta: b is given, which recall and replace exclude");
    refused_delta(false, true, each, DRA_ERR_SHAPE,
                  "delta: replace is " REAL " (3, 4), expected " REAL " (2, 5, 3, 4)");
    refused_delta(false, false, rows, DRA_ERR_VALUE,
                  "delta: replace is given, expected recall as well");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_rwkv),
        cmocka_unit_test(pads_may_hold_anything),
        cmocka_unit_test(refuses),
    };
    return check_main("dplr rules", NULL, 0, tests, COUNT(tests));
}
