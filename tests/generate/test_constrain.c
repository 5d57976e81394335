/* Generators with a bias, a grammar, log-probabilities and texts that follow each other in a row:
 * all against what plain loops and lone rows give. */
#include <jansson.h>
#include <stdio.h>

#include "text/small.h"
#include "writers.h"

enum { ROWS = 3, TEXTS = 7 };

static dra_grammar *parse(const char *text)
{
    dra_grammar *g = NULL;
    dra_error    err = {0};
    expect_ok(dra_grammar_parse("g", text, strlen(text), &g, &err), &err);
    return g;
}

static dra_tokenizer *bytes_tokenizer(void)
{
    dra_tokenizer *t;
    dra_error      err = {0};
    expect_ok(dra_tokenizer_bytes(&t, &err), &err);
    return t;
}

typedef struct page {
    char   text[4096];
    size_t n;
} page;

static bool put(void *user, int64_t row, const char *text, size_t bytes)
{
    page *p = (page *)user + row;
    assert_true(p->n + bytes < sizeof p->text);
    memcpy(p->text + p->n, text, bytes);
    p->n += bytes;
    p->text[p->n] = '\0';
    return true;
}

/* Reads a short prompt into every row and writes. */
static void write_rows(dra_generator *g, int64_t rows, int64_t tokens, page *pages,
                       dra_generated *out)
{
    const dra_generate_config c = {.tokens = tokens, .write = put, .user = pages};
    dra_error                 err = {0};
    int32_t                   ids[8];
    for (int64_t b = 0; b < rows; b++) {
        make_prompt(100, ids, 5, (int)b);
        feed(g, b, 5, ids);
        pages[b].n = 0;
    }
    expect_ok(dra_generate(g, &c, out, &err), &err);
}

/* ---- bias ------------------------------------------------------------------------------------ */

static void bias_comes_first(void **state)
{
    const dra_token_bias     list[] = {{1, 5}, {2, -INFINITY}, {1, 1}};
    const dra_sampler_config c = {.n_bias = 3, .bias = list}, none = {0};
    const dra_real           x[] = {1, -4, 3, 0}, off[] = {-7, -9, 3, -8};
    dra_sampler             *s, *plain;
    dra_error                err = {0};
    expect_ok(dra_sampler_create(&c, 4, &s, &err), &err);
    expect_ok(dra_sampler_create(&none, 4, &plain, &err), &err);
    assert_int_equal(dra_sampler_pick(plain, x, NULL, 0, 0), 2);
    assert_int_equal(dra_sampler_pick(s, x, NULL, 0, 0), 1);
    assert_int_equal(dra_sampler_pick(s, off, NULL, 0, 0), 1);
    dra_sampler_destroy(s);
    dra_sampler_destroy(plain);
}

static void check_bias(int32_t id, double bias, const char *text)
{
    const dra_token_bias     list[] = {{id, bias}};
    const dra_sampler_config c = {.n_bias = 1, .bias = list};
    dra_sampler             *s;
    dra_error                err = {0};
    assert_int_not_equal(dra_sampler_create(&c, 4, &s, &err), DRA_OK);
    assert_null(s);
    assert_string_equal(err.text, text);
}

static void refuses_biases(void **state)
{
    check_bias(4, 1, "sampler: bias of token 4, expected 0 to 3");
    check_bias(-1, 1, "sampler: bias of token -1, expected 0 to 3");
    check_bias(1, INFINITY, "sampler: bias of token 1 is inf, expected -1e6 to 1e6, or -inf");
    check_bias(1, NAN, "sampler: bias of token 1 is nan, expected -1e6 to 1e6, or -inf");
}

