/* A generator: some rows that read and write when the caller says so, and the caller waits.
 *
 * A row is a state that the generator holds; NULL: nothing was read. What it reads and what it
 * writes are jobs of an engine that begin from that state and leave the next one. So a row that
 * fails stays as it was, copies of rows cost nothing, and every row gets what it would get alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "generate/generator.h"
#include "generate/sample.h"

enum { ROWS_MOST = 1 << 16 };

static dra_status no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "generator: out of memory");
}

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status check_config(const dra_generator_config *c, dra_error *err)
{
    if (c->rows < 1 || c->rows > ROWS_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "generator: %lld rows, expected 1 to %d",
                        (long long)c->rows, ROWS_MOST);
    if (c->samples < 1 || c->samples > c->rows)
        return dra_fail(err, DRA_ERR_VALUE, "generator: %lld samples, expected 1 to %lld, the rows",
                        (long long)c->samples, (long long)c->rows);
    return DRA_OK;
}

static dra_status check_sampler(const dra_generator *g, const dra_sampler_config *c, dra_error *err)
{
    const dra_status st = dra_sampler_check(c, g->V, err);
    return st == DRA_OK ? dra_contrast_check_sampler(g->engine, c, err) : st;
}

dra_status dra_generator_create(const dra_generator_config *config, dra_generator **out,
                                dra_error *err)
{
    dra_generator *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return no_memory(err);
    dra_generator_config *c = &g->config;
    *c = *config;
    if (!c->rows) c->rows = 1;
    if (!c->samples) c->samples = c->rows;
    g->V = dra_model_config_of(c->model)->vocab;
    const dra_engine_config settings = {.model = c->model,
                                        .weights = c->weights,
                                        .device = c->device,
                                        .tokenizer = c->tokenizer,
                                        .slots = c->rows,
                                        .queue = c->rows,
                                        .memory_limit = SIZE_MAX / 4,
                                        .state_limit = c->state_limit,
                                        .forget = true,
                                        .n_amateurs = c->n_amateurs,
                                        .amateurs = c->amateurs,
                                        .alpha = c->alpha,
                                        .beta = c->beta,
                                        .draft = c->draft};
    dra_status              st = check_config(c, err);
    if (st == DRA_OK) g->row = calloc((size_t)c->rows, sizeof *g->row);
    if (st == DRA_OK && !g->row) st = no_memory(err);
    if (st == DRA_OK) st = dra_engine_create(&settings, &g->engine, err);
    if (st == DRA_OK) st = check_sampler(g, &c->sampler, err);
    if (st == DRA_OK)
        st = dra_job_check_options(
            g->engine, &(dra_job_config){.prefix = c->prefix, .grammar = c->grammar}, err);
    for (int64_t b = 0; b < c->rows && st == DRA_OK; b++) g->row[b].of = g;
    if (st == DRA_OK)
        *out = g;
    else
        dra_generator_destroy(g);
    return st;
}

/* The row stands at this state, which it holds from now on. */
static void set_state(dra_generator *g, dra_generator_row *r, dra_saved *state)
{
    dra_saved_drop(g->engine, r->state);
    r->state = state;
}

/* Its text begins. */
static void clear_place(dra_generator_row *r)
{
    free(r->place);
    r->place = NULL;
}

