/* Picking on a device whose memory is not the host's: the tokens of the CPU, and for each of them
 * the host waits once. */
#include <string.h>

#include "apart.h"
#include "check.h"
#include "device/device.h"
#include "dra/generate.h"
#include "sequence/module.h"
#include "session/session.h"

enum { V = 256, ROWS = 3, WRITTEN = 40 };
/* Waits that are not for tokens: rows begin one by one, logits are kept at the end, and memory to
 * work in gets larger. */
enum { OTHER_WAITS = 2 + ROWS };

typedef struct subject {
    dra_model     *model;
    dra_weights   *weights;
    dra_tokenizer *tokenizer;
    dra_device    *cpu, *apart;
} subject;

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static void open_subject(subject *s, const char *preset)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_preset_config(preset, &c, &err), &err);
    c->dim = 24, c->heads = 2, c->depth = 2, c->context = 128, c->vocab = V;
    expect_ok(dra_tokenizer_bytes(&s->tokenizer, &err), &err);
    expect_ok(dra_model_create(c, &s->model, &err), &err);
    expect_ok(dra_weights_draw(s->model, 4, &s->weights, &err), &err);
    expect_ok(dra_device_create_cpu(NULL, &s->cpu, &err), &err);
    expect_ok(apart_create(NULL, &s->apart, &err), &err);
}

static void close_subject(subject *s)
{
    dra_weights_destroy(s->weights);
    dra_model_destroy(s->model);
    dra_tokenizer_destroy(s->tokenizer);
    dra_device_destroy(s->cpu);
    dra_device_destroy(s->apart);
}

static dra_generator *open_generator(const subject *s, dra_device *device,
                                     const dra_sampler_config *sampler, const dra_grammar *grammar)
{
    const dra_generator_config c = {.model = s->model,
                                    .weights = s->weights,
                                    .device = device,
                                    .tokenizer = s->tokenizer,
                                    .sampler = *sampler,
                                    .rows = ROWS,
                                    .grammar = grammar};
    dra_generator             *g;
    dra_error                  err = {0};
    expect_ok(dra_generator_create(&c, &g, &err), &err);
    for (int64_t b = 0; b < ROWS; b++) {
        const int32_t ids[] = {7, 100, (int32_t)(30 * b), 9};
        expect_ok(dra_generator_read(g, b, 3 + (size_t)(b % 2), ids, &err), &err);
    }
    return g;
}

/* Tokens that all rows write, (ROWS, WRITTEN); returns how often the host has waited. */
static int64_t written(dra_generator *g, const dra_device *device, int64_t logprobs, int32_t *ids)
{
    const dra_generate_config c = {.tokens = WRITTEN, .ignore_end = true, .logprobs = logprobs};
    dra_generated             out[ROWS];
    dra_error                 err = {0};
    const int64_t             before = device->waits;
    expect_ok(dra_generate(g, &c, out, &err), &err);
    for (int b = 0; b < ROWS; b++) {
        assert_int_equal(out[b].n, WRITTEN);
        memcpy(ids + b * WRITTEN, out[b].ids, WRITTEN * sizeof *ids);
    }
    return device->waits - before;
}

static const dra_token_bias     biases[] = {{'e', 2}, {'x', -1.0 / 0.0}, {200, -3}};
static const dra_sampler_config settings[] = {
    {0},
    {.temperature = 1, .seed = 3},
    {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .repetition_penalty = 1.3, .seed = 8},
    {.temperature = 1.2, .min_p = 0.02, .bias = biases, .n_bias = COUNT(biases)},
};

static void compare(const subject *s, const dra_sampler_config *sampler, const dra_grammar *grammar)
{
    int32_t        there[ROWS * WRITTEN], here[ROWS * WRITTEN];
    dra_generator *a = open_generator(s, s->apart, sampler, grammar);
    dra_generator *b = open_generator(s, s->cpu, sampler, grammar);
    for (int k = 0; k < 2; k++) { /* then once more: it goes on where it was */
        const int64_t waits = written(a, s->apart, 0, there);
        written(b, s->cpu, 0, here);
        assert_memory_equal(there, here, sizeof there);
        if (waits > WRITTEN + OTHER_WAITS)
            fail_msg("%d waits for %d tokens", (int)waits, (int)WRITTEN);
    }
    dra_generator_destroy(a);
    dra_generator_destroy(b);
}

static void a_token_is_one_wait(void **unused)
{
    static const char *const presets[] = {"gpt2-tiny", "rwkv4-tiny", "dra-slots-tiny"};
    for (size_t i = 0; i < COUNT(presets); i++) {
        subject s;
        open_subject(&s, presets[i]);
        for (size_t k = 0; k < COUNT(settings); k++) compare(&s, &settings[k], NULL);
        close_subject(&s);
    }
}

