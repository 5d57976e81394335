/* NonAutoregressiveWrapper of x-transformers: a loss around an encoder, which learns hidden tokens.
 * What it does in training and in writing is said to dra train (--mask-schedule) and dra generate
 * (--unmask), not by the model; so its options are read at their defaults, except mask_id, which
 * says what a token of the model means. */
#include <string.h>

#include "base/error.h"
#include "formats/xt/xt.h"

typedef struct option {
    const char *name;
    double      number; /* the default; 1: also true */
    const char *text;   /* of a default that is a text */
    const char *why;    /* of any other value; NULL: see below */
} option;

static const char training[] = "it belongs to the loss around a model, not to the model";
static const char writing[] = "it is an option of dra generate, not of the model";
static const char critic[] = "dra has no critic";
static const char conditioning[] = "dra has no self-conditioning";

static const option options[] = {
    {"steps", 18, NULL, writing},
    {"can_mask_prev_unmasked", 0, NULL, writing},
    {"schedule", 0, "linear", training},
    {"no_replace_prob", 0.15, NULL, training},
    {"random_token_prob", 0.1, NULL, training},
    {"use_simple_mdlm_loss_weight", 1, NULL, training},
    {"self_cond", 0, NULL, conditioning},
    {"self_cond_train_prob", 0.75, NULL, conditioning},
    {"token_critic", 0, NULL, critic},
    {"self_token_critic", 0, NULL, critic},
    {"critic_loss_weight", 1, NULL, critic},
};

static bool is_default(const option *o, const json_t *v)
{
    if (json_is_null(v)) return true;
    if (o->text) return json_is_string(v) && strcmp(json_string_value(v), o->text) == 0;
    if (json_is_boolean(v)) return (json_is_true(v) ? 1 : 0) == o->number;
    return json_is_number(v) && json_number_value(v) == o->number;
}

static dra_status check_option(const char *place, const char *name, const json_t *v, dra_error *err)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (strcmp(name, options[i].name) != 0) continue;
        if (is_default(&options[i], v)) return DRA_OK;
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s is not supported: %s", place, name,
                        options[i].why);
    }
    return dra_fail(err, DRA_ERR_VALUE, "%.120s: %.60s is not a key", place, name);
}

dra_status dra_xt_read_masked(const char *place, const json_t *body, int64_t vocab,
                              dra_xt_config *out, dra_error *err)
{
    const json_t *mask = json_object_get(body, "mask_id"), *v;
    const char   *name;
    json_object_foreach((json_t *)(uintptr_t)body, name, v)
    {
        const bool known = strcmp(name, "mask_id") == 0;
        if (!known && check_option(place, name, v, err) != DRA_OK) return DRA_ERR_VALUE;
    }
    if (!mask) return dra_fail(err, DRA_ERR_VALUE, "%.120s: mask_id is missing", place);
    out->mask_id = json_integer_value(mask);
    if (json_is_integer(mask) && out->mask_id >= 0 && out->mask_id < vocab) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "%.120s: mask_id: expected a token, 0 to %lld", place,
                    (long long)vocab - 1);
}
