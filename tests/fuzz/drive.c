/* The driver that needs nothing but a compiler.
 *   fuzz_NAME SECONDS [SEED]   makes good inputs, damages them and tries each. Try number n has
 *                              seed SEED + n; SECONDS 0 makes one try.
 *   fuzz_NAME --replay FOLDER  tries every file of a folder, as a test.
 *   fuzz_NAME --file FILE      tries one. */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <time.h>

#include "mutate.h"

enum { DAMAGES = 24, SLOW = 20 /* seconds; a sanitizer on a busy machine is slow, too */ };

uint64_t fuzz_seed;
uint32_t fuzz_drawn;

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static char     file[4096]; /* that is tried now; empty: what is drawn from `seed` */
static uint64_t seed;
static long     damaged, accepted;

/* ---- when something is wrong ----------------------------------------------------------------- */

static void tell(void)
{
    if (file[0])
        printf("not ok 1 - " FUZZ_NAME ": %s\nreproduce: fuzz_" FUZZ_NAME " --file %s\n", file,
               file);
    else
        printf("FAILED, seed %" PRIu64 "\nreproduce: fuzz_" FUZZ_NAME " 0 %" PRIu64 "\n", seed,
               seed);
    fflush(stdout);
}

_Noreturn void broken(const char *what)
{
    printf("# broken: %s\n", what);
    tell();
    exit(1);
}

/* Not safe in a handler by the book; the program is lost anyway. */
static void on_signal(int number)
{
    if (number == SIGALRM) printf("# an input took more than %d s\n", SLOW);
    signal(number, SIG_DFL);
    tell();
    if (number == SIGALRM) _exit(1);
    raise(number);
}

static void listen_all(void)
{
    static const int numbers[] = {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
    const bool       sanitized = __sanitizer_set_death_callback != NULL; /* says more by itself */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < (sanitized ? 2 : COUNT(numbers)); i++) signal(numbers[i], on_signal);
    if (sanitized) __sanitizer_set_death_callback(tell);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool try_bytes(const uint8_t *data, size_t bytes)
{
    alarm(SLOW);
    const bool yes = harness(data, bytes);
    alarm(0);
    return yes;
}

static void try_file(const char *path)
{
    uint8_t *data = NULL;
    size_t   n = 0, room = 0, some = 1;
    FILE    *f = fopen(path, "rb");
    snprintf(file, sizeof file, "%s", path);
    if (!f) broken("cannot read it");
    for (; some; n += some) {
        if (n == room) data = realloc(data, room = 2 * room + FUZZ_MOST);
        if (!data) broken("no memory");
        some = fread(data + n, 1, room - n, f);
    }
    fclose(f);
    fuzz_draw_from(n); /* as the driver for libFuzzer does */
    uint8_t *exact = exact_copy(data, n);
    try_bytes(exact, n);
    free(exact);
    free(data);
}

static int replay(const char *folder)
{
    DIR                 *d = opendir(folder);
    const struct dirent *e;
    int                  n = 0;
    printf("1..1\n");
    snprintf(file, sizeof file, "%s", folder);
    if (!d) broken("cannot read the folder");
    while ((e = readdir(d))) {
        char path[4096];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        try_file(path);
        n++;
    }
    closedir(d);
    if (n == 0) broken("no inputs are stored");
    printf("ok 1 - " FUZZ_NAME ": %d inputs\n", n);
    return 0;
}

/* ---- tries ----------------------------------------------------------------------------------- */

/* A good input, then the same with more and more damage. */
static void one_try(void)
{
    static fuzz_bytes good, bad;
    good.n = 0;
    fuzz_this.make(&good);
    alarm(SLOW);
    if (fuzz_this.made)
        fuzz_this.made(&good);
    else if (!harness(good.at, good.n))
        broken("what was made is refused");
    for (int i = 0; i < DAMAGES; i++, damaged++) {
        if (i % 4 == 0) bad = good;
        mutate(&bad, &fuzz_this);
        accepted += try_bytes(bad.at, bad.n);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int tries(double seconds, uint64_t first)
{
    const double start = now();
    long         n = 0;
    printf("first seed %" PRIu64 "\n", first);
    for (; n == 0 || now() - start < seconds; n++) {
        fuzz_draw_from(seed = first + (uint64_t)n);
        one_try();
    }
    printf("%5.0f s  %ld executions, %ld of them damaged, %ld of these accepted\n", now() - start,
           n + damaged, damaged, accepted);
    return 0;
}

int main(int argc, char **argv)
{
    listen_all();
    if (fuzz_this.begin) fuzz_this.begin();
    if (fuzz_this.end) atexit(fuzz_this.end);
    if (argc == 3 && strcmp(argv[1], "--replay") == 0) return replay(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--file") == 0) return try_file(argv[2]), 0;
    return tries(argc > 1 ? strtod(argv[1], NULL) : 10,
                 argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL) * 1000003);
}
