/* Options that the harness of mixers does not see, through readers and gradients: what stands for a
 * text, and conditions. Each row of a batch alone gives the same, and so do chunks; gradients by
 * central differences in the double build, and the same where layers are recomputed. */
#include <math.h>
#include <string.h>

#include "base/shape.h"
#include "check.h"
#include "dra/model.h"
#include "nudge.h"

#ifdef DRA_REAL_DOUBLE
#define EQUAL 1e-12
#else
#define EQUAL 5e-5
#endif

enum { B = 3, T = 7, V = 11, C = 12, K = 4 };

#define MODEL(options)                                                                             \
    "{\"model_type\": \"dra\", \"vocab\": 11, \"dim\": 12, \"depth\": 2, \"heads\": 3, "           \
    "\"context\": 16, \"ff\": {\"dim\": 8}" options "}"
#define CLASSES(pool) ", \"head\": {\"kind\": \"classes\", \"dim\": 4, \"pool\": \"" pool "\"}"

typedef struct row {
    const char *name, *json;
    bool        classes;   /* it puts out classes, not tokens */
    int64_t     condition; /* how wide; 0: it has none */
    bool        whole;     /* it is not read in chunks */
} row;

static const row rows[] = {
    {"a learned token", MODEL(", \"visible\": \"bidirectional\"" CLASSES("cls")), .classes = true,
     .whole = true},
    {"a learned token after memory tokens, dual norms, shifted tokens",
     MODEL(
         ", \"visible\": \"bidirectional\", \"memory_tokens\": 2, \"block\": {\"norm\": \"dual\", "
         "\"shift\": 1}, \"positions\": \"learned\"" CLASSES("cls")),
     .classes = true, .whole = true},
    {"a learned token, streams",
     MODEL(", \"visible\": \"bidirectional\", \"block\": {\"streams\": 2}" CLASSES("cls")),
     .classes = true, .whole = true},
    {"the last token", MODEL(CLASSES("last")), .classes = true, .whole = true},
    {"the last token of an encoder after memory tokens",
     MODEL(", \"visible\": \"bidirectional\", \"memory_tokens\": 2" CLASSES("last")),
     .classes = true, .whole = true},
    {"constant factors, norms of what is added alone, a pattern of mixers that rotate or not",
     MODEL(", \"embed_scale\": 3, \"logit_scale\": 0.3, \"norm_offset\": true, \"block\": "
           "{\"norm\": \"none\", \"branch_norm\": true, \"branch_factor\": 0.4}, \"mixer\": "
           "[{\"bias\": \"qkv\"}, {\"rotary\": true, \"turn\": {\"base\": 50, \"gain\": "
           "1.1}, \"retrieval\": \"window\", \"window\": 3}], \"pattern\": [1, 0]")},
    {"norms by a condition", MODEL(", \"norm_gain\": \"condition\""), .condition = C},
    {"the condition in every sublayer, gated",
     MODEL(", \"condition\": {\"add\": true}, \"reinject_gate\": true"), .condition = C},
    {"layer norms and branches by a condition, through a network",
     MODEL(
         ", \"norm\": \"layer\", \"norm_gain\": \"condition\", \"block\": {\"branch_gate\": true, "
         "\"branch_norm\": true}, \"condition\": {\"dim\": 5, \"expand\": 3}, "
         "\"memory_tokens\": 2, \"mixer\": {\"memory\": \"delta\"}"),
     .condition = 5},
    {"branches by a condition, post norm, shifted tokens, macaron",
     MODEL(", \"layout\": \"faf\", \"block\": {\"branch_gate\": true, \"norm\": \"post\", "
           "\"shift\": 1, \"macaron\": true}, \"condition\": {\"dim\": 3}"),
     .condition = 3},
    {"norms by a condition, dual",
     MODEL(", \"norm\": \"unit\", \"norm_gain\": \"condition\", \"block\": {\"norm\": \"dual\"}"),
     .condition = C},
    {"norms by a condition, streams, a learned token",
     MODEL(", \"visible\": \"bidirectional\", \"norm_gain\": \"condition\", \"block\": "
           "{\"streams\": 2, "
           "\"branch_gate\": true}" CLASSES("cls")),
     .classes = true, .condition = C, .whole = true},
    {"the mean", MODEL(", \"visible\": \"bidirectional\"" CLASSES("mean")), .classes = true,
     .whole = true},
};

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

