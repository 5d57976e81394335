/* A value for each parameter of a model: drawn, used in place in a mapped file, or read from one;
 * all can be made dense and writable. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/shape.h"
#include "device/array.h"
#include "device/device.h"
#include "dra/file.h"
#include "formats/adapter.h"
#include "formats/expert_tensors.h"
#include "model/model.h"
#include "model/weights_cache.h"
#include "model/weights_finite.h"
#include "sequence/module.h"

/* Dense real numbers, or what products take as it is stored, in the file or in memory of ours. */
typedef struct weight {
    _Atomic(const dra_real *)      data; /* dense; NULL: nobody has asked yet */
    dra_real                      *own;  /* the same, where the memory is ours */
    size_t                         bytes;
    const void                    *stored; /* in `layout`; NULL: it is dense only */
    dra_param_layout               layout;
    uint16_t                      *half;  /* the same, where it is bf16 of our own */
    dra_array                     *array; /* dense, where a device trains it: the newest there is */
    const dra_tensor_source_entry *from;  /* the tensor whose numbers it still has; or NULL */
    const dra_name_rule           *rule;  /* of it */
} weight;

struct dra_weights {
    const dra_specs   *specs;
    dra_name_rules     rules; /* of files that are written     */
    dra_name_rules     reads; /* of the one that was read      */
    int                n;
    weight            *at;
    dra_tensor_source *file; /* what is mapped */
    /* Of dra_weights_fingerprint(): */
    uint64_t         model;
    bool             shortened, edited; /* since they were drawn or loaded */
    bool             rounds;            /* see dra_weights_round_activations() */
    _Atomic bool     known;
    _Atomic uint64_t fingerprint;
};

static dra_status create_weights(const dra_model *m, dra_weights **out, dra_error *err)
{
    dra_weights *w = calloc(1, sizeof *w);
    *out = w;
    if (w) w->model = dra_model_fingerprint(m);
    if (w) w->specs = dra_model_params(m);
    if (w) w->n = dra_specs_count(w->specs);
    if (w) w->at = calloc((size_t)w->n + 1, sizeof *w->at);
    if (!w || !w->at) return dra_fail(err, DRA_ERR_MEMORY, "weights: out of memory");
    const dra_status st = dra_name_rules_create(dra_model_config_of(m), DRA_DIALECT_FOLDER,
                                                &w->rules, err);
    if (st != DRA_OK) return st;
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
        free(w->at[i].half);
        dra_array_destroy(w->at[i].array);
    }
    free(w->at);
    dra_tensor_source_close(w->file);
    dra_name_rules_free(&w->rules);
    dra_name_rules_free(&w->reads);
    free(w);
}

static dra_status no_memory(const dra_weights *w, int i, dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "weights: out of memory for %s, %zu bytes",
                    dra_specs_at(w->specs, i)->name, w->at[i].bytes);
}

static dra_real *allocate_weight(const dra_weights *w, int i, dra_error *err)
{
    dra_real *own = dra_alloc(w->at[i].bytes);
    if (!own) no_memory(w, i, err);
    return own;
}

/* Memory of our own for weight i, not yet filled. */
static dra_status own_weight(dra_weights *w, int i, dra_error *err)
{
    dra_real *memory = allocate_weight(w, i, err);
    if (!memory) return DRA_ERR_MEMORY;
    w->at[i].own = memory;
    atomic_store(&w->at[i].data, memory);
    return DRA_OK;
}

