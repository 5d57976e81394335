/* What verbs that work with models share: where a model comes from, opening it, lists of tokens. */
#ifndef DRA_CLI_IO_MODEL_H
#define DRA_CLI_IO_MODEL_H

#include "options/options.h"
#include "options/term.h"

#include "dra/dra.h"

#include <sys/stat.h>

typedef struct cli_source {
    const char *model, *preset, *config, *tokenizer;
    const char *device; /* NULL: what DRA_DEVICE says, or the CPU */
    cli_list    set;
    cli_list    plugins; /* shared objects with memories */
    int64_t     threads;
    int         dtype;       /* of cli_dtypes */
    int         activations; /* of cli_activations */
    int         cache;       /* of cli_dtypes */
    bool        skip_hash;   /* of weights */
    bool        quiet;       /* nothing is said of what a preset has and another memory has not */
    bool        maps;        /* layers shall show what they attend to */
    double      state_limit; /* states are clamped to it; 0 or less: they are not */
} cli_source;

extern const char *const cli_dtypes[];
extern const char *const cli_activations[];
extern const char *const cli_data_formats[];

/* Rows of an option table, for a struct with a cli_source called `from`. */
#define CLI_PLUGIN_OPTION(type)                                                                    \
    {                                                                                              \
        "memory-plugin", CLI_LIST, offsetof(type, from.plugins), 0, 0,                             \
            "a shared object with memories, for mixer.memory=own:NAME", "FILE"                     \
    }
#define CLI_CONFIG_OPTIONS(type)                                                                   \
    {"preset",                                                                                     \
     CLI_TEXT,                                                                                     \
     offsetof(type, from.preset),                                                                  \
     0,                                                                                            \
     0,                                                                                            \
     "a preset; 'dra presets' lists them",                                                         \
     "NAME",                                                                                       \
     .flags = CLI_A_PRESET | CLI_A_MODEL,                                                          \
     .group = "Model",                                                                             \
     .brief = 'P'},                                                                                \
        {"config",           CLI_TEXT, offsetof(type, from.config), 0,           0,                \
         "a config as JSON", "FILE",   .flags = CLI_A_MODEL,        .brief = 'c'},                 \
        {"set",                                                                                    \
         CLI_LIST,                                                                                 \
         offsetof(type, from.set),                                                                 \
         0,                                                                                        \
         0,                                                                                        \
         "change a key of the config, such as mixer.memory=gru; 'dra help keys' lists them",       \
         "KEY=VALUE",                                                                              \
         .flags = CLI_A_KEY},                                                                      \
        CLI_PLUGIN_OPTION(type)
#define CLI_SKIP_HASH_OPTION(type)                                                                 \
    {                                                                                              \
        "skip-hash", CLI_FLAG, offsetof(type, from.skip_hash), 0, 0,                               \
            "do not read all weights first, to check their hash and that they are finite"          \
    }
#define CLI_MODEL_OPTIONS(type)                                                                    \
    {"model",                                                                                      \
     CLI_TEXT,                                                                                     \
     offsetof(type, from.model),                                                                   \
     0,                                                                                            \
     0,                                                                                            \
     "folder of a model; or --preset or --config, with random weights of seed 0",                  \
     "DIR",                                                                                        \
     .flags = CLI_A_MODEL | CLI_ALSO_PLACED,                                                       \
     .group = "Model",                                                                             \
     .brief = 'm'},                                                                                \
        CLI_CONFIG_OPTIONS(type), CLI_SKIP_HASH_OPTION(type)
#define CLI_TOKENIZER_OPTION(type)                                                                 \
    {                                                                                              \
        "tokenizer", CLI_TEXT, offsetof(type, from.tokenizer), 0, 0,                               \
            "file or folder of a tokenizer, or bytes; default: the model's, or bytes if it "       \
            "has 256 tokens",                                                                      \
            "PATH|bytes"                                                                           \
    }
