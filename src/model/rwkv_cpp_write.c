/* Writing files of rwkv.cpp; rwkv_cpp.c says what is in them. */
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "model/convert.h"

enum { MAGIC = 0x67676d66, VERSION = 101 };

static uint32_t number_of(dra_dtype dtype)
{
    static const uint32_t numbers[DRA_DTYPE_COUNT] = {
        [DRA_F32] = 0,  [DRA_F16] = 1,  [DRA_Q4_0] = 2, [DRA_Q4_1] = 3,
        [DRA_Q5_0] = 7, [DRA_Q5_1] = 8, [DRA_Q8_0] = 9};
    return numbers[dtype];
}

static dra_status put(dra_file_writer *w, int n, const uint32_t *numbers, dra_error *err)
{
    return dra_file_writer_write(w, numbers, (size_t)n * sizeof *numbers, err);
}

/* Names of the original checkpoints, without a prefix; vectors have one axis. */
static dra_status write_tensor(dra_conversion *c, dra_file_writer *w, const dra_file_tensor *t,
                               const char *as, dra_error *err)
{
    const dra_spec *p = dra_specs_at(dra_model_params(c->target), t->param[0]);
    const dra_dtype dtype = dra_conversion_dtype(c, t);
    char            name[DRA_TENSOR_NAME];
    uint32_t        record[5];
    int64_t         l = 0;
    int             n = 0;
    dra_name_rules_find(&c->rules, p->name, &l);
    dra_pattern_fill("", as ? as : t->rule->instead ? t->rule->instead : t->rule->theirs, l, name);
    record[n++] = (uint32_t)p->shape.rank;
    record[n++] = (uint32_t)strlen(name);
    record[n++] = number_of(dtype);
    for (int32_t k = p->shape.rank; k > 0; k--) record[n++] = (uint32_t)p->shape.dim[k - 1];
    dra_error   why = {0};
    const void *data = dra_conversion_make(c, t, &why);
    if (!data) return dra_fail(err, why.code, "%s", why.text);
    put(w, n, record, err);
    dra_file_writer_write(w, name, strlen(name), err);
    return dra_file_writer_write(
        w, data, (size_t)dra_elements_bytes(dtype, dra_shape_count(&p->shape)), err);
}

static dra_status check(const dra_conversion *c, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(c->target);
    if (m->format != DRA_FORMAT_RWKV)
        return dra_fail_at(err, DRA_ERR_VALUE, c->how->to, "files of rwkv.cpp hold RWKV only");
    if (m->norm_eps != 1e-5)
        return dra_fail_at(err, DRA_ERR_VALUE, c->how->to, "norm_eps is %g, in rwkv.cpp it is 1e-5",
                           m->norm_eps);
    if (c->how->dtype == DRA_BF16)
        return dra_fail_at(err, DRA_ERR_DTYPE, c->how->to, "expected f32, f16 or quantised");
    return DRA_OK;
}

dra_status dra_rwkv_cpp_write(dra_conversion *c, const char *path, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(c->target);
    const uint32_t          header[] = {MAGIC,
                                        VERSION,
                                        (uint32_t)m->vocab,
                                        (uint32_t)m->dim,
                                        (uint32_t)m->depth,
                                        number_of(c->how->dtype)};
    dra_file_writer        *w = NULL;
    dra_status              st = check(c, err);
    if (st == DRA_OK) st = dra_file_writer_begin(path, &w, err);
    if (st == DRA_OK) st = put(w, 6, header, err);
    for (int i = 0; i < c->n && st == DRA_OK; i++) st = write_tensor(c, w, &c->list[i], NULL, err);
    if (st == DRA_OK && m->tied == DRA_ON) st = write_tensor(c, w, &c->list[0], "head.weight", err);
    if (st == DRA_OK) return dra_file_writer_commit(w, err);
    dra_file_writer_abort(w);
    return st;
}
