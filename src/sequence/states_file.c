/* State files: safetensors with what is live.
 *   tensors   each state under its own name, (B, ...); items (B, n, ...), oldest first, n the
 *             most that any sequence has, zeros after the last of the others; in bf16 where the
 *             model's cache is
 *   extra     other tensors saved with them, named "beside.*"; loading ignores them
 *   metadata  format "dra-state", version "2", fingerprint (hex), and for each sequence, separated
 *             by blanks: tokens, and the numbers of its items since the last reset, begin and end;
 *             context, the items of its context or -1, where a state holds some. Their tensors are
 *             (B, n, ...) like those of items
 * The file is sealed (file/seal.h).
 * The numbers are kept as they are, so that a resumed sequence continues with the same bits. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "dra/file.h"
#include "file/fail.h"
#include "file/seal.h"
#include "sequence/module.h"

static const char FORMAT[] = "dra-state", VERSION[] = "2";

static bool has_context(const dra_specs *specs)
{
    for (int i = 0; i < dra_specs_count(specs); i++)
        if (dra_specs_at(specs, i)->context) return true;
    return false;
}

/* Items of tensor i that any sequence has. */
static int64_t most_items(const dra_states *s, int i)
{
    int64_t most = 0;
    for (int64_t b = 0; b < s->B; b++)
        most = dra_imax(most, dra_states_last(s, i, b) - dra_states_first(s, i, b));
    return most;
}

static dra_shape file_shape(const dra_spec *p, int64_t B, int64_t items)
{
    dra_shape shape = {1, {B}};
    if (dra_spec_has_rows(p)) shape.dim[shape.rank++] = items;
    for (int32_t k = 0; k < p->shape.rank && shape.rank < DRA_MAX_RANK; k++)
        shape.dim[shape.rank++] = p->shape.dim[k];
    return shape;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static char *numbers_text(int64_t n, const int64_t *x)
{
    char *text = calloc((size_t)n + 1, 24), *at = text;
    for (int64_t i = 0; text && i < n; i++)
        at += snprintf(at, 24, i ? " %" PRId64 : "%" PRId64, x[i]);
    return text;
}

/* Numbers that are kept in bf16 become that again, in their place. */
static void narrow_copy(dra_real *data, size_t n)
{
    unsigned char *to = (unsigned char *)data;
    for (size_t k = 0; k < n; k++) {
        const uint16_t x = dra_f32_to_bf16((float)data[k]) /* exact */;
        memcpy(to + k * sizeof x, &x, sizeof x);
    }
}

static dra_real *dense_copy(const dra_states *s, int i, const dra_shape *shape, dra_error *err)
{
    const int64_t count = dra_shape_count(shape), row = s->B ? count / s->B : 0;
    dra_real     *data = calloc((size_t)count + 1, sizeof *data);
    dra_status    st = data ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "states: out of memory");
    for (int64_t b = 0; b < s->B && st == DRA_OK; b++)
        st = dra_states_read(s, i, b, data + b * row, dra_states_size(s, i, b), err);
    if (st == DRA_OK && s->at[i].dtype == DRA_BF16) narrow_copy(data, (size_t)count);
    if (st == DRA_OK) return data;
    free(data);
    return NULL;
}

static dra_status write_file(const dra_states *s, const char *path, size_t n_extra,
                             dra_tensor_item *items, const dra_metadata_item *meta, size_t n_meta,
                             dra_error *err)
{
    const int n = dra_specs_count(s->specs);
    for (int i = 0; i < n; i++) {
        const dra_shape shape = file_shape(dra_specs_at(s->specs, i), s->B, most_items(s, i));
        items[i] = (dra_tensor_item){dra_specs_at(s->specs, i)->name, s->at[i].dtype, shape,
                                     dense_copy(s, i, &shape, err)};
        if (!items[i].data) return DRA_ERR_MEMORY;
    }
    return dra_tensors_write_sealed(path, items, (size_t)n + n_extra, meta, n_meta, err);
}

dra_status dra_states_save(const dra_states *s, uint64_t fingerprint, const char *path,
                           dra_error *err)
{
    return dra_states_save_with(s, fingerprint, path, 0, NULL, err);
}

