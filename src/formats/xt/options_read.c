/* Options of one stack of x-transformers, with its wrapper: from JSON and back. Their names are in
 * options_table.c, those that are refused in refused.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "file/fields.h"
#include "formats/xt/xt.h"

/* ---- from JSON ------------------------------------------------------------------------------- */

/* A value of "type" that the library has and dra does not. */
static dra_status check_type(const char *place, const json_t *stack, dra_error *err)
{
    const char *is = json_string_value(json_object_get(stack, "type"));
    for (const char *const *known = dra_xt_types; is && *known; known++)
        if (strcmp(is, *known) == 0) return DRA_OK;
    if (!is || !dra_xt_other_class(is)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "%.120s: type %s is not supported yet, expected Decoder, Encoder or "
                    "PrefixDecoder",
                    place, is);
}

/* One key: DRA_OK, and *drop where it asks for nothing. other: the table next to its own. */
static dra_status check_key(const char *place, bool stack, const dra_field *table,
                            const dra_field *other, const char *key, const json_t *v, bool *drop,
                            dra_error *err)
{
    const char *path = stack ? "attn_layers." : "";
    *drop = json_is_null(v);
    if (*drop || dra_xt_is_known(table, key)) return DRA_OK;
    const char *why = dra_xt_refusal(key, v, drop);
    if (*drop) return DRA_OK;
    if (dra_xt_is_known(other, key) && strcmp(key, "attn_layers") != 0)
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s%.60s belongs %s attn_layers", place, path,
                        key, stack ? "next to" : "into");
    if (why)
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s%.60s is not supported: %s", place, path,
                        key, why);
    return DRA_OK; /* unknown: whoever reads the table says so */
}

static dra_status sweep_options(const char *place, bool stack, dra_xt_wrapper wrapper,
                                json_t *object, dra_error *err)
{
    const dra_field *outer = dra_xt_fields(wrapper), *inner = dra_xt_stack_fields();
    const char      *key;
    json_t          *v;
    void            *next;
    dra_status       st = DRA_OK;
    json_object_foreach_safe(object, next, key, v)
    {
        bool drop;
        st = check_key(place, stack, stack ? inner : outer, stack ? outer : inner, key, v, &drop,
                       err);
        if (st != DRA_OK) return st;
        if (drop) dra_json_delete(object, key);
    }
    return st;
}

/* One number for all sublayers is a list of one. */
static void make_list(dra_json *j, json_t *stack, const char *key)
{
    json_t *v = json_object_get(stack, key);
    if (!json_is_number(v)) return;
    json_t *list = dra_json_array(j);
    dra_json_append(j, list, json_incref(v));
    dra_json_set(j, stack, key, list);
}

/* ["a", "f"] is "af". */
static void join_letters(dra_json *j, json_t *stack, const char *key)
{
    const json_t *list = json_object_get(stack, key);
    char          text[DRA_SUBLAYERS_MOST + 1] = "";
    const size_t  n = json_array_size(list);
    if (n > DRA_SUBLAYERS_MOST) return;
    for (size_t i = 0; i < n; i++) {
        const char *letter = json_string_value(json_array_get(list, i));
        if (!letter || strlen(letter) != 1) return;
        text[i] = letter[0];
    }
    if (n) dra_json_set(j, stack, key, dra_json_text(j, text));
}

static dra_status check_missing(const char *place, dra_xt_wrapper wrapper, const json_t *object,
                                dra_error *err)
{
    static const char *const inner[] = {"type", "dim", NULL};
    const json_t            *stack = json_object_get(object, "attn_layers");
    for (const char *const *key = dra_xt_needed(wrapper); *key; key++)
        if (!json_object_get(object, *key))
            return dra_fail(err, DRA_ERR_VALUE, "%.120s: %s is missing", place, *key);
    if (!json_is_object(stack)) return DRA_OK; /* the table says what it is */
    for (const char *const *key = inner; *key; key++)
        if (!json_object_get(stack, *key))
            return dra_fail(err, DRA_ERR_VALUE, "%.120s: attn_layers.%s is missing", place, *key);
    if (!json_object_get(stack, "depth") && !json_object_get(stack, "custom_layers"))
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: attn_layers.depth is missing, and so is "
                        "custom_layers",
                        place);
    return DRA_OK;
}

