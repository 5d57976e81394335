/* Batches of examples: tensors by name become the inputs of a model and its targets.
 *   tokens    ids (N): -100 stands where there is none. At the end of a row these are pads;
 *             elsewhere token 0 is read in its place, and it is never predicted
 *   vectors   x (N, D);  images  img (channels, size, size)
 *   mask (N)  bool: which are there, the first ones of every row
 * Of an objective that shifts, t = 0 .. N-2 is read and compared with t + 1. Rows are as long as
 * the longest of their batch, rounded up, so that there are few programs. */
#include <math.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "train/batches.h"

enum { ROUND = 32 };

static const char *path_of(const dra_batches *b) { return dra_examples_path(b->c.examples); }

/* ---- rows ------------------------------------------------------------------------------------ */

/* The length of a row: up to the last token that is there. A missing one must not come before
 * it. */
static dra_status find_length(const dra_batches *b, dra_example_stream *s, int64_t row,
                              dra_error *err)
{
    int64_t  n = s->N;
    int32_t *there = s->there + row * s->N;
    for (int64_t t = 0; t < s->N; t++) {
        if (b->rows[row] < 0)
            there[t] = 0;
        else if (!s->mask)
            there[t] = 1;
    }
    while (n > 0 && (!there[n - 1] || (s->ids && s->ids[row * s->N + n - 1] < 0))) n--;
    s->length[row] = n;
    for (int64_t t = 0; t < n; t++)
        if (!there[t])
            return dra_fail_at(err, DRA_ERR_FORMAT, path_of(b),
                               "tensor '%s', example %lld: element %lld is 0, but later ones are "
                               "not: expected pads at the end",
                               s->mask, (long long)b->rows[row], (long long)t);
    return DRA_OK;
}

static dra_status read_tensor(const dra_batches *b, const dra_example_stream *s, dra_error *err)
{
    dra_status st = DRA_OK;
    if (!s->ids)
        return dra_examples_read(b->examples, s->tensor, b->c.B, b->rows, DRA_REAL, s->x, err);
    if (!s->other)
        return dra_examples_read(b->examples, s->tensor, b->c.B, b->rows, DRA_I32, s->ids, err);
    for (int64_t r = 0; r < b->c.B && st == DRA_OK; r++)
        st = dra_examples_read(b->examples, r % 2 ? s->other : s->tensor, 1, &b->rows[r], DRA_I32,
                               s->ids + r * s->N, err);
    return st;
}

dra_status dra_batches_stream(dra_batches *b, dra_example_stream *s, int64_t shift, int64_t *T,
                              dra_error *err)
{
    const int64_t B = b->c.B;
    dra_status    st = read_tensor(b, s, err);
    if (st == DRA_OK && s->mask)
        st = dra_examples_read(b->examples, s->mask, B, b->rows, DRA_I32, s->there, err);
    int64_t longest = 1 + shift;
    for (int64_t r = 0; r < B && st == DRA_OK; r++) {
        st = find_length(b, s, r, err);
        longest = dra_imax(longest, s->length[r]);
    }
    const bool image = s->of->source.kind == DRA_SOURCE_IMAGE;
    *T = image ? s->N : dra_imin(dra_div_up(longest - shift, ROUND) * ROUND, s->most);
    return st;
}

/* Takes the first T tokens of each row and marks pads. */
void dra_batches_put_stream(const dra_batches *b, dra_example_stream *s, int64_t shift, int64_t T)
{
    const size_t each = (size_t)s->numbers;
    for (int64_t r = 0; r < b->c.B; r++) {
        const int64_t n = dra_imax(0, s->length[r] - shift);
        for (int64_t t = 0; t < T; t++) {
            const int64_t from = r * s->N + t, to = r * T + t;
            s->mark[to] = (t < n ? 0 : DRA_MARK_PAD) | (t == 0 && n > 0 ? DRA_MARK_RESET : 0);
            if (s->ids) s->ids_out[to] = t < n ? (int32_t)dra_imax(0, s->ids[from]) : 0;
            if (s->x && t < n)
                memcpy(s->x_out + (size_t)to * each, s->x + (size_t)from * each,
                       each * sizeof *s->x);
            else if (s->x)
                memset(s->x_out + (size_t)to * each, 0, each * sizeof *s->x);
        }
    }
}

static void add_input(dra_batch *q, const char *name, const void *data, size_t bytes)
{
    q->input[q->n_inputs++] = (dra_named){name, data, bytes};
}

void dra_batches_add_stream(const dra_batches *b, const dra_example_stream *s, int64_t T,
                            dra_batch *q)
{
    const size_t n = (size_t)(b->c.B * T);
    if (s->ids && strcmp(s->name, "ids") == 0) return; /* a batch has them already */
    if (s->ids)
        add_input(q, s->name, s->ids_out, n * sizeof *s->ids_out);
    else
        add_input(q, s->name, s->x_out, n * (size_t)s->numbers * sizeof *s->x_out);
}

