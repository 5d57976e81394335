/* Settings of a run that follow from its model and its data. */
#include "steps.h"
#include "io/model.h"

#include <math.h>

enum { STEPS = 1000, SAMPLES = 4 };

/* Batches as a trainer makes them. */
static dra_status count_steps(const cli_train_data *d, const dra_train_config *c, int64_t *steps,
                              dra_error *err)
{
    const bool               whole = d->examples && !c->stages; /* rows as long as they are */
    const double             to = d->evaluated ? 1 : 1 - fmax(0, c->split);
    dra_train_config         full = *c;
    dra_batches             *b = NULL;
    dra_status               st = dra_train_config_complete(&full, d->model, err);
    const dra_batches_config batches = {.model = d->model,
                                        .objective = full.objective,
                                        .corpus = d->data,
                                        .examples = d->examples,
                                        .B = full.batch,
                                        .T = whole ? 0 : full.stage[0].context,
                                        .to = to,
                                        .carry = full.carry,
                                        .cross = full.cross};
    if (st == DRA_OK) st = dra_batches_create(&batches, &b, err);
    if (st == DRA_OK) *steps = dra_batches_steps(b);
    dra_batches_destroy(b);
    return st;
}

dra_status cli_train_epochs(const cli_train_data *d, double epochs, dra_train_config *c,
                            dra_error *err)
{
    int64_t each = 0;
    if (c->stages > 1)
        return cli_error(err, DRA_ERR_VALUE,
                         "--epochs: expected one --context, found several; say --steps instead");
    const dra_status st = count_steps(d, c, &each, err);
    if (st == DRA_OK) c->steps = (int64_t)fmin(1e12, fmax(1, ceil(epochs * (double)each)));
    return st;
}

static bool writes_text(const cli_train_data *d)
{
    const dra_model_config *c = dra_model_config_of(d->model);
    return d->tokenizer && d->data && dra_model_config_is_language(c) &&
           c->visible != DRA_VISIBLE_BIDIRECTIONAL;
}

void cli_train_samples(const cli_train_data *d, dra_train_config *c)
{
    const int64_t steps = c->steps ? c->steps : STEPS, every = (steps + SAMPLES / 2) / SAMPLES;
    if (c->sample_every == 0 && writes_text(d)) c->sample_every = every ? every : 1;
}
