/* Folders of x-transformers: option names and parameter names of that library.
 *
 *   config.json  --dra_xt_parse-->  dra_xt  --dra_xt_settle-->  dra_model_config
 *                <--dra_xt_dump---          <--dra_xt_tell----
 * Options that are fields of a dra_model_config are read straight into it; the others have a word
 * of their own in between. See docs/x-transformers.md. */
#ifndef DRA_SRC_MODEL_XT_H
#define DRA_SRC_MODEL_XT_H

#include "model/format.h"

typedef struct dra_xt {
    dra_model_config c;

    /* ---- the wrapper */
    int        wrapper;
    int64_t    emb_dim;
    bool       post_emb_norm, tie_embedding;
    dra_switch use_abs_pos_emb;

    /* ---- the stack */
    bool       use_scalenorm, use_rmsnorm, use_simple_rmsnorm;
    dra_switch norm_add_unit_offset, pre_norm, disable_abs_pos_emb;
    bool       resi_dual, gate_residual, macaron;
    char       custom_layers[DRA_SUBLAYERS_MOST + 1];
    int        n_shifts, n_drops;
    int64_t    shift_tokens[DRA_SUBLAYERS_MOST];
    double     layer_dropout[DRA_SUBLAYERS_MOST];
    bool       rel_pos_bias, dynamic_pos_bias, alibi_pos_bias, rotary_pos_emb, rotary_xpos;
    int64_t    rotary_emb_dim;

    /* ---- attention and feed-forwards */
    int64_t attn_dim_head;
    bool    attn_one_kv_head, attn_qk_norm_dim_scale, attn_gate_values;
    double  attn_qk_norm_scale, ff_mult;
    bool    ff_swish, ff_relu_squared, ff_no_bias;

    /* ---- beyond the README */
    bool       attn_softclamp_logits, softclamp_output, add_value_residual;
    dra_switch learned_value_residual_mix;
    bool       attn_use_latent_kv, attn_use_latent_q;
    double     attn_logit_softclamp_value, softclamp_output_value;
} dra_xt;

/* From JSON: unknown names, options that dra does not have and those that contradict each other
 * are refused, each by name. */
dra_status dra_xt_parse(const char *place, const json_t *object, dra_xt *out, dra_error *err);
/* What is not default, as a new object; NULL: no memory. */
json_t *dra_xt_dump(const dra_xt *x);
/* What options may not be said together. options: without null, and without neutral ones. */
dra_status dra_xt_check(const dra_xt *x, const char *place, const json_t *options, dra_error *err);

/* Why an option of the library is refused; NULL: it is none of those. *neutral: with this value it
 * asks for nothing. */
const char *dra_xt_refusal(const char *name, const json_t *value, bool *neutral);
/* Whether the library has a wrapper or a stack of this name that dra does not have. */
bool dra_xt_other_class(const char *name);

/* Fills the config that the words mean, and backwards. What a word cannot say is found by whoever
 * reads it back. */
void dra_xt_settle(dra_xt *x);
void dra_xt_tell(dra_xt *x);

typedef struct dra_xt_sizes {
    int64_t H, K, d; /* heads of queries, of keys and values, their width */
} dra_xt_sizes;

dra_xt_sizes dra_xt_sizes_of(const dra_model_config *c);
/* Frequencies of rotations are 10000^(-2c / r): r channels, or of an odd r one more. 0: none. */
int64_t dra_xt_rotary(const dra_model_config *c);

dra_status dra_xt_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err);

#endif
