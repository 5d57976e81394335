/* The config of a run: its table, its defaults, and which settings may change when a run is
 * resumed. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fields.h"
#include "train/optimizer.h"
#include "train/train.h"

/* ---- the table ------------------------------------------------------------------------------- */

DRA_CHOICES(schedules, DRA_SCHEDULE_COUNT, "cosine", "linear", "constant", "exponential", "wsd");
DRA_CHOICES(anneals, DRA_ANNEAL_COUNT, "linear", "cosine");
DRA_CHOICES(objectives, DRA_OBJECTIVE_COUNT, "own", "next", "masked", "classes", "squared",
            "gaussian", "xval", "dpo");
DRA_CHOICES(masks, DRA_MASK_COUNT, "constant", "linear", "cosine"); /* dra_mask_schedule */
DRA_CHOICES(precisions, DRA_PRECISION_Q8, "full", "bf16", "tf32");
DRA_CHOICES(optimizers, DRA_OPTIMIZER_COUNT, "adamw", "sgd", "lion", "muon");

#define MOST 1e12 /* of counts */
#define FIELD(s, f, k) .name = #f, .kind = DRA_FIELD_##k, .offset = offsetof(s, f)
#define TRAIN(f, k) FIELD(dra_train_config, f, k)

static const dra_field stage_fields[] = {
    {FIELD(dra_stage, context, INT), .max = 1 << 20, .unset = "the model's"},
    {FIELD(dra_stage, from, INT), .max = MOST},
    {0}};

#define ADD(n, k)                                                                                  \
    {                                                                                              \
        .name = n, .kind = DRA_FIELD_REAL, .offset = (k) * sizeof(double)                          \
    }

static const dra_field aux_fields[] = {ADD("drift", DRA_AUX_DRIFT),
                                       ADD("budget", DRA_AUX_BUDGET),
                                       ADD("diversity", DRA_AUX_DIVERSITY),
                                       ADD("size", DRA_AUX_SIZE),
                                       ADD("entropy", DRA_AUX_ENTROPY),
                                       ADD("z_loss", DRA_AUX_ATTENTION),
                                       ADD("spectral", DRA_AUX_SPECTRAL),
                                       ADD("balance", DRA_AUX_BALANCE),
                                       {0}};

static const dra_field group_fields[] = {
    {FIELD(dra_group_config, lr, REAL), .max = 1e6, .zero = true},
    {FIELD(dra_group_config, wd, REAL), .max = 100, .zero = true},
    {0}};

#define GROUP(k, n)                                                                                \
    {.name = n,                                                                                    \
     .kind = DRA_FIELD_OBJECT,                                                                     \
     .offset = DRA_PARAM_##k * sizeof(dra_group_config),                                           \
     .fields = group_fields},

static const dra_field groups_fields[] = {DRA_PARAM_EACH(GROUP){0}};

