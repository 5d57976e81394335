/* Unmasking: against plain loops that read all logits in every round, against x-transformers
 * (tests/data/xt-unmask, made by tests/parity/unmask.py); rows alone and together, given tokens,
 * threads, how temperatures end, what is refused. */
#include <jansson.h>

#include "writers.h"

enum { B = 3, T = 12, V = 23, MASK = V - 1 };

static writer open_encoder(void) { return open_writer("xt-encoder-tiny", V, 5); }

static dra_unmask_config unmask_of(const writer *w, int64_t rows)
{
    return (dra_unmask_config){.model = w->model,
                               .weights = w->weights,
                               .device = w->device,
                               .B = rows,
                               .T = T,
                               .steps = 4};
}

static void unmask(const dra_unmask_config *c, int32_t *ids)
{
    dra_error err = {0};
    expect_ok(dra_unmask(c, ids, &err), &err);
}

/* Row 0 is hidden as a whole, row 1 has every third token, row 2 starts with a text. */
static void fill(int32_t *ids)
{
    for (int i = 0; i < B * T; i++) {
        const bool given = i / T == 1 ? i % 3 == 0 : i / T == 2 && i % T < 5;
        ids[i] = given ? (i * 7 + 3) % MASK : MASK;
    }
}

/* ---- plain loops ----------------------------------------------------------------------------- */

/* Logits (T, V) of one row. */
static void read_row(const writer *w, const int32_t *ids, dra_real *logits)
{
    const dra_view   view = {.model = w->model, .logits = true};
    const dra_module module = dra_view_module(&view);
    const dra_named  in = {"ids", ids, T * sizeof *ids};
    dra_reader      *reader;
    dra_states      *states;
    dra_error        err = {0};
    expect_ok(dra_reader_create(w->device, &module, &reader, &err), &err);
    expect_ok(dra_weights_bind(w->weights, reader, &err), &err);
    expect_ok(dra_states_create(w->device, module.state, 1, &states, &err), &err);
    expect_ok(dra_reader_read(reader, states, T, NULL, 1, &in, &err), &err);
    memcpy(logits, dra_reader_result(reader, "logits"), T * V * sizeof *logits);
    dra_states_destroy(states);
    dra_reader_destroy(reader);
}

static int32_t most_likely(const double *p)
{
    int32_t best = 0;
    for (int32_t v = 1; v < MASK; v++)
        if (p[v] > p[best]) best = v;
    return best;
}

/* The position with the least score of those that may be hidden; -1: none. */
static int least_of(const double *score, const bool *may)
{
    int least = -1;
    for (int t = 0; t < T; t++)
        if (may[t] && (least < 0 || score[t] < score[least])) least = t;
    return least;
}

static void unmask_plainly(const writer *w, const dra_unmask_config *c, int32_t *ids)
{
    static dra_real logits[T * V];
    bool            start[T], hidden[T], may[T];
    double          p[V], score[T] = {0};
    int             n = 0;
    for (int t = 0; t < T; t++) n += start[t] = hidden[t] = ids[t] == MASK;
    for (int k = 0; k < c->steps; k++) {
        const double u = (k + 1.0) / (double)c->steps, pi = 3.14159265358979323846;
        const double share = c->schedule == DRA_MASK_COSINE ? cos(u * pi / 2) : 1 - u;
        read_row(w, ids, logits);
        for (int t = 0; t < T; t++) {
            log_probs(V, logits + t * V, 0, 0, NULL, p);
            if (hidden[t]) ids[t] = most_likely(p);
            may[t] = c->remask ? start[t] : hidden[t];
            if (may[t]) score[t] = p[ids[t]];
            hidden[t] = false;
        }
        for (int left = (int)floor(share * n + 1e-9); left > 0; left--) {
            const int t = least_of(score, may);
            may[t] = false;
            hidden[t] = true;
            ids[t] = MASK;
        }
    }
}

