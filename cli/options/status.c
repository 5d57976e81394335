/* A line of fields that is cut to the terminal's width. */
#include "status.h"
#include "term.h"
#include "units.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

void cli_status_open(cli_status *s, FILE *out)
{
    *s = (cli_status){.out = out, .terminal = cli_moves(out), .shown = cli_now(), .share = -1};
}

/* ---- time ------------------------------------------------------------------------------------ */

void cli_status_restart(cli_status *s) { s->share = -1; }

bool cli_status_at(cli_status *s, double share)
{
    const double now = cli_now();
    if (s->share < 0) {
        s->began = now;
        s->from = share;
        if (!s->terminal) s->shown = now; /* lines are written only for long work */
    }
    s->share = share;
    return now - s->shown >= (s->terminal ? 0.2 : 30);
}

double cli_status_seconds_left(const cli_status *s)
{
    if (!(s->share > s->from) || s->share < 0) return -1;
    return (cli_now() - s->began) * fmax(0, 1 - s->share) / (s->share - s->from);
}

/* ---- fields ---------------------------------------------------------------------------------- */

void cli_status_field(cli_status *s, int rank, const char *format, ...)
{
    va_list values;
    if (s->n == CLI_STATUS_FIELDS) return;
    va_start(values, format);
    vsnprintf(s->field[s->n].text, CLI_STATUS_TEXT, format, values);
    va_end(values);
    s->field[s->n++].rank = rank;
}

void cli_status_bar(cli_status *s, int rank)
{
    enum { WIDE = 20, LETTER = 4 }; /* columns; bytes of one, at most */
    char         text[WIDE * LETTER + 1];
    size_t       n = 0;
    const double share = fmin(1, fmax(0, s->share));
    const int    full = (int)lrint(share * WIDE);
    for (int i = 0; i < WIDE; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", i < full ? "█" : "·");
    if (s->terminal) cli_status_field(s, rank + 1, "%s", text);
    cli_status_field(s, rank, "%.0f %%", 100 * share);
}

void cli_status_left(cli_status *s, int rank)
{
    const double left = cli_status_seconds_left(s);
    char         text[24];
    if (left >= 0) cli_status_field(s, rank, "%s left", cli_time_text(left, text));
}

/* ---- the screen ------------------------------------------------------------------------------ */

void cli_status_clear(cli_status *s)
{
    if (s->terminal && s->open) {
        if (s->rows) fprintf(s->out, "\033[%dA", s->rows);
        fputs("\r\033[J", s->out);
        fflush(s->out);
    }
    s->open = s->drawing = false;
    s->rows = 0;
}

void cli_status_forget(cli_status *s)
{
    s->open = s->drawing = false;
    s->rows = 0;
}

void cli_status_leave(cli_status *s)
{
    if (s->terminal && s->open) fputc('\n', s->out);
    cli_status_forget(s);
}

/* The last column stays free, since a letter there makes some terminals wrap the line. */
static size_t status_width(const cli_status *s)
{
    return s->terminal ? cli_width(s->out) - 1 : SIZE_MAX;
}

void cli_status_row(cli_status *s, const char *format, ...)
{
    char    text[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (!s->drawing) cli_status_clear(s);
    cli_put(text, status_width(s), s->out);
    fputc('\n', s->out);
    s->drawing = s->open = true;
    s->rows++;
}

static size_t line_width(const cli_status *s)
{
    size_t width = 0;
    for (int i = 0; i < s->n; i++) width += cli_columns(s->field[i].text) + (i ? 2 : 0);
    return width;
}

/* Drops the field of the highest rank, the later one of equals. */
static void drop_field(cli_status *s)
{
    int at = 0;
    for (int i = 1; i < s->n; i++)
        if (s->field[i].rank >= s->field[at].rank) at = i;
    s->n--;
    memmove(&s->field[at], &s->field[at + 1], (size_t)(s->n - at) * sizeof *s->field);
}

void cli_status_show(cli_status *s)
{
    size_t left = status_width(s);
    if (!s->drawing) cli_status_clear(s);
    while (s->n > 1 && line_width(s) > left) drop_field(s);
    for (int i = 0; i < s->n; i++) {
        if (i) fputs("  ", s->out);
        left -= cli_put(s->field[i].text, left, s->out) + (i + 1 < s->n ? 2 : 0);
    }
    if (!s->terminal && s->n) fputc('\n', s->out);
    fflush(s->out);
    s->open = true;
    s->drawing = false;
    s->n = 0;
    s->shown = cli_now();
}

void cli_status_step(cli_status *s, const char *what, double share)
{
    if (!cli_status_at(s, share)) return;
    cli_status_field(s, 1, "%s", what);
    cli_status_bar(s, 0);
    cli_status_left(s, 0);
    cli_status_show(s);
}
