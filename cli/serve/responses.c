/* POST /v1/responses: text, whole and as events. Nothing is stored: what was said is sent again. */
#include "dialect.h"

#include <string.h>

static const serve_word words[] = {
    {"model", "model", NULL},
    {"input", NULL, NULL},
    {"instructions", NULL, NULL},
    {"text", NULL, NULL},
    {"max_output_tokens", "max_tokens", NULL},
    {"temperature", "temperature", NULL},
    {"top_p", "top_p", NULL},
    {"stream", "stream", NULL},
    {"user", "user", NULL},
    {"metadata", "metadata", NULL},
    {"safety_identifier", "safety_identifier", NULL},
    {"prompt_cache_key", "prompt_cache_key", NULL},
    {"store", NULL, "[false]"},
    {"background", NULL, "[false]"},
    {"truncation", NULL, "[\"disabled\"]"},
    {"service_tier", NULL, "[\"auto\", \"default\"]"},
    {"tools", NULL, "[[]]"},
    {"tool_choice", NULL, "[\"auto\", \"none\"]"},
    {"parallel_tool_calls", NULL, "[true, false]"},
    {"include", NULL, "[[]]"},
    {"reasoning", NULL, "[{}]"},
    {"top_logprobs", NULL, "[0]"},
};

/* ---- requests -------------------------------------------------------------------------------- */

/* A message, as it was sent or as an answer had it. */
static bool add_item(serve_text *list, json_t *item, serve_error *e)
{
    static const char *const types[] = {"input_text", "output_text", NULL};
    static const char *const known[] = {"type", "role", "content", "id", "status"};
    const char              *type = json_string_value(json_object_get(item, "type")), *key;
    const char              *role = json_string_value(json_object_get(item, "role"));
    json_t                  *x;
    if (!json_is_object(item) || !role || (type && strcmp(type, "message") != 0))
        return serve_wrong(e, 400, "input", "input: expected messages with a role, found %.40s",
                           type ? type : "another item");
    json_object_foreach(item, key, x)
    {
        bool found = json_is_null(x);
        for (size_t i = 0; i < COUNT(known); i++) found |= strcmp(known[i], key) == 0;
        if (!found) return serve_wrong(e, 400, "input", "input: messages have no %.60s here", key);
    }
    return serve_dialect_say(list, role, json_object_get(item, "content"), types, "input", e);
}

/* text.format is what chats call response_format, but flat. */
static void put_format(json_t *format, serve_text *chat)
{
    const char *type = json_string_value(json_object_get(format, "type")), *key;
    const bool  schema = type && strcmp(type, "json_schema") == 0;
    json_t     *x;
    serve_text  inner = {0};
    if (!schema) {
        serve_dialect_put(chat, "response_format", format);
        return;
    }
    serve_puts(&inner, "{");
    json_object_foreach(format, key, x)
    {
        if (strcmp(key, "type") != 0) serve_dialect_put(&inner, key, x);
    }
    serve_dialect_put(chat, "response_format", NULL);
    serve_puts(chat, "{\"type\": \"json_schema\", \"json_schema\": ");
    serve_put(chat, inner.data, inner.n);
    serve_puts(chat, "}}");
    chat->failed |= inner.failed;
    serve_text_free(&inner);
}

static bool add_items(json_t *input, serve_text *list, serve_error *e)
{
    size_t  i;
    json_t *item;
    if (json_is_string(input)) return serve_dialect_say(list, "user", input, NULL, "input", e);
    if (!json_array_size(input))
        return serve_wrong(e, 400, "input", "input: expected a text or messages");
    json_array_foreach(input, i, item)
    {
        if (!add_item(list, item, e)) return false;
    }
    return true;
}

/* `text` is how the answer is written: its format alone. */
static bool check_text(json_t *text, serve_error *e)
{
    const char *key;
    json_t     *x;
    if (text && !json_is_null(text) && !json_is_object(text))
        return serve_wrong(e, 400, "text", "text: expected an object with a format");
    json_object_foreach(text, key, x)
    {
        if (strcmp(key, "format") != 0 && !json_is_null(x))
            return serve_wrong(e, 400, "text", "text: %.60s is not honoured here", key);
    }
    return true;
}

static bool read_input(json_t *from, serve_text *chat, serve_error *e)
{
    json_t    *format = json_object_get(json_object_get(from, "text"), "format");
    json_t    *first = json_object_get(from, "instructions");
    serve_text list = {0};
    bool       well = true;
    if (first && !json_is_null(first))
        well = json_is_string(first)
                   ? serve_dialect_say(&list, "system", first, NULL, "instructions", e)
                   : serve_wrong(e, 400, "instructions", "instructions: expected a text");
    well = well && check_text(json_object_get(from, "text"), e) &&
           add_items(json_object_get(from, "input"), &list, e);
    serve_dialect_end(chat, &list);
    if (format && !json_is_null(format)) put_format(format, chat);
    return well;
}

/* ---- answers --------------------------------------------------------------------------------- */

static const char *status_of(const serve_completion *c, bool done)
{
    return !done                                    ? "in_progress"
           : strcmp(c->choices[0].finish, "length") ? "completed"
                                                    : "incomplete";
}

static void put_part(const serve_text *text, serve_text *out)
{
    serve_puts(out,
               "{\"type\": \"output_text\", \"annotations\": [], \"logprobs\": [], \"text\": ");
    serve_json_text(out, text->data, text->n);
    serve_puts(out, "}");
}

