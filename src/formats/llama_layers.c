/* What the layers of the Llama family see and how they rotate: windows, layers without positions,
 * and the kinds of rope. A layer is of a kind, which becomes a mixer of the config.
 * Newer files have `rope_parameters`, one object or one for each type of layer, older ones
 * `rope_theta` and `rope_scaling`; what is missing is looked for in this order: there, at the top,
 * the family's default. [transformers, modeling_rope_utils.py] */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/gated_delta.h"
#include "formats/lfm2.h"
#include "formats/llama.h"
#include "model/owned.h"
#include "ops/attention/rotary.h"

static const char FULL[] = "full_attention", SLIDING[] = "sliding_attention",
                  LINEAR[] = "linear_attention", CONV[] = "conv", BLOCKS[] = "layers_block_type",
                  POSITIONS[] = "position_embedding_type", REACH[] = "dra_rope";

/* ---- rope, reading --------------------------------------------------------------------------- */

static double read_needed(dra_keys *k, const char *key)
{
    const double x = dra_keys_number(k, key, 1e6, 0);
    if (!(x > 0)) dra_keys_refuse(k, key, "a number above 0");
    return x > 0 ? x : 1;
}

static int64_t read_original(dra_keys *k, const dra_keys *top, const dra_model_config *c)
{
    static const char key[] = "original_max_position_embeddings";
    const dra_llama  *f = top->format->family;
    dra_keys          outer = *top;
    const int64_t     own = dra_keys_int(k, key, NULL, c->context);
    return dra_keys_int(&outer, key, NULL, f->original ? f->original : own);
}

static void read_llama3(dra_keys *k, const dra_keys *top, const dra_model_config *c,
                        dra_rotary_config *t)
{
    t->scaling = DRA_SCALING_LLAMA3;
    t->factor = read_needed(k, "factor");
    t->low = read_needed(k, "low_freq_factor");
    t->high = read_needed(k, "high_freq_factor");
    t->original = read_original(k, top, c);
    if (!(t->low < t->high)) dra_keys_refuse(k, "high_freq_factor", "more than low_freq_factor");
}

static double yarn_gain(double factor, double scale)
{
    return factor > 1 ? 0.1 * scale * log(factor) + 1 : 1;
}

static void read_yarn(dra_keys *k, const dra_keys *top, const dra_model_config *c,
                      dra_rotary_config *t)
{
    const double some = dra_keys_number(k, "mscale", 1e6, 0);
    const double all = dra_keys_number(k, "mscale_all_dim", 1e6, 0);
    t->scaling = DRA_SCALING_YARN;
    t->original = read_original(k, top, c);
    t->factor = dra_keys_number(k, "factor", 1e6, (double)c->context / (double)t->original);
    t->low = dra_keys_number(k, "beta_slow", 1e6, 1);
    t->high = dra_keys_number(k, "beta_fast", 1e6, 32);
    t->exact = !dra_keys_bool(k, "truncate", true);
    t->gain = some > 0 && all > 0 ? yarn_gain(t->factor, some) / yarn_gain(t->factor, all)
                                  : yarn_gain(t->factor, 1);
    t->gain = dra_keys_number(k, "attention_factor", 1e6, t->gain);
    if (!(t->low < t->high)) dra_keys_refuse(k, "beta_fast", "more than beta_slow");
}

static void read_linear(dra_keys *k, const dra_keys *top, const dra_model_config *c,
                        dra_rotary_config *t)
{
    t->stretch = read_needed(k, "factor");
}

/* Up to the length of training frequencies are those without scaling; beyond it they would change
 * with every token, also those of keys that are kept: no text has a meaning of its own there. */
static void read_dynamic(dra_keys *k, const dra_keys *top, const dra_model_config *c,
                         dra_rotary_config *t)
{
    t->limit = c->context;
}

