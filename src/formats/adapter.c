/* Adapters that are read: their factors by the names of the tensors they are added to. */
#include "formats/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/shape.h"
#include "file/fail.h"
#include "file/seal.h"
#include "file/system.h"
#include "formats/adapter_names.h"

enum { PATH_TEXT = 4096, CONFIG_MOST = 1 << 20 };

typedef struct factors {                           /* of one tensor or parameter */
    char                   name[DRA_ADAPTER_NAME]; /* of what they are added to */
    const dra_tensor_info *A, *B;
    double                 scale;
} factors;

struct dra_adapter {
    char        *path; /* of the weights, for errors */
    char        *text; /* of the config */
    size_t       bytes;
    json_t      *config;
    dra_tensors *file;
    size_t       n;
    factors     *at;
};

/* ---- the config ------------------------------------------------------------------------------ */

static dra_status path_of(const char *folder, const char *name, char path[PATH_TEXT],
                          dra_error *err)
{
    const int n = snprintf(path, PATH_TEXT, "%s/%s", folder, name);
    return n > 0 && n < PATH_TEXT ? DRA_OK
                                  : dra_fail_at(err, DRA_ERR_FILE, folder, "the path is too long");
}

bool dra_adapter_is(const char *folder)
{
    char path[PATH_TEXT];
    return path_of(folder, DRA_ADAPTER_CONFIG, path, NULL) == DRA_OK && dra_sys_exists(path);
}

static dra_status read_config(const char *folder, char **text, size_t *bytes, json_t **out,
                              dra_error *err)
{
    char       path[PATH_TEXT];
    dra_status st = path_of(folder, DRA_ADAPTER_CONFIG, path, err);
    *out = NULL;
    if (st == DRA_OK) st = dra_file_read(path, CONFIG_MOST, text, bytes, err);
    if (st == DRA_OK)
        st = dra_json_parse(path, *text, *bytes, (dra_json_rules){.depth = 8}, out, err);
    if (st == DRA_OK && !json_is_object(*out))
        st = dra_fail_at(err, DRA_ERR_FORMAT, path, "is no JSON object");
    return st;
}

/* Where the config says, else next to the adapter, under the last part of that name. */
static bool find_base(const char *folder, const char *name, char *path, size_t size)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    snprintf(path, size, "%s", name);
    if (dra_sys_exists(path)) return true;
    return *last && snprintf(path, size, "%s/../%s", folder, last) < (int)size &&
           dra_sys_exists(path);
}

dra_status dra_adapter_base(const char *folder, char *path, size_t size, dra_error *err)
{
    static const char key[] = "base_model_name_or_path";
    char             *text = NULL, room[DRA_BRIEF];
    size_t            bytes = 0;
    json_t           *config = NULL;
    dra_status        st = read_config(folder, &text, &bytes, &config, err);
    const char       *name = json_string_value(json_object_get(config, key));
    if (st == DRA_OK && !name)
        st = dra_fail_at(err, DRA_ERR_FORMAT, folder, "%s has no %s", DRA_ADAPTER_CONFIG, key);
    if (st == DRA_OK && !find_base(folder, name, path, size))
        st = dra_fail_at(err, DRA_ERR_FILE, folder,
                         "is an adapter of %s, which is not there; put that model next to the "
                         "adapter, or its path into %s of %s",
                         dra_brief(name, room), key, DRA_ADAPTER_CONFIG);
    json_decref(config);
    free(text);
    return st;
}

static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0) ||
           (json_is_string(v) && strcmp(json_string_value(v), "none") == 0);
}

/* Weights that were changed before factors were added: those on disk are others. */
static bool starts_from_others(const char *init)
{
    static const char *const starts[] = {"pissa", "olora", "corda", "loftq"};
    for (size_t i = 0; init && i < sizeof starts / sizeof *starts; i++)
        if (strncmp(init, starts[i], strlen(starts[i])) == 0) return true;
    return false;
}

/* PEFT reads keys as regular expressions; names of modules are what is read here. */
static bool is_module_alpha(const char *key, const json_t *alpha)
{
    return json_is_number(alpha) && !strpbrk(*key == '^' ? key + 1 : key, "\\*+?()[]{}|^$");
}

