/* Batches: what a step reads, whatever the data are. */
#include "train/batches.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "data/corpus.h"
#include "data/examples.h"

static bool is_encoder(const dra_batches *b)
{
    return dra_model_config_of(b->c.model)->visible == DRA_VISIBLE_BIDIRECTIONAL;
}

/* ---- making ---------------------------------------------------------------------------------- */

static dra_status open_feed(dra_batches *b, dra_error *err)
{
    const dra_batches_config *c = &b->c;
    const dra_feed_config     f = {.corpus = c->corpus,
                                   .B = c->B,
                                   .T = c->T,
                                   .seed = c->seed,
                                   .from = c->from,
                                   .to = c->to,
                                   .carry = c->carry,
                                   .cross = c->cross,
                                   .once = c->once};
    if (b->objective->inputs[0].axes != DRA_AXES_TOKENS || b->objective->inputs[1].name)
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective %s: expected examples, found a text (.safetensors, .npy, .npz)",
                        b->objective->name);
    if (dra_model_context_stack(c->model))
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective %s: the model also reads a source: expected examples, found a "
                        "text (.safetensors, .npy, .npz, or .jsonl of pairs)",
                        b->objective->name);
    if (dra_model_prepend_stack(c->model))
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective %s: the model reads something before its text: expected "
                        "examples, found a text (.safetensors, .npy, .npz)",
                        b->objective->name);
    b->longest = c->T;
    b->n = c->B;
    return dra_feed_create(&f, &b->feed, err);
}

static dra_status create_buffers(dra_batches *b, dra_error *err)
{
    dra_status st = b->c.examples ? dra_batches_open_examples(b, err) : open_feed(b, err);
    if (st != DRA_OK) return st;
    const size_t n = (size_t)(b->c.B * b->longest);
    b->ids = calloc(3 * n + 1, sizeof *b->ids);
    b->counts = calloc((size_t)b->c.B, sizeof *b->counts);
    if (!b->ids || !b->counts) return dra_fail(err, DRA_ERR_MEMORY, "batches: out of memory");
    b->targets = b->ids + n;
    b->mark = b->ids + 2 * n;
    return DRA_OK;
}

dra_status dra_batches_create(const dra_batches_config *c, dra_batches **out, dra_error *err)
{
    dra_batches *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return dra_fail(err, DRA_ERR_MEMORY, "batches: out of memory");
    b->c = *c;
    b->objective = dra_objective_of(c->objective.kind, c->model);
    const dra_status st = create_buffers(b, err);
    if (st == DRA_OK)
        *out = b;
    else
        dra_batches_destroy(b);
    return st;
}

static void free_stream(dra_example_stream *s)
{
    free(s->ids);
    free(s->x);
    free(s->there);
    free(s->length);
    free(s->ids_out);
    free(s->x_out);
    free(s->mark);
}

static void free_before(dra_example_before *p)
{
    free_stream(&p->stream);
    free(p->mark);
    free(p->targets);
}

