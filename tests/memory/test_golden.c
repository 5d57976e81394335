/* Golden rows: small mixers computed elsewhere, step by step in double, with outputs, final states
 * and gradients. tests/data/golden-streams.json says in its rows what a mixer is; inputs follow
 *   value[i] = offset + amplitude sin(1.7 n + 0.9 i + 0.05 i^2)
 * with (n, offset, amplitude) by name. Large tensors are given by two numbers:
 *   dot = sum g_i sin(1.7 * 150 + 0.9 i + 0.05 i^2),  norm = sqrt(sum g_i^2). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trial.h"

#ifdef DRA_REAL_DOUBLE
static const double PART = 1e-8, FLAT = 1e-9; /* the file has 9 digits */
#else
static const double PART = 2e-5, FLAT = 1e-6;
#endif

enum { MOST = 64, MOST_ROWS = 200 }; /* parameters or states; rows */

typedef struct golden {
    const json_t *file, *row;
    int64_t       B, T;
    dra_sublayer *sublayer;
    trial         t;
    dra_real     *param[MOST], *x, *u;
    int32_t      *mark;
    dra_states   *start;
} golden;

static double wave(double n, int64_t i)
{
    const double k = (double)i;
    return sin(1.7 * n + 0.9 * k + 0.05 * k * k);
}

/* Tensors of a blend's branches are named as without it. */
static const char *plain(const char *name) { return name[1] == '.' ? name + 2 : name; }

static const json_t *numbers_of(const golden *r, const char *kind, const char *name)
{
    char full[80];
    snprintf(full, sizeof full, "%s%s", kind, plain(name));
    const json_t *t = json_object_get(json_object_get(r->file, "tensors"), full);
    if (!t) fail_msg("no tensor %s", full);
    return t;
}

static double number_at(const json_t *a, size_t i)
{
    return json_number_value(json_array_get(a, i));
}

static double input_at(const golden *r, const char *kind, const char *name, int64_t i)
{
    const json_t *t = numbers_of(r, kind, name);
    return number_at(t, 1) + number_at(t, 2) * wave(number_at(t, 0), i);
}

static dra_real *input_tensor(const golden *r, const char *name, int64_t n)
{
    dra_real *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; i < n; i++) x[i] = (dra_real)input_at(r, "", name, i);
    return x;
}

/* ---- the mixer of a row ---------------------------------------------------------------------- */

static const char *text_of(const json_t *c, const char *key)
{
    return json_string_value(json_object_get(c, key));
}

static bool is_text(const json_t *c, const char *key, const char *text)
{
    return text_of(c, key) && strcmp(text_of(c, key), text) == 0;
}

static bool is_on(const json_t *c, const char *key)
{
    return json_is_true(json_object_get(c, key));
}

static int64_t integer(const json_t *c, const char *key)
{
    return json_integer_value(json_object_get(c, key));
}

/* The number of a word in a list; 0 where there is none. */
static int pick(const json_t *c, const char *key, const char *const *words)
{
    const char *text = text_of(c, key);
    for (int i = 0; text && words[i]; i++)
        if (strcmp(words[i], text) == 0) return i;
    if (text) fail_msg("%s is %s", key, text);
    return 0;
}

static const char *const phi[] = {"elu1", "relu", "exp", "favor", "identity", NULL};
static const char *const decay[] = {"none", "fixed", "data", NULL};
static const char *const gate[] = {"", "fixed", "routed", "gated", NULL};
static const char *const candidate[] = {"token", "gru", NULL};

static dra_memory_config memory_config(const json_t *c)
{
    return (dra_memory_config){
        .memory = text_of(c, "memory"),
        .retrieval = text_of(c, "retrieval"),
        .window = integer(c, "window"),
        .ema.timescales = integer(c, "M"),
        .cell.per_head = is_on(c, "gru.per_head"),
        .gamma.per = is_text(c, "gamma.per", "channel") ? DRA_PER_CHANNEL : DRA_PER_HEAD,
        .gamma.share = is_on(c, "gamma.share"),
        .ssm.modes = integer(c, "modes"),
        .moment.phi = (dra_phi_kind)pick(c, "phi", phi),
        .moment.features = integer(c, "features"),
        .lambda.decay = (dra_decay_kind)pick(c, "decay", decay),
        .moment.normalise = !json_object_get(c, "normalise") ? DRA_DEFAULT
                            : is_on(c, "normalise")          ? DRA_ON
                                                             : DRA_OFF,
        .head_norm = is_text(c, "head_norm", "group") ? DRA_ON : DRA_OFF,
        .slots.count = integer(c, "S"),
        .slots.gate = (dra_gate_kind)(pick(c, "gate", gate)),
        .slots.candidate = (dra_candidate_kind)pick(c, "candidate", candidate),
        .slots.tau_learned = is_text(c, "tau", "learned"),
        .slots.slot_decay = is_on(c, "slots.decay"),
        .joint = is_text(c, "joint.slots", "all") ? DRA_SLOTS_ALL : DRA_SLOTS_OWN,
    };
}

