/* Reading tokens of some sequences at a time.
 *
 * A prompt is read with one row, so that its chunks, and with them every bit, are those it would
 * have alone; a step reads one token of all rows at once. A program is compiled for each length, so
 * any length is put together of a few. A token that was picked is read when the next one is wanted:
 * what turns out not to be wanted was never read.
 *
 * Logits stay on the device, where the next tokens are picked of them, and steps are started, not
 * waited for: the host waits once a token, for its id. */
#include "generate/generator.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "sequence/states.h"

static const int64_t lengths[] = {DRA_GENERATOR_PIECE, 128, 32, 8, 1};

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "generator: out of memory");
}

static dra_status open_reader(dra_generator *g, dra_error *err)
{
    const dra_generator_config *c = &g->config;
    g->view = (dra_view){.model = c->model, .logits = true, .keep = 1};
    const dra_module module = dra_view_module(&g->view);
    dra_status       st = dra_reader_create(c->device, &module, &g->reader, err);
    if (st == DRA_OK) dra_reader_defer(g->reader, true);
    if (st == DRA_OK) dra_reader_clamp(g->reader, c->state_limit >= 0);
    if (st == DRA_OK) dra_reader_clamp_limit(g->reader, c->state_limit);
    if (st == DRA_OK) st = dra_weights_bind(c->weights, g->reader, err);
    if (st == DRA_OK) st = dra_picker_create(c->device, c->rows, g->V, &g->picker, err);
    if (st == DRA_OK) st = dra_picker_bias(g->picker, dra_sampler_biases(g->sampler), err);
    if (st == DRA_OK) st = dra_states_create(c->device, module.state, c->rows, &g->states, err);
    if (st == DRA_OK && c->rows > 1)
        st = dra_states_create(c->device, module.state, 1, &g->one, err);
    return st;
}

static dra_status check(const dra_generator_config *c, int64_t V, dra_error *err)
{
    const int32_t size = c->tokenizer ? dra_tokenizer_size(c->tokenizer) : 0;
    if (c->rows < 1 || c->rows > 1 << 16)
        return dra_fail(err, DRA_ERR_VALUE, "generator: %lld rows, expected 1 to 65536",
                        (long long)c->rows);
    if (c->samples < 1 || c->samples > c->rows)
        return dra_fail(err, DRA_ERR_VALUE, "generator: %lld samples, expected 1 to %lld, the rows",
                        (long long)c->samples, (long long)c->rows);
    if (dra_model_config_of(c->model)->visible == DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE,
                        "generator: the model is an encoder, whose tokens see later ones");
    if (c->prefix && dra_model_config_of(c->model)->visible != DRA_VISIBLE_PREFIX)
        return dra_fail(err, DRA_ERR_VALUE,
                        "generator: the model has no prefixes: expected visible prefix");
    if (size > V)
        return dra_fail(err, DRA_ERR_VALUE,
                        "generator: the tokenizer has ids 0 to %d, the model 0 to %lld", size - 1,
                        (long long)V - 1);
    return dra_contrast_check(c, &c->sampler, err);
}

dra_status dra_generator_create(const dra_generator_config *config, dra_generator **out,
                                dra_error *err)
{
    dra_generator *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return out_of_memory(err);
    g->config = *config;
    if (!g->config.rows) g->config.rows = 1;
    if (!g->config.samples) g->config.samples = g->config.rows;
    g->V = dra_model_config_of(config->model)->vocab;
    dra_status   st = check(&g->config, g->V, err);
    const size_t rows = st == DRA_OK ? (size_t)g->config.rows : 0;
    if (st == DRA_OK) {
        g->row = calloc(rows, sizeof *g->row);
        g->how = calloc(rows, sizeof *g->how);
        g->ids = calloc(rows, sizeof *g->ids);
        g->mark = calloc(rows, sizeof *g->mark);
        if (!g->row || !g->how || !g->ids || !g->mark) st = out_of_memory(err);
    }
    for (size_t b = 0; b < rows && g->row; b++) g->row[b].next = -1;
    if (st == DRA_OK) st = dra_sampler_create(&g->config.sampler, g->V, &g->sampler, err);
    if (st == DRA_OK) st = open_reader(g, err);
    if (st == DRA_OK) st = dra_amateurs_create(g, err);
    if (st == DRA_OK) st = dra_generator_constrain(g, err);
    if (st == DRA_OK)
        *out = g;
    else
        dra_generator_destroy(g);
    return st;
}

