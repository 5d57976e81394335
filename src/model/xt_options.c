/* Options of x-transformers as a table: their names, and where each is kept. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "file/fields.h"
#include "model/xt.h"

/* ---- what there is --------------------------------------------------------------------------- */

enum { MOST = 1 << 20, DEPTH_MOST = 1 << 12, POSITION_LAYERS = 8 };

#define AT(f) offsetof(dra_xt, f)
#define INT(option, f, lo, hi)                                                                     \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_INT, .offset = AT(f), .min = lo, .max = hi               \
    }
#define REAL(option, f, lo, hi)                                                                    \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_REAL, .offset = AT(f), .min = lo, .max = hi              \
    }
#define BOOL(option, f)                                                                            \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_BOOL, .offset = AT(f)                                    \
    }
#define SWITCH(option, f)                                                                          \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_SWITCH, .offset = AT(f)                                  \
    }
#define CHOICE(option, f, list)                                                                    \
    {                                                                                              \
        .name = option, .kind = DRA_FIELD_CHOICE, .offset = AT(f), .choices = list                 \
    }
#define LIST(option, k, f, count, hi)                                                              \
    {                                                                                              \
        .name = option, .kind = k, .offset = AT(f), .given = AT(count), .max = hi,                 \
        .most = DRA_SUBLAYERS_MOST                                                                 \
    }

static const char *const wrappers[] = {"TransformerWrapper", NULL};
static const char *const releases[] = {"E", "N", NULL};
static const char *const types[] = {"Decoder", "Encoder", NULL}; /* as dra_visible_kind */
static const char *const letters[] = {"af", NULL};

/* In the order in which they are written. */
static const dra_field stack_fields[] = {
    CHOICE("type", c.visible, types),
    INT("dim", c.dim, 1, MOST),
    INT("depth", c.depth, 1, DEPTH_MOST),
    INT("heads", c.heads, 1, MOST),
    BOOL("use_scalenorm", use_scalenorm),
    BOOL("use_rmsnorm", use_rmsnorm),
    BOOL("use_simple_rmsnorm", use_simple_rmsnorm),
    SWITCH("norm_add_unit_offset", norm_add_unit_offset),
    SWITCH("pre_norm", pre_norm),
    BOOL("sandwich_norm", c.block.branch_norm),
    BOOL("resi_dual", resi_dual),
    REAL("resi_dual_scale", c.block.dual_scale, 1e-6, 1),
    BOOL("gate_residual", gate_residual),
    BOOL("scale_residual", c.block.residual_scale),
    BOOL("macaron", macaron),
    INT("sandwich_coef", c.sandwich, 1, DEPTH_MOST),
    BOOL("weight_tie_layers", c.tied_layers),
    {.name = "custom_layers",
     .kind = DRA_FIELD_TEXT,
     .offset = AT(custom_layers),
     .choices = letters,
     .most = DRA_SUBLAYERS_MOST + 1},
    LIST("layers_execute_order", DRA_FIELD_INTS, c.order, c.n_order, DRA_SUBLAYERS_MOST - 1),
    LIST("shift_tokens", DRA_FIELD_INTS, shift_tokens, n_shifts, MOST),
    LIST("layer_dropout", DRA_FIELD_REALS, layer_dropout, n_drops, 0.999),
    BOOL("residual_attn", c.mixer[0].residual_scores),
    BOOL("rel_pos_bias", rel_pos_bias),
    INT("rel_pos_num_buckets", c.position.buckets, 4, MOST),
    INT("rel_pos_max_distance", c.position.max_distance, 1, MOST),
    BOOL("dynamic_pos_bias", dynamic_pos_bias),
    BOOL("dynamic_pos_bias_log_distance", c.position.log),
    INT("dynamic_pos_bias_mlp_depth", c.position.layers, 1, POSITION_LAYERS),
    BOOL("alibi_pos_bias", alibi_pos_bias),
    INT("alibi_num_heads", c.position.slopes, 1, MOST),
    BOOL("rotary_pos_emb", rotary_pos_emb),
    INT("rotary_emb_dim", rotary_emb_dim, 2, MOST),
    BOOL("rotary_xpos", rotary_xpos),
    REAL("rotary_xpos_scale_base", c.position.xpos_base, 1e-3, 1e12),
    INT("rotate_num_heads", c.position.heads, 1, MOST),
    SWITCH("disable_abs_pos_emb", disable_abs_pos_emb),
    BOOL("attn_flash", c.xt.flash),
    INT("attn_dim_head", attn_dim_head, 1, MOST),
    REAL("attn_dropout", c.attention_dropout, 0, 0.999),
    BOOL("attn_one_kv_head", attn_one_kv_head),
    INT("attn_kv_heads", c.mixer[0].kv_heads, 1, MOST),
    INT("attn_num_mem_kv", c.mixer[0].mem_kv, 0, MOST),
    INT("attn_sparse_topk", c.mixer[0].topk, 1, MOST),
    BOOL("attn_sparse_topk_straight_through", c.mixer[0].topk_straight),
    BOOL("attn_hard", c.mixer[0].hard),
    BOOL("attn_pre_talking_heads", c.mixer[0].talk_before),
    BOOL("attn_post_talking_heads", c.mixer[0].talk_after),
    BOOL("attn_on_attn", c.mixer[0].out_glu),
    BOOL("attn_gate_values", attn_gate_values),
    BOOL("attn_head_scale", c.mixer[0].head_scale),
    BOOL("attn_qk_norm", c.mixer[0].qk_norm),
    INT("attn_qk_norm_groups", c.mixer[0].qk_groups, 1, MOST),
    REAL("attn_qk_norm_scale", attn_qk_norm_scale, 1e-6, 1e6),
    BOOL("attn_qk_norm_dim_scale", attn_qk_norm_dim_scale),
    REAL("ff_mult", ff_mult, 1e-3, 1e6),
    BOOL("ff_glu", c.ff.gated),
    BOOL("ff_swish", ff_swish),
    BOOL("ff_relu_squared", ff_relu_squared),
    BOOL("ff_no_bias", ff_no_bias),
    BOOL("ff_post_act_ln", c.ff.act_norm),
    REAL("ff_dropout", c.ff.dropout, 0, 0.999),
    BOOL("attn_softclamp_logits", attn_softclamp_logits),
    REAL("attn_logit_softclamp_value", attn_logit_softclamp_value, 1e-3, 1e6),
    BOOL("attn_head_learned_sink", c.mixer[0].sink),
    BOOL("attn_data_dependent_alibi", c.mixer[0].forget),
    BOOL("attn_use_latent_kv", attn_use_latent_kv),
    INT("attn_dim_latent_kv", c.mixer[0].latent_kv, 1, MOST),
    BOOL("attn_use_latent_q", attn_use_latent_q),
    INT("attn_dim_latent_q", c.mixer[0].latent_q, 1, MOST),
    INT("attn_latent_rope_subheads", c.mixer[0].latent_rope, 1, MOST),
    BOOL("add_value_residual", add_value_residual),
    SWITCH("learned_value_residual_mix", learned_value_residual_mix),
    INT("num_residual_streams", c.block.streams, 1, 64),
    BOOL("use_layerscale", c.block.branch_scale),
    REAL("layerscale_init_value", c.block.branch_scale_start, -1e6, 1e6),
    BOOL("zero_init_branch_output", c.block.zero_out),
    BOOL("softclamp_output", softclamp_output),
    REAL("softclamp_output_value", softclamp_output_value, 1e-3, 1e6),
    {0}};