static void equals_plain_loops(void **state)
{
    writer w = open_encoder();
    int    remasked = 0;
    for (int64_t steps = 1; steps <= 14; steps++)
        for (int how = 0; how < 4; how++) {
            dra_unmask_config c = unmask_of(&w, B);
            int32_t           ids[B * T], expected[B * T], plain[B * T];
            c.steps = steps;
            c.schedule = how & 1 ? DRA_MASK_COSINE : DRA_MASK_LINEAR;
            c.remask = how & 2;
            fill(ids), fill(expected);
            unmask(&c, ids);
            for (int b = 0; b < B; b++) unmask_plainly(&w, &c, expected + b * T);
            assert_memory_equal(ids, expected, sizeof ids);
            c.remask = false;
            fill(plain);
            unmask(&c, plain);
            remasked += memcmp(plain, ids, sizeof ids) != 0;
        }
    assert_true(remasked > 0); /* else the option was not seen at work */
    close_writer(&w);
}

/* ---- the library ----------------------------------------------------------------------------- */

static void equals_x_transformers(void **state)
{
    json_error_t  e;
    json_t       *file = json_load_file("tests/data/xt-unmask/expected.json", 0, &e);
    writer        w = open_folder("tests/data/xt-unmask");
    size_t        i, t;
    const json_t *text, *token;
    assert_non_null(file);
    assert_int_equal(dra_model_config_of(w.model)->xt.mask_id, 7);
    json_array_foreach(json_object_get(file, "texts"), i, text)
    {
        const char       *schedule = json_string_value(json_object_get(text, "schedule"));
        const json_t     *tokens = json_object_get(text, "tokens");
        int32_t           ids[TEXT];
        dra_unmask_config c = unmask_of(&w, 1);
        c.T = (int64_t)json_array_size(tokens);
        c.steps = json_integer_value(json_object_get(text, "steps"));
        if (strcmp(schedule, "cosine") == 0) c.schedule = DRA_MASK_COSINE;
        for (int64_t k = 0; k < c.T; k++) ids[k] = 7; /* as the folder's config says */
        unmask(&c, ids);
        json_array_foreach(tokens, t, token)
        {
            if (ids[t] != json_integer_value(token))
                fail_msg("%s, %lld steps: token %zu is %d, expected %lld", schedule,
                         (long long)c.steps, t, ids[t], (long long)json_integer_value(token));
        }
    }
    assert_int_equal(i, 8);
    json_decref(file);
    close_writer(&w);
}

/* ---- rows, threads, chance ------------------------------------------------------------------- */

static const dra_sampler_config warm = {.temperature = 2, .top_p = 0.95, .seed = 11};

static void rows_alone_are_rows_together(void **state)
{
    writer w = open_encoder();
    for (int how = 0; how < 8; how++) {
        dra_unmask_config c = unmask_of(&w, B), one = unmask_of(&w, 1);
        int32_t           all[B * T], alone[B * T];
        if (how & 1) c.sampler = one.sampler = warm;
        c.remask = one.remask = how & 2;
        if (how & 4) c.sampler.repetition_penalty = one.sampler.repetition_penalty = 1.5;
        fill(all), fill(alone);
        unmask(&c, all);
        for (int b = 0; b < B; b++) {
            one.sampler.seed = c.sampler.seed + (uint64_t)b;
            unmask(&one, alone + b * T);
        }
        assert_memory_equal(all, alone, sizeof all);
    }
    close_writer(&w);
}

static void given_tokens_stay(void **state)
{
    writer w = open_encoder();
    for (uint64_t seed = 0; seed < 20; seed++) {
        dra_unmask_config c = unmask_of(&w, B);
        int32_t           ids[B * T], was[B * T];
        c.sampler = warm;
        c.sampler.temperature = 50; /* any token may come */
        c.sampler.seed = seed;
        c.remask = seed % 2;
        fill(ids), fill(was);
        unmask(&c, ids);
        for (int i = 0; i < B * T; i++) {
            if (was[i] != MASK) assert_int_equal(ids[i], was[i]);
            assert_in_range(ids[i], 0, MASK - 1);
        }
    }
    close_writer(&w);
}

/* Other seeds, other texts; the last round has no chance, so one round alone has none. */
static void seeds_decide(void **state)
{
    writer            w = open_encoder();
    dra_unmask_config c = unmask_of(&w, B), greedy = unmask_of(&w, B);
    int32_t           a[B * T], b[B * T];
    c.sampler = warm;
    fill(a), fill(b);
    unmask(&c, a), unmask(&c, b);
    assert_memory_equal(a, b, sizeof a);
    c.sampler.seed++;
    fill(b);
    unmask(&c, b);
    assert_memory_not_equal(a, b, sizeof a);
    c.steps = greedy.steps = 1;
    fill(a), fill(b);
    unmask(&c, a), unmask(&greedy, b);
    assert_memory_equal(a, b, sizeof a);
    close_writer(&w);
}

