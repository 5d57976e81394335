/* Runs a command under ptrace and lets one of its system calls that touch files fail, or kills the
 * command there. Calls are numbered from 1 in the order in which they are made, from the moment the
 * command ignores SIGXFSZ, as dra does first of all: what the loader did before is not its own.
 *
 *   calls --probe                     status 0 where this machine permits all of it
 *   calls --count COMMAND...          prints how many calls there are
 *   calls --at N FAULT COMMAND...     FAULT: a name such as EIO, kill-before or kill-after
 *   calls --loop NAME --from DIR --work DIR --check TEXT --faults LIST [--most N] COMMAND...
 *
 * The loop tries each fault at each call; with --most, about N pairs of them, spread evenly. Each
 * time WORK is a fresh copy of FROM in which the command runs with its streams in WORK.out and
 * WORK.err. A fault must end in status 0 with the output of a run without fault, or in status 1
 * with a last line on stderr; an interrupted call (EINTR) in status 0. Then `sh -c TEXT` must
 * succeed in WORK; FAULT and STATUS (0, 1 or killed) are in its environment. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

/* ---- what counts ----------------------------------------------------------------------------- */

static const struct {
    long        number;
    const char *name;
    int         fd; /* which argument is a file that must be open; -1: none */
} calls[] = {
#define CALL(name, fd)                                                                             \
    {                                                                                              \
        SYS_##name, #name, fd                                                                      \
    }
    CALL(openat, -1),   CALL(read, 0),       CALL(pread64, 0),     CALL(write, 0),
    CALL(pwrite64, 0),  CALL(writev, 0),     CALL(close, 0),       CALL(fsync, 0),
    CALL(fdatasync, 0), CALL(renameat2, -1), CALL(unlinkat, -1),   CALL(mkdirat, -1),
    CALL(ftruncate, 0), CALL(fstat, 0),      CALL(statx, -1),      CALL(newfstatat, -1),
    CALL(flock, 0),     CALL(lseek, 0),      CALL(mmap, 4),        CALL(getdents64, 0),
    CALL(linkat, -1),   CALL(faccessat, -1), CALL(faccessat2, -1),
#ifdef SYS_renameat
    CALL(renameat, -1),
#endif
#ifdef SYS_open
    CALL(open, -1),     CALL(rename, -1),    CALL(unlink, -1),     CALL(rmdir, -1),
    CALL(mkdir, -1),    CALL(stat, -1),      CALL(lstat, -1),      CALL(link, -1),
    CALL(access, -1),
#endif
#undef CALL
};

/* Messages on stderr are the answer to a fault, and stdin is not a file of ours. */
static const char *counted(const struct ptrace_syscall_info *s)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if ((uint64_t)calls[i].number != s->entry.nr) continue;
        const int fd = calls[i].fd < 0 ? 1 : (int)s->entry.args[calls[i].fd];
        return fd < 0 || fd == STDIN_FILENO || fd == STDERR_FILENO ? NULL : calls[i].name;
    }
    return NULL;
}

static bool is_stdout(const struct ptrace_syscall_info *s)
{
    return (s->entry.nr == SYS_write || s->entry.nr == SYS_writev) &&
           s->entry.args[0] == STDOUT_FILENO;
}

/* ---- registers ------------------------------------------------------------------------------- */

static bool skip_call(pid_t pid)
{
#ifdef __x86_64__
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &r) != 0) return false;
    r.orig_rax = (unsigned long long)-1;
    return ptrace(PTRACE_SETREGS, pid, NULL, &r) == 0;
#else
    int          none = -1;
    struct iovec v = {&none, sizeof none};
    return ptrace(PTRACE_SETREGSET, pid, (void *)NT_ARM_SYSTEM_CALL, &v) == 0;
#endif
}

static bool set_result(pid_t pid, long result)
{
#ifdef __x86_64__
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &r) != 0) return false;
    r.rax = (unsigned long long)result;
    return ptrace(PTRACE_SETREGS, pid, NULL, &r) == 0;
