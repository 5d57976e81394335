/* JSON of a request, by jansson. Strict: RFC 8259, UTF-8 only, no key twice in an object; nesting
 * and the number of values are bounded, so that no body makes the reader deep or large. */
#ifndef DRA_CLI_SERVE_JSON_H
#define DRA_CLI_SERVE_JSON_H

#include <jansson.h>

enum {
    SERVE_JSON_DEPTH = 32,
    SERVE_JSON_VALUES = 1 << 20 /* of a body: each needs memory, however short it is */
};

/* To be called before threads start: tells failures of malloc() from wrong JSON. */
void serve_json_begin(void);

/* A value, for json_decref(). NULL: `why` (160 bytes) says what is wrong, "" where there is no
 * memory. */
json_t *serve_json_read(const char *text, size_t bytes, char *why);

/* Removes all members of an object but these. */
void serve_json_keep(json_t *object, const char *const *names, size_t n);

/* The text of a value, to be freed; NULL: no memory. */
char *serve_json_words(const json_t *x);

const char *serve_kind_name(const json_t *x); /* "a text", "a number", ... */

#endif
