/* Creating a run: at which step it stands, and the objects it works with. */
#include "train/train.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shape.h"
#include "model/model.h"
#include "train/batches.h"
#include "train/gradients.h"
#include "train/ranks.h"
#include "sequence/module.h"
#include "file/fail.h"
#include "file/parent.h"

/* ---- where it stands ------------------------------------------------------------------------- */

/* The settings of a run that was killed before its first checkpoint, else those asked for. */
static dra_status first_settings(dra_trainer *t, dra_error *err)
{
    t->at.train = *t->c.train;
    if (!t->c.resume || !t->is_run) return DRA_OK;
    const dra_status st = dra_trainer_settings(t, &t->at.train, err);
    return st == DRA_OK ? dra_train_config_merge(&t->at.train, t->c.train, t->c.force, err) : st;
}

static dra_status first_weights(dra_trainer *t, dra_error *err)
{
    const dra_model_config  *model = dra_model_config_of(t->c.model);
    const uint64_t           seed = (uint64_t)dra_imax(0, t->at.train.seed);
    const dra_weights_config from = {model->lora ? model->lora_base : t->c.weights, t->c.skip_hash,
                                     seed};
    return from.path ? dra_weights_load_with(t->c.model, &from, &t->weights, err)
                     : dra_weights_draw(t->c.model, (uint64_t)t->at.train.seed, &t->weights, err);
}

static dra_status start_run(dra_trainer *t, dra_error *err)
{
    const dra_specs *params = dra_model_params(t->c.model);
    t->at.best_loss = NAN;
    t->at.model = dra_model_fingerprint(t->c.model);
    dra_status st = t->c.weights ? dra_trainer_check_weights(t, err) : DRA_OK;
    if (st == DRA_OK) st = first_settings(t, err);
    if (t->at.train.accumulate == 0) t->at.train.accumulate = dra_comm_size(t->c.comm);
    if (st == DRA_OK) st = dra_train_config_complete(&t->at.train, t->c.model, err);
    if (st == DRA_OK) st = first_weights(t, err);
    const int blend = dra_specs_find(params, "blend");
    if (st == DRA_OK && blend >= 0) t->at.blend = (double)dra_weights_at(t->weights, blend)[0];
    return st;
}

/* Reads the newest checkpoint. If it is damaged, the error names it and an older one: the user
 * decides whether to lose steps. */
static dra_status find_place(dra_trainer *t, const int64_t *steps, int n, dra_error *err)
{
    dra_error        why = {0};
    char             room[DRA_BRIEF];
    const dra_status st = dra_checkpoint_read(t->c.folder, steps[0], &t->at, &why);
    if (st == DRA_OK) return DRA_OK;
    if (n < 2) return dra_fail(err, st, "%.500s", why.text);
    return dra_fail(
        err, st,
        "%.250s; step %lld is there as well: remove %s/train/step-%08lld to continue from "
        "it",
        why.text, (long long)steps[1], dra_brief(t->c.folder, room), (long long)steps[0]);
}

/* A run that was made longer may have been killed before its next checkpoint. */
static dra_status take_extension(dra_trainer *t, dra_error *err)
{
    dra_train_config noted = {0}, *c = &t->at.train;
    const dra_status st = dra_trainer_settings(t, &noted, err);
    if (st != DRA_OK || noted.steps < c->steps) return st;
    c->steps = noted.steps;
    c->schedule_end = noted.schedule_end;
    c->decay_steps = noted.decay_steps;
    return DRA_OK;
}

/* With --force: another optimizer starts with its own states and settings. */
static void forget_optimizer(dra_trainer *t)
{
    dra_train_config       *c = &t->at.train;
    const dra_train_config *given = t->c.train;
    t->at.other = true;
    c->beta1 = given->beta1, c->beta2 = given->beta2, c->eps = given->eps;
    c->momentum = given->momentum, c->muon_rate = given->muon_rate, c->nesterov = given->nesterov;
}

static int64_t end_of(const dra_train_config *c)
{
    return c->schedule_end ? c->schedule_end : c->steps;
}

