/* Beam search against plain loops that read every text from scratch, against a search over all
 * texts, and against x-transformers (tests/data/xt-search, made by tests/parity/beam.py). */
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "presets.h"
#include "writers.h"

enum { PROMPT = 11, WRITTEN = 7 };

static const char path[] = "test_beam.state";

static void search(dra_generator *g, const dra_generate_config *c, const dra_beam_config *how,
                   dra_beam *out)
{
    dra_error err = {0};
    expect_ok(dra_generate_beam(g, c, how, out, &err), &err);
}

/* ---- plain loops ----------------------------------------------------------------------------- */

typedef struct text { /* a prompt and what follows */
    int32_t ids[TEXT];
    int     n, length; /* tokens, and those that log_prob is of */
    double  log_prob, score;
    bool    ended;
    int     parent, id;
} text;

typedef struct plan {
    int64_t V;
    int     beams, tokens, end; /* end -1: none */
    double  penalty, repetition;
} plan;

static int better(const void *a, const void *b)
{
    const text *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->parent != y->parent ? x->parent - y->parent : x->id - y->id;
}

/* All that may follow a text, with `to` having room for the vocabulary; returns how many. */
static int follow(const plan *p, dra_generator *g, const text *t, int number, text *to)
{
    double l[WIDE];
    if (t->ended) {
        *to = *t;
        to->parent = number, to->id = -1;
        return 1;
    }
    log_probs(p->V, read_whole(g, t->n, t->ids), p->repetition, t->n, t->ids, l);
    for (int v = 0; v < p->V; v++) {
        to[v] = *t;
        to[v].parent = number, to[v].id = v;
        to[v].log_prob += l[v];
        to[v].score = to[v].log_prob / pow(++to[v].length, p->penalty);
        to[v].ended = v == p->end;
        if (v != p->end) to[v].ids[to[v].n++] = v;
    }
    return (int)p->V;
}

/* The best texts; taking all that may follow gives the same as taking the best of each. */
static int search_plainly(const plan *p, dra_generator *g, const text *prompt, text *best)
{
    text *all = calloc((size_t)(p->beams * p->V), sizeof *all);
    int   n = 1;
    assert_non_null(all);
    best[0] = *prompt;
    for (int t = 0; t < p->tokens; t++) {
        int found = 0;
        for (int k = 0; k < n; k++) found += follow(p, g, &best[k], k, all + found);
        qsort(all, (size_t)found, sizeof *all, better);
        n = found < p->beams ? found : p->beams;
        memcpy(best, all, (size_t)n * sizeof *all);
    }
    free(all);
    return n;
}

/* ---- against them ---------------------------------------------------------------------------- */

/* Returns how many texts ended. */
static int compare(const char *name, const writer *w, const plan *p)
{
    dra_generator_config      c = config_of(w, 1);
    const int32_t             end = p->end;
    const dra_generate_config write = {.tokens = p->tokens, .n_ends = end >= 0, .ends = &end};
    const dra_beam_config     how = {.beams = p->beams, .length_penalty = p->penalty};
    c.sampler.repetition_penalty = p->repetition;
    dra_generator *a = open_config(c), *b = open_config(c);
    text           prompt = {.n = PROMPT}, *best = calloc((size_t)p->beams, sizeof *best);
    dra_beam      *out = calloc((size_t)p->beams, sizeof *out);
    make_prompt(p->V, prompt.ids, PROMPT, 1);
    feed(a, 0, PROMPT, prompt.ids);
    search(a, &write, &how, out);
    const int n = search_plainly(p, b, &prompt, best);
    int       ended = 0;
    for (int k = 0; k < p->beams; k++) {
        if (k >= n) {
            assert_true(out[k].score == -INFINITY);
            continue;
        }
        expect_score(name, out[k].score, best[k].score);
        expect_tokens(name, &out[k].text, (size_t)(best[k].n - PROMPT), best[k].ids + PROMPT);
        assert_int_equal(out[k].text.finish, best[k].ended ? DRA_FINISH_END : DRA_FINISH_LENGTH);
        ended += best[k].ended;
    }
    free(out);
    free(best);
    dra_generator_destroy(a);
    dra_generator_destroy(b);
    return ended;
}

