/* From one format to another, tensor by tensor: a tensor of the new file is made of parameters, and
 * these are read from tensors of the old one by its rules. */
#include "model/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "model/folder_files.h"

enum { PATH_TEXT = 4096, CONFIG_MOST = 1 << 20 };

/* ---- parameters ------------------------------------------------------------------------------ */

static void *room_for(dra_room *r, size_t bytes, dra_error *err)
{
    if (r->bytes >= bytes && r->data) return r->data;
    free(r->data);
    r->data = malloc(bytes + 1);
    r->bytes = r->data ? bytes : 0;
    if (!r->data) dra_fail(err, DRA_ERR_MEMORY, "convert: no memory for %zu bytes", bytes);
    return r->data;
}

static size_t bytes_of(const dra_shape *s) { return (size_t)dra_shape_count(s) * sizeof(dra_real); }

/* The same parameter of the old model; NULL: it has none. */
static const dra_spec *old_one(const dra_conversion *c, const dra_spec *p)
{
    const dra_specs *old = dra_model_params(c->source);
    const int        i = dra_specs_find(old, p->name);
    return i < 0 ? NULL : dra_specs_at(old, i);
}

/* Tables of tokens may differ in rows. */
static bool same_but_for_rows(const dra_shape *a, const dra_shape *b)
{
    return a->rank == 2 && b->rank == 2 && a->dim[1] == b->dim[1];
}

static const dra_real *get(void *user, int i, dra_error *err)
{
    dra_conversion         *c = user;
    const dra_specs        *params = dra_model_params(c->target);
    const dra_spec         *p = dra_specs_at(params, i), *old = old_one(c, p);
    const dra_format       *f = dra_format_of(dra_model_config_of(c->source));
    const bool              same = old && dra_shape_equal(&old->shape, &p->shape);
    const dra_rule         *rule;
    const dra_origin_entry *e = old ? dra_format_find(f, c->from, old, &rule) : NULL;
    dra_real               *to = room_for(&c->param, bytes_of(&p->shape), err);
    if (!to) return NULL;
    if (!same) dra_specs_fill(params, i, c->how->seed, to);
    if (!old) return to;
    dra_real *from = same ? to : room_for(&c->read, bytes_of(&old->shape), err);
    if (!from || dra_rule_read(c->from, e, rule, old, from, err) != DRA_OK) return NULL;
    if (!same) {
        const size_t a = bytes_of(&p->shape), b = bytes_of(&old->shape);
        memcpy(to, from, a < b ? a : b);
    }
    return to;
}

/* ---- tensors --------------------------------------------------------------------------------- */

dra_dtype dra_conversion_dtype(const dra_conversion *c, const dra_stored *t)
{
    const dra_shape *s = &dra_specs_at(dra_model_params(c->target), t->param[0])->shape;
    const dra_dtype  full = c->how->cpp ? DRA_F32 : DRA_REAL;
    return s->rank > 1 && c->how->dtype != DRA_F32 ? c->how->dtype : full;
}

static const void *narrow(dra_conversion *c, const dra_real *x, size_t n, dra_dtype dtype,
                          dra_error *err)
{
    void *out = dtype == DRA_REAL ? NULL : room_for(&c->narrow, n * dra_dtype_bytes(dtype), err);
    if (dtype == DRA_REAL) return x;
    for (size_t i = 0; i < n && out; i++) {
        if (dtype == DRA_F32) ((float *)out)[i] = (float)x[i];
        if (dtype == DRA_F16) ((uint16_t *)out)[i] = dra_f32_to_f16(dra_round_to_odd((double)x[i]));
        if (dtype == DRA_BF16)
            ((uint16_t *)out)[i] = dra_f32_to_bf16(dra_round_to_odd((double)x[i]));
    }
    return out;
}

const void *dra_conversion_make(dra_conversion *c, const dra_stored *t, dra_error *err)
{
    dra_real       *room = room_for(&c->tensor, bytes_of(&t->shape), err);
    const dra_real *x = room ? dra_stored_fill(t, dra_model_params(c->target), get, c, c->how->cpp,
                                               room, err)
                             : NULL;
    return x ? narrow(c, x, (size_t)dra_shape_count(&t->shape), dra_conversion_dtype(c, t), err)
             : NULL;
}

/* ---- what is to be done ---------------------------------------------------------------------- */

