/* Messages of a chat, written down by the model's template. */
#include "ask.h"

#include "verbs/chat/talk.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 4096, FILE_MOST = 1 << 20 };

/* ---- the template ---------------------------------------------------------------------------- */

/* The text of chat_template in tokenizer_config.json, to be freed; NULL: there is none. */
static char *text_of_config(const char *path)
{
    char     *data = NULL, why[160], *text = NULL;
    size_t    bytes = 0;
    dra_error err = {0};
    json_t   *top = NULL, *x, *y;
    size_t    i;
    if (dra_file_read(path, FILE_MOST, &data, &bytes, &err) == DRA_OK)
        top = serve_json_read(data, bytes, why);
    x = json_object_get(top, "chat_template");
    json_array_foreach(json_is_array(x) ? x : NULL, i, y)
    {
        const char *name = json_string_value(json_object_get(y, "name"));
        if (name && strcmp(name, "default") == 0) x = json_object_get(y, "template");
        if (json_is_string(x)) break;
    }
    if (json_is_string(x)) text = strdup(json_string_value(x));
    json_decref(top);
    free(data);
    return text;
}

/* For clients that write down messages themselves. */
static char *template_text(const serve_model *m)
{
    const char *from = m->server->args->template;
    char        path[4096], *data = NULL;
    size_t      bytes = 0;
    dra_error   err = {0};
    if (from && dra_file_read(from, FILE_MOST, &data, &bytes, &err) == DRA_OK) return data;
    if (from) return dra_template_named(from) ? strdup(dra_template_named(from)) : NULL;
    if (!cli_path(m->from.model, "chat_template.jinja", path, sizeof path)) return NULL;
    if (dra_file_read(path, FILE_MOST, &data, &bytes, &err) == DRA_OK) return data;
    static const char *const files[] = {"chat_template.json", "tokenizer_config.json"};
    for (size_t i = 0; i < COUNT(files) && !data; i++)
        if (cli_path(m->from.model, files[i], path, sizeof path)) data = text_of_config(path);
    return data ? data : strdup(dra_template_named("plain"));
}

static void add_end(serve_model *m, int32_t id)
{
    for (int i = 0; i < m->habits.ends; i++)
        if (m->habits.end[i] == id) return;
    if (id >= 0 && m->habits.ends < DRA_GENERATION_ENDS) m->habits.end[m->habits.ends++] = id;
}

dra_status serve_template_open(serve_model *m, dra_error *err)
{
    const char *from = m->server->args->template;
    int32_t     id = -1;
    dra_status  st = dra_template_open(m->from.model, from, &m->template, err);
    if (st == DRA_OK && !m->template)
        st = dra_template_open(m->from.model, "plain", &m->template, err);
    if (st != DRA_OK || !m->m.tokenizer) return st;
    m->template_text = template_text(m);
    st = cli_talk_ending(m->template, m->m.tokenizer, &id, &m->ending, err);
    add_end(m, id);
    const char *eos = dra_template_token(m->template, "eos_token");
    if (eos) add_end(m, dra_tokenizer_id(m->m.tokenizer, eos));
    return st == DRA_ERR_VALUE ? DRA_OK : st; /* it renders no usual conversation: no such ending */
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct message {
    const char *role;
    json_t     *content;
} message;

static const serve_field message_fields[] = {
    {"role", SERVE_F_WORD, offsetof(message, role)},
    {"content", SERVE_F_ANY, offsetof(message, content)},
};

typedef struct part {
    const char *type;
    json_t     *text;
} part;

static const serve_field part_fields[] = {
    {"type", SERVE_F_WORD, offsetof(part, type)},
    {"text", SERVE_F_ANY, offsetof(part, text)},
};

/* A text, or a list of parts that are texts. */
static bool put_content(json_t *x, serve_text *t, serve_error *e)
{
    size_t  i;
    json_t *y;
    if (json_is_string(x)) {
        serve_put(t, json_string_value(x), json_string_length(x));
        return true;
    }
    if (!json_is_array(x))
        return serve_wrong(e, 400, "messages", "messages: expected a text as content");
    json_array_foreach(x, i, y)
    {
        part p = {0};
        if (!json_is_object(y))
            return serve_wrong(e, 400, "messages", "messages: expected parts that are objects");
        if (!serve_fields_read(part_fields, COUNT(part_fields), y, &p, e)) return false;
        if (!p.type || strcmp(p.type, "text") != 0 || !json_is_string(p.text))
            return serve_wrong(e, 400, "messages", "messages: this server reads text only");
        serve_put(t, json_string_value(p.text), json_string_length(p.text));
    }
    return true;
}

static bool read_message(json_t *x, dra_message *to, serve_error *e)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant"};
    message                  m = {0};
    serve_text               t = {0};
    if (!json_is_object(x))
        return serve_wrong(e, 400, "messages", "messages: expected objects, found %s",
                           serve_kind_name(x));
    if (!serve_fields_read(message_fields, COUNT(message_fields), x, &m, e)) return false;
    for (size_t i = 0; i < COUNT(roles) && m.role; i++)
        if (strcmp(roles[i], m.role) == 0) to->role = roles[i == 1 ? 0 : i];
    if (!to->role)
        return serve_wrong(e, 400, "messages",
                           "messages: expected a role that is system, user or assistant");
    serve_puts(&t, ""); /* also of no content there is a text */
    const bool well = put_content(m.content, &t, e);
    to->content = t.data;
    to->bytes = t.n;
    return well && (!t.failed || serve_wrong(e, 503, NULL, "out of memory"));
}

/* A state has begun already: the token that begins texts is not read again. */
static bool encode(const serve_model *m, const serve_ask *a, const char *text, size_t bytes,
                   dra_ids *out, serve_error *e)
{
    const char  *bos = dra_template_token(m->template, "bos_token");
    const size_t n = bos ? strlen(bos) : 0;
    const bool   skip = (a->state || a->state_data) && n && n <= bytes && !memcmp(text, bos, n);
    dra_error    err = {0};
    if (skip) {
        text += n;
        bytes -= n;
    }
    return dra_encode(m->m.tokenizer, text, bytes, out, &err) == DRA_OK ||
           serve_wrong_status(e, &err);
}

bool serve_messages_read(const serve_model *m, const serve_ask *a, dra_ids *out, serve_error *e)
{
    const size_t n = json_array_size(a->messages);
    char        *text = NULL;
    size_t       bytes = 0, i = 0;
    dra_error    err = {0};
    bool         well = true;
    if (!m->m.tokenizer) return serve_wrong(e, 400, "model", "model: it has no tokenizer");
    if (n > MESSAGES)
        return serve_wrong(e, 400, "messages", "messages: expected at most %d", MESSAGES);
    dra_message *list = calloc(n, sizeof *list);
    if (!list) return serve_wrong(e, 503, NULL, "out of memory");
    for (; i < n && well; i++) well = read_message(json_array_get(a->messages, i), &list[i], e);
    if (well && dra_template_chat(m->template, list, n, true, &text, &bytes, &err) != DRA_OK) {
        well = serve_wrong_status(e, &err);
        snprintf(e->param, sizeof e->param, "messages");
    }
    if (well) well = encode(m, a, text, bytes, out, e);
    free(text);
    for (i = 0; i < n; i++) free((char *)(uintptr_t)list[i].content);
    free(list);
    return well;
}
