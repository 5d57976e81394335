/* The state of B sequences: memory, positions, copies and comparisons. */
#include "sequence/states.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "device/array.h"

/* ---- memory ---------------------------------------------------------------------------------- */

static const dra_spec *spec_at(const dra_states *s, int i) { return dra_specs_at(s->specs, i); }
static int             tensor_count(const dra_states *s) { return dra_specs_count(s->specs); }

/* Rows of a tensor, all sequences together. */
static int64_t all_rows(const dra_states *s, int i)
{
    return s->pool && spec_at(s, i)->items ? s->at[i].rows : s->B * s->at[i].rows;
}

dra_span dra_states_span(const dra_states *s, int i)
{
    const dra_held *h = &s->at[i];
    return (dra_span){h->data, 0, (size_t)all_rows(s, i) * h->bytes};
}

/* `rows` rows of items from row `first` of sequence b on, in `data` with `all` rows for each. */
static dra_span rows_of(const dra_held *h, dra_array *data, int64_t all, int64_t b, int64_t first,
                        int64_t rows)
{
    return (dra_span){data, (size_t)(b * all + first) * h->bytes, (size_t)rows * h->bytes};
}

static dra_span row_of(const dra_states *s, int i, int64_t row)
{
    const dra_held *h = &s->at[i];
    return rows_of(h, h->data, h->rows, row, 0, h->rows);
}

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "states: out of memory");
}

dra_status dra_states_fill_row(dra_states *s, int i, int64_t row, dra_error *err)
{
    return dra_array_fill(row_of(s, i, row), (dra_real)spec_at(s, i)->number, err);
}

static dra_status allocate_states(dra_states *s, dra_error *err)
{
    const size_t n = (size_t)tensor_count(s);
    s->tokens = calloc((size_t)s->B + 1, sizeof *s->tokens);
    s->begin = calloc((size_t)s->B + 1, sizeof *s->begin);
    s->end = calloc((size_t)s->B + 1, sizeof *s->end);
    s->context = calloc((size_t)s->B + 1, sizeof *s->context);
    s->at = calloc(n + 1, sizeof *s->at);
    if (!s->tokens || !s->begin || !s->end || !s->context || !s->at) return out_of_memory(err);
    for (int64_t b = 0; b < s->B; b++) s->context[b] = -1;
    for (int i = 0; i < tensor_count(s); i++) {
        const dra_spec *p = spec_at(s, i);
        dra_shape       shape = DRA_SHAPE(s->B, 1);
        size_t          bytes;
        const bool      has_rows = dra_spec_has_rows(p);
        const int32_t   most = has_rows ? DRA_MAX_RANK - 2 : DRA_MAX_RANK - 1;
        if (p->shape.rank > most)
            return dra_fail(err, DRA_ERR_SHAPE, "states: %s has %d axes, expected at most %d",
                            p->name, (int)p->shape.rank, (int)most);
        shape.dim[1] = dra_shape_count(&p->shape);
        if (!dra_type_bytes(DRA_REAL, &shape, &bytes)) return out_of_memory(err);
        s->at[i] = (dra_held){.rows = has_rows ? 0 : 1,
                              .size = shape.dim[1],
                              .dtype = dra_spec_dtype(p),
                              .bytes = dra_spec_bytes(p)};
        s->at[i].base = calloc((size_t)s->B + 1, sizeof *s->at[i].base);
        if (!s->at[i].base) return out_of_memory(err);
        dra_status st = dra_array_create(s->device, has_rows ? 0 : bytes, &s->at[i].data, err);
        if (st == DRA_OK) st = dra_array_fill(dra_states_span(s, i), (dra_real)p->number, err);
        if (st != DRA_OK) return st;
    }
    return DRA_OK;
}

dra_status dra_states_create(dra_device *device, const dra_specs *specs, int64_t B,
                             dra_states **out, dra_error *err)
{
    *out = NULL;
    dra_status st = dra_specs_error(specs, err);
    if (st != DRA_OK) return st;
    if (B < 0)
        return dra_fail(err, DRA_ERR_VALUE, "states: %lld sequences, expected 0 or more",
                        (long long)B);
    dra_states *s = calloc(1, sizeof *s);
    if (!s) return out_of_memory(err);
    *s = (dra_states){.device = device, .specs = specs, .B = B};
    st = allocate_states(s, err);
    if (st == DRA_OK)
        *out = s;
    else
        dra_states_destroy(s);
    return st;
}

