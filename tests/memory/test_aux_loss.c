/* Add-ons of the loss: their values from states read token by token, from gammas, gates and
 * matrices by plain loops; their gradients by central differences in the double build. */
#include "plain.h"
#include "singular.h"
#include "subject.h"

enum { B = 2, T = 9, C = 8, BEFORE = 3 };

#define SIZES .dim = C, .heads = 2
#define BIT(kind) (1u << DRA_AUX_##kind)
#define STATES (BIT(DRIFT) | BIT(SIZE))
#define GAMMAS (BIT(BUDGET) | BIT(DIVERSITY))

typedef struct watch_row {
    const char      *name;
    dra_mixer_config config;
} watch_row;

static const watch_row rows[] = {
    {"ema", {SIZES, .a = {"ema", .ema.timescales = 2}, .aux = STATES | GAMMAS}},
    {"ema alone", {SIZES, .a = {"ema", .retrieval = "none"}, .aux = STATES | GAMMAS}},
    {"ema slots, per channel",
     {SIZES,
      .a = {"ema", .retrieval = "slots-own", .ema.timescales = 3, .gamma = {DRA_PER_CHANNEL}},
      .aux = STATES | GAMMAS}},
    {"ssm", {SIZES, .a = {"ssm", .ssm.modes = 2}, .aux = STATES | GAMMAS}},
    {"gru", {SIZES, .a = {"gru"}, .aux = STATES | GAMMAS | BIT(SPECTRAL)}},
    {"gru joined, narrow",
     {SIZES, .a = {"gru", .joined = true, .dim = 3}, .aux = STATES | BIT(SPECTRAL)}},
    {"lstm, a cell for each head",
     {SIZES, .a = {"lstm", .retrieval = "none", .cell.per_head = true},
      .aux = STATES | GAMMAS | BIT(SPECTRAL)}},
    {"append", {SIZES, .a = {"append"}, .aux = BIT(ATTENTION), .maps = true}},
    {"append, learned keys, rotary",
     {SIZES, .a = {"append"}, .rotary = true, .attention.mem_kv = 2, .aux = BIT(ATTENTION),
      .maps = true}},
    {"gru window, attention",
     {SIZES, .a = {"gru", .retrieval = "window", .window = 3}, .aux = STATES | BIT(ATTENTION),
      .maps = true}},
    {"moment",
     {SIZES, .a = {"moment", .moment.phi = DRA_PHI_EXP, .lambda.decay = DRA_DECAY_FIXED},
      .aux = STATES | GAMMAS}},
    {"delta", {SIZES, .a = {"delta"}, .aux = STATES}},
    {"wkv", {SIZES, .a = {"wkv"}, .aux = STATES}},
    {"shortconv", {SIZES, .a = {"shortconv"}, .aux = STATES}},
    {"slots routed", {SIZES, .a = {"slots", .slots.count = 3}, .aux = STATES | BIT(ENTROPY)}},
    {"slots gated, with cells",
     {SIZES,
      .a = {"slots", .slots.count = 2, .slots.gate = DRA_GATE_GATED,
            .slots.candidate = DRA_CANDIDATE_GRU},
      .aux = STATES | BIT(ENTROPY) | BIT(SPECTRAL)}},
    {"slots fixed",
     {SIZES, .a = {"slots", .slots.count = 3, .slots.gate = DRA_GATE_FIXED},
      .aux = STATES | GAMMAS | BIT(ENTROPY)}},
};

static const int32_t marks[B * T] = {
    0,
    0,
    DRA_MARK_PAD,
    DRA_MARK_SKIP,
    0,
    DRA_MARK_RESET,
    0,
    DRA_MARK_PAD | DRA_MARK_RESET,
    0,
    0,
    DRA_MARK_SKIP,
    0,
    0,
    0,
    0,
    0,
    DRA_MARK_PAD,
    DRA_MARK_PAD,
};

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct measured {
    double expected[DRA_AUX_COUNT], found[DRA_AUX_COUNT];
} measured;

