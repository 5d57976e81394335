/* The list of sublayers that a config describes: which there are, which is executed when. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "memory/memory.h"
#include "model/model.h"
#include "model/stack.h"

/* ---- the list -------------------------------------------------------------------------------- */

/* One block, as letters. */
static const char *block_of(const dra_model_config *c)
{
    const bool cross = c->context_stack != NULL;
    if (c->layout[0]) return c->layout;
    if (c->ff.kind == DRA_FF_NONE) return cross ? "ac" : "a";
    return cross ? "acf" : "af";
}

static int64_t count_blocks(const dra_model_config *c) { return c->tied_layers ? 1 : c->depth; }

/* Letter i of all sublayers with parameters. Of a sandwich the first feed-forwards come last:
 * attention k times, blocks, feed-forward k times. */
static char sublayer_letter(const dra_model_config *c, int64_t i)
{
    const char   *block = block_of(c);
    const int64_t n = (int64_t)strlen(block), k = c->sandwich;
    if (i < k) return 'a';
    return i - k < n * (c->depth - k) ? block[(i - k) % n] : (k ? 'f' : block[i % n]);
}

static int64_t count_sublayers(const dra_model_config *c)
{
    const int64_t n = (int64_t)strlen(block_of(c));
    return c->sandwich ? 2 * c->sandwich + n * (c->depth - c->sandwich) : n * count_blocks(c);
}

/* N in "layers.N.": it grows where the kind is taken already. */
typedef struct numbering {
    int  layer;
    bool taken[DRA_SUBLAYER_KINDS];
} numbering;

static int next_layer(numbering *n, dra_sublayer_kind kind)
{
    if (n->taken[kind]) *n = (numbering){.layer = n->layer + 1};
    n->taken[kind] = true;
    return n->layer;
}

static dra_sublayer_kind kind_of(char letter)
{
    return letter == 'a'   ? DRA_SUBLAYER_MIXER
           : letter == 'c' ? DRA_SUBLAYER_CROSS
                           : DRA_SUBLAYER_FF;
}

/* ---- configs of sublayers -------------------------------------------------------------------- */

double dra_model_rescale(const dra_model_config *c, int64_t l)
{
    return c->rescale_every > 0 ? ldexp(1, (int)dra_imin(l / c->rescale_every, 400)) : 1;
}

dra_norm_config dra_model_norm(const dra_model_config *c)
{
    return (dra_norm_config){.kind = c->norm,
                             .gain = c->norm_gain,
                             .bias = c->norm_bias,
                             .offset = c->norm_offset,
                             .eps = c->norm_eps,
                             .condition = dra_condition_width(c),
                             .alpha = c->norm_alpha};
}

/* Of q.k in layer l; 0: as mixers have it by themselves. */
static double score_scale(const dra_model_config *c, const dra_mixer_config *m, int64_t l)
{
    const int64_t D = m->key_dim ? m->key_dim : c->dim / m->heads;
    if (!c->layer_scale || D < 1 || !dra_mixer_has_scores(m)) return m->score_scale;
    return (m->score_scale > 0 ? m->score_scale : 1 / sqrt((double)D)) / (double)(l + 1);
}

static void set_rotary(const dra_model_config *c, dra_mixer_config *m)
{
    const dra_position_config *p = &c->position;
    if (p->rotate == DRA_ROTATE_NONE || !dra_mixer_reads_time(m)) return;
    m->rotary = true;
    m->rotary_heads = m->latent.rope ? m->latent.rope : p->heads;
    m->turn = p->turn;
    if (p->rotate == DRA_ROTATE_XPOS && !(m->turn.xpos_base > 0)) m->turn.xpos_base = 512;
}

