/* Generators: the same tokens however a prompt is read, in whatever company, and after a file; stop
 * strings leave a row as if they had never been written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "dra/generate.h"
#include "presets.h"

enum { V = 256, PROMPT = 45, WRITTEN = 24 };

typedef struct subject {
    dra_model     *model;
    dra_weights   *weights;
    dra_tokenizer *tokenizer;
    dra_device    *device;
} subject;

static const char path[] = "test_generate.state";

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static void open_with(subject *s, dra_tokenizer *t, const char *preset, int64_t context,
                      uint64_t seed)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    s->tokenizer = t;
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    c->dim = 24, c->heads = 2, c->depth = 2, c->context = context;
    c->vocab = dra_tokenizer_size(t);
    expect_ok(dra_model_create(c, &s->model, &err), &err);
    expect_ok(dra_weights_draw(s->model, seed, &s->weights, &err), &err);
    /* A larger embedding makes likely tokens likelier, so that rounding does not decide. */
    const int i = dra_specs_find(dra_model_params(s->model), "embedding");
    dra_real *e = dra_weights_edit(s->weights, i);
    for (int64_t k = 0; k < c->vocab * c->dim; k++) e[k] *= 2;
    expect_ok(check_cpu(NULL, &s->device, &err), &err);
}

static void open_subject(subject *s, const char *preset, int64_t context, uint64_t seed)
{
    dra_tokenizer *bytes;
    dra_error      err = {0};
    expect_ok(dra_tokenizer_bytes(&bytes, &err), &err);
    open_with(s, bytes, preset, context, seed);
}

static void close_subject(subject *s)
{
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
    dra_tokenizer_destroy(s->tokenizer);
    dra_device_destroy(s->device);
}

static dra_generator *open_generator(const subject *s, int64_t rows, uint64_t seed)
{
    const dra_generator_config c = {.model = s->model,
                                    .weights = s->weights,
                                    .device = s->device,
                                    .tokenizer = s->tokenizer,
                                    .sampler = {.repetition_penalty = 1.2,
                                                .temperature = 0.9,
                                                .top_k = 40,
                                                .top_p = 0.95,
                                                .seed = seed},
                                    .rows = rows};
    dra_generator             *g;
    dra_error                  err = {0};
    expect_ok(dra_generator_create(&c, &g, &err), &err);
    return g;
}

static void make_prompt(int32_t *ids, int32_t n, int32_t which)
{
    for (int32_t i = 0; i < n; i++) ids[i] = (i * 37 + i * i * 11 + 5 * which) % V;
}

static void feed(dra_generator *g, int64_t row, int32_t n, int32_t which)
{
    int32_t   ids[PROMPT];
    dra_error err = {0};
    make_prompt(ids, n, which);
    expect_ok(dra_generator_read(g, row, (size_t)n, ids, &err), &err);
}

/* Text as it comes, and when it shall end. */
typedef struct page {
    char   text[8192];
    size_t n;
    int    calls, most; /* 0: any */
} page;

static bool write_page(void *user, int64_t row, const char *text, size_t bytes)
{
    page *p = (page *)user + row;
    assert_true(p->n + bytes < sizeof p->text);
    memcpy(p->text + p->n, text, bytes + 1);
    p->n += bytes;
    return ++p->calls < p->most || !p->most;
}

static void run(dra_generator *g, int64_t tokens, const char *stop, page *pages, dra_generated *out)
{
    const dra_generate_config c = {.tokens = tokens,
                                   .n_stop = stop != NULL,
                                   .stop = &stop,
                                   .write = write_page,
                                   .user = pages};
    dra_error                 err = {0};
    expect_ok(dra_generate(g, &c, out, &err), &err);
}

static void expect_ids(const char *what, const dra_generated *a, size_t n, const int32_t *ids)
{
    if (a->n != n) fail_msg("%s: %zu tokens, expected %zu", what, a->n, n);
    for (size_t i = 0; i < n; i++)
        if (a->ids[i] != ids[i])
            fail_msg("%s: token %zu is %d, expected %d", what, i, a->ids[i], ids[i]);
}

