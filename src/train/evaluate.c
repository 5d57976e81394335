/* The loss and the measures of a model over all batches, without learning. */
#include <string.h>

#include "base/error.h"
#include "train/batches.h"

double dra_batch_cut(const dra_batch *b, int64_t first, int64_t n, dra_batch_part *room,
                     dra_microbatch *q)
{
    const int64_t at = first * b->T;
    double        counts = 0;
    q->B = n;
    q->T = b->T;
    q->ids = b->ids ? b->ids + at : NULL;
    q->targets = b->targets ? b->targets + at : NULL;
    q->mark = b->marked ? b->mark + at : NULL;
    q->n_inputs = b->n_inputs;
    q->inputs = room->input;
    for (int i = 0; i < b->n_inputs; i++) {
        const size_t each = b->input[i].bytes / (size_t)b->B;
        room->input[i] = (dra_named){b->input[i].name,
                                     (const char *)b->input[i].data + (size_t)first * each,
                                     (size_t)n * each};
    }
    room->context = (dra_context_text){.T = b->context.T};
    if (b->context.T) room->context.mark = b->context.mark + first * b->context.T;
    q->context = b->context.T ? &room->context : NULL;
    for (int64_t r = first; r < first + n; r++) counts += b->counts[r];
    return counts;
}

void dra_objective_show(dra_objective_kind kind, const dra_model *m, double loss, double *measure)
{
    const dra_objective *o = dra_objective_of(kind, m);
    for (int k = 0; k < DRA_MEASURES && o->measures[k].name; k++)
        measure[k] = dra_measure_show(&o->measures[k], o->measures[k].of_loss ? loss : measure[k]);
}

static dra_status add_batch(dra_batches *b, int64_t i, dra_gradients *l, dra_evaluation *out,
                            dra_error *err)
{
    dra_microbatch        q = {.add = true, .only_loss = true};
    dra_microbatch_result r;
    dra_batch_part        room;
    dra_batch             batch;
    dra_status            st = dra_batches_read(b, i, 0, &batch, err);
    if (st != DRA_OK) return st;
    const double counts = dra_batch_cut(&batch, 0, batch.B, &room, &q);
    if (counts == 0) return DRA_OK;
    st = dra_gradients_run(l, &q, &r, err);
    if (st != DRA_OK) return st;
    out->loss += counts * r.loss;
    for (int k = 0; k < DRA_MEASURES; k++) out->measure[k] += counts * r.measure[k];
    out->count += counts;
    out->tokens += batch.tokens;
    return DRA_OK;
}

dra_status dra_batches_evaluate(dra_batches *b, dra_gradients *l, dra_evaluation *out,
                                dra_error *err)
{
    const int64_t steps = dra_batches_steps(b);
    dra_status    st = DRA_OK;
    *out = (dra_evaluation){0};
    for (int64_t i = 0; i < steps && st == DRA_OK; i++) {
        st = add_batch(b, i, l, out, err);
        if (st == DRA_OK && b->c.progress) b->c.progress(b->c.user, i + 1, steps);
    }
    if (st == DRA_OK && out->count == 0)
        st = dra_fail(err, DRA_ERR_VALUE, "evaluate: no target of the data counts");
    if (st != DRA_OK) return st;
    out->loss /= out->count;
    for (int k = 0; k < DRA_MEASURES; k++) out->measure[k] /= out->count;
    dra_objective_show(b->c.objective.kind, b->c.model, out->loss, out->measure);
    return DRA_OK;
}
