#include "setting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

dra_real *numbers(uint64_t *seed, int64_t n, double size)
{
    dra_real *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; x && i < n; i++) x[i] = (dra_real)(size * (2 * check_random(seed) - 1));
    assert_non_null(x);
    return x;
}

void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

bool is_sum(const char *name)
{
    return ends_with(name, "B") || ends_with(name, "z") || ends_with(name, "S");
}

/* Somewhere in the middle of reading: rows of the batch stand at different places. */
static void random_start(setting *s)
{
    const dra_specs *specs = s->t.module->state;
    dra_error        err = {0};
    for (int64_t b = 0; b < B; b++) {
        const int64_t items = b ? 2 : 5;
        expect_ok(dra_states_place(s->start, b, items, items + s->t.module->start, &err), &err);
        for (int i = 0; i < dra_specs_count(specs); i++) {
            const size_t n = dra_states_size(s->start, i, b);
            dra_real    *v = numbers(&s->seed, (int64_t)n, 0.8);
            for (size_t k = 0; k < n && is_sum(dra_specs_at(specs, i)->name); k++)
                v[k] = (dra_real)(1 + fabs((double)v[k]));
            expect_ok(dra_states_write(s->start, i, b, v, n, &err), &err);
            free(v);
        }
    }
}

double upstream(const void *user, int i, int64_t b, int64_t k)
{
    return sin(1.3 * (double)(i + 1) + 0.7 * (double)b + 0.9 * (double)k);
}

/* Input "x" and output "y", as those of a mixer. */
static void build_vectors(dra_graph *g, const void *self, const dra_module_call *call,
                          dra_value *state_out)
{
    const dra_model *m = self;
    const int64_t    C = dra_model_config_of(m)->dim;
    const dra_value  x = dra_input(g, "x", DRA_REAL,
                                   DRA_SHAPE(call->tokens.B, call->tokens.given, C));
    dra_output(g, "y", dra_model_build(g, m, call, x, false, state_out).hidden);
}

static void open_model(setting *s)
{
    const char *text = s->row->model;
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_model_config_parse(s->row->name, text, strlen(text), &c, &err), &err);
    expect_ok(dra_model_create(c, &s->model, &err), &err);
    assert_int_equal(c->dim, s->row->config.dim);
    s->vectors = dra_view_module(&(dra_view){.model = s->model});
    s->vectors.build = build_vectors;
    s->vectors.self = s->model;
    s->t.module = &s->vectors;
}

void close_mixer(setting *s)
{
    dra_mixer_destroy(s->mixer);
    dra_sublayer_destroy(s->sublayer);
    dra_model_destroy(s->model);
}

void open_mixer(setting *s, const dra_mixer_config *config)
{
    dra_error err = {0};
    if (s->row->model) {
        open_model(s);
    } else if (s->row->around) {
        dra_sublayer_config c = *s->row->around;
        c.mixer = *config;
        expect_ok(dra_sublayer_create(&c, &s->sublayer, &err), &err);
        s->t.module = dra_sublayer_module(s->sublayer);
    } else {
        expect_ok(dra_mixer_create(config, &s->mixer, &err), &err);
        s->t.module = dra_mixer_module(s->mixer);
    }
    assert_true(dra_specs_count(s->t.module->params) <= MOST);
}

void open_setting(setting *s, const mixer_row *row)
{
    dra_error err = {0};
    *s = (setting){.row = row, .seed = 7};
    s->t = (trial){.device = check_device(2, dra_device_level_at(0)),
                   .B = B,
                   .T = T,
                   .C = row->config.dim,
                   /* A model's errors are those of several layers: gradients of a single scalar
                    * or of the last layer of a small net are sums that nearly cancel. */
                   .equal = row->model ? 5 * EQUAL : EQUAL,
                   .us = upstream};
    open_mixer(s, &row->config);
    for (int i = 0; i < dra_specs_count(s->t.module->params); i++) {
        const dra_spec *p = dra_specs_at(s->t.module->params, i);
        const int64_t   n = dra_shape_count(&p->shape);
        s->param[i] = numbers(&s->seed, n, 0.5);
        for (int64_t k = 0; k < n && ends_with(p->name, "_g"); k++) s->param[i][k] += 1;
    }
    s->x = numbers(&s->seed, B * T * s->t.C, 1);
    s->u = numbers(&s->seed, B * T * s->t.C, 1);
    expect_ok(dra_states_create(s->t.device, s->t.module->state, B, &s->start, &err), &err);
    expect_ok(dra_states_create(s->t.device, s->t.module->state, B, &s->initial, &err), &err);
    random_start(s);
    s->t.x = s->x, s->t.u = s->u, s->t.param = s->param, s->t.start = s->start;
}

void close_setting(setting *s)
{
    for (int i = 0; i < dra_specs_count(s->t.module->params); i++) free(s->param[i]);
    free(s->x);
    free(s->u);
    dra_states_destroy(s->start);
    dra_states_destroy(s->initial);
    close_mixer(s);
}

void expect_equal(const trial *t, const outcome *a, const outcome *b, bool same, const char *what)
{
    const outcome_difference d = outcome_compare(t, a, b);
    const double             most = t->equal > 0 ? t->equal : EQUAL;
    if (!(d.value <= most) || !(d.gradient <= equal_gradients(most)))
        fail_msg("%s: values differ by %g, gradients by %g, at %s", what, d.value, d.gradient,
                 d.where);
    if (same && !d.same && !check_cuda())
        fail_msg("%s: equal, but not the same bits (%g)", what, d.value);
}

void join(const trial *t, dra_real *to, const dra_real *from, int64_t first, int64_t n)
{
    for (int64_t b = 0; b < t->B; b++)
        memcpy(to + (b * t->T + first) * t->C, from + b * n * t->C,
               (size_t)(n * t->C) * sizeof *to);
}
