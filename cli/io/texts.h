/* Texts to read, each as its tokens: from the command line, a file with a text in every line, or
 * stdin. */
#ifndef DRA_CLI_IO_TEXTS_H
#define DRA_CLI_IO_TEXTS_H

#include "inputs.h"

typedef struct cli_texts {
    size_t   n, room;
    dra_ids *ids; /* (n): 1 token or more each */
} cli_texts;      /* starts as {0}, ends with cli_texts_free() */

/* Texts of --text; "-" is all of stdin. */
dra_status cli_texts_list(cli_texts *x, const dra_tokenizer *t, const cli_list *list,
                          dra_error *err);
/* A text in every line that is not blank; "-": of stdin. Where a key is given, or the name ends
 * with .jsonl, lines are JSON objects which have it there, by default under "text". */
dra_status cli_texts_file(cli_texts *x, const dra_tokenizer *t, const char *path, const char *key,
                          dra_error *err);
/* Tokens and pads of a read of n tokens: few different numbers, as a program is compiled for each,
 * and following from n alone, which keeps bits. */
enum { CLI_PIECE = 256 }; /* what long texts are cut into */
int64_t cli_padded(int64_t n);
void    cli_texts_free(cli_texts *x);
size_t  cli_texts_longest(const cli_texts *x);

/* All of them as the rows of a batch, with pads after the shorter ones; one text has no axis B. */
dra_status cli_texts_inputs(const cli_texts *x, cli_inputs *out, dra_error *err);

#endif
