/* Creating dra_gradients: names, memory, weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/array.h"
#include "train/gradients.h"

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "gradients: out of memory");
}

size_t dra_trained_offsets(const dra_specs *params, size_t *offset)
{
    size_t bytes = 0;
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        offset[i] = p->frozen ? SIZE_MAX : bytes;
        if (p->frozen) continue;
        bytes += ((size_t)dra_shape_count(&p->shape) * sizeof(dra_real) + 63) / 64 * 64;
    }
    return bytes;
}

const char *dra_metric_name(char text[DRA_NAME_TEXT], int metric)
{
    snprintf(text, DRA_NAME_TEXT, "metric.%d", metric);
    return text;
}

const char *dra_measure_name(char text[DRA_NAME_TEXT], int measure)
{
    snprintf(text, DRA_NAME_TEXT, "measure.%d", measure);
    return text;
}

static void name_inputs(dra_gradients *l)
{
    dra_session         *s = l->session;
    dra_gradients_names *n = &l->name;
    char                 text[DRA_NAME_TEXT];
    for (int i = 0; i < dra_specs_count(l->params); i++) {
        const char *name = dra_specs_at(l->params, i)->name;
        n->param[i] = dra_session_name(s, name);
        n->sum[i] = dra_session_name(s, dra_state_name(text, "sum", name));
    }
    for (int i = 0; i < dra_specs_count(l->state); i++) {
        const char *name = dra_specs_at(l->state, i)->name;
        n->state[i] = dra_session_name(s, dra_state_name(text, "state", name));
        n->upstream[i] = dra_session_name(s, dra_state_name(text, "up", name));
    }
    for (int k = 0; k < DRA_METRICS; k++)
        n->metric[k] = dra_session_name(s, dra_metric_name(text, k));
    dra_tokens_name(s, "tokens", l->state, &n->tokens);
    if (l->module.context) dra_context_name(s, &n->context);
    n->ids = dra_session_name(s, "ids");
    n->targets = -1;
    for (int i = 0; l->objective->inputs[i].name; i++)
        if (strcmp(l->objective->inputs[i].name, "targets") == 0)
            n->targets = dra_session_name(s, "targets");
    n->random = dra_session_name(s, "random");
    n->at = dra_session_name(s, "at");
    n->given_at = dra_session_name(s, "given_at");
    n->share = dra_session_name(s, "share");
    n->part = dra_session_name(s, "part");
}

static size_t largest_frozen(const dra_specs *params)
{
    int64_t most = 0;
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        if (p->frozen) most = dra_imax(most, dra_shape_count(&p->shape));
    }
    return (size_t)most;
}

static dra_status allocate_gradients(dra_gradients *l, dra_error *err)
{
    const size_t P = (size_t)dra_specs_count(l->params), S = (size_t)dra_specs_count(l->state);
    l->offset = calloc(P + 1, sizeof *l->offset);
    l->lent = calloc(P + 1, sizeof(dra_array *));
    l->name.param = calloc(2 * P + 2 * S + 1, sizeof *l->name.param);
    l->key = calloc(1, dra_gradients_key_bytes(l));
    l->zeros = calloc(largest_frozen(l->params) + 1, sizeof *l->zeros);
    if (!l->offset || !l->lent || !l->name.param || !l->key || !l->zeros) return out_of_memory(err);
    l->name.sum = l->name.param + P;
    l->name.state = l->name.sum + P;
    l->name.upstream = l->name.state + S;
    return dra_gradients_reserve(l, 1, err);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

dra_status dra_gradients_reserve(dra_gradients *l, int n, dra_error *err)
{
    const size_t bytes = dra_trained_offsets(l->params, l->offset);
    dra_status   st = DRA_OK;
    if (n <= l->blocks) return DRA_OK;
    dra_array **block = realloc(l->block, (size_t)n * sizeof(dra_array *));
    if (!block) return out_of_memory(err);
    l->block = block;
    for (; l->blocks < n && st == DRA_OK; l->blocks += st == DRA_OK)
        st = dra_array_create(l->config.device, bytes, &l->block[l->blocks], err);
    return st;
}

dra_span dra_gradients_block(const dra_gradients *l, int block)
{
    return dra_array_whole(l->block[block]);
}

/* Parameter i in a block. */
static dra_span span_in(const dra_gradients *l, int block, int i)
{
    const dra_spec *p = dra_specs_at(l->params, i);
    if (p->frozen) return (dra_span){0};
    const size_t bytes = (size_t)dra_shape_count(&p->shape) * sizeof(dra_real);
    return (dra_span){l->block[block], l->offset[i], bytes};
}

dra_span dra_gradients_span(const dra_gradients *l, int i) { return span_in(l, 0, i); }

static dra_status bind_block(dra_gradients *l, int block, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(l->params) && st == DRA_OK; i++)
        if (!dra_specs_at(l->params, i)->frozen)
            st = dra_session_bind(l->session, l->name.sum[i], span_in(l, block, i), err);
    l->into = block;
    return st;
}

