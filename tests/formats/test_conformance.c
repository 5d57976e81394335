/* The column of dra in docs/conformance.md: whichever way a text is read, a family says the same
 * about it. Each relation is a pitfall that engines have had (G6, G10, M5, M6 of that list). */
#include "drawn.h"

#ifdef DRA_REAL_DOUBLE
#define TOL 1e-10
#else
#define TOL (check_cuda() ? 1e-3 : 2e-4) /* keys of length 1 amplify what is rounded */
#endif

enum { LONG = 70, FIRST = 33, MORE = 5 };

static const struct {
    const char *name;
    bool        exact; /* the same bits, however a text is cut */
} families[] = {{"llama", true},         {"qwen3_moe", true},         {"lfm2", true},
                {"qwen3_5_text", false}, {"qwen3_next", false},       {"olmo_hybrid", false},
                {"mamba2", false},       {"granitemoehybrid", false}, {"gated_deltanet", false},
                {"delta_net", false}};

enum { FAMILIES = sizeof families / sizeof *families };

typedef struct reading {
    loaded    m;
    size_t    i;     /* of the family */
    int64_t   words; /* of a row of logits */
    int32_t   ids[2 * LONG + MORE];
    dra_real *whole; /* logits of the first LONG */
} reading;

static reading open_reading(size_t i)
{
    reading r = {.i = i};
    char    path[200];
    snprintf(path, sizeof path, "tests/data/llama/%s", families[i].name);
    r.m = open_model(path);
    r.words = dra_model_config_of(r.m.model)->vocab;
    for (int64_t k = 0; k < 2 * LONG + MORE; k++)
        r.ids[k] = (int32_t)((7 * k * k + 3 * k) % r.words);
    r.whole = calloc((size_t)(LONG * r.words), sizeof *r.whole);
    assert_non_null(r.whole);
    dra_states *s = open_states(&r.m, 1);
    read_rows(&r.m, s, r.ids, 1, LONG, LONG, r.whole);
    dra_states_destroy(s);
    return r;
}

static void close_reading(reading *r)
{
    free(r->whole);
    load_free(&r->m);
}

/* Logits of tokens, in parts, from a state; to be freed. */
static dra_real *read_some(const reading *r, dra_states *s, const int32_t *ids, int64_t n,
                           int64_t part)
{
    dra_real *y = calloc((size_t)(n * r->words), sizeof *y);
    assert_non_null(y);
    read_rows(&r->m, s, ids, 1, n, part, y);
    return y;
}

static void expect_whole(const reading *r, const char *how, const dra_real *y, int64_t from,
                         int64_t n, bool exact)
{
    const dra_real *want = r->whole + from * r->words;
    char            what[80];
    snprintf(what, sizeof what, "%s, %s", families[r->i].name, how);
    if (exact && families[r->i].exact && !check_cuda())
        assert_memory_equal(y, want, (size_t)(n * r->words) * sizeof *y);
    expect_near(what, (size_t)(n * r->words), y, want, TOL);
}

static void whole_is_chunks_is_steps(void **state)
{
    static const int64_t parts[] = {FIRST, 16, 1};
    for (size_t i = 0; i < FAMILIES; i++) {
        reading r = open_reading(i);
        for (size_t k = 0; k < COUNT(parts); k++) {
            dra_states *s = open_states(&r.m, 1);
            dra_real   *y = read_some(&r, s, r.ids, LONG, parts[k]);
            expect_whole(&r, parts[k] == 1 ? "steps" : "chunks", y, 0, LONG, true);
            dra_states_destroy(s);
            free(y);
        }
        close_reading(&r);
    }
}

static void whole_is_resumed(void **state)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        reading        r = open_reading(i);
        const uint64_t print = dra_model_fingerprint(r.m.model);
        dra_states    *s = open_states(&r.m, 1), *later;
        dra_error      err = {0};
        free(read_some(&r, s, r.ids, FIRST, FIRST));
        expect_ok(dra_states_save(s, print, in_folder("state"), &err), &err);
        expect_ok(dra_states_load(check_device(2, dra_device_level_at(0)),
                                  dra_model_state(r.m.model), print, in_folder("state"), &later,
                                  &err),
                  &err);
        dra_real *y = read_some(&r, later, r.ids + FIRST, LONG - FIRST, LONG);
        expect_whole(&r, "resumed", y, FIRST, LONG - FIRST, true);
        dra_states_destroy(s);
        dra_states_destroy(later);
        free(y);
        close_reading(&r);
    }
}

