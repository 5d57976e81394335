/* Recurrent cells over time, forward: see cell.h. */
#include "ops/recurrent/cell.h"

/* ---- where a tile stands --------------------------------------------------------------------- */

/* Cut `cut` of a group of a set: the parts of heads are cut into groups as equal as can be, and
 * these again. */
static void find_rows(dra_cell_place *p, int64_t group, int64_t cuts, int64_t cut)
{
    const dra_cell_sizes n = p->size;
    const int64_t        heads = n.H / n.sets, each = heads * n.parts, all = n.B * each;
    const int64_t        first = group * all / n.groups, end = (group + 1) * all / n.groups;
    for (int64_t k = first + cut * (end - first) / cuts;
         k < first + (cut + 1) * (end - first) / cuts; k++) {
        const int64_t h = p->set * heads + k % each / n.parts, part = k % n.parts;
        for (int64_t s = part * n.S / n.parts; s < (part + 1) * n.S / n.parts; s++) {
            p->b[p->rows] = k / each;
            p->h[p->rows] = h * n.S + s;
            p->part[p->rows++] = h * n.parts + part;
        }
    }
}

dra_cell_place dra_cell_place_at(const dra_call *c, int inputs, int outputs, int64_t cuts,
                                 int64_t i)
{
    dra_cell_place p = {.in = c->in, .out = c->out};
    int64_t        group = i / cuts;
    p.size = dra_cell_sizes_of(c->attr, p.in);
    while (group >= p.size.sets * p.size.groups) {
        group -= p.size.sets * p.size.groups;
        p.in += inputs;
        p.out += outputs;
        p.size = dra_cell_sizes_of(c->attr, p.in);
    }
    p.set = group / p.size.groups;
    find_rows(&p, group % p.size.groups, cuts, i % cuts);
    return p;
}

int64_t dra_cell_all_groups(const dra_call *c, int inputs)
{
    int64_t groups = 0;
    for (int k = 0; k < dra_cell_count(c, inputs); k++) {
        const dra_cell_sizes n = dra_cell_sizes_of(c->attr, c->in + k * inputs);
        groups += n.sets * n.groups;
    }
    return groups;
}

int64_t dra_cell_most_rows(const dra_call *c, int inputs)
{
    int64_t rows = 0;
    for (int k = 0; k < dra_cell_count(c, inputs); k++) {
        const dra_cell_sizes n = dra_cell_sizes_of(c->attr, c->in + k * inputs);
        const int64_t        groups = dra_imax(n.groups, 1);
        rows = dra_imax(rows,
                        dra_div_up(dra_cell_set_parts(&n), groups) * dra_div_up(n.S, n.parts));
    }
    return rows;
}

int64_t dra_cell_widest(const dra_call *c, int inputs)
{
    int64_t D = 0;
    for (int k = 0; k < dra_cell_count(c, inputs); k++)
        D = dra_imax(D, dra_cell_sizes_of(c->attr, c->in + k * inputs).D);
    return D;
}

double dra_cell_product_flops(const dra_call *c, int inputs)
{
    const dra_cell_attr *a = c->attr;
    double               flops = 0;
    for (int k = 0; k < dra_cell_count(c, inputs); k++) {
        const dra_cell_sizes n = dra_cell_sizes_of(c->attr, c->in + k * inputs);
        flops += 2.0 * a->gates * (double)n.D * (double)n.D * (double)(n.B * n.T * n.H * n.S);
    }
    return flops;
}

const dra_cell_loops *dra_cell_loops_of(const dra_simd *simd)
{
    static const dra_cell_loops *const by_level[] = DRA_BY_LEVEL(dra_cell_loops);
    return by_level[simd->level];
}

/* ---- forward --------------------------------------------------------------------------------- */

typedef struct walk {
    const dra_call *c;
    dra_cell_place  at;
    const real     *zeros;
    real           *spare;                 /* (2, rows, D): two tokens, where nobody reads all */
    real           *mix;                   /* (rows, D), with slots */
    const real     *h[DRA_CELL_ROWS];      /* after the token before */
    real           *second[DRA_CELL_ROWS]; /* c, in place: no unit sees that of another */
} walk;

/* A tile's scratch: zeros, the spare rows, those of c or of what slots mix in. */
static int64_t room_size(const dra_call *c)
{
    const dra_cell_attr *a = c->attr;
    const int64_t        rows = (1 + a->states + (a->slots > 0)) * DRA_CELL_ROWS;
    return (1 + rows) * dra_cell_widest(c, dra_cell_inputs(a));
}

/* A token of a tile takes a time for its rows and one for its weights, which fewer than three rows
 * do not keep busy. */
