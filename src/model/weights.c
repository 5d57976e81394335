/* A value for each parameter of a model: drawn, read from a file, or both made writable. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "dra/file.h"
#include "model/model.h"

typedef struct weight {
    const dra_real *data;
    dra_real       *own; /* the same, where the memory is ours */
    size_t          bytes;
    const void     *half; /* instead of both: bf16 */
    uint16_t       *own_half;
} weight;

struct dra_weights {
    const dra_specs *specs;
    int              n;
    weight          *at;
    dra_tensors     *file; /* what is mapped */
};

static dra_status create(const dra_model *m, dra_weights **out, dra_error *err)
{
    dra_weights *w = calloc(1, sizeof *w);
    *out = w;
    if (w) w->specs = dra_model_params(m);
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
    dra_tensors_close(w->file);
    free(w);
}

/* Memory of our own for weight i, not yet filled. */
static dra_status own(dra_weights *w, int i, dra_error *err)
{
    w->at[i].own = malloc(w->at[i].bytes + 1);
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

static dra_status find_strangers(const dra_weights *w, const char *path, dra_error *err)
{
    const dra_tensor_info *t;
    for (size_t i = 0; (t = dra_tensors_at(w->file, i)) != NULL; i++) {
        if (dra_specs_find(w->specs, t->name) >= 0) continue;
        dra_guess guess = {.typed = t->name};
        for (int k = 0; k < w->n; k++) dra_guess_try(&guess, dra_specs_at(w->specs, k)->name);
        return dra_fail(err, DRA_ERR_NAME, "%.200s: tensor %.80s is none of the model's%s%.80s%s",
                        path, t->name, guess.best ? " (did you mean " : "",
                        guess.best ? guess.best : "", guess.best ? "?)" : "");
    }
    return DRA_OK;
}

static dra_status load(dra_weights *w, int i, const char *path, dra_error *err)
{
    const dra_spec        *p = dra_specs_at(w->specs, i);
    const dra_tensor_info *t = dra_tensors_find(w->file, p->name);
    if (!t) return dra_fail(err, DRA_ERR_NAME, "%.200s: tensor %.80s is missing", path, p->name);
    if (t->dtype == DRA_REAL && dra_shape_equal(&t->shape, &p->shape) &&
        (uintptr_t)t->data % sizeof(dra_real) == 0) {
        w->at[i].data = t->data;
        return DRA_OK;
    }
    const dra_status st = own(w, i, err);
    return st == DRA_OK ? dra_tensors_read(w->file, p->name, DRA_REAL, p->shape, w->at[i].own, err)
                        : st;
}

dra_status dra_weights_load(const dra_model *m, const char *path, dra_weights **out, dra_error *err)
{
    dra_weights *w;
    dra_status   st = create(m, &w, err);
    if (st == DRA_OK) st = dra_tensors_open(path, &w->file, err);
    if (st == DRA_OK) st = find_strangers(w, path, err);
    for (int i = 0; st == DRA_OK && i < w->n; i++) st = load(w, i, path, err);
    if (st != DRA_OK) dra_weights_destroy(w);
    *out = st == DRA_OK ? w : NULL;
    return st;
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

static dra_status shorten(dra_weights *w, int i, dra_error *err)
{
    const dra_spec        *p = dra_specs_at(w->specs, i);
    const dra_tensor_info *t = w->file ? dra_tensors_find(w->file, p->name) : NULL;
    const size_t           n = w->at[i].bytes / sizeof(dra_real);
    weight                *at = &w->at[i];
    if (t && t->dtype == DRA_BF16 && (uintptr_t)t->data % sizeof(uint16_t) == 0) {
        at->half = t->data;
    } else {
        at->half = at->own_half = malloc(n * sizeof *at->own_half + 1);
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

dra_status dra_weights_save(const dra_weights *w, const char *path, dra_error *err)
{
    const dra_metadata_item format = {"format", "dra"};
    dra_tensor_item        *items = calloc((size_t)w->n + 1, sizeof *items);
    if (!items) return dra_fail(err, DRA_ERR_MEMORY, "weights: out of memory");
    for (int i = 0; i < w->n; i++) {
        const dra_spec *p = dra_specs_at(w->specs, i);
        items[i] = (dra_tensor_item){.name = p->name, .shape = p->shape};
        items[i].data = dra_weights_stored(w, i, &items[i].dtype);
    }
    const dra_status st = dra_tensors_write(path, items, (size_t)w->n, &format, 1, err);
    free(items);
    return st;
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
