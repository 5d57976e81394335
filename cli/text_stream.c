/* A stream that writes to memory. */
#define _GNU_SOURCE /* fopencookie() */
#include "text_stream.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct memory {
    char  **text;
    size_t *bytes, room;
    bool    failed;
} memory;

/* Room for n more bytes and a zero. */
static bool reserve(memory *m, size_t n)
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
    if (m->failed || !reserve(m, n)) {
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

static int end(void *cookie)
{
    memory    *m = cookie;
    const bool failed = m->failed;
    free(m);
    return failed ? EOF : 0;
}

FILE *cli_text_stream(char **text, size_t *bytes)
{
    memory *m = calloc(1, sizeof *m);
    FILE   *out = NULL;
    *text = NULL;
    *bytes = 0;
    if (m) {
        *m = (memory){.text = text, .bytes = bytes};
        if (write_more(m, "", 0) == 0 && !m->failed)
            out = fopencookie(m, "w", (cookie_io_functions_t){NULL, write_more, start_over, end});
    }
    if (!out) {
        free(m);
        free(*text);
        *text = NULL;
    }
    return out;
}
