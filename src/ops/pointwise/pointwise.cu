/* Pointwise functions and programs: one thread computes all steps of an element, or of four
 * neighbours where memory allows, after it has read all their operands, so an output may take the
 * memory of an input. Its values are in shared memory, as many as the program has: registers cannot
 * be counted through, and memory of a thread's own would be too large for the first cache. */
#include "ops/pointwise/pointwise.cuh"

#include "ops/pointwise/functions.cuh"
#include "device/cuda/stored.cuh"

struct program {
    int32_t            inputs, steps;
    int64_t            n;
    dra_view           in[DRA_POINTWISE_INPUTS];
    uint8_t            in_bytes[DRA_POINTWISE_INPUTS], out_bytes[DRA_POINTWISE_OUTPUTS];
    bool               fours[DRA_POINTWISE_INPUTS];   /* neighbours are adjacent, four aligned */
    bool               widens[DRA_POINTWISE_INPUTS];  /* floats, stored in bf16 */
    bool               rounds[DRA_POINTWISE_OUTPUTS]; /* floats, stored in bf16 */
    void              *out[DRA_POINTWISE_OUTPUTS];
    dra_pointwise_step step[DRA_POINTWISE_STEPS];
};

__device__ static dra_word load_word(const void *data, int bytes, int64_t i)
{
    dra_word w;
    w.bits = bytes == 4   ? static_cast<const uint32_t *>(data)[i]
             : bytes == 1 ? static_cast<const uint8_t *>(data)[i]
                          : static_cast<const uint16_t *>(data)[i];
    return w;
}

__device__ static void store_word(void *data, int bytes, int64_t i, dra_word w)
{
    if (bytes == 4)
        static_cast<uint32_t *>(data)[i] = w.bits;
    else if (bytes == 1)
        static_cast<uint8_t *>(data)[i] = (uint8_t)w.bits;
    else
        static_cast<uint16_t *>(data)[i] = (uint16_t)w.bits;
}

template <int W> __device__ static void load_wide(const program &p, int k, int64_t i, dra_word *to)
{
    const dra_view &v = p.in[k];
    const uint16_t *from = dra_data<const uint16_t>(v);
    float           x[W];
    if (W == 4 && p.fours[k])
        dra_load_some<W>(from + dra_offset(v, i), x);
    else
        for (int j = 0; j < W; j++) dra_load_some<1>(from + dra_offset(v, i + j), x + j);
    DRA_UNROLL
    for (int j = 0; j < W; j++) to[j].real = x[j];
}

/* Elements i .. i+W-1 of an input. */
template <int W> __device__ static void load_words(const program &p, int k, int64_t i, dra_word *to)
{
    const dra_view &v = p.in[k];
    if (p.widens[k]) {
        load_wide<W>(p, k, i, to);
        return;
    }
    if (W == 4 && p.fours[k]) {
        const dra_word *from = dra_data<const dra_word>(v) + dra_offset(v, i);
        *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
        return;
    }
    DRA_UNROLL
    for (int j = 0; j < W; j++) to[j] = load_word(v.data, p.in_bytes[k], dra_offset(v, i + j));
}

template <int W>
__device__ static void store_words(const program &p, int k, int64_t i, const dra_word *from)
{
    if (p.rounds[k]) {
        float x[W];
        DRA_UNROLL
        for (int j = 0; j < W; j++) x[j] = from[j].real;
        dra_store_real<W>(p.out[k], true, i, x);
        return;
    }
    if (W == 4 && p.out_bytes[k] == 4) {
        static_cast<float4 *>(p.out[k])[i / 4] = *reinterpret_cast<const float4 *>(from);
        return;
    }
    DRA_UNROLL
    for (int j = 0; j < W; j++) store_word(p.out[k], p.out_bytes[k], i + j, from[j]);
}

template <int W> __device__ static void take_words(const dra_word *from, dra_word *to)
{
    if (W == 4)
        *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
    else
        to[0] = from[0];
}

