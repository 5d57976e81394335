/* Grammars. What must hold: a grammar as made is accepted; any other text as well, and the grammar
 * is sound (grammars.h), or it is refused by one line that names it. */
#include "grammars.h"

enum { RULES = 5 };

/* Rules call later ones, or any after a literal: none calls itself before a character. */
static void say_choice(fuzz_bytes *t, uint32_t rule, int depth);

static void say_part(fuzz_bytes *t, uint32_t rule, int depth)
{
    static const char *const literals[] = {
        "\"a\"",     "\"bc\"", "\"\\n\\\"\\\\\"",     "\"\\u00e9\"", "\"\xe6\xb0\xb4\"", "[a-c]",
        "[^a-c\\]]", ".",      "[\\x00-\\U0010FFFF]", "[-a]"};
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{0,3}", "{1,}", "", "", "", ""};
    char                     name[32];
    const uint32_t           kind = depth > 3 || t->n > FUZZ_MOST / 2 ? 9 : below(10);
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

static void say_choice(fuzz_bytes *t, uint32_t rule, int depth)
{
    for (uint32_t n = 1 + below(3); n; n--) {
        for (uint32_t k = below(4); k; k--) say_part(t, rule, depth);
        if (n > 1) say(t, "| ");
    }
}

static void make(fuzz_bytes *t)
{
    char name[32];
    say(t, "root ::= r0 | \"\"\n");
    for (uint32_t r = 0; r < RULES; r++) {
        snprintf(name, sizeof name, "r%u ::= ", r);
        say(t, name);
        say_choice(t, r, 0);
        say(t, "\n");
    }
}

int harness(const uint8_t *data, size_t bytes)
{
    return grammar_try(dra_grammar_parse, data, bytes);
}

static const char *const words[] = {
    "::=",  "|",    "(",  ")",   "[",  "]", "[^", "\"",      "\\", "\\x",  "{", "}", ",", "{99}",
    "{0,}", "root", "r0", "r1 ", "\n", "*", "#",  "\\ud800", ".",  "\xff", "+", "?", "-", NULL};

const fuzz_subject fuzz_this = {.words = words, .make = make};
