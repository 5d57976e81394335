/* JSON of a request, as a tree. Strict: RFC 8259, UTF-8 only, no key twice in an object, nesting
 * bounded, so that no body makes the reader deep or slow. */
#ifndef DRA_CLI_SERVE_JSON_H
#define DRA_CLI_SERVE_JSON_H

#include <stdbool.h>
#include <stddef.h>

enum {
    SERVE_JSON_DEPTH = 32,
    SERVE_JSON_KEYS = 1024,     /* of one object */
    SERVE_JSON_VALUES = 1 << 20 /* of a body: each takes some memory, however short it is */
};

typedef enum serve_kind {
    SERVE_NULL,
    SERVE_BOOL,
    SERVE_NUMBER,
    SERVE_TEXT,
    SERVE_LIST,
    SERVE_OBJECT
} serve_kind;

typedef struct serve_json serve_json;
struct serve_json {
    serve_kind  kind;
    bool        truth, whole; /* whole: a number without fraction and exponent */
    double      number;
    const char *text; /* ended by a 0, which may be in it, too */
    size_t      bytes;
    const char *key;   /* in an object; has no 0 in it */
    size_t      n;     /* of a list or object */
    serve_json *first; /* its members */
    serve_json *next;
};

typedef struct serve_json_file serve_json_file; /* owns a tree */

/* On failure *out is NULL and `why` (160 bytes) says what is wrong, "" where there is no memory. */
const serve_json *serve_json_read(const char *text, size_t bytes, serve_json_file **out, char *why);
void              serve_json_free(serve_json_file *file); /* NULL is allowed */

const serve_json *serve_json_get(const serve_json *object, const char *key); /* NULL: none */
const char       *serve_kind_name(const serve_json *x); /* "a text", "a number", ... */

#endif