/* The first tokens of a greedy text, one after the other forbidden; with amateurs, too. */
static void forbids_tokens(void **state)
{
    static page    page1;
    writer         w = open_writer("dra-gru-tiny", 60, 3), a = open_writer("dra-ema-tiny", 60, 4);
    dra_amateur    amateur = {a.model, a.weights};
    dra_token_bias list[59];
    dra_error      err = {0};
    for (int contrast = 0; contrast < 2; contrast++) {
        dra_generator_config c = config_of(&w, 1);
        if (contrast) c.amateurs = &amateur, c.n_amateurs = 1, c.alpha = 0.1, c.beta = 0.5;
        dra_generator *g = open_config(c);
        for (int n = 0; n < 59; n++) {
            dra_generated            out;
            const dra_sampler_config sampler = {.n_bias = n, .bias = list};
            expect_ok(dra_generator_set_sampler(g, &sampler, &err), &err);
            expect_ok(dra_generator_reset(g, 0, &err), &err);
            write_rows(g, 1, 1, &page1, &out);
            for (int i = 0; i < n; i++) assert_int_not_equal(out.ids[0], list[i].id);
            list[n] = (dra_token_bias){out.ids[0], -INFINITY};
        }
        dra_generator_destroy(g);
    }
    close_writer(&w);
    close_writer(&a);
}

static void tells_when_bias_leaves_nothing(void **state)
{
    static dra_token_bias list[60];
    writer                w = open_writer("dra-gru-tiny", 60, 3);
    dra_generator_config  c = config_of(&w, 1);
    const int32_t         prompt[] = {1, 2};
    dra_generated         out;
    dra_error             err = {0};
    for (int32_t i = 0; i < 60; i++) list[i] = (dra_token_bias){i, -INFINITY};
    c.sampler = (dra_sampler_config){.n_bias = 60, .bias = list};
    dra_generator *g = open_config(c);
    feed(g, 0, 2, prompt);
    assert_int_equal(dra_generate(g, &(dra_generate_config){.tokens = 1}, &out, &err),
                     DRA_ERR_VALUE);
    assert_string_equal(err.text,
                        "generate: row 0, token 2: no token is left that bias and grammar allow");
    dra_generator_destroy(g);
    close_writer(&w);
}

/* ---- grammars -------------------------------------------------------------------------------- */

static const char schema[] =
    "{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [\"x\", \"\xc3\xa9\xe6\xb0\xb4\"]}, "
    "\"b\": {\"type\": \"array\", \"items\": {\"type\": \"boolean\"}}, \"c\": {\"type\": "
    "\"integer\"}}, \"required\": [\"a\", \"c\"]}";

/* Texts of a schema: JSON as soon as they end, and the beginning of it if they do not. */
static void check_texts(dra_tokenizer *t, const char *preset)
{
    static page   pages[ROWS];
    const int64_t V = dra_tokenizer_size(t) + 3; /* more than the tokenizer has */
    writer        w = open_writer(preset, V, 8);
    dra_grammar  *grammar = NULL;
    dra_error     err = {0};
    int           ended = 0;
    dra_generated out[ROWS];
    expect_ok(dra_grammar_schema("s", schema, strlen(schema), &grammar, &err), &err);
    dra_generator_config c = config_of(&w, ROWS);
    c.tokenizer = t;
    c.grammar = grammar;
    c.sampler.temperature = 1;
    dra_generator *g = open_config(c);
    for (int round = 0; round < 12; round++) {
        c.sampler.seed = (uint64_t)round * 10;
        expect_ok(dra_generator_set_sampler(g, &c.sampler, &err), &err);
        for (int64_t b = 0; b < ROWS; b++) expect_ok(dra_generator_reset(g, b, &err), &err);
        write_rows(g, ROWS, 50, pages, out);
        for (int b = 0; b < ROWS; b++) {
            dra_grammar_fit fit;
            expect_ok(dra_grammar_match(grammar, pages[b].text, pages[b].n, &fit, &err), &err);
            if (out[b].finish == DRA_FINISH_END) {
                json_t *x = json_loads(pages[b].text, 0, NULL);
                assert_non_null(x);
                assert_true(json_is_integer(json_object_get(x, "c")));
                assert_true(json_is_string(json_object_get(x, "a")));
                json_decref(x);
                assert_int_equal(fit, DRA_GRAMMAR_WHOLE);
                ended++;
            } else {
                assert_int_equal(fit, DRA_GRAMMAR_PART);
            }
        }
    }
    assert_true(ended > 5);
    dra_generator_destroy(g);
    dra_grammar_destroy(grammar);
    close_writer(&w);
}

