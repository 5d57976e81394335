/* dra grad of models that are no language models, from what `dra forward` reads. */
#ifndef DRA_CLI_VERBS_GRAD_GRAD_H
#define DRA_CLI_VERBS_GRAD_GRAD_H

#include "io/inputs.h"

/* Whether the file says what the outputs are compared with: its tensor targets. */
dra_status grad_has_targets(const char *path, bool *has, dra_error *err);
/* The loss of these targets; *out has the gradients and is to be destroyed. */
dra_status grad_given(const char *path, const cli_model *m, dra_microbatch_result *result,
                      dra_gradients **out, dra_error *err);

#endif
