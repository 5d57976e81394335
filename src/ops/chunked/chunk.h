/* What memories share that are linear in their state and taken through time in chunks: inside a
 * chunk of up to DRA_CHUNK tokens everything is a product of matrices, the state only passes from
 * one chunk to the next. Chunks are counted from the first token of the call. */
#ifndef DRA_SRC_OPS_CHUNKED_CHUNK_H
#define DRA_SRC_OPS_CHUNKED_CHUNK_H

#include "ops/recurrent/recur.h"

static inline int64_t dra_chunks(int64_t T) { return dra_div_up(T, DRA_CHUNK); }

/* ---- decay ----------------------------------------------------------------------------------- */

/* How what was written fades inside a chunk, from the logarithms l_t <= 0 of the decays, with
 * L_t = l_0 + .. + l_t:
 *   D[t][s] = e^(L_t - L_s) for s <= t, else 0     what token t sees of the write of token s
 *   p[t]    = e^(L_t)                              what it sees of the state before the chunk
 *   last[t] = D[n-1][t],  fade = e^(L_n-1) - 1     the same of the state after the chunk
 * A pad has l_t = 0; a reset has e^(l_t) = 0, also on a pad, and acts on what was written before t,
 * never on the write of token t itself. All entries are in 0..1; what is too small is 0. Row t
 * depends on l_0..l_t alone. The state fades as S + fade S, which keeps what 1 + fade would round
 * away; where `jumps` is set and e^(L_n-1) is small, as e^(L_n-1) S: there S + fade S cancels, and
 * what is left may count, because all is relative to a maximum that has jumped. */
typedef struct dra_decay {
    int64_t     n;      /* tokens; 0: nothing was made yet */
    bool        plain;  /* nothing fades: D holds 1 and 0, p and last are 1, fade is 0 */
    bool        jumps;  /* set before it is made */
    bool        strong; /* jumps, and L_n-1 is below DRA_STRONG_DECAY */
    real        fade;
    real        p[DRA_CHUNK], D[DRA_CHUNK][DRA_CHUNK];
    const real *last;         /* a row of D */
    double      l[DRA_CHUNK]; /* what it was made of */
} dra_decay;

/* Of n tokens, 1 <= n <= DRA_CHUNK: l (or NULL: 0) of token t at l[t * step], marks (or NULL)
 * contiguous. Set d->n = 0 before the first call; a chunk with the same decays as the one before it
 * costs nothing. */
void dra_decay_make(dra_decay *d, int64_t n, const real *l, int64_t step, const int32_t *mark);

/* A[t][s] = (A[t][s] + plus[t]) D[t][s] for s <= t, 0 for s > t as far as the products below read;
 * plus may be NULL: 0. */
void dra_decay_apply(const dra_decay *d, const dra_simd *simd, const real *plus, real *A);

/* ---- products of blocks that are in a cache -------------------------------------------------- */

typedef struct dra_matrix_block { /* element (i, j) at at[i row + j col] */
    real   *at;
    int64_t row, col;
} dra_matrix_block;

static inline dra_matrix_block dra_matrix_block_transposed(dra_matrix_block m)
{
    return (dra_matrix_block){m.at, m.col, m.row};
}

/* A state x (rows, W), or its gradient, over the chunk: e^(L_n-1) x; nothing of x where it has
 * faded entirely, be it NaN. */
void dra_decay_state(const dra_decay *d, const dra_simd *simd, int64_t rows, int64_t W,
                     dra_matrix_block x);

/* to = from, (rows, W); zeros if from.at is NULL. Both may be the same place. */
void dra_matrix_block_copy(int64_t rows, int64_t W, dra_matrix_block from, dra_matrix_block to);

/* c (M, N) = a (M, K) b (K, N), or added to c; the rows of c are contiguous. */
void dra_matrix_block_multiply(const dra_simd *simd, int64_t M, int64_t N, int64_t K,
                               dra_matrix_block a, dra_matrix_block b, dra_matrix_block c,
                               bool add);

