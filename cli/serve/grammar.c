/* Constraints on a request's text: response_format, or a grammar. */
#include "ask.h"

#include <stdlib.h>
#include <string.h>

enum { GRAMMAR_MOST = 1 << 16 /* bytes of a grammar or a schema */ };

/* Jobs borrow it until they end, which may be after their call. */
struct serve_grammar {
    dra_grammar *grammar;
    int          uses;
};

serve_grammar *serve_grammar_hold(serve_grammar *g)
{
    if (g) g->uses++;
    return g;
}

void serve_grammar_drop(serve_grammar *g)
{
    if (!g || --g->uses > 0) return;
    dra_grammar_destroy(g->grammar);
    free(g);
}

const dra_grammar *serve_grammar_of(const serve_grammar *g) { return g ? g->grammar : NULL; }

static bool make_grammar(serve_grammar **out, serve_error *e)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return serve_wrong(e, 503, NULL, "out of memory");
    (*out)->uses = 1;
    return true;
}

static bool refuse_grammar(const char *param, const dra_error *err, serve_error *e)
{
    return serve_wrong(e, err->code == DRA_ERR_MEMORY ? 503 : 400, param, "%s", err->text);
}

static bool open_grammar(const char *param, const char *text, size_t bytes, bool schema,
                         serve_grammar **out, serve_error *e)
{
    dra_error err = {0};
    if (bytes > GRAMMAR_MOST)
        return serve_wrong(e, 400, param, "%s: expected at most %d bytes, found %zu", param,
                           GRAMMAR_MOST, bytes);
    return make_grammar(out, e) && ((schema ? dra_grammar_schema : dra_grammar_parse)(
                                        param, text, bytes, &(*out)->grammar, &err) == DRA_OK ||
                                    refuse_grammar(param, &err, e));
}

/* ---- calls of tools -------------------------------------------------------------------------- */

static bool is_schema(const char *text)
{
    dra_grammar *g = NULL;
    const bool   well = dra_grammar_schema("tools", text, strlen(text), &g, NULL) == DRA_OK;
    dra_grammar_destroy(g);
    return well;
}

/* The schema of a tool's arguments, which are an object, to be freed; NULL: e says why. A schema
 * with unknown keywords allows any object, unless the tool is strict. */
static char *arguments_of(const serve_tools *t, size_t i, serve_error *e)
{
    static const char any[] = "{\"type\": \"object\"}", typed[] = "{\"type\": \"object\"";
    const json_t     *x = t->parameters[i], *type = json_object_get(x, "type");
    const char       *word = json_string_value(type);
    serve_text        text = {0};
    if (type && (!word || strcmp(word, "object") != 0)) {
        serve_wrong(e, 400, "tools", "tools: %s: expected parameters of the type object",
                    t->name[i]);
        return NULL;
    }
    char *words = x ? serve_json_words(x) : strdup(any);
    if (words && x && !type) serve_puts(&text, typed);
    if (words && x && !type && json_object_size(x)) serve_puts(&text, ", ");
    if (words) serve_puts(&text, x && !type ? words + 1 : words);
    if (!words || text.failed) serve_wrong(e, 503, NULL, "out of memory");
    if (words && !text.failed && !t->strict[i] && !is_schema(text.data)) {
        text.n = 0;
        serve_puts(&text, any);
    }
    if (!words || text.failed) serve_text_free(&text);
    free(words);
    return text.data;
}