dra_status dra_weights_draw(const dra_model *m, uint64_t seed, dra_weights **out, dra_error *err)
{
    dra_weights *w;
    dra_status   st = create_weights(m, &w, err);
    for (int i = 0; st == DRA_OK && i < w->n; i++) {
        st = own_weight(w, i, err);
        if (st == DRA_OK) dra_specs_fill(w->specs, i, seed, w->at[i].own);
    }
    if (st != DRA_OK) dra_weights_destroy(w);
    *out = st == DRA_OK ? w : NULL;
    return st;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* All ops take real numbers in their order; products and lookups more. */
static bool is_usable(const dra_spec *p, const dra_param_layout *f, const void *data)
{
    const bool real = f->dtype == DRA_REAL;
    const bool factor = p->product && (real || f->dtype == DRA_BF16 || f->dtype == DRA_F16);
    /* Blocks along the inputs, whole for each part; they need no alignment. */
    if (dra_is_quantised(f->dtype)) return p->product && !f->transposed && p->shape.rank == 2;
    return (factor || (real && !f->transposed)) && (uintptr_t)data % dra_dtype_bytes(f->dtype) == 0;
}

/* In place in the file, if it can be used there; else read. */
static dra_status load_weight(dra_weights *w, int i, dra_error *err)
{
    const dra_spec *p = dra_specs_at(w->specs, i);
    weight         *at = &w->at[i];
    at->from = dra_format_find(&w->reads, w->file, p, &at->rule);
    dra_status st = dra_format_check(w->reads.format, at->from, at->rule, p, err);
    if (st == DRA_OK) st = dra_expert_tensors_fill(at->from, err);
    if (st != DRA_OK) return st;
    const dra_tensor_info *t = at->from->info;
    at->layout = dra_name_rule_layout(at->rule, t);
    const bool in_place = dra_param_in_place(at->from, at->rule, p);
    if (in_place && is_usable(p, &at->layout, t->data)) {
        if (at->layout.dtype == DRA_REAL && !at->layout.transposed)
            at->data = (const dra_real *)t->data +
                       (size_t)at->layout.part * (at->bytes / sizeof(dra_real));
        else
            at->stored = t->data;
        return DRA_OK;
    }
    st = own_weight(w, i, err);
    if (st == DRA_OK) st = dra_name_rule_read(at->from, at->rule, p, at->own, err);
    dra_tensor_source_rest(w->file); /* what was read is not needed twice */
    if (!in_place) at->from = NULL;
    return st;
}

/* ---- factors --------------------------------------------------------------------------------- */

/* Those of a file of an adapter; of the model that they are added to there are none yet. */
static dra_status read_factors(dra_weights *w, const dra_tensors *file, const char *path,
                               dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; st == DRA_OK && i < w->n; i++) {
        const int A = dra_specs_at(w->specs, i)->factors;
        if (A)
            st = dra_adapter_read(&w->rules, w->specs, file, path, i, w->at[A].own,
                                  w->at[A + 1].own, err);
    }
    return st;
}

static dra_status load_added(dra_weights *w, const dra_model_config *m, const dra_weights_config *c,
                             dra_error *err)
{
    const bool   fresh = !m->lora || strcmp(c->path, m->lora_base) == 0;
    dra_tensors *file = NULL;
    dra_status   st = fresh ? DRA_OK : dra_tensors_open(c->path, &file, err);
    for (int i = 0; st == DRA_OK && i < w->n; i++) {
        if (!dra_specs_at(w->specs, i)->added) continue;
        st = own_weight(w, i, err);
        if (st == DRA_OK && fresh) dra_specs_fill(w->specs, i, c->seed, w->at[i].own);
    }
    if (st == DRA_OK && !fresh) st = read_factors(w, file, c->path, err);
    dra_tensors_close(file);
    return st;
}

dra_status dra_weights_load_with(const dra_model *m, const dra_weights_config *c, dra_weights **out,
                                 dra_error *err)
{
    const dra_model_config *config = dra_model_config_of(m);
    const bool              adapts = config->lora != NULL;
    dra_weights            *w;
    dra_status              st = create_weights(m, &w, err);
    if (st == DRA_OK && adapts && !config->lora_base)
        st = dra_fail(err, DRA_ERR_VALUE, "lora: expected the path of the model that is adapted");
    if (st == DRA_OK)
        st = dra_tensor_source_open(adapts ? config->lora_base : c->path, &w->file, err);
    if (st == DRA_OK && !c->skip_hash) st = dra_tensor_source_check(w->file, err);
    if (st == DRA_OK) st = dra_name_rules_create(config, dra_dialect_of(w->file), &w->reads, err);
    if (st == DRA_OK) st = dra_format_compare(m, &w->reads, w->file, err);
    for (int i = 0; st == DRA_OK && i < w->n; i++)
        if (!dra_specs_at(w->specs, i)->added) st = load_weight(w, i, err);
    if (st == DRA_OK) st = load_added(w, config, c, err);
    if (st != DRA_OK) dra_weights_destroy(w);
    *out = st == DRA_OK ? w : NULL;
    return st;
}

