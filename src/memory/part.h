/* Parts of a mixer and of its memories, and the tables that describe them. */
#ifndef DRA_SRC_MEMORY_PART_H
#define DRA_SRC_MEMORY_PART_H

#include "dra/memory.h"
#include "file/parts.h"

#define DRA_PART(part)                                                                             \
    extern const dra_field dra_##part##_fields[];                                                  \
    extern const dra_part  dra_##part##_part;
#include "memory/parts.def"
#undef DRA_PART

extern const dra_field dra_cell_late_fields[], dra_lambda_late_fields[];
extern const dra_field dra_memory_fields[]; /* branch.c: of a dra_memory_config */
extern const dra_field dra_gamma_fields[];

/* Options of a program's own memory (own.c): field i of a dra_memory's; whether its table is right,
 * and what a config says of them. */
bool       dra_memory_option_field(const void *own, size_t i, dra_field *out);
dra_status dra_memory_check_options(const dra_memory *m, dra_error *err);
dra_status dra_memory_check_own(const dra_memory_config *c, dra_error *err);

/* ---- of a dra_mixer_config ------------------------------------------------------------------- */

extern const dra_field dra_mixer_fields[]; /* mixer_check.c: all of it */
extern const dra_field dra_shift_fields[], dra_shift_late_fields[];
extern const dra_field dra_gate_fields[], dra_gate_late_fields[];
extern const dra_field dra_value_residual_fields[], dra_value_residual_late_fields[];
extern const dra_field dra_attention_fields[], dra_attention_late_fields[],
    dra_attention_last_fields[], dra_latent_fields[];
extern const dra_field dra_conv_fields[], dra_out_norm_fields[];
/* What acts on retrievals that list them. */
extern const dra_part dra_attention_part, dra_qk_norm_part, dra_rotary_part, dra_score_scale_part;

#endif