typedef void (*trial)(const char *name, const writer *w);

static void for_presets(int64_t V, trial fn)
{
    const dra_preset *p;
    for (size_t i = 0; (p = dra_preset_at(i)) != NULL; i++) {
        if (!preset_reads_in_parts(p->name)) continue;
        writer w = open_writer(p->name, V, 3);
        fn(p->name, &w);
        close_writer(&w);
    }
}

static void from_scratch(const char *name, const writer *w)
{
    compare(name, w, &(plan){19, 3, WRITTEN, -1, 0, 0});
}

static void cached_equals_read_from_scratch(void **unused) { for_presets(19, from_scratch); }

/* A token that occurs: number `at` of the best text but one. */
static int some_token(const writer *w, int at)
{
    dra_generator *g = open_config(config_of(w, 1));
    dra_beam       out[2];
    int32_t        ids[PROMPT];
    make_prompt(19, ids, PROMPT, 1);
    feed(g, 0, PROMPT, ids);
    search(g, &(dra_generate_config){.tokens = WRITTEN}, &(dra_beam_config){.beams = 2}, out);
    const int id = out[1].text.ids[at];
    dra_generator_destroy(g);
    return id;
}

/* Ends of text, penalties for lengths and repetitions, few and many beams. */
static void options_equal_plain_loops(void **unused)
{
    static const char *const names[] = {"gpt2-tiny", "rwkv4-tiny", "dra-gru-tiny"};
    static const plan        plans[] = {/* end: a place in a text, not yet a token */
                                 {19, 4, WRITTEN, 3, 0, 0},    {19, 4, WRITTEN, 2, 1, 0},
                                 {19, 5, WRITTEN, 1, -0.5, 0}, {19, 3, 2 * WRITTEN, 4, 2, 1.5},
                                 {19, 25, 3, 1, 0.7, 0},       {19, 1, WRITTEN, -1, 0, 1.3}};
    int                      ended = 0;
    for (size_t i = 0; i < COUNT(names); i++) {
        writer w = open_writer(names[i], 19, 4);
        for (size_t k = 0; k < COUNT(plans); k++) {
            plan p = plans[k];
            if (p.end >= 0) p.end = some_token(&w, p.end);
            ended += compare(names[i], &w, &p);
        }
        close_writer(&w);
    }
    assert_true(ended > 20);
}

static void greedy(const char *name, const writer *w)
{
    const dra_beam_config     one = {.beams = 1};
    const dra_generate_config write = {.tokens = 2 * WRITTEN};
    dra_generator            *a = open_config(config_of(w, 1)), *b = open_config(config_of(w, 1));
    int32_t                   ids[PROMPT];
    dra_generated             whole;
    dra_beam                  beam;
    dra_error                 err = {0};
    make_prompt(WIDE, ids, PROMPT, 2);
    feed(a, 0, PROMPT, ids);
    feed(b, 0, PROMPT, ids);
    expect_ok(dra_generate(a, &write, &whole, &err), &err);
    search(b, &write, &one, &beam);
    expect_tokens(name, &beam.text, whole.n, whole.ids);
    dra_generator_destroy(a);
    dra_generator_destroy(b);
}

static void one_beam_is_greedy(void **unused) { for_presets(WIDE, greedy); }

/* 4 tokens, 4 steps: 64 beams drop nothing before the last, so they are the best of all 256. */
static void finds_the_best_of_all(void **unused)
{
    static const char *const names[] = {"gpt2-tiny", "rwkv4-tiny", "dra-gru-tiny"};
    enum { V = 4, STEPS = 4, ALL = 256, KEPT = 64 };
    for (size_t i = 0; i < COUNT(names); i++) {
        writer         w = open_writer(names[i], V, 6);
        dra_generator *a = open_config(config_of(&w, 1)), *b = open_config(config_of(&w, 1));
        text          *all = calloc(ALL, sizeof *all);
        dra_beam       out[KEPT];
        double         l[V];
        for (int code = 0; code < ALL; code++) {
            text *t = &all[code];
            make_prompt(V, t->ids, t->n = 3, 1);
            t->id = code;
            for (int s = 0; s < STEPS; s++) {
                log_probs(V, read_whole(b, t->n, t->ids), 0, 0, NULL, l);
                const int v = code >> 2 * s & 3;
                t->score += l[v];
                t->ids[t->n++] = v;
            }
        }
        qsort(all, ALL, sizeof *all, better);
        feed(a, 0, 3, all[0].ids);
        search(a, &(dra_generate_config){.tokens = STEPS}, &(dra_beam_config){.beams = KEPT}, out);
        expect_tokens(names[i], &out[0].text, STEPS, all[0].ids + 3);
        for (int k = 0; k < KEPT; k++) expect_score(names[i], out[k].score, all[k].score);
        free(all);
        dra_generator_destroy(a);
        dra_generator_destroy(b);
        close_writer(&w);
    }
}

