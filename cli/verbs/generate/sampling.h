/* What verbs that write text share: how a token is drawn, and what ends a text. */
#ifndef DRA_CLI_VERBS_GENERATE_SAMPLING_H
#define DRA_CLI_VERBS_GENERATE_SAMPLING_H

#include "constraint.h"
#include "text_out.h"

typedef struct cli_sampling {
    int64_t               tokens, seed;
    dra_sampler_config    sampler; /* without biases and seed */
    int                   order;   /* of cli_samplers */
    bool                  ignore_end, raw;
    cli_list              stop, stop_tokens, bias; /* bias: of CLI_BIAS_OPTION */
    dra_generation_config habits;
    int64_t               drawn; /* the seed where none is given */
} cli_sampling;

extern const char *const cli_samplers[];

/* Start values; the model's habits may be others. */
#define CLI_SAMPLING .sampler = {DRA_SAMPLER_USUAL}

/* A row of an option table, of a sampler option. */
#define CLI_KIND_double CLI_REAL
#define CLI_KIND_int64_t CLI_INT
#define CLI_SAMPLER_ROW(with, kind, type, name, option, json, hf, least, most, usual, help)        \
    {option,                                                                                       \
     CLI_KIND_##type,                                                                              \
     offsetof(with, how.sampler.name),                                                             \
     least,                                                                                        \
     most,                                                                                         \
     help,                                                                                         \
     .unset = (usual) == 0 ? "off" : NULL},

/* Rows of an option table, for a struct with a cli_sampling called `how`. */
#define CLI_SAMPLING_OPTIONS(type)                                                                 \
    {"tokens",                                                                                     \
     CLI_INT,                                                                                      \
     offsetof(type, how.tokens),                                                                   \
     0,                                                                                            \
     INT32_MAX,                                                                                    \
     "most tokens to write; 0: no limit. The model's generation_config.json may set other "        \
     "defaults for this and the following options",                                                \
     .group = "Sampling",                                                                          \
     .brief = 'n'},                                                                                \
        DRA_SAMPLER_OPTIONS(CLI_SAMPLER_ROW, type) /* in their order */                            \
        {"sampler",                                                                                \
         CLI_CHOICE,                                                                               \
         offsetof(type, how.order),                                                                \
         0,                                                                                        \
         0,                                                                                        \
         "temperature before the filters, as Hugging Face, or after them, as x-transformers",      \
         .choices = cli_samplers},                                                                 \
        {"seed",                                                                                   \
         CLI_INT,                                                                                  \
         offsetof(type, how.seed),                                                                 \
         0,                                                                                        \
         9e15,                                                                                     \
         "the same seed writes the same text",                                                     \
         .brief = 's',                                                                             \
         .unset = "another one each time, which stderr says"},                                     \
    {                                                                                              \
        "ignore-end", CLI_FLAG, offsetof(type, how.ignore_end), 0, 0,                              \
            "do not stop at the end-of-text token", .group = "Ending"                              \
    }
#define CLI_STOP_OPTIONS(type)                                                                     \
    {"stop", CLI_LIST, offsetof(type, how.stop), 0, 0, "text that ends it and is not written",     \
     "TEXT"},                                                                                      \
    {                                                                                              \
        "stop-tokens", CLI_LIST, offsetof(type, how.stop_tokens), 0, 0,                            \
            "ids that end it where they come in a row; the last one is not written", "LIST"        \
    }

#define CLI_RAW_OPTION(type)                                                                       \
    {                                                                                              \
        "raw", CLI_FLAG, offsetof(type, how.raw), 0, 0, CLI_RAW_HELP, .group = "Output"            \
    }

/* The same for a struct with `state_in` and `state_out`. */
#define CLI_STATE_OPTIONS(type)                                                                    \
    {"state-in", CLI_TEXT,        offsetof(type, state_in), 0, 0, "continue from a state file",    \
     "FILE",     .group = "State"},                                                                \
        {"state-out",                                                                              \
         CLI_TEXT,                                                                                 \
         offsetof(type, state_out),                                                                \
         0,                                                                                        \
         0,                                                                                        \
         "save the state afterwards",                                                              \
         "FILE",                                                                                   \
         .flags = CLI_WRITES},                                                                     \
        CLI_STATE_LIMIT_OPTION(type)

/* A seed of its own for this call becomes the start value. */
void cli_sampling_draw(cli_sampling *to);
/* Says the seed where it was not given and tokens are drawn. */
void cli_sampling_tell(const cli_sampling *s);
/* What a model's generation_config.json says become start values. NULL: there is no folder. Says
 * what went wrong and returns the exit status. */
int cli_sampling_habits(const char *folder, cli_sampling *to);
/* Options of a kind start as they usually do, whatever the habits are. */
void cli_sampling_forget(cli_sampling *to, dra_sampler_kind kind);
/* Whether what ends a text, and biases, are some: else misuse, as cli_misused(). */
int cli_sampling_check(const char *verb, const cli_sampling *s);

/* Biases are borrowed. */
dra_sampler_config cli_sampler_config(const cli_sampling *s, const cli_biases *biases);

typedef struct cli_stops { /* lists of --stop-tokens */
    int      n;
    dra_ids *list;
} cli_stops; /* starts as {0} */

/* To be closed on failure, too. */
dra_status cli_stops_open(const cli_sampling *s, cli_stops *out, dra_error *err);
void       cli_stops_close(cli_stops *s);

/* Without a writer; stops are borrowed. */
dra_generate_config cli_generate_config(const cli_sampling *s, const cli_stops *stops);

/* Writes tokens as text to `to`; those that the tokenizer does not have are left out. NULL: to
 * stdout, as a part of a JSON string. */
dra_status cli_text_write(const dra_tokenizer *t, size_t n, const int32_t *ids, cli_text_out *to,
                          dra_error *err);

/* Says on stderr that a text ended where learned positions do. `advice` ends the line. */
void cli_positions_ended(const char *verb, const dra_model *model, const char *advice);

#endif