dra_status dra_weights_load(const dra_model *m, const char *path, dra_weights **out, dra_error *err)
{
    return dra_weights_load_with(m, &(dra_weights_config){path}, out, err);
}

/* ---- dense or as it is stored ---------------------------------------------------------------- */

/* The numbers of weight i, which is not dense yet. */
static dra_status read_dense(const dra_weights *w, int i, dra_real *to, dra_error *err)
{
    const weight *at = &w->at[i];
    if (at->array) return dra_array_download(to, dra_array_whole(at->array), err);
    if (at->half) {
        const dra_tensor_info half = {.dtype = DRA_BF16, .data = at->half};
        dra_tensor_copy(&half, 0, at->bytes / sizeof(dra_real), DRA_REAL, to);
        return DRA_OK;
    }
    const dra_status st = dra_name_rule_read(at->from, at->rule, dra_specs_at(w->specs, i), to,
                                             err);
    dra_tensor_source_rest(w->file);
    return st;
}

const dra_real *dra_weights_at(const dra_weights *w, int i)
{
    weight         *at = &w->at[i];
    const dra_real *data = atomic_load(&at->data);
    if (data) return data;
    dra_real *copy = allocate_weight(w, i, NULL);
    if (copy && read_dense(w, i, copy, NULL) == DRA_OK &&
        atomic_compare_exchange_strong(&at->data, &data, copy)) {
        at->own = copy;
        return copy;
    }
    free(copy);
    return data; /* of another thread that was faster */
}

dra_real *dra_weights_edit(dra_weights *w, int i)
{
    weight         *at = &w->at[i];
    const dra_real *data = dra_weights_at(w, i);
    if (!data) return NULL;
    w->edited = true;
    if (!at->own) { /* mapped, or a device's */
        if (own_weight(w, i, NULL) != DRA_OK) return NULL;
        memcpy(at->own, data, at->bytes);
    }
    dra_array_destroy(at->array);
    at->array = NULL;
    at->from = NULL;
    at->stored = NULL;
    return at->own;
}

const void *dra_weights_stored(const dra_weights *w, int i, dra_param_layout *form)
{
    const weight   *at = &w->at[i];
    const dra_real *data = at->array ? dra_weights_at(w, i) : atomic_load(&at->data);
    *form = data ? (dra_param_layout){DRA_REAL} : at->layout;
    return data ? (const void *)data : at->stored;
}

dra_real dra_weights_number(const dra_weights *w, int i, size_t k)
{
    const dra_shape *s = &dra_specs_at(w->specs, i)->shape;
    dra_param_layout f;
    dra_tensor_info  t = {.data = dra_weights_stored(w, i, &f)};
    dra_real         x = 0;
    t.dtype = f.dtype;
    dra_tensor_copy(&t, dra_param_layout_place(&f, s, k), 1, DRA_REAL, &x);
    return x;
}

