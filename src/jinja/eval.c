/* Expressions: what a node of the tree is worth. */
#include "jinja/run.h"

#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

static bool look_up(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    for (const dra_tscope *s = r->scope; s; s = s->around)
        for (size_t i = s->n; i-- > 0;)
            if (s->at[i].n == n->n && memcmp(s->at[i].name, n->text, n->n) == 0) {
                *out = s->at[i].value;
                return true;
            }
    const dra_tvalue *given = dra_tpairs_get(r, r->variables.pairs, r->variables.n, n->text, n->n);
    const dra_tbuiltin *b = given ? NULL : dra_tbuiltin_find(&dra_tfunctions, n->text, n->n);
    *out = given ? *given
           : b   ? (dra_tvalue){DRA_T_FUNCTION, 0, {.builtin = b}}
                 : dra_tundefined(n->text, n->n);
    return r->status == DRA_OK;
}

/* ---- literals -------------------------------------------------------------------------------- */

static bool eval_list(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    size_t count = 0, i = 0;
    for (const dra_tnode *x = n->list; x; x = x->next) count++;
    dra_tvalue *items = dra_trun_alloc(r, count, sizeof *items);
    if (!items) return false;
    for (const dra_tnode *x = n->list; x; x = x->next)
        if (!dra_teval(r, x, &items[i++])) return false;
    *out = (dra_tvalue){n->kind == DRA_N_LIST ? DRA_T_LIST : DRA_T_TUPLE, count, {.items = items}};
    return true;
}

static bool eval_dict(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tspace all = {0};
    for (const dra_tnode *p = n->list; p; p = p->next) {
        dra_tvalue key, value;
        if (!dra_teval(r, p->a, &key) || !dra_teval(r, p->b, &value) ||
            !dra_tmap_set(r, &all, &key, &value))
            return false;
    }
    *out = dra_tdict(all.pairs, all.n);
    return true;
}

static bool eval_concat(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tbuffer b = {0};
    for (const dra_tnode *x = n->list; x; x = x->next) {
        dra_tvalue part;
        if (!dra_teval(r, x, &part) || !dra_tshow(r, &b, &part)) return false;
    }
    *out = dra_tbuffer_value(&b);
    return true;
}

/* ---- calls ----------------------------------------------------------------------------------- */

const dra_tbuiltin *dra_tbuiltin_find(const dra_tbuiltins *all, const char *name, size_t n)
{
    for (size_t i = 0; i < all->n; i++)
        if (strlen(all->at[i].name) == n && memcmp(all->at[i].name, name, n) == 0)
            return &all->at[i];
    return NULL;
}

const dra_tbuiltin *dra_tfilter_find(const char *name, size_t n)
{
    const dra_tbuiltins *const all[] = {&dra_ttext_filters, &dra_tlist_filters,
                                        &dra_tnumber_filters};
    const dra_tbuiltin        *found = NULL;
    for (size_t i = 0; !found && i < sizeof all / sizeof *all; i++)
        found = dra_tbuiltin_find(all[i], name, n);
    return found;
}

int dra_tparam_find(const char *params, const char *key, size_t n)
{
    for (int i = 0; *params; i++) {
        const size_t length = strcspn(params, " ");
        if (length == n && memcmp(params, key, n) == 0) return i;
        params += length;
        params += *params == ' ';
    }
    return -1;
}

size_t dra_tparam_count(const char *params)
{
    size_t n = *params != '\0';
    for (; *params; params++) n += *params == ' ';
    return n;
}

