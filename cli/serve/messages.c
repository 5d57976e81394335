/* Messages of a chat, rendered by the model's template. */
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

/* For clients that render messages themselves. */
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
    st = dra_template_ending(m->template, m->m.tokenizer, &id, &m->ending, err);
    add_end(m, id);
    const char *eos = dra_template_token(m->template, "eos_token");
    if (eos) add_end(m, dra_tokenizer_id(m->m.tokenizer, eos));
    m->form = serve_form_learn(m);
    return st == DRA_ERR_VALUE ? DRA_OK : st; /* it renders no usual conversation: no such ending */
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct message {
    const char *role, *call_id, *name;
    json_t     *content, *calls;
} message;

typedef struct turn { /* points into the body, but for its text */
    message    said;
    serve_text text;
} turn;

static const serve_field message_fields[] = {
    {"role", SERVE_F_WORD, offsetof(message, role)},
    {"content", SERVE_F_ANY, offsetof(message, content)},
    {"tool_calls", SERVE_F_ANY, offsetof(message, calls)},
    {"tool_call_id", SERVE_F_WORD, offsetof(message, call_id)},
    {"name", SERVE_F_WORD, offsetof(message, name)},
    {"annotations", SERVE_F_REFUSED, .why = "this server has none", .idle = "[[]]"},
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

/* Tool calls of the assistant and results of tools, where the template knows them. */
static bool check_calls(const serve_model *m, const message *x, serve_error *e)
{
    const bool tool = strcmp(x->role, "tool") == 0;
    size_t     i;
    json_t    *y;
    if (!m->form && (tool || json_array_size(x->calls)))
        return serve_wrong(e, 400, "messages",
                           "messages: the model's chat template has no tool calls");
    const char *own = x->call_id ? "tool_call_id" : x->name ? "name" : NULL;
    if (own && !tool) return serve_wrong(e, 400, own, "%s: expected with the role tool only", own);
    if (x->calls && !json_is_array(x->calls))
        return serve_wrong(e, 400, "messages", "messages: expected tool_calls as a list, found %s",
                           serve_kind_name(x->calls));
    if (json_array_size(x->calls) && strcmp(x->role, "assistant") != 0)
        return serve_wrong(e, 400, "messages", "messages: expected tool_calls of the assistant");
    json_array_foreach(x->calls, i, y)
    {
        const json_t *f = json_object_get(y, "function");
        if (!serve_is_word(json_object_get(f, "name")) ||
            !json_is_string(json_object_get(f, "arguments")))
            return serve_wrong(e, 400, "messages",
                               "messages: expected tool_calls with a function's name and "
                               "arguments, which are a text");
    }
    return true;
}

static bool read_message(const serve_model *m, json_t *x, turn *to, serve_error *e)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const char              *role = NULL;
    message                 *said = &to->said;
    if (!json_is_object(x))
        return serve_wrong(e, 400, "messages", "messages: expected objects, found %s",
                           serve_kind_name(x));
    if (!serve_fields_read(message_fields, COUNT(message_fields), x, said, e)) return false;
    for (size_t i = 0; i < COUNT(roles) && said->role; i++)
        if (strcmp(roles[i], said->role) == 0) role = roles[i == 1 ? 0 : i];
    said->role = role;
    if (!role)
        return serve_wrong(e, 400, "messages",
                           "messages: expected a role that is system, user, assistant or tool");
    if (!check_calls(m, said, e)) return false;
    serve_puts(&to->text, ""); /* also of no content there is a text */
    const bool silent = !said->content && json_array_size(said->calls);
    return (silent || put_content(said->content, &to->text, e)) &&
           (!to->text.failed || serve_wrong(e, 503, NULL, "out of memory"));
}

