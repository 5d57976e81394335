/* Compressed files: gzip [RFC 1952] and Zstandard [RFC 8878], as streams of any size. */
#ifndef DRA_SRC_FILE_UNPACK_H
#define DRA_SRC_FILE_UNPACK_H

#include "file/file_map.h"

typedef enum dra_packing { DRA_PACKED_NOT, DRA_PACKED_GZIP, DRA_PACKED_ZSTD } dra_packing;

/* By the first bytes of a file. */
dra_packing dra_packing_of(const unsigned char *at, size_t n);
const char *dra_packing_name(dra_packing p); /* "gzip", "zstd"; NULL for a plain file */

/* Takes the next bytes of what was compressed. */
typedef dra_status (*dra_unpacked)(void *user, const unsigned char *data, size_t bytes,
                                   dra_error *err);

/* Decompresses a file, several streams in a row too, until its end or until `most` bytes came out.
 * What is damaged or cut short is refused with the byte of the file where that was noticed. */
dra_status dra_unpack(dra_packing how, const char *path, const dra_file_map *file, size_t most,
                      dra_unpacked fn, void *user, dra_error *err);

#endif
