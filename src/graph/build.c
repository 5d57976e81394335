/* Building: values, nodes, outputs, scopes, errors. */
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

bool dra_list_push(dra_list *l, void *item)
{
    if (!item) return false;
    if (l->n == l->room) {
        const size_t room = l->room ? 2 * l->room : 32;
        void       **at = realloc(l->at, room * sizeof *at);
        if (!at) return false;
        l->at = at;
        l->room = room;
    }
    l->at[l->n++] = item;
    return true;
}

/* ---- errors ---------------------------------------------------------------------------------- */

bool             dra_graph_failed(const dra_graph *g) { return g->error.code != DRA_OK; }
const dra_error *dra_graph_error(const dra_graph *g) { return &g->error; }

static dra_status fail_v(dra_graph *g, const char *op, dra_status code, const char *format,
                         va_list args)
{
    if (!dra_graph_failed(g)) {
        char text[DRA_ERROR_TEXT / 2];
        vsnprintf(text, sizeof text, format, args);
        dra_fail(&g->error, code, "%s: %s", op, text);
    }
    return code;
}

dra_status dra_op_fail(dra_graph *g, const dra_node *n, dra_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_v(g, n->op->name, code, format, args);
    va_end(args);
    return code;
}

dra_status dra_build_fail(dra_graph *g, const char *op, dra_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_v(g, op, code, format, args);
    va_end(args);
    return code;
}

static dra_status out_of_memory(dra_graph *g)
{
    return dra_build_fail(g, "graph", DRA_ERR_MEMORY, "out of memory");
}

const char *dra_type_text(dra_graph *g, dra_value v)
{
    char           *text = g->type_text[g->next_text++ % 4];
    const dra_type *t = dra_type_of(g, v);
    char            shape[48];
    snprintf(text, sizeof g->type_text[0], "%s %s", dra_dtype_get(t->dtype)->name,
             dra_shape_text(&t->shape, shape, sizeof shape));
    return text;
}

dra_status dra_expect_dtype(dra_graph *g, const dra_node *n, int i, const char *name,
                            dra_dtype dtype)
{
    const dra_dtype found = dra_type_of(g, n->in[i])->dtype;
    if (found == dtype) return DRA_OK;
    return dra_op_fail(g, n, DRA_ERR_DTYPE, "%s is %s, expected %s", name,
                       dra_dtype_get(found)->name, dra_dtype_get(dtype)->name);
}

/* ---- life ------------------------------------------------------------------------------------ */

static dra_graph *graph_new(dra_graph *parent)
{
    dra_graph *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->parent = parent;
    dra_graph *top = parent;
    while (top && top->parent) top = top->parent;
    g->tag = top ? top->tags++ % DRA_MOST_TAGS + 1 : 0; /* 0 stays the outermost one's */
    /* slot 0 of the values: the null value */
    if (!dra_list_push(&g->values, dra_arena_alloc(&g->arena, sizeof(dra_value_info)))) {
        dra_graph_destroy(g);
        return NULL;
    }
    return g;
}

dra_status dra_graph_create(dra_graph **out, dra_error *err)
{
    *out = graph_new(NULL);
    return *out ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "graph: out of memory");
}

void dra_graph_destroy(dra_graph *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->bodies.n; i++) dra_graph_destroy(g->bodies.at[i]);
    free(g->bodies.at);
    free(g->values.at);
    free(g->nodes.at);
    free(g->outputs.at);
    dra_names_free(&g->inputs);
    dra_names_free(&g->output_names);
    dra_arena_free(&g->arena);
    free(g);
}

/* ---- values ---------------------------------------------------------------------------------- */

bool dra_owns(const dra_graph *g, dra_value v)
{
    return dra_index(v) != 0 && v.id >> DRA_TAG_SHIFT == g->tag && dra_index(v) < g->values.n;
}

const dra_type *dra_type_of(const dra_graph *g, dra_value v) { return &dra_info(g, v)->type; }

dra_dtype dra_dtype_of(const dra_graph *g, dra_value v)
{
    return dra_owns(g, v) ? dra_type_of(g, v)->dtype : DRA_REAL;
}

dra_shape dra_shape_of(const dra_graph *g, dra_value v)
{
    return dra_owns(g, v) ? dra_type_of(g, v)->shape : (dra_shape){0};
}