/* ---- what generators promise ----------------------------------------------------------------- */

static dra_generator *open_noisy(const writer *w, int64_t rows, uint64_t seed)
{
    dra_generator_config c = config_of(w, rows);
    c.sampler = (dra_sampler_config){.temperature = 1.3, .top_k = 12, .seed = seed};
    return open_config(c);
}

static void expect_beams(const char *name, int n, const dra_beam *a, const dra_beam *b)
{
    for (int k = 0; k < n; k++) {
        expect_tokens(name, &a[k].text, b[k].text.n, b[k].text.ids);
        expect_score(name, a[k].score, b[k].score);
        assert_int_equal(a[k].text.finish, b[k].text.finish);
    }
}

/* Two prompts, with and without noise, one of which ends. */
static void together(const char *name, const writer *w)
{
    enum { N = 3, V = 19 };
    static const int          length[] = {PROMPT, 4};
    static const int32_t      end = 5;
    const dra_generate_config write = {.tokens = WRITTEN, .n_ends = 1, .ends = &end};
    for (int noise = 0; noise < 2; noise++) {
        const dra_beam_config how = {.beams = N, .noise = noise};
        dra_generator        *both = open_noisy(w, 2, 8);
        dra_beam              out[2 * N], alone[N];
        int32_t               ids[PROMPT];
        for (int r = 0; r < 2; r++) {
            make_prompt(V, ids, length[r], r);
            feed(both, r, length[r], ids);
        }
        search(both, &write, &how, out);
        for (int r = 0; r < 2; r++) {
            dra_generator *g = open_noisy(w, 1, 8 + (uint64_t)r);
            make_prompt(V, ids, length[r], r);
            feed(g, 0, length[r], ids);
            search(g, &write, &how, alone);
            expect_beams(name, N, out + (ptrdiff_t)r * N, alone);
            dra_generator_destroy(g);
        }
        dra_generator_destroy(both);
    }
}

static void rows_equal_single_runs(void **unused) { for_presets(19, together); }

/* The row has read its best text: it continues, from a file too, as one that read it as a prompt.
 */
static void continues(const char *name, const writer *w)
{
    enum { N = 4, V = 19 };
    const dra_generate_config write = {.tokens = WRITTEN};
    const dra_beam_config     how = {.beams = N};
    dra_generator            *a = open_config(config_of(w, 1)), *b = open_config(config_of(w, 1));
    dra_generator            *c = open_config(config_of(w, 1));
    dra_beam                  out[N], again[N], other[N];
    int32_t                   ids[TEXT];
    dra_error                 err = {0};
    make_prompt(V, ids, PROMPT, 3);
    feed(a, 0, PROMPT, ids);
    search(a, &write, &how, out);
    memcpy(ids + PROMPT, out[0].text.ids, out[0].text.n * sizeof *ids);
    assert_int_equal(dra_generator_tokens(a, 0), PROMPT + WRITTEN);
    expect_ok(dra_generator_save(a, path, &err), &err);
    search(a, &write, &how, again);
    feed(b, 0, PROMPT + WRITTEN, ids);
    search(b, &write, &how, other);
    expect_beams(name, N, again, other);
    expect_ok(dra_generator_load(c, path, &err), &err);
    search(c, &write, &how, other);
    expect_beams(name, N, again, other);
    unlink(path);
    dra_generator_destroy(a);
    dra_generator_destroy(b);
    dra_generator_destroy(c);
}

