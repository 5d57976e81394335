/* Running a grammar over bytes: a pushdown automaton that follows all readings of a text at once.
 *
 *   frame   of a rule that was entered: all (place, frame) it may return to
 *   state   all (place, frame) at which the next byte is read, and whether the text may end
 *
 * Calls of a rule at the same byte share one frame, so the readings of an ambiguous text share what
 * they have in common [Tomita 1985, graph-structured stacks]. A call at the end of a rule returns
 * to where that rule returns, so that lists written by recursion do not grow a stack.
 *
 * Frames and states with the same content are the same, and have numbers. So what follows a state
 * by a byte is computed once and then looked up: most tokens of a vocabulary pass through a few
 * states, whatever their bytes are. Bytes that no set of the grammar tells apart share an entry.
 *
 * What a step costs. A pair (place, frame) is reached once, and a frame returns once to each of
 * its returns: at most places x frames pairs, and as many returns of each frame. A frame is made
 * for each rule and byte, so for an ambiguous grammar a step gets longer with the square of the
 * text, as with any way to parse all grammars. Two things keep that small and bounded:
 *
 *   loops   of x{0,9}, a copy of x with more copies left goes on like one with fewer, and more:
 *           where both begin in a frame at a byte, only the first is followed. So it is not the
 *           number of copies that counts.
 *   moves   each pair or return that is tried, new or not, is counted. A step that needs more than
 *           STEP_MOVES and a few for each place is refused, as is a question that needs more than
 *           it may. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/grammar/match.h"

enum {
    UNKNOWN = -3,         /* not computed yet */
    STATES = 1 << 15,     /* more are forgotten before the next question */
    CONTENTS = 1 << 21,   /* the same for what they are made of */
    FOLDED = 3,           /* returns at least that become one */
    STEP_MOVES = 1 << 18, /* about 5 ms */
    PLACE_MOVES = 2       /* a list of alternatives: a fork and a byte for each */
};

dra_status dra_matcher_why(const dra_matcher *m, dra_error *err)
{
    if (m->failed == DRA_ERR_VALUE)
        return dra_fail(err, m->failed,
                        "grammar: %s needs more than %lld %s: it can be read in too many ways",
                        m->what, (long long)m->most, m->of);
    return dra_fail(err, m->failed, "grammar: out of memory");
}

int64_t dra_matcher_moves(const dra_matcher *m) { return m->moves; }

int64_t dra_matcher_step_most(const dra_matcher *m)
{
    return STEP_MOVES + PLACE_MOVES * (int64_t)m->g->places;
}

