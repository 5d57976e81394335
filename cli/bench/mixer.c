/* Mixer layers as benchmarks, forward and backward, and the scans of running means and of wkv. */
#include "bench.h"

#include <stdlib.h>

static const dra_value none;

static dra_value real_input(bench_work *w, const char *name, dra_shape shape)
{
    return bench_value(w, dra_input, name, DRA_REAL, shape, -1, 1);
}

/* ---- mixers: size = C, H, B, T, of slots also S ---------------------------------------------- */

/* A parameter with numbers in the range of its initial ones. */
static dra_value param_input(bench_work *w, const dra_spec *p)
{
    double lo = p->number, hi = p->number;
    if (p->fill == DRA_FILL_NORMAL || p->fill == DRA_FILL_UNIFORM) lo = -p->number;
    if (p->fill == DRA_FILL_VALUES) {
        lo = hi = p->values[0];
        for (int64_t i = 1; i < dra_shape_count(&p->shape); i++) {
            if (p->values[i] < lo) lo = p->values[i];
            if (p->values[i] > hi) hi = p->values[i];
        }
    }
    return bench_value(w, dra_parameter, p->name, DRA_REAL, p->shape, lo, hi);
}

/* The layer on sequences that start here: y, and the gradients of x and all parameters. */
static void build_layer(bench_work *w, const dra_mixer *m, int64_t B, int64_t T, int64_t C)
{
    const dra_module *module = dra_mixer_module(m);
    const int         P = dra_specs_count(module->params), S = dra_specs_count(module->state);
    dra_value        *v = calloc((size_t)(1 + P + 2 * S), sizeof *v); /* x, parameters, states */
    dra_module_call   call = {.tokens = {.B = B, .T = T, .fresh = true, .n_items = 1}};
    if (!v) return; /* a graph without outputs is refused when it is compiled */
    call.param = v + 1;
    call.state = v + 1 + P;
    dra_causal_interval(w->graph, none, B, T, 0, &call.tokens.items[0].lo,
                        &call.tokens.items[0].hi);
    v[0] = real_input(w, "x", DRA_SHAPE(B, T, C));
    for (int i = 0; i < P; i++) v[1 + i] = param_input(w, dra_specs_at(module->params, i));
    dra_channels           channels = {0};
    const dra_mixer_result r = dra_mixer_build(w->graph, m, &call, v[0], &channels, v + 1 + P + S);
    bench_gradient(w, r.y, 1 + P, v);
    free(v);
}

/* FLOPs of a token, forward: four projections 2 C^2 each, and 2 C for each slot that is routed; for
 * each head 2 (3D) D for every product of cells with the input or a state, and attention 4 D for
 * every item its query reads. The backward pass takes twice that. Recomputation does not count, nor
 * does anything but products. */
static void build_mixer(bench_work *w, const int64_t *size, const dra_memory_config *a,
                        int64_t products, double items)
{
    const int64_t          C = size[0], H = size[1], B = size[2], T = size[3];
    const int64_t          S = a->slots.count;
    const double           D = (double)C / (double)H, routed = S > 1 ? (double)S : 0;
    const dra_mixer_config config = {.dim = C, .heads = H, .bias = true, .a = *a};
    dra_mixer             *m = NULL;
    if (dra_mixer_create(&config, &m, NULL) != DRA_OK) return;
    build_layer(w, m, B, T, C);
    dra_mixer_destroy(m);
    const double projections = 8 * (double)C * (double)C + 2 * (double)C * (double)H * routed;
    w->units = (double)(B * T);
    w->unit = "token";
    w->flops = 3 * w->units *
               (projections + (double)H * (6 * D * D * (double)products + 4 * D * items));
}

/* Attention over all items so far, (T + 1) / 2 on average for each token. */
static void build_over_time(bench_work *w, const int64_t *size, const char *memory,
                            int64_t products)
{
    build_mixer(w, size, &(dra_memory_config){memory}, products, 0.5 * (double)(size[3] + 1));
}

void bench_gru_time(bench_work *w, const int64_t *size) { build_over_time(w, size, "gru", 4); }
void bench_ema_time(bench_work *w, const int64_t *size) { build_over_time(w, size, "ema", 0); }
void bench_append_time(bench_work *w, const int64_t *size)
{
    build_over_time(w, size, "append", 0);
}
void bench_wkv_mixer(bench_work *w, const int64_t *size)
{
    build_mixer(w, size, &(dra_memory_config){"wkv"}, 0, 0);
}

