/* What a model makes of examples: the loss of its objective and what people read of it. */
#include "examples.h"
#include "options/status.h"
#include "options/units.h"

#include <math.h>

enum { ROWS = 16 };

static void print_result(const cli_eval_examples_job *j, const dra_evaluation *e, int64_t examples,
                         double seconds)
{
    const dra_objective_kind kind = j->objective->kind;
    const double             rate = (double)examples / fmax(seconds, 1e-9);
    char                     a[CLI_NUMBER], b[CLI_NUMBER];
    int                      bad = !isfinite(e->loss);
    if (j->json)
        printf("{\"examples\": %lld, \"tokens\": %lld, \"loss\": %s", (long long)examples,
               (long long)e->tokens, cli_json_number(e->loss, 9, a));
    else
        printf("examples             %lld\nloss                 %.6f\n", (long long)examples,
               e->loss);
    for (int k = 0; k < DRA_MEASURES_MOST; k++) {
        const char *name = dra_objective_measure(kind, j->m->model, k);
        bad += name && !isfinite(e->measure[k]);
        if (name && j->json) printf(", \"%s\": %s", name, cli_json_number(e->measure[k], 9, a));
        if (name && !j->json) printf("%-20s %.6g\n", name, e->measure[k]);
    }
    if (j->json && bad) printf(", \"not_finite\": %d", bad);
    if (j->json)
        printf(", \"examples_per_second\": %s}\n", cli_json_number(rate, 6, b));
    else
        printf("examples per second  %.4g\n", rate);
}

static void show_progress(void *status, int64_t done, int64_t total)
{
    cli_status_step(status, "evaluating", (double)done / (double)total);
}

typedef struct parts {
    cli_status     status;
    dra_examples  *examples;
    dra_batches   *batches;
    dra_gradients *measure;
} parts;

static dra_status open_parts(const cli_eval_examples_job *j, parts *p, dra_error *err)
{
    const dra_model_config    *c = dra_model_config_of(j->m->model);
    const dra_gradients_config g = {.model = j->m->model,
                                    .device = j->m->device,
                                    .objective = j->objective->kind,
                                    .terms = *j->objective};
    dra_status                 st = DRA_OK;
    if (cli_are_pairs(j->data, j->pairs, c)) st = cli_model_tokenizer(j->from, j->m, err);
    if (st == DRA_OK)
        st = cli_examples_open(j->data, j->pairs, c, j->m->tokenizer, &p->examples, err);
    const dra_batches_config b = {.model = j->m->model,
                                  .objective = *j->objective,
                                  .examples = p->examples,
                                  .B = ROWS,
                                  .once = true,
                                  .progress = show_progress,
                                  .user = &p->status};
    if (st == DRA_OK) st = dra_batches_create(&b, &p->batches, err);
    if (st == DRA_OK) st = dra_gradients_create(&g, &p->measure, err);
    return st == DRA_OK ? dra_gradients_bind(p->measure, j->m->weights, err) : st;
}

dra_status cli_eval_examples(const cli_eval_examples_job *j, dra_error *err)
{
    parts          p = {0};
    dra_evaluation found;
    cli_status_open(&p.status, stderr);
    dra_status   st = open_parts(j, &p, err);
    const double start = cli_now();
    if (st == DRA_OK) st = dra_batches_evaluate(p.batches, p.measure, &found, err);
    cli_status_clear(&p.status);
    if (st == DRA_OK) print_result(j, &found, dra_batches_examples(p.batches), cli_now() - start);
    if (st == DRA_OK && !isfinite(found.loss))
        st = cli_error(err, DRA_ERR_VALUE, "the loss is not finite");
    dra_gradients_destroy(p.measure);
    dra_batches_destroy(p.batches);
    dra_examples_close(p.examples);
    return st;
}
