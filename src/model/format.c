/* Formats: config.json in the keys of others, and what only a file can tell. */
#include "model/format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file/fail.h"
#include "model/gguf.h"
#include "model/model.h"

static const dra_format        own = {.name = "dra"};
static const dra_format *const formats[] = {[DRA_FORMAT_DRA] = &own,
                                            [DRA_FORMAT_GPT2] = &dra_format_gpt2,
                                            [DRA_FORMAT_RWKV] = &dra_format_rwkv,
                                            [DRA_FORMAT_XT] = &dra_format_xt,
                                            [DRA_FORMAT_GGUF] = &dra_format_gguf};

enum { FORMATS = sizeof formats / sizeof *formats, SIZE_MOST = 1 << 20 };

const dra_format *dra_format_of(const dra_model_config *c) { return formats[c->format]; }

const dra_format *dra_format_named(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "model_type"));
    for (int i = 0; i < FORMATS; i++)
        if (type && strcmp(type, formats[i]->name) == 0) return formats[i];
    return NULL;
}

/* ---- keys ------------------------------------------------------------------------------------ */

void dra_keys_refuse(dra_keys *k, const char *key, const char *expected)
{
    if (k->status != DRA_OK) return;
    const json_t *v = json_object_get(k->object, key);
    char         *is = dra_json_words(v, JSON_ENCODE_ANY | JSON_COMPACT);
    k->status = dra_fail(k->err, DRA_ERR_VALUE, "%.120s: %.60s is %.60s, expected %.160s", k->place,
                         key,
                         is  ? is
                         : v ? "..."
                             : "missing",
                         expected);
    free(is);
}

/* What a key says; NULL where it, or the older name, is not there or null. */
static const json_t *said(const dra_keys *k, const char *key, const char *old)
{
    const json_t *v = json_object_get(k->object, key);
    if (!v && old) v = json_object_get(k->object, old);
    return json_is_null(v) ? NULL : v;
}

int64_t dra_keys_int(dra_keys *k, const char *key, const char *old, int64_t fallback)
{
    const json_t *v = said(k, key, old);
    const double  x = json_number_value(v);
    if (!v) return fallback;
    if (json_is_number(v) && x == floor(x) && fabs(x) <= SIZE_MOST) return (int64_t)x;
    dra_keys_refuse(k, json_object_get(k->object, key) ? key : old, "a whole number up to 1048576");
    return fallback;
}

double dra_keys_real(dra_keys *k, const char *key, double fallback)
{
    const json_t *v = said(k, key, NULL);
    if (!v) return fallback;
    if (json_is_number(v) && json_number_value(v) >= 0 && json_number_value(v) < 1)
        return json_number_value(v);
    dra_keys_refuse(k, key, "a number from 0 to 1");
    return fallback;
}

bool dra_keys_bool(dra_keys *k, const char *key, bool fallback)
{
    const json_t *v = said(k, key, NULL);
    if (!v) return fallback;
    if (!json_is_boolean(v)) dra_keys_refuse(k, key, "true or false");
    return json_is_true(v);
}

const char *dra_keys_text(dra_keys *k, const char *key, const char *fallback)
{
    const json_t *v = said(k, key, NULL);
    if (v && !json_is_string(v)) dra_keys_refuse(k, key, "a text");
    return json_is_string(v) ? json_string_value(v) : fallback;
}

void dra_keys_put(dra_keys *k, const char *key, json_t *value)
{
    const json_t *before = json_object_get(k->object, key);
    if (json_is_number(before) && json_number_value(before) == json_number_value(value) &&
        json_is_number(value)) { /* there already, perhaps spelled differently */
        json_decref(value);
        return;
    }
    dra_json_set(&k->json, k->object, key, value);
}

/* ---- configs --------------------------------------------------------------------------------- */

dra_status dra_format_read(const dra_format *f, const char *place, json_t *object,
                           dra_model_config *out, dra_error *err)
{
    dra_keys k = {.place = place, .object = object, .err = err};
    *out = (dra_model_config){0};
    for (int i = 0; i < FORMATS; i++)
        if (formats[i] == f) out->format = (dra_format_kind)i;
    f->read(&k, out);
    return k.status;
}

/* Both configs as dra says them: the first key that differs, or NULL. Of several stacks it is a key
 * of the one that differs: *a and *b become those. */
