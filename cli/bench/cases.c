/* The cases of `dra bench`. A builder makes the graph and says what a run costs: `flops` by
 * formula, and the bytes that any implementation has to read and write. */
#include "bench.h"
#include "options/options.h"

#include <stdio.h>
#include <string.h>

static const dra_value none;

static dra_value real_input(bench_work *w, const char *name, dra_shape shape)
{
    return bench_value(w, dra_input, name, DRA_REAL, shape, -1, 1);
}

static dra_value gain_param(bench_work *w, const char *name, int64_t n)
{
    return bench_value(w, dra_parameter, name, DRA_REAL, DRA_SHAPE(n), 0.5, 1.5);
}

static size_t bytes_of(int64_t count) { return (size_t)count * sizeof(dra_real); }

void bench_gradient(bench_work *w, dra_value y, int n, const dra_value *x)
{
    dra_value dx[BENCH_GRADIENTS], dy = real_input(w, "dy", dra_shape_of(w->graph, y));
    char      name[16];
    dra_output(w->graph, "y", y);
    dra_gradient(w->graph, 1, &y, &dy, n, x, dx);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "dx%d", i);
        dra_output(w->graph, name, dx[i]);
    }
}

/* ---- products: 2 M N K ----------------------------------------------------------------------- */

/* size: M, N, K, weights stored (N, K). */
static void build_product_of(bench_work *w, const int64_t *size, dra_dtype dtype)
{
    const int64_t   M = size[0], N = size[1], K = size[2];
    const size_t    weights = bench_bytes(dtype, (size_t)(N * K));
    const dra_value x = real_input(w, "x", DRA_SHAPE(M, K));
    const dra_value p = bench_value(w, dra_parameter, "w", dtype, DRA_SHAPE(N, K), -1, 1);
    dra_output(w->graph, "y", dra_linear(w->graph, x, p, none));
    w->flops = 2.0 * (double)M * (double)N * (double)K;
    w->stream = (dra_bandwidth_config){.reads = 1, .bytes = bytes_of(M * K + M * N) + weights};
}

static void build_product(bench_work *w, const int64_t *size)
{
    build_product_of(w, size, DRA_REAL);
    memcpy(w->product, (const int64_t[]){1, size[0], size[1], size[2]}, sizeof w->product);
}

/* Weights stored in bf16, multiplied in full precision. */
static void build_product_stored(bench_work *w, const int64_t *size)
{
    build_product_of(w, size, DRA_BF16);
}

/* Weights in blocks of 8, 4, 5 or 6 bits. */
static void build_product_q8_0(bench_work *w, const int64_t *size)
{
    build_product_of(w, size, DRA_Q8_0);
}
static void build_product_q4_0(bench_work *w, const int64_t *size)
{
    build_product_of(w, size, DRA_Q4_0);
}
static void build_product_q5_1(bench_work *w, const int64_t *size)
{
    build_product_of(w, size, DRA_Q5_1);
}
static void build_product_q6_k(bench_work *w, const int64_t *size)
{
    build_product_of(w, size, DRA_Q6_K);
}

/* Activations in blocks of 8 bits too. */
static void build_product_q8_q8_0(bench_work *w, const int64_t *size)
{
    bench_precision(w, DRA_PRECISION_Q8);
    build_product_of(w, size, DRA_Q8_0);
}

static void build_product_q8_q4_0(bench_work *w, const int64_t *size)
{
    bench_precision(w, DRA_PRECISION_Q8);
    build_product_of(w, size, DRA_Q4_0);
}

static void build_product_bf16(bench_work *w, const int64_t *size)
{
    bench_precision(w, DRA_PRECISION_BF16);
    build_product_of(w, size, DRA_REAL);
}

/* size: how many, M, N, K; both sides are inputs, the second one stored (N, K). */
static void build_products(bench_work *w, const int64_t *size)
{
    const int64_t   S = size[0], M = size[1], N = size[2], K = size[3];
    const dra_value a = real_input(w, "a", DRA_SHAPE(S, M, K));
    const dra_value b = real_input(w, "b", DRA_SHAPE(S, N, K));
    dra_output(w->graph, "y", dra_matmul(w->graph, a, dra_transpose(w->graph, b, 1, 2)));
    w->flops = 2.0 * (double)(S * M) * (double)N * (double)K;
    w->stream = (dra_bandwidth_config){.reads = 1, .bytes = bytes_of(S * (M * K + N * K + M * N))};
    memcpy(w->product, (const int64_t[]){S, M, N, K}, sizeof w->product);
}

static void build_products_bf16(bench_work *w, const int64_t *size)
{
    bench_precision(w, DRA_PRECISION_BF16);
    build_products(w, size);
    memset(w->product, 0, sizeof w->product); /* the peer has no such product */
}

/* ---- attention: visible pairs only ----------------------------------------------------------- */

/* size: B, H, T, D. Forward: q k^T and w v, 2 D each for a pair. */
static dra_value build_causal(bench_work *w, const int64_t *size, dra_value *in)
{
    const int64_t B = size[0], H = size[1], T = size[2], D = size[3];
    const char   *names[] = {"q", "k", "v"};
    dra_value     lo, hi;
    for (int i = 0; i < 3; i++) in[i] = real_input(w, names[i], DRA_SHAPE(B, H, T, D));
    dra_causal_interval(w->graph, none, B, T, 0, &lo, &hi);
    w->flops = (double)(B * H) * 0.5 * (double)T * (double)(T + 1) * 4 * (double)D;
    return dra_attend(w->graph, in[0], in[1], in[2], &(dra_attend_config){.lo = lo, .hi = hi});
}

