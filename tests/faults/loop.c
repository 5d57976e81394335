/* Runs a command again and again, with another allocation that fails each time (alloc.c), and says
 * which runs neither gave up for want of memory nor did what the command does without a fault.
 *   loop SHIM START RUNS INPUT COMMAND...
 * START is a folder that a copy of is made for every run, as its current folder; INPUT is stdin.
 * RUNS bounds the faults of each mode, which are spread evenly; 0: every allocation fails once.
 * With DRA_FAULT_TRACE=1, everything that bad runs say is printed, and where they failed.
 *
 * A run is good if it ends with status 0 and the output of the run without a fault, on stdout and
 * in files, or with status 1 and a line about memory. Every file then is as in START, or as the
 * whole run makes it, or a log that is shorter. Where there is no memory from some point on, a
 * temporary file may stay, but is gone after the next run. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH = 4096, SHOWN = 12, SECONDS = 120 };

static const char  *shim, *start, *input;
static char *const *command;
static char         here[PATH];

static void die(const char *what)
{
    fprintf(stderr, "loop: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* ---- files and folders ----------------------------------------------------------------------- */

typedef struct bytes {
    char  *at; /* with a zero at the end */
    size_t n;
} bytes;

static const char *join(char path[PATH], const char *folder, const char *name)
{
    if (snprintf(path, PATH, "%s/%s", folder, name) >= PATH) die("path too long");
    return path;
}

static bool read_file(const char *path, bytes *b)
{
    FILE       *f = fopen(path, "rb");
    struct stat s;
    *b = (bytes){0};
    if (!f) return false;
    if (fstat(fileno(f), &s) != 0 || !(b->at = calloc(1, (size_t)s.st_size + 1))) die(path);
    b->n = fread(b->at, 1, (size_t)s.st_size, f);
    fclose(f);
    return true;
}

static void write_file(const char *path, const bytes *b)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->at, 1, b->n, f) != b->n || fclose(f) != 0) die(path);
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *w)
{
    (void)s, (void)kind, (void)w;
    return remove(path);
}

static void remove_tree(const char *path) { nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS); }

static size_t copy_skip;
static char   copy_to[PATH];

static int copy_one(const char *path, const struct stat *s, int kind, struct FTW *w)
{
    char to[PATH * 2];
    (void)s, (void)w;
    snprintf(to, sizeof to, "%s%s", copy_to, path + copy_skip);
    if (kind == FTW_D) return mkdir(to, 0755) != 0 && errno != EEXIST;
    bytes b;
    if (!read_file(path, &b)) return 1;
    write_file(to, &b);
    free(b.at);
    return 0;
}

