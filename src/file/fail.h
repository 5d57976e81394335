/* Error texts of files: "PATH: what, expected, found". */
#ifndef DRA_SRC_FILE_FAIL_H
#define DRA_SRC_FILE_FAIL_H

#include "base/error.h"

enum { DRA_BRIEF = 128 };

/* The control character (C0, DEL, C1) a UTF-8 text starts with: its bytes, 0 when it is none. */
size_t dra_control(const char *text);

/* A path, name or piece of a file made fit for an error text: one line of UTF-8, short enough to
 * leave room for the rest. Control characters and bytes that are not UTF-8 become '?', the middle
 * of a long text "...". */
const char *dra_brief(const char *text, char room[DRA_BRIEF]);

dra_status dra_fail_at(dra_error *err, dra_status code, const char *path, const char *format, ...)
    DRA_PRINTF(4, 5);

/* "PATH: cannot WHAT: the system's reason", which is out of memory for ENOMEM. */
dra_status dra_fail_system(dra_error *err, const char *path, const char *what, int number);

#endif
