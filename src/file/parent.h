/* The folder that a path is in. */
#ifndef DRA_SRC_FILE_PARENT_H
#define DRA_SRC_FILE_PARENT_H

#include "dra/base.h"

/* Syncs the folder that `path` is in, so that a name which was made there, for a file or a folder,
 * outlasts a power loss: a sync of the file or folder itself does not promise that. Where the
 * folder may not be read or cannot be synced, nothing is done. */
dra_status dra_parent_sync(const char *path, dra_error *err);

#endif
