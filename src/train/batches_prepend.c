/* Inputs that come before a text: an image or vectors, which a stack reads as its first P tokens.
 * So marks and targets of a batch have P columns more than its text:
 *   | P of what is prepended: never a target | T of the text |
 * A row without an example is all pads. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/batches.h"

dra_status dra_batches_room_before(dra_batches *b, dra_example_before *p,
                                   const dra_example_stream *text, dra_error *err)
{
    const size_t n = (size_t)(b->c.B * (p->stream.N + text->N));
    p->mark = calloc(n, sizeof *p->mark);
    p->targets = calloc(n, sizeof *p->targets);
    return p->mark && p->targets ? DRA_OK : dra_fail(err, DRA_ERR_MEMORY, "batches: out of memory");
}

dra_status dra_batches_read_before(dra_batches *b, dra_example_before *p, dra_batch *q,
                                   dra_error *err)
{
    int64_t          P;
    const dra_status st = dra_batches_stream(b, &p->stream, 0, &P, err);
    if (st == DRA_OK) dra_batches_put_stream(b, &p->stream, 0, P);
    if (st == DRA_OK) dra_batches_add_stream(b, &p->stream, P, q);
    return st;
}

/* Joins rows of P and rows of T into rows of P + T. If `first` is NULL, its columns become -1. */
static void join_columns(int64_t B, int64_t P, int64_t T, const int32_t *first, const int32_t *text,
                         int32_t *to)
{
    for (int64_t i = 0; i < B * (P + T); i++) {
        const int64_t r = i / (P + T), t = i % (P + T);
        to[i] = t >= P ? text[r * T + t - P] : first ? first[r * P + t] : -1;
    }
}

void dra_batches_join_context(const dra_batches *b, dra_batch *q)
{
    const dra_example_before *p = &b->before_context;
    const int64_t             P = p->stream.N, T = q->context.T;
    if (!p->stream.of) return;
    join_columns(q->B, P, T, p->stream.mark, q->context.mark, p->mark);
    for (int64_t i = 0; i < q->B * (P + T); i++) p->mark[i] &= DRA_MARK_PAD;
    q->context = (dra_context_text){P + T, p->mark};
}

/* The prepended tokens start the sequence; the text then continues it. */
void dra_batches_join_text(const dra_batches *b, dra_batch *q)
{
    const dra_example_before *p = &b->before;
    const int64_t             P = p->stream.N;
    if (!p->stream.of) return;
    join_columns(q->B, P, q->T, p->stream.mark, q->mark, p->mark);
    for (int64_t r = 0; r < q->B; r++) p->mark[r * (P + q->T) + P] &= ~DRA_MARK_RESET;
    if (q->targets) join_columns(q->B, P, q->T, NULL, q->targets, p->targets);
    if (q->ids) {
        q->input[q->n_inputs++] = (dra_named){b->main.name, q->ids,
                                              (size_t)(q->B * q->T) * sizeof *q->ids};
        q->ids = NULL; /* these have no columns for what is prepended */
    }
    q->mark = p->mark;
    if (q->targets) q->targets = p->targets;
    q->T += P;
}