void dra_generator_destroy(dra_generator *g)
{
    if (!g) return;
    for (int64_t b = 0; g->row && g->engine && b < g->config.rows; b++) {
        dra_generator_row *r = &g->row[b];
        set_state(g, r, NULL);
        clear_place(r);
        dra_ids_free(&r->ids);
        free(r->logprobs);
        free(r->beams);
    }
    dra_engine_destroy(g->engine);
    free(g->row);
    free(g);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static dra_status check_row(const dra_generator *g, int64_t row, dra_error *err)
{
    if (row >= 0 && row < g->config.rows) return DRA_OK;
    return dra_fail(err, DRA_ERR_INDEX, "generator: row %lld, expected 0 to %lld", (long long)row,
                    (long long)g->config.rows - 1);
}

/* What it stands at is not to be changed while it writes. */
static dra_status check_resting(const dra_generator *g, int64_t row, dra_error *err)
{
    const dra_status st = check_row(g, row, err);
    if (st != DRA_OK || !g->row[row].running) return st;
    return dra_fail(err, DRA_ERR_VALUE, "generator: row %lld is writing", (long long)row);
}

void dra_generator_drafted(const dra_generator *g, int64_t *made, int64_t *right)
{
    *made = g->drafted;
    *right = g->accepted;
}

int64_t dra_generator_clamped(const dra_generator *g) { return dra_engine_clamped(g->engine); }

int64_t dra_generator_tokens(const dra_generator *g, int64_t row)
{
    return g->row[row].state ? g->row[row].state->tokens : 0;
}

size_t dra_generator_state_bytes(const dra_generator *g)
{
    size_t bytes = 0;
    for (int64_t b = 0; b < g->config.rows; b++) {
        const dra_saved *s = g->row[b].state;
        if (s) bytes += dra_states_row_bytes(g->engine->lane[0].pool, s->row);
    }
    return bytes;
}

dra_status dra_generator_reset(dra_generator *g, int64_t row, dra_error *err)
{
    const dra_status st = check_resting(g, row, err);
    if (st != DRA_OK) return st;
    set_state(g, &g->row[row], NULL);
    clear_place(&g->row[row]);
    return DRA_OK;
}

static dra_status set_place(dra_generator_row *r, const dra_grammar_state *place, dra_error *err)
{
    dra_grammar_state *copy = NULL;
    const dra_status   st = dra_grammar_state_copy(place, &copy, err);
    if (st != DRA_OK) return st;
    clear_place(r);
    r->place = copy;
    return DRA_OK;
}

dra_status dra_generator_copy(dra_generator *g, int64_t to, int64_t from, dra_error *err)
{
    dra_status st = check_resting(g, to, err);
    if (st == DRA_OK) st = check_row(g, from, err);
    if (st != DRA_OK || to == from) return st;
    st = set_place(&g->row[to], g->row[from].place, err);
    if (st == DRA_OK) set_state(g, &g->row[to], dra_saved_again(g->engine, g->row[from].state));
    return st;
}

dra_status dra_generator_set_sampler(dra_generator *g, const dra_sampler_config *config,
                                     dra_error *err)
{
    const dra_status st = check_sampler(g, config, err);
    if (st == DRA_OK) g->config.sampler = *config;
    return st;
}

dra_status dra_generator_set_seed(dra_generator *g, int64_t row, uint64_t seed, dra_error *err)
{
    const dra_status st = check_row(g, row, err);
    if (st != DRA_OK) return st;
    g->row[row].seeded = true;
    g->row[row].seed = seed;
    return DRA_OK;
}

static uint64_t seed_of(const dra_generator *g, int64_t row)
{
    const dra_generator_row *r = &g->row[row];
    return r->seeded ? r->seed : g->config.sampler.seed + (uint64_t)(row % g->config.samples);
}

static dra_status check_begun(const dra_generator *g, int64_t row, const char *to, dra_error *err)
{
    if (g->row[row].state) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "generator: row %lld has read nothing%s", (long long)row,
                    to);
}

dra_status dra_generator_logits(dra_generator *g, int64_t row, const dra_real **logits,
                                dra_error *err)
{
    *logits = NULL;
    dra_status st = check_row(g, row, err);
    if (st == DRA_OK) st = check_begun(g, row, "", err);
    if (st == DRA_OK) *logits = g->row[row].state->logits;
    return st;
}

/* ---- kept states ----------------------------------------------------------------------------- */

