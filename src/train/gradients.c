/* Microbatches: the loss of a model and its gradients, for whole rows or through chunks.
 *
 * A program is compiled for each shape on first use. Forward programs only advance the state;
 * gradient programs add to the gradients, which they update in place. Through chunks:
 *   forwards   s_1 = f(s_0, chunk 1), ...   keeping the state before every chunk
 *   backwards  from the last chunk on, d s_k = d(loss_k)/d s_k + (d s_{k+1}) d s_{k+1}/d s_k
 * so that only one chunk's activations exist at a time. No gradient crosses the border of a
 * segment, so a chunk between two such borders needs one pass. Numbers for the host go into rows of
 * metrics, which are read at the end: nothing waits in between. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/array.h"
#include "train/gradients.h"
#include "sequence/segments.h"
#include "session/session.h"

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "gradients: out of memory");
}

/* How a microbatch is cut: no chunk crosses the border of a segment. */
typedef struct cutting {
    dra_microbatch q;
    int64_t       *length;
    bool          *ends; /* after chunk k all rows have read whole segments; NULL: there are none */
} cutting;

/* Whether chunk k neither gets a gradient from later chunks nor passes one to earlier chunks. */
static bool stands_alone(const cutting *cut, int k)
{
    return cut->ends && (k == 0 || cut->ends[k - 1]) && (k + 1 == cut->q.chunks || cut->ends[k]);
}

/* ---- one chunk ------------------------------------------------------------------------------- */

typedef struct chunk { /* tokens of a microbatch, cut out of it; all (B, T) */
    int64_t     first, T, count;
    int64_t     tokens;               /* of all rows, as layers see them */
    int32_t    *memory;               /* of the following */
    int32_t    *ids, *targets, *mark; /* NULL: there are none */
    int32_t    *at;                   /* (B): where it starts, as layers count */
    dra_states *start;                /* the state before it; NULL: fresh */
} chunk;

static dra_status put_random(dra_gradients *l, const dra_microbatch *q, const chunk *c,
                             dra_error *err)
{
    const int32_t key[4] = {(int32_t)q->seed, (int32_t)(q->seed >> 32), (int32_t)q->step,
                            (int32_t)(q->step >> 32)};
    const size_t  bytes = (size_t)q->B * sizeof *l->starts;
    int32_t      *given = realloc(l->starts, bytes);
    if (!given) return out_of_memory(err);
    l->starts = given;
    for (int64_t r = 0; r < q->B; r++) given[r] = (int32_t)c->first;
    dra_status st = dra_session_put(l->session, l->name.random, key, sizeof key, err);
    if (st == DRA_OK) st = dra_session_put(l->session, l->name.at, c->at, bytes, err);
    if (st == DRA_OK && l->module.start > 0)
        st = dra_session_put(l->session, l->name.given_at, given, bytes, err);
    return st;
}

size_t dra_gradients_key_bytes(const dra_gradients *l)
{
    return sizeof(dra_gradients_key) + (size_t)dra_specs_count(l->state) * sizeof(int64_t);
}

/* The key of a program over T tokens that starts from s (NULL: fresh), is planned in l->extents and
 * reads l->context if the microbatch has one. */
static void make_key(dra_gradients *l, const dra_microbatch *q, const dra_states *s, int64_t T,
                     int kind)
{
    const bool         drops = dra_model_drops(l->config.model) && !q->no_dropout && !q->only_loss;
    const dra_extents *e = &l->extents;
    dra_gradients_key *k = l->key;
    *k = (dra_gradients_key){.B = q->B,
                             .T = T,
                             .inner = e->T,
                             .marks = (e->marked ? MARKED : 0) | (e->skips ? SKIPS : 0) |
                                      (e->holes ? HOLES : 0),
                             .max_event = e->max_event,
                             .kind = kind,
                             .options = (q->clamp ? CLAMP : 0) | (drops ? DROPOUT : 0) |
                                        (kind == FORWARD ? 0 : LOSS) | (q->only_loss ? ONLY : 0)};
    if (q->context) k->context = dra_context_key_of(&l->context);
    for (int i = 0; i < dra_specs_count(l->state); i++) k->rows[i] = s ? s->at[i].rows : 0;
}

