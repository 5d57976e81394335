/* Finds the tensors of examples that a model and its objective need, and checks them. */
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "file/fail.h"
#include "model/model.h"
#include "train/batches.h"

static const char *path_of(const dra_batches *b) { return dra_examples_path(b->c.examples); }

static dra_status no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "batches: out of memory");
}

/* ---- which tensors there are ----------------------------------------------------------------- */

static dra_status need_tensor(const dra_batches *b, const char *name, const char *what,
                              dra_shape shape, bool integers, dra_error *err)
{
    const dra_example_input *in = dra_examples_find(b->c.examples, name);
    char                     found[160], expected[160];
    bool                     fits = in && in->shape.rank == shape.rank;
    if (!in)
        return dra_fail_at(err, DRA_ERR_NAME, path_of(b), "no tensor '%s', expected %s", name,
                           what);
    for (int i = 0; fits && i < shape.rank; i++)
        fits = shape.dim[i] < 0 || shape.dim[i] == in->shape.dim[i];
    for (int i = 0; i < shape.rank; i++) /* an axis of any size is shown as found */
        if (shape.dim[i] < 0) shape.dim[i] = in->shape.rank > i ? in->shape.dim[i] : 1;
    if (!fits)
        return dra_fail_at(err, DRA_ERR_SHAPE, path_of(b),
                           "tensor '%s': examples of shape %s, expected %s: %s", name,
                           dra_shape_text(&in->shape, found, sizeof found),
                           dra_shape_text(&shape, expected, sizeof expected), what);
    const bool fine = integers ? in->dtype == DRA_I32 || in->dtype == DRA_BOOL : in->real;
    if (fine) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_DTYPE, path_of(b), "tensor '%s': dtype %s, expected %s", name,
                       in->dtype_name,
                       integers ? "integers" : "floats, or integers of 1 or 2 bytes");
}

/* The tensor of a stream: called like its input, or by its other name. */
static const char *tensor_of(const dra_batches *b, const char *name, const char *other)
{
    if (dra_examples_find(b->c.examples, name) || !other) return name;
    return dra_examples_find(b->c.examples, other) ? other : name;
}

static dra_status check_mask(const dra_batches *b, dra_example_stream *s, const char *name,
                             dra_error *err)
{
    if (!dra_examples_find(b->c.examples, name)) return DRA_OK;
    s->mask = name;
    const dra_status st = need_tensor(b, name, "which of them are there", DRA_SHAPE(s->N), true,
                                      err);
    return st == DRA_OK ? dra_examples_check_integers(b->c.examples, name, 0, 1, false, err) : st;
}

static dra_status open_tokens(dra_batches *b, dra_example_stream *s, dra_error *err)
{
    dra_status st = need_tensor(b, s->tensor, "ids of tokens", DRA_SHAPE(-1), true, err);
    if (st != DRA_OK) return st;
    s->N = dra_examples_find(b->c.examples, s->tensor)->shape.dim[0];
    s->numbers = 1;
    return dra_examples_check_integers(b->c.examples, s->tensor, 0, s->of->vocab - 1, true, err);
}

static dra_status open_vectors(dra_batches *b, dra_example_stream *s, dra_error *err)
{
    const dra_source_config *c = &s->of->source;
    const int64_t            channels = c->channels ? c->channels : 3;
    const bool               image = c->kind == DRA_SOURCE_IMAGE;
    s->numbers = image ? channels * c->patch * c->patch : dra_source_width(s->of);
    dra_status st = need_tensor(
        b, s->tensor, image ? "images" : "vectors",
        image ? DRA_SHAPE(channels, c->size, c->size) : DRA_SHAPE(-1, s->numbers), false, err);
    if (st != DRA_OK) return st;
    s->N = image ? c->size / c->patch * (c->size / c->patch)
                 : dra_examples_find(b->c.examples, s->tensor)->shape.dim[0];
    return dra_examples_check_floats(b->c.examples, s->tensor, err);
}

/* A row must fit into the table of positions, unless texts are read in segments. */
static dra_status check_length(const dra_batches *b, const dra_example_stream *s, int64_t T,
                               dra_error *err)
{
    if (T < 1)
        return dra_fail_at(err, DRA_ERR_SHAPE, path_of(b),
                           "tensor '%s': rows of %lld, too few to predict one", s->tensor,
                           (long long)s->N);
    const bool ends = s->of->positions == DRA_POSITIONS_LEARNED && !s->of->xl.memory;
    if (!ends || T <= s->of->context) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_SHAPE, path_of(b),
                       "tensor '%s': rows of %lld, but the model has learned positions for %lld",
                       s->tensor, (long long)T, (long long)s->of->context);
}

