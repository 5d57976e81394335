/* What a step of a grammar gives and costs: random grammars with many readings against a chart of
 * all of them, moves that grow no faster than they should, and refusals where they would. */
#include "grammars.h"

/* ---- against a chart ------------------------------------------------------------------------- */

enum { LONG = 16, GRAMMARS = 3000, TEXTS = 4 };

typedef struct chart { /* [node][from]: where it may end, as bits; of a text of letters */
    unsigned at[NODES][LONG + 1];
    int      text[LONG];
} chart;

static unsigned after(const chart *c, int part, unsigned from)
{
    unsigned to = 0;
    for (int i = 0; i <= LONG; i++)
        if (from >> i & 1) to |= c->at[part][i];
    return to;
}

/* By what is known of its parts. */
static unsigned ends_of(const sample *s, const chart *c, const node *p, int from)
{
    unsigned now = 1u << from, to = 0;
    switch (p->kind) {
    case LETTER:
    case CLASS: return from < LONG && (p->letters >> c->text[from] & 1) ? 2u << from : 0;
    case EMPTY: return now;
    case RULE: return c->at[s->rule[p->n]][from];
    case CHOICE:
        for (int i = 0; i < p->n; i++) to |= c->at[p->part[i]][from];
        return to;
    case SEQUENCE:
        for (int i = 0; i < p->n; i++) now = after(c, p->part[i], now);
        return now;
    case REPEAT:
        for (int i = 0; i < p->least; i++) now = after(c, p->part[0], now);
        to = now;
        for (int i = p->least; i != p->most && i <= p->least + LONG; i++)
            to |= now = after(c, p->part[0], now);
        return to;
    }
    return 0;
}

/* Until nothing is new. */
static void fill_chart(const sample *s, chart *c)
{
    memset(c->at, 0, sizeof c->at);
    for (bool changed = true; changed;) {
        changed = false;
        for (int k = s->n - 1; k >= 0; k--)
            for (int from = LONG; from >= 0; from--) {
                const unsigned to = ends_of(s, c, &s->nodes[k], from);
                changed = changed || to != c->at[k][from];
                c->at[k][from] = to;
            }
    }
}

/* Goes along a text; at each letter the chart knows whether it may end. Returns how often. */
static int compare(const sample *s, dra_matcher *m, const chart *c)
{
    const unsigned whole = c->at[s->rule[0]][0];
    int32_t        state = dra_matcher_enter(m, NULL);
    int            found = 0;
    for (int i = 0; i <= LONG; i++) {
        const bool may = state >= 0 && dra_matcher_may_end(m, state);
        if (may != (whole >> i & 1) || (state < 0 && whole >> i))
            fail_msg("%s after %d letters: found %d, expected %d", s->text, i, may, whole >> i & 1);
        found += may;
        for (const char *b = i < LONG ? letters[c->text[i]] : ""; *b && state >= 0; b++)
            state = dra_matcher_step(m, state, (unsigned char)*b);
        assert_int_not_equal(state, DRA_MATCH_FAILED);
    }
    return found;
}

static void agrees_with_a_chart(void **state)
{
    static sample s;
    static chart  c;
    int           found = 0;
    s.dense = true;
    for (int i = 0; i < GRAMMARS; i++) {
        dra_matcher *m = NULL;
        dra_error    err = {0};
        chances = 9000 + (uint64_t)i;
        make_sample(&s);
        dra_grammar *g = parse(s.text);
        assert_int_equal(dra_matcher_create(g, &m, &err), DRA_OK);
        for (int t = 0; t < TEXTS; t++) {
            for (int k = 0; k < LONG; k++)
                c.text[k] = below(1 + 2 * t) < t; /* from all a to half */
            fill_chart(&s, &c);
            found += compare(&s, m, &c);
        }
        dra_matcher_destroy(m);
        dra_grammar_destroy(g);
    }
    assert_true(found > GRAMMARS * TEXTS); /* it has not only been about what does not match */
}

/* ---- moves ----------------------------------------------------------------------------------- */

typedef struct walk {
    dra_grammar *g;
    dra_matcher *m;
    int32_t      state;
} walk;

static walk begin(const char *grammar)
{
    walk      w = {.g = parse(grammar)};
    dra_error err = {0};
    assert_int_equal(dra_matcher_create(w.g, &w.m, &err), DRA_OK);
    w.state = dra_matcher_enter(w.m, NULL);
    return w;
}

static void end(walk *w)
{
    dra_matcher_destroy(w->m);
    dra_grammar_destroy(w->g);
}

/* Goes n times along a text. Returns the moves of the last time. */
static int64_t go(walk *w, const char *text, int n)
{
    int64_t before = 0;
    for (int i = 0; i < n && w->state >= 0; i++) {
        before = dra_matcher_moves(w->m);
        for (const char *b = text; *b && w->state >= 0; b++)
            w->state = dra_matcher_step(w->m, w->state, (unsigned char)*b);
    }
    return dra_matcher_moves(w->m) - before;
}

static int64_t moves_after(const char *grammar, const char *text, int n)
{
    walk          w = begin(grammar);
    const int64_t moves = go(&w, text, n);
    assert_true(w.state >= 0);
    end(&w);
    return moves;
}

