/* RWKV of a file that stands alone: names tell the version, shapes the sizes. */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "formats/gguf/gguf.h"
#include "formats/gpt2.h"
#include "formats/rwkv/rwkv.h"
#include "model/owned.h"

/* ---- looking --------------------------------------------------------------------------------- */

/* A tensor by its original name, with the prefix of some trainers or without; NULL: missing. */
static const dra_tensor_info *look_up(const dra_tensor_source *s, const char *name)
{
    char                           text[DRA_TENSOR_NAME];
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, name);
    dra_pattern_fill("_forward_module.", name, 0, text);
    if (!e) e = dra_tensor_source_find(s, text);
    return e ? e->info : NULL;
}

static bool has_tensor(const dra_tensor_source *s, const char *name)
{
    return look_up(s, name) != NULL;
}

/* Rows, or columns, of a matrix; 0: there is none. */
static int64_t matrix_side(const dra_tensor_source *s, const char *name, int axis)
{
    const dra_tensor_info *t = look_up(s, name);
    return t && t->shape.rank == 2 ? t->shape.dim[axis] : 0;
}

static int64_t count_numbers(const dra_tensor_source *s, const char *name)
{
    const dra_tensor_info *t = look_up(s, name);
    return t ? dra_shape_count(&t->shape) : 0;
}

/* The first axis of a tensor of heads. A file of rwkv.cpp has lost it where there is one head,
 * which has all numbers; elsewhere as many heads as channels are heads of one channel. */
static int64_t heads_of(const dra_tensor_source *s, const char *name, int64_t all)
{
    const dra_tensor_info *t = look_up(s, name);
    if (!t || t->shape.rank < 1 || t->shape.dim[0] < 1) return 1;
    const int64_t H = t->shape.dim[0];
    return s->dim && H == all && dra_shape_count(&t->shape) == all && t->shape.rank < 2 ? 1 : H;
}

/* The rank of a low-rank factor W_1, which the originals store (in, rank). */
static int64_t rank_of(const dra_tensor_source *s, const char *name)
{
    return matrix_side(s, name, s->dim ? 0 : 1);
}

dra_dialect dra_dialect_of(const dra_tensor_source *s)
{
    if (s->dim) return DRA_DIALECT_CPP;
    if (has_tensor(s, "emb.weight") || dra_gpt2_is_linear(s)) return DRA_DIALECT_ORIGINAL;
    const bool old = dra_tensor_source_find(s, "model.layers.0.attn.x_x") ||
                     dra_tensor_source_find(s, "blk.0.time_mix_lerp_w.weight");
    return old ? DRA_DIALECT_OLD : DRA_DIALECT_FOLDER;
}

/* One more than the last that any tensor names: others may be missing, and are to be named then. */
static int64_t count_layers(const dra_tensor_source *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        const char *at = strstr(s->entry[i].info->name, "blocks.");
        if (!at || at[7] < '0' || at[7] > '9') continue;
        const long long l = strtoll(at + 7, NULL, 10);
        if (l >= n && l < (int64_t)s->count) n = l + 1; /* every layer has tensors */
    }
    return n;
}

/* ---- the version ----------------------------------------------------------------------------- */

static int version_of(const dra_tensor_source *s)
{
    if (has_tensor(s, "blocks.0.att.r_k")) return 7;
    if (has_tensor(s, "blocks.0.att.time_maa_x")) return 6;
    return has_tensor(s, "blocks.0.att.ln_x.weight") ? 5 : 4;
}

