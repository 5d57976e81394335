/* Parts of a struct that a program has filled, against what was chosen there. */
#include "file/parts.h"

#include <stdio.h>

#include "base/error.h"

enum { TABLES = sizeof((dra_part *)0)->fields / sizeof *((dra_part *)0)->fields };

bool dra_parts_have(const dra_part *const *parts, const dra_part *part)
{
    for (; parts && *parts; parts++)
        if (*parts == part) return true;
    return false;
}

/* The key of a part that is set; NULL: none is. */
static const char *find_said(const dra_part *part, const char *options)
{
    const char *key = NULL;
    for (int i = 0; i < TABLES && !key && part->fields[i]; i++)
        key = dra_fields_said(part->fields[i], options);
    return key;
}

static dra_status refuse_part(const char *what, const char *key, const dra_part *part,
                              const dra_choice *choices, dra_error *err)
{
    char   names[160] = "";
    size_t at = 0;
    int    n = 0;
    for (const dra_choice *c = choices; c->name; c++) {
        if (!dra_parts_have(c->parts, part) || at >= sizeof names) continue;
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", n++ ? ", " : "", c->name);
    }
    return dra_fail(err, DRA_ERR_VALUE, "%s: %s is set, which only %s %s", what, key, names,
                    n > 1 ? "have" : "has");
}

dra_status dra_parts_check_ranges(const char *what, const dra_part *part, const void *in,
                                  dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < TABLES && part->fields[i] && st == DRA_OK; i++)
        st = dra_fields_check(part->fields[i], what, (const char *)in + part->offset, err);
    return st;
}

dra_status dra_parts_check(const char *what, const dra_part *const *all,
                           const dra_part *const *mine, const dra_choice *choices, const void *in,
                           dra_error *err)
{
    dra_status st = DRA_OK;
    for (; *all && st == DRA_OK; all++) {
        const char *options = (const char *)in + (*all)->offset;
        const char *key = dra_parts_have(mine, *all) ? NULL : find_said(*all, options);
        if (key) return refuse_part(what, key, *all, choices, err);
        st = dra_parts_check_ranges(what, *all, in, err);
    }
    return st;
}
