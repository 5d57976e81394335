/* Prompts from a file of JSON lines, or stdin, written in batches: a record for each. */
#ifndef DRA_CLI_VERBS_GENERATE_PROMPTS_H
#define DRA_CLI_VERBS_GENERATE_PROMPTS_H

#include "prompt_record.h"
#include "sampling.h"

typedef struct cli_prompts {
    const char          *path;        /* "-": stdin */
    const dra_tokenizer *tokenizer;   /* NULL: ids in, ids out */
    dra_generator       *generator;   /* whose rows are free */
    int64_t              rows, count; /* count: samples of each */
    const cli_sampling  *how;
    dra_generate_config  config;
    bool (*wanted)(void *); /* false: no more */
} cli_prompts;

/* Prints a line for each sample, in the order of the prompts. A line of the file that is broken
 * ends it: those before it are written, then its error is returned. */
dra_status cli_prompts_write(const cli_prompts *p, dra_error *err);

#endif
