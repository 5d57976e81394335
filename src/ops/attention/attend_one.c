/* Attention of one query for each row of the batch, as in decoding: every key and value is read
 * once, so it takes as long as they take to come from memory. They are stored row by row, all
 * heads of a token side by side, and memory is fast where whole rows are read. So a tile takes all
 * heads through one block of keys, and four stages take the place of the walk of attend_tiled.c:
 *   0  scores of a block of keys, all heads
 *   1  weights of a head, block after block: e^(s - m), and by how much m has faded y
 *   2  weights times values of a block, all heads
 *   3  y of a head: the blocks' parts, faded and added up in order
 * Every number is computed as it is there, and its bits are the same. */
#include <tgmath.h>

#include "ops/attention/attend.h"

enum { KEYS = DRA_ATTEND_KEYS, LONG = 4 * KEYS, LINE = 64 };

bool dra_attend_is_one(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return n.T == 1 && n.H > 0 && n.J >= LONG;
}

typedef struct room { /* what the stages leave for each other */
    int64_t blocks;
    real   *s;    /* (B, H, blocks, KEYS): scores, then weights */
    real   *part; /* (B, H, blocks, E) */
    real   *fade; /* (B, H, blocks) */
    real   *sum;  /* (B, H): of the weights */
} room;

static room room_of(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    room                   r = {.blocks = dra_div_up(n.J, KEYS), .s = c->scratch};
    const int64_t          each = n.B * n.H * r.blocks;
    if (!r.s) return r;
    r.part = r.s + each * KEYS;
    r.fade = r.part + each * n.E;
    r.sum = r.fade + each;
    return r;
}

size_t dra_attend_one_scratch(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          rows = n.B * n.H, blocks = dra_div_up(n.J, KEYS);
    return (size_t)(rows * (blocks * (KEYS + n.E + 1) + 1)) * sizeof(real);
}

int64_t dra_attend_one_stages(const dra_call *c) { return c->out[0].data ? 4 : 2; }

/* Blocks of a row that get a tile. A row alone has tiles only up to the last block it sees, as the
 * blocks after it would get a share of the threads as well. */
static int64_t walked_blocks(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    if (n.B > 1) return dra_div_up(n.J, KEYS);
    const dra_attend_block t = dra_attend_open(c, 0, 0, 0);
    return dra_div_up(dra_attend_end(&t), KEYS);
}

int64_t dra_attend_one_tiles(const dra_call *c)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    return n.B * (c->stage % 2 ? n.H : walked_blocks(c));
}

/* Reads the rows of x (B, K, J, W) that a block sees, so that they are in a cache when the heads
 * read their pieces of them. */
static void read_rows(const dra_attend_block *t, const dra_tensor *x, int64_t j0)
{
    const dra_attend_keys k = dra_attend_seen(t, j0);
    const int64_t         row = x->stride[2], heads = x->shape.dim[1], W = x->shape.dim[3];
    if (x->stride[3] != 1 || x->stride[1] != W || row != heads * W) return; /* another layout */
    const size_t         bytes = (size_t)(k.n * row) * dra_dtype_bytes(x->dtype);
    const volatile char *at = dra_attend_key(t->c, x, t->b, 0, j0 + k.first);
    for (size_t i = 0; i < bytes; i += LINE) (void)at[i];
}

typedef struct group { /* the heads that read one key head: from `first` on, `step` apart */
    int64_t first, step, n;
} group;

static group group_of(const dra_call *c, int64_t kv)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const bool             by_div = ((const dra_attend_attr *)c->attr)->heads == DRA_HEADS_DIV;
    const int64_t          each = n.H / n.K;
    return by_div ? (group){kv * each, 1, each} : (group){kv, n.K, each};
}

/* Keys are read once for all heads that share them. */
static void score_block(const dra_call *c, const room *r, int64_t b, int64_t block)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          j0 = block * KEYS, each = r->blocks * KEYS; /* of a head */
    dra_attend_block       t = dra_attend_open(c, b, 0, 0);
    real                  *s = r->s + b * n.H * each + j0;
    if (!dra_attend_sees(&t, j0)) return; /* what is seen is the same for all heads */
    read_rows(&t, &c->in[1], j0);
    for (int64_t kv = 0; kv < n.K; kv++) {
        const group g = group_of(c, kv);
        dra_attend_take_head(&t, g.first);
        dra_attend_products(&t, j0, g.n, g.step * c->in[0].stride[1], s + g.first * each,
                            g.step * each);
    }
    for (int64_t h = 0; h < n.H; h++) {
        dra_attend_take_head(&t, h);
        dra_attend_finish(&t, j0, s + h * each, NULL);
    }
}

static void weigh_row(const dra_call *c, const room *r, int64_t row)
{
    const int64_t          H = c->in[0].shape.dim[1];
    const dra_attend_block t = dra_attend_open(c, row / H, row % H, 0);
    real                   m = -(real)INFINITY, l = 0, *lse = c->out[1].data;
    for (int64_t i = dra_attend_begin(&t) / KEYS; i * KEYS < dra_attend_end(&t); i++)
        if (dra_attend_sees(&t, i * KEYS))
            dra_attend_absorb(&t, i * KEYS, r->s + (row * r->blocks + i) * KEYS, &m, &l,
                              r->fade + row * r->blocks + i);
    r->sum[row] = l;
    if (lse) lse[row] = l != 0 ? m + log(l) : 0;
}

static void read_block(const dra_call *c, const room *r, int64_t b, int64_t block)
{
    const dra_attend_sizes n = dra_attend_sizes_of(c);
    const int64_t          j0 = block * KEYS;
    dra_attend_block       t = dra_attend_open(c, b, 0, 0);
    if (!dra_attend_sees(&t, j0)) return;
    read_rows(&t, &c->in[2], j0);
    for (int64_t kv = 0; kv < n.K; kv++) {
        const group   g = group_of(c, kv);
        const int64_t at = (b * n.H + g.first) * r->blocks + block, each = g.step * r->blocks;
        dra_attend_take_head(&t, g.first);
        dra_attend_times_rows(&t, g.n, r->s + at * KEYS, each * KEYS, &c->in[2], j0, false,
                              r->part + at * n.E, each * n.E);
    }
}

static void add_up(const dra_call *c, const room *r, int64_t row)
{
    const int64_t          H = c->in[0].shape.dim[1], E = c->in[2].shape.dim[3];
    const dra_attend_block t = dra_attend_open(c, row / H, row % H, 0);
    real                  *y = (real *)c->out[0].data + row * E;
    for (int64_t e = 0; e < E; e++) y[e] = 0;
    for (int64_t i = dra_attend_begin(&t) / KEYS; i * KEYS < dra_attend_end(&t); i++) {
        const int64_t at = row * r->blocks + i;
        if (!dra_attend_sees(&t, i * KEYS)) continue;
        if (r->fade[at] != 1) dra_simd_of(c)->scale(E, r->fade[at], y);
        dra_simd_of(c)->add(E, y, r->part + at * E, y);
    }
    if (r->sum[row] != 0) dra_simd_of(c)->scale(E, 1 / r->sum[row], y); /* else saw nothing */
}

void dra_attend_one_tile(const dra_call *c, int64_t i)
{
    const room    r = room_of(c);
    const int64_t blocks = c->stage % 2 ? 1 : walked_blocks(c);
    switch (c->stage) {
    case 0: score_block(c, &r, i / blocks, i % blocks); break;
    case 1: weigh_row(c, &r, i); break;
    case 2: read_block(c, &r, i / blocks, i % blocks); break;
    default: add_up(c, &r, i); break;
    }
}
