/* Which choices of a mixer's config are possible, and which go together. */
#include <math.h>
#include <string.h>

#include "memory/mixer.h"

/* ---- numbers and choices --------------------------------------------------------------------- */

static dra_status check_size(const char *name, int64_t n, int64_t least, dra_error *err)
{
    if (n >= least && n <= DRA_SIZE_MOST) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is %lld, expected %lld to %d", name,
                    (long long)n, (long long)least, DRA_SIZE_MOST);
}

static dra_status check_sizes(const dra_mixer_config *c, dra_error *err)
{
    const struct {
        const char *name;
        int64_t     n, least;
    } sizes[] = {{"dim", c->dim, 1},
                 {"heads", c->heads, 1},
                 {"key_dim", c->key_dim, 0},
                 {"value_dim", c->value_dim, 0},
                 {"kv_heads", c->kv_heads, 0},
                 {"qk_groups", c->qk_groups, 0},
                 {"mem_kv", c->mem_kv, 0},
                 {"topk", c->topk, 0},
                 {"rotary_width", c->rotary_width, 0},
                 {"rotary_heads", c->rotary_heads, 0},
                 {"context_dim", c->context_dim, 0},
                 {"xl_segment", c->xl_segment, c->xl_memory > 0},
                 {"xl_memory", c->xl_memory, c->xl_segment > 0},
                 {"latent_kv", c->latent_kv, 0},
                 {"latent_q", c->latent_q, 0},
                 {"latent_rope", c->latent_rope, 0},
                 {"shift_rank", c->shift_rank, c->shift == DRA_SHIFT_DATA},
                 {"gate_rank", c->gate_rank, c->gate_values == DRA_GATE_RANK},
                 {"value_rank", c->value_rank, 0}};
    dra_status st = DRA_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && st == DRA_OK; i++)
        st = check_size(sizes[i].name, sizes[i].n, sizes[i].least, err);
    return st;
}

static dra_status check_choices(const dra_mixer_config *c, dra_error *err)
{
    const struct {
        const char *name;
        int         value, last;
    } choices[] = {{"shift", (int)c->shift, DRA_SHIFT_DATA},
                   {"blend", (int)c->blend, DRA_BLEND_LEARNED},
                   {"kv_order", (int)c->kv_order, DRA_HEADS_MOD},
                   {"qkv_norm", (int)c->qkv_norm, DRA_QKV_UNIT},
                   {"qkv_gain", (int)c->qkv_gain, DRA_QKV_NONE},
                   {"gate_values", (int)c->gate_values, DRA_GATE_RANK},
                   {"value_residual", (int)c->value_residual, DRA_VALUES_CHANNEL},
                   {"init", (int)c->init, DRA_INIT_UNIFORM}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].value < 0 || choices[i].value > choices[i].last)
            return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is %d, expected 0 to %d",
                            choices[i].name, choices[i].value, choices[i].last);
    return DRA_OK;
}

static dra_status check_reals(const dra_mixer_config *c, dra_error *err)
{
    const struct {
        const char *name;
        double      x;
    } reals[] = {{"key_std", c->key_std},
                 {"score_scale", c->score_scale},
                 {"softcap", c->softcap},
                 {"rotary_base", c->rotary_base},
                 {"xpos_base", c->xpos_base}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!(reals[i].x >= 0) || isinf(reals[i].x))
            return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is %g, expected 0 or more",
                            reals[i].name, reals[i].x);
    if (!(c->attention_dropout >= 0 && c->attention_dropout < 1))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: attention_dropout is %g, expected 0 <= p < 1",
                        c->attention_dropout);
    return DRA_OK;
}

/* Heads play no part in wkv: any number of them is one. */
static bool uses_heads(const dra_mixer_config *c)
{
    return c->blend != DRA_BLEND_NONE || !c->a.memory || strcmp(c->a.memory, "wkv") != 0;
}

static dra_status fill_widths(dra_mixer_config *c, dra_error *err)
{
    if (!c->key_dim && c->dim % c->heads && !uses_heads(c)) c->heads = 1;
    if (!c->key_dim && c->dim % c->heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: %lld heads do not divide dim %lld",
                        (long long)c->heads, (long long)c->dim);
    if (!c->key_dim) c->key_dim = c->dim / c->heads;
    if (!c->value_dim) c->value_dim = c->key_dim;
    if (c->kv_heads && c->heads % c->kv_heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: kv_heads %lld do not divide %lld heads",
                        (long long)c->kv_heads, (long long)c->heads);
    return DRA_OK;
}

