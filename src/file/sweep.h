/* Removing: files, folders of files, and what killed processes have left. */
#ifndef DRA_SRC_FILE_SWEEP_H
#define DRA_SRC_FILE_SWEEP_H

/* Removes a file, or a folder of files. What is not there needs no removing. */
void dra_remove(const char *path);
/* What killed processes have left: files "NAME.PID-N.tmp" as of dra_file_writer. Nobody may be
 * writing. */
void dra_sweep(const char *folder);
void dra_sweep_numbered(const char *folder, const char *start); /* all "startNUMBER.tmp" */
/* Removes "PATH.PID.tmp" beside a path; that of another process that lives stays. */
void dra_sweep_beside(const char *path);

#endif