typedef struct fixture {
    const row   *row;
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    dra_reader  *reader;
    dra_view     view;
    int32_t      ids[B * T], targets[B * T], mark[B * T], labels[B];
    dra_real     condition[B * C];
    int64_t      last[B]; /* token of each row that is no pad */
} fixture;

/* The second row is shorter, the third has a hole. */
static void fill(fixture *f)
{
    for (int i = 0; i < B * T; i++) {
        f->ids[i] = (i * 7 + i * i * 3) % V;
        f->targets[i] = (i * 5 + 2) % V;
    }
    f->mark[2 * T - 1] = f->mark[2 * T - 2] = f->mark[3 * T - 4] = DRA_MARK_PAD;
    for (int i = 0; i < B * T; i++)
        if (f->mark[i]) f->targets[i] = -1;
    for (int b = 0; b < B; b++) f->labels[b] = (2 * b + 1) % K, f->last[b] = T - 1;
    f->last[1] = T - 3;
    for (int i = 0; i < B * C; i++) f->condition[i] = (dra_real)sin(0.7 * i + 0.01 * i * i);
}

/* Weights that start as 0 would hide what they do. */
static void stir(const fixture *f)
{
    const dra_specs *p = dra_model_params(f->model);
    for (int i = 0; i < dra_specs_count(p); i++) {
        const dra_spec *spec = dra_specs_at(p, i);
        dra_real       *w = dra_weights_edit(f->weights, i);
        const int64_t   n = dra_shape_count(&spec->shape);
        for (int64_t k = 0; k < n && spec->fill == DRA_FILL_CONST && spec->number == 0; k++)
            w[k] = (dra_real)(0.3 * sin(1.3 * (double)k + i));
    }
}

static void open_row(fixture *f, const row *r)
{
    dra_error err = {0};
    CHECK_CONFIG(c);
    *f = (fixture){.row = r};
    expect_ok(dra_model_config_parse(r->name, r->json, strlen(r->json), &c, &err), &err);
    expect_ok(dra_model_create(c, &f->model, &err), &err);
    expect_ok(dra_weights_draw(f->model, 3, &f->weights, &err), &err);
    expect_ok(check_cpu(NULL, &f->device, &err), &err);
    f->view = (dra_view){
        .model = f->model, .hidden = true, .outs = r->classes, .logits = !r->classes};
    const dra_module module = dra_view_module(&f->view);
    expect_ok(dra_reader_create(f->device, &module, &f->reader, &err), &err);
    fill(f);
    stir(f);
    expect_ok(dra_weights_bind(f->weights, f->reader, &err), &err);
}

static void close_row(fixture *f)
{
    dra_reader_destroy(f->reader);
    dra_weights_destroy(f->weights);
    dra_model_destroy(f->model);
    dra_device_destroy(f->device);
}

/* Logits and hidden values of rows first .. first + n - 1. */
static void read_rows(const fixture *f, int64_t first, int64_t n, dra_real *logits,
                      dra_real *hidden)
{
    const int64_t   wide = f->row->condition, each = f->row->classes ? K : T * V;
    const dra_named in[] = {
        {"ids", f->ids + first * T, (size_t)(n * T) * sizeof *f->ids},
        {"condition", f->condition + first * wide, (size_t)(n * wide) * sizeof *f->condition}};
    dra_states *s = NULL;
    dra_error   err = {0};
    expect_ok(dra_states_create(f->device, dra_model_state(f->model), n, &s, &err), &err);
    expect_ok(dra_reader_read(f->reader, s, T, f->mark + first * T, 1 + (wide > 0), in, &err),
              &err);
    const dra_real *y = dra_reader_result(f->reader, "logits");
    assert_non_null(y);
    memcpy(logits, y, (size_t)(n * each) * sizeof *y);
    memcpy(hidden, dra_reader_result(f->reader, "hidden"), (size_t)(n * T * C) * sizeof *y);
    dra_states_destroy(s);
}

static void rows_stand_alone(const row *r)
{
    static dra_real all[B * T * V], one[T * V], hidden[B * T * C], own[T * C];
    const int64_t   each = r->classes ? K : T * V;
    fixture         f;
    open_row(&f, r);
    read_rows(&f, 0, B, all, hidden);
    for (int b = 0; b < B; b++) {
        read_rows(&f, b, 1, one, own);
        check_reals(one, all + b * each, (size_t)each * sizeof *one);
    }
    close_row(&f);
}