void dra_batches_destroy(dra_batches *b)
{
    if (!b) return;
    dra_feed_destroy(b->feed);
    dra_examples_close(b->examples);
    free_stream(&b->main);
    free_stream(&b->context);
    free_before(&b->before);
    free_before(&b->before_context);
    free(b->rows);
    free(b->ids);
    free(b->counts);
    free(b->labels);
    free(b->y);
    free(b->weights);
    free(b->nums);
    free(b->nums_out);
    free(b->numbers);
    free(b->prompt);
    free(b->prefix);
    free(b->condition);
    free(b->reference);
    free(b);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Draws state dropout and forgotten tokens, then lets the objective change the rows. */
static dra_status draw_marks(dra_batches *b, int64_t i, int64_t step, dra_batch *q, dra_error *err)
{
    const dra_batches_config *c = &b->c;
    const int64_t             first = b->feed ? b->first : 0, at = first * q->T;
    const dra_objective_rows  rows = {.B = b->feed ? b->n : q->B,
                                      .T = q->T,
                                      .ids = q->ids ? q->ids + at : NULL,
                                      .targets = q->targets ? q->targets + at : NULL,
                                      .mark = q->mark + at,
                                      .seed = c->once ? DRA_EVAL_SEED : c->seed,
                                      .step = c->once ? 0 : step,
                                      .row = first + (c->once ? i * c->B : 0)};
    dra_status                st = DRA_OK;
    if (c->state_dropout > 0)
        dra_marks_skip(q->mark + at, rows.B, q->T, c->state_dropout, c->seed, step, first, NULL);
    /* The last target of a text that is read as a whole is no token of it. */
    if (c->forgetful_mask > 0)
        st = dra_marks_forget(q->mark + at, is_encoder(b) ? NULL : rows.targets, rows.B, q->T,
                              c->forgetful_mask, c->seed, step, first, err);
    if (st == DRA_OK && q->targets) dra_objective_make(&c->objective, c->model, &rows);
    return st;
}

/* Counts tokens that are not pads, and of each row the targets that count. */
static void count_targets(const dra_batches *from, dra_batch *q)
{
    const int64_t first = from->feed ? from->first : 0;
    const int64_t end = from->feed ? first + from->n : q->B;
    q->tokens = 0;
    for (int64_t i = first * q->T; i < end * q->T; i++)
        q->tokens += (q->mark[i] & DRA_MARK_PAD) == 0;
    for (int64_t b = first; b < end && q->targets; b++) {
        int64_t n = 0;
        for (int64_t t = 0; t < q->T; t++) n += q->targets[b * q->T + t] >= 0;
        q->counts[b] = (double)n;
    }
    q->total = 0;
    for (int64_t b = 0; b < q->B; b++) q->total += q->counts[b];
}

dra_status dra_batches_read(dra_batches *b, int64_t i, int64_t step, dra_batch *out, dra_error *err)
{
    dra_status st = DRA_OK;
    *out = (dra_batch){.B = b->c.B,
                       .T = b->longest,
                       .ids = b->ids,
                       .targets = b->targets,
                       .mark = b->mark,
                       .counts = b->counts,
                       .marked = dra_batches_marked(b)};
    if (b->feed)
        dra_feed_rows(b->feed, i, b->first, b->n, b->ids + b->first * out->T,
                      b->targets + b->first * out->T, b->mark + b->first * out->T);
    else
        st = dra_batches_read_examples(b, i, out, err);
    if (st == DRA_OK) st = draw_marks(b, i, step, out, err);
    if (st == DRA_OK && !b->feed) dra_batches_leave_gaps(b, out);
    if (st == DRA_OK) count_targets(b, out);
    if (st == DRA_OK) dra_batches_join_text(b, out);
    return st;
}

void dra_batches_take_part(dra_batches *b, int64_t first, int64_t n)
{
    b->first = first;
    b->n = n;
}

bool dra_batches_reads_part(const dra_batches *b) { return b->feed && b->n < b->c.B; }

/* ---- what there is --------------------------------------------------------------------------- */

int64_t dra_batches_steps(const dra_batches *b)
{
    return b->feed ? dra_feed_steps(b->feed) : dra_examples_steps(b->examples);
}

int64_t dra_batches_longest(const dra_batches *b) { return b->longest; }

int64_t dra_batches_tokens(const dra_batches *b)
{
    return b->feed ? dra_feed_tokens(b->feed) : dra_examples_count(b->examples) * b->longest;
}

int64_t dra_batches_examples(const dra_batches *b)
{
    return b->feed ? 0 : dra_examples_count(b->examples);
}

/* Without marks an encoder would see pads, and a mean would count them. */
bool dra_batches_marked(const dra_batches *b)
{
    const dra_batches_config *c = &b->c;
    if (c->state_dropout > 0 || c->forgetful_mask > 0 || is_encoder(b) || b->prefix) return true;
    return b->feed ? c->carry || dra_feed_resets(b->feed)
                   : dra_model_config_of(c->model)->head.kind == DRA_HEAD_CLASSES;
}

uint64_t dra_batches_fingerprint(const dra_batches *b)
{
    return b->feed ? dra_feed_fingerprint(b->feed) : b->fingerprint;
}
