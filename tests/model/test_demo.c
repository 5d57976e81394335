/* A model with demo literal against examples/08_gpt2_adr.c, which builds the ADR demo by itself and
 * which `make parity` compares with PyTorch: the same weights, the same logits. And what the demos
 * let a token see. */
#include <math.h>

#include "check.h"

#define main example_main
#include "../../examples/08_gpt2_adr.c"
#undef main

#ifdef DRA_REAL_DOUBLE
#define EQUAL 1e-12
#else
#define EQUAL 2e-5 /* two layers, and a state mixed as m + r (c - m), not as two products */
#endif

static void expect_ok(dra_status st, const dra_error *e)
{
    if (st != DRA_OK) fail_msg("%s", e->text);
}

typedef struct reading {
    dra_model   *model;
    dra_weights *weights;
    dra_device  *device;
} reading;

static void open_model(reading *r, const demo *d, const char *memory, const char *retrieval,
                       dra_demo_kind kind)
{
    const dra_model_config c = {
        .vocab = d->V,
        .dim = d->C,
        .depth = d->L,
        .heads = d->H,
        .context = MOST,
        .positions = DRA_POSITIONS_LEARNED,
        .norm = DRA_NORM_LAYER,
        .bias = true,
        .tied = DRA_OFF,
        .ff = {DRA_FF_ERF},
        .mixers = 1,
        .mixer = {{.a = {memory, .retrieval = retrieval, .demo = kind,
                         .gamma = {.start = DRA_GAMMA_CONST, .value = decay}}}}};
    dra_error e = {0};
    expect_ok(dra_model_create(&c, &r->model, &e), &e);
    expect_ok(dra_weights_draw(r->model, 1, &r->weights, &e), &e);
    expect_ok(check_cpu(NULL, &r->device, &e), &e);
}

static void close_model(reading *r)
{
    dra_weights_destroy(r->weights);
    dra_model_destroy(r->model);
    dra_device_destroy(r->device);
}

/* Logits (T, V) of one text. */
static void read_text(const reading *r, int64_t T, const int32_t *ids, dra_real *logits)
{
    const dra_view   view = {.model = r->model, .logits = true};
    const dra_module module = dra_view_module(&view);
    const dra_named  in = {"ids", ids, (size_t)T * sizeof *ids};
    const int64_t    V = dra_model_config_of(r->model)->vocab;
    dra_reader      *reader = NULL;
    dra_states      *states = NULL;
    dra_error        e = {0};
    expect_ok(dra_reader_create(r->device, &module, &reader, &e), &e);
    expect_ok(dra_weights_bind(r->weights, reader, &e), &e);
    expect_ok(dra_states_create(r->device, dra_model_state(r->model), 1, &states, &e), &e);
    expect_ok(dra_reader_read(reader, states, T, NULL, 1, &in, &e), &e);
    memcpy(logits, dra_reader_result(reader, "logits"), (size_t)(T * V) * sizeof *logits);
    dra_states_destroy(states);
    dra_reader_destroy(reader);
}

/* ---- the names of the demo ------------------------------------------------------------------- */

static const char *const outer[][2] = {{"embed.weight", "embedding"},
                                       {"pos_embed.weight", "positions"},
                                       {"ln_f.weight", "norm_g"},
                                       {"ln_f.bias", "norm_b"},
                                       {"lm_head.weight", "head"}};
static const char *const inner[][2] = {{"ln_1.weight", "mixer.norm_g"},
                                       {"ln_1.bias", "mixer.norm_b"},
                                       {"attn.q_proj.weight", "mixer.W_q"},
                                       {"attn.q_proj.bias", "mixer.b_q"},
                                       {"attn.k_proj.weight", "mixer.W_k"},
                                       {"attn.k_proj.bias", "mixer.b_k"},
                                       {"attn.v_proj.weight", "mixer.W_v"},
                                       {"attn.v_proj.bias", "mixer.b_v"},
                                       {"attn.out_proj.weight", "mixer.W_o"},
                                       {"attn.out_proj.bias", "mixer.b_o"},
                                       {"attn.k_mem.gru.weight_ih", "mixer.k_W_ih"},
                                       {"attn.k_mem.gru.weight_hh", "mixer.k_W_hh"},
                                       {"attn.k_mem.gru.bias_ih", "mixer.k_b_ih"},
                                       {"attn.k_mem.gru.bias_hh", "mixer.k_b_hh"},
                                       {"attn.v_mem.gru.weight_ih", "mixer.v_W_ih"},
                                       {"attn.v_mem.gru.weight_hh", "mixer.v_W_hh"},
                                       {"attn.v_mem.gru.bias_ih", "mixer.v_b_ih"},
                                       {"attn.v_mem.gru.bias_hh", "mixer.v_b_hh"},
                                       {"ln_2.weight", "ff.norm_g"},
                                       {"ln_2.bias", "ff.norm_b"},
                                       {"mlp.0.weight", "ff.W_up"},
                                       {"mlp.0.bias", "ff.b_up"},
                                       {"mlp.2.weight", "ff.W_down"},
                                       {"mlp.2.bias", "ff.b_down"}};

