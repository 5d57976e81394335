/* Contrastive decoding: the vector of x-transformers, generators with amateurs against plain loops
 * that read every text from scratch, and what generators promise. */
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "writers.h"

enum { V = 256, PROMPT = 17, WRITTEN = 16 };

static const char path[] = "test_contrast.state";

/* ---- the function ---------------------------------------------------------------------------- */

static void keeps_what_it_should(void **unused)
{
    static const int kept[] = {1, 4, 5, 8, 11, 14, 17};
    dra_real         x[20], y[20], z[20];
    uint32_t         bits = 0, expected = 0;
    int              best = 0;
    for (int t = 0; t < 20; t++) {
        x[t] = (dra_real)(3 * sin(1.7 * t + 0.013 * t * t));
        y[t] = (dra_real)(3 * sin(0.4 + 1.7 * t + 0.013 * t * t));
    }
    dra_contrast(20, x, y, 0.1, 0.5, z);
    for (size_t i = 0; i < COUNT(kept); i++) expected |= 1u << kept[i];
    for (int t = 0; t < 20; t++) {
        if (z[t] > (dra_real)-INFINITY) bits |= 1u << t;
        if (z[t] > z[best]) best = t;
    }
    assert_int_equal(bits, expected);
    assert_int_equal(best, 1);
    assert_true(fabs((double)z[1] - 3.1697171) < 1e-6);
    dra_contrast(20, x, y, 0.1, 0.5, x); /* in place */
    check_reals(x, z, sizeof x);
}

static void broken_logits_stay_broken(void **unused)
{
    const dra_real x[] = {1, (dra_real)NAN, -50}, y[] = {0, 0, 0};
    dra_real       z[3];
    dra_contrast(3, x, y, 0.1, 0.5, z);
    assert_true(z[0] == (dra_real)1.5 && isnan((double)z[1]) && z[2] == (dra_real)-INFINITY);
    dra_contrast(3, y, x, 1, 0.5, z); /* equal ones are all kept */
    assert_true(z[0] == (dra_real)-0.5 && isnan((double)z[1]) && z[2] == (dra_real)25);
}

/* ---- generators ------------------------------------------------------------------------------ */

typedef struct trio { /* an expert, two amateurs */
    writer      w[3];
    dra_amateur amateur[2];
} trio;

static trio open_trio(const char *expert)
{
    static const char *const names[] = {"dra-gru-tiny", "rwkv4-tiny"};
    trio                     t = {.w[0] = open_writer(expert, V, 3)};
    for (int i = 0; i < 2; i++) {
        t.w[1 + i] = open_writer(names[i], V, 40 + (uint64_t)i);
        t.amateur[i] = (dra_amateur){t.w[1 + i].model, t.w[1 + i].weights};
    }
    return t;
}

static void close_trio(trio *t)
{
    for (int i = 0; i < 3; i++) close_writer(&t->w[i]);
}

static dra_generator_config contrast_of(const trio *t, int amateurs, int64_t rows)
{
    dra_generator_config c = config_of(&t->w[0], rows);
    c.amateurs = t->amateur;
    c.n_amateurs = amateurs;
    c.alpha = 0.05;
    c.beta = 0.7;
    c.sampler = (dra_sampler_config){.repetition_penalty = 1.1, .temperature = 0.8, .seed = 5};
    return c;
}

static dra_generated run(dra_generator *g, int64_t tokens)
{
    dra_generated out;
    dra_error     err = {0};
    expect_ok(dra_generate(g, &(dra_generate_config){.tokens = tokens}, &out, &err), &err);
    return out;
}