/* A positive number for each pair of channels that rotate. */
const double *dra_llama_read_factors(dra_keys *k, const char *key, const dra_model_config *c,
                                     const dra_rotary_config *t, int *n)
{
    const int64_t D = c->key_dim ? c->key_dim : c->heads > 0 ? c->dim / c->heads : 0;
    const int64_t pairs = (t->width ? t->width : D) / 2;
    const json_t *list = json_object_get(k->object, key);
    double       *factor = pairs > 0 && pairs <= DRA_ROTARY_FACTORS
                               ? dra_arena_alloc(c->own, (size_t)pairs * sizeof *factor)
                               : NULL;
    char          expected[80];
    snprintf(expected, sizeof expected, "a list of %lld numbers above 0, %d at most",
             (long long)pairs, DRA_ROTARY_FACTORS);
    bool fits = factor && json_is_array(list) && (int64_t)json_array_size(list) == pairs;
    for (int64_t i = 0; i < pairs && fits; i++) {
        factor[i] = json_number_value(json_array_get(list, (size_t)i));
        fits = factor[i] > 0 && factor[i] <= 1e6;
    }
    if (!fits) dra_keys_refuse(k, key, expected);
    *n = fits ? (int)pairs : 0;
    return fits ? factor : NULL;
}

/* In transformers a call that goes beyond the original length has the long factors, a shorter one
 * the short ones, so that keys which are kept would have to turn anew in mid-text. Here one of the
 * two lists is the model's: short up to the original length, or long for texts of any. */
static void read_longrope(dra_keys *k, const dra_keys *top, const dra_model_config *c,
                          dra_rotary_config *t)
{
    dra_keys     outer = *top;
    const char  *reach = dra_keys_text(&outer, REACH, "short");
    const bool   is_long = strcmp(reach, "long") == 0;
    const double L = (double)(t->original = read_original(k, top, c));
    const double factor = dra_keys_number(k, "factor", 1e6, (double)c->context / L);
    t->scaling = is_long ? DRA_SCALING_LONGROPE_LONG : DRA_SCALING_LONGROPE_SHORT;
    t->short_factors = dra_llama_read_factors(k, "short_factor", c, t, &t->n_short);
    t->long_factors = dra_llama_read_factors(k, "long_factor", c, t, &t->n_long);
    t->gain = factor > 1 && L > 1 ? sqrt(1 + log(factor) / log(L)) : 1;
    t->gain = dra_keys_number(k, "attention_factor", 1e6, t->gain);
    if (!is_long && strcmp(reach, "short") != 0) dra_keys_refuse(&outer, REACH, "short or long");
    if (outer.status != DRA_OK && k->status == DRA_OK) k->status = outer.status;
}

static void read_default(dra_keys *k, const dra_keys *top, const dra_model_config *c,
                         dra_rotary_config *t)
{}

static const struct {
    const char *name;
    void (*read)(dra_keys *k, const dra_keys *top, const dra_model_config *c, dra_rotary_config *t);
} ropes[] = {{"default", read_default}, {"linear", read_linear},   {"llama3", read_llama3},
             {"yarn", read_yarn},       {"dynamic", read_dynamic}, {"longrope", read_longrope},
             {"su", read_longrope}};

enum { ROPES = sizeof ropes / sizeof *ropes };

static const json_t *object_at(const dra_keys *k, const char *key)
{
    const json_t *v = json_object_get(k->object, key);
    return json_is_object(v) ? v : NULL;
}

static void check_objects(dra_keys *k)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const json_t *v = json_object_get(k->object, keys[i]);
        if (v && !json_is_null(v) && !json_is_object(v))
            dra_keys_refuse(k, keys[i], "an object or null");
    }
}