bool dra_check_values(dra_graph *g, const char *op, int n, const dra_value *v)
{
    if (dra_graph_failed(g)) return false;
    for (int i = 0; i < n; i++) {
        if (dra_owns(g, v[i])) continue;
        dra_build_fail(g, op, DRA_ERR_VALUE, "input %d is %s", i,
                       v[i].id ? "a value of another graph (hand it to the region as an input)"
                               : "the null value");
        return false;
    }
    return true;
}

/* A declared value has whole blocks; views of it may show them in any order. */
static dra_status check_blocks(dra_graph *g, const char *what, const dra_type *t)
{
    const dra_dtype_info *info = dra_dtype_get(t->dtype);
    const int64_t         last = t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
    char                  text[160];
    if (last % (int64_t)info->block_elements == 0) return DRA_OK;
    return dra_build_fail(g, what, DRA_ERR_SHAPE, "last axis of %s, expected a multiple of %zu: %s",
                          dra_shape_text(&t->shape, text, sizeof text), info->block_elements,
                          info->name);
}

static dra_status check_type(dra_graph *g, const char *what, const dra_type *t)
{
    dra_shape full = t->shape; /* strides multiply the other sizes of an empty tensor too */
    size_t    bytes;
    if (!dra_dtype_get(t->dtype))
        return dra_build_fail(g, what, DRA_ERR_DTYPE, "no dtype number %d", (int)t->dtype);
    if (t->shape.rank < 0 || t->shape.rank > DRA_MAX_RANK)
        return dra_build_fail(g, what, DRA_ERR_SHAPE, "rank %d, expected 0 to %d",
                              (int)t->shape.rank, DRA_MAX_RANK);
    for (int32_t i = 0; i < t->shape.rank; i++) {
        if (t->shape.dim[i] < 0)
            return dra_build_fail(g, what, DRA_ERR_SHAPE, "axis %d has size %lld", (int)i,
                                  (long long)t->shape.dim[i]);
        if (t->shape.dim[i] == 0) full.dim[i] = 1;
    }
    if (!dra_type_bytes(dra_is_quantised(t->dtype) ? DRA_REAL : t->dtype, &full, &bytes)) {
        char text[160];
        return dra_build_fail(g, what, DRA_ERR_MEMORY, "size of %s overflows",
                              dra_shape_text(&t->shape, text, sizeof text));
    }
    if (t->dtype == (DRA_REAL == DRA_F32 ? DRA_F64 : DRA_DTYPE_COUNT))
        return dra_build_fail(g, what, DRA_ERR_DTYPE, "f64 needs the double build");
    return DRA_OK;
}

static dra_value make_handle(const dra_graph *g, size_t i)
{
    return (dra_value){(uint32_t)i | g->tag << DRA_TAG_SHIFT};
}

static dra_value value_new(dra_graph *g, dra_value_info info)
{
    if (g->values.n > DRA_INDEX_MASK) {
        dra_build_fail(g, "graph", DRA_ERR_MEMORY, "more than %u values", DRA_INDEX_MASK);
        return (dra_value){0};
    }
    if (!dra_list_push(&g->values, dra_arena_copy(&g->arena, &info, sizeof info))) {
        out_of_memory(g);
        return (dra_value){0};
    }
    return make_handle(g, g->values.n - 1);
}

dra_value dra_find_input(const dra_graph *g, const char *name)
{
    const int64_t i = dra_names_find(&g->inputs, name);
    return i >= 0 ? make_handle(g, (size_t)i) : (dra_value){0};
}

static dra_value named_value(dra_graph *g, const char *what, dra_role role, const char *name,
                             dra_dtype dtype, dra_shape shape)
{
    const dra_type t = {dtype, shape};
    if (dra_graph_failed(g)) return (dra_value){0};
    if (!name || !*name)
        dra_build_fail(g, what, DRA_ERR_NAME, "needs a name");
    else if (g->parent)
        dra_build_fail(g, what, DRA_ERR_VALUE, "'%s' inside a region; hand it in as an input",
                       name);
    else if (dra_find_input(g, name).id)
        dra_build_fail(g, what, DRA_ERR_NAME, "'%s' is there already", name);
    else if (check_type(g, what, &t) == DRA_OK && check_blocks(g, what, &t) == DRA_OK) {
        const char *copy = dra_arena_text(&g->arena, name);
        if (copy && dra_names_add(&g->inputs, copy, (int64_t)g->values.n))
            return value_new(g, (dra_value_info){.type = t, .role = role, .name = copy});
        out_of_memory(g);
    }
    return (dra_value){0};
}

