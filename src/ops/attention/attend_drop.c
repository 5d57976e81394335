/* Dropout of attention weights. The factor of a weight, 0 or 1/(1-p), is a function of its place
 * alone: row of the batch, head, position of the query and of the key, so that it does not depend
 * on the path, on how the queries are cut or on the capacity of a cache.
 *   philox(counter = (k_pos div 4, q_pos, head, row), key of seed, step and path)[k_pos mod 4] */
#include "ops/attention/attend.h"

#include "base/philox.h"

int32_t dra_attend_q_pos(const dra_call *c, int64_t b, int64_t t)
{
    const dra_attend_attr *a = c->attr;
    const dra_tensor      *pos = dra_attend_option(c, DRA_ATTEND_Q_POS);
    if (!pos) return (int32_t)(a->J - a->T + t);
    return ((const int32_t *)pos->data)[b * pos->stride[0] + t * pos->stride[1]];
}

void dra_attend_k_pos(const dra_call *c, int64_t b, int64_t j0, int64_t n, int32_t *k_pos)
{
    const dra_tensor *pos = dra_attend_option(c, DRA_ATTEND_K_POS);
    const int32_t    *given = pos ? pos->data : NULL;
    for (int64_t j = 0; j < n; j++) {
        k_pos[j] = (int32_t)(j0 + j);
        if (given) k_pos[j] = given[b * pos->stride[0] + (j0 + j) * pos->stride[1]];
    }
}

dra_attend_drop dra_attend_drop_open(const dra_call *c, int64_t b, int64_t h)
{
    const dra_attend_attr *a = c->attr;
    const dra_tensor      *key = dra_attend_option(c, DRA_ATTEND_KEY);
    const dra_tensor      *row = dra_attend_option(c, DRA_ATTEND_ROW);
    int32_t                words[4];
    for (int i = 0; i < 4; i++) words[i] = ((const int32_t *)key->data)[i * key->stride[0]];
    return (dra_attend_drop){
        .key = dra_philox_key(words, a->path),
        .row = (uint32_t)(row ? ((const int32_t *)row->data)[b * row->stride[0]] : (int32_t)b),
        .head = (uint32_t)h,
        .below = (uint64_t)(a->dropout * 0x1p32),
        .kept = (real)(1 / (1 - a->dropout)),
    };
}

void dra_attend_drop_row(const dra_attend_drop *d, int32_t q_pos, int64_t n, const int32_t *k_pos,
                         real *factor)
{
    uint32_t counter[4] = {0, (uint32_t)q_pos, d->head, d->row}, bits[4] = {0};
    for (int64_t j = 0; j < n; j++) {
        const uint32_t at = (uint32_t)k_pos[j];
        if (j == 0 || counter[0] != at >> 2) { /* one draw serves four neighbours */
            counter[0] = at >> 2;
            dra_philox(counter, d->key, bits);
        }
        factor[j] = bits[at & 3] < d->below ? 0 : d->kept;
    }
}

/* ---- the factors as an op, for the plain path ------------------------------------------------ */

enum { CHUNK = 64 };

static dra_status infer_attend_drop(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_attend_attr *a = n->attr;
    *out = (dra_type){DRA_REAL, DRA_SHAPE(a->B, a->H, a->T, a->J)};
    return DRA_OK;
}

static int64_t count_attend_drop_tiles(const dra_call *c)
{
    const dra_attend_attr *a = c->attr;
    return a->J ? a->B * a->H * a->T : 0;
}

static void run_attend_drop_tile(const dra_call *c, int64_t i) /* one row of keys */
{
    const dra_attend_attr *a = c->attr;
    const int64_t          b = i / (a->T * a->H), h = i / a->T % a->H;
    const dra_attend_drop  d = dra_attend_drop_open(c, b, h);
    const int32_t          q_pos = dra_attend_q_pos(c, b, i % a->T);
    for (int64_t j = 0; j < a->J; j += CHUNK) {
        const int64_t n = dra_imin(CHUNK, a->J - j);
        int32_t       k_pos[CHUNK];
        dra_attend_k_pos(c, b, j, n, k_pos);
        dra_attend_drop_row(&d, q_pos, n, k_pos, (real *)c->out[0].data + i * a->J + j);
    }
}

const dra_op dra_op_attend_factors = {.name = "attend_factors",
                                      .n_in = DRA_MANY,
                                      .n_out = 1,
                                      .flags = DRA_OP_NO_GRAD,
                                      .attr_size = sizeof(dra_attend_attr),
                                      .infer = infer_attend_drop};

const dra_cpu_kernel dra_cpu_attend_factors = {
    .base = {.op = "attend_factors", .dtypes = DRA_REALS | DRA_BIT(DRA_I32)},
    .tiles = count_attend_drop_tiles,
    .tile = run_attend_drop_tile,
};

dra_value dra_attend_factors(dra_graph *g, const dra_value *option, const dra_attend_attr *a)
{
    const uint32_t bits = 1u << DRA_ATTEND_Q_POS | 1u << DRA_ATTEND_K_POS | 1u << DRA_ATTEND_KEY |
                          1u << DRA_ATTEND_ROW;
    dra_attend_attr own = *a;
    dra_value       in[DRA_ATTEND_OPTIONS];
    const int       n = dra_attend_append(option, bits, in, 0, &own);
    return dra_add_op(g, &dra_op_attend_factors, n, in, &own);
}