#define CLI_THREADS_OPTION(type)                                                                   \
    {                                                                                              \
        "threads", CLI_INT, offsetof(type, from.threads), 0, 1024, "threads of the device",        \
            .group = "General", .unset = "one per processor", .brief = 't'                         \
    }

/* The same for verbs that compute. */
#define CLI_DEVICE_OPTIONS(type)                                                                   \
    CLI_THREADS_OPTION(type),                                                                      \
    {                                                                                              \
        "device", CLI_TEXT, offsetof(type, from.device), 0, 0,                                     \
            "what computes: cpu, cuda or cuda:N; 'dra devices' lists them", "NAME", .unset = "cpu" \
    }

#define CLI_DTYPE_OPTION(type)                                                                     \
    {                                                                                              \
        "dtype", CLI_CHOICE, offsetof(type, from.dtype), 0, 0,                                     \
            "bf16: round matrices to half the bytes; f32: as in the file", .choices = cli_dtypes,  \
                                                                           .group = "General"      \
    }

/* `name`: cache, but of verbs that read a cache from a file */
#define CLI_CACHE_OPTION(type, name)                                                               \
    {                                                                                              \
        name, CLI_CHOICE, offsetof(type, from.cache), 0, 0,                                        \
            "bf16: round the keys and values that attention keeps to half the bytes",              \
            .choices = cli_dtypes                                                                  \
    }

#define CLI_ACTIVATIONS_OPTION(type)                                                               \
    {                                                                                              \
        "activations", CLI_CHOICE, offsetof(type, from.activations), 0, 0,                         \
            "q8: what quantised matrices multiply is rounded to blocks of 8 bits",                 \
            .choices = cli_activations                                                             \
    }

/* For a struct with an int called `format`. */
#define CLI_FORMAT_OPTION(type)                                                                    \
    {                                                                                              \
        "data-format", CLI_CHOICE, offsetof(type, format), 0, 0,                                   \
            "what the data is, instead of recognising it by content: text, jsonl, safetensors, "   \
            "npy; bytes: any bytes; tokens-u16, tokens-u32: ids without a header; llmc: those of " \
            "llm.c",                                                                               \
            "NAME", .choices = cli_data_formats                                                    \
    }

/* Its default is DRA_STATE_LIMIT. */
#define CLI_STATE_LIMIT_OPTION(type)                                                               \
    {                                                                                              \
        "state-limit", CLI_REAL, offsetof(type, from.state_limit), -1, 3e38,                       \
            "clamp numbers of the state to +-X, and to 0 if not finite; 0 or less: do not"         \
    }

/* The device that --device and --threads ask for. `level` of the CPU may be NULL. */
dra_status cli_device_open(const cli_source *s, const char *level, dra_device **out,
                           dra_error *err);

typedef struct cli_model {
    dra_model     *model;
    dra_weights   *weights;
    dra_device    *device;
    dra_tokenizer *tokenizer;
} cli_model; /* starts as {0} */

