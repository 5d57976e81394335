/* Matrices of experts as one tensor, however a file stores them. */
#ifndef DRA_SRC_FORMATS_EXPERT_TENSORS_H
#define DRA_SRC_FORMATS_EXPERT_TENSORS_H

#include "formats/tensor_source.h"

/* In place of "A.experts.N.B" for all numbers N, or of "A.experts.gate_up_proj" (n, 2 F, C) and
 * "A.experts.down_proj" (n, C, F), the source gets "A.experts.#.B" (n O, I), the matrices one below
 * the other. Numbers that do not make a whole list stay as they are. */
dra_status dra_expert_tensors_join(dra_tensor_source *s, dra_error *err);
void       dra_expert_tensors_free(dra_tensor_source *s);

/* Its numbers are there: entry->info->data is no longer NULL. Of an entry that is joined of several
 * tensors this copies them, once, as they are stored. Not for several threads at a time. */
dra_status dra_expert_tensors_fill(const dra_tensor_source_entry *e, dra_error *err);
/* Gives back the memory that this took; nobody reads the numbers any more. */
void dra_expert_tensors_drop(const dra_tensor_source_entry *e);

#endif