void dra_generator_destroy(dra_generator *g)
{
    if (!g) return;
    for (int64_t b = 0; g->row && b < g->config.rows; b++) {
        dra_ids_free(&g->row[b].ids);
        dra_text_stream_free(&g->row[b].outlet);
        dra_snapshot_drop(&g->row[b].back);
        free(g->row[b].logprobs);
        free(g->row[b].place);
        free(g->row[b].origin);
    }
    dra_generator_destroy(g->wide);
    dra_amateurs_destroy(g);
    dra_generator_unconstrain(g);
    dra_reader_destroy(g->reader);
    dra_states_destroy(g->states);
    dra_states_destroy(g->one);
    dra_sampler_destroy(g->sampler);
    dra_picker_destroy(g->picker);
    free(g->row);
    free(g->how);
    free(g->ids);
    free(g->mark);
    free(g);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static dra_status check_row(const dra_generator *g, int64_t row, dra_error *err)
{
    if (row >= 0 && row < g->config.rows) return DRA_OK;
    return dra_fail(err, DRA_ERR_INDEX, "generator: row %lld, expected 0 to %lld", (long long)row,
                    (long long)g->config.rows - 1);
}

int64_t dra_generator_clamped(const dra_generator *g)
{
    int64_t n = dra_reader_clamped(g->reader) + g->clamped;
    if (g->wide) n += dra_generator_clamped(g->wide);
    for (int i = 0; i < g->config.n_amateurs; i++) n += dra_generator_clamped(g->amateur[i]);
    return n;
}

int64_t dra_generator_tokens(const dra_generator *g, int64_t row)
{
    return dra_states_tokens(g->states, row) + (g->row[row].next >= 0);
}

dra_status dra_generator_reset(dra_generator *g, int64_t row, dra_error *err)
{
    dra_status st = check_row(g, row, err);
    if (st == DRA_OK) st = dra_states_reset(g->states, row, err);
    for (int i = 0; i < g->config.n_amateurs && st == DRA_OK; i++)
        st = dra_generator_reset(g->amateur[i], row, err);
    if (st != DRA_OK) return st;
    g->row[row].begun = false;
    g->row[row].next = -1;
    dra_row_begin_text(&g->row[row]);
    dra_picker_set_seen(g->picker, row, NULL);
    return DRA_OK;
}

dra_status dra_generator_take(dra_generator *g, int64_t to, const dra_generator *other,
                              int64_t from, dra_error *err)
{
    dra_status st = dra_states_copy(g->states, to, other->states, from, err);
    for (int i = 0; i < g->config.n_amateurs && st == DRA_OK; i++)
        st = dra_generator_take(g->amateur[i], to, other->amateur[i], from, err);
    if (st == DRA_OK) st = dra_row_set_place(&g->row[to], other->row[from].place, err);
    if (st == DRA_OK)
        st = dra_picker_take(g->picker, to, 1, dra_picker_logits(other->picker, from, 1), err);
    if (st != DRA_OK) return st;
    g->row[to].begun = other->row[from].begun;
    g->row[to].next = other->row[from].next;
    dra_picker_set_seen(g->picker, to, dra_picker_seen(other->picker, from));
    return DRA_OK;
}

dra_status dra_generator_copy(dra_generator *g, int64_t to, int64_t from, dra_error *err)
{
    dra_status st = check_row(g, to, err);
    if (st == DRA_OK) st = check_row(g, from, err);
    return st != DRA_OK || to == from ? st : dra_generator_take(g, to, g, from, err);
}

size_t dra_generator_state_bytes(const dra_generator *g)
{
    size_t bytes = dra_states_bytes(g->states);
    for (int i = 0; i < g->config.n_amateurs; i++)
        bytes += dra_generator_state_bytes(g->amateur[i]);
    return bytes;
}

dra_status dra_generator_set_sampler(dra_generator *g, const dra_sampler_config *config,
                                     dra_error *err)
{
    dra_sampler *sampler = NULL;
    dra_status   st = dra_contrast_check(&g->config, config, err);
    if (st == DRA_OK) st = dra_sampler_create(config, g->V, &sampler, err);
    if (st == DRA_OK) st = dra_picker_bias(g->picker, dra_sampler_biases(sampler), err);
    if (st != DRA_OK) {
        dra_sampler_destroy(sampler);
        return st;
    }
    dra_sampler_destroy(g->sampler);
    g->sampler = sampler;
    g->config.sampler = *config;
    return DRA_OK;
}

dra_status dra_generator_see(dra_generator *g, int64_t row, dra_real **out, dra_error *err)
{
    const dra_status st = dra_picker_see(g->picker, g->reader, out, err);
    *out += st == DRA_OK ? row * g->V : 0;
    return st;
}

dra_status dra_generator_logits(dra_generator *g, int64_t row, const dra_real **logits,
                                dra_error *err)
{
    dra_real *own = NULL;
    *logits = NULL;
    dra_status st = check_row(g, row, err);
    if (st == DRA_OK) st = dra_generator_flush_pending(g, err);
    if (st == DRA_OK && !g->row[row].begun)
        st = dra_fail(err, DRA_ERR_VALUE, "generator: row %lld has read nothing", (long long)row);
    if (st == DRA_OK) st = dra_generator_see(g, row, &own, err);
    if (st == DRA_OK) *logits = own;
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int64_t positions_of(const dra_generator *g)
{
    const dra_model_config *c = dra_model_config_of(g->config.model);
    int64_t most = c->positions == DRA_POSITIONS_LEARNED && !c->xl.memory ? c->context : INT32_MAX;
    for (int i = 0; i < g->config.n_amateurs; i++)
        most = dra_imin(most, positions_of(g->amateur[i]));
    return most;
}

bool dra_generator_fits(const dra_generator *g, int64_t row, size_t n)
{
    const int64_t most = positions_of(g);
    return n <= (size_t)most && dra_generator_tokens(g, row) <= most - (int64_t)n;
}

dra_status dra_fail_positions(int64_t n, int64_t before, int64_t positions, dra_error *err)
{
    return before ? dra_fail(err, DRA_ERR_VALUE,
                             "%lld tokens after %lld: this model has positions for %lld; nothing "
                             "is cut off",
                             (long long)n, (long long)before, (long long)positions)
                  : dra_fail(err, DRA_ERR_VALUE,
                             "the text has %lld tokens, this model has positions for %lld; nothing "
                             "is cut off",
                             (long long)n, (long long)positions);
}

static dra_status check_ids(const dra_generator *g, int64_t row, size_t n, const int32_t *ids,
                            dra_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->V)
            return dra_fail(err, DRA_ERR_INDEX, "token %zu is %d, the model has 0 to %lld", i,
                            ids[i], (long long)g->V - 1);
    if (dra_generator_fits(g, row, n)) return DRA_OK;
    return dra_fail_positions((int64_t)n, dra_generator_tokens(g, row), positions_of(g), err);
}

/* One row has read n tokens: waits for them, and takes their last logits. */
static dra_status keep_logits(dra_generator *g, int64_t row, int64_t n, const int32_t *ids,
                              dra_error *err)
{
    const dra_status st = dra_reader_finish(g->reader, err);
    const dra_span   there = dra_reader_result_span(g->reader, "logits");
    const dra_real  *here = there.array ? NULL : dra_reader_result(g->reader, "logits");
    if (st != DRA_OK) return st;
    if (!there.array && !here) return out_of_memory(err);
    for (int64_t i = 0; i < n; i++) dra_picker_mark(g->picker, row, ids[i]);
    g->row[row].begun = true;
    return here ? dra_picker_put(g->picker, row, here, err)
                : dra_picker_take(g->picker, row, 1, there, err);
}

static dra_status read_chunks(dra_generator *g, dra_states *s, int64_t n, const int32_t *ids,
                              dra_error *err)
{
    /* At once: each room is a program of its own. */
    dra_status st = dra_states_reserve(s, n + dra_view_module(&g->view).start, err);
    for (int64_t at = 0, k = 0; at < n && st == DRA_OK;) {
        const int64_t T = lengths[k];
        if (T > n - at) {
            k++;
            continue;
        }
        const dra_named in = {"ids", ids + at, (size_t)T * sizeof *ids};
        st = dra_reader_read(g->reader, s, T, NULL, 1, &in, err);
        at += T;
    }
    return st;
}

/* All at once: a program of its own for every length. */
static dra_status read_prefix(dra_generator *g, dra_states *s, int64_t n, const int32_t *ids,
                              dra_error *err)
{
    const dra_named in = {"ids", ids, (size_t)n * sizeof *ids};
    int32_t        *mark = malloc((size_t)n * sizeof *mark);
    if (!mark) return out_of_memory(err);
    for (int64_t t = 0; t < n; t++) mark[t] = DRA_MARK_PREFIX;
    const dra_status st = dra_reader_read(g->reader, s, n, mark, 1, &in, err);
    free(mark);
    return st;
}

dra_status dra_generator_feed(dra_generator *g, int64_t row, size_t count, const int32_t *ids,
                              dra_error *err)
{
    const int64_t n = (int64_t)count;
    dra_states   *s = g->one ? g->one : g->states;
    if (n == 0) return DRA_OK;
    dra_status st = check_ids(g, row, count, ids, err);
    if (st == DRA_OK && g->one) st = dra_states_copy(s, 0, g->states, row, err);
    const bool prefix = g->config.prefix && dra_states_tokens(s, 0) == 0;
    if (st == DRA_OK) st = (prefix ? read_prefix : read_chunks)(g, s, n, ids, err);
    if (st == DRA_OK) st = keep_logits(g, row, n, ids, err);
    if (st == DRA_OK && g->one) st = dra_states_copy(g->states, row, s, 0, err);
    for (int i = 0; i < g->config.n_amateurs && st == DRA_OK; i++)
        st = dra_generator_feed(g->amateur[i], row, count, ids, err);
    return st;
}

dra_status dra_generator_read(dra_generator *g, int64_t row, size_t n, const int32_t *ids,
                              dra_error *err)
{
    dra_status st = check_row(g, row, err);
    if (st == DRA_OK) st = check_ids(g, row, n, ids, err);
    if (st == DRA_OK) st = dra_generator_flush_pending(g, err);
    if (st == DRA_OK && n > 0) dra_row_begin_text(&g->row[row]);
    return st == DRA_OK ? dra_generator_feed(g, row, n, ids, err) : st;
}

/* ---- a context ------------------------------------------------------------------------------- */

/* The input that a context is read as: a text, and all that the model reads besides its own. */
static dra_status find_source(const dra_generator *g, dra_model_input *out, dra_error *err)
{
    dra_model_input in;
    int             texts = 0, others = g->config.n_amateurs;
    for (int i = 0; dra_model_input_at(g->config.model, i, &in); i++) {
        const bool text = in.kind == DRA_SOURCE_TOKENS && !in.numbers && !in.prepended;
        if (text && in.context) *out = in;
        texts += text && in.context;
        others += !text;
    }
    if (texts == 1 && others == 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "generator: expected a model that reads two texts, and no amateurs");
}

static dra_status check_source(const dra_model_input *in, size_t n, const int32_t *ids,
                               dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(in->model);
    const bool              learned = c->positions == DRA_POSITIONS_LEARNED;
    if (n < 1 || n > (size_t)(learned ? c->context : INT32_MAX / 2))
        return dra_fail(err, DRA_ERR_VALUE, "source: %zu tokens, expected 1 to %lld", n,
                        (long long)(learned ? c->context : INT32_MAX / 2));
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= in->vocab)
            return dra_fail(err, DRA_ERR_INDEX, "source: token %zu is %d, the model has 0 to %lld",
                            i, ids[i], (long long)in->vocab - 1);
    return DRA_OK;
}

