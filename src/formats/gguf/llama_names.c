/* The Llama family in GGUF, its tensors. Of some architectures rows of queries and keys stand pair
 * by pair: models that are read rotate neighbours, and rules bring the rows of others into this
 * order. A scaling as Llama 3.1 has it is a tensor there, what each frequency is divided by, and so
 * are the two lists of LongRoPE.
 * [https://github.com/ggml-org/llama.cpp, conversion/llama.py, phi.py, src/llama-model.cpp] */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "file/fail.h"
#include "formats/gguf/llama.h"
#include "model/owned.h"
#include "ops/attention/rotary.h"

static const char FREQUENCIES[] = "rope_freqs.weight", SHORT[] = "rope_factors_short.weight",
                  LONG[] = "rope_factors_long.weight";

static const dra_name_rule rules[] = {
    {"embedding", "token_embd.weight"},
    {"layers.*.mixer.norm_g", "blk.*.attn_norm.weight"},
    {"layers.*.mixer.W_q", "blk.*.attn_q.weight"},
    {"layers.*.mixer.W_k", "blk.*.attn_k.weight"},
    {"layers.*.mixer.W_v", "blk.*.attn_v.weight"},
    {"layers.*.mixer.W_o", "blk.*.attn_output.weight"},
    {"layers.*.mixer.b_q", "blk.*.attn_q.bias"},
    {"layers.*.mixer.b_k", "blk.*.attn_k.bias"},
    {"layers.*.mixer.b_v", "blk.*.attn_v.bias"},
    {"layers.*.mixer.b_o", "blk.*.attn_output.bias"},
    {"layers.*.mixer.gain_q", "blk.*.attn_q_norm.weight"},
    {"layers.*.mixer.gain_k", "blk.*.attn_k_norm.weight"},
    {"layers.*.mixer.branch_norm_g", "blk.*.post_attention_norm.weight"},
    {"layers.*.ff.norm_g", "blk.*.ffn_norm.weight"},
    {"layers.*.ff.branch_norm_g", "blk.*.post_ffw_norm.weight"},
    {"layers.*.ff.W_router", "blk.*.ffn_gate_inp.weight"},
    {"layers.*.ff.W_gate", "blk.*.ffn_gate.weight"},
    {"layers.*.ff.W_up", "blk.*.ffn_up.weight"},
    {"layers.*.ff.W_down", "blk.*.ffn_down.weight"},
    {"layers.*.ff.b_gate", "blk.*.ffn_gate.bias"},
    {"layers.*.ff.b_up", "blk.*.ffn_up.bias"},
    {"layers.*.ff.b_down", "blk.*.ffn_down.bias"},
    {"norm_g", "output_norm.weight"},
    {"head", "output.weight"},
    {0}};

/* ---- tensors --------------------------------------------------------------------------------- */

/* All defaults filled in, as the op has it. */
static dra_rotary_config full_turn(const dra_model_config *c)
{
    dra_rotary_config t = dra_gguf_rotated(c)->turn;
    if (!t.width) t.width = c->key_dim ? c->key_dim : c->dim / c->heads;
    if (!(t.base > 0)) t.base = 1e4;
    if (!(t.stretch > 0)) t.stretch = 1;
    return t;
}

static double plain_speed(const dra_rotary_config *t, int64_t pair)
{
    dra_rotary_config plain = *t;
    plain.scaling = DRA_SCALING_NONE;
    plain.factor = 1;
    return dra_rotary_speed(&plain, pair);
}

static dra_status add_constant(dra_name_rules *out, const char *name, int64_t n, dra_real **data,
                               dra_error *err)
{
    *data = dra_arena_alloc(&out->arena, (size_t)n * sizeof **data);
    if (!*data) return dra_fail(err, DRA_ERR_MEMORY, "gguf: out of memory");
    out->constant[out->constants++] = (dra_constant){name, n, *data};
    return DRA_OK;
}

static dra_status add_factors(dra_name_rules *out, const char *name, const double *x, int n,
                              dra_error *err)
{
    dra_real        *data;
    const dra_status st = n ? add_constant(out, name, n, &data, err) : DRA_OK;
    for (int i = 0; i < n && st == DRA_OK; i++) data[i] = (dra_real)x[i];
    return st;
}