static void threads_give_the_same(void **state)
{
    writer    w = open_encoder();
    int32_t   ids[3][B * T];
    const int threads[] = {1, 2, 7};
    for (int i = 0; i < 3; i++) {
        dra_unmask_config c = unmask_of(&w, B);
        c.device = check_device(threads[i], dra_device_level_at(0));
        c.sampler = warm;
        fill(ids[i]);
        unmask(&c, ids[i]);
        assert_memory_equal(ids[i], ids[0], sizeof ids[0]);
    }
    close_writer(&w);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static bool count_down(void *left) { return --*(int *)left > 0; }

/* Where more rounds are not wanted, all is filled in at once. */
static void stops_when_asked(void **state)
{
    writer            w = open_encoder();
    int               left = 1;
    dra_unmask_config c = unmask_of(&w, B), one = unmask_of(&w, B);
    int32_t           a[B * T], b[B * T];
    c.step = count_down, c.user = &left;
    one.steps = 1;
    fill(a), fill(b);
    unmask(&c, a), unmask(&one, b);
    assert_memory_equal(a, b, sizeof a);
    left = 100, c.steps = 5;
    unmask(&c, a); /* nothing is hidden any more */
    assert_memory_equal(a, b, sizeof a);
    close_writer(&w);
}

static void refused(dra_unmask_config c, int32_t first, const char *text)
{
    int32_t   ids[B * TEXT], was[B * TEXT];
    dra_error err = {0};
    for (int i = 0; i < B * TEXT; i++) was[i] = ids[i] = i ? MASK : first;
    assert_int_not_equal(dra_unmask(&c, ids, &err), DRA_OK);
    assert_string_equal(err.text, text);
    assert_memory_equal(ids, was, sizeof ids);
}

static void refused_by_name(void **state)
{
    writer                  w = open_encoder(), gpt = open_writer("gpt2-tiny", V, 5);
    const dra_unmask_config good = unmask_of(&w, B);
    dra_unmask_config       c = good;
    refused(unmask_of(&gpt, 1), 0,
            "unmask: the model is no encoder of tokens that puts out their logits");
    refused((c = good, c.steps = 0, c), 0, "unmask: 0 steps, expected 1 or more");
    refused((c = good, c.B = 0, c), 0, "unmask: 0 rows of 12 tokens, expected 1 or more of each");
    refused((c = good, c.T = TEXT + 1, c), 0,
            "the text has 65 tokens, this model has positions for 64; nothing is cut off");
    refused((c = good, c.mask_token = V, c), 0, "unmask: mask_token is 23, the model has 0 to 22");
    refused((c = good, c.schedule = (dra_mask_schedule)3, c), 0, "unmask: schedule 3 is not known");
    refused(good, V, "unmask: row 0, token 0 is 23, the model has 0 to 22");
    refused(good, -1, "unmask: row 0, token 0 is -1, the model has 0 to 22");
    refused((c = good, c.sampler.temperature = -1, c), 0,
            "sampler: temperature is -1, expected 0 to 1e+06");
    refused((c = good, c.sampler.no_repeat_ngram = 2, c), 0,
            "sampler: no_repeat_ngram looks at a text, and here is none");
    const int i = dra_specs_find(dra_model_params(w.model), "head");
    dra_weights_edit(w.weights, i)[3] = (dra_real)NAN;
    refused(good, 0, "unmask: row 0, token 1: logits are not finite");
    close_writer(&w);
    close_writer(&gpt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_plain_loops),
        cmocka_unit_test(equals_x_transformers),
        cmocka_unit_test(rows_alone_are_rows_together),
        cmocka_unit_test(given_tokens_stay),
        cmocka_unit_test(seeds_decide),
        cmocka_unit_test(threads_give_the_same),
        cmocka_unit_test(stops_when_asked),
        cmocka_unit_test(refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
