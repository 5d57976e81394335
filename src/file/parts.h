/* Parts: options that only some choices of a struct have, see docs/parts.md. Where another choice
 * is made, what a part can be told is refused, by the names of the choices that have it. */
#ifndef DRA_SRC_FILE_PARTS_H
#define DRA_SRC_FILE_PARTS_H

#include "file/fields.h"

typedef struct dra_part {       /* dra/memory.h knows its name */
    size_t           offset;    /* of its options in the struct */
    const dra_field *fields[3]; /* that describe them; the later ones: of keys that are younger */
} dra_part;

/* What can be chosen, and its parts, NULL at the end; NULL: none. */
typedef struct dra_choice {
    const char            *name;
    const dra_part *const *parts;
} dra_choice;

/* Numbers in their ranges, and choices among those that there are; `what` begins an error. */
dra_status dra_parts_check_ranges(const char *what, const dra_part *part, const void *in,
                                  dra_error *err);
bool       dra_parts_have(const dra_part *const *parts, const dra_part *part);
/* What `in` says of all parts, NULL at the end: numbers in their ranges, and nothing of a part that
 * is not in `mine`; `choices` end with one without a name. */
dra_status dra_parts_check(const char *what, const dra_part *const *all,
                           const dra_part *const *mine, const dra_choice *choices, const void *in,
                           dra_error *err);

#endif
