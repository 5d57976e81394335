/* Entries of a ZIP archive that are stored as they are, not packed: where they are in the file. */
#ifndef DRA_SRC_FILE_ZIP_H
#define DRA_SRC_FILE_ZIP_H

#include "base/arena.h"
#include "dra/base.h"

typedef struct dra_zip_entry {
    const char          *name;
    const unsigned char *data; /* inside the file, `bytes` of them */
    size_t               bytes;
} dra_zip_entry;

typedef struct dra_zip {
    size_t         count;
    dra_zip_entry *entry; /* by name */
} dra_zip;

bool dra_zip_is(const unsigned char *file, size_t bytes);

/* Reads the directory of the archive into the arena. An entry that is packed, encrypted, outside
 * the file or there twice is refused. `path` is named in errors. */
dra_status dra_zip_read(const char *path, const unsigned char *file, size_t bytes, dra_arena *arena,
                        dra_zip *out, dra_error *err);

void                 dra_zip_sort(dra_zip *z); /* by name, for dra_zip_find */
const dra_zip_entry *dra_zip_find(const dra_zip *z, const char *name); /* NULL: none */

#endif
