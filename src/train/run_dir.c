/* The folder of a run: paths and links, whether a run may use it, what it says about its model, and
 * its files besides checkpoints. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/system.h"
#include "file/file_map.h"
#include "file/seal.h"
#include "model/compose.h"
#include "model/folder_files.h"
#include "formats/adapter.h"
#include "formats/tensor_source.h"
#include "train/train.h"

/* ---- paths ----------------------------------------------------------------------------------- */

dra_status dra_path(char path[DRA_PATH], dra_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(path, DRA_PATH, format, args);
    va_end(args);
    if (n > 0 && n < DRA_PATH) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, path, "the path is too long");
}

dra_status dra_folder_make(const char *path, dra_error *err)
{
    if (dra_sys_mkdir(path) == 0 || errno == EEXIST) return DRA_OK;
    return dra_fail_system(err, path, "make the folder", errno);
}

/* ---- safe and at once ------------------------------------------------------------------------ */

dra_status dra_folder_sync(const char *path, dra_error *err)
{
    const int fd = dra_sys_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return dra_fail_system(err, path, "open it", errno);
    /* Some file systems cannot sync folders and say EINVAL. */
    const int failed = dra_sys_fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return failed ? dra_fail_system(err, path, "sync it", failed) : DRA_OK;
}

static dra_status copy_file(const char *from, const char *to, dra_error *err)
{
    dra_file_map map;
    dra_status   st = dra_file_map_open(from, &map, err);
    if (st == DRA_OK) st = dra_file_write(to, map.data, map.bytes, err);
    dra_file_map_close(&map);
    return st;
}

dra_status dra_file_share(const char *from, const char *to, dra_error *err)
{
    char       temporary[DRA_PATH];
    dra_status st = dra_path(temporary, err, "%s.%ld-0.tmp", to, (long)getpid());
    if (st != DRA_OK) return st;
    dra_sys_unlink(temporary);
    if (dra_sys_link(from, temporary) != 0) return copy_file(from, to, err);
    if (dra_sys_rename(temporary, to) != 0) {
        st = dra_fail_system(err, to, "rename its temporary file", errno);
        dra_sys_unlink(temporary);
    }
    dra_sys_unlink(temporary); /* renaming one link of a file to another does nothing */
    return st;
}

/* ---- what is there --------------------------------------------------------------------------- */

enum { SETTINGS_MOST = 1 << 20 };

static bool has_file(const char *folder, const char *name)
{
    char path[DRA_PATH];
    return dra_path(path, NULL, "%s/%s", folder, name) == DRA_OK && dra_sys_exists(path);
}

int64_t dra_trainer_saved(const char *folder)
{
    int64_t   step = 0;
    const int n = dra_checkpoint_list(folder, 1, &step);
    return n == 0 ? -1 : n < 0 ? 0 : step;
}

/* ---- a run that is resumed ------------------------------------------------------------------- */

dra_status dra_run_resumable(const char *folder, dra_error *err)
{
    if (dra_trainer_saved(folder) >= 0) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, folder,
                       has_file(folder, "train")
                           ? "has no checkpoint yet; repeat the command that started it"
                           : "is not a run that can be resumed; a new one needs a model");
}

static bool is_resumed(const dra_run_model_config *c)
{
    return c->resume && has_file(c->folder, "train") &&
           (has_file(c->folder, "config.json") || dra_adapter_is(c->folder));
}

/* Reads the settings that the run saved. */
static dra_status read_settings(const char *folder, dra_train_config *out, dra_error *err)
{
    char       path[DRA_PATH], *text = NULL;
    size_t     bytes = 0;
    json_t    *object = NULL;
    dra_status st = dra_path(path, err, "%s/train/config.json", folder);
    if (st == DRA_OK) st = dra_file_read(path, SETTINGS_MOST, &text, &bytes, err);
    if (st == DRA_OK) st = dra_json_parse_sealed(path, text, bytes, 4, &object, err);
    if (st == DRA_OK) st = dra_train_config_read(path, object, out, err);
    json_decref(object);
    free(text);
    return st;
}

dra_status dra_run_objective(const char *folder, dra_objective_config *out, dra_error *err)
{
    dra_train_config c = {0};
    dra_status       st = DRA_OK;
    if (has_file(folder, "train/config.json")) st = read_settings(folder, &c, err);
    *out = c.objective;
    return st;
}

