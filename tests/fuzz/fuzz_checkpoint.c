/* Checkpoints of a small model, one file of which is any bytes: the first byte of an input says
 * which file, the rest is put in its place. What must hold:
 *   - a checkpoint as saved gives the same weights, moments and states;
 *   - damage is refused by one line that names the run;
 *   - a train.json that is sealed again is refused by one line or fit for use. */
#include "dra/file.h"
#include "file/fail.h"
#include "file/json.h"
#include "file/seal.h"
#include "mutate.h"
#include "train/train.h"
#include "own_config.h"

enum { STEP = 7, ROWS = 2, DAMAGES = 8 };

static const char *const files[] = {"model.safetensors", "optimizer.safetensors",
                                    "states.safetensors", "train.json"};
enum { FILES = COUNT(files), JSON = FILES - 1 };

static char   run[FUZZ_PATH], path[DRA_PATH], shown[DRA_BRIEF];
static char  *good[FILES]; /* the files as saved */
static size_t size[FILES];

static void clear(void)
{
    char folder[DRA_PATH];
    dra_checkpoint_prune(run, -1, NULL);
    if (dra_path(folder, NULL, "%s/train", run) == DRA_OK) dra_remove(folder);
    dra_remove(run);
}

static const char *path_of(size_t i)
{
    char      name[40];
    dra_error err = {0};
    snprintf(name, sizeof name, "/%s", files[i]);
    must(dra_checkpoint_path(run, STEP, name, path, &err), &err);
    return path;
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

typedef struct subject {
    dra_device    *device;
    dra_model     *model;
    dra_optimizer *optimizer;
    dra_saved      saved;
    dra_checkpoint at;
} subject;

static void make_subject(subject *s)
{
    CHECK_CONFIG(c);
    const dra_optimizer_config optimizer = {.decay = 0.1};
    dra_error                  err = {0};
    must(dra_preset_config("dra-slots-tiny", &c, &err), &err);
    c->vocab = c->dim = 8, c->depth = 1, c->heads = 2, check_mixers(c)->a.slots.count = 2;
    must(dra_device_create_cpu(&(dra_cpu_config){.threads = 1}, &s->device, &err), &err);
    must(dra_model_create(c, &s->model, &err), &err);
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
    for (size_t i = 0; i < FILES; i++)
        must(dra_file_read(path_of(i), 1 << 20, &good[i], &size[i], &err), &err);
}

static void release(subject *s)
{
    dra_states_destroy(s->saved.states);
    dra_weights_destroy(s->saved.weights);
    dra_optimizer_destroy(s->optimizer);
    dra_model_destroy(s->model);
    dra_device_destroy(s->device);
    for (size_t i = 0; i < FILES; i++) free(good[i]);
}

static subject checkpoint;

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
    dra_saved      back = {.device = s->device, .model = s->model, .optimizer = s->optimizer};
    dra_error      err = {0};
    dra_status     st = dra_checkpoint_read(run, STEP, &at, &err);
    if (st == DRA_OK && at.step != STEP) broken("a checkpoint of another step");
    if (st == DRA_OK) st = dra_checkpoint_load(run, &at, &back, &err);
    if (st != DRA_OK) expect_line(&err, shown);
    if (st == DRA_OK && at.carried) expect_same(s, &back);
    if (st == DRA_OK && damaged) expect_same_place(&at, &s->at);
    if (st == DRA_OK) (void)dra_train_config_complete(&at.train, s->model, &err);
    dra_weights_destroy(back.weights);
    dra_states_destroy(back.states);
    return st == DRA_OK;
}

static bool try_bytes(const uint8_t *data, size_t bytes, bool damaged)
{
    const size_t i = data[0] % FILES;
    put_file(path_of(i), data + 1, bytes - 1);
    const bool accepted = try_it(&checkpoint, damaged);
    put_file(path_of(i), good[i], size[i]);
    return accepted;
}

int harness(const uint8_t *data, size_t bytes) { return bytes ? try_bytes(data, bytes, false) : 0; }

static void make(fuzz_bytes *b)
{
    const uint8_t i = (uint8_t)(below(2) ? JSON : below(FILES));
    put(b, &i, 1);
    put(b, good[i], size[i]);
}

/* Damage that does not seal again. */
static void made(const fuzz_bytes *b)
{
    static fuzz_bytes bad;
    if (!try_bytes(b->at, b->n, true)) broken("a checkpoint as saved is refused");
    for (int i = 0; i < DAMAGES; i++) {
        bad = *b;
        for (uint32_t k = 1 + below(4); k; k--) mutate_once(&bad, fuzz_this.words);
        if (bad.n) try_bytes(bad.at, bad.n, true);
    }
}

/* ---- changed meanings ------------------------------------------------------------------------ */

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

/* A train.json that says something else, with a sum that fits. */
static void repair(fuzz_bytes *b)
{
    json_t  *object = NULL;
    dra_json maker = {0};
    char    *text = NULL;
    if (b->n == 0 || b->at[0] % FILES != JSON ||
        dra_json_parse("f", (const char *)b->at + 1, b->n - 1, (dra_json_rules){.depth = 8},
                       &object, NULL) != DRA_OK)
        return;
    dra_json_delete(object, "hash");
    for (uint32_t k = below(3); k; k--) change(object);
    if (json_is_object(object)) {
        if (dra_json_dump_sealed(&maker, object, "f", &text, NULL, NULL) != DRA_OK)
            broken("no memory");
        b->n = 1;
        if (strlen(text) < FUZZ_MOST) say(b, text);
        free(text);
    }
    json_decref(object);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void begin(void)
{
    fuzz_path(run);
    dra_brief(run, shown);
    make_subject(&checkpoint);
}

static void end(void)
{
    clear();
    release(&checkpoint);
}

static const char *const words[] = {"{",           "}",       "\"",        ":",    ",",
                                    "null",        "-1",      "1e308",     "0",    "true",
                                    "\"step\"",    "\"sum\"", "tokens",    "\xff", "F32",
                                    "\"shape\":[", "train",   "optimizer", NULL};

const fuzz_subject fuzz_this = {
    .words = words, .begin = begin, .end = end, .make = make, .made = made, .repair = repair};
