/* Values in expressions, and what may follow them:
 *   name  'text'  1  (x)  [x]  {k: x}      .name  [item]  (arguments)  |filter  is test */
#include "jinja/run.h"

#include <string.h>

static bool token_is(const dra_tparser *p, const char *name)
{
    return p->at->n == strlen(name) && memcmp(p->at->text, name, p->at->n) == 0;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Parses up to the closing bracket; the opening one has been read. */
static void parse_arguments(dra_tparser *p, dra_tnode *call)
{
    dra_tnode **end = &call->list;
    bool        keys = false;
    int         count = 0;
    while (p->status == DRA_OK && !dra_tat_sign(p, ")")) {
        if (count++ && !dra_tneed_sign(p, ",")) return;
        if (dra_tat_sign(p, ")")) break;
        const dra_ttoken *next = p->at->kind == DRA_W_END ? p->at : p->at + 1;
        dra_tnode        *n;
        if (p->at->kind == DRA_W_NAME && next->kind == DRA_W_SIGN && next->n == 1 &&
            next->text[0] == '=') {
            n = dra_tname(p, DRA_N_KEYWORD);
            p->at++;
            if (n) n->a = dra_texpression(p);
            n = dra_tdone(p, n);
            keys = true;
        } else {
            if (keys) dra_texpected(p, "NAME= after an argument with a name");
            n = dra_texpression(p);
        }
        if (count > DRA_TEMPLATE_ARGS)
            dra_trefuse(p, call->line, "a call has more than %d arguments", DRA_TEMPLATE_ARGS);
        dra_tappend(&end, n);
    }
    dra_tneed_sign(p, ")");
}

/* Checks what is known before rendering: names and number of the arguments. */
static void check_arguments(dra_tparser *p, const dra_tnode *call)
{
    const dra_tbuiltin *b = call->builtin;
    size_t              n = 0;
    if (p->status != DRA_OK || !b->params) return;
    for (const dra_tnode *a = call->list; a; a = a->next, n++)
        if (a->kind == DRA_N_KEYWORD && dra_tparam_find(b->params, a->text, a->n) < 0)
            dra_trefuse(p, a->line, "%s: no such argument is known: '%.*s'", b->name,
                        a->n < 60 ? (int)a->n : 60, a->text);
    if (n > dra_tparam_count(b->params) || n < b->needed)
        dra_trefuse(p, call->line, "%s: expected %zu to %zu arguments, found %zu", b->name,
                    b->needed, dra_tparam_count(b->params), n);
}

/* A filter or test named by the first argument, or after the attribute, of map(), select(). */
static void check_named(dra_tparser *p, const dra_tnode *call)
{
    const char      *name = call->builtin->name;
    const bool       by_attribute = strstr(name, "attr") != NULL;
    const dra_tnode *a = call->list;
    if (call->builtin->params || p->status != DRA_OK) return;
    if (by_attribute && a) a = a->next;
    if (!a || a->kind != DRA_N_CONST || a->value.kind != DRA_T_STRING) return;
    const bool is_map = strcmp(name, "map") == 0;
    if (is_map ? !dra_tfilter_find(a->value.text, a->value.n)
               : !dra_tbuiltin_find(&dra_ttests, a->value.text, a->value.n))
        dra_trefuse(p, a->line, "%s: no such %s is known: '%.*s'", name, is_map ? "filter" : "test",
                    a->value.n < 60 ? (int)a->value.n : 60, a->value.text);
}

/* ---- primary expressions --------------------------------------------------------------------- */

static dra_tnode *take_constant(dra_tparser *p, dra_tvalue value)
{
    dra_tnode *n = dra_tnew(p, DRA_N_CONST, p->at->line);
    if (n) n->value = value;
    p->at++;
    return n;
}

/* Adjacent strings are one. */
static dra_tnode *parse_string(dra_tparser *p)
{
    dra_tnode *n = take_constant(p, dra_tstring(p->at->text, p->at->n));
    while (n && p->at->kind == DRA_W_STRING) {
        char *both = dra_arena_alloc(p->source->arena, n->value.n + p->at->n + 1);
        if (!both) return dra_tno_memory(p);
        memcpy(both, n->value.text, n->value.n);
        memcpy(both + n->value.n, p->at->text, p->at->n);
        n->value = dra_tstring(both, n->value.n + p->at->n);
        p->at++;
    }
    return n;
}

static dra_tnode *parse_name(dra_tparser *p)
{
    static const char *const words[] = {"not", "and", "or", "if", "else", "in", "is"};
    if (token_is(p, "true") || token_is(p, "True")) return take_constant(p, dra_tbool(true));
    if (token_is(p, "false") || token_is(p, "False")) return take_constant(p, dra_tbool(false));
    if (token_is(p, "none") || token_is(p, "None")) return take_constant(p, dra_tnone());
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (token_is(p, words[i])) return dra_texpected(p, "a value");
    return dra_tname(p, DRA_N_NAME);
}

static dra_tnode *parse_list(dra_tparser *p)
{
    dra_tnode *all = dra_tnew(p, DRA_N_LIST, p->at->line);
    if (!all) return NULL;
    dra_tnode **end = &all->list;
    p->at++;
    while (p->status == DRA_OK && !dra_tat_sign(p, "]")) {
        if (all->list && !dra_tneed_sign(p, ",")) return NULL;
        if (dra_tat_sign(p, "]")) break;
        dra_tappend(&end, dra_texpression(p));
    }
    dra_tneed_sign(p, "]");
    return dra_tdone(p, all);
}

static dra_tnode *parse_dict(dra_tparser *p)
{
    dra_tnode *all = dra_tnew(p, DRA_N_DICT, p->at->line);
    if (!all) return NULL;
    dra_tnode **end = &all->list;
    p->at++;
    while (p->status == DRA_OK && !dra_tat_sign(p, "}")) {
        if (all->list && !dra_tneed_sign(p, ",")) return NULL;
        if (dra_tat_sign(p, "}")) break;
        dra_tnode *key = dra_texpression(p);
        if (!dra_tneed_sign(p, ":")) return NULL;
        dra_tappend(&end, dra_twrap(p, DRA_N_PAIR, key, dra_texpression(p)));
    }
    dra_tneed_sign(p, "}");
    return dra_tdone(p, all);
}

static dra_tnode *parse_brackets(dra_tparser *p)
{
    dra_tnode *inner;
    p->at++;
    if (dra_tat_sign(p, ")"))
        inner = dra_tnew(p, DRA_N_TUPLE, p->at->line);
    else
        inner = dra_ttuple(p, true);
    dra_tneed_sign(p, ")");
    return inner;
}

dra_tnode *dra_tprimary(dra_tparser *p)
{
    dra_tnode *n = NULL;
    if (!dra_tenter(p)) return NULL;
    switch (p->at->kind) {
    case DRA_W_NAME: n = parse_name(p); break;
    case DRA_W_STRING: n = parse_string(p); break;
    case DRA_W_INT:
    case DRA_W_FLOAT: n = take_constant(p, p->at->number); break;
    default:
        n = dra_tat_sign(p, "(")   ? parse_brackets(p)
            : dra_tat_sign(p, "[") ? parse_list(p)
            : dra_tat_sign(p, "{") ? parse_dict(p)
                                   : dra_texpected(p, "a value");
    }
    p->depth--;
    return p->status == DRA_OK ? n : NULL;
}

/* ---- what follows a value -------------------------------------------------------------------- */

/* One of the three parts of a slice: none where it is not given. */
static dra_tnode *parse_bound(dra_tparser *p)
{
    const bool given = !dra_tat_sign(p, ":") && !dra_tat_sign(p, "]");
    if (given) return dra_texpression(p);
    dra_tnode *n = dra_tnew(p, DRA_N_CONST, p->at->line);
    if (n) n->value = dra_tnone();
    return n;
}

static dra_tnode *parse_subscript(dra_tparser *p, dra_tnode *of)
{
    dra_tnode *first = dra_tat_sign(p, "]") ? dra_texpected(p, "an index") : parse_bound(p);
    if (!first) return NULL;
    if (!dra_ttake_sign(p, ":")) {
        dra_tneed_sign(p, "]");
        return dra_twrap(p, DRA_N_ITEM, of, first);
    }
    dra_tnode *n = dra_twrap(p, DRA_N_SLICE, of, NULL);
    if (!n) return NULL;
    dra_tnode **end = &n->list;
    dra_tappend(&end, first);
    dra_tappend(&end, parse_bound(p));
    dra_ttake_sign(p, ":");
    dra_tappend(&end, parse_bound(p));
    dra_tneed_sign(p, "]");
    return dra_tdone(p, n);
}

static dra_tnode *parse_method(dra_tparser *p, dra_tnode *n)
{
    n->kind = DRA_N_METHOD;
    n->builtin = dra_tbuiltin_find(&dra_ttext_methods, n->text, n->n);
    if (!n->builtin) n->builtin = dra_tbuiltin_find(&dra_tdict_methods, n->text, n->n);
    if (!n->builtin)
        return dra_trefuse(p, n->line, "no such method is known: '%.*s'",
                           n->n < 60 ? (int)n->n : 60, n->text);
    parse_arguments(p, n);
    return dra_tdone(p, n);
}

static dra_tnode *parse_attribute(dra_tparser *p, dra_tnode *of)
{
    if (p->at->kind == DRA_W_INT)
        return dra_twrap(p, DRA_N_ITEM, of, take_constant(p, p->at->number));
    dra_tnode *n = dra_tname(p, DRA_N_ATTRIBUTE);
    if (!n) return NULL;
    n->a = of;
    return dra_ttake_sign(p, "(") ? parse_method(p, n) : dra_tdone(p, n);
}

static dra_tnode *parse_call(dra_tparser *p, dra_tnode *of)
{
    if (of->kind != DRA_N_NAME)
        return dra_trefuse(p, of->line, "only functions, macros and methods can be called");
    of->kind = DRA_N_CALL;
    parse_arguments(p, of);
    of->other = p->calls;
    p->calls = of;
    return dra_tdone(p, of);
}

dra_tnode *dra_tpostfix(dra_tparser *p, dra_tnode *n)
{
    while (n && p->status == DRA_OK) {
        if (dra_ttake_sign(p, "."))
            n = parse_attribute(p, n);
        else if (dra_ttake_sign(p, "["))
            n = parse_subscript(p, n);
        else if (dra_ttake_sign(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return p->status == DRA_OK ? n : NULL;
}

/* ---- filters and tests ----------------------------------------------------------------------- */

static dra_tnode *parse_filter(dra_tparser *p, dra_tnode *on)
{
    dra_tnode *n = dra_tname(p, DRA_N_FILTER);
    if (!n) return NULL;
    n->a = on;
    n->builtin = dra_tfilter_find(n->text, n->n);
    if (!n->builtin)
        return dra_trefuse(p, n->line, "no such filter is known: '%.*s'",
                           n->n < 60 ? (int)n->n : 60, n->text);
    if (dra_ttake_sign(p, "(")) parse_arguments(p, n);
    check_arguments(p, n);
    check_named(p, n);
    return dra_tdone(p, n);
}

dra_tnode *dra_tfilters(dra_tparser *p, dra_tnode *on)
{
    while (dra_ttake_sign(p, "|")) on = parse_filter(p, on);
    return on;
}

/* An argument without brackets: x is divisibleby 3. */
static bool argument_follows(const dra_tparser *p)
{
    const dra_tword kind = p->at->kind;
    if (kind == DRA_W_NAME)
        return !token_is(p, "else") && !token_is(p, "or") && !token_is(p, "and");
    return kind == DRA_W_STRING || kind == DRA_W_INT || kind == DRA_W_FLOAT ||
           dra_tat_sign(p, "[") || dra_tat_sign(p, "{");
}

static dra_tnode *parse_test(dra_tparser *p, dra_tnode *on)
{
    const bool negated = dra_ttake_word(p, "not");
    dra_tnode *n = dra_tname(p, DRA_N_TEST);
    if (!n) return NULL;
    n->a = on;
    n->builtin = dra_tbuiltin_find(&dra_ttests, n->text, n->n);
    if (!n->builtin)
        return dra_trefuse(p, n->line, "no such test is known: '%.*s'", n->n < 60 ? (int)n->n : 60,
                           n->text);
    if (dra_ttake_sign(p, "("))
        parse_arguments(p, n);
    else if (argument_follows(p))
        n->list = dra_tpostfix(p, dra_tprimary(p));
    check_arguments(p, n);
    n = dra_tdone(p, n);
    return negated ? dra_twrap(p, DRA_N_NOT, n, NULL) : n;
}

dra_tnode *dra_tfiltered(dra_tparser *p, dra_tnode *n)
{
    while (n && p->status == DRA_OK) {
        if (dra_ttake_sign(p, "|"))
            n = parse_filter(p, n);
        else if (dra_ttake_word(p, "is"))
            n = parse_test(p, n);
        else
            break;
    }
    return n;
}