dra_status dra_states_save_with(const dra_states *s, uint64_t fingerprint, const char *path,
                                size_t n_extra, const dra_tensor_item *extra, dra_error *err)
{
    const int        n = dra_specs_count(s->specs);
    char            *tokens = numbers_text(s->B, s->tokens), *begin = numbers_text(s->B, s->begin);
    char            *end = numbers_text(s->B, s->end), finger[24];
    char            *context = numbers_text(s->B, s->context);
    dra_tensor_item *items = calloc((size_t)n + n_extra + 1, sizeof *items);
    dra_status       st = DRA_ERR_MEMORY;
    for (size_t i = 0; items && i < n_extra; i++) items[(size_t)n + i] = extra[i];
    snprintf(finger, sizeof finger, "%016" PRIx64, fingerprint);
    const dra_metadata_item meta[] = {
        {"format", FORMAT}, {"version", VERSION}, {"fingerprint", finger}, {"tokens", tokens},
        {"begin", begin},   {"end", end},         {"context", context}};
    const size_t n_meta = sizeof meta / sizeof *meta - !has_context(s->specs);
    if (tokens && begin && end && context && items)
        st = write_file(s, path, n_extra, items, meta, n_meta, err);
    else
        dra_fail(err, st, "%s: out of memory", path);
    for (int i = 0; items && i < n; i++) free((void *)items[i].data);
    free(items);
    free(tokens);
    free(begin);
    free(end);
    free(context);
    return st;
}

/* ---- loading --------------------------------------------------------------------------------- */

typedef struct source { /* an open file and its name, for errors */
    const dra_tensors *file;
    const char        *path;
} source;

static dra_status expect_text(const source *f, const char *key, const char *expected,
                              dra_error *err)
{
    const char *found = dra_tensors_metadata(f->file, key);
    char        room[DRA_BRIEF];
    if (found && strcmp(found, expected) == 0) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, f->path, "%s is %s, expected %s", key,
                       found ? dra_brief(found, room) : "missing", expected);
}

/* An error at `path`: `what`, then the text of `why` without its path. */
static dra_status say_first(const char *path, const char *what, const dra_error *why,
                            dra_error *err)
{
    char         room[DRA_BRIEF];
    const size_t n = strlen(dra_brief(path, room));
    return dra_fail_at(err, why->code, path, "%s%s", what,
                       strlen(why->text) > n ? why->text + n : "");
}

static dra_status expect_format(const source *f, dra_error *err)
{
    dra_error        why;
    const dra_status st = expect_text(f, "format", FORMAT, &why);
    return st == DRA_OK ? st : say_first(f->path, "is not a state file", &why, err);
}

/* The seal is checked first, so that other errors are about a file as it was written. */
static dra_status expect_version(const source *f, dra_error *err)
{
    dra_status st = dra_tensors_check(f->file, err);
    if (st == DRA_OK) st = expect_text(f, "version", VERSION, err);
    if (st == DRA_OK && !dra_tensors_sealed(f->file)) st = dra_fail_damaged(err, f->path);
    return st;
}

static dra_status expect_model(const source *f, const char *fingerprint, dra_error *err)
{
    dra_error        why;
    const dra_status st = expect_text(f, "fingerprint", fingerprint, &why);
    return st == DRA_OK ? st : dra_fail(err, st, "%s: it is of another model", why.text);
}

/* A cache in bf16 has other numbers than one in full precision: neither goes on as the other. */
static dra_status expect_cache(const source *f, const dra_specs *specs, dra_error *err)
{
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec        *p = dra_specs_at(specs, i);
        const dra_tensor_info *t = dra_tensors_find(f->file, p->name);
        if (!t || !p->items || (t->dtype == DRA_BF16) == p->bf16) continue;
        const char *const full = dra_dtype_get(DRA_REAL)->name;
        return dra_fail_at(err, DRA_ERR_VALUE, f->path,
                           "keeps %s in %s, but the model's cache is %s; --cache says which",
                           p->name, dra_dtype_get(t->dtype)->name, p->bf16 ? "bf16" : full);
    }
    return DRA_OK;
}

/* Reads a list of numbers below 2^62; returns how many, -1 for anything else. The number -1 is
 * allowed if `none` is set. */
