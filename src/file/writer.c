/* Atomic writes. Bytes go to a temporary file in the folder of the target; then, in this order:
 * sync the file (its bytes are on the disk), rename it (one step: a name is the old file or the new
 * one), sync the folder (the new name is on the disk). */
#include "file/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/fail.h"
#include "file/seal.h"
#include "file/sweep.h"
#include "file/system.h"

enum { NAMES_TO_TRY = 10000 };

static dra_status keep_error(dra_file_writer *w, const char *what, int number)
{
    return dra_fail_system(&w->first, w->path, what, number);
}

static dra_status no_memory(dra_error *err, const char *path)
{
    return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory, cannot write it");
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* Opens the folder, so that whatever happens to its path, all steps are done in the same one. */
static dra_status open_folder(dra_file_writer *w)
{
    w->target = dra_sys_realpath(w->path);
    if (!w->target && errno != ENOENT) return keep_error(w, "find it", errno);
    if (!w->target) w->target = strdup(w->path); /* a new file */
    if (!w->target) return no_memory(&w->first, w->path);
    char *slash = strrchr(w->target, '/');
    w->name = slash ? slash + 1 : w->target;
    if (!*w->name) return dra_fail_at(&w->first, DRA_ERR_FILE, w->path, "has no file name");
    const char *folder = slash == w->target ? "/" : slash ? w->target : ".";
    if (slash) *slash = 0;
    w->folder = dra_sys_open(folder, O_RDONLY | O_DIRECTORY, 0);
    return w->folder < 0 ? keep_error(w, "open its folder", errno) : DRA_OK;
}

/* A lock says that somebody is writing. It is none where another process took the file for a
 * leftover just before, and removes it. */
static bool lock_file(int fd)
{
    struct stat s;
    if (dra_sys_flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
    return dra_sys_fstat(fd, &s) != 0 || s.st_nlink > 0;
}

/* The name is new by O_EXCL, whichever threads, processes and leftovers there are. */
static dra_status open_temporary(dra_file_writer *w, mode_t mode)
{
    const size_t size = DRA_WRITER_NAME + 64;
    w->temporary = malloc(size);
    if (!w->temporary) return no_memory(&w->first, w->path);
    for (int i = 0; i < NAMES_TO_TRY && w->fd < 0; i++) {
        snprintf(w->temporary, size, "%.*s.%ld-%d.tmp", DRA_WRITER_NAME, w->name, (long)getpid(),
                 i);
        w->fd = dra_sys_openat(w->folder, w->temporary, O_WRONLY | O_CREAT | O_EXCL, mode);
        if (w->fd < 0 && errno != EEXIST) break;
        if (w->fd < 0 || lock_file(w->fd)) continue;
        close(w->fd);
        w->fd = -1;
    }
    if (w->fd >= 0) return DRA_OK;
    const int number = errno;
    free(w->temporary); /* not ours, so not to be removed */
    w->temporary = NULL;
    return keep_error(w, "make a temporary file next to it", number);
}

static dra_status open_both(dra_file_writer *w)
{
    struct stat      old = {0};
    const dra_status status = open_folder(w);
    if (status != DRA_OK) return status;
    const bool exists = dra_sys_fstatat(w->folder, w->name, &old, 0) == 0;
    if (!exists && errno != ENOENT) return keep_error(w, "look at it", errno);
    if (exists && S_ISDIR(old.st_mode))
        return dra_fail_at(&w->first, DRA_ERR_FILE, w->path, "is a folder");
    if (exists && !S_ISREG(old.st_mode))
        return dra_fail_at(&w->first, DRA_ERR_FILE, w->path, "is not a regular file");
    dra_sweep_writers(w->folder, w->name);
    const mode_t mode = exists ? old.st_mode & 0777 : 0666;
    if (open_temporary(w, mode) != DRA_OK) return w->first.code;
    /* The umask may have taken something from the old permissions; where they cannot be set, the
     * narrower ones do no harm. */
    if (exists && fchmod(w->fd, mode) != 0) errno = 0;
    return DRA_OK;
}

dra_status dra_file_writer_begin(const char *path, dra_file_writer **out, dra_error *err)
{
    if (out) *out = NULL;
    if (!path || !out) return dra_fail(err, DRA_ERR_VALUE, "file_writer_begin: no path or no out");
    dra_file_writer *w = malloc(sizeof *w);
    char            *copy = strdup(path);
    if (!w || !copy) {
        free(w);
        free(copy);
        return no_memory(err, path);
    }
    w->path = copy;
    w->target = w->name = w->temporary = NULL;
    w->folder = w->fd = -1;
    w->first = (dra_error){0};
    w->used = 0;
    w->seals = false;
    const dra_status status = open_both(w);
    if (status == DRA_OK) {
        *out = w;
        return DRA_OK;
    }
    if (err) *err = w->first;
    dra_file_writer_abort(w);
    return status;
}

/* ---- write ----------------------------------------------------------------------------------- */

static void write_through(dra_file_writer *w, const unsigned char *data, size_t bytes)
{
    while (bytes && w->first.code == DRA_OK) {
        const ssize_t n = dra_sys_write(w->fd, data, bytes);
        if (n > 0)
            data += n, bytes -= (size_t)n;
        else
            keep_error(w, "write it", n == 0 ? EIO : errno);
    }
}

static void flush_buffer(dra_file_writer *w)
{
    write_through(w, w->buffer, w->used);
    w->used = 0;
}

dra_status dra_file_writer_write(dra_file_writer *w, const void *data, size_t bytes, dra_error *err)
{
    if (!w || (!data && bytes))
        return dra_fail(err, DRA_ERR_VALUE, "file_writer_write: no writer or no data");
    if (w->seals) dra_hash_add(&w->hash, data, bytes);
    if (bytes > sizeof w->buffer - w->used) flush_buffer(w);
    if (bytes > sizeof w->buffer) {
        write_through(w, data, bytes);
    } else if (bytes) {
        memcpy(w->buffer + w->used, data, bytes);
        w->used += bytes;
    }
    if (w->first.code != DRA_OK && err) *err = w->first;
    return w->first.code;
}

void dra_file_writer_seal(dra_file_writer *w, size_t at)
{
    w->seals = true;
    w->seal = at;
    dra_hash_begin(&w->hash, 0);
}

/* Over zeros that were written; all is flushed. */
static void put_seal(dra_file_writer *w)
{
    dra_seal_text digits;
    snprintf(digits, sizeof digits, "%016" PRIx64, dra_hash_end(&w->hash));
    const ssize_t n = dra_sys_pwrite(w->fd, digits, DRA_SEAL_DIGITS, (off_t)w->seal);
    if (n != DRA_SEAL_DIGITS) keep_error(w, "write it", n < 0 ? errno : EIO);
}

/* ---- end ------------------------------------------------------------------------------------- */

static dra_status finish_file(dra_file_writer *w)
{
    flush_buffer(w);
    if (w->seals && w->first.code == DRA_OK) put_seal(w);
    if (w->first.code != DRA_OK) return w->first.code;
    if (dra_sys_fsync(w->fd) != 0) return keep_error(w, "sync it", errno);
    /* Closed after that: without its lock another writer would take it for a leftover. */
    if (dra_sys_renameat(w->folder, w->temporary, w->name) != 0)
        return keep_error(w, "rename its temporary file", errno);
    free(w->temporary);
    w->temporary = NULL;
    const int closed = dra_sys_close(w->fd);
    w->fd = -1;
    if (closed != 0) return keep_error(w, "close it (the new file is there)", errno);
    /* Some file systems cannot sync folders and say EINVAL. */
    if (dra_sys_fsync(w->folder) != 0 && errno != EINVAL)
        return keep_error(w, "sync its folder (the new file is there)", errno);
    return DRA_OK;
}

dra_status dra_file_writer_commit(dra_file_writer *w, dra_error *err)
{
    if (!w) return dra_fail(err, DRA_ERR_VALUE, "file_writer_commit: no writer");
    const dra_status status = finish_file(w);
    if (status != DRA_OK && err) *err = w->first;
    dra_file_writer_abort(w); /* nothing is left to remove when all went well */
    return status;
}

void dra_file_writer_abort(dra_file_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (w->temporary) dra_sys_unlinkat(w->folder, w->temporary, 0);
    if (w->folder >= 0) close(w->folder);
    free(w->temporary);
    free(w->target);
    free(w->path);
    free(w);
}
