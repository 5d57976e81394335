/* Objectives: what they make of rows, whom they are for; and tokens that are forgotten: how many,
 * and that nothing is learned through their keys and values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/shape.h"
#include "check.h"
#include "dra/train.h"

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* settings: "key=value" ... NULL, over a small GPT. */
static dra_model *make_model(const char *const *settings)
{
    CHECK_CONFIG(c);
    dra_model *m = NULL;
    dra_error  err = {0};
    char       key[100];
    expect_ok(dra_preset_config("gpt2-tiny", &c, &err), &err);
    c->dim = 16, c->heads = 2, c->depth = 2, c->vocab = 50, c->context = 300;
    for (; settings && *settings; settings++) {
        const char *equals = strchr(*settings, '=');
        snprintf(key, sizeof key, "%.*s", (int)(equals - *settings), *settings);
        expect_ok(dra_model_config_set(c, key, equals + 1, &err), &err);
    }
    expect_ok(dra_model_create(c, &m, &err), &err);
    return m;
}

static dra_model *make_encoder(void)
{
    return make_model((const char *const[]){"visible=bidirectional", NULL});
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { B = 64, T = 256, V = 50, N = B * T };

typedef struct batch {
    int32_t ids[N], targets[N], mark[N];
} batch;

/* Tokens 0 .. V-2; the last row ends with pads. */
static void fill(batch *x)
{
    for (int i = 0; i < N; i++) {
        x->ids[i] = (i * 31 + i / 7) % (V - 1);
        x->targets[i] = (i * 31 + 5) % (V - 1);
        x->mark[i] = i % T == 0 ? DRA_MARK_RESET : i > N - 40 ? DRA_MARK_PAD : 0;
    }
}

static dra_objective_rows rows_of(batch *x)
{
    return (dra_objective_rows){B, T, x->ids, x->targets, x->mark, .seed = 7, .step = 3};
}

static void next_is_what_a_feed_gives(void **state)
{
    static batch             x, y;
    dra_objective_config     c = {0};
    dra_error                err = {0};
    dra_model               *m = make_model(NULL);
    const dra_objective_rows rows = rows_of(&x);
    fill(&x), fill(&y);
    expect_ok(dra_objective_complete(&c, m, &err), &err);
    assert_int_equal(c.kind, DRA_OBJECTIVE_NEXT);
    dra_objective_make(&c, m, &rows);
    assert_memory_equal(&x, &y, sizeof x);
    dra_model_destroy(m);
}

/* Within five deviations. */
static void expect_share(const char *what, int64_t found, int64_t of, double p)
{
    const double d = sqrt(p * (1 - p) / (double)of), share = (double)found / (double)of;
    if (!(fabs(share - p) <= 5 * d))
        fail_msg("%s: %g of %lld, expected %g", what, share, (long long)of, p);
}

typedef struct tally {
    int64_t real, chosen, masked, same, random[V];
} tally;

static tally count(const batch *now, const batch *was, int32_t mask)
{
    tally n = {0};
    for (int i = 0; i < N; i++) {
        const bool pad = was->mark[i] & DRA_MARK_PAD, chosen = now->targets[i] >= 0;
        n.real += !pad;
        n.chosen += chosen;
        assert_false(pad && chosen);
        assert_int_equal(now->targets[i], chosen ? was->ids[i] : -1);
        assert_true(now->ids[i] >= 0 && now->ids[i] < V);
        if (!chosen) assert_int_equal(now->ids[i], was->ids[i]);
        if (!chosen) continue;
        n.masked += now->ids[i] == mask;
        n.same += now->ids[i] == was->ids[i];
        n.random[now->ids[i]] += now->ids[i] != mask && now->ids[i] != was->ids[i];
    }
    return n;
}

static void masked_hides_a_share(void **state)
{
    static batch x, y;
    dra_model   *m = make_encoder();
    for (int k = 0; k < 3; k++) {
        static const double  shares[] = {0.15, 0.5, 1};
        dra_objective_config c = {.mask_share = k ? shares[k] : 0, .mask_token = k == 2 ? -1 : 0};
        dra_error            err = {0};
        const dra_objective_rows rows = rows_of(&x);
        int64_t                  others = 0;
        fill(&x), fill(&y);
        expect_ok(dra_objective_complete(&c, m, &err), &err);
        assert_int_equal(c.kind, DRA_OBJECTIVE_MASKED);
        assert_int_equal(c.mask_token, k == 2 ? -1 : V - 1);
        dra_objective_make(&c, m, &rows);
        const tally n = count(&x, &y, k == 2 ? 0 : V - 1);
        if (k == 2)
            assert_int_equal(n.chosen, n.real);
        else
            expect_share("chosen", n.chosen, n.real, shares[k]);
        for (int v = 0; v < V; v++) others += n.random[v];
        if (k == 2) continue; /* token 0 is also one of the text */
        expect_share("masked", n.masked, n.chosen, 0.8);
        expect_share("random", others, n.chosen, 0.1 * (V - 2) / (V - 1)); /* some are the same */
        for (int v = 0; v < V - 1 && k == 1; v++) assert_true(n.random[v] > 0);
    }
    dra_model_destroy(m);
}

/* How many of row b are hidden; all of these read the mask token. */
static int hidden_of(const batch *now, const batch *was, int b)
{
    int n = 0;
    for (int i = b * T; i < (b + 1) * T; i++) {
        const bool hidden = now->targets[i] >= 0;
        n += hidden;
        assert_int_equal(now->ids[i], hidden ? V - 1 : was->ids[i]);
        assert_int_equal(now->targets[i], hidden ? was->ids[i] : -1);
        assert_false(hidden && was->mark[i] & DRA_MARK_PAD);
    }
    return n;
}

/* Half of the shares 1 - u, a third of cos(u pi/2) are below 1/2; places are all over a row. */
static void schedules_hide_exact_counts(void **state)
{
    static batch x, y;
    dra_model   *m = make_encoder();
    for (int k = 0; k < 2; k++) {
        dra_objective_config c = {.mask_schedule = k ? DRA_MASK_COSINE : DRA_MASK_LINEAR};
        dra_objective_rows   rows = rows_of(&x);
        dra_error            err = {0};
        int64_t              all = 0, below = 0, tokens = 0, places[4] = {0};
        expect_ok(dra_objective_complete(&c, m, &err), &err);
        assert_int_equal(c.kind, DRA_OBJECTIVE_MASKED);
        assert_true(c.mask_share == 0);
        for (rows.step = 0; rows.step < 20; rows.step++) {
            fill(&x), fill(&y);
            dra_objective_make(&c, m, &rows);
            for (int b = 0; b < B; b++) {
                const int n = hidden_of(&x, &y, b), of = b == B - 1 ? T - 39 : T;
                assert_in_range(n, 1, of);
                all++;
                below += 2 * n <= of;
            }
            for (int i = 0; i < N - T; i++)
                if (x.targets[i] >= 0) places[4 * (i % T) / T]++, tokens++;
        }
        expect_share("rows of at most half", below, all, k ? 1.0 / 3 : 0.5);
        for (int i = 0; i < 4; i++) expect_share("quarter of a row", places[i], tokens, 0.25);
    }
    dra_model_destroy(m);
}

/* A row of one token has it hidden, one of pads nothing. */
static void schedules_of_short_rows(void **state)
{
    int32_t ids[] = {5, 6, 7, 8}, targets[] = {1, 1, 1, 1};

    const int32_t            mark[] = {0, DRA_MARK_PAD, DRA_MARK_PAD, DRA_MARK_PAD};
    const dra_objective_rows rows = {2, 2, ids, targets, mark};
    dra_objective_config     c = {.mask_schedule = DRA_MASK_COSINE};
    dra_model               *m = make_encoder();
    expect_ok(dra_objective_complete(&c, m, NULL), NULL);
    dra_objective_make(&c, m, &rows);
    assert_memory_equal(ids, ((int32_t[]){V - 1, 6, 7, 8}), sizeof ids);
    assert_memory_equal(targets, ((int32_t[]){5, -1, -1, -1}), sizeof targets);
    dra_model_destroy(m);
}

/* What is drawn follows from seed, step, row and position, not from how a batch is cut. */
static void expect_same_draws(dra_objective_config c)
{
    static batch       x, y, other;
    dra_error          err = {0};
    dra_model         *m = make_encoder();
    dra_objective_rows rows = rows_of(&x), part = rows_of(&y), more = rows_of(&other);
    fill(&x), fill(&y), fill(&other);
    expect_ok(dra_objective_complete(&c, m, &err), &err);
    dra_objective_make(&c, m, &rows);
    for (int64_t b = 0; b < B; b += 16) {
        part = (dra_objective_rows){16, T, y.ids + b * T, y.targets + b * T, y.mark + b * T, 7,
                                    3,  b};
        dra_objective_make(&c, m, &part);
    }
    assert_memory_equal(&x, &y, sizeof x);
    more.step = 4;
    dra_objective_make(&c, m, &more);
    assert_memory_not_equal(&x, &other, sizeof x);
    fill(&other);
    more.step = 3, more.seed = 8;
    dra_objective_make(&c, m, &more);
    assert_memory_not_equal(&x, &other, sizeof x);
    dra_model_destroy(m);
}

static void draws_do_not_depend_on_cuts(void **state)
{
    for (int k = DRA_MASK_CONSTANT; k <= DRA_MASK_COSINE; k++)
        expect_same_draws((dra_objective_config){.mask_schedule = (dra_mask_schedule)k});
}

/* ---- whom they are for ----------------------------------------------------------------------- */

static void refused(const dra_model *m, dra_objective_config c, const char *text)
{
    dra_error err = {0};
    assert_int_equal(dra_objective_complete(&c, m, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, text);
}

static void refused_by_name(void **state)
{
    dra_model *gpt = make_model(NULL), *encoder = make_encoder();
    refused(encoder, (dra_objective_config){DRA_OBJECTIVE_NEXT},
            "objective next: the model is an encoder, whose tokens see the next one; expected "
            "masked");
    refused(gpt, (dra_objective_config){DRA_OBJECTIVE_MASKED},
            "objective masked: the model is causal, not an encoder, and its logits predict the "
            "next token; expected next");
    refused(gpt, (dra_objective_config){.mask_share = 0.1},
            "objective next: mask_share is for the objective masked");
    refused(gpt, (dra_objective_config){.mask_token = 3},
            "objective next: mask_token is for the objective masked");
    refused(encoder, (dra_objective_config){.mask_share = 1.5},
            "objective masked: mask_share is 1.5, expected 0 to 1");
    refused(encoder, (dra_objective_config){.mask_token = 50},
            "objective masked: mask_token is 50, the model has 0 to 49");
    refused(encoder, (dra_objective_config){.mask_share = 0.2, .mask_schedule = DRA_MASK_LINEAR},
            "objective masked: expected one of mask_share and mask_schedule, found both "
            "(mask_share 0.2)");
    refused(encoder, (dra_objective_config){.mask_schedule = (dra_mask_schedule)3},
            "objective masked: mask_schedule 3 is not known");
    refused(gpt, (dra_objective_config){.mask_schedule = DRA_MASK_LINEAR},
            "objective next: mask_schedule is for the objective masked");
    refused(encoder, (dra_objective_config){(dra_objective_kind)9}, "objective 9 is not known");
    assert_string_equal(dra_objective_name(DRA_OBJECTIVE_OWN, gpt), "next");
    assert_string_equal(dra_objective_name(DRA_OBJECTIVE_OWN, encoder), "masked");
    dra_model_destroy(gpt);
    dra_model_destroy(encoder);
}

/* ---- how many are forgotten ------------------------------------------------------------------ */

enum { LONG = 257 };

static int64_t forgotten(const int32_t *mark, int64_t n)
{
    int64_t count = 0;
    for (int64_t t = 0; t < n; t++) {
        count += (mark[t] & DRA_MARK_SKIP) != 0;
        assert_false((mark[t] & DRA_MARK_SKIP) && (mark[t] & (DRA_MARK_RESET | DRA_MARK_PAD)));
    }
    return count;
}

/* Three rows of n tokens: a text, two texts, and one that ends early, with pads. */
static void counts_are_exact(void **state)
{
    static const double p[] = {0, 0.01, 0.15, 0.5, 0.9, 0.999};
    int32_t             mark[3 * LONG], targets[3 * LONG];
    dra_error           err = {0};
    for (int64_t n = 1; n <= LONG; n = 2 * n + (n < 5))
        for (size_t k = 0; k < COUNT(p); k++) {
            const int64_t half = n / 2 + 1; /* of the third row */
            memset(mark, 0, sizeof mark);
            for (int64_t i = 0; i < 3 * n; i++) targets[i] = 1;
            mark[0] = mark[n] = mark[2 * n] = DRA_MARK_RESET;
            mark[n + n / 2] = DRA_MARK_RESET;
            for (int64_t t = half; t < n; t++) mark[2 * n + t] = DRA_MARK_PAD;
            targets[2 * n + half - 1] = -1;
            expect_ok(dra_marks_forget(mark, targets, 3, n, p[k], 5, 2, 0, &err), &err);
            const int64_t c = dra_imin((int64_t)((double)(n + 1) * p[k]), n);
            const int64_t d = dra_imin((int64_t)((double)half * p[k]), half - 1);
            assert_int_equal(forgotten(mark, n), dra_imin(c, n - 1));
            assert_int_equal(forgotten(mark + n, n), dra_imin(c, n - (n / 2 ? 2 : 1)));
            assert_int_equal(forgotten(mark + 2 * n, n), d);
        }
}

static void any_token_but_the_first(void **state)
{
    int32_t   mark[4 * 16], part[2 * 16], often[16] = {0};
    dra_error err = {0};
    for (int64_t step = 0; step < 500; step++) {
        memset(mark, 0, sizeof mark), memset(part, 0, sizeof part);
        for (int b = 0; b < 4; b++) mark[16 * b] = DRA_MARK_RESET;
        part[0] = part[16] = DRA_MARK_RESET;
        expect_ok(dra_marks_forget(mark, NULL, 4, 16, 0.25, 9, step, 0, &err), &err);
        expect_ok(dra_marks_forget(part, NULL, 2, 16, 0.25, 9, step, 2, &err), &err);
        assert_memory_equal(mark + 2 * 16, part, sizeof part); /* rows 2 and 3, on their own */
        for (int i = 0; i < 64; i++) often[i % 16] += (mark[i] & DRA_MARK_SKIP) != 0;
    }
    assert_int_equal(often[0], 0);
    for (int t = 1; t < 16; t++) expect_share("a place", often[t], 2000, 4.0 / 15);
}

/* ---- what is forgotten ----------------------------------------------------------------------- */

typedef struct course {
    dra_model     *model;
    dra_weights   *weights;
    dra_device    *device;
    dra_gradients *gradients;
} course;

static void open_course(course *c, const char *const *settings)
{
    dra_error err = {0};
    c->model = make_model(settings);
    expect_ok(dra_weights_draw(c->model, 5, &c->weights, &err), &err);
    expect_ok(check_cpu(NULL, &c->device, &err), &err);
    const dra_gradients_config g = {.model = c->model, .device = c->device};
    expect_ok(dra_gradients_create(&g, &c->gradients, &err), &err);
    expect_ok(dra_gradients_bind(c->gradients, c->weights, &err), &err);
}

static void close_course(course *c)
{
    dra_gradients_destroy(c->gradients);
    dra_weights_destroy(c->weights);
    dra_model_destroy(c->model);
    dra_device_destroy(c->device);
}

static double run(course *c, int64_t n, const int32_t *ids, const int32_t *targets,
                  const int32_t *mark)
{
    const dra_microbatch  q = {.B = 1, .T = n, .ids = ids, .targets = targets, .mark = mark};
    dra_microbatch_result r;
    dra_error             err = {0};
    expect_ok(dra_gradients_run(c->gradients, &q, &r, &err), &err);
    return r.loss;
}

/* The largest gradient of row `row` of a parameter with rows of C numbers. */
static double largest(course *c, const char *name, int64_t row)
{
    const int       i = dra_specs_find(dra_model_params(c->model), name);
    const dra_real *d = i < 0 ? NULL : dra_gradients_of(c->gradients, i);
    double          most = 0;
    if (i < 0) return NAN;
    for (int k = 0; k < 16; k++) most = fmax(most, fabs((double)d[row * 16 + k]));
    return most;
}

/* Token 7 stands at place 4 alone and predicts nothing, so all that the loss knows of it goes
 * through its keys and values. Forgotten, it has no gradient at all, at any depth. */
static void keys_and_values_get_no_gradient(void **state)
{
    static const char *const kinds[][5] = {
        {"tied=false"},
        {"tied=false", "positions=none", "position={\"rotate\": \"rotary\"}"},
        {"tied=false", "positions=none", "position={\"rotate\": \"xpos\"}"},
        {"tied=false", "positions=none", "position={\"distance\": \"t5\"}"},
        {"tied=false", "positions=none", "position={\"distance\": \"dynamic\"}"},
        {"tied=false", "positions=none", "position={\"distance\": \"alibi\"}", "depth=3"},
        {"tied=false", "mixer.mem_kv=2", "memory_tokens=3"},
        {"tied=false", "mixer.talk_before=true", "mixer.topk=3"},
        {"tied=false", "visible=bidirectional"},
    };
    static const int32_t ids[] = {1, 2, 3, 4, 7, 5, 6, 8, 9, 10},
                         targets[] = {2, 3, 4, 7, -1, 6, 8, 9, 10, 11};
    for (size_t k = 0; k < COUNT(kinds); k++) {
        int32_t mark[10] = {DRA_MARK_RESET};
        course  c;
        open_course(&c, kinds[k]);
        run(&c, 10, ids, targets, mark);
        if (!(largest(&c, "embedding", 7) > 1e-6)) fail_msg("%zu: it should have one", k);
        mark[4] = DRA_MARK_SKIP;
        run(&c, 10, ids, targets, mark);
        if (!(largest(&c, "embedding", 7) == 0)) fail_msg("%zu: it has one", k);
        if (!(largest(&c, "embedding", 6) > 1e-6)) fail_msg("%zu: others have none", k);
        const double place = largest(&c, "positions", 4);
        if (!(isnan(place) || place == 0)) fail_msg("%zu: its place has one", k);
        close_course(&c);
    }
}

/* Without positions a forgotten token might as well not be there. */
static void forgotten_is_left_out(void **state)
{
    static const int32_t ids[] = {1, 2, 3, 4, 7, 5, 6}, targets[] = {2, 3, 4, 7, -1, 6, 8};
    static const int32_t some[] = {1, 2, 3, 4, 5, 6}, after[] = {2, 3, 4, 7, 6, 8};
    const int32_t        mark[7] = {[4] = DRA_MARK_SKIP};
    course               c;
    open_course(&c, (const char *const[]){"positions=none", NULL});
    const double with = run(&c, 7, ids, targets, mark), without = run(&c, 6, some, after, NULL);
    if (!(fabs(with - without) <= 1e-5 * without)) fail_msg("%g, without it %g", with, without);
    close_course(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_is_what_a_feed_gives),
        cmocka_unit_test(masked_hides_a_share),
        cmocka_unit_test(schedules_hide_exact_counts),
        cmocka_unit_test(schedules_of_short_rows),
        cmocka_unit_test(draws_do_not_depend_on_cuts),
        cmocka_unit_test(refused_by_name),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(any_token_but_the_first),
        cmocka_unit_test(keys_and_values_get_no_gradient),
        cmocka_unit_test(forgotten_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