dra_status dra_generator_keep(dra_generator *g, int64_t row, dra_context *out, dra_error *err)
{
    *out = (dra_context){0};
    dra_status st = check_row(g, row, err);
    if (st != DRA_OK) return st;
    const dra_generator_row *r = &g->row[row];
    if (r->state)
        st = dra_saved_export(g->engine, 1, &r->state, out, err);
    else
        st = dra_states_create(g->config.device, dra_model_state(g->config.model), 1, &out->states,
                               err);
    if (st == DRA_OK) st = dra_grammar_state_copy(r->place, &out->grammar, err);
    if (st != DRA_OK) dra_context_free(out);
    return st;
}

dra_status dra_generator_keep_all(dra_generator *g, dra_context *out, dra_error *err)
{
    const int64_t rows = g->config.rows;
    dra_saved   **of = calloc((size_t)rows, sizeof(dra_saved *));
    dra_status    st = of ? DRA_OK : no_memory(err);
    *out = (dra_context){0};
    for (int64_t b = 0; b < rows && st == DRA_OK; b++) {
        st = check_begun(g, b, " to save", err);
        of[b] = g->row[b].state;
    }
    if (st == DRA_OK) st = dra_saved_export(g->engine, rows, of, out, err);
    free(of);
    return st;
}

/* Row `row` becomes sequence `from` of a context, perhaps one that has read nothing. */
static dra_status adopt_row(dra_generator *g, int64_t row, const dra_context *c, int64_t from,
                            dra_error *err)
{
    dra_saved *state = NULL;
    dra_status st = DRA_OK;
    if (dra_states_tokens(c->states, from) > 0)
        st = dra_saved_import(g->engine, c, from, &state, err);
    if (st == DRA_OK) set_state(g, &g->row[row], state);
    return st;
}

dra_status dra_generator_adopt_all(dra_generator *g, const dra_context *c, dra_error *err)
{
    const int64_t rows = g->config.rows, B = dra_states_batch(c->states);
    dra_saved   **next = calloc((size_t)rows, sizeof(dra_saved *));
    dra_status    st = next ? DRA_OK : no_memory(err);
    for (int64_t b = 0; b < rows && st == DRA_OK; b++) {
        if (b > 0 && B == 1)
            next[b] = dra_saved_again(g->engine, next[0]);
        else
            st = dra_saved_import(g->engine, c, b, &next[b], err);
    }
    for (int64_t b = 0; next && b < rows; b++) {
        if (st != DRA_OK) {
            dra_saved_drop(g->engine, next[b]);
            continue;
        }
        set_state(g, &g->row[b], next[b]);
        clear_place(&g->row[b]);
    }
    free(next);
    return st;
}

