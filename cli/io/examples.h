/* Data that are examples: tensors by name, and pairs of texts. */
#ifndef DRA_CLI_IO_EXAMPLES_H
#define DRA_CLI_IO_EXAMPLES_H

#include "model.h"

typedef struct cli_pairs {
    const char *src_key, *tgt_key; /* of the texts in a line of .jsonl; NULL: "src", "tgt" */
    const char *src_tokenizer;     /* NULL: that of tgt */
} cli_pairs;

/* Rows of an option table, for a struct with a cli_pairs called `pairs`. */
#define CLI_PAIRS_OPTIONS(type)                                                                    \
    {"src-key",                                                                                    \
     CLI_TEXT,                                                                                     \
     offsetof(type, pairs.src_key),                                                                \
     0,                                                                                            \
     0,                                                                                            \
     "pairs of texts: key of what is read first in a line of .jsonl",                              \
     "KEY",                                                                                        \
     .unset = "src"},                                                                              \
        {"tgt-key",                                                                                \
         CLI_TEXT,                                                                                 \
         offsetof(type, pairs.tgt_key),                                                            \
         0,                                                                                        \
         0,                                                                                        \
         "pairs of texts: key of what is predicted",                                               \
         "KEY",                                                                                    \
         .unset = "tgt"},                                                                          \
    {                                                                                              \
        "src-tokenizer", CLI_TEXT, offsetof(type, pairs.src_tokenizer), 0, 0,                      \
            "pairs of texts: tokenizer of what is read first", "PATH|bytes",                       \
            .unset = "--tokenizer"                                                                 \
    }

/* Whether files hold examples for a model: by what they are or, lines of JSON, by what is asked. A
 * --data-format is that of a corpus. */
bool cli_are_examples(const cli_list *files, const cli_pairs *p, const dra_model_config *model,
                      int format);
/* Whether they are pairs of texts, which need a tokenizer. */
bool cli_are_pairs(const cli_list *files, const cli_pairs *p, const dra_model_config *model);
/* Refuses options of pairs where the data are none. */
dra_status cli_pairs_check(const cli_list *files, const cli_pairs *p, const dra_model_config *model,
                           dra_error *err);
/* Where texts of a model that translates start and end: the tokenizer's end of text, else the token
 * after its last one, which then is no text; -1: the vocabulary has no room for it. */
int64_t cli_text_end(const dra_tokenizer *t, int64_t vocab);
/* The config of a preset gets the vocabularies of its tokenizers: an encoder one token more, to
 * mask others; a model that translates one more where there is no end of text. */
dra_status cli_take_vocab(const cli_pairs *p, const dra_tokenizer *t, dra_model_config *c,
                          dra_error *err);
/* On failure *out is NULL; it is NULL as well where there are no files. */
dra_status cli_examples_open(const cli_list *files, const cli_pairs *p,
                             const dra_model_config *model, const dra_tokenizer *tokenizer,
                             dra_examples **out, dra_error *err);

#endif
