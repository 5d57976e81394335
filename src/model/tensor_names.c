/* Rules at work: which tensor holds a parameter, and its numbers from there and back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "model/format.h"

/* ---- names ----------------------------------------------------------------------------------- */

bool dra_pattern_fits(const char *pattern, const char *name, int64_t *l)
{
    const char *star = strchr(pattern, '*');
    if (!star) return strcmp(pattern, name) == 0;
    const size_t n = (size_t)(star - pattern);
    char        *end;
    if (strncmp(pattern, name, n) != 0 || name[n] < '0' || name[n] > '9') return false;
    *l = strtoll(name + n, &end, 10);
    return strcmp(end, star + 1) == 0;
}

dra_status dra_name_rules_create(const dra_model_config *c, dra_name_rules *out, dra_error *err)
{
    const dra_format *f = dra_format_of(c);
    *out = (dra_name_rules){.format = f, .row = f->rules};
    return f->make_rules ? f->make_rules(c, out, err) : DRA_OK;
}

void dra_name_rules_free(dra_name_rules *n)
{
    dra_arena_free(&n->arena);
    *n = (dra_name_rules){0};
}

const dra_name_rule *dra_name_rules_find(const dra_name_rules *n, const char *param, int64_t *l)
{
    for (const dra_name_rule *r = n->row; r && r->ours; r++)
        if (dra_pattern_fits(r->ours, param, l)) return r;
    return NULL;
}

void dra_pattern_fill(const char *prefix, const char *pattern, int64_t l,
                      char name[DRA_TENSOR_NAME])
{
    const char *star = strchr(pattern, '*');
    const int   n = star ? (int)(star - pattern) : (int)strlen(pattern);
    char        number[24] = "";
    if (star) snprintf(number, sizeof number, "%lld", (long long)l);
    snprintf(name, DRA_TENSOR_NAME, "%s%.*s%s%s", prefix, n, pattern, number, star ? star + 1 : "");
}

const char *dra_name_rule_name(const dra_format *f, const dra_name_rule *r, int64_t l,
                               char name[DRA_TENSOR_NAME])
{
    dra_pattern_fill(strcmp(r->theirs, f->head) == 0 ? "" : f->prefix, r->theirs, l, name);
    return name;
}

const dra_tensor_source_entry *dra_format_look(const dra_format *f, const dra_tensor_source *s,
                                               const char *pattern, int64_t l)
{
    const char *const              prefixes[] = {f->prefix, "", f->wrapped};
    char                           name[DRA_TENSOR_NAME];
    const dra_tensor_source_entry *e = NULL;
    for (int i = 0; i < 3 && !e && prefixes[i] && pattern; i++) {
        dra_pattern_fill(prefixes[i], pattern, l, name);
        e = dra_tensor_source_find(s, name);
    }
    return e;
}

