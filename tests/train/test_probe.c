/* Probes: rows checked by hand, oracles that solve every task from what a model sees, splits,
 * scores, and small runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dra/probe.h"

enum { FILLERS = 8, ASK = 8, PLUS = 9, FIRST = 10, T_MOST = 1100 };

typedef struct rows {
    int32_t ids[T_MOST], targets[T_MOST];
} rows;

static dra_probe complete(dra_probe p)
{
    dra_error err = {0};
    if (dra_probe_complete(&p, &err) != DRA_OK) fail_msg("%s", err.text);
    assert_true(p.length <= T_MOST);
    return p;
}

static void make(const dra_probe *p, dra_split split, int64_t number, rows *out)
{
    dra_error err = {0};
    if (dra_probe_row(p, split, number, out->ids, out->targets, &err) != DRA_OK)
        fail_msg("%s", err.text);
}

/* ---- oracles: what comes after ids[t], by ids[0] to ids[t] alone; -1: not asked -------------- */

static int64_t find(const int32_t *x, int64_t n, int32_t token)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] == token) return i;
    return -1;
}

static int32_t solve_copy(const dra_probe *p, const int32_t *ids, int64_t t)
{
    const int64_t ask = find(ids, t + 1, ASK);
    return ask < 0 ? -1 : ids[t - ask];
}

static int32_t solve_recall(const dra_probe *p, const int32_t *ids, int64_t t)
{
    if (t < p->length - p->queries) return -1;
    for (int64_t i = 0; i < 2 * p->pairs; i += 2)
        if (ids[i] == ids[t]) return ids[i + 1];
    return -2;
}

static int64_t number(const int32_t *ids, int64_t digits)
{
    int64_t x = 0;
    for (int64_t i = 0; i < digits; i++) x = 10 * x + ids[i] - FIRST;
    return x;
}

static int32_t solve_addition(const dra_probe *p, const int32_t *ids, int64_t t)
{
    const int64_t ask = find(ids, t + 1, ASK);
    if (ask < 0) return -1;
    int64_t sum = number(ids, p->digits) + number(ids + p->digits + 1, p->digits);
    for (int64_t i = t - ask; i < p->digits; i++) sum /= 10;
    return FIRST + (int32_t)(sum % 10);
}

/* With a stack. That a bracket closes is not known before it is read, so the row tells where. */
static int32_t solve_parens(const dra_probe *p, const int32_t *ids, int64_t t)
{
    int32_t stack[T_MOST] = {0};
    int64_t open = 0;
    for (int64_t i = 0; i <= t; i++) {
        if (ids[i] < FIRST + p->kinds)
            stack[open++] = ids[i] + (int32_t)p->kinds;
        else if (open-- == 0 || stack[open] != ids[i])
            return -2; /* no word of matched brackets */
    }
    const bool last = t + 1 == p->length, closes = !last && ids[t + 1] >= FIRST + p->kinds;
    return closes || (last && open == 1) ? stack[open - 1] : -1;
}

static int32_t solve_needle(const dra_probe *p, const int32_t *ids, int64_t t)
{
    const int64_t fact = find(ids, t + 1, ASK), asked = p->length - p->symbols - 1;
    if (t <= asked) return -1;
    return ids[asked] == ASK && ids[asked + 1] == ids[fact + 1] ? ids[fact + 1 + t - asked] : -2;
}

/* Where a question stands is not known before, so the row tells. */
static int32_t solve_mqar(const dra_probe *p, const rows *r, int64_t t)
{
    if (t < 2 * p->pairs || r->targets[t] < 0) return -1;
    for (int64_t i = 0; i < 2 * p->pairs; i += 2)
        if (r->ids[i] == r->ids[t]) return r->ids[i + 1];
    return -2;
}

static int32_t solve_update(const dra_probe *p, const int32_t *ids, int64_t t)
{
    int32_t value = -2;
    if (t < p->length - p->queries) return -1;
    for (int64_t i = 0; i < 2 * p->pairs * p->kinds; i += 2)
        if (ids[i] == ids[t]) value = ids[i + 1];
    return value;
}