static void expect_logits(const char *what, dra_generator *a, dra_generator *b)
{
    const dra_real *x, *y;
    dra_error       err = {0};
    double          most = 0, worst = 0;
    expect_ok(dra_generator_logits(a, 0, &x, &err), &err);
    expect_ok(dra_generator_logits(b, 0, &y, &err), &err);
    for (int i = 0; i < V; i++) {
        const double d = fabs((double)x[i] - (double)y[i]);
        if (!(d <= worst)) worst = d;
        if (fabs((double)y[i]) > most) most = fabs((double)y[i]);
    }
    if (!(worst <= 5e-5 * most)) fail_msg("%s: logits differ by %g of %g", what, worst, most);
    assert_int_equal(dra_generator_tokens(a, 0), dra_generator_tokens(b, 0));
}

/* ---- every preset ---------------------------------------------------------------------------- */

typedef void (*trial_fn)(const subject *s, const char *name);

static void for_presets(trial_fn fn)
{
    const dra_preset *p;
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        subject s;
        if (!preset_reads_in_parts(p->name)) continue;
        open_subject(&s, p->name, 256, 3);
        fn(&s, p->name);
        close_subject(&s);
    }
}

/* A prompt token by token, and written in two calls. */
static void parts(const subject *s, const char *name)
{
    dra_generator *a = open_generator(s, 1, 11), *b = open_generator(s, 1, 11);
    dra_generated  whole, part;
    page           p = {0}, q = {0};
    int32_t        ids[PROMPT];
    dra_error      err = {0};
    make_prompt(ids, PROMPT, 1);
    feed(a, 0, PROMPT, 1);
    run(a, WRITTEN, NULL, &p, &whole);
    for (int i = 0; i < PROMPT; i++) expect_ok(dra_generator_read(b, 0, 1, ids + i, &err), &err);
    run(b, 7, NULL, &q, &part);
    expect_ids(name, &part, 7, whole.ids);
    run(b, WRITTEN - 7, NULL, &q, &part);
    expect_ids(name, &part, WRITTEN - 7, whole.ids + 7);
    expect_logits(name, a, b);
    dra_generator_destroy(a);
    dra_generator_destroy(b);
}

static void prompts_and_calls_in_parts(void **unused) { for_presets(parts); }

/* Three rows that start and finish apart, each as it is alone. */
static void rows(const subject *s, const char *name)
{
    static const int32_t prompt[] = {PROMPT, 3, 17};
    static const int     most[] = {5, 0, 11}; /* 0: all */
    dra_generator       *all = open_generator(s, 3, 20);
    dra_generated        out[3], alone;
    page                *p = calloc(4, sizeof *p);
    assert_non_null(p);
    for (int b = 0; b < 3; b++) {
        p[b].most = most[b];
        feed(all, b, prompt[b], b);
    }
    run(all, WRITTEN, NULL, p, out);
    for (int b = 0; b < 3; b++) {
        dra_generator *g = open_generator(s, 1, 20 + (uint64_t)b);
        p[3] = (page){0};
        feed(g, 0, prompt[b], b);
        run(g, most[b] ? most[b] : WRITTEN, NULL, p + 3, &alone);
        expect_ids(name, &out[b], alone.n, alone.ids);
        assert_int_equal(out[b].finish, b == 1 ? DRA_FINISH_LENGTH : DRA_FINISH_ASKED);
        dra_generator_destroy(g);
    }
    dra_generator_destroy(all);
    free(p);
}

static void rows_equal_single_runs(void **unused) { for_presets(rows); }

/* Saved in the middle, loaded by another generator. */
static void file(const subject *s, const char *name)
{
    dra_generator *a = open_generator(s, 1, 11), *b = open_generator(s, 1, 11);
    dra_generated  whole, part;
    page           p = {0};
    dra_error      err = {0};
    int32_t        ids[WRITTEN];
    feed(a, 0, PROMPT, 1);
    run(a, WRITTEN, NULL, &p, &whole);
    memcpy(ids, whole.ids, sizeof ids);
    expect_ok(dra_generator_reset(a, 0, &err), &err);
    feed(a, 0, PROMPT, 1);
    run(a, 10, NULL, &p, &part);
    expect_ids(name, &part, 10, ids);
    expect_ok(dra_generator_save(a, path, &err), &err);
    expect_ok(dra_generator_load(b, path, &err), &err);
    run(b, WRITTEN - 10, NULL, &p, &part);
    expect_ids(name, &part, WRITTEN - 10, ids + 10);
    dra_generator_destroy(a);
    dra_generator_destroy(b);
    unlink(path);
}

