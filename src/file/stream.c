/* Streams of stdio over functions of our own: to memory, and from files. */
#define _GNU_SOURCE /* fopencookie() */
#include "dra/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "file/system.h"

/* ---- to memory ------------------------------------------------------------------------------- */

typedef struct memory {
    char  **text;
    size_t *bytes, room;
    bool    failed;
} memory;

/* Room for n more bytes and a zero. */
static bool reserve_bytes(memory *m, size_t n)
{
    if (n < m->room - *m->bytes) return true;
    if (n > SIZE_MAX / 4) return false;
    const size_t room = 2 * (*m->bytes + n) + 64;
    char        *more = realloc(*m->text, room);
    if (!more) return false;
    *m->text = more;
    m->room = room;
    return true;
}

static ssize_t write_more(void *cookie, const char *data, size_t n)
{
    memory *m = cookie;
    if (m->failed || !reserve_bytes(m, n)) {
        m->failed = true;
        errno = ENOMEM;
        return 0;
    }
    memcpy(*m->text + *m->bytes, data, n);
    *m->bytes += n;
    (*m->text)[*m->bytes] = '\0';
    return (ssize_t)n;
}

static int start_over(void *cookie, off64_t *to, int from)
{
    memory *m = cookie;
    if (*to != 0 || from != SEEK_SET) return -1;
    *m->bytes = 0;
    return 0;
}

static int end_memory(void *cookie)
{
    memory    *m = cookie;
    const bool failed = m->failed;
    free(m);
    return failed ? EOF : 0;
}

FILE *dra_stream_memory(char **text, size_t *bytes)
{
    const cookie_io_functions_t io = {.write = write_more, .seek = start_over, .close = end_memory};
    memory                     *m = calloc(1, sizeof *m);
    FILE                       *out = NULL;
    *text = NULL;
    *bytes = 0;
    if (m) {
        *m = (memory){.text = text, .bytes = bytes};
        if (write_more(m, "", 0) == 0 && !m->failed) out = fopencookie(m, "w", io);
    }
    if (!out) {
        free(m);
        free(*text);
        *text = NULL;
    }
    return out;
}

/* ---- from files ------------------------------------------------------------------------------ */

static int file_of(const void *cookie) { return *(const int *)cookie; }

static ssize_t read_more(void *cookie, char *data, size_t n)
{
    return dra_sys_read(file_of(cookie), data, n);
}

static int end_file(void *cookie)
{
    const int fd = file_of(cookie);
    free(cookie);
    return dra_sys_close(fd) != 0 ? EOF : 0;
}

FILE *dra_stream_from(int fd)
{
    const cookie_io_functions_t io = {.read = read_more, .close = end_file};
    int                        *cookie = malloc(sizeof *cookie);
    if (!cookie) return NULL;
    *cookie = fd;
    FILE *in = fopencookie(cookie, "r", io);
    if (!in) free(cookie);
    return in;
}

FILE *dra_stream_open(const char *path)
{
    const int fd = dra_sys_open(path, O_RDONLY, 0);
    if (fd < 0) return NULL;
    FILE *in = dra_stream_from(fd);
    if (!in) {
        dra_sys_close(fd);
        errno = ENOMEM;
    }
    return in;
}
