/* POST /v1/messages as Anthropic has it: text, whole and as events. */
#include "dialect.h"

#include <string.h>

static const serve_word words[] = {
    {"model", "model", NULL},
    {"messages", NULL, NULL},
    {"system", NULL, NULL},
    {"max_tokens", "max_tokens", NULL},
    {"stop_sequences", "stop", NULL},
    {"temperature", "temperature", NULL},
    {"top_p", "top_p", NULL},
    {"top_k", "top_k", NULL},
    {"stream", "stream", NULL},
    {"metadata", "metadata", NULL},
    {"service_tier", NULL, "[\"auto\", \"standard_only\"]"},
    {"tools", NULL, "[[]]"},
    {"tool_choice", NULL, "[{\"type\": \"auto\"}, {\"type\": \"none\"}]"},
    {"thinking", NULL, "[{\"type\": \"disabled\"}]"},
};

/* ---- requests -------------------------------------------------------------------------------- */

static bool add_message(serve_text *list, const json_t *x, serve_error *e)
{
    static const char *const types[] = {"text", NULL};
    const char              *role = json_string_value(json_object_get(x, "role"));
    const bool known = role && (strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0);
    if (!known || json_object_size(x) != 2)
        return serve_wrong(e, 400, "messages",
                           "messages: expected a role, user or assistant, and content");
    return serve_dialect_say(list, role, json_object_get(x, "content"), types, "messages", e);
}

static bool add_messages(const json_t *messages, serve_text *list, serve_error *e)
{
    size_t        i;
    const json_t *x;
    if (!json_array_size(messages))
        return serve_wrong(e, 400, "messages", "messages: expected a list of messages");
    json_array_foreach(messages, i, x)
    {
        if (!add_message(list, x, e)) return false;
    }
    return true;
}

static bool read_messages(json_t *from, serve_text *chat, serve_error *e)
{
    static const char *const types[] = {"text", NULL};
    const json_t            *messages = json_object_get(from, "messages");
    const json_t            *first = json_object_get(from, "system");
    const json_t            *last = json_array_get(messages, json_array_size(messages) - 1);
    const char              *role = json_string_value(json_object_get(last, "role"));
    serve_text               list = {0};
    bool                     well = true;
    if (!json_is_integer(json_object_get(from, "max_tokens")))
        well = serve_wrong(e, 400, "max_tokens", "max_tokens: expected a whole number");
    if (well && first && !json_is_null(first))
        well = serve_dialect_say(&list, "system", first, types, "system", e);
    well = well && add_messages(messages, &list, e);
    serve_dialect_end(chat, &list);
    if (role && strcmp(role, "assistant") == 0) { /* the beginning of the answer */
        serve_dialect_put(chat, "continue_final_message", NULL);
        serve_puts(chat, "true");
    }
    return well;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Which of several stop strings it was is not known, nor whether it was the template's own. */
static void put_stop(const serve_completion *c, serve_text *out)
{
    const serve_choice *x = &c->choices[0];
    const serve_ask    *a = c->ask;
    const bool          own = x->stopped && a->n_stop > 0 && !c->model->ending;
    serve_printf(out, "\"stop_reason\": \"%s\", \"stop_sequence\": ",
                 own                                ? "stop_sequence"
                 : strcmp(x->finish, "length") == 0 ? "max_tokens"
                                                    : "end_turn");
    serve_json_word(out, own && a->n_stop == 1 ? a->stops[0] : NULL);
}

static void put_usage(const serve_completion *c, serve_text *out)
{
    const serve_usage u = serve_usage_of(c);
    serve_printf(out,
                 "{\"input_tokens\": %lld, \"cache_creation_input_tokens\": 0, "
                 "\"cache_read_input_tokens\": %lld, \"output_tokens\": %lld}",
                 (long long)(u.prompt - u.cached), (long long)u.cached, (long long)u.written);
}

static void put_head(const serve_completion *c, serve_text *out)
{
    serve_printf(
        out, "{\"id\": \"%s\", \"type\": \"message\", \"role\": \"assistant\", \"model\": ", c->id);
    serve_json_word(out, c->model->name);
    serve_puts(out, ", \"content\": [");
}

static void put_whole(serve_completion *c, serve_text *out)
{
    const serve_text *text = &c->choices[0].text;
    put_head(c, out);
    serve_puts(out, "{\"type\": \"text\", \"text\": ");
    serve_json_text(out, text->data, text->n);
    serve_puts(out, "}], ");
    put_stop(c, out);
    serve_puts(out, ", \"usage\": ");
    put_usage(c, out);
    serve_puts(out, "}");
    out->failed |= text->failed;
}

static void send_begin(serve_completion *c)
{
    serve_text t = {0};
    serve_puts(&t, "{\"type\": \"message_start\", \"message\": ");
    put_head(c, &t);
    serve_printf(&t,
                 "], \"stop_reason\": null, \"stop_sequence\": null, "
                 "\"usage\": {\"input_tokens\": %zu, \"output_tokens\": 0}}}",
                 c->prompts[0].n);
    serve_dialect_event(c, "message_start", &t);
    serve_puts(&t, "{\"type\": \"content_block_start\", \"index\": 0, "
                   "\"content_block\": {\"type\": \"text\", \"text\": \"\"}}");
    serve_dialect_event(c, "content_block_start", &t);
}

static void send_delta(serve_completion *c)
{
    const serve_choice *x = &c->choices[0];
    serve_text          t = {0};
    if (x->told == x->text.n) return;
    serve_puts(&t, "{\"type\": \"content_block_delta\", \"index\": 0, "
                   "\"delta\": {\"type\": \"text_delta\", \"text\": ");
    serve_json_text(&t, x->text.data + x->told, x->text.n - x->told);
    serve_puts(&t, "}}");
    t.failed |= x->text.failed;
    serve_dialect_event(c, "content_block_delta", &t);
}

static void send_last(serve_completion *c)
{
    serve_text t = {0};
    serve_puts(&t, "{\"type\": \"content_block_stop\", \"index\": 0}");
    serve_dialect_event(c, "content_block_stop", &t);
    serve_puts(&t, "{\"type\": \"message_delta\", \"delta\": {");
    put_stop(c, &t);
    serve_puts(&t, "}, \"usage\": ");
    put_usage(c, &t);
    serve_puts(&t, "}");
    serve_dialect_event(c, "message_delta", &t);
    serve_puts(&t, "{\"type\": \"message_stop\"}");
    serve_dialect_event(c, "message_stop", &t);
}

const serve_dialect serve_messages_dialect = {.prefix = "msg",
                                              .failed = "event: error\n",
                                              .n_words = COUNT(words),
                                              .words = words,
                                              .read = read_messages,
                                              .begin = send_begin,
                                              .part = send_delta,
                                              .last = send_last,
                                              .whole = put_whole};