template <int W> __global__ static void run_program(const __grid_constant__ program p)
{
    DRA_SHARED(dra_word, room);
    const auto value = [&](int k) { return room + (k * blockDim.x + threadIdx.x) * W; };
    DRA_EACH(at, p.n / W)
    {
        const int64_t i = at * W;
        for (int k = 0; k < p.inputs; k++) load_words<W>(p, k, i, value(k));
        for (int k = 0; k < p.steps; k++) {
            const dra_pointwise_step &s = p.step[k];
            const int                 operands = dra_function_operands(s.function);
            alignas(16) dra_word      x[3][W], r[W];
            take_words<W>(value(s.x[0]), x[0]);
            if (operands > 1) take_words<W>(value(s.x[1]), x[1]);
            if (operands > 2) take_words<W>(value(s.x[2]), x[2]);
            dra_function_apply<W>(s, x[0], x[1], x[2], r);
            if (k + 1 < p.steps) take_words<W>(r, value(p.inputs + k));
            if (s.output >= 0 && p.out[s.output]) store_words<W>(p, s.output, i, r);
        }
    }
}

/* A program of one step, whose operands need no room. */
template <int W> __global__ static void run_step(const __grid_constant__ program p)
{
    const dra_pointwise_step &s = p.step[0];
    const int                 operands = dra_function_operands(s.function);
    DRA_EACH(at, p.n / W)
    {
        const int64_t        i = at * W;
        alignas(16) dra_word x[3][W], r[W];
        load_words<W>(p, s.x[0], i, x[0]);
        if (operands > 1) load_words<W>(p, s.x[1], i, x[1]);
        if (operands > 2) load_words<W>(p, s.x[2], i, x[2]);
        dra_function_apply<W>(s, x[0], x[1], x[2], r);
        store_words<W>(p, s.output, i, r);
    }
}

/* ---- f(x) and f(x) y: activations and their gradients ---------------------------------------- */

/* Of dense numbers, eight a thread, in f32 or bf16 each. A kernel for each function: nothing is
 * decided for every element. */
struct activation {
    const void  *x, *y; /* y NULL: f(x) alone */
    void        *out;
    bool         x_bf16, y_bf16, out_bf16;
    dra_function function;
    int64_t      n;
};

enum { EIGHT = 8 };

__device__ static void load_eight(const void *from, bool bf16, int64_t i, float *v)
{
    if (bf16) {
        dra_stored_bf16::widen_some(dra_stored_bf16::fetch(from, DRA_BF16, i, 1, EIGHT, true), v);
        return;
    }
    dra_load_some<4>(static_cast<const float *>(from) + i, v);
    dra_load_some<4>(static_cast<const float *>(from) + i + 4, v + 4);
}

template <dra_function F> __device__ static float apply_function(float x)
{
    dra_word from, none = {}, to;
    from.real = x;
    dra_function_real<1>(F, &from, &none, 0, 0, &to);
    return to.real;
}

template <dra_function F> __global__ static void activation_kernel(const activation a)
{
    DRA_EACH(at, a.n / EIGHT)
    {
        const int64_t i = at * EIGHT;
        float         x[EIGHT], y[EIGHT];
        load_eight(a.x, a.x_bf16, i, x);
        if (a.y) load_eight(a.y, a.y_bf16, i, y);
        DRA_UNROLL
        for (int j = 0; j < EIGHT; j++) x[j] = apply_function<F>(x[j]) * (a.y ? y[j] : 1);
        dra_store_real<4>(a.out, a.out_bf16, i, x);
        dra_store_real<4>(a.out, a.out_bf16, i + 4, x + 4);
    }
}

/* Whether input k is dense floats, and where. */
static bool reads_dense(const program &p, int k, const void **data, bool *bf16)
{
    *data = p.in[k].data;
    *bf16 = p.widens[k];
    return k < p.inputs && p.in[k].rank == 0 && (p.widens[k] || p.in_bytes[k] == 4) &&
           (uintptr_t)p.in[k].data % 16 == 0;
}