dra_status dra_generator_back(dra_generator *g, int64_t row, const dra_context *kept,
                              dra_error *err)
{
    dra_status st = check_resting(g, row, err);
    const bool any = st == DRA_OK && dra_states_tokens(kept->states, 0) > 0;
    if (any && kept->amateurs != g->config.n_amateurs)
        st = dra_fail(err, DRA_ERR_VALUE, "generator: kept with %d amateurs, expected %d",
                      kept->amateurs, g->config.n_amateurs);
    if (st == DRA_OK && g->config.grammar &&
        !dra_grammar_state_of(kept->grammar, g->config.grammar))
        st = dra_fail(err, DRA_ERR_VALUE, "generator: kept with another grammar");
    if (st == DRA_OK) st = set_place(&g->row[row], kept->grammar, err);
    return st == DRA_OK ? adopt_row(g, row, kept, 0, err) : st;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void take_state(void *user, dra_saved *state, dra_grammar_state **place)
{
    dra_generator_row *r = user;
    set_state(r->of, r, state);
    clear_place(r);
    r->place = *place;
    *place = NULL;
}

static dra_status submit_row(dra_generator *g, int64_t row, dra_job_config job, dra_error *err)
{
    dra_generator_row   *r = &g->row[row];
    const dra_job_inside inside = {
        .from = r->state, .place = r->place, .keep = true, .kept = take_state};
    uint64_t id;
    r->running = true;
    r->error = (dra_error){0};
    job.user = r;
    const dra_status st = dra_job_submit(g->engine, &job, &inside, &id, err);
    if (st != DRA_OK) r->running = false;
    r->job = id;
    return st;
}

/* Until no job runs; *err: of the first row that failed. */
static dra_status run_jobs(dra_generator *g, dra_error *err)
{
    dra_status st = DRA_OK;
    dra_error  why = {0};
    bool       idle = false;
    while (!idle) {
        const dra_status step = dra_engine_step(g->engine, &idle, &why);
        if (step != DRA_OK && st == DRA_OK) {
            st = step;
            if (err) *err = why;
        }
        for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++) {
            const dra_generator_row *r = &g->row[b];
            if (r->error.code == DRA_OK) continue;
            st = g->config.rows == 1
                     ? dra_fail(err, r->error.code, "%s", r->error.text)
                     : dra_fail(err, r->error.code, "row %lld: %s", (long long)b, r->error.text);
        }
        for (int64_t b = 0; b < g->config.rows && st != DRA_OK; b++)
            if (g->row[b].running) dra_engine_cancel(g->engine, g->row[b].job);
    }
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void end_reading(void *user, const dra_job_result *result)
{
    dra_generator_row *r = user;
    r->running = false;
    if (result->end == DRA_JOB_FAILED) r->error = result->error;
}

static dra_status read_job(dra_generator *g, int64_t row, dra_job_config job, dra_error *err)
{
    job.tokens = 0;
    job.logprobs = -1;
    job.end = end_reading;
    const dra_status st = submit_row(g, row, job, err);
    return st == DRA_OK ? run_jobs(g, err) : st;
}

dra_status dra_generator_read(dra_generator *g, int64_t row, size_t n, const int32_t *ids,
                              dra_error *err)
{
    const dra_status st = check_resting(g, row, err);
    if (st != DRA_OK || n == 0) return st;
    const dra_job_config job = {
        .n = n, .ids = ids, .prefix = g->config.prefix && !g->row[row].state};
    clear_place(&g->row[row]);
    return read_job(g, row, job, err);
}

dra_status dra_generator_read_source(dra_generator *g, int64_t row, size_t n_source,
                                     const int32_t *source, size_t n, const int32_t *ids,
                                     dra_error *err)
{
    dra_status st = check_resting(g, row, err);
    if (st != DRA_OK) return st;
    dra_generator_row   *r = &g->row[row];
    dra_saved           *before = r->state;
    const dra_job_config job = {.n = n, .ids = ids, .n_source = n_source, .source = source};
    r->state = NULL; /* it starts over */
    st = read_job(g, row, job, err);
    if (st == DRA_OK)
        dra_saved_drop(g->engine, before);
    else
        r->state = before;
    return st;
}

/* ---- writing --------------------------------------------------------------------------------- */

static dra_status note_token(dra_generator_row *r, const dra_job_token *t)
{
    const size_t each = (size_t)r->top + 1;
    dra_status   st = dra_ids_add(&r->ids, t->id, &r->error);
    if (st != DRA_OK || r->top == 0) return st;
    if (r->ids.n * each > r->logprob_room) {
        const size_t room = 2 * r->ids.n * each;
        dra_logprob *more = realloc(r->logprobs, room * sizeof *more);
        if (!more) return no_memory(&r->error);
        r->logprobs = more;
        r->logprob_room = room;
    }
    dra_logprob *at = r->logprobs + (r->ids.n - 1) * each;
    at[0] = (dra_logprob){t->id, t->logprob};
    for (size_t i = 1; i < each; i++)
        at[i] = !isnan(t->logprob) && (int64_t)i <= t->top ? t->most[i - 1]
                                                           : (dra_logprob){-1, NAN};
    return DRA_OK;
}

static bool write_text(dra_generator_row *r, const char *text, size_t bytes)
{
    const dra_generate_config *c = r->of->call;
    return !c->write || c->write(c->user, r - r->of->row, text, bytes);
}

static bool write_token(void *user, const dra_job_token *t)
{
    dra_generator_row *r = user;
    if (t->prompt || t->ends) return true;
    if (note_token(r, t) != DRA_OK) return false;
    return write_text(r, t->text, t->bytes);
}

static dra_status start_row(dra_generator *g, int64_t row, int64_t tokens, dra_error *err);

/* Another text for a row that has none, if there is one. */
static dra_status ask_next(dra_generator *g, int64_t row, const dra_generated *done, dra_error *err)
{
    const dra_generate_config *c = g->call;
    int64_t                    tokens = -1;
    dra_status                 st = c->next ? c->next(c->user, row, done, &tokens, err) : DRA_OK;
    return st == DRA_OK && tokens >= 0 ? start_row(g, row, tokens, err) : st;
}

static void end_writing(void *user, const dra_job_result *result)
{
    dra_generator_row *r = user;
    r->running = false;
    r->of->drafted += result->drafted_tokens;
    r->of->accepted += result->accepted_tokens;
    if (result->end == DRA_JOB_FAILED) r->error = result->error;
    if (result->end != DRA_JOB_DONE) return;
    if (result->bytes > 0) write_text(r, result->text, result->bytes);
    r->finish = result->finish;
    r->ended = true;
}

/* What a row is to write by the call that is going on. */
static dra_job_config job_of(const dra_generator *g, int64_t row, int64_t tokens)
{
    const dra_generate_config *c = g->call;
    dra_job_config             job = {.tokens = tokens > 0 ? tokens : -1,
                                      .sampler = g->config.sampler,
                                      .n_stop = c->n_stop,
                                      .stop = c->stop,
                                      .n_ends = c->n_ends,
                                      .ends = c->ends,
                                      .ignore_end = c->ignore_end,
                                      .n_stop_tokens = c->n_stop_tokens,
                                      .stop_tokens = c->stop_tokens,
                                      .logprobs = c->logprobs > 0 ? c->logprobs : -1,
                                      .grammar = g->config.grammar};
    job.sampler.seed = seed_of(g, row);
    return job;
}

static dra_status start_row(dra_generator *g, int64_t row, int64_t tokens, dra_error *err)
{
    dra_generator_row *r = &g->row[row];
    dra_job_config     job = job_of(g, row, tokens);
    const dra_status   st = check_begun(g, row, " to continue from", err);
    r->ids.n = 0;
    r->ended = false;
    r->top = dra_imin(g->call->logprobs, g->V);
    job.token = write_token;
    job.end = end_writing;
    return st == DRA_OK ? submit_row(g, row, job, err) : st;
}

/* Rows that have ended hand out what they have, and may begin another text. */
static dra_status conclude_rows(dra_generator *g, dra_generated *out, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++) {
        dra_generator_row *r = &g->row[b];
        if (!r->ended) continue;
        r->ended = false;
        const dra_generated done = {r->finish, r->ids.n, r->ids.data, r->top ? r->logprobs : NULL,
                                    r->top};
        if (out) out[b] = done;
        st = ask_next(g, b, &done, err);
    }
    return st;
}

