/* Templates: parsed from a text, rendered with variables. */
#include "dra/template.h"

#include <stdlib.h>
#include <string.h>

#include "file/fail.h"
#include "file/json.h"
#include "jinja/run.h"

enum { JSON_DEPTH = 64 };

/* ---- making ---------------------------------------------------------------------------------- */

static dra_status parse_template(dra_template *t, const char *text, size_t bytes, dra_error *err)
{
    dra_tsource source = {.name = t->name, .arena = &t->arena, .err = err};
    dra_status  st = dra_template_lex(&source, text, bytes);
    if (st == DRA_OK) {
        dra_tparser p = {.source = &source, .at = source.token};
        t->body = dra_template_statements(&p);
        st = p.status;
    }
    free(source.token);
    return st;
}

dra_status dra_template_create(const char *text, size_t bytes, const char *name, dra_template **out,
                               dra_error *err)
{
    dra_template *t = calloc(1, sizeof *t);
    dra_status    st = DRA_OK;
    *out = NULL;
    if (t) t->name = dra_arena_text(&t->arena, name);
    if (!t || !t->name)
        st = dra_fail_at(err, DRA_ERR_MEMORY, name, "out of memory for the template");
    if (st == DRA_OK) st = parse_template(t, text, bytes, err);
    if (st == DRA_OK)
        *out = t;
    else
        dra_template_destroy(t);
    return st;
}

void dra_template_destroy(dra_template *t)
{
    if (!t) return;
    dra_arena_free(&t->arena);
    free(t);
}

const char *dra_template_token(const dra_template *t, const char *name)
{
    for (size_t i = 0; i < t->tokens; i++)
        if (strcmp(t->token[i].key.text, name) == 0) return t->token[i].value.text;
    return NULL;
}

/* ---- variables ------------------------------------------------------------------------------- */

static bool from_json(dra_trun *r, const json_t *json, dra_tvalue *out);

static bool from_array(dra_trun *r, const json_t *json, dra_tvalue *out)
{
    const size_t n = json_array_size(json);
    dra_tvalue  *items = dra_trun_alloc(r, n, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < n; i++)
        if (!from_json(r, json_array_get(json, i), &items[i])) return false;
    *out = dra_tlist(items, n);
    return true;
}

static bool from_object(dra_trun *r, const json_t *json, dra_tvalue *out)
{
    dra_tpair  *pairs = dra_trun_alloc(r, json_object_size(json), sizeof *pairs);
    size_t      n = 0;
    const char *key;
    json_t     *value;
    if (!pairs) return false;
    json_object_foreach((json_t *)json, key, value)
    {
        pairs[n].key = dra_tstring(key, strlen(key));
        if (!from_json(r, value, &pairs[n++].value)) return false;
    }
    *out = dra_tdict(pairs, n);
    return true;
}

/* Strings stay where they are: the JSON lives as long as the rendering. */
static bool from_json(dra_trun *r, const json_t *json, dra_tvalue *out)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT: return from_object(r, json, out);
    case JSON_ARRAY: return from_array(r, json, out);
    case JSON_STRING:
        *out = dra_tstring(json_string_value(json), json_string_length(json));
        return true;
    case JSON_INTEGER: *out = dra_tint(json_integer_value(json)); return true;
    case JSON_REAL: *out = dra_treal(json_real_value(json)); return true;
    case JSON_NULL: *out = dra_tnone(); return true;
    default: *out = dra_tbool(json_is_true(json)); return true;
    }
}

/* Sets the variables given, and the folder's tokens that are not among them. */
static bool with_tokens(dra_trun *r, const dra_template *t, const dra_tvalue *given)
{
    dra_tpair *pairs = dra_trun_alloc(r, given->n + t->tokens, sizeof *pairs);
    size_t     n = given->n;
    if (!pairs) return false;
    if (n) memcpy(pairs, given->pairs, n * sizeof *pairs);
    for (size_t i = 0; i < t->tokens; i++)
        if (!dra_tpairs_get(r, given->pairs, given->n, t->token[i].key.text, t->token[i].key.n))
            pairs[n++] = t->token[i];
    r->variables = dra_tdict(pairs, n);
    return true;
}

/* ---- rendering ------------------------------------------------------------------------------- */

static dra_trun begin_rendering(const dra_template *t, dra_error *err)
{
    return (dra_trun){.name = t->name, .err = err, .steps = DRA_TEMPLATE_STEPS, .line = 1};
}