static dra_status check_alphas(const dra_adapter *a, dra_error *err)
{
    const char *key;
    json_t     *v;
    char        room[DRA_BRIEF];
    json_object_foreach(json_object_get(a->config, "alpha_pattern"), key, v)
    {
        if (!is_module_alpha(key, v))
            return dra_fail_at(err, DRA_ERR_VALUE, a->path,
                               "alpha_pattern has %s, expected names of modules with numbers",
                               dra_brief(key, room));
    }
    return DRA_OK;
}

/* What does more than adding products of low rank. */
static dra_status refuse_others(const dra_adapter *a, dra_error *err)
{
    static const char *const keys[] = {"use_dora",          "bias",
                                       "lora_bias",         "modules_to_save",
                                       "layer_replication", "trainable_token_indices",
                                       "use_qalora",        "alora_invocation_tokens"};
    const char              *type = json_string_value(json_object_get(a->config, "peft_type"));
    const char *init = json_string_value(json_object_get(a->config, "init_lora_weights"));
    char        room[DRA_BRIEF];
    if (!type || strcmp(type, "LORA") != 0)
        return dra_fail_at(err, DRA_ERR_VALUE, a->path, "is an adapter of type %s, expected LORA",
                           type ? dra_brief(type, room) : "none");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!is_empty(json_object_get(a->config, keys[i])))
            return dra_fail_at(err, DRA_ERR_VALUE, a->path,
                               "%s is set in %s, expected factors of low rank alone", keys[i],
                               DRA_ADAPTER_CONFIG);
    if (starts_from_others(init))
        return dra_fail_at(err, DRA_ERR_VALUE, a->path,
                           "init_lora_weights is %s, whose factors belong to weights that were "
                           "changed first",
                           dra_brief(init, room));
    return check_alphas(a, err);
}

/* Whether `end` is the last parts of a name with dots. */
static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0 && (n == m || name[n - m - 1] == '.');
}

/* alpha / rank; a pattern may say another alpha for some modules, and the first one counts. */
static double scale_of(const dra_adapter *a, const char *module, int64_t rank)
{
    const bool    root = json_is_true(json_object_get(a->config, "use_rslora"));
    const json_t *given = json_object_get(a->config, "lora_alpha");
    double        alpha = json_is_number(given) ? json_number_value(given) : 8;
    const char   *key;
    json_t       *v;
    json_object_foreach(json_object_get(a->config, "alpha_pattern"), key, v)
    {
        if (!ends_with(module, *key == '^' ? key + 1 : key)) continue;
        alpha = json_number_value(v);
        break;
    }
    return rank < 1 ? 0 : alpha / (root ? sqrt((double)rank) : (double)rank);
}

/* ---- opening --------------------------------------------------------------------------------- */

static dra_status add_factors(dra_adapter *a, const dra_tensor_info *A, const char *module, bool hf,
                              dra_error *err)
{
    char     name[2 * DRA_ADAPTER_NAME], room[DRA_BRIEF];
    factors *f = &a->at[a->n++];
    snprintf(f->name, sizeof f->name, "%s", module);
    dra_adapter_tensor_name(module, hf, 'B', name, sizeof name);
    f->A = A;
    f->B = dra_tensors_find(a->file, name);
    const bool plain = f->B && A->shape.rank == 2 && f->B->shape.rank == 2;
    if (!plain || A->shape.dim[0] != f->B->shape.dim[1])
        return dra_fail_at(err, DRA_ERR_SHAPE, a->path,
                           "tensor '%s': expected it (r, in) and its lora_B (out, r)",
                           dra_brief(A->name, room));
    f->scale = scale_of(a, module, A->shape.dim[0]);
    return DRA_OK;
}