/* The first line in which two configs differ. */
static dra_status compare_configs(const char *folder, const dra_model *asked,
                                  const dra_model *found, dra_error *err)
{
    static const size_t room = 1 << 16;
    char               *x = malloc(2 * room), *y = x ? x + room : NULL;
    size_t              i = 0, line = 0;
    if (!x) return dra_fail_at(err, DRA_ERR_MEMORY, folder, "out of memory");
    if (!dra_model_config_text(dra_model_config_of(found), x, room) ||
        !dra_model_config_text(dra_model_config_of(asked), y, room)) {
        free(x);
        return dra_fail_at(err, DRA_ERR_MEMORY, folder, "out of memory");
    }
    for (; x[i] && x[i] == y[i]; i++)
        if (x[i] == '\n') line = i + 1;
    const char *p = x + line + strspn(x + line, " "), *q = y + line + strspn(y + line, " ");
    dra_status  st = DRA_OK;
    if (strcmp(x, y) != 0)
        st = dra_fail_at(err, DRA_ERR_VALUE, folder,
                         "is a run of another model: config.json says %.*s, expected %.*s; force "
                         "continues anyway",
                         (int)strcspn(p, ",\n"), p, (int)strcspn(q, ",\n"), q);
    free(x);
    return st;
}

static dra_status check_same(const char *folder, const dra_model *asked, dra_error *err)
{
    const dra_memory *own[DRA_OWN_MOST + 1];
    dra_model_config *c;
    dra_model        *found = NULL;
    dra_config_own(dra_model_config_of(asked), own);
    dra_status st = dra_folder_config_own(folder, own, &c, err);
    if (st == DRA_OK) st = dra_model_create(c, &found, err);
    dra_model_config_destroy(c);
    if (st == DRA_OK) st = compare_configs(folder, asked, found, err);
    dra_model_destroy(found);
    return st;
}

/* A path that means the same wherever it is read. */
static dra_status whole_path(const char *path, char out[DRA_PATH], dra_error *err)
{
    char      *whole = dra_sys_realpath(path);
    dra_status st = whole ? dra_path(out, err, "%s", whole)
                          : dra_fail_system(err, path, "find it", errno);
    free(whole);
    return st;
}

/* Puts the factors of the settings into the config. */
static dra_status take_lora(const dra_run_model_config *c, const dra_lora_config *lora,
                            dra_model_config *config, char base[DRA_PATH], dra_error *err)
{
    char       named[DRA_PATH];
    dra_status st = DRA_OK;
    if (lora->rank == 0) return DRA_OK;
    if (!c->base && !is_resumed(c))
        return dra_fail(err, DRA_ERR_VALUE, "train: lora needs the weights of a model to adapt");
    if (!c->base) st = dra_adapter_base(c->folder, named, sizeof named, err);
    if (st == DRA_OK) st = whole_path(c->base ? c->base : named, base, err);
    config->lora = lora;
    config->lora_base = base;
    return st;
}

dra_status dra_run_model(const dra_run_model_config *c, dra_model **out, dra_error *err)
{
    char             base[DRA_PATH];
    dra_model_config config = *c->model;
    dra_train_config before = {0};
    dra_status       st = DRA_OK;
    *out = NULL;
    if (is_resumed(c) && has_file(c->folder, "train/config.json"))
        st = read_settings(c->folder, &before, err);
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (c->train->aux_loss[k] != 0 || before.aux_loss[k] != 0) config.aux |= 1u << k;
    /* Before the model, which would only be another one. */
    const dra_train_config given = {.lora = c->train->lora};
    if (st == DRA_OK && is_resumed(c)) st = dra_train_config_merge(&before, &given, c->force, err);
    if (st == DRA_OK)
        st = take_lora(c, is_resumed(c) ? &before.lora : &given.lora, &config, base, err);
    if (st == DRA_OK) st = dra_model_create(&config, out, err);
    if (st == DRA_OK && is_resumed(c) && !c->force) st = check_same(c->folder, *out, err);
    if (st == DRA_OK) return DRA_OK;
    dra_model_destroy(*out);
    *out = NULL;
    return st;
}

/* ---- whether it may be there ----------------------------------------------------------------- */

static bool has_tokenizer(const char *folder, const dra_tokenizer *t)
{
    dra_tokenizer *found = NULL;
    if (!t || !dra_tokenizer_is_in(folder)) return false;
    const bool same = dra_tokenizer_open(folder, &found, NULL) == DRA_OK &&
                      dra_tokenizer_fingerprint(found) == dra_tokenizer_fingerprint(t);
    dra_tokenizer_destroy(found);
    return same;
}

