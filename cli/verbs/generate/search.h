/* How dra generate chooses tokens besides drawing them: contrast with weaker models, beams. */
#ifndef DRA_CLI_VERBS_GENERATE_SEARCH_H
#define DRA_CLI_VERBS_GENERATE_SEARCH_H

#include "sampling.h"

typedef struct cli_search {
    cli_list amateur;
    double   alpha, beta;
    int64_t  beam; /* 0: no search */
    double   length_penalty;
    bool     noise;
} cli_search;

/* Start values. */
#define CLI_SEARCH .alpha = 0.1, .beta = 0.5

/* Rows of an option table, for a struct with a cli_search called `search`. */
#define CLI_SEARCH_OPTIONS(type)                                                                   \
    {"amateur",                                                                                    \
     CLI_LIST,                                                                                     \
     offsetof(type, search.amateur),                                                               \
     0,                                                                                            \
     0,                                                                                            \
     "folder of a weaker model: tokens that it finds likely, too, become less likely",             \
     "DIR",                                                                                        \
     .group = "Contrast and search"},                                                              \
        {"contrast-alpha",                                                                         \
         CLI_REAL,                                                                                 \
         offsetof(type, search.alpha),                                                             \
         1e-9,                                                                                     \
         1,                                                                                        \
         "with --amateur: draw from tokens at least X times as likely as the top one"},            \
        {"contrast-beta",                                                                          \
         CLI_REAL,                                                                                 \
         offsetof(type, search.beta),                                                              \
         0,                                                                                        \
         1000,                                                                                     \
         "with --amateur: weight of its logits, which are taken off"},                             \
        {"beam",                                                                                   \
         CLI_INT,                                                                                  \
         offsetof(type, search.beam),                                                              \
         1,                                                                                        \
         DRA_BEAMS,                                                                                \
         "search for the most likely text, keeping the N best in every step",                      \
         .unset = "no search"},                                                                    \
        {"beam-noise",                                                                             \
         CLI_FLAG,                                                                                 \
         offsetof(type, search.noise),                                                             \
         0,                                                                                        \
         0,                                                                                        \
         "with --beam: draw the tokens that are tried"},                                           \
    {                                                                                              \
        "length-penalty", CLI_REAL, offsetof(type, search.length_penalty), -100, 100,              \
            "with --beam: compare texts by score / length^X; above 0 favours long ones"            \
    }

/* Takes back what a model's habits say about drawing, where it does not apply. */
void cli_search_habits(const cli_search *s, cli_sampling *to);
/* Whether options go together: else misuse, as cli_misused(). */
int cli_search_check(const char *verb, const cli_search *s, const cli_sampling *how, int64_t count);

/* The ids of another model must mean the same: `who` it is. A folder without a tokenizer is
 * trusted. */
dra_status cli_same_tokenizer(const char *who, const char *folder, const dra_tokenizer *tokenizer,
                              dra_error *err);

typedef struct cli_amateurs {
    size_t       count;
    cli_model   *model;
    dra_amateur *list;
} cli_amateurs; /* starts as {0} */

/* Opens them, to be closed on failure, too. An amateur with another tokenizer is refused. */
dra_status cli_amateurs_open(const cli_search *s, const cli_source *from,
                             const dra_tokenizer *tokenizer, cli_amateurs *out, dra_error *err);
void       cli_amateurs_close(cli_amateurs *a);

#endif
