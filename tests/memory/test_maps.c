/* Maps on request: attention weights, writes and occupancy of slots of a whole reading against
 * direct computation from the states after each token. */
#include "plain.h"
#include "subject.h"

enum { B = 2, T = 7, C = 8, H = 2, D = 4, MOST = 64 };

#define SIZES .dim = C, .heads = H

typedef struct map_row {
    dra_mixer_config config;
    const char      *keys; /* the state that holds keys of slots (H, S, D), or NULL */
    int              S;
} map_row;

static const map_row rows[] = {
    {{SIZES}, NULL, 0},
    {{SIZES, .a = {"gru"}}, NULL, 0},
    {{SIZES, .a = {"ema", .retrieval = "window", .window = 3}}, NULL, 0},
    {{SIZES, .a = {"gru", .retrieval = "slots-all"}}, "h_k", 1},
    {{SIZES, .a = {"gru", .retrieval = "joint"}}, "h_k", 1},
    {{SIZES, .a = {"ema", .retrieval = "pooled", .ema.timescales = 3}}, "m_k", 3},
    {{SIZES,
      .a = {"ema", .retrieval = "joint", .ema.timescales = 2, .joint = DRA_SLOTS_ALL, .window = 3}},
     "m_k",
     2},
    {{SIZES, .a = {"slots", .slots.count = 3}}, "P", 3},
    {{SIZES,
      .a = {"slots", .slots.count = 3, .retrieval = "slots-all", .slots.gate = DRA_GATE_GATED}},
     "P",
     3},
    {{SIZES, .a = {"slots", .slots.count = 2, .retrieval = "pooled", .slots.gate = DRA_GATE_FIXED}},
     "P",
     2},
    {{SIZES,
      .a = {"slots", .slots.count = 2, .retrieval = "joint", .slots.candidate = DRA_CANDIDATE_GRU}},
     "P",
     2},
};

static const int32_t marks[B * T] = {
    0, 0, DRA_MARK_PAD, 0, DRA_MARK_SKIP, 0, 0, 0, 0, 0, 0, DRA_MARK_RESET, 0, DRA_MARK_PAD,
};

static const char *how(const map_row *row)
{
    const dra_memory_config *c = &row->config.a;
    return c->retrieval ? c->retrieval : row->S ? "slots-own" : "time";
}

static int64_t read_state(const dra_states *s, const dra_specs *specs, const char *name, int64_t b,
                          dra_real to[256])
{
    const int    i = dra_specs_find(specs, name);
    const size_t n = i < 0 ? 0 : dra_states_size(s, i, b);
    assert_true(n <= 256);
    if (n) dra_states_read(s, i, b, to, n, NULL);
    return (int64_t)n;
}

static double dot(const double *q, const dra_real *k)
{
    double sum = 0;
    for (int i = 0; i < D; i++) sum += q[i] * (double)k[i];
    return sum / sqrt(D);
}

static void softmax(int64_t n, double *s)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += s[i] = exp(s[i]);
    for (int64_t i = 0; i < n; i++) s[i] /= sum;
}

/* Logits of head h over items of the state, then over slots; returns how many items. */
static int64_t logits(const map_row *row, const dra_states *s, const dra_specs *specs, int64_t b,
                      int h, const double *q, double *to, int64_t *n)
{
    dra_real      k[256];
    const bool    all = strcmp(how(row), "slots-all") == 0 || row->config.a.joint == DRA_SLOTS_ALL;
    const int64_t items = read_state(s, specs, "K", b, k) / (H * D);
    for (int64_t j = 0; j < items; j++) to[j] = dot(q + h * D, k + (j * H + h) * D);
    *n = items;
    if (!row->keys) return items;
    read_state(s, specs, row->keys, b, k);
    for (int head = 0; head < H; head++)
        for (int i = 0; i < row->S && (all || head == h); i++)
            to[(*n)++] = dot(q + h * D, k + (head * row->S + i) * D);
    return items;
}

