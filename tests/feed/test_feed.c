/* Feeds: tokens, targets and marks exactly, each token once an epoch, any step by itself. */
#include "corpora.h"

#include <math.h>

/* A corpus of these ids and starts. */
static dra_corpus *corpus_of(const int32_t *ids, int64_t n, const int32_t *starts, int64_t n_starts)
{
    const dra_tensor_item items[] = {{"ids", DRA_I32, DRA_SHAPE(n), ids},
                                     {"starts", DRA_I32, DRA_SHAPE(n_starts), starts}};
    const char           *path = in_folder("c.safetensors");
    dra_error             err = {0};
    if (dra_tensors_write(path, items, 2, NULL, 0, &err) != DRA_OK) fail_msg("%s", err.text);
    return opened_path(NULL, path);
}

static dra_feed *made(dra_feed_config c)
{
    dra_feed *f = NULL;
    dra_error err = {0};
    if (dra_feed_create(&c, &f, &err) != DRA_OK) fail_msg("%s", err.text);
    return f;
}

/* ---- by hand --------------------------------------------------------------------------------- */

enum { P = DRA_MARK_PAD, R = DRA_MARK_RESET };

/* Documents 10..14, 15 16, 17..22. */
static dra_corpus *three_documents(void)
{
    int32_t ids[13];
    for (int i = 0; i < 13; i++) ids[i] = 10 + i;
    return corpus_of(ids, 13, (int32_t[]){0, 5, 7}, 3);
}

static void check_batch(const dra_feed *f, int64_t step, const int32_t *ids, const int32_t *targets,
                        const int32_t *mark, size_t n)
{
    int32_t found[3][64];
    memset(found, '#', sizeof found);
    dra_feed_batch(f, step, found[0], found[1], found[2]);
    assert_memory_equal(found[0], ids, n * sizeof *ids);
    assert_memory_equal(found[1], targets, n * sizeof *ids);
    assert_memory_equal(found[2], mark, n * sizeof *ids);
    for (int i = 0; i < 3; i++) assert_int_equal(found[i][n], 0x23232323);
}

static void carries_lanes(void **state)
{
    dra_corpus *c = three_documents();
    dra_feed   *f = made((dra_feed_config){.corpus = c, .B = 2, .T = 4, .carry = true});
    assert_int_equal(dra_feed_steps(f), 2);
    assert_int_equal(dra_feed_tokens(f), 13);
    assert_true(dra_feed_resets(f));
    for (int64_t epoch = 0; epoch < 3; epoch++) { /* wraps with a reset */
        check_batch(f, 2 * epoch, (int32_t[]){10, 11, 12, 13, 17, 18, 19, 20},
                    (int32_t[]){11, 12, 13, 14, 18, 19, 20, 21},
                    (int32_t[]){R, 0, 0, 0, R, 0, 0, 0}, 8);
        check_batch(f, 2 * epoch + 1, (int32_t[]){14, 15, 16, 0, 21, 22, 0, 0},
                    (int32_t[]){-1, 16, -1, -1, 22, -1, -1, -1},
                    (int32_t[]){0, R, 0, P, 0, 0, P, P}, 8);
        assert_int_equal(dra_feed_epoch(f, 2 * epoch + 1), epoch);
        for (int64_t b = 0; b < 2; b++)
            assert_int_equal(dra_feed_start(f, 2 * epoch + 1, b), 7 * b + 4);
    }
    dra_feed_destroy(f);
    dra_corpus_close(c);
}

static void crosses_documents(void **state)
{
    dra_corpus     *c = three_documents();
    dra_feed_config config = {.corpus = c, .B = 2, .T = 4, .carry = true, .cross = true};
    config.once = true;
    dra_feed *f = made(config);
    assert_int_equal(dra_feed_start(f, 2, 0), -1); /* after the end */
    check_batch(f, 1, (int32_t[]){14, 15, 16, 0, 21, 22, 0, 0},
                (int32_t[]){15, 16, 17, -1, 22, -1, -1, -1}, (int32_t[]){0, 0, 0, P, 0, 0, P, P},
                8);
    check_batch(f, 2, (int32_t[8]){0}, (int32_t[]){-1, -1, -1, -1, -1, -1, -1, -1},
                (int32_t[]){P, P, P, P, P, P, P, P}, 8);
    assert_false(dra_feed_resets(f));
    dra_feed_destroy(f);
    dra_corpus_close(c);
}

