/* The table of examples: tensors of files as inputs, shards one after the other. */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "data/examples.h"
#include "data/integers.h"
#include "file/fail.h"

/* ---- what a tensor holds --------------------------------------------------------------------- */

static void set_type(dra_column *c, const dra_tensor_info *t)
{
    const dra_dtype_info *info = dra_dtype_get(t->dtype);
    c->stored = t->dtype;
    c->is_signed = strcmp(t->dtype_name, "I8") == 0 || strcmp(t->dtype_name, "I16") == 0;
    c->integer = c->is_signed ? (t->dtype_name[1] == '8' ? 1 : 2)
                              : dra_integer_width(t->dtype_name);
    c->shown.dtype_name = t->dtype_name;
    c->shown.dtype = info && info->is_float && !dra_is_quantised(t->dtype) ? DRA_REAL
                     : t->dtype == DRA_BOOL                                ? DRA_BOOL
                     : c->integer                                          ? DRA_I32
                                                                           : DRA_DTYPE_COUNT;
    c->shown.real = (info && info->is_float && !dra_is_quantised(t->dtype)) ||
                    (c->integer && c->integer <= 2 && t->dtype != DRA_BOOL);
}

int64_t dra_column_integer(const dra_column *c, const unsigned char *row, int64_t i)
{
    int16_t i16;
    if (!c->is_signed) return dra_integer_at((dra_integers){row, c->integer}, i);
    if (c->integer == 1) return (int8_t)row[i];
    memcpy(&i16, row + 2 * i, sizeof i16);
    return i16;
}

/* ---- the first part -------------------------------------------------------------------------- */

static dra_status make_column(dra_table *t, size_t i, const dra_example_part *part, dra_error *err)
{
    const dra_example_tensor *from = &part->tensor[i], *first = &part->tensor[0];
    const dra_tensor_info    *x = &from->info;
    dra_column               *c = &t->column[i];
    char                      shape[160], name[DRA_BRIEF], other[DRA_BRIEF];
    if (x->shape.rank < 1)
        return dra_fail_at(err, DRA_ERR_SHAPE, from->path,
                           "tensor '%s': shape (), expected an axis of examples",
                           dra_brief(x->name, name));
    if (x->shape.dim[0] != first->info.shape.dim[0])
        return dra_fail_at(err, DRA_ERR_SHAPE, from->path,
                           "tensor '%s': shape %s, expected %lld examples as in '%s'",
                           dra_brief(x->name, name), dra_shape_text(&x->shape, shape, sizeof shape),
                           (long long)first->info.shape.dim[0], dra_brief(first->info.name, other));
    for (size_t k = 0; k < i; k++)
        if (strcmp(part->tensor[k].info.name, x->name) == 0)
            return dra_fail_at(err, DRA_ERR_NAME, from->path, "tensor '%s' is there twice",
                               dra_brief(x->name, name));
    set_type(c, x);
    c->shown.name = x->name;
    c->shown.shape.rank = x->shape.rank - 1;
    memcpy(c->shown.shape.dim, x->shape.dim + 1, sizeof x->shape.dim - sizeof *x->shape.dim);
    c->count = dra_shape_count(&c->shown.shape);
    return DRA_OK;
}

static dra_status make_columns(dra_table *t, dra_error *err)
{
    const dra_example_part *part = t->files.part;
    dra_status              st = DRA_OK;
    t->parts = t->files.n;
    t->n = part->n;
    t->column = calloc(t->n + 1, sizeof *t->column);
    t->first = calloc(t->parts + 1, sizeof *t->first);
    if (!t->column || !t->first)
        return dra_fail_at(err, DRA_ERR_MEMORY, t->path, "out of memory, cannot open it");
    for (size_t i = 0; i < t->n && st == DRA_OK; i++) st = make_column(t, i, part, err);
    return st;
}

/* ---- further parts --------------------------------------------------------------------------- */

static const dra_example_tensor *find_tensor(const dra_example_part *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->tensor[i].info.name, name) == 0) return &p->tensor[i];
    return NULL;
}

