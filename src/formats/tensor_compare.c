/* A file against a model: tensors that are missing, those that are none of its, constants. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "formats/adapter.h"

enum { COUNT = 64 }; /* of numbers that are compared at a time */

typedef struct listing { /* names for an error: the first few, and how many there are */
    char   text[300];
    size_t n, shown;
} listing;

static void list_name(listing *l, const char *name)
{
    char         room[DRA_BRIEF];
    const size_t used = strlen(l->text);
    const bool   fits = used + strlen(name) + 2 < sizeof l->text - 40;
    if (fits && l->shown == l->n)
        snprintf(l->text + used, sizeof l->text - used, "%s%s", l->shown++ ? ", " : "",
                 dra_brief(name, room));
    l->n++;
}

/* Its names, and how many are not among them. */
static const char *listed_names(listing *l)
{
    const size_t used = strlen(l->text), more = l->n - l->shown;
    if (more) snprintf(l->text + used, sizeof l->text - used, ", and %zu more", more);
    l->shown = l->n;
    return l->text;
}

static bool is_ignored(const dra_model *m, const dra_name_rules *rules, const char *name)
{
    const dra_format *f = rules->format;
    const size_t      n = strlen(name);
    if (f->class_name && strcmp(name, rules->head) == 0)
        return dra_model_config_of(m)->tied == DRA_ON;
    int64_t l = 0;
    if (rules->blocks && sscanf(name, "blk.%" SCNd64 ".", &l) == 1 && l >= rules->blocks)
        return true;
    for (const char *const *end = f->ignored; end && *end; end++)
        if (n >= strlen(*end) && strcmp(name + n - strlen(*end), *end) == 0) return true;
    for (const char *const *begin = f->skipped; begin && *begin; begin++)
        if (strncmp(name, *begin, strlen(*begin)) == 0) return true;
    return false;
}

/* What a tensor that is missing would be called among those that are there. */
static const char *name_here(const dra_name_rules *n, const dra_spec *p, char name[DRA_TENSOR_NAME])
{
    int64_t              l = 0;
    const dra_name_rule *r = dra_name_rules_find(n, p->name, &l);
    return dra_name_rule_name(n, r, l, name);
}

static dra_status report_differences(const dra_tensor_source *s, const dra_specs *params,
                                     listing *missing, listing *strange, const char *stranger,
                                     dra_error *err)
{
    char      name[DRA_BRIEF];
    dra_guess guess = {.typed = stranger ? stranger : ""};
    if (missing->n > 1)
        return dra_fail_at(err, DRA_ERR_NAME, s->path, "%zu tensors are missing: %s%s", missing->n,
                           listed_names(missing), strange->n ? "; others are unexpected" : "");
    if (missing->n)
        return dra_fail_at(err, DRA_ERR_NAME, s->path, "tensor %s is missing%s%s",
                           listed_names(missing), strange->n ? "; unexpected: " : "",
                           listed_names(strange));
    if (strange->n > 1)
        return dra_fail_at(err, DRA_ERR_NAME, s->path, "%zu unexpected tensors: %s", strange->n,
                           listed_names(strange));
    for (int i = 0; i < dra_specs_count(params); i++)
        dra_guess_try(&guess, dra_specs_at(params, i)->name);
    return dra_fail_at(err, DRA_ERR_NAME, s->path, "tensor %s is unexpected%s%.80s%s",
                       dra_brief(stranger, name), guess.best ? " (did you mean " : "",
                       guess.best ? guess.best : "", guess.best ? "?)" : "");
}

/* How far a constant may be off, relative to it, by the dtype it is stored in. */
static double allowed_error(dra_dtype dtype)
{
    return dtype == DRA_BF16 ? 0x1p-8 : dtype == DRA_F16 ? 0x1p-11 : 1e-6;
}

