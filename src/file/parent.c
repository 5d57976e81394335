/* Names that last. */
#include "file/parent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "file/fail.h"
#include "file/system.h"

enum { PATH_TEXT = 4096 };

/* Its part before the name: "a/b" and "a/b/" are in "a", "/a" in "/", "a" in ".". */
static bool parent_of(const char *path, char folder[PATH_TEXT])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    while (n > 0 && path[n - 1] != '/') n--;
    const int length = n ? snprintf(folder, PATH_TEXT, "%.*s", (int)n, path)
                         : snprintf(folder, PATH_TEXT, ".");
    return length > 0 && length < PATH_TEXT;
}

dra_status dra_parent_sync(const char *path, dra_error *err)
{
    char folder[PATH_TEXT];
    if (!parent_of(path, folder))
        return dra_fail_at(err, DRA_ERR_FILE, path, "the path is too long");
    const int fd = dra_sys_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return DRA_OK;
    const int failed = dra_sys_fsync(fd) == 0 ? 0 : errno;
    dra_sys_close(fd);
    /* Some file systems cannot sync folders, or cannot be written at all. */
    if (!failed || failed == EINVAL || failed == EROFS) return DRA_OK;
    return dra_fail_system(err, path, "sync its folder", failed);
}