/* ---- what they are compared with ------------------------------------------------------------- */

/* Targets: the next tokens, or the same ones for an objective that does not shift. */
static void put_targets(const dra_batches *b, dra_batch *q)
{
    const dra_example_stream *s = &b->main;
    const int64_t             shift = b->objective->shifts;
    for (int64_t i = 0; i < q->B * q->T; i++) {
        const int64_t r = i / q->T, t = i % q->T + shift;
        q->targets[i] = t < s->length[r] ? (int32_t)dra_imax(-1, s->ids[r * s->N + t]) : -1;
    }
}

void dra_batches_leave_gaps(const dra_batches *b, dra_batch *q)
{
    const dra_example_stream *s = &b->main;
    if (!s->ids || !q->targets || b->objective->shifts) return;
    for (int64_t i = 0; i < q->B * q->T; i++) {
        const int64_t r = i / q->T, t = i % q->T;
        if (t < s->length[r] && s->ids[r * s->N + t] < 0) q->ids[i] = 0, q->targets[i] = -1;
    }
}

/* Tokens of the prompt are not learned: a target counts if the token before it is not part of
 * it. */
static dra_status put_pairs(dra_batches *b, dra_batch *q, dra_error *err)
{
    const int64_t N = b->main.N;
    dra_status    st = DRA_OK;
    if (b->prompt)
        st = dra_examples_read(b->examples, "prompt_mask", q->B, b->rows, DRA_I32, b->prompt, err);
    for (int64_t i = 0; i < q->B * q->T && b->prompt; i++)
        if (b->prompt[i / q->T * N + i % q->T]) q->targets[i] = -1;
    for (int64_t r = 0; r < q->B; r++) {
        const bool known = b->all_reference && b->rows[r] >= 0;
        b->reference[r] = known ? b->all_reference[2 * b->rows[r] + r % 2] : 0;
    }
    add_input(q, "reference", b->reference, (size_t)q->B * sizeof *b->reference);
    return st;
}

/* A token of a prefix sees the next one, so that one is not learned. */
static dra_status put_prefix(const dra_batches *b, dra_batch *q, dra_error *err)
{
    const dra_status st = dra_examples_read(b->examples, "prefix", q->B, b->rows, DRA_I32,
                                            b->prefix, err);
    for (int64_t i = 0; i < q->B * q->T && st == DRA_OK; i++) {
        const int64_t n = b->rows[i / q->T] < 0 ? 0 : b->prefix[i / q->T], t = i % q->T;
        if (t < n && !(q->mark[i] & DRA_MARK_PAD)) q->mark[i] |= DRA_MARK_PREFIX;
        if (t + 1 < n && q->targets) q->targets[i] = -1;
    }
    return st;
}

static dra_status put_condition(const dra_batches *b, dra_batch *q, dra_error *err)
{
    const size_t     all = (size_t)(q->B * dra_model_config_of(b->c.model)->condition.dim);
    const dra_status st = dra_examples_read(b->examples, "condition", q->B, b->rows, DRA_REAL,
                                            b->condition, err);
    add_input(q, "condition", b->condition, all * sizeof *b->condition);
    return st;
}

static dra_status check_number(const dra_batches *b, int64_t row, int64_t t, double x,
                               dra_error *err)
{
    if (isfinite(x)) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, path_of(b),
                       "tensor 'nums', example %lld: element %lld is %g, but the token there is a "
                       "number",
                       (long long)b->rows[row], (long long)t, x);
}

/* Whether element i of the tokens as read is a number. */
static bool is_number(const dra_example_stream *s, int64_t i)
{
    return i % s->N < s->length[i / s->N] && s->ids[i] == s->of->source.number_token;
}

dra_status dra_batches_numbers(const dra_batches *b, dra_error *err)
{
    const dra_example_stream *s = &b->main;
    dra_status st = dra_examples_read(b->examples, "nums", b->c.B, b->rows, DRA_REAL, b->nums, err);
    for (int64_t i = 0; i < b->c.B * s->N && st == DRA_OK; i++)
        if (is_number(s, i)) st = check_number(b, i / s->N, i % s->N, (double)b->nums[i], err);
    return st;
}

