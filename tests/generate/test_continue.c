/* Continuing: what a model puts out becomes its next input. Each case is compared with reading
 * everything again from the start for every token, as plain as can be; rows alone with rows
 * together; what ends a row, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/generate.h"

#ifdef DRA_REAL_DOUBLE
#define NEAR 1e-12
#else
#define NEAR 1e-5
#endif

enum { B = 3, T = 4, S = 5, N = 7, NUMBER = 3 };

typedef struct subject {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    /* Inputs of B rows. */
    int32_t  ids[B * T], src[B * S], mark[B * T], pads[B * S];
    dra_real nums[B * T], x[B * T * 2], img[B * 16];
} subject;

static const char encoder_decoder[] =
    "{\"model_type\":\"dra\",\"stacks\":{\"encoder\":{\"vocab\":20,\"dim\":16,\"depth\":1,"
    "\"heads\":2,\"context\":12,\"positions\":\"learned\",\"visible\": \"bidirectional\"},"
    "\"decoder\":{\"vocab\":22,\"dim\":16,\"depth\":2,\"heads\":2,\"max_seq_len\":40,"
    "\"positions\":\"learned\",\"layout\":\"acf\",\"tied\":false,\"context\":\"encoder\"}}}";
static const char captions[] =
    "{\"model_type\":\"dra\",\"stacks\":{\"vit\":{\"dim\":16,\"depth\":1,\"heads\":2,"
    "\"visible\": \"bidirectional\",\"positions\":\"learned\","
    "\"source\":{\"kind\":\"image\",\"size\":4,"
    "\"patch\":2,\"channels\":1}},\"text\":{\"vocab\":22,\"dim\":16,\"depth\":2,\"heads\":2,"
    "\"tied\":false,\"layout\":\"acf\",\"context\":\"vit\"}}}";
#define SERIES(context)                                                                            \
    "{\"model_type\":\"dra\",\"dim\":16,\"depth\":2,\"heads\":2,\"context\":" context ","          \
    "\"positions\":\"learned\",\"source\":{\"kind\":\"vectors\",\"dim\":2},"                       \
    "\"head\":{\"kind\":\"vectors\",\"dim\":2}}"
static const char series[] = SERIES("40"), short_series[] = SERIES("9");
static const char hidden_series[] =
    "{\"model_type\":\"dra\",\"dim\":2,\"depth\":1,\"heads\":1,\"mixer\":{\"memory\":\"gru\"},"
    "\"source\":{\"kind\":\"vectors\"},\"head\":{\"kind\":\"none\"}}";
static const char xval[] =
    "{\"model_type\":\"dra\",\"vocab\":5,\"dim\":16,\"depth\":2,\"heads\":2,\"tied\":false,"
    "\"source\":{\"numbers\":true,\"number_token\":3},\"head\":{\"numbers\":true,\"bias\":true}}";

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* Row 1 ends with a pad, row 2 has one in the middle; contexts likewise. */
static void fill(subject *s)
{
    for (int i = 0; i < B * T; i++) {
        s->ids[i] = (i * 7 + 3) % 5;
        s->nums[i] = s->ids[i] == NUMBER ? (dra_real)(0.3 * i - 1) : (dra_real)NAN;
        s->mark[i] = i == 2 * T - 1 || i == 2 * T + 1 ? DRA_MARK_PAD : 0;
    }
    for (int i = 0; i < B * S; i++) {
        s->src[i] = (i * 5 + 1) % 20;
        s->pads[i] = i == 2 * S - 1 || i == 2 * S + 2 ? DRA_MARK_PAD : 0;
    }
    for (int i = 0; i < B * T * 2; i++) s->x[i] = (dra_real)sin(i * 0.7);
    for (int i = 0; i < B * 16; i++) s->img[i] = (dra_real)cos(i * 1.3);
}

static void open_subject(subject *s, const char *json)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_model_config_parse("json", json, strlen(json), &c, &err), &err);
    expect_ok(dra_model_create(c, &s->model, &err), &err);
    expect_ok(dra_weights_draw(s->model, 5, &s->weights, &err), &err);
    expect_ok(check_cpu(NULL, &s->device, &err), &err);
    /* Larger heads make likely tokens likelier, so that rounding does not decide. */
    const int i = dra_specs_find(dra_model_params(s->model), "head");
    dra_real *e = i >= 0 && c->head.kind == DRA_HEAD_TOKENS ? dra_weights_edit(s->weights, i)
                                                            : NULL;
    for (int64_t k = 0; e && k < c->vocab * c->dim; k++) e[k] *= 4;
    fill(s);
}

