/* Reading examples: rows of one input, what is wrong with them, and what they are in one number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/shape.h"
#include "data/examples.h"
#include "data/integers.h"
#include "file/fail.h"
#include "file/format.h"

/* ---- one example ----------------------------------------------------------------------------- */

static double real_at(const dra_column *c, const unsigned char *row, int64_t i)
{
    float    f;
    double   d;
    uint16_t half;
    if (c->integer) return (double)dra_column_integer(c, row, i);
    const unsigned char *p = row + (size_t)i * dra_dtype_bytes(c->stored);
    switch (c->stored) {
    case DRA_F32: return memcpy(&f, p, sizeof f), (double)f;
    case DRA_F64: return memcpy(&d, p, sizeof d), d;
    default: memcpy(&half, p, sizeof half);
    }
    return (double)(c->stored == DRA_BF16 ? dra_bf16_to_f32(half) : dra_f16_to_f32(half));
}

static void copy_reals(const dra_column *c, const unsigned char *from, dra_dtype dtype, void *to)
{
    for (int64_t i = 0; i < c->count; i++) {
        const double x = real_at(c, from, i);
        if (dtype == DRA_F64)
            ((double *)to)[i] = x;
        else
            ((float *)to)[i] = (float)x;
    }
}

typedef struct place { /* of an element, for errors */
    const char       *path;
    const dra_column *c;
    int64_t           row, i;
} place;

static dra_status fail_element(const place *at, int64_t found, const char *expected, dra_error *err)
{
    char name[DRA_BRIEF];
    return dra_fail_at(err, DRA_ERR_FORMAT, at->path,
                       "tensor '%s', example %lld: element %lld is %lld, expected %s",
                       dra_brief(at->c->shown.name, name), (long long)at->row, (long long)at->i,
                       (long long)found, expected);
}

static dra_status copy_integers(place at, const unsigned char *from, int32_t *to, dra_error *err)
{
    for (at.i = 0; at.i < at.c->count; at.i++) {
        const int64_t x = dra_column_integer(at.c, from, at.i);
        if (x < INT32_MIN || x > INT32_MAX)
            return fail_element(&at, x, "one that fits into 32 bits", err);
        to[at.i] = (int32_t)x;
    }
    return DRA_OK;
}

static void copy_text(const dra_column *c, int64_t row, int32_t *to)
{
    const int64_t n = c->starts[row + 1] - c->starts[row];
    memcpy(to, c->ids + c->starts[row], (size_t)n * sizeof *to);
    for (int64_t i = n; i < c->count; i++) to[i] = DRA_EXAMPLE_PAD;
}

static dra_status copy_row(const dra_table *t, const dra_column *c, int64_t row, dra_dtype dtype,
                           void *to, dra_error *err)
{
    place at = {t->path, c, row, 0};
    if (c->starts) return copy_text(c, row, to), DRA_OK;
    const unsigned char *from = dra_table_row(t, c, row, &at.path);
    const size_t         n = (size_t)c->count;
    if (dtype == DRA_I32) return copy_integers(at, from, to, err);
    if (dtype != c->stored) return copy_reals(c, from, dtype, to), DRA_OK;
    at.i = (int64_t)(dtype == DRA_BOOL ? dra_bools_wrong(from, n) : n);
    if (at.i < c->count) return fail_element(&at, from[at.i], "0 or 1", err);
    memcpy(to, from, n * dra_dtype_bytes(dtype));
    return DRA_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool can_convert(const dra_column *c, dra_dtype to)
{
    if (to == DRA_I32) return c->integer > 0;
    return c->stored == to || (c->shown.real && (to == DRA_F32 || to == DRA_F64));
}

static dra_status find_column(const dra_examples *e, const char *name, dra_dtype dtype,
                              const dra_column **out, dra_error *err)
{
    char room[DRA_BRIEF];
    *out = dra_examples_column(e, name);
    if (!*out)
        return dra_fail_at(err, DRA_ERR_NAME, e->table->path, "no tensor '%s'",
                           dra_brief(name ? name : "", room));
    if (dra_dtype_get(dtype) && can_convert(*out, dtype)) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_DTYPE, e->table->path, "tensor '%s': dtype %s, expected %s",
                       dra_brief(name, room), (*out)->shown.dtype_name,
                       dtype == DRA_I32       ? "integers"
                       : dra_dtype_get(dtype) ? dra_file_dtype_name(dtype)
                                              : "another");
}