static void show_rows(const dra_generator *g, dra_generated *out)
{
    for (int64_t b = 0; b < g->config.rows && out; b++) {
        const dra_generator_row *r = &g->row[b];
        if (r->running)
            out[b] = (dra_generated){DRA_FINISH_COUNT, r->ids.n, r->ids.data,
                                     r->top ? r->logprobs : NULL, r->top};
    }
}

static bool any_running(const dra_generator *g)
{
    bool any = false;
    for (int64_t b = 0; b < g->config.rows; b++) any = any || g->row[b].running;
    return any;
}

static void cancel_all(dra_generator *g)
{
    for (int64_t b = 0; b < g->config.rows; b++)
        if (g->row[b].running) dra_engine_cancel(g->engine, g->row[b].job);
    if (any_running(g)) run_jobs(g, NULL);
}

/* One step of the engine; what went wrong in a row is told with its number. */
static dra_status step_rows(dra_generator *g, dra_error *err)
{
    bool       idle;
    dra_status st = dra_engine_step(g->engine, &idle, err);
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++) {
        const dra_error *e = &g->row[b].error;
        if (e->code != DRA_OK)
            st = dra_fail(err, e->code, "generate: row %lld, %s", (long long)b, e->text);
    }
    return st;
}

static dra_status check_call(const dra_generator *g, const dra_generate_config *c, dra_error *err)
{
    const dra_job_config job = {.n_stop = c->n_stop,
                                .n_ends = c->n_ends,
                                .n_stop_tokens = c->n_stop_tokens,
                                .stop_tokens = c->stop_tokens};
    dra_status           st = dra_job_check_options(g->engine, &job, err);
    for (int64_t b = 0; b < g->config.rows && !c->next && st == DRA_OK; b++)
        st = check_begun(g, b, " to continue from", err);
    return st;
}

