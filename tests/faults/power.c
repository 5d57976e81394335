/* Power losses: tries a command on every state that one may leave of a recorded folder.
 *   power [-a MOST] [-n STATES] [-s SEED] RECORDING SCRATCH COMMAND...
 * After each change of the recording there are states by the model in disk.h: all combinations
 * when there are no more than MOST (16), else the extremes and a sample of MOST by the seed. Equal
 * ones are tried once. -n tries that many of them, evenly spread. The command runs in a folder with
 * the state, POWER_END=1 when the recorded command had ended before; 0 is success. Its output is
 * shown when it fails. */
#define _XOPEN_SOURCE 700 /* nftw */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "disk.h"

enum { JOBS = 2, SHOWN = 5 };

typedef struct state {
    int      now;
    uint64_t hash;
    int     *choice;
} state;

typedef struct states {
    disk      disk;
    state    *at;
    int       n, room, most, tried; /* tried: how many of them; 0: all */
    int      *choice;               /* the one that is being made */
    uint64_t *seen;                 /* a table of hashes */
    size_t    seen_room;
    uint64_t  seed, drawn;
} states;

static _Noreturn void stop(const char *what)
{
    fprintf(stderr, "power: %s\n", what);
    exit(2);
}

/* ---- which there are ------------------------------------------------------------------------- */

static bool insert(uint64_t *table, size_t room, uint64_t hash)
{
    size_t i = hash & (room - 1);
    while (table[i] && table[i] != hash) i = (i + 1) & (room - 1);
    const bool is_new = !table[i];
    table[i] = hash;
    return is_new;
}

static bool is_new(states *s, uint64_t hash)
{
    if (2 * (size_t)s->n >= s->seen_room) {
        free(s->seen);
        s->seen_room = s->seen_room ? 2 * s->seen_room : 1024;
        s->seen = calloc(s->seen_room, sizeof *s->seen);
        if (!s->seen) stop("out of memory");
        for (int i = 0; i < s->n; i++) insert(s->seen, s->seen_room, s->at[i].hash);
    }
    return insert(s->seen, s->seen_room, hash);
}

static bool has_ended(const states *s, int now) { return now == s->disk.n_changes; }

/* What must hold after the end is more, so a state may come again then. */
static void add(states *s)
{
    const size_t   bytes = (size_t)s->disk.n_objects * sizeof(int);
    const uint64_t hash = (disk_hash(&s->disk, s->choice) ^ has_ended(s, s->disk.now)) | 2;
    if (!is_new(s, hash)) return;
    if (s->n == s->room) {
        s->room = 2 * s->room + 64;
        s->at = realloc(s->at, (size_t)s->room * sizeof *s->at);
        if (!s->at) stop("out of memory");
    }
    state *last = &s->at[s->n++];
    *last = (state){s->disk.now, hash, malloc(bytes)};
    if (!last->choice) stop("out of memory");
    memcpy(last->choice, s->choice, bytes);
}

typedef int (*choose_fn)(const disk *, int object);

static int nothing(const disk *d, int object) { return 0; }

static int names_only(const disk *d, int object)
{
    return d->object[object].is_folder ? disk_all(d, object) : 0;
}

static int newest_only(const disk *d, int object) { return disk_newest(d, object); }

/* All names, and zeros for all bytes. */
static int zeros(const disk *d, int object)
{
    const disk_object *o = &d->object[object];
    return o->is_folder || !o->n ? o->n : 2 * o->n + 1;
}

static void add_by(states *s, choose_fn choose)
{
    for (int i = 0; i < s->disk.n_objects; i++) s->choice[i] = choose(&s->disk, i);
    add(s);
}

/* Each object in turn has all of its changes, and nobody else any; and the other way round. */
static void add_extremes(states *s)
{
    static const choose_fn all[] = {nothing, disk_all, names_only, newest_only, zeros};
    const disk            *d = &s->disk;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) add_by(s, all[k]);
    for (int i = 0; i < d->n_objects; i++) {
        if (disk_choices(d, i) == 1) continue;
        for (int k = 0; k < d->n_objects; k++) s->choice[k] = k == i ? disk_all(d, k) : 0;
        add(s);
        for (int k = 0; k < d->n_objects; k++) s->choice[k] = k == i ? 0 : disk_all(d, k);
        add(s);
    }
}

static uint64_t draw(states *s, uint64_t below)
{
    s->drawn++;
    return dra_hash_of(s->seed, &s->drawn, sizeof s->drawn) % below;
}

static int draw_choice(states *s, int object)
{
    switch (draw(s, 4)) {
    case 0: return 0;
    case 1: return disk_all(&s->disk, object);
    default: return (int)draw(s, (uint64_t)disk_choices(&s->disk, object));
    }
}

/* The next combination, as of a number with many digits; false: that was the last. */
static bool count_on(states *s)
{
    for (int i = 0; i < s->disk.n_objects; i++) {
        if (++s->choice[i] < disk_choices(&s->disk, i)) return true;
        s->choice[i] = 0;
    }
    return false;
}

