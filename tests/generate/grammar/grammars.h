/* Random grammars, with what they are made of, for tests that know another way to match them. */
#ifndef DRA_TESTS_GENERATE_GRAMMAR_GRAMMARS_H
#define DRA_TESTS_GENERATE_GRAMMAR_GRAMMARS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "generate/grammar/grammar.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static inline dra_grammar *parse(const char *text)
{
    dra_grammar *g = NULL;
    dra_error    err = {0};
    if (dra_grammar_parse("g", text, strlen(text), &g, &err) != DRA_OK)
        fail_msg("%s\n%s", err.text, text);
    return g;
}

enum { RULES = 4, NODES = 400 };

typedef enum kind { LETTER, CLASS, RULE, SEQUENCE, CHOICE, REPEAT, EMPTY } kind;

typedef struct node {
    kind     kind;
    int      n, part[3], least, most; /* most -1: any number */
    unsigned letters;                 /* of a class, as bits */
} node;

typedef struct sample {
    bool dense; /* few letters, rules that call themselves, parts of nothing: many readings */
    node nodes[NODES];
    int  n, rule[RULES];
    char text[1 << 14];
} sample;

static const char *const letters[] = {"a", "b", "\xc3\xa9"}; /* the last has two bytes */

static uint64_t chances;

static inline int below(int n)
{
    chances = chances * 6364136223846793005u + 1442695040888963407u;
    return (int)((chances >> 33) % (uint64_t)n);
}

static inline void say(sample *s, const char *text)
{
    const size_t n = strlen(s->text);
    assert_true(n + strlen(text) < sizeof s->text);
    memcpy(s->text + n, text, strlen(text) + 1);
}

/* `rule` is being made; `safe`: a letter stands before it, so it may call any rule. */
static inline int make(sample *s, int rule, int depth, bool safe);

static inline int make_list(sample *s, kind k, int rule, int depth, bool safe)
{
    const int at = s->n++;
    node      made = {.kind = k, .n = 1 + below(3)};
    say(s, "(");
    for (int i = 0; i < made.n; i++) {
        if (i && k == CHOICE) say(s, " | ");
        made.part[i] = make(s, rule, depth + 1, safe);
        say(s, " ");
        if (k == SEQUENCE && s->nodes[made.part[i]].kind <= CLASS) safe = true;
    }
    say(s, ")");
    s->nodes[at] = made;
    return at;
}

static inline int make_repeat(sample *s, int rule, int depth, bool safe)
{
    static const struct {
        const char *text;
        int         least, most;
    } forms[] = {{"*", 0, -1},    {"+", 1, -1},  {"?", 0, 1},     {"{2}", 2, 2},   {"{1,}", 1, -1},
                 {"{0,2}", 0, 2}, {"{3}", 3, 3}, {"{3,}", 3, -1}, {"{2,5}", 2, 5}, {"{0,9}", 0, 9}};
    const int at = s->n++, form = below(s->dense ? (int)COUNT(forms) : 6);
    const int part = make(s, rule, depth + 1, safe);
    say(s, forms[form].text);
    s->nodes[at] = (node){REPEAT, 1, {part}, forms[form].least, forms[form].most, 0};
    return at;
}

static inline int make_class(sample *s)
{
    const int      at = s->n++;
    const unsigned bits = 1 + (unsigned)below(6);
    const bool not = below(2);
    say(s, not ? "[^" : "[");
    for (unsigned i = 0; i < 3; i++)
        if ((bits >> i & 1) != not ) say(s, letters[i]);
    say(s, "]");
    s->nodes[at] = (node){.kind = CLASS, .letters = bits};
    return at;
}

static inline int make_letter(sample *s, int letter)
{
    char text[16];
    snprintf(text, sizeof text, "\"%s\"", letters[letter]);
    say(s, text);
    s->nodes[s->n] = (node){.kind = LETTER, .letters = 1u << letter};
    return s->n++;
}

static inline int make_call(sample *s, int rule)
{
    char name[16];
    snprintf(name, sizeof name, "r%d", rule);
    say(s, rule ? name : "root");
    s->nodes[s->n] = (node){.kind = RULE, .n = rule};
    return s->n++;
}

/* Nothing, or a letter and a rule that may be the one that is made. */
static inline int make_dense(sample *s)
{
    const int at = s->n++;
    s->nodes[at] = (node){.kind = EMPTY};
    if (below(3) == 0) {
        say(s, "\"\"");
        return at;
    }
    say(s, "(");
    const int letter = make_letter(s, below(2));
    say(s, " ");
    s->nodes[at] = (node){.kind = SEQUENCE, .n = 2, .part = {letter, make_call(s, below(RULES))}};
    say(s, ")");
    return at;
}

static inline int make(sample *s, int rule, int depth, bool safe)
{
    const int what = s->n > NODES - 40 || depth > 4 ? 0 : below(10);
    if (what >= 8) return make_repeat(s, rule, depth, safe);
    if (what >= 6) return make_list(s, CHOICE, rule, depth, safe);
    if (what >= 4) return make_list(s, SEQUENCE, rule, depth, safe);
    const int first = safe ? 0 : rule + 1;
    if (what == 3 && first < RULES) return make_call(s, first + below(RULES - first));
    if (what == 2 || (what == 1 && s->dense)) return s->dense ? make_dense(s) : make_class(s);
    return make_letter(s, below(s->dense ? 2 : 3));
}

static inline void make_sample(sample *s)
{
    char name[32];
    s->n = 0;
    s->text[0] = 0;
    for (int r = 0; r < RULES; r++) {
        snprintf(name, sizeof name, r ? "\nr%d ::= " : "root ::= ", r);
        say(s, name);
        s->rule[r] = make_list(s, below(2) ? CHOICE : SEQUENCE, r, 0, false);
    }
    say(s, "\n");
}

#endif