/* Experiments of the trainers whose mathematics differ. */
static dra_status check_variant(const dra_tensor_source *s, dra_error *err)
{
    static const struct {
        const char *part, *variant;
    } rows[] = {{"att.gate_w1", "6a"},
                {"att.gate_w2", "6a"},
                {"att.time_maa_rkvw_", "6b"},
                {"ffn.s_emb", "7a"},
                {"ffn.s0", "7b"},
                {"ffn.s1", "7b"},
                {"ffn.s2", "7b"},
                {"att.time_state", "6 with a trained first state"}};
    char name[DRA_BRIEF];
    for (size_t i = 0; i < s->count; i++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            if (strstr(s->entry[i].info->name, rows[k].part))
                return dra_fail_at(err, DRA_ERR_VALUE, s->path,
                                   "tensor '%s' is of RWKV %s, which is not supported",
                                   dra_brief(s->entry[i].info->name, name), rows[k].variant);
    return DRA_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The kinds of version 5 are independent switches. */
static void settle_5(const dra_tensor_source *s, dra_model_config *c, dra_mixer_config *mixer,
                     int64_t all)
{
    dra_memory_config *m = &mixer->a;
    const bool         first = has_tensor(s, "blocks.0.att.time_first");
    const char        *bonus = first ? "blocks.0.att.time_first" : "blocks.0.att.time_faaaa";
    const bool         each = count_numbers(s, "blocks.0.att.time_decay") == all;
    c->heads = heads_of(s, "blocks.0.att.time_decay", all);
    m->gamma.per = each ? DRA_PER_CHANNEL : DRA_PER_HEAD;
    m->lambda.bonus = count_numbers(s, bonus) == all ? DRA_BONUS_CHANNEL : DRA_BONUS_HEAD;
    m->lambda.bonus_exp = first;
    mixer->gate_values = has_tensor(s, "blocks.0.att.gate.weight") ? DRA_GATE_SILU : DRA_GATE_NONE;
    if (s->dim) m->head_norm_eps = 1e-5; /* of rwkv.cpp */
}

/* First those of the originals, then of folders; 0: there is neither. */
static int64_t rank_in(const dra_tensor_source *s, const char *original, const char *hf,
                       const char *fla)
{
    const int64_t                  rank = rank_of(s, original);
    const dra_tensor_source_entry *e = rank || !hf ? NULL : dra_tensor_source_find(s, hf);
    if (e && e->info->shape.rank == 2) return e->info->shape.dim[1];
    e = rank ? NULL : dra_tensor_source_find(s, fla);
    return e && e->info->shape.rank == 2 ? e->info->shape.dim[0] : rank;
}

static void put_rank(int64_t rank, int64_t *to)
{
    if (rank > 0) *to = rank;
}

dra_status dra_rwkv_settle(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    dra_mixer_config *m = dra_config_mixers(c, 1);
    if (!m) return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
    if (dra_format_of(c)->rwkv == 6) {
        put_rank(rank_in(s, "blocks.0.att.time_maa_w1", "rwkv.blocks.0.attention.time_maa_w1",
                         "model.layers.0.attn.x_proj.0.linear.weight") /
                     5,
                 &m->shift_rank);
        put_rank(rank_in(s, "blocks.0.att.time_decay_w1", "rwkv.blocks.0.attention.time_decay_w1",
                         "model.layers.0.attn.w_proj.linear.lora.0.weight"),
                 &m->a.lambda.decay_rank);
    }
    if (dra_format_of(c)->rwkv != 7) return DRA_OK;
    put_rank(rank_in(s, "blocks.0.att.w1", NULL, "model.layers.0.attn.w_lora.lora.0.weight"),
             &m->a.lambda.decay_rank);
    put_rank(rank_in(s, "blocks.0.att.a1", NULL, "model.layers.0.attn.a_lora.lora.0.weight"),
             &m->a.delta.rate_rank);
    put_rank(rank_in(s, "blocks.0.att.g1", NULL, "model.layers.0.attn.g_lora.lora.0.weight"),
             &m->gate_rank);
    put_rank(rank_in(s, "blocks.1.att.v1", NULL, "model.layers.1.attn.v_lora.lora.0.weight"),
             &m->value_rank);
    return DRA_OK;
}

static dra_status settle_sizes(const dra_tensor_source *s, int version, dra_model_config *c,
                               dra_error *err)
{
    dra_mixer_config *m = dra_config_mixers(c, 1);
    if (!m) return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
    const int64_t all = matrix_side(s, "blocks.0.att.key.weight", 0);
    c->vocab = s->dim ? s->vocab : matrix_side(s, "emb.weight", 0);
    c->dim = s->dim ? s->dim : matrix_side(s, "emb.weight", 1);
    c->depth = s->dim ? s->depth : count_layers(s);
    c->ff.dim = matrix_side(s, "blocks.0.ffn.key.weight", 0);
    c->heads = 1;
    c->rescale_every = 0;
    if (version == 5) settle_5(s, c, m, all);
    if (version == 6) c->heads = heads_of(s, "blocks.0.att.time_faaaa", all);
    if (version == 7) c->heads = heads_of(s, "blocks.0.att.r_k", all);
    c->key_dim = all / c->heads;
    return DRA_OK;
}

dra_status dra_format_infer(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    static const dra_format *const formats[] = {
        [4] = &dra_format_rwkv, [5] = &dra_format_rwkv5, &dra_format_rwkv6, &dra_format_rwkv7};
    if (s->gguf.pairs) return dra_gguf_config(s, c, err);
    if (dra_gpt2_is_nano(s)) return dra_gpt2_infer(s, c, err);
    if (!has_tensor(s, "emb.weight") && !s->dim)
        return dra_fail_at(
            err, DRA_ERR_FORMAT, s->path,
            "expected a model's folder, GGUF, a file of rwkv.cpp, or a checkpoint of RWKV or "
            "nanoGPT; put a state dict of another model as model.pt next to its config.json, and "
            "give that folder");
    const int  version = version_of(s);
    dra_json   j = {0};
    json_t    *nothing = dra_json_object(&j);
    dra_status st = dra_json_check(&j, s->path, err);
    if (st == DRA_OK) st = check_variant(s, err);
    if (st == DRA_OK) st = dra_format_read(formats[version], s->path, nothing, c, err);
    json_decref(nothing);
    if (st != DRA_OK) return st;
    dra_rwkv_layers(c, version);
    c->norm_eps = c->final_eps = 1e-5;
    st = settle_sizes(s, version, c, err);
    if (st != DRA_OK) return st;
    if (c->vocab < 1 || c->dim < 1 || c->depth < 1)
        return dra_fail_at(err, DRA_ERR_SHAPE, s->path,
                           "%lld tokens, width %lld, %lld layers, expected 1 or more of each",
                           (long long)c->vocab, (long long)c->dim, (long long)c->depth);
    return dra_format_settle(s, c, err);
}
