/* A table from names to numbers: finding one of n takes the time of its letters, however large n
 * is. */
#ifndef DRA_SRC_BASE_NAMES_H
#define DRA_SRC_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dra_name {
    const char *text; /* borrowed; NULL: a free place */
    uint64_t    hash;
    int64_t     number;
} dra_name;

typedef struct dra_names { /* starts as {0} */
    dra_name *at;
    size_t    n, room;
} dra_names;

/* The name must stay where it is as long as the table. One that is there already keeps its number.
 * false: out of memory, and nothing has changed. */
bool    dra_names_add(dra_names *t, const char *name, int64_t number);
int64_t dra_names_find(const dra_names *t, const char *name); /* -1: it is not there */
void    dra_names_free(dra_names *t);

#endif
