/* fuzz_checkpoint SECONDS [SEED]: checkpoints of a small model whose files are then damaged, or
 * whose train.json says something else and is sealed again. What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a checkpoint as saved gives the same weights, moments and states;
 *   - damage is refused by one line that names the run, unless the JSON still says the same;
 *   - what is sealed again is refused by one line or fit for use.
 * Change number n of a run has seed SEED + n; SECONDS 0 tries that one. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/json.h"
#include "run/train.h"
#include "fuzz/fuzzer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { STEP = 7, ROWS = 2 };

static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                    "states.safetensors", "train.json"};
enum { FILES = COUNT(files), JSON = FILES - 1 };

static char   run[256], path[DRA_PATH], shown[DRA_BRIEF];
static char  *good[FILES]; /* the files as saved */
static size_t bytes[FILES];

static void clear(void)
{
    char folder[DRA_PATH];
    dra_checkpoint_prune(run, -1, NULL);
    if (dra_path(folder, NULL, "%s/train", run) == DRA_OK) dra_remove(folder);
    dra_remove(run);
}

static void must(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) broken(err->text);
}

static const char *path_of(int i)
{
    char      name[40];
    dra_error err = {0};
    snprintf(name, sizeof name, "/%s", files[i]);
    must(dra_checkpoint_path(run, STEP, name, path, &err), &err);
    return path;
}