static void so_it_is_with_a_grammar(void **unused)
{
    static const char text[] = "root ::= [a-f ]*\n";
    subject           s;
    dra_grammar      *grammar;
    dra_error         err = {0};
    expect_ok(dra_grammar_parse("letters", text, sizeof text - 1, &grammar, &err), &err);
    open_subject(&s, "gpt2-tiny");
    compare(&s, &settings[1], grammar);
    compare(&s, &settings[3], grammar);
    close_subject(&s);
    dra_grammar_destroy(grammar);
}

/* Where the host looks at logits, they come over; tokens stay as they are. */
static void logits_come_when_wanted(void **unused)
{
    subject s;
    int32_t plain[ROWS * WRITTEN], logged[ROWS * WRITTEN];
    open_subject(&s, "gpt2-tiny");
    dra_generator *a = open_generator(&s, s.apart, &settings[2], NULL);
    dra_generator *b = open_generator(&s, s.apart, &settings[2], NULL);
    written(a, s.apart, 0, plain);
    assert_true(written(b, s.apart, 3, logged) <= 2 * WRITTEN + OTHER_WAITS);
    assert_memory_equal(plain, logged, sizeof plain);
    dra_generator_destroy(a);
    dra_generator_destroy(b);
    close_subject(&s);
}

/* Samplers that are changed on the way, and rows that go back to where another was. */
static void change(const subject *s, dra_device *device, int32_t *ids)
{
    const dra_generate_config c = {.tokens = 8, .ignore_end = true};
    dra_generator            *g = open_generator(s, device, &settings[1], NULL);
    dra_generated             out[ROWS];
    dra_context               kept;
    dra_error                 err = {0};
    for (size_t k = 3; k > 1; k--) {
        expect_ok(dra_generate(g, &c, out, &err), &err);
        expect_ok(dra_generator_set_sampler(g, &settings[k], &err), &err);
    }
    expect_ok(dra_generator_keep(g, 1, &kept, &err), &err);
    for (int64_t b = 0; b < ROWS; b++) {
        expect_ok(dra_generator_back(g, b, &kept, &err), &err);
        expect_ok(dra_generator_set_seed(g, b, 5, &err), &err);
    }
    dra_context_free(&kept);
    expect_ok(dra_generate(g, &c, out, &err), &err);
    for (int b = 0; b < ROWS; b++) memcpy(ids + b * 8, out[b].ids, 8 * sizeof *ids);
    dra_generator_destroy(g);
}

static void rows_go_on_after_changes(void **unused)
{
    subject s;
    int32_t there[ROWS * 8], here[ROWS * 8];
    open_subject(&s, "gpt2-tiny");
    change(&s, s.apart, there);
    change(&s, s.cpu, here);
    assert_memory_equal(there, here, sizeof there);
    assert_memory_equal(there, there + 8, 8 * sizeof *there);
    assert_memory_equal(there, there + 16, 8 * sizeof *there);
    close_subject(&s);
}

/* What goes wrong in a read that nobody has waited for. */
static void faults_are_noticed(void **unused)
{
    subject     s;
    dra_reader *r;
    dra_states *states;
    dra_error   err = {0};
    dra_real    logits[V];
    int32_t     id = V + 5;
    open_subject(&s, "gpt2-tiny");
    const dra_view   view = {.model = s.model, .logits = true, .keep = 1};
    const dra_module module = dra_view_module(&view);
    const dra_named  in = {"ids", &id, sizeof id};
    expect_ok(dra_reader_create(s.apart, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(s.weights, r, &err), &err);
    expect_ok(dra_states_create(s.apart, module.state, 1, &states, &err), &err);
    dra_reader_defer(r, true);
    expect_ok(dra_reader_read(r, states, 1, NULL, 1, &in, &err), &err);
    const dra_fetch wanted = {logits, dra_reader_result_span(r, "logits")};
    assert_int_equal(dra_reader_fetch(r, &wanted, 1, &err), DRA_ERR_INDEX);
    expect_ok(dra_reader_finish(r, &err), &err); /* told once */
    assert_null(dra_reader_result(r, "logits"));
    dra_states_destroy(states);
    dra_reader_destroy(r);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_one_wait),     cmocka_unit_test(so_it_is_with_a_grammar),
        cmocka_unit_test(logits_come_when_wanted), cmocka_unit_test(rows_go_on_after_changes),
        cmocka_unit_test(faults_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
