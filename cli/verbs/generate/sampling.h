/* What verbs that write text share: how a token is drawn, and what ends a text. */
#ifndef DRA_CLI_VERBS_GENERATE_SAMPLING_H
#define DRA_CLI_VERBS_GENERATE_SAMPLING_H

#include "constraint.h"
#include "text_out.h"

typedef struct cli_sampling {
    int64_t               tokens, top_k, seed;
    double                temperature, top_p, top_a, min_p, penalty;
    int                   sampler; /* of cli_samplers */
    bool                  ignore_end, raw;
    cli_list              stop, bias; /* bias: of CLI_BIAS_OPTION */
    dra_generation_config habits;
    int64_t               drawn; /* the seed where none is given */
} cli_sampling;

extern const char *const cli_samplers[];

/* Start values; the model's habits may be others. */
#define CLI_SAMPLING .temperature = 1, .top_p = 1, .penalty = 1

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
        {"temperature",                                                                            \
         CLI_REAL,                                                                                 \
         offsetof(type, how.temperature),                                                          \
         0,                                                                                        \
         1000,                                                                                     \
         "sampling temperature; 0: always the most likely token"},                                 \
        {"top-k",                                                                                  \
         CLI_INT,                                                                                  \
         offsetof(type, how.top_k),                                                                \
         0,                                                                                        \
         INT32_MAX,                                                                                \
         "draw from the N most likely tokens; 0: from all",                                        \
         .unset = "all"},                                                                          \
        {"top-p", CLI_REAL, offsetof(type, how.top_p),                                             \
         0,       1,        "draw from the most likely tokens that sum up to X; 0 or 1: all"},     \
        {"top-a",                                                                                  \
         CLI_REAL,                                                                                 \
         offsetof(type, how.top_a),                                                                \
         0,                                                                                        \
         1,                                                                                        \
         "draw from tokens whose probability is X p^2 or more, p that of the top one",             \
         .unset = "off"},                                                                          \
        {"min-p",                                                                                  \
         CLI_REAL,                                                                                 \
         offsetof(type, how.min_p),                                                                \
         0,                                                                                        \
         1,                                                                                        \
         "draw from tokens at least X times as likely as the top one",                             \
         .unset = "off"},                                                                          \
        {"repetition-penalty",                                                                     \
         CLI_REAL,                                                                                 \
         offsetof(type, how.penalty),                                                              \
         0.01,                                                                                     \
         100,                                                                                      \
         "make tokens that were read before less likely"},                                         \
        {"sampler",                                                                                \
         CLI_CHOICE,                                                                               \
         offsetof(type, how.sampler),                                                              \
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
#define CLI_STOP_OPTION(type)                                                                      \
    {                                                                                              \
        "stop", CLI_LIST, offsetof(type, how.stop), 0, 0, "text that ends it and is not written",  \
            "TEXT"                                                                                 \
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
/* Whether stop strings and biases are some: else misuse, as cli_misused(). */
int cli_sampling_check(const char *verb, const cli_sampling *s);

/* Biases are borrowed. */
dra_sampler_config  cli_sampler_config(const cli_sampling *s, const cli_biases *biases);
dra_generate_config cli_generate_config(const cli_sampling *s); /* without a writer */

/* Writes tokens as text to `to`; those that the tokenizer does not have are left out. NULL: to
 * stdout, as a part of a JSON string. */
dra_status cli_text_write(const dra_tokenizer *t, size_t n, const int32_t *ids, cli_text_out *to,
                          dra_error *err);

/* Says on stderr that a text ended where learned positions do. `advice` ends the line. */
void cli_positions_ended(const char *verb, const dra_model *model, const char *advice);

#endif
