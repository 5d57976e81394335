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
 * states, whatever their bytes are. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "run/grammar.h"

enum {
    ACCEPT = -1,             /* the place that the whole text returns to */
    UNKNOWN = -3,            /* not computed yet */
    STATES = 1 << 15,        /* more are forgotten before the next text */
    CONTENTS = 1 << 21,      /* the same for what they are made of */
    CONTENTS_MOST = 1 << 25, /* more than that is refused */
    FEW = 16                 /* items that are looked through; a power of two */
};

typedef struct item {
    int32_t place, frame; /* frame below 0: ~number of a frame of this step */
} item;

typedef struct span { /* of m->content */
    int32_t first, n;
    bool    accept; /* of states */
} span;

typedef struct table { /* by content */
    span    *at;
    int32_t *slot; /* (slots): a number + 1; 0: free */
    int32_t  n, room, slots;
} table;

typedef struct set { /* of items, each once, in the order they came */
    item    *at;
    int32_t  n, room;
    int32_t *slot; /* (slots), of more than FEW: a place in `at` + 1; 0: free */
    int32_t  slots;
} set;

typedef struct frame { /* of this step: it may still get returns */
    set     to;
    bool    ended;  /* it has returned at this step already */
    int32_t number; /* among all frames, once that is known; -1 before */
} frame;

struct dra_matcher {
    const dra_grammar *g;
    item              *content;
    int32_t            contents, content_room;
    table              frames, states;
    int32_t           *next; /* (states, 256) */
    int32_t            next_room;
    /* Of one step: */
    frame     *fresh;
    int32_t    n_fresh, fresh_room;
    int32_t   *called; /* (rules): the frame of this step, if called_at is this step */
    uint32_t  *called_at, step;
    set        work; /* all that was reached; what reads bytes moves to the front */
    bool       accept;
    dra_status failed;
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Room for one more of `size` bytes. */
static bool grow(dra_matcher *m, void *data, int32_t n, int32_t *room, size_t size)
{
    if (n < *room) return true;
    const int32_t more = *room ? 2 * *room : 64;
    void         *old;
    memcpy(&old, data, sizeof old); /* data points to a pointer of any type */
    void *at = n < CONTENTS_MOST ? realloc(old, (size_t)more * size) : NULL;
    if (!at) {
        m->failed = n < CONTENTS_MOST ? DRA_ERR_MEMORY : DRA_ERR_VALUE;
        return false;
    }
    memcpy(data, &at, sizeof at);
    *room = more;
    return true;
}

dra_status dra_matcher_why(const dra_matcher *m, dra_error *err)
{
    if (m->failed == DRA_ERR_VALUE)
        return dra_fail(err, m->failed, "grammar: the text can be read in too many ways");
    return dra_fail(err, m->failed, "grammar: out of memory");
}

static uint32_t hash(const item *at, int32_t n)
{
    return (uint32_t)dra_hash_of(0, at, (size_t)n * sizeof *at);
}

/* ---- what has a number ----------------------------------------------------------------------- */

static bool rehash(dra_matcher *m, table *t)
{
    const int32_t slots = t->slots ? 2 * t->slots : 64;
    int32_t      *slot = calloc((size_t)slots, sizeof *slot);
    if (!slot) {
        m->failed = DRA_ERR_MEMORY;
        return false;
    }
    for (int32_t i = 0; i < t->n; i++) {
        uint32_t k = hash(m->content + t->at[i].first, t->at[i].n) + t->at[i].accept;
        while (slot[k & (uint32_t)(slots - 1)]) k++;
        slot[k & (uint32_t)(slots - 1)] = i + 1;
    }
    free(t->slot);
    t->slot = slot;
    t->slots = slots;
    return true;
}

/* The number of a content, which is added if it is new; -1: failed. */
static int32_t number_of(dra_matcher *m, table *t, const item *at, int32_t n, bool accept)
{
    if (2 * t->n >= t->slots && !rehash(m, t)) return -1;
    uint32_t k = hash(at, n) + accept;
    for (int32_t i; (i = t->slot[k & (uint32_t)(t->slots - 1)]) != 0; k++) {
        const span *s = &t->at[i - 1];
        if (s->n == n && s->accept == accept &&
            memcmp(m->content + s->first, at, (size_t)n * sizeof *at) == 0)
            return i - 1;
    }
    if (!grow(m, &t->at, t->n, &t->room, sizeof *t->at)) return -1;
    const int32_t first = m->contents;
    for (int32_t i = 0; i < n; i++) {
        if (!grow(m, &m->content, m->contents, &m->content_room, sizeof *m->content)) return -1;
        m->content[m->contents++] = at[i];
    }
    t->at[t->n] = (span){first, n, accept};
    t->slot[k & (uint32_t)(t->slots - 1)] = t->n + 1;
    return t->n++;
}

static int by_content(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return (x->frame > y->frame) - (x->frame < y->frame);
}

/* Puts a list in its order, each once. Returns how many are left. */
static int32_t arrange(item *at, int32_t n)
{
    int32_t kept = 0;
    if (n > 1) qsort(at, (size_t)n, sizeof *at, by_content);
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || by_content(&at[i], &at[kept - 1]) != 0) at[kept++] = at[i];
    return kept;
}