/* The object that says how layers of a type rotate; NULL: there is none. */
static const json_t *find_rope(const dra_keys *k, const dra_llama *f, const char *type,
                               const char **name)
{
    const json_t *old = object_at(k, "rope_scaling"), *both = object_at(k, "rope_parameters");
    const json_t *own = both ? json_object_get(both, type) : NULL;
    const bool    full = strcmp(type, FULL) == 0;
    *name = "rope_scaling";
    if (old && (!f->two_ropes || full)) return old;
    *name = "rope_parameters";
    if (json_is_object(own)) return own;
    return f->two_ropes && both && !full && json_object_get(both, FULL) ? NULL : both;
}

static double read_theta(dra_keys *k, const dra_llama *f, bool local, dra_keys *top)
{
    const double fallback = local && f->local_theta > 0 ? f->local_theta : f->theta;
    const char  *key = local && f->local_theta > 0 ? "rope_local_base_freq" : "rope_theta";
    const double outer = dra_keys_number(top, key, 1e12, fallback);
    return k->object ? dra_keys_number(k, "rope_theta", 1e12, outer) : outer;
}

/* How many channels of a head rotate: the first ones. */
static void read_width(dra_keys *k, dra_keys *top, const dra_llama *f, const dra_model_config *c,
                       dra_rotary_config *t)
{
    static const char key[] = "partial_rotary_factor";
    const double      outer = dra_keys_number(top, key, 1, f->partial > 0 ? f->partial : 1);
    const double      share = k->object ? dra_keys_number(k, key, 1, outer) : outer;
    const int64_t     D = c->key_dim ? c->key_dim : c->heads > 0 ? c->dim / c->heads : 0;
    const int64_t     n = (int64_t)((double)D * share);
    if (f->fused) t->width = n; /* also where all rotate: it tells phi3 from llama */
    if (share == 1) return;
    if (!(f->partial > 0) || n < 2 || n % 2)
        dra_keys_refuse(k->object && json_object_get(k->object, key) ? k : top, key,
                        f->partial > 0 ? "an even number of channels of a head" : "1");
    t->width = n;
}

static void read_rope(dra_keys *top, const dra_llama *f, const dra_model_config *c,
                      const char *type, dra_rotary_config *t)
{
    const char   *name, *word = "default";
    const json_t *object = find_rope(top, f, type, &name);
    char          place[200];
    int           i = 0;
    snprintf(place, sizeof place, "%.120s: %s", top->place, name);
    dra_keys k = {.place = place, .object = (json_t *)(uintptr_t)object, .err = top->err};
    if (object) word = dra_keys_text(&k, "rope_type", dra_keys_text(&k, "type", "default"));
    *t = (dra_rotary_config){.halves = true};
    t->base = read_theta(&k, f, strcmp(type, FULL) != 0, top);
    read_width(&k, top, f, c, t);
    if (f->original && strcmp(word, "yarn") == 0) word = "longrope"; /* as it was called once */
    while (i < ROPES && strcmp(ropes[i].name, word) != 0) i++;
    if (i == ROPES)
        dra_keys_refuse(&k, json_object_get(object, "rope_type") ? "rope_type" : "type",
                        "default, linear, llama3, yarn, longrope or dynamic");
    else
        ropes[i].read(&k, top, c, t);
    if (top->status == DRA_OK) top->status = k.status;
}

/* ---- layers, reading ------------------------------------------------------------------------- */

/* Whether there are windows only where a key asks for them. */
static bool is_asked(const dra_llama *f)
{
    return f->windows == DRA_WINDOWS_ASKED || f->windows == DRA_WINDOWS_LATE ||
           f->windows == DRA_WINDOWS_NO_ROPE;
}

/* How many tokens a layer with a window sees; 0: there are no windows. */
static int64_t read_window(dra_keys *k, const dra_llama *f)
{
    static const char key[] = "sliding_window";
    const bool        asked = is_asked(f);
    if (f->windows == DRA_WINDOWS_NEVER || json_is_null(json_object_get(k->object, key))) return 0;
    if (asked && !dra_keys_bool(k, "use_sliding_window", false)) return 0;
    const int64_t n = dra_keys_int(k, key, NULL, f->window);
    if (n < 0 || (n == 0 && json_object_get(k->object, key)))
        dra_keys_refuse(k, key, "1 or more, or null");
    return n;
}