/* How a step grows from n to 2 n letters: by nothing, as the text, or as its square. */
static void steps_grow_as_they_should(void **state)
{
    static const struct {
        const char *grammar, *text;
        int         n, power;
    } cases[] = {
        {"root ::= ((\"a\" | \"ab\")? \"b\"?){0,9999}", "ab", 500, 0},
        {"root ::= ((\"a\"? ){300}){900}", "a", 300, 0},
        {"root ::= (((\"a\" | \"aa\"){0,99} \"b\"?){99} |)*", "a", 300, 0},
        {"root ::= item rest\nrest ::= \"\" | item rest\nitem ::= \"ab\" | \"a\"", "ab", 300, 0},
        {"root ::= \"(\" root \")\" |", "(", 2000, 0},
        {"root ::= e\ne ::= \"1\" (\"+\" e)*", "1+", 300, 1},
        {"root ::= (\"a\" | \"aa\"){5000}", "a", 400, 1},
        {"root ::= e\ne ::= \"1\" (\"+\" e | \"+\" e)? (\"+\" e)?", "1+", 200, 2},
        {"root ::= r\nr ::= (\"x\" r \"\" | ){491} |", "x", 100, 2},
        {"root ::= r\nr ::= (\"x\" r | \"y\"){3} | \"x\"", "x", 200, 2},
        {"root ::= r{99}\nr ::= (\"x\" r{0,99} | \"y\"){99} |", "x", 100, 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int64_t few = moves_after(cases[i].grammar, cases[i].text, cases[i].n);
        const int64_t more = moves_after(cases[i].grammar, cases[i].text, 2 * cases[i].n);
        const int64_t most = (few << cases[i].power) + few / 4 + 8;
        if (more > most)
            fail_msg("%s: %lld moves, then %lld, expected at most %lld", cases[i].grammar,
                     (long long)few, (long long)more, (long long)most);
    }
}

/* Of copies that may be left out, one is followed. */
static void copies_cost_nothing(void **state)
{
    assert_int_equal(moves_after("root ::= r\nr ::= (\"x\" r \"\" | ){40} |", "x", 30),
                     moves_after("root ::= r\nr ::= (\"x\" r \"\" | ){9000} |", "x", 30));
    assert_int_equal(moves_after("root ::= (\"x\" (\"y\" | \"yx\")? ){0,50} \"z\"", "xy", 20),
                     moves_after("root ::= (\"x\" (\"y\" | \"yx\")? ){0,5000} \"z\"", "xy", 20));
}

/* Bytes that may not follow are known without a step, and those of a class share one. */
static void bytes_are_tried_once(void **state)
{
    walk w = begin("root ::= ([a-y] | \"z\")*");
    assert_int_equal(w.g->classes, 3);
    const int32_t to = dra_matcher_step(w.m, w.state, 'a');
    const int64_t moves = dra_matcher_moves(w.m);
    for (int b = 0; b < 256; b++) {
        const int32_t next = dra_matcher_step(w.m, w.state, (unsigned char)b);
        if (b != 'z') assert_int_equal(next, b >= 'a' && b < 'z' ? to : DRA_MATCH_NOT);
    }
    assert_true(dra_matcher_moves(w.m) <= 2 * moves);
    end(&w);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refusal(walk *w, const char *text)
{
    dra_error     err = {0};
    const int64_t moves = dra_matcher_moves(w->m);
    assert_int_equal(w->state, DRA_MATCH_FAILED);
    assert_int_equal(dra_matcher_why(w->m, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, text);
    assert_int_equal(dra_matcher_enter(w->m, NULL), DRA_MATCH_FAILED); /* and stays so */
    assert_int_equal(dra_matcher_moves(w->m), moves);
}

static void refuses_what_takes_too_long(void **state)
{
    walk          w = begin("root ::= r\nr ::= (\"x\" r \"\" | ){491} |");
    const int64_t moves = go(&w, "x", 5000);
    const int64_t most = dra_matcher_step_most(w.m);
    char          text[200];
    assert_int_equal(most, (1 << 18) + 2 * w.g->places);
    assert_true(moves > most && moves < most + 2000); /* a state that is read is counted at once */
    snprintf(text, sizeof text,
             "grammar: a byte needs more than %lld moves: it can be read in too many ways",
             (long long)most);
    expect_refusal(&w, text);
    end(&w);
}

/* Steps that are cheap each may be too many; what is known already is free. */
static void refuses_questions_that_take_too_long(void **state)
{
    walk          w = begin("root ::= \"a\"{1000}");
    const int32_t first = w.state;
    dra_matcher_ask(w.m, 1000);
    go(&w, "a", 50);
    assert_true(w.state >= 0);
    for (int i = 0; i < 100; i++) {
        w.state = first;
        go(&w, "a", 50);
    }
    assert_true(w.state >= 0);
    go(&w, "a", 500);
    expect_refusal(&w, "grammar: a choice of tokens needs more than 1000 moves: it can be read in "
                       "too many ways");
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_chart),
        cmocka_unit_test(steps_grow_as_they_should),
        cmocka_unit_test(copies_cost_nothing),
        cmocka_unit_test(bytes_are_tried_once),
        cmocka_unit_test(refuses_what_takes_too_long),
        cmocka_unit_test(refuses_questions_that_take_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