static dra_status check_rotary(const dra_mixer_config *c, dra_error *err)
{
    const int64_t width = c->rotary_width ? (c->rotary_width + 1) / 2 * 2 : c->key_dim;
    if (!c->rotary && (c->rotary_width || c->rotary_heads || c->xpos_base > 0))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: %s without rotary",
                        c->rotary_width   ? "rotary_width"
                        : c->rotary_heads ? "rotary_heads"
                                          : "xpos_base");
    if (c->rotary && !c->rotary_width && c->key_dim % 2)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: rotary turns pairs of channels, key_dim is %lld",
                        (long long)c->key_dim);
    if (width > c->key_dim)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: rotary_width is %lld, but key_dim %lld",
                        (long long)c->rotary_width, (long long)c->key_dim);
    if (c->rotary_heads > c->heads)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: rotary_heads is %lld of %lld heads",
                        (long long)c->rotary_heads, (long long)c->heads);
    if (c->rotary_heads && c->rotary_heads < c->heads && c->kv_heads && c->kv_heads < c->heads)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: rotary_heads %lld of %lld needs as many kv_heads, found %lld",
                        (long long)c->rotary_heads, (long long)c->heads, (long long)c->kv_heads);
    if (c->xpos_base > 0 && (c->whole || c->prefix))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: xpos_base needs causal attention, not %s",
                        c->whole ? "whole" : "prefix");
    return DRA_OK;
}

static dra_status check_qk_norm(const dra_mixer_config *c, dra_error *err)
{
    const bool unit = c->qkv_norm == DRA_QKV_UNIT;
    if (!c->qk_norm && (c->qk_groups || c->qkv_gain != DRA_QKV_SHARED))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: %s without qk_norm",
                        c->qk_groups ? "qk_groups" : "qkv_gain");
    if (!c->qk_norm && !c->v_norm && c->qkv_norm != DRA_QKV_RMS)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: qkv_norm without qk_norm or v_norm");
    if (c->qk_groups && !unit)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: qk_groups without qkv_norm unit");
    if (c->qk_groups && (c->key_dim % c->qk_groups || c->key_dim / c->qk_groups < 2))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: qk_groups %lld do not divide key_dim %lld into two or more",
                        (long long)c->qk_groups, (long long)c->key_dim);
    return DRA_OK;
}

static dra_status check_blend(const dra_mixer_config *c, dra_error *err)
{
    if (c->blend == DRA_BLEND_NUMBER && !(c->blend_value >= 0 && c->blend_value <= 1))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: blend is %g, expected 0 <= a <= 1",
                        c->blend_value);
    if (c->blend == DRA_BLEND_NONE && c->blend_value != 0)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: blend_value is %g without a blend",
                        c->blend_value);
    if (c->blend == DRA_BLEND_NONE && (c->b.memory || c->b.own))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: a second memory without a blend");
    return DRA_OK;
}

static dra_status check_values(const dra_mixer_config *c, dra_error *err)
{
    const bool shared = c->kv_heads && c->kv_heads < c->heads;
    if (c->value_residual != DRA_VALUES_LEARNED || !shared) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "mixer: value_residual learned needs %lld kv_heads, one for each head, found "
                    "%lld",
                    (long long)c->heads, (long long)c->kv_heads);
}

/* Keys and values made of c when they are read are what products make of it, nothing else. */
static dra_status check_latent(const dra_mixer_config *c, dra_error *err)
{
    const char *other = c->qk_norm                              ? "qk_norm"
                        : c->v_norm                             ? "v_norm"
                        : c->bias                               ? "bias"
                        : c->kv_heads && c->kv_heads < c->heads ? "kv_heads"
                        : c->mem_kv                             ? "mem_kv"
                        : c->value_residual                     ? "value_residual"
                        : c->gives_memory                       ? "memory_residual"
                        : c->a.norm || c->a.maps                ? "norm and maps of items"
                        : c->blend != DRA_BLEND_NONE            ? "blend"
                                                                : NULL;
    if (c->latent_kv && other)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: latent_kv and %s exclude each other", other);
    if (c->latent_q && (c->bias || c->value_residual))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: latent_q and %s exclude each other",
                        c->bias ? "bias" : "value_residual");
    if (c->latent_rope && (!c->latent_kv || c->latent_rope >= c->heads))
        return dra_fail(
            err, DRA_ERR_VALUE,
            "mixer: latent_rope is %lld, expected fewer than %lld heads, with latent_kv",
            (long long)c->latent_rope, (long long)c->heads);
    if (c->latent_kv && c->rotary && (!c->latent_rope || c->rotary_heads != c->latent_rope))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: latent_kv with rotary needs latent_rope heads that alone rotate");
    return DRA_OK;
}

