/* What the kernels of attention share: what a call asks for, the logit of a pair, dropout. The
 * formulas are in attend.c, attend_tile.c and attend_back.c. */
#ifndef DRA_SRC_OPS_ATTENTION_ATTEND_CUH
#define DRA_SRC_OPS_ATTENTION_ATTEND_CUH

#include "base/philox.h"
#include "device/cuda/rows.cuh"

/* Queries of the heads that read one key head, up to which they count as few: their keys are spread
 * over the processors, and products are f32. On the host fewer, so that tests meet both. */
#ifdef __CUDACC__
enum { DRA_ATTEND_SPREAD = 16 };
#else
enum { DRA_ATTEND_SPREAD = 4 };
#endif

struct dra_attend_tensor { /* data is NULL where there is none */
    const void *data;
    int64_t     stride[4];
    bool        bf16; /* stored so: keys and values of a cache, and all that mma kernels round */
};

template <typename T>
__device__ static inline const T *dra_attend_at(const dra_attend_tensor &x, int64_t i, int64_t j,
                                                int64_t k = 0, int64_t l = 0)
{
    return static_cast<const T *>(x.data) + i * x.stride[0] + j * x.stride[1] + k * x.stride[2] +
           l * x.stride[3];
}

struct dra_attend_call {
    dra_attend_tensor q, k, v; /* (B, H, T, D), (B, K, J, D), (B, K, J, E) */
    dra_attend_tensor option[DRA_ATTEND_OPTIONS];
    int               B, H, K, G, T, J, D, E; /* G = H / K heads read one key head */
    int64_t           rows;                   /* of k and v: J, or all of their pages */
    int               N, P;                   /* columns of distance, parts of a level */
    int               always;
    int64_t           zero; /* column of distance 0 */
    float             scale, softcap, kept;
    uint64_t          below, path; /* of dropout: 32 random bits under `below` drop the weight */
    bool              late, drops, by_mod, plain;
    bool              q_by_four, k_by_four, v_by_four;
};

static inline dra_attend_tensor dra_attend_tensor_of(const dra_tensor *t)
{
    dra_attend_tensor x = {};
    x.data = t->data;
    x.bf16 = t->dtype == DRA_BF16;
    for (int32_t i = 0; i < t->shape.rank; i++) x.stride[i] = t->stride[i];
    return x;
}

/* Rows that can be read four numbers at a time. */
static inline bool dra_attend_by_four(const dra_tensor *t)
{
    return t->stride[3] == 1 && dra_rows_by_four(t);
}

static inline void dra_attend_set_options(const dra_call *c, const dra_attend_attr *k,
                                          dra_attend_call *a)
{
    for (int i = 0; i < DRA_ATTEND_OPTIONS; i++)
        if (k->at[i] >= 0) a->option[i] = dra_attend_tensor_of(&c->in[k->at[i]]);
    if (k->at[DRA_ATTEND_DISTANCE] >= 0) a->N = (int)c->in[k->at[DRA_ATTEND_DISTANCE]].shape.dim[1];
    if (k->at[DRA_ATTEND_Q_LEVEL] >= 0) a->P = (int)c->in[k->at[DRA_ATTEND_Q_LEVEL]].shape.dim[3];
    a->always = (int)k->always;
    a->zero = k->distance_zero;
    a->softcap = (float)k->softcap;
    a->late = k->late;
    a->drops = k->dropout > 0;
    a->below = (uint64_t)(k->dropout * 0x1p32);
    a->kept = (float)(1 / (1 - k->dropout));
    a->path = k->path;
    a->plain = !a->always && !(a->softcap > 0) && !a->drops && !a->N && !a->P &&
               k->at[DRA_ATTEND_MASK] < 0 && k->at[DRA_ATTEND_BIAS] < 0 &&
               k->at[DRA_ATTEND_SLOPES] < 0;
}

static inline dra_attend_call dra_attend_call_of(const dra_call *c)
{
    const dra_attend_attr *k = static_cast<const dra_attend_attr *>(c->attr);
    const int64_t         *q = c->in[0].shape.dim, *v = c->in[2].shape.dim;
    dra_attend_call        a = {};
    a.q = dra_attend_tensor_of(&c->in[0]);
    a.k = dra_attend_tensor_of(&c->in[1]);
    a.v = dra_attend_tensor_of(&c->in[2]);
    a.q_by_four = dra_attend_by_four(&c->in[0]);
    a.k_by_four = dra_attend_by_four(&c->in[1]);
    a.v_by_four = dra_attend_by_four(&c->in[2]);
    a.B = (int)q[0], a.H = (int)q[1], a.T = (int)q[2], a.D = (int)q[3];
    a.K = (int)v[1], a.J = (int)k->J, a.E = (int)v[3];
    a.rows = v[2];
    a.G = a.K ? a.H / a.K : 0;
    a.scale = (float)k->scale;
    a.by_mod = k->heads == DRA_HEADS_MOD;
    dra_attend_set_options(c, k, &a);
    return a;
}

