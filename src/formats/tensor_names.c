/* Rules at work: which tensor holds a parameter, and its numbers from there and back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "formats/adapter.h"
#include "formats/expert_tensors.h"

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

dra_status dra_name_rules_create(const dra_model_config *c, dra_dialect dialect,
                                 dra_name_rules *out, dra_error *err)
{
    const dra_format *f = dra_format_of(c);
    *out = (dra_name_rules){.format = f,
                            .dialect = dialect,
                            .prefix = f->prefix,
                            .wrapped = f->wrapped,
                            .head = f->head,
                            .row = f->rules};
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
        if (dra_pattern_fits(r->ours, param, l) && (!r->mixers || r->mixers[*l] == r->mixer))
            return r;
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

const char *dra_name_rule_name(const dra_name_rules *n, const dra_name_rule *r, int64_t l,
                               char name[DRA_TENSOR_NAME])
{
    const bool head = strcmp(r->theirs, n->head) == 0;
    dra_pattern_fill(head ? "" : n->prefix, r->theirs, l, name);
    return name;
}

const dra_tensor_source_entry *dra_format_look(const dra_name_rules *n, const dra_tensor_source *s,
                                               const char *pattern, int64_t l)
{
    const char *const              prefixes[] = {n->prefix, "", n->wrapped};
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
    const dra_tensor_source_entry *e = dra_format_look(n, s, r->theirs, l);
    return e ? e : dra_format_look(n, s, r->instead, l);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

dra_param_layout dra_name_rule_layout(const dra_name_rule *r, const dra_tensor_info *t)
{
    return r ? (dra_param_layout){t->dtype, r->transposed, r->part, r->parts}
             : (dra_param_layout){t->dtype};
}

/* Of parts in front, and of those along the inputs, only what lies as those along outputs do. */
bool dra_name_rule_in_place(const dra_name_rule *r)
{
    if (!r) return true;
    const bool elsewhere = r->place == DRA_PARTS_IN || (r->place && r->transposed);
    return r->as == DRA_AS_IT_IS && !r->halved_every && !elsewhere && !r->order && !r->rows;
}

bool dra_param_in_place(const dra_tensor_source_entry *e, const dra_name_rule *r, const dra_spec *p)
{
    return dra_name_rule_in_place(r) && !dra_adapter_has(e->adapter, e, r, p);
}

static void put_in_front(dra_shape *shape, int64_t n)
{
    for (int32_t k = shape->rank; k > 0; k--) shape->dim[k] = shape->dim[k - 1];
    shape->dim[0] = n;
    shape->rank++;
}

/* Rows of a block of all parts. */
static int64_t block_rows(const dra_name_rule *r)
{
    int64_t n = 0;
    for (int k = 0; k < r->parts; k++) n += r->rows[k];
    return n;
}

dra_shape dra_name_rule_shape(const dra_name_rule *r, const dra_shape *ours)
{
    dra_shape shape = *ours;
    if (!r) return shape;
    if (r->shape.rank) return r->shape;
    if (r->rows) {
        shape.dim[0] = r->blocks * block_rows(r);
        return shape;
    }
    if (r->flat) shape = DRA_SHAPE(dra_shape_count(ours));
    if (r->parts && r->place == DRA_PARTS_OUT) shape.dim[0] *= r->parts;
    if (r->parts && r->place == DRA_PARTS_IN) shape.dim[1] *= r->parts;
    if (r->transposed) shape = DRA_SHAPE(shape.dim[1], shape.dim[0]);
    for (int i = 0; i < r->ones; i++) put_in_front(&shape, 1);
    if (r->parts && r->place == DRA_PARTS_FRONT) put_in_front(&shape, r->parts);
    while (shape.rank < r->rank) shape.dim[shape.rank++] = 1;
    return shape;
}

/* Without axes of size 1 in front, which mean nothing. */
static dra_shape core_shape(dra_shape s)
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
    const dra_shape a = core_shape(e->info->shape), b = core_shape(expected);
    if (r && r->loose && dra_shape_count(&a) == dra_shape_count(&b)) return DRA_OK;
    if (r ? dra_shape_equal(&a, &b) : dra_shape_equal(&e->info->shape, &expected)) return DRA_OK;
    return dra_fail_at(
        err, DRA_ERR_SHAPE, e->file, "tensor '%s': shape %s, expected %s by its %s config",
        dra_brief(e->info->name, name), dra_shape_text(&e->info->shape, is, sizeof is),
        dra_shape_text(&expected, should, sizeof should), f->name);
}

/* ---- numbers --------------------------------------------------------------------------------- */

enum { TILE = 32 };

/* Where element (o, i) of a parameter (O, I) is in its tensor: first + o along_o + i along_i; one
 * of the two steps is 1. Vectors are rows: O is 1. */
