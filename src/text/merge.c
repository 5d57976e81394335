/* Byte-pair merging [Sennrich, Haddow, Birch 2016]: of all neighbours the pair of the lowest rank,
 * of equal ones the leftmost, becomes one token, until no pair has a rank. Pairs wait in a heap, so
 * a piece of n bytes takes O(n log n); one whose tokens have changed since is passed over. */
#include "text/merge.h"

#include <stdlib.h>

bool dra_pairs_make(dra_pairs *p, size_t most, dra_arena *arena)
{
    size_t slots = 4;
    p->shift = 62;
    while (slots < 2 * most) slots *= 2, p->shift--;
    p->slot = dra_arena_alloc(arena, slots * sizeof *p->slot);
    for (size_t i = 0; p->slot && i < slots; i++) p->slot[i].id = -1;
    return p->slot != NULL;
}

/* A merge takes one candidate away and brings two at most, so there are never over 2 n. */
bool dra_merger_reserve(dra_merger *m, size_t symbols)
{
    if (symbols <= m->room) return true;
    size_t room = m->room ? m->room : 64;
    while (room < symbols) room *= 2;
    dra_merger_free(m);
    m->symbol = malloc(room * sizeof *m->symbol);
    m->heap = malloc(2 * room * sizeof *m->heap);
    if (m->symbol && m->heap) m->room = room;
    return m->room >= symbols;
}

void dra_merger_free(dra_merger *m)
{
    free(m->symbol);
    free(m->heap);
    *m = (dra_merger){0};
}

static void push_candidate(dra_merger *m, dra_candidate c)
{
    size_t i = m->waiting++;
    for (; i && m->heap[(i - 1) / 2].order > c.order; i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = c;
}

static dra_candidate pop_candidate(dra_merger *m)
{
    const dra_candidate least = m->heap[0], last = m->heap[--m->waiting];
    const size_t        n = m->waiting;
    size_t              i = 0;
    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && m->heap[child + 1].order < m->heap[child].order) child++;
        if (m->heap[child].order >= last.order) break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return least;
}

/* Lets the pair that starts at a place wait for its turn, if it has a rank. */
static void offer_pair(dra_merger *m, const dra_pairs *pairs, uint32_t place)
{
    const dra_symbol *s = &m->symbol[place];
    if (s->next == (uint32_t)DRA_NOWHERE) return;
    const dra_pair *p = dra_pairs_find(pairs, s->id, m->symbol[s->next].id);
    if (p->id >= 0)
        push_candidate(m, (dra_candidate){(uint64_t)(uint32_t)p->rank << 32 | place, p->id});
}

void dra_merge(dra_merger *m, const dra_pairs *pairs, size_t n)
{
    m->waiting = 0;
    for (size_t i = 0; i < n; i++) {
        m->symbol[i].previous = (uint32_t)i - 1;
        m->symbol[i].next = i + 1 < n ? (uint32_t)i + 1 : (uint32_t)DRA_NOWHERE;
    }
    for (size_t i = 0; i < n; i++) offer_pair(m, pairs, (uint32_t)i);
    while (m->waiting) {
        const dra_candidate c = pop_candidate(m);
        const uint32_t      place = (uint32_t)c.order;
        dra_symbol         *s = &m->symbol[place];
        if (s->id < 0 || s->next == (uint32_t)DRA_NOWHERE) continue;
        dra_symbol *right = &m->symbol[s->next];
        if (dra_pairs_find(pairs, s->id, right->id)->id != c.id) continue;
        s->id = c.id;
        s->next = right->next;
        right->id = -1;
        if (s->next != (uint32_t)DRA_NOWHERE) m->symbol[s->next].previous = place;
        if (s->previous != (uint32_t)DRA_NOWHERE) offer_pair(m, pairs, s->previous);
        offer_pair(m, pairs, place);
    }
}
