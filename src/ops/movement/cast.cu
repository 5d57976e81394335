/* cast: y = x in another dtype, as the CPU rounds. Numbers pass through double, which holds those
 * of every dtype; between f32 and the 16-bit floats, where four are neighbours, four of them at a
 * time. */
#include "ops/movement/move.cuh"

/* ---- stored numbers -------------------------------------------------------------------------- */

/* v / 2^shift, rounded to nearest, ties to even. */
__device__ static unsigned shift_round(unsigned v, unsigned shift)
{
    const unsigned half = 1u << (shift - 1), rest = v & ((1u << shift) - 1), y = v >> shift;
    return y + (rest > half || (rest == half && (y & 1u)));
}

__device__ static uint16_t round_f16(float x)
{
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65520 or more */
    if (a >= 0x38800000u) return (uint16_t)(sign | shift_round(a - 0x38000000u, 13));
    if (a < 0x33000000u) return (uint16_t)sign; /* below half of the smallest subnormal */
    return (uint16_t)(sign | shift_round((a & 0x7fffffu) | 0x800000u, 126u - (a >> 23)));
}

/* So that a second rounding to nearest even sees on which side of a tie x was. */
__device__ static float round_to_odd(double x)
{
    const float f = (float)x;
    if (x != x || (double)f == x) return f;
    const unsigned bits = __float_as_uint(f);
    return __uint_as_float((fabs((double)f) > fabs(x) ? bits - 1 : bits) | 1u);
}

__device__ static int32_t round_i32(double x)
{
    if (x != x) return 0;
    return x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int32_t)x;
}

__device__ static double load(const void *data, dra_dtype dtype, int64_t i)
{
    switch (dtype) {
    case DRA_F64: return static_cast<const double *>(data)[i];
    case DRA_I32: return static_cast<const int32_t *>(data)[i];
    case DRA_BOOL: return static_cast<const uint8_t *>(data)[i] != 0;
    default: return dra_load(data, dtype, i);
    }
}

__device__ static void store(void *data, dra_dtype dtype, int64_t i, double x)
{
    switch (dtype) {
    case DRA_F32: static_cast<float *>(data)[i] = (float)x; break;
    case DRA_F64: static_cast<double *>(data)[i] = x; break;
    case DRA_BF16: static_cast<uint16_t *>(data)[i] = dra_round_bf16(round_to_odd(x)); break;
    case DRA_F16: static_cast<uint16_t *>(data)[i] = round_f16(round_to_odd(x)); break;
    case DRA_I32: static_cast<int32_t *>(data)[i] = round_i32(x); break;
    default: static_cast<uint8_t *>(data)[i] = x != 0;
    }
}

__global__ static void cast_kernel(const __grid_constant__ dra_view x, dra_dtype from, void *y,
                                   dra_dtype to, int64_t n)
{
    DRA_EACH(i, n) store(y, to, i, load(x.data, from, dra_offset(x, i)));
}

/* ---- four at a time -------------------------------------------------------------------------- */

struct alignas(8) halves {
    uint16_t x, y, z, w;
};

struct bf16 {
    static __device__ float    widen(uint16_t x) { return dra_widen_bf16(x); }
    static __device__ uint16_t round(float x) { return dra_round_bf16(x); }
};
struct f16 {
    static __device__ float    widen(uint16_t x) { return dra_widen_f16(x); }
    static __device__ uint16_t round(float x) { return round_f16(x); }
};

/* x: a view of fours. */
template <typename Half>
__global__ static void widen_kernel(const __grid_constant__ dra_view x, float4 *y, int64_t n)
{
    DRA_EACH(i, n)
    {
        const halves h = dra_data<const halves>(x)[dra_offset(x, i)];
        y[i] = make_float4(Half::widen(h.x), Half::widen(h.y), Half::widen(h.z), Half::widen(h.w));
    }
}

template <typename Half>
__global__ static void narrow_kernel(const __grid_constant__ dra_view x, halves *y, int64_t n)
{
    DRA_EACH(i, n)
    {
        const float4 f = dra_data<const float4>(x)[dra_offset(x, i)];
        y[i] = {Half::round(f.x), Half::round(f.y), Half::round(f.z), Half::round(f.w)};
    }
}

template <typename Half> static void launch_fours(const dra_call *c, const dra_view &x, int64_t n)
{
    const unsigned grid = dra_grid(c, n, DRA_THREADS);
    void          *y = c->out[0].data;
    if (c->in[0].dtype == DRA_F32)
        DRA_LAUNCH(c, narrow_kernel<Half>, grid, DRA_THREADS, 0, x, static_cast<halves *>(y), n);
    else
        DRA_LAUNCH(c, widen_kernel<Half>, grid, DRA_THREADS, 0, x, static_cast<float4 *>(y), n);
}

/* *v: x in fours, if it can be read so. */
static bool in_fours(const dra_tensor *x, const dra_tensor *y, dra_view *v)
{
    const dra_dtype other = x->dtype == DRA_F32 ? y->dtype : x->dtype;
    int64_t         n = dra_shape_count(&y->shape);
    *v = dra_view_of(x);
    return (x->dtype == DRA_F32 || y->dtype == DRA_F32) &&
           (other == DRA_BF16 || other == DRA_F16) &&
           reinterpret_cast<uintptr_t>(y->data) % 16 == 0 && dra_cuda_by_four(v, &n);
}

static void launch(const dra_call *c)
{
    const dra_tensor *x = &c->in[0], *y = &c->out[0];
    const int64_t     n = dra_shape_count(&y->shape);
    dra_view          v;
    if (!in_fours(x, y, &v))
        DRA_LAUNCH(c, cast_kernel, dra_grid(c, n, DRA_THREADS), DRA_THREADS, 0, dra_view_of(x),
                   x->dtype, y->data, y->dtype, n);
    else if (x->dtype == DRA_BF16 || y->dtype == DRA_BF16)
        launch_fours<bf16>(c, v, n / 4);
    else
        launch_fours<f16>(c, v, n / 4);
}

const dra_cuda_kernel dra_cuda_cast = {
    {"cast", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false, nullptr, nullptr}, launch, false};