static void files_go_on(void **unused) { for_presets(file); }

/* A file with numbers that no memory should hold: the guard mends them, and says so. */
static void mended_states_are_counted(void **unused)
{
    subject       s;
    dra_context   c = {0};
    dra_error     err = {0};
    dra_generated out;
    page          p = {0};
    open_subject(&s, "dra-delta-tiny", 256, 5);
    dra_generator *a = open_generator(&s, 1, 11);
    feed(a, 0, PROMPT, 1);
    assert_int_equal(dra_generator_clamped(a), 0);
    expect_ok(dra_generator_keep(a, 0, &c, &err), &err);
    const size_t n = dra_states_size(c.states, 1, 0);
    dra_real    *x = calloc(n, sizeof *x);
    expect_ok(dra_states_read(c.states, 1, 0, x, n, &err), &err);
    x[3] = (dra_real)NAN, x[5] = (dra_real)1e9;
    expect_ok(dra_states_write(c.states, 1, 0, x, n, &err), &err);
    expect_ok(dra_context_save(s.model, s.weights, &c, path, &err), &err);
    expect_ok(dra_generator_load(a, path, &err), &err);
    run(a, 3, NULL, &p, &out);
    assert_int_equal(dra_generator_clamped(a), 2);
    dra_context_free(&c);
    dra_generator_destroy(a);
    close_subject(&s);
    free(x);
    unlink(path);
}

/* Kept in the middle and at the very beginning, gone back to from further on. */
static void kept(const subject *s, const char *name)
{
    dra_generator *g = open_generator(s, 2, 11);
    dra_generated  out[2];
    dra_context    begin, middle;
    page           p[2] = {0};
    dra_error      err = {0};
    int32_t        ids[WRITTEN];
    feed(g, 1, 3, 2);
    expect_ok(dra_generator_keep(g, 0, &begin, &err), &err);
    feed(g, 0, PROMPT, 1);
    run(g, 10, NULL, p, out);
    expect_ok(dra_generator_keep(g, 0, &middle, &err), &err);
    run(g, WRITTEN, NULL, p, out);
    memcpy(ids, out[0].ids, sizeof ids);
    feed(g, 0, 7, 3);
    expect_ok(dra_generator_back(g, 0, &middle, &err), &err);
    assert_int_equal(dra_generator_tokens(g, 0), PROMPT + 10);
    run(g, WRITTEN, NULL, p, out);
    expect_ids(name, out, WRITTEN, ids);
    expect_ok(dra_generator_back(g, 0, &begin, &err), &err);
    assert_int_equal(dra_generator_tokens(g, 0), 0);
    assert_int_not_equal(dra_generate(g, &(dra_generate_config){.tokens = 1}, out, &err), DRA_OK);
    dra_context_free(&begin);
    dra_context_free(&middle);
    dra_generator_destroy(g);
}

static void kept_rows_go_back(void **unused) { for_presets(kept); }