static dra_status check_constant(const dra_constant *c, const dra_tensor_source_entry *e,
                                 dra_error *err)
{
    const dra_tensor_info *t = e->info;
    char                   name[DRA_BRIEF], is[80];
    dra_real               x = 0;
    dra_brief(t->name, name);
    if (t->shape.rank != 1 || t->shape.dim[0] != c->n)
        return dra_fail_at(err, DRA_ERR_SHAPE, e->file,
                           "tensor '%s': shape %s, expected (%lld) by its config", name,
                           dra_shape_text(&t->shape, is, sizeof is), (long long)c->n);
    for (int64_t i = 0; i < c->n; i++) {
        if (!dra_tensor_copy(t, (size_t)i, 1, DRA_REAL, &x))
            return dra_fail_at(err, DRA_ERR_DTYPE, e->file,
                               "tensor '%s': dtype %s, expected F32, F16, BF16 or F64", name,
                               t->dtype_name);
        const double should = (double)c->data[i];
        if (!(fabs((double)x - should) <= allowed_error(t->dtype) * fabs(should)))
            return dra_fail_at(err, DRA_ERR_VALUE, e->file,
                               "tensor '%s': number %lld is %.9g, expected %.9g by its config",
                               name, (long long)i, (double)x, should);
    }
    return DRA_OK;
}

/* Those that the file has are right. used: they are marked there. */
static dra_status check_constants(const dra_name_rules *n, const dra_tensor_source *s, bool *used,
                                  dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < n->constants && st == DRA_OK; i++) {
        const dra_tensor_source_entry *e = dra_format_look(n, s, n->constant[i].name, 0);
        if (e) used[e - s->entry] = true;
        if (e) st = check_constant(&n->constant[i], e, err);
    }
    return st;
}

/* Two tensors that hold one parameter have the same numbers. */
static dra_status check_copy(const dra_tensor_source_entry *a, const dra_tensor_source_entry *b,
                             dra_error *err)
{
    const size_t n = (size_t)dra_shape_count(&a->info->shape);
    bool         same = dra_shape_equal(&a->info->shape, &b->info->shape);
    char         one[DRA_BRIEF], other[DRA_BRIEF];
    double       x[COUNT], y[COUNT];
    for (size_t at = 0; at < n && same; at += COUNT) {
        const size_t some = n - at < COUNT ? n - at : COUNT;
        same = dra_tensor_copy(a->info, at, some, DRA_F64, x) &&
               dra_tensor_copy(b->info, at, some, DRA_F64, y) &&
               memcmp(x, y, some * sizeof *x) == 0;
    }
    if (same) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_VALUE, b->file,
                       "tensor '%s' differs from '%s', expected one table under two names",
                       dra_brief(b->info->name, other), dra_brief(a->info->name, one));
}

/* A parameter under a second name, where the file has it. used: it is marked there. */
static dra_status check_also(const dra_name_rules *n, const dra_tensor_source *s,
                             const dra_name_rule *r, const dra_tensor_source_entry *e, bool *used,
                             dra_error *err)
{
    const dra_tensor_source_entry *also = r && r->also ? dra_format_look(n, s, r->also, 0) : NULL;
    if (!also || also == e) return DRA_OK;
    used[also - s->entry] = true;
    return check_copy(e, also, err);
}

dra_status dra_format_compare(const dra_model *m, const dra_name_rules *n,
                              const dra_tensor_source *s, dra_error *err)
{
    const dra_specs *params = dra_model_params(m);
    bool            *used = calloc(s->count + 1, sizeof *used);
    listing          missing = {0}, strange = {0};
    char             name[DRA_TENSOR_NAME];
    const char      *stranger = NULL;
    if (!used) return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
    dra_status st = check_constants(n, s, used, err);
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec                *p = dra_specs_at(params, i);
        const dra_name_rule           *r;
        const dra_tensor_source_entry *e = p->added ? NULL : dra_format_find(n, s, p, &r);
        if (p->added) continue;
        if (e) used[e - s->entry] = true;
        if (e && st == DRA_OK) st = check_also(n, s, r, e, used, err);
        if (!e && (!r || !r->part)) /* parts of one tensor are missing together */
            list_name(&missing, r ? name_here(n, p, name) : p->name);
    }
    for (size_t i = 0; i < s->count; i++) {
        const char *found = s->entry[i].info->name;
        if (used[i] || is_ignored(m, n, found)) continue;
        stranger = found;
        list_name(&strange, found);
    }
    free(used);
    if (st != DRA_OK) return st;
    if (missing.n || strange.n)
        return report_differences(s, params, &missing, &strange, stranger, err);
    return s->adapter ? dra_adapter_compare(m, n, s, err) : DRA_OK;
}
