/* JSON by jansson: exact integers, no key twice, no NUL in a text. */
#ifndef DRA_SRC_FILE_JSON_H
#define DRA_SRC_FILE_JSON_H

#include <jansson.h>

#include "dra/base.h"

typedef struct dra_json_rules {
    int  depth;    /* of brackets; jansson's own limit is 2048 */
    bool no_minus; /* nowhere but in texts; jansson reads -0 as 0, which hides the sign */
    bool infinity; /* Infinity, as Python writes it, is the largest number */
} dra_json_rules;

/* Parses one value. `path` is named in errors. *out is the caller's, for json_decref(). */
dra_status dra_json_parse(const char *path, const char *text, size_t bytes, dra_json_rules rules,
                          json_t **out, dra_error *err);

/* The same by flags of jansson and without an error text: DRA_ERR_MEMORY, or DRA_ERR_FORMAT and
 * what jansson found. */
dra_status dra_json_load(const char *text, size_t bytes, size_t flags, json_t **out,
                         json_error_t *found);

#endif
