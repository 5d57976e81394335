/* What the files of slots share: slots.c (checks, the way forward), slots_back.c (the way back) and
 * slots_chunk.c (where a tile stands, how slots fade).
 *
 * All is one recurrence, taken over a chunk of tokens with the slots in registers: with weights w
 * and rows x of the tokens, slots m_i fade and are written, m_i += f_i m_i + w_i x, f = e^l - 1,
 * and are read in one of two ways,
 *   dots  m_i.x' for each slot     mix  sum_i w'_i m_i
 * Forwards P is written (u, k) and asked for dots with q, Q is written (u, v) and mixed by the
 * weights a. Backwards over time dP is written (ds, q) and dQ (a, dy): dots with k and v are du,
 * mixed by u they are dk and dv. Several readers of one slot are several reads, or writes.
 *
 * A slot costs each token 3 multiply-adds a number for either read, 24 S D in all with a gradient,
 * D = E. Sums over pairs of tokens of a chunk would take 12 S D and 32 (3.5 D + 5 S) more with
 * chunks of 32 tokens, about the same for S = 16, but in products of matrices too small to be fast:
 * 1400 ns a token and head for S = 16, D = 64, where this takes 650 (Zen 4). */
#ifndef DRA_SRC_OPS_CHUNKED_SLOTS_H
#define DRA_SRC_OPS_CHUNKED_SLOTS_H

#include "ops/chunked/chunk.h"
#include "ops/chunked/slots_loops.h"

typedef struct dra_slots_upstream { /* what the way back may have beside; id 0: none */
    dra_value mark, dlse, dmean;
} dra_slots_upstream;

/* The node of the gradient, or NULL; room for three more behind DRA_SLOTS_BACK_INPUTS of `in`. */
const dra_node *dra_slots_back(dra_graph *g, dra_slots_read read, dra_value *in,
                               dra_slots_upstream options);

/* ---- where a tile stands --------------------------------------------------------------------- */

/* Slots belong to heads, the owners. A tile has one row of the batch and its own head, or all. The
 * reads of a token: one for each reader, a softmax over the slots of all owners of the tile. */
typedef struct dra_slots_sizes {
    int64_t B, T, H, D, E, S, chunks, owners, readers, tiles;
    int64_t row;   /* slots of a reader: owners S */
    int64_t most;  /* tokens of a chunk */
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

/* Chunk number `number` of tile i. */
dra_chunk dra_slots_chunk(const dra_call *c, const dra_slots_sizes *z, int64_t i, int64_t number);

/* In stages (chunk.h) the slots between chunks are cut into vectors of columns, those of P and then
 * those of Q of one owner after the other. `work` as there. */
dra_chunk_stages dra_slots_stages(const dra_call *c, dra_chunk_work work);

typedef struct dra_slots_columns {
    int64_t owner, first, end;
    bool    keys; /* of P */
} dra_slots_columns;

/* From column `at` of all those on, of one owner and matrix, to before `end`; their number. */
int64_t dra_slots_columns_at(const dra_slots_sizes *z, int64_t at, int64_t end,
                             dra_slots_columns *columns);

/* Memory for the parts of a run, those of all readers and one more, and for numbers behind them. */
size_t dra_slots_bytes(const dra_slots_sizes *z, int64_t numbers);

/* ---- what it does ---------------------------------------------------------------------------- */

/* fade (n, S) = e^l - 1 of head h; 0 at pads. */
void dra_slots_fade(const dra_chunk *k, int64_t h, const dra_tensor *l, real *fade);

/* a = softmax of the logits s (n, row), 0 at pads. lse (n) or NULL. */
void dra_slots_softmax(const dra_slots_sizes *z, const dra_chunk *k, const real *s, real *a,
                       real *lse);

/* Weights w (n, .) of a token w_row apart, and the chunk's rows of head h of x (B, T, H, W). */
static inline dra_slots_part dra_slots_rows(const dra_chunk *k, real *w, int64_t w_row,
                                            const dra_tensor *x, int64_t h, bool add)
{
    return (dra_slots_part){w, w_row, dra_recur_at(x, k->b, k->t, h), x->stride[1], add};
}

#endif