bool dra_tbuiltin_call(dra_trun *r, const dra_tbuiltin *b, const dra_tvalue *self,
                       const dra_targs *a, dra_tvalue *out)
{
    dra_tvalue at[DRA_TEMPLATE_ARGS] = {{0}};
    if (!dra_trun_spend(r, 1)) return false;
    if (!b->params) return b->run(r, self, a, out);
    const size_t n = dra_tparam_count(b->params);
    for (size_t i = 0; i < a->n; i++) {
        const char *key = a->key ? a->key[i] : NULL;
        const int   p = key ? dra_tparam_find(b->params, key, strlen(key)) : (int)i;
        if (p < 0 || (size_t)p >= n || at[p].kind != DRA_T_ABSENT)
            return dra_trun_fail(r, "%s: %s", b->name,
                                 p < 0            ? "no such argument is known"
                                 : (size_t)p >= n ? "too many arguments"
                                                  : "an argument is given twice");
        at[p] = a->at[i];
    }
    for (size_t i = 0; i < b->needed; i++)
        if (at[i].kind == DRA_T_ABSENT)
            return dra_trun_fail(r, "%s: expected %zu arguments", b->name, b->needed);
    return b->run(r, self, &(dra_targs){.at = at, .n = n}, out);
}

/* Names of arguments are copied with a final 0, since they are compared as C strings; the parser
 * bounds their number. */
static bool eval_arguments(dra_trun *r, const dra_tnode *n, dra_tvalue *at, const char **key,
                           size_t *count)
{
    *count = 0;
    for (const dra_tnode *x = n->list; x; x = x->next, ++*count) {
        const bool named = x->kind == DRA_N_KEYWORD;
        char      *name = named ? dra_trun_alloc(r, x->n + 1, 1) : NULL;
        if (named && !name) return false;
        if (named) memcpy(name, x->text, x->n);
        key[*count] = name;
        if (!dra_teval(r, named ? x->a : x, &at[*count])) return false;
    }
    r->line = n->line;
    return true;
}

static bool eval_call(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tvalue  at[DRA_TEMPLATE_ARGS], f;
    const char *key[DRA_TEMPLATE_ARGS];
    dra_targs   a = {.at = at, .key = key};
    if (!look_up(r, n, &f) || !eval_arguments(r, n, at, key, &a.n)) return false;
    if (f.kind == DRA_T_MACRO) return dra_tmacro_call(r, f.macro, &a, out);
    if (f.kind == DRA_T_FUNCTION) return dra_tbuiltin_call(r, f.builtin, &f, &a, out);
    return dra_trun_fail(r, "'%.*s' is %s and cannot be called", (int)n->n, n->text,
                         dra_tkind_name(&f));
}

/* Calls a method of a string or a dict; both may have one of the same name. */
static bool call_method(dra_trun *r, const dra_tnode *n, const dra_tvalue *self, const dra_targs *a,
                        dra_tvalue *out)
{
    const dra_tbuiltin *b = NULL;
    if (self->kind == DRA_T_STRING) b = dra_tbuiltin_find(&dra_ttext_methods, n->text, n->n);
    if (self->kind == DRA_T_DICT) b = dra_tbuiltin_find(&dra_tdict_methods, n->text, n->n);
    if (self->kind == DRA_T_UNDEFINED)
        return dra_trun_fail(r, "'%.*s' is undefined, so it has no '%.*s'", (int)self->n,
                             self->text, (int)n->n, n->text);
    if (!b)
        return dra_trun_fail(r, "%s has no method '%.*s'", dra_tkind_name(self), (int)n->n,
                             n->text);
    return dra_tbuiltin_call(r, b, self, a, out);
}

static bool eval_on_value(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tvalue  at[DRA_TEMPLATE_ARGS], self = dra_tnone();
    const char *key[DRA_TEMPLATE_ARGS];
    dra_targs   a = {.at = at, .key = key};
    if (n->a ? !dra_teval(r, n->a, &self) : !r->filtered) return false;
    if (!n->a) self = *r->filtered;
    if (!eval_arguments(r, n, at, key, &a.n)) return false;
    if (n->kind == DRA_N_METHOD) return call_method(r, n, &self, &a, out);
    return dra_tbuiltin_call(r, n->builtin, &self, &a, out);
}

/* ---- operators ------------------------------------------------------------------------------- */

