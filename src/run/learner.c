/* Lessons: the loss of a model and its gradients, whole or through the borders of chunks.
 *
 * A program is compiled for each shape met. Forward programs only advance the state; gradient
 * programs add their part to the gradients, which are donated states of theirs. Through chunks:
 *   forwards   s_1 = f(s_0, chunk 1), ...   keeping the state before every chunk
 *   backwards  from the last chunk on, d s_k = d(loss_k)/d s_k + (d s_{k+1}) d s_{k+1}/d s_k
 * so that only one chunk's activations exist at a time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "run/learner.h"

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status allocate(dra_learner *l, dra_error *err)
{
    const int P = dra_specs_count(l->params);
    size_t    largest = 1;
    l->gradient = calloc((size_t)P + 1, sizeof *l->gradient);
    l->key = calloc((size_t)dra_specs_count(l->state) + 2, sizeof *l->key);
    for (int i = 0; l->gradient && i < P; i++) {
        const dra_spec *p = dra_specs_at(l->params, i);
        const size_t    n = (size_t)dra_shape_count(&p->shape);
        if (p->frozen && n > largest) largest = n;
        if (p->frozen) continue;
        l->gradient[i] = calloc(n + 1, sizeof *l->gradient[i]);
        if (!l->gradient[i])
            return dra_fail(err, DRA_ERR_MEMORY, "learner: no memory for the gradient of %s",
                            p->name);
    }
    l->zeros = calloc(largest, sizeof *l->zeros);
    return l->gradient && l->key && l->zeros
               ? DRA_OK
               : dra_fail(err, DRA_ERR_MEMORY, "learner: out of memory");
}

dra_status dra_learner_create(const dra_learner_config *config, dra_learner **out, dra_error *err)
{
    dra_learner *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return dra_fail(err, DRA_ERR_MEMORY, "learner: out of memory");
    l->config = *config;
    for (int k = 0; k < DRA_WATCH_COUNT; k++)
        if (config->add[k] != 0 && !(dra_model_config_of(config->model)->watch >> k & 1)) {
            free(l);
            return dra_fail(err, DRA_ERR_VALUE, "learner: the model was not made to watch %s",
                            dra_watch_name(k));
        }
    l->params = dra_model_params(config->model);
    l->state = dra_model_state(config->model);
    l->module = (dra_module){l->params, l->state, dra_learner_lesson, l};
    dra_status st = allocate(l, err);
    if (st == DRA_OK)
        st = dra_programs_create(config->device, dra_learner_build, l, &l->programs, err);
    if (st == DRA_OK)
        *out = l;
    else
        dra_learner_destroy(l);
    return st;
}

void dra_learner_destroy(dra_learner *l)
{
    if (!l) return;
    for (size_t i = 0; i < l->n; i++) dra_buffers_destroy(l->at[i].buffers);
    for (int i = 0; l->gradient && i < dra_specs_count(l->params); i++) free(l->gradient[i]);
    free(l->at);
    free(l->gradient);
    free(l->zeros);
    free(l->key);
    free(l->starts);
    dra_extents_free(&l->extents);
    dra_programs_destroy(l->programs);
    free(l);
}

const dra_real *dra_learner_gradient(const dra_learner *l, int i)
{
    return l->gradient[i] ? l->gradient[i] : l->zeros;
}

dra_real *dra_learner_gradient_memory(dra_learner *l, int i) { return l->gradient[i]; }

/* ---- binding --------------------------------------------------------------------------------- */

static size_t param_bytes(const dra_learner *l, int i)
{
    return (size_t)dra_shape_count(&dra_specs_at(l->params, i)->shape) * sizeof(dra_real);
}

static dra_status bind_weights(const dra_learner *l, dra_buffers *b, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(l->params) && st == DRA_OK; i++)
        st = dra_bind(b, dra_specs_at(l->params, i)->name,
                      (void *)(uintptr_t)dra_weights_at(l->weights, i), param_bytes(l, i), err);
    return st;
}

