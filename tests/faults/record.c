/* Records what a command and its threads do to the files of one folder (recording.h), by ptrace: it
 * sees every system call, whoever makes it, so also the writes inside the C library.
 *   record FOLDER RECORDING COMMAND...      exits as the command does
 * Files are known by their inodes, so what a descriptor was opened as, or copied from, does not
 * matter. Written bytes are read back from the file. Calls that change files in ways not known here
 * end the recording with a line and status 125. */
#define _GNU_SOURCE /* process_vm_readv */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recording.h"

enum { TASKS = 256, OBJECTS = 1 << 16, REFUSED = 125 };

static char  root[PATH_MAX]; /* the folder, links followed */
static FILE *recording;
static ino_t inode[OBJECTS]; /* of each object; the newest one with an inode has it */
static int   objects;

static _Noreturn void refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("record: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
    exit(REFUSED);
}

/* ---- entries --------------------------------------------------------------------------------- */

static int new_object(ino_t i)
{
    if (objects == OBJECTS) refuse("more than %d files", OBJECTS);
    inode[objects] = i;
    return objects++;
}

static int find_object(ino_t i, const char *path)
{
    for (int k = objects; k-- > 0;)
        if (inode[k] == i) return k;
    refuse("%s: a file that nobody made", path);
}

static void put(record_entry e, const char *name, const char *from_name, const void *data)
{
    e.name = (uint32_t)strlen(name);
    e.from_name = (uint32_t)strlen(from_name);
    if (fwrite(&e, sizeof e, 1, recording) != 1 || fwrite(name, 1, e.name, recording) != e.name ||
        fwrite(from_name, 1, e.from_name, recording) != e.from_name ||
        (data && fwrite(data, 1, e.bytes, recording) != e.bytes))
        refuse("cannot write the recording");
}

/* Bytes that were written, from the file as it is now. */
static void put_bytes(const char *path, int object, uint64_t offset, uint64_t bytes)
{
    char     *data = malloc(bytes + 1);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!data || fd < 0 || pread(fd, data, bytes, (off_t)offset) != (ssize_t)bytes)
        refuse("%s: cannot read %llu bytes back", path, (unsigned long long)bytes);
    put((record_entry){.kind = RECORD_WRITE, .object = object, .offset = offset, .bytes = bytes},
        "", "", data);
    close(fd);
    free(data);
}

/* ---- what was there before ------------------------------------------------------------------- */

static void walk(const char *folder, int dir)
{
    char           path[PATH_MAX];
    struct stat    s;
    struct dirent *e;
    DIR           *d = opendir(folder);
    if (!d) refuse("%s: %s", folder, strerror(errno));
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        const int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (n >= PATH_MAX || lstat(path, &s) != 0) refuse("%s: cannot look at it", path);
        int known = objects;
        while (known-- > 0 && inode[known] != s.st_ino) {}
        const bool is_folder = S_ISDIR(s.st_mode);
        const int  object = known >= 0 ? known : new_object(s.st_ino);
        put((record_entry){.kind = is_folder    ? RECORD_MKDIR
                                   : known >= 0 ? RECORD_LINK
                                                : RECORD_CREATE,
                           .object = object,
                           .dir = dir},
            e->d_name, "", NULL);
        if (is_folder) walk(path, object);
        if (!is_folder && known < 0 && s.st_size) put_bytes(path, object, 0, (uint64_t)s.st_size);
    }
    closedir(d);
}

/* ---- arguments of a call --------------------------------------------------------------------- */

typedef struct place { /* a name in a folder */
    bool  inside;      /* of the recorded folder */
    bool  exists, is_folder;
    int   dir;
    ino_t inode;
    off_t bytes;
    char  name[NAME_MAX + 1], path[PATH_MAX];
} place;

typedef struct task {
    pid_t    id;
    uint64_t nr, arg[6];
    place    from, to;
} task;

