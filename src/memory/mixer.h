/* A mixer taken apart: its tensors by handle. */
#ifndef DRA_SRC_MEMORY_MIXER_H
#define DRA_SRC_MEMORY_MIXER_H

#include "memory/memory.h"

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
    int              shift, level, conv;   /* in state; -1: it has none  */
    dra_module       module;
    int              branches;
    dra_branch       branch[2];
};

static inline dra_mixer_param dra_mix_mu(int mix)
{
    return mix < DRA_MIX_DECAY ? DRA_MU_Q + mix : DRA_MU_MORE + mix - DRA_MIX_DECAY;
}

static inline bool dra_mixer_has_bias(const dra_mixer_config *c)
{
    return c->biases == DRA_BIAS_MODEL ? c->bias : c->biases != DRA_BIAS_NO;
}

/* Numbers and choices of the config, the widths of heads filled in. */
dra_status dra_mixer_check(dra_mixer_config *c, dra_error *err);
/* The same where the memories and their retrievals matter. */
dra_status dra_mixer_check_branches(const dra_mixer *m, dra_error *err);
/* Once its tensors are declared: decays are set only of memories that have any. */
dra_status dra_mixer_check_gammas(const dra_mixer *m, dra_error *err);
/* Likewise: what it is asked to show is there, in one memory at least. */
dra_status dra_mixer_check_shows(const dra_mixer *m, dra_error *err);

/* Parts of it: what goes together; latents with the memory that has them. */
dra_status dra_shift_check(const dra_mixer_config *c, dra_error *err);
dra_status dra_gate_check(const dra_mixer_config *c, dra_error *err);
dra_status dra_value_residual_check(const dra_mixer_config *c, dra_error *err);
dra_status dra_attention_check(const dra_mixer_config *c, dra_error *err);
dra_status dra_conv_check(const dra_mixer_config *c, dra_error *err);
dra_status dra_out_norm_check(const dra_mixer_config *c, dra_error *err);
dra_status dra_out_norm_check_width(const dra_mixer *m, dra_error *err);
dra_status dra_latent_check(const dra_mixer_config *c, dra_error *err);
dra_status dra_latent_check_branch(const dra_branch *b, const dra_mixer_config *c, dra_error *err);

/* ---- declaring tensors (mixer.c) ------------------------------------------------------------- */

void dra_mixer_add(dra_mixer *m, dra_mixer_param p, dra_shape shape, dra_fill fill, double number);
void dra_mixer_add_constant(dra_mixer *m, dra_mixer_param p, dra_shape shape, double number);
void dra_mixer_add_matrix(dra_mixer *m, dra_mixer_param p, int64_t rows, int64_t columns,
                          double std);
/* The bias (n) of a matrix (n, columns): drawn as that is where both are uniform, else a number. */
void dra_mixer_add_bias(dra_mixer *m, dra_mixer_param p, int64_t n, int64_t columns, double number);
int64_t dra_mixer_kv_heads(const dra_mixer_config *c);
/* Heads of queries (i = 0) or keys. */
int64_t dra_mixer_key_heads(const dra_mixer_config *c, int i);
/* Channels of what the memories answer, all heads together. */
int64_t dra_mixer_answer_width(const dra_mixer *m);

/* Of parts, in the order of parameters. Those of the shift: of q, k and v, then of all others. */
void dra_shift_declare(dra_mixer *m);
void dra_shift_declare_others(dra_mixer *m);
void dra_gate_declare(dra_mixer *m);
void dra_value_residual_declare(dra_mixer *m);
void dra_conv_declare(dra_mixer *m);
void dra_out_norm_declare(dra_mixer *m);

/* ---- building (mixer_graph.c) ---------------------------------------------------------------- */

typedef struct dra_mixing {
    dra_graph             *g;
    const dra_mixer       *m;
    const dra_module_call *call;
    dra_channels          *channels;
    dra_value             *state_out;
} dra_mixing;

/* The null value where the mixer has none. */
dra_value dra_mixing_param(const dra_mixing *b, dra_mixer_param p);
/* mu x + (1 - mu) y */
dra_value dra_mix_two(dra_graph *g, dra_value mu, dra_value x, dra_value y);
/* What each thing that is made of x sees of it. */
void dra_shift_build(const dra_mixing *b, dra_value x, dra_value out[DRA_MIXES]);
/* v with that of the first mixer, which is this one where nothing was handed on. x: what values
 * see. */
dra_value dra_value_residual_build(const dra_mixing *b, dra_value seen, dra_value x, dra_value v);
/* What q (i = 0), k or v (B, T, channels) become by the convolution. */
dra_value dra_conv_build(const dra_mixing *b, int i, dra_value x);
/* y (B, T, channels), normed if this is where its norm stands. */
dra_value dra_out_norm_build(const dra_mixing *b, dra_out_norm_place here, dra_value y);
/* What multiplies the heads, of x (B, T, C). */
dra_value dra_gate_build(const dra_mixing *b, dra_value x, dra_value y);
/* One for each head, (B, T, H, 1). */
dra_value dra_head_gate_build(const dra_mixing *b, dra_value x);

void dra_mixer_build_module(dra_graph *g, const void *self, const dra_module_call *call,
                            dra_value *state_out);

#endif
