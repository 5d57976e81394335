/* Status names, error texts, the version. */
#include "base/error.h"

#include <stdio.h>

const char *dra_version(void) { return DRA_VERSION_TEXT; }

const char *dra_status_name(dra_status status)
{
    static const char *const names[] = {
        [DRA_OK] = "ok",
        [DRA_ERR_SHAPE] = "shape",
        [DRA_ERR_DTYPE] = "dtype",
        [DRA_ERR_VALUE] = "value",
        [DRA_ERR_NAME] = "name",
        [DRA_ERR_INDEX] = "index",
        [DRA_ERR_GRAD] = "gradient",
        [DRA_ERR_DEVICE] = "device",
        [DRA_ERR_MEMORY] = "memory",
        [DRA_ERR_BIND] = "bind",
        [DRA_ERR_FILE] = "file",
        [DRA_ERR_FORMAT] = "format",
        [DRA_ERR_BUSY] = "busy",
    };
    _Static_assert(sizeof names / sizeof *names == DRA_STATUS_COUNT, "a name for each");
    return (unsigned)status < DRA_STATUS_COUNT ? names[status] : "unknown";
}

dra_status dra_fail_v(dra_error *err, dra_status code, const char *format, va_list args)
{
    if (err) {
        err->code = code;
        vsnprintf(err->text, sizeof err->text, format, args);
        dra_make_shown(err->text);
    }
    return code;
}

dra_status dra_fail(dra_error *err, dra_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    dra_fail_v(err, code, format, args);
    va_end(args);
    return code;
}