typedef struct lie {
    int64_t O, I, first, along_o, along_i;
} lie;

static lie lie_of(const dra_name_rule *r, const dra_shape *s)
{
    const int64_t parts = r && r->parts ? r->parts : 1, part = r ? r->part : 0;
    const int64_t n = dra_shape_count(s), O = s->rank == 2 ? s->dim[0] : 1, I = O ? n / O : 0;
    const bool    out = !r || r->place == DRA_PARTS_OUT;
    if (r && r->transposed)
        return out ? (lie){O, I, part * O, 1, parts * O} : (lie){O, I, part * n, 1, O};
    if (r && r->place == DRA_PARTS_IN) return (lie){O, I, part * I, parts * I, 1};
    return (lie){O, I, part * n, I, 1};
}

/* Tile by tile, so that both sides stay in the cache. */
static bool read_transposed(const dra_tensor_info *t, const lie *w, dra_real *to)
{
    dra_real row[TILE];
    for (int64_t o = 0; o < w->O; o += TILE)
        for (int64_t i = 0; i < w->I; i++) {
            const int64_t n = w->O - o < TILE ? w->O - o : TILE;
            if (!dra_tensor_copy(t, (size_t)(w->first + i * w->along_i + o), (size_t)n, DRA_REAL,
                                 row))
                return false;
            for (int64_t k = 0; k < n; k++) to[(o + k) * w->I + i] = row[k];
        }
    return true;
}

/* Where the rows of block b are in the tensor. */
static int64_t first_row(const dra_name_rule *r, int64_t b)
{
    int64_t before = 0;
    for (int k = 0; k < r->part; k++) before += r->rows[k];
    return b * block_rows(r) + before;
}

static int64_t row_width(const dra_shape *s)
{
    return s->dim[0] ? dra_shape_count(s) / s->dim[0] : 0;
}

static bool read_rows(const dra_tensor_info *t, const dra_name_rule *r, const dra_shape *s,
                      dra_real *to)
{
    const int64_t width = row_width(s), n = r->rows[r->part] * width;
    bool          can = true;
    for (int64_t b = 0; b < r->blocks && can; b++)
        can = dra_tensor_copy(t, (size_t)(first_row(r, b) * width), (size_t)n, DRA_REAL,
                              to + b * n);
    return can;
}

static bool read_numbers(const dra_tensor_info *t, const dra_name_rule *r, const dra_shape *s,
                         dra_real *to)
{
    if (r && r->rows) return read_rows(t, r, s, to);
    const lie w = lie_of(r, s);
    if (r && r->transposed) return read_transposed(t, &w, to);
    if (w.along_o == w.I)
        return dra_tensor_copy(t, (size_t)w.first, (size_t)(w.O * w.I), DRA_REAL, to);
    for (int64_t o = 0; o < w.O; o++)
        if (!dra_tensor_copy(t, (size_t)(w.first + o * w.along_o), (size_t)w.I, DRA_REAL,
                             to + o * w.I))
            return false;
    return true;
}

/* What is stored, of a parameter and back. A decay that is 0 or 1 comes of no finite one: those
 * that give just these again in single precision. */
static double to_stored(dra_stored_as as, double p)
{
    switch (as) {
    case DRA_AS_NEG_EXP: return -exp(p);
    case DRA_AS_DECAY: return exp(-exp(p));
    case DRA_AS_EXP: return exp(p);
    case DRA_AS_PLUS_ONE: return p + 1;
    default: return p;
    }
}

static double from_stored(dra_stored_as as, double x)
{
    const double none = 4.65, all = -17.4;
    switch (as) {
    case DRA_AS_NEG_EXP: return log(-x);
    case DRA_AS_DECAY: return x == 0 ? none : x == 1 ? all : log(-log(x));
    case DRA_AS_EXP: return log(x);
    case DRA_AS_PLUS_ONE: return x - 1;
    default: return x;
    }
}

