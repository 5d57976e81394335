/* Attention against its formula in double, on all paths. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

/* ---- the formula ----------------------------------------------------------------------------- */

typedef struct args { /* options by number of input; 0: none, since that is q */
    int     lo, hi, mask, bias, distance, slopes, q_pos, k_pos, key, row, sink, q_level, k_level;
    int64_t zero; /* column of distance 0 */
    int64_t always;
    dra_head_map heads;
    double       scale, softcap, dropout;
    int64_t      topk;
    bool         hard, late;
} args;

static dra_value pick(const dra_value *in, int i) { return i ? in[i] : (dra_value){0}; }

static dra_attend_config make_config(const args *a, const dra_value *in, dra_attend_path path,
                                     dra_random_config *random)
{
    *random = (dra_random_config){"weights", pick(in, a->key), {0}, pick(in, a->row)};
    return (dra_attend_config){.lo = pick(in, a->lo),
                               .hi = pick(in, a->hi),
                               .mask = pick(in, a->mask),
                               .bias = pick(in, a->bias),
                               .distance = pick(in, a->distance),
                               .distance_zero = a->zero,
                               .slopes = pick(in, a->slopes),
                               .q_pos = pick(in, a->q_pos),
                               .k_pos = pick(in, a->k_pos),
                               .always = a->always,
                               .heads = a->heads,
                               .scale = a->scale,
                               .softcap = a->softcap,
                               .softcap_late = a->late,
                               .sink = pick(in, a->sink),
                               .q_level = pick(in, a->q_level),
                               .k_level = pick(in, a->k_level),
                               .dropout = a->dropout,
                               .random = random,
                               .topk = a->topk,
                               .hard = a->hard,
                               .path = path};
}