static void build_attention(bench_work *w, const int64_t *size)
{
    dra_value in[3];
    dra_output(w->graph, "y", build_causal(w, size, in));
}

/* Backward: dv, dw, dq, dk, 2 D each; recomputing the weights does not count. */
static void build_attention_train(bench_work *w, const int64_t *size)
{
    dra_value       in[3];
    const dra_value y = build_causal(w, size, in);
    bench_gradient(w, y, 3, in);
    w->flops *= 3;
}

/* size: tokens, H, S, D. Each head's query reads its own slots, which are different for each
 * token. */
static dra_value build_slots(bench_work *w, const int64_t *size, dra_value *in)
{
    const int64_t N = size[0], H = size[1], S = size[2], D = size[3];
    in[0] = real_input(w, "q", DRA_SHAPE(N, H, 1, D));
    in[1] = real_input(w, "k", DRA_SHAPE(N, H, S, D));
    in[2] = real_input(w, "v", DRA_SHAPE(N, H, S, D));
    w->flops = 4.0 * (double)(N * H * S * D);
    w->stream = (dra_bandwidth_config){.reads = 2, .bytes = bytes_of(N * H * S * D)};
    return dra_attend(w->graph, in[0], in[1], in[2], &(dra_attend_config){.path = DRA_ATTEND_FEW});
}

static void build_slot_read(bench_work *w, const int64_t *size)
{
    dra_value in[3];
    dra_output(w->graph, "y", build_slots(w, size, in));
}

static void build_slot_read_back(bench_work *w, const int64_t *size)
{
    dra_value       in[3];
    const dra_value y = build_slots(w, size, in);
    bench_gradient(w, y, 3, in);
    w->flops *= 2;
    w->stream.writes = 2;
    w->forward = "attend_small";
}

/* ---- recurrences: 2 3D D forward for each row and token of a gru, twice that back ------------ */

/* size: B, T, H, D. Two cells, as for keys and values; in: x and w of each. */
static void build_gru_cells(bench_work *w, const int64_t *size, dra_value *in, dra_value *h)
{
    const int64_t      B = size[0], T = size[1], H = size[2], D = size[3];
    static const char *names[] = {"k", "w k", "v", "w v"};
    dra_gru_cell       cell[2] = {{.x = none}};
    for (int i = 0; i < 2; i++) {
        cell[i].x = in[2 * i] = real_input(w, names[2 * i], DRA_SHAPE(B, T, H, 3 * D));
        cell[i].w = in[2 * i + 1] = bench_value(w, dra_parameter, names[2 * i + 1], DRA_REAL,
                                                DRA_SHAPE(3 * D, D), -0.125, 0.125);
    }
    dra_gru(w->graph, 2, cell, none, h, NULL);
    w->flops = 2 * 2.0 * (double)(3 * D * D) * (double)(B * T * H);
}

static void build_gru(bench_work *w, const int64_t *size)
{
    dra_value in[4], h[2];
    build_gru_cells(w, size, in, h);
    for (int i = 0; i < 2; i++) dra_output(w->graph, i ? "h v" : "h k", h[i]);
}

static void build_gru_train(bench_work *w, const int64_t *size)
{
    static const char *names[] = {"dk", "dw k", "dv", "dw v"};
    dra_value          in[4], h[2], dh[2], d[4];
    build_gru_cells(w, size, in, h);
    for (int i = 0; i < 2; i++)
        dh[i] = real_input(w, i ? "dh v" : "dh k", dra_shape_of(w->graph, h[i]));
    dra_gradient(w->graph, 2, h, dh, 4, in, d);
    for (int i = 0; i < 4; i++) dra_output(w->graph, names[i], d[i]);
    w->flops *= 3;
}

static void build_gru_back(bench_work *w, const int64_t *size)
{
    build_gru_train(w, size);
    w->flops *= 2.0 / 3;
    w->forward = "gru";
}

/* ---- rows: size = rows, C -------------------------------------------------------------------- */

static dra_value input_rows(bench_work *w, const int64_t *size)
{
    w->stream = (dra_bandwidth_config){
        .reads = 1, .writes = 1, .bytes = bytes_of(size[0] * size[1])};
    return real_input(w, "x", DRA_SHAPE(size[0], size[1]));
}

static void build_add(bench_work *w, const int64_t *size)
{
    const dra_value x = input_rows(w, size);
    dra_output(w->graph, "y",
               dra_add(w->graph, x, real_input(w, "z", DRA_SHAPE(size[0], size[1]))));
    w->stream.reads = 2;
}

static void build_gelu(bench_work *w, const int64_t *size)
{
    dra_output(w->graph, "y", dra_gelu(w->graph, input_rows(w, size)));
}

static void build_gelu_tanh(bench_work *w, const int64_t *size)
{
    dra_output(w->graph, "y", dra_gelu_tanh(w->graph, input_rows(w, size)));
}

static void build_swiglu(bench_work *w, const int64_t *size) /* size: rows, 2 C */
{
    dra_output(w->graph, "y", dra_glu(w->graph, input_rows(w, size), DRA_ACT_SILU));
    w->stream = (dra_bandwidth_config){.reads = 2, .writes = 1, .bytes = w->stream.bytes / 2};
}

