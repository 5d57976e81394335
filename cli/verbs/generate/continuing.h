/* dra generate of models that read other inputs than a text: translations, captions, series. */
#ifndef DRA_CLI_VERBS_GENERATE_CONTINUING_H
#define DRA_CLI_VERBS_GENERATE_CONTINUING_H

#include "search.h"

typedef struct cli_continuing {
    const char *inputs, *out, *source_file;
    cli_list    source;
    int64_t     start, end; /* -1: not said */
} cli_continuing;

/* Start values. */
#define CLI_CONTINUING .start = -1, .end = -1

/* Rows of an option table, for a struct with a cli_continuing called `other`. */
#define CLI_CONTINUING_OPTIONS(type)                                                               \
    {"source",                                                                                     \
     CLI_LIST,                                                                                     \
     offsetof(type, other.source),                                                                 \
     0,                                                                                            \
     0,                                                                                            \
     "text to translate, by a model that reads one and writes another",                            \
     "TEXT",                                                                                       \
     .group = "Other inputs"},                                                                     \
        {"source-file",                                                                            \
         CLI_TEXT,                                                                                 \
         offsetof(type, other.source_file),                                                        \
         0,                                                                                        \
         0,                                                                                        \
         "the same from a file, a text in every line; so are the translations",                    \
         "FILE"},                                                                                  \
        {"inputs", CLI_TEXT, offsetof(type, other.inputs),                                         \
         0,        0,        "safetensors with all that the model reads, by name",                 \
         "FILE"},                                                                                  \
        {"out",                                                                                    \
         CLI_TEXT,                                                                                 \
         offsetof(type, other.out),                                                                \
         0,                                                                                        \
         0,                                                                                        \
         "safetensors to write what follows: tokens, vectors or numbers",                          \
         "FILE",                                                                                   \
         .brief = 'o',                                                                             \
         .flags = CLI_WRITES},                                                                     \
        {"start",                                                                                  \
         CLI_INT,                                                                                  \
         offsetof(type, other.start),                                                              \
         -1,                                                                                       \
         INT32_MAX,                                                                                \
         "token that a text starts with; -1: the tokenizer's end of text, or one that it lacks"},  \
    {                                                                                              \
        "end", CLI_INT, offsetof(type, other.end), -1, INT32_MAX,                                  \
            "token that ends a text; -1: the one that starts it"                                   \
    }

static inline bool cli_translates(const cli_continuing *c)
{
    return c->source.count || c->source_file;
}
static inline bool cli_continues(const cli_continuing *c) { return c->inputs || cli_translates(c); }

typedef struct cli_continue_task {
    const cli_source     *from;
    const cli_sampling   *how;
    const cli_search     *search; /* beams of translations */
    const cli_continuing *other;
    bool                  json;
    bool (*step)(void *user); /* false: shall end */
} cli_continue_task;

/* Whether the options go together: else misuse, as cli_misused(). */
int cli_continue_check(const cli_continuing *c);
/* All of it; returns the exit status. */
int cli_continue(const cli_continue_task *t);

#endif
