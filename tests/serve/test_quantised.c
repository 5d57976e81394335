/* Quantised models behind the server: the log-likelihoods of /v1/completions with echo are those of
 * dra eval, and dra generate writes the same text with and without the server. From folders and
 * from GGUF, which hold the same numbers. */
#include "client.h"

#undef COUNT
#include "options/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const cli_verb cmd_convert, cmd_eval, cmd_generate;

static const char text[] = "The cat sat on the mat, and the king had three sons.";

enum { LETTERS = sizeof text - 1, PATH = 160 };

typedef struct scores { /* of each letter but the first, after those before it */
    double of[LETTERS];
} scores;

static const char *model; /* folder of the model as it was */
static server      it;    /* pid 0: none runs */

static void path_of(const char *name, char path[PATH])
{
    assert_true(snprintf(path, PATH, "%s/%s", model, name) < PATH);
}

static void run(const cli_verb *verb, const char *out, const char *const *words)
{
    char path[PATH];
    path_of(out, path);
    assert_int_equal(client_verb(verb, path, words), 0);
}

static void quantise(const char *dtype, const char *to)
{
    char data[PATH];
    path_of("text", data);
    run(&cmd_convert, "said",
        (const char *const[]){"--from", model, "--to", to, "--quantise", dtype, "--text", data,
                              "--threads", "1", NULL});
}

/* ---- by dra eval ----------------------------------------------------------------------------- */

static void read_scores(const char *path, scores *s)
{
    static const char key[] = "\"logprob\": ";
    char              line[256];
    int               n = 0;
    FILE             *f = fopen(path, "r");
    assert_non_null(f);
    for (n = 1; fgets(line, sizeof line, f); n++) {
        const char *at = strstr(line, key);
        assert_true(at && n < LETTERS);
        s->of[n] = strtod(at + sizeof key - 1, NULL);
    }
    fclose(f);
    assert_int_equal(n, LETTERS);
}

static scores evaluate(const char *path)
{
    char   data[PATH], tokens[PATH];
    scores s = {0};
    path_of("text", data);
    path_of("tokens.jsonl", tokens);
    run(&cmd_eval, "said",
        (const char *const[]){"--model", path, "--data", data, "--data-format", "text",
                              "--per-token", tokens, "--threads", "1", NULL});
    read_scores(tokens, &s);
    return s;
}

/* ---- by the server --------------------------------------------------------------------------- */

/* Also after a failure, else it would wait for ever. */
static int stop(void **state)
{
    const int status = it.pid ? server_stop(&it) : 0;
    it = (server){0};
    return status;
}

static void expect_scores(const scores *own)
{
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\": \"%s\", \"max_tokens\": 1, \"echo\": true, \"logprobs\": 1,"
             " \"temperature\": 0}",
             text);
    answer  a = client_ask(it.port, "POST", "/v1/completions", body);
    json_t *each = answer_at(&a, "choices.0.logprobs.token_logprobs");
    assert_int_equal(a.status, 200);
    assert_int_equal(json_array_size(each), LETTERS + 1);
    assert_true(json_is_null(json_array_get(each, 0)));
    for (size_t i = 1; i < LETTERS; i++) {
        const double x = json_number_value(json_array_get(each, i));
        if (!(fabs(x - own->of[i]) <= 1e-6 * fmax(1, fabs(own->of[i]))))
            fail_msg("letter %zu: %.9g by the server, %.9g by dra eval", i, x, own->of[i]);
    }
    answer_free(&a);
}

static void get_text(const char *name, char *to, size_t bytes)
{
    char path[PATH];
    path_of(name, path);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    to[fread(to, 1, bytes - 1, f)] = '\0';
    fclose(f);
}

static void writes_the_same(const char *path)
{
    char here[512];
    run(&cmd_generate, "here",
        (const char *const[]){"--model", path, "--prompt", "Once upon", "--tokens", "24", "--seed",
                              "3", "--threads", "1", NULL});
    answer there = client_ask(it.port, "POST", "/v1/completions",
                              "{\"prompt\": \"Once upon\", \"max_tokens\": 24, \"seed\": 3}");
    get_text("here", here, sizeof here);
    assert_true(strlen(here) >= 24);
    here[strlen(here) - 1] = '\0'; /* ends a line */
    assert_string_equal(here, answer_text(&there, "choices.0.text"));
    answer_free(&there);
}

static void serve(const char *path, const scores *own)
{
    it = server_start(
        (const char *const[]){"--model", path, "--port", "0", "--threads", "1", NULL});
    assert_true(it.port > 0);
    expect_scores(own);
    writes_the_same(path);
    assert_int_equal(stop(NULL), 0);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* What folder and file hold means the same numbers. In the double build folders keep what is not
 * quantised as doubles, which GGUF does not. */
static void expect_same(const scores *a, const scores *b)
{
    const double most = sizeof(dra_real) == sizeof(double) ? 1e-6 : 0;
    for (int i = 1; i < LETTERS; i++) assert_true(fabs(a->of[i] - b->of[i]) <= most);
}

static void try_dtype(const char *dtype)
{
    char folder[PATH], file[PATH], name[32];
    path_of(dtype, folder);
    snprintf(name, sizeof name, "%s.gguf", dtype);
    path_of(name, file);
    quantise(dtype, folder);
    quantise(dtype, file);
    const scores a = evaluate(folder), b = evaluate(file), whole = evaluate(model);
    expect_same(&a, &b);
    assert_memory_not_equal(&a, &whole, sizeof a);
    serve(folder, &a);
    serve(file, &b);
}

static void try_model(const char *preset)
{
    char data[PATH];
    model = server_model(preset);
    path_of("text", data);
    FILE *f = fopen(data, "w");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
    try_dtype("q8_0");
    try_dtype("q4_0");
}

static void attention(void **state) { try_model("gpt2-tiny"); }
static void recurrent(void **state) { try_model("rwkv7-tiny"); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(attention, stop),
        cmocka_unit_test_teardown(recurrent, stop),
    };
    return cmocka_run_group_tests_name("serve_quantised", tests, NULL, NULL);
}
