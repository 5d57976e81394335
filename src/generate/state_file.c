/* State files to continue from: the state of B sequences, and with it
 *   logits   (B, V) real: what follows the last token
 *   seen     (B, V) bool: tokens read, for the repetition penalty
 *   weights  (2) i32: dra_weights_fingerprint(), low half first
 *   expert   (2) i32, of an amateur's state: the hash of the logits of its expert
 * A state means nothing to other weights, even of the same shapes, so these numbers are compared.
 * The states of amateurs are files of their own, so that the expert's is the same file it would be
 * without them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/shape.h"
#include "file/fail.h"
#include "model/model.h"
#include "generate/generator.h"

enum { PATH_TEXT = 4096 };

typedef struct expert { /* what an amateur's state belongs to */
    const dra_real *logits;
    size_t          bytes;
} expert;

static expert expert_of(int64_t B, int64_t V, const dra_real *logits)
{
    return (expert){logits, (size_t)B * (size_t)V * sizeof *logits};
}

static uint64_t expert_number(const expert *e) { return dra_hash_of(0, e->logits, e->bytes); }

typedef struct halves {
    int32_t x[2];
} halves;

static halves halves_of(uint64_t h)
{
    return (halves){{(int32_t)(uint32_t)h, (int32_t)(uint32_t)(h >> 32)}};
}

/* `of` what the state is, if an amateur's; NULL: it is on its own. */
static dra_status save_state(const dra_model *model, const dra_weights *weights,
                             const dra_context *context, const expert *of, const char *path,
                             dra_error *err)
{
    const int64_t    B = dra_states_batch(context->states);
    const int64_t    V = dra_model_config_of(model)->vocab;
    uint64_t         number = 0;
    const dra_status st = dra_weights_fingerprint(weights, &number, err);
    if (st != DRA_OK) return st;
    const halves          own = halves_of(number);
    const halves          other = halves_of(of ? expert_number(of) : 0);
    const dra_tensor_item extra[] = {
        {DRA_BESIDE "logits", DRA_REAL, DRA_SHAPE(B, V), context->logits},
        {DRA_BESIDE "seen", DRA_BOOL, DRA_SHAPE(B, V), context->seen},
        {DRA_BESIDE "weights", DRA_I32, DRA_SHAPE(2), own.x},
        {DRA_BESIDE "expert", DRA_I32, DRA_SHAPE(2), other.x},
    };
    return dra_states_save_with(context->states, dra_model_fingerprint(model), path,
                                sizeof extra / sizeof *extra - !of, extra, err);
}

dra_status dra_context_save(const dra_model *model, const dra_weights *weights,
                            const dra_context *context, const char *path, dra_error *err)
{
    return save_state(model, weights, context, NULL, path, err);
}

/* ---- loading --------------------------------------------------------------------------------- */

void dra_context_free(dra_context *context)
{
    dra_states_destroy(context->states);
    free(context->logits);
    free(context->seen);
    for (int i = 0; i < context->amateurs; i++) dra_context_free(&context->amateur[i]);
    free(context->amateur);
    free(context->grammar);
    *context = (dra_context){0};
}

