/* dra forward: the model and its inputs, and reading chunk by chunk. */
#include "forward.h"
#include "io/memory.h"

#include <stdlib.h>
#include <string.h>

static dra_status open_context(forward_work *w, dra_error *err)
{
    dra_context  *c = &w->context;
    const int64_t B = w->in.B;
    if (w->a->state_in) {
        dra_status st = dra_context_load(w->m.device, w->m.model, w->m.weights, w->a->state_in, c,
                                         err);
        if (st == DRA_OK && dra_states_batch(c->states) != B)
            st = cli_error(err, DRA_ERR_SHAPE, "%.200s: %lld sequences, expected %lld",
                           w->a->state_in, (long long)dra_states_batch(c->states), (long long)B);
        return st;
    }
    c->logits = calloc((size_t)(B * w->V) + 1, sizeof *c->logits);
    c->seen = calloc((size_t)(B * w->V) + 1, sizeof *c->seen);
    if (!c->logits || !c->seen) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    return dra_states_create(w->m.device, dra_model_state(w->m.model), B, &c->states, err);
}

static dra_status check_positions(const forward_work *w, dra_error *err)
{
    dra_status st = DRA_OK;
    for (int64_t b = 0; b < w->in.B && st == DRA_OK; b++)
        st = cli_inputs_positions(w->m.model, &w->in, b, dra_states_tokens(w->context.states, b),
                                  err);
    return st;
}

/* Number i of --positions in row b: those below 0 count from its end. */
static int64_t position_at(const forward_work *w, int64_t b, int64_t i)
{
    const int64_t at = w->positions.data[i];
    return at < 0 ? forward_length(w, b) + at : at;
}

/* Reads --positions, which the shortest row must have, too. */
static dra_status read_positions(forward_work *w, dra_error *err)
{
    int64_t T = w->in.T;
    for (int64_t b = 0; b < w->in.B; b++)
        if (forward_length(w, b) < T) T = forward_length(w, b);
    if (!w->a->positions) return DRA_OK;
    dra_status st = cli_ids_read("--positions", w->a->positions, &w->positions, err);
    for (size_t i = 0; i < w->positions.n && st == DRA_OK; i++) {
        const int64_t at = w->positions.data[i];
        if (at < -T || at >= T)
            st = cli_error(err, DRA_ERR_VALUE, "--positions: %lld, expected %lld to %lld",
                           (long long)at, (long long)-T, (long long)T - 1);
    }
    if (st == DRA_OK && !w->positions.n)
        st = cli_error(err, DRA_ERR_VALUE, "--positions: expected a list, found none");
    w->keep = (int64_t)w->positions.n;
    return st;
}

/* Chooses the outputs. A row that ends with pads continues from the logits of an earlier token, so
 * all logits are computed; with a list of positions, also those of the last real token. */
static void choose_view(forward_work *w)
{
    const forward_args *a = w->a;
    w->view = (dra_view){.model = w->m.model,
                         .logits = w->tokens && (w->logits || w->loss || a->state_out),
                         .keep = w->in.mark ? 0 : w->keep,
                         .picks = a->positions ? w->keep + 1 : 0,
                         .hidden = w->hidden,
                         .embedded = w->in.x != NULL,
                         .streams = w->stack[FORWARD_STREAMS].wanted,
                         .branches = w->stack[FORWARD_BRANCHES].wanted,
                         .hiddens = w->stack[FORWARD_HIDDENS].wanted,
                         .adds = w->stack[FORWARD_ADDS].wanted,
                         .maps = w->maps,
                         .scores = w->scores || (w->maps && w->unpadded),
                         .outs = forward_heads_made(w)};
    if (a->positions && !a->state_out) w->view.picks = w->keep;
    if (!w->view.logits && !w->view.outs) w->view.hidden = true; /* a graph needs an output */
}

/* Names and counts the outputs of layers; streams and hidden states include the embedding. */
static void describe_stacks(forward_work *w)
{
    const int64_t       layers = dra_model_layers(w->m.model);
    const int64_t       sublayers = dra_model_sublayers(w->m.model);
    const forward_stack all[FORWARD_STACKS] = {
        [FORWARD_STREAMS] = {"stream", "streams", .n = layers + 1},
        [FORWARD_BRANCHES] = {"branch", "branches", .n = layers},
        [FORWARD_HIDDENS] = {"hidden", "hiddens", .n = sublayers + 1},
        [FORWARD_ADDS] = {"add", "adds", .n = sublayers}};
    for (int i = 0; i < FORWARD_STACKS; i++) {
        const bool wanted = w->stack[i].wanted;
        w->stack[i] = all[i];
        w->stack[i].wanted = wanted;
    }
}

