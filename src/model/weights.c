/* A value for each parameter of a model: drawn, read from a file, or both made writable. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/shape.h"
#include "dra/file.h"
#include "model/format.h"
#include "model/model.h"

typedef struct weight {
    const dra_real        *data;
    dra_real              *own; /* the same, where the memory is ours */
    size_t                 bytes;
    const dra_tensor_info *from; /* the tensor of the file that is it, as it is; or NULL */
    const void            *half; /* instead of both: bf16 */
    uint16_t              *own_half;
} weight;

struct dra_weights {
    const dra_specs  *specs;
    const dra_format *format; /* of files */
    int               n;
    weight           *at;
    dra_origin       *file; /* what is mapped */
};

static dra_status create(const dra_model *m, dra_weights **out, dra_error *err)
{
    dra_weights *w = calloc(1, sizeof *w);
    *out = w;
    if (w) w->specs = dra_model_params(m);
    if (w) w->format = dra_format_of(dra_model_config_of(m));
    if (w) w->n = dra_specs_count(w->specs);
    if (w) w->at = calloc((size_t)w->n + 1, sizeof *w->at);
    if (!w || !w->at) return dra_fail(err, DRA_ERR_MEMORY, "weights: out of memory");
    for (int i = 0; i < w->n; i++)
        w->at[i].bytes = (size_t)dra_shape_count(&dra_specs_at(w->specs, i)->shape) *
                         sizeof(dra_real);
    return DRA_OK;
}

void dra_weights_destroy(dra_weights *w)
{
    if (!w) return;
    for (int i = 0; w->at && i < w->n; i++) {
        free(w->at[i].own);
        free(w->at[i].own_half);
    }
    free(w->at);
    dra_origin_close(w->file);
    free(w);
}

/* Memory of our own for weight i, not yet filled. */
static dra_status own(dra_weights *w, int i, dra_error *err)
{
    w->at[i].own = dra_alloc(w->at[i].bytes);
    if (!w->at[i].own)
        return dra_fail(err, DRA_ERR_MEMORY, "weights: no memory for %s, %zu bytes",
                        dra_specs_at(w->specs, i)->name, w->at[i].bytes);
    w->at[i].data = w->at[i].own;
    return DRA_OK;
}

