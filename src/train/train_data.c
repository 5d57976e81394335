/* Opens and checks the data of a run, texts or examples, and those to evaluate on. */
#include <stdlib.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/seal.h"
#include "train/batches.h"
#include "train/gradients.h"
#include "train/ranks.h"
#include "train/train.h"

int64_t dra_trainer_tokens(const dra_trainer *t, int stage)
{
    return t->c.examples ? dra_batches_longest(t->batches) : t->at.train.stage[stage].context;
}

int64_t dra_trainer_context(const dra_trainer *t)
{
    int64_t most = 0;
    for (int i = 0; i < t->at.train.stages; i++) most = dra_imax(most, dra_trainer_tokens(t, i));
    return most;
}

static dra_batches_config batches_of(const dra_trainer *t, int64_t B, int64_t T)
{
    const dra_train_config *c = &t->at.train;
    return (dra_batches_config){.model = t->c.model,
                                .objective = c->objective,
                                .corpus = t->c.data,
                                .examples = t->c.examples,
                                .B = B,
                                .T = T,
                                .carry = c->carry,
                                .cross = c->cross};
}

static bool has_eval_data(const dra_trainer *t) { return t->c.eval_data || t->c.eval_examples; }

/* Chooses how much of a row a new run on examples reads, if it was not told. */
static bool reads_all(const dra_trainer *t)
{
    return t->c.examples && !t->c.train->stages && t->saved < 0;
}

dra_status dra_trainer_open_stage(dra_trainer *t, int stage, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    dra_batches_config      b = batches_of(t, c->batch, c->stage[stage].context);
    if (reads_all(t)) b.T = 0;
    b.seed = (uint64_t)c->seed;
    b.to = has_eval_data(t) ? 1 : 1 - c->split;
    b.state_dropout = c->state_dropout;
    b.forgetful_mask = c->forgetful_mask;
    if (t->stage == stage) return DRA_OK;
    dra_batches_destroy(t->batches);
    t->batches = NULL;
    t->stage = -1;
    const dra_status st = dra_batches_create(&b, &t->batches, err);
    if (st != DRA_OK) return st;
    const int64_t rows = c->batch / c->accumulate;
    t->stage = stage;
    if (!t->c.examples) dra_batches_take_part(t->batches, t->own.first * rows, t->own.n * rows);
    return DRA_OK;
}

static dra_status check_tokens(const dra_trainer *t, const dra_corpus *data, dra_error *err)
{
    const int64_t V = dra_model_config_of(t->c.model)->vocab;
    if (dra_corpus_largest(data) < V) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "data: token %ld, but the model's vocab is %lld",
                    (long)dra_corpus_largest(data), (long long)V);
}

/* Examples have rows of their own. */
static dra_status check_rows(const dra_trainer *t, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    const char             *what = c->carry              ? "carry"
                                   : c->cross            ? "cross"
                                   : c->stages > 1       ? "several contexts"
                                   : c->sample_every > 0 ? "sample_every"
                                                         : NULL;
    if (what)
        return dra_fail(err, DRA_ERR_VALUE, "train: %s: the data are examples, expected texts",
                        what);
    if (c->chunk && c->objective.kind != DRA_OBJECTIVE_OWN)
        return dra_fail(err, DRA_ERR_VALUE, "train: chunk: objective %s needs whole rows",
                        dra_objective_name(c->objective.kind, t->c.model));
    if (c->objective.kind != DRA_OBJECTIVE_DPO || c->batch / c->accumulate % 2 == 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "objective dpo: %lld rows of a microbatch, expected pairs of rows",
                    (long long)(c->batch / c->accumulate));
}

dra_status dra_trainer_open_data(dra_trainer *t, dra_error *err)
{
    dra_status st = t->c.examples ? check_rows(t, err) : check_tokens(t, t->c.data, err);
    if (st == DRA_OK && t->c.eval_data) st = check_tokens(t, t->c.eval_data, err);
    if (st == DRA_OK)
        st = dra_trainer_open_stage(t, dra_train_stage(&t->at.train, t->at.step), err);
    if (st != DRA_OK) return st;
    if (reads_all(t)) t->at.train.stage[0].context = dra_batches_longest(t->batches);
    if (t->saved >= 0 && dra_batches_fingerprint(t->batches) != t->at.data && !t->c.force)
        return dra_fail_at(err, DRA_ERR_VALUE, t->c.folder,
                           "was trained on other data (or by another tokenizer); force continues");
    return DRA_OK;
}

