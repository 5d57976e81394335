/* JSON that is built: see json_make.h. */
#include "file/json_make.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "file/fail.h"
#include "file/format.h"

static json_t *keep_value(dra_json *j, json_t *value)
{
    if (!value) j->failed = true;
    return value;
}

json_t *dra_json_object(dra_json *j) { return keep_value(j, json_object()); }
json_t *dra_json_array(dra_json *j) { return keep_value(j, json_array()); }
json_t *dra_json_int(dra_json *j, int64_t x) { return keep_value(j, json_integer((json_int_t)x)); }
json_t *dra_json_bool(bool x) { return json_boolean(x); }

json_t *dra_json_real(dra_json *j, double x)
{
    if (isfinite(x)) return keep_value(j, json_real(x));
    j->not_finite++;
    return json_null();
}

json_t *dra_json_text(dra_json *j, const char *text)
{
    json_t *value = keep_value(j, text ? json_string(text) : NULL);
    if (!value && text && !dra_is_utf8(text)) j->no_text = true;
    return value;
}

json_t *dra_json_text_of(dra_json *j, const char *text, size_t bytes)
{
    return keep_value(j, json_stringn(text, bytes));
}

json_t *dra_json_whole(const dra_json *j, json_t *value)
{
    if (!j->failed) return value;
    json_decref(value);
    return NULL;
}

void dra_json_set(dra_json *j, json_t *object, const char *key, json_t *value)
{
    if (!dra_is_utf8(key)) j->no_text = true;
    if (json_object_set_new(object, key, value) != 0) j->failed = true;
}

void dra_json_set_shared(dra_json *j, json_t *object, const char *key, json_t *value)
{
    dra_json_set(j, object, key, json_incref(value));
}

void dra_json_append(dra_json *j, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0) j->failed = true;
}

void dra_json_delete(json_t *object, const char *key)
{
    if (json_object_get(object, key)) json_object_del(object, key);
}

void dra_json_update(dra_json *j, json_t *object, const json_t *from)
{
    if (json_object_update(object, (json_t *)(uintptr_t)from) != 0) j->failed = true;
}

/* jansson's own json_object_update_missing(), json_copy() and json_deep_copy() pass over members
 * that they have no memory for. */
void dra_json_update_missing(dra_json *j, json_t *object, const json_t *from)
{
    const char *key;
    json_t     *value;
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        if (!json_object_get(object, key)) dra_json_set_shared(j, object, key, value);
    }
}

json_t *dra_json_share(dra_json *j, const json_t *object)
{
    json_t *copy = dra_json_object(j);
    dra_json_update(j, copy, object);
    return copy;
}

json_t *dra_json_copy(dra_json *j, const json_t *value)
{
    const char *key;
    json_t     *each, *copy;
    size_t      i;
    if (json_is_object(value)) {
        copy = dra_json_object(j);
        json_object_foreach((json_t *)(uintptr_t)value, key, each)
            dra_json_set(j, copy, key, dra_json_copy(j, each));
    } else if (json_is_array(value)) {
        copy = dra_json_array(j);
        json_array_foreach((json_t *)(uintptr_t)value, i, each)
            dra_json_append(j, copy, dra_json_copy(j, each));
    } else {
        copy = keep_value(j, value ? json_deep_copy(value) : NULL);
    }
    return copy;
}

dra_status dra_json_check(const dra_json *j, const char *path, dra_error *err)
{
    if (!j->failed) return DRA_OK;
    if (j->no_text)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "a text for its JSON is not UTF-8");
    return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory for its JSON");
}

dra_status dra_json_dump(dra_json *j, const json_t *value, size_t flags, const char *path,
                         char **out, size_t *bytes, dra_error *err)
{
    *out = NULL;
    if (!value) j->failed = true;
    const size_t length = j->failed ? 0 : json_dumpb(value, NULL, 0, flags);
    char        *text = length ? malloc(length + 1) : NULL;
    if (!text || json_dumpb(value, text, length, flags) != length) {
        free(text);
        j->failed = true;
        return dra_json_check(j, path, err);
    }
    text[length] = 0;
    *out = text;
    if (bytes) *bytes = length;
    return DRA_OK;
}

char *dra_json_words(const json_t *value, size_t flags)
{
    dra_json j = {0};
    char    *text = NULL;
    if (value) dra_json_dump(&j, value, flags, "JSON", &text, NULL, NULL);
    return text;
}