static dra_status resume_run(dra_trainer *t, dra_error *err)
{
    if (t->at.model != dra_model_fingerprint(t->c.model))
        return dra_fail_at(
            err, DRA_ERR_VALUE, t->c.folder,
            "is a run of another model: its tensors have other names or shapes, or its "
            "config.json has changed");
    dra_status             st = take_extension(t, err);
    const dra_train_config was = t->at.train;
    if (st == DRA_OK) st = dra_train_config_merge(&t->at.train, t->c.train, t->c.force, err);
    if (st == DRA_OK && t->at.train.optimizer != was.optimizer) forget_optimizer(t);
    if (st == DRA_OK) st = dra_train_config_complete(&t->at.train, t->c.model, err);
    if (t->at.train.steps != was.steps) t->steps_before = was.steps;
    if (end_of(&t->at.train) != end_of(&was)) t->schedule_before = end_of(&was);
    if (t->at.in_a_row >= DRA_SKIPPED_MOST)
        t->at.in_a_row = 0; /* the user was told, and continues all the same */
    t->saved = t->at.step;
    return st;
}

static dra_status find_start(dra_trainer *t, dra_error *err)
{
    int64_t   steps[2];
    const int n = dra_checkpoint_list(t->c.folder, 2, steps);
    if (n < 0) return dra_fail_system(err, t->c.folder, "read its folder train", errno);
    if (t->c.resume && n > 0) {
        const dra_status st = find_place(t, steps, n, err);
        return st == DRA_OK ? resume_run(t, err) : st;
    }
    if (n > 0 && !t->c.force)
        return dra_fail_at(err, DRA_ERR_FILE, t->c.folder,
                           "holds a run of %lld steps; resume it (--resume), or force a new one "
                           "over it (--force)",
                           (long long)steps[0]);
    return start_run(t, err);
}

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status allocate_buffers(dra_trainer *t, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    const int64_t           T = dra_trainer_context(t);
    t->rows = c->batch / c->accumulate;
    t->chunk = calloc((size_t)T, sizeof *t->chunk);
    t->states = calloc((size_t)c->accumulate, sizeof *t->states);
    t->share = calloc((size_t)c->accumulate, sizeof *t->share);
    t->results = calloc((size_t)c->accumulate, sizeof *t->results);
    if (!t->chunk || !t->states || !t->share || !t->results)
        return dra_fail(err, DRA_ERR_MEMORY, "train: out of memory");
    return DRA_OK;
}

/* For texts there are no measures besides the loss. */
static void name_measures(dra_trainer *t)
{
    const dra_objective_kind kind = t->at.train.objective.kind;
    for (int k = 0; k < DRA_MEASURES_MOST && t->c.examples; k++)
        t->event.measure_name[k] = dra_objective_measure(kind, t->c.model, k);
}

static dra_status make_tools(dra_trainer *t, dra_error *err)
{
    const dra_train_config    *c = &t->at.train;
    dra_gradients_config       gradients = {.model = t->c.model,
                                            .device = t->c.device,
                                            .precision = c->precision,
                                            .recompute = c->recompute,
                                            .smoothing = c->smoothing,
                                            .l2wrap = c->l2wrap,
                                            .objective = c->objective.kind,
                                            .terms = c->objective};
    const dra_optimizer_config optimizer = dra_train_optimizer(c);
    memcpy(gradients.aux_loss, c->aux_loss, sizeof gradients.aux_loss);
    name_measures(t);
    t->blend = dra_specs_find(dra_model_params(t->c.model), "blend");
    dra_status st = dra_gradients_create(&gradients, &t->gradients, err);
    const bool whole = c->chunk == 0 && t->gradients && t->gradients->module.segment == 0;
    if (st == DRA_OK)
        st = dra_sums_create(t->gradients, c->accumulate, whole, t->c.comm, &t->sums, err);
    return st == DRA_OK
               ? dra_optimizer_create(&optimizer, t->c.model, t->c.device, &t->optimizer, err)
               : st;
}

static int64_t steps_of(const dra_train_config *c, int stage)
{
    const int64_t end = stage + 1 < c->stages ? dra_imin(c->stage[stage + 1].from, c->steps)
                                              : c->steps;
    return dra_imax(0, end - c->stage[stage].from);
}

/* sum + rows * T * steps, at most INT64_MAX. */
static int64_t add_tokens(int64_t sum, int64_t rows, int64_t T, int64_t steps)
{
    int64_t n;
    if (__builtin_mul_overflow(rows, T, &n) || __builtin_mul_overflow(n, steps, &n) ||
        __builtin_add_overflow(sum, n, &n))
        return INT64_MAX;
    return n;
}

/* Measures a microbatch of a stage, without its tokens. Programs with and without clamped states
 * are different. */