dra_status dra_gradients_into(dra_gradients *l, int block, bool clear, dra_error *err)
{
    const dra_status st = clear ? dra_array_fill(dra_gradients_block(l, block), 0, err) : DRA_OK;
    return st == DRA_OK && block != l->into ? bind_block(l, block, err) : st;
}

static dra_status check_model(const dra_gradients_config *c, dra_error *err)
{
    const dra_model_config *m = dra_model_config_of(c->model);
    if (m->bf16_cache)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gradients: the model's cache is in bf16, which is for reading alone");
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (c->aux_loss[k] != 0 && !(m->aux >> k & 1))
            return dra_fail(err, DRA_ERR_VALUE, "gradients: the model does not measure %s",
                            dra_aux_name(k));
    if (dra_objective_of(c->objective, c->model)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "gradients: objective %d is not known", (int)c->objective);
}

dra_status dra_gradients_create(const dra_gradients_config *config, dra_gradients **out,
                                dra_error *err)
{
    *out = NULL;
    dra_status st = check_model(config, err);
    if (st != DRA_OK) return st;
    dra_gradients *l = calloc(1, sizeof *l);
    if (!l) return out_of_memory(err);
    l->config = *config;
    l->objective = dra_objective_of(config->objective, config->model);
    l->params = dra_model_params(config->model);
    l->state = dra_model_state(config->model);
    l->module = dra_view_module(&(dra_view){.model = config->model});
    l->module.build = dra_gradients_microbatch;
    l->module.self = l;
    dra_extents_open(&l->extents, &l->module);
    st = allocate_gradients(l, err);
    if (st == DRA_OK)
        st = dra_session_create(config->device, dra_gradients_build, l, &l->session, err);
    if (st == DRA_OK) name_inputs(l);
    if (st == DRA_OK) st = dra_array_fill(dra_gradients_block(l, 0), 0, err);
    if (st == DRA_OK) st = bind_block(l, 0, err);
    if (st == DRA_OK)
        *out = l;
    else
        dra_gradients_destroy(l);
    return st;
}

void dra_gradients_destroy(dra_gradients *l)
{
    if (!l) return;
    dra_session_destroy(l->session);
    for (int i = 0; l->lent && i < dra_specs_count(l->params); i++) dra_array_destroy(l->lent[i]);
    for (int i = 0; i < l->blocks; i++) dra_array_destroy(l->block[i]);
    free(l->block);
    dra_array_destroy(l->metrics);
    free(l->lent);
    free(l->offset);
    free(l->name.param);
    free(l->seen);
    free(l->zeros);
    free(l->rows);
    free(l->counts);
    free(l->key);
    free(l->starts);
    dra_extents_free(&l->extents);
    dra_context_extents_free(&l->context);
    free(l);
}

dra_status dra_gradients_spoil(dra_gradients *l, dra_error *err)
{
    const size_t   at = DRA_METRIC_LOSS * sizeof(dra_real);
    const dra_real none = (dra_real)NAN;
    return dra_array_upload((dra_span){l->metrics, at, sizeof none}, &none, err);
}

dra_session *dra_gradients_session(const dra_gradients *l) { return l->session; }

static size_t param_bytes(const dra_gradients *l, int i)
{
    return (size_t)dra_shape_count(&dra_specs_at(l->params, i)->shape) * sizeof(dra_real);
}

/* Binds a weight as dense numbers: the device's own if it is trained, else borrowed. */
static dra_status bind_weight(dra_gradients *l, const dra_weights *w, int i, dra_error *err)
{
    dra_span trained = dra_weights_span(w, i, l->config.device);
    if (!trained.array) {
        const dra_real *data = dra_weights_at(w, i);
        dra_array      *a = NULL;
        if (!data) return out_of_memory(err);
        const dra_status st = dra_array_borrow(l->config.device, data, param_bytes(l, i), &a, err);
        if (st != DRA_OK) return st;
        dra_array_destroy(l->lent[i]);
        l->lent[i] = a;
        trained = dra_array_whole(a);
    }
    return dra_session_bind(l->session, l->name.param[i], trained, err);
}

dra_status dra_gradients_bind(dra_gradients *l, const dra_weights *w, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(l->params) && st == DRA_OK; i++)
        st = bind_weight(l, w, i, err);
    l->bound = st == DRA_OK;
    return st;
}

const dra_real *dra_gradients_of(dra_gradients *l, int i)
{
    if (dra_specs_at(l->params, i)->frozen) return l->zeros;
    const unsigned char *all = l->fresh ? l->seen
                                        : dra_span_see(dra_gradients_block(l, 0), &l->seen,
                                                       &l->seen_room, NULL);
    l->fresh = all && all == l->seen;
    return all ? (const dra_real *)(const void *)(all + l->offset[i]) : NULL;
}
