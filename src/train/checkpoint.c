/* Checkpoints: RUN/train/step-NNNNNNNN with
 *   model.safetensors      weights
 *   optimizer.safetensors  m.NAME and v.NAME, what the optimizer keeps for each weight
 *   states.safetensors     where state is carried
 *   train.json             the rest, with hashes of the other files and of itself (file/seal.h)
 * A checkpoint is written under a temporary name and renamed when all of it is on the disk; before
 * it is removed, it is renamed back. So a checkpoint with its final name is complete, and the
 * hashes show later damage. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "dra/file.h"
#include "file/fail.h"
#include "file/seal.h"
#include "file/system.h"
#include "file/file_map.h"
#include "train/optimizer.h"
#include "train/train.h"
#include "device/array.h"
#include "sequence/module.h"

enum { LEVEL_TEXT = sizeof((dra_checkpoint *)NULL)->level };
enum { VERSION = 2, JSON_MOST = 1 << 20 };

static const char *const names[] = {"model.safetensors", "optimizer.safetensors",
                                    "states.safetensors"};
enum { MODEL, OPTIMIZER, STATES, FILES };

dra_status dra_checkpoint_path(const char *run, int64_t step, const char *name, char path[DRA_PATH],
                               dra_error *err)
{
    return dra_path(path, err, "%s/train/step-%08lld%s", run, (long long)step, name);
}

/* The path of a file in a checkpoint, or in one that is still being written. */
static dra_status file_path(const char *folder, const char *name, char path[DRA_PATH],
                            dra_error *err)
{
    return dra_path(path, err, "%s/%s", folder, name);
}

/* ---- hashes ---------------------------------------------------------------------------------- */

typedef char hash_text[24];