static dra_status list_factors(dra_adapter *a, dra_error *err)
{
    char         module[DRA_ADAPTER_NAME], room[DRA_BRIEF];
    bool         hf;
    const size_t n = dra_tensors_count(a->file);
    dra_status   st = DRA_OK;
    a->at = calloc(n + 1, sizeof *a->at);
    if (!a->at) return dra_fail_at(err, DRA_ERR_MEMORY, a->path, "out of memory");
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        const dra_tensor_info *t = dra_tensors_at(a->file, i);
        const char             which = dra_adapter_module_name(t->name, module, &hf);
        if (!which)
            st = dra_fail_at(err, DRA_ERR_NAME, a->path,
                             "tensor '%s' is no factor of low rank (lora_A, lora_B)",
                             dra_brief(t->name, room));
        if (which == 'A') st = add_factors(a, t, module, hf, err);
    }
    if (st == DRA_OK && 2 * a->n != n)
        st = dra_fail_at(err, DRA_ERR_NAME, a->path, "%zu tensors, of which %zu are lora_A", n,
                         a->n);
    return st;
}

dra_status dra_adapter_open(const char *folder, dra_adapter **out, dra_error *err)
{
    char         path[PATH_TEXT];
    dra_adapter *a = calloc(1, sizeof *a);
    *out = a;
    if (!a) return dra_fail_at(err, DRA_ERR_MEMORY, folder, "out of memory");
    dra_status st = path_of(folder, DRA_ADAPTER_WEIGHTS, path, err);
    if (st == DRA_OK && !(a->path = strdup(path)))
        st = dra_fail_at(err, DRA_ERR_MEMORY, folder, "out of memory");
    if (st == DRA_OK) st = read_config(folder, &a->text, &a->bytes, &a->config, err);
    if (st == DRA_OK) st = refuse_others(a, err);
    if (st == DRA_OK) st = dra_tensors_open(path, &a->file, err);
    if (st == DRA_OK) st = list_factors(a, err);
    if (st == DRA_OK) return st;
    dra_adapter_close(a);
    *out = NULL;
    return st;
}

void dra_adapter_close(dra_adapter *a)
{
    if (!a) return;
    dra_tensors_close(a->file);
    json_decref(a->config);
    free(a->text);
    free(a->path);
    free(a->at);
    free(a);
}

uint64_t dra_adapter_key(const dra_adapter *a)
{
    const dra_file_map *m = dra_tensors_map(a->file);
    dra_hash            h;
    dra_hash_begin(&h, m->bytes);
    dra_hash_add(&h, m->is, sizeof m->is);
    dra_hash_add(&h, a->text, a->bytes);
    return m->is[2] + 2 < (int64_t)time(NULL) ? dra_hash_end(&h) : 0; /* clocks may be coarse */
}

