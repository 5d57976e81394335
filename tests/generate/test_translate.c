/* Translations by beams: rows read sources of different lengths. As many beams as there are tokens
 * find the most likely of all texts of two tokens, which a plain search through all of them finds,
 * too; one beam writes what dra_continue() does; what is refused. */
#include <math.h>
#include <string.h>

#include "check.h"
#include "dra/generate.h"

#ifdef DRA_REAL_DOUBLE
#define NEAR 1e-10
#else
#define NEAR 1e-4
#endif

enum { B = 3, V = 22, SOURCES = 20, S = 12, START = 21, N = 6 };

static const char config[] =
    "{\"model_type\":\"dra\",\"stacks\":{\"encoder\":{\"vocab\":20,\"dim\":16,\"depth\":1,"
    "\"heads\":2,\"context\":12,\"positions\":\"learned\",\"visible\": \"bidirectional\"},"
    "\"decoder\":{\"vocab\":22,\"dim\":16,\"depth\":2,\"heads\":2,\"max_seq_len\":40,"
    "\"positions\":\"learned\",\"layout\":\"acf\",\"tied\":false,\"context\":\"encoder\"}}}";
static const size_t  length[B] = {5, 3, 12};
static const int32_t start = START;

typedef struct subject {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    int32_t      src[B * S];
} subject;

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
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
    dra_real *e = i >= 0 ? dra_weights_edit(s->weights, i) : NULL;
    for (int64_t k = 0; e && k < c->vocab * c->dim; k++) e[k] *= 4;
    for (int k = 0; k < B * S; k++) s->src[k] = (k * 5 + 1 + k / S) % SOURCES;
}

static void close_subject(subject *s)
{
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
    dra_device_destroy(s->device);
}

static dra_generator *open_generator(const subject *s, int64_t rows)
{
    const dra_generator_config c = {.model = s->model,
                                    .weights = s->weights,
                                    .device = s->device,
                                    .sampler = {.temperature = 1},
                                    .rows = rows};
    dra_generator             *g;
    dra_error                  err = {0};
    expect_ok(dra_generator_create(&c, &g, &err), &err);
    return g;
}

static void read_row(const subject *s, dra_generator *g, int64_t row, int64_t b)
{
    dra_error err = {0};
    expect_ok(dra_generator_read_source(g, row, length[b], s->src + b * S, 1, &start, &err), &err);
}

/* ---- all texts of two tokens ----------------------------------------------------------------- */

/* log p of what follows [start] or [start, ids[1]], read from the start. */
static void log_probs(const subject *s, int64_t b, int64_t n, const int32_t *ids, double *to)
{
    const dra_view         view = {.model = s->model, .logits = true, .keep = 1};
    const dra_module       module = dra_view_module(&view);
    const dra_context_text context = {(int64_t)length[b], NULL};
    const dra_named        in[] = {{"ids", ids, (size_t)n * sizeof *ids},
                                   {"src", s->src + b * S, length[b] * sizeof *s->src}};
    dra_reader            *reader;
    dra_states            *states;
    dra_error              err = {0};
    double                 sum = 0;
    expect_ok(dra_reader_create(s->device, &module, &reader, &err), &err);
    expect_ok(dra_weights_bind(s->weights, reader, &err), &err);
    expect_ok(dra_states_create(s->device, module.state, 1, &states, &err), &err);
    expect_ok(dra_reader_read_context(reader, states, &context, n, NULL, 2, in, &err), &err);
    const dra_real *logits = dra_reader_result(reader, "logits");
    for (int i = 0; i < V; i++) sum += exp((double)logits[i]);
    for (int i = 0; i < V; i++) to[i] = (double)logits[i] - log(sum);
    dra_states_destroy(states);
    dra_reader_destroy(reader);
}

static double best_of_all(const subject *s, int64_t b, int32_t *best)
{
    double  first[V], second[V], score = -INFINITY;
    int32_t ids[] = {START, 0};
    log_probs(s, b, 1, ids, first);
    for (int i = 0; i < V; i++) {
        ids[1] = i;
        log_probs(s, b, 2, ids, second);
        for (int j = 0; j < V; j++) {
            if (first[i] + second[j] <= score) continue;
            score = first[i] + second[j];
            best[0] = i;
            best[1] = j;
        }
    }
    return score;
}