/* Token by token after the first two, with the same condition. */
static void chunks_equal_whole(const row *r)
{
    static dra_real all[B * T * V], hidden[B * T * C];
    fixture         f;
    dra_states     *s = NULL;
    dra_error       err = {0};
    if (r->whole || r->classes) return;
    open_row(&f, r);
    read_rows(&f, 0, B, all, hidden);
    expect_ok(dra_states_create(f.device, dra_model_state(f.model), B, &s, &err), &err);
    for (int64_t t = 0, n = 2; t < T; t += n, n = 1) {
        int32_t ids[2 * B], mark[2 * B];
        for (int64_t i = 0; i < B * n; i++) {
            ids[i] = f.ids[i / n * T + t + i % n];
            mark[i] = f.mark[i / n * T + t + i % n];
        }
        const dra_named in[] = {
            {"ids", ids, (size_t)(B * n) * sizeof *ids},
            {"condition", f.condition, (size_t)(B * r->condition) * sizeof *f.condition}};
        expect_ok(dra_reader_read(f.reader, s, n, mark, 1 + (r->condition > 0), in, &err), &err);
        const dra_real *y = dra_reader_result(f.reader, "logits");
        for (int64_t i = 0; i < B * n * V; i++) {
            const int64_t at = (i / (n * V) * T + t + i / V % n) * V + i % V;
            assert_true(fabs((double)y[i] - (double)all[at]) <= EQUAL);
        }
    }
    dra_states_destroy(s);
    close_row(&f);
}

/* Another condition, other logits. */
static void conditions_matter(const row *r)
{
    static dra_real one[B * T * V], other[B * T * V], hidden[B * T * C];
    const int64_t   each = r->classes ? K : T * V;
    fixture         f;
    if (!r->condition) return;
    open_row(&f, r);
    read_rows(&f, 0, B, one, hidden);
    for (int64_t i = 0; i < r->condition; i++) f.condition[i] += 1;
    read_rows(&f, 0, B, other, hidden);
    assert_true(memcmp(one, other, (size_t)each * sizeof *one) != 0);
    check_reals(one + each, other + each, (size_t)(each * (B - 1)) * sizeof *one);
    close_row(&f);
}