/* text NULL: it has no part yet. */
static void put_item(const serve_completion *c, const serve_text *text, bool done, serve_text *out)
{
    serve_printf(out,
                 "{\"type\": \"message\", \"id\": \"msg-%s\", \"status\": \"%s\", "
                 "\"role\": \"assistant\", \"content\": [",
                 c->id, status_of(c, done));
    if (text) put_part(text, out);
    serve_puts(out, "]}");
}

static void put_usage(const serve_completion *c, serve_text *out)
{
    const serve_usage u = serve_usage_of(c);
    serve_printf(out,
                 "{\"input_tokens\": %lld, \"input_tokens_details\": {\"cached_tokens\": %lld}, "
                 "\"output_tokens\": %lld, \"output_tokens_details\": {\"reasoning_tokens\": 0}, "
                 "\"total_tokens\": %lld}",
                 (long long)u.prompt, (long long)u.cached, (long long)u.written,
                 (long long)(u.prompt + u.written));
}

static void put_response(const serve_completion *c, const serve_text *text, bool done,
                         serve_text *out)
{
    const char *status = status_of(c, done);
    serve_printf(out,
                 "{\"id\": \"%s\", \"object\": \"response\", \"created_at\": %lld, "
                 "\"status\": \"%s\", \"error\": null, \"incomplete_details\": %s, \"model\": ",
                 c->id, (long long)c->created, status,
                 strcmp(status, "incomplete") ? "null" : "{\"reason\": \"max_output_tokens\"}");
    serve_json_word(out, c->model->name);
    serve_puts(out, ", \"output\": [");
    if (done) put_item(c, text, done, out);
    serve_puts(out,
               "], \"instructions\": null, \"metadata\": {}, \"parallel_tool_calls\": false, "
               "\"tool_choice\": \"none\", \"tools\": [], \"store\": false, \"temperature\": ");
    serve_json_real(out, c->ask->sampler.temperature);
    serve_puts(out, ", \"top_p\": ");
    serve_json_real(out, c->ask->sampler.top_p);
    serve_puts(out, ", \"usage\": ");
    if (done)
        put_usage(c, out);
    else
        serve_puts(out, "null");
    serve_puts(out, "}");
    out->failed |= text && text->failed;
}

static void put_whole(serve_completion *c, serve_text *out)
{
    put_response(c, &c->choices[0].text, true, out);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void begin_event(serve_completion *c, const char *name, serve_text *t)
{
    serve_printf(t, "{\"type\": \"%s\", \"sequence_number\": %lld", name, (long long)c->events++);
}

static void begin_item_event(serve_completion *c, const char *name, bool part, serve_text *t)
{
    begin_event(c, name, t);
    serve_puts(t, ", \"output_index\": 0");
    if (part) serve_printf(t, ", \"item_id\": \"msg-%s\", \"content_index\": 0", c->id);
}

static void send_event(serve_completion *c, const char *name, serve_text *t)
{
    serve_puts(t, "}");
    serve_dialect_event(c, name, t);
}

static void send_response(serve_completion *c, const char *name, const serve_text *text, bool done)
{
    serve_text t = {0};
    begin_event(c, name, &t);
    serve_puts(&t, ", \"response\": ");
    put_response(c, text, done, &t);
    send_event(c, name, &t);
}

static void send_item(serve_completion *c, const char *name, const serve_text *text, bool done)
{
    serve_text t = {0};
    begin_item_event(c, name, false, &t);
    serve_puts(&t, ", \"item\": ");
    put_item(c, text, done, &t);
    send_event(c, name, &t);
}

static void send_part(serve_completion *c, const char *name, const serve_text *text)
{
    serve_text t = {0};
    begin_item_event(c, name, true, &t);
    serve_puts(&t, ", \"part\": ");
    put_part(text, &t);
    send_event(c, name, &t);
}

/* `name`: of the text, in the event, too. */
static void send_text(serve_completion *c, const char *name, const char *field,
                      const serve_text *text)
{
    serve_text t = {0};
    begin_item_event(c, name, true, &t);
    serve_printf(&t, ", \"logprobs\": [], \"%s\": ", field);
    serve_json_text(&t, text->data, text->n);
    t.failed |= text->failed;
    send_event(c, name, &t);
}

static void send_begin(serve_completion *c)
{
    const serve_text none = {0};
    send_response(c, "response.created", NULL, false);
    send_response(c, "response.in_progress", NULL, false);
    send_item(c, "response.output_item.added", NULL, false);
    send_part(c, "response.content_part.added", &none);
}

static void send_delta(serve_completion *c)
{
    const serve_choice *x = &c->choices[0];
    const serve_text    more = {x->text.data + x->told, x->text.n - x->told, 0, x->text.failed};
    if (more.n) send_text(c, "response.output_text.delta", "delta", &more);
}

static void send_last(serve_completion *c)
{
    const serve_text *text = &c->choices[0].text;
    const bool        whole = strcmp(status_of(c, true), "completed") == 0;
    send_text(c, "response.output_text.done", "text", text);
    send_part(c, "response.content_part.done", text);
    send_item(c, "response.output_item.done", text, true);
    send_response(c, whole ? "response.completed" : "response.incomplete", text, true);
}

const serve_dialect serve_responses_dialect = {.prefix = "resp",
                                               .n_words = COUNT(words),
                                               .words = words,
                                               .read = read_input,
                                               .begin = send_begin,
                                               .part = send_delta,
                                               .last = send_last,
                                               .whole = put_whole};