static int64_t read_numbers(const char *text, bool none, int64_t room, int64_t *to)
{
    int64_t n = 0;
    for (const char *at = text; *at; n++) {
        char      *end;
        const bool is_none = none && strncmp(at, "-1", 2) == 0 && (at[2] == ' ' || !at[2]);
        if (!is_none && (*at < '0' || *at > '9')) return -1;
        errno = 0;
        const long long x = strtoll(at, &end, 10);
        if (errno || x > INT64_MAX / 2 || (*end && *end != ' ')) return -1;
        if (n < room) to[n] = x;
        at = end;
        if (*at == ' ' && !*++at) return -1;
    }
    return n;
}

static dra_status read_list(const source *f, const char *key, bool none, int64_t B, int64_t *to,
                            dra_error *err)
{
    const char   *text = dra_tensors_metadata(f->file, key);
    const int64_t n = text ? read_numbers(text, none, B, to) : -1;
    char          room[DRA_BRIEF];
    if (n == B) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, f->path, "%s is %s, expected %lld numbers", key,
                       text ? dra_brief(text, room) : "missing", (long long)B);
}

static dra_status read_tensor(const source *f, dra_states *s, int i, dra_error *err)
{
    const dra_shape shape = file_shape(dra_specs_at(s->specs, i), s->B, most_items(s, i));
    const int64_t   count = dra_shape_count(&shape), row = s->B ? count / s->B : 0;
    dra_real       *data = calloc((size_t)count + 1, sizeof *data);
    if (!data) return dra_fail_at(err, DRA_ERR_MEMORY, f->path, "out of memory");
    dra_status st = dra_tensors_read(f->file, dra_specs_at(s->specs, i)->name, DRA_REAL, shape,
                                     data, err);
    for (int64_t b = 0; b < s->B && st == DRA_OK; b++)
        st = dra_states_write(s, i, b, data + b * row, dra_states_size(s, i, b), err);
    free(data);
    return st;
}

/* Checks before memory is allocated that tensor i is there, for B sequences with any number of
 * items. */
static dra_status check_tensor(const source *f, const dra_spec *p, int64_t B, dra_error *err)
{
    const dra_tensor_info *t = dra_tensors_find(f->file, p->name);
    char                   found[160], expected[160];
    if (!t) return dra_fail_at(err, DRA_ERR_FORMAT, f->path, "tensor %s is missing", p->name);
    const dra_shape shape = file_shape(p, B, t->shape.rank > 1 ? t->shape.dim[1] : 0);
    if (dra_shape_equal(&t->shape, &shape)) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, f->path, "tensor %s: shape %s, expected %s", p->name,
                       dra_shape_text(&t->shape, found, sizeof found),
                       dra_shape_text(&shape, expected, sizeof expected));
}

static bool is_extra(const char *name)
{
    return strncmp(name, DRA_BESIDE, sizeof DRA_BESIDE - 1) == 0;
}

/* Checks that the file has every tensor of the specs and no others but extra ones. */
static dra_status check_tensors(const source *f, const dra_specs *specs, int64_t B, dra_error *err)
{
    char room[DRA_BRIEF];
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_status st = check_tensor(f, dra_specs_at(specs, i), B, err);
        if (st != DRA_OK) return st;
    }
    for (size_t i = 0; i < dra_tensors_count(f->file); i++) {
        const char *name = dra_tensors_at(f->file, i)->name;
        if (dra_specs_find(specs, name) < 0 && !is_extra(name))
            return dra_fail_at(err, DRA_ERR_FORMAT, f->path, "no state is called %s",
                               dra_brief(name, room));
    }
    return DRA_OK;
}

/* Refuses counts that do not fit the tensors, before memory is allocated for them. */
static dra_status check_numbers(const source *f, const dra_specs *specs, int64_t b,
                                dra_row_numbers at, dra_error *err)
{
    if (at.begin > at.end)
        return dra_fail_at(err, DRA_ERR_FORMAT, f->path,
                           "sequence %lld begins at %lld, ends at %lld", (long long)b,
                           (long long)at.begin, (long long)at.end);
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec        *p = dra_specs_at(specs, i);
        const dra_tensor_info *t = dra_tensors_find(f->file, p->name);
        const int64_t          items = p->context ? at.context : at.end - at.begin;
        const int64_t          live = p->limit ? dra_imin(p->limit, items) : items;
        if (dra_spec_has_rows(p) && live > t->shape.dim[1])
            return dra_fail_at(err, DRA_ERR_FORMAT, f->path, "%s holds fewer than %lld items",
                               p->name, (long long)live);
    }
    return DRA_OK;
}

