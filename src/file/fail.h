/* Error texts of files: "PATH: what, expected, found". */
#ifndef DRA_SRC_FILE_FAIL_H
#define DRA_SRC_FILE_FAIL_H

#include "base/error.h"

enum { DRA_BRIEF = 128 };

/* A path, name or piece of a file made fit for an error text: as dra_make_shown() and short enough
 * to leave room for the rest; the middle of a long text becomes "...". */
const char *dra_brief(const char *text, char room[DRA_BRIEF]);

dra_status dra_fail_at(dra_error *err, dra_status code, const char *path, const char *format, ...)
    DRA_PRINTF(4, 5);

/* "PATH: cannot WHAT: the system's reason", which is out of memory for ENOMEM. */
dra_status dra_fail_system(dra_error *err, const char *path, const char *what, int number);

#endif