const dra_tensor_source_entry *dra_format_find(const dra_name_rules *n, const dra_tensor_source *s,
                                               const dra_spec *p, const dra_name_rule **rule)
{
    int64_t              l = 0;
    const dra_name_rule *r = *rule = dra_name_rules_find(n, p->name, &l);
    if (!r) return dra_tensor_source_find(s, p->name);
    const dra_tensor_source_entry *e = dra_format_look(n->format, s, r->theirs, l);
    return e ? e : dra_format_look(n->format, s, r->instead, l);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

dra_param_layout dra_name_rule_layout(const dra_name_rule *r, const dra_tensor_info *t)
{
    return r ? (dra_param_layout){t->dtype, r->transposed, r->part, r->parts}
             : (dra_param_layout){t->dtype};
}

bool dra_name_rule_changes(const dra_tensor_source *s, const dra_name_rule *r)
{
    return r && r->decay && s->dim;
}

dra_shape dra_name_rule_shape(const dra_name_rule *r, const dra_shape *ours)
{
    dra_shape shape = *ours;
    if (!r) return shape;
    if (r->shape.rank) return r->shape;
    if (r->parts) shape.dim[0] *= r->parts;
    if (r->transposed) shape = DRA_SHAPE(shape.dim[1], shape.dim[0]);
    for (int i = 0; i < r->ones; i++) {
        for (int32_t k = shape.rank; k > 0; k--) shape.dim[k] = shape.dim[k - 1];
        shape.dim[0] = 1;
        shape.rank++;
    }
    return shape;
}

/* Without axes of size 1 in front, which mean nothing. */
static dra_shape core(dra_shape s)
{
    while (s.rank > 1 && s.dim[0] == 1) {
        for (int32_t k = 1; k < s.rank; k++) s.dim[k - 1] = s.dim[k];
        s.rank--;
    }
    return s;
}

dra_status dra_format_check(const dra_format *f, const dra_tensor_source_entry *e,
                            const dra_name_rule *r, const dra_spec *p, dra_error *err)
{
    char            name[DRA_BRIEF], is[80], should[80];
    const dra_shape expected = dra_name_rule_shape(r, &p->shape);
    const dra_shape a = core(e->info->shape), b = core(expected);
    if (r ? dra_shape_equal(&a, &b) : dra_shape_equal(&e->info->shape, &expected)) return DRA_OK;
    return dra_fail_at(
        err, DRA_ERR_SHAPE, e->file, "tensor '%s': shape %s, expected %s by its %s config",
        dra_brief(e->info->name, name), dra_shape_text(&e->info->shape, is, sizeof is),
        dra_shape_text(&expected, should, sizeof should), f->name);
}

/* ---- numbers --------------------------------------------------------------------------------- */

enum { TILE = 32 };

/* Reads one stored (in, out), tile by tile, so that both sides stay in the cache. */
static bool read_transposed(const dra_tensor_info *t, const dra_name_rule *r, int64_t O, int64_t I,
                            dra_real *to)
{
    const int64_t parts = r->parts ? r->parts : 1, width = parts * O;
    dra_real      row[TILE];
    for (int64_t o = 0; o < O; o += TILE)
        for (int64_t i = 0; i < I; i++) {
            const int64_t n = O - o < TILE ? O - o : TILE;
            if (!dra_tensor_copy(t, (size_t)(i * width + r->part * O + o), (size_t)n, DRA_REAL,
                                 row))
                return false;
            for (int64_t k = 0; k < n; k++) to[(o + k) * I + i] = row[k];
        }
    return true;
}

/* The first number of a tensor that real numbers cannot hold; 0: there is none. */
static double too_large(const dra_tensor_info *t)
{
    const size_t n = (size_t)dra_shape_count(&t->shape);
    double       x[256];
    for (size_t at = 0; t->dtype == DRA_F64 && at < n; at += sizeof x / sizeof *x) {
        const size_t some = n - at < sizeof x / sizeof *x ? n - at : sizeof x / sizeof *x;
        dra_tensor_copy(t, at, some, DRA_F64, x);
        for (size_t i = 0; i < some; i++)
            if (isfinite(x[i]) && !isfinite((dra_real)x[i])) return x[i];
    }
    return 0;
}

dra_status dra_name_rule_read(const dra_tensor_source *s, const dra_tensor_source_entry *e,
                              const dra_name_rule *r, const dra_spec *p, dra_real *to,
                              dra_error *err)
{
    const size_t n = (size_t)dra_shape_count(&p->shape);
    const bool   read = r && r->transposed
                            ? read_transposed(e->info, r, p->shape.dim[0], p->shape.dim[1], to)
                            : dra_tensor_copy(e->info, r && r->parts ? n * (size_t)r->part : 0, n,
                                              DRA_REAL, to);
    char         name[DRA_BRIEF];
    if (!read)
        return dra_fail_at(err, DRA_ERR_DTYPE, e->file,
                           "tensor '%s': dtype %s, expected F32, F16, BF16 or F64",
                           dra_brief(e->info->name, name), e->info->dtype_name);
    const double large = too_large(e->info);
    if (large != 0)
        return dra_fail_at(err, DRA_ERR_VALUE, e->file, "tensor '%s': %g is beyond %s",
                           dra_brief(e->info->name, name), large, dra_dtype_get(DRA_REAL)->name);
    for (size_t i = 0; i < n && dra_name_rule_changes(s, r); i++)
        to[i] = (dra_real)log(-(double)to[i]);
    return DRA_OK;
}

void dra_name_rule_write(const dra_name_rule *r, const dra_spec *p, const dra_real *from, bool cpp,
                         dra_real *to)
{
    const int64_t n = dra_shape_count(&p->shape);
    const int64_t parts = r && r->parts ? r->parts : 1, part = r ? r->part : 0;
    if (r && r->transposed) {
        const int64_t O = p->shape.dim[0], I = p->shape.dim[1];
        for (int64_t o = 0; o < O; o += TILE)
            for (int64_t i = 0; i < I; i++)
                for (int64_t k = o; k < O && k < o + TILE; k++)
                    to[i * parts * O + part * O + k] = from[k * I + i];
        return;
    }
    memcpy(to + (parts > 1 ? n * part : 0), from, (size_t)n * sizeof *to);
    for (int64_t i = 0; i < n && cpp && r && r->decay; i++) to[i] = (dra_real)-exp((double)from[i]);
}