static const char *difference(const json_t **one, const json_t **other)
{
    const json_t *a = *one, *b = *other, *stacks = json_object_get(b, "stacks");
    const char   *key;
    json_t       *v;
    json_object_foreach(json_object_get(a, "stacks"), key, v)
    {
        const json_t *same = json_object_get(stacks, key);
        if (!same || json_equal(v, same)) continue;
        *one = v;
        *other = same;
        return difference(one, other);
    }
    json_object_foreach((json_t *)(uintptr_t)a, key,
                        v) if (!json_equal(v, json_object_get(b, key))) return key;
    json_object_foreach((json_t *)(uintptr_t)b, key, v) if (!json_object_get(a, key)) return key;
    return NULL;
}

/* Read back, it must be what was meant; else the format cannot express it. */
static dra_status check_words(const char *place, const dra_model_config *meant, json_t *object,
                              dra_error *err)
{
    const dra_format *f = dra_format_of(meant);
    dra_model_config  back;
    dra_status        st = dra_format_read(f, place, object, &back, err);
    if (st != DRA_OK) return st;
    json_t       *a = dra_model_config_object(meant), *b = dra_model_config_object(&back);
    const json_t *one = a, *other = b;
    const char   *key = a && b ? difference(&one, &other) : NULL;
    if (!a || !b) st = dra_fail(err, DRA_ERR_MEMORY, "%.120s: out of memory", place);
    if (key) {
        const json_t *x = json_object_get(one, key), *y = json_object_get(other, key);
        char         *is = dra_json_words(x, JSON_ENCODE_ANY | JSON_COMPACT);
        char         *can = dra_json_words(y, JSON_ENCODE_ANY | JSON_COMPACT);
        st = dra_fail(err, DRA_ERR_VALUE, "%.120s: %s %s folder cannot hold %s %.120s, only %.120s",
                      place, f->name[0] == 'x' ? "an" : "a", f->name, key,
                      is  ? is
                      : x ? "..."
                          : "by default",
                      can ? can
                      : y ? "..."
                          : "the default");
        free(is);
        free(can);
    }
    json_decref(a);
    json_decref(b);
    return st;
}

dra_status dra_format_write(const char *place, const dra_model_config *c, json_t *object,
                            dra_error *err)
{
    const dra_format *f = dra_format_of(c);
    dra_keys          k = {.place = place, .object = object, .err = err};
    dra_model_config  full = *c;
    dra_model_config_complete(&full);
    dra_keys_put(&k, "model_type", dra_json_text(&k.json, f->name));
    if (f->class_name && !json_object_get(object, "architectures")) {
        json_t *names = dra_json_array(&k.json);
        dra_json_append(&k.json, names, dra_json_text(&k.json, f->class_name));
        dra_keys_put(&k, "architectures", names);
    }
    f->write(&k, &full);
    if (k.status == DRA_OK) k.status = dra_json_check(&k.json, place, err);
    if (k.status == DRA_OK && k.json.not_finite)
        k.status = dra_fail_at(err, DRA_ERR_VALUE, place, "a number is not finite");
    return k.status == DRA_OK ? check_words(place, &full, object, err) : k.status;
}

/* A copy without what writing the same config gives again, of which dra's own names know no xt.
 * torch_dtype follows the weights. */
static json_t *without_config(dra_json *j, const dra_format *f, const char *place, json_t *object)
{
    dra_model_config c;
    json_t          *rest = dra_json_share(j, object), *written = dra_json_object(j), *v;
    const char      *key;
    dra_status       st = dra_format_read(f, place, object, &c, NULL);
    c.xt = (dra_xt_config){0};
    if (st == DRA_OK) st = dra_format_write(place, &c, written, NULL);
    if (st == DRA_ERR_MEMORY) j->failed = true;
    if (st == DRA_OK) {
        dra_json_delete(written, "model_type");
        json_object_foreach(written, key, v) if (json_equal(v, json_object_get(rest, key)))
            dra_json_delete(rest, key);
    }
    dra_json_delete(rest, "torch_dtype");
    json_decref(written);
    if (json_object_size(rest) > 1) return rest;
    json_decref(rest); /* nothing but model_type */
    return NULL;
}

json_t *dra_format_others(dra_json *j, const char *place, json_t *object)
{
    const dra_format *f = dra_format_named(object);
    if (f && f->read) return without_config(j, f, place, object);
    return json_incref(json_object_get(object, DRA_KEPT_KEYS));
}

/* ---- what the file knows --------------------------------------------------------------------- */