void dra_states_destroy(dra_states *s)
{
    if (!s) return;
    dra_pool_free(s);
    for (int i = 0; s->at && i < tensor_count(s); i++) {
        dra_array_destroy(s->at[i].data);
        free(s->at[i].base);
    }
    free(s->at);
    free(s->tokens);
    free(s->begin);
    free(s->end);
    free(s->context);
    free(s);
}

int64_t dra_states_batch(const dra_states *s) { return s->B; }
int64_t dra_states_tokens(const dra_states *s, int64_t row) { return s->tokens[row]; }
int64_t dra_states_items(const dra_states *s, int64_t row) { return s->end[row] - s->begin[row]; }
int64_t dra_states_context(const dra_states *s, int64_t row) { return s->context[row]; }

int64_t dra_states_first(const dra_states *s, int i, int64_t row)
{
    const int64_t limit = spec_at(s, i)->limit;
    if (spec_at(s, i)->context) return 0;
    return limit ? dra_imax(s->begin[row], s->end[row] - limit) : s->begin[row];
}

int64_t dra_states_last(const dra_states *s, int i, int64_t row)
{
    return spec_at(s, i)->context ? dra_imax(s->context[row], 0) : s->end[row];
}

/* Rows of items that are live, or will be once they are written. */
static int64_t live_rows(const dra_states *s, int i, int64_t row)
{
    return dra_states_last(s, i, row) - dra_states_first(s, i, row);
}

size_t dra_states_size(const dra_states *s, int i, int64_t row)
{
    const int64_t rows = dra_spec_has_rows(spec_at(s, i)) ? live_rows(s, i, row) : 1;
    return (size_t)(rows * s->at[i].size);
}

size_t dra_states_bytes(const dra_states *s)
{
    size_t n = 0;
    for (int64_t b = 0; b < s->B; b++) n += dra_states_row_bytes(s, b);
    return n;
}

size_t dra_states_held(const dra_states *s)
{
    size_t n = 0;
    for (int i = 0; i < tensor_count(s); i++) n += dra_states_span(s, i).bytes;
    return n;
}

size_t dra_states_row_bytes(const dra_states *s, int64_t row)
{
    size_t n = 0;
    for (int i = 0; i < tensor_count(s); i++)
        n += dra_states_size(s, i, row) * dra_dtype_bytes(s->at[i].dtype);
    return n;
}

dra_span dra_states_stretch(const dra_states *s, int i, int64_t row, int64_t item, int64_t end,
                            int64_t *n)
{
    const dra_held *h = &s->at[i];
    *n = end - item;
    if (!s->pool || !spec_at(s, i)->items)
        return rows_of(h, h->data, h->rows, row, item - h->base[row], *n);
    const dra_pages *p = dra_pool_pages(s, spec_at(s, i)->limit);
    *n = dra_imin(*n, DRA_ITEMS_STEP - (item - h->base[row]) % DRA_ITEMS_STEP);
    return rows_of(h, h->data, h->rows, 0, dra_pool_row(s, p, row, item), *n);
}

/* Walks over the memory of tensor i of a row: its live items, or all of it. */
typedef struct walk {
    const dra_states *s;
    int               i;
    int64_t           row, item, end;
} walk;

static walk walk_of(const dra_states *s, int i, int64_t row)
{
    const bool has_rows = dra_spec_has_rows(spec_at(s, i));
    return (walk){s, i, row, has_rows ? dra_states_first(s, i, row) : 0,
                  has_rows ? dra_states_last(s, i, row) : 1};
}

/* The next stretch, of at most `most` items. */
static dra_span walk_on(walk *w, int64_t most)
{
    int64_t        n;
    const dra_span x = dra_states_stretch(w->s, w->i, w->row, w->item,
                                          dra_imin(w->end, w->item + most), &n);
    w->item += n;
    return dra_span_part(x, 0, (size_t)n * w->s->at[w->i].bytes);
}

static int64_t walk_next(const walk *w) /* items of the next stretch */
{
    int64_t n = 0;
    if (w->item < w->end) dra_states_stretch(w->s, w->i, w->row, w->item, w->end, &n);
    return n;
}

/* ---- room for items -------------------------------------------------------------------------- */