/* A copy in which only options of the tables are left. */
static dra_status clean_options(const char *place, dra_xt_wrapper wrapper, json_t *object,
                                dra_error *err)
{
    dra_json   j = {0};
    dra_status st = sweep_options(place, false, wrapper, object, err);
    json_t    *stack = json_object_get(object, "attn_layers");
    if (st == DRA_OK && json_is_object(stack)) st = sweep_options(place, true, wrapper, stack, err);
    if (st == DRA_OK) st = check_type(place, stack, err);
    make_list(&j, stack, "shift_tokens");
    make_list(&j, stack, "layer_dropout");
    join_letters(&j, stack, "custom_layers");
    if (st == DRA_OK) st = dra_json_check(&j, place, err);
    return st == DRA_OK ? check_missing(place, wrapper, object, err) : st;
}

static dra_status read_options(const char *place, json_t *options, dra_xt *out, dra_error *err)
{
    dra_json             j = {0};
    const dra_xt_wrapper wrapper = (dra_xt_wrapper)out->wrapper;
    json_t              *cross = dra_xt_cross_split(&j, json_object_get(options, "attn_layers"));
    const json_t        *stack = json_object_get(options, "attn_layers");
    dra_status           st = dra_json_check(&j, place, err);
    dra_xt_join(out);
    if (st == DRA_OK) st = clean_options(place, wrapper, options, err);
    if (st == DRA_OK)
        st = dra_fields_read_own(dra_xt_fields(wrapper), place, options, NULL, out->c.own, out,
                                 err);
    if (!out->c.heads) out->c.heads = 8;
    if (!out->attn_dim_head) out->attn_dim_head = 64;
    if (st == DRA_OK) st = dra_xt_check(out, place, options, err);
    if (st == DRA_OK) st = dra_xt_cross_read(place, stack, cross, out, err);
    json_decref(cross);
    return st;
}

dra_status dra_xt_parse(const char *place, const json_t *object, dra_xt *out, dra_error *err)
{
    dra_json   j = {0};
    json_t    *options = dra_json_copy(&j, object);
    dra_status st = dra_json_check(&j, place, err);
    if (st == DRA_OK) st = read_options(place, options, out, err);
    json_decref(options);
    return st;
}

/* ---- to JSON --------------------------------------------------------------------------------- */

/* Whole numbers are written without a point. */
static json_t *plain_number(dra_json *j, json_t *v)
{
    const double x = json_number_value(v);
    return json_is_real(v) && x == floor(x) ? dra_json_int(j, (int64_t)x) : json_incref(v);
}

/* A list of one number is that number, for all. */
static json_t *plain_list(dra_json *j, json_t *v)
{
    const size_t n = json_array_size(v);
    if (n <= 1) return plain_number(j, n ? json_array_get(v, 0) : v);
    json_t *list = dra_json_array(j);
    for (size_t i = 0; i < n; i++) dra_json_append(j, list, plain_number(j, json_array_get(v, i)));
    return list;
}

static json_t *split_letters(dra_json *j, const char *text)
{
    json_t *list = dra_json_array(j);
    for (; text && *text; text++) dra_json_append(j, list, dra_json_text_of(j, text, 1));
    return list;
}

/* As the library has them: lists of letters, one number for all. */
static json_t *spell_option(dra_json *j, const char *name, json_t *v)
{
    if (strcmp(name, "custom_layers") == 0) return split_letters(j, json_string_value(v));
    return strcmp(name, "layers_execute_order") == 0 ? json_incref(v) : plain_list(j, v);
}

/* The fields of a table, after those that `object` has. */
static void append_fields(dra_json *j, json_t *object, json_t *fields)
{
    const char *name;
    json_t     *v;
    json_object_foreach(fields, name, v) dra_json_set(j, object, name, spell_option(j, name, v));
    json_decref(fields);
}

json_t *dra_xt_dump(dra_json *j, const dra_xt *x)
{
    const char *type = dra_xt_types[x->c.visible];
    json_t     *stack = dra_json_object(j), *object = dra_json_object(j);
    dra_json_set(j, stack, "type", dra_json_text(j, type));
    append_fields(j, stack, dra_fields_write(j, dra_xt_stack_fields(), x));
    if (x->cross_attend) dra_xt_cross_dump(j, x, stack);
    append_fields(j, object, dra_fields_write(j, dra_xt_fields((dra_xt_wrapper)x->wrapper), x));
    if (x->wrapper == DRA_XT_XVAL) /* 0 is a token, too */
        dra_json_set(j, object, "numerical_token_id", dra_json_int(j, x->c.source.number_token));
    dra_json_set(j, object, "attn_layers", stack);
    return object;
}
