/* What the files of slots share: slots.c (checks, the way forward), slots_chunk.c (how writes
 * fade inside a chunk) and slots_back.c.
 *
 * Inside a chunk of n tokens a slot is p_t P_0 + sum_s W_ts k_s: P_0 the slot before the chunk,
 *   p_t = e^(l_0 + .. + l_t),   W_ts = D_ts u_s,   D_ts = e^(l_s+1 + .. + l_t) for s <= t
 * for each slot its own. So a slot is never made for each token, only its product with something:
 *   weigh   p_t (x_t.P_0) + sum_s W_ts (x_t.k_s)     logits of queries; of dy: how it likes slots
 *   spread  sum_i a_ti W_ts,i                        how much a read by weights a_t takes of k_s
 *   gather  sum_t D_ts (a_t A_ts + b_t B_ts)         what comes back to u_s
 * Pairs of tokens of one block of DRA_SLOTS_BLOCK are taken one by one, with W as it is. Farther
 * apart W_ts = lead_t far_s, one factor from the start of the block to t, the other, already with
 * u, from s up to there: products of matrices. Both factors are at most 1: nothing overflows. */
#ifndef DRA_SRC_OPS_SLOTS_H
#define DRA_SRC_OPS_SLOTS_H

#include "ops/chunk.h"

/* Forward and backward with S = 16, D = 64 (Zen 4, AVX-512) chunks of 16, 32, 48 and 64 took 900,
 * 950, 1040 and 1150 ns a token and head; those of 16 need twice the memory of 32 for borders.
 * Blocks of 4 and 16 are 3 % slower. */
enum {
    DRA_SLOTS_CHUNK = 32, /* tokens; at most DRA_CHUNK */
    DRA_SLOTS_BLOCK = 8,
};

typedef struct dra_slots_attr {
    dra_slots_read read;
    int            keys, values, mark; /* which inputs they are; 0: none */
} dra_slots_attr;

/* Inputs, forward and backward; the way back then has those of the second list, and mark. */
enum {
    DRA_SLOTS_Q, /* (B, T, H, D) */
    DRA_SLOTS_K,
    DRA_SLOTS_V, /* (B, T, H, E) */
    DRA_SLOTS_L, /* (B, T, H, S) */
    DRA_SLOTS_U,
    DRA_SLOTS_INPUTS
};
enum {
    DRA_SLOTS_P_BORDERS = DRA_SLOTS_INPUTS, /* (B, H, chunks + 1, S, D): before each, at the end */
    DRA_SLOTS_Q_BORDERS,
    DRA_SLOTS_LOGITS, /* (B, pairs of reader and owner, T, S) */
    DRA_SLOTS_DY,
    DRA_SLOTS_DP, /* of the last slots */
    DRA_SLOTS_DQ,
    DRA_SLOTS_BACK_INPUTS
};
enum { DRA_SLOTS_BACK_OUTPUTS = DRA_SLOTS_INPUTS + 2 }; /* of the inputs, then dP and dQ */

/* The node of the gradient, or NULL. */
const dra_node *dra_slots_back(dra_graph *g, dra_slots_read read, bool marked, const dra_value *in);

/* ---- where a tile stands --------------------------------------------------------------------- */

/* Slots belong to heads, the owners. A tile has one row of the batch and its own head, or all. The
 * reads of a token: one for each reader, a softmax over the slots of all owners of the tile. */
typedef struct dra_slots_sizes {
    int64_t B, T, H, D, E, S, chunks, owners, readers, tiles;
    real    scale; /* of logits, 1 / sqrt(D) */
} dra_slots_sizes;

dra_slots_sizes dra_slots_sizes_of(const dra_call *c);

/* Heads: of owner j of tile i; whose query reader r has for its slots; where the read goes. */
static inline int64_t dra_slots_owner(const dra_call *c, int64_t i, int64_t j)
{
    const dra_slots_attr *a = c->attr;
    return a->read == DRA_READ_OWN ? i % c->in[DRA_SLOTS_Q].shape.dim[2] : j;
}

