/* What a matcher keeps: contents with numbers, of frames and states, and the sets of one step. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "generate/grammar/match.h"

enum {
    CONTENTS_MOST = 1 << 25, /* more are refused */
    FEW = 16                 /* items that are looked through; a power of two */
};

void dra_items_no_memory(dra_matcher *m) { m->failed = DRA_ERR_MEMORY; }

bool dra_items_grow(dra_matcher *m, void *data, int32_t n, int32_t *room, size_t size)
{
    if (n < *room) return true;
    const int32_t more = *room ? 2 * *room : 64;
    void         *old;
    memcpy(&old, data, sizeof old); /* data points to a pointer of any type */
    void *at = n < CONTENTS_MOST ? realloc(old, (size_t)more * size) : NULL;
    if (!at) {
        m->failed = n < CONTENTS_MOST ? DRA_ERR_MEMORY : DRA_ERR_VALUE;
        m->what = "a text", m->of = "places to be kept", m->most = CONTENTS_MOST;
        return false;
    }
    memcpy(data, &at, sizeof at);
    *room = more;
    return true;
}

/* ---- what has a number ----------------------------------------------------------------------- */

static uint32_t hash_list(const dra_grammar_item *at, int32_t n)
{
    return (uint32_t)dra_hash_of(0, at, (size_t)n * sizeof *at);
}

static bool rehash_items(dra_matcher *m, dra_item_table *t)
{
    const int32_t slots = t->slots ? 2 * t->slots : 64;
    int32_t      *slot = calloc((size_t)slots, sizeof *slot);
    if (!slot) {
        dra_items_no_memory(m);
        return false;
    }
    for (int32_t i = 0; i < t->n; i++) {
        uint32_t k = hash_list(m->content + t->at[i].first, t->at[i].n) + t->at[i].accept;
        while (slot[k & (uint32_t)(slots - 1)]) k++;
        slot[k & (uint32_t)(slots - 1)] = i + 1;
    }
    free(t->slot);
    t->slot = slot;
    t->slots = slots;
    return true;
}

int32_t dra_items_number(dra_matcher *m, dra_item_table *t, const dra_grammar_item *at, int32_t n,
                         bool accept)
{
    if (2 * t->n >= t->slots && !rehash_items(m, t)) return -1;
    uint32_t k = hash_list(at, n) + accept;
    for (int32_t i; (i = t->slot[k & (uint32_t)(t->slots - 1)]) != 0; k++) {
        const dra_item_span *s = &t->at[i - 1];
        if (s->n == n && s->accept == accept &&
            memcmp(m->content + s->first, at, (size_t)n * sizeof *at) == 0)
            return i - 1;
    }
    if (!dra_items_grow(m, &t->at, t->n, &t->room, sizeof *t->at)) return -1;
    const int32_t first = m->contents;
    for (int32_t i = 0; i < n; i++) {
        if (!dra_items_grow(m, &m->content, m->contents, &m->content_room, sizeof *m->content))
            return -1;
        m->content[m->contents++] = at[i];
    }
    t->at[t->n] = (dra_item_span){first, n, accept};
    t->slot[k & (uint32_t)(t->slots - 1)] = t->n + 1;
    return t->n++;
}

static int by_content(const void *a, const void *b)
{
    const dra_grammar_item *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return (x->frame > y->frame) - (x->frame < y->frame);
}

int32_t dra_items_arrange(dra_grammar_item *at, int32_t n)
{
    int32_t kept = 0;
    if (n > 1) qsort(at, (size_t)n, sizeof *at, by_content);
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || by_content(&at[i], &at[kept - 1]) != 0) at[kept++] = at[i];
    return kept;
}

bool dra_items_arranged_has(const dra_grammar_item *at, int32_t n, dra_grammar_item x)
{
    return n > 0 && bsearch(&x, at, (size_t)n, sizeof *at, by_content);
}

/* ---- sets of one step ------------------------------------------------------------------------ */

static uint32_t hash_item(dra_grammar_item x)
{
    return (uint32_t)dra_hash_number((uint64_t)(uint32_t)x.place << 32 | (uint32_t)x.frame);
}

static bool same_item(dra_grammar_item a, dra_grammar_item b)
{
    return a.place == b.place && a.frame == b.frame;
}

static void put_slot(dra_item_set *s, int32_t i)
{
    uint32_t k = hash_item(s->at[i]);
    while (s->slot[k & (uint32_t)(s->slots - 1)]) k++;
    s->slot[k & (uint32_t)(s->slots - 1)] = i + 1;
}

/* Finds all items by their content, a power of two of them, with room for twice as many. */
static bool index_set(dra_matcher *m, dra_item_set *s)
{
    const int32_t slots = 4 * s->n;
    int32_t      *slot = realloc(s->slot, (size_t)slots * sizeof *slot);
    if (!slot) {
        dra_items_no_memory(m);
        return false;
    }
    memset(slot, 0, (size_t)slots * sizeof *slot);
    s->slot = slot;
    s->slots = slots;
    for (int32_t i = 0; i < s->n; i++) put_slot(s, i);
    return true;
}

int32_t dra_items_find(const dra_item_set *s, dra_grammar_item x)
{
    if (s->n < FEW) {
        int32_t i = 0;
        while (i < s->n && !same_item(s->at[i], x)) i++;
        return i < s->n ? i : -1;
    }
    uint32_t k = hash_item(x);
    for (int32_t i; (i = s->slot[k & (uint32_t)(s->slots - 1)]) != 0; k++)
        if (same_item(s->at[i - 1], x)) return i - 1;
    return -1;
}

bool dra_items_add(dra_matcher *m, dra_item_set *s, dra_grammar_item x)
{
    if (m->failed || dra_items_find(s, x) >= 0) return false;
    if (!dra_items_grow(m, &s->at, s->n, &s->room, sizeof *s->at)) return false;
    s->at[s->n++] = x;
    if (s->n == FEW || (s->n > FEW && 2 * s->n == s->slots)) return index_set(m, s);
    if (s->n > FEW) put_slot(s, s->n - 1);
    return true;
}

void dra_items_free(dra_item_set *s)
{
    free(s->at);
    free(s->slot);
}
