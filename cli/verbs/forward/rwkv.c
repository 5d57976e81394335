/* dra forward: RWKV's state in the tensors of Hugging Face, in and out. */
#include "forward.h"

#include <stdlib.h>

static const char *const names[DRA_RWKV_STATES] = {"state.0", "state.1", "state.2", "state.3",
                                                   "state.4"};

/* Rows, axes and layers are looked at here, how many channels there must be by the library. */
static dra_status check_shape(const forward_work *w, int which, const dra_tensor_info *t,
                              dra_error *err)
{
    const dra_shape *s = &t->shape, should = dra_rwkv_state_shape(w->m.model, w->in.B, which);
    const int32_t    last = s->rank - 1;
    if (!should.rank ||
        (s->rank == should.rank && s->dim[0] == should.dim[0] && s->dim[last] == should.dim[last]))
        return DRA_OK; /* what there is none of is named by the library */
    return cli_error(err, DRA_ERR_SHAPE,
                     "%.200s: tensor %s is not shaped as (%lld, channels, %lld), rows and layers",
                     w->a->rwkv_state, t->name, (long long)w->in.B,
                     (long long)dra_model_layers(w->m.model));
}

static dra_status read_one(forward_work *w, const dra_tensors *file, int which, dra_error *err)
{
    const dra_tensor_info *t = dra_tensors_find(file, names[which]);
    if (!t)
        return cli_error(err, DRA_ERR_NAME, "%.200s: tensor %s is missing", w->a->rwkv_state,
                         names[which]);
    dra_status st = check_shape(w, which, t, err);
    if (st != DRA_OK) return st;
    const size_t count = (size_t)dra_shape_count(&t->shape);
    dra_real    *data = calloc(count + 1, sizeof *data);
    if (!data) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    st = dra_tensors_read(file, names[which], DRA_REAL, t->shape, data, err);
    if (st == DRA_OK)
        st = dra_rwkv_state_set(w->m.model, w->context.states, which, data, count, err);
    free(data);
    return st;
}

dra_status forward_rwkv_read(forward_work *w, dra_error *err)
{
    dra_tensors *file = NULL;
    if (!w->a->rwkv_state) return DRA_OK;
    dra_status st = dra_tensors_open(w->a->rwkv_state, &file, err);
    for (int i = 0; i < dra_rwkv_state_count(w->m.model) && st == DRA_OK; i++)
        st = read_one(w, file, i, err);
    dra_tensors_close(file);
    return st;
}

dra_status forward_rwkv_write(const forward_work *w, int which, dra_tensor_item *item,
                              dra_error *err)
{
    const dra_model *m = w->m.model;
    const dra_shape  shape = dra_rwkv_state_shape(m, w->in.B, which);
    const size_t     count = (size_t)dra_shape_count(&shape);
    dra_real        *data = calloc(count + 1, sizeof *data);
    *item = (dra_tensor_item){names[which], DRA_REAL, shape, data};
    if (!data) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    return dra_rwkv_state_get(m, w->context.states, which, data, count, err);
}