dra_status dra_trainer_check_folder(dra_trainer *t, dra_error *err)
{
    const char *folder = t->c.folder, *found = NULL;
    int64_t     step;
    const int   checkpoints = dra_checkpoint_list(folder, 1, &step);
    if (checkpoints < 0) return dra_fail_system(err, folder, "list its checkpoints", errno);
    /* A run that was killed before its first checkpoint has at least its settings. */
    t->is_run = checkpoints > 0 || has_file(folder, "train/config.json");
    if (t->c.force || t->is_run) return DRA_OK;
    if (dra_folder_model(folder))
        found = "a model that is not a run";
    else if (dra_tokenizer_is_in(folder) && !has_tokenizer(folder, t->c.tokenizer))
        found = "a tokenizer that is not the run's";
    if (!found) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, folder,
                       "holds %s; force a run over it, or take another folder", found);
}

/* Whether a path leads into a folder or what is below it, links followed. */
static bool lies_in(const char *path, const char *folder)
{
    char        *a = dra_sys_realpath(path), *b = dra_sys_realpath(folder);
    const size_t n = b ? strlen(b) : 0;
    const bool   yes = a && b && strncmp(a, b, n) == 0 && (a[n] == '/' || a[n] == '\0');
    free(a);
    free(b);
    return yes;
}

dra_status dra_trainer_check_weights(const dra_trainer *t, dra_error *err)
{
    char               folder[DRA_PATH];
    dra_tensor_source *s;
    dra_status         st = dra_tensor_source_open(t->c.weights, &s, err);
    if (st != DRA_OK) return st;
    bool there = lies_in(s->path, t->c.folder) ||
                 (dra_weights_folder(t->c.weights, folder, sizeof folder) &&
                  lies_in(folder, t->c.folder));
    for (size_t i = 0; i < s->n_files; i++) there |= lies_in(s->file_name[i], t->c.folder);
    dra_tensor_source_close(s);
    if (!there) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, t->c.folder,
                       "holds the weights to start from; take another folder for the run");
}

