/* What is read by `dra forward` and `dra grad`: tokens from the command line or from a file, or the
 * named inputs of a model that is no language model. */
#ifndef DRA_CLI_IO_INPUTS_H
#define DRA_CLI_IO_INPUTS_H

#include "model.h"

typedef struct cli_named { /* an input by its name in graphs, (B, ...) */
    const char *name;
    void       *data;
    size_t      row, token; /* bytes of a row, and of a token in it; 0: it has none, an image */
    bool        context;    /* of the text that is read first */
} cli_named;

enum { CLI_NAMED = 8 };

typedef struct cli_inputs {
    int64_t   B, T;
    bool      batched; /* the file has an axis B */
    int32_t  *ids;     /* (B, T); NULL: there is x */
    dra_real *x;       /* (B, T, C) or NULL: in place of rows of the embedding */
    int32_t  *mark;    /* (B, T) or NULL: pads from `mask`, resets from `reset` and --resets */
    int32_t  *targets; /* (B, T) or NULL: from `targets` */
    int32_t  *lengths; /* (B) or NULL: tokens of each row, of texts; pads come after them */
    /* Of a model that is no language model; ids is then one of these, or NULL. */
    int       n_named;
    cli_named named[CLI_NAMED];
    int64_t   S;                    /* tokens of the context; 0: it is not read */
    int64_t   first, context_first; /* of the T and S tokens: those that are prepended */
    int32_t  *context_mark;         /* (B, S) or NULL */
    int32_t  *labels;               /* (B) or NULL; -1: does not count */
    dra_real *goals; /* (B, T, width) or NULL: targets of vectors, (B, T) of numbers */
} cli_inputs;        /* starts as {0} */

typedef struct cli_inputs_config {
    const char *tokens, *path; /* --tokens LIST or --inputs FILE: one of them, the other NULL */
    const char *resets;        /* --resets LIST: where all rows start a new segment, or NULL   */
    int64_t     vocab;         /* ids outside of it are refused */
    int64_t     width;         /* C of x, which may take the place of ids; 0: it may not */
} cli_inputs_config;

dra_status cli_inputs_read(const cli_inputs_config *c, cli_inputs *out, dra_error *err);
/* The inputs of any other model by name, all with an axis B: those its config asks for, masks,
 * labels and targets. */
typedef struct cli_named_config {
    const char *path, *resets; /* resets: as above */
    bool        context;       /* the text of the context is among them; else it must not be */
    bool        starts;        /* the model's own tokens may be called start */
    int64_t     start; /* and each row starts with this token where there are none; -1: not */
    bool hidden;       /* without a head, targets are those of hidden states; else there are none */
} cli_named_config;

dra_status cli_named_read(const dra_model *m, const cli_named_config *c, cli_inputs *out,
                          dra_error *err);
/* What the model reads, as "src (B, S), ids (B, T)". Returns `text`. */
const char *cli_named_list(const dra_model *m, char *text, size_t size);
/* The same of a single stack. */
const char *cli_named_source(const dra_model *stack, bool context, char *text, size_t size);
/* Names in files: of the model's own tokens, and of a mask of its own text or of the context. */
const char *cli_named_own(const dra_model *m);
const char *cli_named_mask(const dra_model *m, bool context);
void        cli_inputs_free(cli_inputs *in);

static inline bool cli_is_pad(const cli_inputs *in, int64_t i)
{
    return in->mark && in->mark[i] & DRA_MARK_PAD;
}

static inline bool cli_is_reset(const cli_inputs *in, int64_t i)
{
    return in->mark && in->mark[i] & DRA_MARK_RESET;
}

/* Adds resets to all rows, as --resets has them. */
dra_status cli_resets_add(const char *text, cli_inputs *in, dra_error *err);

/* Whether a model with learned positions has enough for row b, `before` tokens into its text; a
 * segment counts from 0 again. */
dra_status cli_inputs_positions(const dra_model *model, const cli_inputs *in, int64_t b,
                                int64_t before, dra_error *err);

/* All numbers of a tensor, `size` in each of its rows, to be freed; NULL: see err. */
void *cli_rows_read(const dra_examples *e, const char *name, int64_t size, dra_dtype dtype,
                    dra_error *err);

/* Lengths of chunks from "3,1,7", which may not add up to more than T; what is left is one more.
 * NULL: one chunk. *chunk is to be freed. */
dra_status cli_chunks_read(const char *text, int64_t T, int *n, int64_t **chunk, dra_error *err);

#endif