static const char *const target_letters[] = {
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_,", NULL};

static const dra_field lora_fields[] = {
    {FIELD(dra_lora_config, rank, INT), .max = 1 << 20},
    {FIELD(dra_lora_config, alpha, REAL), .max = 1e6, .unset = "rank"},
    {FIELD(dra_lora_config, targets, TEXT), .choices = target_letters,
     .most = sizeof((dra_lora_config *)NULL)->targets},
    {0}};

static const dra_field fields[] = {
    {TRAIN(steps, INT), .max = MOST, .unset = "1000"},
    {TRAIN(batch, INT), .max = 1 << 20, .unset = "8"},
    {TRAIN(accumulate, INT), .max = 1 << 20, .unset = "1"},
    {TRAIN(stage, LIST), .fields = stage_fields, .given = offsetof(dra_train_config, stages),
     .size = sizeof(dra_stage), .most = DRA_STAGES_MOST},
    {TRAIN(lr, REAL), .max = 100, .zero = true},
    {TRAIN(min_lr, REAL), .min = -1, .max = 100, .zero = true},
    {TRAIN(warmup, INT), .max = MOST, .zero = true},
    {TRAIN(schedule, CHOICE), .choices = schedules},
    {TRAIN(schedule_end, INT), .max = MOST, .unset = "the last step"},
    {TRAIN(decay_steps, INT), .max = MOST, .unset = "a fifth of the steps"},
    {TRAIN(optimizer, CHOICE), .choices = optimizers},
    {TRAIN(momentum, REAL), .min = -1, .max = 0.999999, .zero = true},
    {TRAIN(nesterov, BOOL)},
    {TRAIN(muon_rate, REAL), .max = 1e6, .zero = true},
    {TRAIN(beta1, REAL), .max = 0.999999, .zero = true},
    {TRAIN(beta2, REAL), .max = 0.999999, .zero = true},
    {TRAIN(eps, REAL), .max = 1, .zero = true},
    {TRAIN(weight_decay, REAL), .min = -1, .max = 100, .zero = true},
    {TRAIN(group, OBJECT), .fields = groups_fields},
    {TRAIN(clip, REAL), .min = -1, .max = 1e9, .zero = true},
    {TRAIN(rwkv_rates, BOOL)},
    {TRAIN(rwkv_stage, INT), .max = 2, .unset = "1"},
    {TRAIN(smoothing, REAL), .max = 0.999, .zero = true},
    {TRAIN(l2wrap, REAL), .max = 1, .zero = true},
    {.name = "objective",
     .kind = DRA_FIELD_CHOICE,
     .offset = offsetof(dra_train_config, objective.kind),
     .choices = objectives},
    {.name = "mask_share",
     .kind = DRA_FIELD_REAL,
     .offset = offsetof(dra_train_config, objective.mask_share),
     .max = 1,
     .unset = "0.15"},
    {.name = "mask_token",
     .kind = DRA_FIELD_INT,
     .offset = offsetof(dra_train_config, objective.mask_token),
     .min = -1,
     .max = INT32_MAX,
     .zero = true},
    {.name = "mask_schedule",
     .kind = DRA_FIELD_CHOICE,
     .offset = offsetof(dra_train_config, objective.mask_schedule),
     .choices = masks},
    {.name = "equal_rows",
     .kind = DRA_FIELD_BOOL,
     .offset = offsetof(dra_train_config, objective.equal_rows)},
    {.name = "number_weight",
     .kind = DRA_FIELD_REAL,
     .offset = offsetof(dra_train_config, objective.number_weight),
     .max = 1e9,
     .zero = true},
    {.name = "beta",
     .kind = DRA_FIELD_REAL,
     .offset = offsetof(dra_train_config, objective.beta),
     .max = 1e9,
     .zero = true},
    {TRAIN(aux_loss, OBJECT), .fields = aux_fields},
    {TRAIN(clamp_states, BOOL)},
    {TRAIN(clamp_steps, INT), .min = -1, .max = MOST, .zero = true},
    {TRAIN(state_dropout, REAL), .max = 0.999, .zero = true},
    {TRAIN(forgetful_mask, REAL), .max = 0.999, .zero = true},
    {TRAIN(recompute, BOOL)},
    {TRAIN(precision, CHOICE), .choices = precisions},
    {TRAIN(carry, BOOL)},
    {TRAIN(chunk, INT), .max = 1 << 20, .zero = true},
    {TRAIN(cross, BOOL)},
    {TRAIN(split, REAL), .max = 0.9, .zero = true},
    {TRAIN(blend_steps, INT), .max = MOST, .unset = "half of the steps"},
    {TRAIN(blend_anneal, CHOICE), .choices = anneals},
    {TRAIN(seed, INT), .max = 1e15, .zero = true},
    {TRAIN(log_every, INT), .max = MOST, .unset = "10"},
    {TRAIN(eval_every, INT), .min = -1, .max = MOST, .zero = true},
    {TRAIN(save_every, INT), .min = -1, .max = MOST, .zero = true},
    {TRAIN(sample_every, INT), .max = MOST, .zero = true},
    {TRAIN(keep, INT), .max = 1 << 20, .unset = "2"},
    {TRAIN(early_stop, INT), .min = -1, .max = MOST, .zero = true},
    {TRAIN(lora, OBJECT), .fields = lora_fields},
    {0}};

const dra_field *dra_train_fields(void) { return fields; }

json_t *dra_train_config_json(const dra_train_config *c)
{
    dra_json j = {0};
    json_t  *object = dra_fields_write(&j, fields, c);
    return dra_json_whole(&j, object);
}

dra_status dra_train_config_parse(const char *place, const char *text, size_t bytes,
                                  dra_train_config *out, dra_error *err)
{
    json_t *object;
    *out = (dra_train_config){0};
    dra_status st = dra_json_parse(place, text, bytes, (dra_json_rules){.depth = 4}, &object, err);
    if (st == DRA_OK) st = dra_fields_read(fields, place, object, out, err);
    json_decref(object);
    return st;
}

dra_status dra_train_config_read(const char *place, const json_t *object, dra_train_config *out,
                                 dra_error *err)
{
    *out = (dra_train_config){0};
    return dra_fields_read(fields, place, object, out, err);
}

size_t dra_train_config_text(const dra_train_config *c, char *text, size_t size)
{
    dra_json j = {0};
    json_t  *object = dra_train_config_json(c);
    char    *dump;
    size_t   n = 0;
    dra_json_dump(&j, object, JSON_INDENT(2) | JSON_REAL_PRECISION(17), "train", &dump, &n, NULL);
    if (size > 0) snprintf(text, size, "%s", dump ? dump : "");
    json_decref(object);
    free(dump);
    return n;
}

/* ---- defaults -------------------------------------------------------------------------------- */

static void set_count(int64_t *n, int64_t otherwise)
{
    if (*n == 0) *n = otherwise;
}

static void set_number(double *x, double otherwise)
{
    if (*x == 0) *x = otherwise;
}

/* A value below 0 means 0, which is also the default of these settings. */
static void take_zeros(dra_train_config *c)
{
    int64_t *counts[] = {&c->chunk, &c->seed};
    double  *numbers[] = {&c->split, &c->state_dropout, &c->forgetful_mask, &c->smoothing,
                          &c->l2wrap};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        *counts[i] = dra_imax(0, *counts[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = fmax(0, *numbers[i]);
}

static void fill_in(dra_train_config *c, const dra_model *model)
{
    take_zeros(c);
    set_count(&c->steps, 1000);
    set_count(&c->batch, 8);
    set_count(&c->accumulate, 1);
    if (!c->stages) c->stages = 1;
    for (int i = 0; i < c->stages; i++)
        set_count(&c->stage[i].context, dra_model_config_of(model)->context);
    set_number(&c->lr, 1e-3);
    set_number(&c->min_lr, c->lr > 0 ? c->lr / 10 : -1);
    set_count(&c->warmup, dra_imax(1, c->steps / 25));
    set_number(&c->weight_decay, 0.01);
    set_number(&c->clip, 1);
    set_count(&c->blend_steps, dra_imax(1, c->steps / 2));
    if (c->schedule == DRA_SCHEDULE_WSD)
        set_count(&c->decay_steps, dra_imax(1, (c->schedule_end ? c->schedule_end : c->steps) / 5));
    set_count(&c->log_every, 10);
    set_count(&c->save_every, 500);
    set_count(&c->eval_every, dra_imax(1, (c->steps + 5) / 10));
    set_count(&c->keep, 2);
    set_count(&c->clamp_steps, 2000);
}

dra_optimizer_config dra_train_optimizer(const dra_train_config *c)
{
    dra_optimizer_config o = {.beta1 = c->beta1,
                              .beta2 = c->beta2,
                              .eps = c->eps,
                              .decay = fmax(0, c->weight_decay),
                              .clip = fmax(0, c->clip),
                              .rwkv_rates = c->rwkv_rates,
                              .rwkv_stage = (int)c->rwkv_stage,
                              .kind = c->optimizer,
                              .momentum = c->momentum,
                              .nesterov = c->nesterov,
                              .muon_rate = c->muon_rate};
    memcpy(o.group, c->group, sizeof o.group);
    return o;
}

/* The optimizer knows the defaults of its numbers. */
static dra_status complete_optimizer(dra_train_config *c, const dra_model *model, dra_error *err)
{
    dra_optimizer_config o = dra_train_optimizer(c);
    dra_status           st = dra_optimizer_complete("train", &o, err);
    if (st == DRA_OK) st = dra_groups_check("train", &o, model, err);
    c->beta1 = o.beta1, c->beta2 = o.beta2, c->eps = o.eps;
    c->momentum = o.momentum, c->muon_rate = o.muon_rate;
    return st;
}

/* ---- what cannot be -------------------------------------------------------------------------- */

static dra_status check_stages(const dra_train_config *c, const dra_model_config *m, dra_error *err)
{
    for (int i = 0; i < c->stages; i++) {
        const dra_stage *s = &c->stage[i];
        if (i == 0 ? s->from != 0 : s->from <= s[-1].from)
            return dra_fail(err, DRA_ERR_VALUE,
                            "train: context %lld starts at step %lld, expected %s %lld",
                            (long long)s->context, (long long)s->from,
                            i ? "more than" : "the first at", i ? (long long)s[-1].from : 0LL);
        if (m->source.kind == DRA_SOURCE_IMAGE) continue; /* always read whole */
        if (m->positions == DRA_POSITIONS_LEARNED && !m->xl.memory && s->context > m->context)
            return dra_fail(err, DRA_ERR_VALUE,
                            "train: context %lld, but the model has learned positions for %lld",
                            (long long)s->context, (long long)m->context);
    }
    return DRA_OK;
}

/* A carried state must not grow without end. */
static dra_status check_carry(const dra_model *model, dra_error *err)
{
    const dra_specs *s = dra_model_state(model);
    if (dra_model_config_of(model)->positions == DRA_POSITIONS_LEARNED &&
        !dra_model_config_of(model)->xl.memory)
        return dra_fail(err, DRA_ERR_VALUE,
                        "train: carry: the model has learned positions, which "
                        "end after %lld tokens",
                        (long long)dra_model_config_of(model)->context);
    for (int i = 0; i < dra_specs_count(s); i++)
        if (dra_specs_at(s, i)->items && dra_specs_at(s, i)->limit == 0)
            return dra_fail(err, DRA_ERR_VALUE,
                            "train: carry: state %s keeps every token and would grow without limit "
                            "(a window limits it)",
                            dra_specs_at(s, i)->name);
    return DRA_OK;
}

/* A model that reads a text as a whole has no state between parts of it. */
static dra_status check_whole(const dra_train_config *c, dra_error *err)
{
    if (!c->carry && !c->chunk) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "train: %s: the model is an encoder, which reads a text as a whole, not in %s",
                    c->carry ? "carry" : "chunk", c->carry ? "parts with a state" : "chunks");
}

/* With skipped tokens, distances are counted in tokens, which only a whole row knows. */
static dra_status check_skips(const dra_train_config *c, const dra_model_config *m, dra_error *err)
{
    const char *what = c->forgetful_mask > 0 ? "forgetful_mask" : "state_dropout";
    if (c->forgetful_mask > 0 && c->state_dropout > 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "train: expected one of state_dropout and forgetful_mask, found both");
    if (c->forgetful_mask == 0 && c->state_dropout == 0) return DRA_OK;
    if (m->position.distance == DRA_DISTANCE_NONE || (!c->carry && !c->chunk)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "train: %s: the model's biases by distance (position.distance) need rows that "
                    "are read as a whole, without %s",
                    what, c->carry ? "carry" : "chunk");
}

/* `next` is the own objective of a causal model, and `own` is not written. */
static dra_status complete_objective(dra_train_config *c, const dra_model *model, dra_error *err)
{
    const dra_status st = dra_objective_complete(&c->objective, model, err);
    if (c->objective.kind == DRA_OBJECTIVE_NEXT) c->objective.kind = DRA_OBJECTIVE_OWN;
    return st;
}

dra_status dra_train_config_complete(dra_train_config *c, const dra_model *model, dra_error *err)
{
    if (c->stages < 0 || c->stages > DRA_STAGES_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "train: %d stages, expected at most %d", c->stages,
                        DRA_STAGES_MOST);
    fill_in(c, model);
    if (c->batch % c->accumulate != 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "train: %lld rows cannot be read in %lld equal microbatches",
                        (long long)c->batch, (long long)c->accumulate);
    if (c->min_lr > fmax(0, c->lr))
        return dra_fail(err, DRA_ERR_VALUE, "train: min_lr is %g, expected at most lr, %g",
                        c->min_lr, fmax(0, c->lr));
    if (c->rwkv_stage && !c->rwkv_rates)
        return dra_fail(err, DRA_ERR_VALUE, "train: rwkv_stage is %lld, but rwkv_rates is off",
                        (long long)c->rwkv_stage);
    if (c->decay_steps && c->schedule != DRA_SCHEDULE_WSD)
        return dra_fail(err, DRA_ERR_VALUE,
                        "train: decay_steps is %lld, but schedule is %s, expected wsd",
                        (long long)c->decay_steps, schedules[c->schedule]);
    const dra_lora_config *lora = dra_model_config_of(model)->lora;
    if (c->lora.rank == 0 && (c->lora.alpha != 0 || c->lora.targets[0]))
        return dra_fail(err, DRA_ERR_VALUE, "train: lora.%s is set, but lora.rank is not",
                        c->lora.alpha != 0 ? "alpha" : "targets");
    if ((c->lora.rank > 0) != (lora != NULL))
        return dra_fail(err, DRA_ERR_VALUE,
                        "train: lora.rank is %lld, but the model has factors of rank %lld",
                        (long long)c->lora.rank, lora ? (long long)lora->rank : 0LL);
    if (c->early_stop > 0 && c->eval_every < 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "train: early_stop is %lld, but nothing is evaluated (eval_every is 0)",
                        (long long)c->early_stop);
    dra_status st = complete_optimizer(c, model, err);
    if (st == DRA_OK) st = check_stages(c, dra_model_config_of(model), err);
    if (st == DRA_OK && dra_view_module(&(dra_view){.model = model}).whole)
        st = check_whole(c, err);
    if (st == DRA_OK) st = complete_objective(c, model, err);
    if (st == DRA_OK) st = check_skips(c, dra_model_config_of(model), err);
    return st == DRA_OK && c->carry ? check_carry(model, err) : st;
}

/* ---- going on -------------------------------------------------------------------------------- */

/* Settings that only decide what is logged and kept, and when a run ends. */
static bool is_free(const char *key)
{
    static const char *const names[] = {"log_every", "eval_every",   "save_every", "sample_every",
                                        "keep",      "schedule_end", "early_stop", "decay_steps"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

/* A run may be made longer. */
static bool is_longer(const char *key, const json_t *was, const json_t *is)
{
    return strcmp(key, "steps") == 0 && json_integer_value(is) > json_integer_value(was);
}

static dra_status fail_changed(const char *key, const json_t *was, const json_t *is, dra_error *err)
{
    const size_t how = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6);
    char        *a = dra_json_words(was, how), *b = dra_json_words(is, how);
    dra_fail(
        err, DRA_ERR_VALUE,
        "resume: %s was %.60s and is %.60s now: another run; leave it out, or force it (--force)",
        key,
        a     ? a
        : was ? "..."
              : "not set",
        b ? b : "...");
    free(a);
    free(b);
    return DRA_ERR_VALUE;
}

dra_status dra_train_config_merge(dra_train_config *saved, const dra_train_config *given,
                                  bool force, dra_error *err)
{
    dra_train_config asked = *given;
    if (asked.objective.kind == DRA_OBJECTIVE_NEXT && saved->objective.kind == DRA_OBJECTIVE_OWN)
        asked.objective.kind = DRA_OBJECTIVE_OWN; /* the same, see complete_objective() */
    json_t     *was = dra_train_config_json(saved), *is = dra_train_config_json(&asked), *v;
    const char *key;
    dra_status  st = was && is ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "resume: out of memory");
    json_object_foreach(is, key, v)
    {
        const json_t *before = json_object_get(was, key);
        if (!before && json_is_number(v) && json_number_value(v) == 0) continue; /* by default */
        if (st == DRA_OK && !force && !is_free(key) && !is_longer(key, before, v) &&
            !json_equal(before, v))
            st = fail_changed(key, before, v, err);
    }
    if (st == DRA_OK) st = dra_fields_read(fields, "resume", is, saved, err);
    json_decref(was);
    json_decref(is);
    return st;
}