/* A tensor of a shard is that of the first one, but for how many examples it has. */
static dra_status check_shard(const dra_table *t, const dra_column *c, const dra_example_part *p,
                              const dra_example_tensor *x, dra_error *err)
{
    char      name[DRA_BRIEF], a[160], b[160], first[DRA_BRIEF];
    dra_shape expected = t->files.part[0].tensor[c - t->column].info.shape;
    if (!x)
        return dra_fail_at(err, DRA_ERR_NAME, p->path, "no tensor '%s', which %s has",
                           dra_brief(c->shown.name, name), dra_brief(t->files.part[0].path, first));
    if (x->info.shape.rank > 0) expected.dim[0] = p->tensor[0].info.shape.dim[0];
    if (strcmp(x->info.dtype_name, c->shown.dtype_name) != 0 ||
        !dra_shape_equal(&x->info.shape, &expected))
        return dra_fail_at(
            err, DRA_ERR_SHAPE, x->path, "tensor '%s': %s %s, expected %s %s as in %s",
            dra_brief(c->shown.name, name), x->info.dtype_name,
            dra_shape_text(&x->info.shape, a, sizeof a), c->shown.dtype_name,
            dra_shape_text(&expected, b, sizeof b), dra_brief(t->files.part[0].path, first));
    return DRA_OK;
}

static dra_status join_parts(dra_table *t, dra_error *err)
{
    char       name[DRA_BRIEF];
    dra_status st = DRA_OK;
    for (size_t i = 0; i < t->n && st == DRA_OK; i++) {
        dra_example_tensor *all = dra_arena_alloc(&t->files.arena, t->parts * sizeof *all);
        if (!all) return dra_fail_at(err, DRA_ERR_MEMORY, t->path, "out of memory, cannot open it");
        for (size_t k = 0; k < t->parts && st == DRA_OK; k++) {
            const dra_example_tensor *x = find_tensor(&t->files.part[k], t->column[i].shown.name);
            st = check_shard(t, &t->column[i], &t->files.part[k], x, err);
            if (st != DRA_OK) break;
            all[k] = *x;
            if (x->info.shape.dim[0])
                t->column[i].bytes = x->info.bytes / (size_t)x->info.shape.dim[0];
        }
        t->column[i].part = all;
    }
    for (size_t k = 0; k < t->parts && st == DRA_OK; k++) {
        const dra_example_part *p = &t->files.part[k];
        for (size_t i = 0; i < p->n && p->n > t->n; i++)
            if (!find_tensor(t->files.part, p->tensor[i].info.name))
                return dra_fail_at(err, DRA_ERR_NAME, p->tensor[i].path,
                                   "tensor '%s', which the first file does not have",
                                   dra_brief(p->tensor[i].info.name, name));
        t->first[k + 1] = t->first[k] + (t->n ? p->tensor[0].info.shape.dim[0] : 0);
    }
    if (st == DRA_OK) t->N = t->first[t->parts];
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_lines(const char *path)
{
    const size_t n = strlen(path);
    return n > 6 && strcmp(path + n - 6, ".jsonl") == 0;
}

dra_status dra_table_open(dra_table *t, const dra_examples_config *c, dra_error *err)
{
    const char *const *paths = c->n_paths ? c->paths : &c->path;
    const int          n = c->n_paths ? c->n_paths : 1;
    int                lines = 0;
    for (int i = 0; i < n; i++) lines += is_lines(paths[i]);
    if (lines && lines < n)
        return dra_fail_at(err, DRA_ERR_VALUE, paths[0],
                           "lines of JSON and tensors in one list, expected either kind");
    dra_status st = lines ? DRA_OK : dra_example_files_open(n, paths, &t->files, err);
    if (!(t->path = dra_arena_text(&t->files.arena, paths[0])))
        return dra_fail_at(err, DRA_ERR_MEMORY, paths[0], "out of memory, cannot open it");
    if (lines) return dra_table_open_texts(t, c, err);
    if (st == DRA_OK) st = make_columns(t, err);
    return st == DRA_OK ? join_parts(t, err) : st;
}

void dra_table_free(dra_table *t)
{
    for (size_t i = 0; t->column && i < t->n; i++) {
        free(t->column[i].ids);
        free(t->column[i].starts);
    }
    free(t->column);
    free(t->first);
    dra_example_files_close(&t->files);
}

/* The shard of a row by halving: there may be thousands. */
const unsigned char *dra_table_row(const dra_table *t, const dra_column *c, int64_t row,
                                   const char **path)
{
    size_t low = 0, high = t->parts;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        *(t->first[middle] <= row ? &low : &high) = middle;
    }
    *path = c->part[low].path;
    return (const unsigned char *)c->part[low].info.data + (size_t)(row - t->first[low]) * c->bytes;
}
