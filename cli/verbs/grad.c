/* dra grad: the loss of a model on tokens and the gradient of every parameter, as tensors. */
#include "verbs/grad/grad.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct args {
    cli_source  from;
    const char *tokens, *inputs, *resets, *chunks, *out;
    bool        json;
};

static const struct args defaults = {0};

static const cli_option options[] = {
    CLI_MODEL_OPTIONS(struct args),
    {"tokens", CLI_TEXT, offsetof(struct args, tokens), 0, 0,
     "ids to learn: 1,2,3 or @FILE; each is the target of the one before", "LIST|@FILE",
     .group = "Input"},
    {"inputs", CLI_TEXT, offsetof(struct args, inputs), 0, 0,
     "or safetensors with ids (T) or (B, T), and targets (-1 and -100 are ignored), mask (0 is a "
     "pad), reset (1 starts a segment); for other models examples as for 'dra train'",
     "FILE"},
    {"resets", CLI_TEXT, offsetof(struct args, resets), 0, 0,
     "start a new segment before these tokens, counted from 0, in every row: 5,9", "LIST"},
    {"chunks", CLI_TEXT, offsetof(struct args, chunks), 0, 0,
     "read in chunks of these lengths, then the rest: 3,1,7", "LIST"},
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0,
     "safetensors to write: loss, and gradients by name", "FILE",
     .flags = CLI_WRITES | CLI_TENSORS | CLI_REQUIRED, .group = "Output", .brief = 'o'},
    CLI_DEVICE_OPTIONS(struct args),
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "print one JSON object", .brief = 'j'},
};

/* Each token is the target of the one before, where both count and belong to one segment. */
static dra_status make_targets(const dra_model *m, cli_inputs *in, dra_error *err)
{
    if (in->targets) return DRA_OK;
    if (dra_model_config_of(m)->visible == DRA_VISIBLE_BIDIRECTIONAL)
        return cli_error(err, DRA_ERR_VALUE,
                         "--inputs: the model is an encoder, whose tokens see the next one; "
                         "expected a tensor targets");
    in->targets = calloc((size_t)(in->B * in->T), sizeof *in->targets);
    if (!in->targets) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t b = 0; b < in->B; b++) {
        int64_t before = -1; /* the last token that counts */
        for (int64_t i = b * in->T; i < (b + 1) * in->T; i++) {
            in->targets[i] = -1;
            if (cli_is_reset(in, i)) before = -1;
            if (cli_is_pad(in, i)) continue;
            if (before >= 0) in->targets[before] = in->ids[i];
            before = i;
        }
    }
    return DRA_OK;
}

static dra_status check_targets(cli_inputs *in, int64_t V, dra_error *err)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < in->B * in->T; i++)
        if (in->targets[i] == -100) in->targets[i] = -1; /* as Hugging Face marks them */
    for (int64_t i = 0; i < in->B * in->T; i++)
        if (in->targets[i] < -1 || in->targets[i] >= V)
            return cli_error(err, DRA_ERR_INDEX, "targets: number %lld is %d, expected -1 to %lld",
                             (long long)i, in->targets[i], (long long)V - 1);
    for (int64_t i = 0; i < in->B * in->T; i++) counted += in->targets[i] >= 0;
    return counted ? DRA_OK
                   : cli_error(err, DRA_ERR_VALUE,
                               "nothing to learn from: no token is followed by one that counts");
}

static dra_status write_all(const cli_model *m, dra_gradients *l, double loss, const char *path,
                            dra_error *err)
{
    const int             n = dra_specs_count(dra_model_params(m->model));
    const dra_real        number = (dra_real)loss;
    const dra_tensor_item extra = {"loss", DRA_REAL, (dra_shape){0}, &number};
    const dra_real      **values = calloc((size_t)n + 1, sizeof *values);
    if (!values) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    dra_status st = DRA_OK;
    for (int i = 0; i < n && st == DRA_OK; i++) {
        values[i] = dra_gradients_of(l, i);
        if (!values[i]) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    }
    if (st == DRA_OK) st = dra_weights_save_like(m->weights, values, 1, &extra, path, err);
    free(values);
    return st;
}

/* How many numbers of the gradients are not finite. */
static int64_t count_bad(const cli_model *m, dra_gradients *l)
{
    const dra_specs *params = dra_model_params(m->model);
    int64_t          bad = 0;
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_real *d = dra_gradients_of(l, i);
        for (int64_t k = 0; d && k < dra_shape_count(&dra_specs_at(params, i)->shape); k++)
            bad += !isfinite(d[k]);
    }
    return bad;
}

