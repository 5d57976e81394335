/* A model as a GGUF file. */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/gguf.h"
#include "formats/gguf/gguf.h"
#include "text/gguf.h"

typedef struct making {
    dra_conversion        *c;
    const dra_file_tensor *t;
} making;

static const void *make_tensor(void *user, dra_error *err)
{
    const making *m = user;
    return dra_conversion_make(m->c, m->t, err);
}

/* ggml's name for "most tensors are of this type"; informative only. */
static int64_t file_type(dra_dtype dtype)
{
    switch (dtype) {
    case DRA_F16: return 1;
    case DRA_BF16: return 32;
#define DRA_QUANT(NAME, name, elements, bytes, d, writes, vectors, ggml, most, rwkv)               \
    case DRA_##NAME:                                                                               \
        return most;
#include "base/quant.def"
#undef DRA_QUANT
    default: return 0;
    }
}

static dra_status make_pairs(const dra_conversion *c, const dra_tokenizer *tokenizer, json_t **out,
                             dra_error *err)
{
    const dra_dtype dtype = c->how->dtype;
    dra_json        j = {0};
    json_t         *pairs = *out = dra_json_object(&j);
    dra_status      st = dra_json_check(&j, c->how->to, err);
    if (st == DRA_OK) st = dra_format_write(c->how->to, c->config, pairs, err);
    if (st != DRA_OK) return st;
    dra_json_delete(pairs, "model_type");
    dra_json_set(&j, pairs, "general.file_type", dra_json_int(&j, file_type(dtype)));
    if (dra_is_quantised(dtype))
        dra_json_set(&j, pairs, "general.quantization_version", dra_json_int(&j, 2));
    if (tokenizer) st = dra_tokenizer_gguf_pairs(tokenizer, c->config->vocab, &j, pairs, err);
    return st == DRA_OK ? dra_json_check(&j, c->how->to, err) : st;
}

static dra_status write_tensors(dra_conversion *c, const json_t *pairs, const char *path,
                                dra_error *err)
{
    const size_t     n = (size_t)c->n, constants = (size_t)c->rules.constants;
    dra_tensor_item *items = calloc(n + constants + 1, sizeof *items);
    making          *m = calloc(n + 1, sizeof *m);
    for (size_t i = 0; i < n && items && m; i++) {
        const dra_file_tensor *t = &c->list[i];
        m[i] = (making){c, t};
        items[i] = (dra_tensor_item){t->name, dra_conversion_dtype(c, t), t->shape,
                                     .make = make_tensor, .user = &m[i]};
    }
    for (size_t i = 0; i < constants && items && m; i++)
        items[n + i] = dra_constant_item(&c->rules.constant[i]);
    const dra_status st = items && m ? dra_gguf_write(path, pairs, items, n + constants, err)
                                     : dra_fail(err, DRA_ERR_MEMORY, "convert: out of memory");
    free(items);
    free(m);
    return st;
}

/* A model without a tokenizer, or of bytes, is written without one. */
static dra_status open_tokenizer(const dra_conversion *c, dra_tokenizer **out, dra_error *err)
{
    *out = NULL;
    if (!dra_tokenizer_is_in(c->how->from)) return DRA_OK;
    return dra_tokenizer_open(c->how->from, out, err);
}

dra_status dra_gguf_save(dra_conversion *c, const char *path, dra_error *err)
{
    const dra_tokenizer *given = c->how->tokenizer;
    dra_tokenizer       *own = NULL;
    json_t              *pairs = NULL;
    dra_status           st = given ? DRA_OK : open_tokenizer(c, &own, err);
    if (st == DRA_OK) st = make_pairs(c, given ? given : own, &pairs, err);
    if (st == DRA_OK) st = write_tensors(c, pairs, path, err);
    json_decref(pairs);
    dra_tokenizer_destroy(own);
    return st;
}