static void build_tiled(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_random_config       random;
    const dra_attend_config c = make_config(p, in, DRA_ATTEND_TILED, &random);
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

static void build_plain(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_random_config       random;
    const dra_attend_config c = make_config(p, in, DRA_ATTEND_PLAIN, &random);
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

/* Element (b, h, t, j) of something that broadcasts to four axes. */
static double element(const check_tensor *x, const int64_t *index)
{
    int64_t at = 0;
    for (int32_t i = 0; i < x->shape.rank; i++) {
        const int64_t k = index[4 - x->shape.rank + i];
        at = at * x->shape.dim[i] + (x->shape.dim[i] == 1 ? 0 : k);
    }
    return x->at[at];
}

static uint64_t name_hash(const char *name) /* FNV-1a */
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static double drop_factor(const args *a, const check_tensor *in, const int64_t *at, int64_t q_pos,
                          int64_t k_pos)
{
    int32_t words[4];
    for (int i = 0; i < 4; i++) words[i] = (int32_t)in[a->key].at[i];
    const uint32_t row = (uint32_t)(a->row ? (int32_t)in[a->row].at[at[0]] : (int32_t)at[0]);
    const uint32_t counter[] = {(uint32_t)k_pos / 4, (uint32_t)q_pos, (uint32_t)at[1], row};
    uint32_t       bits[4];
    dra_philox(counter, dra_philox_key(words, name_hash("weights")), bits);
    return (double)bits[k_pos % 4] < a->dropout * 0x1p32 ? 0 : 1 / (1 - a->dropout);
}

typedef struct sizes {
    int64_t B, H, K, T, J, D, E;
} sizes;

static sizes sizes_of(const check_tensor *in)
{
    const int64_t *q = in[0].shape.dim, *v = in[2].shape.dim;
    return (sizes){q[0], q[1], v[1], q[2], v[2], q[3], v[3]};
}

static int64_t key_head(const args *a, const sizes *n, int64_t h)
{
    return a->heads == DRA_HEADS_DIV ? h / (n->H / n->K) : h % n->K;
}

static double by_distance(const args *a, const check_tensor *table, int64_t h, int64_t far)
{
    const int64_t N = table->shape.dim[1];
    int64_t       at = far + a->zero;
    if (at < 0) at = 0;
    if (at >= N) at = N - 1;
    return table->at[(table->shape.dim[0] == 1 ? 0 : h) * N + at];
}

static double by_level(const args *a, const check_tensor *in, const int64_t *at)
{
    const int64_t *q = in[a->q_level].shape.dim, P = q[3], J = in[a->k_level].shape.dim[2];
    const int64_t  row = at[0] * q[1] + at[1];
    double         far = 0;
    for (int64_t p = 0; p < P; p++)
        far += in[a->q_level].at[(row * q[2] + at[2]) * P + p] -
               in[a->k_level].at[(row * J + at[3]) * P + p];
    return far;
}

/* The masked logit; -INFINITY where nothing is seen. */
static double logit(const args *a, const check_tensor *in, const int64_t *at, int64_t q_pos,
                    int64_t k_pos)
{
    const sizes   n = sizes_of(in);
    const int64_t b = at[0], h = at[1], t = at[2], j = at[3];
    const double *q = in[0].at + ((b * n.H + h) * n.T + t) * n.D;
    const double *k = in[1].at + ((b * n.K + key_head(a, &n, h)) * n.J + j) * n.D;
    const bool    always = j < a->always;
    double        s = 0;
    if (!always && a->lo && j < in[a->lo].at[b * n.T + t]) return -INFINITY;
    if (!always && a->hi && j >= in[a->hi].at[b * n.T + t]) return -INFINITY;
    if (!always && a->mask && element(&in[a->mask], at) == 0) return -INFINITY;
    for (int64_t i = 0; i < n.D; i++) s += q[i] * k[i];
    s *= a->scale != 0 ? a->scale : n.D ? 1 / sqrt((double)n.D) : 1;
    if (a->softcap > 0 && !a->late) s = a->softcap * tanh(s / a->softcap);
    if (!always && a->bias) s += element(&in[a->bias], at);
    if (!always && a->distance) s += by_distance(a, &in[a->distance], h, q_pos - k_pos);
    if (!always && a->slopes) s -= in[a->slopes].at[h] * fabs((double)(q_pos - k_pos));
    if (!always && a->q_level) s += by_level(a, in, at);
    return a->late ? a->softcap * tanh(s / a->softcap) : s;
}

static int larger_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* Masks all but the k largest (ties count), or all but the first largest. */
static void choose(const args *a, int64_t J, double *s)
{
    double *sorted = malloc((size_t)(J + 1) * sizeof *sorted);
    bool    found = false;
    memcpy(sorted, s, (size_t)J * sizeof *sorted);
    qsort(sorted, (size_t)J, sizeof *sorted, larger_first);
    for (int64_t j = 0; j < J; j++) {
        if (a->topk && a->topk <= J && s[j] < sorted[a->topk - 1]) s[j] = -INFINITY;
        if (!a->hard) continue;
        s[j] = !found && s[j] == sorted[0] && s[j] > -INFINITY ? 0 : -INFINITY;
        found = found || s[j] == 0;
    }
    free(sorted);
}

static void oracle_row(const args *a, const check_tensor *in, int64_t *at, double *s, double *y)
{
    const sizes   n = sizes_of(in);
    const int64_t b = at[0], t = at[2];
    const double *v = in[2].at + (b * n.K + key_head(a, &n, at[1])) * n.J * n.E;
    const int64_t q_pos = a->q_pos ? (int64_t)in[a->q_pos].at[b * n.T + t] : n.J - n.T + t;
    double        largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n.J; j++) {
        at[3] = j;
        s[j] = logit(a, in, at, q_pos, a->k_pos ? (int64_t)in[a->k_pos].at[b * n.J + j] : j);
        largest = fmax(largest, s[j]);
    }
    if (largest == -INFINITY) return; /* sees nothing: 0 */
    choose(a, n.J, s);
    if (a->hard) largest = 0;
    for (int64_t j = 0; j < n.J; j++) sum += exp(s[j] - largest);
    if (a->sink) sum += exp(in[a->sink].at[at[1]] - largest);
    for (int64_t j = 0; j < n.J; j++) {
        const int64_t k_pos = a->k_pos ? (int64_t)in[a->k_pos].at[b * n.J + j] : j;
        double        p = exp(s[j] - largest) / sum;
        if (a->dropout > 0) p *= drop_factor(a, in, at, q_pos, k_pos);
        for (int64_t i = 0; i < n.E; i++) y[i] += p * v[j * n.E + i];
    }
}

static void oracle(const void *p, const check_tensor *in, check_tensor *out)
{
    const sizes n = sizes_of(in);
    double     *s = malloc((size_t)(n.J + 1) * sizeof *s);
    for (int64_t i = 0; i < n.B * n.H * n.T; i++) {
        int64_t at[4] = {i / n.T / n.H, i / n.T % n.H, i % n.T, 0};
        oracle_row(p, in, at, s, out->at + i * n.E);
    }
    free(s);
}

/* ---- cases: both paths ----------------------------------------------------------------------- */

/* clang-format off: it does not know that these are initialisers */
#define QKV(B, H, K, T, J, D, E)                                                                   \
    {{4, {B, H, T, D}}}, {{4, {B, K, J, D}}},                                                      \
    {                                                                                              \
        {                                                                                          \
            4, { B, K, J, E }                                                                      \
        }                                                                                          \
    }
#define INTS(B, T, from, to)                                                                       \
    {                                                                                              \
        {2, {B, T}}, CHECK_I32, .lo = from, .hi = to                                               \
    }
#define KEY                                                                                        \
    {                                                                                              \
        {1, {4}}, CHECK_I32, .lo = -1000, .hi = 1000                                               \
    }
/* clang-format on */

#ifdef DRA_REAL_DOUBLE
#define FAR_TOL 1e-11
#else
#define FAR_TOL 1e-4 /* logits of 150 carry an error of 1e-5, and so do their exponentials */
#endif

static const args none = {0}, lo_hi = {.lo = 3, .hi = 4}, only_lo = {.lo = 3}, only_hi = {.hi = 3};
static const args masked = {.mask = 3}, biased = {.bias = 3}, sloped = {.slopes = 3};
static const args placed = {.slopes = 3, .q_pos = 4, .k_pos = 5};
static const args by_distances = {.distance = 3, .zero = 4};
static const args far_placed = {.distance = 3, .zero = 10, .q_pos = 4, .k_pos = 5};
static const args far_sloped = {
    .distance = 3, .slopes = 4, .bias = 5, .hi = 6, .zero = 2, .softcap = 2};
static const args far_dropped = {.distance = 3, .zero = 4, .dropout = 0.4, .key = 4};
static const args half_placed = {.slopes = 3, .k_pos = 4};
static const args by_div = {.hi = 3}, by_mod = {.hi = 3, .heads = DRA_HEADS_MOD};
static const args capped = {.softcap = 0.7}, scaled = {.scale = -1.5};
static const args capped_scaled = {.softcap = 2, .scale = 3, .bias = 3};
static const args dropped = {.dropout = 0.4, .key = 3};
static const args dropped_placed = {.dropout = 0.4, .key = 3, .row = 4, .q_pos = 5, .k_pos = 6};
static const args all = {.lo = 3,
                         .hi = 4,
                         .mask = 5,
                         .bias = 6,
                         .slopes = 7,
                         .q_pos = 8,
                         .k_pos = 9,
                         .heads = DRA_HEADS_MOD,
                         .scale = 0.8,
                         .softcap = 1.5};
static const args all_far = {.lo = 3,
                             .hi = 4,
                             .mask = 5,
                             .bias = 6,
                             .slopes = 7,
                             .q_pos = 8,
                             .k_pos = 9,
                             .distance = 10,
                             .zero = 6,
                             .heads = DRA_HEADS_MOD,
                             .scale = 0.8,
                             .softcap = 1.5};

static const args late = {.bias = 3, .softcap = 0.7, .late = true};
static const args late_all = {.lo = 3,
                              .hi = 4,
                              .mask = 5,
                              .bias = 6,
                              .slopes = 7,
                              .distance = 8,
                              .zero = 3,
                              .always = 3,
                              .softcap = 1.1,
                              .late = true};
static const args always_some = {
    .lo = 3, .hi = 4, .mask = 5, .bias = 6, .slopes = 7, .distance = 8, .zero = 3, .always = 3};
static const args always_blocks = {
    .lo = 3, .hi = 4, .mask = 5, .bias = 6, .slopes = 7, .distance = 8, .zero = 3, .always = 70};

#define ALWAYS(B, H, T, J)                                                                         \
    INTS(B, T, -2, J), INTS(B, T, 0, J + 3), {{4, {B, H, T, J}}, CHECK_BOOL}, {{3, {H, 1, J}}},    \
        {{1, {H}}, .lo = 0.05, .hi = 0.5},                                                         \
    {                                                                                              \
        {                                                                                          \
            2, { H, 9 }                                                                            \
        }                                                                                          \
    }

static const check_case both_cases[] = {
    {"sees all", 3, {QKV(2, 3, 3, 5, 9, 7, 4)}, &none},
    {"one of each", 3, {QKV(1, 1, 1, 1, 1, 1, 1)}, &none},
    {"one query", 3, {QKV(2, 2, 2, 1, 130, 5, 3)}, &none},
    {"one key", 3, {QKV(2, 2, 2, 40, 1, 5, 3)}, &none},
    {"no keys", 3, {QKV(2, 2, 2, 3, 0, 5, 3)}, &none},
    {"no queries", 3, {QKV(2, 2, 2, 0, 4, 5, 3)}, &none},
    {"no rows", 3, {QKV(0, 2, 2, 3, 4, 5, 3)}, &none},
    {"no heads", 3, {QKV(2, 0, 0, 3, 4, 5, 3)}, &none},
    {"no width of keys", 3, {QKV(2, 2, 2, 3, 4, 0, 3)}, &none},
    {"no width of values", 3, {QKV(2, 2, 2, 3, 4, 5, 0)}, &none},
    {"several tiles", 3, {QKV(1, 2, 2, 70, 150, 9, 5)}, &none},
    {"wide", 3, {QKV(1, 1, 1, 3, 70, 200, 131)}, &none},
    {"wide, several tiles", 4, {QKV(1, 2, 1, 70, 90, 200, 131), INTS(1, 70, 0, 90)}, &only_hi},
    {"wide keys", 4, {QKV(1, 2, 2, 40, 70, 140, 9), INTS(1, 40, 0, 70)}, &only_lo},
    {"wide values, bias", 4, {QKV(1, 2, 1, 40, 70, 6, 150), {{3, {2, 40, 70}}}}, &biased},
    {"no query heads", 3, {QKV(2, 0, 2, 3, 4, 5, 3)}, &none},
    {"ragged", 5, {QKV(2, 2, 2, 9, 20, 5, 3), INTS(2, 9, -3, 15), INTS(2, 9, -2, 24)}, &lo_hi},
    {"ragged, several tiles",
     5,
     {QKV(1, 2, 2, 70, 200, 5, 3), INTS(1, 70, 0, 180), INTS(1, 70, 20, 200)},
     &lo_hi},
    {"sees nothing", 5, {QKV(1, 2, 2, 4, 6, 5, 3), INTS(1, 4, 4, 5), INTS(1, 4, 1, 4)}, &lo_hi},
    {"from lo on", 4, {QKV(2, 2, 2, 9, 20, 5, 3), INTS(2, 9, 0, 21)}, &only_lo},
    {"up to hi", 4, {QKV(2, 2, 2, 9, 20, 5, 3), INTS(2, 9, 0, 21)}, &only_hi},
    {"mask", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{4, {2, 3, 5, 9}}, CHECK_BOOL}}, &masked},
    {"mask of keys", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{4, {2, 1, 1, 9}}, CHECK_BOOL}}, &masked},
    {"mask of queries", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{2, {5, 1}}, CHECK_BOOL}}, &masked},
    {"mask of one key", 4, {QKV(2, 3, 3, 6, 1, 7, 4), {{3, {3, 6, 1}}, CHECK_BOOL}}, &masked},
    {"mask, several tiles",
     4,
     {QKV(1, 1, 1, 40, 140, 3, 2), {{2, {40, 140}}, CHECK_BOOL}},
     &masked},
    {"bias", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{4, {2, 3, 5, 9}}}}, &biased},
    {"bias of heads", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{3, {3, 5, 9}}}}, &biased},
    {"bias of keys", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{1, {9}}}}, &biased},
    {"bias of queries", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{4, {2, 1, 5, 1}}}}, &biased},
    {"bias, one number", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{0}}}, &biased},
    {"bias, several tiles", 4, {QKV(1, 2, 2, 40, 70, 3, 2), {{3, {1, 40, 70}}}}, &biased},
    {"slopes", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{1, {3}}, .lo = 0.05, .hi = 0.5}}, &sloped},
    {"slopes, more queries",
     4,
     {QKV(1, 2, 2, 9, 5, 7, 4), {{1, {2}}, .lo = 0.1, .hi = 1}},
     &sloped},
    {"slopes and positions",
     6,
     {QKV(2, 3, 3, 5, 9, 7, 4),
      {{1, {3}}, .lo = 0.05, .hi = 0.5},
      INTS(2, 5, 0, 30),
      INTS(2, 9, 0, 30)},
     &placed},
    {"slopes and key positions",
     5,
     {QKV(2, 3, 3, 5, 9, 7, 4), {{1, {3}}, .lo = 0.05, .hi = 0.5}, INTS(2, 9, 0, 30)},
     &half_placed},
    {"by distance", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{2, {3, 11}}}}, &by_distances},
    {"by distance, all heads", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{2, {1, 11}}}}, &by_distances},
    {"by distance, one column",
     4,
     {QKV(2, 2, 2, 5, 9, 7, 4), {{2, {2, 1}}}},
     &(args){.distance = 3}},
    {"by distance, no keys", 4, {QKV(2, 2, 2, 5, 0, 7, 4), {{2, {2, 6}}}}, &by_distances},
    {"by distance, no rows", 4, {QKV(0, 2, 2, 5, 4, 7, 4), {{2, {2, 6}}}}, &by_distances},
    {"by distance, shared keys", 4, {QKV(2, 6, 2, 5, 9, 4, 3), {{2, {6, 7}}}}, &by_distances},
    {"by distance, one query", 4, {QKV(2, 2, 2, 1, 300, 5, 3), {{2, {2, 200}}}}, &by_distances},
    {"by distance, several tiles", 4, {QKV(2, 2, 1, 70, 150, 9, 5), {{2, {2, 60}}}}, &by_distances},
    {"by distance, positions that count up",
     4,
     {QKV(1, 2, 1, 200, 140, 5, 3), {{2, {2, 150}}}},
     &(args){.distance = 3, .zero = 60}},
    {"by distance and positions",
     6,
     {QKV(2, 3, 3, 5, 9, 7, 4), {{2, {3, 17}}}, INTS(2, 5, 0, 30), INTS(2, 9, 0, 30)},
     &far_placed},
    {"by distance, slopes, bias, soft cap",
     7,
     {QKV(2, 4, 2, 5, 9, 7, 4),
      {{2, {4, 7}}},
      {{1, {4}}, .lo = 0.05, .hi = 0.5},
      {{1, {9}}},
      INTS(2, 5, 0, 9)},
     &far_sloped},
    {"by distance, dropout", 5, {QKV(2, 3, 3, 5, 9, 7, 4), {{2, {3, 11}}}, KEY}, &far_dropped},
    {"always", 3, {QKV(2, 2, 2, 5, 9, 7, 4)}, &(args){.always = 4}},
    {"always all", 4, {QKV(2, 2, 2, 5, 9, 7, 4), INTS(2, 5, 0, 9)}, &(args){.hi = 3, .always = 9}},
    {"always and a soft cap",
     4,
     {QKV(2, 2, 2, 5, 9, 7, 4), INTS(2, 5, 0, 9)},
     &(args){.lo = 3, .always = 2, .softcap = 1.3}},
    {"always and dropout",
     5,
     {QKV(2, 2, 2, 5, 9, 7, 4), INTS(2, 5, 0, 9), KEY},
     &(args){.hi = 3, .always = 2, .dropout = 0.4, .key = 4}},
    {"always, everything", 9, {QKV(2, 4, 2, 7, 20, 5, 3), ALWAYS(2, 4, 7, 20)}, &always_some},
    {"always, several tiles",
     9,
     {QKV(1, 2, 1, 40, 200, 5, 3), ALWAYS(1, 2, 40, 200)},
     &always_some},
    {"always, blocks of them",
     9,
     {QKV(1, 2, 1, 40, 200, 5, 3), ALWAYS(1, 2, 40, 200)},
     &always_blocks},
    {"always, one query", 9, {QKV(3, 2, 1, 1, 300, 5, 3), ALWAYS(3, 2, 1, 300)}, &always_blocks},
    {"shared keys, h / group", 4, {QKV(2, 6, 2, 5, 9, 4, 3), INTS(2, 5, 1, 9)}, &by_div},
    {"shared keys, h mod K", 4, {QKV(2, 6, 2, 5, 9, 4, 3), INTS(2, 5, 1, 9)}, &by_mod},
    {"one key head", 4, {QKV(2, 4, 1, 5, 9, 4, 3), INTS(2, 5, 1, 9)}, &by_div},
    {"soft cap", 3, {QKV(2, 2, 2, 5, 9, 7, 4)}, &capped},
    {"scale", 3, {QKV(2, 2, 2, 5, 9, 7, 4)}, &scaled},
    {"soft cap, scale and bias", 4, {QKV(2, 2, 2, 5, 9, 7, 4), {{1, {9}}}}, &capped_scaled},
    {"sink", 4, {QKV(2, 3, 3, 5, 9, 7, 4), {{1, {3}}}}, &(args){.sink = 3}},
    {"sink, some see nothing",
     5,
     {QKV(2, 4, 2, 5, 9, 7, 4), {{1, {4}}}, INTS(2, 5, -3, 9)},
     &(args){.sink = 3, .hi = 4}},
    {"sink, several tiles", 4, {QKV(1, 2, 2, 40, 150, 5, 3), {{1, {2}}}}, &(args){.sink = 3}},
    {"sink, one query, dropout",
     5,
     {QKV(3, 2, 1, 1, 300, 5, 3), {{1, {2}}}, KEY},
     &(args){.sink = 3, .dropout = 0.4, .key = 4}},
    /* Without keys that all see, levels of queries change nothing: their gradients are 0. */
    {"levels",
     5,
     {QKV(2, 4, 2, 5, 9, 7, 4), {{4, {2, 4, 5, 2}}}, {{4, {2, 4, 9, 2}}}},
     &(args){.q_level = 3, .k_level = 4, .always = 1}},
    {"levels of one part, always, late cap",
     6,
     {QKV(2, 4, 2, 5, 9, 7, 4), {{4, {2, 4, 5, 1}}}, {{4, {2, 4, 9, 1}}}, INTS(2, 5, -3, 9)},
     &(args){.q_level = 3, .k_level = 4, .hi = 5, .always = 2, .softcap = 1.3, .late = true}},
    {"levels, several tiles",
     5,
     {QKV(1, 2, 1, 40, 150, 5, 3), {{4, {1, 2, 40, 2}}}, {{4, {1, 2, 150, 2}}}},
     &(args){.q_level = 3, .k_level = 4, .always = 1}},
    {"levels, one query",
     5,
     {QKV(2, 2, 1, 1, 300, 5, 3), {{4, {2, 2, 1, 2}}}, {{4, {2, 2, 300, 2}}}},
     &(args){.q_level = 3, .k_level = 4, .always = 1}},
    {"late cap", 4, {QKV(2, 2, 2, 5, 9, 7, 4), {{1, {9}}}}, &late},
    {"late cap, everything", 9, {QKV(2, 4, 2, 7, 20, 5, 3), ALWAYS(2, 4, 7, 20)}, &late_all},
    {"late cap, several tiles", 9, {QKV(1, 2, 1, 40, 200, 5, 3), ALWAYS(1, 2, 40, 200)}, &late_all},
    {"late cap, one query", 9, {QKV(3, 2, 1, 1, 300, 5, 3), ALWAYS(3, 2, 1, 300)}, &late_all},
    {"far out",
     3,
     {{{4, {2, 2, 5, 7}}, .lo = -8, .hi = 8},
      {{4, {2, 2, 70, 7}}, .lo = -8, .hi = 8},
      {{4, {2, 2, 70, 4}}}},
     &none,
     .tol = FAR_TOL,
     .no_grad = true},
    {"dropout", 4, {QKV(2, 3, 3, 5, 9, 7, 4), KEY}, &dropped},
    {"dropout, several tiles", 4, {QKV(1, 2, 2, 40, 150, 3, 2), KEY}, &dropped},
    {"dropout and positions",
     7,
     {QKV(2, 3, 3, 5, 9, 7, 4),
      KEY,
      {{1, {2}}, CHECK_I32, .lo = 0, .hi = 99},
      INTS(2, 5, 0, 99),
      INTS(2, 9, 0, 99)},
     &dropped_placed},
    {"everything",
     10,
     {QKV(2, 4, 2, 7, 20, 5, 3),
      INTS(2, 7, -2, 12),
      INTS(2, 7, 0, 24),
      {{4, {2, 4, 7, 20}}, CHECK_BOOL},
      {{3, {4, 1, 20}}},
      {{1, {4}}, .lo = 0.05, .hi = 0.5},
      INTS(2, 7, 0, 20),
      INTS(2, 20, 0, 20)},
     &all},
    {"everything, several tiles",
     10,
     {QKV(1, 4, 2, 40, 140, 5, 3),
      INTS(1, 40, -2, 90),
      INTS(1, 40, 0, 150),
      {{4, {1, 4, 40, 140}}, CHECK_BOOL},
      {{3, {4, 1, 140}}},
      {{1, {4}}, .lo = 0.05, .hi = 0.5},
      INTS(1, 40, 0, 20),
      INTS(1, 140, 0, 20)},
     &all},
    {"everything and distances, several tiles",
     11,
     {QKV(1, 4, 2, 40, 140, 5, 3),
      INTS(1, 40, -2, 90),
      INTS(1, 40, 0, 150),
      {{4, {1, 4, 40, 140}}, CHECK_BOOL},
      {{3, {4, 1, 140}}},
      {{1, {4}}, .lo = 0.05, .hi = 0.5},
      INTS(1, 40, 0, 20),
      INTS(1, 140, 0, 20),
      {{2, {4, 13}}}},
     &all_far},
    {"one query, many keys", 3, {QKV(1, 2, 2, 1, 300, 3, 2)}, &none},
    {"one query of many rows, everything",
     10,
     {QKV(9, 4, 2, 1, 300, 5, 3),
      INTS(9, 1, -2, 250),
      INTS(9, 1, 0, 320),
      {{4, {9, 4, 1, 300}}, CHECK_BOOL},
      {{3, {4, 1, 300}}},
      {{1, {4}}, .lo = 0.05, .hi = 0.5},
      INTS(9, 1, 0, 20),
      INTS(9, 300, 0, 20)},
     &all,
     .no_grad = true},
};

