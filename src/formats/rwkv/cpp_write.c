/* Writing files of rwkv.cpp; cpp.c says what is in them. */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "formats/convert.h"
#include "formats/rwkv/rwkv.h"

enum { MAGIC = 0x67676d66, VERSION = 101 };

static dra_status put_numbers(dra_file_writer *w, int n, const uint32_t *numbers, dra_error *err)
{
    return dra_file_writer_write(w, numbers, (size_t)n * sizeof *numbers, err);
}

/* Its quantiser takes all matrices but these; rows of no whole blocks stay as they are. */
static bool is_quantised(const char *name, const dra_shape *shape, dra_dtype wanted)
{
    static const char *const kept[] = {"emb.weight", "head.weight", "att.v1", "att.v2",
                                       "att.g1",     "att.g2",      "att.a1", "att.a2",
                                       "att.w1",     "att.w2",      "att.r_k"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (strstr(name, kept[i])) return false;
    return shape->rank == 2 && shape->dim[1] % (int64_t)dra_dtype_get(wanted)->block_elements == 0;
}

/* Tensors of several axes are FP16 in its FP16 files, but for these. */
dra_dtype dra_rwkv_cpp_dtype(const char *name, const dra_shape *shape, dra_dtype wanted)
{
    static const char *const wide[] = {".time_", ".k_k", ".k_a", ".r_k", ".x_rwkvag",
                                       ".x_k",   ".w0",  ".a0",  ".v0"};
    if (dra_is_quantised(wanted)) return is_quantised(name, shape, wanted) ? wanted : DRA_F32;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (strstr(name, wide[i])) return DRA_F32;
    return shape->rank > 1 ? wanted : DRA_F32;
}

/* Sizes are stored fastest first. */
static dra_status write_tensor(dra_conversion *c, dra_file_writer *w, const dra_file_tensor *t,
                               const char *name, dra_error *err)
{
    const dra_dtype dtype = dra_conversion_dtype(c, t);
    uint32_t        record[3 + DRA_MAX_RANK];
    int             n = 0;
    record[n++] = (uint32_t)t->shape.rank;
    record[n++] = (uint32_t)strlen(name);
    record[n++] = dra_rwkv_cpp_numbers[dtype];
    for (int32_t k = t->shape.rank; k > 0; k--) record[n++] = (uint32_t)t->shape.dim[k - 1];
    dra_error   why = {0};
    const void *data = dra_conversion_make(c, t, &why);
    if (!data) return dra_fail(err, why.code, "%s", why.text);
    put_numbers(w, n, record, err);
    dra_file_writer_write(w, name, strlen(name), err);
    return dra_file_writer_write(
        w, data, (size_t)dra_elements_bytes(dtype, dra_shape_count(&t->shape)), err);
}

/* What rwkv.cpp makes of such a model: its version's layers of these sizes and ranks, eps as it has
 * them. Its 5.2 is per channel with a gate, its 5.0 per head without. Its mixer is *y. */
static dra_model_config as_read(const dra_model_config *m, dra_mixer_config *y)
{
    dra_model_config        c = *m;
    const dra_mixer_config *x = &m->mixer[0];
    const int               version = dra_format_of(m)->rwkv;
    dra_rwkv_layers(&c, version);
    *y = c.mixer[0];
    c.mixer = y;
    c.norm_eps = c.final_eps = 1e-5;
    y->heads = x->heads;
    y->key_dim = x->key_dim;
    y->value_dim = x->value_dim;
    y->shift_rank = x->shift_rank;
    y->gate_rank = x->gate_rank;
    y->value_rank = x->value_rank;
    y->a.lambda.decay_rank = x->a.lambda.decay_rank;
    y->a.delta.rate_rank = x->a.delta.rate_rank;
    if (version != 5) return c;
    y->a.head_norm_eps = 1e-5;
    if (x->gate_values != DRA_GATE_NONE) return c;
    y->gate_values = DRA_GATE_NONE;
    y->a.gamma.per = DRA_PER_HEAD;
    y->a.lambda.bonus = DRA_BONUS_HEAD;
    y->a.lambda.bonus_exp = true;
    return c;
}

dra_status dra_rwkv_cpp_check(const dra_conversion *c, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(c->target);
    if (dra_model_config_rwkv(m) != dra_format_of(m)->rwkv)
        return dra_fail_at(err, DRA_ERR_VALUE, c->how->to, "files of rwkv.cpp hold RWKV only");
    if (c->how->dtype == DRA_BF16 || dra_dtype_get(c->how->dtype)->block_elements > 32)
        return dra_fail_at(err, DRA_ERR_DTYPE, c->how->to,
                           "expected f32, f16, q8_0, q5_1, q5_0, q4_1 or q4_0");
    dra_mixer_config       mixer;
    const dra_model_config can = as_read(m, &mixer);
    return dra_config_compare(c->how->to, "a file of rwkv.cpp", m, &can, err);
}

/* ---- records in the order of the file that is read ------------------------------------------- */

typedef struct place { /* of a tensor that is written: where the first of its parts was read */
    const dra_file_tensor *t;
    const dra_tensor_info *was;
    int                    i;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->was != y->was) return x->was < y->was ? -1 : 1;
    return x->i - y->i;
}

/* Infos of one file lie in its order; what was in none comes first. */
static place *places_of(const dra_conversion *c)
{
    const dra_specs *params = dra_model_params(c->source);
    place           *p = calloc((size_t)c->n + 1, sizeof *p);
    for (int i = 0; p && i < c->n; i++) {
        const dra_file_tensor *t = &c->list[i];
        p[i] = (place){t, NULL, i};
        for (int k = 0; k == 0 || (t->rule && k < t->rule->parts); k++) {
            const dra_spec      *is = dra_specs_at(dra_model_params(c->target), t->param[k]);
            const int            old = dra_specs_find(params, is->name);
            const dra_name_rule *rule;
            if (old < 0) continue;
            const dra_tensor_source_entry *e = dra_format_find(&c->old, c->from,
                                                               dra_specs_at(params, old), &rule);
            if (e && (!p[i].was || e->info < p[i].was)) p[i].was = e->info;
        }
    }
    if (p) qsort(p, (size_t)c->n, sizeof *p, by_place);
    return p;
}

static dra_status write_all(dra_conversion *c, dra_file_writer *w, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(c->target);
    place                  *p = places_of(c);
    dra_status st = p ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "convert: out of memory");
    for (int i = 0; i < c->n && st == DRA_OK; i++) {
        const bool embedding = strcmp(p[i].t->name, "emb.weight") == 0;
        st = write_tensor(c, w, p[i].t, p[i].t->name, err);
        if (st == DRA_OK && embedding && m->tied == DRA_ON)
            st = write_tensor(c, w, p[i].t, c->rules.head, err);
    }
    free(p);
    return st;
}

dra_status dra_rwkv_cpp_write(dra_conversion *c, const char *path, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(c->target);
    const uint32_t          header[] = {MAGIC,
                                        VERSION,
                                        (uint32_t)m->vocab,
                                        (uint32_t)m->dim,
                                        (uint32_t)m->depth,
                                        dra_rwkv_cpp_numbers[c->how->dtype]};
    dra_file_writer        *w = NULL;
    dra_status              st = dra_file_writer_begin(path, &w, err);
    if (st == DRA_OK) st = put_numbers(w, 6, header, err);
    if (st == DRA_OK) st = write_all(c, w, err);
    if (st == DRA_OK) return dra_file_writer_commit(w, err);
    dra_file_writer_abort(w);
    return st;
}
