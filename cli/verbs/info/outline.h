/* What a model is made of, part by part, for `dra info` and its picture: stacks in the order in
 * which they are read, in each its source, its sublayers, its head. Layers that come again are one
 * part with a count. */
#ifndef DRA_CLI_VERBS_INFO_OUTLINE_H
#define DRA_CLI_VERBS_INFO_OUTLINE_H

#include "io/model.h"

typedef enum outline_kind {
    OUTLINE_SOURCE,
    OUTLINE_POSITIONS,
    OUTLINE_START,  /* memory tokens */
    OUTLINE_LAYERS, /* a frame: `count` times the next `n` parts */
    OUTLINE_ATTENTION,
    OUTLINE_CROSS,
    OUTLINE_FF,
    OUTLINE_NORM,
    OUTLINE_HEAD,
    OUTLINE_KINDS
} outline_kind;

typedef struct outline_part {
    outline_kind kind;
    char         title[48], detail[72];
    int64_t      params; /* numbers, also of all repetitions */
    int64_t      count;
    int          n;
} outline_part;

typedef struct outline_stack {
    const dra_model *model;
    const char      *name; /* "": the model has no other */
    const char      *role; /* "context of", "prepended to" what reads it; NULL: the model itself */
    int              reader;               /* the stack that reads it; -1: none */
    char             reads[96], gives[64]; /* "src (B, S)", "logits (B, T, 256)" */
    int64_t          params;
    int              n;
    outline_part    *part;
} outline_stack;

enum { OUTLINE_STACKS = 5 };

typedef struct outline {
    int           n;
    outline_stack stack[OUTLINE_STACKS]; /* the model itself is the last */
} outline;

dra_status outline_make(const dra_model *m, outline *out, dra_error *err);
void       outline_free(outline *o);
/* A sublayer that is executed: what it is, and its parameters. */
outline_part outline_sublayer(const dra_model *m, const dra_model_step *step);
const char  *outline_kind_name(outline_kind kind); /* "source", "attention", ... */

#endif
