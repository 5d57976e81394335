#include "dialect.h"

#include <string.h>

static bool no_memory(serve_error *e) { return serve_wrong(e, 503, NULL, "out of memory"); }

/* The value is taken, and may be NULL where there was no memory for it. */
bool serve_dialect_set(json_t *object, const char *name, json_t *value, serve_error *e)
{
    return json_object_set_new(object, name, value) == 0 || no_memory(e);
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool add_text(json_t *parts, const json_t *part, const char *const *types, const char *param,
                     serve_error *e)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    json_t     *text = json_object_get(part, "text");
    bool        known = false;
    for (size_t i = 0; type && types[i]; i++) known |= strcmp(type, types[i]) == 0;
    if (!known || !json_is_string(text))
        return serve_wrong(e, 400, param, "%s: this server reads text only, parts of type %s",
                           param, types[0]);
    json_t *copy = json_pack("{s:s, s:O}", "type", "text", "text", text);
    return json_array_append_new(parts, copy) == 0 || no_memory(e);
}

bool serve_dialect_say(json_t *list, const char *role, const json_t *content,
                       const char *const *types, const char *param, serve_error *e)
{
    size_t  i;
    json_t *part, *parts = json_is_array(content) ? json_array() : json_incref((json_t *)content);
    bool    well = true;
    if (!json_is_array(content) && !json_is_string(content))
        well = serve_wrong(e, 400, param, "%s: expected a text as content", param);
    json_array_foreach(json_is_array(content) ? content : NULL, i, part)
    {
        well = well && add_text(parts, part, types, param, e);
    }
    if (!well) {
        json_decref(parts);
        return false;
    }
    return json_array_append_new(list, json_pack("{s:s, s:o}", "role", role, "content", parts)) ==
               0 ||
           no_memory(e);
}

static bool asks_for_nothing(const char *idle, json_t *x)
{
    char    why[160];
    json_t *list = idle ? serve_json_read(idle, strlen(idle), why) : NULL, *y;
    size_t  i;
    bool    found = false;
    json_array_foreach(list, i, y) found |= json_equal(x, y);
    json_decref(list);
    return found;
}

static bool take_field(const serve_dialect *d, const char *key, json_t *x, json_t *chat,
                       serve_error *e)
{
    const serve_word *w = d->words, *end = w + d->n_words;
    while (w < end && strcmp(w->theirs, key) != 0) w++;
    if (w == end) return serve_wrong(e, 400, key, "%.60s: this server has no such field", key);
    if (w->ours) return serve_dialect_set(chat, w->ours, json_incref(x), e);
    if (!w->idle || asks_for_nothing(w->idle, x)) return true;
    return serve_wrong(e, 400, key, "%.60s: this server does not do that", key);
}

json_t *serve_dialect_read(const serve_dialect *d, const json_t *body, serve_error *e)
{
    const char *key;
    json_t     *x, *chat = json_object();
    bool        well = chat || no_memory(e);
    json_object_foreach((json_t *)body, key, x)
    {
        if (well && !json_is_null(x)) well = take_field(d, key, x, chat, e);
    }
    if (well && d->read(body, chat, e)) return chat;
    json_decref(chat);
    return NULL;
}

void serve_dialect_blame(const serve_dialect *d, serve_error *e)
{
    for (size_t i = 0; d && i < d->n_words; i++)
        if (d->words[i].ours && strcmp(d->words[i].ours, e->param) == 0)
            snprintf(e->param, sizeof e->param, "%s", d->words[i].theirs);
}

/* ---- answers --------------------------------------------------------------------------------- */

void serve_dialect_event(serve_completion *c, const char *name, serve_text *data)
{
    char      line[80];
    const int n = snprintf(line, sizeof line, "event: %s\n", name);
    http_stream_put(c->call.conn, line, (size_t)n);
    serve_call_say(&c->call, data);
    serve_text_free(data);
}
