/* Examples: rows of tensors that share their first size. */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "data/integers.h"
#include "data/shuffle.h"
#include "dra/file.h"
#include "file/fail.h"
#include "file/format.h"

typedef struct input {
    dra_example_input    shown;
    dra_dtype            stored; /* DRA_DTYPE_COUNT: an integer dra has no type for, or no number */
    const unsigned char *data;
    int64_t              count; /* elements of one example */
} input;

struct dra_examples {
    dra_examples_config c;
    char               *path;
    dra_tensors        *tensors;
    input              *input;
    size_t              n;
    int64_t             begin, end;
};

/* ---- open ------------------------------------------------------------------------------------ */

static dra_dtype read_as(const dra_tensor_info *t)
{
    const dra_dtype_info *info = dra_dtype_get(t->dtype);
    if (info && info->is_float) return DRA_REAL;
    if (t->dtype == DRA_BOOL) return DRA_BOOL;
    return dra_integer_width(t->dtype_name) ? DRA_I32 : DRA_DTYPE_COUNT;
}

static dra_status take_input(dra_examples *e, size_t i, int64_t N, dra_error *err)
{
    const dra_tensor_info *t = dra_tensors_at(e->tensors, i),
                          *first = dra_tensors_at(e->tensors, 0);
    input *in = &e->input[i];
    char   shape[160], name[DRA_BRIEF], other[DRA_BRIEF];
    if (t->shape.rank < 1)
        return dra_fail_at(err, DRA_ERR_SHAPE, e->path,
                           "tensor '%s': shape (), expected an axis of examples",
                           dra_brief(t->name, name));
    if (t->shape.dim[0] != N)
        return dra_fail_at(err, DRA_ERR_SHAPE, e->path,
                           "tensor '%s': shape %s, expected %lld examples as in '%s'",
                           dra_brief(t->name, name), dra_shape_text(&t->shape, shape, sizeof shape),
                           (long long)N, dra_brief(first->name, other));
    in->shown = (dra_example_input){t->name, t->dtype_name, read_as(t), {t->shape.rank - 1, {0}}};
    memcpy(in->shown.shape.dim, t->shape.dim + 1, sizeof t->shape.dim - sizeof *t->shape.dim);
    in->stored = t->dtype;
    in->data = t->data;
    in->count = dra_shape_count(&in->shown.shape);
    return DRA_OK;
}

static dra_status take_inputs(dra_examples *e, dra_error *err)
{
    const dra_tensor_info *first = dra_tensors_at(e->tensors, 0);
    const int64_t          N = first && first->shape.rank ? first->shape.dim[0] : 0;
    dra_status             status = DRA_OK;
    e->n = dra_tensors_count(e->tensors);
    e->input = calloc(e->n + 1, sizeof *e->input);
    if (!e->input) return dra_fail_at(err, DRA_ERR_MEMORY, e->path, "no memory to open it");
    for (size_t i = 0; i < e->n && status == DRA_OK; i++) status = take_input(e, i, N, err);
    if (status != DRA_OK) return status;
    e->begin = (int64_t)(e->c.from * (double)N);
    e->end = dra_imin((int64_t)(e->c.to * (double)N), N);
    if (e->begin < e->end) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_VALUE, e->path, "%lld examples, none of them from %g to %g",
                       (long long)N, e->c.from, e->c.to);
}

dra_status dra_examples_open(const dra_examples_config *c, dra_examples **out, dra_error *err)
{
    if (!out) return dra_fail(err, DRA_ERR_VALUE, "examples_open: no out");
    *out = NULL;
    if (!c || !c->path) return dra_fail(err, DRA_ERR_VALUE, "examples_open: no path");
    if (c->B < 1 || c->B >= (int64_t)1 << 31)
        return dra_fail(err, DRA_ERR_VALUE, "examples_open: B %lld, expected 1 to 2^31 - 1",
                        (long long)c->B);
    double to = c->to;
    if (dra_part_check("examples_open", c->from, &to, err) != DRA_OK) return DRA_ERR_VALUE;
    dra_examples *e = calloc(1, sizeof *e);
    if (!e) return dra_fail_at(err, DRA_ERR_MEMORY, c->path, "no memory to open it");
    e->c = *c;
    e->c.to = to;
    e->c.path = e->path = strdup(c->path);
    dra_status status = e->path ? dra_tensors_open(e->path, &e->tensors, err)
                                : dra_fail_at(err, DRA_ERR_MEMORY, c->path, "no memory to open it");
    if (status == DRA_OK) status = take_inputs(e, err);
    if (status == DRA_OK)
        *out = e;
    else
        dra_examples_close(e);
    return status;
}

void dra_examples_close(dra_examples *e)
{
    if (!e) return;
    dra_tensors_close(e->tensors);
    free(e->input);
    free(e->path);
    free(e);
}

/* ---- what there is --------------------------------------------------------------------------- */

int64_t dra_examples_count(const dra_examples *e) { return e->end - e->begin; }
int64_t dra_examples_steps(const dra_examples *e)
{
    return dra_div_up(dra_examples_count(e), e->c.B);
}
int dra_examples_inputs(const dra_examples *e) { return (int)e->n; }

const dra_example_input *dra_examples_at(const dra_examples *e, int i)
{
    return i >= 0 && (size_t)i < e->n ? &e->input[i].shown : NULL;
}