static dra_status add_frequencies(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    const dra_rotary_config t = full_turn(c);
    const int64_t           n = t.width / 2;
    dra_real               *data;
    dra_status              st = DRA_OK;
    if (dra_rotary_is_longrope(&t)) {
        st = add_factors(out, LONG, t.long_factors, t.n_long, err);
        return st == DRA_OK ? add_factors(out, SHORT, t.short_factors, t.n_short, err) : st;
    }
    if (t.scaling != DRA_SCALING_LLAMA3) return DRA_OK;
    st = add_constant(out, FREQUENCIES, n, &data, err);
    for (int64_t i = 0; i < n && st == DRA_OK; i++)
        data[i] = (dra_real)(plain_speed(&t, i) / dra_rotary_speed(&t, i));
    return st;
}

/* Gains that are stored less 1 are whole there. */
static void add_one(dra_name_rule *row)
{
    for (; row->ours; row++) {
        const size_t n = strlen(row->theirs), end = strlen("norm.weight");
        if (strcmp(row->theirs + n - end, "norm.weight") == 0) row->as = DRA_AS_PLUS_ONE;
    }
}

/* Matrices of experts are in one tensor, an axis of them in front. */
static void name_experts(const dra_model_config *c, dra_name_rule *row)
{
    static const char *const names[][2] = {{"layers.*.ff.W_gate", "blk.*.ffn_gate_exps.weight"},
                                           {"layers.*.ff.W_up", "blk.*.ffn_up_exps.weight"},
                                           {"layers.*.ff.W_down", "blk.*.ffn_down_exps.weight"}};
    const int64_t            n = c->ff.experts.count, F = c->ff.dim, C = c->dim;
    for (; row->ours && n; row++)
        for (int i = 0; i < 3; i++) {
            if (strcmp(row->ours, names[i][0]) != 0) continue;
            row->theirs = names[i][1];
            row->shape = i == 2 ? DRA_SHAPE(n, C, F) : DRA_SHAPE(n, F, C);
        }
}

dra_status dra_gguf_llama_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    const dra_gguf_llama *kind = dra_gguf_llama_of(c);
    const dra_llama      *as = kind->as->family;
    dra_rule_list         list;
    const dra_status      st = dra_rules_open(out, &list, err);
    if (st != DRA_OK) return st;
    if (as->fused) dra_llama_add_fused(c, "blk.*.attn_qkv.weight", "blk.*.ffn_up.weight", &list);
    memcpy(list.row + list.n, rules, sizeof rules);
    name_experts(c, list.row + list.n);
    dra_llama_order_rows(c, kind->neighbours ? DRA_ROWS_NEIGHBOURS : DRA_ROWS_HALVES, list.row);
    if (as->offset) add_one(list.row);
    return add_frequencies(c, out, err);
}

/* ---- what only tensors say ------------------------------------------------------------------- */

static bool has_tensor(const dra_tensor_source *s, const char *name)
{
    return dra_tensor_source_find(s, name) != NULL;
}

/* Of Llama 3.1's scaling a file has what frequencies f are divided by: 1 of fast ones, factor of
 * slow ones, and between them 1 / (s / factor + 1 - s), where s is linear in f. With low 1 two of
 * these give high and the original length: s = (high - f original / 2 pi) / (high - 1). */
static dra_status infer_llama3(const dra_tensor_info *t, dra_rotary_config *turn, double factor)
{
    double  f[2] = {0}, s[2] = {0}, x;
    int64_t n = 0;
    for (int64_t i = 0; i < t->shape.dim[0]; i++) {
        if (!dra_tensor_copy(t, (size_t)i, 1, DRA_F64, &x)) return DRA_ERR_DTYPE;
        if (x < 1.0001 || x > factor * 0.9999) continue;
        const int at = n++ ? 1 : 0; /* the first and the last */
        f[at] = plain_speed(turn, i);
        s[at] = (1 - 1 / x) / (1 - 1 / factor);
    }
    const double slope = n > 1 ? (s[1] - s[0]) / (f[0] - f[1]) : 0, top = s[0] + slope * f[0];
    turn->scaling = DRA_SCALING_LLAMA3;
    turn->factor = factor;
    turn->low = 1;
    turn->high = n > 1 && top > 1 ? round(top / (top - 1) * 4096) / 4096 : 4;
    turn->original = n > 1 ? (int64_t)round(slope * DRA_TWO_PI * (turn->high - 1)) : 8192;
    return DRA_OK;
}

/* Layers rotate so, but for those with a window that rotate in their own way. */
static dra_status set_turns(const dra_tensor_source *s, const dra_rotary_config *turn,
                            dra_model_config *c, dra_error *err)
{
    const int64_t     width = dra_gguf_rotated(c)->turn.width;
    const dra_llama  *as = dra_gguf_llama_of(c)->as->family;
    dra_mixer_config *m = dra_config_mixers(c, c->mixers);
    if (!m) return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
    for (int i = 0; i < c->mixers; i++) {
        if (!m[i].rotary || (m[i].a.window && as->two_ropes)) continue;
        m[i].turn = *turn;
        m[i].turn.width = width;
    }
    return DRA_OK;
}

