/* dra grad with targets in its file: inputs as for `dra forward`, and nothing is shifted.
 *   tokens             cross entropy of targets (B, T); of xVal also target_nums
 *   vectors, hidden    the squared error of targets (B, T, width), except at pads
 * So it also takes encoders, stacks without a head, and models that read vectors before or beside
 * their text. */
#include "grad.h"

#include <stdlib.h>

dra_status grad_has_targets(const char *path, bool *has, dra_error *err)
{
    const dra_examples_config config = {.path = path, .B = 1};
    dra_examples             *e = NULL;
    const dra_status          st = dra_examples_open(&config, &e, err);
    *has = st == DRA_OK && dra_examples_find(e, "targets");
    dra_examples_close(e);
    return st;
}

typedef struct given {
    cli_inputs           in;
    dra_objective_config objective;
    dra_context_text     context;
    dra_real            *weights; /* (B, T) of vectors: 0 is a pad */
    dra_named            named[CLI_NAMED + 2];
    dra_microbatch       microbatch;
} given;

static void add_input(given *w, const char *name, const void *data, size_t bytes)
{
    w->named[w->microbatch.n_inputs++] = (dra_named){name, data, bytes};
}

static dra_status no_memory(dra_error *err)
{
    return cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

/* ---- what is compared ------------------------------------------------------------------------ */

static dra_status put_tokens(given *w, const dra_model_config *c, dra_error *err)
{
    const size_t n = (size_t)(w->in.B * w->in.T);
    w->objective.kind = c->head.numbers ? DRA_OBJECTIVE_XVAL : DRA_OBJECTIVE_NEXT;
    w->microbatch.targets = w->in.targets;
    if (!c->head.numbers) return DRA_OK;
    w->objective.number_weight = 1;
    if (!w->in.goals)
        return cli_error(err, DRA_ERR_NAME, "--inputs: expected a tensor target_nums, too");
    add_input(w, "numbers", w->in.goals, n * sizeof *w->in.goals);
    return DRA_OK;
}

static dra_status put_vectors(given *w, const dra_model *m, dra_error *err)
{
    const int64_t n = w->in.B * w->in.T;
    w->objective.kind = DRA_OBJECTIVE_SQUARED;
    w->weights = calloc((size_t)n + 1, sizeof *w->weights);
    if (!w->weights) return no_memory(err);
    for (int64_t i = 0; i < n; i++) w->weights[i] = cli_is_pad(&w->in, i) ? 0 : 1;
    add_input(w, "y", w->in.goals, (size_t)(n * dra_model_head_width(m)) * sizeof *w->in.goals);
    add_input(w, "weights", w->weights, (size_t)n * sizeof *w->weights);
    return DRA_OK;
}

/* ---- the microbatch -------------------------------------------------------------------------- */

static dra_status read_all(const char *path, const cli_model *m, given *w, dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(m->model);
    const cli_named_config  named = {.path = path, .context = true, .hidden = true, .start = -1};
    cli_inputs             *in = &w->in;
    dra_status              st = cli_named_read(m->model, &named, in, err);
    for (int64_t b = 0; b < in->B && st == DRA_OK; b++)
        st = cli_inputs_positions(m->model, in, b, 0, err);
    if (st != DRA_OK) return st;
    w->microbatch = (dra_microbatch){
        .B = in->B, .T = in->T, .mark = in->mark, .inputs = w->named, .no_dropout = true};
    for (int i = 0; i < in->n_named; i++)
        add_input(w, in->named[i].name, in->named[i].data, (size_t)in->B * in->named[i].row);
    w->context = (dra_context_text){in->S, in->context_mark};
    if (in->S) w->microbatch.context = &w->context;
    return c->head.kind == DRA_HEAD_TOKENS ? put_tokens(w, c, err) : put_vectors(w, m->model, err);
}

static int64_t count_targets(const given *w)
{
    int64_t n = 0;
    for (int64_t i = 0; i < w->in.B * w->in.T; i++)
        n += w->in.targets ? w->in.targets[i] >= 0 : !cli_is_pad(&w->in, i);
    return n;
}

dra_status grad_given(const char *path, const cli_model *m, dra_microbatch_result *result,
                      dra_gradients **out, dra_error *err)
{
    given      w = {0};
    dra_status st = read_all(path, m, &w, err);
    *out = NULL;
    if (st == DRA_OK && !count_targets(&w))
        st = cli_error(err, DRA_ERR_VALUE, "nothing to learn from: no target counts");
    const dra_gradients_config config = {.model = m->model,
                                         .device = m->device,
                                         .objective = w.objective.kind,
                                         .terms = w.objective};
    if (st == DRA_OK) st = dra_gradients_create(&config, out, err);
    if (st == DRA_OK) st = dra_gradients_bind(*out, m->weights, err);
    if (st == DRA_OK) st = dra_gradients_run(*out, &w.microbatch, result, err);
    free(w.weights);
    cli_inputs_free(&w.in);
    return st;
}
