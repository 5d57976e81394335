/* Memories in chunk form as benchmarks, forward and backward: size = B, H, T, D. */
#include "bench.h"

static dra_value real_input(bench_work *w, const char *name, dra_shape shape, double lo, double hi)
{
    return bench_value(w, dra_input, name, DRA_REAL, shape, lo, hi);
}

/* q, k, v (B, T, H, D) with numbers from lo to 1. */
static void qkv_inputs(bench_work *w, const int64_t *size, double lo, dra_value in[3])
{
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++)
        in[i] = real_input(w, names[i], DRA_SHAPE(size[0], size[2], size[1], size[3]), lo, 1);
    w->units = (double)(size[0] * size[2]);
    w->unit = "token";
}

/* FLOPs forward and, twice as many, backward: `pair` for each pair of tokens s <= t inside a chunk
 * of 64 and `token` for each token, of every head. */
static void count_flops(bench_work *w, const int64_t *size, double pair, double token)
{
    const double each = (64 + 1) / 2.0 * pair + token; /* T is a multiple of 64 */
    w->flops = 3 * (double)(size[0] * size[1] * size[2]) * each;
}

/* Normalised, no decay, features given. Pairs: f(q).f(k) and times v; tokens: f(q) S and k v^T. */
void bench_moment(bench_work *w, const int64_t *size)
{
    const double D = (double)size[3];
    dra_value    in[3];
    qkv_inputs(w, size, 0, in);
    const dra_moment_config config = {
        .q = in[0], .k = in[1], .v = in[2], .normalise = true, .eps = 1e-6};
    bench_gradient(w, dra_moment(w->graph, &config, NULL, NULL), 3, in);
    count_flops(w, size, 4 * D, 4 * D * D);
}

/* Pairs: k.k, q.k, the substitution and q.k times its result; tokens: k S, q S and k u^T. */
void bench_delta(bench_work *w, const int64_t *size)
{
    const double D = (double)size[3];
    dra_value    in[4];
    qkv_inputs(w, size, -1, in);
    in[3] = real_input(w, "b", DRA_SHAPE(size[0], size[2], size[1]), 0, 1);
    const dra_delta_config config = {.q = dra_unit(w->graph, in[0], 1e-12),
                                     .k = dra_unit(w->graph, in[1], 1e-12),
                                     .v = in[2],
                                     .b = in[3]};
    bench_gradient(w, dra_delta(w->graph, &config, NULL), 4, in);
    count_flops(w, size, 8 * D, 6 * D * D);
}

/* Decays of data by channel and a bonus, the recurrence of RWKV 6: FLOPs as above. */
void bench_moment_channels(bench_work *w, const int64_t *size)
{
    const double    D = (double)size[3];
    const dra_shape rows = DRA_SHAPE(size[0], size[2], size[1], size[3]);
    dra_value       in[5];
    qkv_inputs(w, size, -1, in);
    in[3] = real_input(w, "l", rows, -1, 0);
    in[4] = real_input(w, "u", DRA_SHAPE(size[1], size[3]), -1, 1);
    const dra_moment_config config = {.q = in[0], .k = in[1], .v = in[2], .l = in[3], .u = in[4]};
    bench_gradient(w, dra_moment(w->graph, &config, NULL, NULL), 5, in);
    count_flops(w, size, 4 * D, 4 * D * D);
}

/* Diagonal plus rank one, the recurrence of RWKV 7. Pairs: of q and a with k and c, each with what
 * it writes; tokens: a S, q S, c p^T and k v^T. */
void bench_delta_rank1(bench_work *w, const int64_t *size)
{
    const double    D = (double)size[3];
    const dra_shape rows = DRA_SHAPE(size[0], size[2], size[1], size[3]);
    dra_value       in[6];
    qkv_inputs(w, size, -1, in);
    in[3] = real_input(w, "l", rows, -0.6, 0);
    in[4] = real_input(w, "a", rows, -0.1, 0.1);
    in[5] = real_input(w, "c", rows, -0.1, 0.1);
    const dra_delta_config config = {
        .q = in[0], .k = in[1], .v = in[2], .l = in[3], .recall = in[4], .replace = in[5]};
    bench_gradient(w, dra_delta(w->graph, &config, NULL), 6, in);
    count_flops(w, size, 16 * D, 8 * D * D);
}

/* 16 routed slots, each head reading its own. For each token and head, chunks of 32, forward
 * 2 (4 S D + 32 (D + 3 S / 2)), backward 2 (8 S D + 32 (5 D / 2 + 7 S / 2)). */
void bench_slots(bench_work *w, const int64_t *size)
{
    enum { S = 16, L = 32 };
    const double    D = (double)size[3];
    dra_value       in[4];
    const dra_value one = dra_number(w->graph, 1);
    qkv_inputs(w, size, -1, in);
    in[3] = real_input(w, "z", DRA_SHAPE(size[0], size[2], size[1], S), -4, 4);
    const dra_value        u = dra_softmax(w->graph, in[3]);
    const dra_slots_config config = {.q = in[0],
                                     .k = in[1],
                                     .v = in[2],
                                     .u = u,
                                     .l = dra_log(w->graph, dra_sub(w->graph, one, u))};
    bench_gradient(w, dra_slots(w->graph, &config, NULL, NULL), 4, in);
    w->flops = 2 * (12 * S * D + L * (3.5 * D + 5 * S)) * (double)(size[0] * size[1] * size[2]);
}
