/* Opening what holds the tensors of a model, and finding them by name. */
#include "formats/tensor_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "file/fail.h"
#include "file/system.h"
#include "file/json.h"
#include "file/pth.h"
#include "file/seal.h"
#include "formats/adapter.h"
#include "formats/expert_tensors.h"

enum { PATH_TEXT = 4096, INDEX_MOST = 1 << 28 };

static dra_status no_memory(const dra_tensor_source *s, dra_error *err)
{
    return dra_fail_at(err, DRA_ERR_MEMORY, s->path, "out of memory");
}

/* ---- by name --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const dra_tensor_source_entry *x = a, *y = b;
    return strcmp(x->info->name, y->info->name);
}

static dra_status sort_entries(dra_tensor_source *s, dra_error *err)
{
    char room[DRA_BRIEF];
    if (s->count) qsort(s->entry, s->count, sizeof *s->entry, by_name);
    for (size_t i = 1; i < s->count; i++)
        if (strcmp(s->entry[i - 1].info->name, s->entry[i].info->name) == 0)
            return dra_fail_at(err, DRA_ERR_FORMAT, s->path, "tensor '%s' is there twice",
                               dra_brief(s->entry[i].info->name, room));
    return DRA_OK;
}

static int compare_name(const void *name, const void *entry)
{
    const dra_tensor_source_entry *e = entry;
    return strcmp(name, e->info->name);
}

const dra_tensor_source_entry *dra_tensor_source_find(const dra_tensor_source *s, const char *name)
{
    return s->count ? bsearch(name, s->entry, s->count, sizeof *s->entry, compare_name) : NULL;
}

static dra_status make_room(dra_tensor_source *s, size_t n, dra_error *err)
{
    s->entry = calloc(n + 1, sizeof *s->entry);
    return s->entry ? DRA_OK : no_memory(s, err);
}

/* ---- one file -------------------------------------------------------------------------------- */

/* Opens one more file; its number, or -1. */
static int add_file(dra_tensor_source *s, const char *path, dra_error *err)
{
    dra_tensors **file = realloc(s->file, (s->n_files + 1) * sizeof *file);
    if (file) s->file = file;
    char **name = file ? realloc(s->file_name, (s->n_files + 1) * sizeof *name) : NULL;
    if (name) s->file_name = name;
    if (!name || !(name[s->n_files] = strdup(path))) {
        no_memory(s, err);
        return -1;
    }
    s->file[s->n_files] = NULL;
    const int i = (int)s->n_files++;
    return dra_tensors_open_any(path, &s->file[i], err) == DRA_OK ? i : -1;
}

static dra_status open_one(dra_tensor_source *s, const char *path, dra_error *err)
{
    dra_error        why = {0};
    const int        i = add_file(s, path, &why);
    const size_t     n = i < 0 ? 0 : dra_tensors_count(s->file[i]);
    const dra_status st = i < 0 ? dra_fail(err, why.code, "%s", why.text) : make_room(s, n, err);
    for (; st == DRA_OK && s->count < n; s->count++)
        s->entry[s->count] = (dra_tensor_source_entry){dra_tensors_at(s->file[i], s->count),
                                                       s->file_name[i]};
    return st;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* Names of shards come from a file: they must stay in its folder. */
static bool plain_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strpbrk(name, "/\\:");
}

/* The shard with this name next to the index, opened once; -1 on failure. */
static int open_shard(dra_tensor_source *s, const char *name, dra_error *err)
{
    char        path[PATH_TEXT];
    const char *slash = strrchr(s->path, '/');
    const int   folder = slash ? (int)(slash - s->path + 1) : 0;
    const int   n = snprintf(path, sizeof path, "%.*s%s", folder, s->path, name);
    if (n < 0 || n >= PATH_TEXT) {
        dra_fail_at(err, DRA_ERR_FILE, s->path, "the path of shard %.40s is too long", name);
        return -1;
    }
    for (size_t i = 0; i < s->n_files; i++)
        if (strcmp(s->file_name[i], path) == 0) return (int)i;
    return add_file(s, path, err);
}