static int32_t add_state(dra_matcher *m, item *at, int32_t n, bool accept)
{
    if (n == 0 && !accept) return DRA_MATCH_NOT;
    const int32_t before = m->states.n, state = number_of(m, &m->states, at, n, accept);
    if (state < before) return state < 0 ? DRA_MATCH_FAILED : state;
    if (!grow(m, &m->next, state, &m->next_room, 256 * sizeof *m->next)) {
        m->states.n = before; /* its slot is wrong now: a matcher that failed is not used further */
        return DRA_MATCH_FAILED;
    }
    for (int i = 0; i < 256; i++) m->next[256 * (size_t)state + (size_t)i] = UNKNOWN;
    return state;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void put_slot(set *s, int32_t i)
{
    uint32_t k = hash(&s->at[i], 1);
    while (s->slot[k & (uint32_t)(s->slots - 1)]) k++;
    s->slot[k & (uint32_t)(s->slots - 1)] = i + 1;
}

/* Finds all items by their content, a power of two of them, with room for twice as many. */
static bool index_set(dra_matcher *m, set *s)
{
    const int32_t slots = 4 * s->n;
    int32_t      *slot = realloc(s->slot, (size_t)slots * sizeof *slot);
    if (!slot) {
        m->failed = DRA_ERR_MEMORY;
        return false;
    }
    memset(slot, 0, (size_t)slots * sizeof *slot);
    s->slot = slot;
    s->slots = slots;
    for (int32_t i = 0; i < s->n; i++) put_slot(s, i);
    return true;
}

static bool has(const set *s, item x)
{
    if (s->n < FEW) {
        int32_t i = 0;
        while (i < s->n && (s->at[i].place != x.place || s->at[i].frame != x.frame)) i++;
        return i < s->n;
    }
    uint32_t k = hash(&x, 1);
    for (int32_t i; (i = s->slot[k & (uint32_t)(s->slots - 1)]) != 0; k++)
        if (s->at[i - 1].place == x.place && s->at[i - 1].frame == x.frame) return true;
    return false;
}

/* Whether x is new and now there. */
static bool add(dra_matcher *m, set *s, item x)
{
    if (m->failed || has(s, x) || !grow(m, &s->at, s->n, &s->room, sizeof *s->at)) return false;
    s->at[s->n++] = x;
    if (s->n == FEW || (s->n > FEW && 2 * s->n == s->slots)) return index_set(m, s);
    if (s->n > FEW) put_slot(s, s->n - 1);
    return true;
}

static void free_set(set *s)
{
    free(s->at);
    free(s->slot);
}

/* A place that is reached; nothing, if it was before. */
static void push(dra_matcher *m, int32_t place, int32_t in)
{
    if (place == ACCEPT)
        m->accept = true;
    else
        add(m, &m->work, (item){place, in});
}

static void add_return(dra_matcher *m, frame *f, item to)
{
    if (add(m, &f->to, to) && f->ended) push(m, to.place, to.frame);
}

/* The frame of a rule at this step; -1: failed. */
static int32_t frame_of(dra_matcher *m, int32_t rule)
{
    if (m->called_at[rule] == m->step) return m->called[rule];
    const int32_t before = m->fresh_room;
    if (!grow(m, &m->fresh, m->n_fresh, &m->fresh_room, sizeof *m->fresh)) return -1;
    if (m->fresh_room > before)
        memset(m->fresh + before, 0, (size_t)(m->fresh_room - before) * sizeof *m->fresh);
    frame *f = &m->fresh[m->n_fresh];
    f->to.n = 0;
    f->ended = false;
    f->number = -1;
    m->called_at[rule] = m->step;
    m->called[rule] = m->n_fresh;
    push(m, m->g->start[rule], ~m->n_fresh);
    return m->n_fresh++;
}

static void enter_rule(dra_matcher *m, int32_t rule, int32_t next, int32_t in)
{
    const int32_t i = frame_of(m, rule);
    if (i < 0) return;
    if (m->g->place[next].kind != DRA_AT_END || in < 0) {
        add_return(m, &m->fresh[i], (item){next, in});
        return;
    }
    const span old = m->frames.at[in]; /* complete, as it is of a step before */
    for (int32_t k = 0; k < old.n && !m->failed; k++)
        add_return(m, &m->fresh[i], m->content[old.first + k]);
}

static void end_rule(dra_matcher *m, int32_t in)
{
    if (in >= 0) {
        const span s = m->frames.at[in];
        for (int32_t k = 0; k < s.n; k++)
            push(m, m->content[s.first + k].place, m->content[s.first + k].frame);
        return;
    }
    frame *f = &m->fresh[~in];
    f->ended = true;
    for (int32_t k = 0; k < f->to.n; k++) push(m, f->to.at[k].place, f->to.at[k].frame);
}

/* The number of a frame of this step, after those it returns to. A rule that calls itself before
 * any byte is refused by the compiler, so there is no circle, and no more depth than rules. */
static int32_t settle(dra_matcher *m, int32_t i)
{
    frame *f = &m->fresh[i];
    if (f->number >= 0 || m->failed) return f->number;
    for (int32_t k = 0; k < f->to.n && !m->failed; k++)
        if (f->to.at[k].frame < 0) f->to.at[k].frame = settle(m, ~f->to.at[k].frame);
    f->to.n = arrange(f->to.at, f->to.n);
    if (!m->failed) f->number = number_of(m, &m->frames, f->to.at, f->to.n, false);
    return f->number;
}

static void begin_step(dra_matcher *m)
{
    m->work.n = m->n_fresh = 0;
    m->accept = false;
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
        const item               at = m->work.at[i];
        const dra_grammar_place *p = &m->g->place[at.place];
        switch ((dra_grammar_place_kind)p->kind) {
        case DRA_AT_END: end_rule(m, at.frame); break;
        case DRA_AT_BYTE: break;
        case DRA_AT_CALL: enter_rule(m, p->other, p->next, at.frame); break;
        case DRA_AT_FORK:
            push(m, p->next, at.frame);
            push(m, p->other, at.frame);
            break;
        }
    }
    for (int32_t i = 0; i < m->work.n && !m->failed; i++) {
        item at = m->work.at[i];
        if (m->g->place[at.place].kind != DRA_AT_BYTE) continue;
        if (at.frame < 0) at.frame = settle(m, ~at.frame);
        m->work.at[n++] = at;
    }
    if (m->failed) return DRA_MATCH_FAILED;
    return add_state(m, m->work.at, arrange(m->work.at, n), m->accept);
}

