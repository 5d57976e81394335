/* Grammars: what is refused, what matches, against plain enumeration of random grammars; tokens
 * that may follow, against trying each of them; states by value. */
#include "grammars.h"

static dra_grammar_fit fit(const dra_grammar *g, const char *text, size_t n)
{
    dra_grammar_fit f;
    dra_error       err = {0};
    if (dra_grammar_match(g, text, n, &f, &err) != DRA_OK) fail_msg("%s", err.text);
    return f;
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void matches(void **state)
{
    static const struct {
        const char *grammar, *whole[4], *part[4], *not [4];
    } cases[] = {
        {"root ::= \"\"", {""}, {0}, {"a"}},
        {"root ::= \"ab\" | \"ac\" # two", {"ab", "ac"}, {"", "a"}, {"b", "aa", "abc"}},
        {"root ::= a* b+\na ::= \"a\"\nb ::= [b-c]",
         {"b", "aac", "abcb"},
         {"", "aa"},
         {"d", "aba"}},
        {"root ::= \"a\"{2} | \"b\"{2,} | \"c\"{1,3}",
         {"aa", "bbbb", "ccc"},
         {"a", "b"},
         {"aaa", "cccc"}},
        {"root ::= (\"a\" | \"b\"?)* \"c\"", {"c", "ababc"}, {"", "ab"}, {"cc"}},
        {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()"}, {")", "())"}},
        {"root ::= [^a-y\\n] .",
         {"zz", "A\n", "\xc3\xa9\xe6\xb0\xb4"},
         {"z", "\xc3", "\xe6\xb0"},
         {"a", "\n", "\xff", "\xed\xa0"}},
        {"root ::= [\\u00e9\\U0001F600-\\U0001F64F\\x41]+",
         {"\xc3\xa9", "\xf0\x9f\x98\x80", "A"},
         {"\xf0\x9f"},
         {"\xc3\xa8", "\xf0\x9f\x99\x90"}},
        {"root ::= \"\\\"\\n\\\\[\\]\\x41\\u6c34\"", {"\"\n\\[]A\xe6\xb0\xb4"}, {"\"\n"}, {"n"}},
        {"root ::=\n  # a comment\n  x\n  | y # more\nx ::= \"x\"\ny ::= (\n\"y\"\n)",
         {"x", "y"},
         {""},
         {"z"}},
        {"root ::= [a\\-z^]", {"a", "-", "z", "^"}, {""}, {"b"}},
        {"root ::= list\nlist ::= \"a\" list | \"a\"", {"a", "aaaa"}, {""}, {"b"}},
        {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"",
         {"1", "12+(3+4)"},
         {"1+", "((1"},
         {"+", "1)"}},
        {"root ::= a a\na ::= \"x\"?", {"", "x", "xx"}, {0}, {"xxx"}},
        {"root ::= a b\na ::= b\nb ::= \"x\"?", {"", "x", "xx"}, {0}, {"xxx"}},
        {"root ::= (((\"a\")))+ |", {"", "aa"}, {0}, {"b"}},
        {"root ::= [\\x00-\\x1f]", {"\x01"}, {""}, {" "}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_grammar *g = parse(cases[i].grammar);
        for (int k = 0; k < 4; k++) {
            const char *texts[] = {cases[i].not [k], cases[i].part[k], cases[i].whole[k]};
            for (int f = 0; f < 3; f++)
                if (texts[f] && (int)fit(g, texts[f], strlen(texts[f])) != f)
                    fail_msg("%s\n'%s': found %d, expected %d", cases[i].grammar, texts[f],
                             fit(g, texts[f], strlen(texts[f])), f);
        }
        dra_grammar_destroy(g);
    }
}

static void refuses(void **state)
{
    static const struct {
        const char *grammar, *error;
    } cases[] = {
        {"", "g: there is no rule 'root', where texts begin"},
        {"a ::= \"a\"", "g: there is no rule 'root', where texts begin"},
        {"root ::= x", "g:1: there is no rule 'x'"},
        {"root ::= \"a\"\n\nx ::= y z\nz ::= \"\"", "g:3: there is no rule 'y'"},
        {"root ::= \"a\"\nroot ::= \"b\"", "g:2: rule 'root' is defined twice, first in line 1"},
        {"root = \"a\"", "g:1: expected a rule: NAME ::= ..., found 'r'"},
        {"root ::= \"a", "g:1: a literal has no end: expected \" on its line"},
        {"root ::=\n [a", "g:2: a class has no end: expected ] on its line"},
        {"root ::= [a-", "g:1: a class has no end: expected ] on its line"},
        {"root ::= []", "g:1: a class without characters"},
        {"root ::= [z-a]", "g:1: a range ends before it begins"},
        {"root ::= (\"a\"", "g:1: a group has no end: expected )"},
        {"root ::= \"a\")", "g:1: expected no ) without a (, found ')'"},
        {"root ::= \"\\q\"",
         "g:1: expected one of n r t \\ \" [ ] - ^ x u U after a backslash, found 'q'"},
        {"root ::= \"\\xg1\"", "g:1: expected a hexadecimal digit, found 'g'"},
        {"root ::= \"\\ud800\"", "g:1: d800 is no code point"},
        {"root ::= \"\\U00110000\"", "g:1: 110000 is no code point"},
        {"root ::= *",
         "g:1: expected a literal, a class, a group or the name of a rule, found '*'"},
        {"root ::= \"a\"{", "g:1: expected a number, found the end"},
        {"root ::= \"a\"{3,2}", "g:1: a repetition from 3 to 2"},
        {"root ::= \"a\"{1", "g:1: expected }, found the end"},
        {"root ::= \"a\"{10001}", "g:1: a repetition of more than 10000"},
        {"root ::= ((\"a\"{1000}){1000}){1000}",
         "g: the grammar is too large, with its repetitions"},
        {"root ::= (\"\"{10000}){10000}", "g: the grammar is too large, with its repetitions"},
        {"root ::= root \"a\" | \"a\"", "g:1: rule 'root' calls itself before any character"},
        {"root ::= x\nx ::= y? z\ny ::= \"\"\nz ::= x",
         "g:2: rule 'x' calls itself before any character"},
        {"root ::= \"\xff\"", "g:1: is not UTF-8"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_grammar     *g = NULL;
        dra_error        err = {0};
        const dra_status st = dra_grammar_parse("g", cases[i].grammar, strlen(cases[i].grammar), &g,
                                                &err);
        if (st == DRA_OK) fail_msg("accepted: %s", cases[i].grammar);
        assert_null(g);
        assert_string_equal(err.text, cases[i].error);
        assert_int_equal(st, err.code);
        assert_int_not_equal(
            dra_grammar_parse("g", cases[i].grammar, strlen(cases[i].grammar), &g, NULL), DRA_OK);
    }
}

static void refuses_what_is_too_deep(void **state)
{
    static char  text[2000];
    dra_grammar *g = NULL;
    dra_error    err = {0};
    size_t       n = (size_t)snprintf(text, sizeof text, "root ::= ");
    memset(text + n, '(', 500);
    assert_int_equal(dra_grammar_parse("g", text, n + 500, &g, &err), DRA_ERR_FORMAT);
    assert_string_equal(err.text, "g:1: groups nest more than 200 deep");
    n = (size_t)snprintf(text, sizeof text, "root ::= \"a\"");
    memset(text + n, '*', 500);
    assert_int_equal(dra_grammar_parse("g", text, n + 500, &g, &err), DRA_ERR_FORMAT);
    assert_string_equal(err.text, "g:1: more than 16 repetitions of each other");
}

/* ---- random grammars against enumeration ----------------------------------------------------- */

enum { MOST = 6 };

/* Where a part may end that begins at one of the places `from`, of a text of letters; as bits. */
static unsigned ends(const sample *s, int at, const int *text, int n, unsigned from)
{
    const node *p = &s->nodes[at];
    unsigned    to = 0, now = from;
    switch (p->kind) {
    case LETTER:
    case CLASS:
        for (int i = 0; i < n; i++)
            if ((from >> i & 1) && (p->letters >> text[i] & 1)) to |= 1u << (i + 1);
        return to;
    case EMPTY: return from;
    case RULE: return from ? ends(s, s->rule[p->n], text, n, from) : 0;
    case CHOICE:
        for (int i = 0; i < p->n; i++) to |= ends(s, p->part[i], text, n, from);
        return to;
    case SEQUENCE:
        for (int i = 0; i < p->n && now; i++) now = ends(s, p->part[i], text, n, now);
        return now;
    case REPEAT:
        for (int i = 0; i < p->least; i++) now = ends(s, p->part[0], text, n, now);
        to = now;
        for (int i = p->least; i != p->most && i < p->least + MOST + 1; i++) {
            now = ends(s, p->part[0], text, n, now);
            to |= now;
        }
        return to;
    }
    return 0;
}

static size_t spell(const int *text, int n, char *bytes)
{
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        memcpy(bytes + at, letters[text[i]], strlen(letters[text[i]]));
        at += strlen(letters[text[i]]);
    }
    return at;
}

/* All texts of up to MOST letters. */
static void compare(const sample *s)
{
    dra_grammar *g = parse(s->text);
    for (int n = 0; n <= MOST; n++) {
        int count = 1, text[MOST];
        for (int i = 0; i < n; i++) count *= 3;
        for (int k = 0; k < count; k++) {
            char bytes[2 * MOST + 1];
            for (int i = 0, rest = k; i < n; i++, rest /= 3) text[i] = rest % 3;
            const bool   whole = ends(s, s->rule[0], text, n, 1) >> n & 1;
            const size_t size = spell(text, n, bytes);
            if ((fit(g, bytes, size) == DRA_GRAMMAR_WHOLE) != whole)
                fail_msg("%s'%.*s': found %d, expected %d", s->text, (int)size, bytes,
                         fit(g, bytes, size), whole);
            for (size_t part = 0; part < size && whole; part++)
                if (fit(g, bytes, part) == DRA_GRAMMAR_NOT)
                    fail_msg("%s'%.*s': %zu bytes of it are refused", s->text, (int)size, bytes,
                             part);
        }
    }
    dra_grammar_destroy(g);
}

static void agrees_with_enumeration(void **state)
{
    static sample s;
    for (int i = 0; i < 120; i++) {
        chances = 1000 + (uint64_t)i;
        make_sample(&s);
        compare(&s);
    }
}

/* ---- tokens ---------------------------------------------------------------------------------- */

enum { TOKENS = 120 };

typedef struct vocabulary {
    char           text[TOKENS][8];
    dra_token_text token[TOKENS];
} vocabulary;

/* Single bytes, and pieces that may begin or end inside of a character. */
static void make_vocabulary(vocabulary *v)
{
    static const char bytes[] = "ab\xc3\xa9";
    for (int i = 0; i < TOKENS; i++) {
        const int n = i < 4 ? 1 : i == 5 ? 0 : 1 + below(6);
        for (int k = 0; k < n; k++) v->text[i][k] = i < 4 ? bytes[i] : bytes[below(4)];
        v->token[i] = (dra_token_text){v->text[i], (size_t)n, i};
    }
}

static dra_constraint *constrain(const dra_grammar *g, const vocabulary *v)
{
    dra_constraint *c = NULL;
    dra_error       err = {0};
    if (dra_constraint_create(g, TOKENS, v->token, &c, &err) != DRA_OK) fail_msg("%s", err.text);
    return c;
}

/* What may follow is what each token shows by itself. */
static size_t check_allowed(const dra_grammar *g, dra_constraint *c, const vocabulary *v,
                            const dra_grammar_state *s, const char *text, size_t n, bool *allowed)
{
    char      longer[200];
    size_t    count = 0, expected = 0;
    bool      may, must;
    dra_error err = {0};
    memset(allowed, 0, TOKENS);
    assert_int_equal(dra_constraint_allow(c, s, allowed, &count, &err), DRA_OK);
    memcpy(longer, text, n);
    for (int i = 0; i < TOKENS; i++) {
        memcpy(longer + n, v->token[i].bytes, v->token[i].n);
        const bool follows = v->token[i].n && fit(g, longer, n + v->token[i].n) != DRA_GRAMMAR_NOT;
        if (follows != allowed[i]) fail_msg("token %d: %d, expected %d", i, allowed[i], follows);
        expected += follows;
    }
    assert_int_equal(count, expected);
    assert_int_equal(dra_constraint_end(c, s, &may, &must, &err), DRA_OK);
    assert_int_equal(may, fit(g, text, n) == DRA_GRAMMAR_WHOLE);
    if (must) assert_int_equal(count, 0);
    return count;
}

/* A walk; every state also goes through another matcher by value. */
static void walk(const dra_grammar *g, const vocabulary *v)
{
    dra_constraint    *c[] = {constrain(g, v), constrain(g, v)};
    dra_grammar_state *s = NULL, *copy = NULL;
    char               text[200];
    bool               allowed[TOKENS], others[TOKENS];
    size_t             n = 0, left;
    dra_error          err = {0};
    for (int i = 0; i < 25 && n < 150; i++) {
        left = check_allowed(g, c[i % 2], v, s, text, n, allowed);
        assert_int_equal(dra_grammar_state_copy(s, &copy, &err), DRA_OK);
        assert_true(dra_grammar_state_of(copy, g));
        assert_int_equal(check_allowed(g, c[1 - i % 2], v, copy, text, n, others), left);
        free(copy);
        if (!left) break;
        int id = below(TOKENS);
        while (!allowed[id]) id = (id + 1) % TOKENS;
        assert_int_equal(dra_constraint_advance(c[0], &s, v->token[id].bytes, v->token[id].n, &err),
                         DRA_OK);
        memcpy(text + n, v->token[id].bytes, v->token[id].n);
        n += v->token[id].n;
    }
    free(s);
    dra_constraint_destroy(c[0]);
    dra_constraint_destroy(c[1]);
}

static void allows_what_may_follow(void **state)
{
    static sample     s;
    static vocabulary v;
    for (int i = 0; i < 60; i++) {
        chances = 5000 + (uint64_t)i;
        make_vocabulary(&v);
        make_sample(&s);
        dra_grammar *g = parse(s.text);
        walk(g, &v);
        dra_grammar_destroy(g);
    }
}

static void refuses_to_leave_the_grammar(void **state)
{
    static vocabulary  v;
    dra_grammar       *g = parse("root ::= \"a\"");
    dra_grammar       *other = parse("root ::= \"b\"");
    dra_grammar_state *s = NULL;
    dra_error          err = {0};
    make_vocabulary(&v);
    dra_constraint *c = constrain(g, &v);
    assert_int_equal(dra_constraint_advance(c, &s, "b", 1, &err), DRA_ERR_VALUE);
    assert_null(s);
    assert_int_equal(dra_constraint_advance(c, &s, "a", 1, &err), DRA_OK);
    assert_false(dra_grammar_state_of(s, other));
    assert_true(dra_grammar_state_of(NULL, other));
    free(s);
    dra_constraint_destroy(c);
    dra_grammar_destroy(g);
    dra_grammar_destroy(other);
}

/* ---- size ------------------------------------------------------------------------------------ */

/* The state after `n` times a text, and how large it is by value. */
static size_t state_size(const char *grammar, const char *text, int n)
{
    static vocabulary  v;
    dra_grammar       *g = parse(grammar);
    dra_constraint    *c = constrain(g, &v);
    dra_grammar_state *s = NULL;
    dra_error          err = {0};
    for (int i = 0; i < n; i++)
        if (dra_constraint_advance(c, &s, text, strlen(text), &err) != DRA_OK)
            fail_msg("%s after %d", err.text, i);
    const size_t size = s->n;
    free(s);
    dra_constraint_destroy(c);
    dra_grammar_destroy(g);
    return size;
}

static void lists_need_no_stack(void **state)
{
    const char loop[] = "root ::= (\"ab\" | \"a\")* \"c\"";
    const char list[] = "root ::= item rest\nrest ::= \"\" | item rest\nitem ::= \"ab\" | \"a\"";
    assert_int_equal(state_size(loop, "ab", 5), state_size(loop, "ab", 3000));
    assert_int_equal(state_size(list, "ab", 5), state_size(list, "ab", 3000));
}

/* 2^n readings of n letters. */
static void ambiguous_texts_stay_small(void **state)
{
    const char many[] = "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" root \"bc\" | \"a\"";
    const size_t few = state_size(many, "a", 10), more = state_size(many, "a", 400);
    assert_true(more < 50 * few);
}

/* More states than are remembered. */
static void forgets(void **state)
{
    assert_true(state_size("root ::= ([ab]{10000}){4} [c-d]", "a", 40000) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_what_is_too_deep),
        cmocka_unit_test(agrees_with_enumeration),
        cmocka_unit_test(allows_what_may_follow),
        cmocka_unit_test(refuses_to_leave_the_grammar),
        cmocka_unit_test(lists_need_no_stack),
        cmocka_unit_test(ambiguous_texts_stay_small),
        cmocka_unit_test(forgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
