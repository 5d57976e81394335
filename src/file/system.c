/* System calls that are made again when they are interrupted. */
#include "file/system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

static bool try_again(bool failed) { return failed && errno == EINTR; }

int dra_sys_open(const char *path, int flags, mode_t mode)
{
    return dra_sys_openat(AT_FDCWD, path, flags, mode);
}

int dra_sys_openat(int folder, const char *name, int flags, mode_t mode)
{
    int fd;
    do fd = openat(folder, name, flags | O_CLOEXEC, mode);
    while (try_again(fd < 0));
    return fd;
}

int dra_sys_close(int fd) { return close(fd) != 0 && errno != EINTR ? -1 : 0; }

ssize_t dra_sys_read(int fd, void *data, size_t bytes)
{
    ssize_t n;
    do n = read(fd, data, bytes);
    while (try_again(n < 0));
    return n;
}

ssize_t dra_sys_write(int fd, const void *data, size_t bytes)
{
    ssize_t n;
    do n = write(fd, data, bytes);
    while (try_again(n < 0));
    return n;
}

ssize_t dra_sys_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    ssize_t n;
    do n = pwrite(fd, data, bytes, at);
    while (try_again(n < 0));
    return n;
}

off_t dra_sys_seek(int fd, off_t by, int from)
{
    off_t at;
    do at = lseek(fd, by, from);
    while (try_again(at < 0));
    return at;
}

int dra_sys_fsync(int fd)
{
    while (fsync(fd) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int dra_sys_ftruncate(int fd, off_t bytes)
{
    while (ftruncate(fd, bytes) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int dra_sys_flock(int fd, int how)
{
    while (flock(fd, how) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

void *dra_sys_map(int fd, size_t bytes)
{
    void *data;
    do data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    while (try_again(data == MAP_FAILED));
    return data;
}

/* ---- what is there --------------------------------------------------------------------------- */

int dra_sys_stat(const char *path, struct stat *out)
{
    return dra_sys_fstatat(AT_FDCWD, path, out, 0);
}

int dra_sys_lstat(const char *path, struct stat *out)
{
    return dra_sys_fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

int dra_sys_fstat(int fd, struct stat *out)
{
    while (fstat(fd, out) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int dra_sys_fstatat(int folder, const char *name, struct stat *out, int flags)
{
    while (fstatat(folder, name, out, flags) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int dra_sys_access(const char *path, int how)
{
    while (access(path, how) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

bool dra_sys_exists(const char *path)
{
    return dra_sys_access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

char *dra_sys_realpath(const char *path)
{
    char *out;
    do out = realpath(path, NULL);
    while (try_again(!out));
    return out;
}

/* ---- changes of folders ---------------------------------------------------------------------- */

int dra_sys_mkdir(const char *path)
{
    while (mkdir(path, 0777) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int dra_sys_link(const char *from, const char *to)
{
    while (link(from, to) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int dra_sys_unlink(const char *path) { return dra_sys_unlinkat(AT_FDCWD, path, 0); }

int dra_sys_unlinkat(int folder, const char *name, int flags)
{
    while (unlinkat(folder, name, flags) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

int dra_sys_rename(const char *from, const char *to)
{
    return dra_sys_renameat(AT_FDCWD, from, to);
}

int dra_sys_renameat(int folder, const char *from, const char *to)
{
    while (renameat(folder, from, folder, to) != 0)
        if (errno != EINTR) return -1;
    return 0;
}

/* ---- entries of folders ---------------------------------------------------------------------- */

DIR *dra_sys_opendir(const char *path)
{
    DIR *d;
    do d = opendir(path);
    while (try_again(!d));
    return d;
}

DIR *dra_sys_opendir_at(int folder, const char *name, int flags)
{
    const int fd = dra_sys_openat(folder, name, O_RDONLY | O_DIRECTORY | flags, 0);
    DIR      *d = NULL;
    if (fd < 0) return NULL;
    do d = fdopendir(fd);
    while (try_again(!d));
    if (!d) close(fd);
    return d;
}

struct dirent *dra_sys_readdir(DIR *d)
{
    struct dirent *e;
    do {
        errno = 0;
        e = readdir(d);
    } while (try_again(!e) || (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)));
    return e;
}
