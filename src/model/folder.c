/* Model folders: config.json and the weights next to it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "dra/file.h"
#include "file/parent.h"
#include "formats/adapter.h"
#include "model/model.h"
#include "model/owned.h"
#include "file/system.h"

enum { PATH_TEXT = 4096, CONFIG_MOST = 1 << 20 };

static dra_status path_of(const char *folder, const char *name, char *path, dra_error *err)
{
    const int n = snprintf(path, PATH_TEXT, "%s/%s", folder, name);
    if (n > 0 && n < PATH_TEXT) return DRA_OK;
    return dra_fail(err, DRA_ERR_FILE, "%.80s...: the path is too long", folder);
}

static bool is_file(const char *path)
{
    struct stat s;
    return dra_sys_stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

static dra_status read_config(const char *path, const dra_memory *const *own,
                              dra_model_config **out, dra_error *err)
{
    char      *text = NULL;
    size_t     bytes = 0;
    dra_status st = dra_file_read(path, CONFIG_MOST, &text, &bytes, err);
    if (st == DRA_OK) st = dra_model_config_parse_own(path, text, bytes, own, out, err);
    free(text);
    return st;
}

/* A file of RWKV needs no config next to it. */
static dra_status config_of_file(const char *path, dra_model_config **out, dra_error *err)
{
    dra_tensor_source *s;
    dra_status         st = dra_tensor_source_open(path, &s, err);
    if (st != DRA_OK) return st;
    st = dra_config_new(out, err);
    if (st == DRA_OK) st = dra_format_infer(s, *out, err);
    dra_tensor_source_close(s);
    return dra_config_end(st, out);
}

bool dra_folder_adapts(const char *folder, char *base, size_t size)
{
    return dra_adapter_is(folder) && dra_adapter_base(folder, base, size, NULL) == DRA_OK;
}

dra_status dra_folder_config(const char *folder, dra_model_config **out, dra_error *err)
{
    return dra_folder_config_own(folder, NULL, out, err);
}

dra_status dra_folder_config_own(const char *folder, const dra_memory *const *own,
                                 dra_model_config **out, dra_error *err)
{
    char               path[PATH_TEXT];
    dra_tensor_source *s;
    char               base[PATH_TEXT];
    *out = NULL;
    if (is_file(folder)) return config_of_file(folder, out, err);
    if (dra_adapter_is(folder)) { /* its model's; the weights are that model's with its factors */
        const dra_status found = dra_adapter_base(folder, base, sizeof base, err);
        if (found != DRA_OK) return found;
        folder = base;
        if (is_file(folder)) return config_of_file(folder, out, err);
    }
    dra_status st = path_of(folder, "config.json", path, err);
    if (st == DRA_OK) st = read_config(path, own, out, err);
    /* Weights that are not there, or damaged, are named by who loads them. */
    if (st != DRA_OK || !dra_format_of(*out)->read ||
        dra_tensor_source_open(folder, &s, NULL) != DRA_OK)
        return st;
    st = dra_format_settle(s, *out, err);
    dra_tensor_source_close(s);
    return dra_config_end(st, out);
}

/* What is not there, or no JSON, is nothing; want of memory is an error. */
static json_t *read_object(dra_json *j, const char *path)
{
    char      *text = NULL;
    size_t     bytes = 0;
    json_t    *object = NULL;
    dra_status st = dra_file_read(path, CONFIG_MOST, &text, &bytes, NULL);
    if (st == DRA_OK)
        st = dra_json_parse(path, text, bytes, (dra_json_rules){.depth = 16, .infinity = true},
                            &object, NULL);
    if (st == DRA_ERR_MEMORY) j->failed = true;
    free(text);
    return object;
}

/* What a new config.json starts from: the other keys of that in `path`. Keys of the same format
 * stay; in dra's own they are under one key, and come back from there. */