static dra_status select_program(dra_gradients *l, const dra_microbatch *q, const chunk *c,
                                 int kind, dra_error *err)
{
    dra_extents_plan(&l->extents, c->start, q->B, c->T, c->mark);
    const dra_status st = q->context ? dra_context_extents_fill(&l->context, &l->module, q->B,
                                                                q->context, err)
                                     : DRA_OK;
    if (st != DRA_OK) return st;
    make_key(l, q, c->start, c->T, kind);
    return dra_session_select(l->session, l->key, dra_gradients_key_bytes(l), err);
}

/* Binds what a microbatch has besides tokens: the source and inputs by name. */
static dra_status put_further(dra_gradients *l, const dra_microbatch *q, dra_error *err)
{
    dra_status st = q->context ? dra_context_extents_put(&l->context, q->B, true, l->session,
                                                         &l->name.context, err)
                               : DRA_OK;
    for (int i = 0; i < q->n_inputs && st == DRA_OK; i++)
        st = dra_session_put(l->session, dra_session_name(l->session, q->inputs[i].name),
                             q->inputs[i].data, q->inputs[i].bytes, err);
    return st;
}

static dra_status put_tokens(dra_gradients *l, const dra_microbatch *q, const chunk *c, int kind,
                             dra_error *err)
{
    const size_t bytes = (size_t)(q->B * c->T) * sizeof(int32_t);
    dra_status   st = dra_extents_fill(&l->extents, l->state, c->start, q->B, c->T, c->mark, err);
    if (st == DRA_OK) st = dra_extents_put(&l->extents, l->session, &l->name.tokens, err);
    if (st == DRA_OK && c->ids) st = dra_session_put(l->session, l->name.ids, c->ids, bytes, err);
    if (st == DRA_OK && kind != FORWARD && l->name.targets >= 0 && c->targets)
        st = dra_session_put(l->session, l->name.targets, c->targets, bytes, err);
    if (st == DRA_OK) st = put_further(l, q, err);
    if (st == DRA_OK && dra_model_drops(l->config.model) && !q->no_dropout && !q->only_loss)
        st = put_random(l, q, c, err);
    return st;
}

static dra_status bind_states(dra_gradients *l, const dra_states *s, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; s && i < dra_specs_count(l->state) && st == DRA_OK; i++)
        st = dra_session_bind(l->session, l->name.state[i], dra_states_span(s, i), err);
    return st;
}

/* Binds the next row of metrics, and remembers the weight of its numbers. */
static dra_status bind_row(dra_gradients *l, dra_metric_row row, dra_error *err)
{
    const size_t real = sizeof(dra_real), each = DRA_METRICS * real;
    dra_status   st = DRA_OK;
    if (l->n_rows == l->rows_room) return dra_fail(err, DRA_ERR_INDEX, "gradients: no row is left");
    const dra_span all = {l->metrics, (size_t)l->n_rows * each, each};
    for (int k = 0; k < DRA_METRICS && st == DRA_OK; k++)
        st = dra_session_bind(
            l->session, l->name.metric[k],
            dra_span_part(all, (size_t)k * real, k == DRA_METRIC_CLAMPED ? sizeof(int32_t) : real),
            err);
    if (st == DRA_OK) l->rows[l->n_rows++] = row;
    return st;
}

/* The share of a chunk in the targets. A microbatch without targets that count gets no gradient,
 * not even of auxiliary losses. */
static double share_of(const dra_microbatch *q, int64_t count)
{
    return count == 0 ? 0 : q->share > 0 ? q->share : 1;
}

