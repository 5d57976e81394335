/* System calls on files. Each is made again when a signal interrupts it: on network file systems
 * nearly any of them may be. The rest is as in the manual: -1 or NULL, and errno. */
#ifndef DRA_SRC_FILE_SYSTEM_H
#define DRA_SRC_FILE_SYSTEM_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

int     dra_sys_open(const char *path, int flags, mode_t mode);
int     dra_sys_openat(int folder, const char *name, int flags, mode_t mode);
int     dra_sys_close(int fd); /* an interrupted one has closed it all the same */
ssize_t dra_sys_read(int fd, void *data, size_t bytes);
ssize_t dra_sys_write(int fd, const void *data, size_t bytes);
ssize_t dra_sys_pwrite(int fd, const void *data, size_t bytes, off_t at);
off_t   dra_sys_seek(int fd, off_t by, int from);
int     dra_sys_fsync(int fd);
int     dra_sys_ftruncate(int fd, off_t bytes);
int     dra_sys_flock(int fd, int how);
void   *dra_sys_map(int fd, size_t bytes); /* to be read; MAP_FAILED */

int dra_sys_stat(const char *path, struct stat *out);
int dra_sys_lstat(const char *path, struct stat *out);
int dra_sys_fstat(int fd, struct stat *out);
int dra_sys_fstatat(int folder, const char *name, struct stat *out, int flags);
int dra_sys_access(const char *path, int how);
/* Whether something is there, for those who write there next: where that cannot be found out, they
 * are told. */
bool  dra_sys_exists(const char *path);
char *dra_sys_realpath(const char *path); /* to be freed */

int dra_sys_mkdir(const char *path);
int dra_sys_link(const char *from, const char *to);
int dra_sys_unlink(const char *path);
int dra_sys_unlinkat(int folder, const char *name, int flags);
int dra_sys_rename(const char *from, const char *to);
int dra_sys_renameat(int folder, const char *from, const char *to); /* both in it */

DIR           *dra_sys_opendir(const char *path);
DIR           *dra_sys_opendir_at(int folder, const char *name, int flags);
struct dirent *dra_sys_readdir(DIR *d); /* NULL: errno is 0 at the end; "." and ".." are left out */

#endif