/* Counts moves; too many are a failure. */
static bool spend_moves(dra_matcher *m, int64_t moves)
{
    m->moves += moves;
    const bool step = m->moves > m->step_end;
    if ((!step && m->moves <= m->question_end) || m->failed) return !m->failed;
    m->failed = DRA_ERR_VALUE;
    m->what = step ? "a byte" : "a choice of tokens";
    m->most = step ? dra_matcher_step_most(m) : m->question_most;
    m->of = "moves";
    return false;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Bytes that may not follow are known at once, so that trying them costs nothing. */
static void set_next(dra_matcher *m, int32_t state)
{
    const dra_grammar  *g = m->g;
    const dra_item_span s = m->states.at[state];
    int32_t            *next = m->next + (size_t)g->classes * (size_t)state;
    dra_byte_set        any = {0};
    for (int32_t i = 0; i < s.n; i++) {
        const dra_byte_set *set = &g->set[g->place[m->content[s.first + i].place].other];
        for (int w = 0; w < 8; w++) any.bits[w] |= set->bits[w];
    }
    for (int32_t c = 0; c < g->classes; c++)
        next[c] = dra_byte_in(&any, g->sample[c]) ? UNKNOWN : DRA_MATCH_NOT;
}

int32_t dra_matcher_add_state(dra_matcher *m, dra_grammar_item *at, int32_t n, bool accept)
{
    n = dra_items_arrange(at, n);
    if (n == 0 && !accept) return DRA_MATCH_NOT;
    const int32_t before = m->states.n;
    const int32_t state = dra_items_number(m, &m->states, at, n, accept);
    if (state < before) return state < 0 ? DRA_MATCH_FAILED : state;
    if (!dra_items_grow(m, &m->next, state, &m->next_room,
                        (size_t)m->g->classes * sizeof *m->next)) {
        m->states.n = before; /* its slot is wrong now: a matcher that failed is not used further */
        return DRA_MATCH_FAILED;
    }
    set_next(m, state);
    return state;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Whether a place begins a copy of a loop with no more copies left than one that was reached in the
 * same frame. Later copies have lower places. */
static bool is_behind(dra_matcher *m, int32_t place, int32_t in)
{
    const int32_t loop = m->g->place[place].loop;
    if (loop == 0) return false;
    int32_t i = dra_items_find(&m->heads, (dra_grammar_item){loop, in});
    if (i >= 0 && m->top[i] >= place) return true;
    if (i < 0) {
        i = m->heads.n;
        if (!dra_items_grow(m, &m->top, i, &m->top_room, sizeof *m->top)) return true;
        if (!dra_items_add(m, &m->heads, (dra_grammar_item){loop, in})) return true;
    }
    m->top[i] = place;
    return false;
}

/* A place that is reached; nothing, if it was before. */
static void push_place(dra_matcher *m, int32_t place, int32_t in)
{
    if (!spend_moves(m, 1)) return;
    if (place == DRA_GRAMMAR_ACCEPT)
        m->accept = true;
    else if (!is_behind(m, place, in))
        dra_items_add(m, &m->work, (dra_grammar_item){place, in});
}

static void add_return(dra_matcher *m, int32_t i, dra_grammar_item to)
{
    dra_frame *f = &m->fresh[i];
    if (spend_moves(m, 1) && dra_items_add(m, &f->to, to) && f->ended)
        push_place(m, to.place, to.frame);
}

/* The frame of a rule at this step; -1: failed. */
static int32_t frame_of(dra_matcher *m, int32_t rule)
{
    if (m->called_at[rule] == m->step) return m->called[rule];
    const int32_t before = m->fresh_room;
    if (!dra_items_grow(m, &m->fresh, m->n_fresh, &m->fresh_room, sizeof *m->fresh)) return -1;
    if (m->fresh_room > before)
        memset(m->fresh + before, 0, (size_t)(m->fresh_room - before) * sizeof *m->fresh);
    dra_frame *f = &m->fresh[m->n_fresh];
    f->to.n = 0;
    f->ended = false;
    f->number = -1;
    m->called_at[rule] = m->step;
    m->called[rule] = m->n_fresh;
    push_place(m, m->g->start[rule], ~m->n_fresh);
    return m->n_fresh++;
}

static void enter_rule(dra_matcher *m, int32_t rule, int32_t next, int32_t in)
{
    const int32_t i = frame_of(m, rule);
    if (i < 0) return;
    if (m->g->place[next].kind != DRA_AT_END || in < 0) {
        add_return(m, i, (dra_grammar_item){next, in});
        return;
    }
    if (!dra_items_add(m, &m->tails, (dra_grammar_item){i, in})) return; /* it has them */
    const dra_item_span old = m->frames.at[in]; /* complete, as it is of a step before */
    for (int32_t k = old.n - 1; k >= 0 && !m->failed; k--)
        add_return(m, i, m->content[old.first + k]);
}

/* Higher places first: of the heads of a loop, the first is best. */
static void end_rule(dra_matcher *m, int32_t in)
{
    if (in >= 0) {
        const dra_item_span s = m->frames.at[in];
        for (int32_t k = s.n - 1; k >= 0 && !m->failed; k--)
            push_place(m, m->content[s.first + k].place, m->content[s.first + k].frame);
        return;
    }
    dra_frame *f = &m->fresh[~in];
    f->ended = true;
    for (int32_t k = 0; k < f->to.n && !m->failed; k++)
        push_place(m, f->to.at[k].place, f->to.at[k].frame);
}

/* Whether all returns of a frame are in a list that is arranged; m->heads gets them. One that ends
 * a rule, and is not there itself, stands for those of its frame. */
static bool has_returns(dra_matcher *m, const dra_item_set *list, int32_t of)
{
    m->heads.n = 0;
    while (of >= 0) {
        const dra_item_span s = m->frames.at[of];
        of = -1;
        for (int32_t k = 0; k < s.n; k++) {
            const dra_grammar_item x = m->content[s.first + k];
            const bool             there = dra_items_arranged_has(list->at, list->n, x);
            if (!spend_moves(m, 1)) return false;
            if (there)
                dra_items_add(m, &m->heads, x);
            else if (x.place == 0 && of < 0)
                of = x.frame;
            else
                return false;
        }
    }
    return !m->failed;
}

/* Of a rule that calls itself near its end, a frame has all returns of the one before it and a few
 * more. It then returns to the end of that one: frames stay small, and a step, which ends all of
 * them, does not try the same returns for each. */
static void fold_returns(dra_matcher *m, dra_item_set *to)
{
    int32_t last = 0, n = 0;
    for (int32_t k = 0; k < to->n; k++)
        if (to->at[k].frame > last) last = to->at[k].frame;
    if (to->n < FOLDED || m->failed || !has_returns(m, to, last) || m->heads.n < FOLDED) return;
    for (int32_t k = 0; k < to->n; k++)
        if (dra_items_find(&m->heads, to->at[k]) < 0) to->at[n++] = to->at[k];
    to->at[n++] = (dra_grammar_item){0, last};
    to->n = dra_items_arrange(to->at, n);
}

/* The number of a frame of this step, after those it returns to. A rule that calls itself before
 * any byte is refused by the compiler, so there is no circle, and no more depth than rules. */
static int32_t settle_frame(dra_matcher *m, int32_t i)
{
    dra_frame *f = &m->fresh[i];
    if (f->number >= 0 || m->failed) return f->number;
    for (int32_t k = 0; k < f->to.n && !m->failed; k++)
        if (f->to.at[k].frame < 0) f->to.at[k].frame = settle_frame(m, ~f->to.at[k].frame);
    f->to.n = dra_items_arrange(f->to.at, f->to.n);
    fold_returns(m, &f->to);
    if (!m->failed) f->number = dra_items_number(m, &m->frames, f->to.at, f->to.n, false);
    return f->number;
}

static void begin_step(dra_matcher *m)
{
    m->work.n = m->tails.n = m->heads.n = m->n_fresh = 0;
    m->accept = false;
    m->step_end = m->moves + dra_matcher_step_most(m);
    if (++m->step == 0) { /* after 2^32 of them */
        memset(m->called_at, 0, (size_t)m->g->rules * sizeof *m->called_at);
        m->step = 1;
    }
}

/* Everything that is reached without a byte; then the state of it all. */
static int32_t end_step(dra_matcher *m)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->work.n && !m->failed; i++) {
        const dra_grammar_item   at = m->work.at[i];
        const dra_grammar_place *p = &m->g->place[at.place];
        switch ((dra_grammar_place_kind)p->kind) {
        case DRA_AT_END: end_rule(m, at.frame); break;
        case DRA_AT_BYTE: break;
        case DRA_AT_CALL: enter_rule(m, p->other, p->next, at.frame); break;
        case DRA_AT_FORK:
            push_place(m, p->next, at.frame);
            push_place(m, p->other, at.frame);
            break;
        }
    }
    for (int32_t i = 0; i < m->work.n && !m->failed; i++) {
        dra_grammar_item at = m->work.at[i];
        if (m->g->place[at.place].kind != DRA_AT_BYTE) continue;
        if (at.frame < 0) at.frame = settle_frame(m, ~at.frame);
        m->work.at[n++] = at;
    }
    if (!spend_moves(m, n)) return DRA_MATCH_FAILED;
    return dra_matcher_add_state(m, m->work.at, n, m->accept);
}

