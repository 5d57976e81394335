/* Phrases become places, each from its end to its beginning: what follows a phrase is known before
 * the phrase is. Characters become their bytes in UTF-8, so a text may be cut anywhere, also inside
 * of a character. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "file/fail.h"
#include "generate/grammar/grammar.h"
#include "text/letters.h"

enum { PLACES = 1 << 20, WORK = 1 << 23, NOWHERE = -1 };

typedef struct compiler {
    const dra_grammar_text *t;
    dra_grammar            *g;
    int64_t                 work;  /* phrases so far: repetitions of nothing take time, too */
    int32_t                *slot;  /* (slots): a set + 1; 0: free */
    int32_t                 slots; /* a power of two */
    bool                   *empty; /* (rules): may read nothing */
    dra_error              *err;
    bool                    failed;
} compiler;

/* ---- places and sets ------------------------------------------------------------------------- */

static int32_t no_memory(compiler *c)
{
    if (!c->failed) dra_fail(c->err, DRA_ERR_MEMORY, "grammar: out of memory");
    c->failed = true;
    return NOWHERE;
}

static int32_t too_large(compiler *c)
{
    char room[DRA_BRIEF];
    if (!c->failed)
        dra_fail(c->err, DRA_ERR_VALUE, "%s: the grammar is too large, with its repetitions",
                 dra_brief(c->t->name, room));
    c->failed = true;
    return NOWHERE;
}

static int32_t add_place(compiler *c, dra_grammar_place_kind kind, int32_t next, int32_t other)
{
    dra_grammar *g = c->g;
    if (c->failed || (kind != DRA_AT_END && next < 0)) return NOWHERE;
    if (g->places == PLACES) return too_large(c);
    if (g->places == g->place_room) {
        const int32_t      room = g->place_room ? 2 * g->place_room : 64;
        dra_grammar_place *more = realloc(g->place, (size_t)room * sizeof *more);
        if (!more) return no_memory(c);
        g->place = more;
        g->place_room = room;
    }
    g->place[g->places] = (dra_grammar_place){(int32_t)kind, next, other, 0};
    return g->places++;
}

static int32_t *find_slot(const compiler *c, const dra_byte_set *s)
{
    uint64_t k = dra_hash_of(0, s, sizeof *s);
    int32_t *at;
    while (*(at = &c->slot[k & (uint64_t)(c->slots - 1)]) &&
           memcmp(&c->g->set[*at - 1], s, sizeof *s) != 0)
        k++;
    return at;
}

static bool more_sets(compiler *c)
{
    dra_grammar  *g = c->g;
    const int32_t room = g->set_room ? 2 * g->set_room : 64;
    dra_byte_set *more = realloc(g->set, (size_t)room * sizeof *more);
    int32_t      *slot = more ? calloc((size_t)room, 2 * sizeof *slot) : NULL;
    if (more) g->set = more;
    if (!slot) {
        no_memory(c);
        return false;
    }
    free(c->slot);
    c->slot = slot;
    c->slots = 2 * room;
    g->set_room = room;
    for (int32_t i = 0; i < g->sets; i++) *find_slot(c, &g->set[i]) = i + 1;
    return true;
}

/* Each set once: copies of a class share theirs. */
static int32_t add_set(compiler *c, const dra_byte_set *s)
{
    dra_grammar *g = c->g;
    if (g->sets == g->set_room && !more_sets(c)) return NOWHERE;
    int32_t *slot = find_slot(c, s);
    if (*slot) return *slot - 1;
    g->set[g->sets] = *s;
    *slot = ++g->sets;
    return g->sets - 1;
}

static int32_t add_bytes(compiler *c, const dra_byte_set *s, int32_t next)
{
    const int32_t set = c->failed ? NOWHERE : add_set(c, s);
    return set < 0 ? NOWHERE : add_place(c, DRA_AT_BYTE, next, set);
}

static void put_bytes(dra_byte_set *s, unsigned first, unsigned last)
{
    for (unsigned b = first; b <= last; b++) s->bits[b >> 5] |= 1u << (b & 31);
}

