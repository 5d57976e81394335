/* How far something is, in one line of fields. At a terminal the line is redrawn in place, and
 * fields are dropped, those of the highest rank first, until it fits the width that the terminal
 * has now: it never wraps. Into a pipe, or where TERM is dumb, whole lines are written at a slower
 * pace. Rows above the line, such as a chart, are redrawn with it. */
#ifndef DRA_CLI_OPTIONS_STATUS_H
#define DRA_CLI_OPTIONS_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { CLI_STATUS_FIELDS = 16, CLI_STATUS_TEXT = 128 };

typedef struct cli_status {
    FILE  *out;
    bool   terminal;    /* redrawn in place; else lines */
    bool   open;        /* it is on the screen */
    bool   drawing;     /* rows are being written, the line is to come */
    int    rows;        /* above the line, on the screen */
    double shown;       /* when, in seconds */
    double share;       /* of the work that is done, 0 to 1; below 0: none was told yet */
    double began, from; /* when the clock of the time left began, and the share then */
    int    n;
    struct {
        int  rank;
        char text[CLI_STATUS_TEXT];
    } field[CLI_STATUS_FIELDS]; /* of the line to come */
} cli_status;

void cli_status_open(cli_status *s, FILE *out);
/* The clock of the time left starts with the next share that is told. */
void cli_status_restart(cli_status *s);
/* Tells how much is done. Returns whether the next line is due. */
bool cli_status_at(cli_status *s, double share);

/* The line to come. Fields are shown in this order; rank 0 stays longest. */
void cli_status_field(cli_status *s, int rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void cli_status_bar(cli_status *s, int rank);  /* "████······  43 %" */
void cli_status_left(cli_status *s, int rank); /* "3:07 left"; nothing while nobody knows */
/* Seconds that are left; below 0: not known yet. */
double cli_status_seconds_left(const cli_status *s);

/* A row above the line, cut to the width. Where there is no terminal, a line. */
void cli_status_row(cli_status *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes the line, in place of the one before. */
void cli_status_show(cli_status *s);

void cli_status_clear(cli_status *s);  /* takes it off the screen; other lines may be written */
void cli_status_forget(cli_status *s); /* something was written below it: it stays where it is */
void cli_status_leave(cli_status *s);  /* it stays; what is written next starts on a new line */

/* The usual line, when it is due: what, a bar, the time left. */
void cli_status_step(cli_status *s, const char *what, double share);

#endif