static inline bool dra_attend_is_few(const dra_attend_call &a)
{
    return (int64_t)a.G * a.T <= DRA_ATTEND_SPREAD;
}

/* Query head number g of those that read key head kv, and the key head that head h reads. */
__device__ static inline int dra_attend_head(const dra_attend_call &a, int kv, int g)
{
    return a.by_mod ? kv + g * a.K : kv * a.G + g;
}
__device__ static inline int dra_attend_key_head(const dra_attend_call &a, int h)
{
    return a.by_mod ? h % a.K : h / a.G;
}

/* ---- positions and dropout ------------------------------------------------------------------- */

__device__ static inline int dra_attend_q_pos(const dra_attend_call &a, int b, int t)
{
    const dra_attend_tensor &pos = a.option[DRA_ATTEND_Q_POS];
    return pos.data ? *dra_attend_at<int32_t>(pos, b, t) : a.J - a.T + t;
}

__device__ static inline int dra_attend_k_pos(const dra_attend_call &a, int b, int j)
{
    const dra_attend_tensor &pos = a.option[DRA_ATTEND_K_POS];
    return pos.data ? *dra_attend_at<int32_t>(pos, b, j) : j;
}

/* The column of `distance` for a query and a key. */
__device__ static inline int dra_attend_column(const dra_attend_call &a, int q_pos, int k_pos)
{
    return (int)dra_imax(0, dra_imin((int64_t)q_pos - k_pos + a.zero, a.N - 1));
}

__device__ static inline float dra_attend_far(int q_pos, int k_pos) /* |q_pos - k_pos| */
{
    const int64_t far = (int64_t)q_pos - k_pos;
    return (float)(far < 0 ? -far : far);
}

/* Factors of the weights of one query, one key after the other; see attend_drop.c. One draw
 * serves four neighbours. */
struct dra_attend_dice {
    uint64_t key;
    uint32_t row, counter[4], bits[4];
    bool     drawn;

    __device__ void open(const dra_attend_call &a, int b) /* a row of the batch */
    {
        const dra_attend_tensor &words = a.option[DRA_ATTEND_KEY], &rows = a.option[DRA_ATTEND_ROW];
        int32_t                  word[4];
        for (int i = 0; i < 4; i++) word[i] = *dra_attend_at<int32_t>(words, i, 0);
        key = dra_philox_key(word, a.path);
        row = (uint32_t)(rows.data ? *dra_attend_at<int32_t>(rows, b, 0) : b);
    }

    __device__ void query(int h, int q_pos)
    {
        counter[1] = (uint32_t)q_pos;
        counter[2] = (uint32_t)h;
        counter[3] = row;
        drawn = false;
    }

    __device__ float factor(const dra_attend_call &a, int k_pos)
    {
        const uint32_t at = (uint32_t)k_pos;
        if (!drawn || counter[0] != at >> 2) {
            counter[0] = at >> 2;
            dra_philox(counter, key, bits);
            drawn = true;
        }
        const uint32_t low = at & 1 ? bits[1] : bits[0], high = at & 1 ? bits[3] : bits[2];
        return (at & 2 ? high : low) < a.below ? 0 : a.kept;
    }
};

/* ---- the logit of a pair --------------------------------------------------------------------- */

struct dra_attend_query {
    int head, t; /* t < 0: there is none */
    int lo, hi;  /* what it sees, in 0..J */
    int q_pos;
};

__device__ static inline int dra_attend_bound(const dra_attend_tensor &x, int b, int t, int J,
                                              int otherwise)
{
    if (!x.data) return otherwise;
    return (int)dra_imax(0, dra_imin(*dra_attend_at<int32_t>(x, b, t), J));
}

__device__ static inline dra_attend_query dra_attend_query_at(const dra_attend_call &a, int b,
                                                              int h, int t)
{
    if (t < 0) return {0, -1, 0, 0, 0};
    return {h, t, dra_attend_bound(a.option[DRA_ATTEND_LO], b, t, a.J, 0),
            dra_attend_bound(a.option[DRA_ATTEND_HI], b, t, a.J, a.J), dra_attend_q_pos(a, b, t)};
}

__device__ static inline float dra_attend_soften(float cap, float s, float *slope)
{
    const float y = tanhf(s / cap);
    *slope = 1 - y * y;
    return cap * y;
}

