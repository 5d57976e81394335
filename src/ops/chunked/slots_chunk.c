/* What both ways of computing slots share, see slots.h: the place of a tile, decay, the softmax. */
#include "ops/chunked/slots.h"

#include <math.h>

enum { CHUNK = DRA_SLOTS_CHUNK };

dra_slots_sizes dra_slots_sizes_of(const dra_call *c)
{
    const dra_slots_attr *a = c->attr;
    const int64_t        *q = c->in[DRA_SLOTS_Q].shape.dim;
    const bool            own = a->read == DRA_READ_OWN;
    dra_slots_sizes       z = {.B = q[0], .T = q[1], .H = q[2], .D = q[3]};
    z.E = dra_last(&c->in[DRA_SLOTS_V]);
    z.S = dra_last(&c->in[DRA_SLOTS_L]);
    z.chunks = dra_div_up(z.T, CHUNK);
    z.owners = own ? 1 : z.H;
    z.readers = a->read == DRA_READ_ALL ? z.H : 1;
    z.tiles = own ? z.B * z.H : z.B;
    z.row = z.owners * z.S;
    z.most = dra_imin(CHUNK, z.T);
    z.scale = (real)(z.D > 0 ? 1 / sqrt((double)z.D) : 0);
    return z;
}

dra_chunk dra_slots_chunk(const dra_call *c, const dra_slots_sizes *z, int64_t i, int64_t number)
{
    const dra_slots_attr *a = c->attr;
    const int64_t         b = a->read == DRA_READ_OWN ? i / z->H : i;
    return dra_chunk_cut(c, dra_chunk_option(c, a->mark), b, 0, z->T, number * CHUNK, CHUNK);
}

static int64_t whole_vectors(int64_t columns)
{
    return dra_div_up(columns, DRA_CHUNK_COLUMNS) * DRA_CHUNK_COLUMNS;
}

dra_chunk_stages dra_slots_stages(const dra_call *c, dra_chunk_work work)
{
    const dra_slots_sizes z = dra_slots_sizes_of(c);
    const int64_t         columns = z.owners * (whole_vectors(z.D) + whole_vectors(z.E));
    return dra_chunk_stages_of(c, z.tiles, columns > 0 ? z.chunks : 0, columns, work);
}

int64_t dra_slots_columns_at(const dra_slots_sizes *z, int64_t at, int64_t end,
                             dra_slots_columns *columns)
{
    const int64_t keys = whole_vectors(z->D), each = keys + whole_vectors(z->E), i = at % each;
    columns->owner = at / each;
    columns->keys = i < keys;
    columns->first = columns->keys ? i : i - keys;
    const int64_t whole = columns->keys ? keys : each - keys;
    const int64_t n = dra_imin(whole - columns->first, end - at);
    columns->end = dra_imin(columns->first + n, columns->keys ? z->D : z->E);
    return n;
}

size_t dra_slots_bytes(const dra_slots_sizes *z, int64_t numbers)
{
    const int64_t line = 64, parts = (z->readers + 1) * (int64_t)sizeof(dra_slots_part);
    return (size_t)((dra_div_up(parts, line) + dra_div_up(numbers * (int64_t)sizeof(real), line)) *
                    line);
}

/* e^l - 1, not e^l: gates near 1 are told apart by their distance to it. */
void dra_slots_fade(const dra_chunk *k, int64_t h, const dra_tensor *l, real *fade)
{
    const int64_t S = dra_last(l);
    void (*const expm1_of)(int64_t, const real *, real *) = k->simd->map[DRA_MAP_ELU];
    for (int64_t t = 0; t < k->n; t++, fade += S) {
        const real *from = dra_recur_at(l, k->b, k->t + t, h);
        if (dra_chunk_pad(k, t))
            dra_recur_clear(S, fade);
        else if (expm1_of)
            expm1_of(S, from, fade);
        else
            for (int64_t i = 0; i < S; i++) fade[i] = (real)expm1((double)from[i]);
    }
}

void dra_slots_softmax(const dra_slots_sizes *z, const dra_chunk *k, const real *s, real *a,
                       real *lse)
{
    k->simd->softmax_rows(k->n, z->row, s, a, lse);
    dra_chunk_clear_pads(k, z->row, (dra_matrix_block){a, z->row, 1});
    if (lse) dra_chunk_clear_pads(k, 1, (dra_matrix_block){lse, 1, 1});
}

const dra_slots_loops *dra_slots_loops_of(const dra_simd *simd)
{
    static const dra_slots_loops *const by_level[] = DRA_BY_LEVEL(dra_slots_loops);
    return by_level[simd->level];
}
