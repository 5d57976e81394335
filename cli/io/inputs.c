/* Tokens from the command line or from a file. */
#include "inputs.h"

#include <stdlib.h>
#include <string.h>

void cli_inputs_free(cli_inputs *in)
{
    if (!in->n_named) free(in->ids);
    for (int i = 0; i < in->n_named; i++) free(in->named[i].data);
    free(in->x);
    free(in->mark);
    free(in->targets);
    free(in->lengths);
    free(in->context_mark);
    free(in->labels);
    free(in->goals);
    *in = (cli_inputs){0};
}

static dra_status check_ids(const cli_inputs *in, int64_t V, dra_error *err)
{
    if (in->B < 1 || in->T < 1)
        return cli_error(err, DRA_ERR_VALUE, "%s: no tokens, expected 1 or more",
                         in->x ? "x" : "ids");
    for (int64_t i = 0; in->ids && i < in->B * in->T; i++)
        if (in->ids[i] < 0 || in->ids[i] >= V)
            return cli_error(err, DRA_ERR_INDEX, "ids: token %lld is %d, the model has 0 to %lld",
                             (long long)i, in->ids[i], (long long)V - 1);
    return DRA_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

void *cli_rows_read(const dra_examples *e, const char *name, int64_t size, dra_dtype dtype,
                    dra_error *err)
{
    const int64_t N = dra_examples_count(e);
    int64_t      *rows = calloc((size_t)N + 1, sizeof *rows);
    void         *out = calloc((size_t)(N * size) + 1,
                       dtype == DRA_I32 ? sizeof(int32_t) : sizeof(dra_real));
    dra_status    st = rows && out ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; rows && i < N; i++) rows[i] = i;
    if (st == DRA_OK) st = dra_examples_read(e, name, N, rows, dtype, out, err);
    free(rows);
    if (st == DRA_OK) return out;
    free(out);
    return NULL;
}

/* All of a tensor that has a whole number for each token. */
static dra_status read_tensor(const dra_examples *e, const char *path, const char *name,
                              const cli_inputs *in, int32_t **out, dra_error *err)
{
    const dra_example_input *t = dra_examples_find(e, name);
    if (t->shape.rank != in->batched || (in->batched && t->shape.dim[0] != in->T))
        return cli_error(err, DRA_ERR_SHAPE, "%.200s: tensor %s is not shaped as %s", path, name,
                         in->x ? "the tokens of x" : "ids");
    *out = cli_rows_read(e, name, in->batched ? in->T : 1, DRA_I32, err);
    return *out ? DRA_OK : err->code;
}

static dra_status check_names(const dra_examples *e, const cli_inputs_config *c, dra_error *err)
{
    static const char *const known[] = {"ids", "mask", "reset", "targets", "x"};
    const size_t             n = COUNT(known) - (c->width == 0);
    const dra_example_input *t;
    for (int i = 0; (t = dra_examples_at(e, i)) != NULL; i++) {
        size_t k = 0;
        while (k < n && strcmp(t->name, known[k]) != 0) k++;
        if (k == n)
            return cli_error(err, DRA_ERR_NAME,
                             "%.200s: tensor %.80s is not an input, expected ids, mask, reset, "
                             "targets%s",
                             c->path, t->name, c->width ? ", x" : "");
    }
    const bool ids = dra_examples_find(e, "ids"), x = dra_examples_find(e, "x");
    if (ids && x)
        return cli_error(err, DRA_ERR_NAME, "%.200s: expected only one of ids and x", c->path);
    if (ids || x) return DRA_OK;
    return cli_error(err, DRA_ERR_NAME, "%.200s: tensor ids is missing%s", c->path,
                     c->width ? ", and there is no x" : "");
}

/* (T) or (B, T), of x (T, C) or (B, T, C): how many rows and tokens there are. */
static dra_status read_shape(const dra_examples *e, const cli_inputs_config *c, cli_inputs *in,
                             dra_error *err)
{
    const dra_example_input *x = dra_examples_find(e, "x");
    const dra_example_input *t = x ? x : dra_examples_find(e, "ids");
    const int32_t            rank = t->shape.rank + 1, least = x ? 2 : 1;
    if (rank < least || rank > least + 1)
        return cli_error(err, DRA_ERR_SHAPE, "%.200s: tensor %s has %d axes, expected %d or %d",
                         c->path, t->name, rank, least, least + 1);
    if (x && x->shape.dim[rank - 2] != c->width)
        return cli_error(err, DRA_ERR_SHAPE, "%.200s: tensor x has width %lld, the model %lld",
                         c->path, (long long)x->shape.dim[rank - 2], (long long)c->width);
    in->batched = rank > least;
    in->B = in->batched ? dra_examples_count(e) : 1;
    in->T = in->batched ? t->shape.dim[0] : dra_examples_count(e);
    if (x) in->x = cli_rows_read(e, "x", (in->batched ? in->T : 1) * c->width, DRA_REAL, err);
    return !x || in->x ? DRA_OK : err->code;
}

