/* Biases and grammars from the command line. */
#include "constraint.h"
#include "options/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRAMMAR_MOST = 1 << 24, NUMBER = 64 };

/* ---- biases ---------------------------------------------------------------------------------- */

/* A number of n bytes, finite or -inf. */
static bool read_number(const char *text, size_t n, double *out)
{
    char number[NUMBER], *end;
    if (n == 0 || n >= sizeof number || strchr(" \t\n", *text)) return false;
    memcpy(number, text, n);
    number[n] = '\0';
    *out = strtod(number, &end);
    return *end == '\0' && (isfinite(*out) || *out == -INFINITY);
}

/* "12=0.5,13=-inf": a text that begins with digits and = is a list of ids. */
static bool is_list(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits > 0 && text[digits] == '=';
}

/* One ID=X of a list; returns what follows it, NULL: it is none. */
static const char *read_entry(const char *text, dra_token_bias *out)
{
    const size_t digits = strspn(text, "0123456789");
    const char  *number = text + digits + 1;
    if (digits == 0 || digits > 9 || text[digits] != '=') return NULL;
    const size_t n = strcspn(number, ",");
    out->id = (int32_t)strtol(text, NULL, 10);
    if (!read_number(number, n, &out->bias)) return NULL;
    return number + n + (number[n] == ',' && number[n + 1]);
}

/* TEXT=X; *n is the length of TEXT. */
static bool read_text(const char *text, size_t *n, double *bias)
{
    const char *equals = strrchr(text, '=');
    if (!equals || equals == text) return false;
    *n = (size_t)(equals - text);
    return read_number(equals + 1, strlen(equals + 1), bias);
}

int cli_bias_check(const char *verb, const cli_list *bias)
{
    char quoted[80];
    for (size_t i = 0; i < bias->count; i++) {
        const char    *text = bias->text[i], *at = text;
        dra_token_bias entry;
        size_t         n;
        if (is_list(text))
            while (at && *at) at = read_entry(at, &entry);
        else if (!read_text(text, &n, &entry.bias))
            at = NULL;
        if (!at)
            return cli_misused(verb, "--logit-bias: expected ID=X[,ID=X] or TEXT=X, found %s",
                               cli_quote(text, quoted, sizeof quoted));
    }
    return CLI_OK;
}

static dra_status add_bias(cli_biases *to, dra_token_bias entry, int64_t V, dra_error *err)
{
    if (entry.id >= V)
        return cli_error(err, DRA_ERR_INDEX, "--logit-bias: token %d, the model has 0 to %lld",
                         entry.id, (long long)V - 1);
    dra_token_bias *more = realloc(to->list, (size_t)(to->n + 1) * sizeof *more);
    if (!more) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    to->list = more;
    to->list[to->n++] = entry;
    return DRA_OK;
}

static dra_status add_text(cli_biases *to, const char *text, const dra_tokenizer *t, int64_t V,
                           dra_error *err)
{
    char    quoted[80];
    dra_ids ids = {0};
    size_t  n = 0;
    double  bias = 0;
    read_text(text, &n, &bias);
    if (!t) return cli_error(err, DRA_ERR_VALUE, "--logit-bias: without a tokenizer expected ids");
    dra_status st = dra_encode_as(t, text, n, DRA_ENCODE_REST, &ids, err);
    if (st == DRA_OK && ids.n != 1)
        st = cli_error(err, DRA_ERR_VALUE, "--logit-bias: %s: expected one token, found %zu",
                       cli_quote(text, quoted, sizeof quoted), ids.n);
    if (st == DRA_OK) st = add_bias(to, (dra_token_bias){ids.data[0], bias}, V, err);
    dra_ids_free(&ids);
    return st;
}

dra_status cli_biases_open(const cli_list *bias, const dra_tokenizer *tokenizer, int64_t V,
                           cli_biases *out, dra_error *err)
{
    dra_status st = DRA_OK;
    for (size_t i = 0; i < bias->count && st == DRA_OK; i++) {
        const char    *at = bias->text[i];
        dra_token_bias entry;
        if (!is_list(at)) {
            st = add_text(out, at, tokenizer, V, err);
            continue;
        }
        while (st == DRA_OK && at && *at) {
            at = read_entry(at, &entry);
            if (at) st = add_bias(out, entry, V, err);
        }
    }
    return st;
}

void cli_biases_close(cli_biases *b)
{
    free(b->list);
    *b = (cli_biases){0};
}

/* ---- grammars -------------------------------------------------------------------------------- */

dra_status cli_grammar_open(const char *grammar, const char *schema, dra_grammar **out,
                            dra_error *err)
{
    const char *path = grammar ? grammar : schema;
    char       *text = NULL;
    size_t      bytes = 0;
    *out = NULL;
    if (!path) return DRA_OK;
    const bool itself = grammar ? strstr(path, "::=") != NULL : *path == '{';
    if (itself && !cli_is_there(path))
        return cli_error(err, DRA_ERR_FILE, "--%s: expected a file that has it, found %s itself",
                         grammar ? "grammar" : "json-schema", grammar ? "a grammar" : "a schema");
    dra_status st = dra_file_read(path, GRAMMAR_MOST, &text, &bytes, err);
    if (st == DRA_OK)
        st = (grammar ? dra_grammar_parse : dra_grammar_schema)(path, text, bytes, out, err);
    free(text);
    return st;
}
