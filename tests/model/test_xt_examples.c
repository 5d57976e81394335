/* Every config in examples/x-transformers: it makes a model whose logits are finite, and a
 * decoder gives the same logits whether it reads a text whole or in parts. */
#include "check.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures.h"

enum { TOKENS = 12 };

#define FOLDER "examples/x-transformers"

typedef struct opened {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    int64_t      V;
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

static void put_logits(const opened *o, const int32_t *ids, int parts, const int64_t *part,
                       dra_real *to)
{
    const dra_view   view = {.model = o->model, .logits = true};
    const dra_module module = dra_view_module(&view);
    dra_reader      *r;
    dra_states      *s;
    dra_error        err = {0};
    expect_ok(dra_reader_create(o->device, &module, &r, &err), &err);
    expect_ok(dra_weights_bind(o->weights, r, &err), &err);
    expect_ok(dra_states_create(o->device, module.state, 1, &s, &err), &err);
    for (int i = 0, at = 0; i < parts; at += (int)part[i++]) {
        const dra_named in = {"ids", ids + at, (size_t)part[i] * sizeof *ids};
        expect_ok(dra_reader_read(r, s, part[i], NULL, 1, &in, &err), &err);
        memcpy(to + at * o->V, dra_reader_result(r, "logits"),
               (size_t)(part[i] * o->V) * sizeof *to);
    }
    dra_states_destroy(s);
    dra_reader_destroy(r);
}

static void expect_finite(const char *name, const dra_real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite((double)x[i])) fail_msg("%s: logit %lld is not finite", name, (long long)i);
}

static void run_example(const char *name)
{
    static const int64_t whole[] = {TOKENS}, parts[] = {5, 1, 6};
    dra_model_config     c;
    opened               o = {.device = check_device(2, dra_device_level_at(0))};
    int32_t              ids[TOKENS];
    dra_error            err = {0};
    read_config(name, &c);
    expect_ok(dra_model_create(&c, &o.model, &err), &err);
    expect_ok(dra_weights_draw(o.model, 3, &o.weights, &err), &err);
    o.V = c.vocab;
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)(37 * i * i + 11 * i) % (int32_t)c.vocab;
    dra_real *a = calloc((size_t)(TOKENS * o.V), sizeof *a),
             *b = calloc((size_t)(TOKENS * o.V), sizeof *b);
    assert_true(a && b);
    put_logits(&o, ids, 1, whole, a);
    expect_finite(name, a, TOKENS * o.V);
    if (c.visible == DRA_VISIBLE_CAUSAL) {
        put_logits(&o, ids, 3, parts, b);
        if (memcmp(a, b, (size_t)(TOKENS * o.V) * sizeof *a) != 0)
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
    assert_true(n >= 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(examples_run)};
    return check_main("xt_examples", NULL, 0, tests, COUNT(tests));
}
