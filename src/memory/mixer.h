/* A mixer taken apart: its tensors by handle. */
#ifndef DRA_SRC_MEMORY_MIXER_H
#define DRA_SRC_MEMORY_MIXER_H

#include "memory/memory.h"

/* Parameters in the order in which they are declared; those of the memories follow. */
typedef enum dra_mixer_param {
    DRA_W_Q,
    DRA_W_K,
    DRA_W_V,
    DRA_W_O,
    DRA_B_Q,
    DRA_B_K,
    DRA_B_V,
    DRA_B_O,
    DRA_GAIN_Q,
    DRA_GAIN_K,
    DRA_GAIN_V,
    DRA_MU_Q,
    DRA_MU_K,
    DRA_MU_V,
    DRA_BLEND,
    DRA_BIAS_Q,
    DRA_BIAS_K,
    DRA_BIAS_V,
    DRA_MEM_K,
    DRA_MEM_V,
    DRA_TALK_BEFORE,
    DRA_TALK_AFTER,
    DRA_HEAD_SCALE,
    DRA_W_G,
    DRA_B_G,
    DRA_SINK,
    DRA_W_MIX,
    DRA_B_MIX,
    DRA_W_F,
    DRA_B_F,
    DRA_W_C,
    DRA_W_CQ,
    DRA_W_KR,
    DRA_W_G_1,
    DRA_W_G_2,
    DRA_W_MIX_1,
    DRA_W_MIX_2,
    DRA_MU_X,
    /* of each mix but the first three, in the order of dra_mix, then the maps of all */
    DRA_MU_MORE,
    DRA_MU_1 = DRA_MU_MORE + 3,
    DRA_MU_2 = DRA_MU_1 + 6,
    DRA_MIXER_PARAMS = DRA_MU_2 + 6
} dra_mixer_param;

/* What is made of x, each of its own mix with the token before (shift lerp and data). */
typedef enum dra_mix {
    DRA_MIX_Q,
    DRA_MIX_K,
    DRA_MIX_V,
    DRA_MIX_DECAY,
    DRA_MIX_RATE,
    DRA_MIX_GATE,
    DRA_MIXES
} dra_mix;

struct dra_mixer {
    dra_mixer_config config;
    dra_specs       *params, *state;
    int              at[DRA_MIXER_PARAMS]; /* in params; -1: it has none */
    int              shift, level;         /* in state; -1: it has none  */
    dra_module       module;
    int              branches;
    dra_branch       branch[2];
};

static inline dra_mixer_param dra_mix_mu(int mix)
{
    return mix < DRA_MIX_DECAY ? DRA_MU_Q + mix : DRA_MU_MORE + mix - DRA_MIX_DECAY;
}

/* Numbers and choices of the config, the widths of heads filled in. */
dra_status dra_mixer_check(dra_mixer_config *c, dra_error *err);
/* The same where the memories and their retrievals matter. */
dra_status dra_mixer_check_branches(const dra_mixer *m, dra_error *err);
/* Once its tensors are declared: decays are set only of memories that have any. */
dra_status dra_mixer_check_gammas(const dra_mixer *m, dra_error *err);
/* Likewise: what it is asked to show is there, in one memory at least. */
dra_status dra_mixer_check_shows(const dra_mixer *m, dra_error *err);

void dra_mixer_build_module(dra_graph *g, const void *self, const dra_module_call *call,
                            dra_value *state_out);

#endif
