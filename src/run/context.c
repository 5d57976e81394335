/* State files to continue from: the state of B sequences, and with it
 *   logits   (B, V) real: what follows the last token
 *   seen     (B, V) bool: tokens read, for the repetition penalty
 *   weights  (2) i32: a number drawn from all weights, low half first
 * A state means nothing to other weights, even of the same shapes, so the last is compared. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "file/fail.h"
#include "model/model.h"
#include "run/generator.h"

/* Some numbers of every tensor, wherever it is stored: two trainings do not share them. */
static uint64_t sample(const dra_model *model, const dra_weights *weights)
{
    const dra_specs *specs = dra_model_params(model);
    uint64_t         h = 0xcbf29ce484222325u; /* FNV-1a */
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const size_t n = (size_t)dra_shape_count(&dra_specs_at(specs, i)->shape);
        for (size_t k = 0; k < n; k += n / 64 + 1) {
            const dra_real x = dra_weights_number(weights, i, k);
            unsigned char  bytes[sizeof x];
            memcpy(bytes, &x, sizeof x);
            for (size_t b = 0; b < sizeof x; b++) h = (h ^ bytes[b]) * 0x100000001b3u;
        }
    }
    return h;
}

dra_status dra_context_save(const dra_model *model, const dra_weights *weights,
                            const dra_context *context, const char *path, dra_error *err)
{
    const int64_t         B = dra_states_batch(context->states);
    const int64_t         V = dra_model_config_of(model)->vocab;
    const uint64_t        h = sample(model, weights);
    const int32_t         halves[2] = {(int32_t)(uint32_t)h, (int32_t)(uint32_t)(h >> 32)};
    const dra_tensor_item extra[] = {
        {DRA_BESIDE "logits", DRA_REAL, DRA_SHAPE(B, V), context->logits},
        {DRA_BESIDE "seen", DRA_BOOL, DRA_SHAPE(B, V), context->seen},
        {DRA_BESIDE "weights", DRA_I32, DRA_SHAPE(2), halves},
    };
    return dra_states_save_with(context->states, dra_model_fingerprint(model), path,
                                sizeof extra / sizeof *extra, extra, err);
}

/* ---- loading --------------------------------------------------------------------------------- */

void dra_context_free(dra_context *context)
{
    dra_states_destroy(context->states);
    free(context->logits);
    free(context->seen);
    *context = (dra_context){0};
}

static dra_status check_weights(const dra_tensors *file, uint64_t expected, const char *path,
                                dra_error *err)
{
    int32_t          halves[2];
    const dra_status st = dra_tensors_read(file, DRA_BESIDE "weights", DRA_I32, DRA_SHAPE(2),
                                           halves, err);
    if (st != DRA_OK) return st;
    const uint64_t found = (uint64_t)(uint32_t)halves[1] << 32 | (uint32_t)halves[0];
    if (found == expected) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_VALUE, path,
                       "a state of other weights, %016" PRIx64 ", expected %016" PRIx64, found,
                       expected);
}

static dra_status read_extra(const dra_tensors *file, const char *path, int64_t V, dra_context *out,
                             dra_error *err)
{
    const dra_shape shape = DRA_SHAPE(dra_states_batch(out->states), V);
    const size_t    n = (size_t)dra_shape_count(&shape);
    out->logits = calloc(n + 1, sizeof *out->logits);
    out->seen = calloc(n + 1, sizeof *out->seen);
    if (!out->logits || !out->seen) return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory");
    const dra_status st = dra_tensors_read(file, DRA_BESIDE "logits", DRA_REAL, shape, out->logits,
                                           err);
    return st == DRA_OK ? dra_tensors_read(file, DRA_BESIDE "seen", DRA_BOOL, shape, out->seen, err)
                        : st;
}

dra_status dra_context_load(dra_device *device, const dra_model *model, const dra_weights *weights,
                            const char *path, dra_context *out, dra_error *err)
{
    dra_tensors *file = NULL;
    *out = (dra_context){0};
    dra_status st = dra_states_load(device, dra_model_state(model), dra_model_fingerprint(model),
                                    path, &out->states, err);
    if (st == DRA_OK) st = dra_tensors_open(path, &file, err);
    if (st == DRA_OK) st = check_weights(file, sample(model, weights), path, err);
    if (st == DRA_OK) st = read_extra(file, path, dra_model_config_of(model)->vocab, out, err);
    dra_tensors_close(file);
    if (st != DRA_OK) dra_context_free(out);
    return st;
}

/* ---- generators ------------------------------------------------------------------------------ */

dra_status dra_generator_save(dra_generator *g, const char *path, dra_error *err)
{
    dra_status st = dra_generator_flush_pending(g, err);
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++)
        if (!g->row[b].begun)
            st = dra_fail(err, DRA_ERR_VALUE, "generator: row %lld has read nothing to save",
                          (long long)b);
    if (st != DRA_OK) return st;
    const dra_context context = {g->states, g->logits, g->seen};
    return dra_context_save(g->config.model, g->config.weights, &context, path, err);
}

/* Row b becomes as sequence b of the context, or as its only one. */
static void adopt(dra_generator *g, const dra_context *c, const int64_t *from)
{
    const size_t V = (size_t)g->V;
    for (int64_t b = 0; b < g->config.rows; b++) {
        const size_t at = (size_t)from[b] * V, to = (size_t)b * V;
        memcpy(g->logits + to, c->logits + at, V * sizeof *c->logits);
        memcpy(g->seen + to, c->seen + at, V * sizeof *c->seen);
        g->row[b].begun = true;
        g->row[b].next = -1;
    }
}

dra_status dra_generator_load(dra_generator *g, const char *path, dra_error *err)
{
    const int64_t rows = g->config.rows;
    dra_context   c = {0};
    dra_states   *all = NULL;
    int64_t      *from = calloc((size_t)rows, sizeof *from);
    dra_status    st = from ? dra_context_load(g->config.device, g->config.model, g->config.weights,
                                               path, &c, err)
                            : dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory");
    const int64_t B = st == DRA_OK ? dra_states_batch(c.states) : 0;
    if (st == DRA_OK && B != 1 && B != rows)
        st = dra_fail_at(err, DRA_ERR_VALUE, path, "%lld sequences, expected %lld", (long long)B,
                         (long long)rows);
    for (int64_t b = 0; b < rows && st == DRA_OK; b++) from[b] = B == 1 ? 0 : b;
    if (st == DRA_OK) st = dra_states_gather(c.states, rows, from, &all, err);
    if (st == DRA_OK) {
        adopt(g, &c, from);
        dra_states_destroy(g->states);
        g->states = all;
    }
    dra_context_free(&c);
    free(from);
    return st;
}
