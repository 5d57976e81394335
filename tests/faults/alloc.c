/* Preloaded into a process, makes one of its allocations fail: LD_PRELOAD=alloc.so with
 *   DRA_FAULT_AT=N        the Nth allocation since main() fails (from 1 up; without it, none)
 *   DRA_FAULT_MODE=from   and so do all that follow; once (the default): only that one
 *   DRA_FAULT_COUNT=FILE  the number of allocations is written there at the end
 *   DRA_FAULT_TRACE=1     who asked for the one that fails is written to stderr
 *   DRA_FAULT_CLOCK=goes  clocks are those of the system, for what waits
 * Allocations are those of the malloc family, anonymous mappings (the system's own are not seen)
 * and threads. Clocks stand still, if nothing else is asked for, so that output has no times that
 * differ, and nothing is synced, which would take longer than all the rest. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { STILL = 1700000000 }; /* the time it is */

static atomic_long        asked;
static atomic_bool        counting;
static long               fails_at;
static bool               fails_from;
static bool               traces;
static bool               clock_goes;
static _Thread_local bool within; /* what the calls below ask for themselves */

/* ---- the functions that come next ------------------------------------------------------------ */

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int (*clock_gettime)(clockid_t, struct timespec *);
} next;

/* dlsym() itself may ask for memory before there is any: it gets some of this, never freed. */
static _Alignas(16) unsigned char early[1 << 14];
static size_t early_used;

static bool is_early(const void *p)
{
    return (uintptr_t)p >= (uintptr_t)early && (uintptr_t)p < (uintptr_t)early + sizeof early;
}

static void *early_alloc(size_t n)
{
    const size_t at = early_used;
    n = (n + 15) / 16 * 16;
    if (n > sizeof early - at) return NULL;
    early_used += n;
    return early + at;
}

static void find(const char *name, void *into)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(into, &found, sizeof found);
}

static bool found(void)
{
    static bool looking;
    if (next.free) return true;
    if (looking) return false;
    looking = true;
    find("malloc", &next.malloc);
    find("calloc", &next.calloc);
    find("realloc", &next.realloc);
    find("aligned_alloc", &next.aligned_alloc);
    find("posix_memalign", &next.posix_memalign);
    find("mmap", &next.mmap);
    find("pthread_create", &next.pthread_create);
    find("clock_gettime", &next.clock_gettime);
    find("free", &next.free);
    looking = false;
    return true;
}

/* ---- counting -------------------------------------------------------------------------------- */

static void trace(void)
{
    void *frames[64];
    within = true;
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    within = false;
}

static bool succeeds(void)
{
    if (!counting || within) return true;
    const long n = ++asked;
    if (!fails_at || (fails_from ? n < fails_at : n != fails_at)) return true;
    if (traces && n == fails_at) trace();
    errno = ENOMEM;
    return false;
}

static long count_of(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **env)
{
    const char *mode = getenv("DRA_FAULT_MODE");
    fails_at = count_of("DRA_FAULT_AT");
    traces = count_of("DRA_FAULT_TRACE") != 0;
    clock_goes = getenv("DRA_FAULT_CLOCK") != NULL;
    fails_from = mode && strcmp(mode, "from") == 0;
    if (traces) { /* its first call loads a library */
        void *frame;
        backtrace(&frame, 1);
    }
    counting = true;
    const int status = real_main(argc, argv, env);
    counting = false;
    return status;
}

EXPORT int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                             int (*init)(int, char **, char **), void (*fini)(void),
                             void (*loader)(void), void *stack_end);

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                      int (*init)(int, char **, char **), void (*fini)(void), void (*loader)(void),
                      void *stack_end)
{
    int (*start)(int (*)(int, char **, char **), int, char **, int (*)(int, char **, char **),
                 void (*)(void), void (*)(void), void *);
    find("__libc_start_main", &start);
    real_main = main;
    return start(counted_main, argc, argv, init, fini, loader, stack_end);
}

static __attribute__((destructor)) void write_count(void)
{
    const char *path = getenv("DRA_FAULT_COUNT");
    char        text[32];
    const int   fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    if (fd < 0) return;
    const int n = snprintf(text, sizeof text, "%ld\n", (long)asked);
    if (write(fd, text, (size_t)n) != n) _exit(99);
    close(fd);
}

/* ---- in place of the system's ---------------------------------------------------------------- */

EXPORT void *malloc(size_t n)
{
    if (!found()) return early_alloc(n);
    return succeeds() ? next.malloc(n) : NULL;
}

EXPORT void *calloc(size_t n, size_t size)
{
    if (!found()) return n && size > sizeof early / n ? NULL : early_alloc(n * size);
    return succeeds() ? next.calloc(n, size) : NULL;
}

EXPORT void *realloc(void *p, size_t n)
{
    if (!found() || !succeeds()) return NULL;
    return next.realloc(p, n);
}

EXPORT void *reallocarray(void *p, size_t n, size_t size)
{
    if (n && size > SIZE_MAX / n) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, n * size);
}

EXPORT void free(void *p)
{
    if (p && !is_early(p) && found()) next.free(p);
}

EXPORT void *aligned_alloc(size_t align, size_t n)
{
    return found() && succeeds() ? next.aligned_alloc(align, n) : NULL;
}

EXPORT int posix_memalign(void **p, size_t align, size_t n)
{
    return found() && succeeds() ? next.posix_memalign(p, align, n) : ENOMEM;
}

EXPORT void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (!found()) return MAP_FAILED;
    if ((flags & MAP_ANONYMOUS) && !succeeds()) return MAP_FAILED;
    return next.mmap(at, n, protection, flags, fd, offset);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *with)
{
    return found() && succeeds() ? next.pthread_create(thread, attr, run, with) : EAGAIN;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock_goes && found()) return next.clock_gettime(clock, now);
    *now = (struct timespec){.tv_sec = STILL};
    return 0;
}

EXPORT time_t time(time_t *now)
{
    if (now) *now = STILL;
    return STILL;
}

EXPORT int fsync(int fd) { return fcntl(fd, F_GETFD) < 0 ? -1 : 0; }
EXPORT int fdatasync(int fd) { return fsync(fd); }
