/* Documents of a mapped file: a text is cut by lines, a line of JSON takes the memory of itself. */
#include "data/documents.h"

#include <string.h>

#include "data/json_lines.h"

static dra_status put_document(const dra_documents *d, const char *text, size_t bytes, size_t at,
                               dra_error *err)
{
    return bytes ? d->fn(d->user, text, bytes, (int64_t)at, err) : DRA_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Whether a line is the separator, whatever the kind of line end. */
static bool is_separator(const char *line, size_t n, const char *separator, size_t length)
{
    if (n && line[n - 1] == '\n') n--;
    if (n == length + 1 && line[n - 1] == '\r') n--;
    return n == length && memcmp(line, separator, n) == 0;
}

static dra_status read_text(const dra_documents *d, const dra_file_map *text, dra_error *err)
{
    const char  *at = (const char *)text->data, *separator = d->separator;
    const size_t length = separator ? strlen(separator) : 0;
    size_t       start = 0;
    dra_status   status = DRA_OK;
    for (size_t i = 0, n = 0; separator && i < text->bytes && status == DRA_OK; i += n) {
        n = dra_line_bytes(at + i, text->bytes - i);
        if (!is_separator(at + i, n, separator, length)) continue;
        status = put_document(d, at + start, i - start, start, err);
        start = i + n;
    }
    if (status != DRA_OK || start == text->bytes) return status;
    return put_document(d, at + start, text->bytes - start, start, err);
}

/* ---- lines of JSON --------------------------------------------------------------------------- */

static dra_status put_line(void *user, json_t *json, const dra_json_line *line, dra_error *err)
{
    const dra_documents *d = user;
    const char          *text;
    size_t               bytes;
    const dra_status st = dra_json_line_text(json, line, d->text_key ? d->text_key : "text", &text,
                                             &bytes, err);
    return st == DRA_OK ? put_document(d, text, bytes, line->at, err) : st;
}

dra_status dra_documents_read(const dra_documents *d, const dra_source *s, const dra_file_map *text,
                              dra_error *err)
{
    return s->kind == DRA_DATA_LINES
               ? dra_json_lines(s->path, text, d->meter, put_line, (void *)(uintptr_t)d, err)
               : read_text(d, text, err);
}
