/* From one format to another, tensor by tensor: a tensor of the new file is made of parameters, and
 * these are read from tensors of the old one by its rules. */
#include "formats/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quant.h"
#include "dra/text.h"
#include "file/fail.h"
#include "model/folder_files.h"
#include "formats/expert_tensors.h"
#include "formats/gguf/gguf.h"

/* ---- parameters ------------------------------------------------------------------------------ */

static void *room_for(dra_room *r, size_t bytes, dra_error *err)
{
    if (r->bytes >= bytes && r->data) return r->data;
    free(r->data);
    r->data = malloc(bytes + 1);
    r->bytes = r->data ? bytes : 0;
    if (!r->data) dra_fail(err, DRA_ERR_MEMORY, "convert: out of memory for %zu bytes", bytes);
    return r->data;
}

static size_t bytes_of(const dra_shape *s) { return (size_t)dra_shape_count(s) * sizeof(dra_real); }

static const dra_spec *param_of(const dra_model *m, const char *name)
{
    const int i = dra_specs_find(dra_model_params(m), name);
    return i < 0 ? NULL : dra_specs_at(dra_model_params(m), i);
}

/* A memory that has got a second one beside it: "mixer.a.W_i" was "mixer.W_i". */
static const dra_spec *find_single(const dra_model *m, const char *name)
{
    static const char first[] = ".mixer.a.";
    const char       *at = strstr(name, first);
    char              single[DRA_TENSOR_NAME];
    if (!at) return NULL;
    const int before = (int)(at - name) + (int)strlen(".mixer.");
    snprintf(single, sizeof single, "%.*s%s", before, name, at + strlen(first));
    return param_of(m, single);
}

/* The same parameter of the old model; NULL: it has none. A tied head is the embedding. */
static const dra_spec *old_one(const dra_conversion *c, const dra_spec *p)
{
    const dra_spec *old = param_of(c->source, p->name);
    if (!old) old = find_single(c->source, p->name);
    return !old && strcmp(p->name, "head") == 0 ? param_of(c->source, "embedding") : old;
}

/* A parameter of the old model as numbers; `to` has room for them. */
static dra_status read_old(const dra_conversion *c, const dra_spec *old, dra_real *to,
                           dra_error *err)
{
    const dra_name_rule           *rule;
    const dra_tensor_source_entry *e = dra_format_find(&c->old, c->from, old, &rule);
    const dra_status               st = dra_name_rule_read(e, rule, old, to, err);
    dra_expert_tensors_drop(e);
    return st;
}

/* Tables of tokens may differ in rows. */
static bool same_but_for_rows(const dra_shape *a, const dra_shape *b)
{
    return a->rank == 2 && b->rank == 2 && a->dim[1] == b->dim[1];
}

static const dra_real *get_param(void *user, int i, dra_error *err)
{
    dra_conversion  *c = user;
    const dra_specs *params = dra_model_params(c->target);
    const dra_spec  *p = dra_specs_at(params, i), *old = old_one(c, p);
    const bool       same = old && dra_shape_equal(&old->shape, &p->shape);
    if (c->held == i + 1) return c->param.data; /* experts ask for their own part, one by one */
    dra_real *to = room_for(&c->param, bytes_of(&p->shape), err);
    c->held = 0;
    if (!to) return NULL;
    if (!same) dra_specs_fill(params, i, c->how->seed, to);
    c->held = !old ? i + 1 : 0;
    if (!old) return to;
    dra_real *from = same ? to : room_for(&c->read, bytes_of(&old->shape), err);
    if (!from || read_old(c, old, from, err) != DRA_OK) return NULL;
    if (!same) {
        const size_t a = bytes_of(&p->shape), b = bytes_of(&old->shape);
        memcpy(to, from, a < b ? a : b);
    }
    c->held = i + 1;
    return to;
}

/* ---- tensors --------------------------------------------------------------------------------- */