static dra_sublayer_config sublayer_config(const json_t *c)
{
    const json_t    *blend = json_object_get(c, "blend");
    dra_mixer_config m = {
        .dim = integer(c, "C"),
        .heads = integer(c, "H"),
        .key_dim = integer(c, "D"),
        .value_dim = integer(c, "E"),
        .bias = is_on(c, "bias"),
        .qk_norm = is_text(c, "qk_norm", "rms"),
        .rotary = is_on(c, "rotary"),
        .shift = is_text(c, "shift", "mix")    ? DRA_SHIFT_MIX
                 : is_text(c, "shift", "half") ? DRA_SHIFT_HALF
                                               : DRA_SHIFT_NONE,
        .a = memory_config(blend ? json_object_get(c, "a") : c),
    };
    if (blend) {
        m.blend = json_is_string(blend) ? DRA_BLEND_LEARNED : DRA_BLEND_NUMBER;
        m.blend_value = json_number_value(blend);
        m.b = memory_config(json_object_get(c, "b"));
    }
    dra_sublayer_config all = {.block = {.norm = DRA_PLACE_NONE, .residual = DRA_JOIN_NONE},
                               .mixer = m};
    if (is_text(c, "pre_norm", "rms")) all.block.norm = DRA_PLACE_PRE;
    if (text_of(c, "law5")) {
        all.block = (dra_block_config){.norm = is_text(c, "law5", "post") ? DRA_PLACE_POST
                                                                          : DRA_PLACE_PRE,
                                       .memory_residual = true,
                                       .project = is_on(c, "project")};
        all.norm.kind = is_text(c, "norm", "layer") ? DRA_NORM_LAYER : DRA_NORM_RMS;
    }
    return all;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static int32_t *marks(const golden *r)
{
    const json_t *mask = json_object_get(r->row, "mask"), *reset = json_object_get(r->row, "reset");
    if (!mask && !reset) return NULL;
    int32_t *mark = calloc((size_t)(r->B * r->T) + 1, sizeof *mark);
    for (int64_t i = 0; i < r->B * r->T; i++) {
        const size_t b = (size_t)(i / r->T), t = (size_t)(i % r->T);
        if (mask && json_string_value(json_array_get(mask, b))[t] == '0') mark[i] |= DRA_MARK_PAD;
        if (reset && json_string_value(json_array_get(reset, b))[t] == '1')
            mark[i] |= DRA_MARK_RESET;
    }
    return mark;
}

/* Live items (n, H, width) of a row of the batch inside (B, H, most, width), and back. */
static int64_t place(const dra_spec *p, int64_t b, int64_t most, int64_t k)
{
    const int64_t H = p->shape.dim[0], W = p->shape.dim[1];
    const int64_t item = k / (H * W), h = k / W % H, w = k % W;
    return ((b * H + h) * most + item) * W + w;
}

static void set_start(golden *r)
{
    const json_t *state = json_object_get(r->row, "start_state");
    dra_error     err = {0};
    assert_int_equal(dra_states_create(r->t.device, r->t.module->state, r->B, &r->start, &err),
                     DRA_OK);
    if (!state) return;
    const json_t *len = json_object_get(state, "len"), *pos = json_object_get(state, "pos");
    if (!len) len = json_object_get(state, "a.len");
    for (int64_t b = 0; b < r->B; b++) {
        const int64_t items = len ? (int64_t)number_at(len, (size_t)b) : 0;
        const int64_t tokens = pos ? (int64_t)number_at(pos, (size_t)b) : items;
        assert_int_equal(dra_states_place(r->start, b, tokens, items, &err), DRA_OK);
        for (int i = 0; i < dra_specs_count(r->t.module->state); i++) {
            const dra_spec *p = dra_specs_at(r->t.module->state, i);
            const json_t   *shape = json_object_get(state, p->name);
            const size_t    n = dra_states_size(r->start, i, b);
            dra_real       *to = malloc(n * sizeof *to + 1);
            assert_non_null(shape);
            for (size_t k = 0; k < n; k++) {
                const int64_t at = p->items ? place(p, b, (int64_t)number_at(shape, 2), (int64_t)k)
                                            : b * (int64_t)n + (int64_t)k;
                to[k] = (dra_real)input_at(r, "start.", p->name, at);
            }
            assert_int_equal(dra_states_write(r->start, i, b, to, n, &err), DRA_OK);
            free(to);
        }
    }
}

static double upstream(const void *user, int i, int64_t b, int64_t k)
{
    const golden   *r = user;
    const dra_spec *p = dra_specs_at(r->t.module->state, i);
    const int64_t   at = b * dra_shape_count(&p->shape) + k;
    return wave(100 + number_at(numbers_of(r, "start.", p->name), 0), at);
}

static void open_row(golden *r)
{
    const dra_sublayer_config all = sublayer_config(json_object_get(r->row, "config"));
    const dra_mixer_config    config = all.mixer;
    dra_error                 err = {0};
    if (dra_sublayer_create(&all, &r->sublayer, &err) != DRA_OK) fail_msg("%s", err.text);
    const dra_module *m = dra_sublayer_module(r->sublayer);
    r->t = (trial){.module = m,
                   .device = check_device(2, dra_device_level_at(0)),
                   .B = r->B,
                   .T = r->T,
                   .C = config.dim,
                   .user = r};
    if (is_on(r->row, "state_upstream")) r->t.us = upstream;
    for (int i = 0; i < dra_specs_count(m->params); i++) {
        const dra_spec *p = dra_specs_at(m->params, i);
        const json_t   *shape = json_object_get(json_object_get(r->row, "params"), plain(p->name));
        if (!shape) fail_msg("%s is not a parameter of the row", p->name);
        assert_int_equal(json_array_size(shape), p->shape.rank);
        for (int32_t k = 0; k < p->shape.rank; k++)
            assert_int_equal(p->shape.dim[k], (int64_t)number_at(shape, (size_t)k));
        r->param[i] = input_tensor(r, plain(p->name), dra_shape_count(&p->shape));
    }
    assert_int_equal(json_object_size(json_object_get(r->row, "params")),
                     dra_specs_count(m->params));
    r->x = input_tensor(r, "x", r->B * r->T * config.dim);
    r->u = input_tensor(r, "u", r->B * r->T * config.dim);
    r->mark = marks(r);
    set_start(r);
    r->t.x = r->x, r->t.u = r->u, r->t.mark = r->mark, r->t.param = r->param;
    r->t.start = r->start;
}

static void close_row(golden *r)
{
    for (int i = 0; i < dra_specs_count(r->t.module->params); i++) free(r->param[i]);
    free(r->x);
    free(r->u);
    free(r->mark);
    dra_states_destroy(r->start);
    dra_sublayer_destroy(r->sublayer);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static void expect_near(const char *what, double found, double expected, double largest)
{
    if (!(fabs(found - expected) <= PART * largest + FLAT))
        fail_msg("%s is %.9g, expected %.9g", what, found, expected);
}

static void compare(const char *what, const json_t *expected, int64_t n, const dra_real *found)
{
    const json_t *data = json_is_array(expected) ? expected : json_object_get(expected, "data");
    double        largest = 0, dot = 0, norm = 0, part = 0;
    if (!expected) fail_msg("%s is not in the row", what);
    if (data) {
        assert_int_equal(json_array_size(data), n);
        for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(number_at(data, (size_t)i)));
        for (int64_t i = 0; i < n; i++)
            expect_near(what, (double)found[i], number_at(data, (size_t)i), largest);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        dot += (double)found[i] * wave(150, i);
        norm += (double)found[i] * (double)found[i];
        part += wave(150, i) * wave(150, i);
    }
    largest = json_number_value(json_object_get(expected, "norm"));
    expect_near(what, sqrt(norm), largest, largest);
    expect_near(what, dot, json_number_value(json_object_get(expected, "dot")),
                largest * sqrt(part));
}

/* What is live of a state (or of its gradient), as the file lays it out. */
static dra_real *laid_out(const dra_states *s, int i, const dra_real *live, int64_t *n)
{
    const dra_spec *p = dra_specs_at(s->specs, i);
    const int64_t   size = dra_shape_count(&p->shape);
    int64_t         most = p->items ? 0 : 1, at = 0;
    for (int64_t b = 0; b < s->B && p->items; b++) {
        const int64_t items = (int64_t)dra_states_size(s, i, b) / size;
        if (items > most) most = items;
    }
    *n = s->B * most * size;
    dra_real *out = calloc((size_t)*n + 1, sizeof *out);
    for (int64_t b = 0; b < s->B; b++)
        for (size_t k = 0; k < dra_states_size(s, i, b); k++, at++)
            out[p->items ? place(p, b, most, (int64_t)k) : b * size + (int64_t)k] = live[at];
    return out;
}

static dra_real *live_values(const dra_states *s, int i)
{
    dra_real *all = malloc((live_elements(s, i) + 1) * sizeof *all), *at = all;
    for (int64_t b = 0; b < s->B; at += dra_states_size(s, i, b++))
        dra_states_read(s, i, b, at, dra_states_size(s, i, b), NULL);
    return all;
}

static void compare_states(const golden *r, const outcome *out)
{
    const json_t *final = json_object_get(r->row, "final"), *grad = json_object_get(r->row, "grad");
    char          what[80];
    for (int i = 0; i < dra_specs_count(r->t.module->state); i++) {
        const char *name = dra_specs_at(r->t.module->state, i)->name;
        dra_real   *live = live_values(out->final, i);
        int64_t     n;
        dra_real   *s = laid_out(out->final, i, live, &n);
        snprintf(what, sizeof what, "final %s", name);
        compare(what, json_object_get(final, name), n, s);
        free(live);
        free(s);
        snprintf(what, sizeof what, "start.%s", name);
        if (!json_object_get(grad, what)) continue; /* the initial state, or a maximum */
        s = laid_out(r->start, i, out->dstart[i], &n);
        compare(what, json_object_get(grad, what), n, s);
        free(s);
    }
}

static void compare_counts(const golden *r, const outcome *out)
{
    const json_t *final = json_object_get(r->row, "final");
    const json_t *pos = json_object_get(json_object_get(final, "pos"), "data");
    const json_t *len = json_object_get(json_object_get(final, "len"), "data");
    const int64_t window = integer(json_object_get(r->row, "config"), "window");
    for (int64_t b = 0; b < r->B; b++) {
        const int64_t items = dra_states_items(out->final, b);
        if (pos) assert_int_equal(dra_states_tokens(out->final, b), number_at(pos, (size_t)b));
        if (len)
            assert_int_equal(window && items > window ? window : items, number_at(len, (size_t)b));
    }
}

static void check_row(void **state)
{
    golden       *r = *state;
    const json_t *grad = json_object_get(r->row, "grad");
    outcome       out;
    open_row(r);
    trial_run(&r->t, 0, NULL, &out);
    expect_near("L", out.L, json_number_value(json_object_get(r->row, "L")), fabs(out.L));
    compare("y", json_object_get(r->row, "y"), r->B * r->T * r->t.C, out.y);
    compare("dx", json_object_get(grad, "x"), r->B * r->T * r->t.C, out.dx);
    for (int i = 0; i < dra_specs_count(r->t.module->params); i++) {
        const dra_spec *p = dra_specs_at(r->t.module->params, i);
        if (p->frozen) continue;
        compare(p->name, json_object_get(grad, plain(p->name)), dra_shape_count(&p->shape),
                out.dparam[i]);
    }
    compare_states(r, &out);
    compare_counts(r, &out);
    outcome_free(&r->t, &out);
    close_row(r);
}

static const char *const files[] = {"tests/data/golden-streams.json",
                                    "tests/data/golden-slots.json",
                                    "tests/data/golden-others.json"};

/* Appends the rows of a file, which stays open. */
static size_t add_rows(const char *path, golden *all, struct CMUnitTest *tests, size_t n)
{
    json_error_t  e;
    json_t       *file = json_load_file(path, 0, &e);
    const json_t *rows = json_object_get(file, "rows");
    if (!file) printf("Bail out! %s: %s\n", path, e.text);
    if (!file) exit(1);
    for (size_t i = 0; i < json_array_size(rows) && n < MOST_ROWS; i++, n++) {
        all[n] = (golden){.file = file,
                          .row = json_array_get(rows, i),
                          .B = integer(file, "B"),
                          .T = integer(file, "T")};
        tests[n] = (struct CMUnitTest){text_of(all[n].row, "name"), check_row, NULL, NULL, &all[n]};
    }
    return n;
}

int main(void)
{
    static golden            all[MOST_ROWS];
    static struct CMUnitTest tests[MOST_ROWS];
    size_t                   n = 0;
    for (size_t i = 0; i < COUNT(files); i++) n = add_rows(files[i], all, tests, n);
    printf("# %zu golden rows\n", n);
    return _cmocka_run_group_tests("golden", tests, n, NULL, NULL);
}