dra_value dra_input(dra_graph *g, const char *name, dra_dtype dtype, dra_shape shape)
{
    return named_value(g, "input", DRA_ROLE_INPUT, name, dtype, shape);
}

dra_value dra_parameter(dra_graph *g, const char *name, dra_dtype dtype, dra_shape shape)
{
    return named_value(g, "parameter", DRA_ROLE_PARAMETER, name, dtype, shape);
}

dra_value dra_state(dra_graph *g, const char *name, dra_dtype dtype, dra_shape shape)
{
    return named_value(g, "state", DRA_ROLE_STATE, name, dtype, shape);
}

/* ---- outputs --------------------------------------------------------------------------------- */

dra_value dra_find_output(const dra_graph *g, const char *name)
{
    const int64_t i = dra_names_find(&g->output_names, name);
    return i >= 0 ? dra_output_at(g, (size_t)i)->value : (dra_value){0};
}

static void add_output(dra_graph *g, const char *what, const char *name, dra_value v,
                       dra_value donor)
{
    if (!dra_check_values(g, what, 1, &v)) return;
    if (g->parent) {
        dra_build_fail(g, what, DRA_ERR_VALUE, "inside a region; return the value instead");
        return;
    }
    if (!name || !*name) {
        dra_build_fail(g, what, DRA_ERR_NAME, "needs a name");
        return;
    }
    if (dra_find_output(g, name).id) {
        dra_build_fail(g, what, DRA_ERR_NAME, "'%s' is there already", name);
        return;
    }
    const dra_output_info info = {dra_arena_text(&g->arena, name), v, donor};
    if (!info.name || !dra_list_push(&g->outputs, dra_arena_copy(&g->arena, &info, sizeof info)) ||
        !dra_names_add(&g->output_names, info.name, (int64_t)g->outputs.n - 1))
        out_of_memory(g);
}

void dra_output(dra_graph *g, const char *name, dra_value v)
{
    add_output(g, "output", name, v, (dra_value){0});
}

void dra_donate(dra_graph *g, const char *name, dra_value v, dra_value state)
{
    const dra_value both[] = {v, state};
    if (!dra_check_values(g, "donate", 2, both)) return;
    const dra_value_info *s = dra_info(g, state);
    const dra_type       *t = dra_type_of(g, v);
    if (s->role != DRA_ROLE_STATE && s->role != DRA_ROLE_PARAMETER) {
        dra_build_fail(g, "donate", DRA_ERR_VALUE, "'%s' gets no state or parameter to take over",
                       name ? name : "");
        return;
    }
    if (t->dtype != s->type.dtype || !dra_shape_equal(&t->shape, &s->type.shape)) {
        dra_build_fail(g, "donate", DRA_ERR_SHAPE, "value %s, '%s' is %s", dra_type_text(g, v),
                       s->name, dra_type_text(g, state));
        return;
    }
    for (size_t i = 0; s->given && i < g->outputs.n; i++) {
        if (dra_output_at(g, i)->donor.id == state.id) {
            dra_build_fail(g, "donate", DRA_ERR_VALUE, "'%s' is given to '%s' already", s->name,
                           dra_output_at(g, i)->name);
            return;
        }
    }
    add_output(g, "donate", name, v, state);
    ((dra_value_info *)g->values.at[dra_index(state)])->given = true;
}

/* ---- scopes ---------------------------------------------------------------------------------- */

void dra_scope_push(dra_graph *g, const char *name)
{
    if (dra_graph_failed(g)) return;
    const size_t used = strlen(g->scope);
    if (!name || !*name || strchr(name, '/'))
        dra_build_fail(g, "scope", DRA_ERR_NAME, "needs a name without '/'");
    else if (used + strlen(name) + 2 > sizeof g->scope)
        dra_build_fail(g, "scope", DRA_ERR_NAME, "path longer than %zu", sizeof g->scope - 2);
    else
        snprintf(g->scope + used, sizeof g->scope - used, "%s/", name);
}

void dra_scope_pop(dra_graph *g)
{
    size_t n = strlen(g->scope);
    if (n == 0) {
        dra_build_fail(g, "scope", DRA_ERR_VALUE, "pop without push");
        return;
    }
    for (n--; n > 0 && g->scope[n - 1] != '/'; n--) {}
    g->scope[n] = 0;
}