/* Renders if the variables could be read (`ok`), and frees the run. */
static dra_status finish_rendering(dra_trun *r, const dra_template *t, bool ok, char **text,
                                   size_t *bytes)
{
    dra_tbuffer b = {0};
    ok = ok && dra_trun_template(r, t->body, &b);
    if (ok) {
        *text = malloc(b.n + 1);
        if (*text) {
            if (b.n) memcpy(*text, b.at, b.n);
            (*text)[b.n] = '\0';
            *bytes = b.n;
        } else {
            r->status = dra_fail_at(r->err, DRA_ERR_MEMORY, r->name, "out of memory for rendering");
        }
    }
    dra_arena_free(&r->arena);
    return r->status;
}

static dra_status read_variables(const char *variables, json_t **out, dra_error *err)
{
    static const char place[] = "variables of a template";
    dra_status        st = dra_json_parse(place, variables, strlen(variables),
                                          (dra_json_rules){.depth = JSON_DEPTH}, out, err);
    if (st == DRA_OK && !json_is_object(*out))
        st = dra_fail_at(err, DRA_ERR_FORMAT, place, "expected an object");
    return st;
}

dra_status dra_template_render(const dra_template *t, const char *variables, char **text,
                               size_t *bytes, dra_error *err)
{
    json_t    *json = NULL;
    dra_tvalue given = {0};
    dra_trun   r = begin_rendering(t, err);
    *text = NULL;
    *bytes = 0;
    dra_status st = read_variables(variables, &json, err);
    if (st == DRA_OK) {
        const bool ok = from_json(&r, json, &given) && with_tokens(&r, t, &given);
        st = finish_rendering(&r, t, ok, text, bytes);
    }
    json_decref(json);
    return st;
}

/* ---- conversations --------------------------------------------------------------------------- */

static bool make_messages(dra_trun *r, const dra_message *messages, size_t n, dra_tvalue *out)
{
    dra_tvalue *list = dra_trun_alloc(r, n, sizeof *list);
    dra_tpair  *pairs = dra_trun_alloc(r, n, 2 * sizeof *pairs);
    for (size_t i = 0; list && pairs && i < n; i++) {
        const dra_message *m = &messages[i];
        pairs[2 * i] = (dra_tpair){dra_tstring("role", 4), dra_tstring(m->role, strlen(m->role))};
        pairs[2 * i + 1] = (dra_tpair){dra_tstring("content", 7),
                                       dra_tstring(m->content, m->bytes)};
        list[i] = dra_tdict(&pairs[2 * i], 2);
    }
    *out = dra_tlist(list, n);
    return list && pairs;
}

/* What a conversation sets itself, and variables that are given. */
static bool make_variables(dra_trun *r, dra_tvalue messages, bool answer, const json_t *given,
                           dra_tvalue *out)
{
    dra_tvalue more = dra_tdict(NULL, 0);
    if (given && !from_json(r, given, &more)) return false;
    dra_tpair *all = dra_trun_alloc(r, more.n + 2, sizeof *all);
    if (!all) return false;
    all[0] = (dra_tpair){dra_tstring("messages", 8), messages};
    all[1] = (dra_tpair){dra_tstring("add_generation_prompt", 21), dra_tbool(answer)};
    if (more.n) memcpy(all + 2, more.pairs, more.n * sizeof *all);
    *out = dra_tdict(all, more.n + 2);
    return true;
}

static dra_status check_given(const json_t *given, dra_error *err)
{
    static const char *const own[] = {"messages", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(given, own[i]))
            return dra_fail(err, DRA_ERR_VALUE,
                            "variables of a template: '%s' is the conversation's own, expected "
                            "others",
                            own[i]);
    return DRA_OK;
}

dra_status dra_template_chat_with(const dra_template *t, const dra_message *messages, size_t n,
                                  bool answer, const char *variables, char **text, size_t *bytes,
                                  dra_error *err)
{
    dra_trun   r = begin_rendering(t, err);
    dra_tvalue list, given;
    json_t    *json = NULL;
    *text = NULL;
    *bytes = 0;
    dra_status st = variables ? read_variables(variables, &json, err) : DRA_OK;
    if (st == DRA_OK) st = check_given(json, err);
    if (st == DRA_OK) {
        const bool ok = make_messages(&r, messages, n, &list) &&
                        make_variables(&r, list, answer, json, &given) &&
                        with_tokens(&r, t, &given);
        st = finish_rendering(&r, t, ok, text, bytes);
    }
    json_decref(json);
    return st;
}

dra_status dra_template_chat(const dra_template *t, const dra_message *messages, size_t n,
                             bool answer, char **text, size_t *bytes, dra_error *err)
{
    return dra_template_chat_with(t, messages, n, answer, NULL, text, bytes, err);
}