/* Ranks only where there is something of that rank. */
static dra_status check_ranks(const dra_mixer_config *c, dra_error *err)
{
    const struct {
        const char *name, *needs;
        int64_t     rank;
        bool        used;
    } ranks[] = {
        {"shift_rank", "shift data", c->shift_rank, c->shift == DRA_SHIFT_DATA},
        {"gate_rank", "gate_values low-rank", c->gate_rank, c->gate_values == DRA_GATE_RANK},
        {"value_rank", "value_residual channel", c->value_rank,
         c->value_residual > DRA_VALUES_OWN}}; /* the first of a stack has none of its own */
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        if (ranks[i].rank && !ranks[i].used)
            return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is %lld, but only %s has one",
                            ranks[i].name, (long long)ranks[i].rank, ranks[i].needs);
    return DRA_OK;
}

static dra_status check_weights(const dra_mixer_config *c, dra_error *err)
{
    if (c->topk_straight && !c->topk)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: topk_straight without topk");
    if (c->hard && c->topk)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: hard and topk exclude each other");
    if (c->softcap_late && !(c->softcap > 0))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: softcap_late without softcap");
    return DRA_OK;
}

dra_status dra_mixer_check(dra_mixer_config *c, dra_error *err)
{
    dra_status st = check_choices(c, err);
    if (st == DRA_OK) st = check_sizes(c, err);
    if (st == DRA_OK) st = fill_widths(c, err);
    if (st == DRA_OK) st = check_reals(c, err);
    if (st == DRA_OK) st = check_rotary(c, err);
    if (st == DRA_OK) st = check_qk_norm(c, err);
    if (st == DRA_OK) st = check_weights(c, err);
    if (st == DRA_OK) st = check_values(c, err);
    if (st == DRA_OK) st = check_latent(c, err);
    if (st == DRA_OK) st = check_ranks(c, err);
    return st == DRA_OK ? check_blend(c, err) : st;
}

/* ---- with memories and retrievals ------------------------------------------------------------ */

/* The first option that only softmax reads over items have; NULL: none is set. */
static const char *item_option(const dra_mixer_config *c)
{
    return c->mem_kv            ? "mem_kv"
           : c->topk            ? "topk"
           : c->hard            ? "hard"
           : c->talk_before     ? "talk_before"
           : c->talk_after      ? "talk_after"
           : c->residual_scores ? "residual_scores"
           : c->softcap > 0     ? "softcap"
           : c->sink            ? "sink"
           : c->forget          ? "forget"
                                : NULL;
}

/* Whether anything looks at queries or keys: with retrieval none values alone do, unless they share
 * their state with the keys. */
static bool asks(const dra_mixer *m)
{
    bool some = false;
    for (int i = 0; i < m->branches; i++)
        some = some || m->branch[i].config.joined ||
               strcmp(m->branch[i].config.retrieval, "none") != 0;
    return some;
}

/* Options that one memory of a blend may have for itself. */
static dra_status check_either(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const char             *found = m->branch[0].retrieval->name;
    if (c->rotary && !dra_mixer_reads_time(c))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: rotary needs a retrieval over time, found %s",
                        found);
    if (c->attention_dropout > 0 && !dra_mixer_reads_time(c))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: attention_dropout needs a retrieval over time, found %s", found);
    if (c->qk_norm && !asks(m))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: qk_norm needs a retrieval that asks by queries, found %s", found);
    if (c->score_scale > 0 && !dra_mixer_has_scores(c))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: score_scale needs a retrieval of items or slots, found %s", found);
    return DRA_OK;
}

static dra_status check_reads(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const char             *option = item_option(c);
    for (int i = 0; i < m->branches; i++) {
        const dra_branch    *b = &m->branch[i];
        const dra_retrieval *how = b->retrieval;
        if (option && !(how->over_time && how->from_memory))
            return dra_fail(err, DRA_ERR_VALUE,
                            "mixer: %s needs retrieval time or window, found %s", option,
                            how->name);
        if ((c->whole || c->prefix) &&
            (strcmp(b->memory->name, "append") != 0 || strcmp(how->name, "time") != 0))
            return dra_fail(err, DRA_ERR_VALUE,
                            "mixer: %s needs memory append with retrieval time, found %s with %s",
                            c->whole ? "whole" : "prefix", b->memory->name, how->name);
    }
    if (c->latent_kv &&
        (strcmp(m->branch[0].memory->name, "append") != 0 || !m->branch[0].retrieval->from_memory ||
         !m->branch[0].retrieval->over_time))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: latent_kv needs memory append with retrieval time or window");
    if (c->residual_scores && m->branches == 2)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: residual_scores and blend exclude each other");
    if (c->forget && (c->whole || c->prefix))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: forget needs causal attention, not %s",
                        c->whole ? "whole" : "prefix");
    if (c->prefix && c->xl_memory)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: prefix and xl_memory exclude each other");
    if (c->whole && c->shift != DRA_SHIFT_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: shift looks back, but whole sees all");
    return DRA_OK;
}