static dra_status hash_file(const char *folder, const char *name, hash_text text, dra_error *err)
{
    char         path[DRA_PATH];
    dra_file_map map = {0};
    dra_status   st = file_path(folder, name, path, err);
    if (st == DRA_OK) st = dra_file_map_open(path, &map, err);
    if (st != DRA_OK) return st;
    snprintf(text, sizeof(hash_text), "%016" PRIx64, dra_hash_of(0, map.data, map.bytes));
    dra_file_map_close(&map);
    return DRA_OK;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static dra_status save_moments(const char *path, const dra_saved *s, dra_error *err)
{
    const dra_specs *params = dra_model_params(s->model);
    const int        n = dra_specs_count(params);
    dra_tensor_item *items = calloc(2 * (size_t)n + 1, sizeof *items);
    char(*name)[DRA_NAME_TEXT] = calloc(2 * (size_t)n + 1, sizeof *name);
    dra_status st = items && name
                        ? DRA_OK
                        : dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory to write it");
    void     **copy = calloc(2 * (size_t)n + 1, sizeof *copy); /* of states not in host memory */
    size_t     k = 0, room = 0;
    if (!copy) st = dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory to write it");
    for (int i = 0; i < 2 * n && st == DRA_OK; i++, room = 0) {
        const dra_spec *p = dra_specs_at(params, i / 2);
        const dra_span  moment = dra_optimizer_moment(s->optimizer, i / 2, i % 2);
        if (!moment.array) continue;
        dra_state_name(name[k], dra_optimizer_state_name(i % 2), p->name);
        items[k] = (dra_tensor_item){name[k], DRA_REAL, p->shape,
                                     dra_span_see(moment, &copy[k], &room, err)};
        if (!items[k++].data) st = DRA_ERR_MEMORY;
    }
    if (st == DRA_OK) st = dra_tensors_write_sealed(path, items, k, NULL, 0, err);
    for (int i = 0; copy && i < 2 * n; i++) free(copy[i]);
    free(copy);
    free(items);
    free(name);
    return st;
}

static json_t *json_hex(dra_json *j, uint64_t x)
{
    hash_text text;
    snprintf(text, sizeof text, "%016" PRIx64, x);
    return dra_json_text(j, text);
}

static json_t *describe_checkpoint(dra_json *j, const dra_checkpoint *c)
{
    json_t *o = dra_json_object(j);
    dra_json_set(j, o, "version", dra_json_int(j, VERSION));
    dra_json_set(j, o, "step", dra_json_int(j, c->step));
    dra_json_set(j, o, "tokens", dra_json_int(j, c->tokens));
    dra_json_set(j, o, "skipped", dra_json_int(j, c->skipped));
    dra_json_set(j, o, "skipped_in_a_row", dra_json_int(j, c->in_a_row));
    dra_json_set(j, o, "model", json_hex(j, c->model));
    dra_json_set(j, o, "data", json_hex(j, c->data));
    dra_json_set(j, o, "carried", dra_json_bool(c->carried));
    if (c->level[0]) dra_json_set(j, o, "level", dra_json_text(j, c->level));
    dra_json_set(j, o, "train", dra_train_config_json(&c->train));
    dra_json_set(j, o, "best_loss", dra_json_real(j, c->best_loss));
    dra_json_set(j, o, "blend", dra_json_real(j, c->blend));
    dra_json_set(j, o, "seconds", dra_json_real(j, c->seconds));
    if (c->train.early_stop > 0)
        dra_json_set(j, o, "evaluations_since_best", dra_json_int(j, c->since_best));
    return o;
}

static dra_status hash_files(dra_json *j, const char *folder, const dra_checkpoint *c,
                             json_t *object, dra_error *err)
{
    hash_text  text;
    json_t    *files = dra_json_object(j);
    dra_status st = DRA_OK;
    for (int i = 0; i < FILES && st == DRA_OK; i++) {
        if (i == STATES && !c->carried) continue;
        st = hash_file(folder, names[i], text, err);
        if (st == DRA_OK) dra_json_set(j, files, names[i], dra_json_text(j, text));
    }
    dra_json_set(j, object, "files", files);
    return st;
}

static dra_status save_json(const char *folder, const dra_checkpoint *c, dra_error *err)
{
    char       path[DRA_PATH], *text = NULL;
    size_t     bytes = 0;
    dra_json   j = {0};
    json_t    *object = describe_checkpoint(&j, c);
    dra_status st = hash_files(&j, folder, c, object, err);
    if (st == DRA_OK) st = file_path(folder, "train.json", path, err);
    if (st == DRA_OK) st = dra_json_dump_sealed(&j, object, path, &text, &bytes, err);
    if (st == DRA_OK) st = dra_file_write(path, text, bytes, err);
    free(text);
    json_decref(object);
    return st;
}

static dra_status check_place(const dra_saved *s, dra_error *err)
{
    return s->run ? dra_trainer_here(s->run, err) : DRA_OK;
}

static dra_status save_files(const char *folder, const dra_checkpoint *c, const dra_saved *s,
                             dra_error *err)
{
    char       path[DRA_PATH];
    dra_status st = dra_folder_make(folder, err);
    if (st == DRA_OK) st = file_path(folder, names[MODEL], path, err);
    if (st == DRA_OK) st = dra_weights_save(s->weights, path, err);
    if (st == DRA_OK) st = check_place(s, err);
    if (st == DRA_OK) st = file_path(folder, names[OPTIMIZER], path, err);
    if (st == DRA_OK) st = save_moments(path, s, err);
    if (st == DRA_OK) st = check_place(s, err);
    if (st == DRA_OK) st = file_path(folder, names[STATES], path, err);
    if (st == DRA_OK && s->states) st = dra_states_save(s->states, c->model, path, err);
    if (st == DRA_OK) st = check_place(s, err);
    return st == DRA_OK ? save_json(folder, c, err) : st;
}

dra_status dra_checkpoint_save(const char *run, const dra_checkpoint *c, const dra_saved *s,
                               dra_error *err)
{
    char       temporary[DRA_PATH], path[DRA_PATH], folder[DRA_PATH];
    dra_status st = dra_checkpoint_path(run, c->step, ".tmp", temporary, err);
    if (st == DRA_OK) st = dra_checkpoint_path(run, c->step, "", path, err);
    if (st == DRA_OK) st = dra_path(folder, err, "%s/train", run);
    if (st == DRA_OK) st = check_place(s, err);
    if (st != DRA_OK) return st;
    const int   at = s->run ? s->run->lock : AT_FDCWD; /* wherever the path leads to */
    const char *old = s->run ? strrchr(path, '/') + 1 : path;
    const char *unfinished = s->run ? strrchr(temporary, '/') + 1 : temporary;
    dra_remove_at(at, unfinished);
    st = save_files(temporary, c, s, err);
    if (st == DRA_OK) st = check_place(s, err);
    if (st == DRA_OK) {
        dra_remove_at(at, old); /* of the same step: saved before */
        if (dra_sys_renameat(at, unfinished, old) != 0)
            st = dra_fail_system(err, path, "rename it", errno);
    }
    if (st == DRA_OK) return dra_folder_sync(folder, err);
    dra_remove_at(at, unfinished);
    return st;
}

/* ---- which there are ------------------------------------------------------------------------- */

static int64_t step_of(const char *name)
{
    char     *end;
    long long step;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    errno = 0;
    step = strtoll(name + 5, &end, 10);
    return *end || errno ? -1 : step;
}

/* Inserts a step into a list that is sorted, newest first, and keeps the newest `room`. */
static void insert_step(int64_t *steps, int n, int room, int64_t step)
{
    int at = n < room ? n : room;
    for (; at > 0 && steps[at - 1] < step; at--)
        if (at < room) steps[at] = steps[at - 1];
    if (at < room) steps[at] = step;
}

int dra_checkpoint_list(const char *run, int room, int64_t *steps)
{
    char           path[DRA_PATH];
    int            n = 0;
    struct dirent *e;
    if (dra_path(path, NULL, "%s/train", run) != DRA_OK) return 0;
    DIR *d = dra_sys_opendir(path);
    if (!d) return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    while ((e = dra_sys_readdir(d))) {
        const int64_t step = step_of(e->d_name);
        if (step >= 0) insert_step(steps, n++, room, step);
    }
    const int failed = errno;
    closedir(d);
    errno = failed;
    return failed ? -1 : n;
}

/* Renames a checkpoint, after which it is none any more, and removes it; the next start removes
 * what could not be removed now. `at` is the handle of the folder `train`, since the path may lead
 * elsewhere by now. */
static dra_status discard_checkpoint(const char *run, int at, int64_t step, dra_error *err)
{
    char       path[DRA_PATH], temporary[DRA_PATH];
    dra_status st = dra_checkpoint_path(run, step, "", path, err);
    if (st == DRA_OK) st = dra_checkpoint_path(run, step, ".tmp", temporary, err);
    if (st != DRA_OK) return st;
    const char *from = strrchr(path, '/') + 1, *to = strrchr(temporary, '/') + 1;
    if (dra_sys_renameat(at, from, to) != 0) return dra_fail_system(err, path, "remove it", errno);
    dra_remove_at(at, to);
    return DRA_OK;
}

static dra_status fail_list(const char *run, dra_error *err)
{
    return dra_fail_system(err, run, "read its folder train", errno);
}

static dra_status prune_checkpoints(const char *run, int at, int64_t keep, int n, dra_error *err)
{
    int64_t *steps = calloc((size_t)n, sizeof *steps);
    if (!steps) return dra_fail_at(err, DRA_ERR_MEMORY, run, "out of memory");
    const int  found = dra_checkpoint_list(run, n, steps);
    dra_status st = found < 0 ? fail_list(run, err) : DRA_OK;
    for (int64_t i = keep < 0 ? 0 : keep; i < found && i < n && st == DRA_OK; i++)
        st = discard_checkpoint(run, at, steps[i], err);
    free(steps);
    return st;
}

dra_status dra_checkpoint_prune(const char *run, int64_t keep, dra_error *err)
{
    char      path[DRA_PATH];
    const int n = dra_checkpoint_list(run, 0, NULL);
    if (n < 0) return fail_list(run, err);
    if (n == 0 || n <= keep) return DRA_OK;
    dra_status st = dra_path(path, err, "%s/train", run);
    if (st != DRA_OK) return st;
    const int at = dra_sys_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (at < 0) return fail_list(run, err);
    st = prune_checkpoints(run, at, keep, n, err);
    close(at);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads train.json, whose hash has been checked, so that it has the form in which it was
 * written. */
static void take_level(const json_t *o, char level[LEVEL_TEXT])
{
    const char *text = json_string_value(json_object_get(o, "level"));
    snprintf(level, LEVEL_TEXT, "%s", text ? text : "");
}

static dra_status take_members(const char *path, const json_t *o, dra_checkpoint *c, dra_error *err)
{
    const char  *model = NULL, *data = NULL;
    json_t      *best = NULL, *blend = NULL, *seconds = NULL, *train = NULL;
    json_int_t   step, tokens, skipped, in_a_row;
    int          carried = 0;
    json_error_t why;
    if (json_unpack_ex((json_t *)(uintptr_t)o, &why, 0,
                       "{s:I, s:I, s:I, s:I, s:s, s:s, s:b, s:o, s:o, s:o, s:o}", "step", &step,
                       "tokens", &tokens, "skipped", &skipped, "skipped_in_a_row", &in_a_row,
                       "model", &model, "data", &data, "carried", &carried, "train", &train,
                       "best_loss", &best, "blend", &blend, "seconds", &seconds) != 0)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "%.100s", why.text);
    c->step = step, c->tokens = tokens, c->skipped = skipped, c->in_a_row = in_a_row;
    c->model = strtoull(model, NULL, 16), c->data = strtoull(data, NULL, 16);
    c->carried = carried != 0;
    c->best_loss = json_is_number(best) ? json_number_value(best) : NAN;
    c->blend = json_number_value(blend), c->seconds = json_number_value(seconds);
    c->since_best = json_integer_value(json_object_get(o, "evaluations_since_best"));
    take_level(o, c->level);
    return dra_train_config_read(path, train, &c->train, err);
}

static dra_status read_json(const char *path, json_t **out, dra_error *err)
{
    char      *text = NULL;
    size_t     bytes = 0;
    dra_status st = dra_file_read(path, JSON_MOST, &text, &bytes, err);
    if (st == DRA_OK) st = dra_json_parse_sealed(path, text, bytes, 8, out, err);
    free(text);
    if (st != DRA_OK) return st;
    const json_t *version = json_object_get(*out, "version");
    if (json_is_integer(version) && json_integer_value(version) != VERSION)
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "version is %lld, expected %d",
                           (long long)json_integer_value(version), VERSION);
    return DRA_OK;
}

