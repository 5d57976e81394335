/* Models of several stacks: a decoder that reads what an encoder makes of a text, of an image, of
 * both. Read with its context at once = the context with the first token, then token by token =
 * resumed from a file = each row alone; gradients by central differences in the double build. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "dra/model.h"
#include "nudge.h"

#ifdef DRA_REAL_DOUBLE
#define EQUAL 1e-12
#else
#define EQUAL 5e-5
#endif

enum { B = 3, T = 7, V = 11, PATCHES = 4, IMAGE = 2 * 4 * 4 };

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* ---- the models ------------------------------------------------------------------------------ */

#define SIZES "\"dim\": 12, \"depth\": 2, \"heads\": 3, \"ff\": {\"dim\": 8}"
#define ENCODER "\"vocab\": 11, \"visible\": \"bidirectional\", " SIZES
#define VIT                                                                                        \
    "\"source\": {\"kind\": \"image\", \"size\": 4, \"patch\": 2, \"channels\": 2}, "              \
    "\"visible\": \"bidirectional\", \"positions\": \"learned\", "                                 \
    "\"head\": {\"kind\": \"none\"}, " SIZES

typedef struct row {
    const char *name, *json;
    int64_t     S;   /* tokens of the context */
    bool        img; /* it reads an image, ... */
    bool        src; /* ... and ids, as far as these are not patches */
} row;

static const row rows[] = {
    {"encoder and decoder",
     "{\"encoder\": {" ENCODER "}, \"decoder\": {\"vocab\": 11, \"context\": \"encoder\", " SIZES
     "}}",
     6, .src = true},
    {"learned positions, an encoder of another width with memory tokens",
     "{\"encoder\": {\"vocab\": 11, \"visible\": \"bidirectional\", \"dim\": 8, \"depth\": 1, "
     "\"heads\": 2, \"ff\": {\"dim\": 8}, \"positions\": \"learned\", \"context\": 9, "
     "\"memory_tokens\": 2}, \"decoder\": {\"vocab\": 11, \"context\": \"encoder\", "
     "\"max_seq_len\": 16, \"positions\": \"learned\", \"memory_tokens\": 2, " SIZES "}}",
     6, .src = true},
    {"one table, untied head, options of cross-attention",
     "{\"encoder\": {" ENCODER "}, \"decoder\": {\"vocab\": 11, \"tied\": false, \"context\": "
     "\"encoder\", \"source\": {\"shared\": true}, \"cross\": {\"kv_heads\": 1, \"qk_norm\": true, "
     "\"mem_kv\": 2, \"gate_values\": \"biased\", \"head_scale\": true}, " SIZES "}}",
     6, .src = true},
    {"one table, tied head, residual attention of both",
     "{\"encoder\": {" ENCODER "}, \"decoder\": {\"vocab\": 11, \"context\": \"encoder\", "
     "\"source\": {\"shared\": true}, \"cross\": {\"residual_scores\": true, "
     "\"talk_after\": true}, \"mixer\": {\"residual_scores\": true}, " SIZES "}}",
     6, .src = true},
    {"a recurrent memory, macaron, post norm",
     "{\"encoder\": {" ENCODER "}, \"decoder\": {\"vocab\": 11, \"context\": \"encoder\", "
     "\"layout\": \"facf\", \"block\": {\"macaron\": true, \"norm\": \"post\", \"shift\": 1}, "
     "\"mixer\": {\"memory\": \"gru\"}, " SIZES "}}",
     6, .src = true},
    {"captions",
     "{\"vit\": {" VIT "}, \"decoder\": {\"vocab\": 11, \"context\": \"vit\", " SIZES "}}", PATCHES,
     .img = true},
    {"an image before a text",
     "{\"vit\": {" VIT "}, \"encoder\": {\"prepend\": \"vit\", \"positions\": \"learned\", "
     "\"max_seq_len\": 8, " ENCODER
     "}, \"decoder\": {\"vocab\": 11, \"context\": \"encoder\", " SIZES "}}",
     PATCHES + 6, .img = true, .src = true},
};

typedef struct fixture {
    const row   *row;
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
    dra_view     view;
    dra_reader  *reader;
    int32_t      ids[B * T], targets[B * T], *src, *pads; /* (B, n), (B, S) */
    dra_real     img[B * IMAGE];
    int64_t      n;
} fixture;