dra_status dra_weights_draw(const dra_model *m, uint64_t seed, dra_weights **out, dra_error *err)
{
    dra_weights *w;
    dra_status   st = create(m, &w, err);
    for (int i = 0; st == DRA_OK && i < w->n; i++) {
        st = own(w, i, err);
        if (st == DRA_OK) dra_specs_fill(w->specs, i, seed, w->at[i].own);
    }
    if (st != DRA_OK) dra_weights_destroy(w);
    *out = st == DRA_OK ? w : NULL;
    return st;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* In place where it lies as it is needed; else read. */
static dra_status load(dra_weights *w, int i, dra_error *err)
{
    const dra_spec         *p = dra_specs_at(w->specs, i);
    weight                 *at = &w->at[i];
    const dra_rule         *rule;
    const dra_origin_entry *e = dra_format_find(w->format, w->file, p, &rule);
    dra_status              st = dra_format_check(w->format, e, rule, p, err);
    if (st != DRA_OK) return st;
    if (dra_rule_plain(w->file, rule)) at->from = e->info;
    if (at->from && at->from->dtype == DRA_REAL &&
        (uintptr_t)at->from->data % sizeof(dra_real) == 0) {
        at->data = at->from->data;
        return DRA_OK;
    }
    st = own(w, i, err);
    if (st == DRA_OK) st = dra_rule_read(w->file, e, rule, p, at->own, err);
    dra_origin_rest(w->file); /* what was read is not needed twice */
    return st;
}

dra_status dra_weights_load(const dra_model *m, const char *path, dra_weights **out, dra_error *err)
{
    dra_weights *w;
    dra_status   st = create(m, &w, err);
    if (st == DRA_OK) st = dra_origin_open(path, &w->file, err);
    if (st == DRA_OK) st = dra_format_compare(m, w->file, err);
    for (int i = 0; st == DRA_OK && i < w->n; i++) st = load(w, i, err);
    if (st != DRA_OK) dra_weights_destroy(w);
    *out = st == DRA_OK ? w : NULL;
    return st;
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

static dra_status shorten(dra_weights *w, int i, dra_error *err)
{
    const dra_spec        *p = dra_specs_at(w->specs, i);
    const dra_tensor_info *t = w->at[i].from;
    const size_t           n = w->at[i].bytes / sizeof(dra_real);
    weight                *at = &w->at[i];
    if (t && t->dtype == DRA_BF16 && (uintptr_t)t->data % sizeof(uint16_t) == 0) {
        at->half = t->data;
    } else {
        at->half = at->own_half = dra_alloc(n * sizeof *at->own_half);
        if (!at->half) return dra_fail(err, DRA_ERR_MEMORY, "weights: no memory for %s", p->name);
        for (size_t k = 0; k < n; k++)
            at->own_half[k] = dra_f32_to_bf16(dra_round_to_odd((double)at->data[k]));
    }
    free(at->own);
    at->own = NULL;
    at->data = NULL;
    return DRA_OK;
}

dra_status dra_weights_shorten(dra_weights *w, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < w->n && st == DRA_OK; i++)
        if (dra_specs_at(w->specs, i)->product && !w->at[i].half) st = shorten(w, i, err);
    return st;
}

const void *dra_weights_stored(const dra_weights *w, int i, dra_dtype *dtype)
{
    *dtype = w->at[i].half ? DRA_BF16 : DRA_REAL;
    return w->at[i].half ? w->at[i].half : w->at[i].data;
}

/* ---- saving ---------------------------------------------------------------------------------- */

typedef struct saving {
    const dra_weights *w;
    dra_real          *wide; /* one that is stored as bf16, made real */
} saving;

static const dra_real *get(void *user, int i, dra_error *err)
{
    saving       *s = user;
    const weight *at = &s->w->at[i];
    if (at->data) return at->data;
    const dra_tensor_info half = {.dtype = DRA_BF16, .data = at->half};
    free(s->wide);
    s->wide = malloc(at->bytes + 1);
    if (s->wide)
        dra_tensor_copy(&half, 0, at->bytes / sizeof(dra_real), DRA_REAL, s->wide);
    else
        dra_fail(err, DRA_ERR_MEMORY, "weights: out of memory");
    return s->wide;
}

static const void *plain(void *user, int i, dra_dtype *dtype)
{
    const saving *s = user;
    return dra_weights_stored(s->w, i, dtype);
}

dra_status dra_weights_save(const dra_weights *w, const char *path, dra_error *err)
{
    saving          s = {.w = w};
    const dra_store store = {
        .format = w->format, .params = w->specs, .get = get, .plain = plain, .user = &s};
    const dra_status st = dra_store_write(&store, path, err);
    free(s.wide);
    return st;
}

static const dra_real *get_value(void *user, int i, dra_error *err)
{
    const dra_real *const *values = user;
    return values[i];
}

dra_status dra_weights_save_like(const dra_model *m, const dra_real *const *values, size_t n_beside,
                                 const dra_tensor_item *beside, const char *path, dra_error *err)
{
    const dra_store store = {.format = dra_format_of(dra_model_config_of(m)),
                             .params = dra_model_params(m),
                             .get = get_value,
                             .user = (void *)(uintptr_t)values,
                             .n_beside = n_beside,
                             .beside = beside};
    return dra_store_write(&store, path, err);
}

/* ---- use ------------------------------------------------------------------------------------- */

const dra_real *dra_weights_at(const dra_weights *w, int i) { return w->at[i].data; }

dra_real *dra_weights_edit(dra_weights *w, int i)
{
    const dra_real *mapped = w->at[i].data;
    if (w->at[i].own) return w->at[i].own;
    if (!mapped) return NULL;
    if (own(w, i, NULL) != DRA_OK) return NULL;
    memcpy(w->at[i].own, mapped, w->at[i].bytes);
    return w->at[i].own;
}

dra_status dra_weights_bind(const dra_weights *w, dra_reader *r, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < w->n && st == DRA_OK; i++) {
        dra_dtype    dtype;
        const void  *data = dra_weights_stored(w, i, &dtype);
        const size_t bytes = w->at[i].bytes / sizeof(dra_real) * dra_dtype_bytes(dtype);
        st = dra_reader_bind_as(r, dra_specs_at(w->specs, i)->name, dtype, data, bytes, err);
    }
    return st;
}
