/* Removing: files, folders of files, and what killed processes have left. */
#ifndef DRA_SRC_FILE_SWEEP_H
#define DRA_SRC_FILE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

/* Removes a file, or a folder of files. What is not there needs no removing. */
void dra_remove(const char *path);
/* What killed processes have left: files "NAME.PID-N.tmp" as of dra_file_writer. Nobody may be
 * writing. */
void dra_sweep(const char *folder);
void dra_sweep_numbered(const char *folder, const char *start); /* all "startNUMBER.tmp" */
/* Where to make what gets its name when it is whole: ".NAME.dra-PID.tmp" beside a path. Those that
 * processes have left go; that of another process that lives stays. false: it is too long. */
bool dra_path_beside(const char *path, char *temporary, size_t size);

#endif
