/* What is read by `dra forward` and `dra grad`: tokens from the command line or from a file. */
#ifndef DRA_CLI_INPUTS_H
#define DRA_CLI_INPUTS_H

#include "model.h"

typedef struct cli_inputs {
    int64_t  B, T;
    bool     batched; /* the file has an axis B */
    int32_t *ids;     /* (B, T) */
    int32_t *mark;    /* (B, T) or NULL: from `mask`, 0 is a pad */
    int32_t *targets; /* (B, T) or NULL: from `targets` */
} cli_inputs;         /* starts as {0} */

/* From --tokens LIST or --inputs FILE: one of them, the other NULL. Ids outside of the vocabulary V
 * are refused. */
dra_status cli_inputs_read(const char *tokens, const char *path, int64_t V, cli_inputs *out,
                           dra_error *err);
void       cli_inputs_free(cli_inputs *in);

/* Lengths of chunks from "3,1,7", which may not add up to more than T; what is left is one more.
 * NULL: one chunk. *chunk is to be freed. */
dra_status cli_chunks_read(const char *text, int64_t T, int *n, int64_t **chunk, dra_error *err);

#endif