/* z of a text, from scratch. */
static void contrast_plainly(dra_generator *const *g, int amateurs, const dra_generator_config *c,
                             int n, const int32_t *ids, dra_real *z)
{
    const dra_real *x = read_whole(g[0], n, ids);
    for (int64_t v = 0; v < V; v++) {
        bool seen = false;
        for (int i = 0; i < n; i++) seen = seen || ids[i] == v;
        const double r = c->sampler.repetition_penalty, at = (double)x[v];
        z[v] = (dra_real)(!seen ? at : at > 0 ? at / r : at * r);
    }
    for (int i = 0; i < amateurs; i++) {
        const dra_real *y = read_whole(g[1 + i], n, ids);
        double          most = -INFINITY;
        for (int64_t v = 0; v < V; v++) most = fmax(most, (double)z[v]);
        for (int64_t v = 0; v < V; v++) {
            const double at = (double)z[v];
            z[v] = at < most + log(c->alpha)
                       ? (dra_real)-INFINITY
                       : (dra_real)((1 + c->beta) * at - c->beta * (double)y[v]);
        }
    }
}

/* Every token is the one the sampler picks from logits read from scratch. */
static void compare(const trio *t, int amateurs, double temperature)
{
    dra_generator_config c = contrast_of(t, amateurs, 1);
    dra_sampler         *sampler;
    dra_error            err = {0};
    int32_t              ids[TEXT];
    dra_real             z[V];
    c.sampler.temperature = temperature;
    dra_generator     *g = open_config(c), *each[3];
    dra_sampler_config only = c.sampler;
    only.repetition_penalty = 0;
    expect_ok(dra_sampler_create(&only, V, &sampler, &err), &err);
    for (int i = 0; i < 3; i++) each[i] = open_config(config_of(&t->w[i], 1));
    make_prompt(V, ids, PROMPT, 1);
    feed(g, 0, PROMPT, ids);
    const dra_generated out = run(g, WRITTEN);
    for (int k = 0; k < WRITTEN; k++) {
        contrast_plainly(each, amateurs, &c, PROMPT + k, ids, z);
        assert_int_equal(out.ids[k], dra_sampler_pick(sampler, z, NULL, 0, PROMPT + k));
        ids[PROMPT + k] = out.ids[k];
    }
    for (int i = 0; i < 3; i++) dra_generator_destroy(each[i]);
    dra_generator_destroy(g);
    dra_sampler_destroy(sampler);
}

static const char *const experts[] = {"gpt2-tiny", "rwkv4-tiny", "dra-delta-tiny", "hybrid-tiny"};

static void equals_plain_loops(void **unused)
{
    for (size_t i = 0; i < COUNT(experts); i++) {
        trio t = open_trio(experts[i]);
        compare(&t, 1, 0);
        compare(&t, 2, 0);
        compare(&t, 1, 0.8);
        compare(&t, 2, 1.5);
        close_trio(&t);
    }
}

static void contrast_makes_a_difference(void **unused)
{
    trio           t = open_trio("gpt2-tiny");
    dra_generator *g[3];
    dra_generated  out[3];
    int32_t        ids[PROMPT];
    make_prompt(V, ids, PROMPT, 1);
    for (int i = 0; i < 3; i++) {
        g[i] = open_config(contrast_of(&t, i, 1));
        feed(g[i], 0, PROMPT, ids);
        out[i] = run(g[i], WRITTEN);
    }
    assert_int_not_equal(memcmp(out[0].ids, out[1].ids, WRITTEN * sizeof(int32_t)), 0);
    assert_int_not_equal(memcmp(out[1].ids, out[2].ids, WRITTEN * sizeof(int32_t)), 0);
    for (int i = 0; i < 3; i++) dra_generator_destroy(g[i]);
    close_trio(&t);
}