static bool is_inside(const char *path)
{
    const size_t n = strlen(root);
    return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* A text of the other process, which may end right before memory that is not there. */
static void read_text(pid_t id, uint64_t address, char text[PATH_MAX])
{
    for (size_t n = 0; n < PATH_MAX; n++) {
        const struct iovec here = {text + n, 1}, there = {(void *)(uintptr_t)(address + n), 1};
        if (process_vm_readv(id, &here, 1, &there, 1, 0) != 1) refuse("cannot read a path");
        if (!text[n]) return;
    }
    refuse("a path that is too long");
}

static void read_link(const char *link, char path[PATH_MAX])
{
    const ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
}

static void fd_path(pid_t id, int fd, char link[64], char path[PATH_MAX])
{
    snprintf(link, 64, fd == AT_FDCWD ? "/proc/%d/cwd" : "/proc/%d/fd/%d", (int)id, fd);
    read_link(link, path);
}

static place find_place(pid_t id, int fd, uint64_t address)
{
    char        said[PATH_MAX], link[64], base[PATH_MAX], full[2 * PATH_MAX + 2], *folder;
    struct stat s;
    place       p = {0};
    read_text(id, address, said);
    fd_path(id, fd, link, base);
    snprintf(full, sizeof full, "%s%s%s", *said == '/' ? "" : base, *said == '/' ? "" : "/", said);
    for (size_t n = strlen(full); n > 1 && full[n - 1] == '/'; n--) full[n - 1] = '\0';
    char *slash = strrchr(full, '/');
    snprintf(p.name, sizeof p.name, "%.*s", NAME_MAX, slash + 1);
    if (slash == full) return p; /* at the top of all: not inside */
    *slash = '\0';
    folder = realpath(full, NULL);
    p.inside = folder && is_inside(folder);
    if (p.inside) {
        if (stat(folder, &s) != 0) refuse("%s: cannot look at it", folder);
        p.dir = find_object(s.st_ino, folder);
        if (snprintf(p.path, sizeof p.path, "%s/%s", folder, p.name) >= PATH_MAX)
            refuse("a path that is too long");
        p.exists = lstat(p.path, &s) == 0;
        if (p.exists && S_ISLNK(s.st_mode)) refuse("%s: a link", p.path);
        if (p.exists) p.is_folder = S_ISDIR(s.st_mode), p.inode = s.st_ino, p.bytes = s.st_size;
    }
    free(folder);
    return p;
}

/* The object of a descriptor; -1: it is elsewhere. `link` leads to its file, named or not. */
static int fd_object(pid_t id, int fd, char link[64])
{
    char        path[PATH_MAX];
    struct stat s;
    fd_path(id, fd, link, path);
    if (!is_inside(path) || stat(link, &s) != 0) return -1;
    return find_object(s.st_ino, path);
}

/* ---- before a call --------------------------------------------------------------------------- */

static void refuse_on(const task *t, int fd)
{
    char link[64];
    if (fd >= 0 && fd_object(t->id, fd, link) >= 0)
        refuse("system call %llu changes a file in a way that is not known here",
               (unsigned long long)t->nr);
}

static void before(task *t)
{
    t->from = t->to = (place){0};
    switch (t->nr) {
#ifdef SYS_open
    case SYS_open:
        if (t->arg[1] & O_CREAT || t->arg[1] & O_TRUNC)
            t->to = find_place(t->id, AT_FDCWD, t->arg[0]);
        break;
    case SYS_mkdir:
    case SYS_rmdir:
    case SYS_unlink: t->to = find_place(t->id, AT_FDCWD, t->arg[0]); break;
    case SYS_rename:
    case SYS_link:
        t->from = find_place(t->id, AT_FDCWD, t->arg[0]);
        t->to = find_place(t->id, AT_FDCWD, t->arg[1]);
        break;
    case SYS_creat:
    case SYS_symlink: refuse("creat or symlink: not known here");
#endif
    case SYS_openat:
        if (t->arg[2] & O_CREAT || t->arg[2] & O_TRUNC)
            t->to = find_place(t->id, (int)t->arg[0], t->arg[1]);
        break;
    case SYS_mkdirat:
    case SYS_unlinkat: t->to = find_place(t->id, (int)t->arg[0], t->arg[1]); break;
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2:
        if (t->nr == SYS_renameat2 && t->arg[4] & ~(uint64_t)RENAME_NOREPLACE)
            refuse("an exchange of names is not known here");
        /* fall through */
    case SYS_linkat:
        t->from = find_place(t->id, (int)t->arg[0], t->arg[1]);
        t->to = find_place(t->id, (int)t->arg[2], t->arg[3]);
        break;
    case SYS_symlinkat:
    case SYS_truncate:
    case SYS_sync:
    case SYS_openat2: refuse("system call %llu is not known here", (unsigned long long)t->nr);
    case SYS_mmap:
        if (t->arg[3] & MAP_SHARED && t->arg[2] & PROT_WRITE) refuse_on(t, (int)t->arg[4]);
        break;
    case SYS_copy_file_range: refuse_on(t, (int)t->arg[2]); break;
    case SYS_fallocate:
    case SYS_sendfile:
    case SYS_syncfs:
    case SYS_pwritev2: refuse_on(t, (int)t->arg[0]); break;
    default: break;
    }
}

/* ---- after a call that succeeded ------------------------------------------------------------- */

static void opened(const task *t, uint64_t flags)
{
    struct stat s;
    if (!t->to.inside) return;
    if (!t->to.exists) {
        if (stat(t->to.path, &s) != 0) refuse("%s: made and gone", t->to.path);
        const int object = new_object(s.st_ino);
        put((record_entry){.kind = RECORD_CREATE, .object = object, .dir = t->to.dir}, t->to.name,
            "", NULL);
    } else if (flags & O_TRUNC && t->to.bytes) {
        const int object = find_object(t->to.inode, t->to.path);
        put((record_entry){.kind = RECORD_TRUNCATE, .object = object}, "", "", NULL);
    }
}

static void made_folder(const task *t)
{
    struct stat s;
    if (!t->to.inside) return;
    if (stat(t->to.path, &s) != 0) refuse("%s: made and gone", t->to.path);
    const int object = new_object(s.st_ino);
    put((record_entry){.kind = RECORD_MKDIR, .object = object, .dir = t->to.dir}, t->to.name, "",
        NULL);
}

static void removed(const task *t)
{
    if (t->to.inside)
        put((record_entry){.kind = RECORD_UNLINK, .dir = t->to.dir}, t->to.name, "", NULL);
}

static void linked(const task *t, record_kind kind)
{
    if (!t->from.inside && !t->to.inside) return;
    if (!t->from.inside || !t->to.inside) refuse("%s: comes from elsewhere", t->to.name);
    if (kind == RECORD_RENAME && t->to.exists && t->to.inode == t->from.inode) return;
    put((record_entry){.kind = (int32_t)kind,
                       .object = find_object(t->from.inode, t->from.path),
                       .dir = t->to.dir,
                       .from = t->from.dir},
        t->to.name, t->from.name, NULL);
}

/* Where the next byte goes. */
static uint64_t position(pid_t id, int fd)
{
    char               path[64];
    unsigned long long at = 0;
    char               line[128];
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)id, fd);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(line, sizeof line, f) || strncmp(line, "pos:", 4) != 0)
        refuse("%s: cannot be read", path);
    at = strtoull(line + 4, NULL, 10);
    fclose(f);
    return at;
}