static void starts_windows_anew(void **state)
{
    dra_corpus   *c = three_documents();
    dra_feed     *f = made((dra_feed_config){.corpus = c, .B = 4, .T = 4, .seed = 3});
    const int32_t ids[4][4] = {{10, 11, 12, 13}, {14, 15, 16, 17}, {18, 19, 20, 21}, {22}};
    const int32_t targets[4][4] = {
        {11, 12, 13, 14}, {-1, 16, -1, 18}, {19, 20, 21, 22}, {-1, -1, -1, -1}};
    const int32_t mark[4][4] = {{R}, {R, R, 0, R}, {R}, {R, P, P, P}};
    int32_t       found[3][4][4];
    assert_int_equal(dra_feed_steps(f), 1);
    for (int64_t step = 0; step < 5; step++) {
        dra_feed_batch(f, step, found[0][0], found[1][0], found[2][0]);
        assert_int_equal(dra_feed_epoch(f, step), step);
        for (int64_t b = 0; b < 4; b++) {
            const int64_t w = dra_shuffle(3, step, 4, b);
            assert_memory_equal(found[0][b], ids[w], sizeof ids[w]);
            assert_memory_equal(found[1][b], targets[w], sizeof targets[w]);
            assert_memory_equal(found[2][b], mark[w], sizeof mark[w]);
            assert_int_equal(dra_feed_start(f, step, b), 4 * w);
        }
    }
    dra_feed_batch(f, 0, NULL, NULL, NULL);
    dra_feed_destroy(f);
    dra_corpus_close(c);
}

static void takes_a_part(void **state)
{
    static const struct {
        double  from, to;
        int32_t first, n; /* id, tokens */
    } parts[] = {{0, 0, 10, 13},  {0, 1, 10, 13},  {0, 0.5, 10, 5},   {0.5, 1, 15, 8},
                 {0, 0.6, 10, 7}, {0.6, 0, 17, 6}, {0.4, 0.99, 15, 2}};
    dra_corpus *c = three_documents();
    int32_t     ids[13], targets[13], mark[13];
    for (size_t i = 0; i < COUNT(parts); i++) {
        dra_feed *f = made((dra_feed_config){.corpus = c,
                                             .B = 1,
                                             .T = 13,
                                             .from = parts[i].from,
                                             .to = parts[i].to,
                                             .once = true,
                                             .cross = true});
        assert_int_equal(dra_feed_tokens(f), parts[i].n);
        dra_feed_batch(f, 0, ids, targets, mark);
        for (int t = 0; t < parts[i].n; t++) {
            assert_int_equal(ids[t], parts[i].first + t);
            assert_int_equal(targets[t], t + 1 < parts[i].n ? parts[i].first + t + 1 : -1);
        }
        dra_feed_destroy(f);
    }
    dra_corpus_close(c);
    c = corpus_of((int32_t[]){5, 6, 7, 8}, 4, (int32_t[]){0}, 1); /* one: by tokens */
    dra_feed *f = made((dra_feed_config){.corpus = c, .B = 1, .T = 2, .to = 0.5});
    check_batch(f, 0, (int32_t[]){5, 6}, (int32_t[]){6, -1}, (int32_t[]){R, 0}, 2);
    assert_false(dra_feed_resets(f));
    dra_feed_destroy(f);
    dra_corpus_close(c);
}

/* ---- by plain loops -------------------------------------------------------------------------- */

enum { MOST = 200 };

typedef struct trial {
    int32_t         ids[MOST], starts[MOST];
    bool            begins[MOST + 1]; /* a document starts at this token */
    int64_t         n, documents, begin, end;
    dra_feed_config c;
} trial;

static int64_t below(uint64_t *seed, int64_t n)
{
    return (int64_t)(check_random(seed) * (double)n);
}

static int64_t cut_at(const trial *t, double x)
{
    int64_t at = x == 1 ? t->n : (int64_t)(x * (double)t->n);
    while (t->documents > 1 && at < t->n && !t->begins[at]) at--;
    return at;
}