static void close_subject(subject *s)
{
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
    dra_device_destroy(s->device);
}

/* ---- inputs of rows from .. from + n - 1, of which `more` tokens were added ------------------ */

enum { LONG = T + N };

typedef struct rows {
    int              n_inputs;
    dra_named        in[4];
    int32_t          ids[B * LONG], mark[B * LONG], picks[B];
    dra_real         nums[B * LONG], x[B * LONG * 2];
    dra_context_text context;
    int64_t          n, T;
} rows;

static void add(rows *r, const char *name, const void *data, size_t row)
{
    r->in[r->n_inputs++] = (dra_named){name, data, (size_t)r->n * row};
}

static void make_rows(const subject *s, int64_t from, int64_t n, const dra_continued *add_to,
                      int64_t more, rows *r)
{
    dra_model_input in;
    *r = (rows){.n = n, .T = T + more};
    for (int64_t b = 0; b < n; b++)
        for (int64_t t = 0; t < r->T; t++) {
            const int64_t at = b * r->T + t, old = (from + b) * T + t;
            const int64_t new = (from + b) * (add_to ? add_to->n : 0) + t - T;
            r->mark[at] = t < T ? s->mark[old] : 0;
            r->ids[at] = t < T ? s->ids[old] : add_to->ids ? add_to->ids[new] : 0;
            r->nums[at] = t < T ? s->nums[old] : add_to->numbers ? add_to->numbers[new] : 0;
            for (int k = 0; k < 2; k++)
                r->x[2 * at + k] = t < T             ? s->x[2 * old + k]
                                   : add_to->vectors ? add_to->vectors[2 * new + k]
                                                     : 0;
        }
    const size_t tokens = (size_t)r->T;
    for (int i = 0; dra_model_input_at(s->model, i, &in); i++) {
        if (in.numbers)
            add(r, in.name, r->nums, tokens * sizeof *r->nums);
        else if (in.kind == DRA_SOURCE_IMAGE)
            add(r, in.name, s->img + from * 16, 16 * sizeof *s->img);
        else if (in.kind == DRA_SOURCE_VECTORS)
            add(r, in.name, r->x, tokens * 2 * sizeof *r->x);
        else if (in.context)
            add(r, in.name, s->src + from * S, S * sizeof *s->src);
        else
            add(r, in.name, r->ids, tokens * sizeof *r->ids);
        if (in.context)
            r->context = in.kind == DRA_SOURCE_IMAGE ? (dra_context_text){in.length, NULL}
                                                     : (dra_context_text){S, s->pads + from * S};
    }
}

static dra_continue_config config_of(const subject *s, const rows *r)
{
    return (dra_continue_config){.model = s->model,
                                 .weights = s->weights,
                                 .device = s->device,
                                 .sampler = {.temperature = 0.7, .seed = 3},
                                 .B = r->n,
                                 .T = r->T,
                                 .mark = r->mark,
                                 .context = r->context.T ? &r->context : NULL,
                                 .n_inputs = r->n_inputs,
                                 .inputs = r->in,
                                 .n = N};
}

static void continue_rows(const subject *s, int64_t from, int64_t n, dra_continued *out)
{
    rows      r;
    dra_error err = {0};
    make_rows(s, from, n, NULL, 0, &r);
    const dra_continue_config c = config_of(s, &r);
    expect_ok(dra_continue(&c, out, &err), &err);
}

/* ---- equal to reading all of it again -------------------------------------------------------- */

/* Outputs of the last token when rows with `more` added tokens are read from the start. */
static dra_reader *read_again(const subject *s, const dra_continued *o, int64_t more,
                              dra_view *view)
{
    const dra_model_config *c = dra_model_config_of(s->model);
    dra_reader             *reader;
    dra_states             *states;
    dra_error               err = {0};
    rows                    r;
    make_rows(s, 0, B, o, more, &r);
    *view = (dra_view){.model = s->model,
                       .logits = c->head.kind == DRA_HEAD_TOKENS,
                       .hidden = true,
                       .outs = c->head.kind == DRA_HEAD_VECTORS || c->head.numbers};
    const dra_module module = dra_view_module(view);
    expect_ok(dra_reader_create(s->device, &module, &reader, &err), &err);
    expect_ok(dra_weights_bind(s->weights, reader, &err), &err);
    expect_ok(dra_states_create(s->device, module.state, B, &states, &err), &err);
    expect_ok(dra_reader_read_context(reader, states, r.context.T ? &r.context : NULL, r.T, r.mark,
                                      r.n_inputs, r.in, &err),
              &err);
    dra_states_destroy(states);
    return reader;
}

