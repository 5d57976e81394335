/* fuzz_grammar SECONDS [SEED]: grammars and JSON schemas, made at random, then damaged. What must
 * hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a text as made is accepted; a damaged one as well, or refused by one line that names it;
 *   - a text that follows what is allowed byte by byte matches all the way, and every state of it
 *     is the same by value.
 * Text number n of a run has seed SEED + n; SECONDS 0 tries that one text. */
#include <string.h>

#include "fuzz/fuzzer.h"
#include "run/grammar.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { ROOM = 1 << 14, RULES = 5, DAMAGES = 24, BYTES = 60 };

typedef struct text {
    char   at[ROOM];
    size_t n;
} text;

static void say(text *t, const char *what)
{
    const size_t n = strlen(what);
    if (t->n + n > ROOM) broken("the fuzzer's own room is too small");
    memcpy(t->at + t->n, what, n);
    t->n += n;
}

static const char *one_of(const char *const *list, uint32_t n) { return list[below(n)]; }

/* ---- good grammars --------------------------------------------------------------------------- */

/* Rules call later ones, or any after a literal: none calls itself before a character. */
static void say_choice(text *t, uint32_t rule, int depth);

static void say_part(text *t, uint32_t rule, int depth)
{
    static const char *const literals[] = {
        "\"a\"",     "\"bc\"", "\"\\n\\\"\\\\\"",     "\"\\u00e9\"", "\"\xe6\xb0\xb4\"", "[a-c]",
        "[^a-c\\]]", ".",      "[\\x00-\\U0010FFFF]", "[-a]"};
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{0,3}", "{1,}", "", "", "", ""};
    char                     name[32];
    const uint32_t           kind = depth > 3 || t->n > ROOM / 2 ? 9 : below(10);
    if (kind < 2) {
        say(t, "(");
        say_choice(t, rule, depth + 1);
        say(t, ")");
    } else if (kind < 4 && rule + 1 < RULES) {
        snprintf(name, sizeof name, "r%u", rule + 1 + below(RULES - rule - 1));
        say(t, name);
    } else if (kind < 5) {
        snprintf(name, sizeof name, "\"x\" r%u \"\"", below(RULES));
        say(t, name);
    } else {
        say(t, one_of(literals, COUNT(literals)));
    }
    say(t, one_of(repeats, COUNT(repeats)));
    say(t, below(8) ? " " : " # note\n  ");
}

static void say_choice(text *t, uint32_t rule, int depth)
{
    for (uint32_t n = 1 + below(3); n; n--) {
        for (uint32_t k = below(4); k; k--) say_part(t, rule, depth);
        if (n > 1) say(t, "| ");
    }
}

static void make_grammar(text *t)
{
    char name[32];
    t->n = 0;
    say(t, "root ::= r0 | \"\"\n");
    for (uint32_t r = 0; r < RULES; r++) {
        snprintf(name, sizeof name, "r%u ::= ", r);
        say(t, name);
        say_choice(t, r, 0);
        say(t, "\n");
    }
}

/* ---- good schemas ---------------------------------------------------------------------------- */

static void say_schema(text *t, int depth);

static void say_object(text *t, int depth)
{
    static const char *const names[] = {"a", "ab", "\xc3\xa9", "]^", "\\\"", "b", "", "\\u0001"};
    static const char *const others[] = {"", ",\"additionalProperties\":false",
                                         ",\"additionalProperties\":true"};
    const char              *comma = "";
    bool                     used = false;
    say(t, "\"type\":\"object\",\"properties\":{");
    for (uint32_t i = 0; i < COUNT(names); i++) {
        if (below(3)) continue;
        say(t, comma);
        say(t, "\"");
        say(t, names[i]);
        say(t, "\":");
        say_schema(t, depth + 1);
        comma = ",";
        used = used || i == 0;
    }
    say(t, used && below(2) ? "},\"required\":[\"a\"]" : "}");
    say(t, one_of(others, COUNT(others)));
}

static void say_schema(text *t, int depth)
{
    static const char *const plain[] = {"\"type\":\"string\"",
                                        "\"type\":[\"integer\",\"null\"]",
                                        "\"type\":\"number\",\"title\":\"x\"",
                                        "\"enum\":[\"a\",1,null,{\"b\":[\"\\n\"]}]",
                                        "\"const\":\"\\\"\\\\\xc3\xa9\"",
                                        "\"type\":\"boolean\"",
                                        "\"type\":\"object\"",
                                        ""};
    const uint32_t           kind = depth > 3 || t->n > ROOM / 2 ? 9 : below(6);
    say(t, "{");
    if (kind == 0) {
        say_object(t, depth);
    } else if (kind == 1) {
        say(t, "\"type\":\"array\",\"items\":");
        say_schema(t, depth + 1);
    } else {
        say(t, one_of(plain, COUNT(plain)));
    }
    say(t, "}");
}

