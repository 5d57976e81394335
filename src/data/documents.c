/* Documents of a mapped file: a text is cut by lines, a line of JSON takes the memory of itself. */
#include "data/documents.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "file/fail.h"

static dra_status put_document(const dra_documents *d, const char *text, size_t bytes, size_t at,
                               dra_error *err)
{
    return bytes ? d->fn(d->user, text, bytes, (int64_t)at, err) : DRA_OK;
}

/* The bytes of a line with its end; the text is not empty. */
static size_t line_bytes(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    return end ? (size_t)(end - text) + 1 : bytes;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Whether a line is the separator, whatever the kind of line end. */
static bool separates(const char *line, size_t n, const char *separator, size_t length)
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
        n = line_bytes(at + i, text->bytes - i);
        if (!separates(at + i, n, separator, length)) continue;
        status = put_document(d, at + start, i - start, start, err);
        start = i + n;
    }
    if (status != DRA_OK || start == text->bytes) return status;
    return put_document(d, at + start, text->bytes - start, start, err);
}

/* ---- lines of JSON --------------------------------------------------------------------------- */

/* "PATH:LINE: what, expected, found". */
static dra_status fail_line(dra_error *err, dra_status code, const char *path, int64_t line,
                            const char *format, ...) DRA_PRINTF(5, 6);

static dra_status fail_line(dra_error *err, dra_status code, const char *path, int64_t line,
                            const char *format, ...)
{
    char    room[DRA_BRIEF], text[DRA_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dra_fail(err, code, "%s:%lld: %s", dra_brief(path, room), (long long)line, text);
}

static bool is_blank(const char *line, size_t n)
{
    while (n && strchr(" \t\r\n", line[n - 1]) && line[n - 1]) n--;
    return n == 0;
}

/* Texts may hold NUL, which JSON writes as \u0000. */
static dra_status parse_line(const char *line, size_t n, const char *path, int64_t number,
                             json_t **out, dra_error *err)
{
    json_error_t found;
    char         room[DRA_BRIEF];
    *out = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &found);
    if (*out) return DRA_OK;
    if (json_error_code(&found) == json_error_out_of_memory || !found.text[0])
        return fail_line(err, DRA_ERR_MEMORY, path, number, "no memory for its JSON");
    return fail_line(err, DRA_ERR_FORMAT, path, number, "JSON, column %d: %s", found.column,
                     dra_brief(found.text, room));
}

static dra_status put_line(const dra_documents *d, const char *line, size_t n, size_t at,
                           const char *path, int64_t number, dra_error *err)
{
    const char *key = d->text_key ? d->text_key : "text";
    char        room[DRA_BRIEF];
    json_t     *json = NULL;
    dra_status  status = parse_line(line, n, path, number, &json, err);
    if (status != DRA_OK) return status;
    const json_t *text = json_object_get(json, key);
    if (!json_is_object(json))
        status = fail_line(err, DRA_ERR_FORMAT, path, number, "no object, expected {\"%s\": ...}",
                           dra_brief(key, room));
    else if (!json_is_string(text))
        status = fail_line(err, DRA_ERR_FORMAT, path, number, "%s '%s', expected a text",
                           text ? "another kind of" : "no", dra_brief(key, room));
    else
        status = put_document(d, json_string_value(text), json_string_length(text), at, err);
    json_decref(json);
    return status;
}

static dra_status read_lines(const dra_documents *d, const dra_file_map *text, const char *path,
                             dra_error *err)
{
    const char *at = (const char *)text->data;
    dra_status  status = DRA_OK;
    size_t      i = text->bytes >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, told = 0;
    for (int64_t number = 1; i < text->bytes && status == DRA_OK; number++) {
        const size_t n = line_bytes(at + i, text->bytes - i);
        if (!is_blank(at + i, n)) status = put_line(d, at + i, n, i, path, number, err);
        i += n;
        if (i - told >= DRA_DOCUMENT_PART) dra_meter_tell(d->meter, (int64_t)(told = i));
    }
    return status;
}

dra_status dra_documents_read(const dra_documents *d, const dra_source *s, dra_error *err)
{
    dra_file_map text;
    dra_status   status = dra_file_map_open(s->path, &text, err);
    if (status != DRA_OK) return status;
    status = s->kind == DRA_SOURCE_LINES ? read_lines(d, &text, s->path, err)
                                         : read_text(d, &text, err);
    dra_file_map_close(&text);
    return status;
}