static void build_layer_norm(bench_work *w, const int64_t *size)
{
    const dra_value x = input_rows(w, size), g = gain_param(w, "w", size[1]),
                    b = gain_param(w, "b", size[1]);
    dra_output(w->graph, "y", dra_layer_norm(w->graph, x, g, b, 1e-5));
}

static void build_rms_norm(bench_work *w, const int64_t *size)
{
    const dra_value x = input_rows(w, size);
    dra_output(w->graph, "y", dra_rms_norm(w->graph, x, gain_param(w, "w", size[1]), 1e-5));
}

/* Like the gradient of a bias. */
static void build_sum_rows(bench_work *w, const int64_t *size)
{
    const dra_value x = input_rows(w, size);
    dra_output(w->graph, "y", dra_sum(w->graph, x, (dra_axes){1, {0}, false}));
    w->stream.writes = 0;
}

static void build_softmax(bench_work *w, const int64_t *size)
{
    dra_output(w->graph, "y", dra_softmax(w->graph, input_rows(w, size)));
}

/* Gradients read dy and x (or y) and write dx. */
static void build_layer_norm_back(bench_work *w, const int64_t *size)
{
    const dra_value in[] = {input_rows(w, size), gain_param(w, "w", size[1]),
                            gain_param(w, "b", size[1])};
    bench_gradient(w, dra_layer_norm(w->graph, in[0], in[1], in[2], 1e-5), 3, in);
    w->stream.reads = 2;
    w->forward = "norm_gain";
}

static void build_rms_norm_back(bench_work *w, const int64_t *size)
{
    const dra_value in[] = {input_rows(w, size), gain_param(w, "w", size[1])};
    bench_gradient(w, dra_rms_norm(w->graph, in[0], in[1], 1e-5), 2, in);
    w->stream.reads = 2;
    w->forward = "norm_gain";
}

static void build_softmax_back(bench_work *w, const int64_t *size)
{
    const dra_value x = input_rows(w, size);
    bench_gradient(w, dra_softmax(w->graph, x), 1, &x);
    w->stream.reads = 2;
    w->forward = "softmax";
}

static dra_value build_losses(bench_work *w, const int64_t *size, dra_value logits)
{
    const dra_value target = bench_value(w, dra_input, "target", DRA_I32, DRA_SHAPE(size[0]), 0,
                                         (double)size[1]);
    return dra_token_losses(w->graph, logits, target, NULL);
}

static void build_cross_entropy(bench_work *w, const int64_t *size)
{
    dra_output(w->graph, "y", build_losses(w, size, input_rows(w, size)));
    w->stream.writes = 0;
}

static void build_cross_entropy_back(bench_work *w, const int64_t *size)
{
    const dra_value logits = input_rows(w, size);
    bench_gradient(w, build_losses(w, size, logits), 1, &logits);
    w->forward = "token_losses";
}

static void build_rotary(bench_work *w, const int64_t *size) /* size: B, H, T, D */
{
    const int64_t   B = size[0], H = size[1], T = size[2], D = size[3];
    const dra_value x = real_input(w, "x", DRA_SHAPE(B, H, T, D));
    const dra_value pos = dra_broadcast(w->graph, dra_arange(w->graph, T), DRA_SHAPE(B, T));
    dra_output(w->graph, "y", dra_rotary(w->graph, x, pos, NULL));
    w->stream = (dra_bandwidth_config){.reads = 1, .writes = 1, .bytes = bytes_of(B * H * T * D)};
}

/* ---- optimizer: size = elements -------------------------------------------------------------- */

static void build_global_norm(bench_work *w, const int64_t *size)
{
    const dra_value x = real_input(w, "x", DRA_SHAPE(size[0]));
    dra_output(w->graph, "y", dra_global_norm(w->graph, 1, &x));
    w->stream = (dra_bandwidth_config){.reads = 1, .bytes = bytes_of(size[0])};
}

static void build_adamw(bench_work *w, const int64_t *size)
{
    static const dra_adamw_config config = {0.9, 0.95, 1e-8, 0.1};
    dra_graph                    *g = w->graph;
    const dra_shape               shape = DRA_SHAPE(size[0]), scalar = {0};
    const dra_value               dp = real_input(w, "dp", shape);
    const dra_value               p = bench_value(w, dra_parameter, "p", DRA_REAL, shape, -1, 1);
    const dra_value               m = bench_value(w, dra_state, "m", DRA_REAL, shape, -1, 1);
    const dra_value               v = bench_value(w, dra_state, "v", DRA_REAL, shape, 0, 1);
    const dra_value        rate = bench_value(w, dra_input, "rate", DRA_REAL, scalar, 1e-4, 1e-4);
    const dra_value        s = bench_value(w, dra_input, "s", DRA_REAL, scalar, 1, 1);
    const dra_value        t = bench_value(w, dra_input, "t", DRA_I32, scalar, 100, 100);
    const dra_adamw_result r = dra_adamw(g, p, dp, m, v, rate, s, t, &config);
    dra_donate(g, "new p", r.p, p);
    dra_donate(g, "new m", r.m, m);
    dra_donate(g, "new v", r.v, v);
    w->stream = (dra_bandwidth_config){.reads = 1, .updates = 3, .bytes = bytes_of(size[0])};
}

/* ---- executor -------------------------------------------------------------------------------- */

