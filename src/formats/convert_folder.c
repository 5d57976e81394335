/* A new folder, or a file, whole or not at all. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/fail.h"
#include "file/parent.h"
#include "file/system.h"
#include "file/sweep.h"
#include "formats/convert.h"

enum { PATH_TEXT = 4096 };

dra_status dra_path_free(const char *path, dra_error *err)
{
    struct stat s;
    if (dra_sys_lstat(path, &s) != 0 && errno == ENOENT) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, path, "is there already, expected a new name");
}

static dra_status make_folder(const char *path, char temporary[PATH_TEXT], dra_error *err)
{
    if (!dra_path_temporary(path, temporary, PATH_TEXT))
        return dra_fail_at(err, DRA_ERR_FILE, path, "the path is too long");
    if (dra_sys_mkdir(temporary) != 0) return dra_fail_system(err, path, "make the folder", errno);
    return DRA_OK;
}

dra_status dra_make_new(const char *path, const char *file, dra_make_content fill, void *user,
                        dra_error *err)
{
    char       temporary[PATH_TEXT], made[PATH_TEXT];
    dra_status st = make_folder(path, temporary, err);
    if (st != DRA_OK) return st;
    const int n = snprintf(made, sizeof made, "%s%s%s", temporary, file ? "/" : "",
                           file ? file : "");
    st = n < PATH_TEXT ? fill(user, made, err)
                       : dra_fail_at(err, DRA_ERR_FILE, path, "the path is too long");
    if (st == DRA_OK && dra_sys_rename(made, path) != 0)
        st = dra_fail_system(err, path, "give it its name", errno);
    if (st == DRA_OK) st = dra_parent_sync(path, err);
    dra_remove(temporary); /* of a folder that has its name nothing is left here */
    return st;
}
