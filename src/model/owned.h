/* Configs that own what they point to, in an arena that dies with them. */
#ifndef DRA_SRC_MODEL_OWNED_H
#define DRA_SRC_MODEL_OWNED_H

#include "base/arena.h"
#include "dra/model.h"

/* An empty config with memory of its own. */
dra_status dra_config_new(dra_model_config **out, dra_error *err);
/* Returns st; of a failure *out is destroyed and NULL. */
dra_status dra_config_end(dra_status st, dra_model_config **out);
/* Refuses a config that a program has filled in, whose parts are not its own. */
dra_status dra_config_check_own(const dra_model_config *c, dra_error *err);
/* Makes it empty again, but for its memory. */
void dra_config_clear(dra_model_config *c);
/* Pointers that are NULL get something empty to point to. */
void dra_config_point(dra_model_config *c);
/* A copy of a config in the memory that it has. NULL: out of memory. */
dra_model_config *dra_config_add(const dra_model_config *c);
/* n mixers to write to in the memory of c, which has them from now on; what it had is in the first
 * ones. NULL: out of memory. */
dra_mixer_config *dra_config_mixers(dra_model_config *c, int n);
/* Another stack of c to write to: it is copied first where it is not in the memory of c. */
dra_status dra_config_edit_stack(dra_model_config *c, const dra_model_config **stack,
                                 dra_model_config **out, dra_error *err);
/* Makes `to` a copy of `from` whose parts lie in the arena. */
dra_status dra_config_fill(dra_model_config *to, const dra_model_config *from, dra_arena *own,
                           dra_error *err);

#endif
