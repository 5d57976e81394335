/* Speculation as an option: --draft. */
#ifndef DRA_CLI_VERBS_GENERATE_DRAFTING_H
#define DRA_CLI_VERBS_GENERATE_DRAFTING_H

#include "sampling.h"

typedef struct cli_draft_args {
    const char *from; /* "ngram" or a folder; NULL: no drafts */
    int64_t     most;
} cli_draft_args;

/* Rows of an option table, for a struct with a cli_draft_args called `draft`. */
#define CLI_DRAFT_OPTIONS(type)                                                                    \
    {"draft",                                                                                      \
     CLI_TEXT,                                                                                     \
     offsetof(type, draft.from),                                                                   \
     0,                                                                                            \
     0,                                                                                            \
     "guess the next tokens and read them at once: ngram guesses from the text itself, a folder "  \
     "names a smaller model of the same tokens; the text stays the same",                          \
     "ngram|DIR",                                                                                  \
     .group = "Speculation"},                                                                      \
    {                                                                                              \
        "draft-tokens", CLI_INT, offsetof(type, draft.most), 1, 15,                                \
            "with --draft: guess no more than N tokens at a time", .unset = "15"                   \
    }

typedef struct cli_drafting {
    cli_model model;
    dra_draft draft; /* for an engine or a generator */
} cli_drafting;      /* starts as {0} */

/* Whether options go together: else misuse, as cli_misused(). */
int cli_draft_check(const char *verb, const cli_draft_args *a);
/* Opens the model, if it is one; to be closed on failure, too. */
dra_status cli_draft_open(const cli_draft_args *a, const cli_source *from,
                          const dra_tokenizer *tokenizer, cli_drafting *out, dra_error *err);
void       cli_draft_close(cli_drafting *d);

#endif
