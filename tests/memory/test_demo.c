/* Attention as two demos compute it, against plain loops, and where it is refused. */
#include "plain.h"
#include "subject.h"

enum { B = 2, T = 9, C = 12, H = 3, D = 4, CALLS = 2 };

#define SIZES .dim = C, .heads = H, .bias = true

/* ---- by loops -------------------------------------------------------------------------------- */

typedef struct shared { /* what the literal demo keeps from call to call */
    double m[2][D];
} shared;

static void attend_to_all(const plain *p, const double *q, int64_t n, const double *K,
                          const double *V)
{
    double *y = plain_zeros(T * C);
    for (int64_t t = 0; t < T; t++) plain_attend(p, q + t * C, n, K, V, y + t * C);
    plain_output(p, y);
    free(y);
}

static void unmasked(const plain *p, bool gru)
{
    double *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double *v = plain_project(p, "W_v", "b_v");
    double *K = gru ? plain_states(p, "k", k) : k, *V = gru ? plain_states(p, "v", v) : v;
    attend_to_all(p, q, T, K, V);
    if (gru) free(K), free(V);
    free(q), free(k), free(v);
}

/* One state for all heads, updated by the last token in head after head; it is one more item. */
static void literal(const plain *p, shared *s)
{
    double *q = plain_project(p, "W_q", "b_q"), *kv[2];
    for (int i = 0; i < 2; i++) {
        double *x = plain_project(p, i ? "W_v" : "W_k", i ? "b_v" : "b_k");
        kv[i] = plain_zeros((T + 1) * C);
        memcpy(kv[i], x, sizeof(double) * T * C);
        for (int64_t h = 0; h < H; h++) {
            plain_cell(p, i ? "v" : "k", plain_param(p, "beta")[h], x + (T - 1) * C + h * D,
                       s->m[i]);
            memcpy(kv[i] + T * C + h * D, s->m[i], sizeof s->m[i]);
        }
        free(x);
    }
    attend_to_all(p, q, T + 1, kv[0], kv[1]);
    free(q), free(kv[0]), free(kv[1]);
}

/* ---- readings of a demo ---------------------------------------------------------------------- */

static plain open_plain(const subject *s)
{
    plain p = {.specs = s->t.module->params, .T = T, .C = C, .H = H, .D = D};
    for (int i = 0; i < params_of(s); i++) {
        const int64_t n = dra_shape_count(&param_spec(s, i)->shape);
        p.param[i] = plain_zeros(n);
        for (int64_t k = 0; k < n; k++) p.param[i][k] = (double)s->param[i][k];
    }
    return p;
}

/* The same tokens in every call; the literal demo differs from call to call. */
static void expect_loops(const dra_mixer_config *config)
{
    subject     s = open_subject(config, B, T);
    plain       p = open_plain(&s);
    dra_reader *r = open_reader(&s);
    shared      memory[B] = {0};
    dra_error   err = {0};
    double      x[B * T * C], y[B * T * C];
    const bool  is_literal = config->a.demo == DRA_DEMO_LITERAL;
    for (int i = 0; i < B * T * C; i++) x[i] = (double)s.x[i];
    for (int call = 0; call < (is_literal ? CALLS : 1); call++) {
        const dra_named in = {"x", s.x, sizeof(dra_real) * B * T * C};
        expect_ok(dra_reader_read(r, s.start, T, NULL, 1, &in, &err), &err);
        for (int b = 0; b < B; b++) {
            p.x = x + b * T * C, p.y = y + b * T * C;
            if (is_literal)
                literal(&p, &memory[b]);
            else
                unmasked(&p, config->a.memory != NULL);
        }
        check_close("y", B * T * C, dra_reader_result(r, "y"), y, EQUAL);
    }
    for (int i = 0; i < params_of(&s); i++) free(p.param[i]);
    dra_reader_destroy(r);
    close_subject(&s);
}

static const dra_mixer_config literal_demo = {
    SIZES, .a = {"gru", .retrieval = "joint", .demo = DRA_DEMO_LITERAL}};
static const dra_mixer_config unmasked_demo = {SIZES, .a = {"gru", .demo = DRA_DEMO_UNMASKED}};

static void demos_are_their_loops(void **state)
{
    expect_loops(&literal_demo);
    expect_loops(&unmasked_demo);
    expect_loops(&(dra_mixer_config){SIZES, .a = {.demo = DRA_DEMO_UNMASKED}});
}