/* Step by step: the tokens of one call, a few at a time. Stopped in between, a row is as before. */
static void steps_equal_a_call(void **unused)
{
    subject       s;
    dra_generated whole, part = {0};
    page          p = {0}, q = {0};
    dra_error     err = {0};
    bool          more = true;
    int           steps = 0;
    open_subject(&s, "dra-gru-tiny", 256, 3);
    dra_generator            *a = open_generator(&s, 1, 11), *b = open_generator(&s, 1, 11);
    const dra_generate_config c = {.tokens = WRITTEN, .write = write_page, .user = &q};
    feed(a, 0, PROMPT, 1);
    feed(b, 0, PROMPT, 1);
    run(a, WRITTEN, NULL, &p, &whole);
    assert_int_not_equal(dra_generate_step(b, &part, &more, &err), DRA_OK); /* not started */
    expect_ok(dra_generate_start(b, &c, &err), &err);
    expect_ok(dra_generate_step(b, &part, &more, &err), &err);
    assert_true(more);
    assert_int_not_equal(dra_generate_start(b, &c, &err), DRA_OK);
    assert_int_not_equal(dra_generator_reset(b, 0, &err), DRA_OK);
    assert_int_not_equal(dra_generator_read(b, 0, 1, (int32_t[]){1}, &err), DRA_OK);
    dra_generate_stop(b);
    assert_int_equal(dra_generator_tokens(b, 0), PROMPT);
    q = (page){0};
    expect_ok(dra_generate_start(b, &c, &err), &err);
    for (more = true; more; steps++) {
        const int calls = q.calls;
        expect_ok(dra_generate_step(b, &part, &more, &err), &err);
        assert_in_range(q.calls - calls, 0, 2); /* the last one may come with what is left */
        assert_int_equal(part.finish == DRA_FINISH_COUNT, more);
        for (size_t i = 0; i < part.n; i++) assert_int_equal(part.ids[i], whole.ids[i]);
    }
    dra_generate_stop(b);
    assert_in_range(steps, WRITTEN, WRITTEN + 2);
    assert_int_equal(q.calls, p.calls);
    expect_ids("steps", &part, whole.n, whole.ids);
    assert_string_equal(p.text, q.text);
    expect_logits("steps", b, a);
    dra_generator_destroy(a);
    dra_generator_destroy(b);
    close_subject(&s);
}

/* Another sampler from the next token on: that of a generator which had it from the start. */
static void samplers_change(void **unused)
{
    const dra_sampler_config greedy = {0}, wrong = {.temperature = -1};
    subject                  s;
    dra_generated            a, b;
    page                     p = {0};
    dra_error                err = {0};
    open_subject(&s, "dra-gru-tiny", 256, 3);
    dra_generator *g = open_generator(&s, 1, 11), *h = open_generator(&s, 1, 12);
    feed(g, 0, PROMPT, 1);
    feed(h, 0, PROMPT, 1);
    expect_ok(dra_generator_set_sampler(g, &greedy, &err), &err);
    expect_ok(dra_generator_set_sampler(h, &greedy, &err), &err);
    assert_int_not_equal(dra_generator_set_sampler(h, &wrong, &err), DRA_OK);
    run(g, WRITTEN, NULL, &p, &a);
    run(h, WRITTEN, NULL, &p, &b);
    expect_ids("greedy", &a, b.n, b.ids);
    assert_true(dra_generator_state_bytes(g) > 0);
    assert_int_equal(dra_generator_state_bytes(g), dra_generator_state_bytes(h));
    dra_generator_destroy(g);
    dra_generator_destroy(h);
    close_subject(&s);
}

/* Any three bytes of what is written as a stop string: the row has read what comes before it. */
static void stops(const subject *s, const char *name)
{
    dra_generator *a = open_generator(s, 1, 4);
    dra_generated  whole, part;
    page           p = {0};
    feed(a, 0, 9, 2);
    run(a, WRITTEN, NULL, &p, &whole);
    for (int at = 0; at + 3 <= WRITTEN; at += 5) {
        dra_generator *b = open_generator(s, 1, 4), *c = open_generator(s, 1, 4);
        char           stop[4] = {0};
        size_t         n = 0;
        page           q = {0};
        dra_error      err = {0};
        for (int i = 0; i < 3; i++) stop[i] = (char)whole.ids[at + i];
        if (strlen(stop) < 3) continue;
        while (whole.ids[n] != whole.ids[at] || whole.ids[n + 1] != whole.ids[at + 1] ||
               whole.ids[n + 2] != whole.ids[at + 2])
            n++;
        feed(b, 0, 9, 2);
        run(b, WRITTEN, stop, &q, &part);
        assert_int_equal(part.finish, DRA_FINISH_STOP);
        expect_ids(name, &part, n, whole.ids);
        feed(c, 0, 9, 2);
        expect_ok(dra_generator_read(c, 0, n, whole.ids, &err), &err);
        expect_logits(name, b, c);
        dra_generator_destroy(b);
        dra_generator_destroy(c);
    }
    dra_generator_destroy(a);
}

static void stop_strings_are_taken_back(void **unused) { for_presets(stops); }

