/* The reference of DPO: how likely each text of a pair was before training. */
#include <stdlib.h>

#include "base/error.h"
#include "train/batches.h"

typedef struct reading {
    dra_batches *batches;
    dra_view     view;
    dra_reader  *reader;
    dra_states  *states;
    int64_t      B;
} reading;

static dra_status open_reading(reading *r, dra_device *device, const dra_weights *w,
                               const dra_batches_config *c, dra_error *err)
{
    dra_batches_config all = *c;
    all.from = 0, all.to = 1, all.once = true;
    r->B = c->B;
    r->view = (dra_view){.model = c->model, .losses = true};
    const dra_module module = dra_view_module(&r->view);
    dra_status       st = dra_batches_create(&all, &r->batches, err);
    if (st == DRA_OK) st = dra_reader_create(device, &module, &r->reader, err);
    if (st == DRA_OK) st = dra_weights_bind(w, r->reader, err);
    return st == DRA_OK ? dra_states_create(device, module.state, c->B, &r->states, err) : st;
}

static dra_status read_batch(reading *r, int64_t i, dra_real *out, dra_error *err)
{
    dra_batch  b;
    dra_status st = dra_batches_read(r->batches, i, 0, &b, err);
    if (st == DRA_OK) st = dra_states_reset(r->states, -1, err);
    if (st != DRA_OK) return st;
    const size_t    bytes = (size_t)(b.B * b.T) * sizeof *b.ids;
    const dra_named in[] = {{"ids", b.ids, bytes}, {"targets", b.targets, bytes}};
    st = dra_reader_read(r->reader, r->states, b.T, b.mark, 2, in, err);
    if (st != DRA_OK) return st;
    const dra_real *losses = dra_reader_result(r->reader, "losses");
    if (!losses) return dra_fail(err, DRA_ERR_MEMORY, "reference: out of memory");
    for (int64_t k = 0; k < b.B; k++) {
        double sum = 0;
        for (int64_t t = k * b.T; t < (k + 1) * b.T; t++)
            sum += b.targets[t] >= 0 ? (double)losses[t] : 0;
        if (r->batches->rows[k] < 0 || b.counts[k] == 0) continue;
        out[2 * r->batches->rows[k] + k % 2] = (dra_real)(-sum / b.counts[k]);
    }
    return DRA_OK;
}

dra_status dra_reference_make(dra_device *device, const dra_weights *w, const dra_batches_config *c,
                              dra_real **out, dra_error *err)
{
    const size_t n = 2 * (size_t)dra_examples_count(c->examples);
    reading      r = {0};
    dra_status   st = open_reading(&r, device, w, c, err);
    *out = calloc(n, sizeof **out);
    if (st == DRA_OK && !*out) st = dra_fail(err, DRA_ERR_MEMORY, "reference: out of memory");
    for (int64_t i = 0; st == DRA_OK && i < dra_batches_steps(r.batches); i++)
        st = read_batch(&r, i, *out, err);
    dra_states_destroy(r.states);
    dra_reader_destroy(r.reader);
    dra_batches_destroy(r.batches);
    return st;
}
