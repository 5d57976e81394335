/* Arena: a list of blocks, each twice as large as the one before up to a limit. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

struct dra_arena_block {
    struct dra_arena_block *before;
    size_t                  size, used;
    alignas(max_align_t) unsigned char data[];
};

static struct dra_arena_block *grow_arena(dra_arena *a, size_t size)
{
    size_t want = a->last ? a->last->size * 2 : FIRST_BLOCK;
    if (want > LARGEST_BLOCK) want = LARGEST_BLOCK;
    if (want < size) want = size;
    struct dra_arena_block *b = calloc(1, sizeof *b + want);
    if (!b) return NULL;
    b->before = a->last;
    b->size = want;
    a->last = b;
    return b;
}

void *dra_arena_alloc(dra_arena *a, size_t size)
{
    const size_t align = alignof(max_align_t);
    if (size > SIZE_MAX / 4) return NULL;
    size = size ? (size + align - 1) / align * align : align;
    struct dra_arena_block *b = a->last;
    if (!b || b->size - b->used < size) b = grow_arena(a, size);
    if (!b) return NULL;
    void *p = b->data + b->used;
    b->used += size;
    return p;
}

void *dra_arena_copy(dra_arena *a, const void *data, size_t size)
{
    void *p = dra_arena_alloc(a, size);
    if (p && size) memcpy(p, data, size);
    return p;
}

char *dra_arena_text(dra_arena *a, const char *text)
{
    return dra_arena_copy(a, text, strlen(text) + 1);
}

void dra_arena_free(dra_arena *a)
{
    while (a->last) {
        struct dra_arena_block *before = a->last->before;
        free(a->last);
        a->last = before;
    }
}
