/* Tables of the parts of a model's config, each next to the code that reads it. */
#ifndef DRA_SRC_MODEL_PARTS_H
#define DRA_SRC_MODEL_PARTS_H

#include "file/fields.h"

extern const dra_field dra_block_fields[];     /* sublayer.c */
extern const dra_field dra_ff_fields[];        /* ff.c */
extern const dra_field dra_expert_fields[];    /* experts.c */
extern const dra_field dra_position_fields[];  /* position.c */
extern const dra_field dra_source_fields[];    /* source.c */
extern const dra_field dra_head_fields[];      /* head.c */
extern const dra_field dra_condition_fields[]; /* condition.c */
extern const dra_field dra_xl_fields[];        /* xl.c */

#endif