dra_status dra_generator_read_source(dra_generator *g, int64_t row, size_t n_source,
                                     const int32_t *source, size_t n, const int32_t *ids,
                                     dra_error *err)
{
    dra_states     *s = g->one ? g->one : g->states;
    dra_model_input in = {0};
    dra_status      st = check_row(g, row, err);
    if (st == DRA_OK) st = find_source(g, &in, err);
    if (st == DRA_OK) st = check_source(&in, n_source, source, err);
    if (st == DRA_OK && n < 1)
        st = dra_fail(err, DRA_ERR_VALUE, "generator: no token to begin with, expected 1 or more");
    if (st == DRA_OK) st = dra_generator_flush_pending(g, err);
    if (st == DRA_OK) st = dra_generator_reset(g, row, err);
    if (st == DRA_OK) st = check_ids(g, row, n, ids, err);
    if (st == DRA_OK && g->one) st = dra_states_reset(s, 0, err);
    if (st != DRA_OK) return st;
    const dra_context_text context = {(int64_t)n_source, NULL};
    const dra_named        inputs[] = {{"ids", ids, n * sizeof *ids},
                                       {in.name, source, n_source * sizeof *source}};
    st = dra_reader_read_context(g->reader, s, &context, (int64_t)n, NULL, 2, inputs, err);
    if (st == DRA_OK) st = keep_logits(g, row, (int64_t)n, ids, err);
    return st == DRA_OK && g->one ? dra_states_copy(g->states, row, s, 0, err) : st;
}

