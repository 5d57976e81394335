/* The models of `dra probe --suite`. */
#ifndef DRA_CLI_VERBS_PROBE_SUITE_H
#define DRA_CLI_VERBS_PROBE_SUITE_H

#include "dra/model.h"

/* An unknown name is an error that suggests the nearest. */
dra_status cli_suite_config(const char *name, dra_model_config **out, dra_error *err);
void       cli_suite_names(char *text, size_t size); /* "append,gru,..." */

#endif