/* One token of one row: a (H, n) of head after head. */
static int64_t expected_weights(const map_row *row, const dra_states *s, const dra_specs *specs,
                                int64_t b, const double *q, double *a, int64_t *items)
{
    int64_t n = 0;
    for (int h = 0; h < H; h++) *items = logits(row, s, specs, b, h, q, a + h * n, &n);
    if (strcmp(how(row), "pooled") == 0)
        softmax(H * n, a);
    else
        for (int h = 0; h < H; h++) softmax(n, a + h * n);
    return n;
}

static void query(const subject *s, int64_t r, double q[C])
{
    const dra_real *w = s->param[dra_specs_find(s->t.module->params, "W_q")];
    for (int i = 0; i < C; i++) {
        q[i] = 0;
        for (int c = 0; c < C; c++) q[i] += (double)w[i * C + c] * (double)s->x[r * C + c];
    }
}

static void expect_near(double found, double expected, const char *what, int64_t t)
{
    if (!(fabs(found - expected) <= 10 * EQUAL)) /* of 1; the state's own rounding comes in */
        fail_msg("%s of token %d is %.9g, expected %.9g", what, (int)t, found, expected);
}

static void read_one(const subject *s, dra_reader *r, dra_states *states, int64_t t)
{
    dra_real  x[B * C];
    int32_t   mark[B];
    dra_error err = {0};
    for (int64_t b = 0; b < B; b++) {
        memcpy(x + b * C, s->x + (b * T + t) * C, C * sizeof *x);
        mark[b] = marks[b * T + t];
    }
    expect_ok(dra_reader_read(r, states, 1, mark, 1, &(dra_named){"x", x, sizeof x}, &err), &err);
}

/* (B, H, T, n) of the whole reading; items stand in the rows of their numbers. */
static void expect_attention(const map_row *row, const subject *s, const dra_real *map,
                             int64_t width, dra_reader *r)
{
    dra_states *states = new_states(s->t.module->state, B);
    for (int64_t t = 0; t < T; t++) {
        read_one(s, r, states, t);
        for (int64_t b = 0; b < B; b++) {
            double        q[C], a[H * MOST] = {0};
            int64_t       items = 0, live = 0, n = 0;
            const bool    pad = marks[b * T + t] & DRA_MARK_PAD;
            const int64_t end = states->end[b];
            query(s, b * T + t, q);
            n = expected_weights(row, states, s->t.module->state, b, q, a, &items);
            live = row->keys ? width - (n - items) : width; /* rows of items */
            for (int h = 0; h < H; h++)
                for (int64_t j = 0; j < width; j++) {
                    const int64_t at = j < live ? j - (end - items) : j - live + items;
                    const bool    seen = j >= live || (at >= 0 && at < items);
                    expect_near((double)map[((b * H + h) * T + t) * width + j],
                                seen && !pad ? a[h * n + at] : 0, "attention", t);
                }
        }
    }
    dra_states_destroy(states);
}

/* The weight of a write from x. */
static double write_of(const subject *s, const map_row *row, int64_t r, int h, int i)
{
    const dra_gate_kind gate = row->config.a.slots.gate;
    const dra_specs    *specs = s->t.module->params;
    double              z[8] = {0}, sum = 0;
    if (gate == DRA_GATE_FIXED)
        return plain_sigmoid(-(double)s->param[dra_specs_find(specs, "beta")][h * row->S + i]);
    const dra_real *w = s->param[dra_specs_find(specs, gate == DRA_GATE_GATED ? "W_g" : "W_w")];
    for (int k = 0; k < row->S; k++)
        for (int c = 0; c < C; c++)
            z[k] += (double)w[(h * row->S + k) * C + c] * (double)s->x[r * C + c];
    if (gate == DRA_GATE_GATED) return 1 - pow(plain_sigmoid(z[i]), 0.125);
    for (int k = 0; k < row->S; k++) sum += exp(4 * z[k]);
    return exp(4 * z[i]) / sum;
}

