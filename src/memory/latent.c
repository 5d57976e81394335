/* Multi-latent attention: the state keeps c = W_c x for each token instead of keys and values,
 * which are made of it when it is read [DeepSeek-AI 2024: DeepSeek-V2].
 *   k_jh = W_k,h c_j of the first heads, v_jh = W_v,h c_j
 * Keys of the last `rope` heads are made of x, rotated, and kept as they are.
 * A few queries need not make keys and values of the whole past: products commute with them,
 *   q.(W_k c_j) = (W_k^T q).c_j,  sum_j a_j W_v c_j = W_v sum_j a_j c_j
 * which costs 2 latent numbers for each pair instead of D + E, and no work for each item. */
#include <string.h>

#include "file/field_rows.h"
#include "memory/mixer.h"
#include "memory/part.h"

/* ---- its options ----------------------------------------------------------------------------- */

#define WIDTH(key, f, start, text)                                                                 \
    {                                                                                              \
        .name = key, .kind = DRA_FIELD_INT, .offset = offsetof(dra_latent_options, f),             \
        .max = MOST, .unset = start, .about = text                                                 \
    }
const dra_field dra_latent_fields[] = {
    WIDTH("latent_kv", kv, "none",
          "multi-latent attention: width of what keys and values are made of"),
    WIDTH("latent_q", q, "none", "latent_kv: width of what queries are made of"),
    WIDTH("latent_rope", rope, "0", "latent_kv: heads whose keys are made of the token and rotate"),
    {0},
};

/* Keys and values made of c when they are read are what products make of it, nothing else. */
static const char *find_other(const dra_mixer_config *c)
{
    return c->qk_norm                              ? "qk_norm"
           : c->v_norm                             ? "v_norm"
           : dra_mixer_has_bias(c)                 ? "bias"
           : c->kv_heads && c->kv_heads < c->heads ? "kv_heads"
           : c->attention.mem_kv                   ? "mem_kv"
           : c->value_residual                     ? "value_residual"
           : c->gives_memory                       ? "memory_residual"
           : c->a.norm || c->a.maps                ? "norm and maps of items"
           : c->blend != DRA_BLEND_NONE            ? "blend"
                                                   : NULL;
}

dra_status dra_latent_check(const dra_mixer_config *c, dra_error *err)
{
    const dra_latent_options *o = &c->latent;
    const char               *other = o->kv ? find_other(c) : NULL;
    if (other)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: latent_kv and %s exclude each other", other);
    if (o->q && (dra_mixer_has_bias(c) || c->value_residual))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: latent_q and %s exclude each other",
                        dra_mixer_has_bias(c) ? "bias" : "value_residual");
    if (o->rope && (!o->kv || o->rope >= c->heads))
        return dra_fail(
            err, DRA_ERR_VALUE,
            "mixer: latent_rope is %lld, expected fewer than %lld heads, with latent_kv",
            (long long)o->rope, (long long)c->heads);
    if (o->kv && c->rotary && (!o->rope || c->rotary_heads != o->rope))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: latent_kv with rotary needs latent_rope heads that alone rotate");
    return DRA_OK;
}

dra_status dra_latent_check_branch(const dra_branch *b, const dra_mixer_config *c, dra_error *err)
{
    const bool items = b->retrieval->from_memory && b->retrieval->over_time;
    if (!c->latent.kv || (items && strcmp(b->memory->name, "append") == 0)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "mixer: latent_kv needs memory append with retrieval time or window");
}

/* ---- how it is read -------------------------------------------------------------------------- */

/* Rows of w, `heads` times width, as (heads, width, latent). */
static dra_value by_head(dra_graph *g, dra_value w, int64_t heads, int64_t width)
{
    return dra_reshape(g, w, DRA_SHAPE(heads, width, -1));
}

/* Making keys and values of J items costs J latent (D + E), which as many queries as a head has
 * channels pay for. Options that look at scores of all heads, or differ between heads, see keys. */
bool dra_latent_absorbs(const dra_read_call *c)
{
    const dra_attention_options *o = &c->options->config->attention;
    const dra_channels          *channels = c->options->channels;
    const bool plain = !dra_attention_holds_scores(o) && !o->sink && !o->zero_kv && !o->forget &&
                       !c->scores && !(c->drop.p > 0) &&
                       !channels->value[DRA_CHANNEL_DISTANCE].id &&
                       !channels->value[DRA_CHANNEL_SLOPES].id;
    return plain && !c->sizes->config->steps && c->tokens->T <= c->sizes->D + c->sizes->E;
}

void dra_latent_expand(dra_graph *g, const dra_read_call *c, dra_value latent, dra_value rope,
                       dra_value *keys, dra_value *values)
{
    const dra_memory_sizes *s = c->sizes;
    const dra_value         none = {0};
    const dra_shape         shape = dra_shape_of(g, latent);
    const int64_t           B = shape.dim[0], J = shape.dim[1], n = s->Q - s->rope;
    const dra_value         k = dra_linear(g, latent, c->options->param[DRA_W_K], none);
    const dra_value         v = dra_linear(g, latent, c->options->param[DRA_W_V], none);
    const dra_value         both[] = {dra_reshape(g, k, DRA_SHAPE(B, J, n, s->D)), rope};
    *keys = s->rope ? dra_concat(g, 2, both, 2) : both[0];
    *values = dra_reshape(g, v, DRA_SHAPE(B, J, s->Q, s->E));
}

dra_value dra_latent_query(dra_graph *g, const dra_read_call *c, dra_value q)
{
    const int64_t   n = c->sizes->Q - c->sizes->rope, D = c->sizes->D;
    const dra_value w = by_head(g, c->options->param[DRA_W_K], n, D);
    return dra_head_linear(g, dra_slice(g, q, 2, 0, n), dra_transpose(g, w, 1, 2));
}

dra_value dra_latent_value(dra_graph *g, const dra_read_call *c, dra_value y)
{
    return dra_head_linear(g, y, by_head(g, c->options->param[DRA_W_V], c->sizes->Q, c->sizes->E));
}