/* Starts the gradient program of a chunk that has this share of the targets and tokens. */
static dra_status run_gradient(dra_gradients *l, const dra_microbatch *q, const chunk *c, int kind,
                               double targets, double tokens, dra_error *err)
{
    const double   share = share_of(q, l->counts[l->microbatches]);
    const dra_real of_loss = (dra_real)(targets * share), of_rest = (dra_real)(tokens * share);
    dra_status     st = select_program(l, q, c, kind, err);
    if (st == DRA_OK) st = put_tokens(l, q, c, kind, err);
    if (st == DRA_OK && !q->only_loss)
        st = dra_session_put(l->session, l->name.share, &of_loss, sizeof of_loss, err);
    if (st == DRA_OK && !q->only_loss)
        st = dra_session_put(l->session, l->name.part, &of_rest, sizeof of_rest, err);
    if (st == DRA_OK) st = bind_states(l, c->start, err);
    if (st == DRA_OK) st = bind_row(l, (dra_metric_row){l->microbatches, targets, tokens}, err);
    return st == DRA_OK ? dra_session_start(l->session, err) : st;
}

/* Starts the program that takes s over a chunk. */
static dra_status run_forward(dra_gradients *l, const dra_microbatch *q, chunk *c, dra_states *s,
                              dra_error *err)
{
    dra_status st = select_program(l, q, c, FORWARD, err);
    if (st == DRA_OK) st = put_tokens(l, q, c, FORWARD, err);
    if (st == DRA_OK) st = bind_states(l, s, err);
    if (st == DRA_OK) st = dra_session_start(l->session, err);
    if (st == DRA_OK) dra_states_advance(s, l->module.start, c->T, c->mark);
    return st;
}

/* ---- microbatches ---------------------------------------------------------------------------- */

/* Counts the targets of a chunk; without targets, its tokens that are not pads. */
static int64_t count_targets(const chunk *c, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += c->targets ? c->targets[i] >= 0 : !c->mark || !(c->mark[i] & DRA_MARK_PAD);
    return count;
}

/* Sets at which token, as layers count, each row of a chunk starts, and how many tokens it has. */
static void count_tokens(const dra_gradients *l, const dra_microbatch *q, chunk *c)
{
    for (int64_t b = 0; b < q->B; b++) {
        const int32_t *mark = q->mark ? q->mark + b * q->T : NULL;
        const int64_t  read = q->states ? q->states->tokens[b] : 0, M = l->module.start;
        const int64_t  before = M ? M * dra_marks_starts(mark, c->first, read) : 0;
        const int64_t  after = M ? M * dra_marks_starts(mark, c->first + c->T, read) : 0;
        c->at[b] = (int32_t)(c->first + before);
        c->tokens += c->T + after - before;
    }
}

static dra_status cut_chunk(const dra_gradients *l, const dra_microbatch *q, int64_t first,
                            int64_t T, chunk *c, dra_error *err)
{
    const size_t   n = (size_t)(q->B * T);
    const int32_t *from[3] = {q->ids, q->targets, q->mark};
    int32_t       *memory = malloc((3 * n + (size_t)q->B) * sizeof *memory + 1);
    if (!memory) return out_of_memory(err);
    for (int k = 0; k < 3; k++)
        for (int64_t b = 0; b < q->B && from[k]; b++)
            memcpy(memory + (size_t)k * n + b * T, from[k] + b * q->T + first,
                   (size_t)T * sizeof *memory);
    *c = (chunk){.first = first,
                 .T = T,
                 .memory = memory,
                 .ids = q->ids ? memory : NULL,
                 .targets = q->targets ? memory + n : NULL,
                 .mark = q->mark ? memory + 2 * n : NULL,
                 .at = memory + 3 * n};
    c->count = count_targets(c, q->B * T);
    count_tokens(l, q, c);
    return DRA_OK;
}

