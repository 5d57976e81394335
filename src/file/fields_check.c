/* Structs that programs have filled, against the table that describes them. */
#include "base/error.h"
#include "file/fields.h"

const char *dra_fields_said(const dra_field *table, const void *in)
{
    const dra_field *f;
    char             name[100];
    for (size_t i = 0; dra_fields_at(table, i, name, sizeof name, &f); i++)
        if (!f->fields && dra_fields_has(table, name, in)) return f->name;
    return NULL;
}

static int64_t last_choice(const dra_field *f)
{
    int64_t n = 0;
    if (f->kind == DRA_FIELD_SWITCH) return 2;
    while (f->choices[n]) n++;
    return n - 1;
}

static dra_status check_whole(const dra_field *f, const char *what, int64_t n, int64_t least,
                              int64_t most, dra_error *err)
{
    if (n >= least && n <= most) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "%s: %s is %lld, expected %lld to %lld", what, f->name,
                    (long long)n, (long long)least, (long long)most);
}

dra_status dra_field_check(const dra_field *f, const char *what, const void *in, dra_error *err)
{
    const void  *at = (const char *)in + f->offset;
    const double x = f->kind == DRA_FIELD_REAL ? *(const double *)at : 0;
    switch (f->kind) {
    case DRA_FIELD_INT:
        return check_whole(f, what, *(const int64_t *)at, (int64_t)f->min, (int64_t)f->max, err);
    case DRA_FIELD_SWITCH:
    case DRA_FIELD_CHOICE: return check_whole(f, what, *(const int *)at, 0, last_choice(f), err);
    case DRA_FIELD_REAL:
        if (x >= f->min && x <= f->max) return DRA_OK;
        return dra_fail(err, DRA_ERR_VALUE, "%s: %s is %g, expected %g to %g", what, f->name, x,
                        f->min, f->max);
    default: return DRA_OK;
    }
}

dra_status dra_fields_check(const dra_field *table, const char *what, const void *in,
                            dra_error *err)
{
    dra_status st = DRA_OK;
    for (const dra_field *f = table; f->name && st == DRA_OK; f++)
        st = dra_field_check(f, what, in, err);
    return st;
}
