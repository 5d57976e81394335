/* The presets, as text: made of the files of the folder presets when building. */
#ifndef DRA_SRC_MODEL_PRESETS_H
#define DRA_SRC_MODEL_PRESETS_H

#include "dra/model.h"

extern const dra_preset dra_presets[]; /* by name; the last has none */

#endif