static bool is_own_log(const dra_trainer *t)
{
    char        path[DRA_PATH];
    struct stat a, b;
    if (!t->is_run) return false;
    if (!t->c.log) return true;
    return dra_path(path, NULL, "%s/log.jsonl", t->c.folder) == DRA_OK &&
           dra_sys_stat(path, &a) == 0 && dra_sys_stat(t->c.log, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

dra_status dra_trainer_check_log(const dra_trainer *t, dra_error *err)
{
    struct stat s;
    if (dra_sys_lstat(t->log_path, &s) != 0) return DRA_OK;
    if (dra_sys_stat(t->log_path, &s) != 0 || !S_ISREG(s.st_mode))
        return dra_fail_at(err, DRA_ERR_FILE, t->log_path,
                           "is there and no regular file, expected a log or a new name");
    /* A run that is resumed may have its log anywhere. */
    if (t->c.force || is_own_log(t) || (t->is_run && t->c.resume && dra_runlog_is(t->log_path)))
        return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FILE, t->log_path,
                       "is there already and not the log of this run; force replaces it, or take "
                       "another name");
}

/* ---- making it ------------------------------------------------------------------------------- */

/* Until now others could write here: a folder that was no run must still be none. */
static dra_status check_again(dra_trainer *t, dra_error *err)
{
    const dra_status st = dra_trainer_check_folder(t, err);
    const int64_t    step = dra_trainer_saved(t->c.folder);
    if (st != DRA_OK || !t->is_run) return st;
    if (step < 0)
        return dra_fail_at(err, DRA_ERR_FILE, t->c.folder,
                           "another process has begun a run there meanwhile; take another folder");
    return dra_fail_at(err, DRA_ERR_FILE, t->c.folder,
                       "holds a run of %lld steps, made meanwhile by another process; resume it, "
                       "or take another folder",
                       (long long)step);
}

dra_status dra_trainer_claim(dra_trainer *t, dra_error *err)
{
    const char *folder = t->c.folder;
    char        path[DRA_PATH];
    if (t->lock >= 0) return DRA_OK;
    dra_status st = dra_trainer_hold(t, err);
    if (st == DRA_OK) st = dra_path(path, err, "%s/train", folder);
    if (st != DRA_OK) return st;
    dra_sweep_numbered(path, "step-");
    dra_sweep(path);
    if (!t->is_run) return check_again(t, err);
    dra_sweep(folder);
    st = dra_path(path, err, "%s/best", folder);
    if (st == DRA_OK) dra_sweep(path);
    return st;
}

static dra_status note_settings(const dra_trainer *t, dra_error *err)
{
    char       path[DRA_PATH], *text = NULL;
    size_t     bytes = 0;
    dra_json   j = {0};
    json_t    *settings = dra_train_config_json(&t->at.train);
    dra_status st = dra_trainer_here(t, err);
    if (st == DRA_OK) st = dra_path(path, err, "%s/train/config.json", t->c.folder);
    if (st == DRA_OK) st = dra_json_dump_sealed(&j, settings, path, &text, &bytes, err);
    if (st == DRA_OK) st = dra_file_write(path, text, bytes, err);
    free(text);
    json_decref(settings);
    return st;
}

dra_status dra_trainer_settings(const dra_trainer *t, dra_train_config *out, dra_error *err)
{
    return has_file(t->c.folder, "train/config.json") ? read_settings(t->c.folder, out, err)
                                                      : DRA_OK;
}

/* Removes files of an earlier run. If the folder was no run and --force was not given, its files
 * are not ours to remove. */
static dra_status clear_folder(const dra_trainer *t, dra_error *err)
{
    char       path[DRA_PATH];
    dra_status st = dra_path(path, err, "%s/best", t->c.folder);
    dra_sys_unlink(t->log_path);
    if (st != DRA_OK || !(t->c.force || t->is_run)) return st;
    dra_remove(path);
    return dra_folder_clear(t->c.folder, err);
}

/* Removes checkpoints of another run first and syncs, so that after a kill or a power cut nobody
 * resumes from them by mistake. */
static dra_status drop_checkpoints(const dra_trainer *t, dra_error *err)
{
    char       path[DRA_PATH];
    dra_status st = dra_path(path, err, "%s/train", t->c.folder);
    if (st == DRA_OK) st = dra_checkpoint_prune(t->c.folder, -1, err);
    return st == DRA_OK ? dra_folder_sync(path, err) : st;
}

dra_status dra_trainer_begin(const dra_trainer *t, dra_error *err)
{
    dra_status st = dra_trainer_here(t, err);
    if (st == DRA_OK && t->saved < 0) st = drop_checkpoints(t, err);
    if (st == DRA_OK) st = note_settings(t, err);
    return st == DRA_OK && t->saved < 0 ? clear_folder(t, err) : st;
}

/* ---- what a model folder has ----------------------------------------------------------------- */

/* The folder that further keys of config.json and files next to the weights are copied from: when a
 * run starts, the folder of its weights; otherwise, and for the best model, the run itself. */
static dra_status origin_of(const dra_trainer *t, const char *folder, char path[DRA_PATH],
                            dra_error *err)
{
    if (t->c.weights && t->saved < 0 && strcmp(folder, t->c.folder) == 0 &&
        dra_weights_folder(t->c.weights, path, DRA_PATH))
        return DRA_OK;
    return dra_path(path, err, "%s", t->c.folder);
}

/* Copies generation_config.json and, if the tokenizer is copied, its config. */
static dra_status copy_others(const dra_trainer *t, const char *from, const char *to,
                              dra_error *err)
{
    if (strcmp(from, to) == 0) return DRA_OK;
    const bool same = strcmp(from, t->c.folder) == 0 || has_tokenizer(from, t->c.tokenizer);
    return dra_folder_copy(from, to, DRA_FOLDER_HABITS | (same ? DRA_FOLDER_NOTES : 0), err);
}

/* Removes the old tokenizer of a run that is resumed with another one. Without a new tokenizer
 * nobody asked for that, and files of a folder that was no run are not ours. */
static dra_status drop_tokenizer(const dra_trainer *t, const char *folder, dra_error *err)
{
    const bool ours = t->c.force || t->is_run || strcmp(folder, t->c.folder) != 0;
    if (!ours || !t->c.tokenizer || has_tokenizer(folder, t->c.tokenizer)) return DRA_OK;
    return dra_folder_remove(folder, DRA_FOLDER_TOKENIZER | DRA_FOLDER_NOTES, err);
}

const char *dra_trainer_weights_file(const dra_trainer *t)
{
    return dra_model_config_of(t->c.model)->lora ? DRA_ADAPTER_WEIGHTS : "model.safetensors";
}

dra_status dra_trainer_describe(const dra_trainer *t, const char *folder, dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(t->c.model);
    char                    path[DRA_PATH];
    dra_status              st = dra_trainer_here(t, err);
    if (st == DRA_OK) st = origin_of(t, folder, path, err);
    if (st == DRA_OK && c->lora) st = dra_folder_make(folder, err);
    if (st == DRA_OK && c->lora) st = dra_adapter_save_config(folder, c, err);
    if (st == DRA_OK && !c->lora) st = dra_folder_save_config_like(folder, c, path, err);
    if (st == DRA_OK) st = drop_tokenizer(t, folder, err);
    if (st == DRA_OK) st = copy_others(t, path, folder, err);
    return st == DRA_OK ? dra_folder_save_tokenizer(folder, t->c.tokenizer, c->vocab, err) : st;
}