/* What was read after the fork is as if it had not been. */
static void whole_is_rolled_back(void **state)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        reading     r = open_reading(i);
        dra_states *s = open_states(&r.m, 1), *kept;
        dra_error   err = {0};
        free(read_some(&r, s, r.ids, FIRST, FIRST));
        expect_ok(dra_states_fork(s, &kept, &err), &err);
        free(read_some(&r, s, r.ids + LONG, MORE, 2));
        dra_real *y = read_some(&r, kept, r.ids + FIRST, LONG - FIRST, LONG);
        expect_whole(&r, "rolled back", y, FIRST, LONG - FIRST, true);
        dra_states_destroy(s);
        dra_states_destroy(kept);
        free(y);
        close_reading(&r);
    }
}

/* Rows with marks, n tokens each; to be freed. */
static dra_real *read_marked(const reading *r, dra_states *s, int64_t B, int64_t n,
                             const int32_t *ids, const int32_t *mark)
{
    const dra_view  view = {.model = r->m.model, .logits = true};
    const dra_named in = {"ids", ids, (size_t)(B * n) * sizeof *ids};
    dra_error       err = {0};
    dra_reader     *reader = open_reader(&r->m, &view);
    const size_t    bytes = (size_t)(B * n * r->words) * sizeof(dra_real);
    dra_real       *y = malloc(bytes);
    assert_non_null(y);
    expect_ok(dra_reader_read(reader, s, n, mark, 1, &in, &err), &err);
    memcpy(y, dra_reader_result(reader, "logits"), bytes);
    dra_reader_destroy(reader);
    return y;
}

/* Two texts in one row, the second from a reset on: each as alone. */
static void packed_is_alone(void **state)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        reading     r = open_reading(i);
        int32_t     ids[LONG], mark[LONG] = {[LONG - FIRST] = DRA_MARK_RESET};
        dra_states *s = open_states(&r.m, 1);
        memcpy(ids, r.ids + LONG, (LONG - FIRST) * sizeof *ids);
        memcpy(ids + LONG - FIRST, r.ids, FIRST * sizeof *ids);
        dra_real *y = read_marked(&r, s, 1, LONG, ids, mark);
        expect_whole(&r, "packed", y + (LONG - FIRST) * r.words, 0, FIRST, false);
        free(y);
        y = read_some(&r, s, r.ids + FIRST, LONG - FIRST, LONG); /* the state, too */
        expect_whole(&r, "packed, then on", y, FIRST, LONG - FIRST, false);
        dra_states_destroy(s);
        free(y);
        close_reading(&r);
    }
}

/* A row with pads before its text and one with pads after it, then more of both: as alone. */
static void padded_is_alone(void **state)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        reading     r = open_reading(i);
        int32_t     ids[2 * LONG] = {0}, mark[2 * LONG], next[2 * (LONG - FIRST)];
        dra_states *s = open_states(&r.m, 2);
        for (int64_t t = 0; t < 2 * LONG; t++) mark[t] = DRA_MARK_PAD;
        for (int64_t t = 0; t < FIRST; t++) {
            const int64_t right = t, left = 2 * LONG - FIRST + t;
            ids[right] = ids[left] = r.ids[t];
            mark[right] = mark[left] = 0;
        }
        dra_real *y = read_marked(&r, s, 2, LONG, ids, mark);
        expect_whole(&r, "padded after", y, 0, FIRST, false);
        expect_whole(&r, "padded before", y + (2 * LONG - FIRST) * r.words, 0, FIRST, false);
        free(y);
        for (int64_t b = 0; b < 2; b++)
            memcpy(next + b * (LONG - FIRST), r.ids + FIRST, (LONG - FIRST) * sizeof *next);
        y = read_marked(&r, s, 2, LONG - FIRST, next, NULL);
        expect_whole(&r, "padded after, then on", y, FIRST, LONG - FIRST, false);
        expect_whole(&r, "padded before, then on", y + (LONG - FIRST) * r.words, FIRST,
                     LONG - FIRST, false);
        dra_states_destroy(s);
        free(y);
        close_reading(&r);
    }
}

static int remove_all(void **state)
{
    fixture_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_is_chunks_is_steps),
        cmocka_unit_test_setup_teardown(whole_is_resumed, folder_make, remove_all),
        cmocka_unit_test(whole_is_rolled_back),
        cmocka_unit_test(packed_is_alone),
        cmocka_unit_test(padded_is_alone),
    };
    return check_main("conformance", NULL, 0, tests, COUNT(tests));
}