dra_status dra_examples_read(const dra_examples *e, const char *name, int64_t n,
                             const int64_t *rows, dra_dtype dtype, void *to, dra_error *err)
{
    const dra_column *c;
    dra_status        status = find_column(e, name, dtype, &c, err);
    if (status != DRA_OK) return status;
    const size_t bytes = (size_t)c->count * dra_dtype_bytes(dtype);
    for (int64_t b = 0; b < n && bytes && status == DRA_OK; b++) {
        unsigned char *at = (unsigned char *)to + (size_t)b * bytes;
        if (rows[b] < -1 || rows[b] >= e->table->N)
            status = dra_fail_at(err, DRA_ERR_INDEX, e->table->path,
                                 "no example %lld, there are %lld", (long long)rows[b],
                                 (long long)e->table->N);
        else if (rows[b] < 0)
            memset(at, 0, bytes);
        else
            status = copy_row(e->table, c, rows[b], dtype, at, err);
    }
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

dra_status dra_examples_check_floats(const dra_examples *e, const char *name, dra_error *err)
{
    const dra_column *c;
    char              room[DRA_BRIEF];
    const char       *path;
    const dra_status  st = find_column(e, name, DRA_F64, &c, err);
    if (st != DRA_OK) return st;
    for (int64_t row = 0; row < e->table->N && c->count; row++) {
        const unsigned char *from = dra_table_row(e->table, c, row, &path);
        for (int64_t i = 0; i < c->count; i++) {
            const double x = real_at(c, from, i);
            if (isfinite(x)) continue;
            return dra_fail_at(err, DRA_ERR_FORMAT, path,
                               "tensor '%s', example %lld: element %lld is %g, expected a finite "
                               "number",
                               dra_brief(name, room), (long long)row, (long long)i, x);
        }
    }
    return DRA_OK;
}

static dra_status check_integer(const place *at, int64_t x, int64_t least, int64_t most, bool pads,
                                dra_error *err)
{
    char expected[80];
    if ((x >= least && x <= most) || (pads && x == DRA_EXAMPLE_PAD)) return DRA_OK;
    snprintf(expected, sizeof expected, "%lld to %lld%s", (long long)least, (long long)most,
             pads ? ", or -100 where there is none" : "");
    return fail_element(at, x, expected, err);
}

dra_status dra_examples_check_integers(const dra_examples *e, const char *name, int64_t least,
                                       int64_t most, bool pads, dra_error *err)
{
    const dra_table *t = e->table;
    place            at = {.path = t->path};
    dra_status       st = find_column(e, name, DRA_I32, &at.c, err);
    for (; at.row < t->N && st == DRA_OK && at.c->count; at.row++) {
        const bool           text = at.c->starts;
        const unsigned char *from = text ? NULL : dra_table_row(t, at.c, at.row, &at.path);
        const int64_t        first = text ? at.c->starts[at.row] : 0;
        const int64_t        n = text ? at.c->starts[at.row + 1] - first : at.c->count;
        for (at.i = 0; at.i < n && st == DRA_OK; at.i++)
            st = check_integer(
                &at, text ? at.c->ids[first + at.i] : dra_column_integer(at.c, from, at.i), least,
                most, pads, err);
    }
    return st;
}

/* ---- a fingerprint --------------------------------------------------------------------------- */

static void add_column(dra_hash *h, const dra_table *t, const dra_column *c)
{
    dra_hash_add_text(h, c->shown.name);
    dra_hash_add_text(h, c->shown.dtype_name);
    dra_hash_add(h, &c->shown.shape.rank, sizeof c->shown.shape.rank);
    dra_hash_add(h, c->shown.shape.dim, sizeof *c->shown.shape.dim * (size_t)c->shown.shape.rank);
    if (c->starts) {
        dra_hash_add(h, c->starts, (size_t)(t->N + 1) * sizeof *c->starts);
        dra_hash_add(h, c->ids, (size_t)c->starts[t->N] * sizeof *c->ids);
        return;
    }
    for (int64_t row = 0; row < t->N; row++) { /* by rows: however they are cut into shards */
        const char *path;
        dra_hash_add(h, dra_table_row(t, c, row, &path), c->bytes);
    }
}

uint64_t dra_examples_fingerprint(const dra_examples *e)
{
    const uint64_t order[] = {(uint64_t)e->begin, (uint64_t)e->end, e->c.seed, (uint64_t)e->c.B};
    dra_hash       h;
    dra_hash_begin(&h, 0);
    dra_hash_add(&h, order, sizeof order);
    for (size_t i = 0; i < e->table->n; i++) add_column(&h, e->table, &e->table->column[i]);
    return dra_hash_end(&h);
}