static void draw(trial *t, uint64_t *seed)
{
    const double  parts[] = {0, 0.25, 0.5, 0.75, 1};
    const int64_t p = below(seed, 4);
    *t = (trial){.n = 40 + below(seed, MOST - 40)};
    const bool single = below(seed, 4) == 0;
    for (int64_t i = 0; i < t->n; i++) {
        t->ids[i] = (int32_t)below(seed, 1000);
        t->begins[i] = i == 0 || (!single && below(seed, 6) == 0);
        if (t->begins[i]) t->starts[t->documents++] = (int32_t)i;
    }
    t->begins[t->n] = true;
    t->c = (dra_feed_config){.B = 1 + below(seed, 4), .T = 1 + below(seed, 9)};
    t->c.seed = (uint64_t)below(seed, 100);
    t->c.carry = below(seed, 2), t->c.cross = below(seed, 2);
    t->c.from = parts[p];
    t->c.to = parts[p + 1 + below(seed, 4 - p)];
    t->begin = cut_at(t, t->c.from);
    t->end = cut_at(t, t->c.to);
    t->c.once = below(seed, 2) || t->end - t->begin < t->c.B * t->c.T;
}

/* First token and end of row b, and whether it is fresh; from == end: only pads. */
static void row_of(const trial *t, int64_t step, int64_t b, int64_t *from, int64_t *end,
                   bool *fresh)
{
    const int64_t n = t->end - t->begin, T = t->c.T, B = t->c.B;
    if (t->c.carry) {
        const int64_t lane = (n + B - 1) / B, chunks = (lane + T - 1) / T, chunk = step % chunks;
        *from = t->begin + b * lane + chunk * T;
        *end = t->begin + (b + 1) * lane < t->end ? t->begin + (b + 1) * lane : t->end;
        *fresh = chunk == 0;
        if (t->c.once && step >= chunks) *from = *end;
    } else {
        const int64_t windows = (n + T - 1) / T, g = step * B + b;
        *from = t->begin + dra_shuffle(t->c.seed, g / windows, windows, g % windows) * T;
        *end = t->end;
        *fresh = true;
        if (t->c.once && g >= windows) *from = *end;
    }
}

/* Checks one step and counts how often each token was read and was a target. */
static void check_step(const trial *t, const dra_feed *f, int64_t step, int read[MOST + 1],
                       int aimed[MOST + 1])
{
    int32_t ids[64], targets[64], mark[64];
    dra_feed_batch(f, step, ids, targets, mark);
    for (int64_t b = 0; b < t->c.B; b++) {
        int64_t from, end;
        bool    fresh;
        row_of(t, step, b, &from, &end, &fresh);
        for (int64_t i = 0; i < t->c.T; i++) {
            const int64_t at = b * t->c.T + i, k = from + i;
            const bool    pad = k >= end, begins = !pad && t->begins[k] && !t->c.cross;
            const bool    last = pad || k + 1 == t->end || (t->begins[k + 1] && !t->c.cross);
            assert_int_equal(mark[at], pad ? P : begins || (fresh && i == 0) ? R : 0);
            assert_int_equal(ids[at], pad ? 0 : t->ids[k]);
            assert_int_equal(targets[at], last ? -1 : t->ids[k + 1]);
            if (!pad) read[k]++;
            if (!last) aimed[k + 1]++;
        }
    }
}

static void check_epoch(const trial *t, const int read[MOST + 1], const int aimed[MOST + 1])
{
    for (int64_t k = 0; k < t->n; k++) {
        const bool inside = k >= t->begin && k < t->end;
        assert_int_equal(read[k], inside);
        assert_int_equal(aimed[k], inside && k > t->begin && (t->c.cross || !t->begins[k]));
    }
}