/* Contexts and Transformer-XL's memory (`who`) are read by plain attention alone, which may take up
 * to `most` of the first mixer's values. */
static dra_status check_plain(const dra_mixer *m, const char *who, dra_value_residual most,
                              dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const dra_branch       *b = &m->branch[0];
    const char             *other = m->branches == 2             ? "blend"
                                    : c->shift != DRA_SHIFT_NONE ? "shift"
                                    : c->forget                  ? "forget"
                                    : c->latent_kv               ? "latent_kv"
                                    : c->value_residual > most   ? "value_residual"
                                    : b->config.norm             ? "norm"
                                    : b->config.maps             ? "maps"
                                                                 : NULL;
    if (strcmp(b->memory->name, "append") != 0 || strcmp(b->retrieval->name, "time") != 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: %s needs memory append with retrieval time, found %s with %s", who,
                        b->memory->name, b->retrieval->name);
    if (!other) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "mixer: %s and %s exclude each other", who, other);
}

static dra_status check_context(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const char             *other = c->rotary         ? "rotary"
                                    : c->xl_memory    ? "xl_memory"
                                    : c->gives_memory ? "memory_residual"
                                                      : NULL;
    if (!c->context && c->context_dim)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: context_dim without context");
    if (!c->context) return DRA_OK;
    if (other)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: a context and %s exclude each other", other);
    return check_plain(m, "a context", DRA_VALUES_HALF, err);
}

static dra_status check_xl(const dra_mixer *m, dra_error *err)
{
    if (!m->config.xl_memory) return DRA_OK;
    if (m->config.whole)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: xl_memory and whole exclude each other");
    return check_plain(m, "xl_memory", DRA_VALUES_OWN, err);
}

static dra_status check_memory(const dra_mixer *m, dra_error *err)
{
    const dra_branch *b = &m->branch[m->branches - 1];
    if (m->config.gives_memory && strcmp(b->config.retrieval, "formula") == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: memory_residual needs a memory of items, found %s",
                        b->memory->name);
    if (m->config.gives_memory && m->config.kv_heads)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: memory_residual and kv_heads exclude each other");
    return DRA_OK;
}

static bool has_decay(const dra_branch *b)
{
    bool has = b->config.decay != DRA_DECAY_NONE;
    for (int i = 0; i < b->n_params; i++) has = has || dra_branch_param(b, i)->decay;
    return has;
}

/* The first key of gamma that is set; NULL: none is. */
static const char *gamma_key(const dra_gamma_config *c)
{
    return c->per                                 ? "per"
           : c->start                             ? "init"
           : c->value != 0                        ? "value"
           : c->ranged                            ? "range"
           : c->depth[0] != 0 || c->depth[1] != 0 ? "depth"
           : c->learn == DRA_OFF                  ? "learn"
           : c->share                             ? "share"
                                                  : NULL;
}

dra_status dra_mixer_check_gammas(const dra_mixer *m, dra_error *err)
{
    for (int i = 0; i < m->branches; i++) {
        const dra_branch *b = &m->branch[i];
        const char       *key = gamma_key(&b->config.gamma);
        if (key && !has_decay(b))
            return dra_fail(err, DRA_ERR_VALUE, "%s: gamma.%s is set, but it has no gamma",
                            b->memory->name, key);
    }
    return DRA_OK;
}

dra_status dra_mixer_check_shows(const dra_mixer *m, dra_error *err)
{
    const dra_mixer_config *c = &m->config;
    const dra_branch       *a = &m->branch[0], *b = &m->branch[m->branches - 1];
    const bool              two = m->branches == 2;
    if (c->aux >> DRA_AUX_COUNT)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: aux is %#x, expected bits below %#x",
                        (unsigned)c->aux, 1u << DRA_AUX_COUNT);
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (c->aux >> k & 1 && !dra_aux_has(a, k) && !dra_aux_has(b, k))
            return dra_fail(err, DRA_ERR_VALUE,
                            "mixer: aux asks for %s, which %s%s%s does not have", dra_aux_name(k),
                            a->memory->name, two ? " with " : "", two ? b->memory->name : "");
    if (c->maps && !dra_map_has(a) && !dra_map_has(b))
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: maps are of attention and slots, but retrieval is %s",
                        a->config.retrieval);
    return DRA_OK;
}

dra_status dra_mixer_check_branches(const dra_mixer *m, dra_error *err)
{
    dra_status st = check_reads(m, err);
    if (st == DRA_OK) st = check_either(m, err);
    if (st == DRA_OK) st = check_context(m, err);
    if (st == DRA_OK) st = check_xl(m, err);
    if (st != DRA_OK) return st;
    if (m->branches == 2 && m->branch[0].retrieval->pooled != m->branch[1].retrieval->pooled)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: pooled blends only with pooled");
    return check_memory(m, err);
}