enum { LEAST_ROWS = 32 }; /* of a matrix that is quantised */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Numbers for each channel of heads: (H, D), but no matrices. */
static bool is_wide(const char *param)
{
    static const char *const names[] = {"time_decay", "time_first", "bonus", "b_rate",
                                        "k_k",        "k_a",        "r_k"};
    const char              *dot = strrchr(param, '.');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(dot ? dot + 1 : param, names[i]) == 0) return true;
    return false;
}

/* One file with f32 in it, whatever is real here. */
static bool is_file(const dra_conversion *c)
{
    return c->how->cpp || c->config->format == DRA_FORMAT_GGUF;
}

/* What makes logits. */
static bool is_head(const dra_conversion *c, const dra_spec *p)
{
    const bool embedding = strcmp(p->name, "embedding") == 0;
    return strcmp(p->name, "head") == 0 || (embedding && !param_of(c->target, "head")); /* tied */
}

/* Kinds of blocks that only whole models are written in, with others among them. */
static bool is_mixed(dra_dtype t) { return t == DRA_Q4_K || t == DRA_Q5_K || t == DRA_Q6_K; }

/* What products read, in whole blocks along their inputs, gets this dtype; vectors, positions,
 * small factors and what chooses experts stay as they are: they are few, and sensitive. */
static dra_dtype quantised_dtype(const dra_conversion *c, const dra_file_tensor *t,
                                 const dra_spec *p, dra_dtype full)
{
    const bool      embedding = strcmp(p->name, "embedding") == 0, head = is_head(c, p);
    const dra_dtype dtype = is_mixed(c->how->dtype) ? dra_quant_mix(c, t, head) : c->how->dtype;
    const int64_t   block = (int64_t)dra_dtype_get(dtype)->block_elements;
    const int64_t   row = t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
    const bool      kept = (c->how->keep_head && head) || (c->how->keep_embedding && embedding) ||
                      ends_with(p->name, ".W_router");
    const bool whole = p->product && p->shape.rank == 2 && row % block == 0 && row > 0 &&
                       dra_shape_count(&t->shape) / row >= LEAST_ROWS;
    return whole && !kept && strcmp(p->name, "positions") != 0 ? dtype : full;
}

dra_dtype dra_conversion_dtype(const dra_conversion *c, const dra_file_tensor *t)
{
    const dra_spec *p = dra_specs_at(dra_model_params(c->target), t->param[0]);
    const dra_dtype full = is_file(c) ? DRA_F32 : DRA_REAL;
    const bool      vector = p->shape.rank < 2 || is_wide(p->name);
    if (c->how->cpp) return dra_rwkv_cpp_dtype(t->name, &t->shape, c->how->dtype);
    const bool kept = c->config->format == DRA_FORMAT_GGUF &&
                      dra_gguf_stays_f32(t->name, c->how->dtype);
    if (vector || kept || c->how->dtype == DRA_F32) return full;
    return dra_is_quantised(c->how->dtype) ? quantised_dtype(c, t, p, full) : c->how->dtype;
}

/* Element i of `to`; false: too large for its dtype. */
static bool put_number(dra_real x, dra_dtype dtype, size_t i, void *to)
{
    const float odd = dra_round_to_odd((double)x);
    float       is = (float)x;
    if (dtype == DRA_F32) {
        ((float *)to)[i] = is;
    } else if (dtype == DRA_F16) {
        ((uint16_t *)to)[i] = dra_f32_to_f16(odd);
        is = dra_f16_to_f32(((uint16_t *)to)[i]);
    } else {
        ((uint16_t *)to)[i] = dra_f32_to_bf16(odd);
        is = dra_bf16_to_f32(((uint16_t *)to)[i]);
    }
    return isfinite(is) || !isfinite(x);
}