static void our_name(const char *theirs, char ours[64])
{
    *ours = '\0';
    for (size_t i = 0; i < COUNT(outer); i++)
        if (strcmp(theirs, outer[i][0]) == 0) snprintf(ours, 64, "%s", outer[i][1]);
    if (strncmp(theirs, "blocks.", 7) != 0) return;
    for (size_t i = 0; i < COUNT(inner); i++) /* blocks.L.NAME, with one digit */
        if (strcmp(theirs + 9, inner[i][0]) == 0)
            snprintf(ours, 64, "layers.%c.%s", theirs[7], inner[i][1]);
}

static void copy_weights(const demo *d, const reading *r)
{
    const dra_specs *specs = dra_model_params(r->model);
    int              own = 0; /* the decays are the model's own: all are 0.97 */
    for (int i = 0; i < d->n; i++) {
        char name[64];
        our_name(d->w[i].name, name);
        const int at = dra_specs_find(specs, name);
        if (at < 0) fail_msg("%s is called %s", d->w[i].name, name);
        assert_int_equal(dra_shape_count(&dra_specs_at(specs, at)->shape), d->w[i].count);
        memcpy(dra_weights_edit(r->weights, at), d->w[i].data,
               d->w[i].count * sizeof *d->w[i].data);
    }
    for (int i = 0; i < dra_specs_count(specs); i++) own += dra_specs_at(specs, i)->decay;
    assert_int_equal(d->n + own, dra_specs_count(specs));
}

/* ---- tests ----------------------------------------------------------------------------------- */

enum { T = 8, V = 13 };

static int32_t text[T] = {3, 1, 4, 1, 5, 9, 2, 6};

static void literal_is_the_example(void **state)
{
    static demo d = {.T = T, .V = V, .C = 16, .D = 8, .H = 2, .L = 2};
    dra_real    expected[2 * T * V], found[T * V];
    double      exact[T * V];
    reading     r = {0};
    expect_ok(dra_graph_create(&d.g, &err), &err);
    build(&d);
    call_twice(&d, text, expected);
    open_model(&r, &d, "gru", "joint", DRA_DEMO_LITERAL);
    copy_weights(&d, &r);
    read_text(&r, T, text, found);
    for (int i = 0; i < T * V; i++) exact[i] = (double)expected[i];
    check_close("logits", T * V, found, exact, EQUAL);
    close_model(&r);
    for (int i = 0; i < d.n; i++) free(d.w[i].data);
    dra_graph_destroy(d.g);
}

/* The first token sees the last; with the causal form it does not. */
static void tokens_see_what_follows(void **state)
{
    static const demo size = {.V = V, .C = 16, .D = 8, .H = 2, .L = 2};
    static const struct {
        const char   *retrieval;
        dra_demo_kind kind;
    } cases[] = {{"joint", DRA_DEMO_LITERAL},
                 {"time", DRA_DEMO_UNMASKED},
                 {"joint", DRA_DEMO_NONE},
                 {"time", DRA_DEMO_NONE}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_real logits[2][T * V];
        int32_t  other[T];
        reading  r = {0};
        memcpy(other, text, sizeof other);
        other[T - 1] = 7;
        open_model(&r, &size, "gru", cases[i].retrieval, cases[i].kind);
        read_text(&r, T, text, logits[0]);
        read_text(&r, T, other, logits[1]);
        const bool same = memcmp(logits[0], logits[1], sizeof(dra_real) * V) == 0;
        assert_true(same == (cases[i].kind == DRA_DEMO_NONE));
        close_model(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(literal_is_the_example),
        cmocka_unit_test(tokens_see_what_follows),
    };
    return check_main("demo", NULL, 0, tests, COUNT(tests));
}
