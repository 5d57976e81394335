/* A run holds handles of its folder and of `train` in it, which is locked. Somebody may move the
 * folder and start another run in its place, so the path is compared with the handles before
 * anything is written. Writers open the folder of a file first and stay in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file/fail.h"
#include "file/system.h"
#include "train/train.h"

static dra_status fail_busy(const dra_trainer *t, dra_error *err)
{
    char room[DRA_BRIEF];
    return dra_fail(err, DRA_ERR_FILE, "another process is training in %s",
                    dra_brief(t->c.folder, room));
}

/* Some file systems have no locks; there, users have to take care themselves. */
static bool is_taken(int number) { return number == EWOULDBLOCK; }

static bool has_no_locks(int number)
{
    return number == ENOSYS || number == EOPNOTSUPP || number == ENOLCK || number == EBADF ||
           number == EINVAL;
}

/* A process that checks whether a folder is taken holds its lock for a moment, so we try more than
 * once. */
static dra_status lock_folder(const dra_trainer *t, dra_error *err)
{
    enum { TRIES = 5, NANOSECONDS = 10000000 };
    for (int i = 0; i < TRIES; i++) {
        if (dra_sys_flock(t->lock, LOCK_EX | LOCK_NB) == 0 || has_no_locks(errno)) return DRA_OK;
        if (!is_taken(errno)) return dra_fail_system(err, t->c.folder, "lock it", errno);
        nanosleep(&(struct timespec){0, NANOSECONDS}, NULL);
    }
    return fail_busy(t, err);
}

dra_status dra_trainer_check_alone(const dra_trainer *t, dra_error *err)
{
    char path[DRA_PATH];
    if (dra_path(path, NULL, "%s/train", t->c.folder) != DRA_OK) return DRA_OK;
    const int fd = dra_sys_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return DRA_OK;
    const bool taken = dra_sys_flock(fd, LOCK_SH | LOCK_NB) != 0 && is_taken(errno);
    close(fd);
    return taken ? fail_busy(t, err) : DRA_OK;
}

dra_status dra_trainer_hold(dra_trainer *t, dra_error *err)
{
    const int  how = O_RDONLY | O_DIRECTORY;
    char       path[DRA_PATH];
    dra_status st = dra_folder_make(t->c.folder, err);
    if (st == DRA_OK) st = dra_path(path, err, "%s/train", t->c.folder);
    if (st == DRA_OK) st = dra_folder_make(path, err);
    if (st != DRA_OK) return st;
    t->home = dra_sys_open(t->c.folder, how, 0);
    if (t->home >= 0) t->lock = dra_sys_openat(t->home, "train", how, 0);
    if (t->lock < 0) st = dra_fail_system(err, path, "open it", errno);
    if (st == DRA_OK) st = lock_folder(t, err);
    if (st == DRA_OK) st = dra_trainer_here(t, err);
    if (st != DRA_OK) dra_trainer_leave(t);
    return st;
}

void dra_trainer_leave(dra_trainer *t)
{
    if (t->lock >= 0) close(t->lock);
    if (t->home >= 0) close(t->home);
    t->lock = t->home = -1;
}

/* An open handle keeps its inode number from being reused, so equal numbers mean the same
 * folder. */
static dra_status check_place(const char *path, int held, dra_error *err)
{
    struct stat now, then;
    const bool  there = dra_sys_stat(path, &now) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR)
        return dra_fail_system(err, path, "look at it", errno);
    if (dra_sys_fstat(held, &then) != 0) return dra_fail_system(err, path, "look at it", errno);
    if (there && now.st_dev == then.st_dev && now.st_ino == then.st_ino) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, path,
                       "was moved or replaced while this run used it; the run ends, and nothing "
                       "more is written");
}

dra_status dra_trainer_here(const dra_trainer *t, dra_error *err)
{
    char path[DRA_PATH];
    if (t->lock < 0) return DRA_OK;
    dra_status st = check_place(t->c.folder, t->home, err);
    if (st == DRA_OK) st = dra_path(path, err, "%s/train", t->c.folder);
    return st == DRA_OK ? check_place(path, t->lock, err) : st;
}
