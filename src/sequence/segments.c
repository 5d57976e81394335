/* Segments of Transformer-XL: where calls are cut, and which rows of tables tokens have. */
#include "sequence/segments.h"

#include <string.h>

#include "base/shape.h"

dra_segment_event dra_segment_next_event(int64_t segment, int64_t tokens, int64_t T,
                                         const int32_t *mark)
{
    dra_segment_event event = DRA_SEGMENT_CONTINUES;
    for (int64_t t = 0; t < T; t++) {
        const int32_t what = mark ? mark[t] : 0;
        if (what & DRA_MARK_RESET) tokens = 0, event = DRA_SEGMENT_CLEARS;
        if (what & DRA_MARK_PAD) continue;
        return tokens == 0             ? DRA_SEGMENT_CLEARS
               : tokens % segment == 0 ? DRA_SEGMENT_SHIFTS
                                       : event;
    }
    return event;
}

int dra_segment_shift(int64_t segment, int64_t memory, int64_t tokens)
{
    int max_event = DRA_SEGMENT_SHIFTS;
    for (int64_t seen = segment; seen < tokens && seen < memory; seen *= 2) max_event++;
    return max_event;
}

/* The number of tokens of a row before the first border after `first`, at most n. */
static int64_t cut_row(int64_t segment, int64_t n, const int32_t *mark, int64_t tokens)
{
    bool seen = false;
    for (int64_t t = 0; t < n; t++) {
        const int32_t what = mark ? mark[t] : 0;
        if (what & DRA_MARK_RESET && seen) return t;
        if (what & DRA_MARK_RESET) tokens = 0;
        if (what & DRA_MARK_PAD) continue;
        if (seen && tokens % segment == 0) return t;
        seen = true;
        tokens++;
    }
    return n;
}

static int64_t count_on(int64_t tokens, int64_t n, const int32_t *mark)
{
    for (int64_t t = 0; t < n; t++) {
        const int32_t what = mark ? mark[t] : 0;
        if (what & DRA_MARK_RESET) tokens = 0;
        tokens += !(what & DRA_MARK_PAD);
    }
    return tokens;
}

int64_t dra_segment_cut(int64_t segment, int64_t B, int64_t T, const int32_t *mark, int64_t first,
                        int64_t end, int64_t *tokens)
{
    int64_t n = end - first;
    for (int64_t b = 0; b < B; b++)
        n = cut_row(segment, n, mark ? mark + b * T + first : NULL, tokens[b]);
    for (int64_t b = 0; b < B; b++)
        tokens[b] = count_on(tokens[b], n, mark ? mark + b * T + first : NULL);
    return n;
}

void dra_segments_fill(dra_extents *e, const dra_states *s, int64_t b, const int32_t *mark)
{
    const int64_t L = e->segment, M = s ? e->kept : 0; /* fresh states have no memory */
    int64_t       base = 0;
    for (int64_t t = 0; t < e->T; t++) {
        const int64_t i = b * e->T + t, pos = e->pos[i], in = pos % L, before = pos - in;
        const bool    pad = e->mark[i] & DRA_MARK_PAD;
        e->segments.at[i] = pad ? -1 : (int32_t)(M + in);
        e->segments.lo[i] = pad ? 0 : (int32_t)(M - dra_imin(M, before));
        e->segments.hi[i] = pad ? 0 : (int32_t)(M + in + 1);
        if (!pad) base = before - M;
    }
    e->segments.base[b] = (int32_t)base;
    e->segments.event[b] = s ? (int32_t)dra_segment_next_event(L, s->tokens[b], e->T, mark)
                             : DRA_SEGMENT_CONTINUES;
}

void dra_tokens_cut(void *to, const void *from, int64_t B, int64_t T, int64_t first, int64_t n,
                    size_t each)
{
    for (int64_t b = 0; b < B; b++)
        memcpy((unsigned char *)to + (size_t)(b * n) * each,
               (const unsigned char *)from + (size_t)(b * T + first) * each, (size_t)n * each);
}