#else
    struct user_regs_struct r;
    struct iovec            v = {&r, sizeof r};
    if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &v) != 0) return false;
    r.regs[0] = (unsigned long long)result;
    return ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &v) == 0;
#endif
}

/* ---- one run --------------------------------------------------------------------------------- */

typedef struct fault {
    const char *name;
    int         number; /* errno; 0: a kill */
    bool        after;
} fault;

static const fault faults[] = {
    {"ENOSPC", ENOSPC, false}, {"EIO", EIO, false},       {"EACCES", EACCES, false},
    {"EINTR", EINTR, false},   {"EMFILE", EMFILE, false}, {"kill-before", 0, false},
    {"kill-after", 0, true},   {"none", 0, false},
};

static const fault *find_fault(const char *name)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (strcmp(faults[i].name, name) == 0) return &faults[i];
    fprintf(stderr, "calls: no fault is called %s\n", name);
    exit(2);
}

typedef struct traced {
    long         at; /* the call that fails; 0: none */
    const fault *fault;
    long         seen;         /* calls up to now */
    const char  *where;        /* the call that failed */
    bool         begun, skips; /* skips: a write to stdout is not interrupted */
    pid_t        hit;          /* the thread whose call is being replaced */
    int          status;
} traced;

static void enter(traced *t, pid_t first, pid_t pid, const struct ptrace_syscall_info *s)
{
    if (s->entry.nr == SYS_rt_sigaction && s->entry.args[0] == SIGXFSZ) t->begun = true;
    const char *name = t->begun ? counted(s) : NULL;
    if (!name || ++t->seen != t->at) return;
    t->where = name;
    t->skips = t->fault->number == EINTR && is_stdout(s);
    if (t->skips) return;
    t->hit = pid;
    if (t->fault->number)
        skip_call(pid);
    else if (!t->fault->after)
        kill(first, SIGKILL);
}

static void leave(traced *t, pid_t first, pid_t pid)
{
    if (t->hit != pid) return;
    t->hit = 0;
    if (t->fault->number)
        set_result(pid, -t->fault->number);
    else
        kill(first, SIGKILL);
}

/* What a stop was for; returns the signal that the thread gets. */
static int answer(traced *t, pid_t first, pid_t pid, int status)
{
    struct ptrace_syscall_info s;
    const int                  signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
        if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof s, &s) > 0) {
            if (s.op == PTRACE_SYSCALL_INFO_ENTRY) enter(t, first, pid, &s);
            if (s.op == PTRACE_SYSCALL_INFO_EXIT) leave(t, first, pid);
        }
        return 0;
    }
    if (signal == SIGTRAP || (signal == SIGSTOP && pid != first)) return 0; /* a clone, an exec */
    return signal;
}

static void trace(traced *t, pid_t first)
{
    const long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE |
                         PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
    int   status;
    pid_t pid = waitpid(first, &status, 0);
    if (pid != first || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, first, NULL, (void *)options) != 0) {
        fputs("calls: ptrace is not permitted\n", stderr);
        exit(3);
    }
    ptrace(PTRACE_SYSCALL, first, NULL, NULL);
    while ((pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        if (pid < 0) continue;
        if (pid == first && (WIFEXITED(status) || WIFSIGNALED(status))) t->status = status;
        if (!WIFSTOPPED(status)) continue;
        const int signal = answer(t, first, pid, status);
        ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)signal);
    }
}

static void redirect(const char *path, int fd)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || dup2(file, fd) < 0) _exit(126);
    close(file);
}

static void run(traced *t, const char *folder, const char *out, const char *err, char **command)
{
    const pid_t pid = fork();
    if (pid == 0) {
        const int none = open("/dev/null", O_RDONLY);
        if (none < 0 || dup2(none, STDIN_FILENO) < 0) _exit(126);
        close(none);
        if (out) redirect(out, STDOUT_FILENO);
        if (err) redirect(err, STDERR_FILENO);
        if (folder && chdir(folder) != 0) _exit(126);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(3);
        raise(SIGSTOP);
        execvp(command[0], command);
        _exit(127);
    }
    if (pid < 0) exit(2);
    trace(t, pid);
}

