/* Options of softmax attention over items: what there is, and what goes together. Parameters are
 * declared by mixer.c, reads are built by time.c. */
#include <string.h>

#include "file/field_rows.h"
#include "memory/mixer.h"
#include "memory/part.h"

const dra_field dra_attention_fields[] = {
    INT(dra_attention_options, mem_kv, "0", "learned keys and values that every query sees"),
    BOOL(dra_attention_options, mem_whole, "mem_kv: their keys are normalised as a whole"),
    INT(dra_attention_options, topk, "all", "only the k largest scores count"),
    BOOL(dra_attention_options, topk_straight, "topk: the gradient is as if all counted"),
    BOOL(dra_attention_options, hard, "only the largest score counts"),
    BOOL(dra_attention_options, talk_before, "heads mix their scores"),
    BOOL(dra_attention_options, talk_after, "heads mix their weights"),
    BOOL(dra_attention_options, residual_scores, "add the scores of the attention sublayer before"),
    REAL(dra_attention_options, softcap, 0, 1e6, "none", "scores s become c tanh(s / c)"),
    {0},
};
const dra_field dra_attention_late_fields[] = {
    BOOL(dra_attention_options, softcap_late, "softcap comes after biases and residual scores"),
    BOOL(dra_attention_options, sink,
         "attention sink: a learned logit of each head in the denominator"),
    {0},
};
const dra_field dra_attention_last_fields[] = {
    BOOL(dra_attention_options, forget, "forgetting attention: scores decay by learned gates"),
    BOOL(dra_attention_options, l2, "scores are minus squared distances of queries and keys"),
    BOOL(dra_attention_options, laser, "means of e^v, of which the logarithm is taken"),
    REAL(dra_attention_options, laser_cap, 0, 80, "15", "laser: values v become c tanh(v / c)"),
    INT(dra_attention_options, cope, "none", "contextual positions: how many there are"),
    INT(dra_attention_options, selective, "none",
        "selective attention: what queries score is taken from later scores, of so many items"),
    BOOL(dra_attention_options, sigmoid, "weights are sigmoids of the scores, no softmax"),
    BOOL(dra_attention_options, mean_unseen,
         "what sees nothing reads the mean of all values so far, not 0"),
    BOOL(dra_attention_options, zero_kv, "a key and a value of zeros that every query sees"),
    {0},
};
const dra_part dra_attention_part = {
    offsetof(dra_mixer_config, attention),
    {dra_attention_fields, dra_attention_late_fields, dra_attention_last_fields}};

bool dra_attention_holds_scores(const dra_attention_options *o)
{
    return o->topk || o->hard || o->talk_before || o->talk_after || o->residual_scores ||
           o->sigmoid || o->cope || o->selective;
}

/* The first of the options that say what a softmax does; or NULL. */
static const char *softmax_option(const dra_attention_options *o)
{
    return o->topk ? "topk" : o->hard ? "hard" : o->sink ? "sink" : o->zero_kv ? "zero_kv" : NULL;
}

static bool has_window(const dra_mixer_config *c)
{
    return (c->a.retrieval && strcmp(c->a.retrieval, "window") == 0) ||
           (c->b.retrieval && strcmp(c->b.retrieval, "window") == 0);
}

dra_status dra_attention_check(const dra_mixer_config *c, dra_error *err)
{
    const dra_attention_options *o = &c->attention;
    if (o->topk_straight && !o->topk)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: topk_straight without topk");
    if (o->hard && o->topk)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: hard and topk exclude each other");
    if (o->softcap_late && !(o->softcap > 0))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: softcap_late without softcap");
    if (o->residual_scores && c->blend != DRA_BLEND_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: residual_scores and blend exclude each other");
    if (o->zero_kv && o->sink)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: zero_kv and sink exclude each other");
    if (o->sigmoid && softmax_option(o))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: sigmoid and %s exclude each other",
                        softmax_option(o));
    if (o->l2 && (o->zero_kv || c->latent.kv))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: l2 and %s exclude each other",
                        o->zero_kv ? "zero_kv" : "latent_kv");
    if (o->laser_cap > 0 && !o->laser)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: laser_cap without laser");
    if (o->laser && c->latent.kv)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: laser and latent_kv exclude each other");
    if (o->mean_unseen && (c->whole || c->prefix || c->context || c->kv_heads || c->latent.kv ||
                           c->xl_memory || o->mem_kv))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: mean_unseen needs causal attention over items of all heads, and no "
                        "mem_kv");
    if (o->selective && (c->latent.kv || c->xl_memory || o->l2 || has_window(c)))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: selective and %s exclude each other",
                        c->latent.kv   ? "latent_kv"
                        : c->xl_memory ? "xl_memory"
                        : o->l2        ? "l2"
                                       : "retrieval window");
    const char *causal = o->forget      ? "forget"
                         : o->cope      ? "cope"
                         : o->selective ? "selective"
                                        : NULL;
    if (causal && (c->whole || c->prefix || (!o->forget && c->context)))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: %s needs causal attention, not %s", causal,
                        c->whole    ? "whole"
                        : c->prefix ? "prefix"
                                    : "over a context");
    return DRA_OK;
}
