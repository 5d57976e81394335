/* A graph as text and for Graphviz. */
#include "graph/graph.h"

#include <stdio.h>

typedef struct sink { /* counts all bytes, writes those that fit */
    char  *text;
    size_t size, used;
} sink;

static void put_text(sink *s, const char *format, ...) DRA_PRINTF(2, 3);

static void put_text(sink *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t room = s->used < s->size ? s->size - s->used : 0;
    const int    n = vsnprintf(room ? s->text + s->used : NULL, room, format, args);
    va_end(args);
    s->used += n > 0 ? (size_t)n : 0;
}

static void put_type(sink *s, const dra_graph *g, dra_value v)
{
    const dra_type *t = dra_type_of(g, v);
    char            shape[160];
    put_text(s, "%s %s", dra_dtype_get(t->dtype)->name,
             dra_shape_text(&t->shape, shape, sizeof shape));
}

static const char *role_name(dra_role role)
{
    switch (role) {
    case DRA_ROLE_INPUT: return "input";
    case DRA_ROLE_PARAMETER: return "parameter";
    case DRA_ROLE_STATE: return "state";
    case DRA_ROLE_NODE: break;
    }
    return "node";
}

static void put_values(sink *s, const dra_graph *g, int n, const dra_value *v, bool types)
{
    for (int i = 0; i < n; i++) {
        put_text(s, "%s%%%u", i ? ", " : "", dra_index(v[i]));
        if (types) {
            put_text(s, ": ");
            put_type(s, g, v[i]);
        }
    }
}

static void put_graph(sink *s, const dra_graph *g, int depth)
{
    const int indent = 2 * depth;
    for (size_t i = 1; i < g->values.n; i++) {
        const dra_value_info *v = g->values.at[i];
        if (v->role == DRA_ROLE_NODE) continue;
        put_text(s, "%*s%%%zu: ", indent, "", i);
        put_type(s, g, (dra_value){(uint32_t)i | g->tag << DRA_TAG_SHIFT});
        put_text(s, " = %s %s\n", role_name(v->role), v->name);
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const dra_node *n = dra_node_at(g, i);
        put_text(s, "%*s", indent, "");
        put_values(s, g, n->n_out, n->out, true);
        put_text(s, " = %s(", n->op->name);
        put_values(s, g, n->n_in, n->in, false);
        put_text(s, n->body ? ") {\n" : ")\n");
        if (!n->body) continue;
        put_graph(s, n->body, depth + 1);
        put_text(s, "%*s}\n", indent, "");
    }
    for (size_t i = 0; i < g->outputs.n; i++) {
        const dra_output_info *o = dra_output_at(g, i);
        put_text(s, "%*sout %s%s%%%u", indent, "", o->name, *o->name ? " = " : "",
                 dra_index(o->value));
        if (o->donor.id) put_text(s, " takes over %s", dra_info(g, o->donor)->name);
        put_text(s, "\n");
    }
}

size_t dra_graph_text(const dra_graph *g, char *text, size_t size)
{
    sink s = {text, size, 0};
    put_text(&s, "%s", ""); /* terminated even if the graph is empty */
    put_graph(&s, g, 0);
    return s.used;
}

/* A name inside the quotes of a Graphviz label. */
static void put_quoted(sink *s, const char *name)
{
    for (; *name; name++) put_text(s, *name == '"' || *name == '\\' ? "\\%c" : "%c", *name);
}

/* Names in Graphviz: n<path>_<node> and v<path>_<value>; bodies are clusters. */
static void dot_graph(sink *s, const dra_graph *g, const char *path)
{
    for (size_t i = 1; i < g->values.n; i++) {
        const dra_value_info *v = g->values.at[i];
        if (v->role == DRA_ROLE_NODE) continue;
        put_text(s, "  v%s_%zu [shape=box, label=\"%s ", path, i, role_name(v->role));
        put_quoted(s, v->name);
        put_text(s, "\\n");
        put_type(s, g, (dra_value){(uint32_t)i | g->tag << DRA_TAG_SHIFT});
        put_text(s, "\"];\n");
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const dra_node *n = dra_node_at(g, i);
        put_text(s, "  n%s_%zu [label=\"%s\"];\n", path, i, n->op->name);
        for (int j = 0; j < n->n_in; j++) {
            const dra_value_info *v = dra_info(g, n->in[j]);
            if (v->role == DRA_ROLE_NODE)
                put_text(s, "  n%s_%u -> n%s_%zu", path, v->node, path, i);
            else
                put_text(s, "  v%s_%u -> n%s_%zu", path, dra_index(n->in[j]), path, i);
            put_text(s, " [label=\"");
            put_type(s, g, n->in[j]);
            put_text(s, "\"];\n");
        }
        if (!n->body) continue;
        char inner[128];
        snprintf(inner, sizeof inner, "%s_%zu", path, i);
        put_text(s, "  subgraph cluster%s {\n  label=\"%s\";\n", inner, n->op->name);
        dot_graph(s, n->body, inner);
        put_text(s, "  }\n");
    }
}

size_t dra_graph_dot(const dra_graph *g, char *text, size_t size)
{
    sink s = {text, size, 0};
    put_text(&s, "digraph dra {\n");
    dot_graph(&s, g, "");
    for (size_t i = 0; i < g->outputs.n; i++) {
        const dra_output_info *o = dra_output_at(g, i);
        const dra_value_info  *v = dra_info(g, o->value);
        put_text(&s, "  o_%zu [shape=box, label=\"", i);
        put_quoted(&s, o->name);
        put_text(&s, "\"];\n");
        if (v->role == DRA_ROLE_NODE)
            put_text(&s, "  n_%u -> o_%zu;\n", v->node, i);
        else
            put_text(&s, "  v_%u -> o_%zu;\n", dra_index(o->value), i);
    }
    put_text(&s, "}\n");
    return s.used;
}