/* By parts that stay in the first cache. */
static const void *quantise_tensor(const dra_conversion *c, const dra_file_tensor *t,
                                   dra_dtype dtype, const dra_real *x, void *out, dra_error *err)
{
    enum { PART = 1024 };
    const int64_t n = dra_shape_count(&t->shape);
    for (int64_t i = 0; i < n; i += PART) {
        const int64_t some = dra_imin(PART, n - i);
        float         from[PART];
        for (int64_t k = 0; k < some; k++) {
            from[k] = (float)x[i + k];
            if (isfinite(from[k]) && fabsf(from[k]) <= 65504) continue; /* a scale is f16 */
            dra_fail_at(err, DRA_ERR_VALUE, c->how->to,
                        "tensor %s: %g is beyond %s; nothing written", t->name, (double)x[i + k],
                        dra_dtype_get(dtype)->name);
            return NULL;
        }
        dra_quantise(dtype, from, some, (char *)out + dra_elements_bytes(dtype, i));
    }
    return out;
}

static const void *narrow_tensor(dra_conversion *c, const dra_file_tensor *t, const dra_real *x,
                                 dra_error *err)
{
    const dra_dtype dtype = dra_conversion_dtype(c, t);
    const size_t    n = (size_t)dra_shape_count(&t->shape);
    if (dtype == DRA_REAL) return x;
    void *out = room_for(&c->narrow, (size_t)dra_elements_bytes(dtype, (int64_t)n), err);
    if (out && dra_is_quantised(dtype)) return quantise_tensor(c, t, dtype, x, out, err);
    for (size_t i = 0; i < n && out; i++) {
        if (put_number(x[i], dtype, i, out)) continue;
        dra_fail_at(err, DRA_ERR_VALUE, c->how->to, "tensor %s: %g is beyond %s; nothing written",
                    t->name, (double)x[i], dra_dtype_get(dtype)->name);
        return NULL;
    }
    return out;
}

static bool is_stopped(const dra_conversion *c, dra_error *err)
{
    const bool stop = c->how->stop && c->how->stop(c->how->user);
    if (stop) dra_fail_at(err, DRA_ERR_FILE, c->how->to, "stopped; nothing written");
    return stop;
}

const void *dra_conversion_make(dra_conversion *c, const dra_file_tensor *t, dra_error *err)
{
    if (is_stopped(c, err)) return NULL;
    dra_real       *room = room_for(&c->tensor, bytes_of(&t->shape), err);
    const dra_real *x = room ? dra_file_tensor_fill(t, dra_model_params(c->target), get_param, c,
                                                    room, err)
                             : NULL;
    return x ? narrow_tensor(c, t, x, err) : NULL;
}

/* ---- what is to be done ---------------------------------------------------------------------- */

/* A head of its own goes only where the embedding says the same. */
static dra_status check_head(dra_conversion *c, dra_error *err)
{
    const dra_spec *head = param_of(c->source, "head");
    const dra_spec *embedding = param_of(c->source, "embedding");
    if (!head || param_of(c->target, "head")) return DRA_OK;
    const size_t bytes = bytes_of(&head->shape);
    c->held = 0;
    dra_real  *a = room_for(&c->param, bytes, err), *b = room_for(&c->read, bytes, err);
    dra_status st = a && b ? read_old(c, head, a, err) : DRA_ERR_MEMORY;
    if (st == DRA_OK) st = read_old(c, embedding, b, err);
    if (st == DRA_OK && memcmp(a, b, bytes) != 0)
        st = dra_fail_at(err, DRA_ERR_VALUE, c->how->from,
                         "head and embedding differ, expected the same where tied is true");
    return st;
}

/* All that is read has the right shape, and what differs may. */
static dra_status check_tensors(dra_conversion *c, dra_error *err)
{
    const dra_specs *params = dra_model_params(c->target);
    char             is[80], should[80];
    dra_status       st = dra_format_compare(c->source, &c->old, c->from, err);
    for (int i = 0; i < dra_specs_count(params) && st == DRA_OK; i++) {
        const dra_spec      *p = dra_specs_at(params, i), *old = old_one(c, p);
        const dra_name_rule *rule;
        if (!old) continue;
        const dra_tensor_source_entry *e = dra_format_find(&c->old, c->from, old, &rule);
        st = dra_format_check(c->old.format, e, rule, old, err);
        if (st == DRA_OK && !dra_shape_equal(&p->shape, &old->shape) &&
            !same_but_for_rows(&p->shape, &old->shape))
            st = dra_fail_at(err, DRA_ERR_SHAPE, c->how->from, "%s: shape %s, expected %s", p->name,
                             dra_shape_text(&old->shape, is, sizeof is),
                             dra_shape_text(&p->shape, should, sizeof should));
    }
    return st == DRA_OK ? check_head(c, err) : st;
}

