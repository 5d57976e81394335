/* Vectors of texts: those of `dra embed`, whatever the company. */
#include "serving.h"

enum { TEXT = 150 };

/* The mean, the last and the first of the hidden states of a text, read at once. */
static void embed(const subject *s, size_t n, const int32_t *ids, double *mean, double *last,
                  double *first)
{
    const dra_view   view = {.model = s->model, .hidden = true};
    const dra_module module = dra_view_module(&view);
    const int64_t    C = dra_model_config_of(s->model)->dim;
    const dra_named  in = {"ids", ids, n * sizeof *ids};
    dra_reader      *r;
    dra_states      *states;
    dra_error        err = {0};
    expect_ok(dra_reader_create(s->device, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(s->weights, r, &err), &err);
    expect_ok(dra_states_create(s->device, module.state, 1, &states, &err), &err);
    expect_ok(dra_reader_read(r, states, (int64_t)n, NULL, 1, &in, &err), &err);
    const dra_real *x = dra_reader_result(r, "hidden");
    for (int64_t c = 0; c < C; c++) {
        mean[c] = 0;
        for (int64_t t = 0; t < (int64_t)n; t++) mean[c] += (double)x[t * C + c] / (double)n;
        last[c] = (double)x[((int64_t)n - 1) * C + c];
        first[c] = (double)x[c];
    }
    dra_states_destroy(states);
    dra_reader_destroy(r);
}

static void expect_vector(const char *preset, const answer *a, const double *expected)
{
    for (int64_t k = 0; k < a->result.width; k++)
        if (!(fabs((double)a->vector[k] - expected[k]) < 1e-4))
            fail_msg("%s: number %lld is %g, expected %g", preset, (long long)k,
                     (double)a->vector[k], expected[k]);
}

static void embeds(const char *preset)
{
    double  mean[24], last[24], first[24];
    int32_t ids[TEXT];
    subject s;
    answer  a[3] = {0}, b[3] = {0}, other = {0};
    open_subject(&s, preset);
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, TEXT, 1);
    embed(&s, TEXT, ids, mean, last, first);
    dra_job_config c = {.kind = DRA_JOB_EMBED, .n = TEXT, .ids = ids};
    const bool     fixed = !strstr(preset, "gpt2") && !strstr(preset, "xt-");
    for (int k = 0; k < 2 + fixed; k++) {
        c.pooling = (dra_pooling)k;
        run_one(e, c, &a[k]);
    }
    assert_int_equal(a[0].result.width, 24);
    expect_vector(preset, &a[0], mean);
    expect_vector(preset, &a[1], last);
    c.pooling = DRA_EMBED_FIRST;
    run_one(e, c, &other);
    expect_vector(preset, &other, first);
    free(other.vector);
    other = (answer){0};
    for (int k = 0; k < 2 + fixed; k++) { /* the same bits next to others */
        c.pooling = (dra_pooling)k;
        submit(e, c, &b[k]);
    }
    submit(e, (dra_job_config){.n = TEXT - 1, .ids = ids, .tokens = 4}, &other);
    run(e);
    for (int k = 0; k < 2 + fixed; k++) {
        assert_int_equal(a[k].result.width, b[k].result.width);
        const size_t bytes = (size_t)a[k].result.width * sizeof *a[k].vector;
        if (!check_cuda()) assert_memory_equal(a[k].vector, b[k].vector, bytes);
    }
    if (!fixed) {
        c.pooling = DRA_EMBED_STATE;
        submit(e, c, &b[2]);
        run(e);
        assert_int_equal(b[2].result.end, DRA_JOB_FAILED);
        assert_string_equal(b[2].result.error.text,
                            "embed: the model has no state of a fixed size");
    }
    for (int k = 0; k < 3; k++) free(a[k].vector), free(b[k].vector);
    dra_engine_destroy(e);
    close_subject(&s);
}

/* Vectors of texts of several lengths are those of each alone, of an encoder, too, which does not
 * write. */
static void in_company(const char *preset)
{
    static const size_t length[] = {1, 2, 3, 17, 40, 41, 64, 65, 70, TEXT};
    int32_t             ids[TEXT];
    subject             s;
    answer              alone = {0}, found[COUNT(length)] = {0};
    uint64_t            id;
    dra_error           err = {0};
    open_subject(&s, preset);
    dra_engine *e = open_engine(&s, NULL);
    make_prompt(ids, TEXT, 1);
    dra_job_config c = {.kind = DRA_JOB_EMBED, .ids = ids};
    for (size_t i = 0; i < COUNT(length); i++) {
        c.n = length[i];
        submit(e, c, &found[i]);
    }
    run(e);
    for (size_t i = 0; i < COUNT(length); i++) {
        c.n = length[i];
        run_one(e, c, &alone);
        assert_int_equal(found[i].result.width, 24);
        if (!check_cuda())
            assert_memory_equal(alone.vector, found[i].vector, 24 * sizeof *alone.vector);
        free(alone.vector), free(found[i].vector);
        alone = (answer){0};
    }
    if (strstr(preset, "encoder")) {
        const dra_job_config text = {.n = 3, .ids = ids, .tokens = 1};
        assert_int_equal(dra_engine_submit(e, &text, &id, &err), DRA_ERR_VALUE);
        assert_non_null(strstr(err.text, "encoder"));
    }
    dra_engine_destroy(e);
    close_subject(&s);
}

static void texts_are_read_together(void **state)
{
    for (int i = 0; i < SERVED; i++) in_company(served[i]);
    in_company("xt-encoder-tiny");
}

static void texts_become_vectors(void **state)
{
    for (int i = 0; i < SERVED; i++) embeds(served[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_become_vectors),
                                       cmocka_unit_test(texts_are_read_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