/* ---- the loop -------------------------------------------------------------------------------- */

enum { PATH = 4096 };

typedef struct loop {
    const char *name, *from, *work, *check;
    char       *list;
    long        most;
    char      **command;
    char        out[PATH], err[PATH], said[PATH], expected[PATH];
} loop;

static int run_plainly(const char *folder, const char *said, char *const *words)
{
    int         status = -1;
    const pid_t pid = fork();
    if (pid == 0) {
        if (said) redirect(said, STDOUT_FILENO), dup2(STDOUT_FILENO, STDERR_FILENO);
        if (folder && chdir(folder) != 0) _exit(126);
        execvp(words[0], words);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

static void make_fresh(const loop *l)
{
    char *const clear[] = {"rm", "-rf", (char *)(uintptr_t)l->work, NULL};
    char *const copy[] = {"cp", "-a", (char *)(uintptr_t)l->from, (char *)(uintptr_t)l->work, NULL};
    if (run_plainly(NULL, NULL, clear) == 0 && run_plainly(NULL, NULL, copy) == 0) return;
    fprintf(stderr, "calls: cannot copy %s\n", l->from);
    exit(2);
}

/* At most `most` - 1 bytes of a file, with a 0 at the end. */
static size_t read_start(const char *path, char *text, size_t most)
{
    FILE        *f = fopen(path, "rb");
    const size_t n = f ? fread(text, 1, most - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    return n;
}

static bool same_output(const loop *l)
{
    static char  a[1 << 16], b[1 << 16];
    const size_t n = read_start(l->out, a, sizeof a), m = read_start(l->expected, b, sizeof b);
    return n == m && memcmp(a, b, n) == 0;
}

static bool has_error_line(const loop *l)
{
    char         text[1 << 14];
    const size_t n = read_start(l->err, text, sizeof text);
    if (n < 2 || text[n - 1] != '\n') return false;
    text[n - 1] = '\0';
    const char *last = strrchr(text, '\n');
    last = last ? last + 1 : text;
    return strncmp(last, "dra", 3) == 0 && strchr(last, ':');
}

/* What is wrong about how a run ended; NULL: nothing. *said: for the check. */
static const char *judge(const loop *l, const traced *t, const char **said)
{
    *said = "killed";
    if (WIFSIGNALED(t->status))
        return t->fault->number == 0 && WTERMSIG(t->status) == SIGKILL ? NULL : "died of a signal";
    *said = WEXITSTATUS(t->status) == 0 ? "0" : "1";
    if (WEXITSTATUS(t->status) == 0) return same_output(l) ? NULL : "status 0 with another output";
    if (WEXITSTATUS(t->status) != 1) return "a status other than 0 and 1";
    if (t->fault->number == EINTR) return "an interrupted call was not made again";
    return has_error_line(l) ? NULL : "status 1 without a line that says why";
}

static void report(const loop *l, const traced *t, const char *why)
{
    char text[2000];
    printf("# %s: %s at call %ld (%s): %s\n", l->name, t->fault->name, t->at, t->where, why);
    const char *files[] = {l->err, l->said};
    for (int i = 0; i < 2; i++)
        if (read_start(files[i], text, sizeof text)) printf("#   %s\n", text);
    fflush(stdout);
}

static bool try_fault(const loop *l, const fault *f, long at)
{
    traced      t = {.at = at, .fault = f, .where = "none"};
    const char *said;
    make_fresh(l);
    unlink(l->said);
    run(&t, l->work, l->out, l->err, l->command);
    const char *why = judge(l, &t, &said);
    if (!why) {
        char *const words[] = {"sh", "-c", (char *)(uintptr_t)l->check, NULL};
        setenv("FAULT", f->name, 1);
        setenv("STATUS", said, 1);
        if (run_plainly(l->work, l->said, words) != 0) why = "the check failed";
    }
    if (why) report(l, &t, why);
    return !why;
}

/* A run without fault; returns how many calls it makes. */
static long rehearse(const loop *l)
{
    traced t = {.fault = find_fault("none")};
    make_fresh(l);
    run(&t, l->work, l->expected, l->err, l->command);
    if (WIFEXITED(t.status) && WEXITSTATUS(t.status) == 0 && t.seen > 0) return t.seen;
    printf("# %s: fails without a fault, or makes no calls\n", l->name);
    report(l, &t, "none");
    return 0;
}

static int loop_all(loop *l)
{
    const fault *f[sizeof faults / sizeof *faults];
    long         n = 0, bad = 0, tried = 0;
    char        *rest = l->list, *name;
    while ((name = strsep(&rest, " "))) f[n++] = find_fault(name);
    const long seen = rehearse(l), pairs = seen * n;
    /* Another fault at each call; a step without common factors with n visits all of them. */
    const long few = l->most > 0 && l->most < pairs ? l->most : pairs;
    for (long i = 0; i < few; i++) {
        const long pair = (long)((double)i * (double)pairs / (double)few);
        tried++;
        if (!try_fault(l, f[(pair + i) % n], pair / n + 1) && ++bad >= 20) break;
    }
    printf("# %s: %ld calls, %ld faults tried, %ld wrong\n", l->name, seen, tried, bad);
    return seen > 0 && bad == 0 ? 0 : 1;
}

static int main_loop(int argc, char **argv)
{
    loop l = {.name = argv[2]};
    int  i = 3;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--from") == 0) l.from = argv[i + 1];
        if (strcmp(argv[i], "--work") == 0) l.work = argv[i + 1];
        if (strcmp(argv[i], "--check") == 0) l.check = argv[i + 1];
        if (strcmp(argv[i], "--faults") == 0) l.list = argv[i + 1];
        if (strcmp(argv[i], "--most") == 0) l.most = strtol(argv[i + 1], NULL, 10);
    }
    l.command = argv + i;
    if (!l.from || !l.work || !l.check || !l.list || !argv[i]) return 2;
    snprintf(l.out, PATH, "%s.out", l.work);
    snprintf(l.err, PATH, "%s.err", l.work);
    snprintf(l.said, PATH, "%s.said", l.work);
    snprintf(l.expected, PATH, "%s.expected", l.work);
    return loop_all(&l);
}

/* ---- single runs ----------------------------------------------------------------------------- */

static int main_count(char **command)
{
    traced t = {.fault = find_fault("none")};
    run(&t, NULL, "/dev/null", NULL, command);
    printf("%ld\n", t.seen);
    return t.seen > 0 ? 0 : 1;
}

static int main_at(char **argv)
{
    traced t = {.at = strtol(argv[2], NULL, 10), .fault = find_fault(argv[3])};
    run(&t, NULL, NULL, NULL, argv + 4);
    fprintf(stderr, "calls: %s at call %ld (%s)\n", t.fault->name, t.at,
            t.where ? t.where : "none");
    return WIFEXITED(t.status) ? WEXITSTATUS(t.status) : 128 + WTERMSIG(t.status);
}

/* A kill at a call shows whether calls are seen here. */
static int main_probe(void)
{
    traced      t = {.at = 1, .fault = find_fault("kill-before"), .begun = true};
    char *const words[] = {"cat", "/dev/null", NULL};
    run(&t, NULL, "/dev/null", "/dev/null", (char **)(uintptr_t)words);
    return WIFSIGNALED(t.status) && WTERMSIG(t.status) == SIGKILL ? 0 : 3;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--probe") == 0) return main_probe();
    if (argc > 2 && strcmp(argv[1], "--count") == 0) return main_count(argv + 2);
    if (argc > 4 && strcmp(argv[1], "--at") == 0) return main_at(argv);
    if (argc > 4 && strcmp(argv[1], "--loop") == 0) return main_loop(argc, argv);
    fputs("usage: calls --probe | --count COMMAND... | --at N FAULT COMMAND... | --loop ...\n",
          stderr);
    return 2;
}
