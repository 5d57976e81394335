/* Texts as lists of tokens. */
#include "texts.h"
#include "report/jsonl.h"
#include "line_read.h"
#include "verbs/generate/prompt_record.h"

#include <stdlib.h>
#include <string.h>

void cli_texts_free(cli_texts *x)
{
    for (size_t i = 0; i < x->n; i++) dra_ids_free(&x->ids[i]);
    free(x->ids);
    *x = (cli_texts){0};
}

size_t cli_texts_longest(const cli_texts *x)
{
    size_t most = 0;
    for (size_t i = 0; i < x->n; i++)
        if (x->ids[i].n > most) most = x->ids[i].n;
    return most;
}

int64_t cli_padded(int64_t n)
{
    int64_t most = 16;
    while (most < n && most < CLI_PIECE) most *= 2;
    return most < n ? (n + CLI_PIECE - 1) / CLI_PIECE * CLI_PIECE : most;
}

/* An error in err does not say where; the caller adds the place. */
static dra_status add_text(cli_texts *x, const dra_tokenizer *t, const char *text, size_t bytes,
                           dra_error *err)
{
    if (x->n == x->room) {
        const size_t room = x->room ? 2 * x->room : 16;
        dra_ids     *more = realloc(x->ids, room * sizeof *more);
        if (!more) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
        x->ids = more;
        x->room = room;
    }
    dra_ids   *ids = &x->ids[x->n];
    dra_status st = DRA_OK;
    *ids = (dra_ids){0};
    if (bytes) st = dra_encode_as(t, text, bytes, DRA_ENCODE_BEGIN | DRA_ENCODE_END, ids, err);
    if (st == DRA_OK && !ids->n)
        st = cli_error(err, DRA_ERR_VALUE, "no tokens, expected 1 or more");
    if (st == DRA_OK)
        x->n++;
    else
        dra_ids_free(ids);
    return st;
}

/* ---- where they come from -------------------------------------------------------------------- */

dra_status cli_texts_list(cli_texts *x, const dra_tokenizer *t, const cli_list *list,
                          dra_error *err)
{
    dra_status st = DRA_OK;
    for (size_t i = 0; i < list->count && st == DRA_OK; i++) {
        const char *text = list->text[i];
        const bool  standard = strcmp(text, "-") == 0;
        dra_error   why = {0};
        char       *read = NULL;
        size_t      bytes = strlen(text);
        if (standard) st = cli_input_read(text, &read, &bytes, err);
        if (st == DRA_OK && add_text(x, t, read ? read : text, bytes, &why) != DRA_OK)
            st = standard ? cli_error(err, why.code, "--text: stdin: %s", why.text)
                          : cli_error(err, why.code, "--text: text %zu: %s", i + 1, why.text);
        free(read);
    }
    return st;
}

/* The text of a line of JSON; NULL: see err. */
static const char *text_of(const cli_input_lines *l, const char *key, dra_error *err)
{
    cli_member members[CLI_MEMBERS];
    const int  n = cli_line_read(l->line, members);
    for (int i = 0; i < n; i++) {
        if (strcmp(members[i].key, key) != 0) continue;
        if (members[i].kind == CLI_MEMBER_TEXT) return members[i].text;
        cli_input_lines_bad(l, err, "%.80s: expected a text", key);
        return NULL;
    }
    if (n < 0)
        cli_input_lines_bad(l, err, "expected a JSON object");
    else
        cli_input_lines_bad(l, err, "expected a text called %.80s", key);
    return NULL;
}

dra_status cli_texts_file(cli_texts *x, const dra_tokenizer *t, const char *path, const char *key,
                          dra_error *err)
{
    cli_input_lines l = {0};
    bool            more = true;
    dra_status      st = cli_input_lines_open(path, &l, err);
    if (!key && cli_ends_with(path, ".jsonl")) key = "text";
    while (st == DRA_OK && more) {
        dra_error why = {0};
        st = cli_input_lines_next(&l, &more, err);
        if (st != DRA_OK || !more) break;
        const char *text = key ? text_of(&l, key, err) : l.line;
        if (!text)
            st = DRA_ERR_FORMAT;
        else if (add_text(x, t, text, strlen(text), &why) != DRA_OK)
            st = cli_input_lines_bad(&l, err, "%s", why.text);
    }
    cli_input_lines_close(&l);
    return st;
}

/* ---- as a batch ------------------------------------------------------------------------------ */

/* Pads are 0, as calloc leaves them. */
static dra_status make_room(cli_inputs *in, bool ragged, dra_error *err)
{
    const size_t n = (size_t)(in->B * in->T);
    in->ids = calloc(n + 1, sizeof *in->ids);
    in->lengths = calloc((size_t)in->B + 1, sizeof *in->lengths);
    if (ragged) in->mark = calloc(n + 1, sizeof *in->mark);
    return in->ids && in->lengths && (in->mark || !ragged)
               ? DRA_OK
               : cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

dra_status cli_texts_inputs(const cli_texts *x, cli_inputs *out, dra_error *err)
{
    bool ragged = false;
    out->B = (int64_t)x->n;
    out->T = (int64_t)cli_texts_longest(x);
    out->batched = x->n > 1;
    for (size_t b = 0; b < x->n; b++) ragged |= (int64_t)x->ids[b].n != out->T;
    const dra_status st = make_room(out, ragged, err);
    for (size_t b = 0; b < x->n && st == DRA_OK; b++) {
        const int64_t n = (int64_t)x->ids[b].n, at = (int64_t)b * out->T;
        memcpy(out->ids + at, x->ids[b].data, (size_t)n * sizeof *out->ids);
        for (int64_t t = n; t < out->T; t++) out->mark[at + t] = DRA_MARK_PAD;
        out->lengths[b] = (int32_t)n;
    }
    if (st != DRA_OK) cli_inputs_free(out);
    return st;
}