/* The token to continue from: row 1 ends with a pad at first. */
static int64_t last(int64_t b, int64_t more)
{
    return more ? T + more - 1 : b == 1 ? T - 2 : T - 1;
}

static void expect_near(double x, double y, const char *what)
{
    if (!(fabs(x - y) <= NEAR * (1 + fabs(y)))) fail_msg("%s: %.9g, expected %.9g", what, x, y);
}

static void expect_tokens(const subject *s, const dra_continued *o, int64_t more,
                          dra_reader *reader)
{
    const int64_t            V = dra_model_config_of(s->model)->vocab, n = T + more;
    const dra_real          *logits = dra_reader_result(reader, "logits");
    const dra_real          *numbers = dra_reader_result(reader, "numbers");
    dra_sampler             *sampler;
    dra_error                err = {0};
    const dra_sampler_config how = {.temperature = 0.7, .seed = 3};
    expect_ok(dra_sampler_create(&how, V, &sampler, &err), &err);
    for (int64_t b = 0; b < B; b++) {
        const int64_t t = last(b, more), read = n - (b > 0); /* rows 1 and 2 have a pad */
        const int32_t id = dra_sampler_pick(sampler, logits + (b * n + t) * V, NULL, 0, read);
        assert_int_equal(o->ids[b * o->n + more], id);
        if (!numbers) continue;
        if (id == NUMBER)
            expect_near(o->numbers[b * o->n + more], numbers[b * n + t], "number");
        else
            assert_true(isnan(o->numbers[b * o->n + more]));
    }
    dra_sampler_destroy(sampler);
}

static void equals_reading_again(const char *json)
{
    subject       s = {0};
    dra_continued o;
    open_subject(&s, json);
    continue_rows(&s, 0, B, &o);
    assert_true(o.n >= 5);
    for (int64_t more = 0; more < o.n; more++) {
        dra_view        view;
        dra_reader     *reader = read_again(&s, &o, more, &view);
        const dra_real *out = dra_reader_result(reader, view.outs ? "out" : "hidden");
        for (int64_t i = 0; o.vectors && i < B * 2; i++)
            expect_near(o.vectors[(i / 2 * o.n + more) * 2 + i % 2],
                        out[(i / 2 * (T + more) + last(i / 2, more)) * 2 + i % 2], "vector");
        if (o.ids) expect_tokens(&s, &o, more, reader);
        dra_reader_destroy(reader);
    }
    dra_continued_free(&o);
    close_subject(&s);
}

static void translations(void **unused) { equals_reading_again(encoder_decoder); }
static void images_to_text(void **unused) { equals_reading_again(captions); }
static void vectors(void **unused) { equals_reading_again(series); }
static void hidden_vectors(void **unused) { equals_reading_again(hidden_series); }
static void numbers(void **unused) { equals_reading_again(xval); }

/* ---- rows alone ------------------------------------------------------------------------------ */