static dra_status run_whole(dra_gradients *l, const dra_microbatch *q, chunk *c, dra_error *err)
{
    c->start = q->states;
    const dra_status st = run_gradient(l, q, c, q->states ? CARRIED : FRESH, 1, 1, err);
    if (st == DRA_OK && q->states) dra_states_advance(q->states, l->module.start, c->T, c->mark);
    return st;
}

/* Gives chunks first .. end - 1 the states they start from; s advances behind the last chunk only
 * if its state is needed. */
static dra_status run_forwards(dra_gradients *l, const dra_microbatch *q, chunk *c, int first,
                               int end, dra_states *s, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int k = first; k < end && st == DRA_OK; k++) {
        st = dra_states_clone(s, l->config.device, &c[k].start, err);
        if (st == DRA_OK && (k + 1 < q->chunks || q->states)) st = run_forward(l, q, &c[k], s, err);
    }
    return st;
}

/* Memory for the gradients of the states after a chunk: zeros at the end of the microbatch. */
static dra_status bind_state_grads(dra_gradients *l, const dra_states *s, dra_array **out,
                                   dra_error *err)
{
    size_t bytes = 0;
    for (int i = 0; i < dra_specs_count(l->state); i++)
        bytes += (dra_states_span(s, i).bytes + 63) / 64 * 64;
    dra_status st = dra_array_create(l->config.device, bytes, out, err);
    if (st == DRA_OK) st = dra_array_fill(dra_array_whole(*out), 0, err);
    bytes = 0;
    for (int i = 0; i < dra_specs_count(l->state) && st == DRA_OK; i++) {
        const dra_span grad = {*out, bytes, dra_states_span(s, i).bytes};
        st = dra_session_bind(l->session, l->name.upstream[i], grad, err);
        bytes += (grad.bytes + 63) / 64 * 64;
    }
    return st;
}

/* Starts the gradient program of chunk k, weighted by its share of all chunks. */
static dra_status run_part(dra_gradients *l, const dra_microbatch *q, const chunk *c, int k,
                           int kind, dra_error *err)
{
    const double count = (double)l->counts[l->microbatches];
    int64_t      tokens = 0;
    for (int i = 0; i < q->chunks; i++) tokens += c[i].tokens;
    return run_gradient(l, q, &c[k], kind, count > 0 ? (double)c[k].count / count : 0,
                        (double)c[k].tokens / (double)tokens, err);
}

static dra_status run_backwards(dra_gradients *l, const dra_microbatch *q, const chunk *c,
                                int first, int end, dra_error *err)
{
    dra_array *grads = NULL;
    dra_status st = bind_state_grads(l, c[first].start, &grads, err);
    for (int k = end - 1; k >= first && st == DRA_OK; k--) st = run_part(l, q, c, k, THROUGH, err);
    dra_array_destroy(grads);
    return st;
}

/* Runs a chunk that stands alone: its gradient program also advances s. */
static dra_status run_alone(dra_gradients *l, const dra_microbatch *q, chunk *c, int k,
                            dra_states *s, dra_error *err)
{
    c[k].start = s;
    const dra_status st = run_part(l, q, c, k, CARRIED, err);
    c[k].start = NULL;
    if (st == DRA_OK) dra_states_advance(s, l->module.start, c[k].T, c[k].mark);
    return st;
}

/* Makes room in s for all items of a microbatch. */
static dra_status reserve_items(dra_gradients *l, const dra_microbatch *q, dra_states *s,
                                dra_error *err)
{
    dra_extents_plan(&l->extents, s, q->B, q->T, q->mark);
    return dra_states_reserve(s, l->extents.T, err);
}

/* The end of the chunks from `first` up to the next border that no gradient crosses. */
static int next_end(const cutting *cut, int first)
{
    int k = first + 1;
    while (k < cut->q.chunks && !(cut->ends && cut->ends[k - 1])) k++;
    return k;
}

