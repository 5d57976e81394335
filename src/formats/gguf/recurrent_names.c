/* Recurrent families in GGUF: names, shapes and orders of tensors, from the rules of folders. */
#include <string.h>

#include "base/error.h"
#include "file/fail.h"
#include "formats/gguf/recurrent.h"
#include "model/owned.h"

/* ---- tensors --------------------------------------------------------------------------------- */

typedef struct renaming {
    const char *theirs, *name; /* in folders, and here                            */
    const char *ours;          /* of these parameters alone, if several share it  */
} renaming;

#define SSM(place)                                                                                 \
    {place ".in_proj.weight", "blk.*.ssm_in.weight"},                                              \
        {place ".conv1d.weight", "blk.*.ssm_conv1d.weight"},                                       \
        {place ".conv1d.bias", "blk.*.ssm_conv1d.bias"}, {place ".A_log", "blk.*.ssm_a"},          \
        {place ".dt_bias", "blk.*.ssm_dt.bias"}, {place ".D", "blk.*.ssm_d"},                      \
        {place ".norm.weight", "blk.*.ssm_norm.weight"},                                           \
    {                                                                                              \
        place ".out_proj.weight", "blk.*.ssm_out.weight"                                           \
    }

static const renaming names[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"embeddings.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"norm_f.weight", "output_norm.weight"},
    {"embedding_norm.weight", "token_embd_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"layers.*.input_layernorm.weight", "blk.*.attn_norm.weight"},
    {"layers.*.operator_norm.weight", "blk.*.attn_norm.weight"},
    {"layers.*.norm.weight", "blk.*.attn_norm.weight"},
    {"layers.*.post_attention_layernorm.weight", "blk.*.ffn_norm.weight"},
    {"layers.*.ffn_norm.weight", "blk.*.ffn_norm.weight"},
    {"layers.*.mlp.gate_proj.weight", "blk.*.ffn_gate.weight"},
    {"layers.*.mlp.up_proj.weight", "blk.*.ffn_up.weight"},
    {"layers.*.mlp.down_proj.weight", "blk.*.ffn_down.weight"},
    {"layers.*.feed_forward.w1.weight", "blk.*.ffn_gate.weight"},
    {"layers.*.feed_forward.w3.weight", "blk.*.ffn_up.weight"},
    {"layers.*.feed_forward.w2.weight", "blk.*.ffn_down.weight"},
    {"layers.*.shared_mlp.input_linear.weight", "blk.*.ffn_gate.weight", "layers.*.ff.W_gate"},
    {"layers.*.shared_mlp.input_linear.weight", "blk.*.ffn_up.weight", "layers.*.ff.W_up"},
    {"layers.*.shared_mlp.output_linear.weight", "blk.*.ffn_down.weight"},
    {"layers.*.self_attn.q_proj.weight", "blk.*.attn_q.weight"},
    {"layers.*.self_attn.k_proj.weight", "blk.*.attn_k.weight"},
    {"layers.*.self_attn.v_proj.weight", "blk.*.attn_v.weight"},
    {"layers.*.self_attn.o_proj.weight", "blk.*.attn_output.weight"},
    {"layers.*.self_attn.out_proj.weight", "blk.*.attn_output.weight"},
    {"layers.*.self_attn.q_norm.weight", "blk.*.attn_q_norm.weight"},
    {"layers.*.self_attn.k_norm.weight", "blk.*.attn_k_norm.weight"},
    {"layers.*.self_attn.q_layernorm.weight", "blk.*.attn_q_norm.weight"},
    {"layers.*.self_attn.k_layernorm.weight", "blk.*.attn_k_norm.weight"},
    {"layers.*.linear_attn.in_proj_qkv.weight", "blk.*.attn_qkv.weight"},
    {"layers.*.linear_attn.in_proj_z.weight", "blk.*.attn_gate.weight"},
    {"layers.*.linear_attn.in_proj_b.weight", "blk.*.ssm_beta.weight"},
    {"layers.*.linear_attn.in_proj_a.weight", "blk.*.ssm_alpha.weight"},
    {"layers.*.conv.in_proj.weight", "blk.*.shortconv.in_proj.weight"},
    {"layers.*.conv.conv.weight", "blk.*.shortconv.conv.weight"},
    {"layers.*.conv.out_proj.weight", "blk.*.shortconv.out_proj.weight"},
    SSM("layers.*.linear_attn"),
    SSM("layers.*.mamba"),
    SSM("layers.*.mixer"),
};

static void rename_rule(const dra_gguf_family *f, dra_name_rule *r)
{
    const char *from = r->theirs;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].theirs, from) == 0 &&
            (!names[i].ours || strcmp(names[i].ours, r->ours) == 0))
            r->theirs = names[i].name;
    if (f->kind == DRA_GGUF_QWEN35 && strcmp(r->theirs, "blk.*.ffn_norm.weight") == 0)
        r->theirs = "blk.*.post_attention_norm.weight";
    r->instead = NULL;
}