/* What numbers of a parameter are divided by in its tensor: a power of 2, which loses nothing. */
static double divisor_of(const dra_name_rule *r, const dra_spec *p)
{
    enum { MOST = 400 };
    int64_t l = 0;
    if (!r || r->halved_every < 1 || !dra_pattern_fits(r->ours, p->name, &l)) return 1;
    return ldexp(1, (int)dra_imin(l / r->halved_every, MOST));
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

/* The row of the file that holds row r of the n of a parameter. */
static int64_t row_there(const dra_name_rule *r, int64_t row, int64_t n)
{
    const int64_t D = r->head_rows, i = row % D, first = row - i;
    if (r->order == DRA_ROWS_TILED) {
        const int64_t head = row / D, each = n / (D * r->groups);
        return (head % each * r->groups + head / each) * D + i;
    }
    if (r->order == DRA_ROWS_NEIGHBOURS) return first + (i < D / 2 ? 2 * i : 2 * (i - D / 2) + 1);
    return first + (i % 2 ? D / 2 + i / 2 : i / 2);
}

/* A matrix or vector whose rows, or columns, are in the order of the file, into the order of the
 * parameter, or back. */
static void order_rows(const dra_name_rule *r, const dra_shape *s, bool back, const dra_real *from,
                       dra_real *to)
{
    const int64_t outer = r->inward ? s->dim[0] : 1, n = s->dim[r->inward];
    const int64_t width = outer && n ? dra_shape_count(s) / (outer * n) : 0;
    for (int64_t o = 0; o < outer; o++, from += n * width, to += n * width)
        for (int64_t i = 0; i < n; i++) {
            const int64_t there = row_there(r, i, n), a = back ? i : there, b = back ? there : i;
            memcpy(to + b * width, from + a * width, (size_t)width * sizeof *to);
        }
}

/* The rows of a part, one block, in their order and as they are stored. */
static void write_ordered(const dra_name_rule *r, const dra_shape *s, const dra_real *from,
                          dra_real *to)
{
    const int64_t n = dra_shape_count(s);
    if (r->rows) to += first_row(r, 0) * row_width(s);
    order_rows(r, s, true, from, to);
    for (int64_t i = 0; i < n && r->as; i++) to[i] = (dra_real)to_stored(r->as, (double)to[i]);
}

static dra_status read_ordered(const dra_name_rule *r, const dra_spec *p, dra_real *to,
                               dra_error *err)
{
    const size_t bytes = (size_t)dra_shape_count(&p->shape) * sizeof *to;
    dra_real    *copy = malloc(bytes + 1);
    if (!copy) return dra_fail(err, DRA_ERR_MEMORY, "%s: out of memory", p->name);
    memcpy(copy, to, bytes);
    order_rows(r, &p->shape, false, copy, to);
    free(copy);
    return DRA_OK;
}

dra_status dra_name_rule_read(const dra_tensor_source_entry *e, const dra_name_rule *r,
                              const dra_spec *p, dra_real *to, dra_error *err)
{
    const size_t     n = (size_t)dra_shape_count(&p->shape);
    char             name[DRA_BRIEF];
    const dra_status filled = dra_expert_tensors_fill(e, err);
    if (filled != DRA_OK) return filled;
    if (!read_numbers(e->info, r, &p->shape, to))
        return dra_fail_at(err, DRA_ERR_DTYPE, e->file,
                           "tensor '%s': dtype %s, expected F32, F16, BF16 or F64",
                           dra_brief(e->info->name, name), e->info->dtype_name);
    const double large = too_large(e->info);
    if (large != 0)
        return dra_fail_at(err, DRA_ERR_VALUE, e->file, "tensor '%s': %g is beyond %s",
                           dra_brief(e->info->name, name), large, dra_dtype_get(DRA_REAL)->name);
    const double by = divisor_of(r, p);
    for (size_t i = 0; i < n && r && (r->as || by != 1); i++)
        to[i] = (dra_real)from_stored(r->as, (double)to[i] * by);
    const dra_status st = r && r->order ? read_ordered(r, p, to, err) : DRA_OK;
    const bool       adds = st == DRA_OK && dra_adapter_has(e->adapter, e, r, p);
    return adds ? dra_adapter_add(e->adapter, e, r, p, to, err) : st;
}

void dra_name_rule_write(const dra_name_rule *r, const dra_spec *p, const dra_real *from,
                         dra_real *to)
{
    const lie           w = lie_of(r, &p->shape);
    const dra_stored_as as = r ? r->as : DRA_AS_IT_IS;
    const double        by = divisor_of(r, p);
    if (r && r->order) {
        write_ordered(r, &p->shape, from, to);
        return;
    }
    if (r && r->rows) {
        const int64_t width = row_width(&p->shape), n = r->rows[r->part] * width;
        for (int64_t b = 0; b < r->blocks; b++)
            memcpy(to + first_row(r, b) * width, from + b * n, (size_t)n * sizeof *to);
        return;
    }
    if (w.along_i == 1 && as == DRA_AS_IT_IS && by == 1) {
        for (int64_t o = 0; o < w.O; o++)
            memcpy(to + w.first + o * w.along_o, from + o * w.I, (size_t)w.I * sizeof *to);
        return;
    }
    for (int64_t o = 0; o < w.O; o += TILE)
        for (int64_t i = 0; i < w.I; i++)
            for (int64_t k = o; k < w.O && k < o + TILE; k++)
                to[w.first + k * w.along_o + i * w.along_i] =
                    (dra_real)(to_stored(as, (double)from[k * w.I + i]) / by);
}