static void expect_writes(const map_row *row, const subject *s, const dra_real *write,
                          const dra_real *full)
{
    for (int64_t b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < row->S; i++) {
                double empty = 1;
                for (int64_t t = 0; t < T; t++) {
                    const int32_t mark = marks[b * T + t];
                    const bool    none = mark & (DRA_MARK_PAD | DRA_MARK_SKIP);
                    const double  u = none ? 0 : write_of(s, row, b * T + t, h, i);
                    const int64_t at = ((b * T + t) * H + h) * row->S + i;
                    empty = (mark & DRA_MARK_RESET ? 1 : empty) * (1 - u);
                    expect_near((double)write[at], u, "write", t);
                    expect_near((double)full[at], mark & DRA_MARK_PAD ? 0 : 1 - empty, "occupancy",
                                t);
                }
            }
}

static void maps_show_what_happens(void **state)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_mixer_config c = rows[i].config;
        subject          bare = open_subject(&c, B, T);
        c.maps = true;
        subject         s = open_subject(&c, B, T);
        dra_reader     *r = open_reader(&s), *other = open_reader(&bare);
        dra_error       err = {0};
        dra_real        y[B * T * C];
        const dra_named in = {"x", s.x, B * T * C * sizeof *s.x};
        expect_ok(dra_reader_read(other, bare.start, T, marks, 1, &in, &err), &err);
        memcpy(y, dra_reader_result(other, "y"), sizeof y);
        expect_ok(dra_reader_read(r, s.start, T, marks, 1, &in, &err), &err);
        assert_true(relative_difference(B * T * C, dra_reader_result(r, "y"), y, 0) <= EQUAL);
        const int     items = dra_specs_find(s.t.module->state, "K");
        const bool    all = strcmp(how(&rows[i]), "slots-all") == 0 || c.a.joint == DRA_SLOTS_ALL;
        const int64_t width = (items < 0 ? 0 : s.start->at[items].rows) + rows[i].S * (all ? H : 1);
        const dra_real *map = dra_reader_result(r, "attention");
        const dra_real *write = dra_reader_result(r, "write");
        assert_non_null(map);
        expect_attention(&rows[i], &s, map, width, other);
        assert_int_equal(write != NULL, rows[i].keys && strcmp(rows[i].keys, "P") == 0);
        if (write) expect_writes(&rows[i], &s, write, dra_reader_result(r, "occupancy"));
        dra_reader_destroy(r);
        dra_reader_destroy(other);
        close_subject(&s);
        close_subject(&bare);
    }
}

/* ---- options of softmax reads ---------------------------------------------------------------- */

static const dra_mixer_config options[] = {
    {SIZES},
    {SIZES, .attention.topk = 2},
    {SIZES, .attention.topk = 2, .attention.topk_straight = true},
    {SIZES, .attention.hard = true},
    {SIZES, .attention.talk_before = true},
    {SIZES, .attention.talk_after = true},
    {SIZES, .attention.talk_before = true, .attention.talk_after = true, .attention.topk = 3,
     .attention.mem_kv = 2},
    {SIZES, .attention.mem_kv = 3},
    {SIZES, .attention.mem_kv = 1, .attention.hard = true},
    {SIZES, .attention.mem_kv = 2, .kv_heads = 1},
    {SIZES, .attention.residual_scores = true, .attention.mem_kv = 1},
    {SIZES, .attention_dropout = 0.5},
};

/* heads (C): the weights of one token times the learned values, then those of the items. */
static void read_values(const subject *s, const dra_mixer_config *c, const dra_real *map,
                        int64_t width, const dra_real *v, int64_t items, double heads[C])
{
    const int64_t   K = c->kv_heads ? c->kv_heads : H, m = c->attention.mem_kv;
    const int       at = dra_specs_find(s->t.module->params, "mem_v"); /* (K, m, D) */
    const dra_real *learned = at < 0 ? NULL : s->param[at];
    for (int h = 0; h < H; h++)
        for (int64_t e = 0; e < D; e++) {
            double       *y = &heads[h * D + e];
            const int64_t k = h / (H / K);
            *y = 0;
            for (int64_t j = 0; j < width; j++) {
                const double w = (double)map[h * T * width + j];
                if (j < m) *y += w * (double)learned[(k * m + j) * D + e];
                if (j >= m && j - m < items) *y += w * (double)v[((j - m) * K + k) * D + e];
                if (j - m >= items) assert_true(w == 0);
            }
        }
}