/* A stop string that begins inside a token: the row reads the tokens of the part before it. */
static void tokens_are_cut(void **unused)
{
    subject        s;
    dra_tokenizer *bpe;
    dra_error      err = {0};
    dra_generated  whole, part;
    page           p = {0};
    char           text[4096];
    size_t         n = 0, cuts = 0, ends[WRITTEN];
    expect_ok(dra_tokenizer_open("tests/data/bpe", &bpe, &err), &err);
    open_with(&s, bpe, "dra-gru-tiny", 64, 3);
    dra_generator *a = open_generator(&s, 1, 4);
    feed(a, 0, 9, 2);
    run(a, WRITTEN, NULL, &p, &whole);
    for (size_t i = 0; i < whole.n; i++) {
        size_t      bytes;
        const char *piece = dra_tokenizer_piece(bpe, whole.ids[i], &bytes);
        assert_true(n + bytes < sizeof text);
        memcpy(text + n, piece, bytes);
        ends[i] = n += bytes;
    }
    text[n] = 0;
    for (size_t i = 0; i + 1 < whole.n; i++) { /* from the last byte of a token to the next's end */
        char         stop[256] = {0};
        size_t       kept = 0;
        dra_ids      rest = {0};
        const size_t from = ends[i] - 1, length = ends[i + 1] - from;
        if (length >= sizeof stop || memchr(text + from, 0, length)) continue;
        memcpy(stop, text + from, length);
        const size_t at = (size_t)(strstr(text, stop) - text);
        while (ends[kept] <= at) kept++;
        const size_t   start = kept ? ends[kept - 1] : 0;
        dra_generator *b = open_generator(&s, 1, 4), *c = open_generator(&s, 1, 4);
        feed(b, 0, 9, 2);
        run(b, WRITTEN, stop, &p, &part);
        expect_ok(dra_encode_plain(bpe, text + start, at - start, &rest, &err), &err);
        assert_int_equal(part.finish, DRA_FINISH_STOP);
        assert_int_equal(part.n, kept + rest.n);
        feed(c, 0, 9, 2);
        expect_ok(dra_generator_read(c, 0, kept, whole.ids, &err), &err);
        expect_ok(dra_generator_read(c, 0, rest.n, rest.data, &err), &err);
        expect_logits("cut", b, c);
        cuts += rest.n > 0;
        dra_ids_free(&rest);
        dra_generator_destroy(b);
        dra_generator_destroy(c);
    }
    assert_true(cuts > 3);
    dra_generator_destroy(a);
    close_subject(&s);
}

/* Matrices stored in bf16: as if they had been rounded to it. */
static void shortened(const subject *s, const char *name)
{
    subject          a = {.model = s->model, .device = s->device, .tokenizer = s->tokenizer};
    subject          b = a;
    const dra_specs *specs = dra_model_params(s->model);
    dra_error        err = {0};
    int              shorter = 0;
    expect_ok(dra_weights_draw(s->model, 5, &a.weights, &err), &err);
    expect_ok(dra_weights_draw(s->model, 5, &b.weights, &err), &err);
    expect_ok(dra_weights_to_bf16(b.weights, &err), &err);
    for (int i = 0; i < dra_specs_count(specs); i++) {
        dra_param_layout form;
        const uint16_t  *half = dra_weights_stored(b.weights, i, &form);
        dra_real        *x = dra_weights_edit(a.weights, i);
        if (form.dtype != DRA_BF16) continue;
        for (int64_t k = 0; k < dra_shape_count(&dra_specs_at(specs, i)->shape); k++) {
            const uint32_t bits = (uint32_t)half[k] << 16;
            float          y;
            memcpy(&y, &bits, sizeof y);
            if (!(fabs((double)x[k] - (double)y) <= 0x1p-8 * fabs((double)x[k])))
                fail_msg("%s: %g became %g", name, (double)x[k], (double)y);
            x[k] = (dra_real)y;
        }
        shorter++;
    }
    assert_true(shorter >= 13); /* the table, and six matrices of each layer */
    dra_generator *g = open_generator(&a, 1, 1), *h = open_generator(&b, 1, 1);
    feed(g, 0, PROMPT, 1);
    feed(h, 0, PROMPT, 1);
    expect_logits(name, h, g);
    dra_generator_destroy(g);
    dra_generator_destroy(h);
    dra_weights_destroy(a.weights);
    dra_weights_destroy(b.weights);
}