static void beams_go_on(void **unused) { for_presets(19, continues); }

/* Other noise, other texts; their scores are still those of the model. */
static void noise_draws(void **unused)
{
    enum { N = 3, V = 19, SEEDS = 12 };
    const dra_generate_config write = {.tokens = WRITTEN};
    writer                    w = open_writer("dra-gru-tiny", V, 3);
    dra_generator            *plain = open_config(config_of(&w, 1));
    int                       different = 0;
    int32_t                   ids[TEXT], last[WRITTEN] = {0};
    make_prompt(V, ids, PROMPT, 1);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        dra_generator *a = open_noisy(&w, 1, seed), *b = open_noisy(&w, 1, seed);
        dra_beam       out[N], same[N];
        feed(a, 0, PROMPT, ids);
        for (int i = 0; i < PROMPT; i++) feed(b, 0, 1, ids + i);
        search(a, &write, &(dra_beam_config){N, 0, true}, out);
        search(b, &write, &(dra_beam_config){N, 0, true}, same);
        expect_beams("seed", N, out, same);
        for (int k = 0; k < N; k++) {
            double l[V], sum = 0;
            for (int t = 0; t < WRITTEN; t++) {
                log_probs(V, read_whole(plain, PROMPT + t, ids), 0, 0, NULL, l);
                sum += l[ids[PROMPT + t] = out[k].text.ids[t]];
            }
            expect_score("noise", out[k].score, sum);
            if (k) assert_true(out[k].score <= out[k - 1].score);
        }
        different += memcmp(last, out[N - 1].text.ids, sizeof last) != 0;
        memcpy(last, out[N - 1].text.ids, sizeof last);
        dra_generator_destroy(a);
        dra_generator_destroy(b);
    }
    assert_true(different > SEEDS / 2);
    dra_generator_destroy(plain);
    close_writer(&w);
}

/* ---- text, and when it ends ------------------------------------------------------------------ */

typedef struct page {
    char   text[8][400];
    size_t n[8];
    int    asked, most;
} page;

static bool put(void *user, int64_t row, const char *words, size_t bytes)
{
    page *p = user;
    assert_true(p->n[row] + bytes < sizeof p->text[row]);
    memcpy(p->text[row] + p->n[row], words, bytes);
    p->n[row] += bytes;
    return bytes || ++p->asked < p->most;
}

static void texts_come_at_the_end(void **unused)
{
    writer         w = open_writer("dra-gru-tiny", WIDE, 3);
    dra_tokenizer *bytes;
    dra_error      err = {0};
    dra_beam       out[4];
    page           p = {.most = 5};
    const int32_t  ids[] = {'O', 'n', 'c', 'e'};
    expect_ok(dra_tokenizer_bytes(&bytes, &err), &err);
    dra_generator_config c = config_of(&w, 2);
    c.tokenizer = bytes;
    dra_generator *g = open_config(c);
    feed(g, 0, 4, ids);
    feed(g, 1, 2, ids);
    search(g, &(dra_generate_config){.write = put, .user = &p}, &(dra_beam_config){.beams = 2},
           out);
    for (int k = 0; k < 4; k++) { /* the row that said no first is shorter */
        assert_int_equal(out[k].text.finish, DRA_FINISH_ASKED);
        assert_int_equal(out[k].text.n, out[k / 2 * 2].text.n);
        assert_true(p.n[k] >= out[k].text.n);
    }
    assert_true(out[0].text.n + out[2].text.n >= 5);
    dra_generator_destroy(g);
    dra_tokenizer_destroy(bytes);
    close_writer(&w);
}

/* Learned positions: beams end where they do. */
static void positions_end(void **unused)
{
    writer         w = open_writer("gpt2-tiny", 19, 3);
    dra_generator *g = open_config(config_of(&w, 1));
    dra_beam       out[2];
    int32_t        ids[TEXT];
    make_prompt(19, ids, TEXT - 4, 1);
    feed(g, 0, TEXT - 4, ids);
    search(g, &(dra_generate_config){0}, &(dra_beam_config){.beams = 2}, out);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(out[k].text.finish, DRA_FINISH_CONTEXT);
        assert_int_equal(out[k].text.n, 4);
    }
    dra_generator_destroy(g);
    close_writer(&w);
}

