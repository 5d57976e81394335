/* A table of words that doubles when it is half full. */
#include "text/words.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { FIRST_SLOTS = 1 << 12, BLOCK = 1 << 16 };

/* The slot of a word, or the free one it would have. */
static dra_counted *find_word(const dra_words *w, const char *text, size_t bytes, uint64_t hash)
{
    size_t i = (size_t)(hash >> 32) & (w->slots - 1);
    for (; w->slot[i].text; i = (i + 1) & (w->slots - 1)) {
        const dra_counted *c = &w->slot[i];
        if (c->hash == hash && c->bytes == bytes && memcmp(c->text, text, bytes) == 0) break;
    }
    return &w->slot[i];
}

static bool grow_words(dra_words *w)
{
    dra_words bigger = {.slots = w->slots ? 2 * w->slots : FIRST_SLOTS};
    bigger.slot = calloc(bigger.slots, sizeof *bigger.slot);
    if (!bigger.slot) return false;
    for (size_t i = 0; i < w->slots; i++) {
        const dra_counted *c = &w->slot[i];
        if (c->text) *find_word(&bigger, c->text, c->bytes, c->hash) = *c;
    }
    free(w->slot);
    w->slot = bigger.slot;
    w->slots = bigger.slots;
    return true;
}

static const char *keep_word(dra_words *w, const char *text, size_t bytes)
{
    if (bytes >= BLOCK / 8) return dra_arena_copy(&w->arena, text, bytes);
    if (bytes > w->left) {
        w->room = dra_arena_alloc(&w->arena, BLOCK);
        w->left = w->room ? BLOCK : 0;
        if (!w->room) return NULL;
    }
    char *kept = memcpy(w->room, text, bytes);
    w->room += bytes;
    w->left -= bytes;
    return kept;
}

bool dra_words_add(dra_words *w, const char *text, size_t bytes, int64_t count)
{
    if (2 * w->n >= w->slots && !grow_words(w)) return false;
    const uint64_t hash = dra_hash_of(0, text, bytes);
    dra_counted   *c = find_word(w, text, bytes, hash);
    if (!c->text) {
        *c = (dra_counted){keep_word(w, text, bytes), bytes, hash, 0};
        if (!c->text) return false;
        w->n++;
    }
    c->count += count;
    return true;
}

bool dra_words_join(dra_words *w, const dra_words *more)
{
    bool fits = true;
    for (size_t i = 0; i < more->slots && fits; i++) {
        const dra_counted *c = &more->slot[i];
        fits = !c->text || dra_words_add(w, c->text, c->bytes, c->count);
    }
    return fits;
}

void dra_words_free(dra_words *w)
{
    free(w->slot);
    dra_arena_free(&w->arena);
    *w = (dra_words){0};
}