static dra_status make_marks(cli_inputs *in, dra_error *err)
{
    if (in->mark) return DRA_OK;
    in->mark = calloc((size_t)(in->B * in->T) + 1, sizeof *in->mark);
    return in->mark ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

/* Sets a mark where a tensor is 0, or where it is not. */
static dra_status read_marks(const dra_examples *e, const char *path, const char *name, bool zero,
                             int32_t mark, cli_inputs *in, dra_error *err)
{
    int32_t   *given = NULL;
    dra_status st = dra_examples_find(e, name) ? make_marks(in, err) : DRA_OK;
    if (st != DRA_OK || !dra_examples_find(e, name)) return st;
    st = read_tensor(e, path, name, in, &given, err);
    for (int64_t i = 0; st == DRA_OK && i < in->B * in->T; i++)
        if (!given[i] == zero) in->mark[i] |= mark;
    free(given);
    return st;
}

static dra_status read_file(const cli_inputs_config *c, cli_inputs *in, dra_error *err)
{
    const dra_examples_config config = {.path = c->path, .B = 1};
    dra_examples             *e = NULL;
    dra_status                st = dra_examples_open(&config, &e, err);
    if (st == DRA_OK) st = check_names(e, c, err);
    if (st == DRA_OK) st = read_shape(e, c, in, err);
    if (st == DRA_OK && !in->x) st = read_tensor(e, c->path, "ids", in, &in->ids, err);
    if (st == DRA_OK && dra_examples_find(e, "targets"))
        st = read_tensor(e, c->path, "targets", in, &in->targets, err);
    if (st == DRA_OK) st = read_marks(e, c->path, "mask", true, DRA_MARK_PAD, in, err);
    if (st == DRA_OK) st = read_marks(e, c->path, "reset", false, DRA_MARK_RESET, in, err);
    dra_examples_close(e);
    return st;
}

/* ---- resets ---------------------------------------------------------------------------------- */

dra_status cli_resets_add(const char *text, cli_inputs *in, dra_error *err)
{
    dra_ids    at = {0};
    dra_status st = cli_ids_read("--resets", text, &at, err);
    if (st == DRA_OK) st = make_marks(in, err);
    for (size_t i = 0; i < at.n && st == DRA_OK; i++) {
        if (at.data[i] < 0 || at.data[i] >= in->T)
            st = cli_error(err, DRA_ERR_VALUE, "--resets: %d, expected 0 to %lld", at.data[i],
                           (long long)in->T - 1);
        for (int64_t b = 0; b < in->B && st == DRA_OK; b++)
            in->mark[b * in->T + at.data[i]] |= DRA_MARK_RESET;
    }
    dra_ids_free(&at);
    return st;
}

dra_status cli_inputs_positions(const dra_model *model, const cli_inputs *in, int64_t b,
                                int64_t before, dra_error *err)
{
    dra_status st = DRA_OK;
    int64_t    from = in->first; /* of the segment; what is prepended has no such positions */
    for (int64_t t = from + 1; t <= in->T && st == DRA_OK; t++) {
        if (t < in->T && !cli_is_reset(in, b * in->T + t)) continue;
        const bool starts = cli_is_reset(in, b * in->T + from);
        st = dra_model_check_positions(model, starts ? 0 : before, t - from, err);
        from = t;
    }
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

dra_status cli_inputs_read(const cli_inputs_config *c, cli_inputs *out, dra_error *err)
{
    dra_ids    ids = {0};
    dra_status st = c->path ? read_file(c, out, err)
                            : cli_ids_read("--tokens", c->tokens, &ids, err);
    if (!c->path) {
        out->B = 1;
        out->T = (int64_t)ids.n;
        out->ids = ids.data;
    }
    if (st == DRA_OK) st = check_ids(out, c->vocab, err);
    if (st == DRA_OK && c->resets) st = cli_resets_add(c->resets, out, err);
    if (st != DRA_OK) cli_inputs_free(out);
    return st;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

dra_status cli_chunks_read(const char *text, int64_t T, int *n, int64_t **chunk, dra_error *err)
{
    dra_ids    lengths = {0};
    int64_t    left = T;
    dra_status st = text ? cli_ids_read("--chunks", text, &lengths, err) : DRA_OK;
    *n = 0;
    *chunk = calloc(lengths.n + 1, sizeof **chunk);
    if (!*chunk) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < lengths.n && st == DRA_OK; i++) {
        const int64_t length = lengths.data[i];
        if (length < 1 || length > left)
            st = cli_error(err, DRA_ERR_VALUE,
                           "--chunks: length %lld with %lld of %lld tokens left", (long long)length,
                           (long long)left, (long long)T);
        (*chunk)[(*n)++] = length;
        left -= length;
    }
    if (st == DRA_OK && left > 0) (*chunk)[(*n)++] = left;
    dra_ids_free(&lengths);
    return st;
}