static void refuses_what_makes_no_sense(void **unused)
{
    static const char *const stop[] = {"x"};
    static const struct {
        dra_beam_config     how;
        dra_generate_config write;
        const char         *text;
    } rows[] = {
        {{.beams = 0}, {.tokens = 1}, "beam search: 0 beams, expected 1 to 1024"},
        {{.beams = 1025}, {.tokens = 1}, "beam search: 1025 beams, expected 1 to 1024"},
        {{.beams = 2, .length_penalty = NAN},
         {.tokens = 1},
         "beam search: length_penalty is nan, expected -100 to 100"},
        {{.beams = 2, .noise = true},
         {.tokens = 1},
         "beam search: noise needs a temperature above 0, found 0"},
        {{.beams = 2},
         {.tokens = 1, .n_stop = 1, .stop = stop},
         "beam search: has no stop strings"},
        {{.beams = 2}, {.tokens = 1}, "generator: row 0 has read nothing to continue from"},
    };
    writer         w = open_writer("dra-gru-tiny", 19, 3);
    dra_generator *g = open_config(config_of(&w, 1));
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_beam  out[2];
        dra_error err = {0};
        assert_int_equal(dra_generate_beam(g, &rows[i].write, &rows[i].how, out, &err),
                         DRA_ERR_VALUE);
        assert_string_equal(err.text, rows[i].text);
    }
    dra_generator_destroy(g);
    close_writer(&w);
}

/* ---- x-transformers -------------------------------------------------------------------------- */

static void expect_list(const dra_generated *a, const json_t *ids)
{
    int32_t list[TEXT];
    for (size_t i = 0; i < json_array_size(ids); i++)
        list[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    expect_tokens("x-transformers", a, json_array_size(ids), list);
}

static void equals_x_transformers(void **unused)
{
    json_error_t  e;
    json_t       *file = json_load_file("tests/data/xt-search/expected.json", 0, &e);
    writer        w = open_folder("tests/data/xt-search/expert");
    size_t        i;
    const json_t *entry;
    json_array_foreach(json_object_get(file, "searches"), i, entry)
    {
        const json_t  *prompts = json_object_get(file, "prompts");
        const int64_t  N = json_integer_value(json_object_get(entry, "beams"));
        const size_t   rows = json_array_size(prompts);
        dra_generator *g = open_config(config_of(&w, (int64_t)rows));
        dra_beam      *out = calloc(rows * (size_t)N, sizeof *out);
        for (size_t r = 0; r < rows; r++) {
            const json_t *ids = json_array_get(prompts, r);
            for (size_t t = 0; t < json_array_size(ids); t++)
                feed(g, (int64_t)r, 1,
                     &(int32_t){(int32_t)json_integer_value(json_array_get(ids, t))});
        }
        search(g, &(dra_generate_config){.tokens = 8}, &(dra_beam_config){.beams = N}, out);
        for (size_t r = 0; r < rows; r++)
            for (size_t k = 0; k < (size_t)N; k++) {
                const dra_beam *b = &out[r * (size_t)N + k];
                expect_list(&b->text,
                            json_array_get(json_array_get(json_object_get(entry, "tokens"), r), k));
                expect_score("x-transformers", b->score,
                             json_real_value(json_array_get(
                                 json_array_get(json_object_get(entry, "scores"), r), k)));
            }
        free(out);
        dra_generator_destroy(g);
    }
    assert_int_equal(i, 3);
    close_writer(&w);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_equals_read_from_scratch),
        cmocka_unit_test(options_equal_plain_loops),
        cmocka_unit_test(one_beam_is_greedy),
        cmocka_unit_test(finds_the_best_of_all),
        cmocka_unit_test(rows_equal_single_runs),
        cmocka_unit_test(beams_go_on),
        cmocka_unit_test(noise_draws),
        cmocka_unit_test(texts_come_at_the_end),
        cmocka_unit_test(positions_end),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(equals_x_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
