/* "stacks" of a config: an object for each, which name each other.
 *   {"encoder": {"depth": 2, ...}, "decoder": {"depth": 2, "context": "encoder", ...}}
 * A stack that names its context says its length as max_seq_len, which is `context` elsewhere. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/compose.h"
#include "model/owned.h"

enum { STACKS_MOST = 8 };

bool dra_has_stacks(const dra_model_config *c)
{
    return c->name[0] || c->context_stack || c->prepend_stack;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reading {
    const char    *place;
    const json_t  *stacks;
    dra_stack_read read;

    const dra_memory *const *own;
} reading;

static bool is_name(const char *name)
{
    const size_t n = strlen(name);
    return n > 0 && n < DRA_STACK_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") == n;
}

/* The stack that `key` of an object names; NULL: none. */
static const char *name_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static dra_status read_stack(const reading *r, const char *name, int depth, dra_model_config *out,
                             dra_error *err);

static dra_status read_named(const reading *r, const char *from, const json_t *object,
                             const char *key, int depth, const dra_model_config **out,
                             struct dra_arena *memory, dra_error *err)
{
    const char       *name = name_of(object, key);
    dra_model_config *other;
    if (!name) return DRA_OK;
    if (!json_object_get(r->stacks, name))
        return dra_fail(err, DRA_ERR_NAME, "%.120s: stacks.%s.%s is %.40s, which is no stack",
                        r->place, from, key, name);
    if (depth >= STACKS_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "%.120s: stacks.%s.%s: %.40s reads itself", r->place,
                        from, key, name);
    other = dra_config_add(&(dra_model_config){.own = memory});
    if (!other) return dra_fail(err, DRA_ERR_MEMORY, "%.120s: out of memory", r->place);
    *out = other;
    return read_stack(r, name, depth + 1, other, err);
}

/* The fields of a stack without the stacks it names. */
static json_t *plain_fields(dra_json *j, const json_t *object)
{
    json_t *own = dra_json_share(j, object);
    json_t *length = own ? json_object_get(own, "max_seq_len") : NULL;
    if (!own) return NULL;
    if (name_of(own, "context")) dra_json_delete(own, "context");
    if (name_of(own, "prepend")) dra_json_delete(own, "prepend");
    if (length && !json_object_get(own, "context")) {
        dra_json_set_shared(j, own, "context", length);
        dra_json_delete(own, "max_seq_len");
    }
    return own;
}

static dra_status read_stack(const reading *r, const char *name, int depth, dra_model_config *out,
                             dra_error *err)
{
    const json_t *object = json_object_get(r->stacks, name);
    char          place[200];
    snprintf(place, sizeof place, "%.120s: stacks.%s", r->place, name);
    if (!is_name(name))
        return dra_fail(err, DRA_ERR_NAME,
                        "%.120s: stacks: name is %.40s, expected 1 to %d of a-z, "
                        "0-9 and _",
                        r->place, name, DRA_STACK_NAME - 1);
    if (!json_is_object(object)) return dra_fail(err, DRA_ERR_FORMAT, "%s is no object", place);
    dra_json   j = {0};
    json_t    *own = plain_fields(&j, object);
    dra_status st = dra_json_check(&j, place, err);
    if (st == DRA_OK) st = r->read(place, own, r->own, out, err);
    json_decref(own);
    snprintf(out->name, sizeof out->name, "%s", name);
    if (st == DRA_OK)
        st = read_named(r, name, object, "context", depth, &out->context_stack, out->own, err);
    if (st == DRA_OK)
        st = read_named(r, name, object, "prepend", depth, &out->prepend_stack, out->own, err);
    return st;
}

static bool is_read(const json_t *stacks, const char *name)
{
    const char *key;
    json_t     *other;
    json_object_foreach((json_t *)(uintptr_t)stacks, key, other)
    {
        const char *context = name_of(other, "context"), *prepend = name_of(other, "prepend");
        if ((context && strcmp(context, name) == 0) || (prepend && strcmp(prepend, name) == 0))
            return true;
    }
    return false;
}

dra_status dra_stacks_read(const char *place, const json_t *stacks, dra_stack_read read,
                           const dra_memory *const *own, dra_model_config *out, dra_error *err)
{
    const reading r = {place, stacks, read, own};
    const char   *key, *last = NULL;
    json_t       *other;
    int           n = 0;
    if (!json_is_object(stacks) || json_object_size(stacks) > STACKS_MOST)
        return dra_fail(err, DRA_ERR_FORMAT, "%.120s: stacks: expected an object of 1 to %d stacks",
                        place, STACKS_MOST);
    json_object_foreach((json_t *)(uintptr_t)stacks, key, other)
    {
        if (is_read(stacks, key)) continue;
        last = key;
        n++;
    }
    if (n != 1)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%.120s: stacks: %d are read by no other, expected one: the model", place,
                        n);
    return read_stack(&r, last, 0, out, err);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void add_stack(dra_json *j, json_t *to, const dra_model_config *c, const char *name,
                      dra_stack_write write)
{
    const dra_model_config *context = c->context_stack, *prepend = c->prepend_stack;
    const char             *first = prepend && prepend->name[0] ? prepend->name : "prepend";
    const char             *second = context && context->name[0] ? context->name : "encoder";
    if (prepend) add_stack(j, to, prepend, first, write);
    if (context) add_stack(j, to, context, second, write);
    json_t *own = write(j, c), *length = context ? json_object_get(own, "context") : NULL;
    if (length) dra_json_set_shared(j, own, "max_seq_len", length);
    if (context) dra_json_set(j, own, "context", dra_json_text(j, second));
    if (prepend) dra_json_set(j, own, "prepend", dra_json_text(j, first));
    dra_json_set(j, to, name, own);
}

json_t *dra_stacks_write(dra_json *j, const dra_model_config *c, dra_stack_write write)
{
    json_t *stacks = dra_json_object(j), *out = dra_json_object(j);
    add_stack(j, stacks, c, c->name[0] ? c->name : "decoder", write);
    dra_json_set(j, out, "stacks", stacks);
    return out;
}