static void add_moment(states *s)
{
    const disk *d = &s->disk;
    int64_t     ways = 1;
    for (int i = 0; i < d->n_objects && ways <= s->most; i++) ways *= disk_choices(d, i);
    if (ways <= s->most) {
        memset(s->choice, 0, (size_t)d->n_objects * sizeof *s->choice);
        do add(s);
        while (count_on(s));
        return;
    }
    add_extremes(s);
    for (int k = 0; k < s->most; k++) {
        for (int i = 0; i < d->n_objects; i++) s->choice[i] = draw_choice(s, i);
        add(s);
    }
}

static void find_all(states *s)
{
    add_moment(s);
    while (disk_next(&s->disk)) add_moment(s);
}

/* ---- trying ---------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static bool run(char **command, const char *folder, const char *said, bool ended)
{
    int         status;
    const pid_t id = fork();
    if (id < 0) stop("cannot fork");
    if (id == 0) {
        const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
        const int out = open(said, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 ||
            chdir(folder) != 0)
            _exit(126);
        setenv("POWER_END", ended ? "1" : "0", 1);
        execvp(command[0], command);
        _exit(127);
    }
    while (waitpid(id, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void describe(const states *s, const state *at)
{
    static const char *const kinds[RECORD_KINDS] = {
        "start", "end", "create", "mkdir", "link", "rename", "unlink", "write", "truncate", "sync"};
    const disk_change *c = &s->disk.change[at->now - 1];
    char               text[512];
    printf("# after change %d of %d (%s %.*s):", at->now - s->disk.start,
           s->disk.n_changes - s->disk.start, kinds[c->e.kind], (int)c->e.name, c->name);
    for (int i = 0; i < s->disk.n_objects; i++) {
        if (disk_choices(&s->disk, i) == 1) continue;
        disk_describe(&s->disk, i, at->choice[i], text, sizeof text);
        printf(" [%s]", text);
    }
    printf("\n");
}

/* Evenly spread, and the first one after the end. */
static bool is_tried(const states *s, int i)
{
    const int64_t n = s->n, some = s->tried;
    if (!some || some >= n) return true;
    if (has_ended(s, s->at[i].now) && (i == 0 || !has_ended(s, s->at[i - 1].now))) return true;
    return i * some / n != (i + 1) * some / n;
}

static void show(const states *s, const state *at, const char *said)
{
    char  line[400];
    FILE *f = fopen(said, "re");
    describe(s, at);
    while (f && fgets(line, sizeof line, f)) printf("#   %.*s\n", (int)strcspn(line, "\n"), line);
    if (f) fclose(f);
    fflush(stdout);
}

/* Those that fall to one of the jobs. */
static int try_share(states *s, int job, const char *scratch, char **command, int *tried)
{
    char folder[4096], said[4096];
    int  bad = 0, k = 0;
    snprintf(folder, sizeof folder, "%s/%d", scratch, job);
    snprintf(said, sizeof said, "%s/%d.said", scratch, job);
    disk_rewind(&s->disk);
    for (int i = 0; i < s->n; i++) {
        const state *at = &s->at[i];
        if (!is_tried(s, i) || k++ % JOBS != job) continue;
        while (s->disk.now < at->now) disk_next(&s->disk);
        if (mkdir(folder, 0777) != 0 || !disk_write(&s->disk, at->choice, folder))
            stop("cannot write a state");
        ++*tried;
        if (!run(command, folder, said, has_ended(s, at->now)) && ++bad <= SHOWN) show(s, at, said);
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    return bad;
}

static int try_all(states *s, const char *scratch, char **command)
{
    int ends[2], counts[2], bad = 0, tried = 0;
    if (pipe(ends) != 0) stop("no pipe");
    fflush(stdout);
    for (int job = 0; job < JOBS; job++) {
        if (fork() != 0) continue;
        counts[1] = 0;
        counts[0] = try_share(s, job, scratch, command, &counts[1]);
        _exit(write(ends[1], counts, sizeof counts) == sizeof counts ? 0 : 1);
    }
    close(ends[1]);
    int done = 0;
    for (; read(ends[0], counts, sizeof counts) == sizeof counts; done++)
        bad += counts[0], tried += counts[1];
    while (wait(NULL) > 0) {}
    if (done < JOBS) stop("a job has died");
    printf("# %d changes, %d states, %d tried, %d bad\n", s->disk.n_changes - s->disk.start, s->n,
           tried, bad);
    return bad;
}

int main(int argc, char **argv)
{
    states s = {.most = 16, .seed = 1};
    int    option;
    while ((option = getopt(argc, argv, "+a:n:s:")) != -1) {
        const long value = strtol(optarg ? optarg : "", NULL, 10);
        if (option == 'a') s.most = (int)value;
        if (option == 'n') s.tried = (int)value;
        if (option == 's') s.seed = (uint64_t)value;
        if (option == '?') return 2;
    }
    if (argc - optind < 3)
        stop("expected [-a MOST] [-n STATES] [-s SEED] RECORDING SCRATCH COMMAND...");
    disk_open(&s.disk, argv[optind]);
    s.choice = calloc((size_t)s.disk.n_objects, sizeof *s.choice);
    if (!s.choice) stop("out of memory");
    find_all(&s);
    const int bad = try_all(&s, argv[optind + 1], argv + optind + 2);
    for (int i = 0; i < s.n; i++) free(s.at[i].choice);
    free(s.at);
    free(s.seen);
    free(s.choice);
    disk_close(&s.disk);
    return bad ? 1 : 0;
}
