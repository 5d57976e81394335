/* The weights of a new folder: one file, or shards of a largest size with an index, by the names
 * that Hugging Face gives them. A shard is full when the next tensor would make it too large; a
 * tensor that is too large by itself has one of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "formats/convert.h"

enum { PATH_TEXT = 4096, SHARD_NAME = 48 };

typedef struct making {
    dra_conversion        *c;
    const dra_file_tensor *t;
} making;

typedef struct shards { /* all tensors, shard by shard */
    dra_conversion  *c;
    const char      *folder;
    size_t           n, count; /* tensors, shards */
    size_t          *first;    /* of each shard; at `count`: n */
    dra_tensor_item *items;
    making          *make;
} shards;

static const void *make_tensor(void *user, dra_error *err)
{
    const making *m = user;
    return dra_conversion_make(m->c, m->t, err);
}

static size_t bytes_of(const dra_tensor_item *item)
{
    return (size_t)dra_elements_bytes(item->dtype, dra_shape_count(&item->shape));
}

static void cut_shards(shards *s)
{
    const size_t most = s->c->how->shard_bytes;
    size_t       bytes = 0;
    s->count = 1;
    for (size_t i = 0; i < s->n; i++) {
        const size_t more = bytes_of(&s->items[i]);
        if (most && bytes && more > most - (bytes < most ? bytes : most)) {
            s->first[s->count++] = i;
            bytes = 0;
        }
        bytes += more;
    }
    s->first[s->count] = s->n;
}

static dra_status open_shards(shards *s, dra_error *err)
{
    const size_t          n = (size_t)s->c->n;
    const dra_name_rules *rules = &s->c->rules;
    s->n = n + (size_t)rules->constants;
    s->first = calloc(s->n + 2, sizeof *s->first);
    s->items = calloc(s->n + 1, sizeof *s->items);
    s->make = calloc(s->n + 1, sizeof *s->make);
    if (!s->first || !s->items || !s->make)
        return dra_fail(err, DRA_ERR_MEMORY, "convert: out of memory");
    for (size_t i = n; i < s->n; i++) s->items[i] = dra_constant_item(&rules->constant[i - n]);
    for (size_t i = 0; i < n; i++) {
        const dra_file_tensor *t = &s->c->list[i];
        s->make[i] = (making){s->c, t};
        s->items[i] = (dra_tensor_item){t->name, dra_conversion_dtype(s->c, t), t->shape,
                                        .make = make_tensor, .user = &s->make[i]};
    }
    cut_shards(s);
    return DRA_OK;
}

static const char *name_of(const shards *s, size_t k, char name[SHARD_NAME])
{
    if (s->count == 1)
        snprintf(name, SHARD_NAME, "model.safetensors");
    else
        snprintf(name, SHARD_NAME, "model-%05zu-of-%05zu.safetensors", k + 1, s->count);
    return name;
}

static dra_status path_of(const shards *s, const char *name, char path[PATH_TEXT], dra_error *err)
{
    const int n = snprintf(path, PATH_TEXT, "%s/%s", s->folder, name);
    if (n > 0 && n < PATH_TEXT) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, s->folder, "the path is too long");
}

static dra_status write_shard(const shards *s, size_t k, dra_error *err)
{
    const size_t     first = s->first[k], n = s->first[k + 1] - first;
    char             name[SHARD_NAME], path[PATH_TEXT];
    const dra_status st = path_of(s, name_of(s, k, name), path, err);
    return st == DRA_OK
               ? dra_weights_write_items(s->c->rules.format, path, s->items + first, n, err)
               : st;
}

/* {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}} */
static dra_status index_text(const shards *s, const char *path, char **text, dra_error *err)
{
    dra_json j = {0};
    json_t  *map = dra_json_object(&j), *sizes = dra_json_object(&j), *root = dra_json_object(&j);
    size_t   total = 0;
    char     name[SHARD_NAME];
    for (size_t k = 0; k < s->count; k++)
        for (size_t i = s->first[k]; i < s->first[k + 1]; i++) {
            total += bytes_of(&s->items[i]);
            dra_json_set(&j, map, s->items[i].name, dra_json_text(&j, name_of(s, k, name)));
        }
    dra_json_set(&j, sizes, "total_size", dra_json_int(&j, (int64_t)total));
    dra_json_set(&j, root, "metadata", sizes);
    dra_json_set(&j, root, "weight_map", map);
    const dra_status st = dra_json_dump(&j, root, JSON_INDENT(2) | JSON_SORT_KEYS, path, text, NULL,
                                        err);
    json_decref(root);
    return st;
}

static dra_status write_index(const shards *s, dra_error *err)
{
    char       path[PATH_TEXT], *text = NULL;
    dra_status st = path_of(s, "model.safetensors.index.json", path, err);
    if (st == DRA_OK) st = index_text(s, path, &text, err);
    if (st == DRA_OK) st = dra_file_write(path, text, strlen(text), err);
    free(text);
    return st;
}

dra_status dra_conversion_write(dra_conversion *c, const char *folder, dra_error *err)
{
    shards     s = {.c = c, .folder = folder};
    dra_status st = open_shards(&s, err);
    for (size_t k = 0; k < s.count && st == DRA_OK; k++) st = write_shard(&s, k, err);
    if (st == DRA_OK && s.count > 1) st = write_index(&s, err);
    free(s.first);
    free(s.items);
    free(s.make);
    return st;
}
