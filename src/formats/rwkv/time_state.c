/* The state that RWKV's trainers learn (state tuning): blocks.N.att.time_state of each layer, a
 * file of its own or among the weights of version 6. A head's matrix is stored values before
 * keys. */
#include <stdio.h>
#include <stdlib.h>

#include "base/shape.h"
#include "file/fail.h"
#include "file/header.h"
#include "model/model.h"

/* (H, keys, values) from (H, values, keys). */
static void turn_heads(const dra_shape *s, const dra_real *from, dra_real *to)
{
    const int64_t H = s->dim[0], D = s->dim[1], E = s->dim[2];
    for (int64_t h = 0; h < H; h++)
        for (int64_t d = 0; d < D; d++)
            for (int64_t e = 0; e < E; e++) to[(h * D + d) * E + e] = from[(h * E + e) * D + d];
}

static dra_status read_layer(const dra_tensors *file, int64_t l, const dra_specs *specs, int i,
                             dra_states *s, dra_error *err)
{
    const dra_shape *own = &dra_specs_at(specs, i)->shape;
    const size_t     n = (size_t)dra_shape_count(own);
    char             name[64];
    dra_real        *both = malloc(2 * n * sizeof *both + 1);
    if (!both) return dra_fail(err, DRA_ERR_MEMORY, "time_state: out of memory");
    snprintf(name, sizeof name, "blocks.%lld.att.time_state", (long long)l);
    const dra_shape there = DRA_SHAPE(own->dim[0], own->dim[2], own->dim[1]);
    dra_status      st = dra_tensors_read(file, name, DRA_REAL, there, both, err);
    if (st == DRA_OK) {
        turn_heads(own, both, both + n);
        st = dra_states_write(s, i, 0, both + n, n, err);
    }
    free(both);
    return st;
}

dra_status dra_rwkv_time_state(const dra_model *m, const char *path, dra_states *s, dra_error *err)
{
    const dra_specs *specs = dra_model_state(m);
    const int        version = dra_model_config_rwkv(dra_model_config_of(m));
    dra_tensors     *file = NULL;
    if (version < 5)
        return dra_fail_at(err, DRA_ERR_VALUE, path,
                           "holds states of RWKV 5 to 7, expected a model of these");
    dra_status st = dra_tensors_open_any(path, &file, err);
    for (int64_t l = 0; l < dra_model_config_of(m)->depth && st == DRA_OK; l++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%lld.mixer.S", (long long)l);
        const int i = dra_specs_find(specs, name);
        if (i < 0 || dra_specs_at(specs, i)->shape.rank != 3)
            st = dra_fail(err, DRA_ERR_VALUE, "time_state: the model has no matrices in layer %lld",
                          (long long)l);
        else
            st = read_layer(file, l, specs, i, s, err);
    }
    dra_tensors_close(file);
    return st;
}
