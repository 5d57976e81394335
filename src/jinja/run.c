/* Rendering: statements, scopes, macros, budgets. */
#include "jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "file/fail.h"

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED } flow;

static flow run_all(dra_trun *r, const dra_tnode *n);

/* ---- failures and budgets -------------------------------------------------------------------- */

bool dra_trun_fail(dra_trun *r, const char *format, ...)
{
    char    text[DRA_ERROR_TEXT];
    va_list args;
    if (r->status != DRA_OK) return false;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = dra_fail_at(r->err, DRA_ERR_VALUE, r->name, "line %d: %s", r->line, text);
    return false;
}

bool dra_trun_spend(dra_trun *r, size_t steps)
{
    if (r->status != DRA_OK) return false;
    if (steps > (size_t)r->steps) {
        r->steps = 0;
        return dra_trun_fail(r, "rendering takes more than %d steps", DRA_TEMPLATE_STEPS);
    }
    r->steps -= (int64_t)steps;
    return true;
}

void *dra_trun_alloc(dra_trun *r, size_t count, size_t size)
{
    if (r->status != DRA_OK) return NULL;
    if (count > (DRA_TEMPLATE_BYTES - r->bytes) / size) {
        dra_trun_fail(r, "rendering takes more than %d bytes", DRA_TEMPLATE_BYTES);
        return NULL;
    }
    void *p = dra_arena_alloc(&r->arena, count * size);
    if (!p) {
        r->status = dra_fail_at(r->err, DRA_ERR_MEMORY, r->name, "out of memory for rendering");
        return NULL;
    }
    r->bytes += count * size;
    return dra_trun_spend(r, 1 + count * size / 256) ? p : NULL;
}

/* ---- variables ------------------------------------------------------------------------------- */

bool dra_tset(dra_trun *r, const char *name, size_t n, const dra_tvalue *value)
{
    dra_tscope *s = r->scope;
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].n != n || memcmp(s->at[i].name, name, n) != 0) continue;
        s->at[i].value = *value;
        return true;
    }
    if (s->n == s->room) {
        const size_t   room = s->room ? 2 * s->room : 4;
        dra_tvariable *more = dra_trun_alloc(r, room, sizeof *more);
        if (!more) return false;
        if (s->n) memcpy(more, s->at, s->n * sizeof *more);
        s->at = more;
        s->room = room;
    }
    s->at[s->n++] = (dra_tvariable){name, n, *value};
    return true;
}

static bool set_member(dra_trun *r, const dra_tnode *target, const dra_tvalue *value)
{
    dra_tvalue       space;
    const dra_tvalue key = dra_tstring(target->text, target->n);
    if (!dra_teval(r, target->a, &space)) return false;
    if (space.kind != DRA_T_NAMESPACE)
        return dra_trun_fail(r, "expected a namespace to set '%.*s' in, found %s", (int)target->n,
                             target->text, dra_tkind_name(&space));
    return dra_tmap_set(r, space.space, &key, value);
}

static bool assign_target(dra_trun *r, const dra_tnode *target, const dra_tvalue *value)
{
    dra_tvalue parts;
    size_t     i = 0;
    if (target->kind == DRA_N_NAME) return dra_tset(r, target->text, target->n, value);
    if (target->kind == DRA_N_ATTRIBUTE) return set_member(r, target, value);
    if (!dra_titerate(r, value, &parts)) return false;
    for (const dra_tnode *n = target->list; n; n = n->next) i++;
    if (i != parts.n)
        return dra_trun_fail(r, "expected %zu values for as many names, found %zu", i, parts.n);
    i = 0;
    for (const dra_tnode *n = target->list; n; n = n->next)
        if (!assign_target(r, n, &parts.items[i++])) return false;
    return true;
}

/* ---- statements ------------------------------------------------------------------------------ */