/* ---- cases: what only the plain path does ---------------------------------------------------- */

static const args top1 = {.topk = 1}, top3 = {.topk = 3, .hi = 3}, top99 = {.topk = 99};
static const args top_masked = {.topk = 2, .mask = 3}, hard = {.hard = true};
static const args hard_masked = {.hard = true, .mask = 3};
static const args hard_dropped = {.hard = true, .dropout = 0.4, .key = 3};

static const check_case plain_cases[] = {
    {"top 1", 3, {QKV(2, 3, 3, 5, 9, 7, 4)}, &top1},
    {"top 3 of what is seen", 4, {QKV(2, 3, 3, 5, 9, 7, 4), INTS(2, 5, 0, 9)}, &top3},
    {"top of fewer", 3, {QKV(2, 3, 3, 5, 9, 7, 4)}, &top99},
    {"top of nothing", 3, {QKV(2, 3, 3, 5, 0, 7, 4)}, &top1},
    {"top 2, masked", 4, {QKV(2, 3, 3, 5, 4, 7, 4), {{4, {2, 3, 5, 4}}, CHECK_BOOL}}, &top_masked},
    {"top 3, some always",
     4,
     {QKV(2, 3, 3, 5, 9, 7, 4), INTS(2, 5, 0, 9)},
     &(args){.topk = 3, .hi = 3, .always = 2}},
    {"hard", 3, {QKV(2, 3, 3, 5, 9, 7, 4)}, &hard, .no_grad = true},
    {"hard, masked",
     4,
     {QKV(2, 3, 3, 5, 3, 7, 4), {{4, {2, 3, 5, 3}}, CHECK_BOOL}},
     &hard_masked,
     .no_grad = true},
    {"hard of nothing", 3, {QKV(2, 3, 3, 5, 0, 7, 4)}, &hard, .no_grad = true},
    {"hard, dropout", 4, {QKV(2, 3, 3, 5, 9, 7, 4), KEY}, &hard_dropped, .no_grad = true},
};