static void copy_tree(const char *from, const char *to)
{
    copy_skip = strlen(from);
    snprintf(copy_to, sizeof copy_to, "%s", to);
    if (nftw(from, copy_one, 32, FTW_PHYS) != 0) die(from);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

typedef enum likeness { SAME, CUT, OTHER, NONE } likeness;

/* How a file of the run compares with one of the same name. */
static likeness compare(const char *found, const char *expected)
{
    bytes    a, b;
    likeness is = OTHER;
    if (!read_file(found, &a)) return NONE;
    if (!read_file(expected, &b)) {
        free(a.at);
        return NONE;
    }
    if (a.n <= b.n && memcmp(a.at, b.at, a.n) == 0) is = a.n == b.n ? SAME : CUT;
    free(a.at);
    free(b.at);
    return is;
}

static const char *tree_work, *tree_good;
static bool        tree_whole;     /* the run ended well: all files are as they should be */
static bool        tree_temporary; /* one was found that its name says will go */
static char        tree_fault[PATH * 2];

/* Files of a run that failed, but whose parts are independent: those that tell what was done. */
static bool may_differ(const char *name)
{
    const char *list = getenv("DRA_FAULT_MAY_DIFFER");
    return list && strstr(list, name);
}

static int check_one(const char *path, const struct stat *s, int kind, struct FTW *w)
{
    char        good[PATH], before[PATH];
    const char *name = path + strlen(tree_work) + 1;
    (void)s;
    if (kind != FTW_F) return 0;
    const likeness new = compare(path, join(good, tree_good, name));
    if (new == SAME) return 0;
    if (!tree_whole && compare(path, join(before, start, name)) == SAME) return 0;
    if (!tree_whole && new == CUT && ends_in(name, ".jsonl")) return 0;
    if (!tree_whole && may_differ(path + w->base)) return 0;
    if (!tree_whole && strstr(name, ".tmp")) {
        tree_temporary = true;
        return 0;
    }
    snprintf(tree_fault, sizeof tree_fault, "%s is %s", name,
             new == NONE  ? "left over"
             : new == CUT ? "cut off"
                          : "another file");
    return 1;
}

static int check_there(const char *path, const struct stat *s, int kind, struct FTW *w)
{
    char        found[PATH];
    const char *name = path + strlen(tree_good) + 1;
    (void)s, (void)w;
    if (kind != FTW_F || access(join(found, tree_work, name), F_OK) == 0) return 0;
    snprintf(tree_fault, sizeof tree_fault, "%s is missing", name);
    return 1;
}

/* NULL, or what is wrong with the files of a run. */
static const char *tree_wrong(const char *work, const char *good, bool whole)
{
    tree_temporary = false;
    tree_work = work, tree_good = good, tree_whole = whole;
    if (nftw(work, check_one, 32, FTW_PHYS) != 0) return tree_fault;
    if (whole && nftw(good, check_there, 32, FTW_PHYS) != 0) return tree_fault;
    return NULL;
}

/* ---- running --------------------------------------------------------------------------------- */

static void redirect(int fd, const char *path, int flags)
{
    const int file = open(path, flags, 0644);
    if (file < 0 || dup2(file, fd) < 0) _exit(98);
    close(file);
}

static void set_number(const char *name, long n)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", n);
    setenv(name, text, 1);
}

/* Runs the command in a folder; `at` 0: without a fault. */
static int run(const char *folder, long at, const char *mode)
{
    char out[PATH], err[PATH], count[PATH];
    int  status = 0;
    join(out, here, "out"), join(err, here, "err"), join(count, here, "count");
    const pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        redirect(0, input, O_RDONLY);
        redirect(1, out, O_WRONLY | O_CREAT | O_TRUNC);
        redirect(2, err, O_WRONLY | O_CREAT | O_TRUNC);
        set_number("DRA_FAULT_AT", at);
        setenv("DRA_FAULT_MODE", mode, 1);
        if (at == 0) setenv("DRA_FAULT_COUNT", count, 1);
        setenv("LD_PRELOAD", shim, 1);
        setenv("HOME", folder, 1);
        alarm(SECONDS); /* whoever hangs is killed */
        if (chdir(folder) == 0) execvp(command[0], command);
        _exit(97);
    }
    if (waitpid(child, &status, 0) != child) die("wait");
    return status;
}

/* Where the fault was, for which alloc.c has to be told to say it: everything. */
static void show_trace(void)
{
    char  path[PATH];
    bytes b;
    if (!getenv("DRA_FAULT_TRACE") || !read_file(join(path, here, "err"), &b)) return;
    fwrite(b.at, 1, b.n, stdout);
    free(b.at);
}

static const char *last_line(void)
{
    static char text[PATH];
    char        path[PATH];
    bytes       b;
    if (!read_file(join(path, here, "err"), &b)) return "";
    while (b.n && b.at[b.n - 1] == '\n') b.at[--b.n] = '\0';
    const char *line = strrchr(b.at, '\n');
    snprintf(text, sizeof text, "%.200s", line ? line + 1 : b.at);
    free(b.at);
    return text;
}