static dra_status check_files(const char *folder, const json_t *files, dra_error *err)
{
    const char *name;
    json_t     *v;
    json_object_foreach((json_t *)(uintptr_t)files, name, v)
    {
        hash_text  text;
        char       path[DRA_PATH];
        dra_status st = hash_file(folder, name, text, err);
        if (st == DRA_OK) st = file_path(folder, name, path, err);
        if (st == DRA_OK && (!json_is_string(v) || strcmp(json_string_value(v), text) != 0))
            st = dra_fail_damaged(err, path);
        if (st != DRA_OK) return st;
    }
    return DRA_OK;
}

dra_status dra_checkpoint_read(const char *run, int64_t step, dra_checkpoint *out, dra_error *err)
{
    char       folder[DRA_PATH], path[DRA_PATH];
    json_t    *object = NULL;
    dra_status st = dra_checkpoint_path(run, step, "", folder, err);
    *out = (dra_checkpoint){0}; /* also what is not stored */
    if (st == DRA_OK) st = file_path(folder, "train.json", path, err);
    if (st == DRA_OK) st = read_json(path, &object, err);
    if (st == DRA_OK) st = take_members(path, object, out, err);
    if (st == DRA_OK && out->step != step)
        st = dra_fail_at(err, DRA_ERR_FORMAT, path,
                         "is of step %lld, but is stored as that of step %lld",
                         (long long)out->step, (long long)step);
    if (st == DRA_OK) st = check_files(folder, json_object_get(object, "files"), err);
    json_decref(object);
    return st;
}

