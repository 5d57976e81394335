/* Folders of x-transformers: option names and parameter names of that library.
 *
 *   config.json  --dra_xt_read-->  dra_model_config, that of the model; others hang on it
 *                <--dra_xt_write--
 * and for each stack in it, with its wrapper,
 *   JSON  --dra_xt_parse-->  dra_xt  --dra_xt_settle-->  dra_model_config
 *         <--dra_xt_dump---          <--dra_xt_tell----
 * Options that are fields of a dra_model_config are read straight into it; the others have a word
 * of their own in between. See docs/x-transformers.md. */
#ifndef DRA_SRC_FORMATS_XT_XT_H
#define DRA_SRC_FORMATS_XT_XT_H

#include "file/fields.h"
#include "formats/format.h"

typedef enum dra_xt_wrapper {
    DRA_XT_TOKENS, /* one stack and what it reads and says */
    DRA_XT_CONTINUOUS,
    DRA_XT_XVAL,
    DRA_XT_IMAGE,
    DRA_XT_DECODER, /* stacks by themselves, on vectors */
    DRA_XT_ENCODER,
    DRA_XT_CROSS,
    DRA_XT_PAIR,  /* an encoder and a decoder */
    DRA_XT_LOSSES /* and those after it: a loss around a model, as dra_xt_loss counts from 1 */
} dra_xt_wrapper;

typedef struct dra_xt {
    dra_model_config c;
    dra_mixer_config mixer, cross; /* of c, see dra_xt_join() */

    /* ---- the wrapper */
    int        wrapper; /* dra_xt_wrapper */
    int64_t    emb_dim;
    bool       post_emb_norm, tie_embedding;
    dra_switch use_abs_pos_emb;
    bool       average_pool_embed, use_cls_token;
    bool       mixture_of_softmax, recycling;
    int64_t    num_cls_tokens, logits_dim;

    /* ---- the stack */
    bool       use_scalenorm, use_rmsnorm, use_simple_rmsnorm;
    bool       use_dynamic_tanh;
    bool       use_adaptive_layernorm, use_adaptive_rmsnorm, adaptive_condition_mlp;
    dra_switch norm_add_unit_offset, pre_norm, disable_abs_pos_emb;
    bool       integrate_layers;
    dra_switch layer_integrate_use_softmax;
    bool       resi_dual, gate_residual, macaron, cross_attend, only_cross;
    int        n_shifts, n_drops;
    bool       rel_pos_bias, dynamic_pos_bias, alibi_pos_bias, rotary_pos_emb, rotary_xpos;
    int64_t    rotary_emb_dim;

    const char    *custom_layers; /* these, and what c points to, are in its memory */
    const int64_t *shift_tokens;
    const double  *layer_dropout;

    /* ---- attention and feed-forwards */
    int64_t attn_dim_head;
    bool    attn_one_kv_head, attn_qk_norm_dim_scale, attn_gate_values;
    double  attn_qk_norm_scale, ff_mult;
    bool    ff_swish, ff_relu_squared, ff_no_bias;

    /* ---- beyond the README */
    bool       attn_softclamp_logits, softclamp_output, add_value_residual;
    dra_switch learned_value_residual_mix;
    bool       attn_use_latent_kv, attn_use_latent_q;
    bool       attn_use_cope, attn_selective, attn_swiglu_values;
    dra_switch attn_low_rank_silu_gates;
    int64_t    attn_max_attend_past;
    double     attn_logit_softclamp_value, softclamp_output_value;
    int64_t    dim_context; /* cross_attn_dim_context; 0: dim */
} dra_xt;

/* ---- tables (options_table.c) ---------------------------------------------------------------- */

extern const char *const dra_xt_wrappers[]; /* their names; NULL at the end */
extern const char *const dra_xt_types[];    /* of stacks, as dra_visible_kind */
extern const dra_field   dra_xt_top_fields[];

/* Options of a wrapper around one stack, in which attn_layers has those of the stack; and keys that
 * it cannot do without. */
const dra_field   *dra_xt_fields(dra_xt_wrapper wrapper);
const dra_field   *dra_xt_stack_fields(void);
const char *const *dra_xt_needed(dra_xt_wrapper wrapper);
bool               dra_xt_is_known(const dra_field *table, const char *name);

/* ---- models (wrappers.c, write.c) ------------------------------------------------------ */

dra_status dra_xt_read(const char *place, const json_t *object, dra_model_config *c,
                       dra_error *err);