static dra_status bind_gradients(const dra_learner *l, dra_buffers *b, dra_error *err)
{
    char       name[DRA_NAME_TEXT];
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(l->params) && st == DRA_OK; i++)
        if (l->gradient[i])
            st = dra_bind(b, dra_state_name(name, "sum", dra_specs_at(l->params, i)->name),
                          l->gradient[i], param_bytes(l, i), err);
    return st;
}

dra_status dra_learner_bind(dra_learner *l, const dra_weights *w, dra_error *err)
{
    dra_status st = dra_weights_dense(w, err); /* gradients are of dense numbers */
    l->weights = w;
    for (size_t i = 0; i < l->n && st == DRA_OK; i++) st = bind_weights(l, l->at[i].buffers, err);
    return st;
}

/* The buffers of a program, made and bound when first met. */
static dra_status find_buffers(dra_learner *l, dra_buffers **out, dra_error *err)
{
    const dra_program *program;
    const bool         gradients = l->key[0].dim[KEY_KIND] != FORWARD;
    dra_status st = dra_programs_get(l->programs, l->key, 1 + (size_t)dra_specs_count(l->state),
                                     &program, err);
    if (st != DRA_OK) return st;
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i].program == program) {
            *out = l->at[i].buffers;
            return DRA_OK;
        }
    running *at = realloc(l->at, (l->n + 1) * sizeof *at);
    if (!at) return dra_fail(err, DRA_ERR_MEMORY, "learner: out of memory");
    l->at = at;
    at[l->n] = (running){.program = program};
    st = dra_buffers_create(program, &at[l->n].buffers, err);
    if (st == DRA_OK) st = bind_weights(l, at[l->n].buffers, err);
    if (st == DRA_OK && gradients) st = bind_gradients(l, at[l->n].buffers, err);
    *out = at[l->n].buffers;
    if (st == DRA_OK)
        l->n++;
    else
        dra_buffers_destroy(at[l->n].buffers);
    return st;
}

/* ---- one chunk ------------------------------------------------------------------------------- */

typedef struct chunk { /* tokens of a lesson, cut out of it; all (B, T) */
    int64_t     first, T, count;
    int32_t    *ids, *targets, *mark; /* ids owns the memory of all three */
    dra_states *start;                /* the state before it; NULL: fresh */
} chunk;

static size_t held_bytes(const dra_states *s, int i)
{
    return (size_t)(s->B * s->at[i].rows * s->at[i].size) * sizeof(dra_real);
}

static dra_status bind_states(const dra_learner *l, dra_buffers *b, const dra_states *s,
                              dra_error *err)
{
    char       name[DRA_NAME_TEXT];
    dra_status st = DRA_OK;
    for (int i = 0; s && i < dra_specs_count(l->state) && st == DRA_OK; i++)
        st = dra_bind(b, dra_state_name(name, "state", dra_specs_at(l->state, i)->name),
                      s->at[i].data, held_bytes(s, i), err);
    return st;
}

static dra_status bind_upstream(const dra_learner *l, dra_buffers *b, const dra_states *s,
                                dra_real *const *up, dra_error *err)
{
    char       name[DRA_NAME_TEXT];
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(l->state) && st == DRA_OK; i++)
        st = dra_bind(b, dra_state_name(name, "up", dra_specs_at(l->state, i)->name), up[i],
                      held_bytes(s, i), err);
    return st;
}

/* The key of dropout and where the chunk starts in its rows. */
static dra_status bind_random(dra_learner *l, dra_buffers *b, const dra_lesson *q, const chunk *c,
                              dra_error *err)
{
    const size_t bytes = (size_t)q->B * sizeof *l->starts;
    int32_t     *at = realloc(l->starts, bytes);
    if (!at) return dra_fail(err, DRA_ERR_MEMORY, "learner: out of memory");
    l->starts = at;
    for (int64_t r = 0; r < q->B; r++) at[r] = (int32_t)c->first;
    l->random[0] = (int32_t)q->seed, l->random[1] = (int32_t)(q->seed >> 32);
    l->random[2] = (int32_t)q->step, l->random[3] = (int32_t)(q->step >> 32);
    const dra_status st = dra_bind(b, "random", l->random, sizeof l->random, err);
    return st == DRA_OK ? dra_bind(b, "at", at, bytes, err) : st;
}