/* Whether a program is f(x), or f(x) times an input. */
static bool is_activation(const program &p, activation *a)
{
    const dra_pointwise_step &f = p.step[0], &last = p.step[p.steps - 1];
    const int                 made = p.inputs, other = last.x[0] == made ? last.x[1] : last.x[0];
    *a = {};
    if (p.steps > 2 || p.n % EIGHT || dra_function_operands(f.function) != 1 ||
        f.dtype != DRA_F32 || last.output < 0 || !reads_dense(p, f.x[0], &a->x, &a->x_bf16))
        return false;
    if (p.steps == 2 &&
        (f.output >= 0 || last.function != DRA_FUNCTION_MUL ||
         (last.x[0] == made) == (last.x[1] == made) || !reads_dense(p, other, &a->y, &a->y_bf16)))
        return false;
    a->out = p.out[last.output];
    a->out_bf16 = p.rounds[last.output];
    a->function = f.function;
    a->n = p.n;
    return a->out && (uintptr_t)a->out % 16 == 0;
}

/* False: not a function that has such a kernel. */
static bool run_activation(const dra_call *c, const activation &a)
{
    const unsigned grid = dra_grid(c, a.n / EIGHT, DRA_THREADS);
    switch (a.function) {
#define DRA_UNARY(vectors, NAME, name, formula)                                                    \
    case DRA_FUNCTION_##NAME:                                                                      \
        DRA_LAUNCH(c, activation_kernel<DRA_FUNCTION_##NAME>, grid, DRA_THREADS, 0, a);            \
        return true;
#include "device/functions.def"
#undef DRA_UNARY
    default: return false;
    }
}

/* ---- programs -------------------------------------------------------------------------------- */

static bool has_fours(const dra_view &v, int bytes)
{
    bool yes = bytes >= 2 && (uintptr_t)v.data % (uintptr_t)(4 * bytes) == 0;
    for (int32_t i = 0; i < v.rank; i++)
        yes = yes && (i ? v.stride[i] % 4 == 0 : v.stride[0] == 1 && v.dim[0] % 4 == 0);
    return yes;
}

/* Whether a step computes with floats of input k, which are stored in bf16. */
static bool is_widened(const dra_tensor *in, int k, int steps, const dra_pointwise_step *step)
{
    bool read = false;
    for (int i = 0; i < steps; i++)
        for (int j = 0; j < dra_function_operands(step[i].function); j++)
            read = read || (step[i].x[j] == k && step[i].dtype == DRA_F32);
    return in[k].dtype == DRA_BF16 && read;
}

/* Whether outputs can be written so, and four divide all there is. */
static bool by_four(const program &p, int outputs)
{
    bool yes = p.n % 4 == 0;
    for (int k = 0; k < outputs; k++)
        if (p.out_bytes[k] == 4 || p.rounds[k]) yes = yes && (uintptr_t)p.out[k] % 16 == 0;
    return yes;
}

template <int W> static void start(const dra_call *c, const program &p)
{
    enum { FEW = 20 }; /* values for which whole blocks have room */
    const int      values = p.inputs + p.steps, threads = values <= FEW ? DRA_THREADS : 128;
    const size_t   bytes = (size_t)(values * threads * W) * sizeof(dra_word);
    const unsigned grid = dra_grid(c, p.n / W, threads);
    if (p.steps == 1) {
        DRA_LAUNCH(c, run_step<W>, grid, threads, 0, p);
        return;
    }
    cudaFuncSetAttribute(run_program<W>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (DRA_POINTWISE_INPUTS + DRA_POINTWISE_STEPS) * 128 * W *
                             (int)sizeof(dra_word));
    DRA_LAUNCH(c, run_program<W>, grid, threads, bytes, p);
}

void dra_cuda_run_program(const dra_call *c, int inputs, const dra_tensor *in, int outputs,
                          const dra_tensor *out, int steps, const dra_pointwise_step *step,
                          int64_t n)
{
    program p = {};
    p.inputs = inputs;
    p.steps = steps;
    p.n = n;
    for (int k = 0; k < inputs; k++) {
        p.in[k] = dra_view_of(&in[k]);
        p.in_bytes[k] = (uint8_t)dra_dtype_bytes(in[k].dtype);
        p.widens[k] = is_widened(in, k, steps, step);
        p.fours[k] = has_fours(p.in[k], p.in_bytes[k]) && (p.widens[k] || p.in_bytes[k] == 4);
    }
    for (int k = 0; k < outputs; k++) {
        p.out[k] = out[k].data;
        p.out_bytes[k] = (uint8_t)dra_dtype_bytes(out[k].dtype);
    }
    for (int k = 0; k < steps; k++) {
        p.step[k] = step[k];
        if (step[k].output >= 0 && step[k].dtype == DRA_F32)
            p.rounds[step[k].output] = out[step[k].output].dtype == DRA_BF16;
    }
    activation a;
    if (is_activation(p, &a) && run_activation(c, a)) return;
    by_four(p, outputs) ? start<4>(c, p) : start<1>(c, p);
}

static void launch_program(const dra_call *c)
{
    const dra_pointwise_attr *a = static_cast<const dra_pointwise_attr *>(c->attr);
    dra_cuda_run_program(c, c->n_in, c->in, c->n_out, c->out, a->steps, a->step,
                         dra_shape_count(&c->out[0].shape));
}

static void launch_function(const dra_call *c)
{
    const dra_function_attr *a = static_cast<const dra_function_attr *>(c->attr);
    dra_pointwise_step       step = {};
    step.function = a->function;
    step.dtype = c->in[c->n_in - 1].dtype;
    if (step.dtype == DRA_BF16 && a->function != DRA_FUNCTION_SELECT) step.dtype = DRA_F32;
    for (int i = 0; i < DRA_POINTWISE_OPERANDS; i++) step.x[i] = (int16_t)i;
    step.a = a->a;
    step.b = a->b;
    dra_cuda_run_program(c, c->n_in, c->in, 1, c->out, 1, &step, dra_shape_count(&c->out[0].shape));
}

static uint32_t narrows_all(const dra_call *) { return ~0u; }
static uint32_t widens_all(const dra_call *) { return ~0u; }
static uint32_t widens_reals(const dra_call *c)
{
    return static_cast<const dra_function_attr *>(c->attr)->function == DRA_FUNCTION_SELECT ? 0
                                                                                            : ~0u;
}

/* Inputs with any strides. */
#define FUNCTION(op, dtypes, in_place)                                                             \
    const dra_cuda_kernel dra_cuda_##op = {{#op, dtypes, DRA_LAYOUT_ANY, in_place, false, nullptr, \
                                            nullptr, nullptr, narrows_all, false, nullptr,         \
                                            widens_reals},                                         \
                                           launch_function,                                        \
                                           false};

