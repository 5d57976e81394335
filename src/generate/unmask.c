/* Unmasking: an encoder fills in hidden tokens, the surest first.
 *   x = rows with n hidden tokens each; for k = 0 .. steps - 1:
 *     p = softmax(logits(x));  hidden x_i ~ p_i  (greedy, or at an annealed temperature)
 *     of these the floor(share((k + 1) / steps) n) least likely, by p_i(x_i), are hidden again
 * share is 1 - u or cos(u pi / 2), so nothing is hidden in the end. Logits are computed only where
 * tokens were hidden at the start. [Ghazvininejad et al. 2019; Chang et al. 2022] */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/sample.h"
#include "train/objective.h"

typedef struct place { /* a position that was hidden at the start */
    int32_t at;
    bool    hidden;
    double  score; /* the log-probability of its token, of the last round that looked at it */
} place;

typedef struct work {
    const dra_unmask_config *c;
    const dra_model_config  *m;
    int64_t                  V, most; /* most: hidden ones of any row */
    int32_t                  mask;
    int64_t                 *n;     /* (B): hidden ones of each row */
    place                   *place; /* (B, most) */
    int32_t                 *picks; /* (B, most): the same for the graph; -1: none */
    int32_t                 *ids;   /* (B, T) */
    dra_choice              *order; /* (most): what may be hidden again */
    dra_real                *z;     /* (V) */
    bool                    *seen;  /* (V) */
    dra_view                 view;
    dra_reader              *reader;
    dra_states              *states;
} work;

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status check_model(const work *w, dra_error *err)
{
    const int64_t V = w->m->vocab, T = w->c->T, token = w->c->mask_token;
    if (w->m->visible != DRA_VISIBLE_BIDIRECTIONAL || !dra_model_config_is_language(w->m))
        return dra_fail(err, DRA_ERR_VALUE,
                        "unmask: the model is no encoder of tokens that puts out their logits");
    if (V < 2 || token >= V)
        return dra_fail(err, DRA_ERR_VALUE, "unmask: mask_token is %lld, the model has 0 to %lld",
                        (long long)token, (long long)V - 1);
    return dra_model_check_positions(w->c->model, 0, T, err);
}

static dra_status check_rows(const dra_unmask_config *c, dra_error *err)
{
    if (c->B < 1 || c->T < 1 || c->T > INT32_MAX || c->B > INT32_MAX / c->T)
        return dra_fail(err, DRA_ERR_VALUE,
                        "unmask: %lld rows of %lld tokens, expected 1 or more of each",
                        (long long)c->B, (long long)c->T);
    if (c->steps < 1 || c->steps > INT32_MAX)
        return dra_fail(err, DRA_ERR_VALUE, "unmask: %lld steps, expected 1 or more",
                        (long long)c->steps);
    if ((unsigned)c->schedule <= DRA_MASK_COSINE) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "unmask: schedule %d is not known", (int)c->schedule);
}

