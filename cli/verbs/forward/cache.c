/* dra forward: the state as a cache of transformers, in and out. */
#include "forward.h"

#include <stdlib.h>
#include <string.h>

/* How many tokens the file's keys are of; 1 where the model keeps none. */
static dra_status count_tokens(const forward_work *w, const dra_tensors *file, int n, int64_t *T,
                               dra_error *err)
{
    dra_cache_tensor t;
    dra_status       st = DRA_OK;
    *T = 1;
    for (int i = 0; i < n && st == DRA_OK; i++) {
        st = dra_cache_at(w->m.model, i, w->in.B, 1, &t, err);
        if (st != DRA_OK || !t.items) continue;
        const dra_tensor_info *found = dra_tensors_find(file, t.name);
        const bool             fits = found && found->shape.rank == 4 && found->shape.dim[2] >= 1 &&
                          found->shape.dim[0] == t.shape.dim[0] &&
                          found->shape.dim[1] == t.shape.dim[1] &&
                          found->shape.dim[3] == t.shape.dim[3];
        if (!fits)
            return cli_error(err, DRA_ERR_SHAPE,
                             "%.200s: tensor %s is %s, expected (%lld, heads, tokens, channels)",
                             w->a->cache, t.name, found ? "shaped otherwise" : "missing",
                             (long long)w->in.B);
        *T = found->shape.dim[2];
        return DRA_OK;
    }
    return st;
}

static dra_status read_tensor(forward_work *w, const dra_tensors *file, int which, int64_t T,
                              dra_error *err)
{
    dra_cache_tensor t;
    dra_status       st = dra_cache_at(w->m.model, which, w->in.B, T, &t, err);
    if (st != DRA_OK) return st;
    if (!dra_tensors_find(file, t.name))
        return cli_error(err, DRA_ERR_NAME, "%.200s: tensor %s is missing", w->a->cache, t.name);
    const size_t n = (size_t)dra_shape_count(&t.shape);
    dra_real    *data = calloc(n + 1, sizeof *data);
    if (!data) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    st = dra_tensors_read(file, t.name, DRA_REAL, t.shape, data, err);
    if (st == DRA_OK) st = dra_cache_set(w->m.model, w->context.states, which, data, n, err);
    free(data);
    return st;
}

dra_status forward_cache_read(forward_work *w, dra_error *err)
{
    dra_tensors *file = NULL;
    int64_t      T = 1;
    if (!w->a->cache) return DRA_OK;
    const int n = dra_cache_count(w->m.model, err);
    if (!n) return DRA_ERR_VALUE;
    dra_status st = dra_tensors_open(w->a->cache, &file, err);
    if (st == DRA_OK) st = count_tokens(w, file, n, &T, err);
    for (int64_t b = 0; b < w->in.B && st == DRA_OK; b++)
        st = dra_states_place(w->context.states, b, T, T, err);
    for (int i = 0; i < n && st == DRA_OK; i++) st = read_tensor(w, file, i, T, err);
    dra_tensors_close(file);
    return st;
}

dra_status forward_cache_write(const forward_work *w, int which, dra_tensor_item *item,
                               dra_error *err)
{
    const dra_states *s = w->context.states;
    dra_cache_tensor  t;
    dra_status st = dra_cache_at(w->m.model, which, w->in.B, dra_states_items(s, 0), &t, err);
    if (st != DRA_OK) return st;
    const size_t n = (size_t)dra_shape_count(&t.shape);
    dra_real    *data = calloc(n + 1, sizeof *data);
    char        *name = strdup(t.name);
    *item = (dra_tensor_item){name, DRA_REAL, t.shape, data};
    if (!data || !name) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    return dra_cache_get(w->m.model, s, which, data, n, err);
}