static void matrices_in_bf16(void **unused) { for_presets(shortened); }

/* ---- limits ---------------------------------------------------------------------------------- */

static void learned_positions_end(void **unused)
{
    subject       s;
    dra_generated out[2];
    dra_error     err = {0};
    page         *p = calloc(2, sizeof *p);
    const int32_t ids[17] = {0}, wrong[] = {1, 256};
    open_subject(&s, "gpt2-tiny", 16, 3);
    dra_generator *g = open_generator(&s, 2, 1);
    assert_int_not_equal(dra_generator_read(g, 0, 17, ids, &err), DRA_OK);
    assert_string_equal(
        err.text, "the text has 17 tokens, this model has positions for 16; nothing is cut off");
    assert_int_not_equal(dra_generator_read(g, 0, 2, wrong, &err), DRA_OK);
    assert_string_equal(err.text, "token 1 is 256, the model has 0 to 255");
    feed(g, 0, 10, 1);
    feed(g, 1, 2, 1);
    run(g, 0, NULL, p, out);
    assert_true(out[0].finish == DRA_FINISH_CONTEXT && out[1].finish == DRA_FINISH_CONTEXT);
    assert_int_equal(out[0].n, 6);
    assert_int_equal(out[1].n, 14);
    expect_ok(dra_generator_save(g, path, &err), &err);
    unlink(path);
    dra_generator_destroy(g);
    close_subject(&s);
    free(p);
}