static double time_of(int64_t groups, int64_t rows, int64_t cuts, int64_t threads)
{
    const int64_t each = dra_div_up(rows, cuts);
    return (double)dra_div_up(groups * cuts, threads) * ((double)dra_imax(each, 3) + 0.5);
}

/* Of each group, so that threads end soonest. */
static int64_t cuts_of(const dra_call *c)
{
    const int     inputs = dra_cell_inputs(c->attr);
    const int64_t groups = dra_cell_all_groups(c, inputs), rows = dra_cell_most_rows(c, inputs);
    int64_t       best = 1;
    if (groups >= c->threads) return 1;
    for (int64_t cuts = 2; cuts <= rows; cuts++)
        if (time_of(groups, rows, cuts, c->threads) < time_of(groups, rows, best, c->threads))
            best = cuts;
    return best;
}

int64_t dra_cell_tiles(const dra_call *c)
{
    return dra_cell_all_groups(c, dra_cell_inputs(c->attr)) * cuts_of(c);
}

size_t dra_cell_scratch(const dra_call *c)
{
    return (size_t)(dra_cell_tiles(c) * room_size(c)) * sizeof(real);
}

/* Where h of row r after token t goes. */
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
    dra_cell_step     s = {.D = w->at.size.D, .ahead = w->at.size.H * w->at.size.S};
    s.w = (const real *)packed->data + w->at.set * packed->stride[0];
    s.b = (const real *)b->data + (b->shape.rank == 2 ? w->at.set * b->stride[0] : 0);
    for (int64_t r = 0; r < w->at.rows; r++) {
        const int64_t row = w->at.b[r], state = w->at.h[r];
        const int32_t bits = dra_recur_mark(mark, row, t);
        real         *to = state_after(w, t, r);
        if (bits & DRA_MARK_RESET) {
            w->h[r] = w->zeros;
            if (w->second[r]) dra_recur_clear(s.D, w->second[r]);
        }
        if (bits & DRA_MARK_PAD) {
            dra_recur_copy(s.D, w->h[r], to);
        } else {
            s.x[s.rows] = dra_recur_at(&in[DRA_CELL_X], row, t, state / w->at.size.S);
            s.h[s.rows] = w->h[r];
            s.c[s.rows] = w->second[r];
            s.mix[s.rows] = dra_cell_mix_of(&w->at, &in[DRA_CELL_MIX], t, r, w->mix);
            s.to[s.rows] = to;
            s.kept[s.rows] = kept->data ? dra_recur_at(kept, row, t, state) : NULL;
            s.rows++;
        }
        w->h[r] = to;
    }
    return s;
}

/* Where tile i stands before its first token. */
static walk open_walk(const dra_call *c, int64_t i)
{
    const dra_cell_attr *a = c->attr;
    walk                 w = {.c = c};
    w.at = dra_cell_place_at(c, dra_cell_inputs(a), dra_cell_outputs(a), cuts_of(c), i);
    const int64_t     D = w.at.size.D;
    const dra_tensor *start = &w.at.in[DRA_CELL_START];
    real             *zeros = (real *)c->scratch + i * room_size(c);
    dra_recur_clear(D, zeros);
    w.zeros = zeros;
    w.spare = zeros + D;
    w.mix = w.spare + (1 + a->states) * DRA_CELL_ROWS * D;
    for (int64_t r = 0; r < w.at.rows; r++) {
        const int64_t b = w.at.b[r], h = w.at.h[r];
        w.h[r] = dra_recur_at(&start[0], b, h, 0);
        if (a->states < 2) continue;
        w.second[r] = w.spare + (2 * w.at.rows + r) * D;
        dra_recur_copy(D, dra_recur_at(&start[1], b, h, 0), w.second[r]);
    }
    return w;
}

void dra_cell_tile(const dra_call *c, int64_t i)
{
    const dra_cell_attr  *a = c->attr;
    const dra_cell_loops *loops = dra_cell_loops_of(dra_simd_of(c));
    walk                  w = open_walk(c, i);
    for (int64_t t = 0; t < w.at.size.T && w.at.rows > 0; t++) {
        const dra_cell_step s = open_token(&w, t);
        (a->formula == DRA_CELL_LSTM ? loops->lstm : loops->gru)(&s);
    }
    for (int k = 0; k < a->states; k++) {
        const dra_tensor *last = &w.at.out[DRA_CELL_LAST + k];
        for (int64_t r = 0; r < w.at.rows && last->data; r++)
            dra_recur_copy(w.at.size.D, k == 0 ? w.h[r] : w.second[r],
                           dra_recur_at(last, w.at.b[r], w.at.h[r], 0));
    }
}

dra_cost dra_cell_cost(const dra_call *c)
{
    return (dra_cost){dra_cell_product_flops(c, dra_cell_inputs(c->attr)), dra_call_bytes(c)};
}