/* Slots with gru candidates for keys and values; one is fixed, several are routed. */
static void build_slot_gru(bench_work *w, const int64_t *size, bool steps)
{
    const int64_t           H = size[1], S = size[4];
    const dra_memory_config config = {"slots", .retrieval = S > 1 ? "slots-own" : "slots-all",
                                      .slots.count = S, .slots.candidate = DRA_CANDIDATE_GRU,
                                      .steps = steps};
    build_mixer(w, size, &config, 2 * (1 + S), (double)(S > 1 ? S : H));
}

void bench_slot_gru(bench_work *w, const int64_t *size) { build_slot_gru(w, size, false); }
void bench_slot_gru_steps(bench_work *w, const int64_t *size) { build_slot_gru(w, size, true); }

/* ---- scans: size = B, T, channels ------------------------------------------------------------ */

static dra_value parameter_of(bench_work *w, const char *name, dra_shape shape, double lo,
                              double hi)
{
    return bench_value(w, dra_parameter, name, DRA_REAL, shape, lo, hi);
}

/* One timescale: x read, m written. */
static dra_value build_ema(bench_work *w, const int64_t *size, dra_value in[2])
{
    const int64_t B = size[0], T = size[1], N = size[2];
    in[0] = real_input(w, "x", DRA_SHAPE(B, T, N));
    in[1] = parameter_of(w, "beta", DRA_SHAPE(1, N), 0, 4);
    w->stream = (dra_bandwidth_config){1, 1, .bytes = (size_t)(B * T * N) * sizeof(dra_real)};
    return dra_ema(w->graph, in[0], in[1], none, none, none, NULL);
}

void bench_ema(bench_work *w, const int64_t *size)
{
    dra_value in[2];
    dra_output(w->graph, "y", build_ema(w, size, in));
}

void bench_ema_back(bench_work *w, const int64_t *size) /* reads x and dy, writes dx */
{
    dra_value in[2];
    bench_gradient(w, build_ema(w, size, in), 2, in);
    w->stream.reads = 2;
    w->forward = "ema";
}

void bench_ema_train(bench_work *w, const int64_t *size) /* both passes over memory */
{
    bench_ema_back(w, size);
    w->stream.reads++;
    w->stream.writes++;
    w->forward = NULL;
}

/* Four taps: x read, y written. */
static dra_value add_conv(bench_work *w, const int64_t *size, dra_value in[3])
{
    const int64_t B = size[0], T = size[1], N = size[2];
    in[0] = real_input(w, "x", DRA_SHAPE(B, T, N));
    in[1] = parameter_of(w, "w", DRA_SHAPE(N, 4), -1, 1);
    in[2] = parameter_of(w, "bias", DRA_SHAPE(N), -1, 1);
    w->stream = (dra_bandwidth_config){1, 1, .bytes = (size_t)(B * T * N) * sizeof(dra_real)};
    return dra_conv(w->graph, in[0], in[1], in[2], none, none, NULL);
}

void bench_conv(bench_work *w, const int64_t *size)
{
    dra_value in[3];
    dra_output(w->graph, "y", add_conv(w, size, in));
}

void bench_conv_back(bench_work *w, const int64_t *size) /* reads x and dy, writes dx */
{
    dra_value in[3];
    bench_gradient(w, add_conv(w, size, in), 3, in);
    w->stream.reads = 2;
    w->forward = "conv";
}

/* k and v read, y written. */
static dra_value build_wkv(bench_work *w, const int64_t *size, dra_value in[4])
{
    const int64_t   B = size[0], T = size[1], N = size[2];
    const dra_shape tokens = DRA_SHAPE(B, T, N), each = DRA_SHAPE(N);
    in[0] = real_input(w, "k", tokens);
    in[1] = real_input(w, "v", tokens);
    in[2] = parameter_of(w, "w", each, -2, -0.01);
    in[3] = parameter_of(w, "u", each, -1, 1);
    w->stream = (dra_bandwidth_config){2, 1, .bytes = (size_t)(B * T * N) * sizeof(dra_real)};
    return dra_wkv(w->graph, in[0], in[1], in[2], in[3], NULL, none, NULL);
}

void bench_wkv(bench_work *w, const int64_t *size)
{
    dra_value in[4];
    dra_output(w->graph, "y", build_wkv(w, size, in));
}

void bench_wkv_back(bench_work *w, const int64_t *size) /* reads k, v and dy, writes dk and dv */
{
    dra_value in[4];
    bench_gradient(w, build_wkv(w, size, in), 4, in);
    w->stream.reads = 3;
    w->stream.writes = 2;
    w->forward = "wkv";
}

void bench_wkv_train(bench_work *w, const int64_t *size)
{
    bench_wkv_back(w, size);
    w->stream.reads += 2;
    w->stream.writes++;
    w->forward = NULL;
}
