/* Statements of a template. */
#include "jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "file/fail.h"

static dra_tnode *parse_statements(dra_tparser *p, const char *const *ends);

/* ---- helpers for all of parsing -------------------------------------------------------------- */

void *dra_trefuse(dra_tparser *p, int line, const char *format, ...)
{
    char    text[DRA_ERROR_TEXT];
    va_list args;
    if (p->status != DRA_OK) return NULL;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->status = dra_template_fail(p->source, line, "%s", text);
    return NULL;
}

void *dra_texpected(dra_tparser *p, const char *what)
{
    const dra_ttoken *t = p->at;
    const int         n = t->n < 40 ? (int)t->n : 40;
    switch (t->kind) {
    case DRA_W_END: return dra_trefuse(p, t->line, "expected %s, found the end", what);
    case DRA_W_TEXT: return dra_trefuse(p, t->line, "expected %s, found text", what);
    case DRA_W_PRINT: return dra_trefuse(p, t->line, "expected %s, found {{", what);
    case DRA_W_BLOCK: return dra_trefuse(p, t->line, "expected %s, found {%%", what);
    case DRA_W_STRING:
        return dra_trefuse(p, t->line, "expected %s, found the string '%.*s'", what, n, t->text);
    default: return dra_trefuse(p, t->line, "expected %s, found '%.*s'", what, n, t->text);
    }
}

void *dra_tno_memory(dra_tparser *p)
{
    p->status = dra_fail_at(p->source->err, DRA_ERR_MEMORY, p->source->name,
                            "out of memory for the template");
    return NULL;
}

dra_tnode *dra_tnew(dra_tparser *p, dra_tnode_kind kind, int line)
{
    if (p->status != DRA_OK) return NULL;
    dra_tnode *n = dra_arena_alloc(p->source->arena, sizeof *n);
    if (!n) return dra_tno_memory(p);
    n->kind = kind;
    n->line = line;
    return n;
}

static int height_above(int height, const dra_tnode *n)
{
    for (; n; n = n->next)
        if (n->height >= height) height = n->height + 1;
    return height;
}

dra_tnode *dra_tdone(dra_tparser *p, dra_tnode *n)
{
    if (p->status != DRA_OK || !n) return NULL;
    if (n->a && n->a->height >= n->height) n->height = n->a->height + 1;
    if (n->b && n->b->height >= n->height) n->height = n->b->height + 1;
    if (n->c && n->c->height >= n->height) n->height = n->c->height + 1;
    n->height = height_above(height_above(n->height, n->list),
                             n->kind == DRA_N_CALL ? NULL : n->other);
    if (n->height > DRA_TEMPLATE_DEPTH)
        return dra_trefuse(p, n->line, "nests more than %d deep", DRA_TEMPLATE_DEPTH);
    return n;
}

bool dra_tenter(dra_tparser *p)
{
    if (p->depth++ < DRA_TEMPLATE_DEPTH) return true;
    dra_trefuse(p, p->at->line, "nests more than %d deep", DRA_TEMPLATE_DEPTH);
    return false;
}

static bool token_is(const dra_ttoken *t, dra_tword kind, const char *text)
{
    return t->kind == kind && strlen(text) == t->n && memcmp(t->text, text, t->n) == 0;
}

bool dra_tat_sign(const dra_tparser *p, const char *sign)
{
    return token_is(p->at, DRA_W_SIGN, sign);
}
bool dra_tat_word(const dra_tparser *p, const char *name)
{
    return token_is(p->at, DRA_W_NAME, name);
}

bool dra_ttake_sign(dra_tparser *p, const char *sign)
{
    const bool there = p->status == DRA_OK && dra_tat_sign(p, sign);
    p->at += there;
    return there;
}

bool dra_ttake_word(dra_tparser *p, const char *name)
{
    const bool there = p->status == DRA_OK && dra_tat_word(p, name);
    p->at += there;
    return there;
}

bool dra_tneed_sign(dra_tparser *p, const char *sign)
{
    if (dra_ttake_sign(p, sign)) return true;
    dra_texpected(p, sign);
    return false;
}

dra_tnode *dra_tname(dra_tparser *p, dra_tnode_kind kind)
{
    dra_tnode *n = dra_tnew(p, kind, p->at->line);
    if (!n || p->at->kind != DRA_W_NAME) return n ? dra_texpected(p, "a name") : NULL;
    n->text = p->at->text;
    n->n = p->at->n;
    p->at++;
    return n;
}

static void end_tag(dra_tparser *p)
{
    if (p->status != DRA_OK) return;
    if (p->at->kind == DRA_W_BLOCK_END)
        p->at++;
    else
        dra_texpected(p, "%}");
}

/* ---- targets of set and for ------------------------------------------------------------------ */

static bool is_reserved(const dra_tnode *n)
{
    static const char *const words[] = {"true", "false", "none", "True", "False", "None", "not",
                                        "and",  "or",    "if",   "else", "in",    "is"};
    for (size_t i = 0; n && i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n->n && memcmp(words[i], n->text, n->n) == 0) return true;
    return false;
}

