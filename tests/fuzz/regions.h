/* Regions with small random bodies, gradients, the table of all builders, and whole graphs for the
 * graph fuzzer. */
#ifndef DRA_TESTS_FUZZ_REGIONS_H
#define DRA_TESTS_FUZZ_REGIONS_H

#include "builders.h"

/* ---- regions and gradients ------------------------------------------------------------------- */

static void build_some(bench *b, int steps);

typedef struct body {
    bench          *outer;
    int             n_in, n_out;
    const dra_type *out;     /* types of the first results; NULL: anything */
    int             carries; /* how many have one */
    int             most;    /* axes of the others */
} body;

static dra_type type_of(const bench *b, dra_value v)
{
    return (dra_type){dra_dtype_of(b->g, v), dra_shape_of(b->g, v)};
}

/* Builds the inside of a region from what it is handed, and picks what it returns. */
static void inside(dra_graph *g, const body *k, int n, const dra_value *given, dra_value *out)
{
    bench *o = k->outer;
    bench  b = {.f = o->f, .g = g, .depth = o->depth + 1};
    for (int i = 0; i < n; i++) keep(&b, given[i]);
    if (o->n) o->f->foreign = o->v[below(o->f, o->n)];
    build_some(&b, between(o->f, 0, 5));
    for (int i = 0; i < k->n_out; i++) {
        out[i] = i < k->carries ? like(&b, k->out[i].dtype, k->out[i].shape) : any(&b);
        if (i >= k->carries && shape(&b, out[i]).rank > k->most)
            out[i] = make(&b, DRA_REAL, (dra_shape){0});
    }
    if (b.n) o->f->foreign = b.v[below(o->f, b.n)];
}

static void scan_step(dra_graph *g, void *user, const dra_value *carry, const dra_value *x,
                      const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const body *k = user;
    dra_value   given[12], out[8];
    const int  *counts = (const int[]){k->carries, k->n_in / 100, k->n_in % 100};
    int         n = 0;
    for (int i = 0; i < counts[0]; i++) given[n++] = carry[i];
    for (int i = 0; i < counts[1]; i++) given[n++] = x[i];
    for (int i = 0; i < counts[2]; i++) given[n++] = constant[i];
    inside(g, k, n, given, out);
    for (int i = 0; i < k->n_out; i++)
        *(i < k->carries ? &carry_out[i] : &y[i - k->carries]) = out[i];
}

static void t_scan(bench *b)
{
    fuzz     *f = b->f;
    const int carries = below(f, 3), xs = below(f, 3), constants = below(f, 3), ys = below(f, 3);
    dra_value carry[2], x[2], constant[2], out[2] = {{0}}, y[2] = {{0}};
    dra_type  types[2];
    const int64_t T = below(f, 8);
    for (int i = 0; i < carries; i++) {
        carry[i] = chance(f, 80) ? real_of(b, -1) : any(b);
        if (shape(b, carry[i]).rank == DRA_MAX_RANK) carry[i] = make(b, DRA_REAL, (dra_shape){0});
        types[i] = type_of(b, carry[i]);
    }
    for (int i = 0; i < xs; i++) {
        dra_shape s = shape_of_rank(f, between(f, 1, 3));
        s.dim[0] = slip(b) ? T / 2 + 3 : T;
        x[i] = pick(b, (want){chance(f, 80) ? DRA_REAL : DRA_I32, -1, s, .exact = true});
    }
    for (int i = 0; i < constants; i++) constant[i] = any(b);
    body k = {b, xs * 100 + constants, carries + ys, types, carries, DRA_MAX_RANK - 1};
    if (failed(b)) return;
    dra_scan(b->g,
             &(dra_scan_config){.length = slip(b) ? -1 : T,
                                .carries = carries,
                                .xs = xs,
                                .constants = constants,
                                .ys = ys,
                                .carry = carry,
                                .x = x,
                                .constant = constant,
                                .reverse = chance(f, 50),
                                .border = slip(b) ? INT64_MAX : below(f, 4),
                                .body = scan_step,
                                .user = &k},
             out, y);
    for (int i = 0; i < carries; i++) keep(b, out[i]);
    for (int i = 0; i < ys; i++) keep(b, y[i]);
}

static void region_body(dra_graph *g, void *user, const dra_value *given, dra_value *out)
{
    const body *k = user;
    inside(g, k, k->n_in, given, out);
}