typedef struct weighing { /* of the loss of a chunk, and of what is added to it */
    dra_real share, part;
} weighing;

/* Runs the program of this kind over a chunk. up: gradients of the states behind it, THROUGH. */
static dra_status run_chunk(dra_learner *l, const dra_lesson *q, const chunk *c, int kind, bool add,
                            weighing *w, dra_real *const *up, dra_buffers **out, dra_error *err)
{
    const int64_t B = q->B;
    const size_t  bytes = (size_t)(B * c->T) * sizeof(int32_t);
    const bool    drops = dra_model_drops(l->config.model) && !q->still;
    const int marks = (c->mark ? MARKED : 0) | (dra_marks_any_skip(c->mark, B * c->T) ? SKIPS : 0);
    dra_buffers *b = NULL;
    l->key[0] = DRA_SHAPE(B, c->T, marks, kind, add,
                          (q->guard ? GUARD : 0) | (drops ? DROPOUT : 0));
    for (int i = 0; i < dra_specs_count(l->state); i++)
        l->key[i + 1] = DRA_SHAPE(c->start ? c->start->at[i].rows : 0);
    dra_status st = find_buffers(l, &b, err);
    if (st == DRA_OK) st = dra_extents_fill(&l->extents, l->state, c->start, B, c->T, c->mark, err);
    if (st == DRA_OK) st = dra_extents_bind(&l->extents, b, c->mark != NULL, err);
    if (st == DRA_OK) st = bind_states(l, b, c->start, err);
    if (st == DRA_OK) st = dra_bind(b, "ids", c->ids, bytes, err);
    if (st == DRA_OK) st = dra_bind(b, "targets", c->targets, bytes, err);
    if (st == DRA_OK && drops) st = bind_random(l, b, q, c, err);
    if (st == DRA_OK && kind != FORWARD) st = dra_bind(b, "share", &w->share, sizeof w->share, err);
    if (st == DRA_OK && kind != FORWARD) st = dra_bind(b, "part", &w->part, sizeof w->part, err);
    if (st == DRA_OK && kind == THROUGH) st = bind_upstream(l, b, c->start, up, err);
    if (st == DRA_OK) st = dra_run(b, err);
    *out = b;
    return st;
}

/* The states after a chunk, into s. */
static void take_states(const dra_learner *l, const dra_buffers *b, const chunk *c, dra_states *s)
{
    char name[DRA_NAME_TEXT];
    for (int i = 0; i < dra_specs_count(l->state); i++)
        memcpy(s->at[i].data,
               dra_result(b, dra_state_name(name, "next", dra_specs_at(l->state, i)->name)),
               held_bytes(s, i));
    dra_states_advance(s, c->T, c->mark);
}

/* ---- lessons --------------------------------------------------------------------------------- */

static int64_t count_targets(const int32_t *target, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += target[i] >= 0;
    return count;
}

static dra_status cut_chunk(const dra_lesson *q, int64_t first, int64_t T, chunk *c, dra_error *err)
{
    const size_t   n = (size_t)(q->B * T);
    const int32_t *from[3] = {q->ids, q->targets, q->mark};
    int32_t       *memory = malloc(3 * n * sizeof *memory + 1);
    if (!memory) return dra_fail(err, DRA_ERR_MEMORY, "learner: out of memory");
    for (int k = 0; k < 3 && from[k]; k++)
        for (int64_t b = 0; b < q->B; b++)
            memcpy(memory + (size_t)k * n + b * T, from[k] + b * q->T + first,
                   (size_t)T * sizeof *memory);
    *c = (chunk){.first = first,
                 .T = T,
                 .ids = memory,
                 .targets = memory + n,
                 .mark = q->mark ? memory + 2 * n : NULL,
                 .count = count_targets(memory + n, q->B * T)};
    return DRA_OK;
}

/* Gradients of the states behind a chunk: zeros at the end, then what came down. */
typedef struct slopes {
    int        n;
    dra_real **at;
} slopes;

static dra_status slopes_create(slopes *u, const dra_states *s, dra_error *err)
{
    u->n = dra_specs_count(s->specs);
    u->at = calloc((size_t)u->n + 1, sizeof *u->at);
    bool ok = u->at != NULL;
    for (int i = 0; ok && i < u->n; i++) ok = (u->at[i] = calloc(1, held_bytes(s, i) + 1)) != NULL;
    return ok ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "learner: out of memory");
}