/* ---- loading --------------------------------------------------------------------------------- */

static dra_status load_moments(const char *path, const dra_saved *s, dra_error *err)
{
    const dra_specs *params = dra_model_params(s->model);
    char             name[DRA_NAME_TEXT];
    dra_tensors     *file = NULL;
    dra_status       st = dra_tensors_open(path, &file, err);
    for (int i = 0; i < 2 * dra_specs_count(params) && st == DRA_OK; i++) {
        const dra_spec *p = dra_specs_at(params, i / 2);
        const dra_span  moment = dra_optimizer_moment(s->optimizer, i / 2, i % 2);
        if (!moment.array) continue;
        dra_real *data = malloc(moment.bytes + 1);
        dra_state_name(name, dra_optimizer_state_name(i % 2), p->name);
        st = data ? dra_tensors_read(file, name, DRA_REAL, p->shape, data, err)
                  : dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory to read it");
        if (st == DRA_OK) st = dra_array_upload(moment, data, err);
        free(data);
    }
    dra_tensors_close(file);
    return st;
}

dra_status dra_checkpoint_load(const char *run, const dra_checkpoint *c, dra_saved *s,
                               dra_error *err)
{
    char       folder[DRA_PATH], path[DRA_PATH];
    dra_status st = dra_checkpoint_path(run, c->step, "", folder, err);
    if (st == DRA_OK) st = file_path(folder, names[MODEL], path, err);
    const dra_weights_config weights = {path, .skip_hash = true}; /* dra_checkpoint_read() did */
    if (st == DRA_OK) st = dra_weights_load_with(s->model, &weights, &s->weights, err);
    if (st == DRA_OK) st = file_path(folder, names[OPTIMIZER], path, err);
    if (st == DRA_OK && !c->other) st = load_moments(path, s, err);
    if (st == DRA_OK) st = file_path(folder, names[STATES], path, err);
    if (st == DRA_OK && c->carried)
        st = dra_states_load(s->device, dra_model_state(s->model), c->model, path, &s->states, err);
    return st;
}

/* Does not look at the other files; they are checked when the run is resumed. */
bool dra_run_level(const char *folder, char *level, size_t size)
{
    char    path[DRA_PATH], found[LEVEL_TEXT] = "";
    json_t *object = NULL;
    int64_t step = 0;
    if (dra_checkpoint_list(folder, 1, &step) > 0 &&
        dra_checkpoint_path(folder, step, "/train.json", path, NULL) == DRA_OK &&
        read_json(path, &object, NULL) == DRA_OK)
        take_level(object, found);
    json_decref(object);
    snprintf(level, size, "%s", found);
    return found[0];
}