static void build_chain(bench_work *w, const int64_t *size) /* size: nodes, elements */
{
    dra_value x = real_input(w, "x", DRA_SHAPE(size[1]));
    for (int64_t i = 0; i < size[0]; i++) x = dra_copy(w->graph, x); /* copies are not fused */
    dra_output(w->graph, "y", x);
    w->units = (double)size[0];
    w->unit = "node";
}

/* size: nodes of each kind, elements of small and of large nodes. Large nodes use all threads, and
 * small ones in between find the threads awake or asleep. */
static void build_mixed(bench_work *w, const int64_t *size)
{
    dra_value small = real_input(w, "small", DRA_SHAPE(size[1]));
    dra_value large = real_input(w, "large", DRA_SHAPE(size[2]));
    for (int64_t i = 0; i < size[0]; i++) {
        small = dra_copy(w->graph, small);
        large = dra_copy(w->graph, large);
    }
    dra_output(w->graph, "small y", small);
    dra_output(w->graph, "large y", large);
    w->units = (double)size[0];
    w->unit = "node";
}

static void build_large_only(bench_work *w, const int64_t *size)
{
    build_chain(w, (const int64_t[]){size[0], size[2]});
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void build_gpt_bf16(bench_work    *w,
                           const int64_t *size) /* attention stays in full precision */
{
    bench_precision(w, DRA_PRECISION_BF16);
    bench_gpt(w, size);
}

static void build_gpt_tf32(bench_work *w, const int64_t *size)
{
    bench_precision(w, DRA_PRECISION_TF32);
    bench_gpt(w, size);
}

/* ---- all of them ----------------------------------------------------------------------------- */

enum { KI = 1024, MI = 1024 * KI }; /* 32 Mi elements are 128 MiB: four times the largest cache */

/* Bars: percent of the limit, percent of the speed of the peer or of the same work in full
 * precision, most microseconds a node. */
#define LIMIT(percent) .bar = {BENCH_LIMIT, percent}
#define PEER(percent) .bar = {BENCH_PEER, percent}
#define FULL(percent, work) .bar = {BENCH_PEER, percent}, .rival = work
/* Compared with attention over the same tokens, forward and backward. */
#define ATTENTION .bar = {BENCH_PEER, 100}, .rival = build_attention_train
/* Training compared with a model with softmax attention. */
#define SOFTMAX(percent) .bar = {BENCH_PEER, percent}, .rival = bench_train_softmax, .slow = true
#define NODE(most) .bar = {BENCH_NODE, most}

/* clang-format off */
const bench_case bench_cases[] = {
    {"limits", "limits", "peak and bandwidth alone", NULL},

    {"matmul-2048x768x768", "products", "M x N x K, weights (N, K)",
     build_product, {2048, 768, 768}, PEER(95)},
    {"matmul-2048x3072x768", "products", "the same", build_product, {2048, 3072, 768}, PEER(95)},
    {"matmul-2048x768x3072", "products", "the same", build_product, {2048, 768, 3072}, PEER(95)},
    {"matmul-512x384x384", "products", "the same", build_product, {512, 384, 384}, PEER(95)},
    {"matmul-48x64x64x1024", "products", "48 of 64 x 64 x 1024",
     build_products, {48, 64, 64, 1024}, PEER(95)},
    {"matmul-1x3072x768", "products", "one row", build_product, {1, 3072, 768}, PEER(95)},
    {"matmul-1x50257x768", "products", "one row, GPT-2's head",
     build_product, {1, 50257, 768}, PEER(95)},

    {"bf16-2048x768x768", "bf16", "the products in bf16",
     build_product_bf16, {2048, 768, 768}, FULL(185, build_product)},
    {"bf16-2048x3072x768", "bf16", "the same",
     build_product_bf16, {2048, 3072, 768}, FULL(185, build_product)},
    {"bf16-2048x768x3072", "bf16", "the same",
     build_product_bf16, {2048, 768, 3072}, FULL(185, build_product)},
    {"bf16-512x384x384", "bf16", "the same",
     build_product_bf16, {512, 384, 384}, FULL(185, build_product)},
    {"bf16-48x64x64x1024", "bf16", "48 of 64 x 64 x 1024",
     build_products_bf16, {48, 64, 64, 1024}, FULL(185, build_products)},
    {"q8_0-1x50257x768", "quantised", "one row, blocks of 8 bits, GPT-2's head",
     build_product_q8_0, {1, 50257, 768}, LIMIT(80)},
    {"q4_0-1x50257x768", "quantised", "the same, blocks of 4 bits",
     build_product_q4_0, {1, 50257, 768}, LIMIT(70)},
    {"q5_1-1x50257x768", "quantised", "the same, blocks of 5 bits",
     build_product_q5_1, {1, 50257, 768}, LIMIT(40)},
    {"q6_k-1x50257x768", "quantised", "the same, blocks of 6 bits",
     build_product_q6_k, {1, 50257, 768}, LIMIT(10)},
    {"q8_0-512x3072x768", "quantised", "a prompt, blocks of 8 bits",
     build_product_q8_0, {512, 3072, 768}, LIMIT(60)},
    {"q4_0-512x3072x768", "quantised", "a prompt, blocks of 4 bits",
     build_product_q4_0, {512, 3072, 768}, LIMIT(60)},
    {"q6_k-512x3072x768", "quantised", "a prompt, blocks of 6 bits",
     build_product_q6_k, {512, 3072, 768}, LIMIT(60)},
    {"q8-q8_0-1x50257x768", "quantised", "one row, activations in blocks of 8 bits too",
     build_product_q8_q8_0, {1, 50257, 768}, LIMIT(80)},
    {"q8-q4_0-1x50257x768", "quantised", "the same, weights in blocks of 4 bits",
     build_product_q8_q4_0, {1, 50257, 768}, LIMIT(70)},
    {"q8-q8_0-512x3072x768", "quantised", "a prompt, activations and weights in blocks of 8 bits",
     build_product_q8_q8_0, {512, 3072, 768}, LIMIT(60)},
    {"bf16-1x3072x768", "bf16", "one row, stored in bf16",
     build_product_stored, {1, 3072, 768}, FULL(185, build_product)},
    {"bf16-1x50257x768", "bf16", "the same, GPT-2's head",
     build_product_stored, {1, 50257, 768}, FULL(185, build_product)},

    {"attention-forward", "attention", "causal, B 1, H 6, T 1024, D 64",
     build_attention, {1, 6, KI, 64}, LIMIT(65)},
    {"attention-train", "attention", "forward and backward",
     build_attention_train, {1, 6, KI, 64}, LIMIT(50)},
    {"slot-read", "attention", "4096 tokens, H 6, one query each over 4 slots of 64",
     build_slot_read, {4 * KI, 6, 4, 64}},
    {"slot-read-back", "attention", "its gradient alone", build_slot_read_back, {4 * KI, 6, 4, 64}},

    {"gru", "recurrences", "two cells, B 4, T 1024, H 6, D 64", build_gru, {4, KI, 6, 64}},
    {"gru-back", "recurrences", "its gradient alone", build_gru_back, {4, KI, 6, 64}},
    {"gru-train", "recurrences", "forward and backward",
     build_gru_train, {4, KI, 6, 64}, LIMIT(60)},
    {"gru-train-b1", "recurrences", "the same, B 1", build_gru_train, {1, KI, 6, 64}, LIMIT(40)},
    {"ema", "recurrences", "B 8, T 8192, 384 channels", bench_ema, {8, 8 * KI, 384}, LIMIT(65)},
    {"ema-back", "recurrences", "its gradient alone", bench_ema_back, {8, 8 * KI, 384}, LIMIT(65)},
    {"conv", "recurrences", "four taps, the same", bench_conv, {8, 8 * KI, 384}, LIMIT(60)},
    {"conv-back", "recurrences", "its gradient alone",
     bench_conv_back, {8, 8 * KI, 384}, LIMIT(60)},
    {"wkv", "recurrences", "B 8, T 8192, 384 channels", bench_wkv, {8, 8 * KI, 384}, LIMIT(65)},
    {"wkv-back", "recurrences", "its gradient alone", bench_wkv_back, {8, 8 * KI, 384}, LIMIT(65)},
    {"ema-back-1024", "recurrences", "B 4, T 8192, 1024 channels: rows of a page",
     bench_ema_back, {4, 8 * KI, KI}, LIMIT(65)},
    {"wkv-back-1024", "recurrences", "the same", bench_wkv_back, {4, 8 * KI, KI}, LIMIT(65)},

    {"layer-norm", "rows", "32 Ki rows of 1024, gain and bias",
     build_layer_norm, {32 * KI, KI}, LIMIT(75)},
    {"layer-norm-back", "rows", "its gradient alone",
     build_layer_norm_back, {32 * KI, KI}, LIMIT(75)},
    {"rms-norm", "rows", "32 Ki rows of 1024, gain", build_rms_norm, {32 * KI, KI}, LIMIT(75)},
    {"rms-norm-back", "rows", "its gradient alone", build_rms_norm_back, {32 * KI, KI}, LIMIT(75)},
    {"softmax", "rows", "32 Ki rows of 1024", build_softmax, {32 * KI, KI}, LIMIT(75)},
    {"softmax-back", "rows", "its gradient alone", build_softmax_back, {32 * KI, KI}, LIMIT(75)},
    {"cross-entropy", "rows", "losses of 1024 x 50304 logits",
     build_cross_entropy, {KI, 50304}, LIMIT(75)},
    {"cross-entropy-back", "rows", "its gradient alone",
     build_cross_entropy_back, {KI, 50304}, LIMIT(75)},
    {"sum-rows", "rows", "32 Ki rows of 1024 added up", build_sum_rows, {32 * KI, KI}, LIMIT(80)},
    {"gelu", "rows", "32 Mi elements", build_gelu, {32 * KI, KI}},
    {"gelu-tanh", "rows", "32 Mi elements", build_gelu_tanh, {32 * KI, KI}},
    {"swiglu", "rows", "32 Mi elements in", build_swiglu, {16 * KI, 2 * KI}},
    {"add", "rows", "32 Mi elements", build_add, {32 * KI, KI}},
    {"rotary", "rows", "B 8, H 16, T 4096, D 64", build_rotary, {8, 16, 4 * KI, 64}},

    {"gru-time", "mixers", "width 384, H 6, B 4, T 1024: forward and backward",
     bench_gru_time, {384, 6, 4, KI}, LIMIT(55)},
    {"gru-time-b1", "mixers", "the same with B 1", bench_gru_time, {384, 6, 1, KI}, LIMIT(38)},
    {"gru-time-long", "mixers", "the same with B 1, T 4096",
     bench_gru_time, {384, 6, 1, 4 * KI}, LIMIT(50)},
    {"slot-gru", "mixers", "one slot, all heads read it, B 4, T 1024",
     bench_slot_gru, {384, 6, 4, KI, 1}, LIMIT(55)},
    {"slot-gru-4", "mixers", "4 routed slots, each head its own",
     bench_slot_gru, {384, 6, 4, KI, 4}, LIMIT(55)},
    {"slot-gru-steps", "mixers", "one slot, B 1, T 256, against the same step by step",
     bench_slot_gru, {384, 6, 1, 256, 1}, .rival = bench_slot_gru_steps},
    {"slot-gru-4-steps", "mixers", "the same with 4 slots",
     bench_slot_gru, {384, 6, 1, 256, 4}, .rival = bench_slot_gru_steps},
    {"ema-time", "mixers", "width 384, H 6, B 4, T 1024", bench_ema_time, {384, 6, 4, KI}},
    {"append-time", "mixers", "the same", bench_append_time, {384, 6, 4, KI}},
    {"wkv-mixer", "mixers", "the same, no attention", bench_wkv_mixer, {384, 6, 4, KI}},

    {"moment", "chunks", "H 6, D 64, B 1, T 4096: forward and backward",
     bench_moment, {1, 6, 4 * KI, 64}, LIMIT(45)},
    {"delta", "chunks", "the same", bench_delta, {1, 6, 4 * KI, 64}, LIMIT(45)},
    {"slots", "chunks", "the same with 16 slots", bench_slots, {1, 6, 4 * KI, 64}, LIMIT(45)},
    {"moment-channels", "chunks", "decays by channel and a bonus, as RWKV 6 has them",
     bench_moment_channels, {1, 6, 4 * KI, 64}},
    {"delta-b4", "chunks", "H 12, D 64, B 4, T 1024, as docs/python.md has it",
     bench_delta, {4, 12, KI, 64}},
    {"delta-rank1", "chunks", "diagonal plus rank one, as RWKV 7 has it",
     bench_delta_rank1, {1, 6, 4 * KI, 64}},
    {"moment-512", "chunks", "T 512, against attention", bench_moment, {1, 6, 512, 64}, ATTENTION},
    {"moment-512-b4", "chunks", "the same, B 4", bench_moment, {4, 6, 512, 64}, ATTENTION},
    {"delta-2048", "chunks", "T 2048, against attention",
     bench_delta, {1, 6, 2 * KI, 64}, ATTENTION},
    {"delta-2048-b4", "chunks", "the same, B 4", bench_delta, {4, 6, 2 * KI, 64}, ATTENTION},
    {"slots-2048", "chunks", "T 2048, against attention",
     bench_slots, {1, 6, 2 * KI, 64}, ATTENTION},
    {"slots-2048-b4", "chunks", "the same, B 4", bench_slots, {4, 6, 2 * KI, 64}, ATTENTION},
    {"moment-at-64", "crossing", "T 64, against attention",
     bench_moment, {1, 6, 64, 64}, .rival = build_attention_train, .slow = true},
    {"moment-at-128", "crossing", "T 128, against attention",
     bench_moment, {1, 6, 128, 64}, .rival = build_attention_train, .slow = true},
    {"moment-at-256", "crossing", "T 256, against attention",
     bench_moment, {1, 6, 256, 64}, .rival = build_attention_train, .slow = true},
    {"moment-at-512", "crossing", "T 512, against attention",
     bench_moment, {1, 6, 512, 64}, .rival = build_attention_train, .slow = true},
    {"moment-at-1024", "crossing", "T 1024, against attention",
     bench_moment, {1, 6, 1024, 64}, .rival = build_attention_train, .slow = true},
    {"delta-at-64", "crossing", "T 64, against attention",
     bench_delta, {1, 6, 64, 64}, .rival = build_attention_train, .slow = true},
    {"delta-at-128", "crossing", "T 128, against attention",
     bench_delta, {1, 6, 128, 64}, .rival = build_attention_train, .slow = true},
    {"delta-at-256", "crossing", "T 256, against attention",
     bench_delta, {1, 6, 256, 64}, .rival = build_attention_train, .slow = true},
    {"delta-at-512", "crossing", "T 512, against attention",
     bench_delta, {1, 6, 512, 64}, .rival = build_attention_train, .slow = true},
    {"delta-at-1024", "crossing", "T 1024, against attention",
     bench_delta, {1, 6, 1024, 64}, .rival = build_attention_train, .slow = true},
    {"slots-at-64", "crossing", "T 64, against attention",
     bench_slots, {1, 6, 64, 64}, .rival = build_attention_train, .slow = true},
    {"slots-at-128", "crossing", "T 128, against attention",
     bench_slots, {1, 6, 128, 64}, .rival = build_attention_train, .slow = true},
    {"slots-at-256", "crossing", "T 256, against attention",
     bench_slots, {1, 6, 256, 64}, .rival = build_attention_train, .slow = true},
    {"slots-at-512", "crossing", "T 512, against attention",
     bench_slots, {1, 6, 512, 64}, .rival = build_attention_train, .slow = true},
    {"slots-at-1024", "crossing", "T 1024, against attention",
     bench_slots, {1, 6, 1024, 64}, .rival = build_attention_train, .slow = true},

    {"adamw", "optimizer", "32 Mi parameters, in place", build_adamw, {32 * MI}, LIMIT(75)},
    {"global-norm", "optimizer", "32 Mi elements", build_global_norm, {32 * MI}, LIMIT(80)},

    {"executor-tiny", "executor", "chain of 1000 ops on 16 elements",
     build_chain, {1000, 16}, NODE(2)},
    {"executor-mixed", "executor", "ops of 1 KiB between ops of 256 KiB, less those",
     build_mixed, {100, 256, 64 * KI}, build_large_only, NODE(2)},

    {"generate-gpt2", "generate", "GPT-2 124M, one token after 500",
     bench_read_gpt2, {1}, LIMIT(85), .slow = true},
    {"generate-gpt2-bf16", "generate", "the same, matrices stored in bf16",
     bench_read_gpt2, {1, 1}, LIMIT(85), .slow = true},
    {"generate-gpt2-file", "generate", "GPT-2 124M as in its files: f32, (in, out)",
     bench_read_gpt2, {1, 0, 1}, LIMIT(85), .slow = true},
    {"generate-gpt2-q8_0", "generate", "matrices in blocks of 8 bits",
     bench_read_gpt2, {1, 3}, LIMIT(80), .slow = true},
    {"generate-gpt2-q4_0", "generate", "in blocks of 4 bits",
     bench_read_gpt2, {1, 4}, LIMIT(70), .slow = true},
    {"prompt-gpt2-q8_0", "generate", "a prompt of 512, blocks of 8 bits",
     bench_read_gpt2, {512, 3}, LIMIT(60), .slow = true},
    {"prompt-gpt2-q4_0", "generate", "a prompt of 512, blocks of 4 bits",
     bench_read_gpt2, {512, 4}, LIMIT(60), .slow = true},
    {"generate-gpt2-q8-q8_0", "generate", "activations in blocks of 8 bits too",
     bench_read_gpt2, {1, 3, 0, 1}, LIMIT(80), .slow = true},
    {"generate-gpt2-q8-q4_0", "generate", "the same, matrices in blocks of 4 bits",
     bench_read_gpt2, {1, 4, 0, 1}, LIMIT(70), .slow = true},
    {"prompt-gpt2-q8-q8_0", "generate", "a prompt of 512, all in blocks of 8 bits",
     bench_read_gpt2, {512, 3, 0, 1}, LIMIT(60), .slow = true},
    {"generate-gpt2-file-bf16", "generate", "the same, stored in bf16",
     bench_read_gpt2, {1, 1, 1}, .slow = true},
    {"generate-gpt2-file-f16", "generate", "the same, stored in f16",
     bench_read_gpt2, {1, 2, 1}, .slow = true},
    {"prompt-gpt2", "generate", "GPT-2 124M, 512 tokens of a prompt",
     bench_read_gpt2, {512}, LIMIT(60), .slow = true},
    {"prompt-gpt2-file", "generate", "the same, matrices as in its files: f32, (in, out)",
     bench_read_gpt2, {512, 0, 1}, LIMIT(60), .slow = true},
    {"generate-rwkv4", "generate", "RWKV-4 169M, one token",
     bench_read_rwkv, {1}, LIMIT(85), .slow = true},
    {"generate-rwkv4-bf16", "generate", "the same, matrices stored in bf16",
     bench_read_rwkv, {1, 1}, LIMIT(85), .slow = true},
    {"generate-rwkv4-q8_0", "generate", "matrices in blocks of 8 bits",
     bench_read_rwkv, {1, 3}, LIMIT(80), .slow = true},
    {"generate-rwkv4-q4_0", "generate", "in blocks of 4 bits",
     bench_read_rwkv, {1, 4}, LIMIT(70), .slow = true},
    {"generate-rwkv4-q8-q8_0", "generate", "activations in blocks of 8 bits too",
     bench_read_rwkv, {1, 3, 0, 1}, LIMIT(80), .slow = true},
    {"generate-rwkv4-q8-q4_0", "generate", "the same, matrices in blocks of 4 bits",
     bench_read_rwkv, {1, 4, 0, 1}, LIMIT(70), .slow = true},
    {"generate-rwkv4-f16", "generate", "the same, matrices stored in f16",
     bench_read_rwkv, {1, 2}, LIMIT(85), .slow = true},
    {"prompt-rwkv4-7", "generate", "RWKV-4 169M, 7 tokens of a prompt",
     bench_read_rwkv, {7}, LIMIT(65), .slow = true},
    {"prompt-rwkv4-64", "generate", "the same, 64 tokens",
     bench_read_rwkv, {64}, LIMIT(65), .slow = true},
    {"prompt-rwkv4-500", "generate", "the same, 500 tokens",
     bench_read_rwkv, {500}, LIMIT(65), .slow = true},
    {"prompt-rwkv4-2048", "generate", "the same, 2048 tokens",
     bench_read_rwkv, {2 * KI}, LIMIT(65), .slow = true},

    {"train-gru", "train", "dra-gru-tiny, B 4, T 512, against gpt2-tiny",
     bench_train, {0, 4, 512}, SOFTMAX(50)},
    {"train-ema", "train", "dra-ema-tiny, B 4, T 512, against gpt2-tiny",
     bench_train, {1, 4, 512}, SOFTMAX(80)},
    {"train-moment", "train", "dra-moment-tiny, B 4, T 512, against gpt2-tiny",
     bench_train, {2, 4, 512}, SOFTMAX(80)},
    {"train-slots", "train", "dra-slots-tiny, B 4, T 512, against gpt2-tiny",
     bench_train, {3, 4, 512}, SOFTMAX(80)},
    {"train-rwkv4", "train", "rwkv4-tiny, B 4, T 512, against gpt2-tiny",
     bench_train, {4, 4, 512}, SOFTMAX(80)},
    {"train-rwkv7", "train", "rwkv7-tiny, B 4, T 512, against rwkv4-tiny",
     bench_train, {5, 4, 512}, FULL(67, bench_train_rwkv4), .slow = true},
    {"train-moment-2048", "train", "the same, B 1, T 2048",
     bench_train, {2, 1, 2 * KI}, SOFTMAX(100)},
    {"train-slots-2048", "train", "the same, B 1, T 2048",
     bench_train, {3, 1, 2 * KI}, SOFTMAX(100)},
    {"train-rwkv4-2048", "train", "the same, B 1, T 2048",
     bench_train, {4, 1, 2 * KI}, SOFTMAX(100)},

    {"scaling-gpt2", BENCH_SCALING, "gpt2-small, B 16",
     bench_gpt, {6, 6, 384, 256, 16}, .slow = true},
    {"scaling-attention", BENCH_SCALING, "attention-train, B 8",
     build_attention_train, {8, 6, KI, 64}, .slow = true},
    {"scaling-gru-time", BENCH_SCALING, "gru-time, B 8",
     bench_gru_time, {384, 6, 8, KI}, .slow = true},
    {"scaling-moment", BENCH_SCALING, "moment, B 8, T 1024",
     bench_moment, {8, 6, KI, 64}, .slow = true},
    {"scaling-delta", BENCH_SCALING, "the same of delta",
     bench_delta, {8, 6, KI, 64}, .slow = true},
    {"scaling-slots", BENCH_SCALING, "the same of slots",
     bench_slots, {8, 6, KI, 64}, .slow = true},

    {"gpt2-small", "steps", "6/6/384, T 256, B 4: training step",
     bench_gpt, {6, 6, 384, 256, 4}, LIMIT(70)},
    {"gpt2-124m", "steps", "12/12/768, T 64, B 4: training step",
     bench_gpt, {12, 12, 768, 64, 4}, .slow = true, LIMIT(65)},
    {"gpt2-small-bf16", "steps", "the small one with products in bf16",
     build_gpt_bf16, {6, 6, 384, 256, 4}, FULL(170, bench_gpt)},
    {"gpt2-124m-bf16", "steps", "the same of the large one",
     build_gpt_bf16, {12, 12, 768, 64, 4}, .slow = true, .rival = bench_gpt},

    {"gpt2-124m-b32", BENCH_GPU, "12/12/768, T 1024, B 32: training step",
     bench_gpt, {12, 12, 768, KI, 32}, .slow = true},
    {"gpt2-124m-b32-tf32", BENCH_GPU, "the same with products in tf32",
     build_gpt_tf32, {12, 12, 768, KI, 32}, .slow = true},
    {"gpt2-124m-b32-bf16", BENCH_GPU, "the same with products in bf16",
     build_gpt_bf16, {12, 12, 768, KI, 32}, .slow = true},
    {"attention-b32", BENCH_GPU, "causal, B 32, H 12, T 1024, D 64: forward and backward",
     build_attention_train, {32, 12, KI, 64}, .slow = true},
    {"attention-long", BENCH_GPU, "the same, B 8, T 4096",
     build_attention_train, {8, 12, 4 * KI, 64}, .slow = true},
    {"moment-b32", BENCH_GPU, "B 32, H 12, T 1024, D 64, against attention",
     bench_moment, {32, 12, KI, 64}, .rival = build_attention_train, .slow = true},
    {"moment-long", BENCH_GPU, "the same, B 8, T 4096",
     bench_moment, {8, 12, 4 * KI, 64}, .rival = build_attention_train, .slow = true},
    {"delta-b32", BENCH_GPU, "B 32, H 12, T 1024, D 64, against attention",
     bench_delta, {32, 12, KI, 64}, .rival = build_attention_train, .slow = true},
    {"delta-long", BENCH_GPU, "the same, B 8, T 4096",
     bench_delta, {8, 12, 4 * KI, 64}, .rival = build_attention_train, .slow = true},
    {"slots-b32", BENCH_GPU, "B 32, H 12, T 1024, D 64, 16 slots, against attention",
     bench_slots, {32, 12, KI, 64}, .rival = build_attention_train, .slow = true},
    {"slots-long", BENCH_GPU, "the same, B 8, T 4096",
     bench_slots, {8, 12, 4 * KI, 64}, .rival = build_attention_train, .slow = true},
    {"gru-b32", BENCH_GPU, "two cells, B 32, T 1024, H 12, D 64: forward and backward",
     build_gru_train, {32, KI, 12, 64}, .slow = true},
    {"gru-long", BENCH_GPU, "the same, B 8, T 4096",
     build_gru_train, {8, 4 * KI, 12, 64}, .slow = true},
    {"ema-b32", BENCH_GPU, "B 32, T 1024, 768 channels: forward and backward",
     bench_ema_train, {32, KI, 768}, .slow = true},
    {"ema-long", BENCH_GPU, "the same, B 8, T 4096",
     bench_ema_train, {8, 4 * KI, 768}, .slow = true},
    {"wkv-b32", BENCH_GPU, "B 32, T 1024, 768 channels: forward and backward",
     bench_wkv_train, {32, KI, 768}, .slow = true},
    {"wkv-long", BENCH_GPU, "the same, B 8, T 4096",
     bench_wkv_train, {8, 4 * KI, 768}, .slow = true},
};
/* clang-format on */

const size_t bench_case_count = COUNT(bench_cases);