int32_t dra_matcher_step(dra_matcher *m, int32_t state, unsigned char byte)
{
    const size_t at = 256 * (size_t)state + byte;
    if (m->next[at] != UNKNOWN) return m->next[at];
    if (m->failed) return DRA_MATCH_FAILED;
    const span s = m->states.at[state];
    begin_step(m);
    for (int32_t i = 0; i < s.n; i++) {
        const item               from = m->content[s.first + i];
        const dra_grammar_place *p = &m->g->place[from.place];
        if (dra_byte_in(&m->g->set[p->other], byte)) push(m, p->next, from.frame);
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
static void forget(dra_matcher *m)
{
    const item whole = {ACCEPT, 0};
    m->contents = m->frames.n = m->states.n = 0;
    if (m->frames.slot) memset(m->frames.slot, 0, (size_t)m->frames.slots * sizeof(int32_t));
    if (m->states.slot) memset(m->states.slot, 0, (size_t)m->states.slots * sizeof(int32_t));
    number_of(m, &m->frames, &whole, 1, false);
}

void dra_matcher_trim(dra_matcher *m)
{
    if (m->states.n > STATES || m->contents > CONTENTS) forget(m);
}

dra_status dra_matcher_create(const dra_grammar *g, dra_matcher **out, dra_error *err)
{
    dra_matcher *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m) {
        m->g = g;
        m->called = calloc((size_t)g->rules, sizeof *m->called);
        m->called_at = calloc((size_t)g->rules, sizeof *m->called_at);
        if (m->called && m->called_at) forget(m);
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
    for (int32_t i = 0; i < m->fresh_room; i++) free_set(&m->fresh[i].to);
    free(m->fresh);
    free(m->content);
    free(m->frames.at);
    free(m->frames.slot);
    free(m->states.at);
    free(m->states.slot);
    free(m->next);
    free(m->called);
    free(m->called_at);
    free_set(&m->work);
    free(m);
}

/* ---- states by value ------------------------------------------------------------------------- */

/* fingerprint (2), accept, frames, items; then for each frame, after those it returns to, how many
 * returns, and these; then the items. Frames count from 0, which is the whole text and is not
 * written. */
enum { HEAD = 5 };

bool dra_grammar_state_of(const dra_grammar_state *s, const dra_grammar *g)
{
    return !s || (s->data[0] == (int32_t)(uint32_t)g->fingerprint &&
                  s->data[1] == (int32_t)(uint32_t)(g->fingerprint >> 32));
}

dra_status dra_grammar_state_copy(const dra_grammar_state *s, dra_grammar_state **out,
                                  dra_error *err)
{
    *out = NULL;
    if (!s) return DRA_OK;
    const size_t size = sizeof *s + s->n * sizeof *s->data;
    *out = malloc(size);
    if (!*out) return dra_fail(err, DRA_ERR_MEMORY, "grammar: out of memory");
    memcpy(*out, s, size);
    return DRA_OK;
}

static int32_t enter_start(dra_matcher *m)
{
    begin_step(m);
    push(m, m->g->start[m->g->root], 0);
    return end_step(m);
}

int32_t dra_matcher_enter(dra_matcher *m, const dra_grammar_state *s)
{
    if (m->failed) return DRA_MATCH_FAILED;
    if (!s) return enter_start(m);
    const int32_t  frames = s->data[3], items = s->data[4];
    const int32_t *at = s->data + HEAD;
    int32_t       *number = calloc((size_t)frames + 1, sizeof *number);
    item          *list = malloc(s->n * sizeof *list);
    if (!number || !list) m->failed = DRA_ERR_MEMORY;
    for (int32_t f = 0; f <= frames && !m->failed; f++) { /* the last turn is for the items */
        const int32_t n = f < frames ? *at++ : items;
        for (int32_t i = 0; i < n; i++, at += 2)
            list[i] = (item){at[0], at[0] == ACCEPT ? 0 : number[at[1]]};
        if (f < frames) number[f + 1] = number_of(m, &m->frames, list, arrange(list, n), false);
        if (f < frames && number[f + 1] < 0) break;
    }
    const int32_t state = m->failed ? DRA_MATCH_FAILED
                                    : add_state(m, list, arrange(list, items), s->data[2]);
    free(number);
    free(list);
    return state;
}

/* Marks the frames that a state returns to. A frame has a larger number than those it returns to.
 */
static size_t mark_frames(const dra_matcher *m, const span *s, int32_t *local)
{
    size_t size = HEAD + 2 * (size_t)s->n;
    for (int32_t i = 0; i < s->n; i++) local[m->content[s->first + i].frame] = 1;
    for (int32_t f = m->frames.n - 1; f > 0; f--) {
        const span *to = &m->frames.at[f];
        if (!local[f]) continue;
        size += 1 + 2 * (size_t)to->n;
        for (int32_t i = 0; i < to->n; i++)
            if (m->content[to->first + i].place != ACCEPT)
                local[m->content[to->first + i].frame] = 1;
    }
    return size;
}

static int32_t *write_items(const dra_matcher *m, const span *s, const int32_t *local, int32_t *to)
{
    for (int32_t i = 0; i < s->n; i++) {
        const item at = m->content[s->first + i];
        *to++ = at.place;
        *to++ = at.place == ACCEPT ? 0 : local[at.frame];
    }
    return to;
}

dra_status dra_matcher_leave(const dra_matcher *m, int32_t state, dra_grammar_state **out,
                             dra_error *err)
{
    const span         s = m->states.at[state];
    int32_t           *local = calloc((size_t)m->frames.n, sizeof *local), frames = 0;
    const size_t       n = local ? mark_frames(m, &s, local) : 0;
    dra_grammar_state *made = local ? malloc(sizeof *made + n * sizeof *made->data) : NULL;
    *out = made;
    if (!made) {
        free(local);
        return dra_fail(err, DRA_ERR_MEMORY, "grammar: out of memory");
    }
    made->n = n;
    int32_t *to = made->data + HEAD;
    local[0] = 0;
    for (int32_t f = 1; f < m->frames.n; f++) {
        if (!local[f]) continue;
        local[f] = ++frames;
        *to++ = m->frames.at[f].n;
        to = write_items(m, &m->frames.at[f], local, to);
    }
    write_items(m, &s, local, to);
    const int32_t head[HEAD] = {(int32_t)(uint32_t)m->g->fingerprint,
                                (int32_t)(uint32_t)(m->g->fingerprint >> 32), s.accept, frames,
                                s.n};
    memcpy(made->data, head, sizeof head);
    free(local);
    return DRA_OK;
}