static dra_status add_mapped(dra_tensor_source *s, const char *tensor, const json_t *where,
                             dra_error *err)
{
    char        room[DRA_BRIEF], other[DRA_BRIEF];
    const char *name = json_string_value(where);
    dra_brief(tensor, room);
    if (!plain_name(name))
        return dra_fail_at(err, DRA_ERR_FORMAT, s->path,
                           "tensor '%s': its shard is '%s', expected the name of a file next to "
                           "the index",
                           room, name ? dra_brief(name, other) : "no text");
    dra_error why = {0};
    const int i = open_shard(s, name, &why);
    if (i < 0) return dra_fail(err, why.code, "%s", why.text);
    const dra_tensor_info *info = dra_tensors_find(s->file[i], tensor);
    if (!info)
        return dra_fail_at(err, DRA_ERR_NAME, s->path, "tensor '%s' is not in shard %s", room,
                           dra_brief(name, other));
    s->entry[s->count++] = (dra_tensor_source_entry){info, s->file_name[i]};
    return DRA_OK;
}

static dra_status open_index(dra_tensor_source *s, dra_error *err)
{
    char       *text = NULL;
    size_t      bytes = 0;
    json_t     *root = NULL, *where;
    const char *tensor;
    dra_status  st = dra_file_read(s->path, INDEX_MOST, &text, &bytes, err);
    if (st == DRA_OK)
        st = dra_json_parse(s->path, text, bytes, (dra_json_rules){.depth = 8}, &root, err);
    json_t *map = json_object_get(root, "weight_map");
    if (st == DRA_OK && !json_is_object(map))
        st = dra_fail_at(err, DRA_ERR_FORMAT, s->path, "weight_map is no object");
    if (st == DRA_OK) st = make_room(s, json_object_size(map), err);
    if (st == DRA_OK) json_object_foreach(map, tensor, where)
        {
            st = add_mapped(s, tensor, where, err);
            if (st != DRA_OK) break;
        }
    json_decref(root);
    free(text);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_there(const char *path) { return dra_sys_exists(path); }

static bool is_folder(const char *path)
{
    struct stat s;
    return dra_sys_stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The file meant by `path`: of a folder its weights, of weights that are not there their index. The
 * first that is there; where there is none, the first. */
static dra_status resolve_path(dra_tensor_source *s, const char *path, dra_error *err)
{
    enum { OF_FOLDER = 0, OF_FILE = 6, ALL = 8 };
    static const char *const endings[ALL] = {"/model.safetensors",
                                             "/model.safetensors.index.json",
                                             "/pytorch_model.bin",
                                             "/pytorch_model.bin.index.json",
                                             "/model.pt",
                                             "/model.pth",
                                             "",
                                             ".index.json"};
    const bool               folder = is_folder(path);
    const int                first = folder ? OF_FOLDER : OF_FILE, end = folder ? OF_FILE : ALL;
    char                     file[PATH_TEXT];
    if (strlen(path) + strlen("/pytorch_model.bin.index.json") >= PATH_TEXT)
        return dra_fail(err, DRA_ERR_FILE, "%.80s...: the path is too long", path);
    for (int i = first; i < end; i++) {
        snprintf(file, sizeof file, "%s%s", path, endings[i]);
        if (is_there(file)) break;
        if (i == end - 1) snprintf(file, sizeof file, "%s%s", path, endings[first]);
    }
    s->path = strdup(file);
    return s->path ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "%.80s: out of memory", path);
}

/* All tensors of the file that is mapped. */
static dra_status add_tensors(dra_tensor_source *s, const dra_header *h, dra_error *err)
{
    const dra_status st = make_room(s, h->count, err);
    for (; st == DRA_OK && s->count < h->count; s->count++)
        s->entry[s->count] = (dra_tensor_source_entry){&h->tensor[s->count], s->path};
    return st;
}

/* A file without an index tells by its first bytes what it is. */
static dra_status open_file(dra_tensor_source *s, dra_error *err)
{
    dra_status st = dra_file_map_open(s->path, &s->map, err);
    if (st != DRA_OK) return st;
    const dra_file_map *m = &s->map;
    if (dra_gguf_is(m->data, m->bytes)) {
        st = dra_gguf_read(s->path, m->data, m->bytes, &s->gguf, err);
        return st == DRA_OK ? add_tensors(s, &s->gguf.header, err) : st;
    }
    if (!dra_rwkv_cpp_is(m->data, m->bytes)) {
        const bool known = dra_pth_is(m->data, m->bytes) || dra_header_is(m->data, m->bytes);
        dra_file_map_close(&s->map);
        if (known) return open_one(s, s->path, err);
        return dra_fail_at(err, DRA_ERR_FORMAT, s->path,
                           "is none of these: safetensors, a checkpoint of PyTorch, GGUF, a file "
                           "of rwkv.cpp");
    }
    st = dra_rwkv_cpp_read(s, err);
    return st == DRA_OK ? add_tensors(s, &s->header, err) : st;
}

/* The adapter of a folder, and the path of its model. */
static dra_status open_adapted(dra_tensor_source *s, const char *folder, char *base, size_t size,
                               dra_error *err)
{
    dra_status st = dra_adapter_base(folder, base, size, err);
    if (st == DRA_OK && dra_adapter_is(base))
        st = dra_fail_at(err, DRA_ERR_VALUE, folder,
                         "is an adapter of an adapter; merge that first (dra convert)");
    return st == DRA_OK ? dra_adapter_open(folder, &s->adapter, err) : st;
}

dra_status dra_tensor_source_open(const char *path, dra_tensor_source **out, dra_error *err)
{
    char               base[PATH_TEXT];
    dra_tensor_source *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return dra_fail(err, DRA_ERR_MEMORY, "%.80s: out of memory", path);
    dra_status st = DRA_OK;
    if (dra_adapter_is(path)) {
        st = open_adapted(s, path, base, sizeof base, err);
        path = base;
    }
    if (st == DRA_OK) st = resolve_path(s, path, err);
    if (st == DRA_OK)
        st = ends_with(s->path, ".index.json") ? open_index(s, err) : open_file(s, err);
    if (st == DRA_OK) st = dra_expert_tensors_join(s, err);
    if (st == DRA_OK) st = sort_entries(s, err);
    for (size_t i = 0; i < s->count && s->adapter; i++) s->entry[i].adapter = s->adapter;
    if (st == DRA_OK)
        *out = s;
    else
        dra_tensor_source_close(s);
    return st;
}

dra_status dra_tensor_source_check(const dra_tensor_source *s, dra_error *err)
{
    dra_status st = DRA_OK;
    for (size_t i = 0; i < s->n_files && st == DRA_OK; i++) {
        st = dra_tensors_check(s->file[i], err);
        dra_tensors_rest(s->file[i]);
    }
    return st == DRA_OK && s->adapter ? dra_adapter_check(s->adapter, err) : st;
}

/* Clocks of file systems may be coarse. */
static bool is_settled(const dra_file_map *m) { return m->is[2] + 2 < (int64_t)time(NULL); }

static void add_map(dra_hash *h, const dra_file_map *m)
{
    const uint64_t bytes = m->bytes;
    dra_hash_add(h, m->is, sizeof m->is);
    dra_hash_add(h, &bytes, sizeof bytes);
}

uint64_t dra_tensor_source_key(const dra_tensor_source *s)
{
    bool     settled = !s->map.data || is_settled(&s->map);
    dra_hash h;
    dra_hash_begin(&h, 0);
    add_map(&h, &s->map);
    for (size_t i = 0; i < s->n_files; i++) {
        add_map(&h, dra_tensors_map(s->file[i]));
        settled = settled && is_settled(dra_tensors_map(s->file[i]));
    }
    const uint64_t added = s->adapter ? dra_adapter_key(s->adapter) : 1;
    dra_hash_add(&h, &added, sizeof added);
    return settled && added ? dra_hash_end(&h) : 0;
}

void dra_tensor_source_rest(const dra_tensor_source *s)
{
    for (size_t i = 0; i < s->n_files; i++) dra_tensors_rest(s->file[i]);
    dra_file_map_rest(&s->map);
}

void dra_tensor_source_close(dra_tensor_source *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_files; i++) {
        dra_tensors_close(s->file[i]);
        free(s->file_name[i]);
    }
    free(s->file);
    free(s->file_name);
    free(s->entry);
    dra_header_free(&s->header);
    dra_gguf_free(&s->gguf);
    dra_file_map_close(&s->map);
    dra_adapter_close(s->adapter);
    dra_expert_tensors_free(s);
    free(s->path);
    free(s);
}
