/* States of a matcher by value: they can be kept, copied and entered into any matcher of the same
 * grammar.
 *
 * fingerprint (2), accept, frames, items; then for each frame, after those it returns to, how many
 * returns, and these; then the items. Frames count from 0, which is the whole text and is not
 * written. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/grammar/match.h"

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

int32_t dra_matcher_enter(dra_matcher *m, const dra_grammar_state *s)
{
    if (m->failed) return DRA_MATCH_FAILED;
    if (!s) return dra_matcher_start(m);
    const int32_t     frames = s->data[3], items = s->data[4];
    const int32_t    *at = s->data + HEAD;
    int32_t          *number = calloc((size_t)frames + 1, sizeof *number);
    dra_grammar_item *list = malloc(s->n * sizeof *list);
    if (!number || !list) dra_items_no_memory(m);
    for (int32_t f = 0; f <= frames && !m->failed; f++) { /* the last turn is for the items */
        const int32_t n = f < frames ? *at++ : items;
        for (int32_t i = 0; i < n; i++, at += 2)
            list[i] = (dra_grammar_item){at[0], at[0] == DRA_GRAMMAR_ACCEPT ? 0 : number[at[1]]};
        if (f < frames)
            number[f + 1] = dra_items_number(m, &m->frames, list, dra_items_arrange(list, n),
                                             false);
        if (f < frames && number[f + 1] < 0) break;
    }
    const int32_t state = m->failed ? DRA_MATCH_FAILED
                                    : dra_matcher_add_state(m, list, items, s->data[2]);
    free(number);
    free(list);
    return state;
}

/* Marks the frames that a state returns to. A frame has a larger number than those it returns to.
 */
static size_t mark_frames(const dra_matcher *m, const dra_item_span *s, int32_t *local)
{
    size_t size = HEAD + 2 * (size_t)s->n;
    for (int32_t i = 0; i < s->n; i++) local[m->content[s->first + i].frame] = 1;
    for (int32_t f = m->frames.n - 1; f > 0; f--) {
        const dra_item_span *to = &m->frames.at[f];
        if (!local[f]) continue;
        size += 1 + 2 * (size_t)to->n;
        for (int32_t i = 0; i < to->n; i++)
            if (m->content[to->first + i].place != DRA_GRAMMAR_ACCEPT)
                local[m->content[to->first + i].frame] = 1;
    }
    return size;
}

static int32_t *write_items(const dra_matcher *m, const dra_item_span *s, const int32_t *local,
                            int32_t *to)
{
    for (int32_t i = 0; i < s->n; i++) {
        const dra_grammar_item at = m->content[s->first + i];
        *to++ = at.place;
        *to++ = at.place == DRA_GRAMMAR_ACCEPT ? 0 : local[at.frame];
    }
    return to;
}

dra_status dra_matcher_leave(const dra_matcher *m, int32_t state, dra_grammar_state **out,
                             dra_error *err)
{
    const dra_item_span s = m->states.at[state];
    int32_t            *local = calloc((size_t)m->frames.n, sizeof *local), frames = 0;
    const size_t        n = local ? mark_frames(m, &s, local) : 0;
    dra_grammar_state  *made = local ? malloc(sizeof *made + n * sizeof *made->data) : NULL;
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
