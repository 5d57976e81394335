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

/* A thread takes GROUPS groups of W elements at a time, a block apart, so that their loads are under
 * way together. The group numbers of a block's turn start at `first`. */
#define EACH_TURN(first, groups, GROUPS)                                                           \
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x * GROUPS + threadIdx.x; first < groups;  \
         first += (int64_t)gridDim.x * blockDim.x * GROUPS)

template <int W, int GROUPS> __global__ static void run_program(const __grid_constant__ program p)
{
    enum { AHEAD = 2 }; /* inputs that are loaded together */
    DRA_SHARED(dra_word, room);
    const int64_t groups = p.n / W;
    const auto    value = [&](int k, int g) {
        return room + ((k * GROUPS + g) * (int)blockDim.x + (int)threadIdx.x) * W;
    };
    EACH_TURN(first, groups, GROUPS)
    {
        for (int k = 0; k < p.inputs; k += AHEAD) {
            alignas(16) dra_word x[AHEAD][GROUPS][W];
            DRA_UNROLL
            for (int j = 0; j < AHEAD * GROUPS; j++) {
                const int64_t at = first + j % GROUPS * (int)blockDim.x;
                if (k + j / GROUPS < p.inputs && at < groups)
                    load_words<W>(p, k + j / GROUPS, at * W, x[j / GROUPS][j % GROUPS]);
            }
            DRA_UNROLL
            for (int j = 0; j < AHEAD * GROUPS; j++)
                if (k + j / GROUPS < p.inputs)
                    take_words<W>(x[j / GROUPS][j % GROUPS], value(k + j / GROUPS, j % GROUPS));
        }
        for (int k = 0; k < p.steps; k++) {
            const dra_pointwise_step &s = p.step[k];
            const int                 operands = dra_function_operands(s.function);
            DRA_UNROLL
            for (int g = 0; g < GROUPS; g++) {
                const int64_t        at = first + g * (int)blockDim.x;
                alignas(16) dra_word x[3][W], r[W];
                if (at >= groups) continue;
                take_words<W>(value(s.x[0], g), x[0]);
                if (operands > 1) take_words<W>(value(s.x[1], g), x[1]);
                if (operands > 2) take_words<W>(value(s.x[2], g), x[2]);
                dra_function_apply<W>(s, x[0], x[1], x[2], r);
                if (k + 1 < p.steps) take_words<W>(r, value(p.inputs + k, g));
                if (s.output >= 0 && p.out[s.output]) store_words<W>(p, s.output, at * W, r);
            }
        }
    }
}

/* A program of one step, whose operands need no room. */
template <int W, int GROUPS> __global__ static void run_step(const __grid_constant__ program p)
{
    const dra_pointwise_step &s = p.step[0];
    const int                 operands = dra_function_operands(s.function);
    const int64_t             groups = p.n / W;
    EACH_TURN(first, groups, GROUPS)
    {
        alignas(16) dra_word x[GROUPS][3][W], r[W];
        DRA_UNROLL
        for (int g = 0; g < GROUPS; g++) {
            const int64_t at = first + g * (int)blockDim.x;
            if (at >= groups) continue;
            load_words<W>(p, s.x[0], at * W, x[g][0]);
            if (operands > 1) load_words<W>(p, s.x[1], at * W, x[g][1]);
            if (operands > 2) load_words<W>(p, s.x[2], at * W, x[g][2]);
        }
        DRA_UNROLL
        for (int g = 0; g < GROUPS; g++) {
            const int64_t at = first + g * (int)blockDim.x;
            if (at >= groups) continue;
            dra_function_apply<W>(s, x[g][0], x[g][1], x[g][2], r);
            store_words<W>(p, s.output, at * W, r);
        }
    }
}

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

template <int W, int GROUPS>
static void start_groups(const dra_call *c, const program &p, int threads)
{
    const int64_t  room = (int64_t)(p.inputs + p.steps) * GROUPS * threads * W;
    const unsigned grid = dra_grid(c, p.n / W, threads * GROUPS);
    if (p.steps == 1) {
        DRA_LAUNCH(c, (run_step<W, GROUPS>), grid, threads, 0, p);
        return;
    }
    cudaFuncSetAttribute(run_program<W, GROUPS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (DRA_POINTWISE_INPUTS + DRA_POINTWISE_STEPS) * 128 * W *
                             (int)sizeof(dra_word));
    DRA_LAUNCH(c, (run_program<W, GROUPS>), grid, threads, (size_t)room * sizeof(dra_word), p);
}

/* Programs of few values have room for two groups a thread, and for whole blocks. */
template <int W> static void start(const dra_call *c, const program &p)
{
    enum { FEWEST = 8, FEW = 20 };
    const int values = p.inputs + p.steps;
    if (values <= FEWEST)
        start_groups<W, 2>(c, p, DRA_THREADS);
    else
        start_groups<W, 1>(c, p, values <= FEW ? DRA_THREADS : 128);
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
