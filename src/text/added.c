/* Added tokens are found by a walk down a tree of bytes from every byte that starts one. */
#include "text/added.h"

static int32_t add_node(dra_matcher *m)
{
    m->ends[m->nodes] = -1;
    return m->nodes++;
}

static void add_token(dra_matcher *m, const dra_added *a, int32_t index)
{
    int32_t node = 0;
    m->first[(unsigned char)a->text[0]] = true;
    for (size_t i = 0; i < a->bytes; i++) {
        const int32_t byte = (unsigned char)a->text[i];
        dra_pair     *edge = dra_pairs_find(&m->edge, node, byte);
        if (edge->id < 0) *edge = (dra_pair){node, byte, 0, add_node(m)};
        node = edge->id;
    }
    m->ends[node] = index;
}

bool dra_matcher_make(dra_matcher *m, const dra_added *added, size_t n, bool normalized,
                      dra_arena *arena)
{
    size_t edges = 0;
    for (size_t i = 0; i < n; i++) edges += added[i].normalized == normalized ? added[i].bytes : 0;
    m->ends = dra_arena_alloc(arena, (edges + 1) * sizeof *m->ends);
    if (!m->ends || !dra_pairs_make(&m->edge, edges, arena)) return false;
    add_node(m);
    for (size_t i = 0; i < n; i++)
        if (added[i].normalized == normalized) add_token(m, &added[i], (int32_t)i);
    return true;
}

bool dra_matcher_find(const dra_matcher *m, const dra_added *added, const char *text, size_t bytes,
                      size_t from, dra_match *out)
{
    if (m->nodes < 2) return false;
    for (; from < bytes; from++) {
        if (!m->first[(unsigned char)text[from]]) continue;
        int32_t node = 0, found = -1;
        for (size_t i = from; i < bytes; i++) {
            node = dra_pairs_find(&m->edge, node, (unsigned char)text[i])->id;
            if (node < 0) break;
            if (m->ends[node] >= 0) found = m->ends[node];
        }
        if (found < 0) continue;
        *out = (dra_match){from, from + added[found].bytes, &added[found]};
        return true;
    }
    return false;
}