static void writes_texts_of_a_schema(void **state)
{
    dra_tokenizer *t[] = {bytes_tokenizer(), small_tokenizer(), open_tokenizer("tests/data/world")};
    for (int i = 0; i < 3; i++) {
        check_texts(t[i], "dra-gru-tiny");
        dra_tokenizer_destroy(t[i]);
    }
}

typedef struct nest { /* a model, bytes, and a grammar whose texts nest */
    dra_tokenizer *t;
    writer         w;
    dra_grammar   *grammar;
    dra_generator *g;
} nest;

static nest open_nest(int64_t rows, const char *grammar)
{
    nest n = {bytes_tokenizer(), open_writer("gpt2-tiny", 256, 5), parse(grammar), NULL};
    dra_generator_config c = config_of(&n.w, rows);
    c.tokenizer = n.t, c.grammar = n.grammar, c.samples = 1, c.sampler.temperature = 1.5;
    n.g = open_config(c);
    return n;
}

static void close_nest(nest *n)
{
    dra_generator_destroy(n->g);
    dra_grammar_destroy(n->grammar);
    close_writer(&n->w);
    dra_tokenizer_destroy(n->t);
}

static const char nested[] = "root ::= \"<\" [a-c]{3} (\"(\" root \")\")? [d-f]{7} \">\"";

static void go_on(nest *n, int64_t tokens, const char *stop, page *pages, dra_generated *out)
{
    const dra_generate_config c = {
        .tokens = tokens, .n_stop = stop != NULL, .stop = &stop, .write = put, .user = pages};
    dra_error err = {0};
    expect_ok(dra_generate(n->g, &c, out, &err), &err);
}

/* A text may be written in parts, go on in a copy, be kept and taken back. */
static void grammars_follow_rows(void **state)
{
    static page   whole[2], parts[2];
    nest          n = open_nest(2, nested);
    dra_generated out[2];
    dra_error     err = {0};
    dra_context   kept = {0};
    write_rows(n.g, 2, 40, whole, out);
    for (int64_t b = 0; b < 2; b++) expect_ok(dra_generator_reset(n.g, b, &err), &err);
    write_rows(n.g, 2, 6, parts, out);
    expect_ok(dra_generator_keep(n.g, 0, &kept, &err), &err);
    assert_non_null(kept.grammar);
    go_on(&n, 34, NULL, parts, out);
    for (int b = 0; b < 2; b++) assert_string_equal(whole[b].text, parts[b].text);
    expect_ok(dra_generator_back(n.g, 0, &kept, &err), &err);
    expect_ok(dra_generator_copy(n.g, 1, 0, &err), &err);
    parts[0].n = parts[1].n = 6;
    go_on(&n, 34, NULL, parts, out);
    assert_string_equal(whole[0].text, parts[0].text);
    assert_memory_equal(parts[0].text + 6, parts[1].text + 6, strlen(parts[0].text + 6));
    dra_context_free(&kept);
    close_nest(&n);
}