/* Row t of m, of width W, times s[t], n rows: in place, or in `room` (n, W). */
void             dra_matrix_block_scale(const dra_simd *simd, int64_t n, int64_t W, const real *s,
                                        dra_matrix_block m);
dra_matrix_block dra_matrix_block_scaled(const dra_simd *simd, int64_t n, int64_t W, const real *s,
                                         dra_matrix_block m, real *room);

/* Matrices A over pairs of tokens have rows DRA_CHUNK apart. Only their lower halves count; these
 * are made and read in steps of a few rows, with zeros above the diagonal inside a step.
 *   pairs  A[t][s] = a_t.b_s, s <= t (above it nothing that counts)
 *   below  to_t (+)= sum_{s <= t} A[t][s] x_s
 *   above  to_s (+)= sum_{t >= s} A[t][s] x_t */
void dra_chunk_pairs(const dra_simd *simd, int64_t n, int64_t W, dra_matrix_block a,
                     dra_matrix_block b, real *A);
void dra_chunk_below(const dra_simd *simd, int64_t n, int64_t W, real *A, dra_matrix_block x,
                     dra_matrix_block to, bool add);
void dra_chunk_above(const dra_simd *simd, int64_t n, int64_t W, real *A, dra_matrix_block x,
                     dra_matrix_block to, bool add);

/* Zeros in row t from the diagonal on, as far as these read. */
void dra_chunk_clear_from(int64_t n, int64_t t, real *A);

/* ---- chunks of a call ------------------------------------------------------------------------ */

typedef struct dra_chunk { /* tokens t..t+n-1 of one head of one row of the batch */
    const dra_simd *simd;
    int64_t         b, h, t, n;
    const int32_t  *mark;   /* of these tokens, or NULL */
    bool            padded; /* some are pads */
} dra_chunk;

/* Input 0 is (B, T, H, ..). Heads of all rows of the batch, number b H + h; pairs of tokens s <= t
 * inside chunks of so many, of all heads. */
int64_t dra_chunk_heads(const dra_call *c);
double  dra_chunk_pair_count(const dra_call *c, int64_t chunk);

/* Up to `most` of T tokens from t on; mark may be NULL. */
dra_chunk dra_chunk_cut(const dra_call *c, const dra_tensor *mark, int64_t b, int64_t h, int64_t T,
                        int64_t t, int64_t most);

/* Chunk number i of DRA_CHUNK tokens. */
static inline dra_chunk dra_chunk_at(const dra_call *c, const dra_tensor *mark, int64_t b,
                                     int64_t h, int64_t T, int64_t i)
{
    return dra_chunk_cut(c, mark, b, h, T, i * DRA_CHUNK, DRA_CHUNK);
}

static inline bool dra_chunk_pad(const dra_chunk *k, int64_t t)
{
    return k->mark && k->mark[t] & DRA_MARK_PAD;
}

/* Whether a sequence starts with the chunk: what the state held before does not matter then. */
static inline bool dra_chunk_starts(const dra_chunk *k)
{
    return k->mark && k->mark[0] & DRA_MARK_RESET;
}

/* The chunk's rows of x (B, T, H, W): in place, or with zeros for pads in `room` (n, W). */
dra_matrix_block dra_chunk_rows(const dra_chunk *k, const dra_tensor *x, real *room);

/* The chunk's rows of an output (B, T, H, W); in `spare` (n, W) where nobody reads it. */
dra_matrix_block dra_chunk_out(const dra_chunk *k, const dra_tensor *x, real *spare);

/* Columns first..first+n-1 of x, whose last axis is contiguous. */
dra_tensor dra_chunk_columns(const dra_tensor *x, int64_t first, int64_t n);

/* Zeros in the rows of pads: what is not read has no gradient. */
void dra_chunk_clear_pads(const dra_chunk *k, int64_t W, dra_matrix_block m);