/* Numbers of the tokens read and of the next ones; 1 and 0 where there is none. */
static dra_status put_numbers(const dra_batches *b, dra_batch *q, dra_error *err)
{
    const dra_example_stream *s = &b->main;
    const dra_status          st = dra_batches_numbers(b, err);
    for (int64_t i = 0; i < q->B * s->N && st == DRA_OK; i++) {
        const int64_t r = i / s->N, t = i % s->N;
        const bool    is = is_number(s, i);
        if (t < q->T) b->nums_out[r * q->T + t] = is ? b->nums[i] : 1;
        if (t > 0 && t <= q->T) b->numbers[r * q->T + t - 1] = is ? b->nums[i] : 0;
    }
    add_input(q, "nums", b->nums_out, (size_t)(q->B * q->T) * sizeof *b->nums_out);
    if (b->c.objective.kind == DRA_OBJECTIVE_XVAL)
        add_input(q, "numbers", b->numbers, (size_t)(q->B * q->T) * sizeof *b->numbers);
    return st;
}

/* The next vectors; a position counts if it is there itself, as in x-transformers. */
static void put_vectors(const dra_batches *b, dra_batch *q)
{
    const dra_example_stream *s = &b->main;
    const size_t              D = (size_t)s->numbers;
    const bool                alike = b->c.objective.equal_rows;
    for (int64_t r = 0; r < q->B; r++) {
        const int64_t kept = dra_imin(s->length[r], s->most);
        for (int64_t t = 0; t < q->T; t++) {
            const size_t to = (size_t)(r * q->T + t), from = (size_t)(r * s->N + t + 1);
            b->weights[to] = t < kept ? (alike ? (dra_real)1 / (dra_real)kept : 1) : 0;
            memcpy(b->y + to * D, s->x + from * D, D * sizeof *s->x);
        }
        q->counts[r] = alike ? kept > 0 : (double)kept;
    }
    add_input(q, "y", b->y, (size_t)(q->B * q->T) * D * sizeof *b->y);
    add_input(q, "weights", b->weights, (size_t)(q->B * q->T) * sizeof *b->weights);
}

static dra_status put_labels(const dra_batches *b, dra_batch *q, dra_error *err)
{
    const dra_status st = dra_examples_read(b->examples, "labels", q->B, b->rows, DRA_I32,
                                            b->labels, err);
    for (int64_t r = 0; r < q->B && st == DRA_OK; r++) {
        if (b->rows[r] < 0 || b->labels[r] < 0) b->labels[r] = -1;
        q->counts[r] = b->labels[r] >= 0;
    }
    add_input(q, "labels", b->labels, (size_t)q->B * sizeof *b->labels);
    return st;
}

/* ---- a batch --------------------------------------------------------------------------------- */

static dra_status read_context(dra_batches *b, dra_batch *q, dra_error *err)
{
    int64_t    T;
    dra_status st = dra_batches_stream(b, &b->context, 0, &T, err);
    if (st == DRA_OK && b->before_context.stream.of)
        st = dra_batches_read_before(b, &b->before_context, q, err);
    if (st != DRA_OK) return st;
    dra_batches_put_stream(b, &b->context, 0, T);
    for (int64_t i = 0; i < q->B * T; i++) b->context.mark[i] &= DRA_MARK_PAD;
    dra_batches_add_stream(b, &b->context, T, q);
    q->context = (dra_context_text){T, b->context.mark};
    dra_batches_join_context(b, q);
    return DRA_OK;
}

dra_status dra_batches_read_examples(dra_batches *b, int64_t i, dra_batch *q, dra_error *err)
{
    const int64_t       shift = b->objective->shifts;
    dra_example_stream *s = &b->main;
    dra_examples_rows(b->examples, i, b->rows);
    for (int64_t r = q->B - 1; r >= 0 && s->other; r--) b->rows[r] = b->rows[r / 2];
    dra_status st = dra_batches_stream(b, s, shift, &q->T, err);
    if (st != DRA_OK) return st;
    dra_batches_put_stream(b, s, s->ids ? shift : 0, q->T);
    q->mark = s->mark;
    q->ids = s->ids_out; /* NULL: there are none */
    if (b->objective->inputs[0].axes != DRA_AXES_TOKENS) q->targets = NULL;
    dra_batches_add_stream(b, s, q->T, q);
    if (q->targets && s->ids) put_targets(b, q);
    if (b->reference) st = put_pairs(b, q, err);
    if (st == DRA_OK && b->prefix) st = put_prefix(b, q, err);
    if (st == DRA_OK && b->condition) st = put_condition(b, q, err);
    if (st == DRA_OK && b->nums) st = put_numbers(b, q, err);
    if (st == DRA_OK && b->y) put_vectors(b, q);
    if (st == DRA_OK && b->labels) st = put_labels(b, q, err);
    if (st == DRA_OK && b->before.stream.of) st = dra_batches_read_before(b, &b->before, q, err);
    if (st == DRA_OK && b->context.of) st = read_context(b, q, err);
    return st;
}
