/* Multi-latent attention: the state keeps c = W_c x for each token instead of keys and values, which
 * are made of it when it is read [DeepSeek-AI 2024: DeepSeek-V2].
 *   k_jh = W_k,h c_j of the first heads, v_jh = W_v,h c_j; keys of the last `rope` heads are made of
 *   x, rotated, and kept as they are
 * A few queries need not make keys and values of the whole past: products commute with them,
 *   q.(W_k c_j) = (W_k^T q).c_j,  sum_j a_j W_v c_j = W_v sum_j a_j c_j
 * which costs 2 latent numbers for each pair instead of D + E, and no work for each item. */
#include "memory/memory.h"

/* Rows of w, `heads` times width, as (heads, width, latent). */
static dra_value by_head(dra_graph *g, dra_value w, int64_t heads, int64_t width)
{
    return dra_reshape(g, w, DRA_SHAPE(heads, width, -1));
}

/* Making keys and values of J items costs J latent (D + E), which as many queries as a head has
 * channels pay for. Options that look at scores of all heads, or differ between heads, see keys. */
bool dra_latent_absorbs(const dra_read_call *c)
{
    const dra_mixer_config *m = c->options->config;
    const dra_channels     *channels = c->options->channels;
    const bool              plain = !m->topk && !m->hard && !m->talk_before && !m->talk_after &&
                       !m->residual_scores && !m->sink && !m->forget && !c->scores &&
                       !(c->drop.p > 0) && !channels->value[DRA_CHANNEL_DISTANCE].id &&
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
    const dra_value         k = dra_linear(g, latent, c->options->up_k, none);
    const dra_value         v = dra_linear(g, latent, c->options->up_v, none);
    const dra_value         both[] = {dra_reshape(g, k, DRA_SHAPE(B, J, n, s->D)), rope};
    *keys = s->rope ? dra_concat(g, 2, both, 2) : both[0];
    *values = dra_reshape(g, v, DRA_SHAPE(B, J, s->Q, s->E));
}

dra_value dra_latent_query(dra_graph *g, const dra_read_call *c, dra_value q)
{
    const int64_t   n = c->sizes->Q - c->sizes->rope, D = c->sizes->D;
    const dra_value w = by_head(g, c->options->up_k, n, D);
    return dra_head_linear(g, dra_slice(g, q, 2, 0, n), dra_transpose(g, w, 1, 2));
}

dra_value dra_latent_value(dra_graph *g, const dra_read_call *c, dra_value y)
{
    return dra_head_linear(g, y, by_head(g, c->options->up_v, c->sizes->Q, c->sizes->E));
}
