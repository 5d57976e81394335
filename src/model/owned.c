/* Configs that own what they point to: lists, texts, other stacks. */
#include "model/owned.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "file/fields.h"
#include "model/model.h"

enum { DEEP_MOST = 8 }; /* stacks, as many as JSON may have */

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
    dra_status st = dra_fields_bring(dra_model_fields(), to, own, err);
    if (st == DRA_OK && from->lora) {
        to->lora = dra_arena_copy(own, from->lora, sizeof *from->lora);
        if (!to->lora) st = no_memory(err);
    }
    if (st == DRA_OK && from->lora_base) {
        to->lora_base = dra_arena_copy(own, from->lora_base, strlen(from->lora_base) + 1);
        if (!to->lora_base) st = no_memory(err);
    }
    if (st == DRA_OK) st = fill_stack(&to->context_stack, own, deep, err);
    return st == DRA_OK ? fill_stack(&to->prepend_stack, own, deep, err) : st;
}

dra_status dra_config_fill(dra_model_config *to, const dra_model_config *from, dra_arena *own,
                           dra_error *err)
{
    return fill_config(to, from, own, 1, err);
}

dra_status dra_config_new(dra_model_config **out, dra_error *err)
{
    owned_config *o = calloc(1, sizeof *o);
    *out = o ? &o->config : NULL;
    if (!o) return no_memory(err);
    o->config.own = &o->arena;
    dra_config_point(&o->config);
    return DRA_OK;
}

dra_status dra_config_end(dra_status st, dra_model_config **out)
{
    if (st == DRA_OK) return st;
    dra_model_config_destroy(*out);
    *out = NULL;
    return st;
}

dra_status dra_config_check_own(const dra_model_config *c, dra_error *err)
{
    if (c->own) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "config: expected one that was read or copied");
}

void dra_config_point(dra_model_config *c)
{
    static const dra_mixer_config nothing;
    if (!c->mixer) c->mixer = &nothing;
    if (!c->cross) c->cross = &nothing;
    if (!c->layout) c->layout = "";
}

void dra_config_clear(dra_model_config *c)
{
    *c = (dra_model_config){.own = c->own};
    dra_config_point(c);
}

dra_model_config *dra_config_add(const dra_model_config *c)
{
    dra_model_config *copy = dra_arena_alloc(c->own, sizeof *copy);
    return copy && dra_config_fill(copy, c, c->own, NULL) == DRA_OK ? copy : NULL;
}

dra_mixer_config *dra_config_mixers(dra_model_config *c, int n)
{
    dra_mixer_config *m = dra_arena_alloc(c->own, (size_t)n * sizeof *m);
    const int         had = c->mixers ? c->mixers : 1;
    if (!m) return NULL;
    memcpy(m, c->mixer, (size_t)(n < had ? n : had) * sizeof *m);
    c->mixers = n;
    return (dra_mixer_config *)(uintptr_t)(c->mixer = m);
}

dra_status dra_config_edit_stack(dra_model_config *c, const dra_model_config **stack,
                                 dra_model_config **out, dra_error *err)
{
    dra_status st = DRA_OK;
    if ((*stack)->own != c->own) st = fill_stack(stack, c->own, 1, err);
    *out = (dra_model_config *)(uintptr_t)*stack;
    return st;
}

dra_status dra_model_config_copy(const dra_model_config *config, dra_model_config **out,
                                 dra_error *err)
{
    dra_status st = dra_config_new(out, err);
    if (st == DRA_OK) st = dra_config_fill(*out, config, (*out)->own, err);
    return dra_config_end(st, out);
}

void dra_model_config_destroy(dra_model_config *config)
{
    if (!config) return;
    dra_arena_free(config->own);
    free(config); /* the first member of an owned_config */
}
