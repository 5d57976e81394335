/* Removing: files, folders of files, and what killed processes have left. */
#ifndef DRA_SRC_FILE_SWEEP_H
#define DRA_SRC_FILE_SWEEP_H

/* Removes a file, or a folder of files. What is not there needs no removing. */
void dra_remove(const char *path);
void dra_sweep(const char *folder); /* removes what ends in ".tmp": left by killed processes */
/* Removes "PATH.PID.tmp" beside a path; that of another process that lives stays. */
void dra_sweep_beside(const char *path);

#endif
