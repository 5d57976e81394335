/* Byte-pair encoding, the learning of merges [Sennrich, Haddow, Birch 2016]: the pair of neighbours
 * that is seen most often in all words becomes one token, everywhere, from left to right; again,
 * until there are enough. Of pairs seen equally often the one with the smaller left id is first,
 * then the smaller right id, as in the trainer of Hugging Face's tokenizers.
 *
 * All words are stored in a row, a place for each byte and a border around each word. Every
 * pair knows the places where it stood when it was formed; a merge walks those of its pair, so that
 * all merges together take time linear in the bytes of the words, but for the queue of pairs.
 *
 * A pair is formed during one merge only, the one that makes the younger of its two tokens: the
 * bytes of a token are merged in one way wherever they stand. No merge crosses the ends of a token,
 * so inside of it all goes as if it stood alone, and no other pair makes the same bytes. From then
 * on a pair is seen less and less often. So a count in the queue is never too low, and one that is
 * too high is put right when it comes up. */
#include "text/learn.h"

#include <assert.h>
#include <stdlib.h>

enum { BORDER = -1, GONE = -2, FIRST_PAIRS = 1 << 16 };

typedef struct pair {
    int32_t  left, right;
    int64_t  count;
    size_t   start;     /* of its places */
    uint32_t n, filled; /* places; those that are written down */
} pair;

typedef struct formed {
    uint32_t pair, place;
} formed;

typedef struct waiting { /* for its turn */
    int64_t  count;
    uint64_t tie; /* left id, right id */
} waiting;

typedef struct trainer {
    const dra_learn_config *c;
    /* Places: */
    size_t    n;
    int32_t  *id;    /* of the token that starts here; GONE: inside of one; BORDER */
    uint32_t *first; /* where the token starts that ends here */
    uint32_t *word;
    int64_t  *count; /* of a word */
    uint32_t *bytes; /* of a token */
    /* Pairs: */
    dra_arena arena;
    dra_pairs number; /* of a pair, as its id */
    pair     *pair;
    size_t    pairs, pair_room;
    formed   *formed; /* since the last merge began */
    size_t    n_formed, formed_room;
    uint32_t *place; /* of all pairs */
    size_t    places, place_room;
    waiting  *queue; /* a heap, the first on top */
    size_t    n_waiting, waiting_room;
    bool      failed; /* no memory */
} trainer;

