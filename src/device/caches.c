/* The data caches of the processor, from the files of Linux. */
#include "device/caches.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KIB = 1024, LEVELS = 3, INDICES = 8 };

/* What a short file of the kernel says; these come whole. */
static bool read_text(int index, const char *name, char *text, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    const int f = open(path, O_RDONLY | O_CLOEXEC);
    if (f < 0) return false;
    ssize_t n;
    do n = read(f, text, size - 1);
    while (n < 0 && errno == EINTR);
    close(f);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* Cores of a list like "0-3,8,10-11"; at least 1. */
static int64_t count_cores(const char *list)
{
    int64_t n = 0;
    for (const char *at = list; *at;) {
        char      *end;
        const long first = strtol(at, &end, 10);
        if (end == at) break;
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        n += last >= first ? last - first + 1 : 0;
        at = *end == ',' ? end + 1 : "";
    }
    return n > 0 ? n : 1;
}

/* "2048K" */
static int64_t bytes_of(const char *text)
{
    char         *unit;
    const int64_t n = strtoll(text, &unit, 10);
    return *unit == 'K' ? n * KIB : *unit == 'M' ? n * KIB * KIB : n;
}

static void read_files(int64_t *bytes)
{
    char text[256];
    for (int i = 0; i < INDICES && read_text(i, "type", text, sizeof text); i++) {
        if (strncmp(text, "Instruction", 11) == 0) continue;
        const long level = read_text(i, "level", text, sizeof text) ? strtol(text, NULL, 10) : 0;
        if (level < 1 || level > LEVELS || !read_text(i, "size", text, sizeof text)) continue;
        const int64_t size = bytes_of(text);
        const bool    list = level < LEVELS && read_text(i, "shared_cpu_list", text, sizeof text);
        bytes[level - 1] = size / (list ? count_cores(text) : 1);
    }
}

static void ask_system(int64_t *bytes)
{
#ifdef _SC_LEVEL1_DCACHE_SIZE
    const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    for (int i = 0; i < LEVELS; i++)
        if (bytes[i] <= 0) bytes[i] = sysconf(names[i]);
#endif
}

/* Up to three numbers; missing or impossible ones change nothing. */
static void read_wish(const char *text, int64_t *bytes)
{
    for (int i = 0; text && i < LEVELS; i++) {
        char     *end;
        long long n = strtoll(text, &end, 10);
        if (end != text && n > 0 && n < INT32_MAX) bytes[i] = n * KIB;
        text = *end == ',' ? end + 1 : NULL;
    }
}

dra_caches dra_caches_find(void)
{
    static const int64_t otherwise[] = {32 * KIB, 512 * KIB, 4096 * KIB};
    int64_t              bytes[LEVELS] = {0};
    read_files(bytes);
    ask_system(bytes);
    for (int i = 0; i < LEVELS; i++)
        if (bytes[i] <= 0) bytes[i] = otherwise[i];
    read_wish(getenv("DRA_CACHE"), bytes);
    return (dra_caches){bytes[0], bytes[1], bytes[2]};
}
