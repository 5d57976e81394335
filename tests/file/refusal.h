/* How files of tensors are refused, for tests and fuzzers of all formats. */
#ifndef DRA_TESTS_FILE_REFUSAL_H
#define DRA_TESTS_FILE_REFUSAL_H

#include <string.h>

#include "file/format.h"
#include "file/header.h"

/* What is wrong with a refusal: one line that starts with the path "f", nothing left. NULL: it is
 * as it should be. */
static inline const char *refusal_check(const dra_header *h, const dra_error *err)
{
    if (err->code != DRA_ERR_FORMAT) return "not an error of the format";
    if (strncmp(err->text, "f: ", 3) != 0) return "an error without the path";
    if (strpbrk(err->text, "\n\r\t\033")) return "an error of several lines";
    if (!dra_is_utf8(err->text)) return "an error that is not UTF-8";
    return h->count || h->arena.last ? "something left of a refused file" : NULL;
}

#endif