static dra_status learn_tokens(const struct args *a, const cli_model *m, cli_inputs *in,
                               dra_microbatch_result *result, int64_t *bad, dra_error *err)
{
    const int64_t              V = dra_model_config_of(m->model)->vocab;
    const dra_gradients_config config = {.model = m->model, .device = m->device};
    dra_gradients             *l = NULL;
    int64_t                   *chunk = NULL;
    int                        chunks = 0;
    const cli_inputs_config    inputs = {a->tokens, a->inputs, a->resets, V};
    dra_status                 st = cli_inputs_read(&inputs, in, err);
    for (int64_t b = 0; b < in->B && st == DRA_OK; b++)
        st = cli_inputs_positions(m->model, in, b, 0, err);
    if (st == DRA_OK) st = make_targets(m->model, in, err);
    if (st == DRA_OK) st = check_targets(in, V, err);
    if (st == DRA_OK) st = cli_chunks_read(a->chunks, in->T, &chunks, &chunk, err);
    if (st == DRA_OK) st = dra_gradients_create(&config, &l, err);
    if (st == DRA_OK) st = dra_gradients_bind(l, m->weights, err);
    if (st == DRA_OK) {
        const dra_microbatch microbatch = {.B = in->B,
                                           .T = in->T,
                                           .ids = in->ids,
                                           .targets = in->targets,
                                           .mark = in->mark,
                                           .chunks = a->chunks ? chunks : 0,
                                           .chunk = chunk,
                                           .no_dropout = true}; /* so that results repeat */
        st = dra_gradients_run(l, &microbatch, result, err);
    }
    if (st == DRA_OK) st = write_all(m, l, result->loss, a->out, err);
    if (st == DRA_OK) *bad = count_bad(m, l);
    dra_gradients_destroy(l);
    free(chunk);
    return st;
}

/* ---- examples of models that are no language models ------------------------------------------ */

typedef struct parts {
    dra_objective_config objective;
    dra_examples        *examples;
    dra_batches         *batches;
    dra_gradients       *gradients;
} parts;

/* All examples are one batch. */
static dra_status open_parts(const struct args *a, const cli_model *m, parts *p, dra_error *err)
{
    const dra_examples_config file = {.path = a->inputs, .B = 1};
    dra_status                st = dra_objective_complete(&p->objective, m->model, err);
    if (st == DRA_OK) st = dra_examples_open(&file, &p->examples, err);
    if (st != DRA_OK) return st;
    const dra_batches_config   b = {.model = m->model,
                                    .objective = p->objective,
                                    .examples = p->examples,
                                    .B = dra_examples_count(p->examples),
                                    .once = true};
    const dra_gradients_config g = {.model = m->model,
                                    .device = m->device,
                                    .objective = p->objective.kind,
                                    .terms = p->objective};
    st = dra_batches_create(&b, &p->batches, err);
    if (st == DRA_OK) st = dra_gradients_create(&g, &p->gradients, err);
    return st == DRA_OK ? dra_gradients_bind(p->gradients, m->weights, err) : st;
}

static dra_status learn_examples(const struct args *a, const cli_model *m,
                                 dra_microbatch_result *result, int64_t *bad, dra_error *err)
{
    parts          p = {0};
    dra_batch      batch;
    dra_batch_part room;
    dra_microbatch microbatch = {.no_dropout = true};
    dra_status     st = open_parts(a, m, &p, err);
    if (st == DRA_OK) st = dra_batches_read(p.batches, 0, 0, &batch, err);
    const double count = st == DRA_OK ? dra_batch_cut(&batch, 0, batch.B, &room, &microbatch) : 0;
    if (st == DRA_OK && !(count > 0))
        st = cli_error(err, DRA_ERR_VALUE, "nothing to learn from: no target counts");
    if (st == DRA_OK) st = dra_gradients_run(p.gradients, &microbatch, result, err);
    result->count = (int64_t)count;
    if (st == DRA_OK) st = write_all(m, p.gradients, result->loss, a->out, err);
    if (st == DRA_OK) *bad = count_bad(m, p.gradients);
    dra_gradients_destroy(p.gradients);
    dra_batches_destroy(p.batches);
    dra_examples_close(p.examples);
    return st;
}

