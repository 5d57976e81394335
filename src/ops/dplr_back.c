/* The gradient of dplr, with its symbols: G is the gradient of the state after a token and becomes
 * that of the one before it. Chunks are taken from the last to the first, the states inside each
 * made again from the one before it. */
#include <math.h>

#include "ops/dplr.h"

enum { Q = DRA_DPLR_Q, K = DRA_DPLR_K, V = DRA_DPLR_V };
enum {
    DQ = DRA_DPLR_DQ,
    DK = DRA_DPLR_DK,
    DV = DRA_DPLR_DV,
    DL = DRA_DPLR_DL,
    DU = DRA_DPLR_DU,
    DA = DRA_DPLR_DA,
    DC = DRA_DPLR_DC,
    DS = DRA_DPLR_DS
};

static dra_status infer(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_dplr_attr *a = n->attr;
    const dra_type      *q = dra_type_of(g, n->in[Q]), *v = dra_type_of(g, n->in[V]);
    const int64_t       *dim = q->shape.dim;
    const dra_type       no = {DRA_REAL, DRA_SHAPE(0)};
    out[DQ] = out[DK] = *q;
    out[DV] = *v;
    out[DL] = a->l ? *q : no;
    out[DU] = a->u ? (dra_type){DRA_REAL, DRA_SHAPE(dim[0], dim[2], dim[3])} : no;
    out[DA] = out[DC] = a->a ? *q : no;
    out[DS] = (dra_type){DRA_REAL, DRA_SHAPE(dim[0], dim[2], dim[3], v->shape.dim[3])};
    return DRA_OK;
}

static const real *row_of(const dra_call *c, int in, int64_t b, int64_t t, int64_t h)
{
    return dra_recur_at(&c->in[in], b, t, h);
}

static void set(const dra_call *c, int out, int64_t b, int64_t t, int64_t h, int64_t f, real x)
{
    if (c->out[out].data) dra_recur_at(&c->out[out], b, t, h)[f] = x;
}