static void t_recompute(bench *b)
{
    const int n_in = below(b->f, 4), n_out = between(b->f, 1, 2);
    dra_value given[4], out[2] = {{0}};
    body      k = {b, n_in, n_out, NULL, 0, DRA_MAX_RANK};
    for (int i = 0; i < n_in; i++) given[i] = any(b);
    if (failed(b)) return;
    dra_recompute(b->g, region_body, &k, n_in, given, n_out, out);
    for (int i = 0; i < n_out; i++) keep(b, out[i]);
}

static void t_guard(bench *b)
{
    const int       n_in = below(b->f, 4), n_out = between(b->f, 1, 2);
    dra_value       given[4], otherwise[2], out[2] = {{0}};
    dra_type        types[2];
    const dra_value flag = i32_of(b, (dra_shape){0});
    for (int i = 0; i < n_in; i++) given[i] = any(b);
    for (int i = 0; i < n_out; i++) {
        otherwise[i] = any(b);
        types[i] = type_of(b, otherwise[i]);
    }
    body k = {b, n_in, n_out, types, n_out, DRA_MAX_RANK};
    if (failed(b)) return;
    dra_cond(b->g, flag, region_body, &k, n_in, given, n_out, otherwise, out);
    for (int i = 0; i < n_out; i++) keep(b, out[i]);
}

/* A float from the end of the list, which depends on much, or from its start. */
static dra_value float_near(bench *b, bool end)
{
    const want w = {FLOATS, -1};
    for (int i = 0; i < b->n && chance(b->f, 70); i++) {
        const dra_value v = b->v[end ? b->n - 1 - i : i];
        if (suits(b, v, &w)) return in(b, v);
    }
    return pick(b, w);
}

static void t_gradient(bench *b)
{
    const int n_y = between(b->f, 1, 2), n_x = between(b->f, 1, 3);
    dra_value y[2], dy[2] = {{0}}, x[3], dx[3] = {{0}};
    for (int i = 0; i < n_y; i++) {
        y[i] = float_near(b, true);
        const dra_shape s = shape(b, y[i]);
        if (dra_shape_count(&s) != 1 || chance(b->f, 30)) dy[i] = like(b, DRA_REAL, s);
    }
    for (int i = 0; i < n_x; i++) x[i] = float_near(b, false);
    dra_gradient(b->g, n_y, y, dy, n_x, x, dx);
    for (int i = 0; i < n_x; i++) keep(b, dx[i]);
}

static void t_scope(bench *b)
{
    if (chance(b->f, 60)) {
        dra_scope_push(b->g, slip(b) ? "a/b" : "layer");
        build_some(b, 1);
        dra_scope_pop(b->g);
    } else if (slip(b)) {
        dra_scope_pop(b->g);
    }
}

/* ---- building -------------------------------------------------------------------------------- */

typedef struct row {
    const char *name;
    void (*build)(bench *b);
    int weight;
} row;

static const row rows[] = {
    {"number", t_number, 1},
    {"integer", t_integer, 1},
    {"arange", t_arange, 2},
    {"input", t_input, 2},
    {"reshape", t_reshape, 4},
    {"permute", t_permute, 4},
    {"transpose", t_transpose, 4},
    {"slice", t_slice, 4},
    {"broadcast", t_broadcast, 4},
    {"huge", t_huge, 1},
    {"stop_gradient", t_stop, 1},
    {"copy", t_copy, 2},
    {"straight", t_straight, 1},
    {"cast", t_cast, 4},
    {"unary", t_unary, 8},
    {"binary", t_binary, 8},
    {"compare", t_compare, 2},
    {"logic", t_logic, 2},
    {"select", t_select, 3},
    {"clamp", t_clamp, 2},
    {"affine", t_affine, 2},
    {"reduce", t_reduce, 5},
    {"sums", t_sums, 2},
    {"argmax", t_argmax, 1},
    {"topk", t_topk, 2},
    {"cumulate", t_cumulate, 3},
    {"matmul", t_matmul, 4},
    {"linear", t_linear, 3},
    {"concat", t_concat, 3},
    {"pad", t_pad, 2},
    {"shift", t_shift, 2},
    {"repeat", t_repeat, 2},
    {"gather", t_gather, 3},
    {"scatter_add", t_scatter, 2},
    {"embedding", t_embedding, 2},
    {"one_hot", t_one_hot, 2},
    {"write_rows", t_write_rows, 3},
    {"norm", t_norm, 4},
    {"softmax", t_softmax, 3},
    {"activate", t_activate, 3},
    {"random", t_random, 2},
    {"dropout", t_dropout, 2},
    {"rotary", t_rotary, 2},
    {"losses", t_losses, 3},
    {"interval", t_interval, 1},
    {"attend", t_attend, 5},
    {"global_norm", t_norms, 1},
    {"adamw", t_adamw, 1},
    {"scan", t_scan, 4},
    {"recompute", t_recompute, 3},
    {"guard", t_guard, 3},
    {"gradient", t_gradient, 6},
    {"scope", t_scope, 1},
    {"flip", t_flip, 3},
};

