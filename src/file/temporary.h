/* Temporary files without a name: nothing is left of a process that is killed. */
#ifndef DRA_SRC_FILE_TEMPORARY_H
#define DRA_SRC_FILE_TEMPORARY_H

#include "file/file_map.h"

typedef struct dra_temporary dra_temporary; /* opaque */

/* In $TMPDIR, else /tmp. NULL, and false below: errno says why. */
dra_temporary *dra_temporary_open(void);
void           dra_temporary_close(dra_temporary *t); /* NULL is allowed */
bool           dra_temporary_write(dra_temporary *t, const void *data, size_t bytes);
/* Maps what was written up to now; the map outlives the file. */
bool dra_temporary_map(dra_temporary *t, dra_file_map *out);
/* Another handle of the file, at its start; -1: errno says why. */
int dra_temporary_reopen(dra_temporary *t);

#endif