int64_t dra_weights_not_finite(const dra_weights *w, const char **first)
{
    int64_t found = 0;
    *first = NULL;
    for (int i = 0; i < w->n; i++) {
        const dra_spec  *s = dra_specs_at(w->specs, i);
        dra_param_layout f;
        const void      *data = dra_weights_stored(w, i, &f);
        const int64_t    n = dra_count_not_finite(&f, data, dra_shape_count(&s->shape));
        if (n && !*first) *first = s->name;
        found += n;
    }
    if (w->file) dra_tensor_source_rest(w->file); /* reading it through is no reason to keep it */
    return found;
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

static dra_status shorten_weight(dra_weights *w, int i, dra_error *err)
{
    weight *at = &w->at[i];
    if (!at->stored || at->layout.dtype != DRA_BF16) {
        const size_t    n = at->bytes / sizeof(dra_real);
        const dra_real *data = dra_weights_at(w, i);
        uint16_t       *half = data ? dra_alloc(n * sizeof *half) : NULL;
        if (!half) return no_memory(w, i, err);
        for (size_t k = 0; k < n; k++) half[k] = dra_f32_to_bf16(dra_round_to_odd((double)data[k]));
        free(at->half);
        at->stored = at->half = half;
        at->layout = (dra_param_layout){DRA_BF16};
        at->from = NULL;
    }
    free(at->own);
    at->own = NULL;
    atomic_store(&at->data, NULL);
    return DRA_OK;
}

dra_status dra_weights_to_bf16(dra_weights *w, dra_error *err)
{
    dra_status st = DRA_OK;
    w->shortened = true;
    atomic_store(&w->known, false);
    for (int i = 0; i < w->n && st == DRA_OK; i++)
        if (dra_specs_at(w->specs, i)->product) st = shorten_weight(w, i, err);
    return st;
}

/* ---- saving ---------------------------------------------------------------------------------- */

typedef struct saving {
    const dra_weights *w;
    dra_real          *dense; /* of one in another layout */
} saving;

static const dra_real *get_dense(void *user, int i, dra_error *err)
{
    saving         *s = user;
    const dra_real *data = atomic_load(&s->w->at[i].data);
    if (data) return data;
    free(s->dense);
    s->dense = allocate_weight(s->w, i, err);
    return s->dense && read_dense(s->w, i, s->dense, err) == DRA_OK ? s->dense : NULL;
}

/* What has not changed is written as it was read. */
static const void *stored_form(void *user, int i, dra_param_layout *layout)
{
    const saving *s = user;
    const weight *at = &s->w->at[i];
    if (!at->from) return dra_weights_stored(s->w, i, layout);
    *layout = dra_name_rule_layout(at->rule, at->from->info);
    return at->from->info->data;
}

/* Whether some matrix has factors: then only these are saved, what they are added to is there. */
static bool has_factors(const dra_weights *w)
{
    for (int i = 0; i < w->n; i++)
        if (dra_specs_at(w->specs, i)->factors) return true;
    return false;
}

static dra_status save_factors(const dra_weights *w, const char *path, dra_error *err)
{
    saving           s = {.w = w};
    const dra_status st = dra_adapter_write(&w->rules, w->specs, path, get_dense, &s, err);
    free(s.dense);
    return st;
}

dra_status dra_weights_save(const dra_weights *w, const char *path, dra_error *err)
{
    if (has_factors(w)) return save_factors(w, path, err);
    saving                   s = {.w = w};
    const dra_weights_writer store = {.rules = &w->rules,
                                      .params = w->specs,
                                      .get = get_dense,
                                      .stored = stored_form,
                                      .user = &s};
    const dra_status         st = dra_weights_write(&store, path, err);
    free(s.dense);
    return st;
}

static const dra_real *get_value(void *user, int i, dra_error *err)
{
    const dra_real *const *values = user;
    return values[i];
}

/* The same rules of names and places for other numbers than weights. `row` is to be freed. */
static dra_status bare_rules(const dra_name_rules *from, dra_name_rules *out, dra_name_rule **row,
                             dra_error *err)
{
    size_t n = 0;
    while (from->row && from->row[n].ours) n++;
    *out = *from;
    out->constants = 0;
    *row = calloc(n + 1, sizeof **row);
    if (!*row) return dra_fail(err, DRA_ERR_MEMORY, "weights: out of memory");
    for (size_t i = 0; i < n; i++) {
        (*row)[i] = from->row[i];
        (*row)[i].as = DRA_AS_IT_IS;
        (*row)[i].halved_every = 0;
    }
    if (from->row) out->row = *row;
    return DRA_OK;
}

dra_status dra_weights_save_like(const dra_weights *w, const dra_real *const *values,
                                 size_t n_extra, const dra_tensor_item *extra, const char *path,
                                 dra_error *err)
{
    dra_name_rules           rules;
    dra_name_rule           *row;
    const dra_weights_writer store = {.rules = &rules,
                                      .params = w->specs,
                                      .get = get_value,
                                      .user = (void *)(uintptr_t)values,
                                      .n_extra = n_extra,
                                      .extra = extra,
                                      .like = w->file};
    dra_status               st = bare_rules(w->file ? &w->reads : &w->rules, &rules, &row, err);
    if (st == DRA_OK) st = dra_weights_write(&store, path, err);
    free(row);
    return st;
}

/* ---- fingerprint ----------------------------------------------------------------------------- */

static dra_status hash_values(const dra_weights *w, uint64_t *out, dra_error *err)
{
    saving     s = {.w = w};
    dra_hash   h;
    dra_error  why = {0};
    dra_status st = DRA_OK;
    dra_hash_begin(&h, 0);
    for (int i = 0; i < w->n && st == DRA_OK; i++) {
        const dra_real *data = get_dense(&s, i, &why);
        if (!data) st = dra_fail(err, why.code ? why.code : DRA_ERR_MEMORY, "%s", why.text);
        dra_hash_add_text(&h, dra_specs_at(w->specs, i)->name);
        if (st == DRA_OK) dra_hash_add(&h, data, w->at[i].bytes);
    }
    free(s.dense);
    *out = dra_hash_end(&h);
    return st;
}

/* Of all that decides about weights which were loaded and not changed since; 0: nothing does. */
static uint64_t cache_key(const dra_weights *w)
{
    const uint64_t file = w->file ? dra_tensor_source_key(w->file) : 0;
    const uint64_t facts[] = {file, w->model, sizeof(dra_real), w->shortened};
    return file && !w->edited ? dra_hash_of(0, facts, sizeof facts) : 0;
}

dra_status dra_weights_fingerprint(const dra_weights *weights, uint64_t *out, dra_error *err)
{
    dra_weights *w = (dra_weights *)(uintptr_t)weights; /* what is remembered changes no weight */
    if (!w->edited && atomic_load(&w->known)) {
        *out = atomic_load(&w->fingerprint);
        return DRA_OK;
    }
    const uint64_t key = cache_key(w);
    const bool     found = key && dra_weights_cache_find(key, out);
    dra_status     st = found ? DRA_OK : hash_values(w, out, err);
    if (st == DRA_OK && key && !found) dra_weights_cache_note(key, *out);
    atomic_store(&w->fingerprint, *out);
    if (st == DRA_OK) atomic_store(&w->known, true);
    return st;
}

/* ---- use ------------------------------------------------------------------------------------- */

/* Where the device computes in the host's memory, the array is what the host sees as well. */
static dra_status train_one(dra_weights *w, int i, dra_device *device, dra_error *err)
{
    weight         *at = &w->at[i];
    dra_array      *a = NULL;
    const dra_real *data = dra_weights_at(w, i);
    dra_status      st = data ? dra_array_create(device, at->bytes, &a, err) : no_memory(w, i, err);
    w->edited = true;
    if (st == DRA_OK) st = dra_array_upload(dra_array_whole(a), data, err);
    if (st != DRA_OK) {
        dra_array_destroy(a);
        return st;
    }
    dra_array_destroy(at->array);
    free(at->own);
    free(at->half);
    at->array = a;
    at->own = NULL;
    at->half = NULL;
    at->stored = NULL;
    at->from = NULL;
    atomic_store(&at->data, (const dra_real *)dra_span_on_host(dra_array_whole(a)));
    return DRA_OK;
}

/* Small steps would be lost in the rounding of blocks, and what is saved is no longer the file. */
static dra_status check_trainable(const dra_weights *w, dra_error *err)
{
    for (int i = 0; i < w->n; i++) {
        const weight *at = &w->at[i];
        if (!at->stored || !dra_is_quantised(at->layout.dtype)) continue;
        return dra_fail(err, DRA_ERR_DTYPE,
                        "weights: %s is %s, expected f32, f16 or bf16 to train: convert the model "
                        "with --dtype f32 first",
                        dra_specs_at(w->specs, i)->name, dra_dtype_get(at->layout.dtype)->name);
    }
    return DRA_OK;
}

dra_status dra_weights_train(dra_weights *w, dra_device *device, dra_error *err)
{
    dra_status st = check_trainable(w, err);
    for (int i = 0; i < w->n && st == DRA_OK; i++)
        if (!dra_specs_at(w->specs, i)->frozen && !dra_weights_span(w, i, device).array)
            st = train_one(w, i, device, err);
    return st;
}

dra_span dra_weights_span(const dra_weights *w, int i, const dra_device *device)
{
    const dra_span s = dra_array_whole(w->at[i].array);
    return s.array && dra_span_device(s) == device ? s : (dra_span){0};
}

void dra_weights_changed(dra_weights *w)
{
    for (int i = 0; i < w->n; i++) {
        weight *at = &w->at[i];
        if (!at->array || !at->own) continue;
        free(at->own);
        at->own = NULL;
        atomic_store(&at->data, NULL);
    }
}

/* Whether the device's kernels take weights of this dtype as they are; else they become reals. */
static bool reads_blocks(const dra_device *device, dra_dtype dtype)
{
    static const char *const ops[] = {"matmul", "embedding", "linear_cross_entropy",
                                      "grouped_linear"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const dra_kernel *k = device->table->find(device, ops[i]);
        if (!k || !(k->dtypes & DRA_BIT(dtype))) return false;
    }
    return true;
}

dra_status dra_weights_round_activations(dra_weights *w, dra_error *err)
{
    dra_param_layout layout;
    for (int i = 0; i < w->n && !w->rounds; i++) {
        dra_weights_stored(w, i, &layout);
        w->rounds = layout.dtype >= DRA_Q4_0 && layout.dtype <= DRA_Q8_0;
    }
    if (w->rounds) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "activations are rounded where matrices are q8_0, q5_1, q5_0, q4_1 or q4_0; "
                    "none of the %d tensors of this model is",
                    w->n);
}