/* All that is read has the right shape, and what differs may. */
static dra_status check(const dra_conversion *c, dra_error *err)
{
    const dra_specs  *params = dra_model_params(c->target);
    const dra_format *f = dra_format_of(dra_model_config_of(c->source));
    char              is[80], should[80];
    dra_status        st = dra_format_compare(c->source, c->from, err);
    for (int i = 0; i < dra_specs_count(params) && st == DRA_OK; i++) {
        const dra_spec *p = dra_specs_at(params, i), *old = old_one(c, p);
        const dra_rule *rule;
        if (!old) continue;
        const dra_origin_entry *e = dra_format_find(f, c->from, old, &rule);
        st = dra_format_check(f, e, rule, old, err);
        if (st == DRA_OK && !dra_shape_equal(&p->shape, &old->shape) &&
            !same_but_for_rows(&p->shape, &old->shape))
            st = dra_fail_at(err, DRA_ERR_SHAPE, c->how->from, "%s: shape %s, expected %s", p->name,
                             dra_shape_text(&old->shape, is, sizeof is),
                             dra_shape_text(&p->shape, should, sizeof should));
    }
    return st;
}

static void tell(const dra_conversion *c)
{
    const dra_format *f = dra_format_of(dra_model_config_of(c->source));
    for (int i = 0; i < c->n && c->how->row; i++) {
        const dra_stored       *t = &c->list[i];
        const dra_spec         *p = dra_specs_at(dra_model_params(c->target), t->param[0]);
        const dra_rule         *rule;
        const dra_origin_entry *e = old_one(c, p) ? dra_format_find(f, c->from, p, &rule) : NULL;
        dra_convert_row         row = {.to = t->name,
                                       .dtype = dra_dtype_get(dra_conversion_dtype(c, t))->name,
                                       .shape = t->shape};
        if (e) {
            row.from = e->info->name;
            row.from_dtype = e->info->dtype_name;
            row.from_shape = e->info->shape;
        }
        c->how->row(c->how->user, &row);
    }
}

static dra_status open_both(dra_conversion *c, dra_error *err)
{
    const dra_convert_config *how = c->how;
    dra_model_config          old;
    dra_status                st = dra_folder_config(how->from, &old, err);
    if (st != DRA_OK) return st;
    c->config = how->config ? *how->config : old;
    c->format = dra_format_of(&c->config);
    st = dra_model_create(&old, &c->source, err);
    if (st == DRA_OK) st = dra_model_create(&c->config, &c->target, err);
    if (st == DRA_OK) st = dra_origin_open(how->from, &c->from, err);
    if (st == DRA_OK) st = check(c, err);
    if (st == DRA_OK) c->n = dra_stored_list(c->format, dra_model_params(c->target), &c->list);
    if (st == DRA_OK && c->n < 0) st = dra_fail(err, DRA_ERR_MEMORY, "convert: out of memory");
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Keys of the old config that dra does not know, if the new one is of the same kind. */
static json_t *other_keys(const dra_conversion *c)
{
    char    path[PATH_TEXT], *text = NULL;
    size_t  bytes = 0;
    json_t *object = NULL;
    snprintf(path, sizeof path, "%s/config.json", c->how->from);
    if (c->config.format == dra_model_config_of(c->source)->format && c->format->rules &&
        !c->from->dim && dra_file_read(path, CONFIG_MOST, &text, &bytes, NULL) == DRA_OK)
        dra_json_parse(path, text, bytes, (dra_json_rules){.depth = 16}, &object, NULL);
    free(text);
    return object ? object : json_object();
}

static dra_status fill(void *user, const char *folder, dra_error *err)
{
    dra_conversion *c = user;
    const unsigned  others = DRA_FOLDER_TOKENIZER | DRA_FOLDER_NOTES | DRA_FOLDER_HABITS;
    json_t         *object = other_keys(c);
    dra_status      st = dra_folder_write_config(folder, &c->config, object, err);
    json_decref(object);
    if (st == DRA_OK) st = dra_conversion_write(c, folder, err);
    return st == DRA_OK && !c->from->dim ? dra_folder_copy(c->how->from, folder, others, err) : st;
}

/* A dry run finds out what the format cannot say, too. */
static dra_status check_words(const dra_conversion *c, dra_error *err)
{
    json_t    *object = json_object();
    dra_status st = c->format->rules ? dra_format_write(c->how->to, &c->config, object, err)
                                     : DRA_OK;
    json_decref(object);
    return st;
}

dra_status dra_convert(const dra_convert_config *config, dra_error *err)
{
    dra_conversion c = {.how = config};
    dra_status     st = config->dry_run ? DRA_OK : dra_path_free(config->to, err);
    if (st == DRA_OK) st = open_both(&c, err);
    if (st == DRA_OK) st = check_words(&c, err);
    if (st == DRA_OK) tell(&c);
    if (st == DRA_OK && !config->dry_run)
        st = config->cpp ? dra_rwkv_cpp_write(&c, err) : dra_folder_new(config->to, fill, &c, err);
    free(c.list);
    free(c.read.data);
    free(c.param.data);
    free(c.tensor.data);
    free(c.narrow.data);
    dra_origin_close(c.from);
    dra_model_destroy(c.source);
    dra_model_destroy(c.target);
    return st;
}
