/* Building and writing JSON by jansson so that no failure can be forgotten: a maker remembers that
 * something went wrong, and says so when the text is made. */
#ifndef DRA_SRC_FILE_JSON_MAKE_H
#define DRA_SRC_FILE_JSON_MAKE_H

#include <jansson.h>

#include "dra/base.h"

typedef struct dra_json { /* {0} at first */
    bool failed;          /* there was no memory, or a text that is not UTF-8 */
    bool no_text;         /* it was such a text */
    int  not_finite;      /* numbers that became null */
} dra_json;

/* New values; NULL where there is no memory, which all functions here take and remember. */
json_t *dra_json_object(dra_json *j);
json_t *dra_json_array(dra_json *j);
json_t *dra_json_int(dra_json *j, int64_t x);
json_t *dra_json_real(dra_json *j, double x); /* null where x is not finite */
json_t *dra_json_bool(bool x);
json_t *dra_json_text(dra_json *j, const char *text);
/* The same of bytes, which are UTF-8 and may have NUL among them. */
json_t *dra_json_text_of(dra_json *j, const char *text, size_t bytes);
json_t *dra_json_copy(dra_json *j, const json_t *value); /* a deep copy; NULL is a failure */
/* A copy of an object that shares its values. */
json_t *dra_json_share(dra_json *j, const json_t *object);
/* The value, or NULL where anything of this maker failed: then the value is given back. */
json_t *dra_json_whole(const dra_json *j, json_t *value);

/* Takes `value` over. A key that is there gets the new value. */
void dra_json_set(dra_json *j, json_t *object, const char *key, json_t *value);
/* The same with a value that its owner keeps, too. */
void dra_json_set_shared(dra_json *j, json_t *object, const char *key, json_t *value);
void dra_json_append(dra_json *j, json_t *array, json_t *value);
void dra_json_delete(json_t *object, const char *key);
/* All members of `from`, which stays as it is, put into `object`; missing: only those that it has
 * not. */
void dra_json_update(dra_json *j, json_t *object, const json_t *from);
void dra_json_update_missing(dra_json *j, json_t *object, const json_t *from);

/* The text of a value, the caller's for free(), and its length (may be NULL); flags of jansson. An
 * error where anything of this maker failed, or there is no memory for the text. `path` is named in
 * it. */
dra_status dra_json_dump(dra_json *j, const json_t *value, size_t flags, const char *path,
                         char **out, size_t *bytes, dra_error *err);
/* The same for an error text: NULL where there is no value, or no memory. */
char *dra_json_words(const json_t *value, size_t flags);
/* An error where anything of this maker failed. */
dra_status dra_json_check(const dra_json *j, const char *path, dra_error *err);

#endif