static void tell_rows(const dra_conversion *c)
{
    for (int i = 0; i < c->n && c->how->row; i++) {
        const dra_file_tensor         *t = &c->list[i];
        const dra_spec                *p = dra_specs_at(dra_model_params(c->target), t->param[0]);
        const dra_spec                *old = old_one(c, p);
        const dra_name_rule           *rule;
        const dra_tensor_source_entry *e = NULL;
        const dra_dtype                dtype = dra_conversion_dtype(c, t);
        if (old) e = dra_format_find(&c->old, c->from, old, &rule);
        dra_convert_row row = {
            .to = t->name, .dtype = dra_dtype_get(dtype)->name, .shape = t->shape};
        if (e) {
            row.from = e->info->name;
            row.from_dtype = e->info->dtype_name;
            row.from_shape = e->info->shape;
        }
        c->how->row(c->how->user, &row);
    }
}

static dra_status check_tokenizer(const dra_conversion *c, dra_error *err)
{
    const dra_tokenizer *t = c->how->tokenizer;
    if (!t || dra_tokenizer_size(t) <= c->config->vocab) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_VALUE, c->how->to,
                       "the tokenizer has %d tokens, the new model %lld",
                       (int)dra_tokenizer_size(t), (long long)c->config->vocab);
}

static dra_status check_dtype(const dra_conversion *c, dra_error *err)
{
    const dra_dtype t = c->how->dtype;
    const bool      plain = t == DRA_F32 || t == DRA_REAL || t == DRA_BF16 || t == DRA_F16;
    const bool      other = c->rules.format->read && c->config->format != DRA_FORMAT_GGUF &&
                       !c->how->cpp;
    if (plain) return DRA_OK;
    if (!dra_dtype_get(t) || !dra_can_quantise(t))
        return dra_fail_at(err, DRA_ERR_DTYPE, c->how->to,
                           "weights cannot be written as %s, expected f32, bf16, f16, q8_0, q5_1, "
                           "q5_0, q4_1, q4_0, q6_k, q5_k or q4_k",
                           dra_dtype_get(t) ? dra_dtype_get(t)->name : "this");
    if (!other) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_DTYPE, c->how->to,
                       "folders of %s cannot hold %s, expected dra's own or GGUF",
                       c->rules.format->name, dra_dtype_get(t)->name);
}

static dra_status open_both(dra_conversion *c, dra_error *err)
{
    const dra_convert_config *how = c->how;
    dra_status                st = dra_folder_config(how->from, &c->read_config, err);
    if (st != DRA_OK) return st;
    const dra_model_config *old = c->read_config;
    st = dra_model_config_copy(how->config ? how->config : old, &c->config, err);
    if (st != DRA_OK) return st;
    if (c->config->format == DRA_FORMAT_GGUF) /* it has no words for how a model is trained */
        c->config->dropout = c->config->attention_dropout = c->config->embed_dropout = 0;
    st = dra_model_create(old, &c->source, err);
    if (st == DRA_OK) st = dra_model_create(c->config, &c->target, err);
    if (st == DRA_OK) st = dra_tensor_source_open(how->from, &c->from, err);
    if (st == DRA_OK) st = dra_name_rules_create(old, dra_dialect_of(c->from), &c->old, err);
    if (st == DRA_OK)
        st = dra_name_rules_create(c->config, how->cpp ? DRA_DIALECT_CPP : DRA_DIALECT_FOLDER,
                                   &c->rules, err);
    if (st == DRA_OK && !how->skip_hash) st = dra_tensor_source_check(c->from, err);
    if (st == DRA_OK) st = check_tensors(c, err);
    if (st == DRA_OK)
        c->n = dra_file_tensor_list(&c->rules, dra_model_params(c->target), NULL, &c->list);
    if (st == DRA_OK && c->n < 0) st = dra_fail(err, DRA_ERR_MEMORY, "convert: out of memory");
    if (st == DRA_OK) st = check_dtype(c, err);
    return st == DRA_OK ? check_tokenizer(c, err) : st;
}