int32_t dra_matcher_start(dra_matcher *m)
{
    begin_step(m);
    push_place(m, m->g->start[m->g->root], 0);
    return end_step(m);
}

int32_t dra_matcher_step(dra_matcher *m, int32_t state, unsigned char byte)
{
    const size_t at = (size_t)m->g->classes * (size_t)state + m->g->class_of[byte];
    if (m->next[at] != UNKNOWN) return m->next[at];
    if (m->failed) return DRA_MATCH_FAILED;
    const dra_item_span s = m->states.at[state];
    begin_step(m);
    spend_moves(m, s.n + m->g->classes); /* the state and its entries */
    for (int32_t i = s.n - 1; i >= 0; i--) {
        const dra_grammar_item   from = m->content[s.first + i];
        const dra_grammar_place *p = &m->g->place[from.place];
        if (dra_byte_in(&m->g->set[p->other], byte)) push_place(m, p->next, from.frame);
    }
    const int32_t next = end_step(m);
    if (next != DRA_MATCH_FAILED) m->next[at] = next;
    return next;
}

bool dra_matcher_may_end(const dra_matcher *m, int32_t state) { return m->states.at[state].accept; }
bool dra_matcher_must_end(const dra_matcher *m, int32_t state)
{
    return m->states.at[state].n == 0;
}

/* ---- making one ------------------------------------------------------------------------------ */

/* The frame of the whole text has the number 0. */
static void forget_frames(dra_matcher *m)
{
    const dra_grammar_item whole = {DRA_GRAMMAR_ACCEPT, 0};
    m->contents = m->frames.n = m->states.n = 0;
    if (m->frames.slot) memset(m->frames.slot, 0, (size_t)m->frames.slots * sizeof(int32_t));
    if (m->states.slot) memset(m->states.slot, 0, (size_t)m->states.slots * sizeof(int32_t));
    dra_items_number(m, &m->frames, &whole, 1, false);
}

void dra_matcher_ask(dra_matcher *m, int64_t moves)
{
    if (m->states.n > STATES || m->contents > CONTENTS) forget_frames(m);
    m->question_most = moves;
    m->question_end = m->moves + moves;
}

dra_status dra_matcher_create(const dra_grammar *g, dra_matcher **out, dra_error *err)
{
    dra_matcher *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m) {
        m->g = g;
        m->question_end = INT64_MAX;
        m->called = calloc((size_t)g->rules, sizeof *m->called);
        m->called_at = calloc((size_t)g->rules, sizeof *m->called_at);
        if (m->called && m->called_at) forget_frames(m);
    }
    if (!m || !m->called || !m->called_at || m->failed) {
        dra_matcher_destroy(m);
        return dra_fail(err, DRA_ERR_MEMORY, "grammar: out of memory");
    }
    *out = m;
    return DRA_OK;
}

void dra_matcher_destroy(dra_matcher *m)
{
    if (!m) return;
    for (int32_t i = 0; i < m->fresh_room; i++) dra_items_free(&m->fresh[i].to);
    free(m->fresh);
    free(m->content);
    free(m->frames.at);
    free(m->frames.slot);
    free(m->states.at);
    free(m->states.slot);
    free(m->next);
    free(m->called);
    free(m->called_at);
    free(m->top);
    dra_items_free(&m->work);
    dra_items_free(&m->tails);
    dra_items_free(&m->heads);
    free(m);
}