static bool says_memory(void)
{
    static const char words[] = "out of memory";
    char              path[PATH];
    bytes             b;
    bool              found = false;
    if (!read_file(join(path, here, "err"), &b)) return false;
    for (const char *p = b.at; *p && !found; p++)
        found = strncasecmp(p, words, sizeof words - 1) == 0;
    free(b.at);
    return found;
}

static void prepare(const char *folder)
{
    remove_tree(folder);
    copy_tree(start, folder);
}

/* What a run left is gone after the next one. */
static const char *left_over(const char *work, const char *good)
{
    run(work, 0, "once");
    tree_wrong(work, good, false);
    return tree_temporary ? "leaves a temporary file for good" : NULL;
}

/* NULL, or what is wrong with a run that ended like this. */
static const char *run_wrong(int status, const char *mode, const char *work, const char *good)
{
    static char text[64];
    char        out[PATH], expected[PATH];
    if (!WIFEXITED(status)) {
        snprintf(text, sizeof text, "killed by signal %d", WTERMSIG(status));
        return text;
    }
    const int code = WEXITSTATUS(status);
    if (code > 1) {
        snprintf(text, sizeof text, "exit status %d", code);
        return text;
    }
    if (code == 1 && !says_memory()) return "another message";
    if (code == 0 && compare(join(out, here, "out"), join(expected, here, "good.out")) != SAME)
        return "status 0, but another output";
    const char *wrong = tree_wrong(work, good, code == 0);
    if (wrong || !tree_temporary) return wrong;
    return strcmp(mode, "once") == 0 ? "leaves a temporary file" : left_over(work, good);
}

/* ---- the loop -------------------------------------------------------------------------------- */

typedef struct counts {
    long tried, same, refused, bad;
} counts;

static void try_one(long at, const char *mode, const char *work, const char *good, counts *c)
{
    prepare(work);
    const int   status = run(work, at, mode);
    const char *wrong = run_wrong(status, mode, work, good);
    c->tried++;
    if (!wrong && WEXITSTATUS(status) == 0) c->same++;
    if (!wrong && WEXITSTATUS(status) == 1) c->refused++;
    if (!wrong || (c->bad++ >= SHOWN && !getenv("DRA_FAULT_TRACE"))) return;
    printf("%s %ld: %s: %s\n", mode, at, wrong, last_line());
    show_trace();
}

/* All runs are in the same folder, whose path may be in what they write. */
static long measure(const char *work, const char *good)
{
    char  path[PATH], kept[PATH];
    bytes b;
    prepare(work);
    const int status = run(work, 0, "once");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        printf("fails without a fault: %s\n", last_line());
        exit(1);
    }
    if (rename(join(path, here, "out"), join(kept, here, "good.out")) != 0) die(path);
    if (rename(work, good) != 0) die(work);
    if (!read_file(join(path, here, "count"), &b)) die(path);
    const long n = strtol(b.at, NULL, 10);
    free(b.at);
    return n;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"once", "from"};
    char                     good[PATH], work[PATH];
    counts                   c = {0};
    if (argc < 6) {
        fputs("usage: loop SHIM START RUNS INPUT COMMAND...\n", stderr);
        return 2;
    }
    shim = argv[1], start = argv[2], input = argv[4], command = argv + 5;
    const long  runs = strtol(argv[3], NULL, 10);
    const char *tmp = getenv("TMPDIR");
    snprintf(here, sizeof here, "%s/loop-%ld", tmp ? tmp : "/tmp", (long)getpid());
    if (mkdir(here, 0700) != 0) die(here);
    join(good, here, "good"), join(work, here, "work");
    const long n = measure(work, good), stride = runs && n > runs ? n / runs : 1;
    for (int m = 0; m < 2; m++) /* the second mode starts elsewhere, to meet other places */
        for (long at = 1 + m * (stride / 2); at <= n; at += stride)
            try_one(at, modes[m], work, good, &c);
    printf("%ld allocations, %ld faults: %ld refused, %ld without effect, %ld bad\n", n, c.tried,
           c.refused, c.same, c.bad);
    remove_tree(here);
    return c.bad > 0;
}