/* Entry l of a list with one for each layer; NULL: there is no list. */
static const json_t *entry_of(dra_keys *k, const char *key, const dra_model_config *c, int64_t l)
{
    const json_t *list = json_object_get(k->object, key);
    if (!list || json_is_null(list)) return NULL;
    if (!json_is_array(list) || (int64_t)json_array_size(list) < c->depth) {
        dra_keys_refuse(k, key, "a list with an entry for each layer");
        return NULL;
    }
    return json_array_get(list, (size_t)l);
}

static bool has_rotary(dra_keys *k, const dra_llama *f, const dra_model_config *c, int64_t l)
{
    if (f->no_theta) {
        const json_t *rope = object_at(k, "rope_parameters");
        return json_is_number(json_object_get(rope ? rope : k->object, "rope_theta"));
    }
    if (f->linear == DRA_LINEAR_GRANITE)
        return strcmp(dra_keys_text(k, POSITIONS, "nope"), "rope") == 0;
    if (!f->rope_every) return true;
    const json_t *own = entry_of(k, "no_rope_layers", c, l);
    const int64_t every = dra_keys_int(k, "no_rope_layer_interval", NULL, f->rope_every);
    if (own) return json_number_value(own) != 0 || json_is_true(own);
    return every < 1 || (l + 1) % every != 0;
}

/* What layers that are none of attention are called. */
static const char *linear_name(const dra_llama *f)
{
    return f->linear == DRA_LINEAR_LFM2 ? CONV : LINEAR;
}

/* Whether layer l is one of gated DeltaNet, Mamba-2 or a convolution. */
static bool has_delta(dra_keys *k, const dra_llama *f, const dra_model_config *c, int64_t l)
{
    const bool    granite = f->linear == DRA_LINEAR_GRANITE;
    const char   *key = granite && json_object_get(k->object, BLOCKS) ? BLOCKS : "layer_types";
    const json_t *own = f->linear ? entry_of(k, key, c, l) : NULL;
    const char   *type = json_string_value(own);
    if (!f->linear) return false;
    if (type && granite) /* older names */
        type = strcmp(type, "mamba") == 0 ? LINEAR : strcmp(type, "attention") == 0 ? FULL : type;
    if (own && (!type || (strcmp(type, FULL) != 0 && strcmp(type, linear_name(f)) != 0)))
        dra_keys_refuse(k, key,
                        f->linear == DRA_LINEAR_LFM2 ? "full_attention and conv"
                                                     : "full_attention and linear_attention");
    if (type || granite) return !type || strcmp(type, linear_name(f)) == 0;
    if (f->linear == DRA_LINEAR_LFM2) return dra_lfm2_has_conv(k, l);
    const bool    olmo = f->linear == DRA_LINEAR_OLMO;
    const int64_t every = olmo ? 4 : dra_keys_int(k, "full_attention_interval", NULL, 4);
    if (olmo && c->depth < 4 && l == c->depth - 1) return false;
    return every < 1 || (l + 1) % every != 0;
}

static bool has_window(dra_keys *k, const dra_llama *f, const dra_model_config *c, int64_t l,
                       bool rope)
{
    const bool    listed = f->windows > DRA_WINDOWS_ALL;
    const json_t *own = listed ? entry_of(k, "layer_types", c, l) : NULL;
    const char   *type = json_string_value(own);
    if (own && (!type || (strcmp(type, FULL) != 0 && strcmp(type, SLIDING) != 0)))
        dra_keys_refuse(k, "layer_types", "full_attention and sliding_attention");
    if (type) return strcmp(type, SLIDING) == 0;
    const int64_t every = dra_keys_int(k, "sliding_window_pattern", NULL, f->every);
    switch (f->windows) {
    case DRA_WINDOWS_ASKED:
    case DRA_WINDOWS_ALL: return true;
    case DRA_WINDOWS_LATE: return l >= dra_keys_int(k, "max_window_layers", NULL, 28);
    case DRA_WINDOWS_NO_ROPE: return !rope;
    case DRA_WINDOWS_MOST: return every < 1 || (l + 1) % every != 0;
    default: return false;
    }
}