static int32_t solve_select(const dra_probe *p, const int32_t *ids, int64_t t)
{
    const int64_t ask = find(ids, t + 1, ASK);
    int64_t       skip = t - ask;
    for (int64_t i = 0; ask >= 0 && i < ask; i++)
        if (ids[i] >= FIRST && skip-- == 0) return ids[i];
    return -1;
}

static int32_t solve_parity(const dra_probe *p, const int32_t *ids, int64_t t)
{
    int64_t ones = 0;
    for (int64_t i = 0; i <= t; i++) ones += ids[i] == FIRST + 1;
    return FIRST + (int32_t)(ones % 2);
}

static int32_t solve_modular(const dra_probe *p, const int32_t *ids, int64_t t)
{
    int64_t x = 0;
    for (int64_t i = 0; i <= t; i++) {
        const int64_t token = ids[i] - FIRST;
        x = token < p->kinds ? x + token : x * (token - p->kinds + 1);
        x %= p->kinds;
    }
    return FIRST + (int32_t)x;
}

/* Permutations in the order of a dictionary, found by listing all of them. */
static void nth_permutation(int32_t number, int n, int *x)
{
    for (int64_t code = 0; number >= 0; code++) { /* all words of n letters, in order */
        int64_t  left = code;
        unsigned seen = 0;
        for (int i = n - 1; i >= 0; i--, left /= n) seen |= 1u << (x[i] = (int)(left % n));
        number -= seen == (1u << n) - 1;
    }
}

static int32_t solve_permute(const dra_probe *p, const int32_t *ids, int64_t t)
{
    const int n = (int)p->kinds;
    int       state[8] = {0, 1, 2, 3, 4, 5, 6, 7}, x[8], all = 1;
    for (int64_t i = 0; i <= t; i++) {
        nth_permutation(ids[i] - FIRST, n, x);
        for (int k = 0; k < n; k++) state[k] = x[state[k]];
    }
    for (int k = 2; k <= n; k++) all *= k;
    for (int32_t number = 0; number < all; number++) {
        nth_permutation(number, n, x);
        if (memcmp(x, state, (size_t)n * sizeof *x) == 0) return FIRST + number;
    }
    return -2;
}

typedef int32_t (*solver)(const dra_probe *p, const int32_t *ids, int64_t t);

static const struct {
    const char *name;
    solver      solve;
    dra_probe   probe;
    int64_t     targets; /* of a row; 0: it depends */
} cases[] = {
    {"copy", solve_copy, {.task = "copy"}, 32},
    {"copy with filler", solve_copy, {.task = "copy", .symbols = 5, .length = 33}, 5},
    {"copy, odd length", solve_copy, {.task = "copy", .length = 9, .vocab = 12}, 4},
    {"recall", solve_recall, {.task = "recall"}, 16},
    {"recall, no filler", solve_recall, {.task = "recall", .pairs = 5, .length = 15}, 5},
    {"recall, few queries", solve_recall, {.task = "recall", .pairs = 9, .queries = 2}, 2},
    {"recall, all keys", solve_recall, {.task = "recall", .pairs = 123, .length = 400}, 123},
    {"addition", solve_addition, {.task = "addition"}, 4},
    {"addition, one digit", solve_addition, {.task = "addition", .digits = 1}, 2},
    {"addition, filler", solve_addition, {.task = "addition", .digits = 12, .length = 99}, 13},
    {"parens", solve_parens, {.task = "parens"}, 32},
    {"parens, 4 kinds", solve_parens, {.task = "parens", .kinds = 4, .length = 101}, 51},
    {"needle", solve_needle, {.task = "needle", .depth = -1}, 4},
    {"needle, first", solve_needle, {.task = "needle", .length = 64, .symbols = 1}, 1},
    {"needle, last", solve_needle, {.task = "needle", .depth = 1, .length = 40}, 4},
    {"needle alone", solve_needle, {.task = "needle", .length = 11}, 4},
    {"needle in a text",
     solve_needle,
     {.task = "needle", .depth = -1, .text = "A story.", .bytes = 8},
     4},
    {"recall, many keys", solve_recall, {.task = "recall", .pairs = 300, .length = 1000}, 300},
    {"mqar", NULL, {.task = "mqar"}, 16},
    {"mqar, full", NULL, {.task = "mqar", .pairs = 8, .length = 32, .vocab = 64}, 8},
    {"mqar, as published", NULL, {.task = "mqar", .pairs = 64, .length = 512}, 64},
    {"update", solve_update, {.task = "update"}, 16},
    {"update, thrice", solve_update, {.task = "update", .pairs = 5, .kinds = 3, .queries = 2}, 2},
    {"select", solve_select, {.task = "select"}, 16},
    {"select, no filler", solve_select, {.task = "select", .symbols = 5, .length = 10}, 5},
    {"parity", solve_parity, {.task = "parity"}, 40},
    {"modular", solve_modular, {.task = "modular"}, 40},
    {"modular, 7", solve_modular, {.task = "modular", .kinds = 7, .length = 9}, 9},
    {"permute 3", solve_permute, {.task = "permute", .kinds = 3, .length = 20}, 20},
    {"permute 4", solve_permute, {.task = "permute", .kinds = 4, .length = 8}, 8},
};

