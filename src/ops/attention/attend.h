/* What the files of attention share: attend.c (checks), attend_plain.c (the path that holds the
 * scores), attend_drop.c (dropout of the weights), attend_tile.c (one block of scores),
 * attend_tiled.c and attend_back.c (the ops that never hold the score matrix), attend_one.c (the
 * first of them for one query), attend_small.c (few keys). */
#ifndef DRA_SRC_OPS_ATTENTION_ATTEND_H
#define DRA_SRC_OPS_ATTENTION_ATTEND_H

#include "ops/common.h"

typedef struct dra_attention { /* what was asked, checked */
    const dra_attend_config *config;
    dra_value                q, k, v, option[DRA_ATTEND_OPTIONS];
    dra_value                previous, mix_before, mix_after; /* of the plain path */
    dra_attend_attr          a;
    int64_t                  K;
} dra_attention;

/* y = attention by the plain path. */
dra_value dra_attend_plain(dra_graph *g, const dra_attention *x);

/* The option as a tensor of the call, or NULL. */
static inline const dra_tensor *dra_attend_option(const dra_call *c, dra_attend_input which)
{
    const int32_t at = ((const dra_attend_attr *)c->attr)->at[which];
    return at < 0 ? NULL : &c->in[at];
}

/* Appends the options named by `bits` to the inputs of a node and notes where they are. */
int dra_attend_append(const dra_value *option, uint32_t bits, dra_value *in, int n,
                      dra_attend_attr *a);

/* y = attention by the tiled path; option: DRA_ATTEND_OPTIONS values, null where there is none. */
dra_value dra_attend_tiled(dra_graph *g, dra_value q, dra_value k, dra_value v,
                           const dra_value *option, const dra_attend_attr *a, dra_value *lse);

/* The same over few keys, without options. */
dra_value dra_attend_small(dra_graph *g, dra_value q, dra_value k, dra_value v,
                           const dra_attend_attr *a, dra_value *lse);

/* The inputs of the gradient of such a node: its own, then dy, lse (B, H, T) and delta (B, H, T, 1)
 * = dy.y - dlse. False where nothing comes back. */
bool dra_attend_upstream(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *in);

/* ---- positions and dropout ------------------------------------------------------------------- */

int32_t dra_attend_q_pos(const dra_call *c, int64_t b, int64_t t);
/* Of n keys from j0 on. */
void dra_attend_k_pos(const dra_call *c, int64_t b, int64_t j0, int64_t n, int32_t *pos);

/* The column of `distance` (H, N) for a query and a key. */
static inline int64_t dra_attend_column(const dra_attend_attr *a, const dra_tensor *distance,
                                        int32_t q_pos, int32_t k_pos)
{
    const int64_t at = (int64_t)q_pos - k_pos + a->distance_zero;
    return dra_imax(0, dra_imin(at, distance->shape.dim[1] - 1));
}

/* The same of n keys whose positions count up by one: key j has column first - j, but those before
 * `far` the last column and those from `near` on column 0. */
typedef struct dra_attend_columns {
    int64_t first, far, near;
} dra_attend_columns;

static inline dra_attend_columns dra_attend_columns_of(const dra_attend_attr *a,
                                                       const dra_tensor *distance, int32_t q_pos,
                                                       int32_t k_pos, int64_t n)
{
    const int64_t first = (int64_t)q_pos - k_pos + a->distance_zero;
    const int64_t far = dra_imax(0, dra_imin(first - (distance->shape.dim[1] - 1), n));
    return (dra_attend_columns){first, far, dra_imax(far, dra_imin(first + 1, n))};
}

typedef struct dra_attend_drop { /* what draws the factors of one row of the batch and head */
    uint64_t key;
    uint32_t row, head;
    uint64_t below; /* 32 random bits under it drop the weight */
    real     kept;  /* the factor of the others, 1 / (1 - p) */
} dra_attend_drop;

dra_attend_drop dra_attend_drop_open(const dra_call *c, int64_t b, int64_t h);
void dra_attend_drop_row(const dra_attend_drop *d, int32_t q_pos, int64_t n, const int32_t *k_pos,
                         real *factor);

/* The factors as a value, real (B, H, T, J), for the plain path. */
dra_value dra_attend_factors(dra_graph *g, const dra_value *option, const dra_attend_attr *a);

/* ---- one block of scores --------------------------------------------------------------------- */