enum { NUMBERS = DRA_REALS | DRA_BIT(DRA_I32), ALL = NUMBERS | DRA_BIT(DRA_BOOL) };

#define DRA_UNARY(vectors, NAME, name, formula) FUNCTION(name, NUMBERS, 1)
#include "device/functions.def"
#undef DRA_UNARY
FUNCTION(affine, DRA_REALS, 1)
FUNCTION(clamp, DRA_REALS, 1)
FUNCTION(add, NUMBERS, 3)
FUNCTION(sub, NUMBERS, 3)
FUNCTION(mul, NUMBERS, 3)
FUNCTION(div, NUMBERS, 3)
FUNCTION(mod, NUMBERS, 3)
FUNCTION(pow, NUMBERS, 3)
FUNCTION(minimum, NUMBERS, 3)
FUNCTION(maximum, NUMBERS, 3)
FUNCTION(equal, ALL, 0)
FUNCTION(not_equal, ALL, 0)
FUNCTION(less, ALL, 0)
FUNCTION(less_equal, ALL, 0)
FUNCTION(greater, ALL, 0)
FUNCTION(greater_equal, ALL, 0)
FUNCTION(and, DRA_BIT(DRA_BOOL), 1)
FUNCTION(or, DRA_BIT(DRA_BOOL), 1)
FUNCTION(not, DRA_BIT(DRA_BOOL), 1)
FUNCTION(is_finite, ALL, 0)
FUNCTION(select, DRA_ANY_DTYPE, 2 | 4)

const dra_cuda_kernel dra_cuda_pointwise = {{"pointwise", DRA_ANY_DTYPE, DRA_LAYOUT_ANY, 0, false,
                                             nullptr, dra_pointwise_takes, nullptr, narrows_all,
                                             false, nullptr, widens_all},
                                            launch_program,
                                            false};