/* ---- where there are none -------------------------------------------------------------------- */

static void refuses_other_memories(void **state)
{
    static const char need[] = "demo literal is gru with retrieval joint, but";
    const struct {
        dra_mixer_config config;
        const char      *memory, *text;
    } cases[] = {
        {{SIZES, .a = {"lstm", .retrieval = "joint"}}, "lstm", "memory is not gru"},
        {{SIZES, .a = {"gru"}}, "gru", "retrieval is not joint"},
        {{SIZES, .a = {"gru", .retrieval = "joint", .window = 3}}, "gru", "window is not 0"},
        {{SIZES, .a = {"gru", .retrieval = "joint", .joint = DRA_SLOTS_ALL}},
         "gru",
         "joint is not own"},
        {{SIZES, .a = {"gru", .retrieval = "joint", .joined = true}}, "gru", "the state is joined"},
        {{SIZES, .a = {"gru", .retrieval = "joint", .per_head = true}}, "gru", "per_head is set"},
    };
    dra_mixer *m = NULL;
    dra_error  err = {0};
    char       text[160];
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_mixer_config c = cases[i].config;
        c.a.demo = DRA_DEMO_LITERAL;
        snprintf(text, sizeof text, "%s: %s %s", cases[i].memory, need, cases[i].text);
        expect_refused(dra_mixer_create(&c, &m, &err), &err, DRA_ERR_VALUE, text);
    }
    dra_mixer_config c = unmasked_demo;
    c.a.retrieval = "joint";
    expect_refused(dra_mixer_create(&c, &m, &err), &err, DRA_ERR_VALUE,
                   "gru: demo unmasked needs retrieval time, found joint");
    c = unmasked_demo;
    c.a.demo = (dra_demo_kind)3;
    expect_refused(dra_mixer_create(&c, &m, &err), &err, DRA_ERR_VALUE,
                   "gru: demo is 3, expected 0 to 2");
    c = unmasked_demo;
    c.aux = 1u << DRA_AUX_SIZE;
    expect_refused(dra_mixer_create(&c, &m, &err), &err, DRA_ERR_VALUE,
                   "gru: demo unmasked is for reading, found add-ons of a loss");
    c = unmasked_demo;
    c.blend = DRA_BLEND_LEARNED, c.b = (dra_memory_config){"ema"};
    expect_refused(dra_mixer_create(&c, &m, &err), &err, DRA_ERR_VALUE,
                   "gru: demo unmasked has one memory, found a blend");
}

static void build_learning(dra_graph *g, const void *self, const dra_module_call *call,
                           dra_value *state_out)
{
    dra_module_call learning = *call;
    const dra_value x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(B, T, C));
    dra_channels    channels = {0};
    learning.learning = true;
    dra_output(g, "y", dra_mixer_build(g, self, &learning, x, &channels, state_out).y);
}

static void refuses_gradients_and_marks(void **state)
{
    const dra_mixer_config *demos[] = {&literal_demo, &unmasked_demo};
    for (size_t i = 0; i < COUNT(demos); i++) {
        subject         s = open_subject(demos[i], B, T);
        dra_reader     *r = open_reader(&s);
        dra_error       err = {0};
        const int32_t   marks[B * T] = {0, 0, DRA_MARK_RESET};
        const dra_named in = {"x", s.x, sizeof(dra_real) * B * T * C};
        dra_graph      *g = NULL;
        expect_refused(dra_reader_read(r, s.start, T, marks, 1, &in, &err), &err, DRA_ERR_VALUE,
                       "gru: a demo is for reading, without pads and resets");
        dra_module learning = *s.t.module;
        learning.build = build_learning, learning.self = dra_sublayer_mixer(s.sublayer);
        expect_ok(dra_graph_create(&g, &err), &err);
        dra_module_graph(g, &learning, &(dra_module_shape){.B = B, .T = T, .fresh = true}, NULL,
                         NULL, NULL);
        assert_non_null(dra_graph_error(g));
        err = *dra_graph_error(g);
        expect_refused(err.code, &err, DRA_ERR_VALUE,
                       "gru: a demo is for reading, without gradients");
        dra_graph_destroy(g);
        dra_reader_destroy(r);
        close_subject(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demos_are_their_loops),
        cmocka_unit_test(refuses_other_memories),
        cmocka_unit_test(refuses_gradients_and_marks),
    };
    return check_main("demo", NULL, 0, tests, COUNT(tests));
}
