/* Continuing any model that reads from left to right: what it puts out becomes its next input.
 *   tokens   id = sample(logits of the last token)
 *   xVal     the same, with the number that was predicted there
 *   vectors  x = out of the last vector
 * One call reads all inputs, with the context; then each step reads one token of all rows, pads in
 * rows that have finished. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "generate/sample.h"

typedef struct work {
    const dra_continue_config *c;
    dra_continued             *out;
    const dra_model_config    *m;
    dra_model_input            own, nums; /* inputs of the model's own text; nums: "" if none */
    dra_named                  condition; /* as it was given; NULL: there is none */
    int64_t                    V, width;
    dra_view                   view;
    dra_reader                *reader;
    dra_states                *states;
    dra_sampler               *sampler;
    bool                      *seen; /* (B, V): tokens read, for the repetition penalty */
    bool                      *live; /* (B), as these */
    int32_t                   *last; /* the last token of each row that is no pad, for picks */
    int32_t                   *ids, *mark; /* what a step reads */
    dra_real                  *numbers, *vectors;
} work;

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "continue: out of memory");
}

static void find_inputs(work *w)
{
    dra_model_input in;
    w->nums.name = "";
    for (int i = 0; dra_model_input_at(w->c->model, i, &in); i++) {
        if (in.context || in.prepended) continue;
        for (int k = 0; in.condition && k < w->c->n_inputs; k++)
            if (strcmp(w->c->inputs[k].name, in.name) == 0) w->condition = w->c->inputs[k];
        if (in.condition) continue;
        *(in.numbers ? &w->nums : &w->own) = in;
    }
}

/* What the model puts out can be its input. */
static dra_status check_kind(const work *w, dra_error *err)
{
    const dra_head_kind head = w->m->head.kind;
    const int64_t       width = dra_model_head_width(w->c->model);
    if (w->m->visible == DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE,
                        "continue: the model is an encoder, whose tokens see later ones");
    if (w->own.kind == DRA_SOURCE_TOKENS && head == DRA_HEAD_TOKENS) {
        if (!w->nums.name[0] || w->m->head.numbers) return DRA_OK;
        return dra_fail(err, DRA_ERR_VALUE,
                        "continue: the model reads numbers but puts out none to continue with");
    }
    if (w->own.kind != DRA_SOURCE_VECTORS || head == DRA_HEAD_TOKENS || head == DRA_HEAD_CLASSES)
        return dra_fail(err, DRA_ERR_VALUE,
                        "continue: the model puts out something else than it reads");
    if (width == w->own.width) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "continue: the model puts out vectors of %lld numbers and reads %lld",
                    (long long)width, (long long)w->own.width);
}

