/* Removing: files, folders of files, and what killed processes have left. */
#ifndef DRA_SRC_FILE_SWEEP_H
#define DRA_SRC_FILE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

enum { DRA_WRITER_NAME = 200 }; /* bytes of a name that a writer takes for its temporary file */

/* Removes a file, or a folder of files. What is not there needs no removing. */
void dra_remove(const char *path);
void dra_remove_at(int folder, const char *name); /* relative to an open folder, or AT_FDCWD */
/* What killed processes have left: files "NAME.PID-N.tmp" as of dra_file_writer. Nobody may be
 * writing. */
void dra_sweep(const char *folder);
void dra_sweep_numbered(const char *folder, const char *start); /* all "startNUMBER.tmp" */
/* The same of one file that is about to be written, while others may be writing: those that nobody
 * has locked. */
void dra_sweep_writers(int folder, const char *name);
void dra_sweep_unlocked(const char *folder); /* of all files in a folder */
/* The temporary name of what is renamed to `path` when it is whole: ".NAME.dra-PID.tmp" in the same
 * folder. Removes those that dead processes have left. false: it is too long. */
bool dra_path_temporary(const char *path, char *temporary, size_t size);

#endif
