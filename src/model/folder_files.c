/* Files of a model's folder: one list, by which a folder is cleared and files come along. */
#include "model/folder_files.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/parent.h"
#include "file/sweep.h"
#include "file/system.h"

enum { PATH_TEXT = 4096, FILE_MOST = 1 << 28 };

#define FIVE "[0-9][0-9][0-9][0-9][0-9]"

/* Patterns of fnmatch(). A model is looked for in this order. */
static const struct {
    const char     *name;
    dra_folder_kind kind;
} files[] = {
    {"config.json", DRA_FOLDER_CONFIG},
    {"adapter_config.json", DRA_FOLDER_CONFIG},
    {"model.safetensors", DRA_FOLDER_WEIGHTS},
    {"adapter_model.safetensors", DRA_FOLDER_WEIGHTS},
    {"model.safetensors.index.json", DRA_FOLDER_WEIGHTS},
    {"model-" FIVE "-of-" FIVE ".safetensors", DRA_FOLDER_WEIGHTS},
    {"pytorch_model.bin", DRA_FOLDER_WEIGHTS},
    {"pytorch_model.bin.index.json", DRA_FOLDER_WEIGHTS},
    {"pytorch_model-" FIVE "-of-" FIVE ".bin", DRA_FOLDER_WEIGHTS},
    {"model.pt", DRA_FOLDER_WEIGHTS},
    {"model.pth", DRA_FOLDER_WEIGHTS},
    {"tokenizer.json", DRA_FOLDER_TOKENIZER},
    {"vocab.json", DRA_FOLDER_TOKENIZER},
    {"merges.txt", DRA_FOLDER_TOKENIZER},
    {"encoder.json", DRA_FOLDER_TOKENIZER},
    {"vocab.bpe", DRA_FOLDER_TOKENIZER},
    {"rwkv_vocab_v20230424.txt", DRA_FOLDER_TOKENIZER},
    {"tokenizer_config.json", DRA_FOLDER_NOTES},
    {"chat_template.jinja", DRA_FOLDER_NOTES},
    {"chat_template.json", DRA_FOLDER_NOTES},
    {"special_tokens_map.json", DRA_FOLDER_NOTES},
    {"generation_config.json", DRA_FOLDER_HABITS},
};
enum { FILES = sizeof files / sizeof *files };

static unsigned kind_of(const char *name)
{
    for (size_t i = 0; i < FILES; i++)
        if (fnmatch(files[i].name, name, 0) == 0) return files[i].kind;
    return 0;
}

static bool path_of(const char *folder, const char *name, char path[PATH_TEXT])
{
    const int n = snprintf(path, PATH_TEXT, "%s/%s", folder, name);
    return n > 0 && n < PATH_TEXT;
}

const char *dra_folder_model(const char *folder)
{
    char path[PATH_TEXT];
    for (size_t i = 0; i < FILES; i++)
        if ((files[i].kind & (DRA_FOLDER_CONFIG | DRA_FOLDER_WEIGHTS)) &&
            path_of(folder, files[i].name, path) && dra_sys_exists(path))
            return files[i].name;
    return NULL;
}

/* Files of some kinds, but those called `stay`, which ends in NULL. */
static dra_status remove_but(const char *folder, unsigned kinds, const char *const *stay,
                             dra_error *err)
{
    char           path[PATH_TEXT];
    struct dirent *e;
    dra_status     st = DRA_OK;
    DIR           *d = dra_sys_opendir(folder);
    if (!d && errno == ENOENT) return DRA_OK;
    if (!d) return dra_fail_system(err, folder, "open it", errno);
    errno = 0;
    while (st == DRA_OK && (e = dra_sys_readdir(d))) {
        const char *const *same = stay;
        while (*same && strcmp(*same, e->d_name) != 0) same++;
        if (*same || !(kind_of(e->d_name) & kinds)) continue;
        if (!path_of(folder, e->d_name, path))
            st = dra_fail_at(err, DRA_ERR_FILE, folder, "the path is too long");
        else if (dra_sys_unlink(path) != 0)
            st = dra_fail_system(err, path, "remove it", errno);
    }
    if (st == DRA_OK && errno) st = dra_fail_system(err, folder, "read it", errno);
    closedir(d);
    return st;
}

dra_status dra_folder_remove(const char *folder, unsigned kinds, dra_error *err)
{
    return remove_but(folder, kinds, (const char *[]){NULL}, err);
}

/* What is gone is gone for good before anything new is written: after a power loss nobody finds old
 * weights under a new config. */
dra_status dra_folder_clear(const char *folder, dra_error *err)
{
    char             path[PATH_TEXT];
    const dra_status st = dra_folder_remove(folder, ~0u, err);
    return st == DRA_OK && path_of(folder, "config.json", path) ? dra_parent_sync(path, err) : st;
}