/* The source of random numbers for dropout. */
uint64_t dra_scope_hash(const dra_graph *g, const char *name)
{
    return dra_name_key(dra_name_key(DRA_NAME_START, g->scope), name);
}

/* ---- precision ------------------------------------------------------------------------------- */

void dra_set_precision(dra_graph *g, dra_precision precision)
{
    if (precision != DRA_PRECISION_FULL && precision != DRA_PRECISION_BF16 &&
        precision != DRA_PRECISION_TF32 && precision != DRA_PRECISION_Q8)
        dra_build_fail(g, "precision", DRA_ERR_VALUE, "no precision number %d", (int)precision);
    else
        g->precision = precision;
}

dra_precision dra_graph_precision(const dra_graph *g) { return g->precision; }

void dra_note_factors(dra_graph *g, dra_value v, const dra_factors *factors)
{
    if (dra_owns(g, v))
        dra_info(g, v)->factors = dra_arena_copy(&g->arena, factors, sizeof *factors);
}

const dra_factors *dra_factors_of(const dra_graph *g, dra_value v)
{
    return dra_owns(g, v) ? dra_info(g, v)->factors : NULL;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static dra_status fill_outputs(dra_graph *g, dra_node *n)
{
    dra_type      *types = dra_arena_alloc(&g->arena, (size_t)n->n_out * sizeof *types);
    dra_status     st = types ? n->op->infer(g, n, types) : out_of_memory(g);
    const uint32_t index = (uint32_t)g->nodes.n - 1;
    for (int i = 0; i < n->n_out && st == DRA_OK; i++) {
        st = check_type(g, n->op->name, &types[i]);
        if (st != DRA_OK) break;
        n->out[i] = value_new(
            g, (dra_value_info){.type = types[i], .node = index, .output = (uint32_t)i});
        if (!n->out[i].id) st = DRA_ERR_MEMORY;
    }
    return st;
}

static const dra_node *node_add(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                                int n_out, const void *attr, const dra_graph *body)
{
    if (!dra_check_values(g, op->name, n_in, in)) return NULL;
    const dra_node made = {
        .op = op,
        .n_in = n_in,
        .n_out = n_out,
        .in = dra_arena_copy(&g->arena, in, (size_t)n_in * sizeof *in),
        .out = dra_arena_alloc(&g->arena, (size_t)n_out * sizeof(dra_value)),
        .attr = dra_arena_copy(&g->arena, attr, attr ? op->attr_size : 0),
        .body = body,
    };
    dra_node *n = dra_arena_copy(&g->arena, &made, sizeof made);
    if (!n || !n->in || !n->out || !n->attr || !dra_list_push(&g->nodes, n)) {
        out_of_memory(g);
        return NULL;
    }
    return fill_outputs(g, n) == DRA_OK ? n : NULL;
}

const dra_node *dra_node_add(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                             const void *attr)
{
    return node_add(g, op, n_in, in, op->n_out, attr, NULL);
}

const dra_node *dra_node_add_many(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                                  int n_out, const void *attr)
{
    return node_add(g, op, n_in, in, n_out, attr, NULL);
}

dra_value dra_add_op(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                     const void *attr)
{
    const dra_node *n = dra_node_add(g, op, n_in, in, attr);
    return n ? n->out[0] : (dra_value){0};
}

void dra_mark_used(const dra_graph *g, bool *used)
{
    for (size_t i = g->nodes.n; i-- > 0;) {
        const dra_node *n = dra_node_at(g, i);
        bool            any = false;
        for (int j = 0; j < n->n_out; j++) any = any || used[dra_index(n->out[j])];
        for (int j = 0; any && j < n->n_in; j++) used[dra_index(n->in[j])] = true;
    }
}

size_t dra_node_count(const dra_graph *g) { return g->nodes.n; }

/* ---- regions --------------------------------------------------------------------------------- */

dra_graph *dra_body_create(dra_graph *g, int n_in, const dra_type *in, dra_value *in_values)
{
    if (dra_graph_failed(g)) return NULL;
    dra_graph *body = graph_new(g);
    if (!body || !dra_list_push(&g->bodies, body)) {
        dra_graph_destroy(body);
        out_of_memory(g);
        return NULL;
    }
    memcpy(body->scope, g->scope, sizeof body->scope);
    body->precision = g->precision;
    for (int i = 0; i < n_in; i++) {
        in_values[i] = value_new(
            body, (dra_value_info){.type = in[i], .role = DRA_ROLE_INPUT, .name = ""});
    }
    return body;
}

bool dra_body_return(dra_graph *g, dra_graph *body, int n, const dra_value *out)
{
    if (!dra_graph_failed(body)) dra_check_values(body, "region result", n, out);
    for (int i = 0; i < n && !dra_graph_failed(body); i++) {
        const dra_output_info info = {"", out[i], {0}};
        if (!dra_list_push(&body->outputs, dra_arena_copy(&body->arena, &info, sizeof info)))
            out_of_memory(body);
    }
    if (dra_graph_failed(body) && !dra_graph_failed(g)) g->error = body->error;
    return !dra_graph_failed(g);
}

int dra_body_outputs(const dra_graph *body) { return (int)body->outputs.n; }

const dra_type *dra_body_output_type(const dra_graph *body, int i)
{
    return dra_type_of(body, dra_output_at(body, (size_t)i)->value);
}

const dra_node *dra_region_add(dra_graph *g, const dra_op *op, int n_in, const dra_value *in,
                               const void *attr, const dra_graph *body)
{
    int n_out = dra_body_outputs(body);
    if (op == &dra_op_scan) n_out += ((const dra_scan_attr *)attr)->carries; /* the borders */
    return node_add(g, op, n_in, in, n_out, attr, body);
}

/* Copies a body, with the bodies inside it, into the family of g. */
static const dra_graph *body_clone(dra_graph *g, const dra_graph *body)
{
    size_t n_in = 1;
    while (n_in < body->values.n &&
           dra_info(body, (dra_value){(uint32_t)n_in})->role != DRA_ROLE_NODE)
        n_in++;
    n_in--;
    dra_type  *types = calloc(n_in + 1, sizeof *types);
    dra_value *in = calloc(n_in + 1, sizeof *in);
    dra_value *out = calloc(body->outputs.n + 1, sizeof *out);
    dra_graph *copy = NULL;
    if (types && in && out) {
        for (size_t i = 0; i < n_in; i++)
            types[i] = dra_info(body, (dra_value){(uint32_t)i + 1})->type;
        copy = dra_body_create(g, (int)n_in, types, in);
        if (copy) {
            dra_inline(copy, body, in, out);
            if (!dra_body_return(g, copy, (int)body->outputs.n, out)) copy = NULL;
        }
    } else {
        out_of_memory(g);
    }
    free(types);
    free(in);
    free(out);
    return copy;
}

static void inline_node(dra_graph *g, const dra_node *n, dra_value *map, dra_value *in)
{
    for (int j = 0; j < n->n_in; j++) in[j] = map[dra_index(n->in[j])];
    const dra_graph *body = n->body ? body_clone(g, n->body) : NULL;
    if (n->body && !body) return;
    const dra_node *made = node_add(g, n->op, n->n_in, in, n->n_out,
                                    n->op->attr_size ? n->attr : NULL, body);
    for (int j = 0; made && j < n->n_out; j++) map[dra_index(n->out[j])] = made->out[j];
}

void dra_inline(dra_graph *g, const dra_graph *body, const dra_value *in, dra_value *out)
{
    int most = 1;
    for (size_t i = 0; i < body->nodes.n; i++)
        if (dra_node_at(body, i)->n_in > most) most = dra_node_at(body, i)->n_in;
    dra_value *map = calloc(body->values.n, sizeof *map);
    dra_value *node_in = calloc((size_t)most, sizeof *node_in);
    if (!map || !node_in) out_of_memory(g);
    if (map && node_in) {
        for (size_t i = 1, next = 0; i < body->values.n; i++)
            if (dra_info(body, (dra_value){(uint32_t)i})->role != DRA_ROLE_NODE)
                map[i] = in[next++];
        for (size_t i = 0; i < body->nodes.n && !dra_graph_failed(g); i++)
            inline_node(g, dra_node_at(body, i), map, node_in);
        for (size_t i = 0; i < body->outputs.n; i++)
            out[i] = map[dra_index(dra_output_at(body, i)->value)];
    }
    free(map);
    free(node_in);
}