static void wrote(const task *t, bool here, uint64_t bytes)
{
    char      link[64];
    const int fd = (int)t->arg[0], object = bytes ? fd_object(t->id, fd, link) : -1;
    if (object < 0) return;
    put_bytes(link, object, here ? t->arg[3] : position(t->id, fd) - bytes, bytes);
}

static void on_fd(const task *t, record_kind kind, uint64_t offset)
{
    char      link[64];
    const int object = fd_object(t->id, (int)t->arg[0], link);
    if (object < 0) return;
    put((record_entry){.kind = (int32_t)kind, .object = object, .offset = offset}, "", "", NULL);
}

static void after(const task *t, int64_t result)
{
    if (result < 0) return;
    switch (t->nr) {
#ifdef SYS_open
    case SYS_open: opened(t, t->arg[1]); break;
    case SYS_mkdir: made_folder(t); break;
    case SYS_rmdir:
    case SYS_unlink: removed(t); break;
    case SYS_rename: linked(t, RECORD_RENAME); break;
    case SYS_link: linked(t, RECORD_LINK); break;
#endif
    case SYS_openat: opened(t, t->arg[2]); break;
    case SYS_mkdirat: made_folder(t); break;
    case SYS_unlinkat: removed(t); break;
#ifdef SYS_renameat
    case SYS_renameat:
#endif
    case SYS_renameat2: linked(t, RECORD_RENAME); break;
    case SYS_linkat: linked(t, RECORD_LINK); break;
    case SYS_write:
    case SYS_writev: wrote(t, false, (uint64_t)result); break;
    case SYS_pwrite64:
    case SYS_pwritev: wrote(t, true, (uint64_t)result); break;
    case SYS_ftruncate: on_fd(t, RECORD_TRUNCATE, t->arg[1]); break;
    case SYS_fsync:
    case SYS_fdatasync: on_fd(t, RECORD_SYNC, 0); break;
    default: break;
    }
}

