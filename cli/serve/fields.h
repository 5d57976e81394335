/* Fields of a request's body: one table for each route says what is taken and where it goes. What
 * is not in the table is refused by its name, never taken and ignored. */
#ifndef DRA_CLI_SERVE_FIELDS_H
#define DRA_CLI_SERVE_FIELDS_H

#include "serve.h"

typedef enum serve_field_kind {
    SERVE_F_BOOL,   /* bool */
    SERVE_F_INT,    /* int64_t, min to max */
    SERVE_F_REAL,   /* double, min to max */
    SERVE_F_WORD,   /* const char *, without a zero in it */
    SERVE_F_ANY,    /* json_t *, for the route to read */
    SERVE_F_LABEL,  /* a text or an object about the client: no answer depends on it */
    SERVE_F_REFUSED /* known, but not supported; `why` explains it */
} serve_field_kind;

typedef struct serve_field {
    const char      *name;
    serve_field_kind kind;
    size_t           offset;
    double           min, max;
    const char      *why, *idle; /* idle: a list of values that ask for nothing, as JSON; or NULL */
} serve_field;

/* A null counts as absent, also in fields that the table does not have: clients send messages
 * back as they came, with "refusal": null in them. */
bool serve_fields_read(const serve_field *table, size_t n, json_t *object, void *out,
                       serve_error *e);
/* A body as an object, for json_decref(); NULL: e says why. */
json_t *serve_body_read(const char *body, size_t bytes, serve_error *e);
/* Bytes that parsing it may need. */
size_t serve_body_cost(const char *body, size_t bytes);

bool serve_is_word(const json_t *x); /* a text without a zero in it */

/* Ids of a list of whole numbers; errors name `param`. */
bool serve_ids_read(json_t *list, const char *param, dra_ids *out, serve_error *e);
bool serve_ids_add(dra_ids *ids, int32_t id);
/* A text, a list of texts, a list of ids or a list of lists of ids: *n lists of ids, to be freed by
 * serve_inputs_free(). Texts of `begins` start a sequence: an empty one is the end of text. */
bool serve_inputs_read(const serve_model *m, json_t *x, const char *param, bool begins, size_t *n,
                       dra_ids **out, serve_error *e);
void serve_inputs_free(size_t n, dra_ids *ids);

#endif
