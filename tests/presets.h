/* Presets in tests. */
#ifndef DRA_TESTS_PRESETS_H
#define DRA_TESTS_PRESETS_H

#include <string.h>

#include "dra/model.h"

/* A small one that reads token by token. An encoder reads a text as a whole. */
static inline bool preset_reads_in_parts(const char *name)
{
    dra_model_config c;
    return strstr(name, "-tiny") && dra_preset_config(name, &c, NULL) == DRA_OK &&
           c.visible == DRA_VISIBLE_CAUSAL;
}

#endif