static void fill(fixture *f)
{
    const int64_t S = f->row->S;
    f->n = S - (f->row->img ? PATCHES : 0);
    f->src = calloc((size_t)(B * S) + 1, sizeof *f->src);
    f->pads = calloc((size_t)(B * S) + 1, sizeof *f->pads);
    assert_non_null(f->src);
    assert_non_null(f->pads);
    for (int i = 0; i < B * T; i++) {
        f->ids[i] = (i * 7 + i * i * 3) % V;
        f->targets[i] = (i * 5 + 2) % V;
    }
    for (int64_t i = 0; i < B * f->n; i++) f->src[i] = (int32_t)((i * 3 + i * i * 5) % V);
    for (int i = 0; i < B * IMAGE; i++) f->img[i] = (dra_real)sin(0.7 * i + 0.01 * i * i);
    /* The second row is shorter; the third has a hole. */
    if (f->n > 2) f->pads[2 * S - 1] = f->pads[2 * S - 2] = f->pads[3 * S - 3] = DRA_MARK_PAD;
}

static void open_row(fixture *f, const row *r)
{
    dra_error err = {0};
    char      text[4096];
    CHECK_CONFIG(c);
    *f = (fixture){.row = r};
    const int n = snprintf(text, sizeof text, "{\"model_type\": \"dra\", \"stacks\": %s}", r->json);
    expect_ok(dra_model_config_parse(r->name, text, (size_t)n, &c, &err), &err);
    expect_ok(dra_model_create(c, &f->model, &err), &err);
    expect_ok(dra_weights_draw(f->model, 3, &f->weights, &err), &err);
    expect_ok(check_cpu(NULL, &f->device, &err), &err);
    f->view = (dra_view){.model = f->model, .logits = true};
    const dra_module module = dra_view_module(&f->view);
    expect_ok(dra_reader_create(f->device, &module, &f->reader, &err), &err);
    expect_ok(dra_weights_bind(f->weights, f->reader, &err), &err);
    fill(f);
}