/* Parts are subtracted before they are added up: large ones may agree in most of their digits. */
__device__ static inline float dra_attend_level(const dra_attend_call &a, int b, int h, int t,
                                                int j)
{
    const dra_attend_tensor &q = a.option[DRA_ATTEND_Q_LEVEL], &k = a.option[DRA_ATTEND_K_LEVEL];
    const float             *from = dra_attend_at<float>(q, b, h, t);
    const float             *to = dra_attend_at<float>(k, b, h, j);
    float                    far = from[0] - to[0];
    for (int p = 1; p < a.P; p++) far += from[p * q.stride[3]] - to[p * k.stride[3]];
    return far;
}

/* What is added to the logits by pair and by distance. */
__device__ static inline float dra_attend_biased(const dra_attend_call &a, int b,
                                                 const dra_attend_query &q, int j, int k_pos,
                                                 float s)
{
    const dra_attend_tensor &table = a.option[DRA_ATTEND_DISTANCE];
    if (a.option[DRA_ATTEND_BIAS].data)
        s += *dra_attend_at<float>(a.option[DRA_ATTEND_BIAS], b, q.head, q.t, j);
    if (table.data) s += *dra_attend_at<float>(table, q.head, dra_attend_column(a, q.q_pos, k_pos));
    if (a.option[DRA_ATTEND_SLOPES].data)
        s -= *dra_attend_at<float>(a.option[DRA_ATTEND_SLOPES], q.head, 0) *
             dra_attend_far(q.q_pos, k_pos);
    if (a.P) s += dra_attend_level(a, b, q.head, q.t, j);
    return s;
}

__device__ static inline bool dra_attend_is_masked(float s) { return s <= (float)(DRA_MASKED / 2); }

/* From q.k to the masked logit; *slope: the derivative of the soft cap. PLAIN: intervals alone say
 * what is seen, and nothing is added. */
template <bool PLAIN>
__device__ static inline float dra_attend_logit(const dra_attend_call &a, int b,
                                                const dra_attend_query &q, int j, int k_pos,
                                                float dot, float *slope)
{
    const bool inside = q.lo <= j && j < q.hi;
    float      s = dot * a.scale;
    *slope = 1;
    if (PLAIN) return inside ? s : (float)DRA_MASKED;
    const bool always = j < a.always;
    if (!inside && !always) return (float)DRA_MASKED;
    if (a.softcap > 0 && (always || !a.late)) s = dra_attend_soften(a.softcap, s, slope);
    if (always) return s;
    s = dra_attend_biased(a, b, q, j, k_pos, s);
    if (a.late) s = dra_attend_soften(a.softcap, s, slope);
    const dra_attend_tensor &mask = a.option[DRA_ATTEND_MASK];
    return mask.data && !*dra_attend_at<uint8_t>(mask, b, q.head, q.t, j) ? (float)DRA_MASKED : s;
}

/* ---- what a tile of queries sees ------------------------------------------------------------- */

struct dra_attend_seen {
    int first, end;        /* the union of their intervals; always-seen keys are not counted */
    int most_lo, least_hi; /* all of them see most_lo .. least_hi - 1 */

    __device__ bool any(const dra_attend_call &a, int j0, int n) const /* of keys j0 .. j0+n-1 */
    {
        return j0 < a.always || (j0 < end && j0 + n > first);
    }
    __device__ bool reads(const dra_attend_call &a, int j) const
    {
        return j < a.always || (first <= j && j < end);
    }
};

/* Query: has t, lo and hi as dra_attend_query. All threads of a warp must come. */
template <int N, typename Query>
__device__ static inline dra_attend_seen dra_attend_seen_of(const dra_attend_call &a,
                                                            const Query           *q)
{
    const int       lanes = blockDim.x < 32 ? (int)blockDim.x : 32; /* fewer on the host alone */
    dra_attend_seen s = {a.J, 0, 0, a.J};
    for (int r = (int)threadIdx.x % lanes; r < N; r += lanes) {
        const int lo = q[r].lo, hi = q[r].hi;
        if (q[r].t < 0) continue;
        s.most_lo = lo > s.most_lo ? lo : s.most_lo;
        s.least_hi = hi < s.least_hi ? hi : s.least_hi;
        if (lo >= hi) continue;
        s.first = lo < s.first ? lo : s.first;
        s.end = hi > s.end ? hi : s.end;
    }
    return {__reduce_min_sync(~0u, s.first), __reduce_max_sync(~0u, s.end),
            __reduce_max_sync(~0u, s.most_lo), __reduce_min_sync(~0u, s.least_hi)};
}