/* As a new object. */
json_t *dra_xt_write(dra_json *j, const dra_model_config *c);
/* Which wrapper holds a config, without the loss around it. */
dra_xt_wrapper dra_xt_wrapper_of(const dra_model_config *c);
/* The context is vectors that are given as they are, not a stack that makes them. */
bool dra_xt_bare_context(const dra_model_config *c);
/* The name of the stack of a context, or of one that is prepended. */
const char *dra_xt_stack_name(const dra_model_config *c, const char *otherwise);

/* Parts of that. An error of a part: the names in it begin with `prefix`; flat: instead of
 * "attn_layers.". */
dra_status dra_xt_inside(dra_status st, const char *place, const char *prefix, bool flat,
                         dra_error *err);
/* The value of a key, which is taken out, as a new reference; NULL: there is none, or null. */
json_t *dra_xt_take(json_t *object, const char *key);
/* Adds the config of a stack that another reads to its memory, under this name; of vectors that
 * are given as they are, `length` of them, 0: any number; and of the wrapper that is the value of
 * `key`, whose vectors `reader` takes, `dim` wide. */
dra_status dra_xt_keep(const char *place, const dra_model_config *c, const char *name,
                       const dra_model_config **out, dra_error *err);
dra_status dra_xt_keep_vectors(const char *place, const dra_model_config *reader, int64_t dim,
                               int64_t length, const char *name, const dra_model_config **out,
                               dra_error *err);
dra_status dra_xt_read_part(const char *place, const char *key, const json_t *object,
                            const dra_model_config *reader, int64_t dim, const char *name,
                            const dra_model_config **out, dra_error *err);
/* XTransformer (pair.c). top: wrapper and release. */
dra_status dra_xt_read_pair(const char *place, json_t *body, const dra_xt *top,
                            dra_model_config *out, dra_error *err);

/* NonAutoregressiveWrapper without its net (masked.c), which has `vocab` tokens. */
dra_status dra_xt_read_masked(const char *place, const json_t *body, int64_t vocab,
                              dra_xt_config *out, dra_error *err);

/* ---- one stack (options_read.c, cross.c) ---------------------------------------------------- */

/* Its config has its mixers from now on, so it stays where it is. */
void dra_xt_join(dra_xt *x);
/* From JSON: unknown names, options that dra does not have and those that contradict each other
 * are refused, each by name. `out` says which wrapper it is, and the release. */
dra_status dra_xt_parse(const char *place, const json_t *object, dra_xt *out, dra_error *err);
/* What is not default, as a new object. */
json_t *dra_xt_dump(dra_json *j, const dra_xt *x);

/* Takes cross_attn_* out of the options of a stack, as a new object in which they are attn_*. */
json_t *dra_xt_cross_split(dra_json *j, json_t *stack);
/* Fills cross from the options of a stack, which those of cross-attention override. */
dra_status dra_xt_cross_read(const char *place, const json_t *stack, const json_t *cross,
                             dra_xt *out, dra_error *err);
/* Adds what differs from the other attention to its options. */
void dra_xt_cross_dump(dra_json *j, const dra_xt *x, json_t *stack);

/* What options may not be said together. options: without null, and without neutral ones. */
dra_status dra_xt_check(const dra_xt *x, const char *place, const json_t *options, dra_error *err);
/* The option that this one is about, without which it says nothing; NULL: it stands alone. */
const char *dra_xt_need(const char *name);

/* Why an option of the library is refused; NULL: it is none of those. *neutral: with this value it
 * asks for nothing. */
const char *dra_xt_refusal(const char *name, const json_t *value, bool *neutral);
/* Whether the library has a wrapper or a stack of this name that dra does not have. */
bool dra_xt_other_class(const char *name);

/* Fills the config that the words mean, and backwards. What a word cannot say is found by whoever
 * reads it back. */
void dra_xt_settle(dra_xt *x);
void dra_xt_tell(dra_xt *x);
/* The part of attention alone: mixer. */
void dra_xt_settle_attention(dra_xt *x);
void dra_xt_tell_attention(dra_xt *x);

typedef struct dra_xt_sizes {
    int64_t H, K, d; /* heads of queries, of keys and values, their width */
} dra_xt_sizes;

dra_xt_sizes dra_xt_sizes_of(const dra_model_config *c);
dra_xt_sizes dra_xt_mixer_sizes(const dra_model_config *c, const dra_mixer_config *m);
/* Frequencies of rotations are 10000^(-2c / r): r channels, or of an odd r one more. 0: none. */
int64_t dra_xt_rotary(const dra_model_config *c);

/* Sets one option by its name there; false: it has no such option, *st is DRA_OK then. */
bool dra_xt_set(dra_model_config *c, const char *name, const char *value, dra_status *st,
                dra_error *err);

dra_status dra_xt_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err);

#endif
