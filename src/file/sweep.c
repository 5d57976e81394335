/* Removing what nobody needs any more. */
#include "file/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "file/system.h"

enum { PATH_TEXT = 4096 };

#define MARK ".dra-" /* between a name and a process id */

typedef bool (*fits_fn)(const char *name, const char *to);

/* Calls fn for each entry of a folder that fits. */
static void for_each(const char *folder, fits_fn fits, const char *to, void (*fn)(const char *path))
{
    char           path[PATH_TEXT];
    DIR           *d = dra_sys_opendir(folder);
    struct dirent *e;
    while (d && (e = dra_sys_readdir(d))) {
        if (!fits(e->d_name, to)) continue;
        const int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (n > 0 && n < PATH_TEXT) fn(path);
    }
    if (d) closedir(d);
}

static void remove_file(const char *path) { dra_sys_unlink(path); }

void dra_remove(const char *path) { dra_remove_at(AT_FDCWD, path); }

/* A link to a folder is a file. An empty folder need not be opened, which might fail. */
void dra_remove_at(int folder, const char *name)
{
    if (dra_sys_unlinkat(folder, name, AT_REMOVEDIR) == 0) return;
    DIR           *d = dra_sys_opendir_at(folder, name, O_NOFOLLOW);
    struct dirent *e;
    while (d && (e = dra_sys_readdir(d))) dra_sys_unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    dra_sys_unlinkat(folder, name, d ? AT_REMOVEDIR : 0);
}

/* Steps over one digit or more; NULL: there is none. */
static const char *skip_number(const char *at)
{
    const size_t n = strspn(at, "0123456789");
    return n ? at + n : NULL;
}

/* "NAME.PID-N.tmp", as writers of files call what is not whole yet. */
static bool is_unfinished(const char *name, const char *unused)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        const char *at = dot > name ? skip_number(dot + 1) : NULL;
        at = at && *at == '-' ? skip_number(at + 1) : NULL;
        if (at && strcmp(at, ".tmp") == 0) return true;
    }
    return false;
}

/* "step-00000500.tmp" where `start` is "step-". */
static bool is_numbered(const char *name, const char *start)
{
    const size_t n = strlen(start);
    const char  *at = strncmp(name, start, n) == 0 ? skip_number(name + n) : NULL;
    return at && strcmp(at, ".tmp") == 0;
}

void dra_sweep(const char *folder) { for_each(folder, is_unfinished, NULL, remove_file); }

/* "NAME.PID-N.tmp" of this name. */
static bool is_of_writer(const char *entry, const char *name)
{
    const size_t n = strnlen(name, DRA_WRITER_NAME);
    const char  *at = strncmp(entry, name, n) == 0 && entry[n] == '.' ? entry + n + 1 : NULL;
    at = at ? skip_number(at) : NULL;
    at = at && *at == '-' ? skip_number(at + 1) : NULL;
    return at && strcmp(at, ".tmp") == 0;
}

static void remove_unlocked(int folder, const char *name)
{
    const int fd = dra_sys_openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0) return;
    if (dra_sys_flock(fd, LOCK_EX | LOCK_NB) == 0) dra_sys_unlinkat(folder, name, 0);
    close(fd);
}

void dra_sweep_writers(int folder, const char *name)
{
    DIR           *d = dra_sys_opendir_at(folder, ".", 0);
    struct dirent *e;
    while (d && (e = dra_sys_readdir(d)))
        if (is_of_writer(e->d_name, name)) remove_unlocked(folder, e->d_name);
    if (d) closedir(d);
}

void dra_sweep_unlocked(const char *folder)
{
    DIR           *d = dra_sys_opendir(folder);
    struct dirent *e;
    while (d && (e = dra_sys_readdir(d)))
        if (is_unfinished(e->d_name, NULL)) remove_unlocked(dirfd(d), e->d_name);
    if (d) closedir(d);
}

void dra_sweep_numbered(const char *folder, const char *start)
{
    for_each(folder, is_numbered, start, dra_remove);
}

/* ---- next to a path -------------------------------------------------------------------------- */

/* Length of the folder of a path, with its slash, and of the name that follows. */
static void split_path(const char *path, int *folder, int *name)
{
    size_t n = strlen(path), slash;
    while (n > 1 && path[n - 1] == '/') n--;
    for (slash = n; slash > 0 && path[slash - 1] != '/'; slash--) {}
    *folder = (int)slash;
    *name = (int)(n - slash);
}

/* A name that starts with `start` and ends in "PID.tmp", where the process is gone or had our id
 * before us. */
static bool is_left(const char *name, const char *start)
{
    const long pid = is_numbered(name, start) ? strtol(name + strlen(start), NULL, 10) : 0;
    return pid > 0 && (pid == (long)getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH));
}

static void sweep_temporaries(const char *path)
{
    char folder[PATH_TEXT], start[PATH_TEXT];
    int  m, n;
    split_path(path, &m, &n);
    snprintf(folder, sizeof folder, "%.*s", m ? m : 1, m ? path : ".");
    snprintf(start, sizeof start, ".%.*s" MARK, n, path + m);
    for_each(folder, is_left, start, dra_remove);
}

bool dra_path_temporary(const char *path, char *temporary, size_t size)
{
    int m, n;
    split_path(path, &m, &n);
    const int length = snprintf(temporary, size, "%.*s.%.*s" MARK "%ld.tmp", m, path, n, path + m,
                                (long)getpid());
    if (length < 0 || (size_t)length >= size) return false;
    sweep_temporaries(path);
    return true;
}