/* Rows that were reading take their logits of a step, (B, 1, V). */
static dra_status take_step(dra_generator *g, bool all, dra_error *err)
{
    const dra_span logits = dra_reader_result_span(g->reader, "logits");
    const size_t   each = (size_t)g->V * sizeof(dra_real);
    dra_status     st = DRA_OK;
    if (all) return dra_picker_take(g->picker, 0, g->config.rows, logits, err);
    for (int64_t b = 0; b < g->config.rows && st == DRA_OK; b++)
        if (g->row[b].next >= 0)
            st = dra_picker_take(g->picker, b, 1, dra_span_part(logits, (size_t)b * each, each),
                                 err);
    return st;
}

dra_status dra_generator_flush_pending(dra_generator *g, dra_error *err)
{
    const int64_t B = g->config.rows;
    int64_t       wanted = 0;
    for (int64_t b = 0; b < B; b++) {
        const bool reads = g->row[b].next >= 0;
        g->ids[b] = reads ? g->row[b].next : 0;
        g->mark[b] = reads ? 0 : DRA_MARK_PAD;
        wanted += reads;
    }
    if (!wanted) return DRA_OK;
    const dra_named in = {"ids", g->ids, (size_t)B * sizeof *g->ids};
    dra_status      st = dra_amateurs_flush(g, err);
    if (st == DRA_OK)
        st = dra_reader_read(g->reader, g->states, 1, wanted < B ? g->mark : NULL, 1, &in, err);
    if (st == DRA_OK) st = take_step(g, wanted == B, err);
    for (int64_t b = 0; b < B && st == DRA_OK; b++) {
        if (g->row[b].next < 0) continue;
        dra_picker_mark(g->picker, b, g->row[b].next);
        g->row[b].begun = true;
        g->row[b].next = -1;
    }
    return st;
}

