/* Adapters that are written: PEFT has one pair of factors for a tensor, dra one for each parameter.
 * Of several parameters in one tensor the As lie one below the other, and each B in the rows of its
 * parameter and the columns of its A, with zeros elsewhere: the rank of that tensor, and alpha with
 * it, is a multiple of the others'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/seal.h"
#include "formats/adapter.h"
#include "formats/adapter_names.h"

/* ---- names ----------------------------------------------------------------------------------- */

static const char WRAPPED[] = "base_model.model.", WEIGHT[] = ".weight";

void dra_adapter_tensor_name(const char *module, bool hf, char which, char *name, size_t size)
{
    snprintf(name, size, "%s%s.lora_%c%s", hf ? WRAPPED : "", module, which, hf ? WEIGHT : "");
}

/* Takes the end of a text away, if it is this. */
static bool cut_end(char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    if (n < m || strcmp(text + n - m, end) != 0) return false;
    text[n - m] = '\0';
    return true;
}

char dra_adapter_module_name(const char *tensor, char module[DRA_ADAPTER_NAME], bool *hf)
{
    *hf = strncmp(tensor, WRAPPED, strlen(WRAPPED)) == 0;
    if (strlen(tensor) >= DRA_ADAPTER_NAME) return 0;
    snprintf(module, DRA_ADAPTER_NAME, "%s", tensor + (*hf ? strlen(WRAPPED) : 0));
    if (*hf && !cut_end(module, WEIGHT)) return 0;
    return cut_end(module, ".lora_A") ? 'A' : cut_end(module, ".lora_B") ? 'B' : 0;
}

bool dra_adapter_module_of(const char *weight, char module[DRA_ADAPTER_NAME])
{
    snprintf(module, DRA_ADAPTER_NAME, "%s", weight);
    return cut_end(module, WEIGHT);
}

bool dra_adapter_rule_fits(const dra_name_rule *r)
{
    return !r || (r->as == DRA_AS_IT_IS && !r->halved_every && !r->flat && !r->inward &&
                  r->place == DRA_PARTS_OUT && r->parts <= DRA_PARTS_MOST);
}

dra_name_rule dra_adapter_rule(const dra_name_rule *r)
{
    dra_name_rule rule = *r;
    rule.transposed = false;
    rule.ones = rule.rank = 0;
    rule.shape = (dra_shape){0};
    return rule;
}

/* ---- what is in a tensor --------------------------------------------------------------------- */

typedef struct place { /* of the factors of one parameter */
    char                 module[DRA_ADAPTER_NAME];
    bool                 hf;
    const dra_name_rule *rule; /* NULL: the tensor is the parameter */
} place;

static place place_of(const dra_name_rules *rules, const dra_spec *p)
{
    char                 name[DRA_TENSOR_NAME];
    int64_t              l = 0;
    place                at = {.rule = NULL};
    const dra_name_rule *r = dra_name_rules_find(rules, p->name, &l);
    if (r && dra_adapter_rule_fits(r) &&
        dra_adapter_module_of(dra_name_rule_name(rules, r, l, name), at.module)) {
        at.hf = true;
        at.rule = r;
    } else {
        snprintf(at.module, sizeof at.module, "%s", p->name);
    }
    return at;
}

/* Parameters with factors in one module: how many, and how many of them come before `i`. */
static int count_sharing(const dra_name_rules *rules, const dra_specs *params, int i, int *before)
{
    const place mine = place_of(rules, dra_specs_at(params, i));
    int         n = 0;
    *before = 0;
    for (int k = 0; k < dra_specs_count(params); k++) {
        const dra_spec *p = dra_specs_at(params, k);
        if (!p->factors) continue;
        const place other = place_of(rules, p);
        if (strcmp(other.module, mine.module) != 0) continue;
        *before += k < i;
        n++;
    }
    return n;
}

static int64_t rank_of(const dra_specs *params, int i)
{
    return dra_specs_at(params, dra_specs_at(params, i)->factors)->shape.dim[0];
}

