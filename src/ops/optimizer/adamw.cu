/* adamw (p, m, v, dp, rate, s, t) -> p', m', v' in one pass over memory; see adamw.c for the
 * formula. Outputs may be the memory of their inputs: an element is read before it is written. */
#include "device/cuda/cuda.cuh"

struct step_call {
    dra_fault_place fault;
    int64_t         n;
    double          beta1, beta2;
    float           b1, new1, b2, new2, eps, decay;
    const float    *dp, *rate, *s;
    const int32_t  *t;
    const float    *in[3]; /* p, m, v */
    float          *out[3];
};

struct terms { /* what all elements share */
    float fix1, fix2, rate, s;
};

struct element {
    float p, m, v;
};

__device__ static element step(const step_call &a, const terms &f, float dp, float p, float m,
                               float v)
{
    const float d = f.s * dp;
    const float m_new = fmaf(a.b1, m, a.new1 * d), v_new = fmaf(a.b2, v, a.new2 * d * d);
    const float way = m_new * f.fix1 / (sqrtf(v_new * f.fix2) + a.eps);
    return {fmaf(-f.rate, fmaf(a.decay, p, way), p), m_new, v_new};
}

/* The elements at one address: one, or the four of a float4. */
__device__ static void step_at(const step_call &a, const terms &f, const float *dp, const float *p,
                               const float *m, const float *v, float *const out[3])
{
    const element e = step(a, f, *dp, *p, *m, *v);
    if (out[0]) *out[0] = e.p;
    if (out[1]) *out[1] = e.m;
    if (out[2]) *out[2] = e.v;
}

__device__ static void step_at(const step_call &a, const terms &f, const float4 *dp,
                               const float4 *p, const float4 *m, const float4 *v,
                               float4 *const out[3])
{
    const float4  d = *dp, old = *p, m_old = *m, v_old = *v;
    const element x = step(a, f, d.x, old.x, m_old.x, v_old.x);
    const element y = step(a, f, d.y, old.y, m_old.y, v_old.y);
    const element z = step(a, f, d.z, old.z, m_old.z, v_old.z);
    const element w = step(a, f, d.w, old.w, m_old.w, v_old.w);
    if (out[0]) *out[0] = make_float4(x.p, y.p, z.p, w.p);
    if (out[1]) *out[1] = make_float4(x.m, y.m, z.m, w.m);
    if (out[2]) *out[2] = make_float4(x.v, y.v, z.v, w.v);
}

/* The corrections are differences of nearly equal numbers: in double, by one thread of a block. */
__device__ static terms terms_of(const step_call &a, int32_t t)
{
    __shared__ terms f;
    if (threadIdx.x == 0)
        f = {(float)(1 / (1 - pow(a.beta1, (double)t))), (float)(1 / (1 - pow(a.beta2, (double)t))),
             *a.rate, *a.s};
    __syncthreads();
    return f;
}

template <typename T> __device__ static const T *part(const float *x, int64_t i)
{
    return reinterpret_cast<const T *>(x) + i;
}

template <typename T> __device__ static T *part(float *x, int64_t i)
{
    return x ? reinterpret_cast<T *>(x) + i : nullptr;
}

/* n counts elements of T here. */
template <typename T> __global__ static void step_kernel(const step_call a)
{
    const int32_t t = *a.t;
    if (t < 1) {
        if (blockIdx.x == 0 && threadIdx.x == 0) dra_fault_raise(a.fault, 0, DRA_FAULT_STEP, t);
        return;
    }
    const terms f = terms_of(a, t);
    if (f.s != f.s) { /* a step that is skipped: each output is what it replaces */
        for (int k = 0; k < 3; k++)
            if (a.out[k] && a.out[k] != a.in[k])
                DRA_EACH(i, a.n) * part<T>(a.out[k], i) = *part<T>(a.in[k], i);
        return;
    }
    DRA_EACH(i, a.n)
    {
        T *const out[3] = {part<T>(a.out[0], i), part<T>(a.out[1], i), part<T>(a.out[2], i)};
        step_at(a, f, part<T>(a.dp, i), part<T>(a.in[0], i), part<T>(a.in[1], i),
                part<T>(a.in[2], i), out);
    }
}

static step_call step_of(const dra_call *c)
{
    const dra_adamw_config *a = static_cast<const dra_adamw_config *>(c->attr);
    step_call               s = {};
    s.fault = dra_fault_of(c);
    s.n = dra_shape_count(&c->in[0].shape);
    s.beta1 = a->beta1, s.beta2 = a->beta2;
    s.b1 = (float)a->beta1, s.new1 = (float)(1 - a->beta1);
    s.b2 = (float)a->beta2, s.new2 = (float)(1 - a->beta2);
    s.eps = (float)a->eps, s.decay = (float)a->decay;
    s.dp = static_cast<const float *>(c->in[3].data);
    s.rate = static_cast<const float *>(c->in[4].data);
    s.s = static_cast<const float *>(c->in[5].data);
    s.t = static_cast<const int32_t *>(c->in[6].data);
    for (int k = 0; k < 3; k++) {
        s.in[k] = static_cast<const float *>(c->in[k].data);
        s.out[k] = static_cast<float *>(c->out[k].data);
    }
    return s;
}

static void launch(const dra_call *c)
{
    step_call s = step_of(c);
    uintptr_t places = reinterpret_cast<uintptr_t>(s.dp);
    for (int k = 0; k < 3; k++)
        places |= reinterpret_cast<uintptr_t>(s.in[k]) | reinterpret_cast<uintptr_t>(s.out[k]);
    if (s.n % 4 == 0 && places % 16 == 0) {
        s.n /= 4;
        DRA_LAUNCH(c, step_kernel<float4>, dra_grid(c, s.n, DRA_THREADS), DRA_THREADS, 0, s);
    } else {
        DRA_LAUNCH(c, step_kernel<float>, dra_grid(c, s.n, DRA_THREADS), DRA_THREADS, 0, s);
    }
}

const dra_cuda_kernel dra_cuda_adamw = {
    {"adamw", DRA_REALS | DRA_BIT(DRA_I32), DRA_LAYOUT_DENSE, 0, true, nullptr, nullptr},
    launch,
    false};
