/* A file mapped into memory, read-only. */
#ifndef DRA_SRC_FILE_MAP_H
#define DRA_SRC_FILE_MAP_H

#include "dra/base.h"

typedef struct dra_map {
    const unsigned char *data; /* NULL when the file is empty */
    size_t               bytes;
} dra_map;

dra_status dra_map_open(const char *path, dra_map *out, dra_error *err);
/* What was read of it so far gives its memory back; what is read again comes from the file. */
void dra_map_rest(const dra_map *map);
void dra_map_close(dra_map *map);

#endif