/* The numbers of a tensor of LongRoPE, in the memory of the config. */
static const double *read_tensor(const dra_tensor_source *s, const char *name, int64_t n,
                                 const dra_model_config *c, dra_error *err)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, name);
    double                        *x = dra_arena_alloc(c->own, (size_t)n * sizeof *x);
    bool fits = x && e && e->info->shape.rank == 1 && e->info->shape.dim[0] == n;
    for (int64_t i = 0; i < n && fits; i++)
        fits = dra_tensor_copy(e->info, (size_t)i, 1, DRA_F64, &x[i]) && x[i] > 0 && x[i] <= 1e6;
    if (fits) return x;
    dra_fail_at(err, DRA_ERR_VALUE, s->path, "tensor '%s': expected %lld factors above 0", name,
                (long long)n);
    return NULL;
}

/* Files of Phi 3 have the tensors and no key that says so. */
static dra_status settle_longrope(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    dra_rotary_config t = full_turn(c);
    const int64_t     n = t.width / 2;
    /* Not yet said by the config. */
    const char *name = json_string_value(json_object_get(s->gguf.pairs, "general.architecture"));
    char        key[80];
    if ((!has_tensor(s, SHORT) && !dra_rotary_is_longrope(&t)) || t.n_short) return DRA_OK;
    snprintf(key, sizeof key, "%s.rope.scaling.attn_factor", name);
    const double gain = json_number_value(json_object_get(s->gguf.pairs, key));
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", name);
    const int64_t original = json_integer_value(json_object_get(s->gguf.pairs, key));
    if (!t.scaling) t.scaling = DRA_SCALING_LONGROPE_SHORT;
    t.original = original > 0 ? original : c->context;
    t.gain = gain > 0 ? gain : 1;
    if (!(t.short_factors = read_tensor(s, SHORT, n, c, err))) return DRA_ERR_VALUE;
    if (!(t.long_factors = read_tensor(s, LONG, n, c, err))) return DRA_ERR_VALUE;
    t.n_short = t.n_long = (int)n;
    return set_turns(s, &t, c, err);
}

static dra_status settle_frequencies(const dra_tensor_source *s, dra_model_config *c,
                                     dra_error *err)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, FREQUENCIES);
    dra_rotary_config              t = full_turn(c);
    double                         factor = 0, x;
    if (!e || t.scaling) return DRA_OK;
    t.factor = 1;
    const dra_tensor_info *info = e->info;
    const bool             fits = info->shape.rank == 1 && info->shape.dim[0] == t.width / 2;
    for (int64_t i = 0; fits && i < t.width / 2; i++)
        if (dra_tensor_copy(info, (size_t)i, 1, DRA_F64, &x)) factor = fmax(factor, x);
    if (!fits || !(factor >= 1) || infer_llama3(info, &t, factor) != DRA_OK || t.original < 1)
        return dra_fail_at(err, DRA_ERR_VALUE, s->path,
                           "tensor '%s': expected %lld factors as Llama 3.1 has them", FREQUENCIES,
                           (long long)(t.width / 2));
    if (factor == 1) return DRA_OK;
    return set_turns(s, &t, c, err);
}

dra_status dra_gguf_llama_settle(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    if (!dra_gguf_llama_of(c)) return DRA_OK;
    const bool halves = dra_gguf_rotated(c)->turn.halves;
    const bool output = has_tensor(s, "blk.0.attn_output.bias");
    if (has_tensor(s, "blk.0.attn_q.bias") && !output && !halves)
        return dra_fail_at(err, DRA_ERR_NAME, s->path,
                           "tensor 'blk.0.attn_q.bias' without 'blk.0.attn_output.bias', expected "
                           "both or none where rows of queries stand pair by pair");
    dra_mixer_config *m = dra_config_mixers(c, c->mixers);
    if (!m) return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
    for (int i = 0; i < c->mixers; i++)
        m[i].biases = output                               ? DRA_BIAS_ALL
                      : has_tensor(s, "blk.0.attn_q.bias") ? DRA_BIAS_QKV
                                                           : DRA_BIAS_MODEL;
    c->ff.bias = has_tensor(s, "blk.0.ffn_up.bias") ? DRA_FF_BIAS_ALL : DRA_FF_BIAS_MODEL;
    const dra_status st = settle_longrope(s, c, err);
    return st == DRA_OK ? settle_frequencies(s, c, err) : st;
}
