/* Fields of a request's body. */
#include "fields.h"

#include "prompt_record.h"

#include <stdlib.h>
#include <string.h>

static bool read_number(const serve_field *f, const serve_json *x, void *to, serve_error *e)
{
    const bool whole = f->kind == SERVE_F_INT;
    if (x->kind != SERVE_NUMBER || (whole && x->number != (double)(int64_t)x->number))
        return serve_wrong(e, 400, f->name, "%s: expected %s, found %s", f->name,
                           whole ? "a whole number" : "a number",
                           x->kind == SERVE_NUMBER ? "a fraction" : serve_kind_name(x));
    if (!(x->number >= f->min && x->number <= f->max))
        return serve_wrong(e, 400, f->name, "%s: expected %g to %g, found %g", f->name, f->min,
                           f->max, x->number);
    if (whole)
        *(int64_t *)to = (int64_t)x->number;
    else
        *(double *)to = x->number;
    return true;
}

static bool read_field(const serve_field *f, const serve_json *x, void *out, serve_error *e)
{
    void *to = (char *)out + f->offset;
    switch (f->kind) {
    case SERVE_F_BOOL:
        if (x->kind != SERVE_BOOL) break;
        *(bool *)to = x->truth;
        return true;
    case SERVE_F_INT:
    case SERVE_F_REAL: return read_number(f, x, to, e);
    case SERVE_F_WORD:
        if (x->kind != SERVE_TEXT || strlen(x->text) != x->bytes) break;
        *(const char **)to = x->text;
        return true;
    case SERVE_F_ANY: *(const serve_json **)to = x; return true;
    case SERVE_F_REFUSED: return serve_wrong(e, 400, f->name, "%s: %s", f->name, f->why);
    }
    return serve_wrong(e, 400, f->name, "%s: expected %s, found %s", f->name,
                       f->kind == SERVE_F_BOOL ? "a bool" : "a text", serve_kind_name(x));
}

bool serve_fields_read(const serve_field *table, size_t n, const serve_json *object, void *out,
                       serve_error *e)
{
    for (const serve_json *x = object->first; x; x = x->next) {
        size_t i = 0;
        if (x->kind == SERVE_NULL) continue;
        while (i < n && strcmp(table[i].name, x->key) != 0) i++;
        if (i == n)
            return serve_wrong(e, 400, x->key, "%.60s: this server has no such field", x->key);
        if (!read_field(&table[i], x, out, e)) return false;
    }
    return true;
}

const serve_json *serve_body(const serve_request *r, serve_json_file **file, serve_error *e)
{
    char              why[160];
    const serve_json *x = serve_json_read(r->body, r->bytes, file, why);
    if (!x && !why[0])
        serve_wrong(e, 503, NULL, "out of memory");
    else if (!x)
        serve_wrong(e, 400, NULL, "the body is no JSON: %s", why);
    if (!x || x->kind == SERVE_OBJECT) return x;
    serve_wrong(e, 400, NULL, "the body: expected an object, found %s", serve_kind_name(x));
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

bool serve_ids_read(const serve_json *list, const char *param, dra_ids *out, serve_error *e)
{
    for (const serve_json *x = list->first; x; x = x->next) {
        if (x->kind != SERVE_NUMBER || !x->whole || x->number < 0 || x->number > INT32_MAX)
            return serve_wrong(e, 400, param, "%s: expected ids of tokens, found %s", param,
                               x->kind == SERVE_NUMBER ? "another number" : serve_kind_name(x));
        if (!serve_ids_add(out, (int32_t)x->number))
            return serve_wrong(e, 503, NULL, "out of memory");
    }
    return true;
}

static bool read_input(const serve_model *m, const serve_json *x, const char *param, bool begins,
                       dra_ids *out, serve_error *e)
{
    dra_error err = {0};
    if (x->kind == SERVE_LIST) return serve_ids_read(x, param, out, e);
    if (x->kind != SERVE_TEXT)
        return serve_wrong(e, 400, param, "%s: expected a text or ids, found %s", param,
                           serve_kind_name(x));
    if (!m->m.tokenizer)
        return serve_wrong(e, 400, param, "%s: the model has no tokenizer; expected ids", param);
    const dra_status st = begins ? cli_prompt_encode(m->m.tokenizer, x->text, x->bytes, out, &err)
                                 : dra_encode(m->m.tokenizer, x->text, x->bytes, out, &err);
    return st == DRA_OK || serve_wrong_status(e, &err);
}

bool serve_inputs_read(const serve_model *m, const serve_json *x, const char *param, bool begins,
                       size_t *n, dra_ids **out, serve_error *e)
{
    const serve_json *first = x->first;
    const bool        list = x->kind == SERVE_LIST;
    const bool        many = list && first && first->kind != SERVE_NUMBER;
    if (list && !first) return serve_wrong(e, 400, param, "%s: expected one or more", param);
    *n = many ? x->n : 1;
    *out = calloc(*n, sizeof **out);
    if (!*out) return serve_wrong(e, 503, NULL, "out of memory");
    if (!many) return read_input(m, x, param, begins, *out, e);
    size_t i = 0;
    for (const serve_json *y = first; y; y = y->next, i++)
        if (!read_input(m, y, param, begins, *out + i, e)) return false;
    return true;
}

void serve_inputs_free(size_t n, dra_ids *ids)
{
    for (size_t i = 0; ids && i < n; i++) dra_ids_free(&ids[i]);
    free(ids);
}
