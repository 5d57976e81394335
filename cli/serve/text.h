/* A text that grows, and JSON written into one. Where memory fails, the text stays as it was and
 * remembers the failure, which its sender checks once. */
#ifndef DRA_CLI_SERVE_TEXT_H
#define DRA_CLI_SERVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct serve_text {
    char  *data; /* ended by a 0 where n > 0 */
    size_t n, room;
    bool   failed;
} serve_text; /* starts as {0} */

void serve_text_free(serve_text *t);
void serve_put(serve_text *t, const char *data, size_t bytes);
void serve_puts(serve_text *t, const char *text);
void serve_printf(serve_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes; what is no UTF-8 becomes U+FFFD. */
void serve_json_text(serve_text *t, const char *text, size_t bytes);
/* The same of a text that ends with a 0; NULL: null. */
void serve_json_word(serve_text *t, const char *text);
/* A number that reads back as the same double; null where it is not finite. */
void serve_json_real(serve_text *t, double x);
/* Of a float: the shortest that reads back as the same float. */
void serve_json_float(serve_text *t, float x);
void serve_json_int(serve_text *t, int64_t x);

void serve_base64(serve_text *t, const void *data, size_t bytes);
/* *bytes of *data, to be freed; false: no base64, or no memory (then *data is NULL, too). */
bool serve_base64_read(const char *text, size_t n, char **data, size_t *bytes);

#endif