static void agrees_with_plain_loops(void **state)
{
    uint64_t seed = 7;
    int      whole = 0;
    for (int i = 0; i < 150; i++) {
        trial t;
        draw(&t, &seed);
        if (t.begin == t.end) continue;
        int         read[MOST + 1] = {0}, aimed[MOST + 1] = {0};
        dra_corpus *c = corpus_of(t.ids, t.n, t.starts, t.documents);
        t.c.corpus = c;
        dra_feed     *f = made(t.c);
        const int64_t steps = dra_feed_steps(f), windows = (t.end - t.begin + t.c.T - 1) / t.c.T;
        for (int64_t step = 0; step < steps; step++) check_step(&t, f, step, read, aimed);
        if (t.c.carry || t.c.once || windows % t.c.B == 0) check_epoch(&t, read, aimed), whole++;
        for (int64_t step = steps; step < 3 * steps; step++) check_step(&t, f, step, read, aimed);
        dra_feed_destroy(f);
        dra_corpus_close(c);
    }
    assert_true(whole > 75);
}

/* Over B epochs no step is short, and each window was read B times. */
static void wraps_into_the_next_epoch(void **state)
{
    enum { WINDOWS = 7, B = 3 };
    dra_corpus *c = three_documents();
    dra_feed   *f = made((dra_feed_config){.corpus = c, .B = B, .T = 2, .seed = 9});
    int32_t     ids[2 * B], mark[2 * B];
    int         read[13] = {0};
    for (int64_t step = 0; step < WINDOWS; step++) {
        dra_feed_batch(f, step, ids, NULL, mark);
        for (int i = 0; i < 2 * B; i++)
            if (!(mark[i] & P)) read[ids[i] - 10]++;
        assert_int_equal(dra_feed_epoch(f, step), step * B / WINDOWS);
    }
    assert_int_equal(dra_feed_steps(f), 3);
    for (int i = 0; i < 13; i++) assert_int_equal(read[i], B);
    dra_feed_destroy(f);
    dra_corpus_close(c);
}

/* ---- by itself ------------------------------------------------------------------------------- */

static void fill_text(const char *name, size_t n)
{
    uint64_t seed = 3;
    char    *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) text[i] = (char)below(&seed, 256);
    put_file(name, text, n);
    free(text);
}

static void reads_any_step_after_reopening(void **state)
{
    enum { B = 3, T = 17, STEPS = 40 };
    static int32_t  first[2][STEPS][3][B * T], again[3][B * T];
    dra_tokenizer  *t = bytes_tokenizer();
    uint64_t        fingerprint[2] = {0};
    dra_feed_config config = {.B = B, .T = T, .seed = (uint64_t)1 << 60};
    fill_text("r.txt", 1000);
    for (int pass = 0; pass < 2; pass++) {
        dra_corpus *c = opened_bytes(t, in_folder("r.txt"));
        config.corpus = c;
        for (int carry = 0; carry < 2; carry++) {
            config.carry = carry;
            dra_feed *f = made(config);
            for (int s = STEPS - 1; s >= 0 && pass == 1; s--) { /* backwards */
                dra_feed_batch(f, s, again[0], again[1], again[2]);
                assert_memory_equal(again, first[carry][s], sizeof again);
            }
            for (int s = 0; s < STEPS && pass == 0; s++)
                dra_feed_batch(f, s, first[carry][s][0], first[carry][s][1], first[carry][s][2]);
            if (pass) assert_true(fingerprint[carry] == dra_feed_fingerprint(f));
            fingerprint[carry] = dra_feed_fingerprint(f);
            dra_feed_destroy(f);
        }
        dra_corpus_close(c);
    }
    assert_true(fingerprint[0] != fingerprint[1]);
    dra_tokenizer_destroy(t);
}

static void depends_on_the_seed(void **state)
{
    int32_t        a[64], b[64];
    dra_tokenizer *t = bytes_tokenizer();
    fill_text("r.txt", 10000);
    dra_corpus     *c = opened_bytes(t, in_folder("r.txt"));
    dra_feed_config config = {.corpus = c, .B = 4, .T = 16, .seed = 1};
    dra_feed       *one = made(config);
    config.seed = 2;
    dra_feed *two = made(config);
    dra_feed_batch(one, 0, a, NULL, NULL);
    dra_feed_batch(two, 0, b, NULL, NULL);
    assert_memory_not_equal(a, b, sizeof a);
    assert_true(dra_feed_fingerprint(one) != dra_feed_fingerprint(two));
    dra_feed_destroy(one);
    dra_feed_destroy(two);
    dra_corpus_close(c);
    dra_tokenizer_destroy(t);
}