static flow run_if(dra_trun *r, const dra_tnode *n)
{
    for (const dra_tnode *c = n->list; c; c = c->next) {
        dra_tvalue x = dra_tbool(true);
        if (c->a && !dra_teval(r, c->a, &x)) return FLOW_FAILED;
        if (dra_ttruth(&x)) return run_all(r, c->list);
    }
    return FLOW_ON;
}

/* Keeps the members for which the loop's condition holds; it sees the loop's variables. */
static bool keep_members(dra_trun *r, const dra_tnode *n, dra_tvalue *list)
{
    size_t      kept = 0;
    dra_tvalue *items = dra_trun_alloc(r, list->n, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < list->n; i++) {
        dra_tvalue x;
        if (!assign_target(r, n->a, &list->items[i]) || !dra_teval(r, n->c, &x)) return false;
        if (dra_ttruth(&x)) items[kept++] = list->items[i];
    }
    *list = dra_tlist(items, kept);
    return true;
}

static flow run_turns(dra_trun *r, const dra_tnode *n, dra_tscope *scope, dra_tvalue list)
{
    dra_tloop *loop = dra_trun_alloc(r, 1, sizeof *loop);
    flow       f = FLOW_ON;
    if (!loop) return FLOW_FAILED;
    *loop = (dra_tloop){.items = list.items, .n = list.n};
    const dra_tvalue value = {DRA_T_LOOP, 0, {.loop = loop}};
    for (; loop->index < list.n && (f == FLOW_ON || f == FLOW_CONTINUE); loop->index++) {
        scope->n = 0;
        if (!assign_target(r, n->a, &list.items[loop->index]) || !dra_tset(r, "loop", 4, &value))
            return FLOW_FAILED;
        f = run_all(r, n->list);
    }
    return f == FLOW_FAILED ? f : FLOW_ON;
}

static flow run_for(dra_trun *r, const dra_tnode *n)
{
    dra_tvalue  of, list;
    dra_tscope *around = r->scope, *scope;
    flow        f = FLOW_FAILED;
    if (!dra_teval(r, n->b, &of) || !dra_titerate(r, &of, &list)) return FLOW_FAILED;
    scope = dra_trun_alloc(r, 1, sizeof *scope);
    if (!scope) return FLOW_FAILED;
    scope->around = around;
    r->scope = scope;
    if (!n->c || keep_members(r, n, &list)) f = run_turns(r, n, scope, list);
    scope->n = 0;
    if (f == FLOW_ON && list.n == 0) f = run_all(r, n->other);
    r->scope = around;
    return f;
}

/* Renders nodes into a string. */
static flow capture_text(dra_trun *r, const dra_tnode *n, dra_tvalue *text)
{
    dra_tbuffer  b = {0};
    dra_tbuffer *out = r->out;
    r->out = &b;
    const flow f = run_all(r, n);
    r->out = out;
    *text = dra_tbuffer_value(&b);
    return f;
}

static flow run_set_block(dra_trun *r, const dra_tnode *n, dra_tvalue *x)
{
    dra_tscope *around = r->scope, *inner = dra_trun_alloc(r, 1, sizeof *inner);
    dra_tvalue  text;
    if (!inner) return FLOW_FAILED;
    inner->around = around;
    r->scope = inner;
    const flow f = capture_text(r, n->c->list, &text);
    r->scope = around;
    *x = text;
    if (f != FLOW_ON || !n->b) return f;
    r->filtered = &text;
    const bool ok = dra_teval(r, n->b, x);
    r->filtered = NULL;
    return ok ? FLOW_ON : FLOW_FAILED;
}

static flow run_set(dra_trun *r, const dra_tnode *n)
{
    dra_tvalue x;
    flow       f = FLOW_ON;
    if (n->c)
        f = run_set_block(r, n, &x);
    else if (!dra_teval(r, n->b, &x))
        f = FLOW_FAILED;
    if (f != FLOW_ON) return f;
    return assign_target(r, n->a, &x) ? FLOW_ON : FLOW_FAILED;
}

