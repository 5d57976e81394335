/* Lines of JSON, an object in each. */
#ifndef DRA_SRC_DATA_JSON_LINES_H
#define DRA_SRC_DATA_JSON_LINES_H

#include <jansson.h>

#include "data/sources.h"
#include "file/file_map.h"

typedef struct dra_json_line { /* where one is */
    const char *path;
    int64_t     number; /* from 1 on */
    size_t      at;     /* bytes of the file before it */
} dra_json_line;

/* Takes an object, which is gone after the call. */
typedef dra_status (*dra_json_object)(void *user, json_t *object, const dra_json_line *line,
                                      dra_error *err);

/* All lines in order, blank ones left out, until `fn` fails. meter: NULL, or told how far it is. */
dra_status dra_json_lines(const char *path, const dra_file_map *file, const dra_meter *meter,
                          dra_json_object fn, void *user, dra_error *err);
/* The text under a key of a line, as long as the object is there. */
dra_status dra_json_line_text(const json_t *object, const dra_json_line *line, const char *key,
                              const char **text, size_t *bytes, dra_error *err);

/* The bytes of a line with its end; the text is not empty. */
size_t dra_line_bytes(const char *text, size_t bytes);

#endif
