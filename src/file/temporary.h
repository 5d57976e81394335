/* Temporary files without a name: nothing is left of a process that is killed. */
#ifndef DRA_SRC_FILE_TEMPORARY_H
#define DRA_SRC_FILE_TEMPORARY_H

#include <stdio.h>

#include "file/file_map.h"

/* In $TMPDIR, else /tmp, to be written and read; NULL: errno says why. */
FILE *dra_temporary_open(void);
/* Maps what was written up to now; the map outlives the file. False: errno says why. */
bool dra_temporary_map(FILE *f, dra_file_map *out);

#endif