static void slopes_free(slopes *u)
{
    for (int i = 0; u->at && i < u->n; i++) free(u->at[i]);
    free(u->at);
}

static void slopes_take(slopes *u, const dra_learner *l, const dra_buffers *b, const dra_states *s)
{
    char name[DRA_NAME_TEXT];
    for (int i = 0; i < u->n; i++)
        memcpy(u->at[i],
               dra_result(b, dra_state_name(name, "down", dra_specs_at(l->state, i)->name)),
               held_bytes(s, i));
}

/* A lesson without targets that count has no gradient, whatever is added to the loss. */
static double share_of(const dra_lesson *q, int64_t count)
{
    return count == 0 ? 0 : q->share > 0 ? q->share : 1;
}

/* Adds the results of a chunk: its loss with its part of the targets, the rest with its part of the
 * tokens. */
static void take_results(const dra_buffers *b, double targets, double tokens,
                         dra_lesson_result *out)
{
    const int32_t *guarded = dra_result(b, "guarded");
    out->loss += targets * (double)*(const dra_real *)dra_result(b, "loss");
    if (guarded) out->guarded += *guarded;
    for (int k = 0; k < DRA_WATCH_COUNT; k++) {
        const dra_real *x = dra_result(b, dra_watch_name(k));
        out->watch[k] += x ? tokens * (double)*x : NAN;
    }
}

/* Whole: one program. */
static dra_status run_whole(dra_learner *l, const dra_lesson *q, chunk *c, dra_lesson_result *out,
                            dra_error *err)
{
    const double share = share_of(q, out->count);
    weighing     w = {(dra_real)share, (dra_real)share};
    dra_buffers *b;
    c->start = q->states;
    const dra_status st = run_chunk(l, q, c, q->states ? CARRIED : FRESH, q->add, &w, NULL, &b,
                                    err);
    if (st != DRA_OK) return st;
    take_results(b, 1, 1, out);
    if (q->states) take_states(l, b, c, q->states);
    return DRA_OK;
}

/* Forwards: every chunk gets the state it starts from; s ends behind the last. */
static dra_status run_forward(dra_learner *l, const dra_lesson *q, chunk *c, dra_states *s,
                              dra_error *err)
{
    dra_status st = DRA_OK;
    for (int k = 0; k < q->chunks && st == DRA_OK; k++) {
        dra_buffers *b;
        st = dra_states_twin(s, &c[k].start, err);
        if (st == DRA_OK && (k + 1 < q->chunks || q->states))
            st = run_chunk(l, q, &c[k], FORWARD, false, NULL, NULL, &b, err);
        if (st == DRA_OK && (k + 1 < q->chunks || q->states)) take_states(l, b, &c[k], s);
    }
    return st;
}

static dra_status run_backward(dra_learner *l, const dra_lesson *q, const chunk *c,
                               dra_lesson_result *out, dra_error *err)
{
    slopes     up = {0};
    dra_status st = slopes_create(&up, c[0].start, err);
    for (int k = q->chunks - 1; k >= 0 && st == DRA_OK; k--) {
        const double targets = out->count ? (double)c[k].count / (double)out->count : 0;
        const double tokens = (double)c[k].T / (double)q->T;
        const double share = share_of(q, out->count);
        weighing     w = {(dra_real)(targets * share), (dra_real)(tokens * share)};
        dra_buffers *b;
        st = run_chunk(l, q, &c[k], THROUGH, q->add || k < q->chunks - 1, &w, up.at, &b, err);
        if (st != DRA_OK) break;
        take_results(b, targets, tokens, out);
        slopes_take(&up, l, b, c[k].start);
    }
    slopes_free(&up);
    return st;
}

