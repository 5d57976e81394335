/* Every config in examples/x-transformers: it makes a model whose hidden values, and what its head
 * says, are finite; a decoder gives the same bits, of logits where it has them, whether it reads a
 * text whole or in parts. */
#include "check.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures.h"

enum { TOKENS = 12, SOURCE = 9, INPUTS = 6, WIDE = 3 * 64 * 64 };

#define FOLDER "examples/x-transformers"

typedef struct opened {
    dra_model_config c;
    dra_model       *model;
    dra_weights     *weights;
    dra_device      *device;
    int64_t          wide; /* of what is compared */
    int32_t          ids[TOKENS];
    dra_real         x[WIDE];
} opened;

static void read_config(const char *name, dra_model_config *c)
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
    const dra_model_config  *from = o->c.context_stack, *before = from ? from->prepend_stack : NULL;
    int                      count = add(o, &o->c, own, at, n, in, 0);
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

static void check_heads(const char *name, dra_reader *r)
{
    static const char *const outs[] = {"hidden", "logits", "out", "numbers"};
    dra_shape                shape;
    for (size_t i = 0; i < COUNT(outs); i++)
        if (dra_reader_result_shape(r, outs[i], &shape))
            expect_finite(name, dra_reader_result(r, outs[i]), dra_shape_count(&shape));
}

static void put_out(const opened *o, const char *name, int parts, const int64_t *part, dra_real *to)
{
    const dra_view          view = {.model = o->model,
                                    .hidden = true,
                                    .outs = true,
                                    .logits = o->c.head.kind == DRA_HEAD_TOKENS};
    const dra_model_config *from = o->c.context_stack;
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
        check_heads(name, r);
        memcpy(to + at * o->wide, dra_reader_result(r, view.logits ? "logits" : "hidden"),
               (size_t)(part[i] * o->wide) * sizeof *to);
    }
    dra_states_destroy(s);
    dra_reader_destroy(r);
}

static void run_example(const char *name)
{
    static const int64_t parts[] = {5, 1, 6};
    static opened        o;
    dra_error            err = {0};
    o = (opened){.device = check_device(2, dra_device_level_at(0))};
    read_config(name, &o.c);
    expect_ok(dra_model_create(&o.c, &o.model, &err), &err);
    expect_ok(dra_weights_draw(o.model, 3, &o.weights, &err), &err);
    const int64_t length = o.c.source.kind == DRA_SOURCE_IMAGE ? length_of(&o.c) : TOKENS;
    const int64_t vocab = o.c.vocab ? o.c.vocab : 1;
    o.wide = o.c.head.kind == DRA_HEAD_TOKENS ? o.c.vocab : o.c.dim;
    for (int i = 0; i < TOKENS; i++) o.ids[i] = (int32_t)((37 * i * i + 11 * i) % vocab);
    for (int i = 0; i < WIDE; i++) o.x[i] = (dra_real)sin(0.7 * i + 0.01 * (i % 91) * i);
    dra_real *a = calloc((size_t)(length * o.wide), sizeof *a),
             *b = calloc((size_t)(length * o.wide), sizeof *b);
    assert_true(a && b);
    put_out(&o, name, 1, &length, a);
    expect_finite(name, a, length * o.wide);
    if (o.c.visible == DRA_VISIBLE_CAUSAL) {
        put_out(&o, name, 3, parts, b);
        if (memcmp(a, b, (size_t)(length * o.wide) * sizeof *a) != 0)
            fail_msg("%s: parts and whole have other bits", name);
    }
    free(a);
    free(b);
    dra_weights_destroy(o.weights);
    dra_model_destroy(o.model);
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
    assert_true(n >= 65);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples_run)};
    return check_main("xt_examples", NULL, 0, tests, COUNT(tests));
}
