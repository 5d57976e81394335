/* Every config in examples/x-transformers: it makes a model whose hidden values, and what its head
 * says, have their shapes and are finite; a decoder gives the same bits, of logits where it has
 * them, whether it reads a text whole or in parts; its loss has gradients, all finite. Every block
 * of code in the README of x-transformers has one of them, with its options and smaller sizes. */
#include "check.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/fixtures.h"

enum { TOKENS = 12, SOURCE = 9, INPUTS = 6, WIDE = 3 * 64 * 64 };

#define FOLDER "examples/x-transformers"

typedef struct opened {
    dra_model_config *c;
    dra_model        *model;
    dra_weights      *weights;
    dra_device       *device;
    int64_t           wide; /* of what is compared */
    int32_t           ids[TOKENS];
    dra_real          x[WIDE];
} opened;

static void read_config(const char *name, dra_model_config **c)
{
    static char text[1 << 14];
    char        path[300];
    dra_error   err = {0};
    snprintf(path, sizeof path, FOLDER "/%.200s", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    expect_ok(dra_model_config_parse(path, text, n, c, &err), &err);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static int64_t length_of(const dra_model_config *c)
{
    const dra_source_config *s = &c->source;
    if (s->kind == DRA_SOURCE_IMAGE) return (s->size / s->patch) * (s->size / s->patch);
    return s->length ? s->length : SOURCE;
}

/* Adds those of a stack for n tokens from `at` on. */
static int add(const opened *o, const dra_model_config *c, const char *const names[3], int64_t at,
               int64_t n, dra_named *in, int count)
{
    const dra_source_config *s = &c->source;
    const int64_t   width = s->dim ? s->dim : c->dim, channels = s->channels ? s->channels : 3;
    const dra_real *x = o->x + at * width;
    dra_named      *to = &in[count++];
    if (s->kind == DRA_SOURCE_IMAGE)
        *to = (dra_named){names[2], o->x, (size_t)(channels * s->size * s->size) * sizeof *o->x};
    else if (s->kind == DRA_SOURCE_VECTORS)
        *to = (dra_named){names[1], x, (size_t)(n * width) * sizeof *x};
    else
        *to = (dra_named){names[0], o->ids + at, (size_t)n * sizeof *o->ids};
    if (s->numbers) in[count++] = (dra_named){"nums", o->x + at, (size_t)n * sizeof *x};
    return count;
}

/* Those of the model, and at its start of what it sees. */
static int inputs(const opened *o, int64_t at, int64_t n, dra_named in[INPUTS])
{
    static const char *const own[] = {"ids", "x", "img"}, *const context[] = {"src", "context",
                                                                              "img"};
    static const char *const first[] = {"", "prepend", "img"};
    const dra_model_config *from = o->c->context_stack, *before = from ? from->prepend_stack : NULL;
    int                     count = add(o, o->c, own, at, n, in, 0);
    if (from && !at) count = add(o, from, context, 0, length_of(from), in, count);
    if (before && !at) count = add(o, before, first, 0, length_of(before), in, count);
    return count;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void expect_finite(const char *name, const dra_real *x, int64_t n)
{
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite((double)x[i])) fail_msg("%s: number %lld is not finite", name, (long long)i);
}

/* (1, T, width); of classes (1, width), of numbers (1, T). No width: there must be none. */
static void check_head(const char *name, dra_reader *r, const char *out, int64_t rows,
                       int64_t width)
{
    dra_shape shape;
    if (!dra_reader_result_shape(r, out, &shape)) {
        if (width) fail_msg("%s: no %s", name, out);
        return;
    }
    const bool fits = shape.dim[0] == 1 && (rows == 0 || shape.dim[1] == rows) &&
                      dra_shape_count(&shape) == (rows ? rows : 1) * width;
    if (!fits) fail_msg("%s: %s has the wrong shape", name, out);
    expect_finite(name, dra_reader_result(r, out), dra_shape_count(&shape));
}

static void check_heads(const char *name, const dra_model *m, dra_reader *r, int64_t n)
{
    const dra_model_config *c = dra_model_config_of(m);
    const dra_head_config  *head = &c->head;
    const bool              tokens = head->kind == DRA_HEAD_TOKENS;
    const bool              classes = head->kind == DRA_HEAD_CLASSES;
    check_head(name, r, "hidden", n, c->dim);
    check_head(name, r, "logits", classes ? 0 : n, tokens ? c->vocab : classes ? head->dim : 0);
    check_head(name, r, "out", n,
               head->kind != DRA_HEAD_VECTORS ? 0
               : head->dim                    ? head->dim
                                              : c->dim);
    check_head(name, r, "numbers", n, head->numbers);
}

static void put_out(const opened *o, const char *name, int parts, const int64_t *part, dra_real *to)
{
    const dra_view          view = {.model = o->model,
                                    .hidden = true,
                                    .outs = true,
                                    .logits = o->c->head.kind == DRA_HEAD_TOKENS};
    const dra_model_config *from = o->c->context_stack;
    const int64_t           more = from && from->prepend_stack ? length_of(from->prepend_stack) : 0;
    const dra_context_text  text = {from ? more + length_of(from) : 0, NULL};
    const dra_module        module = dra_view_module(&view);
    dra_reader             *r;
    dra_states             *s;
    dra_error               err = {0};
    expect_ok(dra_reader_create(o->device, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(o->weights, r, &err), &err);
    expect_ok(dra_states_create(o->device, module.state, 1, &s, &err), &err);
    for (int i = 0, at = 0; i < parts; at += (int)part[i++]) {
        dra_named in[INPUTS];
        const int n = inputs(o, at, part[i], in);
        if (from && !at)
            expect_ok(dra_reader_read_context(r, s, &text, part[i], NULL, n, in, &err), &err);
        else
            expect_ok(dra_reader_read(r, s, part[i], NULL, n, in, &err), &err);
        check_heads(name, o->model, r, part[i]);
        memcpy(to + at * o->wide, dra_reader_result(r, view.logits ? "logits" : "hidden"),
               (size_t)(part[i] * o->wide) * sizeof *to);
    }
    dra_states_destroy(s);
    dra_reader_destroy(r);
}

/* ---- gradients ------------------------------------------------------------------------------- */

typedef struct goals {
    int32_t  targets[TOKENS], labels[1];
    dra_real y[WIDE], weights[TOKENS];
} goals;

/* What the outputs are compared with; returns how many inputs there are now. */
static int compare_with(const opened *o, goals *to, dra_named *in, int n, dra_objective_kind *kind)
{
    const dra_head_config *head = &o->c->head;
    const size_t           width = (size_t)dra_model_head_width(o->model);
    for (int i = 0; i < WIDE; i++) to->y[i] = (dra_real)cos(0.3 * i);
    for (int i = 0; i < TOKENS; i++) to->weights[i] = 1;
    if (head->kind == DRA_HEAD_CLASSES) {
        *kind = DRA_OBJECTIVE_CLASSES;
        to->labels[0] = 1;
        in[n++] = (dra_named){"labels", to->labels, sizeof to->labels};
    } else if (head->kind == DRA_HEAD_TOKENS) {
        *kind = head->numbers ? DRA_OBJECTIVE_XVAL : DRA_OBJECTIVE_NEXT;
        for (int i = 0; i < TOKENS; i++) to->targets[i] = i + 1 < TOKENS ? o->ids[i + 1] : -1;
        if (head->numbers) to->targets[2] = (int32_t)o->c->source.number_token;
        if (head->numbers) in[n++] = (dra_named){"numbers", to->y, TOKENS * sizeof *to->y};
    } else {
        *kind = DRA_OBJECTIVE_SQUARED;
        in[n++] = (dra_named){"y", to->y, TOKENS * width * sizeof *to->y};
        in[n++] = (dra_named){"weights", to->weights, sizeof to->weights};
    }
    return n;
}

static void check_gradients(const opened *o, const char *name, dra_gradients *l)
{
    const dra_specs *params = dra_model_params(o->model);
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        const dra_real *d = dra_gradients_of(l, i);
        const int64_t   n = dra_shape_count(&p->shape);
        int64_t         some = 0;
        if (p->frozen) continue;
        expect_finite(name, d, n);
        for (int64_t k = 0; k < n; k++) some += d[k] != 0;
        if (!some) fail_msg("%s: the gradient of %s is 0", name, p->name);
    }
}

/* A model that reads tokens alone may read them in pieces; others read all of a text at once. */
static void learn(const opened *o, const char *name, int64_t length)
{
    static goals            to;
    dra_named               in[INPUTS + 2];
    dra_objective_kind      kind;
    dra_gradients          *l;
    dra_microbatch_result   r;
    dra_error               err = {0};
    const dra_model_config *from = o->c->context_stack;
    const int64_t           more = from && from->prepend_stack ? length_of(from->prepend_stack) : 0;
    const dra_context_text  text = {from ? more + length_of(from) : 0, NULL};
    const bool              language = dra_model_config_is_language(o->c);
    const int               n = compare_with(o, &to, in, inputs(o, 0, length, in), &kind);
    const dra_microbatch    q = {.B = 1,
                                 .T = length,
                                 .ids = language ? o->ids : NULL,
                                 .targets = o->c->head.kind == DRA_HEAD_TOKENS ? to.targets : NULL,
                                 .n_inputs = language ? 0 : n,
                                 .inputs = in,
                                 .context = from ? &text : NULL,
                                 .no_dropout = true};
    expect_ok(dra_gradients_create(&(dra_gradients_config){.model = o->model,
                                                           .device = o->device,
                                                           .objective = kind,
                                                           .terms = {.number_weight = 1}},
                                   &l, &err),
              &err);
    expect_ok(dra_gradients_bind(l, o->weights, &err), &err);
    expect_ok(dra_gradients_run(l, &q, &r, &err), &err);
    if (!(isfinite(r.loss) && r.loss > 0)) fail_msg("%s: the loss is %g", name, r.loss);
    check_gradients(o, name, l);
    dra_gradients_destroy(l);
}

static void run_example(const char *name)
{
    static const int64_t parts[] = {5, 1, 6};
    static opened        o;
    dra_error            err = {0};
    o = (opened){.device = check_device(2, dra_device_level_at(0))};
    read_config(name, &o.c);
    expect_ok(dra_model_create(o.c, &o.model, &err), &err);
    expect_ok(dra_weights_draw(o.model, 3, &o.weights, &err), &err);
    const int64_t length = o.c->source.kind == DRA_SOURCE_IMAGE ? length_of(o.c) : TOKENS;
    const int64_t vocab = o.c->vocab ? o.c->vocab : 1;
    o.wide = o.c->head.kind == DRA_HEAD_TOKENS ? o.c->vocab : o.c->dim;
    for (int i = 0; i < TOKENS; i++) o.ids[i] = (int32_t)((37 * i * i + 11 * i) % vocab);
    for (int i = 0; i < WIDE; i++) o.x[i] = (dra_real)sin(0.7 * i + 0.01 * (i % 91) * i);
    dra_real *a = calloc((size_t)(length * o.wide), sizeof *a),
             *b = calloc((size_t)(length * o.wide), sizeof *b);
    assert_true(a && b);
    put_out(&o, name, 1, &length, a);
    expect_finite(name, a, length * o.wide);
    if (o.c->visible == DRA_VISIBLE_CAUSAL) {
        put_out(&o, name, 3, parts, b);
        check_reals(a, b, (size_t)(length * o.wide) * sizeof *a);
    }
    learn(&o, name, length);
    free(a);
    free(b);
    dra_weights_destroy(o.weights);
    dra_model_destroy(o.model);
    dra_model_config_destroy(o.c);
}

/* In the order of the README. */
static const struct {
    const char *heading, *file;
} blocks[] = {
    {"Usage", "encoder-decoder"},
    {"Usage", "decoder"},
    {"Usage", "gpt3-heads"},
    {"Usage", "encoder"},
    {"Usage", "image-classes"},
    {"Usage", "image-caption"},
    {"Usage", "pali"},
    {"Dropouts", "dropouts"},
    {"Flash Attention", "flash"},
    {"Persistent memory", "memory-key-values"},
    {"Memory Transformers", "memory-tokens"},
    {"Transformers Without Tears", "scale-norm"},
    {"Transformers Without Tears", "l2norm-embed"},
    {"Transformers Without Tears", "post-embedding-norm"},
    {"RMS norm", "rms-norm"},
    {"RMS norm", "simple-rms-norm"},
    {"GLU variants", "glu"},
    {"GLU variants", "swish"},
    {"No bias in feed-forward", "no-bias"},
    {"ReLU squared", "relu-squared"},
    {"Explicit sparse transformer", "sparse-topk-straight-through"},
    {"Explicit sparse transformer", "hard-attention"},
    {"Talking-Heads Attention", "talking-heads"},
    {"One write-head", "one-kv-head"},
    {"One write-head", "kv-heads"},
    {"Attention on attention", "attention-on-attention"},
    {"Gated values", "gate-values"},
    {"Reordered sublayers", "sandwich"},
    {"Weight-tied Layers", "tied-layers"},
    {"Weight-tied Layers", "custom-order"},
    {"Macaron", "macaron"},
    {"T5 bias", "relative-position-bias"},
    {"Residual Attention", "residual-attention"},
    {"Residual Attention", "cross-residual-attention"},
    {"Transformer-XL recurrence", "xl"},
    {"Transformer-XL recurrence", "xl-autoregressive"},
    {"Enhanced recurrence", "xl-shift-down"},
    {"Gated residual", "xl-gate-residual"},
    {"Rotary Positional Embeddings", "rotary"},
    {"Rotary Positional Embeddings", "xpos"},
    {"Dynamic Positional Bias", "dynamic-position-bias"},
    {"ALiBi Positional Embedding", "alibi"},
    {"Shifted Tokens", "token-shift"},
    {"Shifted Tokens", "token-shift-by-layer"},
    {"Sandwich Norm", "sandwich-norm"},
    {"ResiDual", "resi-dual"},
    {"Normformer", "head-scale"},
    {"Normformer", "post-activation-norm"},
    {"Normformer", "scale-residual"},
    {"Cosine Sim Attention", "qk-norm-groups"},
    {"Cosine Sim Attention", "qk-norm"},
    {"QK RMSNorm", "qk-rms-norm"},
    {"No absolute positions", "no-positions"},
    {"Forgetful Causal Mask", "autoregressive"},
    {"Cross Attention", "cross-attender"},
    {"Continuous Embeddings", "continuous"},
    {"Continuous Embeddings", "continuous-autoregressive"},
    {"xVal", "xval-autoregressive"},
};

/* What the blocks call outputs, losses aside, is looked at for all examples. */
static void blocks_have_examples(void **state)
{
    for (size_t i = 0; i < COUNT(blocks); i++) {
        char path[300];
        snprintf(path, sizeof path, FOLDER "/%s.json", blocks[i].file);
        FILE *f = fopen(path, "rb");
        if (!f) fail_msg("%s: %s is missing", blocks[i].heading, path);
        fclose(f);
    }
    assert_int_equal(COUNT(blocks), 58);
}

static void examples_run(void **state)
{
    struct dirent *e;
    DIR           *d = opendir(FOLDER);
    int            n = 0;
    assert_non_null(d);
    while ((e = readdir(d))) {
        if (!strstr(e->d_name, ".json")) continue;
        run_example(e->d_name);
        n++;
    }
    closedir(d);
    print_message("%d configs\n", n);
    assert_true(n >= 71);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples_run),
                                       cmocka_unit_test(blocks_have_examples)};
    return check_main("xt_examples", NULL, 0, tests, COUNT(tests));
}