/* What the model knows of a mixer. */
static void fill_mixer(const dra_model_config *c, dra_mixer_config *m)
{
    m->dim = c->dim;
    if (!m->heads) m->heads = c->heads;
    if (!m->key_dim) m->key_dim = c->key_dim;
    if (!m->value_dim) m->value_dim = c->value_dim;
    m->bias = c->bias;
    m->init = c->init;
    m->whole = c->visible == DRA_VISIBLE_BIDIRECTIONAL;
    m->prefix = c->visible == DRA_VISIBLE_PREFIX;
    m->attention_dropout = dra_mixer_reads_time(m) ? c->attention_dropout : 0;
    m->maps = c->maps;
    m->bf16_items = c->bf16_cache;
    /* What is added to the stream starts small: 2 L parts of variance 1 / 2 L each. */
    m->out_gain = 1 / sqrt(2.0 * (double)dra_imax(c->depth, 1));
}

static dra_mixer_config cross_config(const dra_model_config *c)
{
    const dra_model_config *from = c->context_stack;
    dra_mixer_config        m = *c->cross;
    fill_mixer(c, &m);
    m.context = true;
    if (from && !m.context_dim && from->dim != c->dim) m.context_dim = from->dim;
    return m;
}

/* Attention sublayer l has this one. */
static const dra_mixer_config *mixer_of(const dra_model_config *c, int64_t l)
{
    return &c->mixer[c->n_pattern ? c->pattern[l % c->n_pattern] : l % c->mixers];
}

/* The first mixer that has it hands its values on and needs no share of its own. */
static dra_value_residual value_residual(const dra_model_config *c, int64_t l)
{
    bool before = false;
    for (int64_t i = 0; i < l; i++)
        before = before || mixer_of(c, i)->value_residual != DRA_VALUES_OWN;
    const dra_value_residual own = mixer_of(c, l)->value_residual;
    return own > DRA_VALUES_HALF && !before ? DRA_VALUES_HALF : own;
}

/* The mixer of attention sublayer l of `layers`. */
static dra_mixer_config mixer_config(const dra_model_config *c, int64_t l, int64_t layers)
{
    dra_mixer_config m = *mixer_of(c, l);
    fill_mixer(c, &m);
    m.score_scale = score_scale(c, &m, l);
    m.xl_memory = c->xl.memory;
    m.xl_segment = c->xl.memory ? c->context : 0;
    m.value_residual = value_residual(c, l);
    m.aux = c->aux;
    m.a.gamma.layer = m.b.gamma.layer = (int)l;
    m.a.gamma.layers = m.b.gamma.layers = (int)layers;
    set_rotary(c, &m);
    return m;
}

/* As the mixer of its layer has it. */
static void set_norms(dra_block_config *b, dra_layer_norms norms)
{
    if (norms == DRA_LAYER_NORMS_MODEL) return;
    b->norm = norms == DRA_LAYER_NORMS_PRE ? DRA_PLACE_PRE : DRA_PLACE_NONE;
    b->branch_norm = norms == DRA_LAYER_NORMS_BRANCH;
}

/* Sublayer i, which is number l of its kind. */
static dra_sublayer_config sublayer_config(const dra_model_config *c, int i, int layer, int64_t l,
                                           int64_t attentions)
{
    dra_sublayer_config s = {.kind = kind_of(sublayer_letter(c, i)),
                             .norm = dra_model_norm(c),
                             .block = c->block,
                             .rescale = dra_model_rescale(c, layer),
                             .dropout = c->dropout,
                             .ff = c->ff,
                             .depth = c->depth,
                             .index = i,
                             .views = c->block.integrate && l > 0 &&
                                      kind_of(sublayer_letter(c, i)) == DRA_SUBLAYER_MIXER};
    s.mixer = s.kind == DRA_SUBLAYER_CROSS
                  ? cross_config(c)
                  : mixer_config(c, s.kind == DRA_SUBLAYER_MIXER ? l : 0, attentions);
    set_norms(&s.block,
              s.kind == DRA_SUBLAYER_CROSS ? DRA_LAYER_NORMS_MODEL : mixer_of(c, l)->norms);
    if (s.kind != DRA_SUBLAYER_MIXER) s.block.memory_residual = s.block.project = false;
    if (c->n_shifts) s.block.shift = c->shifts[i];
    if (c->n_drops) s.block.drop = c->drops[i];
    return s;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status check_pattern(const dra_model_config *c, int64_t n, dra_error *err)
{
    int64_t attentions = 0;
    for (int64_t i = 0; i < n; i++) attentions += sublayer_letter(c, i) == 'a';
    if (c->n_pattern && c->n_pattern != attentions)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: pattern has %d entries for %lld sublayers of attention",
                        c->n_pattern, (long long)attentions);
    for (int i = 0; i < c->n_pattern; i++)
        if (c->pattern[i] < 0 || c->pattern[i] >= c->mixers)
            return dra_fail(err, DRA_ERR_VALUE, "model: pattern names mixer %lld of %d",
                            (long long)c->pattern[i], c->mixers);
    return DRA_OK;
}

