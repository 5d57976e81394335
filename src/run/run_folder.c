/* Files and folders of a run. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/file_map.h"
#include "run/runs.h"

dra_status dra_path(char path[DRA_PATH], dra_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(path, DRA_PATH, format, args);
    va_end(args);
    if (n > 0 && n < DRA_PATH) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, path, "the path is too long");
}

dra_status dra_folder_make(const char *path, dra_error *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return DRA_OK;
    return dra_fail_system(err, path, "make the folder", errno);
}

/* ---- safe and at once ------------------------------------------------------------------------ */

dra_status dra_folder_sync(const char *path, dra_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return dra_fail_system(err, path, "open it", errno);
    /* Some file systems cannot sync folders and say EINVAL. */
    const int failed = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return failed ? dra_fail_system(err, path, "sync it", failed) : DRA_OK;
}

static dra_status copy(const char *from, const char *to, dra_error *err)
{
    dra_file_map map;
    dra_status   st = dra_file_map_open(from, &map, err);
    if (st == DRA_OK) st = dra_file_write(to, map.data, map.bytes, err);
    dra_file_map_close(&map);
    return st;
}

dra_status dra_file_share(const char *from, const char *to, dra_error *err)
{
    char       temporary[DRA_PATH];
    dra_status st = dra_path(temporary, err, "%s.%ld-0.tmp", to, (long)getpid());
    if (st != DRA_OK) return st;
    unlink(temporary);
    if (link(from, temporary) != 0) return copy(from, to, err);
    if (rename(temporary, to) != 0) {
        st = dra_fail_system(err, to, "rename its temporary file", errno);
        unlink(temporary);
    }
    unlink(temporary); /* renaming one link of a file to another does nothing */
    return st;
}

int dra_folder_lock(const char *path, const char *run, dra_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        dra_fail_system(err, path, "open it", errno);
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
    close(fd);
    dra_fail_at(err, DRA_ERR_FILE, run, "another process trains here");
    return -1;
}