dra_mixer_config *dra_llama_add_layer(dra_llama_kinds *a, int64_t l, int kind)
{
    const bool is_new = !a->number[kind];
    if (is_new) a->number[kind] = ++a->mixers;
    if (l < DRA_SUBLAYERS_MOST) a->pattern[l] = a->number[kind] - 1;
    if (l >= DRA_SUBLAYERS_MOST) a->many = true;
    return is_new ? &a->mixer[a->mixers - 1] : NULL;
}

void dra_llama_put_kinds(dra_keys *k, const dra_llama_kinds *a, const char *key,
                         dra_model_config *c)
{
    if (a->many && a->mixers > 1) dra_keys_refuse(k, key, "256 or fewer, where layers differ");
    dra_mixer_config *m = k->status == DRA_OK && a->mixers ? dra_keys_mixers(k, c, a->mixers)
                                                           : NULL;
    for (int i = 0; m && i < a->mixers; i++) m[i] = a->mixer[i];
    if (m && a->mixers > 1) dra_keys_pattern(k, c, (int)c->depth, a->pattern);
}

void dra_llama_read_layers(dra_keys *k, const dra_llama *f, const dra_mixer_config *m,
                           dra_model_config *c)
{
    const int64_t     W = read_window(k, f);
    dra_rotary_config turn[2];
    dra_llama_kinds   kinds = {0};
    check_objects(k);
    read_rope(k, f, c, FULL, &turn[0]);
    turn[1] = turn[0];
    if (f->two_ropes) read_rope(k, f, c, SLIDING, &turn[1]);
    for (int64_t l = 0; l < c->depth && k->status == DRA_OK; l++) {
        const bool        delta = has_delta(k, f, c, l), rope = !delta && has_rotary(k, f, c, l);
        const bool        window = !delta && (W || f->two_ropes) && has_window(k, f, c, l, rope);
        dra_mixer_config *own = dra_llama_add_layer(&kinds, l, window + 2 * rope + 4 * delta);
        if (!own) continue;
        *own = *m;
        if (delta) dra_gated_delta_read(k, f, c, own);
        own->rotary = rope;
        if (rope) own->turn = turn[window];
        if (window && W) own->a.retrieval = "window", own->a.window = W;
    }
    dra_llama_put_kinds(k, &kinds, "num_hidden_layers", c);
}

/* ---- back ------------------------------------------------------------------------------------ */

static const dra_mixer_config *mixer_of(const dra_model_config *c, int64_t l)
{
    return &c->mixer[c->n_pattern ? c->pattern[l] : l % c->mixers];
}

static const char *rope_name(const dra_rotary_config *t)
{
    return t->scaling == DRA_SCALING_LLAMA3    ? "llama3"
           : t->scaling == DRA_SCALING_YARN    ? "yarn"
           : dra_rotary_is_longrope(t)         ? "longrope"
           : t->limit                          ? "dynamic"
           : t->stretch > 0 && t->stretch != 1 ? "linear"
                                               : "default";
}

/* The share of a head's channels that rotate; 0: the family has no key for it. */
static double share_of(const dra_llama *f, const dra_model_config *c, const dra_rotary_config *t)
{
    if (!(f->partial > 0)) return 0;
    const int64_t D = c->key_dim ? c->key_dim : c->dim / c->heads;
    return t->width ? (double)t->width / (double)D : 1;
}