static dra_status check_lists(const dra_model_config *c, int64_t n, dra_error *err)
{
    if (c->n_shifts && c->n_shifts != n)
        return dra_fail(err, DRA_ERR_VALUE, "model: %d shifts for %lld sublayers", c->n_shifts,
                        (long long)n);
    if (c->n_drops && c->n_drops != n)
        return dra_fail(err, DRA_ERR_VALUE, "model: %d drops for %lld sublayers", c->n_drops,
                        (long long)n);
    for (int i = 0; i < c->n_order; i++)
        if (c->order[i] < 0 || c->order[i] >= n)
            return dra_fail(err, DRA_ERR_VALUE, "model: order names sublayer %lld of %lld",
                            (long long)c->order[i], (long long)n);
    return check_pattern(c, n, err);
}

static bool any_mixer(const dra_model_config *c, bool (*is)(const dra_mixer_config *))
{
    bool any = false;
    for (int64_t i = 0; i < c->mixers; i++) any = any || is(&c->mixer[i]);
    return any;
}

/* What acts on what some mixers read, where none of them reads that. */
static dra_status check_reads(const dra_model_config *c, dra_error *err)
{
    const bool  none = !strchr(block_of(c), 'a');
    const bool  time = none || any_mixer(c, dra_mixer_reads_time);
    const bool  scores = none || any_mixer(c, dra_mixer_has_scores);
    const char *idle = time                                        ? NULL
                       : c->position.rotate != DRA_ROTATE_NONE     ? "position.rotate"
                       : c->position.distance != DRA_DISTANCE_NONE ? "position.distance"
                                                                   : NULL;
    if (idle)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: %s needs a mixer with a retrieval over time: time, window or joint",
                        idle);
    if (c->layer_scale && !scores)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: layer_scale needs a mixer with a retrieval of items or slots");
    return DRA_OK;
}

static dra_status check_parts(const dra_model_config *c, dra_error *err)
{
    const dra_model_config *from = c->context_stack;
    const int64_t           width = c->cross->context_dim;
    char                    key[120];
    if (dra_model_idle_key(c, key, sizeof key))
        return dra_fail(err, DRA_ERR_VALUE, "model: %s without %s", key,
                        strncmp(key, "cross.", 6) == 0 ? "a context" : "a blend");
    if (c->cross->norms)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: cross.norms is set, but only mixers of layers have norms");
    if (from && width && width != from->dim)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: cross.context_dim is %lld, but its context has width %lld",
                        (long long)width, (long long)from->dim);
    return DRA_OK;
}