static flow run_macro(dra_trun *r, const dra_tnode *n)
{
    dra_tmacro *m = dra_trun_alloc(r, 1, sizeof *m);
    if (!m) return FLOW_FAILED;
    *m = (dra_tmacro){n, r->scope};
    const dra_tvalue value = {DRA_T_MACRO, 0, {.macro = m}};
    return dra_tset(r, n->text, n->n, &value) ? FLOW_ON : FLOW_FAILED;
}

static flow run_print(dra_trun *r, const dra_tnode *n)
{
    dra_tvalue x;
    return dra_teval(r, n->a, &x) && dra_tshow(r, r->out, &x) ? FLOW_ON : FLOW_FAILED;
}

static flow run_one(dra_trun *r, const dra_tnode *n)
{
    switch (n->kind) {
    case DRA_N_TEXT: return dra_tbuffer_add(r, r->out, n->text, n->n) ? FLOW_ON : FLOW_FAILED;
    case DRA_N_PRINT: return run_print(r, n);
    case DRA_N_IF: return run_if(r, n);
    case DRA_N_FOR: return run_for(r, n);
    case DRA_N_SET: return run_set(r, n);
    case DRA_N_MACRO: return run_macro(r, n);
    case DRA_N_BREAK: return FLOW_BREAK;
    case DRA_N_CONTINUE: return FLOW_CONTINUE;
    default: return run_all(r, n->list);
    }
}

static flow run_all(dra_trun *r, const dra_tnode *n)
{
    flow f = FLOW_ON;
    if (++r->depth > DRA_TEMPLATE_NESTED) {
        dra_trun_fail(r, "macros and values nest more than %d deep", DRA_TEMPLATE_NESTED);
        f = FLOW_FAILED;
    }
    for (; n && f == FLOW_ON; n = n->next) {
        r->line = n->line;
        f = dra_trun_spend(r, 1) ? run_one(r, n) : FLOW_FAILED;
    }
    r->depth--;
    return f;
}

/* ---- macros ---------------------------------------------------------------------------------- */

static bool is_named(const dra_tnode *n, const char *key)
{
    return strlen(key) == n->n && memcmp(key, n->text, n->n) == 0;
}

/* An argument by position or name, else the default, which sees the parameters before it. */
static bool bind_param(dra_trun *r, const dra_tnode *param, size_t at, const dra_targs *a,
                       size_t *used)
{
    dra_tvalue x = dra_tundefined(param->text, param->n);
    bool       given = false;
    for (size_t i = 0; i < a->n; i++) {
        if (a->key[i] ? !is_named(param, a->key[i]) : i != at) continue;
        x = a->at[i];
        given = true;
        ++*used;
    }
    if (!given && param->a && !dra_teval(r, param->a, &x)) return false;
    return dra_tset(r, param->text, param->n, &x);
}

bool dra_tmacro_call(dra_trun *r, const dra_tmacro *m, const dra_targs *a, dra_tvalue *out)
{
    dra_tscope *around = r->scope;
    dra_tscope *scope = dra_trun_alloc(r, 1, sizeof *scope);
    const int   line = r->line;
    size_t      at = 0, used = 0;
    bool        ok = scope != NULL;
    if (!ok) return false;
    scope->around = m->scope;
    r->scope = scope;
    for (const dra_tnode *p = m->node->other; ok && p; p = p->next)
        ok = bind_param(r, p, at++, a, &used);
    if (ok && used < a->n)
        ok = dra_trun_fail(r, "the macro '%.*s' has no such argument, or has it twice",
                           (int)m->node->n, m->node->text);
    ok = ok && capture_text(r, m->node->list, out) != FLOW_FAILED;
    r->scope = around;
    r->line = line;
    return ok;
}

/* ---- a whole template ------------------------------------------------------------------------ */

bool dra_trun_template(dra_trun *r, const dra_tnode *body, dra_tbuffer *text)
{
    dra_tscope scope = {0};
    r->scope = &scope;
    r->out = text;
    r->steps = DRA_TEMPLATE_STEPS;
    return run_all(r, body->list) != FLOW_FAILED;
}
