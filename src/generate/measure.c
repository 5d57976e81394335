/* Log-probabilities of tokens, on the device, by the model's own logits:
 *   logprobs, top = token_logprobs(logits (B, V), ids (B))
 * Programs are for powers of two of the most likely ones, so that they are few. */
#include <stdlib.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/engine.h"
#include "session/session.h"

enum { ROOM = 1 << 16 }; /* numbers that are looked at in one run, where one row has not more */

struct dra_measure {
    int64_t      V, most; /* most: of the last run */
    dra_session *session;
    dra_made     made;
    size_t       room; /* of each of these two: (B, 1 + most) */
    dra_real    *logprobs;
    int32_t     *top;
};

typedef struct measure_key {
    int64_t B, V, most;
    int64_t given; /* 1: the ids are an input, else they are on the device */
} measure_key;

static void build(dra_graph *g, void *user, const void *at, size_t bytes)
{
    const measure_key *key = at;
    const dra_shape    one = DRA_SHAPE(key->B);
    const dra_value    logits = dra_state(g, "logits", DRA_REAL, DRA_SHAPE(key->B, key->V));
    const dra_value    ids = key->given ? dra_input(g, "given", DRA_I32, one)
                                        : dra_state(g, "ids", DRA_I32, one);
    dra_value          top;
    (void)user, (void)bytes;
    dra_output(g, "logprobs", dra_token_logprobs(g, logits, ids, key->most, &top));
    dra_output(g, "top", top);
}

dra_status dra_measure_create(dra_engine *e, dra_measure **out, dra_error *err)
{
    dra_measure *m = *out = calloc(1, sizeof *m);
    if (!m) return dra_engine_no_memory(err);
    m->V = e->V;
    return dra_session_create(e->config.device, build, NULL, &m->session, err);
}

void dra_measure_destroy(dra_measure *m)
{
    if (!m) return;
    dra_session_destroy(m->session);
    dra_made_free(&m->made);
    free(m->logprobs);
    free(m->top);
    free(m);
}

dra_made *dra_measure_made(dra_measure *m) { return &m->made; }

static int64_t most_for(const dra_measure *m, int64_t top)
{
    int64_t most = top > 0;
    while (most < top) most *= 2;
    return dra_imin(most, m->V);
}

int64_t dra_measure_rows(const dra_measure *m, int64_t top)
{
    return dra_imax(ROOM / (1 + most_for(m, top)), 1);
}

static dra_status reserve(dra_measure *m, size_t n, dra_error *err)
{
    if (n <= m->room) return DRA_OK;
    free(m->logprobs);
    free(m->top);
    m->room = 0;
    m->logprobs = malloc(n * sizeof *m->logprobs);
    m->top = malloc(n * sizeof *m->top);
    if (!m->logprobs || !m->top) return dra_engine_no_memory(err);
    m->room = n;
    return DRA_OK;
}

/* Starts a run; the results are wanted by the two fetches. */
static dra_status start_run(dra_measure *m, const measure_key *key, dra_span logits,
                            const int32_t *given, dra_fetch fetch[2], dra_error *err)
{
    dra_session *s = m->session;
    dra_status   st = reserve(m, (size_t)(key->B * (1 + key->most)), err);
    m->most = key->most;
    if (st == DRA_OK) st = dra_session_bind(s, dra_session_name(s, "logits"), logits, err);
    if (st == DRA_OK) st = dra_session_select(s, key, sizeof *key, err);
    if (st == DRA_OK && given)
        st = dra_session_put(s, dra_session_name(s, "given"), given, (size_t)key->B * sizeof *given,
                             err);
    if (st == DRA_OK) st = dra_session_start(s, err);
    if (st != DRA_OK) return st;
    fetch[0] = (dra_fetch){m->logprobs, dra_session_result(s, "logprobs")};
    fetch[1] = (dra_fetch){m->top, dra_session_result(s, "top")};
    return DRA_OK;
}

dra_status dra_measure_start(dra_measure *m, int64_t B, dra_span logits, dra_span ids, int64_t top,
                             dra_fetch fetch[2], dra_error *err)
{
    measure_key      key = {.B = B, .V = m->V, .most = most_for(m, top)};
    const dra_status st = dra_session_bind(m->session, dra_session_name(m->session, "ids"), ids,
                                           err);
    return st == DRA_OK ? start_run(m, &key, logits, NULL, fetch, err) : st;
}

dra_status dra_measure_ids(dra_measure *m, int64_t B, dra_span logits, const int32_t *ids,
                           int64_t top, dra_error *err)
{
    measure_key key = {.B = B, .V = m->V, .most = most_for(m, top), .given = 1};
    dra_fetch   fetch[2];
    dra_status  st = start_run(m, &key, logits, ids, fetch, err);
    return st == DRA_OK ? dra_session_fetch(m->session, fetch, 2, err) : st;
}

double dra_measure_logprob(const dra_measure *m, int64_t row, int64_t top, dra_logprob *most)
{
    const size_t at = (size_t)(row * (1 + m->most));
    for (size_t i = 0; i < (size_t)top; i++)
        most[i] = (dra_logprob){m->top[at + 1 + i], (double)m->logprobs[at + 1 + i]};
    return (double)m->logprobs[at];
}
