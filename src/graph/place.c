/* Placement by first fit. Comparing with every storage placed before would take quadratic time;
 * here, storages that are alive together are in few covers, most of them without gaps. */
#include "graph/place.h"

#include <stdlib.h>
#include <string.h>

bool dra_placing_open(dra_placing *x, size_t n)
{
    *x = (dra_placing){.leaves = 1};
    while (x->leaves < n) x->leaves *= 2;
    x->whole = calloc(2 * x->leaves, sizeof *x->whole);
    x->within = calloc(2 * x->leaves, sizeof *x->within);
    return x->whole && x->within;
}

void dra_placing_close(dra_placing *x)
{
    for (size_t i = 0; x->whole && i < 2 * x->leaves; i++) free(x->whole[i].at);
    for (size_t i = 0; x->within && i < 2 * x->leaves; i++) free(x->within[i].at);
    free(x->whole);
    free(x->within);
}

/* ---- covers ---------------------------------------------------------------------------------- */

/* The first extent that ends at `offset` or later, with `beyond` later than it. */
static size_t first_of(const dra_cover *c, size_t offset, bool beyond)
{
    size_t low = 0, high = c->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (c->at[middle].end < offset || (beyond && c->at[middle].end == offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool reserve_extent(dra_cover *c)
{
    if (c->n < c->room) return true;
    const size_t room = c->room ? 2 * c->room : 4;
    dra_extent  *at = realloc(c->at, room * sizeof *at);
    if (!at) return false;
    c->at = at;
    c->room = room;
    return true;
}

/* Joins what it touches. */
static bool cover_extent(dra_cover *c, dra_extent e)
{
    const size_t i = first_of(c, e.start, false);
    size_t       end = i;
    for (; end < c->n && c->at[end].start <= e.end; end++) {
        if (c->at[end].start < e.start) e.start = c->at[end].start;
        if (c->at[end].end > e.end) e.end = c->at[end].end;
    }
    if (end == i && !reserve_extent(c)) return false;
    memmove(c->at + i + 1, c->at + end, (c->n - end) * sizeof *c->at);
    c->n += 1 - (end - i);
    c->at[i] = e;
    return true;
}

/* Moves *offset behind what is in the way of `bytes` there; returns whether anything was. */
static bool pass_covered(const dra_cover *c, size_t bytes, size_t *offset)
{
    const size_t before = *offset;
    for (size_t i = first_of(c, *offset, true); i < c->n; i++) {
        if (c->at[i].start >= *offset + bytes) break;
        *offset = c->at[i].end;
    }
    return *offset != before;
}

/* ---- the tree -------------------------------------------------------------------------------- */

enum { MOST = 64 * 4 }; /* covers that a lifetime meets: two at each level and those above them */

static void meet_covers(dra_placing *x, size_t node, const dra_cover *met[MOST], size_t *n)
{
    if (x->within[node].n) met[(*n)++] = &x->within[node];
}

/* Nodes are numbered from 1; the children of i are 2 i and 2 i + 1. */
static size_t find_covers(dra_placing *x, size_t first, size_t last, const dra_cover *met[MOST])
{
    size_t n = 0, a = first + x->leaves, b = last + x->leaves + 1;
    for (; a < b; a /= 2, b /= 2) {
        if (a & 1) meet_covers(x, a++, met, &n);
        if (b & 1) meet_covers(x, --b, met, &n);
    }
    /* Also looks at the nodes above the interval: those above the first and the last moment are
     * enough, since a node in between has the same nodes above it, or lies inside the lifetime. */
    for (a = (first + x->leaves) / 2; a; a /= 2)
        if (x->whole[a].n) met[n++] = &x->whole[a];
    for (b = (last + x->leaves) / 2; b; b /= 2)
        if (x->whole[b].n) met[n++] = &x->whole[b];
    return n;
}

static bool note_extent(dra_placing *x, size_t node, dra_extent e)
{
    return cover_extent(&x->whole[node], e) && cover_extent(&x->within[node], e);
}

static bool note_all(dra_placing *x, size_t first, size_t last, dra_extent e)
{
    bool   ok = true;
    size_t a = first + x->leaves, b = last + x->leaves + 1;
    for (; a < b && ok; a /= 2, b /= 2) {
        if (a & 1) ok = note_extent(x, a++, e);
        if (ok && b & 1) ok = note_extent(x, --b, e);
    }
    for (a = (first + x->leaves) / 2, b = (last + x->leaves) / 2; a && ok; a /= 2, b /= 2) {
        ok = cover_extent(&x->within[a], e);
        if (ok && b != a) ok = cover_extent(&x->within[b], e);
    }
    return ok;
}

bool dra_placing_put(dra_placing *x, size_t first, size_t last, size_t bytes, size_t *offset)
{
    const dra_cover *met[MOST];
    *offset = 0;
    if (!bytes) return true; /* it meets nothing anywhere */
    const size_t n = find_covers(x, first, last, met);
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n; i++) moved = pass_covered(met[i], bytes, offset) || moved;
    }
    return note_all(x, first, last, (dra_extent){*offset, *offset + bytes});
}