json_t *dra_llama_factors(dra_json *j, const double *x, int n)
{
    json_t *list = dra_json_array(j);
    for (int i = 0; i < n; i++) dra_json_append(j, list, dra_json_real(j, x[i]));
    return list;
}

static json_t *rope_object(dra_json *j, const dra_rotary_config *t, bool theta, double share)
{
    static const char original[] = "original_max_position_embeddings";
    json_t           *o = dra_json_object(j);
    const char       *name = rope_name(t);
    dra_json_set(j, o, "rope_type", dra_json_text(j, name));
    if (theta) dra_json_set(j, o, "rope_theta", dra_json_real(j, t->base > 0 ? t->base : 1e4));
    if (t->limit) dra_json_set(j, o, "factor", dra_json_real(j, 1));
    if (share > 0) dra_json_set(j, o, "partial_rotary_factor", dra_json_real(j, share));
    if (strcmp(name, "linear") == 0) dra_json_set(j, o, "factor", dra_json_real(j, t->stretch));
    if (!t->scaling) return o;
    dra_json_set(j, o, original, dra_json_int(j, t->original));
    if (dra_rotary_is_longrope(t)) {
        dra_json_set(j, o, "short_factor", dra_llama_factors(j, t->short_factors, t->n_short));
        dra_json_set(j, o, "long_factor", dra_llama_factors(j, t->long_factors, t->n_long));
        dra_json_set(j, o, "attention_factor", dra_json_real(j, t->gain));
        return o;
    }
    const bool yarn = t->scaling == DRA_SCALING_YARN;
    dra_json_set(j, o, "factor", dra_json_real(j, t->factor));
    dra_json_set(j, o, yarn ? "beta_slow" : "low_freq_factor", dra_json_real(j, t->low));
    dra_json_set(j, o, yarn ? "beta_fast" : "high_freq_factor", dra_json_real(j, t->high));
    if (yarn) dra_json_set(j, o, "attention_factor", dra_json_real(j, t->gain));
    if (t->exact) dra_json_set(j, o, "truncate", dra_json_bool(false));
    return o;
}

/* How layers with a window, or those without, rotate; NULL: none does. */
static const dra_rotary_config *turn_of(const dra_model_config *c, bool window)
{
    for (int i = 0; i < c->mixers; i++)
        if (c->mixer[i].rotary && (c->mixer[i].a.window > 0) == window) return &c->mixer[i].turn;
    return NULL;
}

static void put_ropes(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    static const char *const all[] = {"rope_theta",
                                      "rope_scaling",
                                      "rope_parameters",
                                      "rope_local_base_freq",
                                      "partial_rotary_factor",
                                      "original_max_position_embeddings",
                                      REACH};
    const bool               is_new = f->two_ropes || f->linear || f->partial > 0 ||
                        object_at(k, "rope_parameters");
    const dra_rotary_config *turn[] = {turn_of(c, false), turn_of(c, true)};
    const dra_rotary_config *any = turn[0] ? turn[0] : turn[1];
    dra_json                *j = &k->json;
    for (int i = 0; i < 7; i++) dra_json_delete(k->object, all[i]);
    if (!any) return;
    if (any->scaling == DRA_SCALING_LONGROPE_LONG) dra_keys_put(k, REACH, dra_json_text(j, "long"));
    if (f->original)
        dra_keys_put(k, all[5], dra_json_int(j, any->original ? any->original : c->context));
    if (f->two_ropes) {
        json_t *both = dra_json_object(j);
        for (int i = 0; i < 2; i++)
            dra_json_set(j, both, i ? SLIDING : FULL,
                         rope_object(j, turn[i] ? turn[i] : any, true, 0));
        dra_keys_put(k, all[2], both);
    } else if (is_new) {
        dra_keys_put(k, all[2], rope_object(j, any, true, share_of(f, c, any)));
    } else {
        dra_keys_put(k, all[0], dra_json_real(j, any->base > 0 ? any->base : 1e4));
        if (strcmp(rope_name(any), "default") != 0)
            dra_keys_put(k, all[1], rope_object(j, any, false, 0));
    }
}

