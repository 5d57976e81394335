/* What a run was trained on and how it was read, kept in its folder so that it is found again:
 * DIR/train/sources.jsonl, a line for each option of the command that says so. */
#ifndef DRA_CLI_VERBS_TRAIN_SOURCES_H
#define DRA_CLI_VERBS_TRAIN_SOURCES_H

#include "io/examples.h"

typedef struct cli_train_sources {
    cli_list    data, eval_data;
    const char *tokenizer, *text_key, *separator, *format, *cache, *log;
    cli_pairs   pairs;
} cli_train_sources; /* starts as {0}, or as what was asked for */

/* What was read back: texts that cli_train_sources point to. */
typedef struct cli_recalled {
    char *text;    /* of the file */
    void *list[2]; /* of data and evaluation data */
} cli_recalled;    /* starts as {0} */

/* Fills in what is not there, from the folder of a run: by absolute path or, where nothing is
 * there, by the path as it was given. A file that is missing is an error that names its option. */
dra_status cli_sources_recall(const char *run, cli_train_sources *s, cli_recalled *r,
                              dra_error *err);
void       cli_recalled_free(cli_recalled *r);
dra_status cli_sources_note(const char *run, const cli_train_sources *s, dra_error *err);

#endif