/* The chunks of a lane, one after the other, are the lane: what a carried state reads. */
static void continues_lanes_exactly(void **state)
{
    enum { N = 1003, B = 4, T = 10, L = 251 };
    static int32_t ids[B * T], mark[B * T], all[N];
    dra_tokenizer *t = bytes_tokenizer();
    fill_text("r.txt", N);
    dra_corpus *c = opened_bytes(t, in_folder("r.txt"));
    dra_feed   *f = made((dra_feed_config){.corpus = c, .B = B, .T = T, .carry = true});
    int64_t     at[B] = {0};
    dra_corpus_read(c, 0, N, all);
    assert_int_equal(dra_feed_steps(f), 26);
    for (int64_t s = 0; s < 26; s++) {
        dra_feed_batch(f, s, ids, NULL, mark);
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = 0; i < T && !(mark[b * T + i] & P); i++)
                assert_int_equal(ids[b * T + i], all[b * L + at[b]++]);
    }
    for (int64_t b = 0; b < B; b++) assert_int_equal(at[b], b < B - 1 ? L : N - 3 * L);
    dra_feed_destroy(f);
    dra_corpus_close(c);
    dra_tokenizer_destroy(t);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* text: the whole error, or its end where it begins with the path of a file. */
static void check_no_feed(dra_feed_config c, const char *text)
{
    dra_feed *f = (dra_feed *)&c;
    dra_error err = {0};
    assert_int_equal(dra_feed_create(&c, &f, &err), DRA_ERR_VALUE);
    assert_null(f);
    const size_t n = strlen(err.text), end = strlen(text);
    assert_true(n >= end);
    assert_string_equal(text[0] == '/' ? err.text + n - end : err.text, text);
}

static void refuses_what_cannot_be_fed(void **state)
{
    dra_corpus *c = three_documents();
    check_no_feed((dra_feed_config){.B = 1, .T = 1}, "feed: no corpus");
    check_no_feed((dra_feed_config){.corpus = c, .B = 0, .T = 1},
                  "feed: B 0, T 1, expected 1 to 2^31 - 1");
    check_no_feed((dra_feed_config){.corpus = c, .B = 1, .T = (int64_t)1 << 31},
                  "feed: B 1, T 2147483648, expected 1 to 2^31 - 1");
    check_no_feed((dra_feed_config){.corpus = c, .B = 1, .T = 1, .from = 0.5, .to = 0.25},
                  "feed: part from 0.5 to 0.25, expected 0 <= from < to <= 1");
    check_no_feed((dra_feed_config){.corpus = c, .B = 1, .T = 1, .from = -0.5},
                  "feed: part from -0.5 to 1, expected 0 <= from < to <= 1");
    check_no_feed((dra_feed_config){.corpus = c, .B = 1, .T = 1, .to = (double)NAN},
                  "feed: part from 0 to nan, expected 0 <= from < to <= 1");
    check_no_feed((dra_feed_config){.corpus = c, .B = 1, .T = 1, .from = 0.6, .to = 0.7},
                  "feed: from 0.6 to 0.7 of 13 tokens in 3 documents there are none");
    check_no_feed(
        (dra_feed_config){.corpus = c, .B = 1, .T = 14},
        "/c.safetensors: 13 tokens to read, expected at least 14, a row of 14 (the context)");
    check_no_feed((dra_feed_config){.corpus = c, .B = 7, .T = 2, .carry = true},
                  "/c.safetensors: 13 tokens to read, expected at least 14, "
                  "rows of a batch, each of 2 (the context)");
    dra_corpus_close(c);
    dra_corpus_close(NULL);
    dra_feed_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carries_lanes),
        cmocka_unit_test(crosses_documents),
        cmocka_unit_test(starts_windows_anew),
        cmocka_unit_test(takes_a_part),
        cmocka_unit_test(agrees_with_plain_loops),
        cmocka_unit_test(wraps_into_the_next_epoch),
        cmocka_unit_test(reads_any_step_after_reopening),
        cmocka_unit_test(depends_on_the_seed),
        cmocka_unit_test(continues_lanes_exactly),
        cmocka_unit_test(refuses_what_cannot_be_fed),
    };
    return cmocka_run_group_tests_name("feed", tests, folder_make, folder_remove);
}