int64_t dra_states_lowest_base(const dra_states *s, int i, int64_t row)
{
    return dra_states_first(s, i, row) / DRA_ITEMS_STEP * DRA_ITEMS_STEP;
}

static int64_t rows_needed(const dra_states *s, int i, int64_t T, bool moved)
{
    int64_t most = 0;
    for (int64_t b = 0; b < s->B; b++) {
        const int64_t base = moved ? dra_states_lowest_base(s, i, b) : s->at[i].base[b];
        most = dra_imax(most, s->end[b] - base + T);
    }
    return most;
}

/* Moves live items into `to` (B, rows, ...), which may be the same memory. */
static dra_status move_down(dra_states *s, int i, dra_array *to, int64_t rows, dra_error *err)
{
    dra_held  *h = &s->at[i];
    dra_status st = DRA_OK;
    for (int64_t b = 0; b < s->B && st == DRA_OK; b++) {
        const int64_t base = dra_states_lowest_base(s, i, b), n = dra_states_last(s, i, b) - base;
        st = dra_array_copy(rows_of(h, to, rows, b, 0, n),
                            rows_of(h, h->data, h->rows, b, base - h->base[b], n), err);
        h->base[b] = base;
    }
    return st;
}

/* Rows for a source of n items. */
static int64_t context_rows(int64_t n)
{
    return dra_div_up(dra_imax(n, 1), DRA_ITEMS_STEP) * DRA_ITEMS_STEP;
}

/* Makes room for twice the need, so that moving is rare; items with a limit stop growing at some
 * point. New memory is zeroed, because kernels may read, though not use, items that are not
 * live. */
static dra_status find_room(dra_states *s, int i, int64_t need, dra_error *err)
{
    dra_held     *h = &s->at[i];
    const int64_t limit = spec_at(s, i)->limit;
    const int64_t rows = spec_at(s, i)->context
                             ? context_rows(need)
                             : dra_capacity(need + (limit ? dra_imin(limit, need) : 0));
    dra_shape     shape = DRA_SHAPE(s->B, rows, h->size);
    size_t        bytes;
    if (rows > INT32_MAX || !dra_type_bytes(h->dtype, &shape, &bytes))
        return dra_fail(err, DRA_ERR_MEMORY, "states: %lld items of %s overflow", (long long)need,
                        spec_at(s, i)->name);
    h->next_rows = rows;
    const dra_status st = dra_array_create(s->device, bytes, &h->next, err);
    return st == DRA_OK ? dra_array_fill(dra_array_whole(h->next), 0, err) : st;
}

/* Moves the tensors of all limits: those of one limit share their bases, so all move or none. */
static dra_status move_all(dra_states *s, dra_status st, dra_error *err)
{
    for (int i = 0; i < tensor_count(s); i++) {
        dra_held *h = &s->at[i];
        if (!h->next) continue;
        if (st == DRA_OK && h->rows) st = move_down(s, i, h->next, h->next_rows, err);
        dra_array_destroy(st == DRA_OK ? h->data : h->next);
        if (st == DRA_OK) h->data = h->next, h->rows = h->next_rows;
        h->next = NULL;
    }
    return st;
}

dra_status dra_states_reserve(dra_states *s, int64_t T, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < tensor_count(s) && st == DRA_OK; i++) {
        if (!spec_at(s, i)->items || rows_needed(s, i, T, false) <= s->at[i].rows) continue;
        const int64_t need = rows_needed(s, i, T, true);
        if (need > s->at[i].rows) st = find_room(s, i, need, err);
    }
    st = move_all(s, st, err);
    for (int i = 0; i < tensor_count(s) && st == DRA_OK; i++)
        if (spec_at(s, i)->items && rows_needed(s, i, T, false) > s->at[i].rows)
            st = move_down(s, i, s->at[i].data, s->at[i].rows, err);
    return st;
}

dra_status dra_states_reserve_context(dra_states *s, int64_t n, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < tensor_count(s) && st == DRA_OK; i++)
        if (spec_at(s, i)->context && context_rows(n) > s->at[i].rows) st = find_room(s, i, n, err);
    return move_all(s, st, err);
}

int64_t dra_states_position(const dra_states *s, int64_t start, int64_t row)
{
    return s->tokens[row] > 0 ? s->tokens[row] + start : 0;
}