static void nothing_to_go_on_from(void **unused)
{
    subject       s;
    dra_generated out;
    dra_error     err = {0};
    open_subject(&s, "dra-ema-tiny", 16, 3);
    dra_generator *g = open_generator(&s, 1, 1);
    assert_int_not_equal(dra_generate(g, &(dra_generate_config){.tokens = 1}, &out, &err), DRA_OK);
    assert_string_equal(err.text, "generator: row 0 has read nothing to continue from");
    assert_int_not_equal(dra_generator_save(g, path, &err), DRA_OK);
    assert_string_equal(err.text, "generator: row 0 has read nothing to save");
    dra_generator_destroy(g);
    close_subject(&s);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void expect_refused(dra_generator *g, const char *text)
{
    dra_error err = {0};
    assert_int_not_equal(dra_generator_load(g, path, &err), DRA_OK);
    if (!strstr(err.text, text)) fail_msg("found: %s", err.text);
}

static void other_models_are_refused(void **unused)
{
    subject   a, b, c;
    dra_error err = {0};
    open_subject(&a, "dra-gru-tiny", 16, 3);
    open_subject(&b, "dra-ema-tiny", 16, 3);
    open_subject(&c, "dra-gru-tiny", 16, 4);
    dra_generator *g = open_generator(&a, 2, 1), *h = open_generator(&b, 1, 1);
    dra_generator *i = open_generator(&c, 1, 1), *j = open_generator(&a, 3, 1);
    feed(g, 0, 5, 1);
    feed(g, 1, 6, 1);
    expect_ok(dra_generator_save(g, path, &err), &err);
    expect_refused(h, "fingerprint is ");
    expect_refused(j, "2 sequences, expected 3");
    expect_refused(i, "a state of other weights, ");
    expect_ok(dra_generator_load(g, path, &err), &err);
    dra_generator_destroy(j);
    j = open_generator(&c, 2, 1);
    expect_refused(j, "a state of other weights, ");
    dra_generator_destroy(g);
    dra_generator_destroy(h);
    dra_generator_destroy(i);
    dra_generator_destroy(j);
    close_subject(&a);
    close_subject(&b);
    close_subject(&c);
    unlink(path);
}

/* Cut short anywhere, or with a byte changed: refused by a line, or read as something legal. */
static void damaged_files_do_no_harm(void **unused)
{
    subject   s;
    dra_error err = {0};
    char     *data = NULL;
    size_t    n = 0;
    page      p = {0};
    open_subject(&s, "dra-ema-tiny", 16, 3);
    dra_generator *g = open_generator(&s, 1, 1);
    feed(g, 0, 5, 1);
    expect_ok(dra_generator_save(g, path, &err), &err);
    expect_ok(dra_file_read(path, 1 << 24, &data, &n, &err), &err);
    for (size_t k = 0; k < 60; k++) {
        expect_ok(dra_file_write(path, data, n * k / 60, &err), &err);
        err = (dra_error){0};
        assert_int_not_equal(dra_generator_load(g, path, &err), DRA_OK);
        assert_true(err.text[0] && !strchr(err.text, '\n'));
    }
    uint64_t seed = 5;
    for (size_t k = 0; k < 300; k++) {
        const size_t  at = (size_t)(check_random(&seed) * (double)(k % 2 ? n : 1500));
        const char    was = data[at];
        dra_generated out;
        data[at] = (char)(check_random(&seed) * 256);
        expect_ok(dra_file_write(path, data, n, &err), &err);
        const dra_generate_config c = {.tokens = 2, .write = write_page, .user = &p};
        if (dra_generator_load(g, path, &err) == DRA_OK) dra_generate(g, &c, &out, &err);
        p.n = 0;
        data[at] = was;
    }
    free(data);
    unlink(path);
    dra_generator_destroy(g);
    close_subject(&s);
}

/* What follows a prefix is what follows the same tokens, marked as one, of a reader. */
static void a_prompt_may_be_a_prefix(void **state)
{
    enum { N = 21 };
    subject s;
    CHECK_CONFIG(c);
    dra_error       err = {0};
    dra_states     *states = NULL;
    dra_reader     *reader = NULL;
    int32_t         ids[N], mark[N];
    const dra_real *logits;
    open_subject(&s, "gpt2-tiny", 64, 3);
    dra_generator_config make = {.model = s.model, .weights = s.weights, .device = s.device};
    dra_generator       *g = NULL;
    make.prefix = true;
    assert_int_equal(dra_generator_create(&make, &g, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "prefix: the model has no prefixes: expected visible prefix");
    expect_ok(dra_model_config_copy(dra_model_config_of(s.model), &c, &err), &err);
    c->visible = DRA_VISIBLE_PREFIX;
    dra_weights_destroy(s.weights);
    dra_model_destroy(s.model);
    expect_ok(dra_model_create(c, &s.model, &err), &err);
    expect_ok(dra_weights_draw(s.model, 3, &s.weights, &err), &err);
    make.model = s.model, make.weights = s.weights;
    for (int t = 0; t < N; t++) ids[t] = 7 * t % V, mark[t] = t < N - 1 ? DRA_MARK_PREFIX : 0;
    expect_ok(dra_generator_create(&make, &g, &err), &err);
    expect_ok(dra_generator_read(g, 0, N - 1, ids, &err), &err);
    expect_ok(dra_generator_read(g, 0, 1, ids + N - 1, &err), &err);
    expect_ok(dra_generator_logits(g, 0, &logits, &err), &err);
    const dra_view   view = {.model = s.model, .logits = true, .keep = 1};
    const dra_module module = dra_view_module(&view);
    const dra_named  in = {"ids", ids, sizeof ids};
    expect_ok(dra_states_create(s.device, dra_model_state(s.model), 1, &states, &err), &err);
    expect_ok(dra_reader_create(s.device, &module, &reader, &err), &err);
    expect_ok(dra_weights_bind(s.weights, reader, &err), &err);
    expect_ok(dra_reader_read(reader, states, N, mark, 1, &in, &err), &err);
    check_reals(logits, dra_reader_result(reader, "logits"), V * sizeof *logits);
    dra_reader_destroy(reader);
    dra_states_destroy(states);
    dra_generator_destroy(g);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_may_be_a_prefix),
        cmocka_unit_test(prompts_and_calls_in_parts),
        cmocka_unit_test(rows_equal_single_runs),
        cmocka_unit_test(files_go_on),
        cmocka_unit_test(mended_states_are_counted),
        cmocka_unit_test(kept_rows_go_back),
        cmocka_unit_test(steps_equal_a_call),
        cmocka_unit_test(samplers_change),
        cmocka_unit_test(stop_strings_are_taken_back),
        cmocka_unit_test(tokens_are_cut),
        cmocka_unit_test(matrices_in_bf16),
        cmocka_unit_test(learned_positions_end),
        cmocka_unit_test(nothing_to_go_on_from),
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(damaged_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
