/* Random numbers and dropout: the numbers of the CPU, see random.c. A thread draws what one
 * call of Philox gives, 4 numbers. */
#include "device/cuda/cuda.cuh"

extern "C" {
#include "base/philox.h"
}

enum { DRAWN = 4 };

struct draws {
    const int32_t *key, *pos, *row; /* pos, row: NULL: none */
    uint64_t       path;
    bool           normal;
    int64_t        cells, times, inner; /* B T, T, elements of one (b, t) */
    float          p, scale;            /* of dropout */
    const float   *x;
};

static draws draws_of(const dra_call *c, int first)
{
    const dra_random_attr *a = static_cast<const dra_random_attr *>(c->attr);
    const dra_shape       *s = &c->out[0].shape;
    draws                  d = {};
    d.key = static_cast<const int32_t *>(c->in[first++].data);
    if (a->has_pos) d.pos = static_cast<const int32_t *>(c->in[first++].data);
    if (a->has_row) d.row = static_cast<const int32_t *>(c->in[first++].data);
    d.path = a->path;
    d.normal = a->normal;
    d.times = s->dim[s->rank > 1 ? 1 : 0];
    d.cells = (s->rank > 1 ? s->dim[0] : 1) * d.times;
    d.inner = 1;
    for (int32_t i = 2; i < s->rank; i++) d.inner *= s->dim[i];
    d.p = (float)a->p;
    d.scale = (float)(1 / (1 - a->p));
    return d;
}

__device__ static void make_normal(float u[DRAWN])
{
    for (int i = 0; i < DRAWN; i += 2) {
        const float length = sqrtf(-2 * log1pf(-u[i])), angle = 6.28318530717958647693f * u[i + 1];
        u[i] = length * cosf(angle);
        u[i + 1] = length * sinf(angle);
    }
}

__device__ static void draw(const draws &d, uint64_t key, int64_t cell, int64_t block,
                            float u[DRAWN])
{
    const int64_t  b = cell / d.times, t = cell - b * d.times;
    const uint32_t start = d.pos ? (uint32_t)d.pos[b] : 0;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)((uint64_t)block >> 32),
                                 start + (uint32_t)t, d.row ? (uint32_t)d.row[b] : (uint32_t)b};
    uint32_t       word[4];
    dra_philox(counter, key, word);
    for (int i = 0; i < DRAWN; i++) u[i] = (float)(word[i] >> 8) * 0x1p-24f;
    if (d.normal) make_normal(u);
}

__device__ static float drop(const draws &d, float u, float x)
{
    return u >= d.p ? x * d.scale : 0;
}

/* Whole: all numbers of a draw are elements, and 16 bytes of memory. */
template <bool Whole, bool Dropout>
__global__ static void draw_kernel(const __grid_constant__ draws d, float *y)
{
    const uint64_t key = dra_philox_key(d.key, d.path);
    const int64_t  blocks = (d.inner + DRAWN - 1) / DRAWN;
    DRA_EACH(i, d.cells * blocks)
    {
        const int64_t cell = i / blocks, block = i - cell * blocks;
        const int64_t at = cell * d.inner + block * DRAWN;
        float         u[DRAWN];
        draw(d, key, cell, block, u);
        if (Whole) {
            const float4 x = Dropout ? reinterpret_cast<const float4 *>(d.x)[at / 4] : float4{};
            reinterpret_cast<float4 *>(
                y)[at / 4] = Dropout ? make_float4(drop(d, u[0], x.x), drop(d, u[1], x.y),
                                                   drop(d, u[2], x.z), drop(d, u[3], x.w))
                                     : make_float4(u[0], u[1], u[2], u[3]);
        } else {
            for (int k = 0; k < DRAWN && block * DRAWN + k < d.inner; k++)
                y[at + k] = Dropout ? drop(d, u[k], d.x[at + k]) : u[k];
        }
    }
}

template <bool Dropout> static void launch_draws(const dra_call *c, const draws *d)
{
    float          *y = static_cast<float *>(c->out[0].data);
    const uintptr_t places = reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(d->x);
    const unsigned  grid = dra_grid(c, d->cells * dra_div_up(d->inner, DRAWN), DRA_THREADS);
    if (d->inner % DRAWN == 0 && places % 16 == 0)
        DRA_LAUNCH(c, (draw_kernel<true, Dropout>), grid, DRA_THREADS, 0, *d, y);
    else
        DRA_LAUNCH(c, (draw_kernel<false, Dropout>), grid, DRA_THREADS, 0, *d, y);
}

static void random_launch(const dra_call *c)
{
    const draws d = draws_of(c, 0);
    launch_draws<false>(c, &d);
}

static void dropout_launch(const dra_call *c)
{
    draws d = draws_of(c, 1);
    d.x = static_cast<const float *>(c->in[0].data);
    launch_draws<true>(c, &d);
}

const dra_cuda_kernel dra_cuda_random = {
    {"random", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, false, nullptr, nullptr},
    random_launch,
    false};

const dra_cuda_kernel dra_cuda_dropout = {
    {"dropout", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 1, false, nullptr, nullptr},
    dropout_launch,
    false};
