/* dra eval on examples. */
#ifndef DRA_CLI_VERBS_EVAL_EXAMPLES_H
#define DRA_CLI_VERBS_EVAL_EXAMPLES_H

#include "io/examples.h"

typedef struct cli_eval_examples_job {
    const cli_source           *from;
    const cli_list             *data;
    const cli_pairs            *pairs;
    cli_model                  *m;
    const dra_objective_config *objective; /* complete */
    bool                        json;
} cli_eval_examples_job;

/* Measures and prints. */
dra_status cli_eval_examples(const cli_eval_examples_job *job, dra_error *err);

#endif