/* A name, or name.member of a namespace. */
static dra_tnode *target_name(dra_tparser *p, bool with_member)
{
    dra_tnode *n = dra_tname(p, DRA_N_NAME);
    if (is_reserved(n))
        return dra_trefuse(p, n->line, "expected a name to set, found '%.*s'", (int)n->n, n->text);
    if (!with_member || !dra_ttake_sign(p, ".")) return n;
    dra_tnode *member = dra_tname(p, DRA_N_ATTRIBUTE);
    if (member) member->a = n;
    return dra_tdone(p, member);
}

static dra_tnode *parse_target(dra_tparser *p, bool with_member)
{
    const bool  brackets = dra_ttake_sign(p, "(");
    dra_tnode  *first = target_name(p, with_member);
    dra_tnode **end = first ? &first->next : NULL;
    if (first && dra_tat_sign(p, ",")) {
        dra_tnode *all = dra_tnew(p, DRA_N_TUPLE, first->line);
        if (!all) return NULL;
        all->list = first;
        while (dra_ttake_sign(p, ",") && p->at->kind == DRA_W_NAME && !dra_tat_word(p, "in"))
            dra_tappend(&end, target_name(p, with_member));
        first = all;
    }
    if (brackets) dra_tneed_sign(p, ")");
    return dra_tdone(p, first);
}

/* ---- statements ------------------------------------------------------------------------------ */

static dra_tnode *parse_if(dra_tparser *p, dra_tnode *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    dra_tnode              **end = &n->list;
    for (bool with = true, more = true; more && p->status == DRA_OK;) {
        dra_tnode *clause = dra_tnew(p, DRA_N_CLAUSE, p->at->line);
        if (!clause) return NULL;
        if (with) clause->a = dra_ttuple(p, false);
        end_tag(p);
        clause->list = parse_statements(p, with ? ends : last);
        dra_tappend(&end, dra_tdone(p, clause));
        more = !dra_ttake_word(p, "endif");
        if (more) with = dra_ttake_word(p, "elif");
        if (more && !with) dra_ttake_word(p, "else");
    }
    end_tag(p);
    return dra_tdone(p, n);
}

static dra_tnode *parse_for(dra_tparser *p, dra_tnode *n)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    n->a = parse_target(p, false);
    if (!dra_ttake_word(p, "in")) return dra_texpected(p, "in");
    n->b = dra_ttuple(p, false);
    if (dra_ttake_word(p, "if")) n->c = dra_texpression(p);
    end_tag(p);
    p->loops++;
    n->list = parse_statements(p, ends);
    p->loops--;
    if (dra_ttake_word(p, "else")) {
        end_tag(p);
        n->other = parse_statements(p, last);
    }
    if (p->status == DRA_OK) p->at++; /* endfor */
    end_tag(p);
    return dra_tdone(p, n);
}

static dra_tnode *parse_set(dra_tparser *p, dra_tnode *n)
{
    static const char *const ends[] = {"endset", NULL};
    n->a = parse_target(p, true);
    if (dra_ttake_sign(p, "=")) {
        n->b = dra_ttuple(p, true);
        end_tag(p);
        return dra_tdone(p, n);
    }
    if (p->status == DRA_OK && p->at->kind != DRA_W_BLOCK_END && !dra_tat_sign(p, "|"))
        return dra_texpected(p, "= or %}");
    n->c = dra_tnew(p, DRA_N_BODY, n->line);
    n->b = dra_tfilters(p, NULL);
    end_tag(p);
    if (n->c) n->c->list = parse_statements(p, ends);
    n->c = dra_tdone(p, n->c);
    if (p->status == DRA_OK) p->at++;
    end_tag(p);
    return dra_tdone(p, n);
}

static void parse_params(dra_tparser *p, dra_tnode *macro)
{
    dra_tnode **end = &macro->other;
    bool        defaults = false;
    int         count = 0;
    while (p->status == DRA_OK && !dra_tat_sign(p, ")")) {
        if (count++ && !dra_tneed_sign(p, ",")) return;
        dra_tnode *param = dra_tname(p, DRA_N_PARAM);
        if (param && dra_ttake_sign(p, "=")) {
            param->a = dra_texpression(p);
            defaults = true;
        } else if (param && defaults) {
            dra_trefuse(p, param->line, "expected a default for '%.*s', as of those before it",
                        (int)param->n, param->text);
        }
        if (count > DRA_TEMPLATE_ARGS)
            dra_trefuse(p, macro->line, "a macro has more than %d parameters", DRA_TEMPLATE_ARGS);
        dra_tappend(&end, dra_tdone(p, param));
    }
    dra_tneed_sign(p, ")");
}