struct dra_attend_span {
    int first, end;
};

/* The queries of a row of the batch from the first to the last one that sees some of the keys j0 ..
 * j0+n-1. All threads of the block must come. */
__device__ static inline dra_attend_span dra_attend_readers(const dra_attend_call &a, int b, int j0,
                                                            int n)
{
    __shared__ dra_attend_span part[32];
    const int                  warps = ((int)blockDim.x + 31) / 32;
    dra_attend_span            s = {a.T, 0};
    if (j0 < a.always || (!a.option[DRA_ATTEND_LO].data && !a.option[DRA_ATTEND_HI].data))
        return {0, a.T};
    for (int t = (int)threadIdx.x; t < a.T; t += (int)blockDim.x) {
        const int lo = dra_attend_bound(a.option[DRA_ATTEND_LO], b, t, a.J, 0);
        const int hi = dra_attend_bound(a.option[DRA_ATTEND_HI], b, t, a.J, a.J);
        if (lo >= hi || lo >= j0 + n || hi <= j0) continue;
        s.first = t < s.first ? t : s.first;
        s.end = t + 1;
    }
    s = {__reduce_min_sync(~0u, s.first), __reduce_max_sync(~0u, s.end)};
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    for (int w = 0; w < warps; w++) {
        s.first = part[w].first < s.first ? part[w].first : s.first;
        s.end = part[w].end > s.end ? part[w].end : s.end;
    }
    return s;
}

/* Rows first, first + 1, .. of one head of a tensor; those that are not there are zeros. */
struct dra_attend_rows {
    const void *start; /* of row 0: floats, or stored in bf16 */
    int64_t     stride;
    int         from, to, always; /* there are those from .. to-1, and 0 .. always-1 */
    int         first;
    const int  *pages; /* where DRA_ATTEND_PAGE rows each begin; NULL: they follow each other */
    int64_t     last;  /* where they may begin at most */
    bool        bf16;

    __device__ bool there(int r) const
    {
        return first + r < always || (from <= first + r && first + r < to);
    }
    __device__ int64_t offset(int r) const /* in elements from `start` on */
    {
        const int i = first + r;
        if (!pages) return i * stride;
        const int64_t page = dra_imax(0, dra_imin(pages[i / DRA_ATTEND_PAGE], last));
        return (page + i % DRA_ATTEND_PAGE) * stride;
    }
    __device__ void skip(int64_t n) /* columns */
    {
        start = static_cast<const char *>(start) + n * (int64_t)(bf16 ? 2 : 4);
    }
    /* Column n of row r. */
    __device__ const void *operator()(int r, int64_t n) const
    {
        if (!there(r)) return nullptr;
        return static_cast<const char *>(start) + (offset(r) + n) * (int64_t)(bf16 ? 2 : 4);
    }
};

__device__ static inline dra_attend_rows
dra_attend_rows_of(const dra_attend_tensor &x, int b, int h, int to, int from = 0, int always = 0)
{
    const void *start = x.bf16 ? static_cast<const void *>(dra_attend_at<uint16_t>(x, b, h))
                               : dra_attend_at<float>(x, b, h);
    return {start, x.stride[2], from, to, always, 0, nullptr, 0, x.bf16};
}

/* Keys or values x of a row of the batch, in pages or not. */
__device__ static inline dra_attend_rows dra_attend_keys_of(const dra_attend_call   &a,
                                                            const dra_attend_tensor &x, int b,
                                                            int h, int to, int from, int always)
{
    const dra_attend_tensor &pages = a.option[DRA_ATTEND_PAGES];
    dra_attend_rows          rows = dra_attend_rows_of(x, pages.data ? 0 : b, h, to, from, always);
    if (pages.data) rows.pages = dra_attend_at<int>(pages, b, 0);
    rows.last = a.rows - DRA_ATTEND_PAGE;
    return rows;
}

/* ---- by tensor cores ------------------------------------------------------------------------- */

/* Whether attend_mma.cu and attend_mma_back.cu have the case, which follows from shapes and
 * attributes: bf16 precision, no options but intervals and heads, D = E = 64 or 128, not few
 * queries. */
bool dra_attend_mma_fits(const dra_call *c, const dra_attend_call &a);
void dra_attend_mma(const dra_call *c, const dra_attend_call &a);
void dra_attend_mma_back(const dra_call *c, const dra_attend_call &a);
/* Whether they round input i, and would read it as well in bf16; bits of those among q, k, v. */
bool     dra_attend_mma_rounds_input(const dra_call *c, int i);
uint32_t dra_attend_mma_rounds(const dra_call *c);

#endif