/* (out, rank) of a tensor that n parameters share. */
static dra_shape shape_of_B(const dra_specs *params, int i, const place *at, int n)
{
    const dra_shape rows = DRA_SHAPE(dra_specs_at(params, i)->shape.dim[0], n * rank_of(params, i));
    const dra_name_rule rule = at->rule ? dra_adapter_rule(at->rule) : (dra_name_rule){0};
    return dra_name_rule_shape(at->rule ? &rule : NULL, &rows);
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct writing {
    const dra_name_rules *rules;
    const dra_specs      *params;
    dra_get_param         get;
    void                 *user;
    const char           *path;
    dra_tensor_item      *items;
    char (*name)[2 * DRA_ADAPTER_NAME];
    size_t n;
} writing;

static dra_status no_memory(const char *path, dra_error *err)
{
    return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory");
}

/* A new tensor of zeros among the items. */
static dra_real *add_item(writing *w, const place *at, char which, dra_shape shape, dra_error *err)
{
    dra_real *data = calloc((size_t)dra_shape_count(&shape) + 1, sizeof *data);
    if (!data) {
        no_memory(w->path, err);
        return NULL;
    }
    dra_adapter_tensor_name(at->module, at->hf, which, w->name[w->n], sizeof w->name[w->n]);
    w->items[w->n] = (dra_tensor_item){w->name[w->n], DRA_REAL, shape, data};
    w->n++;
    return data;
}

static dra_real *find_item(const writing *w, const place *at, char which)
{
    char name[2 * DRA_ADAPTER_NAME];
    dra_adapter_tensor_name(at->module, at->hf, which, name, sizeof name);
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->items[i].name, name) == 0) return (dra_real *)(uintptr_t)w->items[i].data;
    return NULL;
}

/* B of parameter p (O, r) as columns `before` r ... of (O, n r), which `to` gets rows of. */
static dra_status put_B(const place *at, const dra_spec *p, int n, int before, int64_t r,
                        const dra_real *from, dra_real *to, const char *path, dra_error *err)
{
    const int64_t O = p->shape.dim[0];
    dra_spec      rows = {.name = p->name, .shape = DRA_SHAPE(O, n * r)};
    dra_real     *wide = calloc((size_t)(O * n * r) + 1, sizeof *wide);
    if (!wide) return no_memory(path, err);
    for (int64_t o = 0; o < O; o++)
        memcpy(wide + (o * n + before) * r, from + o * r, (size_t)r * sizeof *wide);
    const dra_name_rule rule = at->rule ? dra_adapter_rule(at->rule) : (dra_name_rule){0};
    dra_name_rule_write(at->rule ? &rule : NULL, &rows, wide, to);
    free(wide);
    return DRA_OK;
}

static dra_status put_factors(writing *w, int i, dra_error *err)
{
    const dra_spec *p = dra_specs_at(w->params, i);
    const int64_t   r = rank_of(w->params, i), I = p->shape.dim[1];
    const place     at = place_of(w->rules, p);
    int             before;
    const int       n = count_sharing(w->rules, w->params, i, &before);
    dra_real *A = before ? find_item(w, &at, 'A') : add_item(w, &at, 'A', DRA_SHAPE(n * r, I), err);
    dra_real *B = !A       ? NULL
                  : before ? find_item(w, &at, 'B')
                           : add_item(w, &at, 'B', shape_of_B(w->params, i, &at, n), err);
    if (!B) return DRA_ERR_MEMORY;
    const dra_real *from = w->get(w->user, p->factors, err);
    if (!from) return DRA_ERR_MEMORY;
    memcpy(A + before * r * I, from, (size_t)(r * I) * sizeof *A);
    from = w->get(w->user, p->factors + 1, err);
    return from ? put_B(&at, p, n, before, r, from, B, w->path, err) : DRA_ERR_MEMORY;
}

dra_status dra_adapter_write(const dra_name_rules *rules, const dra_specs *params, const char *path,
                             dra_get_param get, void *user, dra_error *err)
{
    const int  n = dra_specs_count(params);
    writing    w = {.rules = rules, .params = params, .get = get, .user = user, .path = path};
    dra_status st = DRA_OK;
    w.items = calloc((size_t)n + 1, sizeof *w.items);
    w.name = calloc((size_t)n + 1, sizeof *w.name);
    if (!w.items || !w.name) st = no_memory(path, err);
    for (int i = 0; i < n && st == DRA_OK; i++)
        if (dra_specs_at(params, i)->factors) st = put_factors(&w, i, err);
    if (st == DRA_OK) st = dra_weights_write_items(rules->format, path, w.items, w.n, err);
    for (size_t i = 0; i < w.n; i++) free((void *)(uintptr_t)w.items[i].data);
    free(w.items);
    free(w.name);
    return st;
}

/* ---- reading what was written ---------------------------------------------------------------- */