/* Rows of different lengths, as each is alone and read token by token. */
static void rows_equal_single_runs(void **unused)
{
    static const int lengths[] = {PROMPT, 3, 9};
    for (size_t i = 0; i < COUNT(experts); i++) {
        trio           t = open_trio(experts[i]);
        dra_generator *all = open_config(contrast_of(&t, 2, 3));
        dra_generated  out[3];
        dra_error      err = {0};
        int32_t        ids[PROMPT];
        for (int b = 0; b < 3; b++) {
            make_prompt(V, ids, lengths[b], b);
            feed(all, b, lengths[b], ids);
        }
        expect_ok(dra_generate(all, &(dra_generate_config){.tokens = WRITTEN}, out, &err), &err);
        for (int b = 0; b < 3; b++) {
            dra_generator_config c = contrast_of(&t, 2, 1);
            c.sampler.seed += (uint64_t)b;
            dra_generator *alone = open_config(c);
            make_prompt(V, ids, lengths[b], b);
            for (int k = 0; k < lengths[b]; k++) feed(alone, 0, 1, ids + k);
            const dra_generated one = run(alone, WRITTEN);
            expect_tokens(experts[i], &out[b], one.n, one.ids);
            dra_generator_destroy(alone);
        }
        dra_generator_destroy(all);
        close_trio(&t);
    }
}

/* Saved or kept in the middle. */
static void states_go_on(void **unused)
{
    for (size_t i = 0; i < COUNT(experts); i++) {
        trio           t = open_trio(experts[i]);
        dra_generator *a = open_config(contrast_of(&t, 2, 1));
        dra_generator *b = open_config(contrast_of(&t, 2, 1));
        dra_context    kept;
        dra_error      err = {0};
        int32_t        ids[PROMPT], rest[WRITTEN];
        make_prompt(V, ids, PROMPT, 1);
        feed(a, 0, PROMPT, ids);
        run(a, 5);
        expect_ok(dra_generator_save(a, path, &err), &err);
        expect_ok(dra_generator_keep(a, 0, &kept, &err), &err);
        memcpy(rest, run(a, WRITTEN).ids, sizeof rest);
        expect_ok(dra_generator_load(b, path, &err), &err);
        dra_generated out = run(b, WRITTEN);
        expect_tokens("file", &out, WRITTEN, rest);
        expect_ok(dra_generator_back(a, 0, &kept, &err), &err);
        out = run(a, WRITTEN);
        expect_tokens("kept", &out, WRITTEN, rest);
        dra_context_free(&kept);
        dra_generator_destroy(a);
        dra_generator_destroy(b);
        close_trio(&t);
    }
    unlink("test_contrast.state.amateur1");
    unlink("test_contrast.state.amateur2");
    unlink(path);
}

/* A file of an amateur belongs to the state it was saved with. */
static void files_belong_together(void **unused)
{
    static const char other[] = "test_contrast2.state";
    trio              t = open_trio("gpt2-tiny");
    dra_generator    *a = open_config(contrast_of(&t, 1, 1));
    dra_generator    *plain = open_config(contrast_of(&t, 0, 1));
    dra_error         err = {0};
    int32_t           ids[PROMPT];
    make_prompt(V, ids, PROMPT, 1);
    feed(a, 0, PROMPT, ids);
    expect_ok(dra_generator_save(a, path, &err), &err);
    expect_ok(dra_generator_load(plain, path, &err), &err); /* needs no amateurs */
    feed(a, 0, 2, ids);
    const dra_generated before = run(a, 0 + 1);
    assert_int_equal(before.n, 1);
    expect_ok(dra_generator_save(a, other, &err), &err);
    assert_int_equal(rename("test_contrast2.state.amateur1", "test_contrast.state.amateur1"), 0);
    assert_int_equal(dra_generator_load(a, path, &err), DRA_ERR_VALUE);
    if (!strstr(err.text, "test_contrast.state.amateur1: a state of an amateur next to another "
                          "state, "))
        fail_msg("%s", err.text);
    assert_int_not_equal(dra_generator_load(a, other, &err), DRA_OK); /* its amateur's is gone */
    if (!strstr(err.text, "test_contrast2.state.amateur1")) fail_msg("%s", err.text);
    assert_int_equal(dra_generator_tokens(a, 0), PROMPT + 3); /* as before */
    dra_generator_destroy(a);
    dra_generator_destroy(plain);
    close_trio(&t);
    unlink("test_contrast.state.amateur1");
    unlink(path);
    unlink(other);
}

