/* Open addressing; at most half of the places are used. */
#include "base/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { FIRST = 32 }; /* places; always a power of two */

/* The place of a name: where it is, or the free place where it would go. */
static dra_name *place_of(dra_name *at, size_t room, const char *text, uint64_t hash)
{
    size_t i = (size_t)hash & (room - 1);
    while (at[i].text && (at[i].hash != hash || strcmp(at[i].text, text) != 0))
        i = (i + 1) & (room - 1);
    return &at[i];
}

static bool grow_names(dra_names *t)
{
    const size_t room = t->room ? 2 * t->room : FIRST;
    dra_name    *at = calloc(room, sizeof *at);
    if (!at) return false;
    for (size_t i = 0; i < t->room; i++)
        if (t->at[i].text) *place_of(at, room, t->at[i].text, t->at[i].hash) = t->at[i];
    free(t->at);
    t->at = at;
    t->room = room;
    return true;
}

bool dra_names_add(dra_names *t, const char *name, int64_t number)
{
    const uint64_t hash = dra_hash_of(0, name, strlen(name));
    if (2 * (t->n + 1) > t->room && !grow_names(t)) return false;
    dra_name *place = place_of(t->at, t->room, name, hash);
    if (place->text) return true;
    *place = (dra_name){name, hash, number};
    t->n++;
    return true;
}

int64_t dra_names_find(const dra_names *t, const char *name)
{
    if (!t->n) return -1;
    const dra_name *place = place_of(t->at, t->room, name, dra_hash_of(0, name, strlen(name)));
    return place->text ? place->number : -1;
}

void dra_names_free(dra_names *t)
{
    free(t->at);
    *t = (dra_names){0};
}