/* The decay of the chunk, from l (B, T, H) or NULL. */
void dra_chunk_decay(const dra_chunk *k, const dra_tensor *l, dra_decay *d);

/* sum[t] += sign a_t.b_t, rows of width W. */
void dra_chunk_add_dots(const dra_chunk *k, int64_t W, double sign, dra_matrix_block a,
                        dra_matrix_block b, double *sum);

/* The part of <S, dS>, the state after the chunk and its gradient, that comes from before the
 * chunk: p[n-1] <S_0, dS>, both (F, E). */
double dra_chunk_through(const dra_chunk *k, const dra_decay *d, int64_t F, int64_t E,
                         dra_matrix_block S0, dra_matrix_block dS);

/* dl of a chunk, to (B, T, H), from the gradients dL[t] of L_t:
 *   dl_j = through + sum_{t >= j} dL[t]
 * where `through` is <state after the chunk, its gradient>. Pads and resets have none. */
void dra_chunk_decay_back(const dra_chunk *k, const dra_tensor *dl, double through,
                          const double *dL);

/* ---- states and inputs ----------------------------------------------------------------------- */

/* The state of (b, h) in x, (B, H, F, E) or (B, H, F), to `count` numbers of dense memory, 0 if x
 * is NULL; and from there to an output x, unless nobody reads it. */
void dra_chunk_load(const dra_chunk *k, const dra_tensor *x, int64_t count, real *to);
void dra_chunk_store(const dra_chunk *k, const dra_tensor *x, int64_t count, const real *from);

/* The state of (b, h), x (B, H, F, E), or number i of x (B, H, chunks, F, E); a NULL x, or one
 * without data, is at NULL. */
dra_matrix_block dra_chunk_matrix(const dra_tensor *x, int64_t b, int64_t h, int64_t i);

/* ---- stages ---------------------------------------------------------------------------------- */

/* A pass takes a head through all its chunks: one tile. Where that leaves threads idle there are
 * two stages instead, with the same bits: the states between chunks, one after the other, by blocks
 * of columns, which do not know of each other; then all that happens inside chunks, by runs of
 * them. What both need may be weighed first, by runs as well. It depends on shapes and on the
 * number of threads, the same when planning and when running. */
typedef struct dra_chunk_stages {
    bool    two;
    bool    weighs; /* a stage comes before those two */
    int64_t heads, chunks, columns;
    int64_t blocks; /* of columns of a head, tiles of the stage that passes states */
    int64_t runs;   /* of chunks of a head, tiles of the others */
} dra_chunk_stages;

enum { DRA_CHUNK_COLUMNS = 16 }; /* blocks of columns are whole vectors of every level */

typedef struct dra_chunk_work { /* of the stages, in percent of a pass */
    int64_t between;            /* chunks */
    int64_t repeated;           /* more, for every block of columns */
    int64_t inside;             /* chunks */
    bool    weighs;             /* whether that takes a stage */
} dra_chunk_work;

/* Two stages where they take clearly less time. */
dra_chunk_stages dra_chunk_stages_of(const dra_call *c, int64_t heads, int64_t chunks,
                                     int64_t columns, dra_chunk_work work);

typedef enum dra_chunk_part {                   /* what a tile does */
                              DRA_CHUNK_WHOLE,  /* all of a head */
                              DRA_CHUNK_WEIGH,  /* what comes before the two stages, of a run */
                              DRA_CHUNK_PASS,   /* the states between chunks, some columns */
                              DRA_CHUNK_INSIDE, /* the rest of a run */
                              DRA_CHUNK_PARTS
} dra_chunk_part;

/* Of the tiles of the call's stage. */
dra_chunk_part dra_chunk_part_of(const dra_call *c, const dra_chunk_stages *s);

/* The stages of a kernel, the tiles of the call's one, and tiles of any stage at most. */
int64_t dra_chunk_stage_count(dra_chunk_stages s);
int64_t dra_chunk_tile_count(const dra_call *c, dra_chunk_stages s);
int64_t dra_chunk_most_tiles(const dra_chunk_stages *s);