/* Whether a number of the file is as expected; `what` it is a state of, if not. */
static dra_status check_number(const dra_tensors *file, const char *name, uint64_t expected,
                               const char *path, const char *what, dra_error *err)
{
    halves           h = {0};
    const dra_status st = dra_tensors_read(file, name, DRA_I32, DRA_SHAPE(2), h.x, err);
    if (st != DRA_OK) return st;
    const uint64_t found = (uint64_t)(uint32_t)h.x[1] << 32 | (uint32_t)h.x[0];
    if (found == expected) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_VALUE, path,
                       "a state of %s, %016" PRIx64 ", expected %016" PRIx64, what, found,
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

/* A state of these weights and, if an amateur's, of this expert. */
static dra_status check_owner(const dra_tensors *file, const dra_model *model,
                              const dra_weights *weights, const expert *of, const char *path,
                              dra_error *err)
{
    uint64_t   number = 0;
    dra_status st = dra_weights_fingerprint(weights, &number, err);
    if (st == DRA_OK)
        st = check_number(file, DRA_BESIDE "weights", number, path, "other weights", err);
    if (st != DRA_OK || !of) return st;
    return check_number(file, DRA_BESIDE "expert", expert_number(of), path,
                        "an amateur next to another state", err);
}

static dra_status load_state(dra_device *device, const dra_model *model, const dra_weights *weights,
                             const expert *of, const char *path, dra_context *out, dra_error *err)
{
    dra_tensors *file = NULL;
    *out = (dra_context){0};
    dra_status st = dra_states_load(device, dra_model_state(model), dra_model_fingerprint(model),
                                    path, &out->states, err);
    if (st == DRA_OK) st = dra_tensors_open(path, &file, err);
    if (st == DRA_OK) st = check_owner(file, model, weights, of, path, err);
    if (st == DRA_OK) st = read_extra(file, path, dra_model_config_of(model)->vocab, out, err);
    dra_tensors_close(file);
    if (st != DRA_OK) dra_context_free(out);
    return st;
}

dra_status dra_context_load(dra_device *device, const dra_model *model, const dra_weights *weights,
                            const char *path, dra_context *out, dra_error *err)
{
    return load_state(device, model, weights, NULL, path, out, err);
}

/* ---- amateurs -------------------------------------------------------------------------------- */

static dra_status amateur_path(const char *path, int i, char text[PATH_TEXT], dra_error *err)
{
    const int n = snprintf(text, PATH_TEXT, "%s.amateur%d", path, i + 1);
    if (n > 0 && n < PATH_TEXT) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_VALUE, path, "the path is too long");
}

static dra_status save_amateurs(const dra_generator *g, const dra_context *c, const char *path,
                                dra_error *err)
{
    const expert of = expert_of(g->config.rows, g->V, c->logits);
    dra_status   st = DRA_OK;
    for (int i = 0; i < g->config.n_amateurs && st == DRA_OK; i++) {
        const dra_amateur *a = &g->config.amateurs[i];
        char               file[PATH_TEXT];
        st = amateur_path(path, i, file, err);
        if (st == DRA_OK) st = save_state(a->model, a->weights, &c->amateur[i], &of, file, err);
    }
    return st;
}

static dra_status load_amateurs(const dra_generator *g, const char *path, dra_context *out,
                                dra_error *err)
{
    const int64_t B = dra_states_batch(out->states);
    const expert  of = expert_of(B, g->V, out->logits);
    const int     n = g->config.n_amateurs;
    dra_status    st = DRA_OK;
    if (n == 0) return DRA_OK;
    out->amateur = calloc((size_t)n, sizeof *out->amateur);
    if (!out->amateur) return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory");
    out->amateurs = n;
    for (int i = 0; i < n && st == DRA_OK; i++) {
        const dra_amateur *a = &g->config.amateurs[i];
        char               file[PATH_TEXT];
        st = amateur_path(path, i, file, err);
        if (st == DRA_OK)
            st = load_state(g->config.device, a->model, a->weights, &of, file, &out->amateur[i],
                            err);
        if (st == DRA_OK && dra_states_batch(out->amateur[i].states) != B)
            st = dra_fail_at(err, DRA_ERR_VALUE, file, "%lld sequences, expected %lld",
                             (long long)dra_states_batch(out->amateur[i].states), (long long)B);
    }
    return st;
}

/* ---- generators ------------------------------------------------------------------------------ */

dra_status dra_generator_save(dra_generator *g, const char *path, dra_error *err)
{
    dra_context c;
    dra_status  st = dra_generator_keep_all(g, &c, err);
    if (st == DRA_OK) st = save_amateurs(g, &c, path, err);
    if (st == DRA_OK) st = dra_context_save(g->config.model, g->config.weights, &c, path, err);
    dra_context_free(&c);
    return st;
}

dra_status dra_generator_load(dra_generator *g, const char *path, dra_error *err)
{
    const int64_t rows = g->config.rows;
    dra_context   c;
    dra_status st = dra_context_load(g->config.device, g->config.model, g->config.weights, path, &c,
                                     err);
    const int64_t B = st == DRA_OK ? dra_states_batch(c.states) : 0;
    if (st == DRA_OK && B != 1 && B != rows)
        st = dra_fail_at(err, DRA_ERR_VALUE, path, "%lld sequences, expected %lld", (long long)B,
                         (long long)rows);
    if (st == DRA_OK) st = load_amateurs(g, path, &c, err);
    if (st == DRA_OK) st = dra_generator_adopt_all(g, &c, err);
    dra_context_free(&c);
    return st;
}