/* Says on stderr how a verb was misused. Returns the exit status, 2. */
int cli_misused(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fills an error as the library does. Returns `code`. */
dra_status cli_error(dra_error *err, dra_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One of --model, --preset and --config, no less, no more: else misuse, as above. */
int cli_source_check(const char *verb, const cli_source *s);
int cli_config_check(const char *verb, const cli_source *s); /* for a verb without --model */

/* Whether the model is an encoder, or not, by its config alone; what cannot be read is neither. */
bool cli_is_encoder(const cli_source *s);
bool cli_is_causal(const cli_source *s);
/* Of an encoder: misuse, as above, naming what it does not do. */
int cli_causal_check(const char *verb, const cli_source *s, const char *what);

/* Of what is no language model: misuse, as above, naming what it reads instead. `advice` ends the
 * line. */
int cli_language_check(const char *verb, const cli_source *s, const char *advice);

/* Whether a model has this path; else the error says that nothing is downloaded. */
dra_status cli_model_is_there(const char *path, dra_error *err);
/* Sets each KEY=VALUE of a list. */
dra_status cli_settings(const cli_list *settings, const dra_memory *const *own,
                        dra_model_config *config, dra_error *err);
/* The config with everything that was set, to be destroyed; NULL on failure. */
dra_status cli_source_config(const cli_source *s, dra_model_config **out, dra_error *err);
/* Says how much is drawn where that takes long; refuses what this machine has no memory for. */
dra_status cli_draw_check(const cli_source *s, const dra_model *m, dra_error *err);
/* Says how many of the weights' numbers are not finite, if any. */
void cli_weights_look(const char *path, const dra_weights *w);
/* Model and weights, without a device. */
dra_status cli_model_weights(const cli_source *s, cli_model *m, dra_error *err);
/* Model, weights and device. */
dra_status cli_model_open(const cli_source *s, cli_model *m, dra_error *err);
/* The tokenizer that was named, else that of the model's folder, else bytes, for a vocabulary of V
 * tokens; V 0: of any size. *out is to be destroyed on failure, too. */
dra_status cli_tokenizer_open(const cli_source *s, int64_t V, dra_tokenizer **out, dra_error *err);
/* The same of an open model. */
dra_status cli_model_tokenizer(const cli_source *s, cli_model *m, dra_error *err);
/* The same where ids will do, too: m->tokenizer is NULL where a model has none that dra knows. */
dra_status cli_model_tokenizer_if(const cli_source *s, cli_model *m, dra_error *err);
void       cli_model_close(cli_model *m);
/* Clamps the states of a reader as --state-limit says; the same for a dra_generator_config. */
void cli_clamp_set(const cli_source *s, dra_reader *r);
/* A reader of the model, with its weights and --state-limit, and states of B rows for it. `view` is
 * borrowed as long as the reader is used. */
dra_status cli_reader_open(const cli_source *s, const cli_model *m, const dra_view *view, int64_t B,
                           dra_reader **reader, dra_states **states, dra_error *err);
double     cli_clamp_limit(const cli_source *s);
/* Says on stderr how many numbers were clamped, if any. */
void cli_clamp_report(const char *verb, const cli_source *s, int64_t changed);

/* No text is among these files, of the given --data-format. */
bool cli_all_tokens(const cli_list *files, int format);
/* Refuses --text-key and --separator where no file has what they are about; `more` may be NULL. */
dra_status cli_documents_check(const cli_list *files, const cli_list *more, int format,
                               const char *text_key, const char *separator, dra_error *err);
/* What a corpus takes for a --data-format: its name, or NULL. */
const char *cli_data_format(int format);
int         cli_data_format_number(const char *name); /* of such a name; 0: by content */
/* Appends whole numbers from "1,2,3" or, "@FILE", from a file, where blanks and brackets are fine
 * too. `what` begins an error. */
dra_status cli_ids_read(const char *what, const char *text, dra_ids *out, dra_error *err);

/* Flushes stdout; false: something that was printed is lost, which main() makes the exit status. */
bool cli_output_arrived(void);

/* Whether something has this path; also true where that cannot be found out, so that who reads it
 * says why. */
bool cli_is_there(const char *path);
/* The system's own, made again when they are interrupted. */
int cli_stat(const char *path, struct stat *out);
int cli_mkdir(const char *path, unsigned mode);
int cli_rename(const char *from, const char *to);
/* DIR/NAME; false: too long. */
bool cli_path(const char *dir, const char *name, char *path, size_t size);
/* A new folder keeps its name after a power loss. What cannot be synced is left as it is. */
void cli_folder_keep(const char *folder);
void cli_folder_sync(const char *folder); /* the names that it has */
/* Makes the folders above a file, those that are missing. */
dra_status cli_make_folders(const char *path, unsigned mode, dra_error *err);

#endif