typedef struct dra_chunk_span { /* columns, or chunks, first..end-1 of a head */
    int64_t head, first, end;
} dra_chunk_span;

/* Of tile i. */
dra_chunk_span dra_chunk_block_at(const dra_chunk_stages *s, int64_t i);
dra_chunk_span dra_chunk_run_at(const dra_chunk_stages *s, int64_t i);

/* ---- the walk of matrices -------------------------------------------------------------------- */

/* A tile of a memory whose state is a matrix, or of its gradient, which goes back from the last
 * chunk to the first with the gradient of the state. An op's own walk begins with this. "First" is
 * what the walk begins with, "last" what it ends with, whichever way it goes. */
typedef struct dra_chunk_walk {
    const dra_call   *c;
    dra_chunk_part    part;
    int64_t           F, E;               /* of the state; E: columns of this tile */
    const dra_tensor *mark;               /* (B, T), or NULL */
    const dra_tensor *first, *z_first;    /* (B, H, F, E), (B, H, F), or NULL: 0 */
    dra_tensor        last, z_last;       /* the same; data may be NULL */
    dra_tensor        borders, z_borders; /* (B, H, chunks, F, E), (B, H, chunks, F): what the
                                           * walk meets each chunk with; data may be NULL */
    bool              normalised;         /* is there a z? */
    dra_matrix_block  S;                  /* the state */
    real             *z;                  /* NULL: not followed */
    real             *room;               /* scratch of the tile */
    real             *spare;              /* the part of it that has room for S and z */
} dra_chunk_walk;

typedef struct dra_chunk_steps { /* what the op does in chunk number i */
    bool    back;
    int64_t tokens;                                                 /* of a chunk */
    void (*cut_columns)(dra_chunk_walk *w, int64_t first);          /* of its own, w->E columns */
    void (*read)(dra_chunk_walk *w, const dra_chunk *k, int64_t i); /* the state before it */
    void (*write)(dra_chunk_walk *w, const dra_chunk *k);           /* the state after it */
} dra_chunk_steps;

/* Scratch: a room of `room` numbers for each tile, and in two stages behind them `each` numbers for
 * each head, what is handed from one stage to the next. */
size_t dra_chunk_scratch(const dra_chunk_stages *s, int64_t room, int64_t each);

/* A walk's part and room; where the numbers behind all rooms begin. */
real *dra_chunk_open(dra_chunk_walk *w, const dra_call *c, const dra_chunk_stages *s, int64_t room,
                     int64_t tile);

/* A dense tensor at *rest, which moves on behind it; without data where there are no stages. */
dra_tensor dra_chunk_between(const dra_chunk_stages *s, real **rest, dra_shape shape);

/* Tile number `tile`: the walk through its chunks. */
void dra_chunk_walk_tile(dra_chunk_walk *w, const dra_chunk_steps *steps, const dra_chunk_stages *s,
                         int64_t tile);

typedef struct dra_chunk_inputs { /* those that memories of matrices have in common */
    dra_value q, k;               /* (B, T, H, F) */
    dra_value v;                  /* (B, T, H, E) */
    dra_value l;                  /* (H) or (B, T, H), becomes the latter; or none; or by channel
                                   * (H, F) or (B, T, H, F), becomes the latter */
    dra_value S;                  /* (B, H, F, E), or none */
    dra_value mark;               /* (B, T), or none */
} dra_chunk_inputs;

/* Refuse what does not fit. tokens: (B, T, H). */
bool dra_chunk_check_decay(dra_graph *g, const char *op, dra_shape tokens, dra_value *l);
bool dra_chunk_check(dra_graph *g, const char *op, dra_chunk_inputs *x);

/* Appends v to the inputs, if it is there; its place, 0: none. */
int dra_chunk_append(dra_value v, dra_value *in, int *n);

static inline const dra_tensor *dra_chunk_option(const dra_call *c, int at)
{
    return at ? &c->in[at] : NULL;
}

#endif