static void put_windows(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    dra_json *j = &k->json;
    json_t   *types = dra_json_array(j), *ropes_of = dra_json_array(j);
    int64_t   W = 0;
    for (int64_t l = 0; l < c->depth; l++) {
        const dra_mixer_config *m = mixer_of(c, l);
        if (m->a.window > 0) W = m->a.window;
        const char *type = dra_linear_is(m) ? linear_name(f) : m->a.window > 0 ? SLIDING : FULL;
        dra_json_append(j, types, dra_json_text(j, type));
        dra_json_append(j, ropes_of, dra_json_int(j, m->rotary));
    }
    if (is_asked(f)) dra_keys_put(k, "use_sliding_window", dra_json_bool(W > 0));
    if (f->windows) dra_keys_put(k, "sliding_window", W ? dra_json_int(j, W) : json_null());
    if (f->rope_every)
        dra_keys_put(k, "no_rope_layers", ropes_of);
    else
        json_decref(ropes_of);
    if (f->windows > DRA_WINDOWS_ALL || f->linear)
        dra_keys_put(k, "layer_types", types);
    else
        json_decref(types);
}

/* Whether two configs have the same layers, but for the order of rows that rotate. */
static bool has_layers(dra_model_config *before, const dra_model_config *c)
{
    static const char *const keys[] = {"mixer", "pattern"};
    bool same = before->depth == c->depth && before->dim == c->dim && before->heads == c->heads;
    if (!same) return false;
    const dra_rotary_config *turn = turn_of(c, false) ? turn_of(c, false) : turn_of(c, true);
    if (turn && !dra_config_turn_rows(before, turn->halves)) return false;
    json_t *a = dra_model_config_object(before), *b = dra_model_config_object(c);
    for (int i = 0; i < 2; i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        same = same && (x && y ? json_equal(x, y) : x == y);
    }
    json_decref(a);
    json_decref(b);
    return same;
}

/* Whether the object says these layers already. */
static bool says_layers(const dra_keys *k, const dra_model_config *c)
{
    dra_model_config *before;
    dra_status        st = dra_config_new(&before, NULL);
    if (st == DRA_OK) st = dra_format_read(k->format, k->place, k->object, before, NULL);
    const bool same = st == DRA_OK && has_layers(before, c);
    dra_model_config_destroy(before);
    return same;
}

/* What is said already stays as it is, in whichever words. */
void dra_llama_write_layers(dra_keys *k, const dra_llama *f, const dra_model_config *c)
{
    if (says_layers(k, c)) return;
    put_ropes(k, f, c);
    put_windows(k, f, c);
    if (f->linear != DRA_LINEAR_GRANITE) return;
    dra_json_delete(k->object, BLOCKS);
    dra_keys_put(k, POSITIONS, turn_of(c, false) ? dra_json_text(&k->json, "rope") : json_null());
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool is_ordered(const char *param)
{
    static const char *const names[] = {"W_q", "W_k", "b_q", "b_k", "gain_q", "gain_k"};
    const char              *dot = strrchr(param, '.');
    for (int i = 0; i < 6; i++)
        if (dot && strcmp(dot + 1, names[i]) == 0) return true;
    return false;
}

void dra_llama_order_rows(const dra_model_config *c, dra_row_order file, dra_name_rule *row)
{
    bool halves = file == DRA_ROWS_HALVES;
    for (int i = 0; i < c->mixers; i++)
        if (c->mixer[i].rotary) halves = c->mixer[i].turn.halves;
    if (halves == (file == DRA_ROWS_HALVES)) return;
    for (; row->ours; row++) {
        if (!is_ordered(row->ours)) continue;
        row->order = file;
        row->head_rows = c->key_dim ? c->key_dim : c->dim / c->heads;
    }
}