static inline int64_t dra_slots_query(const dra_call *c, int64_t i, int64_t r, int64_t j)
{
    const dra_slots_attr *a = c->attr;
    return a->read == DRA_READ_ALL ? r : dra_slots_owner(c, i, j);
}

static inline int64_t dra_slots_target(const dra_call *c, int64_t i, int64_t r)
{
    const dra_slots_attr *a = c->attr;
    return a->read == DRA_READ_POOLED ? 0 : dra_slots_query(c, i, r, 0);
}

/* Chunk number `number` of tile i, of head h. */
dra_chunk dra_slots_chunk(const dra_call *c, const dra_slots_sizes *z, int64_t i, int64_t h,
                          int64_t number);

/* The same chunk of another head. */
static inline dra_chunk dra_slots_of_head(dra_chunk k, int64_t h)
{
    k.h = h;
    return k;
}

/* Starts to load the rows of x (B, T, H, W) that chunk `number` will want: a head's rows lie far
 * apart, the processor does not guess them. Nothing where there is no such chunk. */
void dra_slots_fetch(const dra_slots_sizes *z, dra_chunk k, int64_t number, const dra_tensor *x);

/* a = softmax of logits s over the slots of all owners, 0 at pads; (n, S) for each owner, those of
 * the next one s_next and a_next further. */
void dra_slots_softmax(const dra_slots_sizes *z, const dra_chunk *k, const real *s, int64_t s_next,
                       real *a, int64_t a_next);

/* ---- gates of one owner over one chunk ------------------------------------------------------- */

typedef struct dra_slots_table { /* W, or D where the seeds are 1 */
    real *near; /* (DRA_SLOTS_BLOCK, n, S): near[m][s] = W_(s+m)s; near[0] the seeds */
    real *far;  /* for each block from the second on, and for the end: far_s of all before it */
} dra_slots_table;

typedef struct dra_slots_gates {
    int64_t         n, S, blocks;
    real           *keep;     /* (n, S): e^l; 1 at pads, 0 at resets */
    real           *lead, *p; /* (n, S) */
    real           *fade;     /* (S): e^(l_0 + .. + l_(n-1)) - 1 */
    dra_slots_table write;    /* W */
    dra_slots_table carry;    /* D, only for the way back */
} dra_slots_gates;

/* Numbers of memory for the gates of an owner; `back`: with D. */
int64_t dra_slots_gates_size(const dra_slots_sizes *z, bool back);

/* Where the gates of n tokens lie in that memory; then what they are. */
dra_slots_gates dra_slots_gates_at(const dra_slots_sizes *z, int64_t n, bool back, real *memory);
void            dra_slots_gates_fill(const dra_chunk *k, const dra_tensor *l, const dra_tensor *u,
                                     const dra_slots_gates *g);

/* Rows (n, S) of the last token, W_(n-1)s or D_(n-1)s. */
const real *dra_slots_last(const dra_slots_gates *g, const dra_slots_table *t);

/* A slot x (S, W) after the chunk, without what the chunk writes. */
void dra_slots_decay(const dra_simd *simd, const dra_slots_gates *g, int64_t W, real *x);

/* to (n, S) = x_t.P_i of rows x (n, W) and slots P (S, W), or added to it. */
void dra_slots_dots(const dra_simd *simd, const dra_slots_gates *g, int64_t W, dra_block x,
                    const real *P, real *to, bool add);

/* Matrices over pairs of tokens are those of chunk.h. room: (n, S) to work in, (3, n, S) of it to
 * gather. */
void dra_slots_weigh(const dra_simd *simd, const dra_slots_gates *g, const real *A, const real *x0,
                     real *room, real *out);
void dra_slots_spread(const dra_simd *simd, const dra_slots_gates *g, const real *a, real *room,
                      real *M);
void dra_slots_gather(const dra_simd *simd, const dra_slots_gates *g, const real *a, const real *A,
                      const real *b, const real *B, real *room, real *du);

#endif
