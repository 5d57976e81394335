/* RWKV's layers as dra's: version 4 is wkv, 5 and 6 are moments with a bonus, 7 is a delta whose
 * transition is diagonal plus rank one. All else are options of mixers and feed-forwards. */
#include <string.h>

#include "formats/rwkv/rwkv.h"

static const double head_eps = 64e-5; /* 1e-5 head_size_divisor^2 */

static const dra_mixer_config mixers[] = {[4] = {.shift = DRA_SHIFT_MIX, .a.memory = "wkv"},
                                          [5] = {.shift = DRA_SHIFT_MIX,
                                                 .gate_values = DRA_GATE_SILU,
                                                 .a = {.memory = "moment",
                                                       .moment.phi = DRA_PHI_IDENTITY,
                                                       .lambda.decay = DRA_DECAY_FIXED,
                                                       .lambda.decay_form = DRA_FORM_EXP,
                                                       .gamma.per = DRA_PER_CHANNEL,
                                                       .lambda.bonus = DRA_BONUS_CHANNEL,
                                                       .head_norm_eps = head_eps}},
                                          [6] = {.shift = DRA_SHIFT_DATA,
                                                 .gate_values = DRA_GATE_SILU,
                                                 .a = {.memory = "moment",
                                                       .moment.phi = DRA_PHI_IDENTITY,
                                                       .lambda.decay = DRA_DECAY_DATA,
                                                       .lambda.decay_form = DRA_FORM_EXP,
                                                       .gamma.per = DRA_PER_CHANNEL,
                                                       .lambda.bonus = DRA_BONUS_CHANNEL,
                                                       .head_norm_eps = head_eps}},
                                          [7] = {.shift = DRA_SHIFT_LERP,
                                                 .gate_values = DRA_GATE_RANK,
                                                 .value_residual = DRA_VALUES_CHANNEL,
                                                 .a = {.memory = "delta",
                                                       .delta.transition = DRA_TRANSITION_DIAGONAL,
                                                       .lambda.decay = DRA_DECAY_DATA,
                                                       .lambda.decay_form = DRA_FORM_BOUNDED,
                                                       .gamma.per = DRA_PER_CHANNEL,
                                                       .lambda.bonus = DRA_BONUS_CHANNEL,
                                                       .head_norm = DRA_ON,
                                                       .head_norm_eps = head_eps}}};

void dra_rwkv_layers(dra_model_config *c, int version)
{
    c->norm = DRA_NORM_LAYER;
    c->embed_norm = true;
    c->ff.kind = DRA_FF_MIX;
    c->ff.lerp = version >= 6;
    c->ff.receptance = version == 7 ? DRA_OFF : DRA_DEFAULT;
    c->mixers = 1;
    c->mixer = &mixers[version];
}

int64_t dra_rwkv_ff_dim(int version, int64_t dim)
{
    return version == 5 || version == 6 ? 7 * dim / 64 * 32 : 4 * dim;
}

int dra_model_config_rwkv(const dra_model_config *c)
{
    const dra_memory_config *m = c->mixer ? &c->mixer[0].a : NULL;
    if (!m || !m->memory || c->ff.kind != DRA_FF_MIX) return 0;
    if (strcmp(m->memory, "wkv") == 0) return 4;
    if (strcmp(m->memory, "delta") == 0) return m->delta.transition ? 7 : 0;
    if (strcmp(m->memory, "moment") != 0 || !m->lambda.bonus) return 0;
    return m->lambda.decay == DRA_DECAY_DATA ? 6 : 5;
}