static bool has_name(const dra_name_rule *r, const char *name)
{
    return strcmp(r->theirs, name) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* Axes as they are here. */
static void shape_rule(const dra_gguf_family *f, const dra_mixer_config *m, dra_name_rule *r)
{
    const int64_t all = m->heads * m->value_dim, W = r->shape.rank ? r->shape.dim[2] : 0;
    const int64_t groups = m->out_norm.groups > 0 ? m->out_norm.groups : m->heads;
    const bool    moment = f->kind == DRA_GGUF_MAMBA2 || f->kind == DRA_GGUF_GRANITE;
    if (has_name(r, "blk.*.ssm_conv1d.weight") || has_name(r, "blk.*.shortconv.conv.weight"))
        r->shape = DRA_SHAPE(r->shape.dim[0], W);
    if (has_name(r, "blk.*.ssm_a")) r->as = DRA_AS_NEG_EXP;
    if (moment && (has_name(r, "blk.*.ssm_a") || has_name(r, "blk.*.ssm_d")))
        r->shape = DRA_SHAPE(m->heads, 1);
    if (moment && has_name(r, "blk.*.ssm_norm.weight")) r->shape = DRA_SHAPE(groups, all / groups);
    if (f->kind == DRA_GGUF_GRANITE && strstr(r->ours, ".ff.W_")) { /* gate and up are apart */
        r->part = r->parts = 0;
        r->rows = NULL;
    }
}

/* Rows in another order, and gains that are whole. */
static void order_rule(const dra_gguf_family *f, const dra_model_config *c, dra_name_rule *r)
{
    static const char *const heads[] = {"blk.*.attn_gate.weight", "blk.*.ssm_beta.weight",
                                        "blk.*.ssm_alpha.weight", "blk.*.ssm_a",
                                        "blk.*.ssm_dt.bias",      "blk.*.ssm_out.weight"};
    const dra_mixer_config  *m = dra_gguf_find_linear(c);
    const bool               wide = has_name(r, heads[0]) || has_name(r, heads[5]) || r->part == 2;
    bool tiled = f->kind == DRA_GGUF_QWEN35 && r->part == 2; /* values, and their convolution */
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        tiled = tiled || (f->kind == DRA_GGUF_QWEN35 && has_name(r, heads[i]));
    if (tiled && m->key_heads && m->key_heads < m->heads) {
        r->order = DRA_ROWS_TILED;
        r->head_rows = wide ? m->value_dim : 1;
        r->groups = m->key_heads;
        r->inward = has_name(r, heads[5]);
    }
    if (f->kind == DRA_GGUF_GRANITE &&
        (has_name(r, "blk.*.attn_q.weight") || has_name(r, "blk.*.attn_k.weight"))) {
        r->order = DRA_ROWS_NEIGHBOURS;
        r->head_rows = c->key_dim ? c->key_dim : c->dim / c->heads;
    }
    if (f->kind == DRA_GGUF_QWEN35 && ends_with(r->theirs, "norm.weight") &&
        !has_name(r, "blk.*.ssm_norm.weight"))
        r->as = DRA_AS_PLUS_ONE;
}

/* Those of the folder, renamed. */
dra_status dra_gguf_recurrent_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    const dra_gguf_family *f = dra_gguf_family_of(c);
    const dra_format      *own = out->format;
    size_t                 n = 1;
    out->format = f->as;
    dra_status st = f->as->make_rules(c, out, err);
    out->format = own;
    if (st != DRA_OK) return st;
    for (const dra_name_rule *r = out->row; r->ours; r++) n++;
    dra_name_rule *row = dra_arena_copy(&out->arena, out->row, n * sizeof *row);
    if (!row) return dra_fail(err, DRA_ERR_MEMORY, "gguf: out of memory");
    out->row = row;
    for (; row->ours; row++) {
        rename_rule(f, row);
        shape_rule(f, dra_gguf_find_linear(c), row);
        order_rule(f, c, row);
    }
    if (f->kind == DRA_GGUF_QWEN35) out->blocks = c->depth; /* those that guess tokens follow */
    return DRA_OK;
}

/* Whether convolutions have biases only tensors say. */
dra_status dra_gguf_recurrent_settle(const dra_tensor_source *s, dra_model_config *c,
                                     dra_error *err)
{
    const dra_gguf_family *f = dra_gguf_family_of(c);
    bool                   biased = false;
    char                   name[DRA_TENSOR_NAME];
    if (!f || (f->kind != DRA_GGUF_GRANITE && f->kind != DRA_GGUF_MAMBA2)) return DRA_OK;
    for (int64_t l = 0; l < c->depth && !biased; l++) {
        dra_pattern_fill("", "blk.*.ssm_conv1d.bias", l, name);
        biased = dra_tensor_source_find(s, name) != NULL;
    }
    dra_mixer_config *m = dra_config_mixers(c, c->mixers);
    if (!m) return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
    for (int i = 0; i < c->mixers; i++)
        if (m[i].conv.width) m[i].conv.bias = biased;
    return DRA_OK;
}