static void tile(const dra_call *c, int64_t head)
{
    const dra_dplr_attr *a = c->attr;
    const dra_simd      *simd = dra_simd_of(c);
    const int64_t       *dim = c->in[Q].shape.dim, T = dim[1], H = dim[2], F = dim[3];
    const int64_t        E = dra_last(&c->in[V]), b = head / H, h = head % H, N = F * E;
    real                *room = (real *)c->scratch + head * ((DRA_CHUNK + 3) * N + E + F);
    real *states = room + N, *dp = states + (DRA_CHUNK + 1) * N, *du = dp + E, *zeros = du + F;
    const dra_chunk k0 = {.simd = simd, .b = b, .h = h};
    const real     *u = a->u ? (real *)c->in[a->u].data + h * c->in[a->u].stride[0] : NULL;
    real           *G = dra_chunk_state(&k0, dra_chunk_option(c, a->S), &c->out[DS], N, room);
    dra_recur_clear(F, du);
    dra_recur_clear(N, zeros);
    for (int64_t i = dra_chunks(T) - 1; i >= 0; i--) {
        const int64_t t0 = i * DRA_CHUNK, n = dra_imin(DRA_CHUNK, T - t0);
        dra_recur_copy(N, dra_recur_at(&c->in[a->borders], b, h, i), states);
        for (int64_t j = 0; j < n; j++) { /* states + j N: before token j; after its reset */
            real         *S = states + j * N, *next = S + N;
            const int64_t t = t0 + j;
            const int32_t mark = dra_recur_mark(dra_chunk_option(c, a->mark), b, t);
            dra_recur_copy(N, mark & DRA_MARK_RESET ? zeros : S, next);
            for (int64_t f = 0; f < F && !(mark & DRA_MARK_PAD); f++) {
                if (a->l)
                    simd->scale(E, (real)exp((double)row_of(c, a->l, b, t, h)[f]), next + f * E);
                if (a->c)
                    simd->axpy(E, row_of(c, a->c, b, t, h)[f], row_of(c, a->recalled, b, t, h),
                               next + f * E);
                simd->axpy(E, row_of(c, K, b, t, h)[f], row_of(c, V, b, t, h), next + f * E);
            }
        }
        for (int64_t j = n - 1; j >= 0; j--) {
            const int64_t t = t0 + j;
            const int32_t mark = dra_recur_mark(dra_chunk_option(c, a->mark), b, t);
            const real   *next = states + (j + 1) * N;
            const real   *S = mark & DRA_MARK_RESET ? zeros : next - N;
            const bool    pad = mark & DRA_MARK_PAD;
            const real   *q = row_of(c, Q, b, t, h), *k = row_of(c, K, b, t, h),
                       *v = row_of(c, V, b, t, h), *g = row_of(c, a->dy, b, t, h);
            real *dv = c->out[DV].data ? dra_recur_at(&c->out[DV], b, t, h) : NULL;
            if (dv) dra_recur_clear(E, dv);
            dra_recur_clear(E, dp);
            for (int64_t f = 0; f < F && !pad && !u; f++) simd->axpy(E, q[f], g, G + f * E);
            for (int64_t f = 0; f < F && !pad && a->c; f++)
                simd->axpy(E, row_of(c, a->c, b, t, h)[f], G + f * E, dp);
            const real vg = u && !pad ? simd->dot(E, v, g) : 0;
            for (int64_t f = 0; f < F; f++) {
                real       *Gf = G + f * E;
                const real *Sf = S + f * E;
                const real  d = a->l && !pad ? (real)exp((double)row_of(c, a->l, b, t, h)[f]) : 1;
                if (pad) {
                    set(c, DQ, b, t, h, f, 0), set(c, DK, b, t, h, f, 0);
                    if (a->l) set(c, DL, b, t, h, f, 0);
                    if (a->a) set(c, DA, b, t, h, f, 0), set(c, DC, b, t, h, f, 0);
                    continue;
                }
                set(c, DQ, b, t, h, f,
                    simd->dot(E, u ? Sf : next + f * E, g) + (u ? u[f] * k[f] * vg : 0));
                set(c, DK, b, t, h, f, simd->dot(E, Gf, v) + (u ? u[f] * q[f] * vg : 0));
                if (u) du[f] += q[f] * k[f] * vg;
                if (dv) simd->axpy(E, k[f], Gf, dv);
                if (dv && u) simd->axpy(E, q[f] * u[f] * k[f], g, dv);
                if (a->l) set(c, DL, b, t, h, f, d * simd->dot(E, Gf, Sf));
                if (a->c) set(c, DC, b, t, h, f, simd->dot(E, Gf, row_of(c, a->recalled, b, t, h)));
                if (a->a) set(c, DA, b, t, h, f, simd->dot(E, Sf, dp));
                simd->scale(E, d, Gf);
                if (a->a) simd->axpy(E, row_of(c, a->a, b, t, h)[f], dp, Gf);
                if (u) simd->axpy(E, q[f], g, Gf);
            }
            if (mark & DRA_MARK_RESET) dra_recur_clear(N, G);
        }
    }
    if (a->u && c->out[DU].data) dra_recur_copy(F, du, dra_recur_at(&c->out[DU], b, h, 0));
}

static int64_t tiles(const dra_call *c) { return dra_chunk_heads(c); }

static size_t scratch(const dra_call *c)
{
    const int64_t F = dra_last(&c->in[Q]), E = dra_last(&c->in[V]);
    return (size_t)(dra_chunk_heads(c) * ((DRA_CHUNK + 3) * F * E + E + F)) * sizeof(real);
}

/* Twice what the forward op takes, and the pairs again. */
static dra_cost cost(const dra_call *c)
{
    const dra_dplr_attr *a = c->attr;
    const double         F = (double)dra_last(&c->in[Q]), E = (double)dra_last(&c->in[V]);
    const double         pairs = dra_chunk_pair_count(c), tokens = (double)dra_rows(&c->in[Q]);
    const double         many = a->a ? 4 : 1, states = a->a ? 8 : 4;
    return (dra_cost){2 * (pairs * many * (3 * F + 2 * E) + tokens * states * F * E),
                      dra_call_bytes(c)};
}

const dra_op dra_op_dplr_back = {.name = "dplr_back",
                                 .n_in = DRA_MANY,
                                 .n_out = DRA_DPLR_BACK_OUTPUTS,
                                 .attr_size = sizeof(dra_dplr_attr),
                                 .infer = infer,
                                 .cost = cost};

const dra_cpu_kernel dra_cpu_dplr_back = {
    .base = {.op = "dplr_back",
             .dtypes = DRA_REALS | DRA_BIT(DRA_I32),
             .layout = DRA_LAYOUT_ROWS,
             .scratch = scratch},
    .tiles = tiles,
    .tile = tile,
};