static dra_status check_ids(const work *w, const int32_t *ids, dra_error *err)
{
    for (int64_t i = 0; i < w->c->B * w->c->T; i++)
        if (ids[i] < 0 || ids[i] >= w->V)
            return dra_fail(
                err, DRA_ERR_INDEX, "unmask: row %lld, token %lld is %d, the model has 0 to %lld",
                (long long)(i / w->c->T), (long long)(i % w->c->T), ids[i], (long long)w->V - 1);
    return DRA_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void count_hidden(work *w, const int32_t *ids)
{
    for (int64_t i = 0; i < w->c->B * w->c->T; i++) w->n[i / w->c->T] += ids[i] == w->mask;
    for (int64_t b = 0; b < w->c->B; b++) w->most = dra_imax(w->most, w->n[b]);
}

static dra_status make_room(work *w, const int32_t *ids, dra_error *err)
{
    const size_t B = (size_t)w->c->B, all = B * (size_t)w->c->T;
    const size_t places = B * (size_t)w->most;
    bool         room = true;
    room &= (w->place = calloc(places + 1, sizeof *w->place)) != NULL;
    room &= (w->picks = calloc(places + 1, sizeof *w->picks)) != NULL;
    room &= (w->order = calloc((size_t)w->most + 1, sizeof *w->order)) != NULL;
    room &= (w->ids = calloc(all, sizeof *w->ids)) != NULL;
    room &= (w->z = calloc((size_t)w->V, sizeof *w->z)) != NULL;
    room &= (w->seen = calloc((size_t)w->V, sizeof *w->seen)) != NULL;
    if (!room) return dra_fail(err, DRA_ERR_MEMORY, "unmask: out of memory");
    memcpy(w->ids, ids, all * sizeof *ids);
    return DRA_OK;
}

static void find_places(work *w)
{
    const int64_t T = w->c->T;
    for (int64_t i = 0; i < w->c->B * w->most; i++) w->picks[i] = -1;
    for (int64_t b = 0; b < w->c->B; b++) {
        int64_t to = b * w->most;
        for (int64_t t = 0; t < T; t++) {
            if (w->ids[b * T + t] != w->mask) continue;
            w->place[to] = (place){.at = (int32_t)t, .hidden = true};
            w->picks[to++] = (int32_t)t;
        }
    }
}

static dra_status open_reader(work *w, dra_error *err)
{
    const dra_unmask_config *c = w->c;
    w->view = (dra_view){.model = c->model, .logits = true, .picks = w->most};
    const dra_module module = dra_view_module(&w->view);
    dra_status       st = dra_reader_create(c->device, &module, &w->reader, err);
    if (st == DRA_OK) st = dra_weights_bind(c->weights, w->reader, err);
    if (st == DRA_OK) st = dra_states_create(c->device, module.state, c->B, &w->states, err);
    return st;
}

/* ---- a round: filling in --------------------------------------------------------------------- */

static dra_status read_rows(work *w, dra_error *err)
{
    const size_t    all = (size_t)(w->c->B * w->c->T), picks = (size_t)(w->c->B * w->most);
    const dra_named in[] = {{"ids", w->ids, all * sizeof *w->ids},
                            {"picks", w->picks, picks * sizeof *w->picks}};
    dra_status      st = dra_states_reset(w->states, -1, err);
    if (st == DRA_OK) st = dra_reader_read(w->reader, w->states, w->c->T, NULL, 2, in, err);
    return st;
}

static double log_probability(const dra_real *z, int64_t V, int32_t id)
{
    const dra_sample_row  none = {0};
    const dra_sample_from from = {.V = V, .logits = z};
    double                max, sum = 0;
    if (dra_sample_best(&none, &from, &max) < 0) return NAN;
    for (int64_t i = 0; i < V; i++) sum += exp((double)z[i] - max);
    return (double)z[id] - max - log(sum);
}

/* Tokens of the row as it was read, for the repetition penalty. */
static void see_tokens(work *w, int64_t b)
{
    memset(w->seen, 0, (size_t)w->V * sizeof *w->seen);
    for (int64_t t = 0; t < w->c->T; t++) w->seen[w->ids[b * w->c->T + t]] = true;
}

/* A token that is hidden is drawn, any but the mask token. All are weighed by the model's own
 * distribution. */
static dra_status fill_in(work *w, dra_sampler *sampler, int64_t b, int64_t round,
                          const dra_real *logits, dra_error *err)
{
    see_tokens(w, b);
    for (int64_t i = 0; i < w->n[b]; i++) {
        place          *p = &w->place[b * w->most + i];
        const dra_real *z = logits + (b * w->most + i) * w->V;
        int32_t        *id = &w->ids[b * w->c->T + p->at];
        if (p->hidden) {
            memcpy(w->z, z, (size_t)w->V * sizeof *z);
            if (!isnan(z[w->mask])) w->z[w->mask] = -(dra_real)INFINITY;
            *id = dra_sampler_pick(sampler, w->z, w->seen, (uint64_t)b, round << 32 | p->at);
        }
        if (*id < 0)
            return dra_fail(err, DRA_ERR_VALUE, "unmask: row %lld, token %d: logits are not finite",
                            (long long)b, p->at);
        if (p->hidden || w->c->remask) p->score = log_probability(z, w->V, *id);
    }
    return DRA_OK;
}

/* ---- a round: hiding again ------------------------------------------------------------------- */

/* The least likely ones, of equal ones the first in the text. */
static void hide_again(work *w, int64_t b, int64_t again)
{
    place  *p = w->place + b * w->most;
    int64_t n = 0;
    for (int64_t i = 0; i < w->n[b]; i++) {
        if (p[i].hidden || w->c->remask)
            w->order[n++] = (dra_choice){.z = -p[i].score, .id = (int32_t)i};
        p[i].hidden = false;
    }
    again = dra_imin(again, n);
    dra_choices_sort(w->order, n, again);
    for (int64_t i = 0; i < again; i++) {
        place *least = &p[w->order[i].id];
        least->hidden = true;
        w->ids[b * w->c->T + least->at] = w->mask;
    }
}

/* How many of n are hidden after `done` rounds. */
static int64_t hidden_after(const dra_unmask_config *c, int64_t done, int64_t n)
{
    if (done >= c->steps) return 0;
    if (c->schedule != DRA_MASK_COSINE) return n * (c->steps - done) / c->steps;
    return (int64_t)(dra_mask_share(c->schedule, (double)done / (double)c->steps) * (double)n);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Less chance in each round, none in the last. */
static dra_status open_sampler(const work *w, double share, dra_sampler **out, dra_error *err)
{
    dra_sampler_config s = w->c->sampler;
    s.temperature *= share;
    return dra_sampler_create(&s, w->V, out, err);
}

/* What was asked, before it is made less. */
static dra_status check_sampler(const work *w, dra_error *err)
{
    const dra_status st = dra_sampler_check(&w->c->sampler, w->V, err);
    return st == DRA_OK ? dra_sampler_check_rows(&w->c->sampler, err) : st;
}

static dra_status run_round(work *w, int64_t round, bool last, dra_error *err)
{
    const int64_t steps = w->c->steps;
    const double  share = last ? 0 : (double)(steps - 1 - round) / (double)steps;
    dra_sampler  *sampler;
    dra_status    st = open_sampler(w, share, &sampler, err);
    if (st == DRA_OK) st = read_rows(w, err);
    const dra_real *logits = st == DRA_OK ? dra_reader_result(w->reader, "logits") : NULL;
    if (st == DRA_OK && !logits) st = dra_fail(err, DRA_ERR_MEMORY, "unmask: out of memory");
    for (int64_t b = 0; b < w->c->B && st == DRA_OK; b++) {
        st = fill_in(w, sampler, b, round, logits, err);
        if (st == DRA_OK) hide_again(w, b, last ? 0 : hidden_after(w->c, round + 1, w->n[b]));
    }
    dra_sampler_destroy(sampler);
    return st;
}

static dra_status run_rounds(work *w, dra_error *err)
{
    dra_status st = DRA_OK;
    bool       last = false;
    for (int64_t round = 0; round < w->c->steps && !last && st == DRA_OK; round++) {
        last = round == w->c->steps - 1 || (w->c->step && !w->c->step(w->c->user));
        st = run_round(w, round, last, err);
    }
    return st;
}

static dra_status open_work(work *w, const int32_t *ids, dra_error *err)
{
    dra_status st = check_model(w, err);
    if (st == DRA_OK) st = check_rows(w->c, err);
    if (st != DRA_OK) return st;
    const int64_t token = dra_mask_token(w->m, w->c->mask_token);
    w->V = w->m->vocab;
    w->mask = token < 0 ? 0 : (int32_t)token;
    w->n = calloc((size_t)w->c->B, sizeof *w->n);
    if (!w->n) return dra_fail(err, DRA_ERR_MEMORY, "unmask: out of memory");
    st = check_ids(w, ids, err);
    if (st == DRA_OK) st = check_sampler(w, err);
    if (st == DRA_OK) count_hidden(w, ids);
    if (st == DRA_OK) st = make_room(w, ids, err);
    return st;
}

dra_status dra_unmask(const dra_unmask_config *config, int32_t *ids, dra_error *err)
{
    work       w = {.c = config, .m = dra_model_config_of(config->model)};
    dra_status st = open_work(&w, ids, err);
    if (st == DRA_OK) find_places(&w);
    if (st == DRA_OK && w.most) st = open_reader(&w, err);
    if (st == DRA_OK && w.most) st = run_rounds(&w, err);
    if (st == DRA_OK) memcpy(ids, w.ids, (size_t)(config->B * config->T) * sizeof *ids);
    dra_reader_destroy(w.reader);
    dra_states_destroy(w.states);
    void *const freed[] = {w.n, w.place, w.picks, w.ids, w.order, w.z, w.seen};
    for (size_t i = 0; i < sizeof freed / sizeof *freed; i++) free(freed[i]);
    return st;
}