static dra_status run_through(dra_learner *l, const dra_lesson *q, chunk *c, dra_lesson_result *out,
                              dra_error *err)
{
    dra_states *s = NULL;
    dra_status  st = q->states ? dra_states_twin(q->states, &s, err)
                               : dra_states_create(l->state, q->B, &s, err);
    /* Room for all at once, so that items stay where they are from chunk to chunk. */
    if (st == DRA_OK) st = dra_states_reserve(s, q->T, err);
    if (st == DRA_OK) st = run_forward(l, q, c, s, err);
    if (st == DRA_OK) st = run_backward(l, q, c, out, err);
    for (int64_t b = 0; st == DRA_OK && q->states && b < q->B; b++)
        st = dra_states_copy(q->states, b, s, b, err);
    for (int k = 0; k < q->chunks; k++) dra_states_destroy(c[k].start);
    dra_states_destroy(s);
    return st;
}

static dra_status check(const dra_learner *l, const dra_lesson *q, dra_error *err)
{
    int64_t sum = 0;
    if (!l->weights) return dra_fail(err, DRA_ERR_BIND, "learner: weights are not bound");
    if (q->B < 1 || q->T < 1)
        return dra_fail(err, DRA_ERR_VALUE, "learner: B %lld, T %lld, expected 1 or more",
                        (long long)q->B, (long long)q->T);
    for (int k = 0; k < q->chunks; k++) {
        if (q->chunk[k] < 1 || q->chunk[k] > q->T)
            return dra_fail(err, DRA_ERR_VALUE, "learner: chunk %d has %lld tokens of %lld", k,
                            (long long)q->chunk[k], (long long)q->T);
        sum += q->chunk[k];
    }
    if (q->chunks && sum != q->T)
        return dra_fail(err, DRA_ERR_VALUE, "learner: chunks of %lld tokens for a lesson of %lld",
                        (long long)sum, (long long)q->T);
    if (!q->states) return DRA_OK;
    if (dra_states_batch(q->states) != q->B ||
        dra_specs_fingerprint(q->states->specs) != dra_specs_fingerprint(l->state))
        return dra_fail(err, DRA_ERR_VALUE, "learner: the states belong to another model or batch");
    return DRA_OK;
}

dra_status dra_learner_run(dra_learner *l, const dra_lesson *q, dra_lesson_result *out,
                           dra_error *err)
{
    const int  n = q->chunks ? q->chunks : 1;
    int64_t    first = 0;
    dra_status st = check(l, q, err);
    *out = (dra_lesson_result){0};
    if (st != DRA_OK) return st;
    chunk *c = calloc((size_t)n, sizeof *c);
    if (!c) return dra_fail(err, DRA_ERR_MEMORY, "learner: out of memory");
    for (int k = 0; k < n && st == DRA_OK; k++) {
        const int64_t T = q->chunks ? q->chunk[k] : q->T;
        st = cut_chunk(q, first, T, &c[k], err);
        out->count += c[k].count;
        first += T;
    }
    if (st == DRA_OK && !q->chunks && q->states) st = dra_states_reserve(q->states, q->T, err);
    if (st == DRA_OK)
        st = q->chunks ? run_through(l, q, c, out, err) : run_whole(l, q, c, out, err);
    for (int k = 0; k < n; k++) free(c[k].ids);
    free(c);
    return st;
}

dra_status dra_learner_bytes(dra_learner *l, int64_t B, int64_t T, bool marked, bool carried,
                             size_t *bytes, dra_error *err)
{
    const dra_program *program;
    dra_states        *s = NULL;
    dra_status         st = carried ? dra_states_create(l->state, B, &s, err) : DRA_OK;
    if (st == DRA_OK && carried) st = dra_states_reserve(s, T, err);
    l->key[0] = DRA_SHAPE(B, T, marked ? MARKED : 0, carried ? CARRIED : FRESH, 0,
                          dra_model_drops(l->config.model) ? DROPOUT : 0);
    for (int i = 0; st == DRA_OK && i < dra_specs_count(l->state); i++)
        l->key[i + 1] = DRA_SHAPE(s ? s->at[i].rows : 0);
    if (st == DRA_OK)
        st = dra_programs_get(l->programs, l->key, 1 + (size_t)dra_specs_count(l->state), &program,
                              err);
    if (st == DRA_OK) {
        const dra_memory_report r = dra_program_memory(program);
        *bytes = r.activations + r.prepared;
    }
    dra_states_destroy(s);
    return st;
}