/* A stop string takes amateurs back, too. */
static void stop_strings_are_taken_back(void **unused)
{
    trio                 t = open_trio("hybrid-tiny");
    dra_generator_config c = contrast_of(&t, 2, 1);
    dra_tokenizer       *bytes;
    dra_error            err = {0};
    dra_generated        out;
    int32_t              ids[TEXT];
    char                 text[4] = {0};
    const char          *stop = text;
    size_t               n = 0;
    expect_ok(dra_tokenizer_bytes(&bytes, &err), &err);
    c.tokenizer = bytes;
    dra_generator *a = open_config(c), *b = open_config(c), *d = open_config(c);
    make_prompt(V, ids, PROMPT, 1);
    feed(a, 0, PROMPT, ids);
    out = run(a, WRITTEN);
    for (int i = 0; i < 3; i++) text[i] = (char)out.ids[6 + i];
    assert_int_equal(strlen(text), 3);
    while (memcmp(out.ids + n, out.ids + 6, 3 * sizeof *ids) != 0) n++;
    memcpy(ids + PROMPT, out.ids, n * sizeof *ids);
    feed(b, 0, PROMPT, ids);
    expect_ok(dra_generate(b, &(dra_generate_config){.tokens = WRITTEN, .n_stop = 1, .stop = &stop},
                           &out, &err),
              &err);
    assert_int_equal(out.finish, DRA_FINISH_STOP);
    assert_int_equal(out.n, n);
    feed(d, 0, PROMPT + (int)n, ids);
    feed(b, 0, 1, ids); /* and on with something else */
    feed(d, 0, 1, ids);
    int32_t rest[WRITTEN];
    memcpy(rest, run(d, WRITTEN).ids, sizeof rest);
    out = run(b, WRITTEN);
    expect_tokens("stop", &out, WRITTEN, rest);
    dra_generator_destroy(a);
    dra_generator_destroy(b);
    dra_generator_destroy(d);
    dra_tokenizer_destroy(bytes);
    close_trio(&t);
}

/* Beams take their amateurs with them: one beam is greedy, and more find no worse. */
static void beams_have_amateurs(void **unused)
{
    trio                 t = open_trio("hybrid-tiny");
    dra_generator_config c = contrast_of(&t, 2, 1);
    dra_beam             one, four[4];
    dra_error            err = {0};
    int32_t              ids[TEXT];
    dra_real             z[V];
    c.sampler.temperature = 0;
    dra_generator *g[3], *each[3];
    make_prompt(V, ids, PROMPT, 1);
    for (int i = 0; i < 3; i++) {
        g[i] = open_config(c);
        each[i] = open_config(config_of(&t.w[i], 1));
        feed(g[i], 0, PROMPT, ids);
    }
    const dra_generate_config write = {.tokens = WRITTEN};
    const dra_generated       greedy = run(g[0], WRITTEN);
    expect_ok(dra_generate_beam(g[1], &write, &(dra_beam_config){1, 0, false}, &one, &err), &err);
    expect_ok(dra_generate_beam(g[2], &write, &(dra_beam_config){4, 0, false}, four, &err), &err);
    expect_tokens("one", &one.text, greedy.n, greedy.ids);
    assert_true(four[0].score >= one.score);
    for (int k = 0; k < 4; k++) { /* scores are of the contrasted logits */
        double sum = 0, l[V];
        for (int i = 0; i < WRITTEN; i++) {
            contrast_plainly(each, 2, &c, PROMPT + i, ids, z);
            log_probs(V, z, 0, 0, NULL, l);
            sum += l[ids[PROMPT + i] = four[k].text.ids[i]];
        }
        expect_score("four", four[k].score, sum);
    }
    for (int i = 0; i < 3; i++) {
        dra_generator_destroy(g[i]);
        dra_generator_destroy(each[i]);
    }
    close_trio(&t);
}