dra_status dra_generate_start(dra_generator *g, const dra_generate_config *config, dra_error *err)
{
    if (g->call) return dra_fail(err, DRA_ERR_VALUE, "generate: started before, and not stopped");
    dra_status st = check_call(g, config, err);
    g->call = config;
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++)
        st = g->row[b].state ? start_row(g, b, config->tokens, err) : ask_next(g, b, NULL, err);
    if (st != DRA_OK) dra_generate_stop(g);
    return st;
}

dra_status dra_generate_step(dra_generator *g, dra_generated *out, bool *more, dra_error *err)
{
    *more = false;
    if (!g->call) return dra_fail(err, DRA_ERR_VALUE, "generate: a step before the start");
    dra_status st = DRA_OK;
    if (any_running(g)) st = step_rows(g, err);
    if (st == DRA_OK) st = conclude_rows(g, out, err);
    if (st == DRA_OK) show_rows(g, out);
    *more = st == DRA_OK && any_running(g);
    return st;
}

void dra_generate_stop(dra_generator *g)
{
    cancel_all(g);
    g->call = NULL;
}

dra_status dra_generate(dra_generator *g, const dra_generate_config *config, dra_generated *out,
                        dra_error *err)
{
    bool       more = true;
    dra_status st = dra_generate_start(g, config, err);
    if (st != DRA_OK) return st;
    while (st == DRA_OK && more) st = dra_generate_step(g, out, &more, err);
    dra_generate_stop(g);
    return st;
}

/* ---- beam search ----------------------------------------------------------------------------- */

/* Asks once a step whether a row shall have another token. */
static bool ask_beams(void *user, const dra_job_token *t)
{
    dra_generator_row         *r = user;
    const dra_generate_config *c = r->of->call;
    (void)t;
    return !c->write || c->write(c->user, (r - r->of->row) * r->n_beams, "", 0);
}

/* Texts stay with the row until its next call. */
static dra_status take_beams(dra_generator_row *r, const dra_job_result *result)
{
    size_t n = 0;
    for (int64_t k = 0; k < result->n_beams; k++) n += result->beams[k].text.n;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) return no_memory(&r->error);
    dra_ids_free(&r->ids);
    r->ids = (dra_ids){ids, n, n + 1};
    for (int64_t k = 0; k < result->n_beams; k++) {
        const dra_generated *from = &result->beams[k].text;
        r->beams[k] = result->beams[k];
        r->beams[k].text.ids = ids;
        if (from->n) memcpy(ids, from->ids, from->n * sizeof *ids);
        ids += from->n;
    }
    return DRA_OK;
}

