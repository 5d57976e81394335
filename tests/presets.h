/* Presets in tests. */
#ifndef DRA_TESTS_PRESETS_H
#define DRA_TESTS_PRESETS_H

#include <string.h>

#include "own_config.h"

/* One that reads and writes tokens and nothing else. */
static inline bool preset_is_language(const char *name)
{
    CHECK_CONFIG(c);
    return dra_preset_config(name, &c, NULL) == DRA_OK && dra_model_config_is_language(c);
}

/* A small one of these that reads token by token. An encoder reads a text as a whole. */
static inline bool preset_reads_in_parts(const char *name)
{
    CHECK_CONFIG(c);
    return strstr(name, "-tiny") && preset_is_language(name) &&
           dra_preset_config(name, &c, NULL) == DRA_OK && c->visible == DRA_VISIBLE_CAUSAL;
}

#endif
