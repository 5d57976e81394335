/* The file has a line for each: key, fingerprint, and the hash of these two, so that a damaged line
 * is passed over. The newest is the last. */
#include "model/weights_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "dra/file.h"

enum { LINE = 3 * 17, LINES = 256, PATH_TEXT = 4096 };

/* Into `path`: the file, below a folder of the user's that is there; its last two folders are made
 * where `make` says so. The XDG rules pass over what is not absolute. */
static bool find_path(bool make, char path[PATH_TEXT])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool  own = cache && cache[0] == '/';
    struct stat s;
    if (!own && (!home || home[0] != '/' || stat(home, &s) != 0)) return false;
    int n = own ? snprintf(path, PATH_TEXT, "%s", cache)
                : snprintf(path, PATH_TEXT, "%s/.cache", home);
    if (n < 0 || n > PATH_TEXT - 32) return false;
    if (make) mkdir(path, 0700);
    n += snprintf(path + n, PATH_TEXT - (size_t)n, "/dra");
    if (make) mkdir(path, 0700);
    snprintf(path + n, PATH_TEXT - (size_t)n, "/weights");
    return true;
}

static void make_line(uint64_t key, uint64_t fingerprint, char line[LINE + 1])
{
    const uint64_t both[2] = {key, fingerprint};
    snprintf(line, LINE + 1, "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 "\n", key, fingerprint,
             dra_hash_of(0, both, sizeof both));
}

/* Whether a whole line has this key. */
static bool read_line(const char *line, uint64_t key, uint64_t *fingerprint)
{
    char expected[LINE + 1];
    *fingerprint = strtoull(line + 17, NULL, 16);
    make_line(key, *fingerprint, expected);
    return memcmp(line, expected, LINE) == 0;
}

bool dra_weights_cache_find(uint64_t key, uint64_t *fingerprint)
{
    char   path[PATH_TEXT], *text = NULL;
    size_t bytes = 0;
    bool   found = false;
    if (!find_path(false, path) ||
        dra_file_read(path, LINE * (LINES + 1), &text, &bytes, NULL) != DRA_OK)
        return false;
    for (size_t at = 0; at + LINE <= bytes && !found; at += LINE)
        found = read_line(text + at, key, fingerprint);
    free(text);
    return found;
}

void dra_weights_cache_note(uint64_t key, uint64_t fingerprint)
{
    char   path[PATH_TEXT], *text = NULL, line[LINE + 1];
    size_t bytes = 0;
    if (!find_path(true, path)) return;
    if (dra_file_read(path, LINE * (LINES + 1), &text, &bytes, NULL) != DRA_OK) bytes = 0;
    const size_t kept = bytes / LINE < LINES ? bytes / LINE : LINES - 1;
    char        *all = malloc(LINE * (LINES + 1));
    make_line(key, fingerprint, line);
    if (all) {
        if (kept) memcpy(all, text + (bytes / LINE - kept) * LINE, kept * LINE);
        memcpy(all + kept * LINE, line, LINE);
        dra_file_write(path, all, (kept + 1) * LINE, NULL); /* else it is hashed again */
    }
    free(all);
    free(text);
}