static void end_beams(void *user, const dra_job_result *result)
{
    dra_generator_row *r = user;
    r->running = false;
    if (result->end == DRA_JOB_FAILED) r->error = result->error;
    if (result->end == DRA_JOB_DONE && result->n_beams) take_beams(r, result);
}

static dra_status start_beams(dra_generator *g, int64_t row, const dra_beam_config *how,
                              dra_error *err)
{
    dra_generator_row *r = &g->row[row];
    dra_job_config     job = job_of(g, row, g->call->tokens);
    dra_beam          *more = realloc(r->beams, (size_t)how->beams * sizeof *more);
    if (!more) return no_memory(err);
    r->beams = more;
    r->n_beams = how->beams;
    for (int64_t k = 0; k < how->beams; k++) more[k] = (dra_beam){.score = -INFINITY};
    job.beam = *how;
    job.token = ask_beams;
    job.end = end_beams;
    return submit_row(g, row, job, err);
}

static dra_status hand_out(dra_generator *g, int64_t at, const dra_generated *text, dra_error *err)
{
    const dra_generate_config *c = g->call;
    dra_text_stream            outlet = {0};
    dra_text_chunk             flow = {0};
    dra_status                 st = DRA_OK;
    size_t                     bytes = 0;
    for (size_t i = 0; i <= text->n && c->write && st == DRA_OK; i++) {
        const char *piece = i < text->n ? dra_token_piece(g->config.tokenizer, text->ids[i], &bytes)
                                        : NULL;
        st = piece ? dra_text_stream_push(&outlet, piece, bytes, &flow, err)
                   : dra_text_stream_flush(&outlet, &flow, err);
        if (st == DRA_OK && flow.bytes) c->write(c->user, at, flow.text, flow.bytes);
    }
    dra_text_stream_free(&outlet);
    return st;
}

static dra_status conclude_beams(dra_generator *g, int64_t N, dra_beam *out, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t b = 0; b < g->config.rows; b++) {
        for (int64_t k = 0; k < N && st == DRA_OK; k++) {
            const dra_beam *beam = &g->row[b].beams[k];
            out[b * N + k] = *beam;
            if (beam->score > -INFINITY) st = hand_out(g, b * N + k, &beam->text, err);
        }
    }
    return st;
}

static dra_status check_beams(const dra_generator *g, const dra_generate_config *c,
                              const dra_beam_config *how, dra_error *err)
{
    const dra_job_config job = {
        .sampler = g->config.sampler, .n_stop = c->n_stop, .logprobs = c->logprobs, .beam = *how};
    if (c->next) return dra_fail(err, DRA_ERR_VALUE, "beam search: has no next texts");
    dra_status st = dra_search_check(&job, err);
    if (st == DRA_OK && g->config.rows * how->beams > ROWS_MOST)
        st = dra_fail(err, DRA_ERR_VALUE, "beam search: %lld rows of %lld beams, expected up to %d",
                      (long long)g->config.rows, (long long)how->beams, ROWS_MOST);
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++)
        st = check_begun(g, b, " to continue from", err);
    return st;
}

dra_status dra_generate_beam(dra_generator *g, const dra_generate_config *config,
                             const dra_beam_config *beam_config, dra_beam *out, dra_error *err)
{
    const int64_t rows = g->config.rows;
    dra_status    st = check_beams(g, config, beam_config, err);
    g->call = config;
    if (st == DRA_OK) st = dra_engine_widen(g->engine, rows * beam_config->beams, err);
    for (int64_t b = 0; b < rows && st == DRA_OK; b++) st = start_beams(g, b, beam_config, err);
    while (st == DRA_OK && any_running(g)) st = step_rows(g, err);
    if (st == DRA_OK) st = conclude_beams(g, beam_config->beams, out, err);
    cancel_all(g);
    g->call = NULL;
    return st;
}