static dra_status make_room(forward_work *w, dra_error *err)
{
    const size_t each = (size_t)(w->in.B * w->in.T * w->C);
    bool         room = true;
    w->out_logits = calloc((size_t)(w->in.B * w->keep * w->V) + 1, sizeof *w->out_logits);
    w->out_hidden = calloc(each + 1, sizeof *w->out_hidden);
    w->picks = calloc((size_t)(w->in.B * w->view.picks) + 1, sizeof *w->picks);
    describe_stacks(w);
    for (int i = 0; i < FORWARD_STACKS; i++) {
        forward_stack *s = &w->stack[i];
        s->data = calloc(s->wanted ? (size_t)s->n * each + 1 : 1, sizeof *s->data);
        room &= s->data != NULL;
    }
    room &= w->out_logits && w->out_hidden && w->picks;
    return room ? forward_heads_room(w, err) : cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

/* Tokens of a language model, or whatever else a model reads. */
static dra_status read_inputs(forward_work *w, dra_error *err)
{
    const forward_args     *a = w->a;
    const cli_inputs_config inputs = {a->tokens, a->inputs, a->resets, w->V, w->C};
    w->unpadded = a->unpadded || a->text.count;
    if (a->text.count) return forward_texts_read(w, err);
    char list[300];
    if (dra_model_config_is_language(dra_model_config_of(w->m.model)))
        return cli_inputs_read(&inputs, &w->in, err);
    const cli_named_config named = {a->inputs, a->resets, .context = !a->state_in, .start = -1};
    if (a->inputs) return cli_named_read(w->m.model, &named, &w->in, err);
    return cli_error(err, DRA_ERR_VALUE, "--tokens: expected --inputs, as the model reads %s",
                     cli_named_list(w->m.model, list, sizeof list));
}

dra_status forward_open(forward_work *w, dra_error *err)
{
    const forward_args *a = w->a;
    cli_source          source = a->from;
    source.maps = w->maps || w->scores;
    dra_status st = cli_model_open(&source, &w->m, err);
    if (st != DRA_OK) return st;
    w->V = dra_model_config_of(w->m.model)->vocab;
    w->C = dra_model_config_of(w->m.model)->dim;
    st = read_inputs(w, err);
    if (st == DRA_OK) st = cli_chunks_read(a->chunks, w->in.T, &w->chunks, &w->chunk, err);
    if (st == DRA_OK) st = forward_heads_open(w, err);
    if (st == DRA_OK && source.maps && w->chunks > 1)
        st = cli_error(err, DRA_ERR_VALUE, "%s need a single chunk, found %d",
                       w->maps ? "attentions" : "scores", w->chunks);
    if (st == DRA_OK) st = open_context(w, err);
    if (st == DRA_OK) st = forward_rwkv_read(w, err);
    if (st == DRA_OK) st = forward_cache_read(w, err);
    if (st == DRA_OK) st = check_positions(w, err);
    w->keep = !w->logits && !w->loss ? 1 : a->keep > 0 && a->keep < w->in.T ? a->keep : w->in.T;
    if (st == DRA_OK) st = read_positions(w, err);
    if (st != DRA_OK) return st;
    choose_view(w);
    const dra_module module = dra_view_module(&w->view);
    st = dra_reader_create(w->m.device, &module, &w->reader, err);
    if (st == DRA_OK) cli_clamp_set(&a->from, w->reader);
    if (st == DRA_OK) st = dra_weights_bind(w->m.weights, w->reader, err);
    return st == DRA_OK ? make_room(w, err) : st;
}

/* Picks tokens of the chunk from..from+n-1: those of the list that are not pads, then the last one
 * that is not a pad. */
static void choose_picks(forward_work *w, int64_t from, int64_t n)
{
    const int64_t P = w->view.picks, T = w->in.T;
    for (int64_t b = 0; b < w->in.B; b++) {
        int32_t *pick = w->picks + b * P;
        for (int64_t i = 0; i < P; i++) {
            int64_t at = i < w->keep ? position_at(w, b, i) : from + n - 1;
            while (i == w->keep && at >= from && cli_is_pad(&w->in, b * T + at)) at--;
            const bool here = at >= from && at < from + n && !cli_is_pad(&w->in, b * T + at);
            pick[i] = here ? (int32_t)(at - from) : -1;
        }
    }
}

static void keep_picked(forward_work *w, int64_t b, const dra_real *x)
{
    const size_t row = (size_t)w->V * sizeof *x;
    for (int64_t i = 0; i < w->view.picks; i++, x += w->V) {
        if (w->picks[b * w->view.picks + i] < 0) continue;
        dra_real *to = i < w->keep ? w->out_logits + (b * w->keep + i) * w->V
                                   : w->context.logits + b * w->V;
        memcpy(to, x, row);
    }
}

/* Stores the logits of row b and tokens from..from+n-1, of which the last `made` were computed.
 * Pads have no logits, except in an encoder, where they keep their places. */
static void keep_logits(forward_work *w, int64_t b, int64_t from, int64_t n, int64_t made,
                        const dra_real *x)
{
    const int64_t T = w->in.T, first = T - w->keep;
    const size_t  row = (size_t)w->V * sizeof *x;
    const bool    whole = dra_model_config_of(w->m.model)->visible == DRA_VISIBLE_BIDIRECTIONAL;
    for (int64_t t = from + n - made; t < from + n; t++, x += w->V) {
        const int64_t i = b * T + t;
        const bool    pad = cli_is_pad(&w->in, i);
        if (pad && !whole) continue;
        if (t >= first) memcpy(w->out_logits + (b * w->keep + t - first) * w->V, x, row);
        if (!pad) memcpy(w->context.logits + b * w->V, x, row);
    }
}

const dra_real *forward_result(const forward_work *w, const char *name)
{
    dra_shape       s;
    const dra_real *x = dra_reader_result(w->reader, name);
    if (!x && dra_reader_result_shape(w->reader, name, &s)) cli_memory_note(DRA_ERR_MEMORY);
    return x;
}

static void keep_stack(forward_work *w, const forward_stack *s, int64_t from, int64_t n)
{
    const int64_t B = w->in.B, T = w->in.T;
    char          name[32];
    for (int64_t l = 0; l < s->n && s->wanted; l++) {
        snprintf(name, sizeof name, "%s.%lld", s->each, (long long)l);
        const dra_real *x = forward_result(w, name);
        for (int64_t b = 0; b < B && x; b++)
            memcpy(s->data + ((l * B + b) * T + from) * w->C, x + b * n * w->C,
                   (size_t)(n * w->C) * sizeof *x);
    }
}

/* Keeps which tokens the text has since its last reset. */
static void keep_seen(forward_work *w, int64_t b, int64_t from, int64_t n)
{
    bool *seen = w->context.seen + b * w->V;
    for (int64_t i = b * w->in.T + from; i < b * w->in.T + from + n; i++) {
        if (cli_is_reset(&w->in, i)) memset(seen, 0, (size_t)w->V * sizeof *seen);
        if (w->in.ids && !cli_is_pad(&w->in, i)) seen[w->in.ids[i]] = true;
    }
}

static void keep_results(forward_work *w, int64_t from, int64_t n)
{
    const int64_t   B = w->in.B, T = w->in.T, P = w->view.picks;
    const int64_t   made = w->view.keep > 0 && w->view.keep < n ? w->view.keep : n;
    const dra_real *logits = w->tokens ? forward_result(w, "logits") : NULL;
    const dra_real *hidden = forward_result(w, "hidden");
    for (int64_t b = 0; b < B; b++) {
        if (logits && P) keep_picked(w, b, logits + b * P * w->V);
        if (logits && !P) keep_logits(w, b, from, n, made, logits + b * made * w->V);
        if (hidden)
            memcpy(w->out_hidden + (b * T + from) * w->C, hidden + b * n * w->C,
                   (size_t)(n * w->C) * sizeof *hidden);
        keep_seen(w, b, from, n);
    }
    for (int i = 0; i < FORWARD_STACKS; i++) keep_stack(w, &w->stack[i], from, n);
    forward_heads_keep(w, from, n);
}

/* Copies columns from..from+n-1 of (B, T), each of this width, dense. */
static void slice_columns(const forward_work *w, const void *x, size_t width, int64_t from,
                          int64_t n, void *to)
{
    for (int64_t b = 0; b < w->in.B; b++)
        memcpy((char *)to + (size_t)(b * n) * width,
               (const char *)x + (size_t)(b * w->in.T + from) * width, (size_t)n * width);
}

/* Named inputs of a chunk: slices of inputs with tokens, in `room`; the source comes with the first
 * chunk. */
static int slice_named(const forward_work *w, int64_t from, int64_t n, void *const *room,
                       dra_named *to)
{
    int k = 0;
    for (int i = 0; i < w->in.n_named; i++) {
        const cli_named *x = &w->in.named[i];
        const bool       part = x->token && !x->context && n < w->in.T - w->in.first;
        if (x->context && from > 0) continue;
        if (part) slice_columns(w, x->data, x->token, from, n, room[i]);
        to[k++] = part ? (dra_named){x->name, room[i], (size_t)(w->in.B * n) * x->token}
                       : (dra_named){x->name, x->data, (size_t)w->in.B * x->row};
    }
    return k;
}

/* The ids, or vectors in their place, and marks of a chunk. */
typedef struct chunk_room {
    void    *tokens, *named[CLI_NAMED];
    int32_t *mark;
} chunk_room;

static dra_status open_room(const forward_work *w, size_t width, chunk_room *r, dra_error *err)
{
    const size_t size = (size_t)(w->in.B * w->in.T);
    bool         room = true;
    for (int i = 0; i < w->in.n_named; i++) {
        r->named[i] = malloc((size_t)w->in.B * w->in.named[i].row + 1);
        room &= r->named[i] != NULL;
    }
    r->tokens = calloc(size, width);
    r->mark = calloc(size, sizeof *r->mark);
    return room && r->tokens && r->mark ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

static void close_room(chunk_room *r)
{
    for (int i = 0; i < CLI_NAMED; i++) free(r->named[i]);
    free(r->tokens);
    free(r->mark);
}

static dra_status read_chunk(forward_work *w, const chunk_room *r, size_t width, int64_t from,
                             int64_t n, dra_error *err)
{
    const void  *given = w->in.x ? (const void *)w->in.x : w->in.ids;
    const size_t picks = (size_t)(w->in.B * w->view.picks) * sizeof *w->picks;
    dra_named    in[CLI_NAMED + 2];
    int          k = slice_named(w, from, n, r->named, in);
    if (!w->in.n_named) {
        slice_columns(w, given, width, from, n, r->tokens);
        in[k++] = (dra_named){w->in.x ? "x" : "ids", r->tokens, (size_t)(w->in.B * n) * width};
    }
    if (w->in.mark) slice_columns(w, w->in.mark, sizeof *r->mark, from, n, r->mark);
    if (picks) choose_picks(w, from, n);
    if (picks) in[k++] = (dra_named){"picks", w->picks, picks};
    const dra_context_text context = {w->in.S, w->in.context_mark};
    return dra_reader_read_context(w->reader, w->context.states,
                                   w->in.S && from == 0 ? &context : NULL, n,
                                   w->in.mark ? r->mark : NULL, k, in, err);
}

dra_status forward_read(forward_work *w, dra_error *err)
{
    const size_t width = w->in.x ? (size_t)w->C * sizeof *w->in.x : sizeof *w->in.ids;
    chunk_room   room = {0};
    dra_status   st = open_room(w, width, &room, err);
    int64_t      from = 0;
    for (int i = 0; i < w->chunks && st == DRA_OK; i++) {
        const int64_t n = w->chunk[i];
        st = read_chunk(w, &room, width, from, n, err);
        if (st == DRA_OK) keep_results(w, from, n);
        if (cli_memory_lacked()) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
        from += n;
    }
    if (st == DRA_OK) forward_texts_clear(w);
    if (st == DRA_OK && w->loss) forward_loss(w);
    close_room(&room);
    return st;
}

void forward_close(forward_work *w)
{
    forward_heads_close(w);
    free(w->out_logits);
    free(w->out_hidden);
    for (int i = 0; i < FORWARD_STACKS; i++) free(w->stack[i].data);
    free(w->picks);
    dra_ids_free(&w->positions);
    free(w->chunk);
    dra_context_free(&w->context);
    dra_reader_destroy(w->reader);
    cli_inputs_free(&w->in);
    cli_model_close(&w->m);
}