static dra_status open_stream(dra_batches *b, dra_example_stream *s, const char *mask,
                              int64_t shift, int64_t most, dra_error *err)
{
    const bool tokens = s->of->source.kind == DRA_SOURCE_TOKENS;
    dra_status st = tokens ? open_tokens(b, s, err) : open_vectors(b, s, err);
    if (st == DRA_OK && s->of->source.kind != DRA_SOURCE_IMAGE) st = check_mask(b, s, mask, err);
    const bool cut = most && s->of->source.kind != DRA_SOURCE_IMAGE;
    s->most = cut ? dra_imin(most, s->N - shift) : s->N - shift;
    if (st == DRA_OK) st = check_length(b, s, s->most, err);
    if (st != DRA_OK) return st;
    const size_t n = (size_t)(b->c.B * s->N), all = n * (size_t)s->numbers;
    s->length = calloc((size_t)b->c.B, sizeof *s->length);
    s->there = calloc(n, sizeof *s->there);
    s->mark = calloc(n, sizeof *s->mark);
    s->ids = tokens ? calloc(n, sizeof *s->ids) : NULL;
    s->ids_out = tokens ? calloc(n, sizeof *s->ids_out) : NULL;
    s->x = tokens ? NULL : calloc(all, sizeof *s->x);
    s->x_out = tokens ? NULL : calloc(all, sizeof *s->x_out);
    const bool room = s->length && s->there && s->mark &&
                      (tokens ? s->ids && s->ids_out : s->x && s->x_out);
    return room ? DRA_OK : no_memory(err);
}

/* Numbers matter where a token is the number token; elsewhere they may be NaN. */
static dra_status open_numbers(dra_batches *b, dra_error *err)
{
    const size_t n = (size_t)(b->c.B * b->main.N);
    dra_status   st = need_tensor(b, "nums", "the numbers of tokens", DRA_SHAPE(b->main.N), false,
                                  err);
    if (st != DRA_OK) return st;
    b->nums = calloc(n, sizeof *b->nums);
    b->nums_out = calloc(n, sizeof *b->nums_out);
    b->numbers = calloc(n, sizeof *b->numbers);
    return b->nums && b->nums_out && b->numbers ? DRA_OK : no_memory(err);
}

static dra_status open_labels(dra_batches *b, dra_error *err)
{
    const int64_t K = dra_model_config_of(b->c.model)->head.dim;
    dra_status    st = need_tensor(b, "labels", "a class of each", (dra_shape){0}, true, err);
    if (st == DRA_OK)
        st = dra_examples_check_integers(b->c.examples, "labels", 0, K - 1, true, err);
    b->labels = calloc((size_t)b->c.B, sizeof *b->labels);
    return st == DRA_OK && !b->labels ? no_memory(err) : st;
}

static dra_status open_targets(dra_batches *b, dra_error *err)
{
    const dra_objective_kind kind = b->c.objective.kind;
    const size_t             n = (size_t)(b->c.B * b->main.N);
    dra_status               st = DRA_OK;
    if (dra_model_config_of(b->c.model)->source.numbers) st = open_numbers(b, err);
    if (st == DRA_OK && kind == DRA_OBJECTIVE_CLASSES) st = open_labels(b, err);
    if (st != DRA_OK || (kind != DRA_OBJECTIVE_SQUARED && kind != DRA_OBJECTIVE_GAUSSIAN))
        return st;
    b->y = calloc(n * (size_t)b->main.numbers, sizeof *b->y);
    b->weights = calloc(n, sizeof *b->weights);
    return b->y && b->weights ? DRA_OK : no_memory(err);
}

/* Pairs of texts, of which the first is preferred; tokens of the prompt do not count. */
static dra_status open_pairs(dra_batches *b, dra_error *err)
{
    const int64_t N = b->main.N;
    dra_status    st = need_tensor(b, b->main.other, "ids of tokens", DRA_SHAPE(N), true, err);
    if (st == DRA_OK)
        st = dra_examples_check_integers(b->c.examples, b->main.other, 0, b->main.of->vocab - 1,
                                         true, err);
    b->reference = calloc((size_t)b->c.B, sizeof *b->reference);
    if (st == DRA_OK && !b->reference) st = no_memory(err);
    if (st != DRA_OK || !dra_examples_find(b->c.examples, "prompt_mask")) return st;
    st = need_tensor(b, "prompt_mask", "which tokens are the prompt", DRA_SHAPE(N), true, err);
    if (st == DRA_OK)
        st = dra_examples_check_integers(b->c.examples, "prompt_mask", 0, 1, false, err);
    b->prompt = calloc((size_t)(b->c.B * N), sizeof *b->prompt);
    return st == DRA_OK && !b->prompt ? no_memory(err) : st;
}

/* A condition: one vector for each text; both texts of a pair share one. */
static dra_status open_condition(dra_batches *b, dra_error *err)
{
    dra_model_input in = {0};
    for (int i = 0; dra_model_input_at(b->c.model, i, &in) && !in.condition; i++) continue;
    if (!in.condition) return DRA_OK;
    dra_status st = need_tensor(b, in.name, "a condition of each", DRA_SHAPE(in.width), false, err);
    if (st == DRA_OK) st = dra_examples_check_floats(b->c.examples, in.name, err);
    b->condition = calloc((size_t)(b->c.B * in.width), sizeof *b->condition);
    return st == DRA_OK && !b->condition ? no_memory(err) : st;
}