/* The scores as a second result, with a gradient of their own. */
static void build_scores(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_random_config random;
    dra_attend_config c = make_config(p, in, DRA_ATTEND_AUTO, &random);
    c.scores = &out[1];
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

static void oracle_scores(const void *p, const check_tensor *in, check_tensor *out)
{
    const args *a = p;
    const sizes n = sizes_of(in);
    oracle(p, in, out);
    for (int64_t i = 0; i < out[1].count; i++) {
        const int64_t row = i / n.J, t = row % n.T;
        const int64_t at[4] = {row / n.T / n.H, row / n.T % n.H, t, i % n.J};
        out[1].at[i] = logit(a, in, at, n.J - n.T + t, i % n.J);
    }
}

static const check_case scores_cases[] = {
    {"scores",
     5,
     {QKV(2, 4, 2, 5, 9, 7, 4), {{1, {9}}}, {{1, {4}}, .lo = 0.1, .hi = 1}},
     &(args){.bias = 3, .slopes = 4, .softcap = 2}},
    {"scores by distance",
     4,
     {QKV(2, 4, 2, 5, 9, 7, 4), {{2, {4, 7}}}},
     &(args){.distance = 3, .zero = 3}},
};

/* The logarithm of the sum as a second result of the tiled path, with a gradient of its own. */
static void build_lse(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_random_config random;
    dra_attend_config c = make_config(p, in, DRA_ATTEND_AUTO, &random);
    c.lse = &out[1];
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

static void oracle_lse(const void *p, const check_tensor *in, check_tensor *out)
{
    const args *a = p;
    const sizes n = sizes_of(in);
    oracle(p, in, out);
    for (int64_t i = 0; i < out[1].count; i++) {
        const int64_t b = i / n.T / n.H, t = i % n.T;
        double        sum = 0;
        for (int64_t j = 0; j < n.J; j++)
            sum += exp(logit(a, in, (int64_t[4]){b, i / n.T % n.H, t, j}, n.J - n.T + t, j));
        out[1].at[i] = sum > 0 ? log(sum) : 0;
    }
}

static const check_case lse_cases[] = {
    {"lse", 3, {QKV(2, 4, 2, 5, 9, 7, 4)}, &(args){0}},
    {"lse of what is seen", 4, {QKV(2, 3, 3, 5, 9, 7, 4), INTS(2, 5, 0, 9)}, &(args){.hi = 3}},
    {"lse of several blocks", 3, {QKV(1, 2, 1, 40, 150, 8, 8)}, &(args){.softcap = 3}},
    {"lse by distance",
     4,
     {QKV(2, 2, 2, 40, 70, 5, 3), {{2, {1, 50}}}},
     &(args){.distance = 3, .zero = 20}},
    {"lse of nothing", 3, {QKV(2, 3, 3, 5, 0, 7, 4)}, &(args){0}},
};

/* ---- cases: few keys ------------------------------------------------------------------------- */

static void build_few(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_random_config random;
    dra_attend_config c = make_config(p, in, DRA_ATTEND_FEW, &random);
    c.lse = &out[1];
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

static const check_case few_cases[] = {
    {"slots", 3, {QKV(7, 3, 3, 1, 4, 16, 17)}, &none},
    {"one slot", 3, {QKV(5, 2, 2, 1, 1, 5, 3)}, &none},
    {"one of each", 3, {QKV(1, 1, 1, 1, 1, 1, 1)}, &none},
    {"slots of all heads", 3, {QKV(5, 4, 1, 1, 8, 7, 4)}, &none},
    {"shared slots, h / group", 3, {QKV(3, 6, 2, 1, 5, 4, 3)}, &(args){.heads = DRA_HEADS_DIV}},
    {"shared slots, h mod K", 3, {QKV(3, 6, 2, 1, 5, 4, 3)}, &(args){.heads = DRA_HEADS_MOD}},
    {"more queries", 3, {QKV(2, 4, 2, 3, 5, 7, 4)}, &(args){.heads = DRA_HEADS_MOD}},
    {"scale", 3, {QKV(2, 2, 2, 1, 9, 7, 4)}, &(args){.scale = -1.7}},
    {"many keys", 3, {QKV(2, 2, 2, 1, 130, 5, 3)}, &none},
    {"several tiles", 3, {QKV(70, 2, 2, 1, 8, 33, 31)}, &none, .no_grad = true},
    {"no rows", 3, {QKV(0, 2, 2, 1, 4, 5, 3)}, &none},
    {"no heads", 3, {QKV(2, 0, 0, 1, 4, 5, 3)}, &none},
    {"no width of keys", 3, {QKV(2, 2, 2, 1, 4, 0, 3)}, &none},
    {"no width of values", 3, {QKV(2, 2, 2, 1, 4, 5, 0)}, &none},
    {"far out",
     3,
     {{{4, {2, 2, 1, 7}}, .lo = -8, .hi = 8},
      {{4, {2, 2, 9, 7}}, .lo = -8, .hi = 8},
      {{4, {2, 2, 9, 4}}}},
     &none,
     .tol = FAR_TOL,
     .no_grad = true},
};

/* ---- cases: bf16 precision, which the CPU ignores -------------------------------------------- */

static void build_bf16(dra_graph *g, const void *p, const dra_value *in, dra_value *out)
{
    dra_random_config random;
    dra_attend_config c = make_config(p, in, DRA_ATTEND_TILED, &random);
    dra_set_precision(g, DRA_PRECISION_BF16);
    c.lse = &out[1];
    out[0] = dra_attend(g, in[0], in[1], in[2], &c);
}

#define BF16_TOL .tol = 1e-2

static const check_case bf16_cases[] = {
    {"sees all", 3, {QKV(1, 2, 2, 70, 90, 64, 64)}, &none, BF16_TOL},
    {"up to hi", 4, {QKV(2, 2, 1, 45, 70, 64, 64), INTS(2, 45, 0, 71)}, &only_hi, BF16_TOL},
    {"from lo on", 4, {QKV(1, 4, 2, 40, 100, 64, 64), INTS(1, 40, 50, 101)}, &only_lo, BF16_TOL},
    {"ragged, h mod K",
     5,
     {QKV(1, 4, 2, 150, 70, 64, 64), INTS(1, 150, -3, 60), INTS(1, 150, 0, 75)},
     &(args){.lo = 3, .hi = 4, .heads = DRA_HEADS_MOD, .scale = 0.2},
     BF16_TOL},
    {"width 128", 4, {QKV(1, 2, 1, 70, 90, 128, 128), INTS(1, 70, 0, 91)}, &only_hi, BF16_TOL},
    {"sees nothing", 4, {QKV(1, 1, 1, 40, 70, 64, 64), INTS(1, 40, -2, 1)}, &only_hi, BF16_TOL},
    {"no keys", 3, {QKV(1, 2, 2, 40, 0, 64, 64)}, &none, BF16_TOL},
    {"few queries", 3, {QKV(2, 2, 2, 1, 90, 64, 64)}, &none, BF16_TOL},
    {"another width", 3, {QKV(1, 2, 2, 40, 70, 64, 9)}, &none, BF16_TOL},
    {"negative scale", 3, {QKV(1, 2, 2, 40, 70, 64, 64)}, &(args){.scale = -0.1}, BF16_TOL},
    {"bias", 4, {QKV(1, 1, 1, 40, 70, 64, 64), {{3, {1, 40, 70}}}}, &biased, BF16_TOL},
};

/* ---- cases: keys and values of a cache in bf16 ----------------------------------------------- */

#define QKV_BF16(B, H, K, T, J, D, E)                                                              \
    {{4, {B, H, T, D}}}, {{4, {B, K, J, D}}, CHECK_BF16}, { {4, {B, K, J, E}}, CHECK_BF16 }

static const check_case cache_cases[] = {
    {"one query", 3, {QKV_BF16(2, 4, 2, 1, 300, 20, 33)}, &none, .no_grad = true},
    {"few queries",
     4,
     {QKV_BF16(2, 4, 2, 5, 90, 16, 16), INTS(2, 5, 0, 90)},
     &only_hi,
     .no_grad = true},
    {"several tiles",
     5,
     {QKV_BF16(1, 2, 2, 70, 200, 5, 3), INTS(1, 70, 0, 180), INTS(1, 70, 20, 200)},
     &lo_hi,
     .no_grad = true},
    {"wide", 3, {QKV_BF16(1, 1, 1, 3, 70, 200, 131)}, &none, .no_grad = true},
    {"of each", 3, {QKV_BF16(1, 1, 1, 1, 1, 1, 1)}, &none, .no_grad = true},
    {"no keys", 3, {QKV_BF16(2, 2, 2, 3, 0, 5, 3)}, &none, .no_grad = true},
    {"sink, dropout",
     5,
     {QKV_BF16(3, 2, 1, 1, 300, 5, 3), {{1, {2}}}, KEY},
     &(args){.sink = 3, .dropout = 0.4, .key = 4},
     .no_grad = true},
};

/* The same where products are in bf16 as well. */
static const check_case bf16_cache_cases[] = {
    {"sees all", 3, {QKV_BF16(1, 2, 2, 70, 90, 64, 64)}, &none, BF16_TOL, .no_grad = true},
    {"up to hi",
     4,
     {QKV_BF16(2, 4, 2, 45, 70, 128, 128), INTS(2, 45, 0, 71)},
     &only_hi,
     BF16_TOL,
     .no_grad = true},
    {"few queries", 3, {QKV_BF16(2, 2, 2, 1, 90, 64, 64)}, &none, BF16_TOL, .no_grad = true},
};

int main(void)
{
    const check_spec specs[] = {
        {"tiled", 1, build_tiled, oracle, both_cases, COUNT(both_cases)},
        {"plain", 1, build_plain, oracle, both_cases, COUNT(both_cases)},
        {"plain", 1, build_plain, oracle, plain_cases, COUNT(plain_cases)},
        {"plain", 2, build_scores, oracle_scores, scores_cases, COUNT(scores_cases)},
        {"tiled", 2, build_lse, oracle_lse, lse_cases, COUNT(lse_cases)},
        {"few", 2, build_few, oracle_lse, few_cases, COUNT(few_cases)},
        {"bf16", 2, build_bf16, oracle_lse, bf16_cases, COUNT(bf16_cases)},
        {"cache", 1, build_tiled, oracle, cache_cases, COUNT(cache_cases)},
        {"cache", 1, build_plain, oracle, cache_cases, COUNT(cache_cases)},
        {"cache", 2, build_bf16, oracle_lse, bf16_cache_cases, COUNT(bf16_cache_cases)},
    };
    return check_main("attend", specs, COUNT(specs), NULL, 0);
}