/* Targets of every output that are in the file, else the examples of an objective. */
static dra_status learn_named(const struct args *a, const cli_model *m,
                              dra_microbatch_result *result, int64_t *bad, dra_error *err)
{
    dra_gradients *l = NULL;
    bool           given;
    dra_status     st = grad_has_targets(a->inputs, &given, err);
    if (st == DRA_OK && !given) return learn_examples(a, m, result, bad, err);
    if (st == DRA_OK) st = grad_given(a->inputs, m, result, &l, err);
    if (st == DRA_OK) st = write_all(m, l, result->loss, a->out, err);
    if (st == DRA_OK) *bad = count_bad(m, l);
    dra_gradients_destroy(l);
    return st;
}

/* Numbers that are not finite are still written and printed, to show where they come from; the verb
 * then fails. */
static dra_status print_result(const struct args *a, const dra_microbatch_result *r, int64_t bad,
                               dra_error *err)
{
    const int64_t all = bad + !isfinite(r->loss);
    char          room[CLI_NUMBER];
    if (!a->json) {
        printf("loss %.9g of %lld targets\n", r->loss, (long long)r->count);
    } else {
        printf("{\"loss\": %s, \"targets\": %lld", cli_json_number(r->loss, 9, room),
               (long long)r->count);
        if (all) printf(", \"not_finite\": %lld", (long long)all);
        puts("}");
    }
    if (!all) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE,
                     "the loss is %g, and %lld numbers of gradients are not finite", r->loss,
                     (long long)bad);
}

static bool is_language(const cli_source *s)
{
    dra_model_config *c = NULL;
    dra_error         err = {0};
    const bool is = cli_source_config(s, &c, &err) != DRA_OK || dra_model_config_is_language(c);
    dra_model_config_destroy(c);
    return is;
}

static int run_grad(const void *args)
{
    const struct args    *a = args;
    cli_model             m = {0};
    cli_inputs            in = {0};
    dra_microbatch_result result = {0};
    int64_t               bad = 0;
    dra_error             err = {0};
    const int             status = cli_source_check("grad", &a->from);
    if (status != CLI_OK) return status;
    if (!a->tokens == !a->inputs)
        return cli_misused("grad", "expected one of --tokens and --inputs");
    const bool language = is_language(&a->from);
    if (!language && (a->tokens || a->chunks || a->resets))
        return cli_misused("grad", "%s: the model is not a language model; expected --inputs alone",
                           a->tokens   ? "--tokens"
                           : a->chunks ? "--chunks"
                                       : "--resets");
    if ((a->tokens || a->chunks) && cli_is_encoder(&a->from))
        return cli_misused("grad", "%s: the model is an encoder, %s",
                           a->chunks ? "--chunks" : "--tokens",
                           a->chunks ? "which reads a text as a whole"
                                     : "whose tokens see the next one; expected --inputs with "
                                       "targets");
    dra_status st = cli_model_open(&a->from, &m, &err);
    if (st == DRA_OK)
        st = language ? learn_tokens(a, &m, &in, &result, &bad, &err)
                      : learn_named(a, &m, &result, &bad, &err);
    if (st == DRA_OK) st = print_result(a, &result, bad, &err);
    cli_inputs_free(&in);
    cli_model_close(&m);
    return st == DRA_OK ? CLI_OK : cli_fail(&err);
}

static const cli_note examples[] = {
    {"dra grad --model model --tokens 1,2,3,4,5 --out gradients.safetensors", "loss and gradients"},
    {"dra grad --model model --tokens 1,2,3,4,5 --chunks 2,2 --out parts.safetensors --json",
     "through chunks; the loss as JSON"},
    {0},
};

const cli_verb cmd_grad = {
    .name = "grad",
    .summary = "write the loss on tokens and the gradient of every parameter",
    .options = options,
    .n_options = COUNT(options),
    .defaults = &defaults,
    .args_size = sizeof defaults,
    .run = run_grad,
    .group = "Use",
    .about =
        "Reads tokens, each the target of the one before, and writes the mean loss and the "
        "gradient of every parameter to a safetensors file, with the names and shapes of the "
        "model's own file.\n"
        "Tokens after a reset are a text of their own: no target crosses it. An encoder needs "
        "targets in --inputs. For a model that is not a language model, --inputs are examples for "
        "the objective that it is trained with: src and tgt, img and labels, x, ids and nums.\n"
        "--chunks reads in chunks, with gradients through their boundaries: the same numbers up "
        "to rounding, at the memory cost of one chunk.",
    .examples = examples,
    .also = "forward train",
};