/* A head that should be tied but is stored and differs from the embedding: it is not tied. No head
 * at all: a bare model, whose head is then its embedding. */
static void settle_head(const dra_format *f, const dra_tensor_source *s, dra_model_config *c)
{
    const dra_name_rule           *rule;
    const dra_spec                 embedding = {.name = "embedding"};
    const dra_name_rules           rules = {.format = f, .row = f->rules};
    const dra_tensor_source_entry *e = dra_format_find(&rules, s, &embedding, &rule);
    const dra_tensor_source_entry *head = dra_tensor_source_find(s, f->head);
    if (!head) c->tied = DRA_ON;
    if (!head || !e || c->tied == DRA_OFF) return;
    if (head->info->bytes != e->info->bytes ||
        memcmp(head->info->data, e->info->data, e->info->bytes) != 0)
        c->tied = DRA_OFF;
}

static int64_t rows_of(const dra_tensor_source *s, const char *name)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, name);
    return e && e->info->shape.rank == 2 ? e->info->shape.dim[0] : 0;
}

static int64_t columns_of(const dra_tensor_source *s, const char *name)
{
    const dra_tensor_source_entry *e = dra_tensor_source_find(s, name);
    return e && e->info->shape.rank == 2 ? e->info->shape.dim[1] : 0;
}

/* One more than the last that any tensor names: others may be missing, and are to be named then. */
static int64_t count_layers(const dra_format *f, const dra_tensor_source *s)
{
    int64_t n = 0;
    for (const dra_name_rule *r = f->rules; r->ours; r++)
        for (size_t i = 0; i < s->count; i++) {
            const char *pattern = r->instead ? r->instead : r->theirs;
            int64_t     l = 0;
            if (!dra_pattern_fits(pattern, s->entry[i].info->name, &l)) continue;
            if (l >= n && l < (int64_t)s->count) n = l + 1; /* every layer has tensors */
        }
    return n;
}

/* The architecture is in no header; names tell. */
dra_status dra_format_infer(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    if (s->gguf.pairs) return dra_gguf_config(s, c, err);
    if (!dra_tensor_source_find(s, "emb.weight") && !s->dim)
        return dra_fail_at(
            err, DRA_ERR_FORMAT, s->path,
            "expected a model's folder, GGUF, a file of rwkv.cpp or a checkpoint with the "
            "names of RWKV-4");
    if (dra_tensor_source_find(s, "blocks.0.att.ln_x.weight") ||
        dra_tensor_source_find(s, "blocks.0.att.r_k"))
        return dra_fail_at(err, DRA_ERR_VALUE, s->path, "RWKV of a later version, expected 4");
    dra_json   j = {0};
    json_t    *nothing = dra_json_object(&j);
    dra_status st = dra_json_check(&j, s->path, err);
    if (st == DRA_OK) st = dra_format_read(&dra_format_rwkv, s->path, nothing, c, err);
    json_decref(nothing);
    c->vocab = s->dim ? s->vocab : rows_of(s, "emb.weight");
    c->dim = s->dim ? s->dim : columns_of(s, "emb.weight");
    c->depth = s->dim ? s->depth : count_layers(&dra_format_rwkv, s);
    c->key_dim = rows_of(s, "blocks.0.att.key.weight");
    c->ff.dim = rows_of(s, "blocks.0.ffn.key.weight");
    c->rescale_every = 0;
    if (st == DRA_OK && (c->vocab < 1 || c->dim < 1 || c->depth < 1))
        st = dra_fail_at(err, DRA_ERR_SHAPE, s->path,
                         "%lld tokens, width %lld, %lld layers, expected 1 or more of each",
                         (long long)c->vocab, (long long)c->dim, (long long)c->depth);
    return st == DRA_OK ? dra_format_settle(s, c, err) : st;
}

dra_status dra_format_settle(const dra_tensor_source *s, dra_model_config *c, dra_error *err)
{
    dra_status        st = DRA_OK;
    const dra_format *f = dra_format_of(c);
    /* Every layer has tensors: a false number must not make a model of a million layers. */
    for (const dra_model_config *i = c; i && st == DRA_OK; i = i->context_stack)
        if (!i->tied_layers && i->depth > (int64_t)s->count)
            st = dra_fail_at(err, DRA_ERR_VALUE, s->path,
                             "%zu tensors, expected those of %lld layers", s->count,
                             (long long)i->depth);
    if (st == DRA_OK && f->class_name) settle_head(f, s, c);
    return st;
}
