/* Reading a prompt, with a status line where it is long. */
#ifndef DRA_CLI_VERBS_GENERATE_PROMPT_READ_H
#define DRA_CLI_VERBS_GENERATE_PROMPT_READ_H

#include "options/status.h"

#include "dra/generate.h"

/* The bits of dra_generator_read(). `status` is open; it is cleared afterwards. */
dra_status cli_prompt_read(dra_generator *g, const dra_model *m, int64_t row, const dra_ids *prompt,
                           cli_status *status, dra_error *err);

#endif