static dra_status check_layout(const dra_model_config *c, dra_error *err)
{
    const char *block = block_of(c);
    if (strchr(block, 'f') && c->ff.kind == DRA_FF_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "model: layout is %.40s, but ff.kind none", block);
    if (!strpbrk(block, "ac"))
        return dra_fail(err, DRA_ERR_VALUE, "model: layout is %.40s, expected attention (a)",
                        block);
    if (strchr(block, 'c') && !c->context_stack)
        return dra_fail(err, DRA_ERR_VALUE, "model: layout is %.40s, but there is no context",
                        block);
    if (!strchr(block, 'c') && c->context_stack)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: layout is %.40s, expected attention over the context (c)", block);
    if (c->sandwich > c->depth)
        return dra_fail(err, DRA_ERR_VALUE, "model: sandwich is %lld, expected at most depth %lld",
                        (long long)c->sandwich, (long long)c->depth);
    if (c->sandwich && strcmp(block, "af") != 0 && strcmp(block, "faf") != 0 &&
        strcmp(block, "acf") != 0 && strcmp(block, "facf") != 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: sandwich needs layout af, faf, acf or facf, found %.40s", block);
    if (c->tied_layers && c->sandwich)
        return dra_fail(err, DRA_ERR_VALUE, "model: tied_layers and sandwich exclude each other");
    if (c->block.integrate && (c->tied_layers || c->n_order))
        return dra_fail(err, DRA_ERR_VALUE, "model: block.integrate and %s exclude each other",
                        c->tied_layers ? "tied_layers" : "order");
    if (c->tied_layers && c->n_order)
        return dra_fail(err, DRA_ERR_VALUE, "model: tied_layers and order exclude each other");
    for (int64_t i = 0; i < c->mixers; i++)
        if (c->mixer[i].norms && strcmp(block, "af") != 0 && strcmp(block, "a") != 0)
            return dra_fail(err, DRA_ERR_VALUE,
                            "model: norms of a mixer need layout af or a, found %.40s", block);
    dra_status st = check_reads(c, err);
    if (st == DRA_OK) st = check_parts(c, err);
    if (st != DRA_OK) return st;
    return check_lists(c, count_sublayers(c), err);
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Asks a mixer only for what it can show. */
static dra_status open_sublayer(const dra_sublayer_config *c, dra_sublayer **out, uint32_t *seen,
                                dra_error *err)
{
    dra_sublayer_config plain = *c;
    plain.mixer.aux = 0;
    plain.mixer.maps = false;
    if (c->kind == DRA_SUBLAYER_FF && c->ff.experts.count)
        plain.mixer.aux = c->mixer.aux & 1u << DRA_AUX_BALANCE;
    *seen |= plain.mixer.aux;
    const dra_status st = dra_sublayer_create(&plain, out, err);
    if (st != DRA_OK || c->kind == DRA_SUBLAYER_FF) return st;
    plain.mixer.aux = c->mixer.aux & dra_mixer_aux_losses(dra_sublayer_mixer(*out));
    plain.mixer.maps = c->mixer.maps && dra_mixer_mappable(dra_sublayer_mixer(*out));
    *seen |= plain.mixer.aux;
    if (!plain.mixer.aux && !plain.mixer.maps) return DRA_OK;
    dra_sublayer_destroy(*out);
    return dra_sublayer_create(&plain, out, err);
}

static dra_status open_entries(dra_stack *s, const dra_model_config *c, dra_error *err)
{
    numbering names = {0};
    uint32_t  seen = 0;
    int64_t   count[DRA_SUBLAYER_KINDS] = {0}, attentions = 0;
    for (int i = 0; i < s->n_entries; i++) attentions += sublayer_letter(c, i) == 'a';
    for (int i = 0; i < s->n_entries; i++) {
        const dra_sublayer_kind kind = kind_of(sublayer_letter(c, i));
        dra_stack_entry        *e = &s->entry[i];
        dra_error               why = {0};
        e->layer = next_layer(&names, kind);
        const dra_sublayer_config config = sublayer_config(c, i, e->layer, count[kind]++,
                                                           attentions);
        const dra_status          st = open_sublayer(&config, &e->sublayer, &seen, &why);
        if (st != DRA_OK) return dra_fail(err, st, "layer %d: %.400s", e->layer, why.text);
    }
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (c->aux >> k & 1 && !(seen >> k & 1))
            return dra_fail(err, DRA_ERR_VALUE, "model: no layer has %s", dra_aux_name(k));
    return DRA_OK;
}

/* Values that are handed on fit those they are mixed with. */
static dra_status check_values(const dra_stack *s, dra_error *err)
{
    const dra_mixer_config *first = NULL;
    for (int i = 0; i < s->n_entries; i++) {
        const dra_mixer        *mixer = dra_sublayer_mixer(s->entry[i].sublayer);
        const dra_mixer_config *c = mixer ? dra_mixer_config_of(mixer) : NULL;
        if (!c || c->context || c->value_residual == DRA_VALUES_OWN) continue;
        if (!first) first = c;
        const int64_t K = c->kv_heads ? c->kv_heads : c->heads;
        if (K == (first->kv_heads ? first->kv_heads : first->heads) &&
            c->value_dim == first->value_dim)
            continue;
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: value_residual needs mixers with the same heads and value_dim");
    }
    return DRA_OK;
}

/* Every time around layers are numbered on. */
static void list_steps(dra_stack *s, const dra_model_config *c)
{
    const int once = s->n_steps / (int)dra_imax(1, c->recycle);
    numbering names = {0};
    for (int i = 0; i < s->n_steps; i++) {
        if (i % once == 0 && i) names = (numbering){.layer = names.layer + 1};
        s->step[i].entry = c->n_order ? (int)c->order[i % c->n_order] : i % s->n_entries;
        const dra_sublayer_kind kind = kind_of(sublayer_letter(c, s->step[i].entry));
        s->step[i].layer = next_layer(&names, kind);
        if (kind == DRA_SUBLAYER_MIXER) s->attention[s->n_attentions++] = i;
    }
}

dra_status dra_stack_open(dra_stack *s, const dra_model_config *c, dra_error *err)
{
    if (!c->depth) return DRA_OK; /* what it reads is what it puts out */
    const dra_status st = check_layout(c, err);
    if (st != DRA_OK) return st;
    const int64_t n = count_sublayers(c);
    const int64_t once = c->n_order ? c->n_order : c->tied_layers ? n * c->depth : n;
    const int64_t steps = once * dra_imax(1, c->recycle);
    s->entry = calloc((size_t)n + 1, sizeof *s->entry);
    s->step = calloc((size_t)steps + 1, sizeof *s->step);
    s->attention = calloc((size_t)steps + 1, sizeof *s->attention);
    if (!s->entry || !s->step || !s->attention)
        return dra_fail(err, DRA_ERR_MEMORY, "model: out of memory");
    s->n_entries = (int)n;
    s->n_steps = (int)steps;
    list_steps(s, c);
    const dra_status opened = open_entries(s, c, err);
    return opened == DRA_OK ? check_values(s, err) : opened;
}

void dra_stack_close(dra_stack *s)
{
    for (int i = 0; s->entry && i < s->n_entries; i++) dra_sublayer_destroy(s->entry[i].sublayer);
    free(s->entry);
    free(s->step);
    free(s->attention);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void append_specs(dra_specs *to, int layer, const dra_sublayer *s, const dra_specs *from)
{
    static const char *const names[] = {
        [DRA_SUBLAYER_MIXER] = "mixer", [DRA_SUBLAYER_FF] = "ff", [DRA_SUBLAYER_CROSS] = "cross"};
    char prefix[48];
    snprintf(prefix, sizeof prefix, "layers.%d.%s.", layer, names[dra_sublayer_config_of(s)->kind]);
    for (int i = 0; i < dra_specs_count(from); i++)
        dra_specs_add(to, prefix, dra_specs_at(from, i));
}

void dra_stack_declare(dra_stack *s, dra_specs *params, dra_specs *state)
{
    for (int i = 0; i < s->n_entries; i++) {
        dra_stack_entry *e = &s->entry[i];
        e->params = dra_specs_count(params);
        append_specs(params, e->layer, e->sublayer, dra_sublayer_module(e->sublayer)->params);
    }
    for (int i = 0; i < s->n_steps; i++) {
        dra_stack_step     *step = &s->step[i];
        const dra_sublayer *sub = dra_stack_at(s, i);
        step->states = dra_specs_count(state);
        append_specs(state, step->layer, sub, dra_sublayer_module(sub)->state);
    }
}

int dra_stack_layer_end(const dra_stack *s, int step)
{
    int end = step;
    while (end < s->n_steps && s->step[end].layer == s->step[step].layer) end++;
    return end;
}