/* The head of the last token, by hand. */
static void the_last_is_the_last(const row *r)
{
    static dra_real logits[B * K], hidden[B * T * C];
    fixture         f;
    if (!strstr(r->json, "\"last\"")) return;
    open_row(&f, r);
    const dra_specs *p = dra_model_params(f.model);
    const dra_real  *w = dra_weights_at(f.weights, dra_specs_find(p, "head"));
    const dra_real  *bias = dra_weights_at(f.weights, dra_specs_find(p, "head_b"));
    read_rows(&f, 0, B, logits, hidden);
    for (int i = 0; i < B * K; i++) {
        const dra_real *x = hidden + (i / K * T + f.last[i / K]) * C;
        double          sum = (double)bias[i % K];
        for (int c = 0; c < C; c++) sum += (double)w[i % K * C + c] * (double)x[c];
        assert_true(fabs(sum - (double)logits[i]) <= EQUAL);
    }
    close_row(&f);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static double loss_of(const fixture *f, dra_gradients *l)
{
    const int64_t         wide = f->row->condition;
    dra_named             in[2];
    int                   n = 0;
    dra_error             err = {0};
    dra_microbatch_result out;
    if (f->row->classes) in[n++] = (dra_named){"labels", f->labels, sizeof f->labels};
    if (wide)
        in[n++] = (dra_named){"condition", f->condition, (size_t)(B * wide) * sizeof(dra_real)};
    const dra_microbatch m = {.B = B,
                              .T = T,
                              .ids = f->ids,
                              .targets = f->row->classes ? NULL : f->targets,
                              .mark = f->mark,
                              .n_inputs = n,
                              .inputs = in};
    expect_ok(dra_gradients_bind(l, f->weights, &err), &err);
    expect_ok(dra_gradients_run(l, &m, &out, &err), &err);
    return out.loss;
}

static double loss_after(const fixture *f, dra_gradients *l, int i, int64_t n, double step)
{
    nudge(f->weights, i, n, step);
    const double loss = loss_of(f, l);
    nudge(f->weights, i, n, -step);
    return loss;
}

static void expect_derivative(const fixture *f, dra_gradients *l, dra_gradients *again, int i)
{
    const double    h = 1e-5, small = sizeof(dra_real) == 8 ? 1e-9 : 1e-4;
    const dra_spec *p = dra_specs_at(dra_model_params(f->model), i);
    int64_t         n = 1;
    for (int k = 0; k < p->shape.rank; k++) n *= p->shape.dim[k];
    loss_of(f, l);
    const double d = along(l, i, n), other = along(again, i, n);
    if (!(fabs(d - other) <= small * (fabs(d) + 1e-2)))
        fail_msg("%s, %s: %g, recomputed %g", f->row->name, p->name, d, other);
    if (sizeof(dra_real) != 8) return;
    const double up = loss_after(f, l, i, n, h), down = loss_after(f, l, i, n, -h);
    const double expected = (up - down) / (2 * h);
    if (!(fabs(d - expected) <= 1e-6 * (fabs(expected) + 1e-2)))
        fail_msg("%s, %s: %g, expected %g", f->row->name, p->name, d, expected);
}

static void gradients_are_derivatives(const row *r)
{
    fixture        f;
    dra_error      err = {0};
    dra_gradients *l, *again;
    open_row(&f, r);
    dra_gradients_config c = {.model = f.model, .device = f.device};
    if (r->classes) c.objective = DRA_OBJECTIVE_CLASSES;
    expect_ok(dra_gradients_create(&c, &l, &err), &err);
    c.recompute = true;
    expect_ok(dra_gradients_create(&c, &again, &err), &err);
    assert_true(fabs(loss_of(&f, l) - loss_of(&f, again)) <= EQUAL * loss_of(&f, l));
    for (int i = 0; i < dra_specs_count(dra_model_params(f.model)); i++)
        expect_derivative(&f, l, again, i);
    dra_gradients_destroy(l);
    dra_gradients_destroy(again);
    close_row(&f);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(void **state)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {MODEL(", \"condition\": {\"dim\": 3}"),
         "model: condition without norm_gain condition, block.branch_gate or condition.add"},
        {MODEL(", \"norm_gain\": \"condition\", \"embed_norm\": true"),
         "model: embed_norm next to norm_gain condition: expected embed_norm_kind layer"},
        {MODEL(", \"block\": {\"branch_gate\": true, \"branch_scale\": true}"),
         "layer 0: block: branch_gate and branch_scale exclude each other"},
        {MODEL(CLASSES("cls")), "model: head: pool cls needs visible bidirectional"},
        {MODEL(", \"head\": {\"pool\": \"last\"}"), "model: head: pool needs kind classes"},
        {MODEL(", \"head\": {\"no_bias\": true}"), "model: head: no_bias needs kind classes"},
        {MODEL(", \"position\": {\"xpos_base\": 8, \"rotate\": \"rotary\"}"),
         "position: xpos_base is set, which only rotate xpos has"},
        {MODEL(", \"position\": {\"halves\": true, \"distance\": \"alibi\"}"),
         "position: halves is set, which only rotate rotary, rotate xpos have"},
        {MODEL(", \"position\": {\"buckets\": 8, \"distance\": \"alibi\"}"),
         "position: buckets is set, which only distance t5 has"},
        {MODEL(", \"position\": {\"slopes\": 1, \"distance\": \"dynamic\"}"),
         "position: slopes is set, which only distance alibi has"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_error err = {0};
        CHECK_CONFIG(c);
        dra_model  *m;
        const char *json = cases[i].json;
        expect_ok(dra_model_config_parse("text", json, strlen(json), &c, &err), &err);
        assert_int_equal(dra_model_create(c, &m, &err), DRA_ERR_VALUE);
        assert_string_equal(err.text, cases[i].text);
    }
}

static void each(void **state)
{
    void (*const *check)(const row *) = (void (*const *)(const row *)) * state;
    for (size_t i = 0; i < COUNT(rows); i++) (*check)(&rows[i]);
}

int main(void)
{
    static void (*checks[])(const row *) = {rows_stand_alone, the_last_is_the_last,
                                            gradients_are_derivatives, chunks_equal_whole,
                                            conditions_matter};
    const struct CMUnitTest tests[] = {
        {"rows stand alone", each, NULL, NULL, &checks[0]},
        {"the last is the last", each, NULL, NULL, &checks[1]},
        {"gradients are derivatives", each, NULL, NULL, &checks[2]},
        {"chunks equal whole", each, NULL, NULL, &checks[3]},
        {"conditions matter", each, NULL, NULL, &checks[4]},
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