static dra_status run_through(dra_gradients *l, const cutting *cut, chunk *c, dra_error *err)
{
    const dra_microbatch *q = &cut->q;
    dra_device           *device = l->config.device;
    dra_states           *s = NULL;
    dra_status            st = q->states ? dra_states_clone(q->states, device, &s, err)
                                         : dra_states_create(device, l->state, q->B, &s, err);
    /* Reserved for all chunks at once, so that items are not moved between chunks. */
    if (st == DRA_OK) st = reserve_items(l, q, s, err);
    for (int k = 0, end; k < q->chunks && st == DRA_OK; k = end) {
        end = next_end(cut, k);
        if (stands_alone(cut, k)) {
            st = run_alone(l, q, c, k, s, err);
            continue;
        }
        st = run_forwards(l, q, c, k, end, s, err);
        if (st == DRA_OK) st = run_backwards(l, q, c, k, end, err);
    }
    for (int64_t b = 0; st == DRA_OK && q->states && b < q->B; b++)
        st = dra_states_copy(q->states, b, s, b, err);
    for (int k = 0; k < q->chunks; k++) dra_states_destroy(c[k].start);
    dra_states_destroy(s);
    return st;
}

/* A source and further inputs need whole rows. */
static dra_status check_further(const dra_gradients *l, const dra_microbatch *q, bool carried,
                                dra_error *err)
{
    if (l->module.context && !q->context)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gradients: the model has a context, the microbatch has none");
    if (q->n_inputs && q->chunks)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gradients: a microbatch with further inputs is read whole, not in chunks");
    if (!q->context) return DRA_OK;
    if (q->chunks || carried)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gradients: a microbatch with a context is read whole, in fresh rows, not "
                        "%s",
                        q->chunks ? "in chunks" : "from states");
    return dra_context_check("gradients", &l->module, q->context, q->B, err);
}

static dra_status check_prefix(const dra_gradients *l, const dra_microbatch *q, dra_error *err)
{
    for (int64_t i = 0; q->chunks && q->mark && i < q->B * q->T; i++)
        if (q->mark[i] & DRA_MARK_PREFIX)
            return dra_fail(err, DRA_ERR_VALUE,
                            "gradients: a microbatch with prefixes is read whole, not in chunks");
    return dra_prefix_check("gradients", &l->module, q->states, q->B, q->T, q->mark, err);
}