static dra_status check_rows(const work *w, dra_error *err)
{
    const dra_continue_config *c = w->c;
    if (c->B < 1 || c->T < 1 || c->n < 1)
        return dra_fail(err, DRA_ERR_VALUE,
                        "continue: %lld rows of %lld tokens, %lld to add, expected 1 or more",
                        (long long)c->B, (long long)c->T, (long long)c->n);
    for (int64_t b = 0; b < c->B; b++) {
        int64_t t = c->T - 1;
        while (t >= 0 && c->mark && c->mark[b * c->T + t] & DRA_MARK_PAD) t--;
        if (t < 0)
            return dra_fail(err, DRA_ERR_VALUE, "continue: row %lld has only pads", (long long)b);
        w->last[b] = (int32_t)t;
    }
    return dra_model_check_positions(c->model, 0, c->T, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static dra_status make_room(work *w, dra_error *err)
{
    const size_t   B = (size_t)w->c->B, n = (size_t)w->c->n;
    dra_continued *o = w->out;
    const bool     tokens = w->V > 0, numbers = w->nums.name[0];
    bool           room = true;
    o->B = w->c->B;
    o->width = w->width;
    room &= (o->count = calloc(B, sizeof *o->count)) != NULL;
    room &= (o->finish = calloc(B, sizeof *o->finish)) != NULL;
    if (tokens) room &= (o->ids = calloc(B * n, sizeof *o->ids)) != NULL;
    if (numbers) room &= (o->numbers = calloc(B * n, sizeof *o->numbers)) != NULL;
    if (!tokens)
        room &= (o->vectors = calloc(B * n * (size_t)w->width, sizeof *o->vectors)) != NULL;
    if (tokens) room &= (w->seen = calloc(B * (size_t)w->V, sizeof *w->seen)) != NULL;
    room &= (w->live = calloc(B, sizeof *w->live)) != NULL;
    room &= (w->ids = calloc(B, sizeof *w->ids)) != NULL;
    room &= (w->mark = calloc(B, sizeof *w->mark)) != NULL;
    room &= (w->numbers = calloc(B, sizeof *w->numbers)) != NULL;
    room &= (w->vectors = calloc(B * (size_t)w->width + 1, sizeof *w->vectors)) != NULL;
    for (size_t b = 0; b < B && room; b++) w->live[b] = true;
    return room ? DRA_OK : out_of_memory(err);
}

static dra_status open_reader(work *w, dra_error *err)
{
    const dra_continue_config *c = w->c;
    const bool                 tokens = w->V > 0;
    w->view = (dra_view){.model = c->model,
                         .logits = tokens,
                         .picks = tokens ? 1 : 0,
                         .hidden = !tokens && w->m->head.kind == DRA_HEAD_NONE,
                         .outs = !tokens || w->nums.name[0]};
    const dra_module module = dra_view_module(&w->view);
    dra_status       st = dra_reader_create(c->device, &module, &w->reader, err);
    if (st == DRA_OK) dra_reader_clamp(w->reader, c->state_limit >= 0);
    if (st == DRA_OK) dra_reader_clamp_limit(w->reader, c->state_limit);
    if (st == DRA_OK) st = dra_weights_bind(c->weights, w->reader, err);
    if (st == DRA_OK) st = dra_states_create(c->device, module.state, c->B, &w->states, err);
    if (st == DRA_OK && tokens) st = dra_sampler_create(&c->sampler, w->V, &w->sampler, err);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Tokens of the text; ids outside the vocabulary were refused by the reader. */
static void mark_seen(work *w, const int32_t *ids, int64_t T, const int32_t *mark)
{
    for (int64_t i = 0; ids && i < w->c->B * T; i++)
        if (!(mark && mark[i] & DRA_MARK_PAD)) w->seen[i / T * w->V + ids[i]] = true;
}

static dra_status read_all(work *w, dra_error *err)
{
    const dra_continue_config *c = w->c;
    const size_t               picks = w->V > 0;
    dra_named                 *in = calloc((size_t)c->n_inputs + 1, sizeof *in);
    if (!in) return out_of_memory(err);
    const int32_t *ids = NULL;
    for (int i = 0; i < c->n_inputs; i++) {
        in[i] = c->inputs[i];
        if (picks && strcmp(in[i].name, w->own.name) == 0) ids = in[i].data;
    }
    if (picks) in[c->n_inputs] = (dra_named){"picks", w->last, (size_t)c->B * sizeof *w->last};
    dra_status st = dra_reader_read_context(w->reader, w->states, c->context, c->T, c->mark,
                                            c->n_inputs + (int)picks, in, err);
    free(in);
    if (st == DRA_OK) mark_seen(w, ids, c->T, c->mark);
    return st;
}

/* Rows read what they have put out last. */
static dra_status read_step(work *w, dra_error *err)
{
    const size_t B = (size_t)w->c->B;
    bool         all = true;
    dra_named    in[4];
    int          n = 0;
    for (size_t b = 0; b < B; b++) {
        w->mark[b] = w->live[b] ? 0 : DRA_MARK_PAD;
        w->last[b] = 0;
        if (!w->live[b]) w->ids[b] = 0;
        all = all && w->live[b];
    }
    if (w->V > 0) {
        in[n++] = (dra_named){w->own.name, w->ids, B * sizeof *w->ids};
        in[n++] = (dra_named){"picks", w->last, B * sizeof *w->last};
    } else {
        in[n++] = (dra_named){w->own.name, w->vectors, B * (size_t)w->width * sizeof *w->vectors};
    }
    if (w->nums.name[0]) in[n++] = (dra_named){w->nums.name, w->numbers, B * sizeof *w->numbers};
    if (w->condition.name) in[n++] = w->condition;
    const dra_status st = dra_reader_read(w->reader, w->states, 1, all ? NULL : w->mark, n, in,
                                          err);
    if (st == DRA_OK && w->V > 0) mark_seen(w, w->ids, 1, w->mark);
    return st;
}

/* ---- what was put out ------------------------------------------------------------------------ */

static bool is_end(const dra_continue_config *c, int32_t id)
{
    for (int i = 0; i < c->n_ends; i++)
        if (c->ends[i] == id) return true;
    return false;
}

static void finish_row(work *w, int64_t b, dra_finish why)
{
    w->live[b] = false;
    w->out->finish[b] = why;
}

/* Picks w->ids by the logits of what was read, (B, 1, V). */
static dra_status pick_tokens(work *w, dra_error *err)
{
    const dra_real *x = dra_reader_result(w->reader, "logits");
    if (!x) return out_of_memory(err);
    for (int64_t b = 0; b < w->c->B; b++)
        if (w->live[b])
            w->ids[b] = dra_sampler_pick(w->sampler, x + b * w->V, w->seen + b * w->V, 0,
                                         dra_states_tokens(w->states, b));
    return DRA_OK;
}

/* T tokens were read, of which last[b] is the one to continue from. */
static dra_status take_token(work *w, int64_t b, int64_t T, const dra_real *numbers, dra_error *err)
{
    dra_continued *o = w->out;
    const int64_t  at = dra_states_tokens(w->states, b), to = b * w->c->n + o->count[b];
    const int32_t  id = w->ids[b];
    if (id < 0)
        return dra_fail(err, DRA_ERR_VALUE, "continue: row %lld, token %lld: logits are not finite",
                        (long long)b, (long long)at);
    if (is_end(w->c, id)) {
        finish_row(w, b, DRA_FINISH_END);
        return DRA_OK;
    }
    o->ids[to] = id;
    o->count[b]++;
    if (!numbers) return DRA_OK;
    const bool number = id == w->m->source.number_token;
    w->numbers[b] = numbers[b * T + w->last[b]];
    o->numbers[to] = number ? w->numbers[b] : (dra_real)NAN;
    if (!number || isfinite(w->numbers[b])) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "continue: row %lld, token %lld: its number is not finite",
                    (long long)b, (long long)at);
}

static dra_status take_vector(work *w, int64_t b, int64_t T, const dra_real *out, dra_error *err)
{
    dra_continued  *o = w->out;
    const int64_t   E = w->width;
    const dra_real *x = out + (b * T + w->last[b]) * E;
    for (int64_t i = 0; i < E; i++)
        if (!isfinite(x[i]))
            return dra_fail(err, DRA_ERR_VALUE,
                            "continue: row %lld, vector %lld: number %lld is not finite",
                            (long long)b, (long long)dra_states_tokens(w->states, b), (long long)i);
    memcpy(w->vectors + b * E, x, (size_t)E * sizeof *x);
    memcpy(o->vectors + (b * w->c->n + o->count[b]++) * E, x, (size_t)E * sizeof *x);
    return DRA_OK;
}

static dra_status take_outputs(work *w, int64_t T, dra_error *err)
{
    const bool  tokens = w->V > 0;
    const char *name = tokens ? "numbers" : w->view.hidden ? "hidden" : "out";
    const bool  wanted = !tokens || w->nums.name[0];
    dra_status  st = tokens ? pick_tokens(w, err) : DRA_OK;
    if (st != DRA_OK) return st;
    const dra_real *x = wanted ? dra_reader_result(w->reader, name) : NULL;
    if (wanted && !x) st = out_of_memory(err);
    for (int64_t b = 0; b < w->c->B && st == DRA_OK; b++)
        if (w->live[b]) st = tokens ? take_token(w, b, T, x, err) : take_vector(w, b, T, x, err);
    return st;
}

/* What ends rows before the next step; true: some are left. */
static bool look_ahead(work *w)
{
    const int64_t most = dra_model_positions(w->c->model);
    const bool    asked = w->c->step && !w->c->step(w->c->user);
    bool          any = false;
    for (int64_t b = 0; b < w->c->B; b++) {
        if (!w->live[b]) continue;
        if (w->out->count[b] >= w->c->n)
            finish_row(w, b, DRA_FINISH_LENGTH);
        else if (asked)
            finish_row(w, b, DRA_FINISH_ASKED);
        else if (dra_states_tokens(w->states, b) >= most)
            finish_row(w, b, DRA_FINISH_CONTEXT);
        any = any || w->live[b];
    }
    return any;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Rows of n places become rows of the longest. */
static void pack_rows(work *w)
{
    dra_continued *o = w->out;
    const size_t   n = (size_t)w->c->n, E = (size_t)w->width * sizeof *o->vectors;
    for (int64_t b = 0; b < o->B; b++)
        if (o->count[b] > o->n) o->n = o->count[b];
    const size_t m = (size_t)o->n;
    for (size_t b = 0; b < (size_t)o->B; b++) {
        if (o->ids) memmove(o->ids + b * m, o->ids + b * n, m * sizeof *o->ids);
        if (o->vectors)
            memmove((char *)o->vectors + b * m * E, (char *)o->vectors + b * n * E, m * E);
        if (!o->numbers) continue;
        memmove(o->numbers + b * m, o->numbers + b * n, m * sizeof *o->numbers);
        for (size_t i = (size_t)o->count[b]; i < m; i++) o->numbers[b * m + i] = (dra_real)NAN;
    }
}

static dra_status run_steps(work *w, dra_error *err)
{
    dra_status st = read_all(w, err);
    if (st == DRA_OK) st = take_outputs(w, w->c->T, err);
    while (st == DRA_OK && look_ahead(w)) {
        st = read_step(w, err);
        if (st == DRA_OK) st = take_outputs(w, 1, err);
    }
    if (st == DRA_OK) pack_rows(w);
    if (st == DRA_OK) w->out->clamped = dra_reader_clamped(w->reader);
    return st;
}

dra_status dra_continue(const dra_continue_config *config, dra_continued *out, dra_error *err)
{
    work w = {.c = config, .out = out, .m = dra_model_config_of(config->model)};
    *out = (dra_continued){0};
    find_inputs(&w);
    const bool tokens = w.own.kind == DRA_SOURCE_TOKENS;
    w.V = tokens ? w.own.vocab : 0;
    w.width = tokens ? 0 : w.own.width;
    w.last = calloc((size_t)(config->B > 0 ? config->B : 1), sizeof *w.last);
    dra_status st = w.last ? check_kind(&w, err) : out_of_memory(err);
    if (st == DRA_OK) st = check_rows(&w, err);
    if (st == DRA_OK) st = dra_sampler_check_rows(&config->sampler, err);
    if (st == DRA_OK) st = make_room(&w, err);
    if (st == DRA_OK) st = open_reader(&w, err);
    if (st == DRA_OK) st = run_steps(&w, err);
    dra_reader_destroy(w.reader);
    dra_states_destroy(w.states);
    dra_sampler_destroy(w.sampler);
    void *const freed[] = {w.seen, w.live, w.last, w.ids, w.mark, w.numbers, w.vectors};
    for (size_t i = 0; i < sizeof freed / sizeof *freed; i++) free(freed[i]);
    if (st != DRA_OK) dra_continued_free(out);
    return st;
}

void dra_continued_free(dra_continued *c)
{
    free(c->count);
    free(c->finish);
    free(c->ids);
    free(c->numbers);
    free(c->vectors);
    *c = (dra_continued){0};
}
