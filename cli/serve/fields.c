/* Fields of a request's body. */
#include "fields.h"

#include "verbs/generate/prompt_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool serve_is_word(const json_t *x)
{
    return json_is_string(x) && strlen(json_string_value(x)) == json_string_length(x);
}

static bool read_number(const serve_field *f, json_t *x, void *to, serve_error *e)
{
    const bool   whole = f->kind == SERVE_F_INT;
    const double number = json_number_value(x);
    if (!json_is_number(x) || (whole && number != floor(number)))
        return serve_wrong(e, 400, f->name, "%s: expected %s, found %s", f->name,
                           whole ? "a whole number" : "a number",
                           json_is_number(x) ? "a fraction" : serve_kind_name(x));
    if (!(number >= f->min && number <= f->max))
        return serve_wrong(e, 400, f->name, "%s: expected %g to %g, found %g", f->name, f->min,
                           f->max, number);
    if (whole)
        *(int64_t *)to = (int64_t)number;
    else
        *(double *)to = number;
    return true;
}

static bool asks_nothing(const serve_field *f, const json_t *x)
{
    bool    same = false;
    size_t  i;
    char    why[160];
    json_t *y, *idle = f->idle ? serve_json_read(f->idle, strlen(f->idle), why) : NULL;
    json_array_foreach(idle, i, y) same |= json_equal(x, y) != 0;
    json_decref(idle);
    return same;
}

static bool read_field(const serve_field *f, json_t *x, void *out, serve_error *e)
{
    void *to = (char *)out + f->offset;
    switch (f->kind) {
    case SERVE_F_BOOL:
        if (!json_is_boolean(x)) break;
        *(bool *)to = json_is_true(x);
        return true;
    case SERVE_F_INT:
    case SERVE_F_REAL: return read_number(f, x, to, e);
    case SERVE_F_WORD:
        if (!serve_is_word(x)) break;
        *(const char **)to = json_string_value(x);
        return true;
    case SERVE_F_ANY: *(json_t **)to = x; return true;
    case SERVE_F_LABEL:
        if (json_is_string(x) || json_is_object(x)) return true;
        break;
    case SERVE_F_REFUSED:
        return asks_nothing(f, x) || serve_wrong(e, 400, f->name, "%s: %s", f->name, f->why);
    }
    return serve_wrong(e, 400, f->name, "%s: expected %s, found %s", f->name,
                       f->kind == SERVE_F_BOOL ? "a bool" : "a text", serve_kind_name(x));
}

/* The nearest field that is taken, if one is near. */
static bool fail_unknown(const serve_field *table, size_t n, const char *key, serve_error *e)
{
    dra_guess guess = {.typed = key};
    for (size_t i = 0; i < n; i++)
        if (table[i].kind != SERVE_F_REFUSED) dra_guess_try(&guess, table[i].name);
    return serve_wrong(e, 400, key, "%.60s: this server has no such field%s%s%s", key,
                       guess.best ? "; did you mean " : "", guess.best ? guess.best : "",
                       guess.best ? "?" : "");
}

bool serve_fields_read(const serve_field *table, size_t n, json_t *object, void *out,
                       serve_error *e)
{
    const char *key;
    json_t     *x;
    json_object_foreach(object, key, x)
    {
        size_t i = 0;
        if (json_is_null(x)) continue;
        while (i < n && strcmp(table[i].name, key) != 0) i++;
        if (i == n) return fail_unknown(table, n, key, e);
        if (!read_field(&table[i], x, out, e)) return false;
    }
    return true;
}

/* An estimate: ids of a text, and values, which commas separate. */
size_t serve_body_cost(const char *body, size_t bytes)
{
    enum { TEXT = 8, VALUE = 64 };
    size_t values = 1;
    for (const char *at = body;
         values < SERVE_JSON_VALUES && (at = memchr(at, ',', bytes - (size_t)(at - body))); at++)
        values++;
    return bytes * TEXT + values * VALUE;
}

json_t *serve_body_read(const char *body, size_t bytes, serve_error *e)
{
    char    why[160];
    json_t *x = serve_json_read(body, bytes, why);
    if (!x && !why[0])
        serve_wrong(e, 503, NULL, "out of memory");
    else if (!x)
        serve_wrong(e, 400, NULL, "the body is not JSON: %s", why);
    if (!x || json_is_object(x)) return x;
    serve_wrong(e, 400, NULL, "the body: expected an object, found %s", serve_kind_name(x));
    json_decref(x);
    return NULL;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

bool serve_ids_add(dra_ids *ids, int32_t id)
{
    if (ids->n == ids->room) {
        const size_t room = ids->room ? 2 * ids->room : 64;
        int32_t     *data = realloc(ids->data, room * sizeof *data);
        if (!data) return false;
        ids->data = data;
        ids->room = room;
    }
    ids->data[ids->n++] = id;
    return true;
}

bool serve_ids_read(json_t *list, const char *param, dra_ids *out, serve_error *e)
{
    size_t  i;
    json_t *x;
    json_array_foreach(list, i, x)
    {
        const json_int_t id = json_is_integer(x) ? json_integer_value(x) : -1;
        if (id < 0 || id > INT32_MAX)
            return serve_wrong(e, 400, param, "%s: expected ids of tokens, found %s", param,
                               json_is_number(x) ? "another number" : serve_kind_name(x));
        if (!serve_ids_add(out, (int32_t)id)) return serve_wrong(e, 503, NULL, "out of memory");
    }
    return true;
}

static bool read_input(const serve_model *m, json_t *x, const char *param, bool begins,
                       dra_ids *out, serve_error *e)
{
    dra_error err = {0};
    if (json_is_array(x)) return serve_ids_read(x, param, out, e);
    if (!json_is_string(x))
        return serve_wrong(e, 400, param, "%s: expected a text or ids, found %s", param,
                           serve_kind_name(x));
    if (!m->m.tokenizer)
        return serve_wrong(e, 400, param, "%s: the model has no tokenizer; expected ids", param);
    const char      *text = json_string_value(x);
    const size_t     bytes = json_string_length(x);
    const dra_status st = begins ? cli_prompt_encode(m->m.tokenizer, text, bytes, out, &err)
                                 : dra_encode(m->m.tokenizer, text, bytes, out, &err);
    return st == DRA_OK || serve_wrong_status(e, &err);
}

bool serve_inputs_read(const serve_model *m, json_t *x, const char *param, bool begins, size_t *n,
                       dra_ids **out, serve_error *e)
{
    const json_t *first = json_array_get(x, 0); /* NULL of what is no list */
    const bool    many = first && !json_is_number(first);
    if (json_is_array(x) && !first)
        return serve_wrong(e, 400, param, "%s: expected one or more", param);
    *n = many ? json_array_size(x) : 1;
    *out = calloc(*n, sizeof **out);
    if (!*out) return serve_wrong(e, 503, NULL, "out of memory");
    if (!many) return read_input(m, x, param, begins, *out, e);
    for (size_t i = 0; i < *n; i++)
        if (!read_input(m, json_array_get(x, i), param, begins, *out + i, e)) return false;
    return true;
}

void serve_inputs_free(size_t n, dra_ids *ids)
{
    for (size_t i = 0; ids && i < n; i++) dra_ids_free(&ids[i]);
    free(ids);
}