static void keeps_grammars_apart(void **state)
{
    static page   pages[1];
    nest          n = open_nest(1, nested), other = open_nest(1, "root ::= [a-z]+");
    dra_generated out;
    dra_error     err = {0};
    dra_context   kept = {0};
    write_rows(n.g, 1, 6, pages, &out);
    expect_ok(dra_generator_keep(n.g, 0, &kept, &err), &err);
    assert_int_equal(dra_generator_back(other.g, 0, &kept, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "generator: kept with another grammar");
    dra_context_free(&kept);
    close_nest(&n);
    close_nest(&other);
}

/* What a stop string takes back is taken back from the grammar, too. */
static void stops_inside_a_grammar(void **state)
{
    static page   pages[1];
    nest          n = open_nest(1, "root ::= \"abcdefghij\"");
    dra_generated out;
    write_rows(n.g, 1, 2, pages, &out);
    go_on(&n, 0, "efg", pages, &out);
    assert_int_equal(out.finish, DRA_FINISH_STOP);
    assert_string_equal(pages[0].text, "abcd");
    go_on(&n, 0, NULL, pages, &out);
    assert_int_equal(out.finish, DRA_FINISH_END);
    assert_string_equal(pages[0].text, "abcdefghij");
    close_nest(&n);
}

static void ends_before_it_is_full(void **state)
{
    static page   pages[1];
    nest          n = open_nest(1, "root ::= \"abc\"");
    dra_generated out;
    write_rows(n.g, 1, 3, pages, &out);
    assert_int_equal(out.finish, DRA_FINISH_END);
    go_on(&n, 3, NULL, pages, &out); /* nothing more */
    assert_int_equal(out.n, 0);
    assert_int_equal(out.finish, DRA_FINISH_END);
    close_nest(&n);
}

/* The end of text may be picked exactly where the grammar may end. */
static void ends_where_it_may(void **state)
{
    static page          pages[1];
    dra_tokenizer       *t = small_tokenizer();
    const int32_t        end = dra_tokenizer_end(t);
    writer               w = open_writer("dra-gru-tiny", dra_tokenizer_size(t), 5);
    dra_grammar         *grammar = parse("root ::= ([a-z]{3})*");
    const dra_token_bias list[] = {{end, 1000}};
    dra_generator_config c = config_of(&w, 1);
    dra_generated        out;
    dra_error            err = {0};
    assert_true(end >= 0);
    c.tokenizer = t, c.grammar = grammar;
    dra_generator *g = open_config(c);
    for (int biased = 0; biased < 2; biased++) {
        const dra_sampler_config sampler = {.temperature = 1, .n_bias = biased, .bias = list};
        expect_ok(dra_generator_set_sampler(g, &sampler, &err), &err);
        for (int64_t tokens = 1; tokens < 9; tokens++) {
            expect_ok(dra_generator_reset(g, 0, &err), &err);
            write_rows(g, 1, tokens, pages, &out);
            if (biased) assert_int_equal(out.n, 0); /* at once */
            if (out.finish == DRA_FINISH_END) assert_int_equal(pages[0].n % 3, 0);
        }
    }
    dra_generator_destroy(g);
    dra_grammar_destroy(grammar);
    close_writer(&w);
    dra_tokenizer_destroy(t);
}

static void tells_when_a_grammar_leaves_nothing(void **state)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    dra_grammar   *grammar = parse("root ::= \"a\" \"\xc3\xa9\"");
    dra_generated  out;
    const int32_t  prompt[] = {1, 2};
    expect_ok(read_tiny((tiny){0}, &t, &err), &err);
    writer               w = open_writer("dra-gru-tiny", dra_tokenizer_size(t), 5);
    dra_generator_config c = config_of(&w, 1);
    c.tokenizer = t, c.grammar = grammar;
    dra_generator *g = open_config(c);
    feed(g, 0, 2, prompt);
    assert_int_equal(dra_generate(g, &(dra_generate_config){.tokens = 5}, &out, &err),
                     DRA_ERR_VALUE);
    assert_string_equal(err.text,
                        "generate: row 0, token 3: the grammar leaves no token of the vocabulary");
    dra_generator_destroy(g);
    c.tokenizer = NULL;
    assert_int_equal(dra_generator_create(&c, &g, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "a grammar needs a tokenizer");
    dra_grammar_destroy(grammar);
    close_writer(&w);
    dra_tokenizer_destroy(t);
}

/* ---- beams ----------------------------------------------------------------------------------- */

/* A search follows the grammar; one as wide as the grammar finds the best of all its texts. */
static void beams_follow_grammars(void **state)
{
    static page               pages[8];
    nest                      n = open_nest(1, "root ::= [ab] [cd] [ef]");
    const int32_t             prompt[] = {9, 8, 7};
    const dra_generate_config c = {.write = put, .user = pages};
    dra_beam                  out[8];
    dra_error                 err = {0};
    double                    best = -INFINITY, probs[256];
    char                      best_text[4] = "";
    feed(n.g, 0, 3, prompt);
    expect_ok(dra_generate_beam(n.g, &c, &(dra_beam_config){.beams = 8}, out, &err), &err);
    dra_generator *plain = open_config(config_of(&n.w, 1));
    for (int i = 0; i < 8; i++) {
        int32_t text[6] = {9, 8, 7, 'a' + (i & 1), 'c' + (i >> 1 & 1), 'e' + (i >> 2)};
        double  sum = 0;
        for (int k = 3; k < 6; k++) { /* of the two that may follow */
            const int first = text[k] - (i >> (k - 3) & 1);
            log_probs(256, read_whole(plain, k, text), 1, 0, NULL, probs);
            sum += probs[text[k]] - log(exp(probs[first]) + exp(probs[first + 1]));
        }
        if (sum > best) {
            best = sum;
            for (int k = 0; k < 3; k++) best_text[k] = (char)text[3 + k];
        }
    }
    assert_string_equal(pages[0].text, best_text);
    assert_true(fabs(out[0].score - best) < 1e-4);
    for (int k = 0; k < 8; k++) {
        assert_int_equal(out[k].text.finish, DRA_FINISH_END);
        assert_int_equal(pages[k].n, 3);
    }
    dra_generator_destroy(plain);
    close_nest(&n);
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static void logprobs_are_the_models_own(void **state)
{
    const dra_token_bias list[] = {{3, 4}, {5, -INFINITY}};
    writer               w = open_writer("dra-gru-tiny", 60, 3);
    dra_generator_config c = config_of(&w, 1);
    dra_generated        out;
    dra_error            err = {0};
    int32_t              text[TEXT];
    double               probs[60];
    dra_generator       *plain = open_config(c);
    c.sampler = (dra_sampler_config){
        .n_bias = 2, .bias = list, .temperature = 0.7, .top_k = 20, .repetition_penalty = 1.3};
    dra_generator *g = open_config(c);
    make_prompt(60, text, 5, 1);
    feed(g, 0, 5, text);
    expect_ok(dra_generate(g, &(dra_generate_config){.tokens = 12, .logprobs = 4}, &out, &err),
              &err);
    assert_int_equal(out.top, 4);
    for (int i = 0; i < 12; i++) {
        const dra_logprob *l = out.logprobs + 5 * i;
        log_probs(60, read_whole(plain, 5 + i, text), 1, 0, NULL, probs);
        text[5 + i] = out.ids[i];
        assert_int_equal(l[0].id, out.ids[i]);
        for (int k = 0; k < 5; k++) assert_true(fabs(l[k].logprob - probs[l[k].id]) < 1e-4);
        for (int k = 1; k < 4; k++) assert_true(l[k].logprob >= l[k + 1].logprob);
        for (int v = 0; v < 60; v++) assert_true(probs[v] <= l[1].logprob + 1e-4);
    }
    expect_ok(dra_generate(g, &(dra_generate_config){.tokens = 1, .logprobs = 400}, &out, &err),
              &err);
    assert_int_equal(out.top, 60);
    dra_generator_destroy(g);
    dra_generator_destroy(plain);
    close_writer(&w);
}

/* A token that a stop string cuts has none. */
static void cut_tokens_have_no_logprobs(void **state)
{
    dra_tokenizer       *t = NULL;
    const char          *stop = "b";
    const dra_token_bias list[] = {{3, 1000}}; /* "ab" */
    dra_generated        out;
    dra_error            err = {0};
    expect_ok(read_tiny((tiny){0}, &t, &err), &err);
    writer               w = open_writer("dra-gru-tiny", dra_tokenizer_size(t), 5);
    dra_generator_config c = config_of(&w, 1);
    c.tokenizer = t;
    c.sampler = (dra_sampler_config){.n_bias = 1, .bias = list};
    dra_generator *g = open_config(c);
    feed(g, 0, 2, (int32_t[]){1, 2});
    const dra_generate_config how = {.tokens = 3, .n_stop = 1, .stop = &stop, .logprobs = 2};
    expect_ok(dra_generate(g, &how, &out, &err), &err);
    assert_int_equal(out.finish, DRA_FINISH_STOP);
    assert_int_equal(out.n, 1);
    assert_int_equal(out.logprobs[0].id, 0);
    assert_true(isnan(out.logprobs[0].logprob));
    assert_int_equal(out.logprobs[1].id, -1);
    dra_generator_destroy(g);
    close_writer(&w);
    dra_tokenizer_destroy(t);
}

/* ---- texts that follow each other ------------------------------------------------------------ */

typedef struct answer {
    char        text[256];
    int32_t     ids[32];
    dra_logprob logprobs[32];
    size_t      n;
    dra_finish  finish;
} answer;

typedef struct queue {
    dra_generator *g;
    page           pages[ROWS];
    int            next, of[ROWS]; /* which text a row is writing */
    int            asked;
    answer         answers[TEXTS];
} queue;

static int64_t tokens_of(int which) { return 1 + (which * 7) % 11; }

static void note(queue *q, int which, const dra_generated *done, page *p)
{
    answer *a = &q->answers[which];
    memcpy(a->text, p->text, p->n);
    a->n = done->n;
    a->finish = done->finish;
    if (done->n) memcpy(a->ids, done->ids, done->n * sizeof *a->ids);
    for (size_t i = 0; i < done->n; i++)
        a->logprobs[i] = done->logprobs[(size_t)(done->top + 1) * i];
    p->n = 0;
}

static dra_status prepare(dra_generator *g, int64_t row, int which, dra_error *err)
{
    int32_t    ids[TEXT];
    const int  n = 1 + (which * 13) % 37;
    dra_status st = dra_generator_reset(g, row, err);
    make_prompt(200, ids, n, which);
    if (st == DRA_OK) st = dra_generator_read(g, row, (size_t)n, ids, err);
    return st == DRA_OK ? dra_generator_set_seed(g, row, 100 + (uint64_t)which, err) : st;
}

static dra_status next_text(void *user, int64_t row, const dra_generated *done, int64_t *tokens,
                            dra_error *err)
{
    queue *q = user;
    q->asked++;
    if (done) note(q, q->of[row], done, &q->pages[row]);
    if (q->next == TEXTS) return DRA_OK;
    q->of[row] = q->next++;
    *tokens = tokens_of(q->of[row]);
    return prepare(q->g, row, q->of[row], err);
}

static bool put_queue(void *user, int64_t row, const char *text, size_t bytes)
{
    return put(((queue *)user)->pages, row, text, bytes);
}

static void run_queue(queue *q, const char *preset, int64_t rows, const dra_grammar *grammar)
{
    const char               *stop[] = {"e", "Qx"};
    dra_tokenizer            *t = bytes_tokenizer();
    writer                    w = open_writer(preset, 256, 6);
    dra_generator_config      c = config_of(&w, rows);
    const dra_generate_config how = {
        .n_stop = 2, .stop = stop, .write = put_queue, .user = q, .logprobs = 2, .next = next_text};
    dra_error err = {0};
    memset(q, 0, sizeof *q);
    c.tokenizer = t;
    c.grammar = grammar;
    c.sampler = (dra_sampler_config){.temperature = 1.2, .repetition_penalty = 1.1, .seed = 4};
    q->g = open_config(c);
    expect_ok(dra_generate(q->g, &how, NULL, &err), &err);
    assert_int_equal(q->asked, TEXTS + rows);
    dra_generator_destroy(q->g);
    close_writer(&w);
    dra_tokenizer_destroy(t);
}

/* Every text is as if it were alone, down to the bits of its log-probabilities. */
static void rows_take_turns(void **state)
{
    static queue             alone, together;
    static const char *const presets[] = {"dra-gru-tiny", "gpt2-tiny", "rwkv4-tiny"};
    dra_grammar             *grammar = parse("root ::= [a-f]{2,5} | [x-z]+");
    for (int i = 0; i < 4; i++) {
        run_queue(&alone, presets[i % 3], 1, i == 3 ? grammar : NULL);
        for (int64_t rows = 2; rows <= ROWS; rows++) {
            run_queue(&together, presets[i % 3], rows, i == 3 ? grammar : NULL);
            for (int k = 0; k < TEXTS; k++) {
                const answer *a = &alone.answers[k], *b = &together.answers[k];
                assert_int_equal(a->n, b->n);
                assert_int_equal(a->finish, b->finish);
                assert_string_equal(a->text, b->text);
                assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
                for (size_t j = 0; j < a->n; j++)
                    assert_true(a->logprobs[j].logprob == b->logprobs[j].logprob ||
                                isnan(a->logprobs[j].logprob));
            }
        }
    }
    dra_grammar_destroy(grammar);
}

/* A seed of a row is the seed it would have in the config. */
static void rows_have_seeds(void **state)
{
    writer               w = open_writer("dra-gru-tiny", 60, 3);
    dra_generator_config c = config_of(&w, 2);
    dra_generated        out[2], lone;
    dra_error            err = {0};
    const int32_t        prompt[] = {4, 5, 6};
    c.sampler.temperature = 2;
    dra_generator *g = open_config(c);
    for (int64_t b = 0; b < 2; b++) feed(g, b, 3, prompt);
    expect_ok(dra_generator_set_seed(g, 1, 77, &err), &err);
    assert_int_equal(dra_generator_set_seed(g, 2, 77, &err), DRA_ERR_INDEX);
    expect_ok(dra_generate(g, &(dra_generate_config){.tokens = 20}, out, &err), &err);
    c.rows = 1;
    c.sampler.seed = 77;
    dra_generator *other = open_config(c);
    feed(other, 0, 3, prompt);
    expect_ok(dra_generate(other, &(dra_generate_config){.tokens = 20}, &lone, &err), &err);
    assert_memory_equal(out[1].ids, lone.ids, 20 * sizeof *lone.ids);
    assert_memory_not_equal(out[0].ids, lone.ids, 20 * sizeof *lone.ids);
    dra_generator_destroy(g);
    dra_generator_destroy(other);
    close_writer(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bias_comes_first),
        cmocka_unit_test(refuses_biases),
        cmocka_unit_test(forbids_tokens),
        cmocka_unit_test(tells_when_bias_leaves_nothing),
        cmocka_unit_test(writes_texts_of_a_schema),
        cmocka_unit_test(grammars_follow_rows),
        cmocka_unit_test(keeps_grammars_apart),
        cmocka_unit_test(stops_inside_a_grammar),
        cmocka_unit_test(ends_before_it_is_full),
        cmocka_unit_test(ends_where_it_may),
        cmocka_unit_test(tells_when_a_grammar_leaves_nothing),
        cmocka_unit_test(beams_follow_grammars),
        cmocka_unit_test(logprobs_are_the_models_own),
        cmocka_unit_test(cut_tokens_have_no_logprobs),
        cmocka_unit_test(rows_take_turns),
        cmocka_unit_test(rows_have_seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