static void beams_find_the_best(void **unused)
{
    const dra_generate_config two = {.tokens = 2};
    const dra_beam_config     how = {.beams = V};
    static dra_beam           beam[B * V];
    subject                   s = {0};
    dra_error                 err = {0};
    open_subject(&s, config);
    dra_generator *g = open_generator(&s, B);
    for (int64_t b = 0; b < B; b++) read_row(&s, g, b, b);
    expect_ok(dra_generate_beam(g, &two, &how, beam, &err), &err);
    for (int64_t b = 0; b < B; b++) {
        int32_t         best[2] = {0};
        const double    score = best_of_all(&s, b, best);
        const dra_beam *found = &beam[b * V];
        assert_int_equal(found->text.n, 2);
        assert_int_equal(found->text.ids[0], best[0]);
        assert_int_equal(found->text.ids[1], best[1]);
        if (!(fabs(found->score - score) <= NEAR))
            fail_msg("row %d: score %.9g, expected %.9g", (int)b, found->score, score);
    }
    dra_generator_destroy(g);
    close_subject(&s);
}

/* ---- one beam -------------------------------------------------------------------------------- */

static void one_beam_is_greedy(void **unused)
{
    const dra_generate_config six = {.tokens = N};
    const dra_beam_config     how = {.beams = 1};
    subject                   s = {0};
    dra_error                 err = {0};
    open_subject(&s, config);
    dra_generator *g = open_generator(&s, 1);
    for (int64_t b = 0; b < B; b++) { /* one row reads source after source */
        const dra_context_text    context = {(int64_t)length[b], NULL};
        const dra_named           in[] = {{"ids", &start, sizeof start},
                                          {"src", s.src + b * S, length[b] * sizeof *s.src}};
        const dra_continue_config c = {.model = s.model,
                                       .weights = s.weights,
                                       .device = s.device,
                                       .B = 1,
                                       .T = 1,
                                       .context = &context,
                                       .n_inputs = 2,
                                       .inputs = in,
                                       .n = N};
        dra_continued             plain;
        dra_beam                  beam;
        read_row(&s, g, 0, b);
        expect_ok(dra_generate_beam(g, &six, &how, &beam, &err), &err);
        expect_ok(dra_continue(&c, &plain, &err), &err);
        assert_int_equal(beam.text.n, plain.count[0]);
        assert_memory_equal(beam.text.ids, plain.ids, beam.text.n * sizeof *plain.ids);
        dra_continued_free(&plain);
    }
    dra_generator_destroy(g);
    close_subject(&s);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(dra_generator *g, int64_t row, size_t n, const int32_t *src, size_t m,
                    const char *text)
{
    dra_error err = {0};
    assert_int_not_equal(dra_generator_read_source(g, row, n, src, m, &start, &err), DRA_OK);
    assert_string_equal(err.text, text);
}

static void refuses(void **unused)
{
    static const char text[] = "{\"model_type\":\"dra\",\"vocab\":22,\"dim\":16,\"depth\":1}";
    int32_t           long_one[13] = {0}, wrong[2] = {1, 20};
    subject           s = {0}, other = {0};
    open_subject(&s, config);
    open_subject(&other, text);
    dra_generator *g = open_generator(&s, 1), *h = open_generator(&other, 1);
    refused(g, 1, 2, long_one, 1, "generator: row 1, expected 0 to 0");
    refused(g, 0, 13, long_one, 1, "source: 13 tokens, expected 1 to 12");
    refused(g, 0, 0, long_one, 1, "source: 0 tokens, expected 1 to 12");
    refused(g, 0, 2, wrong, 1, "source: token 1 is 20, the model has 0 to 19");
    refused(g, 0, 2, long_one, 0, "no tokens, expected 1 or more to begin with");
    refused(h, 0, 2, long_one, 1, "source: expected a model that reads two texts, and no amateurs");
    dra_generator_destroy(g);
    dra_generator_destroy(h);
    close_subject(&s);
    close_subject(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beams_find_the_best),
        cmocka_unit_test(one_beam_is_greedy),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests_name("translate", tests, NULL, NULL);
}
