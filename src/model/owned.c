/* Configs that own what they point to: other stacks. */
#include "model/owned.h"

#include <stdlib.h>

#include "base/error.h"

enum { DEEP_MOST = 8 }; /* as many stacks as JSON may have */

typedef struct owned_config {
    dra_model_config config;
    dra_arena        arena;
} owned_config;

static dra_status no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "config: out of memory");
}

static dra_status fill_config(dra_model_config *to, const dra_model_config *from, dra_arena *own,
                              int deep, dra_error *err);

static dra_status fill_stack(const dra_model_config **stack, dra_arena *own, int deep,
                             dra_error *err)
{
    dra_model_config *copy;
    if (!*stack) return DRA_OK;
    if (deep == DEEP_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "config: more than %d stacks that read each other",
                        DEEP_MOST);
    if (!(copy = dra_arena_alloc(own, sizeof *copy))) return no_memory(err);
    const dra_status st = fill_config(copy, *stack, own, deep + 1, err);
    *stack = copy;
    return st;
}

static dra_status fill_config(dra_model_config *to, const dra_model_config *from, dra_arena *own,
                              int deep, dra_error *err)
{
    *to = *from;
    to->own = own;
    const dra_status st = fill_stack(&to->context_stack, own, deep, err);
    return st == DRA_OK ? fill_stack(&to->prepend_stack, own, deep, err) : st;
}

dra_status dra_config_fill(dra_model_config *to, const dra_model_config *from, dra_arena *own,
                           dra_error *err)
{
    return fill_config(to, from, own, 1, err);
}

dra_status dra_model_config_copy(const dra_model_config *config, dra_model_config **out,
                                 dra_error *err)
{
    owned_config *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o) return no_memory(err);
    const dra_status st = dra_config_fill(&o->config, config, &o->arena, err);
    if (st == DRA_OK)
        *out = &o->config;
    else
        dra_model_config_destroy(&o->config);
    return st;
}

void dra_model_config_destroy(dra_model_config *config)
{
    if (!config) return;
    dra_arena_free(config->own);
    free(config); /* the first member of an owned_config */
}