uint64_t dra_generator_stream(const dra_generator *g, int64_t row)
{
    const dra_row *r = &g->row[row];
    return r->seeded ? r->seed - g->config.sampler.seed : (uint64_t)(row % g->config.samples);
}

dra_status dra_generator_set_seed(dra_generator *g, int64_t row, uint64_t seed, dra_error *err)
{
    const dra_status st = check_row(g, row, err);
    if (st != DRA_OK) return st;
    g->row[row].seeded = true;
    g->row[row].seed = seed;
    return DRA_OK;
}

/* ---- going back ------------------------------------------------------------------------------ */

static dra_status keep_row(dra_generator *g, int64_t row, dra_context *out, dra_error *err);

static dra_status keep_amateurs(const dra_generator *g, int64_t row, dra_context *out,
                                dra_error *err)
{
    const int  n = g->config.n_amateurs;
    dra_status st = DRA_OK;
    if (n == 0) return DRA_OK;
    out->amateur = calloc((size_t)n, sizeof *out->amateur);
    if (!out->amateur) return out_of_memory(err);
    out->amateurs = n;
    for (int i = 0; i < n && st == DRA_OK; i++)
        st = keep_row(g->amateur[i], row, &out->amateur[i], err);
    return st;
}

/* What a row has read, without the token it has picked, which is not read yet. */
static dra_status keep_row(dra_generator *g, int64_t row, dra_context *out, dra_error *err)
{
    const size_t V = (size_t)g->V;
    dra_real    *logits;
    *out = (dra_context){0};
    dra_status st = dra_generator_see(g, row, &logits, err);
    if (st == DRA_OK) st = dra_states_gather(g->states, 1, &row, &out->states, err);
    if (st == DRA_OK) st = keep_amateurs(g, row, out, err);
    if (st == DRA_OK) st = dra_grammar_state_copy(g->row[row].place, &out->grammar, err);
    if (st == DRA_OK) {
        out->logits = malloc(V * sizeof *out->logits);
        out->seen = malloc(V * sizeof *out->seen);
        if (!out->logits || !out->seen) st = out_of_memory(err);
    }
    if (st != DRA_OK) {
        dra_context_free(out);
        return st;
    }
    memcpy(out->logits, logits, V * sizeof *out->logits);
    memcpy(out->seen, dra_picker_seen(g->picker, row), V * sizeof *out->seen);
    return DRA_OK;
}