enum { DRA_ATTEND_ROWS = 32, DRA_ATTEND_KEYS = DRA_ATTEND_PAGE };

typedef struct dra_attend_sizes {
    int64_t B, H, K, T, J, D, E;
} dra_attend_sizes;

dra_attend_sizes dra_attend_sizes_of(const dra_call *c);

typedef struct dra_attend_block { /* up to 32 queries of one head */
    const dra_call        *c;
    const dra_attend_attr *a;
    dra_attend_sizes       size;
    int64_t                b, h, kv, t0, rows;
    int64_t                lo[DRA_ATTEND_ROWS], hi[DRA_ATTEND_ROWS]; /* what each sees, in 0..J */
    int64_t                first, end; /* the union of these; always-seen keys are not counted */
    int32_t                q_pos[DRA_ATTEND_ROWS];
    const dra_tensor      *distance; /* (H, N), or NULL */
    bool                   counted;  /* positions of keys are their numbers */
    real                   slope;
    real                   factor; /* what the scores below are still to be multiplied by */
    dra_attend_drop        drop;
} dra_attend_block;

dra_attend_block dra_attend_open(const dra_call *c, int64_t b, int64_t h, int64_t t0);
/* The same queries of another head. */
void dra_attend_take_head(dra_attend_block *t, int64_t h);

/* Where a walk through the blocks of keys starts, and the end of all that is seen. */
int64_t dra_attend_begin(const dra_attend_block *t);
int64_t dra_attend_end(const dra_attend_block *t);

/* True when some query of the block may see some of the keys from j0 on. */
bool dra_attend_sees(const dra_attend_block *t, int64_t j0);

typedef struct dra_attend_keys { /* of a block of keys: from `first` on, n of them */
    int64_t first, n;
} dra_attend_keys;

/* The keys from j0 on that some query of the block may see, as far as intervals tell. */
dra_attend_keys dra_attend_seen(const dra_attend_block *t, int64_t j0);

/* Key or value j of a row of the batch and a head of x, k or v, real or bf16; those up to the next
 * multiple of KEYS follow. */
const void *dra_attend_key(const dra_call *c, const dra_tensor *x, int64_t b, int64_t h, int64_t j);

/* The masked logits of keys j0.. into s (rows, KEYS), DRA_MASKED where nothing is seen; with a
 * soft cap its derivative into dcap, which may be NULL. Multiplying by t->factor > 0 is left to the
 * exponential, where it costs nothing. */
void dra_attend_scores(const dra_attend_block *t, int64_t j0, real *s, real *dcap);

/* Its parts: q.k of n rows of q, `step` apart from the first query of the block on, into rows of s
 * that are s_row apart; then from there to the logits, in place. */
void dra_attend_products(const dra_attend_block *t, int64_t j0, int64_t n, int64_t step, real *s,
                         int64_t s_row);
void dra_attend_finish(const dra_attend_block *t, int64_t j0, real *s, real *dcap);

/* out (rows, W) = or, to add, += p (rows, KEYS) x[b, kv, j0.., :] for x (B, K, J, W). */
void dra_attend_times(const dra_attend_block *t, const real *p, const dra_tensor *x, int64_t j0,
                      bool add, real *out);
/* The same of n rows of p and out that are p_row and out_row apart. */
void dra_attend_times_rows(const dra_attend_block *t, int64_t n, const real *p, int64_t p_row,
                           const dra_tensor *x, int64_t j0, bool add, real *out, int64_t out_row);

/* Takes one block of scores into the largest of each query m and the sum l of e^(s - m); s becomes
 * the weights. fade: by how much a sum in units of the old e^m shrinks. */
void dra_attend_absorb(const dra_attend_block *t, int64_t j0, real *s, real *m, real *l,
                       real *fade);

/* ---- one query for each row of the batch (attend_one.c) -------------------------------------- */

bool    dra_attend_is_one(const dra_call *c);
int64_t dra_attend_one_stages(const dra_call *c);
int64_t dra_attend_one_tiles(const dra_call *c);
void    dra_attend_one_tile(const dra_call *c, int64_t i);
size_t  dra_attend_one_scratch(const dra_call *c);

/* FLOPs: `per_pair` for every visible pair of query and key of every head. */
dra_cost dra_attend_cost(const dra_call *c, double per_pair);

extern const dra_op dra_op_attend_back;

#endif