/* Weight i as the device's kernels take it. */
static dra_status lend_weight(const dra_weights *w, int i, const dra_device *device, dra_lend *out,
                              dra_error *err)
{
    const dra_spec *p = dra_specs_at(w->specs, i);
    *out = (dra_lend){.name = p->name};
    out->data = dra_weights_stored(w, i, &out->form);
    if (dra_is_quantised(out->form.dtype) && !reads_blocks(device, out->form.dtype)) {
        out->data = dra_weights_at(w, i);
        out->form = (dra_param_layout){DRA_REAL};
        if (!out->data) return no_memory(w, i, err);
    }
    out->bytes = dra_param_layout_bytes(&out->form, &p->shape);
    return DRA_OK;
}

dra_status dra_weights_bind(const dra_weights *w, dra_reader *r, dra_error *err)
{
    dra_device *device = dra_reader_device(r);
    dra_status  st = DRA_OK;
    size_t      n = 0;
    if (w->rounds && !device->table->borrows)
        return dra_fail(err, DRA_ERR_VALUE,
                        "activations are rounded to 8 bits on the CPU alone, not on this device");
    if (w->rounds) dra_reader_precision(r, DRA_PRECISION_Q8);
    dra_lend *list = calloc((size_t)w->n + 1, sizeof *list);
    if (!list) return dra_fail(err, DRA_ERR_MEMORY, "weights: out of memory");
    for (int i = 0; i < w->n && st == DRA_OK; i++) {
        const dra_span trained = dra_weights_span(w, i, device);
        if (trained.array)
            st = dra_reader_bind_as(r, dra_specs_at(w->specs, i)->name,
                                    (dra_param_layout){DRA_REAL}, trained, err);
        else
            st = lend_weight(w, i, device, &list[n++], err);
    }
    if (st == DRA_OK) st = dra_reader_borrow_all(r, list, n, err);
    free(list);
    return st;
}
