/* Configs that own what they point to, in an arena that dies with them. */
#ifndef DRA_SRC_MODEL_OWNED_H
#define DRA_SRC_MODEL_OWNED_H

#include "base/arena.h"
#include "dra/model.h"

/* Makes `to` a copy of `from` whose parts lie in the arena. */
dra_status dra_config_fill(dra_model_config *to, const dra_model_config *from, dra_arena *own,
                           dra_error *err);

#endif