/* ---- replacing ------------------------------------------------------------------------------- */

static dra_status too_long(const char *folder, dra_error *err)
{
    return dra_fail_at(err, DRA_ERR_FILE, folder, "the path is too long");
}

dra_status dra_folder_stage(const char *folder, char *stage, size_t size, dra_error *err)
{
    char path[PATH_TEXT];
    if (!path_of(folder, "model", path) || !dra_path_temporary(path, stage, size))
        return too_long(folder, err);
    if (dra_sys_mkdir(stage) == 0 || errno == EEXIST) return DRA_OK;
    return dra_fail_system(err, stage, "make it", errno);
}

static dra_status move_file(const char *folder, const char *stage, const char *name, dra_error *err)
{
    char from[PATH_TEXT], to[PATH_TEXT];
    if (!path_of(stage, name, from) || !path_of(folder, name, to)) return too_long(folder, err);
    return dra_sys_rename(from, to) == 0 ? DRA_OK
                                         : dra_fail_system(err, to, "put it in its place", errno);
}

/* All but the config. */
static dra_status move_others(const char *folder, const char *stage, dra_error *err)
{
    struct dirent *e;
    dra_status     st = DRA_OK;
    DIR           *d = dra_sys_opendir(stage);
    if (!d) return dra_fail_system(err, stage, "open it", errno);
    errno = 0;
    while (st == DRA_OK && (e = dra_sys_readdir(d)))
        if (strcmp(e->d_name, "config.json") != 0) st = move_file(folder, stage, e->d_name, err);
    if (st == DRA_OK && errno) st = dra_fail_system(err, stage, "read it", errno);
    closedir(d);
    return st;
}

dra_status dra_folder_replace(const char *folder, const char *stage, dra_error *err)
{
    char       path[PATH_TEXT];
    dra_status st = path_of(folder, "config.json", path) ? DRA_OK : too_long(folder, err);
    /* The config first: a folder without one is no model. */
    if (st == DRA_OK && dra_sys_unlink(path) != 0 && errno != ENOENT)
        st = dra_fail_system(err, path, "remove it", errno);
    if (st == DRA_OK) st = dra_folder_clear(folder, err);
    if (st == DRA_OK) st = move_others(folder, stage, err);
    if (st == DRA_OK) st = dra_parent_sync(path, err);
    if (st == DRA_OK) st = move_file(folder, stage, "config.json", err);
    if (st == DRA_OK) st = dra_parent_sync(path, err);
    dra_folder_drop(stage);
    return st;
}

void dra_folder_drop(const char *stage) { dra_remove(stage); }

/* ---- copying --------------------------------------------------------------------------------- */

static dra_status copy_file(const char *from, const char *to, dra_error *err)
{
    char      *data = NULL;
    size_t     bytes = 0;
    dra_status st = dra_file_read(from, FILE_MOST, &data, &bytes, err);
    if (st == DRA_OK) st = dra_file_write(to, data, bytes, err);
    free(data);
    return st;
}

dra_status dra_folder_copy(const char *from, const char *to, unsigned kinds, dra_error *err)
{
    char       a[PATH_TEXT], b[PATH_TEXT];
    dra_status st = DRA_OK;
    for (size_t i = 0; i < FILES && st == DRA_OK; i++) {
        if (!(files[i].kind & kinds)) continue;
        if (!path_of(from, files[i].name, a) || !path_of(to, files[i].name, b))
            return dra_fail_at(err, DRA_ERR_FILE, to, "the path is too long");
        if (dra_sys_exists(a)) st = copy_file(a, b, err);
    }
    return st;
}

static bool needs_file(const dra_tokenizer *t, int64_t vocab)
{
    return t && !(dra_tokenizer_is_bytes(t) && vocab == 256);
}

dra_status dra_folder_save_tokenizer(const char *folder, const dra_tokenizer *t, int64_t vocab,
                                     dra_error *err)
{
    char path[PATH_TEXT];
    if (!needs_file(t, vocab)) return DRA_OK;
    if (!path_of(folder, dra_tokenizer_file(t), path))
        return dra_fail_at(err, DRA_ERR_FILE, folder, "the path is too long");
    return dra_tokenizer_save(t, path, err);
}

bool dra_weights_folder(const char *path, char *folder, size_t size)
{
    struct stat s;
    const char *slash = strrchr(path, '/');
    int         n;
    if (dra_sys_stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        n = snprintf(folder, size, "%s", path);
    else if (kind_of(slash ? slash + 1 : path) != DRA_FOLDER_WEIGHTS)
        return false;
    else
        n = slash ? snprintf(folder, size, "%.*s", (int)(slash - path + 1), path)
                  : snprintf(folder, size, ".");
    return n > 0 && (size_t)n < size;
}