static const input *find(const dra_examples *e, const char *name)
{
    for (size_t i = 0; name && i < e->n; i++)
        if (strcmp(e->input[i].shown.name, name) == 0) return &e->input[i];
    return NULL;
}

const dra_example_input *dra_examples_find(const dra_examples *e, const char *name)
{
    const input *in = find(e, name);
    return in ? &in->shown : NULL;
}

/* ---- rows ------------------------------------------------------------------------------------ */

void dra_examples_rows(const dra_examples *e, int64_t step, int64_t *rows)
{
    for (int64_t b = 0; b < e->c.B; b++) {
        const int64_t i = dra_order(e->c.seed, dra_examples_count(e), e->c.once, step * e->c.B + b);
        rows[b] = i < 0 ? -1 : e->begin + i;
    }
}

static double real_at(dra_dtype dtype, const unsigned char *p)
{
    float    f;
    double   d;
    uint16_t half;
    switch (dtype) {
    case DRA_F32: return memcpy(&f, p, sizeof f), (double)f;
    case DRA_F64: return memcpy(&d, p, sizeof d), d;
    default: memcpy(&half, p, sizeof half);
    }
    return (double)(dtype == DRA_BF16 ? dra_bf16_to_f32(half) : dra_f16_to_f32(half));
}

static void copy_reals(const input *in, const unsigned char *from, dra_dtype dtype, void *to)
{
    const size_t width = dra_dtype_bytes(in->stored);
    for (int64_t i = 0; i < in->count; i++) {
        const double x = real_at(in->stored, from + (size_t)i * width);
        if (dtype == DRA_F64)
            ((double *)to)[i] = x;
        else
            ((float *)to)[i] = (float)x;
    }
}

static dra_status fail_element(const dra_examples *e, const input *in, int64_t row, int64_t i,
                               int64_t found, const char *expected, dra_error *err)
{
    char name[DRA_BRIEF];
    return dra_fail_at(err, DRA_ERR_FORMAT, e->path,
                       "tensor '%s', example %lld: element %lld is %lld, expected %s",
                       dra_brief(in->shown.name, name), (long long)row, (long long)i,
                       (long long)found, expected);
}

static dra_status copy_integers(const dra_examples *e, const input *in, int64_t row,
                                dra_integers from, int32_t *to, dra_error *err)
{
    for (int64_t i = 0; i < in->count; i++) {
        const int64_t x = dra_integer_at(from, i);
        if (x < INT32_MIN || x > INT32_MAX)
            return fail_element(e, in, row, i, x, "one that fits into 32 bits", err);
        to[i] = (int32_t)x;
    }
    return DRA_OK;
}

static dra_status copy_row(const dra_examples *e, const input *in, int64_t row, dra_dtype dtype,
                           void *to, dra_error *err)
{
    const bool           is_int = dtype == DRA_I32;
    const size_t         width = is_int ? dra_integer_width(in->shown.dtype_name)
                                        : dra_dtype_bytes(in->stored);
    const size_t         n = (size_t)in->count;
    const unsigned char *from = in->data + (size_t)row * n * width;
    if (is_int) return copy_integers(e, in, row, (dra_integers){from, width}, to, err);
    if (dtype != in->stored) return copy_reals(in, from, dtype, to), DRA_OK;
    const size_t wrong = dtype == DRA_BOOL ? dra_bools_wrong(from, n) : n;
    if (wrong < n) return fail_element(e, in, row, (int64_t)wrong, from[wrong], "0 or 1", err);
    memcpy(to, from, n * width);
    return DRA_OK;
}

static bool converts(const input *in, dra_dtype to)
{
    const dra_dtype_info *stored = dra_dtype_get(in->stored);
    if (to == DRA_I32) return dra_integer_width(in->shown.dtype_name) > 0;
    return stored && (in->stored == to || (stored->is_float && (to == DRA_F32 || to == DRA_F64)));
}

dra_status dra_examples_read(const dra_examples *e, const char *name, int64_t n,
                             const int64_t *rows, dra_dtype dtype, void *to, dra_error *err)
{
    const int64_t N = e->n ? dra_tensors_at(e->tensors, 0)->shape.dim[0] : 0;
    char          room[DRA_BRIEF];
    const input  *in = find(e, name);
    dra_status    status = DRA_OK;
    if (!in)
        return dra_fail_at(err, DRA_ERR_NAME, e->path, "no tensor '%s'",
                           dra_brief(name ? name : "", room));
    if (!dra_dtype_get(dtype) || !converts(in, dtype))
        return dra_fail_at(err, DRA_ERR_DTYPE, e->path, "tensor '%s': dtype %s, expected %s",
                           dra_brief(name, room), in->shown.dtype_name,
                           dtype == DRA_I32       ? "integers"
                           : dra_dtype_get(dtype) ? dra_file_dtype_name(dtype)
                                                  : "another");
    const size_t bytes = (size_t)in->count * dra_dtype_bytes(dtype);
    for (int64_t b = 0; b < n && bytes && status == DRA_OK; b++) {
        unsigned char *at = (unsigned char *)to + (size_t)b * bytes;
        if (rows[b] < -1 || rows[b] >= N)
            status = dra_fail_at(err, DRA_ERR_INDEX, e->path, "no example %lld, there are %lld",
                                 (long long)rows[b], (long long)N);
        else if (rows[b] < 0)
            memset(at, 0, bytes);
        else
            status = copy_row(e, in, rows[b], dtype, at, err);
    }
    return status;
}
