/* A file mapped into memory, read-only. */
#ifndef DRA_SRC_FILE_MAP_H
#define DRA_SRC_FILE_MAP_H

#include "dra/base.h"

typedef struct dra_file_map {
    const unsigned char *data; /* NULL when the file is empty */
    size_t               bytes;
    /* Device, inode, seconds and nanoseconds of the last modification: as long as they and the size
     * are the same, so are the bytes, if nobody sets the clock back. */
    int64_t is[4];
} dra_file_map;

dra_status dra_file_map_open(const char *path, dra_file_map *out, dra_error *err);
/* What was read of it so far gives its memory back; what is read again comes from the file. */
void dra_file_map_rest(const dra_file_map *map);
void dra_file_map_close(dra_file_map *map);

#endif
