/* Prompts as they come in, and what is said about a text as JSON. */
#include "prompt_record.h"
#include "io/line_read.h"
#include "io/memory.h"
#include "options/term.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- stdin ----------------------------------------------------------------------------------- */

static dra_status read_stream(FILE *in, char **text, size_t *bytes, dra_error *err)
{
    size_t room = 0;
    for (;;) {
        if (room - *bytes < 2) {
            room = room ? 2 * room : 4096;
            char *more = realloc(*text, room);
            if (!more) return cli_error(err, DRA_ERR_MEMORY, "stdin: out of memory");
            *text = more;
        }
        const size_t n = fread(*text + *bytes, 1, room - *bytes - 1, in);
        if (n == 0) break;
        *bytes += n;
    }
    (*text)[*bytes] = '\0';
    return ferror(in) ? cli_error(err, DRA_ERR_FILE, "stdin: cannot read it") : DRA_OK;
}

static dra_status read_stdin(char **text, size_t *bytes, dra_error *err)
{
    FILE *in = cli_input_open("-");
    *text = NULL;
    *bytes = 0;
    if (!in)
        return cli_error(err, errno == ENOMEM ? DRA_ERR_MEMORY : DRA_ERR_FILE,
                         "stdin: cannot open it: %s", cli_reason(errno));
    const dra_status st = read_stream(in, text, bytes, err);
    fclose(in);
    return st;
}

dra_status cli_input_read(const char *path, char **text, size_t *bytes, dra_error *err)
{
    if (strcmp(path, "-") == 0) return read_stdin(text, bytes, err);
    return dra_file_read(path, (size_t)1 << 32, text, bytes, err);
}

dra_status cli_prompt_encode(const dra_tokenizer *t, const char *text, size_t bytes, dra_ids *out,
                             dra_error *err)
{
    const int32_t end = dra_tokenizer_end(t);
    char          number[16];
    if (bytes > 0 || dra_tokenizer_begin(t) >= 0)
        return dra_encode_as(t, text, bytes, DRA_ENCODE_BEGIN, out, err);
    if (end < 0)
        return cli_error(err, DRA_ERR_VALUE,
                         "the prompt is empty, and the tokenizer has no end of text to start from");
    snprintf(number, sizeof number, "%d", end);
    return cli_ids_read("end of text", number, out, err);
}

/* ---- records --------------------------------------------------------------------------------- */

void cli_record_prompt(const dra_tokenizer *t, const dra_ids *ids, FILE *out)
{
    dra_decoder *d = NULL;
    const char  *text;
    size_t       bytes;
    bool         known = t != NULL;
    for (size_t i = 0; known && i < ids->n; i++)
        known = dra_tokenizer_piece(t, ids->data[i], &bytes);
    if (known) cli_memory_note(dra_decoder_create(t, false, &d, NULL));
    if (!d) {
        fputs("null", out);
        return;
    }
    dra_decoder_start(d);
    fputc('"', out);
    for (size_t i = 0; i < ids->n; i++) {
        const dra_status st = dra_decoder_push(d, ids->data[i], &text, &bytes, NULL);
        if (st == DRA_OK) cli_json_part(text, bytes, out);
        cli_memory_note(st);
    }
    dra_decoder_flush(d, &text, &bytes);
    cli_json_part(text, bytes, out);
    fputc('"', out);
    dra_decoder_destroy(d);
}

/* Returns whether it is no number. */
static bool print_logprob(const dra_logprob *l, FILE *out)
{
    char room[CLI_NUMBER];
    fprintf(out, "{\"id\": %d, \"logprob\": %s", l->id, cli_json_number(l->logprob, 9, room));
    return !isfinite(l->logprob);
}

static void print_logprobs(const dra_generated *g, FILE *out)
{
    int64_t bad = 0;
    fputs(", \"logprobs\": [", out);
    for (size_t i = 0; i < g->n; i++) {
        const dra_logprob *l = g->logprobs + i * (size_t)(g->top + 1);
        if (i) fputs(", ", out);
        bad += print_logprob(l, out);
        fputs(", \"top\": [", out);
        for (int64_t k = 1; k <= g->top && l[k].id >= 0; k++) {
            if (k > 1) fputs(", ", out);
            bad += print_logprob(&l[k], out);
            fputc('}', out);
        }
        fputs("]}", out);
    }
    fputc(']', out);
    if (bad) fprintf(out, ", \"not_finite\": %lld", (long long)bad);
}

void cli_record_numbers(const dra_generated *g, uint64_t seed, FILE *out)
{
    fprintf(out, ", \"seed\": %llu, \"ids\": [", (unsigned long long)seed);
    for (size_t i = 0; i < g->n; i++) fprintf(out, "%s%d", i ? ", " : "", g->ids[i]);
    fputc(']', out);
    if (g->logprobs) print_logprobs(g, out);
}

void cli_record_members(const dra_tokenizer *t, const dra_ids *prompt, uint64_t seed,
                        const dra_generated *g, FILE *out)
{
    fputs(", \"prompt\": ", out);
    cli_record_prompt(t, prompt, out);
    cli_record_numbers(g, seed, out);
}
