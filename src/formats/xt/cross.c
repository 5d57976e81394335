/* Options of cross-attention: those of attention, each of which cross_attn_* may override. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/xt/xt.h"

static const char cross_prefix[] = "cross_", attn_prefix[] = "attn_";

static bool begins_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

json_t *dra_xt_cross_split(dra_json *j, json_t *stack)
{
    json_t     *cross = dra_json_object(j), *v;
    const char *key;
    void       *next;
    json_object_foreach_safe(stack, next, key, v)
    {
        if (!begins_with(key, cross_prefix) ||
            !begins_with(key + strlen(cross_prefix), attn_prefix))
            continue;
        dra_json_set_shared(j, cross, key + strlen(cross_prefix), v);
        dra_json_delete(stack, key);
    }
    return cross;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

/* One option of cross-attention, as attn_*. */
static dra_status check_key(const char *place, const json_t *stack, const char *key,
                            const json_t *v, dra_error *err)
{
    bool        neutral;
    const char *why = dra_xt_refusal(key, v, &neutral);
    if (neutral || json_is_null(v)) return DRA_OK;
    if (!dra_xt_is_known(dra_xt_stack_fields(), key))
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: attn_layers.cross_%.60s is not %s%s", place,
                        key, why ? "supported: " : "a key", why ? why : "");
    const json_t *other = json_object_get(stack, key);
    if (strcmp(key, "attn_dropout") == 0 && json_number_value(v) != json_number_value(other))
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: attn_layers.cross_attn_dropout is not supported: dra has one "
                        "dropout of attention, attn_dropout",
                        place);
    return DRA_OK;
}

/* Does cross-attention turn off what this option of the other attention is about? There the option
 * says nothing then. */
static bool is_idle(const json_t *cross, const char *key)
{
    const char   *need = dra_xt_need(key);
    const json_t *v = need ? json_object_get(cross, need) : NULL;
    return v && !json_is_true(v) && !(json_number_value(v) > 0);
}

/* Options of attention with those of `cross` in their place, as those of a stack that has nothing
 * else. */
static json_t *merge_options(dra_json *j, const json_t *stack, const json_t *cross)
{
    json_t     *all = dra_json_object(j), *v;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)stack, key, v)
    {
        if (begins_with(key, attn_prefix) && !is_idle(cross, key))
            dra_json_set_shared(j, all, key, v);
    }
    json_object_foreach((json_t *)(uintptr_t)cross, key, v)
    {
        if (json_is_null(v))
            dra_json_delete(all, key);
        else if (dra_xt_is_known(dra_xt_stack_fields(), key))
            dra_json_set_shared(j, all, key, v);
    }
    return all;
}

/* What these options mean for attention, in a stack like that of `from`. */
static dra_status read_attention(const char *place, json_t *options, const dra_xt *from,
                                 dra_mixer_config *out, dra_error *err)
{
    dra_json j = {0};
    json_t  *object = dra_json_object(&j);
    dra_xt   x = {.c = {.dim = from->c.dim, .heads = from->c.heads, .xt = from->c.xt}};
    dra_xt_join(&x);
    dra_json_set_shared(&j, object, "attn_layers", options);
    dra_status st = dra_json_check(&j, place, err);
    if (st == DRA_OK)
        st = dra_fields_read_own(dra_xt_stack_fields(), place, options, NULL, from->c.own, &x, err);
    if (!x.attn_dim_head) x.attn_dim_head = 64;
    x.c.depth = 1;
    if (st == DRA_OK) st = dra_xt_check(&x, place, object, err);
    json_decref(object);
    if (st != DRA_OK) return st;
    dra_xt_settle_attention(&x);
    *out = x.mixer;
    if (x.attn_dim_head != from->attn_dim_head) out->key_dim = out->value_dim = x.attn_dim_head;
    return DRA_OK;
}

/* cross_attn_dim_context is no option of the other attention. */
static dra_status take_dim(const char *place, json_t *cross, dra_xt *out, dra_error *err)
{
    const json_t    *v = json_object_get(cross, "attn_dim_context");
    const json_int_t n = json_integer_value(v);
    if (v && !json_is_null(v) && !(json_is_integer(v) && n >= 1 && n <= 1 << 20))
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: attn_layers.cross_attn_dim_context: expected a whole number from "
                        "1 to 1048576",
                        place);
    out->dim_context = n;
    dra_json_delete(cross, "attn_dim_context");
    return DRA_OK;
}