dra_status dra_adapter_read(const dra_name_rules *rules, const dra_specs *params,
                            const dra_tensors *file, const char *path, int i, dra_real *A,
                            dra_real *B, dra_error *err)
{
    const dra_spec *p = dra_specs_at(params, i);
    const int64_t   r = rank_of(params, i), O = p->shape.dim[0], I = p->shape.dim[1];
    const place     at = place_of(rules, p);
    int             before;
    const int       n = count_sharing(rules, params, i, &before);
    char            name[2 * DRA_ADAPTER_NAME];
    dra_real       *wide = malloc((size_t)(n * r * (O > I ? O : I)) * sizeof *wide + 1);
    if (!wide) return no_memory(path, err);
    dra_adapter_tensor_name(at.module, at.hf, 'A', name, sizeof name);
    dra_status st = dra_tensors_read(file, name, DRA_REAL, DRA_SHAPE(n * r, I), wide, err);
    if (st == DRA_OK) memcpy(A, wide + before * r * I, (size_t)(r * I) * sizeof *A);
    dra_adapter_tensor_name(at.module, at.hf, 'B', name, sizeof name);
    const dra_name_rule           rule = at.rule ? dra_adapter_rule(at.rule) : (dra_name_rule){0};
    const dra_tensor_source_entry e = {.info = dra_tensors_find(file, name), .file = path};
    const dra_spec                rows = {.name = p->name, .shape = DRA_SHAPE(O, n * r)};
    const dra_shape               all = shape_of_B(params, i, &at, n);
    if (st == DRA_OK && (!e.info || !dra_shape_equal(&e.info->shape, &all)))
        st = dra_fail_at(err, DRA_ERR_SHAPE, path, "tensor '%.120s' is missing or misshapen", name);
    if (st == DRA_OK) st = dra_name_rule_read(&e, at.rule ? &rule : NULL, &rows, wide, err);
    for (int64_t o = 0; o < O && st == DRA_OK; o++)
        memcpy(B + o * r, wide + (o * n + before) * r, (size_t)r * sizeof *B);
    free(wide);
    return st;
}

/* ---- the config ------------------------------------------------------------------------------ */

/* Of tensors that several parameters share: another rank and alpha. */
static void put_pattern(dra_json *j, json_t *object, const char *key, const char *module,
                        json_t *value)
{
    dra_json_set(j, json_object_get(object, key), module, value);
}

static void put_modules(dra_json *j, json_t *o, const dra_name_rules *rules,
                        const dra_specs *params, const dra_lora_config *c)
{
    json_t *targets = dra_json_array(j);
    bool    turned = false;
    dra_json_set(j, o, "rank_pattern", dra_json_object(j));
    dra_json_set(j, o, "alpha_pattern", dra_json_object(j));
    for (int i = 0; i < dra_specs_count(params); i++) {
        int before;
        if (!dra_specs_at(params, i)->factors) continue;
        const place at = place_of(rules, dra_specs_at(params, i));
        const int   n = count_sharing(rules, params, i, &before);
        if (before) continue;
        dra_json_append(j, targets, dra_json_text(j, at.module));
        turned |= at.rule && at.rule->transposed;
        if (n == 1) continue;
        put_pattern(j, o, "rank_pattern", at.module, dra_json_int(j, n * c->rank));
        put_pattern(j, o, "alpha_pattern", at.module, dra_json_real(j, n * c->alpha));
    }
    dra_json_set(j, o, "target_modules", targets);
    dra_json_set(j, o, "fan_in_fan_out", dra_json_bool(turned));
}

dra_status dra_adapter_save_config(const char *folder, const dra_model_config *c, dra_error *err)
{
    char           path[4096], *text = NULL;
    size_t         bytes = 0;
    dra_model     *model = NULL;
    dra_name_rules rules = {0};
    dra_json       j = {0};
    json_t        *o = dra_json_object(&j);
    if (snprintf(path, sizeof path, "%s/%s", folder, DRA_ADAPTER_CONFIG) >= (int)sizeof path)
        path[0] = '\0';
    dra_status st = dra_model_create(c, &model, err);
    if (st == DRA_OK) st = dra_name_rules_create(c, DRA_DIALECT_FOLDER, &rules, err);
    if (st == DRA_OK) {
        const dra_lora_config *lora = dra_model_config_of(model)->lora;
        dra_json_set(&j, o, "peft_type", dra_json_text(&j, "LORA"));
        dra_json_set(&j, o, "task_type", dra_json_text(&j, "CAUSAL_LM"));
        dra_json_set(&j, o, "base_model_name_or_path", dra_json_text(&j, c->lora_base));
        dra_json_set(&j, o, "r", dra_json_int(&j, lora->rank));
        dra_json_set(&j, o, "lora_alpha", dra_json_real(&j, lora->alpha));
        dra_json_set(&j, o, "lora_dropout", dra_json_real(&j, 0));
        dra_json_set(&j, o, "bias", dra_json_text(&j, "none"));
        dra_json_set(&j, o, "inference_mode", dra_json_bool(true));
        put_modules(&j, o, &rules, dra_model_params(model), lora);
        st = dra_json_dump(&j, o, JSON_INDENT(2), path, &text, &bytes, err);
    }
    if (st == DRA_OK) st = dra_file_write(path, text, bytes, err);
    free(text);
    json_decref(o);
    dra_name_rules_free(&rules);
    dra_model_destroy(model);
    return st;
}