static dra_status measure_stage(dra_trainer *t, int stage, bool clamp, size_t *bytes,
                                dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    const dra_batches      *from = t->batches; /* what is prepended is read, too */
    const int64_t           T = dra_trainer_tokens(t, stage) + from->before.stream.N;
    const int64_t           S = from->context.most + from->before_context.stream.N;
    int32_t                *mark = calloc((size_t)(t->rows * (T + S)), sizeof *mark);
    const dra_context_text  context = {S, mark ? mark + t->rows * T : NULL};
    const dra_microbatch    q = {.B = t->rows,
                                 .T = T,
                                 .mark = dra_trainer_marked(t) ? mark : NULL,
                                 .chunks = dra_trainer_chunks(t, T),
                                 .chunk = t->chunk,
                                 .clamp = clamp,
                                 .context = S ? &context : NULL};
    if (!mark) return dra_fail(err, DRA_ERR_MEMORY, "train: out of memory");
    for (int64_t b = 0; b < t->rows; b++)
        mark[b] = c->state_dropout > 0 || c->forgetful_mask > 0 ? DRA_MARK_SKIP : 0;
    const dra_status st = dra_gradients_bytes(t->gradients, &q, c->carry, bytes, err);
    free(mark);
    return st;
}

/* Bytes that an evaluation holds beyond the workspace, which it shares. */
static dra_status measure_eval(dra_trainer *t, size_t *bytes, dra_error *err)
{
    const dra_status st = dra_reader_measure(t->reader, t->rows, dra_trainer_context(t), true,
                                             bytes, err);
    *bytes += dra_session_bytes(dra_reader_session(t->reader));
    return st;
}

static dra_status measure_run(dra_trainer *t, dra_trainer_plan *p, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    const int64_t clamped = c->clamp_states ? c->steps : dra_imin(c->clamp_steps, c->steps);
    const bool    clamps = (c->carry || c->chunk) && clamped > 0;
    size_t        evaluation = 0;
    dra_status    st = t->reader ? measure_eval(t, &evaluation, err) : DRA_OK;
    for (int i = 0; i < c->stages && st == DRA_OK; i++) {
        const int64_t steps = steps_of(c, i), from = c->stage[i].from;
        if (steps == 0) continue;
        if (clamps && from < clamped) st = measure_stage(t, i, true, &p->activations, err);
        if (st == DRA_OK && (!clamps || from + steps > clamped))
            st = measure_stage(t, i, false, &p->activations, err);
        p->run_tokens = add_tokens(p->run_tokens, c->batch, dra_trainer_tokens(t, i), steps);
    }
    p->activations += evaluation;
    return st;
}

/* Checks the memory that steps need before anything is written. */
static dra_status check_memory(dra_trainer *t, dra_error *err)
{
    dra_array       *memory = NULL;
    dra_trainer_plan plan = {0};
    dra_status       st = measure_run(t, &plan, err);
    if (st != DRA_OK) return st;
    st = dra_array_create(t->c.device, plan.activations, &memory, NULL);
    dra_array_destroy(memory);
    if (st == DRA_OK) return DRA_OK;
    return dra_fail(
        err, DRA_ERR_MEMORY,
        "train: out of memory for steps of %lld x %lld tokens: %.1f GiB (a smaller batch or "
        "context, accumulate, chunk or recompute need less)",
        (long long)t->at.train.batch, (long long)dra_trainer_context(t),
        (double)plan.activations / (1 << 30));
}

/* Distributes the rows of one state to the microbatches; without a state they start fresh. */
static dra_status share_states(dra_trainer *t, const dra_states *all, dra_error *err)
{
    const int64_t n = t->at.train.accumulate;
    int64_t      *rows = calloc((size_t)t->rows, sizeof *rows);
    dra_status    st = rows ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "train: out of memory");
    if (all && dra_states_batch(all) != n * t->rows) all = NULL; /* forced: another batch */
    for (int64_t k = t->own.first; k < t->own.first + t->own.n && st == DRA_OK; k++) {
        for (int64_t b = 0; b < t->rows; b++) rows[b] = k * t->rows + b;
        st = all ? dra_states_gather(all, t->rows, rows, &t->states[k], err)
                 : dra_states_create(t->c.device, dra_model_state(t->c.model), t->rows,
                                     &t->states[k], err);
    }
    free(rows);
    return st;
}