static long built[COUNT(rows)], built_well[COUNT(rows)];

static bool is_region(const row *r)
{
    return r->build == t_scan || r->build == t_recompute || r->build == t_guard;
}

static size_t choose(fuzz *f)
{
    int all = 0;
    for (size_t i = 0; i < COUNT(rows); i++) all += rows[i].weight;
    int    at = below(f, all);
    size_t i = 0;
    while ((at -= rows[i].weight) >= 0) i++;
    return i;
}

/* After the first error nothing may change it. */
static void check_error_stays(bench *b)
{
    const dra_error *now = dra_graph_error(b->g);
    if (b->depth) return;
    if (b->f->first.code && (now->code != b->f->first.code || strcmp(now->text, b->f->first.text)))
        broken(b->f, "the error '%s' became '%s'", b->f->first.text, now->text);
    if (now->code && !now->text[0]) broken(b->f, "an error without a text");
    b->f->first = *now;
}

static void build_some(bench *b, int steps)
{
    for (int i = 0; i < steps; i++) {
        const size_t k = choose(b->f);
        const bool   well = !failed(b);
        if (is_region(&rows[k]) && b->depth >= DEEPEST) continue;
        if (rows[k].build == t_gradient && dra_node_count(b->g) > 300) continue;
        if (b->depth == 0) b->f->last = rows[k].name;
        rows[k].build(b);
        built[k]++;
        built_well[k] += well && !failed(b);
        check_error_stays(b);
    }
}

/* Some values go out, some take over a state; with `all`, every value goes out and none takes
 * over anything, so that no two values share memory. */
static void choose_outputs(bench *b, bool all)
{
    fuzz *f = b->f;
    char  name[24];
    int   wanted = between(f, 1, 6), names = 0;
    f->last = "outputs";
    for (int i = 0; i < f->inputs; i++) {
        input *s = &f->input[i];
        if (!s->is_state || !chance(f, 40)) continue;
        dra_value next = like(b, s->dtype, s->shape);
        if (s->dtype == DRA_REAL && chance(f, 60)) next = dra_affine(b->g, s->value, 0.5, 1);
        const dra_value to = slip(b) ? any(b) : s->value;
        snprintf(name, sizeof name, "o%d", names++);
        for (int k = 0; k < f->inputs; k++)
            if (f->input[k].value.id == to.id) f->input[k].donated = true;
        if (all)
            dra_output(b->g, name, next);
        else
            dra_donate(b->g, name, next, to);
    }
    while (wanted-- > 0 && b->n) {
        snprintf(name, sizeof name, "o%d", slip(b) ? 0 : names++);
        dra_output(b->g, name, in(b, b->v[below(f, b->n)]));
    }
    for (int i = 0; all && i < b->n; i++) {
        snprintf(name, sizeof name, "all%d", i);
        dra_output(b->g, name, b->v[i]);
    }
    check_error_stays(b);
}

static dra_graph *build(fuzz *f, uint64_t seed, bool all)
{
    *f = (fuzz){.seed = seed, .stream = seed * 0x2545f4914f6cdd1du};
    bench b = {.f = f};
    if (dra_graph_create(&b.g, NULL) != DRA_OK) broken(f, "no graph");
    f->sloppy = chance(f, 35);
    f->giant = f->huge = chance(f, 4);
    f->wide = !f->giant && chance(f, 3);
    for (int i = between(f, 1, 4); i > 0; i--) t_input(&b);
    build_some(&b, between(f, 1, 22));
    choose_outputs(&b, all);
    return b.g;
}

#endif