static json_t *other_keys(dra_json *j, const char *path, const dra_model_config *config)
{
    const dra_format *f = dra_format_of(config);
    json_t           *object = read_object(j, path), *kept = NULL;
    if (dra_format_named(object) == f && f->read) return object;
    kept = f->read ? json_incref(json_object_get(object, DRA_KEPT_KEYS))
                   : dra_format_others(j, path, object);
    json_decref(object);
    if (kept && f->read && dra_format_named(kept) == f) return kept;
    object = dra_json_object(j);
    if (kept && !f->read)
        dra_json_set(j, object, DRA_KEPT_KEYS, kept);
    else
        json_decref(kept);
    return object;
}

/* Hugging Face loads in the dtype a config names and rounds to it: it must be that of the file. Its
 * key has two names; all versions know the older one. Other formats have no such key. */
static void put_dtype(dra_json *j, const dra_model_config *config, dra_dtype dtype, json_t *object)
{
    static const char *const names[] = {[DRA_F32] = "float32",
                                        [DRA_F64] = "float64",
                                        [DRA_BF16] = "bfloat16",
                                        [DRA_F16] = "float16"};
    const bool               now = json_object_get(object, "dtype");
    const bool               old = json_object_get(object, "torch_dtype") || !now;
    if (!dra_format_of(config)->class_name) return;
    const char *name = names[dtype]; /* never quantised: such a folder is dra's own */
    if (now) dra_json_set(j, object, "dtype", dra_json_text(j, name));
    if (old) dra_json_set(j, object, "torch_dtype", dra_json_text(j, name));
}

static dra_status write_config(const char *folder, const dra_model_config *config, json_t *object,
                               dra_error *err)
{
    char       path[PATH_TEXT], *text = NULL;
    dra_error  why = {0};
    dra_status st = path_of(folder, "config.json", path, err);
    if (st == DRA_OK && !(text = dra_model_config_dump(path, config, object, &why)))
        st = dra_fail(err, why.code, "%s", why.text);
    if (st == DRA_OK && dra_sys_mkdir(folder) != 0 && errno != EEXIST)
        st = dra_fail(err, DRA_ERR_FILE, "%.200s: cannot make the folder: %s", folder,
                      strerror(errno));
    if (st == DRA_OK) st = dra_parent_sync(folder, err); /* it may be new */
    if (st == DRA_OK) {
        const size_t n = strlen(text);
        text[n] = '\n'; /* in place of the 0 at its end */
        st = dra_file_write(path, text, n + 1, err);
    }
    free(text);
    return st;
}

dra_status dra_folder_write_config(const char *folder, const dra_model_config *config,
                                   const char *like, dra_dtype dtype, dra_error *err)
{
    char       path[PATH_TEXT] = "";
    dra_status st = like ? path_of(like, "config.json", path, err) : DRA_OK;
    if (st != DRA_OK) return st;
    dra_json j = {0};
    json_t  *object = other_keys(&j, path, config);
    put_dtype(&j, config, dtype, object);
    st = dra_json_check(&j, path, err);
    if (st == DRA_OK) st = write_config(folder, config, object, err);
    json_decref(object);
    return st;
}

dra_status dra_folder_save_config(const char *folder, const dra_model_config *config,
                                  dra_error *err)
{
    return dra_folder_write_config(folder, config, folder, DRA_REAL, err);
}

dra_status dra_folder_save_config_like(const char *folder, const dra_model_config *config,
                                       const char *like, dra_error *err)
{
    return dra_folder_write_config(folder, config, like, DRA_REAL, err);
}

dra_status dra_folder_load(const char *folder, dra_model **model, dra_weights **weights,
                           dra_error *err)
{
    dra_model_config *config;
    if (weights) *weights = NULL;
    if (!folder || !model)
        return dra_fail(err, DRA_ERR_VALUE, "folder: expected a folder and a place for its model");
    *model = NULL;
    dra_status st = dra_folder_config(folder, &config, err);
    if (st == DRA_OK) st = dra_model_create(config, model, err);
    dra_model_config_destroy(config);
    if (st == DRA_OK && weights) st = dra_weights_load(*model, folder, weights, err);
    if (st != DRA_OK) {
        dra_model_destroy(*model);
        *model = NULL;
    }
    return st;
}