static dra_status load_run(dra_trainer *t, dra_error *err)
{
    dra_saved  s = {.device = t->c.device, .model = t->c.model, .optimizer = t->optimizer};
    dra_status st = t->saved < 0 ? DRA_OK : dra_checkpoint_load(t->c.folder, &t->at, &s, err);
    if (t->saved >= 0) t->weights = s.weights;
    if (st == DRA_OK && t->at.train.carry) st = share_states(t, s.states, err);
    dra_states_destroy(s.states);
    if (st == DRA_OK) st = dra_weights_train(t->weights, t->c.device, err);
    if (st == DRA_OK) st = dra_gradients_bind(t->gradients, t->weights, err);
    const bool publishes = t->saved >= 0 && dra_trainer_writes(t);
    return st == DRA_OK && publishes ? dra_trainer_publish(t, err) : st;
}

/* Syncs the folders before anything is written to them: a config.json without `train` would belong
 * to a model folder, which is not ours to replace. */
static dra_status keep_folders(const dra_trainer *t, dra_error *err)
{
    const dra_status st = dra_folder_sync(t->c.folder, err);
    return st == DRA_OK ? dra_parent_sync(t->c.folder, err) : st;
}

/* Syncs the log and the event file before the first step. */
static dra_status keep_logs(const dra_trainer *t, dra_error *err)
{
    const dra_status st = dra_parent_sync(t->log_path, err);
    return st == DRA_OK && t->log.events ? dra_folder_sync(t->c.folder, err) : st;
}

/* Where the run stands, as its folder says. */
static dra_status open_place(dra_trainer *t, dra_error *err)
{
    dra_status st = t->c.log ? dra_path(t->log_path, err, "%s", t->c.log)
                             : dra_path(t->log_path, err, "%s/log.jsonl", t->c.folder);
    if (st == DRA_OK) st = dra_trainer_check_folder(t, err);
    if (st == DRA_OK && t->is_run) st = dra_trainer_claim(t, err);
    if (st == DRA_OK) st = find_start(t, err);
    return st == DRA_OK ? dra_trainer_check_log(t, err) : st;
}

/* Each rank has a part of the microbatches. */
static dra_status share_microbatches(dra_trainer *t, dra_error *err)
{
    const int64_t n = t->at.train.accumulate;
    const int     ranks = dra_comm_size(t->c.comm);
    if (n < ranks)
        return dra_fail(err, DRA_ERR_VALUE,
                        "train: %d ranks, but accumulate is %lld: each needs a microbatch of its "
                        "own",
                        ranks, (long long)n);
    t->own = dra_tree_share(n, dra_comm_rank(t->c.comm), ranks);
    return DRA_OK;
}

/* All that a step needs, before anything is written. */
static dra_status make_parts(dra_trainer *t, dra_error *err)
{
    const bool first = t->saved < 0 && !t->weights; /* of a rank that does not write */
    dra_status st = first ? first_weights(t, err) : DRA_OK;
    if (st == DRA_OK) st = share_microbatches(t, err);
    if (st == DRA_OK) st = dra_trainer_open_data(t, err);
    if (st == DRA_OK) st = allocate_buffers(t, err);
    if (st == DRA_OK) st = make_tools(t, err);
    if (st == DRA_OK) st = dra_trainer_open_eval(t, err);
    return st == DRA_OK ? check_memory(t, err) : st;
}

static dra_status open_folder(dra_trainer *t, dra_error *err)
{
    const dra_status st = dra_trainer_claim(t, err); /* a run that cannot be leaves no folder */
    return st == DRA_OK ? keep_folders(t, err) : st;
}

/* Describes the run in its folder and opens its log. */
static dra_status begin_folder(dra_trainer *t, dra_error *err)
{
    dra_status st = dra_trainer_describe(t, t->c.folder, err);
    if (st == DRA_OK) st = dra_trainer_here(t, err);
    if (st == DRA_OK) st = dra_runlog_open(t->log_path, t->at.step, &t->log, err);
    t->log.run = t;
    if (st == DRA_OK && t->c.tensorboard)
        st = dra_events_create(t->c.folder, t->at.step, &t->log.events, err);
    return st == DRA_OK ? keep_logs(t, err) : st;
}