static void rows_alone(void **unused)
{
    static const char *const all[] = {encoder_decoder, captions, series, xval};
    for (int i = 0; i < 4; i++) {
        subject       s = {0};
        dra_continued together, alone;
        open_subject(&s, all[i]);
        continue_rows(&s, 0, B, &together);
        for (int64_t b = 0; b < B; b++) {
            continue_rows(&s, b, 1, &alone);
            assert_int_equal(alone.count[0], together.count[b]);
            assert_int_equal(alone.finish[0], together.finish[b]);
            for (int64_t t = 0; t < alone.n; t++) {
                const int64_t at = b * together.n + t;
                if (alone.ids) assert_int_equal(alone.ids[t], together.ids[at]);
                for (int k = 0; k < 2 && alone.vectors; k++)
                    expect_near(alone.vectors[2 * t + k], together.vectors[2 * at + k], "alone");
            }
            dra_continued_free(&alone);
        }
        dra_continued_free(&together);
        close_subject(&s);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* A row ends before the first end token; others do not notice. */
static void ends_of_rows(void **unused)
{
    subject       s = {0};
    rows          r;
    dra_continued plain, cut;
    dra_error     err = {0};
    open_subject(&s, encoder_decoder);
    continue_rows(&s, 0, B, &plain);
    make_rows(&s, 0, B, NULL, 0, &r);
    dra_continue_config c = config_of(&s, &r);
    c.n_ends = 1;
    c.ends = &plain.ids[3]; /* of row 0 */
    expect_ok(dra_continue(&c, &cut, &err), &err);
    for (int64_t b = 0; b < B; b++) {
        int64_t n = 0;
        while (n < plain.n && plain.ids[b * plain.n + n] != plain.ids[3]) n++;
        assert_int_equal(cut.count[b], n);
        assert_int_equal(cut.finish[b], n < plain.n ? DRA_FINISH_END : DRA_FINISH_LENGTH);
        for (int64_t t = 0; t < cut.n; t++)
            assert_int_equal(cut.ids[b * cut.n + t], t < n ? plain.ids[b * plain.n + t] : 0);
    }
    dra_continued_free(&plain);
    dra_continued_free(&cut);
    close_subject(&s);
}

static bool three(void *user) { return ++*(int *)user <= 3; }

static void positions_and_wishes(void **unused)
{
    subject       s = {0};
    rows          r;
    dra_continued o;
    dra_error     err = {0};
    int           asked = 0;
    open_subject(&s, short_series); /* 9 positions; rows 1 and 2 have a pad */
    make_rows(&s, 0, B, NULL, 0, &r);
    dra_continue_config c = config_of(&s, &r);
    c.n = 50;
    expect_ok(dra_continue(&c, &o, &err), &err);
    for (int64_t b = 0; b < B; b++) {
        assert_int_equal(o.finish[b], DRA_FINISH_CONTEXT);
        assert_int_equal(o.count[b], 9 - (T - (b > 0)) + 1);
    }
    dra_continued_free(&o);
    c.step = three;
    c.user = &asked;
    expect_ok(dra_continue(&c, &o, &err), &err);
    assert_int_equal(o.n, 4);
    assert_int_equal(o.finish[0], DRA_FINISH_ASKED);
    dra_continued_free(&o);
    close_subject(&s);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refused(const char *json, const char *text)
{
    subject       s = {0};
    rows          r = {.n = B, .T = T};
    dra_continued o;
    dra_error     err = {0};
    open_subject(&s, json);
    const dra_continue_config c = config_of(&s, &r);
    assert_true(dra_continue(&c, &o, &err) != DRA_OK);
    assert_string_equal(err.text, text);
    assert_null(o.ids);
    close_subject(&s);
}

static void refuses(void **unused)
{
    expect_refused("{\"model_type\":\"dra\",\"dim\":16,\"depth\":1,\"visible\": \"bidirectional\","
                   "\"source\":{\"kind\":\"image\",\"size\":4,\"patch\":2},"
                   "\"head\":{\"kind\":\"classes\",\"dim\":3}}",
                   "continue: the model is an encoder, whose tokens see later ones");
    expect_refused(
        "{\"model_type\":\"dra\",\"dim\":16,\"depth\":1,\"source\":{\"kind\":\"vectors\","
        "\"dim\":2},\"head\":{\"kind\":\"vectors\",\"dim\":3}}",
        "continue: the model puts out vectors of 3 numbers and reads 2");
    expect_refused("{\"model_type\":\"dra\",\"vocab\":5,\"dim\":16,\"depth\":1,"
                   "\"head\":{\"kind\":\"vectors\",\"dim\":3}}",
                   "continue: the model puts out something else than it reads");
    expect_refused("{\"model_type\":\"dra\",\"vocab\":5,\"dim\":16,\"depth\":1,"
                   "\"source\":{\"numbers\":true,\"number_token\":3}}",
                   "continue: the model reads numbers but puts out none to continue with");
}

static void refuses_rows_of_pads(void **unused)
{
    subject       s = {0};
    rows          r;
    dra_continued o;
    dra_error     err = {0};
    open_subject(&s, series);
    for (int t = 0; t < T; t++) s.mark[T + t] = DRA_MARK_PAD;
    make_rows(&s, 0, B, NULL, 0, &r);
    const dra_continue_config c = config_of(&s, &r);
    assert_true(dra_continue(&c, &o, &err) != DRA_OK);
    assert_string_equal(err.text, "continue: row 1 has only pads");
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translations), cmocka_unit_test(images_to_text),
        cmocka_unit_test(vectors),      cmocka_unit_test(hidden_vectors),
        cmocka_unit_test(numbers),      cmocka_unit_test(rows_alone),
        cmocka_unit_test(ends_of_rows), cmocka_unit_test(positions_and_wishes),
        cmocka_unit_test(refuses),      cmocka_unit_test(refuses_rows_of_pads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