static void make_schema(text *t)
{
    t->n = 0;
    say_schema(t, 0);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void replace(text *t, size_t from, size_t to, const char *with, size_t n)
{
    if (t->n - (to - from) + n > ROOM) return;
    memmove(t->at + from + n, t->at + to, t->n - to);
    memmove(t->at + from, with, n);
    t->n += n - (to - from);
}

static void damage(text *t)
{
    static const char *const words[] = {
        "::=",      "|",   "(",  ")",    "[",       "]",          "[^",           "\"",
        "\\",       "\\x", "{",  "}",    ",",       "{99}",       "root",         "r0",
        "r1 ",      "\n",  "*",  "#",    "\\ud800", ".",          "\xff",         "null",
        "\"type\"", ":",   "{}", "true", "-",       "\"items\":", "\"required\":"};
    const size_t a = below((uint32_t)t->n + 1), rest = t->n - a;
    const size_t b = a + below((uint32_t)(rest < 20 ? rest : 20) + 1);
    const char  *word = one_of(words, COUNT(words));
    char         copy[20];
    switch (below(5)) {
    case 0:
        if (a < t->n) t->at[a] = (char)below(256);
        break;
    case 1: replace(t, a, a, word, strlen(word)); break;
    case 2: replace(t, a, b, "", 0); break;
    case 3: /* something twice */
        memcpy(copy, t->at + a, b - a);
        replace(t, a, a, copy, b - a);
        break;
    default: t->n = below(8) ? t->n : a;
    }
}

/* ---- use ------------------------------------------------------------------------------------- */

/* Whether a state is the same after it went through a value. */
static void check_value(const dra_grammar *g, dra_matcher *m, int32_t state)
{
    dra_grammar_state *s = NULL, *again = NULL;
    dra_matcher       *other = NULL;
    dra_error          err = {0};
    if (dra_matcher_leave(m, state, &s, &err) != DRA_OK) broken(err.text);
    if (dra_matcher_enter(m, s) != state) broken("a state is another by its value");
    if (dra_matcher_create(g, &other, &err) != DRA_OK) broken(err.text);
    const int32_t there = dra_matcher_enter(other, s);
    if (there < 0 || dra_matcher_leave(other, there, &again, &err) != DRA_OK)
        broken("a value cannot be used elsewhere");
    if (again->n != s->n) broken("a value is another elsewhere");
    free(s);
    free(again);
    dra_matcher_destroy(other);
}

/* Follows any byte that may follow. */
static void walk(const dra_grammar *g)
{
    dra_matcher    *m = NULL;
    char            bytes[BYTES];
    dra_error       err = {0};
    dra_grammar_fit fit;
    size_t          n = 0;
    if (dra_matcher_create(g, &m, &err) != DRA_OK) broken(err.text);
    int32_t state = dra_matcher_enter(m, NULL);
    while (state >= 0 && n < BYTES && !dra_matcher_must_end(m, state)) {
        const uint32_t first = below(256);
        int32_t        to = DRA_MATCH_NOT;
        for (uint32_t k = 0; k < 256 && to < 0; k++) {
            bytes[n] = (char)(unsigned char)((first + k) % 256);
            to = dra_matcher_step(m, state, (unsigned char)bytes[n]);
            if (to == DRA_MATCH_FAILED) broken("a step failed");
        }
        if (to < 0) break; /* a class without characters */
        state = to;
        n++;
        if (n % 16 == 1) check_value(g, m, state);
    }
    if (dra_grammar_match(g, bytes, n, &fit, &err) != DRA_OK) broken(err.text);
    if (state >= 0 && fit == DRA_GRAMMAR_NOT) broken("what may follow does not match");
    dra_matcher_destroy(m);
}

static bool try_one(const text *t, bool schema)
{
    dra_grammar *g = NULL;
    dra_error    err = {0};
    char        *copy = malloc(t->n + 1); /* of its own size, so that reading past it shows */
    if (!copy) broken("no memory");
    memcpy(copy, t->at, t->n);
    const dra_status st = (schema ? dra_grammar_schema : dra_grammar_parse)("text", copy, t->n, &g,
                                                                            &err);
    free(copy);
    if ((st == DRA_OK) != (g != NULL)) broken("a status and a grammar that do not fit");
    if (st != DRA_OK) {
        if (!err.text[0] || strchr(err.text, '\n') || strncmp(err.text, "text:", 5) != 0)
            broken(err.text[0] ? err.text : "refused without a reason");
        return false;
    }
    walk(g);
    dra_grammar_destroy(g);
    return true;
}

static void one_text(void)
{
    static text t, whole;
    const bool  schema = below(3) == 0;
    (schema ? make_schema : make_grammar)(&t);
    if (!try_one(&t, schema)) broken("the text as made is refused");
    whole = t;
    for (int i = 0; i < DAMAGES; i++) {
        if (below(3)) t = whole; /* else more damage on top */
        for (uint32_t n = 1 + below(2); n; n--) damage(&t);
        fuzz_accepted += try_one(&t, schema);
        fuzz_damaged++;
    }
}

int main(int argc, char **argv)
{
    fuzz_begin(&(fuzzer){"fuzz_grammar", one_text, NULL});
    return fuzz_all(argc, argv);
}