dra_status dra_xt_cross_read(const char *place, const json_t *stack, const json_t *cross,
                             dra_xt *out, dra_error *err)
{
    const bool  chain = out->cross.attention.residual_scores;
    const bool  values = out->cross_attend && out->add_value_residual;
    dra_json    j = {0};
    json_t     *own = dra_json_share(&j, cross), *v;
    const char *key;
    dra_status  st = dra_json_check(&j, place, err);
    if (st == DRA_OK) st = take_dim(place, own, out, err);
    json_object_foreach(own, key, v) if (st == DRA_OK) st = check_key(place, stack, key, v, err);
    json_object_foreach((json_t *)(uintptr_t)cross, key, v) if (st == DRA_OK && !out->cross_attend)
        st = dra_fail(err, DRA_ERR_VALUE, "%.120s: cross_%.60s needs cross_attend", place, key);
    json_t *all = st == DRA_OK && out->cross_attend ? merge_options(&j, stack, own) : NULL;
    if (st == DRA_OK) st = dra_json_check(&j, place, err);
    if (st == DRA_OK && all) st = read_attention(place, all, out, &out->cross, err);
    out->cross.attention.residual_scores = chain;
    if (values) out->cross.value_residual = DRA_VALUES_HALF; /* a mix is learned for the other */
    json_decref(all);
    json_decref(own);
    return st;
}

/* ---- to JSON --------------------------------------------------------------------------------- */

/* What an option that is not said means. */
static json_t *by_default(dra_json *j, const char *key, const json_t *said, int64_t heads)
{
    if (strcmp(key, "attn_dim_head") == 0) return dra_json_int(j, 64);
    if (strcmp(key, "attn_kv_heads") == 0) return dra_json_int(j, heads);
    if (strcmp(key, "attn_num_mem_kv") == 0) return dra_json_int(j, 0);
    if (strcmp(key, "attn_qk_norm_groups") == 0) return dra_json_int(j, 1);
    if (strcmp(key, "attn_qk_norm_scale") == 0) return dra_json_int(j, 10);
    return json_is_boolean(said) ? dra_json_bool(false) : json_null();
}

static void put_option(dra_json *j, json_t *stack, const char *key, json_t *value)
{
    char name[80];
    snprintf(name, sizeof name, "%s%.60s", cross_prefix, key);
    dra_json_set(j, stack, name, value);
}

static json_t *dump_attention(dra_json *j, const dra_xt *x)
{
    dra_xt cross = {.c = {.dim = x->c.dim, .heads = x->c.heads, .xt = x->c.xt}};
    dra_xt_join(&cross);
    cross.mixer = x->cross;
    cross.mixer.attention.residual_scores = false;
    cross.c.attention_dropout = x->c.attention_dropout;
    cross.c.key_dim = x->c.key_dim;
    dra_xt_tell_attention(&cross);
    return dra_fields_write(j, dra_xt_stack_fields(), &cross);
}

/* 10 and 10.0 are the same. */
static bool is_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

void dra_xt_cross_dump(dra_json *j, const dra_xt *x, json_t *stack)
{
    json_t     *cross = dump_attention(j, x), *own = dra_json_share(j, stack), *v;
    const char *key;
    json_object_foreach(cross, key, v)
    {
        if (begins_with(key, attn_prefix) && !is_same(v, json_object_get(own, key)))
            put_option(j, stack, key, json_incref(v));
    }
    json_object_foreach(own, key, v)
    {
        const char *need = dra_xt_need(key);
        const bool  idle = need && !json_object_get(cross, need);
        if (begins_with(key, attn_prefix) && !json_object_get(cross, key) && !idle)
            put_option(j, stack, key, by_default(j, key, v, x->c.heads));
    }
    if (x->dim_context) put_option(j, stack, "attn_dim_context", dra_json_int(j, x->dim_context));
    json_decref(cross);
    json_decref(own);
}