static const dra_field wrapper_fields[] = {
    CHOICE("release", c.xt.release, releases),
    CHOICE("wrapper", wrapper, wrappers),
    INT("num_tokens", c.vocab, 1, MOST),
    INT("max_seq_len", c.context, 1, MOST),
    INT("emb_dim", emb_dim, 1, MOST),
    REAL("emb_dropout", c.embed_dropout, 0, 0.999),
    BOOL("l2norm_embed", c.embed_unit),
    BOOL("post_emb_norm", post_emb_norm),
    INT("num_memory_tokens", c.memory_tokens, 0, MOST),
    SWITCH("use_abs_pos_emb", use_abs_pos_emb),
    BOOL("tie_embedding", tie_embedding),
    INT("max_mem_len", c.xl.memory, 0, MOST),
    INT("shift_mem_down", c.xl.down, 0, DRA_SUBLAYERS_MOST),
    {.name = "attn_layers", .kind = DRA_FIELD_OBJECT, .fields = stack_fields},
    {0}};

static bool is_known(const dra_field *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0) table++;
    return table->name != NULL;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

/* Values of "wrapper" and "type" that the library has and dra does not. */
static dra_status check_class(const char *place, const json_t *object, const char *key,
                              const char *expected, dra_error *err)
{
    const char *is = json_string_value(json_object_get(object, key));
    if (!is || !dra_xt_other_class(is)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s %s is not supported yet, expected %s", place,
                    key, is, expected);
}

/* One key: DRA_OK, and *drop where it asks for nothing. */
static dra_status check_key(const char *place, bool stack, const char *key, const json_t *v,
                            bool *drop, dra_error *err)
{
    const char *path = stack ? "attn_layers." : "", *why = dra_xt_refusal(key, v, drop);
    if (json_is_null(v)) *drop = true;
    if (*drop || is_known(stack ? stack_fields : wrapper_fields, key)) return DRA_OK;
    if (why)
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s%.60s is not supported: %s", place, path,
                        key, why);
    if (is_known(stack ? wrapper_fields : stack_fields, key))
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s%.60s belongs %s attn_layers", place, path,
                        key, stack ? "next to" : "into");
    return DRA_OK; /* unknown: whoever reads the table says so */
}

static dra_status sweep(const char *place, bool stack, json_t *object, dra_error *err)
{
    const char *key;
    json_t     *v;
    void       *next;
    dra_status  st = DRA_OK;
    json_object_foreach_safe(object, next, key, v)
    {
        bool drop;
        st = check_key(place, stack, key, v, &drop, err);
        if (st != DRA_OK) return st;
        if (drop) json_object_del(object, key);
    }
    return st;
}