/* Reads how many sequences the file has. */
static dra_status read_batch(const source *f, int64_t *B, dra_error *err)
{
    const char *text = dra_tensors_metadata(f->file, "tokens");
    *B = text ? read_numbers(text, false, 0, NULL) : -1;
    char room[DRA_BRIEF];
    if (*B >= 0) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, f->path, "tokens is %s, expected numbers",
                       text ? dra_brief(text, room) : "missing");
}

static dra_row_numbers row_numbers(const dra_states *s, const int64_t *numbers, int64_t b)
{
    return (dra_row_numbers){numbers[b], numbers[s->B + b], numbers[2 * s->B + b],
                             numbers[3 * s->B + b]};
}

static dra_status read_states(const source *f, dra_states *s, int64_t *numbers, dra_error *err)
{
    const int64_t B = s->B;
    int64_t      *tokens = numbers, *begin = numbers + B, *end = begin + B, *context = end + B;
    dra_status    st = read_list(f, "tokens", false, B, tokens, err);
    for (int64_t b = 0; b < B; b++) context[b] = -1;
    if (st == DRA_OK) st = read_list(f, "begin", false, B, begin, err);
    if (st == DRA_OK) st = read_list(f, "end", false, B, end, err);
    if (st == DRA_OK && has_context(s->specs)) st = read_list(f, "context", true, B, context, err);
    for (int64_t b = 0; b < B && st == DRA_OK; b++)
        st = check_numbers(f, s->specs, b, row_numbers(s, numbers, b), err);
    for (int64_t b = 0; b < B && st == DRA_OK; b++)
        st = dra_states_number(s, b, row_numbers(s, numbers, b), err);
    for (int i = 0; i < dra_specs_count(s->specs) && st == DRA_OK; i++)
        st = read_tensor(f, s, i, err);
    return st;
}

static dra_status load_states(const source *f, dra_device *device, const dra_specs *specs,
                              uint64_t fingerprint, dra_states **out, dra_error *err)
{
    char    finger[24];
    int64_t B = 0;
    snprintf(finger, sizeof finger, "%016" PRIx64, fingerprint);
    dra_status st = expect_format(f, err);
    if (st == DRA_OK) st = expect_version(f, err);
    if (st == DRA_OK) st = expect_cache(f, specs, err);
    if (st == DRA_OK) st = expect_model(f, finger, err);
    if (st == DRA_OK) st = read_batch(f, &B, err);
    if (st == DRA_OK) st = check_tensors(f, specs, B, err);
    if (st == DRA_OK) st = dra_states_create(device, specs, B, out, err);
    if (st != DRA_OK) return st;
    int64_t *numbers = calloc(4 * (size_t)B + 1, sizeof *numbers);
    st = numbers ? read_states(f, *out, numbers, err)
                 : dra_fail_at(err, DRA_ERR_MEMORY, f->path, "out of memory");
    free(numbers);
    return st;
}

dra_status dra_states_load(dra_device *device, const dra_specs *specs, uint64_t fingerprint,
                           const char *path, dra_states **out, dra_error *err)
{
    dra_tensors *file = NULL;
    dra_error    why = {0};
    *out = NULL;
    dra_status st = dra_tensors_open(path, &file, &why);
    if (st == DRA_ERR_FORMAT)
        say_first(path, "is not a state file, or a damaged one", &why, err);
    else if (st != DRA_OK)
        dra_fail(err, st, "%s", why.text);
    if (st == DRA_OK) st = load_states(&(source){file, path}, device, specs, fingerprint, out, err);
    if (st != DRA_OK) {
        dra_states_destroy(*out);
        *out = NULL;
    }
    dra_tensors_close(file);
    return st;
}
