/* Lines that were typed, in a file. */
#include "history.h"
#include "io/append.h"
#include "io/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096, KEPT = 1000, MOST = 1 << 24 };

bool cli_history_path(char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    /* The XDG rules pass over what is not absolute. */
    if (state && state[0] == '/') return cli_path(state, "dra/history", path, size);
    return home && *home && cli_path(home, ".local/state/dra/history", path, size);
}

/* Where the newest KEPT lines begin; *lines counts all. */
static char *newest_lines(char *text, size_t *lines)
{
    size_t n = 0;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++) n++;
    *lines = n;
    for (; n > KEPT; n--) text = strchr(text, '\n') + 1;
    return text;
}

dra_status cli_history_read(const char *path, cli_history_line fn, void *user, dra_error *err)
{
    char  *text = NULL;
    size_t bytes = 0, lines = 0;
    if (access(path, F_OK) != 0) return DRA_OK;
    dra_status st = dra_file_read(path, MOST, &text, &bytes, err);
    if (st != DRA_OK) return st;
    char *line = newest_lines(text, &lines);
    if (lines > 2 * KEPT) st = dra_file_write(path, line, strlen(line), err);
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        fn(user, line);
    }
    free(text);
    return st;
}

/* A folder that somebody else named, perhaps wrongly, is not made. */
static bool is_ours(const char *path)
{
    char own[PATH];
    return access(path, F_OK) != 0 && cli_history_path(own, sizeof own) && strcmp(path, own) == 0;
}

/* Accounts of services have a home that is not there, and not to be made: "/nonexistent". */
static bool is_homeless(const char *path)
{
    const char  *home = getenv("HOME");
    const size_t n = home ? strlen(home) : 0;
    return n > 0 && strncmp(path, home, n) == 0 && (path[n] == '/' || home[n - 1] == '/') &&
           access(home, F_OK) != 0 && errno == ENOENT;
}

dra_status cli_history_add(const char *path, const char *line, dra_error *err)
{
    const size_t n = strlen(line);
    if (is_ours(path) && is_homeless(path)) return DRA_OK;
    char      *text = malloc(n + 1);
    dra_status st = text ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK && is_ours(path)) st = cli_make_folders(path, 0700, err);
    if (st == DRA_OK) {
        memcpy(text, line, n);
        text[n] = '\n';
        st = cli_append(path, 0600, text, n + 1, err);
    }
    free(text);
    return st;
}
