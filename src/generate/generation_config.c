/* generation_config.json: how a model's authors want it to write.
 * [https://huggingface.co/docs/transformers/main_classes/text_generation] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dra/generate.h"
#include "file/fail.h"
#include "file/system.h"
#include "formats/format.h"

enum { PATH_TEXT = 4096, CONFIG_MOST = 1 << 20 };

/* The JSON object of a file next to the model; *out NULL: there is none. */
static dra_status open_keys(const char *folder, const char *name, json_t **out, dra_error *err)
{
    char      path[PATH_TEXT], *text = NULL;
    size_t    bytes = 0;
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    *out = NULL;
    if (n < 0 || n >= PATH_TEXT || !dra_sys_exists(path)) return DRA_OK;
    dra_status st = dra_file_read(path, CONFIG_MOST, &text, &bytes, err);
    if (st == DRA_OK)
        st = dra_json_parse(path, text, bytes, (dra_json_rules){.depth = 16}, out, err);
    free(text);
    if (st != DRA_OK || json_is_object(*out)) return st;
    json_decref(*out);
    *out = NULL;
    return dra_fail_at(err, DRA_ERR_FORMAT, path, "JSON is no object");
}

/* A token, or a list of them. */
static void read_ends(dra_keys *k, dra_generation_config *h)
{
    const json_t *v = json_object_get(k->object, "eos_token_id");
    const size_t  n = json_is_array(v) ? json_array_size(v) : 1;
    if (!v || json_is_null(v)) return;
    h->ends = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t    *id = json_is_array(v) ? json_array_get(v, i) : v;
        const json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < -1 || x > INT32_MAX || n > DRA_GENERATION_ENDS) {
            dra_keys_refuse(k, "eos_token_id", "a token or a list of up to 8");
            return;
        }
        if (x >= 0) h->end[h->ends++] = (int32_t)x;
    }
}

/* From `least` on, or above it. */
static double read_number(dra_keys *k, const char *key, double fallback, double least, bool above,
                          double most)
{
    const json_t *v = json_object_get(k->object, key);
    const double  x = json_number_value(v);
    char          expected[64];
    if (!v || json_is_null(v)) return fallback;
    if (json_is_number(v) && (above ? x > least : x >= least) && x <= most) return x;
    snprintf(expected, sizeof expected, "a number %s %g%s %g", above ? "above" : "from", least,
             above ? ", up to" : " to", most);
    dra_keys_refuse(k, key, expected);
    return fallback;
}

static int64_t read_count(dra_keys *k, const char *key, int64_t fallback)
{
    static const char expected[] = "a whole number from 0 to 2^31 - 1";
    const json_t     *v = json_object_get(k->object, key);
    const double      x = json_number_value(v);
    if (!v || json_is_null(v)) return fallback;
    if (json_is_number(v) && x >= 0 && x <= INT32_MAX && x == floor(x)) return (int64_t)x;
    dra_keys_refuse(k, key, expected);
    return fallback;
}

/* ---- the sampler ----------------------------------------------------------------------------- */

/* 0 stands for the usual value here, there it would mean what it says: no token, no logits. */
static void read_option(dra_keys *k, const dra_sampler_option *o, dra_sampler_config *to)
{
    const bool   above = o->usual != 0 && o->kind != DRA_SAMPLER_TEMPERATURE;
    const double fallback = dra_sampler_get(to, o);
    dra_sampler_set(to, o,
                    o->whole ? (double)read_count(k, o->hugging_face, (int64_t)fallback)
                             : read_number(k, o->hugging_face, fallback, o->least, above, o->most));
}

/* Greedy unless it says do_sample; then of the 50 most likely tokens, unless it says how many. A
 * temperature of 0 is greedy as well. */
static void read_sampler(dra_keys *k, dra_sampler_config *to)
{
    const bool                samples = dra_keys_bool(k, "do_sample", false);
    size_t                    n;
    const dra_sampler_option *o = dra_sampler_options(&n);
    *to = (dra_sampler_config){DRA_SAMPLER_USUAL};
    to->temperature = samples ? 1 : 0;
    to->top_k = samples ? 50 : 0;
    for (size_t i = 0; i < n; i++) {
        const bool draws = o[i].kind == DRA_SAMPLER_TEMPERATURE || o[i].kind == DRA_SAMPLER_FILTER;
        if (o[i].hugging_face && (samples || !draws)) read_option(k, &o[i], to);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool is_followed(const char *key)
{
    size_t                    n;
    const dra_sampler_option *o = dra_sampler_options(&n);
    for (size_t i = 0; i < n; i++)
        if (o[i].hugging_face && strcmp(o[i].hugging_face, key) == 0) return true;
    return false;
}

static bool says_nothing(const json_t *v, double nothing)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_number(v) && json_number_value(v) == nothing);
}

/* Keys that would change the text, unless they are null, false, empty, or this number, or the
 * sampler follows them. */
static void read_others(const dra_keys *k, dra_generation_config *h)
{
    static const struct {
        const char *key;
        double      nothing;
    } keys[] = {{"num_beams", 1},
                {"num_beam_groups", 1},
                {"penalty_alpha", 0},
                {"no_repeat_ngram_size", 0},
                {"min_length", 0},
                {"min_new_tokens", 0},
                {"typical_p", 1},
                {"epsilon_cutoff", 0},
                {"eta_cutoff", 0},
                {"suppress_tokens", 0},
                {"begin_suppress_tokens", 0},
                {"bad_words_ids", 0},
                {"forced_bos_token_id", -1},
                {"forced_eos_token_id", -1},
                {"sequence_bias", 0},
                {"guidance_scale", 1},
                {"num_return_sequences", 1},
                {"stop_strings", 0},
                {"max_time", 0},
                {"exponential_decay_length_penalty", 0}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (is_followed(keys[i].key) ||
            says_nothing(json_object_get(k->object, keys[i].key), keys[i].nothing))
            continue;
        if (n < sizeof h->other)
            n += (size_t)snprintf(h->other + n, sizeof h->other - n, "%s%s", n ? ", " : "",
                                  keys[i].key);
    }
}

static void read_habits(dra_keys *k, dra_generation_config *h)
{
    h->given = true;
    h->tokens = read_count(k, "max_new_tokens", 0);
    h->length = h->tokens ? 0 : read_count(k, "max_length", 0);
    read_sampler(k, &h->sampler);
    read_ends(k, h);
    read_others(k, h);
}

dra_status dra_generation_config_read(const char *folder, dra_generation_config *out,
                                      dra_error *err)
{
    static const char *const names[] = {"config.json", "generation_config.json"};
    dra_status               st = DRA_OK;
    *out = (dra_generation_config){0};
    for (int i = 0; i < 2 && st == DRA_OK; i++) {
        json_t *object;
        char    place[PATH_TEXT];
        st = open_keys(folder, names[i], &object, err);
        if (st != DRA_OK || !object) continue;
        snprintf(place, sizeof place, "%.3000s/%s", folder, names[i]);
        json_t  *kept = i == 0 ? json_object_get(object, DRA_KEPT_KEYS) : NULL;
        dra_keys k = {.place = place, .object = kept ? kept : object, .err = err};
        if (i == 0)
            read_ends(&k, out);
        else
            read_habits(&k, out);
        st = k.status;
        json_decref(object);
    }
    return st;
}
