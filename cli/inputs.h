/* What is read by `dra forward` and `dra grad`: tokens from the command line or from a file. */
#ifndef DRA_CLI_INPUTS_H
#define DRA_CLI_INPUTS_H

#include "model.h"

typedef struct cli_inputs {
    int64_t   B, T;
    bool      batched; /* the file has an axis B */
    int32_t  *ids;     /* (B, T); NULL: there is x */
    dra_real *x;       /* (B, T, C) or NULL: in place of rows of the embedding */
    int32_t  *mark;    /* (B, T) or NULL: pads from `mask`, resets from `reset` and --resets */
    int32_t  *targets; /* (B, T) or NULL: from `targets` */
} cli_inputs;          /* starts as {0} */

typedef struct cli_inputs_config {
    const char *tokens, *path; /* --tokens LIST or --inputs FILE: one of them, the other NULL */
    const char *resets;        /* --resets LIST: where all rows start a new segment, or NULL   */
    int64_t     vocab;         /* ids outside of it are refused */
    int64_t     width;         /* C of x, which may take the place of ids; 0: it may not */
} cli_inputs_config;

dra_status cli_inputs_read(const cli_inputs_config *c, cli_inputs *out, dra_error *err);
void       cli_inputs_free(cli_inputs *in);

static inline bool cli_is_pad(const cli_inputs *in, int64_t i)
{
    return in->mark && in->mark[i] & DRA_MARK_PAD;
}

static inline bool cli_is_reset(const cli_inputs *in, int64_t i)
{
    return in->mark && in->mark[i] & DRA_MARK_RESET;
}

/* Whether a model with learned positions has enough for row b, `before` tokens into its text; a
 * segment counts from 0 again. */
dra_status cli_inputs_positions(const dra_model *model, const cli_inputs *in, int64_t b,
                                int64_t before, dra_error *err);

/* Lengths of chunks from "3,1,7", which may not add up to more than T; what is left is one more.
 * NULL: one chunk. *chunk is to be freed. */
dra_status cli_chunks_read(const char *text, int64_t T, int *n, int64_t **chunk, dra_error *err);

#endif