/* All numbers of a row's states in order; items and maxima left out. */
static int64_t state_numbers(const dra_states *s, const dra_specs *specs, int64_t b, double *to)
{
    int64_t n = 0;
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const size_t size = dra_states_size(s, i, b);
        dra_real     v[256];
        if (dra_specs_at(specs, i)->items || dra_specs_at(specs, i)->maximum) continue;
        assert_true(size <= COUNT(v));
        dra_states_read(s, i, b, v, size, NULL);
        for (size_t k = 0; k < size; k++) to[n++] = (double)v[k];
    }
    return n;
}

/* Tokens first .. first + n - 1 of the subject. */
static void read_part(const subject *s, dra_reader *r, dra_states *states, int64_t first, int64_t n,
                      bool marked)
{
    dra_real  x[B * T * C];
    int32_t   mark[B * T];
    dra_error err = {0};
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < n; t++) {
            memcpy(x + (b * n + t) * C, s->x + (b * T + first + t) * C, C * sizeof *x);
            mark[b * n + t] = marks[b * T + first + t];
        }
    const dra_named in = {"x", x, (size_t)(B * n * C) * sizeof *x};
    expect_ok(dra_reader_read(r, states, n, marked ? mark : NULL, 1, &in, &err), &err);
}

static double squared(int64_t n, const double *a, const double *b)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* Drift and size from states after each token. */
static void expect_states(const subject *s, dra_reader *r, dra_states *states, bool marked,
                          measured *m)
{
    static double now[B][1024], old[B][1024];
    const double  zero[1024] = {0};
    double        drift = 0, size = 0, tokens = 0;
    int64_t       n = 0;
    for (int64_t b = 0; b < B; b++) n = state_numbers(states, s->t.module->state, b, old[b]);
    for (int64_t t = 0; t < T; t++) {
        read_part(s, r, states, t, 1, marked);
        for (int64_t b = 0; b < B; b++) {
            const int32_t mark = marked ? marks[b * T + t] : 0;
            state_numbers(states, s->t.module->state, b, now[b]);
            if (!(mark & DRA_MARK_PAD)) {
                drift += squared(n, now[b], mark & DRA_MARK_RESET ? zero : old[b]);
                size += squared(n, now[b], zero);
                tokens++;
            }
            memcpy(old[b], now[b], sizeof old[b]);
        }
    }
    m->expected[DRA_AUX_DRIFT] = drift / tokens / (double)n;
    m->expected[DRA_AUX_SIZE] = size / tokens / (double)n;
}

static void expect_gammas(const subject *s, measured *m)
{
    double gamma[128], sum = 0, pairs = 0;
    int    n = 0;
    for (int i = 0; i < params_of(s); i++)
        for (int64_t k = 0; k < dra_shape_count(&param_spec(s, i)->shape); k++)
            if (strstr(param_spec(s, i)->name, "beta"))
                gamma[n++] = plain_sigmoid((double)s->param[i][k]);
    for (int i = 0; i < n; i++) sum += gamma[i];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) pairs += (gamma[i] - gamma[j]) * (gamma[i] - gamma[j]);
    m->expected[DRA_AUX_BUDGET] = sum / n;
    m->expected[DRA_AUX_DIVERSITY] = -pairs / (n * (n - 1) / 2.0);
}

static void expect_matrices(const subject *s, measured *m)
{
    double sum = 0;
    int    n = 0;
    for (int i = 0; i < params_of(s); i++) {
        const dra_shape *shape = &param_spec(s, i)->shape;
        if (!strstr(param_spec(s, i)->name, "W_hh")) continue;
        const int64_t cols = shape->dim[shape->rank - 1], each = shape->dim[shape->rank - 2] * cols;
        for (int64_t at = 0; at < dra_shape_count(shape); at += each, n++) {
            double w[1024];
            for (int64_t k = 0; k < each; k++) w[k] = (double)s->param[i][at + k];
            sum += pow(fmax(0, singular_largest(each / cols, cols, w) - 1), 2);
        }
    }
    m->expected[DRA_AUX_SPECTRAL] = sum / n;
}

