/* What two models put out for the same inputs. */
#ifndef DRA_CLI_VERBS_CONVERT_CHECK_H
#define DRA_CLI_VERBS_CONVERT_CHECK_H

#include "io/model.h"

typedef struct cli_check_config {
    const char *from, *to; /* models in any format */
    int64_t     vocab;     /* of the second; 0: as the first has it */
    int64_t     threads;
} cli_check_config;

/* The largest difference of their logits, or of what else they put out, relative to the largest;
 * NaN where one is. */
dra_status cli_check(const cli_check_config *c, double *difference, dra_error *err);

#endif