dra_status dra_generator_keep(dra_generator *g, int64_t row, dra_context *out, dra_error *err)
{
    *out = (dra_context){0};
    dra_status st = check_row(g, row, err);
    if (st == DRA_OK) st = dra_generator_flush_pending(g, err);
    return st == DRA_OK ? keep_row(g, row, out, err) : st;
}

dra_status dra_generator_back(dra_generator *g, int64_t row, const dra_context *kept,
                              dra_error *err)
{
    dra_status st = check_row(g, row, err);
    if (st == DRA_OK && kept->amateurs != g->config.n_amateurs)
        st = dra_fail(err, DRA_ERR_VALUE, "generator: kept with %d amateurs, expected %d",
                      kept->amateurs, g->config.n_amateurs);
    if (st == DRA_OK && g->config.grammar &&
        !dra_grammar_state_of(kept->grammar, g->config.grammar))
        st = dra_fail(err, DRA_ERR_VALUE, "generator: kept with another grammar");
    if (st == DRA_OK) st = dra_row_set_place(&g->row[row], kept->grammar, err);
    if (st == DRA_OK) st = dra_states_copy(g->states, row, kept->states, 0, err);
    for (int i = 0; i < kept->amateurs && st == DRA_OK; i++)
        st = dra_generator_back(g->amateur[i], row, &kept->amateur[i], err);
    if (st != DRA_OK) return st;
    st = dra_generator_adopt(g, row, kept, 0, err);
    g->row[row].begun = dra_states_tokens(kept->states, 0) > 0;
    return st;
}

dra_status dra_generator_adopt(dra_generator *g, int64_t row, const dra_context *c, int64_t from,
                               dra_error *err)
{
    const int64_t at = from * g->V;
    dra_picker_set_seen(g->picker, row, c->seen + at);
    g->row[row].begun = true;
    g->row[row].next = -1;
    return dra_picker_put(g->picker, row, c->logits + at, err);
}

void dra_snapshot_drop(dra_snapshot *s)
{
    dra_context_free(&s->kept);
    s->ids = 0;
}

dra_status dra_snapshot_take(dra_generator *g, int64_t row, dra_error *err)
{
    dra_snapshot *s = &g->row[row].back;
    dra_snapshot_drop(s);
    s->ids = g->row[row].ids.n - 1;
    return keep_row(g, row, &s->kept, err);
}

dra_status dra_snapshot_restore(dra_generator *g, int64_t row, dra_error *err)
{
    return dra_generator_back(g, row, &g->row[row].back.kept, err);
}