/* The weight of a write of head h to slot i from its logits z. */
static double write_of(const dra_memory_config *c, const double *z, int i)
{
    double sum = 0;
    if (c->slots.gate == DRA_GATE_FIXED) return plain_sigmoid(-z[i]);
    if (c->slots.gate == DRA_GATE_GATED) return 1 - pow(plain_sigmoid(z[i]), 0.125);
    for (int64_t k = 0; k < c->slots.count; k++) sum += exp(4 * z[k]);
    return exp(4 * z[i]) / sum;
}

static void expect_writes(const subject *s, const dra_memory_config *c, bool marked, measured *m)
{
    const dra_gate_kind gate = c->slots.gate;
    const char     *name = gate == DRA_GATE_FIXED ? "beta" : gate == DRA_GATE_GATED ? "W_g" : "W_w";
    const bool      fixed = gate == DRA_GATE_FIXED;
    const int       at = dra_specs_find(s->t.module->params, name);
    const int       S = (int)c->slots.count;
    const dra_real *w = s->param[at];
    double          total = 0;
    for (int h = 0; h < 2; h++) {
        double p[8] = {0}, sum = 0, entropy = 0;
        for (int64_t r = 0; r < B * T; r++) {
            double z[8] = {0};
            if (marked && marks[r] & (DRA_MARK_PAD | DRA_MARK_SKIP)) continue;
            for (int i = 0; i < S; i++)
                for (int k = 0; k < (fixed ? 1 : C); k++)
                    z[i] += fixed ? (double)w[h * S + i]
                                  : (double)w[(h * S + i) * C + k] * (double)s->x[r * C + k];
            for (int i = 0; i < S; i++) p[i] += write_of(c, z, i);
        }
        for (int i = 0; i < S; i++) sum += p[i];
        for (int i = 0; i < S; i++) entropy -= p[i] / sum * log(p[i] / sum);
        total += log(S) - entropy;
    }
    m->expected[DRA_AUX_ENTROPY] = total / 2;
}

/* From the scores that it shows, (B, H, T, rows). */
static void expect_attention(dra_reader *r, bool marked, measured *m)
{
    const dra_real *s = dra_reader_result(r, "scores");
    dra_shape       shape;
    double          sum = 0;
    int             tokens = 0;
    assert_true(dra_reader_result_shape(r, "scores", &shape));
    const int64_t J = shape.dim[3];
    for (int64_t row = 0; row < B * 2 * T; row++) {
        const int64_t b = row / (2 * T), t = row % T;
        double        all = 0;
        if (marked && marks[b * T + t] & DRA_MARK_PAD) continue;
        for (int64_t j = 0; j < J; j++)
            if (s[row * J + j] > -1e29) all += exp((double)s[row * J + j]);
        sum += all > 0 ? log(all) * log(all) : 0;
        tokens += row / T % 2 == 0;
    }
    m->expected[DRA_AUX_ATTENTION] = sum / tokens;
}

static void expect_measured(const watch_row *row, bool marked)
{
    const uint32_t watch = row->config.aux;
    subject        s = open_subject(&row->config, B, T);
    dra_reader    *r = open_reader(&s);
    dra_states    *other = NULL;
    dra_error      err = {0};
    measured       m = {0};
    read_part(&s, r, s.start, 0, BEFORE, false);
    expect_ok(dra_states_fork(s.start, &other, &err), &err);
    read_part(&s, r, s.start, 0, T, marked);
    for (int k = 0; k < DRA_AUX_COUNT; k++) {
        const dra_real *found = dra_reader_result(r, dra_aux_name(k));
        assert_int_equal(found != NULL, watch >> k & 1);
        if (found) m.found[k] = (double)*found;
    }
    if (watch & BIT(ATTENTION)) expect_attention(r, marked, &m);
    expect_states(&s, r, other, marked, &m);
    if (watch & GAMMAS) expect_gammas(&s, &m);
    if (watch & BIT(SPECTRAL)) expect_matrices(&s, &m);
    if (watch & BIT(ENTROPY)) expect_writes(&s, &row->config.a, marked, &m);
    for (int k = 0; k < DRA_AUX_COUNT; k++) {
        /* Sums of squares have twice the error; entropy is a difference of numbers near 1. */
        const double size = k == DRA_AUX_ENTROPY ? 1 : fabs(m.expected[k]);
        if (watch >> k & 1 && !(fabs(m.found[k] - m.expected[k]) <= 4 * EQUAL * size + 1e-12))
            fail_msg("%s%s: %s is %.12g, expected %.12g", row->name, marked ? ", marked" : "",
                     dra_aux_name(k), m.found[k], m.expected[k]);
    }
    dra_states_destroy(other);
    dra_reader_destroy(r);
    close_subject(&s);
}

