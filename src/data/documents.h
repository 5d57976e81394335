/* The documents of a source that is text. */
#ifndef DRA_SRC_DATA_DOCUMENTS_H
#define DRA_SRC_DATA_DOCUMENTS_H

#include "data/sources.h"

enum { DRA_DOCUMENT_PART = 1 << 20 }; /* bytes between two calls of a meter */

/* Takes a document; `at` is how many bytes of the file come before it. It is never empty, and gone
 * after the call. */
typedef dra_status (*dra_document)(void *user, const char *text, size_t bytes, int64_t at,
                                   dra_error *err);

typedef struct dra_documents {
    const char      *text_key;  /* of lines of JSON; NULL: "text" */
    const char      *separator; /* of a text, a line between two documents; NULL: it is one */
    const dra_meter *meter;     /* told of lines of JSON; long documents are for `fn` to tell of */
    dra_document     fn;
    void            *user;
} dra_documents;

/* All documents of a text or of lines of JSON, in order, until `fn` fails. `text` is the map of the
 * source. */
dra_status dra_documents_read(const dra_documents *d, const dra_source *s, const dra_file_map *text,
                              dra_error *err);

#endif
