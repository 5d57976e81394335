#include "dialect.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(serve_error *e) { return serve_wrong(e, 503, NULL, "out of memory"); }

/* ---- requests -------------------------------------------------------------------------------- */

static void put_words(const json_t *x, serve_text *out)
{
    char *words = serve_json_words(x);
    serve_puts(out, words ? words : "");
    out->failed |= !words;
    free(words);
}

void serve_dialect_put(serve_text *object, const char *name, const json_t *x)
{
    serve_puts(object, object->n > 1 ? ", " : "");
    serve_json_word(object, name);
    serve_puts(object, ": ");
    if (x) put_words(x, object);
}

static bool put_part(const json_t *part, bool first, const char *const *types, const char *param,
                     serve_text *list, serve_error *e)
{
    const char   *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    bool          known = false;
    for (size_t i = 0; type && types[i]; i++) known |= strcmp(type, types[i]) == 0;
    if (!known || !json_is_string(text))
        return serve_wrong(e, 400, param, "%s: this server reads text only, parts of type %s",
                           param, types[0]);
    serve_puts(list,
               first ? "{\"type\": \"text\", \"text\": " : ", {\"type\": \"text\", \"text\": ");
    put_words(text, list);
    serve_puts(list, "}");
    return true;
}

bool serve_dialect_say(serve_text *list, const char *role, const json_t *content,
                       const char *const *types, const char *param, serve_error *e)
{
    size_t        i;
    const json_t *part;
    const bool    many = json_is_array(content);
    if (!many && !json_is_string(content))
        return serve_wrong(e, 400, param, "%s: expected a text as content", param);
    serve_puts(list, list->n ? ", {\"role\": " : "{\"role\": ");
    serve_json_word(list, role);
    serve_puts(list, many ? ", \"content\": [" : ", \"content\": ");
    if (!many) put_words(content, list);
    json_array_foreach(many ? content : NULL, i, part)
    {
        if (!put_part(part, i == 0, types, param, list, e)) return false;
    }
    serve_puts(list, many ? "]}" : "}");
    return true;
}

void serve_dialect_end(serve_text *chat, serve_text *list)
{
    serve_dialect_put(chat, "messages", NULL);
    serve_puts(chat, "[");
    serve_put(chat, list->data, list->n);
    serve_puts(chat, "]");
    chat->failed |= list->failed;
    serve_text_free(list);
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

static bool take_field(const serve_dialect *d, const char *key, json_t *x, serve_text *chat,
                       serve_error *e)
{
    const serve_word *w = d->words, *end = w + d->n_words;
    while (w < end && strcmp(w->theirs, key) != 0) w++;
    if (w == end) return serve_wrong(e, 400, key, "%.60s: this server has no such field", key);
    if (w->ours) serve_dialect_put(chat, w->ours, x);
    if (w->ours || !w->idle || asks_for_nothing(w->idle, x)) return true;
    return serve_wrong(e, 400, key, "%.60s: this server does not do that", key);
}

json_t *serve_dialect_read(const serve_dialect *d, json_t *body, serve_error *e)
{
    const char *key;
    json_t     *x, *chat = NULL;
    char        why[160];
    serve_text  t = {0};
    bool        well = true;
    serve_puts(&t, "{");
    json_object_foreach(body, key, x)
    {
        if (well && !json_is_null(x)) well = take_field(d, key, x, &t, e);
    }
    well = well && d->read(body, &t, e);
    serve_puts(&t, "}");
    if (well && !t.failed) chat = serve_json_read(t.data, t.n, why);
    if (well && !chat) no_memory(e);
    serve_text_free(&t);
    return chat;
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
