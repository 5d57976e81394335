/* Weights are read once for all sequences of a step: tokens per second of 16 sequences and of one,
 * by a model whose weights come from memory; and how long a long prompt keeps others waiting. Times
 * need a quiet machine: only with DRA_TEST_FULL. */
#include "serving.h"
#include "timing.h"

enum { MANY = 16, WRITTEN = 32, ROUNDS = 5, GAPS = 1 << 12 };

/* RWKV-4 with 53 million parameters, 210 MB. */
static void open_large(subject *s)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_tokenizer_bytes(&s->tokenizer, &err), &err);
    expect_ok(dra_preset_config("rwkv4", &c, &err), &err);
    c->dim = 768, c->depth = 8, c->vocab = dra_tokenizer_size(s->tokenizer);
    s->V = c->vocab;
    expect_ok(dra_model_create(c, &s->model, &err), &err);
    expect_ok(dra_weights_draw(s->model, 7, &s->weights, &err), &err);
    expect_ok(check_cpu(NULL, &s->device, &err), &err);
}

/* Seconds a token of n sequences takes. */
static double write_with(dra_engine *e, int n)
{
    static answer a[MANY];
    int32_t       id = 5;
    for (int k = 0; k < n; k++)
        submit(e,
               (dra_job_config){.n = 1,
                                .ids = &id,
                                .tokens = WRITTEN,
                                .ignore_end = true,
                                .logprobs = -1,
                                .sampler = {.temperature = 1, .seed = (uint64_t)k}},
               &a[k]);
    step(e);
    const double began = now();
    run(e);
    return (now() - began) / (n * (WRITTEN - 1));
}

static void sequences_share_weights(void **state)
{
    double  one[ROUNDS], many[ROUNDS];
    subject s;
    if (!getenv("DRA_TEST_FULL")) skip();
    open_large(&s);
    dra_engine *e = open_engine(&s, NULL);
    write_with(e, 1);
    write_with(e, MANY);
    for (int k = 0; k < ROUNDS; k++) {
        one[k] = write_with(e, 1);
        many[k] = write_with(e, MANY);
    }
    const double a = 1 / quantile(one, ROUNDS, 0.5), b = 1 / quantile(many, ROUNDS, 0.5);
    print_message("# one sequence %.1f token/s, %d sequences %.1f token/s: %.1fx\n", a, MANY, b,
                  b / a);
    assert_true(b >= 5 * a);
    dra_engine_destroy(e);
    close_subject(&s);
}

typedef struct gaps {
    double last, gap[GAPS];
    size_t n;
} gaps;

static bool note_gap(void *user, const dra_job_token *t)
{
    gaps        *g = user;
    const double at = now();
    if (g->last > 0 && g->n < GAPS) g->gap[g->n++] = at - g->last;
    g->last = at;
    return true;
}

/* p99 while a prompt is read against the median before it comes. */
static void a_long_prompt_comes(void **state)
{
    static int32_t ids[4096];
    static answer  a;
    static gaps    g;
    int32_t        id = 5;
    uint64_t       number;
    subject        s;
    dra_error      err = {0};
    if (!getenv("DRA_TEST_FULL")) skip();
    open_large(&s);
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, 4096, 1);
    for (size_t n = 1024; n > 64; n /= 2) { /* compiles */
        submit(e, (dra_job_config){.n = n - 1, .ids = ids + 9, .tokens = 1}, &a);
        run(e);
    }
    const dra_job_config c = {.n = 1,
                              .ids = &id,
                              .tokens = 100000,
                              .ignore_end = true,
                              .logprobs = -1,
                              .token = note_gap,
                              .user = &g};
    expect_ok(dra_engine_submit(e, &c, &number, &err), &err);
    for (int k = 0; k < 40; k++) step(e);
    const double half = quantile(g.gap, g.n, 0.5);
    g.n = 0;
    submit(e, (dra_job_config){.n = 4096, .ids = ids, .tokens = 1}, &a);
    while (!a.ends) step(e);
    const double most = quantile(g.gap, g.n, 0.99);
    print_message("# between tokens: median %.1f ms, p99 %.1f ms while a prompt is read\n",
                  1e3 * half, 1e3 * most);
    assert_true(most <= 3 * half);
    dra_engine_destroy(e);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_share_weights),
        cmocka_unit_test(a_long_prompt_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
