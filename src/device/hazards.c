#include "device/hazards.h"

#include <stdlib.h>
#include <string.h>

enum { NEAR = 4096, WORDS = NEAR / 64 }; /* so many nodes back it is known who waits for whom */

typedef struct before { /* bit k: a node waits for the one k + 1 before it */
    uint64_t bits[WORDS];
} before;

typedef struct use { /* of memory */
    uintptr_t begin, end;
    bool      writes;
    size_t    node;
} use;

struct dra_hazards {
    before *node;
    size_t  n, room;
    use    *use; /* of the nodes so far, then those of the one that has begun */
    size_t  n_use, use_room, known;
    size_t *wait; /* ascending */
    size_t  n_wait, wait_room;
    bool    failed;
};

dra_hazards *dra_hazards_open(void) { return calloc(1, sizeof(dra_hazards)); }

void dra_hazards_close(dra_hazards *h)
{
    if (!h) return;
    free(h->node);
    free(h->use);
    free(h->wait);
    free(h);
}

/* Room for one more element; false: there is none. */
static bool make_room(dra_hazards *h, void *list, size_t n, size_t *room, size_t size)
{
    void **at = list;
    if (n < *room) return true;
    const size_t more = *room ? 2 * *room : 64;
    void        *grown = realloc(*at, more * size);
    if (!grown) h->failed = true;
    if (!grown) return false;
    *at = grown;
    *room = more;
    return true;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool waits_for(const dra_hazards *h, size_t node, size_t earlier)
{
    const size_t k = node - earlier - 1;
    return k < NEAR && (h->node[node].bits[k / 64] >> k % 64 & 1);
}

/* False: it did already. */
static bool wait_for(dra_hazards *h, size_t node)
{
    size_t at = h->n_wait;
    while (at > 0 && h->wait[at - 1] > node) at--;
    if (at > 0 && h->wait[at - 1] == node) return false;
    if (!make_room(h, &h->wait, h->n_wait, &h->wait_room, sizeof *h->wait)) return true;
    memmove(h->wait + at + 1, h->wait + at, (h->n_wait++ - at) * sizeof *h->wait);
    h->wait[at] = node;
    return true;
}

size_t dra_hazards_waits(dra_hazards *h, const size_t **waits)
{
    size_t kept = h->n_wait;
    for (size_t i = h->n_wait; i-- > 0;) {
        bool known = false;
        for (size_t k = kept; k < h->n_wait && !known; k++)
            known = waits_for(h, h->wait[k], h->wait[i]);
        if (!known) h->wait[--kept] = h->wait[i];
    }
    h->n_wait -= kept;
    if (kept) memmove(h->wait, h->wait + kept, h->n_wait * sizeof *h->wait);
    *waits = h->wait;
    return h->n_wait;
}

/* It waits for a node so far before it, and for all that this one waits for. */
static void note_before(before *b, const before *other, size_t distance)
{
    const size_t words = distance / 64, bits = distance % 64, k = distance - 1;
    if (k >= NEAR) return;
    for (size_t i = words; i < WORDS; i++) {
        b->bits[i] |= other->bits[i - words] << bits;
        if (bits && i > words) b->bits[i] |= other->bits[i - words - 1] >> (64 - bits);
    }
    b->bits[k / 64] |= (uint64_t)1 << k % 64;
}

/* ---- memory ---------------------------------------------------------------------------------- */

void dra_hazards_begin(dra_hazards *h)
{
    h->n_wait = 0;
    h->n_use = h->known;
}

bool dra_hazards_touch(dra_hazards *h, uintptr_t begin, uintptr_t end, bool writes)
{
    bool more = false;
    if (begin >= end) return false;
    for (size_t i = 0; i < h->known; i++) {
        const use *u = &h->use[i];
        if (u->begin < end && begin < u->end && (writes || u->writes))
            more = wait_for(h, u->node) || more;
    }
    if (make_room(h, &h->use, h->n_use, &h->use_room, sizeof *h->use))
        h->use[h->n_use++] = (use){begin, end, writes, 0};
    return more;
}

/* Whether the node that has begun overwrites all of it: whoever comes to it later waits for this
 * node, which waits for what used it before. */
static bool is_overwritten(const dra_hazards *h, const use *u)
{
    for (size_t i = h->known; i < h->n_use; i++) {
        const use *w = &h->use[i];
        if (w->writes && w->begin <= u->begin && u->end <= w->end) return true;
    }
    return false;
}

static void keep_uses(dra_hazards *h)
{
    size_t n = 0;
    for (size_t i = 0; i < h->known; i++)
        if (!is_overwritten(h, &h->use[i])) h->use[n++] = h->use[i];
    for (size_t i = h->known; i < h->n_use; i++) {
        h->use[n] = h->use[i];
        h->use[n++].node = h->n;
    }
    h->known = h->n_use = n;
}

bool dra_hazards_end(dra_hazards *h)
{
    if (h->failed || !make_room(h, &h->node, h->n, &h->room, sizeof *h->node)) return false;
    before *b = &h->node[h->n];
    memset(b, 0, sizeof *b);
    for (size_t i = 0; i < h->n_wait; i++) note_before(b, &h->node[h->wait[i]], h->n - h->wait[i]);
    keep_uses(h);
    h->n++;
    return true;
}
