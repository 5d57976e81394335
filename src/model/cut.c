/* Where a text may be cut without a bit changing. Sums over items and steps over time have the same
 * order however a text is read; chunks of moment and delta are made of blocks that begin where a
 * call begins, so that cuts between two blocks do not show. */
#include "dra/model.h"

enum { BLOCK = 64 };

static bool has_blocks(const dra_memory_config *c)
{
    const dra_memory *m = c->own ? c->own : dra_memory_find(c->memory ? c->memory : "append");
    return m && m->chunks & DRA_CHUNK_BLOCKS && !c->steps;
}

/* The form of latents depends on the length of a call, and sums of ln f begin with it. */
static bool is_plain(const dra_mixer_config *c)
{
    return !c->latent.kv && !c->attention.forget && !c->xl_segment;
}

int64_t dra_model_cut(const dra_model *m)
{
    int64_t cut = 1;
    for (int64_t i = 0; i < dra_model_attentions(m); i++) {
        const dra_mixer_config *c = dra_mixer_config_of(dra_model_mixer(m, i));
        if (!is_plain(c)) return 0;
        if (has_blocks(&c->a) || (c->blend != DRA_BLEND_NONE && has_blocks(&c->b))) cut = BLOCK;
    }
    return cut;
}