static void values_are_their_formulas(void **state)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int marked = 0; marked < 2; marked++) expect_measured(&rows[i], marked);
}

/* A blend has what one of its memories has, and the mean of what both have. */
static void blends_share(void **state)
{
    const dra_mixer_config both = {SIZES,
                                   .a = {"gru"},
                                   .blend = DRA_BLEND_NUMBER,
                                   .blend_value = 0.5,
                                   .b = {"slots", .slots.count = 3},
                                   .aux = STATES | GAMMAS | BIT(ENTROPY) | BIT(SPECTRAL)};
    const uint32_t         parts[] = {STATES | GAMMAS | BIT(SPECTRAL), STATES | BIT(ENTROPY)};
    double                 v[3][DRA_AUX_COUNT] = {{0}};
    for (int i = 0; i < 3; i++) {
        dra_mixer_config c = {SIZES, .a = i == 1 ? both.b : both.a};
        c.aux = i < 2 ? parts[i] : 0;
        if (i == 2) c = both;
        subject     s = open_subject(&c, B, T);
        dra_reader *r = open_reader(&s);
        read_part(&s, r, s.start, 0, T, false);
        for (int k = 0; k < DRA_AUX_COUNT; k++) {
            const dra_real *found = dra_reader_result(r, dra_aux_name(k));
            v[i][k] = found ? (double)*found : 0;
        }
        dra_reader_destroy(r);
        close_subject(&s);
    }
    for (int k = 0; k < DRA_AUX_COUNT; k++) {
        const bool   mean = k == DRA_AUX_DRIFT || k == DRA_AUX_SIZE;
        const double expected = (v[0][k] + v[1][k]) / (mean ? 2 : 1);
        assert_true(fabs(v[2][k] - expected) <= 4 * EQUAL * fabs(expected));
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

#ifdef DRA_REAL_DOUBLE

typedef struct graph { /* L = weighted sum of the auxiliary losses, and its gradients */
    check_program p;
    dra_extents   extents;
    dra_real     *state[8]; /* the start, to be moved */
} graph;

/* All memory of state i, also what is not live. */
static dra_real *copy_state(const subject *s, int i)
{
    const dra_span from = dra_states_span(s->start, i);
    dra_error      err = {0};
    dra_real      *to = malloc(from.bytes + 1);
    assert_non_null(to);
    expect_ok(dra_array_download(to, from, &err), &err);
    return to;
}

static graph open_graph(const subject *s, uint32_t watch)
{
    const int  P = params_of(s), S = dra_specs_count(s->t.module->state);
    graph      made = {0};
    dra_graph *g = check_graph();
    dra_value  v[64] = {{0}}, d[64];
    int64_t    count[8];
    char       name[32];
    for (int i = 0; i < S; i++) count[i] = s->start->at[i].rows;
    const dra_module_shape shape = {.B = B, .T = T, .marked = true, .skips = true, .rows = count};
    dra_module_graph(g, s->t.module, &shape, v + 1, v + 1 + P, NULL);
    v[0] = dra_find_input(g, "x");
    dra_value L = dra_number(g, 0);
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (watch >> k & 1)
            L = dra_add(g, L, dra_affine(g, dra_find_output(g, dra_aux_name(k)), 1 + k, 0));
    dra_gradient(g, 1, &L, NULL, 1 + P + S, v, d);
    dra_output(g, "L", L);
    for (int i = 0; i < 1 + P + S; i++) {
        snprintf(name, sizeof name, "d.%d", i);
        dra_output(g, name, d[i]);
    }
    made.p = check_compile(g, 2);
    for (int i = 0; i < S; i++) made.state[i] = copy_state(s, i);
    return made;
}

static double run_graph(graph *g, const subject *s)
{
    dra_error err = {0};
    char      name[64];
    check_bind(&g->p, "x", s->x, B * T * C * sizeof *s->x);
    for (int i = 0; i < params_of(s); i++)
        check_bind(&g->p, param_spec(s, i)->name, s->param[i],
                   (size_t)dra_shape_count(&param_spec(s, i)->shape) * sizeof(dra_real));
    for (int i = 0; i < dra_specs_count(s->t.module->state); i++) {
        snprintf(name, sizeof name, "state.%s", dra_specs_at(s->t.module->state, i)->name);
        check_bind(&g->p, name, g->state[i], dra_states_span(s->start, i).bytes);
    }
    expect_ok(dra_extents_fill(&g->extents, s->t.module->state, s->start, B, T, marks, &err), &err);
    put_extents(g->p.buffers, &g->extents, true);
    check_run(&g->p);
    return check_result(&g->p, "L")[0];
}

/* Moves one tensor along a direction and adds up the slope it promises. */
static double move_one(graph *g, int i, int64_t n, dra_real *at, double by, uint64_t *seed)
{
    char name[32];
    snprintf(name, sizeof name, "d.%d", i);
    const dra_real *d = check_result(&g->p, name);
    double          slope = 0;
    for (int64_t k = 0; k < n; k++) {
        const double to = 2 * check_random(seed) - 1;
        slope += to * d[k];
        at[k] += by * to;
    }
    return slope;
}

static double move(graph *g, const subject *s, double by, uint64_t seed)
{
    const int P = params_of(s);
    double    slope = move_one(g, 0, B * T * C, s->x, by, &seed);
    for (int i = 0; i < P; i++)
        slope += move_one(g, 1 + i, dra_shape_count(&param_spec(s, i)->shape), s->param[i], by,
                          &seed);
    for (int i = 0; i < dra_specs_count(s->t.module->state); i++) {
        const size_t bytes = dra_states_span(s->start, i).bytes;
        if (dra_specs_at(s->t.module->state, i)->maximum) continue;
        slope += move_one(g, 1 + P + i, (int64_t)(bytes / sizeof(dra_real)), g->state[i], by,
                          &seed);
    }
    return slope;
}

static void gradients_are_derivatives(void **state)
{
    const double h = 1e-5;
    for (size_t i = 0; i < COUNT(rows); i++) {
        /* What is stored depends on the maxima that it is relative to; they have no gradient. */
        const bool relative = rows[i].config.a.moment.phi == DRA_PHI_EXP ||
                              strcmp(rows[i].config.a.memory, "wkv") == 0;
        subject     s = open_subject(&rows[i].config, B, T);
        dra_reader *r = open_reader(&s);
        dra_error   err = {0};
        read_part(&s, r, s.start, 0, BEFORE, false);
        expect_ok(dra_states_reserve(s.start, T, &err), &err);
        graph g = open_graph(&s, rows[i].config.aux & ~(relative ? STATES : 0));
        run_graph(&g, &s);
        const double slope = move(&g, &s, 0, 5);
        move(&g, &s, h, 5);
        double found = run_graph(&g, &s);
        move(&g, &s, -2 * h, 5);
        found = (found - run_graph(&g, &s)) / (2 * h);
        if (!(fabs(found - slope) <= 1e-6 * (fabs(slope) + 1)))
            fail_msg("%s: slope is %.10g, gradients say %.10g", rows[i].name, found, slope);
        check_free(&g.p);
        for (int k = 0; k < dra_specs_count(s.t.module->state); k++) free(g.state[k]);
        dra_extents_free(&g.extents);
        dra_reader_destroy(r);
        close_subject(&s);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_their_formulas),
        cmocka_unit_test(blends_share),
#ifdef DRA_REAL_DOUBLE
        cmocka_unit_test(gradients_are_derivatives),
#endif
    };
    return check_main("watch", NULL, 0, tests, COUNT(tests));
}
