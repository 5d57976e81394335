/* generation_config.json: how a model's authors want it to write.
 * [https://huggingface.co/docs/transformers/main_classes/text_generation] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dra/generate.h"
#include "file/fail.h"
#include "model/format.h"

enum { PATH_TEXT = 4096, CONFIG_MOST = 1 << 20 };

/* The JSON object of a file beside the model; *out NULL: there is none. */
static dra_status open_keys(const char *folder, const char *name, json_t **out, dra_error *err)
{
    char      path[PATH_TEXT], *text = NULL;
    size_t    bytes = 0;
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    *out = NULL;
    if (n < 0 || n >= PATH_TEXT || access(path, F_OK) != 0) return DRA_OK;
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
static void read_ends(dra_keys *k, dra_habits *h)
{
    const json_t *v = json_object_get(k->object, "eos_token_id");
    const size_t  n = json_is_array(v) ? json_array_size(v) : 1;
    if (!v || json_is_null(v)) return;
    h->ends = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t    *id = json_is_array(v) ? json_array_get(v, i) : v;
        const json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < -1 || x > INT32_MAX || n > DRA_HABITS_ENDS) {
            dra_keys_refuse(k, "eos_token_id", "a token or a list of up to 8");
            return;
        }
        if (x >= 0) h->end[h->ends++] = (int32_t)x;
    }
}

static double positive(dra_keys *k, const char *key, double fallback)
{
    const json_t *v = json_object_get(k->object, key);
    if (!v || json_is_null(v)) return fallback;
    const double x = json_number_value(v);
    if (json_is_number(v) && x > 0 && isfinite(x)) return x;
    dra_keys_refuse(k, key, "a number above 0");
    return fallback;
}

/* Greedy unless it says do_sample; then of the 50 most likely tokens, unless it says how many. */
static void read_habits(dra_keys *k, dra_habits *h)
{
    const bool samples = dra_keys_bool(k, "do_sample", false);
    h->given = true;
    h->tokens = dra_keys_int(k, "max_new_tokens", NULL, 0);
    h->length = h->tokens ? 0 : dra_keys_int(k, "max_length", NULL, 0);
    h->sampler.repetition_penalty = positive(k, "repetition_penalty", 1);
    read_ends(k, h);
    const double temperature = positive(k, "temperature", 1), top_p = positive(k, "top_p", 1);
    const double min_p = dra_keys_real(k, "min_p", 0);
    h->sampler.temperature = samples ? temperature : 0;
    h->sampler.top_k = samples ? dra_keys_int(k, "top_k", NULL, 50) : 0;
    h->sampler.top_p = samples && top_p < 1 ? top_p : 1;
    h->sampler.min_p = samples ? min_p : 0;
    if (dra_keys_int(k, "num_beams", NULL, 1) != 1)
        dra_keys_refuse(k, "num_beams", "1: there is one path");
}

dra_status dra_habits_read(const char *folder, dra_habits *out, dra_error *err)
{
    static const char *const names[] = {"config.json", "generation_config.json"};
    dra_status               st = DRA_OK;
    *out = (dra_habits){0};
    for (int i = 0; i < 2 && st == DRA_OK; i++) {
        json_t *object;
        char    place[PATH_TEXT];
        st = open_keys(folder, names[i], &object, err);
        if (st != DRA_OK || !object) continue;
        snprintf(place, sizeof place, "%.3000s/%s", folder, names[i]);
        dra_keys k = {.place = place, .object = object, .err = err};
        if (i == 0)
            read_ends(&k, out);
        else
            read_habits(&k, out);
        st = k.status;
        json_decref(object);
    }
    return st;
}