/* ---- following ------------------------------------------------------------------------------- */

static task tasks[TASKS];

static task *find_task(pid_t id)
{
    for (int i = 0; i < TASKS; i++)
        if (tasks[i].id == id) return &tasks[i];
    for (int i = 0; i < TASKS; i++)
        if (tasks[i].id == 0) {
            tasks[i] = (task){.id = id, .nr = UINT64_MAX};
            return &tasks[i];
        }
    refuse("more than %d threads", TASKS);
}

static void at_call(task *t)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, t->id, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        t->nr = info.entry.nr;
        for (int i = 0; i < 6; i++) t->arg[i] = info.entry.args[i];
        before(t);
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
        after(t, info.exit.is_error ? -1 : info.exit.rval);
        t->nr = UINT64_MAX;
    }
}

/* The signal to hand on; 0: none. New threads stop once; stops of ptrace are no signals. */
static int at_stop(task *t, int status)
{
    const int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
        at_call(t);
        return 0;
    }
    return status >> 16 || signal == SIGSTOP || signal == SIGTRAP ? 0 : signal;
}

static int follow(pid_t first)
{
    int   status, result = REFUSED;
    pid_t id;
    while ((id = waitpid(-1, &status, __WALL)) > 0) {
        task *t = find_task(id);
        if (WIFSTOPPED(status)) {
            const int signal = at_stop(t, status);
            ptrace(PTRACE_SYSCALL, id, NULL, (void *)(intptr_t)signal);
            continue;
        }
        t->id = 0;
        if (id == first) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return result;
}

static pid_t start(char **command)
{
    const pid_t id = fork();
    int         status;
    if (id < 0) refuse("fork: %s", strerror(errno));
    if (id == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(REFUSED);
        raise(SIGSTOP);
        execvp(command[0], command);
        _exit(127);
    }
    if (waitpid(id, &status, __WALL) != id || !WIFSTOPPED(status)) refuse("no ptrace here");
    if (ptrace(PTRACE_SETOPTIONS, id, NULL,
               (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                        PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)) != 0)
        refuse("no ptrace here");
    ptrace(PTRACE_SYSCALL, id, NULL, NULL);
    return id;
}

int main(int argc, char **argv)
{
    struct stat s;
    if (argc < 4) refuse("expected FOLDER RECORDING COMMAND...");
    if (!realpath(argv[1], root) || stat(root, &s) != 0) refuse("%s: no folder", argv[1]);
    recording = fopen(argv[2], "wbe");
    if (!recording) refuse("%s: %s", argv[2], strerror(errno));
    new_object(s.st_ino);
    walk(root, 0);
    put((record_entry){.kind = RECORD_START}, "", "", NULL);
    const int result = follow(start(argv + 3));
    put((record_entry){.kind = RECORD_END}, "", "", NULL);
    if (fclose(recording) != 0) refuse("cannot write the recording");
    return result;
}