static bool has_many_answers(const char *task)
{
    static const char *const all[] = {"recall", "mqar", "update", "parity", "modular", "permute"};
    for (size_t i = 0; i < COUNT(all); i++)
        if (strcmp(all[i], task) == 0) return true;
    return false;
}

static void oracles_solve_everything(void **unused)
{
    rows    r;
    int32_t found[T_MOST];
    for (size_t i = 0; i < COUNT(cases); i++) {
        const dra_probe p = complete(cases[i].probe);
        dra_probe_score score = {0};
        for (int64_t n = 0; n < 100; n++) {
            int64_t asked = 0;
            make(&p, n % 2 ? DRA_SPLIT_TEST : DRA_SPLIT_TRAIN, n, &r);
            for (int64_t t = 0; t < p.length; t++) {
                found[t] = cases[i].solve ? cases[i].solve(&p, r.ids, t) : solve_mqar(&p, &r, t);
                if (found[t] != r.targets[t])
                    fail_msg("%s, row %lld, token %lld: target %d, the oracle says %d",
                             cases[i].name, (long long)n, (long long)t, r.targets[t], found[t]);
                if (r.ids[t] < 0 || r.ids[t] >= p.vocab || r.targets[t] >= p.vocab)
                    fail_msg("%s: token %d of %lld", cases[i].name, r.ids[t], (long long)p.vocab);
                asked += found[t] >= 0;
            }
            assert_int_equal(asked, cases[i].targets);
            dra_probe_score_add(&p, 1, r.targets, found, &score);
        }
        assert_int_equal(score.right, score.answers);
        assert_int_equal(score.answers, has_many_answers(p.task) ? 100 * cases[i].targets : 100);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void expect_row(dra_probe p, const int32_t *ids, const int32_t *targets)
{
    rows r;
    p = complete(p);
    make(&p, DRA_SPLIT_TRAIN, 3, &r);
    for (int64_t t = 0; t < p.length; t++)
        if (r.ids[t] != ids[t] || r.targets[t] != targets[t])
            fail_msg("%s, token %lld: %d with target %d, expected %d, %d", p.task, (long long)t,
                     r.ids[t], r.targets[t], ids[t], targets[t]);
}
#define LIST(...) ((const int32_t[]){__VA_ARGS__})

/* Row 3 of the train split of seed 0. */
static void rows_checked_by_hand(void **unused)
{
    /* s: 7, 31, 15 of the alphabet */
    expect_row((dra_probe){.task = "copy", .length = 8, .symbols = 3},
               LIST(17, 41, 25, 2, 7, ASK, 17, 41), LIST(-1, -1, -1, -1, -1, 17, 41, 25));
    expect_row((dra_probe){.task = "recall", .pairs = 2, .length = 8},
               LIST(19, 137, 57, 85, 6, 1, 19, 57), LIST(-1, -1, -1, -1, -1, -1, 137, 85));
    /* 67 + 11 = 078 */
    expect_row((dra_probe){.task = "addition", .digits = 2, .length = 10},
               LIST(16, 17, PLUS, 11, 11, 3, 3, ASK, 10, 17),
               LIST(-1, -1, -1, -1, -1, -1, -1, 10, 17, 18));
    /* [] ( ( [] ) ) */
    expect_row((dra_probe){.task = "parens", .length = 8}, LIST(11, 13, 10, 10, 11, 13, 12, 12),
               LIST(13, -1, -1, -1, 13, 12, 12, -1));
    expect_row((dra_probe){.task = "needle", .length = 12, .symbols = 2, .depth = 0.5},
               LIST(0, 5, 7, ASK, 14, 43, 51, 6, 5, ASK, 14, 43),
               LIST(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 43, 51));
}

/* Row 3 of the train split, with answers computed by hand. */
static void rows_of_further_tasks(void **unused)
{
    expect_row((dra_probe){.task = "parity", .length = 6}, LIST(10, 10, 11, 11, 10, 10),
               LIST(10, 10, 11, 10, 10, 10));
    /* 0 * 2, + 4, * 3, * 1, * 3, + 1 modulo 5 */
    expect_row((dra_probe){.task = "modular", .length = 6}, LIST(16, 14, 17, 15, 17, 11),
               LIST(10, 14, 12, 12, 11, 12));
    /* 210 twice is 012, then 021, then 012 */
    expect_row((dra_probe){.task = "permute", .kinds = 3, .length = 4}, LIST(15, 15, 11, 10),
               LIST(15, 10, 11, 11));
    expect_row((dra_probe){.task = "select", .symbols = 2, .length = 8},
               LIST(19, 3, 0, 6, 7, 17, ASK, 19), LIST(-1, -1, -1, -1, -1, -1, 19, 17));
    expect_row((dra_probe){.task = "update", .pairs = 2, .length = 11},
               LIST(26, 89, 72, 137, 72, 124, 26, 113, 6, 72, 26),
               LIST(-1, -1, -1, -1, -1, -1, -1, -1, -1, 124, 113));
    expect_row((dra_probe){.task = "mqar", .pairs = 2, .length = 10, .vocab = 30},
               LIST(13, 23, 16, 29, 16, 26, 0, 17, 13, 18),
               LIST(-1, -1, -1, -1, 29, -1, -1, -1, 23, -1));
    /* around the fact: cabcabcab, a is token 74 + 97 */
    expect_row((dra_probe){.task = "needle", .length = 14, .symbols = 1, .text = "abc", .bytes = 3},
               LIST(ASK, 32, 58, 173, 171, 172, 173, 171, 172, 173, 171, 172, ASK, 32),
               LIST(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 58));
}

static void rows_depend_on_their_number_alone(void **unused)
{
    rows a, b;
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_probe    p = complete(cases[i].probe);
        const size_t bytes = (size_t)p.length * sizeof(int32_t);
        make(&p, DRA_SPLIT_TRAIN, (int64_t)1 << 40, &a);
        make(&p, DRA_SPLIT_TRAIN, 0, &b);
        if (p.length > 5) assert_memory_not_equal(a.ids, b.ids, bytes);
        make(&p, DRA_SPLIT_TRAIN, (int64_t)1 << 40, &b);
        assert_memory_equal(a.ids, b.ids, bytes);
        assert_memory_equal(a.targets, b.targets, bytes);
        p.seed = 1;
        make(&p, DRA_SPLIT_TRAIN, (int64_t)1 << 40, &b);
        if (p.length > 5) assert_memory_not_equal(a.ids, b.ids, bytes);
    }
}

static void depth_places_the_fact(void **unused)
{
    rows r;
    for (int64_t k = 0; k <= 10; k++) { /* 101 - 11 tokens of filler */
        const dra_probe p = complete(
            (dra_probe){.task = "needle", .length = 101, .depth = (double)k / 10});
        make(&p, DRA_SPLIT_TEST, k, &r);
        assert_int_equal(find(r.ids, p.length, ASK), 9 * k);
    }
}

/* ---- splits ---------------------------------------------------------------------------------- */

/* What a row says without its filler, as text. */
static void content(const dra_probe *p, dra_split split, int64_t n, char *text, size_t size)
{
    rows   r;
    size_t used = 0;
    make(p, split, n, &r);
    for (int64_t t = 0; t < p->length; t++)
        if (r.ids[t] >= FILLERS)
            used += (size_t)snprintf(text + used, size - used, "%d ", r.ids[t]);
    assert_true(used < size);
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

/* Few examples are possible, so that both splits have seen them all many times. */
static void splits_share_no_example(void **unused)
{
    enum { N = 1000, TEXT = 100 };
    static char     train[N][TEXT];
    const dra_probe small[] = {{.task = "copy", .symbols = 2, .length = 9, .vocab = 18},
                               {.task = "recall", .pairs = 2, .length = 12, .vocab = 18},
                               {.task = "addition", .digits = 1},
                               {.task = "parens", .length = 8},
                               {.task = "needle", .symbols = 1, .length = 12, .depth = -1}};
    for (size_t i = 0; i < COUNT(small); i++) {
        dra_probe p = complete(small[i]);
        char      text[TEXT];
        for (int64_t n = 0; n < N; n++) content(&p, DRA_SPLIT_TRAIN, n, train[n], TEXT);
        qsort(train, N, TEXT, by_text);
        for (int64_t n = 0; n < N; n++) {
            p.seed = (uint64_t)n % 3; /* also of another seed */
            content(&p, DRA_SPLIT_TEST, n, text, sizeof text);
            if (bsearch(text, train, N, TEXT, by_text))
                fail_msg("%s: %s is in both splits", p.task, text);
        }
    }
}

static void too_few_examples_are_an_error(void **unused)
{
    const dra_probe p = complete((dra_probe){.task = "parens", .kinds = 1, .length = 2});
    rows            r;
    int             bad = 0;
    for (int split = 0; split < 2; split++) { /* "()" is all there is */
        dra_error err = {0};
        if (dra_probe_row(&p, (dra_split)split, 0, r.ids, r.targets, &err) == DRA_OK) continue;
        bad++;
        assert_non_null(strstr(err.text, "probe parens: no example for the "));
    }
    assert_int_equal(bad, 1);
}

/* ---- scores and options ---------------------------------------------------------------------- */

static void scores_count_answers(void **unused)
{
    const dra_probe copy = complete((dra_probe){.task = "copy", .length = 4});
    const dra_probe recall = complete((dra_probe){.task = "recall", .pairs = 1, .length = 4});
    const int32_t   targets[] = {-1, -1, 5, 6, -1, -1, 7, 8}, found[] = {0, 0, 5, 6, 0, 0, 7, 9};
    dra_probe_score a = {0}, b = {0};
    dra_probe_score_add(&copy, 2, targets, found, &a);
    dra_probe_score_add(&recall, 2, targets, found, &b);
    assert_int_equal(a.answers, 2);
    assert_int_equal(a.right, 1);
    assert_int_equal(b.answers, 4);
    assert_int_equal(b.right, 3);
}

static void refuses_what_cannot_be(void **unused)
{
    static const struct {
        dra_probe   p;
        const char *text;
    } bad[] = {
        {{.task = "recal"}, "probe: no such task: 'recal'; did you mean recall?"},
        {{0}, "probe: no such task: ''; expected copy, recall or another task"},
        {{.task = "copy", .pairs = 2}, "probe copy: has no option pairs"},
        {{.task = "recall", .length = 47}, "probe recall: length is 47, expected 48 to 1048576"},
        {{.task = "recall", .pairs = 9000, .length = 50000},
         "probe recall: needs 18010 tokens, expected at most 16384"},
        {{.task = "permute", .kinds = 7},
         "probe permute: needs 16385 tokens, expected at most 16384"},
        {{.task = "mqar", .pairs = 8, .length = 31},
         "probe mqar: length is 31, expected 32 to 1048576"},
        {{.task = "parity", .kinds = 2}, "probe parity: has no option kinds"},
        {{.task = "copy", .text = "x", .bytes = 1}, "probe copy: has no option text"},
        {{.task = "needle", .text = ""}, "probe needle: the text is empty"},
        {{.task = "recall", .queries = 17}, "probe recall: queries is 17, expected 1 to 16"},
        {{.task = "addition", .vocab = 19}, "probe addition: vocab is 19, expected 20 to 16384"},
        {{.task = "addition", .digits = -1}, "probe addition: digits is -1, expected 0 to 1048576"},
        {{.task = "copy", .length = 1}, "probe copy: symbols is 0, expected 1 to 1048576"},
        {{.task = "needle", .depth = 1.5}, "probe needle: depth is 1.5, expected at most 1"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        dra_probe p = bad[i].p;
        dra_error err = {0};
        assert_int_equal(dra_probe_complete(&p, &err), DRA_ERR_VALUE);
        assert_string_equal(err.text, bad[i].text);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

typedef struct trial {
    dra_probe        probe;
    dra_train_config train;
    double           until;
    int              threads;
    int64_t          stop, vocab; /* after this step; of the model, 0: the probe's */
    int              lengths;
    int64_t          length[4];
    int              steps, tests;
} trial;

static bool count(void *user, const dra_probe_result *r)
{
    trial *t = user;
    t->steps++;
    t->tests += r->tested;
    return r->step != t->stop;
}

static dra_status try_run(trial *t, const char *memory, dra_probe_result *out, dra_error *err)
{
    const dra_probe        p = complete(t->probe);
    const dra_mixer_config m = {.shift = DRA_SHIFT_HALF, .a = {.memory = memory}};
    const dra_model_config c = {
        .vocab = t->vocab ? t->vocab : p.vocab, .dim = 32, .depth = 1, .heads = 2, .mixer = &m};
    dra_model   *model = NULL;
    dra_weights *weights = NULL;
    assert_int_equal(dra_model_create(&c, &model, err), DRA_OK);
    assert_int_equal(dra_weights_draw(model, 0, &weights, err), DRA_OK);
    const dra_probe_config run = {
        .probe = &t->probe,
        .train = &t->train,
        .device = check_device(t->threads ? t->threads : 1, dra_device_level_at(0)),
        .model = model,
        .weights = weights,
        .tests = 20,
        .until = t->until,
        .lengths = t->lengths,
        .length = t->length};
    const dra_status st = dra_probe_run(&run, count, t, out, err);
    dra_weights_destroy(weights);
    dra_model_destroy(model);
    return st;
}

static dra_probe_result run_trial(trial *t, const char *memory)
{
    dra_probe_result r;
    dra_error        err = {0};
    if (try_run(t, memory, &r, &err) != DRA_OK) fail_msg("%s", err.text);
    return r;
}

/* Questions of mqar stand where Zoology's do: far more of them soon after the pairs, none twice. */
static void questions_have_their_gaps(void **unused)
{
    enum { ROWS = 400, PLACES = 48 };
    const dra_probe p = complete((dra_probe){.task = "mqar", .pairs = 1, .length = 2 + 2 * PLACES});
    rows            r;
    double          sum = 0, want[PLACES], found[PLACES] = {0};
    for (int i = 0; i < PLACES; i++) sum += want[i] = pow(i + 1, 0.01 - 1);
    for (int64_t n = 0; n < ROWS; n++) {
        make(&p, DRA_SPLIT_TRAIN, n, &r);
        for (int64_t t = 0; t < p.length; t++) {
            if (r.targets[t] < 0) continue;
            assert_int_equal(t % 2, 0);
            found[t / 2 - 1]++;
        }
    }
    for (int i = 0; i < 4; i++) { /* within four standard deviations */
        const double share = want[i] / sum, sd = sqrt(share * (1 - share) / ROWS);
        if (fabs(found[i] / ROWS - share) > 4 * sd)
            fail_msg("place %d: %g of the questions, expected %g", i, found[i] / ROWS, share);
    }
}

static const trial easy = {.probe = {.task = "copy", .symbols = 2, .vocab = 18},
                           .train = {.steps = 400, .batch = 16, .lr = 0.01, .eval_every = 20},
                           .until = 0.95};

static void models_learn_and_stop(void **unused)
{
    trial                  t = easy;
    const dra_probe_result r = run_trial(&t, "append");
    assert_true(r.reached);
    assert_true(r.accuracy >= 0.95 && r.step < 400 && r.step % 20 == 0);
    assert_int_equal(t.steps, r.step);
    assert_int_equal(t.tests, r.step / 20);
    assert_int_equal(r.tests, 32); /* whole batches */
    assert_int_equal(r.answers, 32);
    assert_int_equal(r.tokens, r.step * 16 * 4);
    assert_int_equal(r.state_bytes % sizeof(dra_real), 0);
    assert_true(r.state_bytes >= 4 * 64 * sizeof(dra_real)); /* keys and values of 4 tokens */
}

static int64_t sum_counts(const dra_probe_counts *c, int n, int64_t *right)
{
    int64_t asked = 0;
    *right = 0;
    for (int i = 0; i < n; i++) asked += c[i].asked, *right += c[i].right;
    return asked;
}

/* The row's own length gives the test again; parts add up to the whole. */
static void other_lengths_are_tested(void **unused)
{
    trial                  t = {.probe = {.task = "recall", .pairs = 4, .length = 16, .vocab = 26},
                                .train = {.steps = 40, .batch = 16, .lr = 0.01, .eval_every = -1},
                                .lengths = 3,
                                .length = {16, 12, 1100}};
    const dra_probe_result r = run_trial(&t, "append");
    assert_int_equal(r.lengths, 3);
    assert_int_equal(r.test[0].length, 16);
    assert_true(r.test[0].accuracy == r.accuracy && r.test[0].loss == r.test_loss);
    assert_memory_equal(&r.test[0].parts, &r.parts, sizeof r.parts);
    for (int i = 0; i < 3; i++) {
        const dra_probe_test *x = &r.test[i];
        int64_t               right;
        assert_int_equal(sum_counts(x->parts.place, DRA_PROBE_PLACES, &right), 4 * x->tests);
        assert_true(right == (int64_t)round(x->accuracy * (double)x->answers));
        assert_int_equal(sum_counts(x->parts.age, DRA_PROBE_AGES, &right), 4 * x->tests);
        assert_true(right == (int64_t)round(x->accuracy * (double)x->answers));
        assert_int_equal(sum_counts(x->parts.depth, DRA_PROBE_DEPTHS, &right), 4 * x->tests);
        assert_int_equal(x->parts.place[0].asked, x->tests);
    }
    assert_int_equal(r.test[2].parts.age[10].asked, 4 * r.test[2].tests); /* 1024 and more ago */
    t.length[1] = 11;
    dra_probe_result out;
    dra_error        err = {0};
    assert_int_equal(try_run(&t, "append", &out, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "probe recall: length is 11, expected 12 to 1048576");
}

static void runs_are_the_same_on_any_threads(void **unused)
{
    static const char *const memories[] = {"append", "gru", "moment", "delta", "slots"};
    for (size_t i = 0; i < COUNT(memories); i++) {
        trial t = easy;
        t.train.steps = 3;
        t.train.eval_every = -1;
        const dra_probe_result x = run_trial(&t, memories[i]);
        assert_int_equal(t.tests, 1);
        assert_true(isfinite(x.test_loss));
        for (t.threads = 2; t.threads <= 7; t.threads += 5) {
            const dra_probe_result y = run_trial(&t, memories[i]);
            assert_true(x.loss == y.loss && x.test_loss == y.test_loss);
            assert_true(x.accuracy == y.accuracy);
        }
    }
}

/* Rows longer than what a test reads at a time, and training in chunks: the same losses but for
 * rounding. */
static void chunks_change_nothing(void **unused)
{
    const double tol = sizeof(dra_real) == 4 ? 1e-4 : 1e-10;
    trial        a = {.probe = {.task = "needle", .length = 1100},
                      .train = {.steps = 2, .batch = 2, .eval_every = -1}};
    trial        b = a;
    b.train.chunk = 300;
    const dra_probe_result x = run_trial(&a, "moment"), y = run_trial(&b, "moment");
    assert_true(fabs(x.loss - y.loss) <= tol * x.loss);
    assert_true(fabs(x.test_loss - y.test_loss) <= tol * x.test_loss);
}

static void stops_when_told(void **unused)
{
    trial t = easy;
    t.stop = 5;
    const dra_probe_result r = run_trial(&t, "delta");
    assert_int_equal(r.step, 5);
    assert_true(r.tested && !r.reached && isfinite(r.accuracy));
}

static void refuses_a_small_model(void **unused)
{
    trial            t = easy;
    dra_probe_result r;
    dra_error        err = {0};
    t.vocab = 12;
    assert_int_equal(try_run(&t, "append", &r, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "probe copy: needs 18 tokens, the model has 12");
}

static void chance_is_that_of_random_tokens(void **state)
{
    static const struct {
        dra_probe p;
        double    chance;
    } expected[] = {{{.task = "copy", .symbols = 2, .vocab = FIRST + 5}, 1.0 / 25},
                    {{.task = "recall", .pairs = 4, .vocab = FIRST + 41}, 1.0 / 20},
                    {{.task = "addition", .digits = 2}, 1.0 / 1000},
                    {{.task = "parens", .length = 6, .kinds = 3}, 1.0 / 27},
                    {{.task = "parens", .length = 5, .kinds = 2}, 1.0 / 8},
                    {{.task = "needle", .symbols = 2, .vocab = FIRST + 8}, 1.0 / 16},
                    {{.task = "parity"}, 1.0 / 2},
                    {{.task = "modular"}, 1.0 / 5},
                    {{.task = "permute"}, 1.0 / 120},
                    {{.task = "mqar", .vocab = 42}, 1.0 / 16},
                    {{.task = "update", .vocab = 42}, 1.0 / 16},
                    {{.task = "select", .symbols = 2, .vocab = FIRST + 4}, 1.0 / 16}};
    for (size_t i = 0; i < COUNT(expected); i++) {
        const dra_probe p = complete(expected[i].p);
        assert_true(fabs(dra_probe_chance(&p) - expected[i].chance) < 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracles_solve_everything),
        cmocka_unit_test(rows_checked_by_hand),
        cmocka_unit_test(rows_of_further_tasks),
        cmocka_unit_test(rows_depend_on_their_number_alone),
        cmocka_unit_test(depth_places_the_fact),
        cmocka_unit_test(splits_share_no_example),
        cmocka_unit_test(too_few_examples_are_an_error),
        cmocka_unit_test(scores_count_answers),
        cmocka_unit_test(chance_is_that_of_random_tokens),
        cmocka_unit_test(questions_have_their_gaps),
        cmocka_unit_test(other_lengths_are_tested),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(models_learn_and_stop),
        cmocka_unit_test(runs_are_the_same_on_any_threads),
        cmocka_unit_test(chunks_change_nothing),
        cmocka_unit_test(stops_when_told),
        cmocka_unit_test(refuses_a_small_model),
    };
    return check_main("probe", NULL, 0, tests, COUNT(tests));
}