static void put(int i, const char *data, size_t n)
{
    FILE *f = fopen(path_of(i), "wb");
    if (!f || fwrite(data, 1, n, f) != n) broken("cannot write");
    fclose(f);
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

typedef struct subject {
    dra_device    *device;
    dra_model     *model;
    dra_optimizer *optimizer;
    dra_saved      saved;
    dra_checkpoint at;
} subject;

static void make(subject *s)
{
    dra_model_config           c;
    const dra_optimizer_config optimizer = {.decay = 0.1};
    dra_error                  err = {0};
    must(dra_preset_config("dra-slots-tiny", &c, &err), &err);
    c.vocab = c.dim = 8, c.depth = 1, c.heads = 2, c.mixer[0].a.slots = 2;
    must(dra_device_create_cpu(&(dra_cpu_config){.threads = 1}, &s->device, &err), &err);
    must(dra_model_create(&c, &s->model, &err), &err);
    must(dra_optimizer_create(&optimizer, s->model, s->device, &s->optimizer, &err), &err);
    s->saved = (dra_saved){.device = s->device, .model = s->model, .optimizer = s->optimizer};
    must(dra_weights_draw(s->model, 1, &s->saved.weights, &err), &err);
    must(dra_states_create(s->device, dra_model_state(s->model), ROWS, &s->saved.states, &err),
         &err);
    s->at = (dra_checkpoint){.step = STEP,
                             .tokens = 1234,
                             .best_loss = 2.5,
                             .seconds = 0.25,
                             .carried = true,
                             .model = dra_model_fingerprint(s->model),
                             .data = 99};
    must(dra_train_config_complete(&s->at.train, s->model, &err), &err);
    must(dra_folder_make(run, &err), &err);
    must(dra_path(path, &err, "%s/train", run), &err);
    must(dra_folder_make(path, &err), &err);
    must(dra_checkpoint_save(run, &s->at, &s->saved, &err), &err);
    for (int i = 0; i < FILES; i++)
        must(dra_file_read(path_of(i), 1 << 20, &good[i], &bytes[i], &err), &err);
}

static void release(subject *s)
{
    dra_states_destroy(s->saved.states);
    dra_weights_destroy(s->saved.weights);
    dra_optimizer_destroy(s->optimizer);
    dra_model_destroy(s->model);
    dra_device_destroy(s->device);
    for (int i = 0; i < FILES; i++) free(good[i]);
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void expect_same(const subject *s, const dra_saved *back)
{
    const dra_specs      *p = dra_model_params(s->model);
    dra_states_difference d;
    dra_error             err = {0};
    for (int i = 0; i < dra_specs_count(p); i++)
        if (memcmp(dra_weights_at(back->weights, i), dra_weights_at(s->saved.weights, i),
                   (size_t)dra_shape_count(&dra_specs_at(p, i)->shape) * sizeof(dra_real)) != 0)
            broken("accepted with other weights");
    must(dra_states_compare(back->states, s->saved.states, &d, &err), &err);
    if (!d.same) broken("accepted with other states");
}

static void expect_line(const dra_error *err)
{
    if (strncmp(err->text, shown, strlen(shown)) != 0) broken("an error without the path");
    if (strpbrk(err->text, "\n\r\t\033")) broken("an error of several lines");
}

static void expect_same_place(const dra_checkpoint *a, const dra_checkpoint *b)
{
    char x[4096], y[4096];
    dra_train_config_text(&a->train, x, sizeof x);
    dra_train_config_text(&b->train, y, sizeof y);
    if (strcmp(x, y) != 0 || a->tokens != b->tokens || a->skipped != b->skipped ||
        a->in_a_row != b->in_a_row || a->best_loss != b->best_loss || a->blend != b->blend ||
        a->seconds != b->seconds || a->model != b->model || a->data != b->data ||
        a->carried != b->carried)
        broken("damage was accepted");
}

static bool try_it(const subject *s, bool damaged)
{
    dra_checkpoint at;
    dra_saved      back = {.model = s->model, .optimizer = s->optimizer};
    dra_error      err = {0};
    dra_status     st = dra_checkpoint_read(run, STEP, &at, &err);
    if (st == DRA_OK && at.step != STEP) broken("a checkpoint of another step");
    if (st == DRA_OK) st = dra_checkpoint_load(run, &at, &back, &err);
    if (st != DRA_OK) expect_line(&err);
    if (st == DRA_OK && at.carried) expect_same(s, &back);
    if (st == DRA_OK && damaged) expect_same_place(&at, &s->at);
    if (st == DRA_OK) (void)dra_train_config_complete(&at.train, s->model, &err);
    dra_weights_destroy(back.weights);
    dra_states_destroy(back.states);
    return st == DRA_OK;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Some bytes of one file, or its end. */
static void damage(const subject *s)
{
    const int    i = (int)below(FILES);
    const size_t n = bytes[i];
    size_t       kept = n;
    char        *data = malloc(n);
    if (!data) broken("no memory");
    memcpy(data, good[i], n);
    for (uint32_t k = below(4); k; k--) {
        const size_t at = below((uint32_t)n);
        data[at] = (char)below(256);
    }
    if (below(3) == 0) kept = below((uint32_t)n);
    const bool same = kept == n && memcmp(data, good[i], n) == 0;
    put(i, data, kept);
    if (try_it(s, true) && !same && i != JSON) broken("damage was accepted");
    put(i, good[i], n);
    free(data);
}

static json_t *any_value(void)
{
    switch (below(8)) {
    case 0: return json_null();
    case 1: return json_integer((json_int_t)below(3) - 1);
    case 2: return json_integer(INT64_MAX - below(2));
    case 3: return json_real(below(2) ? 1e308 : -0.5);
    case 4: return json_string(below(2) ? "" : "ffffffffffffffffffffff");
    case 5: return json_array();
    case 6: return json_object();
    default: return json_boolean(below(2));
    }
}

/* Another value for a member, or none; sometimes in one of the objects inside. */
static void change(json_t *object)
{
    const char *key;
    json_t     *v;
    const char *chosen = NULL;
    uint32_t    at = below((uint32_t)json_object_size(object) + 1);
    json_object_foreach(object, key, v)
    {
        if (at-- == 0) chosen = key;
    }
    if (!chosen) return;
    json_t *inner = json_object_get(object, chosen);
    if (json_is_object(inner) && below(4))
        change(inner);
    else if (below(8) == 0)
        json_object_del(object, chosen);
    else
        json_object_set_new(object, chosen, any_value());
}

static void reseal(const subject *s)
{
    char      sum[24];
    json_t   *object = NULL;
    dra_error err = {0};
    must(dra_json_parse("train.json", good[JSON], bytes[JSON], (dra_json_rules){.depth = 8},
                        &object, &err),
         &err);
    for (uint32_t k = 1 + below(2); k; k--) change(object);
    if (!dra_checkpoint_sum(object, sum)) broken("no memory");
    json_object_set_new(object, "sum", json_string(sum));
    char *text = json_dumps(object, JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text) broken("no memory");
    put(JSON, text, strlen(text));
    try_it(s, false);
    put(JSON, good[JSON], bytes[JSON]);
    free(text);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static subject checkpoint;

static void one(void)
{
    fuzz_damaged++;
    if (below(2))
        damage(&checkpoint);
    else
        reseal(&checkpoint);
}

int main(int argc, char **argv)
{
    fuzz_begin(&(fuzzer){"fuzz_checkpoint", one, clear});
    snprintf(run, sizeof run, "%s/fuzz-checkpoint-%ld", fuzz_folder(), (long)getpid());
    dra_brief(run, shown);
    make(&checkpoint);
    if (!try_it(&checkpoint, true)) broken("a checkpoint as saved was refused");
    const int status = fuzz_all(argc, argv);
    release(&checkpoint);
    return status;
}