/* For a model with prefixes: how long the prefix of each text is. */
static dra_status open_prefix(dra_batches *b, dra_error *err)
{
    const bool has = dra_model_config_of(b->c.model)->visible == DRA_VISIBLE_PREFIX;
    if (!has || b->main.other || !dra_examples_find(b->c.examples, "prefix")) return DRA_OK;
    dra_status st = need_tensor(b, "prefix", "the length of a prefix", (dra_shape){0}, true, err);
    if (st == DRA_OK)
        st = dra_examples_check_integers(b->c.examples, "prefix", 0, b->main.N, false, err);
    b->prefix = calloc((size_t)b->c.B, sizeof *b->prefix);
    return st == DRA_OK && !b->prefix ? no_memory(err) : st;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Checks all masks and numbers before anything is learned. */
static dra_status check_rows(dra_batches *b, dra_error *err)
{
    const int64_t N = dra_examples_count(b->c.examples);
    dra_status    st = DRA_OK;
    int64_t       T;
    if (!b->main.mask && !b->context.mask && !b->nums) return DRA_OK;
    for (int64_t first = 0; first < N && st == DRA_OK; first += b->c.B) {
        for (int64_t r = 0; r < b->c.B; r++) b->rows[r] = first + r < N ? first + r : -1;
        st = dra_batches_stream(b, &b->main, 0, &T, err);
        if (st == DRA_OK && b->context.of) st = dra_batches_stream(b, &b->context, 0, &T, err);
        if (st == DRA_OK && b->nums) st = dra_batches_numbers(b, err);
    }
    return st;
}

/* Opens what `m` prepends to its text, which is open already: an image or a number of vectors. */
static dra_status open_before(dra_batches *b, const dra_model *m, dra_example_before *p,
                              const dra_example_stream *text, dra_error *err)
{
    const dra_model *stack = dra_model_prepend_stack(m);
    if (!stack) return DRA_OK;
    const dra_model_config *of = dra_model_config_of(stack);
    const char             *name = dra_source_name(&of->source);
    p->stream = (dra_example_stream){.of = of, .name = name, .tensor = name};
    if (of->source.kind == DRA_SOURCE_VECTORS) {
        const dra_shape  each = DRA_SHAPE(of->source.length, dra_source_width(of));
        const dra_status st = need_tensor(b, name, "vectors before a text", each, false, err);
        if (st != DRA_OK) return st;
    }
    const dra_status st = open_stream(b, &p->stream, "", 0, 0, err);
    return st == DRA_OK ? dra_batches_room_before(b, p, text, err) : st;
}

dra_status dra_batches_open_examples(dra_batches *b, dra_error *err)
{
    const dra_batches_config *c = &b->c;
    const dra_model_config   *m = dra_model_config_of(c->model);
    const bool                pairs = c->objective.kind == DRA_OBJECTIVE_DPO;
    const int64_t             shift = b->objective->shifts;
    const dra_examples_config part = {.B = pairs ? c->B / 2 : c->B,
                                      .seed = c->seed,
                                      .from = c->from,
                                      .to = c->to,
                                      .once = c->once};
    if (pairs && c->B % 2)
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective dpo: %lld rows of a microbatch, expected pairs of rows",
                        (long long)c->B);
    dra_status st = dra_examples_share(c->examples, &part, &b->examples, err);
    b->main = (dra_example_stream){.of = m, .name = dra_source_name(&m->source)};
    b->main.tensor = pairs ? "preferred"
                           : tensor_of(b, b->main.name, m->source.kind ? NULL : "tgt");
    b->main.other = pairs ? "unpreferred" : NULL;
    b->rows = calloc((size_t)c->B, sizeof *b->rows);
    if (st == DRA_OK && !b->rows) st = no_memory(err);
    if (st == DRA_OK) st = open_stream(b, &b->main, "mask", shift, c->T, err);
    if (st == DRA_OK) st = open_before(b, c->model, &b->before, &b->main, err);
    if (st == DRA_OK && m->context_stack) { /* as the model has it, all filled in */
        const dra_model_config *of = dra_model_config_of(dra_model_context_stack(c->model));
        b->context = (dra_example_stream){.of = of, .name = dra_source_name(&of->source)};
        b->context.tensor = tensor_of(b, b->context.name, "src");
        if (strcmp(b->context.tensor, b->main.tensor) == 0) b->context.tensor = "src";
        st = open_stream(b, &b->context, tensor_of(b, "src_mask", "context_mask"), 0, 0, err);
        if (st == DRA_OK)
            st = open_before(b, dra_model_context_stack(c->model), &b->before_context, &b->context,
                             err);
    }
    if (st == DRA_OK && pairs) st = open_pairs(b, err);
    if (st == DRA_OK) st = open_prefix(b, err);
    if (st == DRA_OK) st = open_condition(b, err);
    if (st == DRA_OK) b->longest = b->main.most;
    if (st == DRA_OK) b->fingerprint = dra_examples_fingerprint(b->examples);
    if (st == DRA_OK) st = open_targets(b, err);
    return st == DRA_OK ? check_rows(b, err) : st;
}
