/* Scores of tokens, kept until all are known: windows are read in any order. */
#include "tokens.h"
#include "io/line_read.h"
#include "io/npy.h"
#include "verbs/generate/prompt_record.h"

#include <stdlib.h>
#include <string.h>

void cli_token_scores_free(cli_token_scores *s)
{
    free(s->score);
    *s = (cli_token_scores){0};
}

dra_status cli_token_scores_add(cli_token_scores *s, int64_t at, int32_t id, double logprob,
                                dra_error *err)
{
    if (s->n == s->room) {
        const size_t     room = s->room ? 2 * s->room : 1024;
        cli_token_score *more = realloc(s->score, room * sizeof *more);
        if (!more) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
        s->score = more;
        s->room = room;
    }
    s->score[s->n++] = (cli_token_score){at, logprob, id};
    return DRA_OK;
}

static int by_place(const void *a, const void *b)
{
    const int64_t x = ((const cli_token_score *)a)->at, y = ((const cli_token_score *)b)->at;
    return (x > y) - (x < y);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The document of a token, looked for from that of an earlier one on. */
static int64_t document_of(const dra_corpus *c, int64_t at, int64_t from)
{
    while (dra_corpus_document(c, from + 1) <= at) from++;
    return from;
}

enum { FIELDS = 8 + 8 + 4 + 8 }; /* bytes of a row of the array */

static dra_status write_array(const cli_token_scores *s, const char *path, const dra_corpus *corpus,
                              dra_error *err)
{
    unsigned char *rows = malloc(s->n * FIELDS + 1);
    int64_t        document = 0;
    char           shape[32];
    if (!rows) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < s->n; i++) {
        const cli_token_score *x = &s->score[i];
        unsigned char         *to = rows + i * FIELDS;
        document = document_of(corpus, x->at, document);
        const int64_t position = x->at - dra_corpus_document(corpus, document);
        memcpy(to, &document, 8);
        memcpy(to + 8, &position, 8);
        memcpy(to + 16, &x->id, 4);
        memcpy(to + 20, &x->logprob, 8);
    }
    snprintf(shape, sizeof shape, "%zu,", s->n);
    const dra_status st = cli_npy_write(path,
                                        "[('document', '<i8'), ('position', '<i8'), ('id', '<i4'), "
                                        "('logprob', '<f8')]",
                                        shape, rows, s->n * FIELDS, err);
    free(rows);
    return st;
}

static void print_line(const cli_token_score *x, int64_t document, int64_t position,
                       const dra_tokenizer *t, FILE *out)
{
    int32_t       id = x->id;
    const dra_ids one = {&id, 1, 1};
    char          room[CLI_NUMBER];
    fprintf(out,
            "{\"document\": %lld, \"position\": %lld, \"id\": %d, \"text\": ", (long long)document,
            (long long)position, x->id);
    cli_record_prompt(t, &one, out);
    fprintf(out, ", \"logprob\": %s}\n", cli_json_number(x->logprob, 9, room));
}

static dra_status write_lines(const cli_token_scores *s, const char *path, const dra_corpus *corpus,
                              const dra_tokenizer *t, dra_error *err)
{
    int64_t          document = 0;
    char            *text = NULL;
    size_t           bytes = 0;
    dra_file_writer *w = NULL;
    FILE            *out = dra_stream_memory(&text, &bytes);
    if (!out) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    dra_status st = dra_file_writer_begin(path, &w, err);
    for (size_t i = 0; i < s->n && st == DRA_OK; i++) {
        document = document_of(corpus, s->score[i].at, document);
        print_line(&s->score[i], document, s->score[i].at - dra_corpus_document(corpus, document),
                   t, out);
        if (i % 4096 != 4095 && i + 1 < s->n) continue;
        if (fflush(out) != 0 || ferror(out)) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
        if (st == DRA_OK) st = dra_file_writer_write(w, text, bytes, err);
        rewind(out);
    }
    fclose(out);
    free(text);
    if (st == DRA_OK) return dra_file_writer_commit(w, err);
    dra_file_writer_abort(w);
    return st;
}

dra_status cli_token_scores_write(cli_token_scores *s, const char *path, const dra_corpus *corpus,
                                  const dra_tokenizer *tokenizer, dra_error *err)
{
    qsort(s->score, s->n, sizeof *s->score, by_place);
    if (cli_ends_with(path, ".npy")) return write_array(s, path, corpus, err);
    return write_lines(s, path, corpus, tokenizer, err);
}