static bool eval_binary(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tvalue a, b;
    if (!dra_teval(r, n->a, &a) || !dra_teval(r, n->b, &b)) return false;
    r->line = n->line;
    return dra_tbinary(r, n->op, &a, &b, out);
}

/* a < b < c is a < b and b < c. */
static bool eval_comparison(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tvalue a, b;
    bool       holds = true;
    if (!dra_teval(r, n->a, &a)) return false;
    for (const dra_tnode *c = n->list; c && holds; c = c->next) {
        if (!dra_teval(r, c->a, &b) || !dra_tcompare(r, c->op, &a, &b, &holds)) return false;
        a = b;
    }
    *out = dra_tbool(holds);
    return true;
}

static bool eval_slice(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tvalue       of, bounds[3];
    const dra_tnode *x = n->list;
    if (!dra_teval(r, n->a, &of)) return false;
    for (int i = 0; i < 3; i++, x = x->next)
        if (!dra_teval(r, x, &bounds[i])) return false;
    return dra_tslice(r, &of, bounds, out);
}

static bool eval_member(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tvalue of, key;
    if (!dra_teval(r, n->a, &of)) return false;
    if (n->kind == DRA_N_ATTRIBUTE) return dra_tattribute(r, &of, n->text, n->n, out);
    return dra_teval(r, n->b, &key) && dra_titem(r, &of, &key, out);
}

static bool eval_unary(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tvalue x;
    if (!dra_teval(r, n->a, &x)) return false;
    if (n->kind == DRA_N_NOT) {
        *out = dra_tbool(!dra_ttruth(&x));
        return true;
    }
    if (!dra_tnegate(r, &x, out)) return false;
    if (n->kind == DRA_N_POSITIVE) *out = x.kind == DRA_T_BOOL ? dra_tint(x.truth) : x;
    return true;
}

static bool eval_choice(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    dra_tvalue c;
    if (!dra_teval(r, n->a, &c)) return false;
    const dra_tnode *taken = dra_ttruth(&c) ? n->b : n->c;
    *out = dra_tundefined("an if without else", 18);
    return taken ? dra_teval(r, taken, out) : true;
}

/* The operand that decides, not its truth. */
static bool eval_and_or(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    if (!dra_teval(r, n->a, out)) return false;
    return dra_ttruth(out) == (n->kind == DRA_N_OR) ? true : dra_teval(r, n->b, out);
}

static bool eval_node(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    switch (n->kind) {
    case DRA_N_CONST: *out = n->value; return true;
    case DRA_N_NAME: return look_up(r, n, out);
    case DRA_N_LIST:
    case DRA_N_TUPLE: return eval_list(r, n, out);
    case DRA_N_DICT: return eval_dict(r, n, out);
    case DRA_N_ATTRIBUTE:
    case DRA_N_ITEM: return eval_member(r, n, out);
    case DRA_N_SLICE: return eval_slice(r, n, out);
    case DRA_N_CALL: return eval_call(r, n, out);
    case DRA_N_METHOD:
    case DRA_N_FILTER:
    case DRA_N_TEST: return eval_on_value(r, n, out);
    case DRA_N_NOT:
    case DRA_N_NEGATIVE:
    case DRA_N_POSITIVE: return eval_unary(r, n, out);
    case DRA_N_AND:
    case DRA_N_OR: return eval_and_or(r, n, out);
    case DRA_N_BINARY: return eval_binary(r, n, out);
    case DRA_N_CONCAT: return eval_concat(r, n, out);
    case DRA_N_COMPARE: return eval_comparison(r, n, out);
    default: return eval_choice(r, n, out);
    }
}

bool dra_teval(dra_trun *r, const dra_tnode *n, dra_tvalue *out)
{
    bool ok = dra_trun_spend(r, 1);
    r->line = n->line;
    if (++r->depth > DRA_TEMPLATE_NESTED)
        ok = dra_trun_fail(r, "macros and values nest more than %d deep", DRA_TEMPLATE_NESTED);
    ok = ok && eval_node(r, n, out);
    r->depth--;
    return ok;
}