static dra_status open_reader(dra_trainer *t, dra_error *err)
{
    t->view = (dra_view){.model = t->c.model, .losses = true};
    const dra_module module = dra_view_module(&t->view);
    const dra_status st = dra_reader_create(t->c.device, &module, &t->reader, err);
    if (st == DRA_OK)
        dra_session_share(dra_reader_session(t->reader), dra_gradients_session(t->gradients));
    return st;
}

dra_status dra_trainer_open_eval(dra_trainer *t, dra_error *err)
{
    const dra_train_config *c = &t->at.train;
    dra_batches_config      b = batches_of(t, t->rows, dra_trainer_context(t));
    if (!has_eval_data(t) && c->split == 0 && c->early_stop > 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "train: early_stop is %lld, but there is nothing to evaluate on (a split "
                        "or evaluation data)",
                        (long long)c->early_stop);
    if (!has_eval_data(t) && c->split == 0) return DRA_OK;
    if (t->c.eval_data) b.corpus = t->c.eval_data;
    if (t->c.eval_examples) b.examples = t->c.eval_examples;
    b.from = has_eval_data(t) ? 0 : 1 - c->split;
    b.to = 1;
    b.once = true;
    const dra_status st = dra_batches_create(&b, &t->eval, err);
    return st == DRA_OK && !t->c.examples ? open_reader(t, err) : st;
}

/* ---- the reference of pairs of texts --------------------------------------------------------- */

/* A file of the run, computed from the weights that it starts from. */
static dra_status load_reference(const char *path, int64_t n, dra_real **out, dra_error *err)
{
    dra_tensors *file = NULL;
    dra_status   st = dra_tensors_open(path, &file, err);
    if (st == DRA_OK) st = dra_tensors_check(file, err);
    *out = calloc(2 * (size_t)n, sizeof **out);
    if (st == DRA_OK && !*out) st = dra_fail(err, DRA_ERR_MEMORY, "train: out of memory");
    if (st == DRA_OK)
        st = dra_tensors_read(file, "reference", DRA_REAL, DRA_SHAPE(n, 2), *out, err);
    dra_tensors_close(file);
    return st;
}

static dra_status find_reference(dra_trainer *t, const char *name, const dra_examples *e,
                                 dra_real **out, dra_error *err)
{
    const int64_t      n = dra_examples_count(e);
    dra_batches_config c = batches_of(t, t->rows, dra_trainer_context(t));
    char               path[DRA_PATH];
    dra_status         st = dra_path(path, err, "%s/train/%s.safetensors", t->c.folder, name);
    c.examples = e;
    if (st == DRA_OK && t->saved >= 0) return load_reference(path, n, out, err);
    if (st == DRA_OK) st = dra_reference_make(t->c.device, t->weights, &c, out, err);
    if (!dra_trainer_writes(t)) return st;
    const dra_tensor_item item = {"reference", DRA_REAL, DRA_SHAPE(n, 2), *out};
    return st == DRA_OK ? dra_tensors_write_sealed(path, &item, 1, NULL, 0, err) : st;
}

dra_status dra_trainer_open_references(dra_trainer *t, dra_error *err)
{
    const dra_examples *other = t->c.eval_examples;
    if (t->at.train.objective.kind != DRA_OBJECTIVE_DPO) return DRA_OK;
    dra_status st = find_reference(t, "reference", t->c.examples, &t->reference[0], err);
    if (st == DRA_OK && other)
        st = find_reference(t, "eval_reference", other, &t->reference[1], err);
    t->batches->all_reference = t->reference[0];
    if (t->eval) t->eval->all_reference = t->reference[other ? 1 : 0];
    return st;
}