static int32_t add_byte(compiler *c, unsigned char byte, int32_t next)
{
    dra_byte_set s = {0};
    put_bytes(&s, byte, byte);
    return add_bytes(c, &s, next);
}

/* ---- classes --------------------------------------------------------------------------------- */

typedef struct stretch { /* characters whose bytes are each in a range: all of these together */
    int           n;
    unsigned char first[4], last[4];
} stretch;

typedef struct stretches {
    stretch *at;
    size_t   n, room;
} stretches;

static void add_stretch(compiler *c, stretches *to, int32_t first, int32_t last)
{
    stretch s = {0};
    s.n = (int)dra_utf8_write(first, (char *)s.first);
    dra_utf8_write(last, (char *)s.last);
    if (to->n == to->room) {
        const size_t room = to->room ? 2 * to->room : 16;
        stretch     *more = realloc(to->at, room * sizeof *more);
        if (!more) {
            no_memory(c);
            return;
        }
        to->at = more;
        to->room = room;
    }
    to->at[to->n++] = s;
}

/* Cuts a range of characters where they get longer, at the surrogates, and so that in each part
 * every byte but the first is free within a range of its own. */
static void cut_range(compiler *c, stretches *to, int32_t first, int32_t last)
{
    static const int32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff};
    if (first > last || c->failed) return;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (first <= ends[i] && last > ends[i]) {
            cut_range(c, to, first, ends[i]);
            cut_range(c, to, ends[i] + 1, last);
            return;
        }
    if (first >= 0xd800 && last < 0xe000) return;
    for (int bits = 6; bits < 24 && first > 0x7f; bits += 6) {
        const int32_t low = (1 << bits) - 1;
        if ((first & ~low) == (last & ~low)) break;
        if ((first & low) != 0) {
            cut_range(c, to, first, first | low);
            cut_range(c, to, (first | low) + 1, last);
            return;
        }
        if ((last & low) != low) {
            cut_range(c, to, first, (last & ~low) - 1);
            cut_range(c, to, last & ~low, last);
            return;
        }
    }
    add_stretch(c, to, first, last);
}