/* A state has begun already: no token that begins texts is added. */
static bool encode_prompt(const serve_model *m, const serve_ask *a, const char *text, size_t bytes,
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

static void free_turns(size_t n, turn *list)
{
    for (size_t i = 0; list && i < n; i++) serve_text_free(&list[i].text);
    free(list);
}

/* To be freed by free_turns(). */
static bool read_turns(const serve_model *m, const serve_turns *how, size_t *n, turn **out,
                       serve_error *e)
{
    bool well = true;
    *n = json_array_size(how->messages);
    *out = NULL;
    if (*n == 0) return serve_wrong(e, 400, "messages", "messages: expected a list of messages");
    if (*n > MESSAGES)
        return serve_wrong(e, 400, "messages", "messages: expected at most %d", MESSAGES);
    *out = calloc(*n, sizeof **out);
    if (!*out) return serve_wrong(e, 503, NULL, "out of memory");
    for (size_t i = 0; i < *n && well; i++)
        well = read_message(m, json_array_get(how->messages, i), *out + i, e);
    return well;
}

/* Members of an object, after others. */
static void put_members(json_t *object, serve_text *t)
{
    char *words = serve_json_words(object);
    if (words && json_object_size(object)) {
        serve_puts(t, ", ");
        serve_put(t, words + 1, strlen(words) - 2);
    }
    t->failed |= !words;
    free(words);
}

/* Templates expect arguments as an object, where they are one. */
static void put_call(const json_t *call, serve_text *t)
{
    char          why[160];
    const json_t *f = json_object_get(call, "function");
    const json_t *text = json_object_get(f, "arguments");
    json_t       *read = serve_json_read(json_string_value(text), json_string_length(text), why);
    char         *words = json_is_object(read) ? serve_json_words(read) : serve_json_words(text);
    serve_puts(t, "{\"id\": ");
    serve_json_word(t, json_string_value(json_object_get(call, "id")));
    serve_puts(t, ", \"type\": \"function\", \"function\": {\"name\": ");
    serve_json_word(t, json_string_value(json_object_get(f, "name")));
    serve_puts(t, ", \"arguments\": ");
    serve_puts(t, words ? words : "");
    serve_puts(t, "}}");
    t->failed |= !words;
    free(words);
    json_decref(read);
}

static void put_turn(const turn *x, serve_text *t)
{
    size_t  i;
    json_t *call;
    serve_printf(t, "{\"role\": \"%s\", \"content\": ", x->said.role);
    serve_json_text(t, x->text.data, x->text.n);
    if (x->said.call_id) serve_puts(t, ", \"tool_call_id\": ");
    if (x->said.call_id) serve_json_word(t, x->said.call_id);
    if (x->said.name) serve_puts(t, ", \"name\": ");
    if (x->said.name) serve_json_word(t, x->said.name);
    json_array_foreach(x->said.calls, i, call)
    {
        serve_puts(t, i ? ", " : ", \"tool_calls\": [");
        put_call(call, t);
    }
    serve_puts(t, json_array_size(x->said.calls) ? "]}" : "}");
}

/* As the variables of a template: messages, tools, whether an answer follows, and those of the
 * client. */
static bool put_variables(const serve_turns *how, size_t n, const turn *list, bool answer,
                          serve_text *t)
{
    char *tools = how->tools ? serve_json_words(how->tools) : NULL;
    serve_puts(t, "{\"messages\": [");
    for (size_t i = 0; i < n; i++) {
        if (i) serve_puts(t, ", ");
        put_turn(&list[i], t);
    }
    serve_printf(t, "], \"add_generation_prompt\": %s", answer ? "true" : "false");
    if (tools) serve_puts(t, ", \"tools\": ");
    if (tools) serve_puts(t, tools);
    if (how->variables) put_members(how->variables, t);
    serve_puts(t, "}");
    t->failed |= how->tools && !tools;
    free(tools);
    return !t->failed;
}

static bool render_turns(const serve_model *m, const serve_turns *how, size_t n, const turn *list,
                         bool answer, char **text, size_t *bytes, serve_error *e)
{
    serve_text t = {0};
    dra_error  err = {0};
    dra_status st = put_variables(how, n, list, answer, &t)
                        ? dra_template_render(m->template, t.data, text, bytes, &err)
                        : cli_error(&err, DRA_ERR_MEMORY, "out of memory");
    serve_text_free(&t);
    if (st == DRA_OK) return true;
    serve_wrong_status(e, &err);
    snprintf(e->param, sizeof e->param, "messages");
    return false;
}

static bool check_turns(const serve_turns *how, size_t n, const turn *list, serve_error *e)
{
    static const char *const own[] = {"messages", "add_generation_prompt", "tools"};
    if (how->variables && !json_is_object(how->variables))
        return serve_wrong(e, 400, "chat_template_kwargs",
                           "chat_template_kwargs: expected an object, found %s",
                           serve_kind_name(how->variables));
    for (size_t i = 0; i < COUNT(own); i++)
        if (json_object_get(how->variables, own[i]))
            return serve_wrong(e, 400, "chat_template_kwargs",
                               "chat_template_kwargs: %s is set by the server", own[i]);
    return !how->go_on || strcmp(list[n - 1].said.role, "assistant") == 0 ||
           serve_wrong(e, 400, "continue_final_message",
                       "continue_final_message: expected the last message of the assistant");
}

/* After a state that ends with an answer: what the template writes between that and the next
 * answer. What was said before is not known and not needed. */
static bool render_after_answer(const serve_model *m, const serve_turns *how, size_t n,
                                const turn *list, bool answer, char **text, size_t *bytes,
                                serve_error *e)
{
    static const char answered[] = "(what was answered)";
    turn             *all = calloc(n + 2, sizeof *all);
    *text = NULL;
    if (!all) return serve_wrong(e, 503, NULL, "out of memory");
    if (n) memcpy(all + 2, list, n * sizeof *all);
    all[0].said.role = "user";
    all[1].said.role = "assistant";
    serve_puts(&all[0].text, "(what was asked)");
    serve_puts(&all[1].text, answered);
    bool well = render_turns(m, how, n + 2, all, answer, text, bytes, e);
    serve_text_free(&all[0].text);
    serve_text_free(&all[1].text);
    free(all);
    const char *end = well ? strstr(*text, answered) : NULL;
    if (well && !end)
        well = serve_wrong(e, 400, "dra_after_answer",
                           "dra_after_answer: the chat template leaves out what was answered");
    if (well) {
        end += strlen(answered);
        *bytes -= (size_t)(end - *text);
        memmove(*text, end, *bytes + 1);
        return true;
    }
    free(*text);
    *text = NULL;
    return false;
}

/* The text of a conversation, to be freed. To be continued, the last message's content comes
 * where an answer would begin. */
static bool write_down(const serve_model *m, const serve_turns *how, size_t n, const turn *list,
                       char **text, size_t *bytes, serve_error *e)
{
    const bool        go_on = how->go_on;
    const serve_text *last = &list[n - 1].text;
    if (!check_turns(how, n, list, e) ||
        !(how->after ? render_after_answer : render_turns)(m, how, n - go_on, list,
                                                           how->answer || go_on, text, bytes, e))
        return false;
    char *more = go_on ? realloc(*text, *bytes + last->n + 1) : *text;
    if (!more) {
        free(*text);
        *text = NULL;
        return serve_wrong(e, 503, NULL, "out of memory");
    }
    if (go_on) memcpy(more + *bytes, last->data ? last->data : "", last->n + 1);
    if (go_on) *bytes += last->n;
    *text = more;
    return true;
}

/* How many tokens the system message at the beginning has, which other conversations may share;
 * 0: there is none, or it is not known. */
static int64_t count_instruction(const serve_model *m, const serve_ask *a, size_t n,
                                 const turn *list, const dra_ids *ids)
{
    enum { LONG = 1 << 16 };
    char       *text = NULL;
    size_t      bytes = 0, same = 0;
    dra_ids     own = {0};
    serve_error e;
    if (n < 2 || strcmp(list[0].said.role, "system") != 0 || list[0].text.n > LONG || a->state ||
        a->state_data)
        return 0;
    if (render_turns(m, &a->how, 1, list, false, &text, &bytes, &e) &&
        dra_encode(m->m.tokenizer, text, bytes, &own, NULL) == DRA_OK)
        while (same < own.n && same < ids->n && own.data[same] == ids->data[same]) same++;
    free(text);
    dra_ids_free(&own);
    return (int64_t)same;
}

bool serve_messages_read(const serve_model *m, const serve_ask *a, dra_ids *out,
                         int64_t *instruction, serve_error *e)
{
    size_t     n, bytes = 0;
    turn      *list;
    char      *text = NULL;
    serve_text all = {0};
    if (!m->m.tokenizer) return serve_wrong(e, 400, "model", "model: it has no tokenizer");
    bool well = read_turns(m, &a->how, &n, &list, e) &&
                write_down(m, &a->how, n, list, &text, &bytes, e);
    if (well) serve_put(&all, text, bytes);
    if (well && a->tools.list) serve_tools_begin(m->form, &a->tools, &all);
    if (well && all.failed) well = serve_wrong(e, 503, NULL, "out of memory");
    if (well) well = encode_prompt(m, a, all.data, all.n, out, e);
    if (well) *instruction = count_instruction(m, a, n, list, out);
    serve_text_free(&all);
    free(text);
    free_turns(n, list);
    return well;
}

/* ---- the text alone -------------------------------------------------------------------------- */

typedef struct asked {
    const char *model;
    serve_turns how;
    json_t     *tools;
    serve_tools offered;
} asked;

static const serve_field fields[] = {
    {"model", SERVE_F_WORD, offsetof(asked, model)},
    {"messages", SERVE_F_ANY, offsetof(asked, how.messages)},
    {"tools", SERVE_F_ANY, offsetof(asked, tools)},
    {"chat_template_kwargs", SERVE_F_ANY, offsetof(asked, how.variables)},
    {"add_generation_prompt", SERVE_F_BOOL, offsetof(asked, how.answer)},
    {"continue_final_message", SERVE_F_BOOL, offsetof(asked, how.go_on)},
};

typedef struct writing {
    serve_made made;
    asked      asked;
} writing;

static void write_text(serve_call *call)
{
    writing           *w = (writing *)call;
    const serve_turns *how = &w->asked.how;
    serve_text        *t = &w->made.answer;
    size_t             n = 0, bytes = 0;
    turn              *list = NULL;
    char              *text = NULL;
    if (read_turns(w->made.model, how, &n, &list, &call->error) &&
        write_down(w->made.model, how, n, list, &text, &bytes, &call->error)) {
        serve_puts(t, "{\"prompt\": ");
        serve_json_text(t, text, bytes);
        serve_puts(t, "}");
    }
    free(text);
    free_turns(n, list);
}

static void on_body(serve_call *call)
{
    writing *w = (writing *)call;
    w->asked.how.answer = true;
    if (call->body &&
        serve_fields_read(fields, COUNT(fields), call->body, &w->asked, &call->error) &&
        serve_tools_read(w->asked.tools, NULL, &w->asked.offered, &call->error))
        w->made.model = serve_model_find(call->server, w->asked.model, &call->error);
    w->asked.how.tools = w->asked.offered.list;
    serve_made_do(&w->made, write_text);
}

void serve_apply_template(const serve_request *r) { serve_made_start(r, sizeof(writing), on_body); }