static bool open_calls(const serve_form *form, const serve_tools *t, serve_grammar **out,
                       serve_error *e)
{
    static const char param[] = "tools";
    dra_schema_text   schema[SERVE_TOOLS] = {{0}};
    dra_error         err = {0};
    size_t            bytes = 0, n = 0;
    bool              well = true;
    if (!form)
        return serve_wrong(e, 400, param, "%s: the model's chat template has no tool calls", param);
    for (; n < t->n && well; n += well) {
        schema[n].json = arguments_of(t, n, e);
        well = schema[n].json != NULL;
        if (well) bytes += schema[n].bytes = strlen(schema[n].json);
    }
    if (well && bytes > GRAMMAR_MOST)
        well = serve_wrong(e, 400, param, "%s: expected at most %d bytes of parameters, found %zu",
                           param, GRAMMAR_MOST, bytes);
    char *rules = well ? serve_tools_rules(form, t) : NULL;
    if (well && !rules) well = serve_wrong(e, 503, NULL, "out of memory");
    if (well && make_grammar(out, e) &&
        dra_grammar_schemas(param, rules, n, schema, &(*out)->grammar, &err) != DRA_OK)
        well = refuse_grammar(param, &err, e);
    free(rules);
    for (size_t i = 0; i < n; i++) free((char *)(uintptr_t)schema[i].json);
    return well && *out;
}

/* ---- response_format ------------------------------------------------------------------------- */

typedef struct format {
    const char *type;
    json_t     *schema; /* "json_schema": an object that has the schema */
} format;

static const serve_field format_fields[] = {
    {"type", SERVE_F_WORD, offsetof(format, type)},
    {"json_schema", SERVE_F_ANY, offsetof(format, schema)},
};

typedef struct named_schema {
    json_t     *schema;
    const char *name, *description; /* for people */
    bool        strict;             /* it always is */
} named_schema;

static const serve_field schema_fields[] = {
    {"schema", SERVE_F_ANY, offsetof(named_schema, schema)},
    {"name", SERVE_F_WORD, offsetof(named_schema, name)},
    {"description", SERVE_F_WORD, offsetof(named_schema, description)},
    {"strict", SERVE_F_BOOL, offsetof(named_schema, strict)},
};

static bool open_schema(json_t *x, serve_grammar **out, serve_error *e)
{
    static const char param[] = "response_format";
    named_schema      n = {0};
    if (!json_is_object(x))
        return serve_wrong(e, 400, param, "%s: expected json_schema as an object, found %s", param,
                           x ? serve_kind_name(x) : "nothing");
    if (!serve_fields_read(schema_fields, COUNT(schema_fields), x, &n, e)) return false;
    if (!json_is_object(n.schema))
        return serve_wrong(e, 400, param, "%s: expected schema as an object, found %s", param,
                           n.schema ? serve_kind_name(n.schema) : "nothing");
    char *text = serve_json_words(n.schema);
    if (!text) return serve_wrong(e, 503, NULL, "out of memory");
    const bool well = open_grammar(param, text, strlen(text), true, out, e);
    free(text);
    return well;
}

static bool open_format(json_t *x, serve_grammar **out, serve_error *e)
{
    static const char param[] = "response_format", object[] = "{\"type\": \"object\"}";
    format            f = {0};
    if (!json_is_object(x))
        return serve_wrong(e, 400, param, "%s: expected an object, found %s", param,
                           serve_kind_name(x));
    if (!serve_fields_read(format_fields, COUNT(format_fields), x, &f, e)) return false;
    const char *type = f.type ? f.type : "";
    if (strcmp(type, "json_schema") == 0) return open_schema(f.schema, out, e);
    if (f.schema)
        return serve_wrong(e, 400, param, "%s: expected json_schema with that type only", param);
    if (strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0)
        return open_grammar(param, object, sizeof object - 1, true, out, e);
    return serve_wrong(e, 400, param,
                       "%s: expected the type text, json_object or json_schema, found %.40s", param,
                       f.type ? f.type : "none");
}

bool serve_grammar_open(const serve_model *m, const serve_ask *a, serve_grammar **out,
                        serve_error *e)
{
    *out = NULL;
    if (a->grammar && a->response_format)
        return serve_wrong(e, 400, "grammar", "expected one of grammar and response_format");
    if (a->tools.list) return open_calls(m->form, &a->tools, out, e);
    if (a->grammar) return open_grammar("grammar", a->grammar, strlen(a->grammar), false, out, e);
    return !a->response_format || open_format(a->response_format, out, e);
}