static void close_row(fixture *f)
{
    dra_reader_destroy(f->reader);
    dra_weights_destroy(f->weights);
    dra_model_destroy(f->model);
    dra_device_destroy(f->device);
    free(f->src);
    free(f->pads);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The inputs of rows first .. first + rows - 1 from token `from` on, `to` gets those of the tokens;
 * returns how many there are. */
static int inputs(const fixture *f, int64_t first, int64_t batch, int64_t from, int64_t n,
                  bool context, int32_t *ids, dra_named in[3])
{
    int k = 0;
    for (int64_t b = 0; b < batch; b++)
        memcpy(ids + b * n, f->ids + (first + b) * T + from, (size_t)n * sizeof *ids);
    in[k++] = (dra_named){"ids", ids, (size_t)(batch * n) * sizeof *ids};
    if (context && f->row->src)
        in[k++] = (dra_named){"src", f->src + first * f->n, (size_t)(batch * f->n) * 4};
    if (context && f->row->img)
        in[k++] = (dra_named){"img", f->img + first * IMAGE,
                              (size_t)(batch * IMAGE) * sizeof(dra_real)};
    return k;
}

/* Reads tokens from .. from + n - 1 of some rows and puts their logits where (B, T, V) has them. */
static void read_part(const fixture *f, dra_states *s, int64_t first, int64_t from, int64_t n,
                      bool context, dra_real *logits)
{
    const int64_t          batch = dra_states_batch(s);
    const dra_context_text text = {f->row->S, f->pads + first * f->row->S};
    int32_t                ids[B * T];
    dra_named              in[3];
    dra_error              err = {0};
    const int              k = inputs(f, first, batch, from, n, context, ids, in);
    expect_ok(context ? dra_reader_read_context(f->reader, s, &text, n, NULL, k, in, &err)
                      : dra_reader_read(f->reader, s, n, NULL, k, in, &err),
              &err);
    const dra_real *y = dra_reader_result(f->reader, "logits");
    assert_non_null(y);
    for (int64_t b = 0; b < batch; b++)
        memcpy(logits + ((first + b) * T + from) * V, y + b * n * V, (size_t)(n * V) * sizeof *y);
}

static dra_states *start(const fixture *f, int64_t batch)
{
    dra_states *s;
    dra_error   err = {0};
    expect_ok(dra_states_create(f->device, dra_model_state(f->model), batch, &s, &err), &err);
    return s;
}

static void expect_close(const fixture *f, const char *what, const dra_real *a, const dra_real *b)
{
    double most = 0, worst = 0;
    for (int i = 0; i < B * T * V; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d;
        most = fmax(most, fabs((double)b[i]));
    }
    if (!(worst <= EQUAL * most)) fail_msg("%s, %s: differs by %g", f->row->name, what, worst);
}

static dra_states *resume(const fixture *f, dra_states *s)
{
    dra_error   err = {0};
    dra_states *again;
    char        path[64];
    snprintf(path, sizeof path, "compositions.%d.state", (int)getpid());
    expect_ok(dra_states_save(s, 1, path, &err), &err);
    dra_states_destroy(s);
    expect_ok(dra_states_load(f->device, dra_model_state(f->model), 1, path, &again, &err), &err);
    remove(path);
    return again;
}

static void parts_equal_whole(const row *r)
{
    static dra_real whole[B * T * V], parts[B * T * V];
    fixture         f;
    open_row(&f, r);
    dra_states *s = start(&f, B);
    read_part(&f, s, 0, 0, T, true, whole);
    dra_states_destroy(s);
    s = start(&f, B);
    for (int64_t t = 0; t < T; t++) {
        read_part(&f, s, 0, t, 1, t == 0, parts);
        if (t == 3) s = resume(&f, s);
    }
    expect_close(&f, "token by token, resumed", parts, whole);
    dra_states_destroy(s);
    for (int64_t b = 0; b < B; b++) {
        s = start(&f, 1);
        read_part(&f, s, b, 0, 2, true, parts);
        read_part(&f, s, b, 2, T - 2, false, parts);
        dra_states_destroy(s);
    }
    expect_close(&f, "rows alone", parts, whole);
    close_row(&f);
}

/* What a pad of the source holds does not matter. */
static void pads_do_not_matter(const row *r)
{
    static dra_real a[B * T * V], b[B * T * V];
    fixture         f;
    open_row(&f, r);
    dra_states *s = start(&f, B);
    read_part(&f, s, 0, 0, T, true, a);
    for (int64_t i = 0; i < B && f.n > 2; i++)
        for (int64_t t = 0; t < f.n; t++)
            if (f.pads[i * r->S + r->S - f.n + t]) f.src[i * f.n + t] = 9 - f.src[i * f.n + t] % 9;
    read_part(&f, s, 0, 0, 1, true, b); /* a context replaces the one before */
    dra_states_destroy(s);
    s = start(&f, B);
    read_part(&f, s, 0, 0, T, true, b);
    check_reals(a, b, sizeof a);
    dra_states_destroy(s);
    close_row(&f);
}

/* The config is what its text says, and a model of that text has the same tensors. */
static void text_is_whole(const row *r)
{
    fixture   f;
    dra_error err = {0};
    CHECK_CONFIG(c);
    dra_model *same;
    char       text[8192];
    open_row(&f, r);
    const size_t n = dra_model_config_text(dra_model_config_of(f.model), text, sizeof text);
    assert_true(n < sizeof text);
    expect_ok(dra_model_config_parse("text", text, n, &c, &err), &err);
    expect_ok(dra_model_create(c, &same, &err), &err);
    assert_true(dra_model_fingerprint(same) == dra_model_fingerprint(f.model));
    dra_model_destroy(same);
    close_row(&f);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static double loss_of(const fixture *f, dra_gradients *l)
{
    const dra_context_text text = {f->row->S, f->pads};
    dra_named              in[3];
    int32_t                ids[B * T];
    dra_error              err = {0};
    dra_microbatch_result  out;
    const int              k = inputs(f, 0, B, 0, T, true, ids, in);
    const dra_microbatch   m = {.B = B,
                                .T = T,
                                .ids = f->ids,
                                .targets = f->targets,
                                .n_inputs = k - 1,
                                .inputs = in + 1,
                                .context = &text};
    expect_ok(dra_gradients_bind(l, f->weights, &err), &err);
    expect_ok(dra_gradients_run(l, &m, &out, &err), &err);
    return out.loss;
}

static double loss_after(const fixture *f, dra_gradients *l, int i, int64_t n, double step)
{
    nudge(f->weights, i, n, step);
    const double loss = loss_of(f, l);
    nudge(f->weights, i, n, -step);
    return loss;
}

/* Every parameter: its derivative along one direction, where numbers are exact enough; and layers
 * that are recomputed give the same. */
static void gradients_are_derivatives(const row *r)
{
    const double   h = 1e-5, small = sizeof(dra_real) == 8 ? 1e-9 : 1e-4;
    fixture        f;
    dra_error      err = {0};
    dra_gradients *l, *again;
    open_row(&f, r);
    dra_gradients_config c = {.model = f.model, .device = f.device};
    expect_ok(dra_gradients_create(&c, &l, &err), &err);
    c.recompute = true;
    expect_ok(dra_gradients_create(&c, &again, &err), &err);
    const double first = loss_of(&f, l), second = loss_of(&f, again);
    assert_true(fabs(first - second) <= EQUAL * first);
    for (int i = 0; i < dra_specs_count(dra_model_params(f.model)); i++) {
        const dra_spec *p = dra_specs_at(dra_model_params(f.model), i);
        int64_t         n = 1;
        for (int k = 0; k < p->shape.rank; k++) n *= p->shape.dim[k];
        loss_of(&f, l);
        const double d = along(l, i, n), other = along(again, i, n);
        if (!(fabs(d - other) <= small * (fabs(d) + 1e-2)))
            fail_msg("%s, %s: %g, recomputed %g", r->name, p->name, d, other);
        if (sizeof(dra_real) != 8) continue;
        const double up = loss_after(&f, l, i, n, h), down = loss_after(&f, l, i, n, -h);
        const double expected = (up - down) / (2 * h);
        if (!(fabs(d - expected) <= 1e-6 * (fabs(expected) + 1e-2)))
            fail_msg("%s, %s: %g, expected %g", r->name, p->name, d, expected);
    }
    dra_gradients_destroy(l);
    dra_gradients_destroy(again);
    close_row(&f);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refused(const char *stacks, const char *why)
{
    char      text[4096];
    dra_error err = {0};
    CHECK_CONFIG(c);
    dra_model *m = NULL;
    const int  n = snprintf(text, sizeof text, "{\"model_type\": \"dra\", \"stacks\": %s}", stacks);
    dra_status st = dra_model_config_parse("f", text, (size_t)n, &c, &err);
    if (st == DRA_OK) st = dra_model_create(c, &m, &err);
    if (st == DRA_OK || !strstr(err.text, why))
        fail_msg("%s: expected %s, found %s", stacks, why, st == DRA_OK ? "a model" : err.text);
}

static void refusals(void **state)
{
    expect_refused("{}", "stacks: 0 are read by no other");
    expect_refused("[]", "expected an object");
    expect_refused("{\"a\": 1}", "stacks.a is no object");
    expect_refused("{\"A\": {}}", "name is A");
    expect_refused("{\"a\": {" ENCODER "}, \"b\": {" ENCODER "}}", "2 are read by no other");
    expect_refused("{\"a\": {\"context\": \"b\"}, \"b\": {\"context\": \"a\"}}", "0 are read");
    expect_refused("{\"d\": {\"context\": \"e\", " ENCODER "}}", "e, which is no stack");
    expect_refused("{\"e\": {\"vocab\": 11, " SIZES
                   "}, \"d\": {\"vocab\": 11, \"context\": \"e\", " SIZES "}}",
                   "stack e: expected visible bidirectional");
    expect_refused("{\"e\": {" ENCODER "}, \"d\": {\"vocab\": 11, \"layout\": \"af\", \"context\": "
                   "\"e\", " SIZES "}}",
                   "expected attention over the context");
    expect_refused("{\"e\": {" ENCODER "}, \"d\": {\"vocab\": 12, \"source\": {\"shared\": true}, "
                   "\"context\": \"e\", " SIZES "}}",
                   "a table of one size");
    expect_refused("{\"e\": {" ENCODER "}, \"d\": {\"vocab\": 11, \"context\": \"e\", \"cross\": "
                   "{\"memory\": \"gru\"}, " SIZES "}}",
                   "a context needs memory append");
    expect_refused("{\"e\": {" ENCODER "}, \"d\": {\"vocab\": 11, \"context\": \"e\", \"cross\": "
                   "{\"rotary\": true}, " SIZES "}}",
                   "a context and rotary exclude each other");
    expect_refused("{\"e\": {" ENCODER ", \"dims\": 3}, \"d\": {\"context\": \"e\"}}", "stacks.e");
}

/* ---- all rows -------------------------------------------------------------------------------- */

static const row *current;

#define FOR_ALL(test)                                                                              \
    static void all_##test(void **state)                                                           \
    {                                                                                              \
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) current = &rows[i], test(current); \
    }
FOR_ALL(parts_equal_whole)
FOR_ALL(pads_do_not_matter)
FOR_ALL(text_is_whole)
FOR_ALL(gradients_are_derivatives)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_parts_equal_whole),
        cmocka_unit_test(all_pads_do_not_matter),
        cmocka_unit_test(all_text_is_whole),
        cmocka_unit_test(all_gradients_are_derivatives),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