static void expect_refusal(dra_generator_config c, const char *text)
{
    dra_generator *g;
    dra_error      err = {0};
    assert_int_equal(dra_generator_create(&c, &g, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, text);
    assert_null(g);
}

static void refuses_what_makes_no_sense(void **unused)
{
    trio                 t = open_trio("gpt2-tiny");
    writer               other = open_writer("dra-gru-tiny", 19, 1);
    dra_generator_config c = contrast_of(&t, 1, 1);
    dra_error            err = {0};
    c.alpha = 0;
    expect_refusal(c, "contrast: alpha is 0, expected above 0 and up to 1");
    c.alpha = 1.5;
    expect_refusal(c, "contrast: alpha is 1.5, expected above 0 and up to 1");
    c.alpha = 1, c.beta = -1;
    expect_refusal(c, "contrast: beta is -1, expected 0 to 1e6");
    c.beta = 0, c.sampler.top_k = 3;
    expect_refusal(c, "top_k and an amateur: contrast takes the place of filters");
    c.sampler.top_k = 0, c.sampler.min_p = 0.1;
    expect_refusal(c, "min_p and an amateur: contrast takes the place of filters");
    c.sampler.min_p = 0;
    t.amateur[0] = (dra_amateur){other.model, other.weights};
    expect_refusal(c, "amateur 1 has a vocabulary of 19 tokens, the model of 256");
    t.amateur[0] = t.amateur[1];
    dra_generator           *g = open_config(c);
    const dra_sampler_config filter = {.temperature = 1, .top_p = 0.9};
    assert_int_equal(dra_generator_set_sampler(g, &filter, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "top_p and an amateur: contrast takes the place of filters");
    dra_generator_destroy(g);
    close_writer(&other);
    close_trio(&t);
}

/* ---- x-transformers -------------------------------------------------------------------------- */

static void equals_x_transformers(void **unused)
{
    json_error_t  e;
    json_t       *file = json_load_file("tests/data/xt-search/expected.json", 0, &e);
    const json_t *prompts = json_object_get(file, "prompts");
    writer        w[2] = {open_folder("tests/data/xt-search/expert"),
                          open_folder("tests/data/xt-search/amateur")};
    for (int with = 0; with < 2; with++) {
        const json_t        *all = json_object_get(file, with ? "contrast" : "greedy");
        const dra_amateur    amateur = {w[1].model, w[1].weights};
        dra_generator_config c = config_of(&w[0], 2);
        dra_generated        out[2];
        dra_error            err = {0};
        if (with) c.amateurs = &amateur, c.n_amateurs = 1, c.alpha = 0.1, c.beta = 0.5;
        dra_generator *g = open_config(c);
        for (size_t r = 0; r < 2; r++)
            for (size_t k = 0; k < json_array_size(json_array_get(prompts, r)); k++)
                feed(g, (int64_t)r, 1,
                     &(int32_t){(int32_t)json_integer_value(
                         json_array_get(json_array_get(prompts, r), k))});
        expect_ok(dra_generate(g, &(dra_generate_config){.tokens = 8}, out, &err), &err);
        for (size_t r = 0; r < 2; r++)
            for (size_t k = 0; k < 8; k++)
                assert_int_equal(out[r].ids[k],
                                 json_integer_value(json_array_get(json_array_get(all, r), k)));
        dra_generator_destroy(g);
    }
    close_writer(&w[0]);
    close_writer(&w[1]);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_it_should),   cmocka_unit_test(broken_logits_stay_broken),
        cmocka_unit_test(equals_plain_loops),     cmocka_unit_test(contrast_makes_a_difference),
        cmocka_unit_test(rows_equal_single_runs), cmocka_unit_test(states_go_on),
        cmocka_unit_test(files_belong_together),  cmocka_unit_test(stop_strings_are_taken_back),
        cmocka_unit_test(beams_have_amateurs),    cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(equals_x_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
