/* Whole files: read up to a limit, written at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/system.h"

typedef struct text {
    char  *data;
    size_t used, room;
} text;

/* Doubles the room up to `most`; one byte more is for the 0 at the end. */
static dra_status grow_text(text *t, size_t hint, size_t most, const char *path, dra_error *err)
{
    size_t room = t->room ? t->room : hint / 2;
    room = room < most / 2 ? 2 * room + 1 : most;
    char *data = realloc(t->data, room + 1);
    if (!data) return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory for %zu bytes", room);
    t->data = data;
    t->room = room;
    return DRA_OK;
}

/* The size a file says it has is only a hint: it may grow, and a pipe has none. */
static dra_status read_all(const char *path, int fd, size_t limit, text *t, dra_error *err)
{
    const size_t most = limit < SIZE_MAX - 1 ? limit + 1 : limit - 1; /* shows that there is more */
    struct stat  s;
    dra_status   status = DRA_OK;
    if (dra_sys_fstat(fd, &s) != 0) return dra_fail_system(err, path, "look at it", errno);
    if (S_ISDIR(s.st_mode)) return dra_fail_at(err, DRA_ERR_FILE, path, "is a folder");
    const bool   sized = S_ISREG(s.st_mode) && s.st_size > 0;
    const size_t hint = !sized ? 4096 : (uintmax_t)s.st_size < most ? (size_t)s.st_size : most;
    if (hint > limit && sized)
        return dra_fail_at(err, DRA_ERR_FILE, path, "is longer than %zu bytes", limit);
    for (ssize_t n = 1; n != 0;) {
        if (t->used == t->room) status = grow_text(t, hint + 1, most, path, err);
        if (status != DRA_OK) return status;
        n = dra_sys_read(fd, t->data + t->used, t->room - t->used);
        if (n < 0) return dra_fail_system(err, path, "read it", errno);
        if (n > 0) t->used += (size_t)n;
        if (t->used > limit)
            return dra_fail_at(err, DRA_ERR_FILE, path, "is longer than %zu bytes", limit);
    }
    return DRA_OK;
}

dra_status dra_file_read(const char *path, size_t limit, char **data, size_t *bytes, dra_error *err)
{
    text t = {0};
    if (data) *data = NULL;
    if (bytes) *bytes = 0;
    if (!path || !data || !bytes)
        return dra_fail(err, DRA_ERR_VALUE, "file_read: no path, data or bytes");
    const int fd = dra_sys_open(path, O_RDONLY, 0);
    if (fd < 0) return dra_fail_system(err, path, "open it", errno);
    const dra_status status = read_all(path, fd, limit, &t, err);
    close(fd);
    if (status != DRA_OK) {
        free(t.data);
        return status;
    }
    t.data[t.used] = 0;
    *data = t.data;
    *bytes = t.used;
    return DRA_OK;
}

dra_status dra_file_write(const char *path, const void *data, size_t bytes, dra_error *err)
{
    dra_file_writer *w = NULL;
    dra_status       status = dra_file_writer_begin(path, &w, err);
    if (status != DRA_OK) return status;
    status = dra_file_writer_write(w, data, bytes, err);
    if (status == DRA_OK) return dra_file_writer_commit(w, err);
    dra_file_writer_abort(w);
    return status;
}
