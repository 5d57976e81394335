/* A new folder, whole or not at all. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/fail.h"
#include "model/convert.h"

enum { PATH_TEXT = 4096 };

/* The folder with the files in it; there are no folders in these. */
static void remove_folder(const char *folder)
{
    char           path[PATH_TEXT + 256];
    DIR           *d = opendir(folder);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        snprintf(path, sizeof path, "%s/%.255s", folder, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlink(path);
    }
    if (d) closedir(d);
    rmdir(folder);
}

dra_status dra_path_free(const char *path, dra_error *err)
{
    struct stat s;
    if (lstat(path, &s) != 0) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, path, "is there already, expected a new name");
}

static dra_status make(const char *path, char temporary[PATH_TEXT], dra_error *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    const int length = snprintf(temporary, PATH_TEXT, "%.*s.%ld.tmp", (int)n, path, (long)getpid());
    if (length < 0 || length >= PATH_TEXT)
        return dra_fail_at(err, DRA_ERR_FILE, path, "the path is too long");
    if (mkdir(temporary, 0777) != 0) return dra_fail_system(err, path, "make the folder", errno);
    return DRA_OK;
}

dra_status dra_folder_new(const char *path,
                          dra_status (*fill)(void *user, const char *folder, dra_error *err),
                          void *user, dra_error *err)
{
    char       temporary[PATH_TEXT];
    dra_status st = make(path, temporary, err);
    if (st != DRA_OK) return st;
    st = fill(user, temporary, err);
    if (st == DRA_OK && rename(temporary, path) != 0)
        st = dra_fail_system(err, path, "give the folder its name", errno);
    if (st != DRA_OK) remove_folder(temporary);
    return st;
}