void dra_states_advance(dra_states *s, int64_t start, int64_t T, const int32_t *mark)
{
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t t = 0; t < T; t++) {
            const int32_t what = mark ? mark[b * T + t] : 0;
            if (what & DRA_MARK_RESET) s->tokens[b] = 0, s->begin[b] = s->end[b];
            if (what & DRA_MARK_PAD) continue;
            if (s->tokens[b] == 0) s->end[b] += start;
            s->tokens[b]++;
            s->end[b] += !(what & DRA_MARK_SKIP);
        }
}

void dra_states_count(dra_states *s, int64_t T, const int32_t *mark)
{
    for (int64_t b = 0; b < s->B; b++) {
        s->tokens[b] = 0;
        for (int64_t t = 0; t < T; t++) {
            const int32_t what = mark ? mark[b * T + t] : 0;
            if (what & DRA_MARK_RESET) s->tokens[b] = 0;
            s->tokens[b] += !(what & DRA_MARK_PAD);
        }
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static dra_status check_row(const dra_states *s, int64_t row, dra_error *err)
{
    if (row >= 0 && row < s->B) return DRA_OK;
    return dra_fail(err, DRA_ERR_INDEX, "states: row is %lld of %lld", (long long)row,
                    (long long)s->B);
}

static dra_status reset_row(dra_states *s, int64_t row, dra_error *err)
{
    dra_status st = DRA_OK;
    s->tokens[row] = s->begin[row] = s->end[row] = 0;
    s->context[row] = -1;
    if (s->pool) dra_pool_release(s, row);
    for (int i = 0; i < tensor_count(s) && st == DRA_OK; i++) {
        s->at[i].base[row] = 0;
        if (!dra_spec_has_rows(spec_at(s, i))) st = dra_states_fill_row(s, i, row, err);
    }
    return st;
}

dra_status dra_states_reset(dra_states *s, int64_t row, dra_error *err)
{
    dra_status st = row == -1 ? DRA_OK : check_row(s, row, err);
    if (row != -1) return st == DRA_OK ? reset_row(s, row, err) : st;
    for (int64_t b = 0; b < s->B && st == DRA_OK; b++) st = reset_row(s, b, err);
    return st;
}

/* Without the pages of a pool. */
static dra_status number_row(dra_states *s, int64_t row, dra_row_numbers at, dra_error *err)
{
    dra_status st = at.context >= 0 ? dra_states_reserve_context(s, at.context, err) : DRA_OK;
    for (int i = 0; i < tensor_count(s) && st == DRA_OK; i++) {
        if (!spec_at(s, i)->items || s->pool) continue;
        const int64_t limit = spec_at(s, i)->limit;
        const int64_t first = limit ? dra_imax(at.begin, at.end - limit) : at.begin;
        const int64_t base = first / DRA_ITEMS_STEP * DRA_ITEMS_STEP;
        if (at.end - base > s->at[i].rows)
            st = find_room(s, i, dra_imax(at.end - base, rows_needed(s, i, 0, true)), err);
    }
    st = move_all(s, st, err);
    if (st == DRA_OK) st = reset_row(s, row, err);
    if (st != DRA_OK) return st;
    s->tokens[row] = at.tokens;
    s->begin[row] = at.begin;
    s->end[row] = at.end;
    s->context[row] = at.context;
    for (int i = 0; i < tensor_count(s); i++)
        if (spec_at(s, i)->items) s->at[i].base[row] = dra_states_lowest_base(s, i, row);
    return DRA_OK;
}

dra_status dra_states_number(dra_states *s, int64_t row, dra_row_numbers at, dra_error *err)
{
    size_t     bytes = 1;
    dra_status st = number_row(s, row, at, err);
    if (st != DRA_OK || !s->pool) return st;
    while (bytes && st == DRA_OK) st = dra_pool_extend(s, row, &bytes, err);
    if (st != DRA_OK) dra_states_reset(s, row, NULL);
    return st;
}

dra_row_numbers dra_states_numbers(const dra_states *s, int64_t row)
{
    return (dra_row_numbers){s->tokens[row], s->begin[row], s->end[row], s->context[row]};
}

/* A stretch of the tensor whose turn it is, of at most `most` bytes or one item; or the step to the
 * next tensor. */
static dra_status copy_part(dra_row_copy *c, size_t most, dra_error *err)
{
    const size_t item = c->to->at[c->tensor].bytes;
    walk         x = walk_of(c->to, c->tensor, c->row), y = walk_of(c->from, c->tensor, c->of);
    x.item += c->item;
    y.item += c->item;
    if (x.item >= x.end) {
        c->tensor++;
        c->item = 0;
        return DRA_OK;
    }
    const size_t   fit = item && most / item < INT32_MAX ? most / item : INT32_MAX;
    const int64_t  n = dra_imin(dra_imin(walk_next(&x), walk_next(&y)), fit ? (int64_t)fit : 1);
    const dra_span into = walk_on(&x, n);
    c->item += n;
    c->bytes += (size_t)n * item;
    return dra_array_copy(into, walk_on(&y, n), err);
}

dra_status dra_row_copy_begin(dra_row_copy *c, dra_row_numbers at, dra_error *err)
{
    c->tensor = 0;
    c->item = 0;
    c->bytes = 0;
    return number_row(c->to, c->row, at, err);
}

dra_status dra_row_copy_until(dra_row_copy *c, size_t bytes, bool *done, dra_error *err)
{
    size_t     page = c->to->pool;
    dra_status st = DRA_OK;
    while (st == DRA_OK && page && c->bytes < bytes) {
        st = dra_pool_extend(c->to, c->row, &page, err);
        c->bytes += page;
    }
    while (st == DRA_OK && c->bytes < bytes && c->tensor < tensor_count(c->to))
        st = copy_part(c, bytes - c->bytes, err);
    *done = c->tensor == tensor_count(c->to);
    return st;
}

/* Rows of one pool share their items. */
static dra_status copy_in_pool(dra_row_copy *c, dra_error *err)
{
    dra_status st = dra_pool_share(c->to, c->row, c->of, err);
    while (st == DRA_OK && c->tensor < tensor_count(c->to))
        if (spec_at(c->to, c->tensor)->items)
            c->tensor++;
        else
            st = copy_part(c, SIZE_MAX, err);
    return st;
}

/* Items keep their numbers, and so their places in blocks of 64. */
dra_status dra_states_copy(dra_states *s, int64_t to, const dra_states *other, int64_t from,
                           dra_error *err)
{
    dra_row_copy c = {.to = s, .row = to, .from = other, .of = from};
    dra_status   st = check_row(s, to, err);
    if (st == DRA_OK) st = check_row(other, from, err);
    if (st != DRA_OK) return st;
    if (dra_specs_fingerprint(s->specs) != dra_specs_fingerprint(other->specs))
        return dra_fail(err, DRA_ERR_VALUE, "states: copy between states of different kinds");
    if (s == other && to == from) return DRA_OK;
    if (s == other && s->pool) return copy_in_pool(&c, err);
    bool done;
    st = dra_row_copy_begin(&c, dra_states_numbers(other, from), err);
    return st == DRA_OK ? dra_row_copy_until(&c, SIZE_MAX, &done, err) : st;
}

dra_status dra_states_gather(const dra_states *s, int64_t n, const int64_t *rows, dra_states **out,
                             dra_error *err)
{
    dra_status st = dra_states_create(s->device, s->specs, n, out, err);
    for (int64_t b = 0; b < n && st == DRA_OK; b++) st = dra_states_copy(*out, b, s, rows[b], err);
    if (st != DRA_OK) {
        dra_states_destroy(*out);
        *out = NULL;
    }
    return st;
}

dra_status dra_states_fork(const dra_states *s, dra_states **out, dra_error *err)
{
    dra_status st = dra_states_create(s->device, s->specs, s->B, out, err);
    for (int64_t b = 0; b < s->B && st == DRA_OK; b++) st = dra_states_copy(*out, b, s, b, err);
    if (st != DRA_OK) {
        dra_states_destroy(*out);
        *out = NULL;
    }
    return st;
}

/* ---- contents -------------------------------------------------------------------------------- */

static dra_status check_part(const dra_states *s, int i, int64_t row, size_t n, dra_error *err)
{
    const dra_status st = check_row(s, row, err);
    if (st != DRA_OK) return st;
    if (i < 0 || i >= tensor_count(s))
        return dra_fail(err, DRA_ERR_INDEX, "states: tensor is %d of %d", i, tensor_count(s));
    if (n == dra_states_size(s, i, row)) return DRA_OK;
    return dra_fail(err, DRA_ERR_SHAPE, "states: %s of row %lld has %zu numbers, found %zu",
                    spec_at(s, i)->name, (long long)row, dra_states_size(s, i, row), n);
}

/* Numbers that are kept in bf16; from NULL: zeros. */
static dra_status write_bf16(dra_span to, const dra_real *from, dra_error *err)
{
    const size_t n = to.bytes / sizeof(uint16_t);
    uint16_t    *x = calloc(n + 1, sizeof *x);
    if (!x) return out_of_memory(err);
    for (size_t k = 0; k < n && from; k++)
        x[k] = dra_f32_to_bf16(dra_round_to_odd((double)from[k]));
    const dra_status st = dra_array_upload(to, x, err);
    free(x);
    return st;
}

static dra_status read_bf16(dra_span from, dra_real *to, dra_error *err)
{
    const size_t n = from.bytes / sizeof(uint16_t);
    uint16_t    *x = calloc(n + 1, sizeof *x);
    if (!x) return out_of_memory(err);
    const dra_status st = dra_array_download(x, from, err);
    for (size_t k = 0; k < n && st == DRA_OK; k++) to[k] = dra_bf16_to_f32(x[k]);
    free(x);
    return st;
}

dra_status dra_states_read(const dra_states *s, int i, int64_t row, dra_real *to, size_t n,
                           dra_error *err)
{
    dra_status st = check_part(s, i, row, n, err);
    if (st != DRA_OK) return st;
    walk w = walk_of(s, i, row);
    while (w.item < w.end && st == DRA_OK) {
        const dra_span x = walk_on(&w, w.end - w.item);
        st = s->at[i].dtype == DRA_REAL ? dra_array_download(to, x, err) : read_bf16(x, to, err);
        to += x.bytes / dra_dtype_bytes(s->at[i].dtype);
    }
    return st;
}

dra_status dra_states_write(dra_states *s, int i, int64_t row, const dra_real *from, size_t n,
                            dra_error *err)
{
    dra_status st = check_part(s, i, row, n, err);
    if (st != DRA_OK) return st;
    walk w = walk_of(s, i, row);
    while (w.item < w.end && st == DRA_OK) {
        const dra_span x = walk_on(&w, w.end - w.item);
        st = s->at[i].dtype == DRA_REAL ? dra_array_upload(x, from, err) : write_bf16(x, from, err);
        from += x.bytes / dra_dtype_bytes(s->at[i].dtype);
    }
    return st;
}

dra_real *dra_states_at(dra_states *s, int i, int64_t row)
{
    if (row < 0 || row >= s->B || i < 0 || i >= tensor_count(s) || dra_spec_has_rows(spec_at(s, i)))
        return NULL;
    return dra_span_on_host(row_of(s, i, row));
}

dra_status dra_states_place(dra_states *s, int64_t row, int64_t tokens, int64_t items,
                            dra_error *err)
{
    dra_status st = check_row(s, row, err);
    if (st != DRA_OK) return st;
    if (tokens < 0 || items < 0 || tokens > INT64_MAX / 4 || items > INT64_MAX / 4)
        return dra_fail(err, DRA_ERR_VALUE, "states: %lld tokens, %lld items, expected 0 to 2^61",
                        (long long)tokens, (long long)items);
    const dra_row_numbers at = {.tokens = tokens, .end = items, .context = s->context[row]};
    st = dra_states_number(s, row, at, err);
    for (int i = 0; i < tensor_count(s) && st == DRA_OK; i++) {
        walk w = walk_of(s, i, row);
        while (spec_at(s, i)->items && w.item < w.end && st == DRA_OK) {
            const dra_span x = walk_on(&w, w.end - w.item);
            st = s->at[i].dtype == DRA_REAL ? dra_array_fill(x, 0, err) : write_bf16(x, NULL, err);
        }
    }
    return st;
}

/* ---- comparison ------------------------------------------------------------------------------ */

typedef struct worst { /* of tensor i: the largest difference, and the largest number of b */
    double difference, largest;
} worst;

static void compare_row(size_t n, const dra_real *x, const dra_real *y, worst *w)
{
    for (size_t k = 0; k < n; k++) {
        const double d = fabs((double)x[k] - (double)y[k]);
        if (d > w->difference || isnan(d)) w->difference = d; /* NaN stays */
        w->largest = fmax(w->largest, fabs((double)y[k]));
    }
}

/* Compares tensor i over all rows: the largest difference over the largest number of b. */
static dra_status compare_tensor(const dra_states *a, const dra_states *b, int i, bool *same,
                                 double *out, dra_error *err)
{
    worst      w = {0};
    dra_status st = DRA_OK;
    for (int64_t row = 0; row < a->B && st == DRA_OK; row++) {
        const size_t n = dra_states_size(a, i, row);
        dra_real    *x = calloc(2 * n + 1, sizeof *x), *y = x ? x + n : NULL;
        if (!x) return out_of_memory(err);
        st = dra_states_read(a, i, row, x, n, err);
        if (st == DRA_OK) st = dra_states_read(b, i, row, y, n, err);
        if (st == DRA_OK && n && memcmp(x, y, n * sizeof *x) != 0) *same = false;
        if (st == DRA_OK) compare_row(n, x, y, &w);
        free(x);
    }
    *out = w.difference == 0 ? 0 : w.difference / w.largest;
    return st;
}

/* Checks that rows have the same counts. */
static dra_status compare_numbers(const dra_states *a, const dra_states *b, dra_error *err)
{
    for (int64_t row = 0; row < a->B; row++)
        if (a->tokens[row] != b->tokens[row] ||
            dra_states_items(a, row) != dra_states_items(b, row))
            return dra_fail(err, DRA_ERR_VALUE,
                            "states: row %lld has read %lld tokens and %lld, written %lld items "
                            "and %lld",
                            (long long)row, (long long)a->tokens[row], (long long)b->tokens[row],
                            (long long)dra_states_items(a, row),
                            (long long)dra_states_items(b, row));
    for (int64_t row = 0; row < a->B; row++)
        if (a->context[row] != b->context[row])
            return dra_fail(err, DRA_ERR_VALUE,
                            "states: row %lld has a context of %lld items and of %lld (-1: none)",
                            (long long)row, (long long)a->context[row], (long long)b->context[row]);
    return DRA_OK;
}

dra_status dra_states_compare(const dra_states *a, const dra_states *b, dra_states_difference *out,
                              dra_error *err)
{
    *out = (dra_states_difference){0}; /* states that cannot be compared are not the same */
    if (dra_specs_fingerprint(a->specs) != dra_specs_fingerprint(b->specs) || a->B != b->B)
        return dra_fail(err, DRA_ERR_VALUE, "states: of different kinds or batches (%lld, %lld)",
                        (long long)a->B, (long long)b->B);
    dra_status st = compare_numbers(a, b, err);
    out->same = st == DRA_OK;
    for (int i = 0; i < tensor_count(a) && st == DRA_OK; i++) {
        double d = 0;
        st = compare_tensor(a, b, i, &out->same, &d, err); /* also after a NaN */
        if (st != DRA_OK) {
            out->same = false;
            return st;
        }
        if (out->name && (d <= out->worst || isnan(out->worst))) continue;
        out->worst = d;
        out->name = spec_at(a, i)->name;
    }
    return st;
}

dra_status dra_states_clone(const dra_states *s, dra_device *device, dra_states **out,
                            dra_error *err)
{
    const size_t each = (size_t)s->B * sizeof *s->tokens;
    dra_status   st = dra_states_create(device, s->specs, s->B, out, err);
    if (st != DRA_OK) return st;
    dra_states *copy = *out;
    memcpy(copy->tokens, s->tokens, each);
    memcpy(copy->begin, s->begin, each);
    memcpy(copy->end, s->end, each);
    memcpy(copy->context, s->context, each);
    for (int i = 0; i < tensor_count(s) && st == DRA_OK; i++) {
        dra_held      *to = &copy->at[i];
        const dra_span from = dra_states_span(s, i);
        dra_array     *data;
        st = dra_array_create(device, from.bytes, &data, err);
        if (st != DRA_OK) break;
        dra_array_destroy(to->data);
        to->data = data;
        to->rows = s->at[i].rows;
        memcpy(to->base, s->at[i].base, each);
        st = dra_array_copy(dra_states_span(copy, i), from, err);
    }
    if (st == DRA_OK) return DRA_OK;
    dra_states_destroy(copy);
    *out = NULL;
    return st;
}
