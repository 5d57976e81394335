/* Temporary files. */
#define _GNU_SOURCE /* O_TMPFILE: a file that never has a name */
#include "file/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file/system.h"

enum { BUFFER = 1 << 14 };

struct dra_temporary {
    int           fd;
    size_t        used, written; /* of the buffer; to the file */
    unsigned char buffer[BUFFER];
};

/* Where files need a name to be made, it is taken away at once. */
static int open_named(const char *folder)
{
    char       path[512];
    const char any[] = {'X', 'X', 'X', 'X', 'X', 'X', 0}; /* for mkstemp to choose */
    int        fd;
    do {
        snprintf(path, sizeof path, "%s/dra-tokens-%s", folder, any);
        fd = mkstemp(path);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return fd;
    dra_sys_unlink(path);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

static int open_file(void)
{
    const char *given = getenv("TMPDIR"), *folder = given && *given ? given : "/tmp";
#ifdef O_TMPFILE
    const int fd = dra_sys_open(folder, O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0) return fd;
#endif
    return open_named(folder);
}

dra_temporary *dra_temporary_open(void)
{
    dra_temporary *t = malloc(sizeof *t);
    errno = ENOMEM;
    if (!t) return NULL;
    t->used = t->written = 0;
    t->fd = open_file();
    if (t->fd >= 0) return t;
    free(t);
    return NULL;
}

void dra_temporary_close(dra_temporary *t)
{
    if (t) close(t->fd);
    free(t);
}

static bool write_through(dra_temporary *t, const unsigned char *data, size_t bytes)
{
    while (bytes) {
        const ssize_t n = dra_sys_write(t->fd, data, bytes);
        if (n == 0) errno = EIO;
        if (n <= 0) return false;
        data += n, bytes -= (size_t)n, t->written += (size_t)n;
    }
    return true;
}

static bool flush_temporary(dra_temporary *t)
{
    const size_t n = t->used;
    t->used = 0;
    return write_through(t, t->buffer, n);
}

bool dra_temporary_write(dra_temporary *t, const void *data, size_t bytes)
{
    if (bytes > BUFFER - t->used && !flush_temporary(t)) return false;
    if (bytes > BUFFER) return write_through(t, data, bytes);
    if (bytes) memcpy(t->buffer + t->used, data, bytes);
    t->used += bytes;
    return true;
}

bool dra_temporary_map(dra_temporary *t, dra_file_map *out)
{
    *out = (dra_file_map){0};
    if (!flush_temporary(t)) return false;
    if (t->written == 0) return true;
    void *data = dra_sys_map(t->fd, t->written);
    if (data == MAP_FAILED) return false;
    *out = (dra_file_map){data, t->written};
    return true;
}

int dra_temporary_reopen(dra_temporary *t)
{
    const int fd = flush_temporary(t) ? fcntl(t->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd < 0 || dra_sys_seek(fd, 0, SEEK_SET) == 0) return fd;
    close(fd);
    return -1;
}
