/* generation_config.json: how a model's authors want it to write.
 * [https://huggingface.co/docs/transformers/main_classes/text_generation] */
#include <float.h>
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

static double number(dra_keys *k, const char *key, double fallback, double least, double most,
                     const char *expected)
{
    const json_t *v = json_object_get(k->object, key);
    if (!v || json_is_null(v)) return fallback;
    const double x = json_number_value(v);
    if (json_is_number(v) && x >= least && x <= most) return x;
    dra_keys_refuse(k, key, expected);
    return fallback;
}

static int64_t count(dra_keys *k, const char *key, int64_t fallback)
{
    static const char expected[] = "a whole number from 0 to 2^31 - 1";
    const double      x = number(k, key, (double)fallback, 0, INT32_MAX, expected);
    if (x != floor(x)) dra_keys_refuse(k, key, expected);
    return (int64_t)x;
}

static bool says_nothing(const json_t *v, double nothing)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_number(v) && json_number_value(v) == nothing);
}

/* Keys that would change the text, unless they are null, false, empty, or this number. */
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
        if (says_nothing(json_object_get(k->object, keys[i].key), keys[i].nothing)) continue;
        if (n < sizeof h->other)
            n += (size_t)snprintf(h->other + n, sizeof h->other - n, "%s%s", n ? ", " : "",
                                  keys[i].key);
    }
}

/* Greedy unless it says do_sample; then of the 50 most likely tokens, unless it says how many. A
 * temperature of 0 is greedy as well. */
static void read_habits(dra_keys *k, dra_generation_config *h)
{
    const bool samples = dra_keys_bool(k, "do_sample", false);
    h->given = true;
    h->tokens = count(k, "max_new_tokens", 0);
    h->length = h->tokens ? 0 : count(k, "max_length", 0);
    h->sampler.repetition_penalty = number(k, "repetition_penalty", 1, DBL_MIN, DBL_MAX,
                                           "a number above 0");
    h->sampler.top_p = 1;
    read_ends(k, h);
    read_others(k, h);
    if (!samples) return;
    h->sampler.temperature = number(k, "temperature", 1, 0, DBL_MAX, "a number from 0 on");
    h->sampler.top_k = count(k, "top_k", 50);
    h->sampler.top_p = number(k, "top_p", 1, DBL_MIN, 1, "a number above 0, up to 1");
    h->sampler.min_p = number(k, "min_p", 0, 0, 1, "a number from 0 to 1");
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
