/* Error texts. */
#ifndef DRA_SRC_ERROR_H
#define DRA_SRC_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#include "dra/base.h"

#ifdef __GNUC__
#define DRA_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define DRA_PRINTF(a, b)
#endif

/* Fills `err` (may be NULL) and returns `code`, so that callers `return dra_fail(...)`. All texts
 * pass dra_make_shown(): they quote files and paths, which may be anything, and may be cut inside a
 * letter. So they are one line. */
dra_status dra_fail(dra_error *err, dra_status code, const char *format, ...) DRA_PRINTF(3, 4);
dra_status dra_fail_v(dra_error *err, dra_status code, const char *format, va_list args);

/* The bytes of the UTF-8 letter a text starts with; 0: there is none, or the text is empty. */
size_t dra_utf8_letter(const char *text);

#endif
