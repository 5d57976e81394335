/* How queries and keys are turned by their position: the options of a rotation. */
#ifndef DRA_SRC_MEMORY_TURN_H
#define DRA_SRC_MEMORY_TURN_H

#include "dra/memory.h"
#include "file/fields.h"

extern const dra_field dra_turn_fields[];      /* of a dra_rotary_config */
extern const dra_field dra_turn_late_fields[]; /* those that came after the first six */

/* What goes together, of heads of key_dim channels; numbers are in their ranges. */
dra_status dra_turn_check(const dra_rotary_config *t, int64_t key_dim, dra_error *err);

#endif