/* ---- writing --------------------------------------------------------------------------------- */

static dra_status fill_folder(dra_conversion *c, const char *folder, dra_error *err)
{
    const dra_convert_config *how = c->how;
    const dra_dtype           dtype = how->dtype == DRA_F32 ? DRA_REAL : how->dtype;
    const unsigned            tokens = DRA_FOLDER_TOKENIZER | DRA_FOLDER_NOTES;
    const unsigned            others = DRA_FOLDER_HABITS | (how->tokenizer ? 0 : tokens);
    char                      base[4096];
    const bool                adapted = dra_folder_adapts(how->from, base, sizeof base);
    const char               *like = adapted ? base : how->from;
    dra_status                st = dra_folder_write_config(folder, c->config, like, dtype, err);
    if (st == DRA_OK) st = dra_conversion_write(c, folder, err);
    dra_tokenizer *own = NULL; /* in a single file */
    if (st == DRA_OK && !how->tokenizer && c->from->gguf.pairs && dra_tokenizer_is_in(how->from))
        st = dra_tokenizer_open(how->from, &own, err);
    const dra_tokenizer *tokenizer = how->tokenizer ? how->tokenizer : own;
    if (st == DRA_OK) st = dra_folder_save_tokenizer(folder, tokenizer, c->config->vocab, err);
    dra_tokenizer_destroy(own);
    if (st == DRA_OK && adapted) st = dra_folder_copy(base, folder, others, err);
    return st == DRA_OK ? dra_folder_copy(how->from, folder, others, err) : st;
}

/* What is checked, and not stopped until then, gets its name. */
static dra_status fill_target(void *user, const char *path, dra_error *err)
{
    dra_conversion           *c = user;
    const dra_convert_config *how = c->how;
    dra_status                st;
    if (how->cpp)
        st = dra_rwkv_cpp_write(c, path, err);
    else if (c->config->format == DRA_FORMAT_GGUF)
        st = dra_gguf_save(c, path, err);
    else
        st = fill_folder(c, path, err);
    if (st == DRA_OK && how->check) st = how->check(how->user, path, err);
    return st == DRA_OK && is_stopped(c, err) ? DRA_ERR_FILE : st;
}

/* A dry run finds out what the format cannot say, too. */
static dra_status check_words(const dra_conversion *c, dra_error *err)
{
    dra_json   j = {0};
    json_t    *object = dra_json_object(&j);
    dra_status st = dra_json_check(&j, c->how->to, err);
    if (st == DRA_OK && c->how->cpp)
        st = dra_rwkv_cpp_check(c, err);
    else if (st == DRA_OK && c->rules.format->read)
        st = dra_format_write(c->how->to, c->config, object, err);
    json_decref(object);
    return st;
}

dra_status dra_convert(const dra_convert_config *config, dra_error *err)
{
    dra_conversion c = {.how = config};
    dra_status     st = config->dry_run ? DRA_OK : dra_path_free(config->to, err);
    if (st == DRA_OK) st = open_both(&c, err);
    if (st == DRA_OK) st = check_words(&c, err);
    if (st == DRA_OK) tell_rows(&c);
    if (st == DRA_OK && !config->dry_run)
        st = dra_make_new(config->to, is_file(&c) ? "model.bin" : NULL, fill_target, &c, err);
    free(c.list);
    free(c.read.data);
    free(c.param.data);
    free(c.tensor.data);
    free(c.narrow.data);
    dra_tensor_source_close(c.from);
    dra_model_destroy(c.source);
    dra_model_destroy(c.target);
    dra_model_config_destroy(c.config);
    dra_model_config_destroy(c.read_config);
    dra_name_rules_free(&c.old);
    dra_name_rules_free(&c.rules);
    return st;
}