/* Several ranks agree before each of these parts, because what one of them writes others read. */
static dra_status create_trainer(dra_trainer *t, dra_error *err)
{
    const bool writes = dra_trainer_writes(t);
    dra_comm  *comm = t->c.comm;
    dra_status st = dra_ranks_settle(t, writes ? open_place(t, err) : DRA_OK, err);
    if (st == DRA_OK) st = dra_ranks_compare(t, make_parts(t, err), err);
    if (st == DRA_OK) st = dra_comm_agree(comm, writes ? open_folder(t, err) : DRA_OK, err);
    if (st == DRA_OK) st = dra_ranks_check_weights(t, load_run(t, err), err);
    if (st == DRA_OK) st = dra_comm_agree(comm, writes ? dra_trainer_begin(t, err) : DRA_OK, err);
    if (st == DRA_OK) st = dra_comm_agree(comm, dra_trainer_open_references(t, err), err);
    return st == DRA_OK ? dra_comm_agree(comm, writes ? begin_folder(t, err) : DRA_OK, err) : st;
}

dra_status dra_trainer_create(const dra_trainer_config *c, dra_trainer **out, dra_error *err)
{
    *out = NULL;
    if (!c->folder || !c->train || !c->device || !c->model || !(c->data || c->examples))
        return dra_fail(err, DRA_ERR_VALUE, "train: no folder, config, device, model or data");
    dra_trainer *t = calloc(1, sizeof *t);
    if (!t) return dra_fail(err, DRA_ERR_MEMORY, "train: out of memory");
    t->c = *c;
    t->home = t->lock = t->stage = -1;
    t->saved = -1;
    t->log.fd = -1;
    t->event = (dra_event){.eval_loss = NAN};
    dra_status st = create_trainer(t, err);
    /* Another process that is creating these files is the real reason. */
    if (st != DRA_OK && dra_trainer_writes(t) && t->lock < 0 &&
        dra_trainer_check_alone(t, err) != DRA_OK)
        st = DRA_ERR_FILE;
    if (st != DRA_OK && dra_trainer_here(t, err) != DRA_OK) st = DRA_ERR_FILE;
    if (st == DRA_OK)
        *out = t;
    else
        dra_trainer_destroy(t);
    return st;
}

void dra_trainer_destroy(dra_trainer *t)
{
    if (!t) return;
    for (int64_t k = 0; t->states && k < t->at.train.accumulate; k++)
        dra_states_destroy(t->states[k]);
    free(t->states);
    free(t->share);
    free(t->results);
    free(t->reference[0]);
    free(t->reference[1]);
    free(t->chunk);
    dra_reader_destroy(t->reader);
    dra_batches_destroy(t->eval);
    dra_batches_destroy(t->batches);
    dra_optimizer_destroy(t->optimizer);
    dra_sums_destroy(t->sums);
    dra_gradients_destroy(t->gradients);
    dra_weights_destroy(t->weights);
    dra_runlog_close(&t->log);
    dra_trainer_leave(t);
    free(t);
}

const dra_weights *dra_trainer_weights(const dra_trainer *t) { return t->weights; }

/* ---- what is to come ------------------------------------------------------------------------- */

dra_status dra_trainer_look(dra_trainer *t, dra_trainer_plan *out, dra_error *err)
{
    const dra_specs           *params = dra_model_params(t->c.model);
    const dra_optimizer_config optimizer = dra_train_optimizer(&t->at.train);
    *out = (dra_trainer_plan){.train = t->at.train,
                              .first = t->at.step,
                              .parameters = dra_model_param_count(t->c.model),
                              .data_tokens = dra_batches_tokens(t->batches),
                              .eval_tokens = t->eval ? dra_batches_tokens(t->eval) : 0,
                              .data_examples = dra_batches_examples(t->batches),
                              .eval_examples = t->eval ? dra_batches_examples(t->eval) : 0,
                              .moments = dra_optimizer_bytes(t->optimizer),
                              .steps_before = t->steps_before,
                              .schedule_before = t->schedule_before,
                              .stopped_early = dra_trainer_stopped_early(t)};
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        const size_t    bytes = (size_t)dra_shape_count(&p->shape) * sizeof(dra_real);
        out->weights += bytes;
        if (!p->frozen) out->gradients += bytes;
    }
    out->gradients += dra_sums_more(t->sums);
    dra_model_groups(t->c.model, out->group);
    for (int k = 0; k < DRA_PARAM_GROUPS; k++)
        out->rule[k] = dra_optimizer_group(&optimizer, t->c.model, (dra_param_group)k);
    for (int i = 0; i < out->train.stages; i++)
        out->train.stage[i].context = dra_trainer_tokens(t, i);
    const dra_status st = measure_run(t, out, err);
    out->epochs = (double)out->run_tokens / (double)out->data_tokens;
    return st;
}