dra_status dra_adapter_check(const dra_adapter *a, dra_error *err)
{
    return dra_tensors_check(a->file, err);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* By the tensor, whose name may have more parts in front on either side, or by the parameter. */
static const factors *find_factors(const dra_adapter *a, const dra_tensor_source_entry *e,
                                   const dra_name_rule *r, const dra_spec *p)
{
    char           module[DRA_ADAPTER_NAME];
    const factors *near = NULL;
    const bool     hf = dra_adapter_rule_fits(r) && dra_adapter_module_of(e->info->name, module);
    for (size_t i = 0; i < a->n; i++) {
        const char *name = a->at[i].name;
        if (strcmp(name, p->name) == 0 || (hf && strcmp(name, module) == 0)) return &a->at[i];
        if (hf && (ends_with(name, module) || ends_with(module, name))) near = &a->at[i];
    }
    return near;
}

bool dra_adapter_has(const dra_adapter *a, const dra_tensor_source_entry *e, const dra_name_rule *r,
                     const dra_spec *p)
{
    return a && p->shape.rank == 2 && find_factors(a, e, r, p);
}

/* The rows of B that belong to the parameter, (O, r). */
static dra_status read_rows(const dra_adapter *a, const factors *f, const dra_name_rule *r,
                            const dra_spec *p, dra_real *to, dra_error *err)
{
    const dra_tensor_source_entry e = {.info = f->B, .file = a->path};
    const bool                    own = strcmp(f->name, p->name) == 0;
    const dra_name_rule           rule = r ? dra_adapter_rule(r) : (dra_name_rule){0};
    const dra_spec B = {.name = p->name, .shape = DRA_SHAPE(p->shape.dim[0], f->B->shape.dim[1])};
    return dra_name_rule_read(&e, r && !own ? &rule : NULL, &B, to, err);
}

dra_status dra_adapter_add(const dra_adapter *a, const dra_tensor_source_entry *e,
                           const dra_name_rule *r, const dra_spec *p, dra_real *to, dra_error *err)
{
    const factors *f = find_factors(a, e, r, p);
    const int64_t  O = p->shape.dim[0], I = p->shape.dim[1], R = f->A->shape.dim[0];
    dra_real      *A = malloc((size_t)((O + I) * R) * sizeof *A + 1), *B = A ? A + I * R : NULL;
    dra_status     st = A ? DRA_OK : dra_fail_at(err, DRA_ERR_MEMORY, a->path, "out of memory");
    char           room[DRA_BRIEF];
    if (st == DRA_OK && !dra_tensor_copy(f->A, 0, (size_t)(I * R), DRA_REAL, A))
        st = dra_fail_at(err, DRA_ERR_DTYPE, a->path,
                         "tensor '%s': dtype %s, expected F32, F16, BF16 or F64",
                         dra_brief(f->A->name, room), f->A->dtype_name);
    if (st == DRA_OK) st = read_rows(a, f, r, p, B, err);
    for (int64_t o = 0; o < O && st == DRA_OK; o++)
        for (int64_t k = 0; k < R; k++) {
            const dra_real s = (dra_real)f->scale * B[o * R + k];
            for (int64_t i = 0; i < I; i++) to[o * I + i] += s * A[k * I + i];
        }
    free(A);
    return st;
}

static dra_status check_factors(const dra_adapter *a, const factors *f, const dra_name_rule *r,
                                const dra_spec *p, dra_error *err)
{
    char                   is[80], should[80], room[DRA_BRIEF];
    const bool             own = strcmp(f->name, p->name) == 0;
    const dra_name_rule    rule = r ? dra_adapter_rule(r) : (dra_name_rule){0};
    const dra_shape        rows = DRA_SHAPE(p->shape.dim[0], f->B->shape.dim[1]);
    const dra_shape        B = dra_name_rule_shape(r && !own ? &rule : NULL, &rows);
    const dra_shape        A = DRA_SHAPE(f->A->shape.dim[0], p->shape.dim[1]);
    const bool             wrong = !dra_shape_equal(&A, &f->A->shape);
    const dra_tensor_info *t = wrong ? f->A : f->B;
    if (!wrong && dra_shape_equal(&B, &f->B->shape)) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_SHAPE, a->path,
                       "tensor '%s': shape %s, expected %s by its "
                       "base model",
                       dra_brief(t->name, room), dra_shape_text(&t->shape, is, sizeof is),
                       dra_shape_text(wrong ? &A : &B, should, sizeof should));
}

dra_status dra_adapter_compare(const dra_model *m, const dra_name_rules *n,
                               const dra_tensor_source *s, dra_error *err)
{
    const dra_specs   *params = dra_model_params(m);
    const dra_adapter *a = s->adapter;
    char               room[DRA_BRIEF];
    bool              *used = calloc(a->n + 1, sizeof *used);
    dra_status st = used ? DRA_OK : dra_fail_at(err, DRA_ERR_MEMORY, a->path, "out of memory");
    for (int i = 0; i < dra_specs_count(params) && st == DRA_OK; i++) {
        const dra_spec                *p = dra_specs_at(params, i);
        const dra_name_rule           *r;
        const dra_tensor_source_entry *e = dra_format_find(n, s, p, &r);
        if (!e || !dra_adapter_has(a, e, r, p)) continue;
        const factors *f = find_factors(a, e, r, p);
        used[f - a->at] = true;
        st = check_factors(a, f, r, p, err);
    }
    for (size_t i = 0; i < a->n && st == DRA_OK; i++)
        if (!used[i])
            st = dra_fail_at(err, DRA_ERR_NAME, a->path,
                             "tensor '%s': its base model has no such matrix",
                             dra_brief(a->at[i].A->name, room));
    free(used);
    return st;
}
