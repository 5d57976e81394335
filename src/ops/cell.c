/* Recurrent cells over time, forward: see cell.h. */
#include "ops/cell.h"

/* ---- where a tile stands --------------------------------------------------------------------- */

/* Group `group` of a set: the rows are cut into parts as equal as can be. */
static void find_rows(dra_cell_place *p, int64_t group)
{
    const dra_cell_sizes n = p->size;
    const int64_t        rows = n.B * n.H / n.sets;
    p->first = group * rows / n.groups;
    p->rows = (group + 1) * rows / n.groups - p->first;
    for (int64_t r = 0; r < p->rows; r++) {
        p->b[r] = n.sets == 1 ? (p->first + r) / n.H : p->first + r;
        p->h[r] = n.sets == 1 ? (p->first + r) % n.H : p->set;
    }
}

dra_cell_place dra_cell_place_at(const dra_call *c, int inputs, int outputs, int64_t i)
{
    dra_cell_place p = {.in = c->in, .out = c->out};
    p.size = dra_cell_sizes_of(p.in);
    while (i >= p.size.sets * p.size.groups) {
        i -= p.size.sets * p.size.groups;
        p.in += inputs;
        p.out += outputs;
        p.size = dra_cell_sizes_of(p.in);
    }
    p.set = i / p.size.groups;
    find_rows(&p, i % p.size.groups);
    return p;
}

int64_t dra_cell_all_tiles(const dra_call *c, int inputs)
{
    int64_t tiles = 0;
    for (int k = 0; k < dra_cell_count(c, inputs); k++) {
        const dra_cell_sizes n = dra_cell_sizes_of(c->in + k * inputs);
        tiles += n.sets * n.groups;
    }
    return tiles;
}

int64_t dra_cell_widest(const dra_call *c, int inputs)
{
    int64_t D = 0;
    for (int k = 0; k < dra_cell_count(c, inputs); k++)
        D = dra_imax(D, dra_cell_sizes_of(c->in + k * inputs).D);
    return D;
}

double dra_cell_product_flops(const dra_call *c, const dra_cell_kind *kind, int inputs)
{
    double flops = 0;
    for (int k = 0; k < dra_cell_count(c, inputs); k++) {
        const dra_cell_sizes n = dra_cell_sizes_of(c->in + k * inputs);
        flops += 2.0 * kind->gates * (double)n.D * (double)n.D * (double)(n.B * n.T * n.H);
    }
    return flops;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* A tile's scratch: a row of zeros, and the states of two tokens where nobody reads them all. */
enum { SCRATCH_ROWS = 1 + 2 * DRA_CELL_ROWS };

typedef struct walk {
    const dra_call      *c;
    const dra_cell_kind *kind;
    dra_cell_place       at;
    const real          *zeros;
    real                *spare;                /* (2, rows, D) */
    const real          *state[DRA_CELL_ROWS]; /* after the token before */
} walk;

int64_t dra_cell_tiles(const dra_call *c) { return dra_cell_all_tiles(c, DRA_CELL_INPUTS); }

size_t dra_cell_scratch(const dra_call *c)
{
    const int64_t rows = dra_cell_tiles(c) * SCRATCH_ROWS;
    return (size_t)(rows * dra_cell_widest(c, DRA_CELL_INPUTS)) * sizeof(real);
}

/* Where the state of row r after token t goes. */
static real *state_after(const walk *w, int64_t t, int64_t r)
{
    const dra_tensor *h = &w->at.out[DRA_CELL_H];
    if (h->data) return dra_recur_at(h, w->at.b[r], t, w->at.h[r]);
    return w->spare + (t % 2 * w->at.rows + r) * w->at.size.D;
}

/* The rows that take part in token t; the others are pads and keep their state. */
static dra_cell_step open_token(walk *w, int64_t t)
{
    const dra_tensor *in = w->at.in, *kept = &w->at.out[DRA_CELL_KEPT], *b = &in[DRA_CELL_B];
    const dra_tensor *packed = &in[DRA_CELL_PACKED], *mark = &w->c->in[w->c->n_in - 1];
    dra_cell_step     s = {.D = w->at.size.D, .ahead = w->at.size.H};
    s.w = (const real *)packed->data + w->at.set * packed->stride[0];
    s.b = (const real *)b->data + (b->shape.rank == 2 ? w->at.set * b->stride[0] : 0);
    for (int64_t r = 0; r < w->at.rows; r++) {
        const int64_t row = w->at.b[r], head = w->at.h[r];
        const int32_t bits = dra_recur_mark(mark, row, t);
        real         *to = state_after(w, t, r);
        if (bits & DRA_MARK_RESET) w->state[r] = w->zeros;
        if (bits & DRA_MARK_PAD) {
            dra_recur_copy(s.D, w->state[r], to);
        } else {
            s.x[s.rows] = dra_recur_at(&in[DRA_CELL_X], row, t, head);
            s.h[s.rows] = w->state[r];
            s.mix[s.rows] = dra_recur_at(&in[DRA_CELL_MIX], head, 0, 0);
            s.to[s.rows] = to;
            s.kept[s.rows] = kept->data ? dra_recur_at(kept, row, t, head) : NULL;
            s.rows++;
        }
        w->state[r] = to;
    }
    return s;
}

void dra_cell_tile(const dra_call *c, const dra_cell_kind *kind, int64_t i)
{
    walk w = {.c = c, .kind = kind};
    w.at = dra_cell_place_at(c, DRA_CELL_INPUTS, DRA_CELL_OUTPUTS, i);
    const int64_t     D = w.at.size.D, room = SCRATCH_ROWS * dra_cell_widest(c, DRA_CELL_INPUTS);
    const dra_tensor *start = &w.at.in[DRA_CELL_START], *last = &w.at.out[DRA_CELL_LAST];
    real             *zeros = (real *)c->scratch + i * room;
    dra_recur_clear(D, zeros);
    w.zeros = zeros;
    w.spare = zeros + D;
    for (int64_t r = 0; r < w.at.rows; r++)
        w.state[r] = dra_recur_at(start, w.at.b[r], w.at.h[r], 0);
    for (int64_t t = 0; t < w.at.size.T; t++) {
        const dra_cell_step s = open_token(&w, t);
        kind->forward(c->simd, &s);
    }
    for (int64_t r = 0; r < w.at.rows && last->data; r++)
        dra_recur_copy(D, w.state[r], dra_recur_at(last, w.at.b[r], w.at.h[r], 0));
}

dra_cost dra_cell_cost(const dra_call *c, const dra_cell_kind *kind)
{
    return (dra_cost){dra_cell_product_flops(c, kind, DRA_CELL_INPUTS), dra_call_bytes(c)};
}