/* What is shown times what the state holds is the output, in the second of two parts. */
static void attention_times_values_is_the_output(void **state)
{
    for (size_t i = 0; i < COUNT(options); i++) {
        dra_mixer_config c = options[i];
        c.maps = true;
        subject     s = open_subject(&c, 1, T);
        dra_reader *r = open_reader(&s);
        dra_error   err = {0};
        dra_shape   shape;
        dra_real    v[256];
        double      heads[C];
        for (int part = 0; part < 2; part++)
            expect_ok(dra_reader_read(r, s.start, T, NULL, 1,
                                      &(dra_named){"x", s.x, T * C * sizeof *s.x}, &err),
                      &err);
        const dra_real *map = dra_reader_result(r, "attention"), *y = dra_reader_result(r, "y");
        const dra_real *w_o = s.param[dra_specs_find(s.t.module->params, "W_o")];
        assert_true(dra_reader_result_shape(r, "attention", &shape));
        read_state(s.start, s.t.module->state, "V", 0, v);
        for (int64_t t = 0; t < T; t++) {
            read_values(&s, &c, map + t * shape.dim[3], shape.dim[3], v, 2 * T, heads);
            for (int o = 0; o < C; o++) {
                double sum = 0;
                for (int k = 0; k < C; k++) sum += (double)w_o[o * C + k] * heads[k];
                expect_near((double)y[t * C + o], sum, "output", t);
            }
        }
        dra_reader_destroy(r);
        close_subject(&s);
    }
}

/* Of a plain softmax the weights are that of the scores; what is not seen is masked. */
static void scores_are_logits(void **state)
{
    const dra_mixer_config c = {SIZES, .attention.talk_before = true, .attention.mem_kv = 2,
                                .maps = true};
    subject                s = open_subject(&c, B, T);
    dra_reader            *r = open_reader(&s);
    dra_error              err = {0};
    dra_shape              shape;
    const dra_named        in = {"x", s.x, B * T * C * sizeof *s.x};
    expect_ok(dra_reader_read(r, s.start, T, marks, 1, &in, &err), &err);
    const dra_real *a = dra_reader_result(r, "attention"), *x = dra_reader_result(r, "scores");
    assert_true(dra_reader_result_shape(r, "scores", &shape));
    const int64_t J = shape.dim[3];
    assert_int_equal(dra_shape_count(&shape), B * H * T * J);
    for (int64_t q = 0; q < B * H * T; q++, a += J, x += J) {
        const int64_t t = q % T;
        double        sum = 0;
        for (int64_t j = 0; j < J; j++) sum += exp((double)x[j]);
        for (int64_t j = 0; j < J; j++) {
            const double want = sum > 0 ? exp((double)x[j]) / sum : 0;
            if (x[j] <= (dra_real)DRA_MASKED) assert_true(a[j] == 0);
            expect_near((double)a[j], want, "attention", t);
        }
        assert_int_equal(sum == 0, (marks[q / T / H * T + t] & DRA_MARK_PAD) != 0);
    }
    dra_reader_destroy(r);
    close_subject(&s);
}

/* Those of a blend carry its prefixes. */
static void blends_have_both(void **state)
{
    const dra_mixer_config c = {SIZES, .a = {"append"}, .blend = DRA_BLEND_LEARNED,
                                .b = {"slots", .slots.count = 2}, .maps = true};
    subject                s = open_subject(&c, B, T);
    dra_reader            *r = open_reader(&s);
    dra_error              err = {0};
    const dra_named        in = {"x", s.x, B * T * C * sizeof *s.x};
    expect_ok(dra_reader_read(r, s.start, T, NULL, 1, &in, &err), &err);
    assert_non_null(dra_reader_result(r, "a.attention"));
    assert_non_null(dra_reader_result(r, "b.attention"));
    assert_non_null(dra_reader_result(r, "b.occupancy"));
    assert_null(dra_reader_result(r, "a.write"));
    dra_reader_destroy(r);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_show_what_happens),
        cmocka_unit_test(attention_times_values_is_the_output),
        cmocka_unit_test(scores_are_logits),
        cmocka_unit_test(blends_have_both),
    };
    return check_main("maps", NULL, 0, tests, COUNT(tests));
}