static dra_tnode *parse_macro(dra_tparser *p, dra_tnode *n)
{
    static const char *const ends[] = {"endmacro", NULL};
    const int                loops = p->loops;
    dra_tnode               *name = dra_tname(p, DRA_N_NAME);
    if (!name || !dra_tneed_sign(p, "(")) return NULL;
    n->text = name->text;
    n->n = name->n;
    parse_params(p, n);
    end_tag(p);
    p->loops = 0;
    n->list = parse_statements(p, ends);
    p->loops = loops;
    if (p->status == DRA_OK) p->at++;
    end_tag(p);
    n = dra_tdone(p, n);
    if (!n) return NULL;
    n->c = p->macros;
    p->macros = n;
    return n;
}

static dra_tnode *parse_generation(dra_tparser *p, dra_tnode *n)
{
    static const char *const ends[] = {"endgeneration", NULL};
    end_tag(p);
    n->list = parse_statements(p, ends);
    if (p->status == DRA_OK) p->at++;
    end_tag(p);
    return dra_tdone(p, n);
}

static dra_tnode *parse_leave(dra_tparser *p, dra_tnode *n)
{
    if (!p->loops)
        return dra_trefuse(p, n->line, "%s outside of a loop",
                           n->kind == DRA_N_BREAK ? "break" : "continue");
    end_tag(p);
    return n;
}

static dra_tnode *parse_block(dra_tparser *p)
{
    static const struct {
        const char    *word;
        dra_tnode_kind kind;
        dra_tnode *(*parse)(dra_tparser *, dra_tnode *);
    } known[] = {
        {"if", DRA_N_IF, parse_if},
        {"for", DRA_N_FOR, parse_for},
        {"set", DRA_N_SET, parse_set},
        {"macro", DRA_N_MACRO, parse_macro},
        {"break", DRA_N_BREAK, parse_leave},
        {"continue", DRA_N_CONTINUE, parse_leave},
        {"generation", DRA_N_BODY, parse_generation},
    };
    const int line = p->at->line;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!dra_ttake_word(p, known[i].word)) continue;
        dra_tnode *n = dra_tnew(p, known[i].kind, line);
        return n ? known[i].parse(p, n) : NULL;
    }
    return dra_texpected(p, "if, for, set, macro, generation, break or continue");
}

static dra_tnode *parse_print(dra_tparser *p)
{
    dra_tnode *n = dra_tnew(p, DRA_N_PRINT, p->at->line);
    if (!n) return NULL;
    p->at++;
    n->a = dra_ttuple(p, true);
    if (p->status == DRA_OK && p->at->kind != DRA_W_PRINT_END) return dra_texpected(p, "}}");
    p->at++;
    return dra_tdone(p, n);
}

/* Whether {% is followed by one of these words; NULL: there are none. */
static bool at_end(const dra_tparser *p, const char *const *ends)
{
    if (!ends || p->at->kind != DRA_W_BLOCK) return false;
    for (; *ends; ends++)
        if (token_is(p->at + 1, DRA_W_NAME, *ends)) return true;
    return false;
}

/* Parses up to {% and one of these words, where the parser then stands; NULL: up to the end. */
static dra_tnode *parse_statements(dra_tparser *p, const char *const *ends)
{
    dra_tnode *first = NULL, **end = &first;
    if (!dra_tenter(p)) return NULL;
    while (p->status == DRA_OK && p->at->kind != DRA_W_END && !at_end(p, ends)) {
        dra_tnode *n = NULL;
        if (p->at->kind == DRA_W_TEXT) {
            n = dra_tnew(p, DRA_N_TEXT, p->at->line);
            if (n) n->text = p->at->text, n->n = p->at->n;
            p->at++;
        } else if (p->at->kind == DRA_W_PRINT) {
            n = parse_print(p);
        } else {
            p->at++;
            n = parse_block(p);
        }
        dra_tappend(&end, n);
    }
    p->depth--;
    if (p->status != DRA_OK) return NULL;
    if (ends && p->at->kind == DRA_W_END) {
        char what[64] = "";
        snprintf(what, sizeof what, "{%% %s %%}", ends[ends[1] ? (ends[2] ? 2 : 1) : 0]);
        return dra_texpected(p, what);
    }
    p->at += ends != NULL;
    return first;
}

/* A called name is a function or a macro of the template, wherever that is. */
static void check_calls(dra_tparser *p)
{
    for (const dra_tnode *call = p->calls; call; call = call->other) {
        const dra_tnode *m = p->macros;
        while (m && !(m->n == call->n && memcmp(m->text, call->text, m->n) == 0)) m = m->c;
        if (!m && !dra_tbuiltin_find(&dra_tfunctions, call->text, call->n))
            dra_trefuse(p, call->line, "no such function or macro is known: '%.*s'",
                        call->n < 60 ? (int)call->n : 60, call->text);
    }
}

dra_tnode *dra_template_statements(dra_tparser *p)
{
    dra_tnode *body = dra_tnew(p, DRA_N_BODY, 1);
    if (body) body->list = parse_statements(p, NULL);
    check_calls(p);
    return dra_tdone(p, body);
}