/* One number for all sublayers is a list of one. */
static void make_list(json_t *stack, const char *key)
{
    json_t *v = json_object_get(stack, key);
    if (json_is_number(v)) json_object_set_new(stack, key, json_pack("[O]", v));
}

/* ["a", "f"] is "af". */
static void join_letters(json_t *stack, const char *key)
{
    const json_t *list = json_object_get(stack, key);
    char          text[DRA_SUBLAYERS_MOST + 1] = "";
    const size_t  n = json_array_size(list);
    if (n > DRA_SUBLAYERS_MOST) return;
    for (size_t i = 0; i < n; i++) {
        const char *letter = json_string_value(json_array_get(list, i));
        if (!letter || strlen(letter) != 1) return;
        text[i] = letter[0];
    }
    if (n) json_object_set_new(stack, key, json_string(text));
}

static dra_status check_missing(const char *place, const json_t *object, dra_error *err)
{
    static const char *const top[] = {"num_tokens", "max_seq_len", "attn_layers", NULL};
    static const char *const inner[] = {"type", "dim", NULL};
    const json_t            *stack = json_object_get(object, "attn_layers");
    for (const char *const *key = top; *key; key++)
        if (!json_object_get(object, *key))
            return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s is missing", place, *key);
    if (!json_is_object(stack)) return DRA_OK; /* the table says what it is */
    for (const char *const *key = inner; *key; key++)
        if (!json_object_get(stack, *key))
            return dra_fail(err, DRA_ERR_VALUE, "%.120s: attn_layers.%s is missing", place, *key);
    if (!json_object_get(stack, "depth") && !json_object_get(stack, "custom_layers"))
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: attn_layers.depth is missing, and so is "
                        "custom_layers",
                        place);
    return DRA_OK;
}

/* A copy in which only options of the tables are left. */
static dra_status clean(const char *place, json_t *object, dra_error *err)
{
    json_object_del(object, "model_type");
    dra_status st = sweep(place, false, object, err);
    json_t    *stack = json_object_get(object, "attn_layers");
    if (st == DRA_OK && json_is_object(stack)) st = sweep(place, true, stack, err);
    if (st == DRA_OK) st = check_class(place, object, "wrapper", wrappers[0], err);
    if (st == DRA_OK) st = check_class(place, stack, "type", "Decoder or Encoder", err);
    make_list(stack, "shift_tokens");
    make_list(stack, "layer_dropout");
    join_letters(stack, "custom_layers");
    return st == DRA_OK ? check_missing(place, object, err) : st;
}

dra_status dra_xt_parse(const char *place, const json_t *object, dra_xt *out, dra_error *err)
{
    json_t *options = json_deep_copy(object);
    *out = (dra_xt){0};
    if (!options) return dra_fail(err, DRA_ERR_MEMORY, "%.120s: out of memory", place);
    dra_status st = clean(place, options, err);
    if (st == DRA_OK) st = dra_fields_read(wrapper_fields, place, options, out, err);
    if (!out->c.heads) out->c.heads = 8;
    if (!out->attn_dim_head) out->attn_dim_head = 64;
    if (st == DRA_OK) st = dra_xt_check(out, place, options, err);
    json_decref(options);
    return st;
}

/* ---- to JSON --------------------------------------------------------------------------------- */

/* Whole numbers are written without a point. */
static json_t *number(json_t *v)
{
    const double x = json_number_value(v);
    return json_is_real(v) && x == floor(x) ? json_integer((json_int_t)x) : json_incref(v);
}

/* A list of one number is that number, for all. */
static json_t *plain(json_t *v)
{
    const size_t n = json_array_size(v);
    if (n <= 1) return number(n ? json_array_get(v, 0) : v);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, number(json_array_get(v, i)));
    return list;
}

static json_t *split_letters(const char *text)
{
    json_t *list = json_array();
    for (; *text; text++) json_array_append_new(list, json_stringn(text, 1));
    return list;
}

/* The fields of a table, with what they begin with. */
static json_t *begin(const char *key, const char *value, json_t *fields)
{
    json_t     *object = json_pack("{s:s}", key, value), *v;
    const char *name;
    json_object_foreach(fields, name, v)
    {
        const bool order = strcmp(name, "layers_execute_order") == 0;
        const bool letter = strcmp(name, "custom_layers") == 0;
        json_object_set_new(object, name,
                            letter  ? split_letters(json_string_value(v))
                            : order ? json_incref(v)
                                    : plain(v));
    }
    json_decref(fields);
    return object;
}

json_t *dra_xt_dump(const dra_xt *x)
{
    json_t *stack = begin("type", types[x->c.visible], dra_fields_write(stack_fields, x));
    json_t *object = begin("wrapper", wrappers[0], dra_fields_write(wrapper_fields, x));
    if (json_object_set_new(object, "attn_layers", stack) == 0) return object;
    json_decref(object);
    return NULL;
}
