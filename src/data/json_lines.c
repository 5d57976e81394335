/* Lines of JSON of a mapped file; each takes the memory of itself. */
#include "data/json_lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "data/documents.h"
#include "file/fail.h"

size_t dra_line_bytes(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    return end ? (size_t)(end - text) + 1 : bytes;
}

/* "PATH:LINE: what, expected, found". */
static dra_status fail_line(dra_error *err, dra_status code, const dra_json_line *line,
                            const char *format, ...) DRA_PRINTF(4, 5);

static dra_status fail_line(dra_error *err, dra_status code, const dra_json_line *line,
                            const char *format, ...)
{
    char    room[DRA_BRIEF], text[DRA_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dra_fail(err, code, "%s:%lld: %s", dra_brief(line->path, room), (long long)line->number,
                    text);
}

static bool is_blank(const char *line, size_t n)
{
    while (n && strchr(" \t\r\n", line[n - 1]) && line[n - 1]) n--;
    return n == 0;
}

/* Texts may hold NUL, which JSON writes as \u0000. */
static dra_status parse_line(const char *text, size_t n, const dra_json_line *line, json_t **out,
                             dra_error *err)
{
    json_error_t found;
    char         room[DRA_BRIEF];
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &found);
    if (*out) return DRA_OK;
    if (json_error_code(&found) == json_error_out_of_memory || !found.text[0])
        return fail_line(err, DRA_ERR_MEMORY, line, "no memory for its JSON");
    return fail_line(err, DRA_ERR_FORMAT, line, "JSON, column %d: %s", found.column,
                     dra_brief(found.text, room));
}

dra_status dra_json_line_text(const json_t *object, const dra_json_line *line, const char *key,
                              const char **text, size_t *bytes, dra_error *err)
{
    char          room[DRA_BRIEF];
    const json_t *found = json_object_get(object, key);
    if (!json_is_object(object))
        return fail_line(err, DRA_ERR_FORMAT, line, "no object, expected {\"%s\": ...}",
                         dra_brief(key, room));
    if (!json_is_string(found))
        return fail_line(err, DRA_ERR_FORMAT, line, "%s '%s', expected a text",
                         found ? "another kind of" : "no", dra_brief(key, room));
    *text = json_string_value(found);
    *bytes = json_string_length(found);
    return DRA_OK;
}

static dra_status read_line(const char *text, size_t n, const dra_json_line *line,
                            dra_json_object fn, void *user, dra_error *err)
{
    json_t    *object = NULL;
    dra_status st = parse_line(text, n, line, &object, err);
    if (st == DRA_OK) st = fn(user, object, line, err);
    json_decref(object);
    return st;
}

dra_status dra_json_lines(const char *path, const dra_file_map *file, const dra_meter *meter,
                          dra_json_object fn, void *user, dra_error *err)
{
    const char *at = (const char *)file->data;
    dra_status  status = DRA_OK;
    size_t      i = file->bytes >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, told = 0;
    for (int64_t number = 1; i < file->bytes && status == DRA_OK; number++) {
        const size_t        n = dra_line_bytes(at + i, file->bytes - i);
        const dra_json_line line = {path, number, i};
        if (!is_blank(at + i, n)) status = read_line(at + i, n, &line, fn, user, err);
        i += n;
        if (!meter || i - told < DRA_DOCUMENT_PART) continue;
        dra_meter_tell(meter, (int64_t)(told = i));
    }
    return status;
}