static dra_status check_microbatch(const dra_gradients *l, const dra_microbatch *q, dra_error *err)
{
    int64_t sum = 0;
    if (!l->bound) return dra_fail(err, DRA_ERR_BIND, "gradients: weights are not bound");
    if (q->B < 1 || q->T < 1)
        return dra_fail(err, DRA_ERR_VALUE, "gradients: B %lld, T %lld, expected 1 or more",
                        (long long)q->B, (long long)q->T);
    for (int k = 0; k < q->chunks; k++) {
        if (q->chunk[k] < 1 || q->chunk[k] > q->T)
            return dra_fail(err, DRA_ERR_VALUE, "gradients: chunk %d has %lld tokens of %lld", k,
                            (long long)q->chunk[k], (long long)q->T);
        sum += q->chunk[k];
    }
    if (q->chunks && sum != q->T)
        return dra_fail(err, DRA_ERR_VALUE,
                        "gradients: chunks of %lld tokens for a microbatch of %lld", (long long)sum,
                        (long long)q->T);
    if (l->module.whole && (q->chunks || q->states))
        return dra_fail(
            err, DRA_ERR_VALUE,
            "gradients: the model is an encoder, which reads a text as a whole, not in %s",
            q->chunks ? "chunks" : "parts that continue from a state");
    dra_status st = check_further(l, q, q->states != NULL, err);
    if (st == DRA_OK) st = check_prefix(l, q, err);
    if (!q->states || st != DRA_OK) return st;
    if (dra_states_batch(q->states) != q->B ||
        dra_specs_fingerprint(q->states->specs) != dra_specs_fingerprint(l->state))
        return dra_fail(err, DRA_ERR_VALUE,
                        "gradients: the states belong to another model or batch");
    return DRA_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

dra_status dra_gradients_begin(dra_gradients *l, bool add, dra_error *err)
{
    l->n_rows = l->microbatches = 0;
    l->fresh = false;
    /* Not every program writes every metric. */
    dra_status st = l->metrics ? dra_array_fill(dra_array_whole(l->metrics), 0, err) : DRA_OK;
    return st == DRA_OK ? dra_gradients_into(l, 0, !add, err) : st;
}

/* Reserves rows of metrics for n more chunks and keeps those written so far. */
static dra_status reserve_rows(dra_gradients *l, int n, dra_error *err)
{
    int64_t *counts = realloc(l->counts, ((size_t)l->microbatches + 1) * sizeof *counts);
    if (!counts) return out_of_memory(err);
    l->counts = counts;
    if (l->n_rows + n <= l->rows_room) return DRA_OK;
    const size_t    each = DRA_METRICS * sizeof(dra_real);
    const int       room = 2 * (l->n_rows + n);
    dra_array      *metrics = NULL;
    dra_metric_row *rows = realloc(l->rows, (size_t)room * sizeof *rows);
    if (!rows) return out_of_memory(err);
    l->rows = rows;
    dra_status st = dra_array_create(l->config.device, (size_t)room * each, &metrics, err);
    if (st == DRA_OK) st = dra_array_fill(dra_array_whole(metrics), 0, err);
    if (st == DRA_OK && l->n_rows) {
        const dra_span old = {l->metrics, 0, (size_t)l->n_rows * each};
        st = dra_array_copy((dra_span){metrics, 0, old.bytes}, old, err);
    }
    if (st != DRA_OK) {
        dra_array_destroy(metrics);
        return st;
    }
    dra_array_destroy(l->metrics);
    l->metrics = metrics;
    l->rows_room = room;
    return DRA_OK;
}

static bool whole_segments(int64_t segment, const int64_t *tokens, int64_t B)
{
    for (int64_t b = 0; b < B; b++)
        if (tokens[b] % segment) return false;
    return true;
}

/* Cuts the chunks that were asked for where a row crosses the border of a segment; returns how many
 * there are now. tokens (B): read by each row so far. */
static int cut_segments(const dra_gradients *l, const cutting *cut, const int32_t *mark,
                        int64_t *tokens)
{
    const dra_microbatch *q = &cut->q;
    const int64_t         segment = l->module.segment;
    int64_t               end = q->chunks ? q->chunk[0] : q->T;
    int                   n = 0, k = 0;
    for (int64_t first = 0; first < q->T; first += cut->length[n++]) {
        if (first == end) end += q->chunk[++k];
        cut->length[n] = dra_segment_cut(segment, q->B, q->T, mark, first, end, tokens);
        cut->ends[n] = whole_segments(segment, tokens, q->B);
    }
    return n;
}

static void cutting_free(cutting *cut)
{
    free(cut->length);
    free(cut->ends);
}

/* mark: NULL if the marks are not known yet. */
static dra_status in_segments(const dra_gradients *l, const dra_microbatch *q, const int32_t *mark,
                              cutting *cut, dra_error *err)
{
    *cut = (cutting){.q = *q};
    if (!l->module.segment) return DRA_OK;
    cut->length = calloc((size_t)(q->T + q->B), sizeof *cut->length);
    cut->ends = calloc((size_t)q->T, sizeof *cut->ends);
    if (!cut->length || !cut->ends) return out_of_memory(err);
    int64_t *tokens = cut->length + q->T;
    for (int64_t b = 0; b < q->B && q->states; b++) tokens[b] = q->states->tokens[b];
    const int n = cut_segments(l, cut, mark, tokens);
    if (n == 1 && !q->chunks) return DRA_OK;
    cut->q.chunks = n;
    cut->q.chunk = cut->length;
    return DRA_OK;
}

static dra_status start_microbatch(dra_gradients *l, const cutting *cut, dra_error *err)
{
    const dra_microbatch *q = &cut->q;
    const int             n = q->chunks ? q->chunks : 1;
    int64_t               first = 0;
    dra_status            st = reserve_rows(l, n, err);
    if (st != DRA_OK) return st;
    chunk *c = calloc((size_t)n, sizeof *c);
    if (!c) return out_of_memory(err);
    l->counts[l->microbatches] = 0;
    for (int k = 0; k < n && st == DRA_OK; k++) {
        const int64_t T = q->chunks ? q->chunk[k] : q->T;
        st = cut_chunk(l, q, first, T, &c[k], err);
        l->counts[l->microbatches] += c[k].count;
        first += T;
    }
    if (st == DRA_OK && !q->chunks && q->states) st = reserve_items(l, q, q->states, err);
    if (st == DRA_OK) st = q->chunks ? run_through(l, cut, c, err) : run_whole(l, q, c, err);
    for (int k = 0; k < n; k++) free(c[k].memory);
    free(c);
    l->microbatches++;
    return st;
}

dra_status dra_gradients_add(dra_gradients *l, const dra_microbatch *q, dra_error *err)
{
    cutting    cut = {0};
    dra_status st = check_microbatch(l, q, err);
    if (st == DRA_OK) st = in_segments(l, q, q->mark, &cut, err);
    if (st == DRA_OK) st = check_further(l, &cut.q, q->states != NULL, err);
    if (st == DRA_OK) st = start_microbatch(l, &cut, err);
    cutting_free(&cut);
    return st;
}

dra_span dra_gradients_metrics(const dra_gradients *l, int64_t *rows)
{
    *rows = l->n_rows;
    return (dra_span){l->metrics, 0, (size_t)l->n_rows * DRA_METRICS * sizeof(dra_real)};
}

/* Adds a row of metrics: the loss by its share of the targets, the rest by that of the tokens. */
static void add_row(const dra_gradients *l, const dra_metric_row *row, const dra_real *x,
                    dra_microbatch_result *out)
{
    const unsigned measured = dra_model_config_of(l->config.model)->aux;
    int32_t        clamped;
    memcpy(&clamped, &x[DRA_METRIC_CLAMPED], sizeof clamped);
    out->loss += row->targets * (double)x[DRA_METRIC_LOSS];
    out->clamped += clamped;
    for (int k = 0; k < DRA_MEASURES; k++)
        out->measure[k] += row->targets * (double)x[DRA_METRIC_MEASURE + k];
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        out->aux[k] += measured >> k & 1 ? row->tokens * (double)x[DRA_METRIC_AUX + k] : NAN;
}

dra_status dra_gradients_collect(dra_gradients *l, int n, dra_microbatch_result *out,
                                 dra_optimizer *o, double *norm, dra_error *err)
{
    int64_t        rows;
    dra_real       of_gradients = NAN;
    const dra_span from = dra_gradients_metrics(l, &rows);
    dra_real      *x = malloc(from.bytes + 1);
    dra_fetch      list[2] = {{x, from}};
    if (o) list[1] = (dra_fetch){&of_gradients, dra_optimizer_norm(o)};
    dra_status st = x ? dra_session_fetch(l->session, list, o ? 2 : 1, err) : out_of_memory(err);
    if (norm) *norm = (double)of_gradients;
    for (int k = 0; k < n && k < l->microbatches; k++)
        out[k] = (dra_microbatch_result){.count = l->counts[k]};
    for (int64_t r = 0; r < rows && st == DRA_OK; r++)
        if (l->rows[r].microbatch < n)
            add_row(l, &l->rows[r], x + r * DRA_METRICS, &out[l->rows[r].microbatch]);
    free(x);
    return st;
}

dra_status dra_gradients_run(dra_gradients *l, const dra_microbatch *q, dra_microbatch_result *out,
                             dra_error *err)
{
    *out = (dra_microbatch_result){0};
    dra_status st = dra_gradients_begin(l, q->add, err);
    if (st == DRA_OK) st = dra_gradients_add(l, q, err);
    return st == DRA_OK ? dra_gradients_collect(l, 1, out, NULL, NULL, err) : st;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* Bytes of the states that a microbatch in chunks holds: the current one and, if gradients pass
 * through chunks, the first state of each chunk and its gradient. */
static size_t chunk_states(const dra_states *s, int through)
{
    return dra_states_held(s) * (size_t)(through ? through + 2 : 1);
}

/* Measures the program of a chunk of T tokens, after `before` other tokens of the microbatch. A
 * sequence starts in the first chunk, with marks perhaps in any. Carried states may have read any
 * number of tokens. */
static dra_status measure_chunk(dra_gradients *l, const dra_microbatch *q, const dra_states *s,
                                bool carried, int64_t before, int64_t T, int kind, dra_error *err)
{
    const int64_t M = l->module.memory, inner = T + (before == 0 || q->mark ? l->module.start : 0);
    const bool    skips = dra_marks_any_skip(q->mark, q->B);
    const int     max_event = !l->module.segment || !s ? DRA_SEGMENT_CONTINUES
                              : before || carried
                                  ? dra_segment_shift(l->module.segment, M, carried ? M : before)
                                  : DRA_SEGMENT_CLEARS;
    dra_extents  *e = &l->extents;
    e->T = inner;
    e->marked = q->mark != NULL;
    e->skips = skips;
    e->holes = skips && l->module.whole;
    e->max_event = max_event;
    make_key(l, q, s, T, kind);
    return dra_session_measure(l->session, l->key, dra_gradients_key_bytes(l), err);
}

static dra_status plan_context(dra_gradients *l, const dra_microbatch *q, dra_error *err)
{
    const dra_context_text text = {.T = q->context->T};
    const dra_status       st = dra_context_extents_fill(&l->context, &l->module, q->B, &text, err);
    l->context.text.marked = q->context->mark != NULL;
    return st;
}

dra_status dra_gradients_bytes(dra_gradients *l, const dra_microbatch *asked, bool carried,
                               size_t *bytes, dra_error *err)
{
    dra_states           *s = NULL;
    cutting               cut;
    const dra_microbatch *q = &cut.q;
    int                   through = 0;
    int64_t               before = 0;
    dra_status            st = in_segments(l, asked, NULL, &cut, err);
    *bytes = 0;
    if (st == DRA_OK) st = check_further(l, q, carried, err);
    if (st == DRA_OK && q->context) st = plan_context(l, q, err);
    if (st == DRA_OK && (q->chunks || carried))
        st = dra_states_create(l->config.device, l->state, q->B, &s, err);
    if (st == DRA_OK && s) st = dra_states_reserve(s, q->T + l->module.start, err);
    if (st == DRA_OK && !q->chunks)
        st = measure_chunk(l, q, s, carried, 0, q->T, s ? CARRIED : FRESH, err);
    for (int k = 0; k < q->chunks && st == DRA_OK; k++) {
        const bool alone = !q->mark && stands_alone(&cut, k); /* marks may end a segment anywhere */
        if (!alone) through++;
        st = measure_chunk(l, q, s, carried, before, q->chunk[k], alone ? CARRIED : THROUGH, err);
        if (st == DRA_OK && !alone && (k + 1 < q->chunks || carried))
            st = measure_chunk(l, q, s, carried, before, q->chunk[k], FORWARD, err);
        before += q->chunk[k];
    }
    if (q->chunks && s) l->chunk_bytes = max_size(l->chunk_bytes, chunk_states(s, through));
    if (carried && s) l->carry_bytes = max_size(l->carry_bytes, dra_states_held(s));
    *bytes = dra_session_workspace(l->session) + dra_session_bytes(l->session) + l->chunk_bytes +
             l->carry_bytes;
    cutting_free(&cut);
    dra_states_destroy(s);
    return st;
}
