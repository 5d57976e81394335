/* Lines of a file or of stdin. */
#include "line_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cli_is_utf8(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        const int      n = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
        const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
        unsigned       code = n == 1 ? *p : *p & (0x7fu >> n);
        if ((*p >= 0x80 && *p < 0xc2) || *p > 0xf4) return false;
        for (int i = 1; i < n; i++) {
            if ((p[i] & 0xc0) != 0x80) return false;
            code = code << 6 | (p[i] & 0x3f);
        }
        if (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
        p += n;
    }
    return true;
}

bool cli_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A copy of stdin's descriptor is closed with the stream; its own stays. */
FILE *cli_input_open(const char *path)
{
    if (strcmp(path, "-") != 0) return dra_stream_open(path);
    const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    FILE     *in = fd < 0 ? NULL : dra_stream_from(fd);
    if (!in && fd >= 0) {
        close(fd);
        errno = ENOMEM;
    }
    return in;
}

dra_status cli_input_lines_open(const char *path, cli_input_lines *l, dra_error *err)
{
    l->name = strcmp(path, "-") == 0 ? "stdin" : path;
    l->in = cli_input_open(path);
    if (l->in) return DRA_OK;
    return cli_error(err, DRA_ERR_FILE, "%.200s: cannot open it: %s", path, cli_reason(errno));
}

dra_status cli_input_lines_bad(const cli_input_lines *l, dra_error *err, const char *format, ...)
{
    char    what[400];
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    return cli_error(err, DRA_ERR_FORMAT, "%.200s:%lld: %s", l->name, (long long)l->number, what);
}

dra_status cli_input_lines_next(cli_input_lines *l, bool *more, dra_error *err)
{
    for (;;) {
        errno = 0;
        const ssize_t n = getline(&l->line, &l->room, l->in);
        *more = n >= 0;
        if (n < 0 && errno == ENOMEM)
            return cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", l->name);
        if (n < 0 && !ferror(l->in)) return DRA_OK;
        if (n < 0) return cli_error(err, DRA_ERR_FILE, "%.200s: cannot be read", l->name);
        l->number++;
        if (strspn(l->line, " \t\r\n") == (size_t)n) continue;
        if (strlen(l->line) != (size_t)n) return cli_input_lines_bad(l, err, "has a zero byte");
        if (!cli_is_utf8(l->line)) return cli_input_lines_bad(l, err, "is not UTF-8");
        l->bytes = strcspn(l->line, "\r\n");
        l->line[l->bytes] = '\0';
        return DRA_OK;
    }
}

void cli_input_lines_close(cli_input_lines *l)
{
    if (l->in) fclose(l->in);
    free(l->line);
    *l = (cli_input_lines){0};
}
