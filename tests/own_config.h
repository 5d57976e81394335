/* Configs in tests. */
#ifndef DRA_TESTS_OWN_CONFIG_H
#define DRA_TESTS_OWN_CONFIG_H

#include "model/owned.h"

/* A config that a test reads, destroyed where its scope ends. */
#define CHECK_OWNED __attribute__((cleanup(check_drop_config)))
#define CHECK_CONFIG(c) CHECK_OWNED dra_model_config *c = NULL

static inline void check_drop_config(dra_model_config **c)
{
    dra_model_config_destroy(*c);
    *c = NULL;
}

/* Its mixers, one at least, to write to. */
static inline dra_mixer_config *check_mixers(dra_model_config *c)
{
    return dra_config_mixers(c, c->mixers ? c->mixers : 1);
}

#endif
