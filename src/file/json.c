/* JSON by jansson, after checks that jansson does not do. */
#include "file/json.h"

#include "base/shape.h"
#include "file/fail.h"

#include <errno.h>

/* What stands outside of texts: how deep brackets nest, whether there is a minus. */
typedef struct outline {
    int64_t depth;
    bool    minus;
} outline;

static outline look_over(const char *text, size_t bytes)
{
    outline o = {0};
    int64_t open = 0;
    bool    quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (c == '"')
            quoted = !quoted;
        else if (quoted)
            i += c == '\\'; /* the next byte is escaped, perhaps a quote */
        else if (c == '{' || c == '[')
            o.depth = dra_imax(o.depth, ++open);
        else if (c == '}' || c == ']')
            open--;
        else if (c == '-')
            o.minus = true;
    }
    return o;
}

dra_status dra_json_parse(const char *path, const char *text, size_t bytes, dra_json_rules rules,
                          json_t **out, dra_error *err)
{
    char          room[DRA_BRIEF];
    json_error_t  found;
    const outline o = look_over(text, bytes);
    *out = NULL;
    if (o.depth > rules.depth)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "JSON nests %lld deep, expected at most %d",
                           (long long)o.depth, rules.depth);
    if (rules.no_minus && o.minus)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "JSON has a negative number");
    errno = 0;
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &found);
    if (*out) return DRA_OK;
    /* Where jansson gets no memory it says so, says nothing, or blames the text; but it then ends at
     * once, so that what malloc() said is still there. */
    if (json_error_code(&found) == json_error_out_of_memory || !found.text[0] || errno == ENOMEM)
        return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory for its JSON");
    return dra_fail_at(err, DRA_ERR_FORMAT, path, "JSON, line %d, column %d: %s", found.line,
                       found.column, dra_brief(found.text, room));
}