/* A list with room for n things: the same, or a larger copy; *failed: no memory, too small. */
static void *grow_list(void *list, size_t *room, size_t n, size_t size, bool *failed)
{
    if (n <= *room) return list;
    const size_t more = n > 2 * *room ? n : 2 * *room;
    void        *larger = realloc(list, more * size);
    if (!larger) {
        *failed = true;
        return list;
    }
    *room = more;
    return larger;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static bool is_before(waiting a, waiting b)
{
    return a.count != b.count ? a.count > b.count : a.tie < b.tie;
}

static void push_pair(trainer *l, waiting w)
{
    size_t i = l->n_waiting++;
    for (; i && is_before(w, l->queue[(i - 1) / 2]); i = (i - 1) / 2)
        l->queue[i] = l->queue[(i - 1) / 2];
    l->queue[i] = w;
}

/* Puts w in the place of the top. */
static void replace_top(trainer *l, waiting w)
{
    size_t i = 0;
    for (size_t child = 1; child < l->n_waiting; child = 2 * i + 1) {
        if (child + 1 < l->n_waiting && is_before(l->queue[child + 1], l->queue[child])) child++;
        if (!is_before(l->queue[child], w)) break;
        l->queue[i] = l->queue[child];
        i = child;
    }
    l->queue[i] = w;
}

static const pair *pair_of(const trainer *l, waiting w)
{
    return &l->pair[dra_pairs_find(&l->number, (int32_t)(w.tie >> 32), (int32_t)w.tie)->id];
}

/* Takes the pair that is seen most often; NULL: none is seen often enough. */
static const pair *pop_pair(trainer *l)
{
    while (l->n_waiting) {
        waiting     top = l->queue[0];
        const pair *p = pair_of(l, top);
        const bool  right = p->count == top.count;
        top.count = p->count;
        if (right || top.count < l->c->min_count) {
            l->n_waiting--;
            if (l->n_waiting) replace_top(l, l->queue[l->n_waiting]);
            if (right) return p;
        } else {
            replace_top(l, top);
        }
    }
    return NULL;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Old tables stay in the arena: twice the memory at most. */
static void grow_pairs(trainer *l)
{
    const size_t room = l->pair_room ? 2 * l->pair_room : FIRST_PAIRS;
    l->failed = l->failed || room > INT32_MAX || !dra_pairs_make(&l->number, room, &l->arena);
    if (!l->failed) l->pair = grow_list(l->pair, &l->pair_room, room, sizeof *l->pair, &l->failed);
    for (size_t i = 0; i < l->pairs && !l->failed; i++) {
        const pair *p = &l->pair[i];
        *dra_pairs_find(&l->number, p->left, p->right) = (dra_pair){p->left, p->right, 0,
                                                                    (int32_t)i};
    }
}

/* The pair starts at a place, in a word that was seen `count` times. */
static void gain_pair(trainer *l, int32_t left, int32_t right, uint32_t place, int64_t count)
{
    l->formed = grow_list(l->formed, &l->formed_room, l->n_formed + 1, sizeof *l->formed,
                          &l->failed);
    if (l->pairs == l->pair_room) grow_pairs(l);
    if (l->failed) return;
    dra_pair *slot = dra_pairs_find(&l->number, left, right);
    if (slot->id < 0) {
        *slot = (dra_pair){left, right, 0, (int32_t)l->pairs};
        l->pair[l->pairs++] = (pair){.left = left, .right = right};
    }
    pair *p = &l->pair[slot->id];
    assert(p->filled == 0);
    p->count += count;
    p->n++;
    l->formed[l->n_formed++] = (formed){(uint32_t)slot->id, place};
}

static void lose_pair(trainer *l, int32_t left, int32_t right, int64_t count)
{
    l->pair[dra_pairs_find(&l->number, left, right)->id].count -= count;
}

/* Writes down where the formed pairs stand, from left to right, and lets them wait. */
static void queue_formed(trainer *l)
{
    l->place = grow_list(l->place, &l->place_room, l->places + l->n_formed, sizeof *l->place,
                         &l->failed);
    l->queue = grow_list(l->queue, &l->waiting_room, l->n_waiting + l->n_formed, sizeof *l->queue,
                         &l->failed);
    if (l->failed) return;
    for (size_t i = 0; i < l->n_formed; i++) {
        pair *p = &l->pair[l->formed[i].pair];
        if (!p->filled) {
            p->start = l->places;
            l->places += p->n;
            const uint64_t tie = (uint64_t)(uint32_t)p->left << 32 | (uint32_t)p->right;
            if (p->count >= l->c->min_count) push_pair(l, (waiting){p->count, tie});
        }
        l->place[p->start + p->filled++] = l->formed[i].place;
    }
    l->n_formed = 0;
}

/* ---- merging --------------------------------------------------------------------------------- */

static void merge_at(trainer *l, uint32_t at, int32_t left, int32_t right, int32_t made)
{
    const uint32_t middle = at + l->bytes[left];
    if (l->id[at] != left || l->id[middle] != right) return; /* part of another one by now */
    const uint32_t after = middle + l->bytes[right];
    const int64_t  count = l->count[l->word[at]];
    if (l->id[at - 1] != BORDER) {
        const uint32_t before = l->first[at - 1];
        lose_pair(l, l->id[before], left, count);
        gain_pair(l, l->id[before], made, before, count);
    }
    l->id[at] = made;
    l->id[middle] = GONE;
    l->first[after - 1] = at;
    if (l->id[after] != BORDER) {
        lose_pair(l, right, l->id[after], count);
        gain_pair(l, made, l->id[after], at, count);
    }
}

static void learn_merges(trainer *l, dra_merge_rule *rule, size_t *n)
{
    const pair *best;
    while (!l->failed && *n < l->c->merges && (best = pop_pair(l))) {
        const pair    p = *best; /* the list may move */
        const int32_t made = l->c->start->size + (int32_t)*n;
        l->bytes[made] = l->bytes[p.left] + l->bytes[p.right];
        rule[(*n)++] = (dra_merge_rule){p.left, p.right, made};
        for (uint32_t i = 0; i < p.n && !l->failed; i++)
            merge_at(l, l->place[p.start + i], p.left, p.right, made);
        queue_formed(l);
        if (l->c->made) l->c->made(l->c->user, *n);
    }
}

/* ---- the beginning --------------------------------------------------------------------------- */

static void lay_out(trainer *l, const dra_words *words)
{
    uint32_t at = 0, word = 0;
    l->id[at++] = BORDER;
    for (size_t i = 0; i < words->slots; i++) {
        const dra_counted *w = &words->slot[i];
        if (!w->text) continue;
        for (size_t k = 0; k < w->bytes; k++, at++) {
            l->id[at] = l->c->start->byte_id[(unsigned char)w->text[k]];
            l->first[at] = at;
            l->word[at] = word;
            if (k) gain_pair(l, l->id[at - 1], l->id[at], at - 1, w->count);
        }
        l->count[word++] = w->count;
        l->id[at++] = BORDER;
    }
    for (int i = 0; i < 256; i++) l->bytes[l->c->start->byte_id[i]] = 1;
    queue_formed(l);
}

static size_t count_places(const dra_words *words)
{
    size_t n = 1;
    for (size_t i = 0; i < words->slots; i++)
        n += words->slot[i].text ? words->slot[i].bytes + 1 : 0;
    return n;
}

static bool make_places(trainer *l, const dra_words *words)
{
    const size_t ids = (size_t)l->c->start->size + l->c->merges;
    l->id = malloc(l->n * sizeof *l->id);
    l->first = malloc(l->n * sizeof *l->first);
    l->word = malloc(l->n * sizeof *l->word);
    l->count = malloc((words->n + 1) * sizeof *l->count);
    l->bytes = calloc(ids, sizeof *l->bytes);
    return l->id && l->first && l->word && l->count && l->bytes;
}

static void free_all(trainer *l)
{
    dra_arena_free(&l->arena);
    free(l->id);
    free(l->first);
    free(l->word);
    free(l->count);
    free(l->bytes);
    free(l->pair);
    free(l->formed);
    free(l->place);
    free(l->queue);
}

dra_status dra_learn(const dra_learn_config *c, const dra_words *words, dra_merge_rule *rule,
                     size_t *n, dra_error *err)
{
    trainer l = {.c = c, .n = count_places(words)};
    *n = 0;
    if (l.n > UINT32_MAX)
        return dra_fail(err, DRA_ERR_VALUE,
                        "tokenizer_train: different words of %zu bytes, expected less than 2^32",
                        l.n);
    l.failed = !make_places(&l, words);
    if (!l.failed) lay_out(&l, words);
    if (!l.failed) learn_merges(&l, rule, n);
    free_all(&l);
    if (!l.failed) return DRA_OK;
    return dra_fail(err, DRA_ERR_MEMORY, "tokenizer_train: out of memory for pairs of %zu words",
                    words->n);
}