static int by_first(const void *a, const void *b)
{
    const dra_code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* The characters of a class, in order and without gaps between those that touch. */
static void cut_class(compiler *c, const dra_phrase *p, stretches *to)
{
    int32_t at = 0; /* all before it are done */
    qsort(p->range, p->n, sizeof *p->range, by_first);
    for (size_t i = 0; i < p->n; i++) {
        const dra_code_range *r = &p->range[i];
        if (p->negated)
            cut_range(c, to, at, r->first - 1);
        else
            cut_range(c, to, r->first > at ? r->first : at, r->last);
        if (r->last >= at) at = r->last + 1;
    }
    if (p->negated) cut_range(c, to, at, 0x10ffff);
}

static bool same_tail(const stretch *a, const stretch *b)
{
    const size_t tail = (size_t)a->n - 1;
    return a->n == b->n && memcmp(a->first + 1, b->first + 1, tail) == 0 &&
           memcmp(a->last + 1, b->last + 1, tail) == 0;
}

/* Stretches that differ in their first bytes only share a place. */
static int32_t compile_stretches(compiler *c, stretches *s, int32_t next)
{
    int32_t start = NOWHERE;
    for (size_t i = 0; i < s->n && !c->failed; i++) {
        stretch     *a = &s->at[i];
        dra_byte_set lead = {0};
        int32_t      to = next;
        if (a->n == 0) continue; /* of one before */
        put_bytes(&lead, a->first[0], a->last[0]);
        for (size_t k = i + 1; k < s->n; k++) {
            if (!s->at[k].n || !same_tail(a, &s->at[k])) continue;
            put_bytes(&lead, s->at[k].first[0], s->at[k].last[0]);
            s->at[k].n = 0;
        }
        for (int b = a->n - 1; b > 0; b--) {
            dra_byte_set set = {0};
            put_bytes(&set, a->first[b], a->last[b]);
            to = add_bytes(c, &set, to);
        }
        to = add_bytes(c, &lead, to);
        start = start < 0 ? to : add_place(c, DRA_AT_FORK, to, start);
    }
    if (start >= 0 || c->failed) return start;
    return add_bytes(c, &(dra_byte_set){0}, next); /* no character at all: nothing follows */
}

static int32_t compile_class(compiler *c, const dra_phrase *p, int32_t next)
{
    stretches s = {0};
    cut_class(c, p, &s);
    const int32_t start = c->failed ? NOWHERE : compile_stretches(c, &s, next);
    free(s.at);
    return start;
}

/* ---- phrases --------------------------------------------------------------------------------- */

static int32_t compile_phrase(compiler *c, const dra_phrase *p, int32_t next);

/* The last part comes first, so the list becomes an array. */
static int32_t compile_sequence(compiler *c, const dra_phrase *p, int32_t next)
{
    size_t n = 0, i = 0;
    for (const dra_phrase *part = p->first; part; part = part->next) n++;
    const dra_phrase **parts = malloc((n + 1) * sizeof *parts);
    if (!parts) return no_memory(c);
    for (const dra_phrase *part = p->first; part; part = part->next) parts[i++] = part;
    while (i > 0 && !c->failed) next = compile_phrase(c, parts[--i], next);
    free(parts);
    return next;
}

static int32_t compile_choice(compiler *c, const dra_phrase *p, int32_t next)
{
    int32_t start = NOWHERE;
    for (const dra_phrase *part = p->first; part && !c->failed; part = part->next) {
        const int32_t to = compile_phrase(c, part, next);
        start = start < 0 ? to : add_place(c, DRA_AT_FORK, start, to);
    }
    return start;
}

/* Where a part may read nothing, fewer are as good as more: x{3,9} is x{0,9}. Copies that may be
 * left out are a loop, in which the matcher tells better ones by their place: the last copy is
 * compiled first, so one with more copies left has a higher place. */
static int32_t compile_repeat(compiler *c, const dra_phrase *p, int32_t next)
{
    const int64_t least = p->first->empty ? 0 : p->least;
    const int32_t loop = p->most - least > 1 ? ++c->g->loops : 0;
    int32_t       start = next;
    if (p->most < 0) {
        start = add_place(c, DRA_AT_FORK, next, next);
        const int32_t body = compile_phrase(c, p->first, start);
        if (body >= 0) c->g->place[start].other = body;
    }
    for (int64_t i = least; i < p->most && !c->failed; i++) {
        const int32_t body = compile_phrase(c, p->first, start);
        start = add_place(c, DRA_AT_FORK, body, next);
        if (start >= 0) c->g->place[start].loop = loop;
    }
    for (int64_t i = 0; i < least && !c->failed; i++) start = compile_phrase(c, p->first, start);
    return start;
}

static int32_t compile_phrase(compiler *c, const dra_phrase *p, int32_t next)
{
    if (++c->work > WORK) return too_large(c);
    switch (p->kind) {
    case DRA_PHRASE_LITERAL:
        for (size_t i = p->n; i > 0 && next >= 0; i--)
            next = add_byte(c, (unsigned char)p->bytes[i - 1], next);
        return next;
    case DRA_PHRASE_CLASS: return compile_class(c, p, next);
    case DRA_PHRASE_RULE: return add_place(c, DRA_AT_CALL, next, p->rule);
    case DRA_PHRASE_SEQUENCE: return compile_sequence(c, p, next);
    case DRA_PHRASE_CHOICE: return compile_choice(c, p, next);
    case DRA_PHRASE_REPEAT: return compile_repeat(c, p, next);
    }
    return NOWHERE;
}

/* ---- what may be empty ----------------------------------------------------------------------- */

/* Of what is known about rules. Marks all phrases in it. */
static bool is_empty(const compiler *c, dra_phrase *p)
{
    size_t n = 0, empty = 0;
    for (dra_phrase *part = p->first; part; part = part->next, n++) empty += is_empty(c, part);
    switch (p->kind) {
    case DRA_PHRASE_LITERAL: p->empty = p->n == 0; break;
    case DRA_PHRASE_CLASS: p->empty = false; break;
    case DRA_PHRASE_RULE: p->empty = c->empty[p->rule]; break;
    case DRA_PHRASE_SEQUENCE: p->empty = empty == n; break;
    case DRA_PHRASE_CHOICE: p->empty = empty > 0; break;
    case DRA_PHRASE_REPEAT: p->empty = empty > 0 || p->least == 0; break;
    }
    return p->empty;
}

/* Until nothing changes, in turns from the last rule and from the first: those that call later ones
 * are done at once, and so are those that call earlier ones. */
static void find_empty(compiler *c)
{
    const int32_t n = c->t->rules;
    bool          changed = true;
    for (int turn = 0; changed; turn++) {
        changed = false;
        for (int32_t i = 0; i < n; i++) {
            const int32_t r = turn % 2 ? i : n - 1 - i;
            if (is_empty(c, c->t->rule[r].body) && !c->empty[r]) c->empty[r] = changed = true;
        }
    }
}

/* ---- left recursion -------------------------------------------------------------------------- */

/* A rule that calls itself before it has read a byte would never get to read one. */
typedef struct order {
    compiler *c;
    char     *mark; /* (rules): 0 unknown, 1 being looked at, 2 fine */
    int32_t  *seen; /* (places): by which look */
    int32_t   look;
    int32_t  *todo;    /* (places) */
    int32_t   culprit; /* -1: none */
} order;

/* Walks what a rule reaches before its first byte: calls gets the rules that it calls there. */
static void reach_rules(order *o, int32_t rule, int32_t *calls, int32_t *n_calls)
{
    const dra_grammar *g = o->c->g;
    int32_t            n = 0;
    o->look++;
    o->todo[n++] = g->start[rule];
    o->seen[g->start[rule]] = o->look;
    while (n > 0) {
        const dra_grammar_place *p = &g->place[o->todo[--n]];
        int32_t                  to[2] = {-1, -1};
        if (p->kind == DRA_AT_FORK) to[0] = p->next, to[1] = p->other;
        if (p->kind == DRA_AT_CALL) calls[(*n_calls)++] = p->other;
        if (p->kind == DRA_AT_CALL && o->c->empty[p->other]) to[0] = p->next;
        for (int i = 0; i < 2; i++)
            if (to[i] >= 0 && o->seen[to[i]] != o->look) {
                o->seen[to[i]] = o->look;
                o->todo[n++] = to[i];
            }
    }
}

/* Looks at what a rule calls first, and so on. Rules are few enough for recursion. */
static void visit_rule(order *o, int32_t rule)
{
    int32_t n = 0;
    o->mark[rule] = 1;
    int32_t *calls = malloc((size_t)o->c->g->places * sizeof *calls);
    if (!calls) {
        no_memory(o->c);
        return;
    }
    reach_rules(o, rule, calls, &n);
    int32_t *fewer = realloc(calls, (size_t)(n + 1) * sizeof *calls); /* many may be open at once */
    if (fewer) calls = fewer;
    for (int32_t i = 0; i < n && o->culprit < 0 && !o->c->failed; i++) {
        if (o->mark[calls[i]] == 1) o->culprit = calls[i];
        if (o->mark[calls[i]] == 0) visit_rule(o, calls[i]);
    }
    free(calls);
    o->mark[rule] = 2;
}

static void check_recursion(compiler *c)
{
    const size_t rules = (size_t)c->g->rules, places = (size_t)c->g->places;
    order        o = {.c = c,
                      .mark = calloc(rules, sizeof *o.mark),
                      .seen = calloc(places, sizeof *o.seen),
                      .todo = calloc(places, sizeof *o.todo),
                      .culprit = -1};
    if (o.mark && o.seen && o.todo) {
        for (int32_t r = 0; r < c->g->rules && o.culprit < 0 && !c->failed; r++)
            if (o.mark[r] == 0) visit_rule(&o, r);
    } else {
        no_memory(c);
    }
    if (o.culprit >= 0 && !c->failed) {
        const dra_rule_text *r = &c->t->rule[o.culprit];
        char                 path[DRA_BRIEF], name[DRA_BRIEF], room[DRA_BRIEF];
        snprintf(name, sizeof name, "%.*s", (int)(r->n < 100 ? r->n : 100), r->name);
        dra_fail(c->err, DRA_ERR_FORMAT, "%s:%d: rule '%s' calls itself before any character",
                 dra_brief(c->t->name, path), r->line, dra_brief(name, room));
        c->failed = true;
    }
    free(o.mark);
    free(o.seen);
    free(o.todo);
}

/* ---- classes of bytes ------------------------------------------------------------------------ */

/* Divides each class of which a set holds a part. */
static void divide_classes(dra_grammar *g, const dra_byte_set *s)
{
    int     all[256] = {0}, in[256] = {0};
    int32_t part[256];
    for (int b = 0; b < 256; b++) {
        all[g->class_of[b]]++;
        in[g->class_of[b]] += dra_byte_in(s, (unsigned)b);
    }
    const int32_t before = g->classes;
    for (int32_t k = 0; k < before; k++) part[k] = in[k] > 0 && in[k] < all[k] ? g->classes++ : k;
    for (int b = 0; b < 256; b++)
        if (dra_byte_in(s, (unsigned)b)) g->class_of[b] = (unsigned char)part[g->class_of[b]];
}

static void find_classes(dra_grammar *g)
{
    g->classes = 1;
    for (int32_t i = 0; i < g->sets && g->classes < 256; i++) divide_classes(g, &g->set[i]);
    for (int b = 0; b < 256; b++) g->sample[g->class_of[b]] = (unsigned char)b;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static uint64_t grammar_fingerprint(const dra_grammar *g)
{
    const unsigned char *parts[] = {(void *)g->place, (void *)g->set, (void *)g->start};
    const size_t sizes[] = {(size_t)g->places * sizeof *g->place, (size_t)g->sets * sizeof *g->set,
                            (size_t)g->rules * sizeof *g->start};
    dra_hash     h;
    dra_hash_begin(&h, (uint64_t)g->root);
    for (int i = 0; i < 3; i++) dra_hash_add(&h, parts[i], sizes[i]);
    return dra_hash_end(&h);
}

dra_status dra_grammar_compile(const dra_grammar_text *t, dra_grammar **out, dra_error *err)
{
    dra_error own = {0};
    compiler  c = {.t = t, .g = calloc(1, sizeof *c.g), .err = err ? err : &own};
    *out = NULL;
    if (c.g) {
        c.g->rules = t->rules;
        c.g->root = t->root;
        c.g->start = calloc((size_t)t->rules, sizeof *c.g->start);
    }
    c.empty = calloc((size_t)t->rules, sizeof *c.empty);
    if (!c.g || !c.g->start || !c.empty)
        no_memory(&c);
    else
        find_empty(&c);
    const int32_t end = add_place(&c, DRA_AT_END, 0, 0);
    for (int32_t r = 0; r < t->rules && !c.failed; r++)
        c.g->start[r] = compile_phrase(&c, t->rule[r].body, end);
    if (!c.failed) check_recursion(&c);
    free(c.slot);
    free(c.empty);
    if (c.failed) {
        dra_grammar_destroy(c.g);
        return c.err->code;
    }
    find_classes(c.g);
    c.g->fingerprint = grammar_fingerprint(c.g);
    *out = c.g;
    return DRA_OK;
}

dra_status dra_grammar_parse(const char *name, const char *text, size_t bytes, dra_grammar **out,
                             dra_error *err)
{
    dra_grammar_text t;
    *out = NULL;
    dra_status st = dra_grammar_read(name, text, bytes, &t, err);
    if (st != DRA_OK) return st;
    st = dra_grammar_compile(&t, out, err);
    dra_grammar_text_free(&t);
    return st;
}

void dra_grammar_destroy(dra_grammar *g)
{
    if (!g) return;
    free(g->place);
    free(g->set);
    free(g->start);
    free(g);
}
