/* One memory with its retrieval inside a mixer: its tensors. After the memory's own parameters come
 * gains of recurrent matrices, maps of items, maps of slots, norms of items, the head norm. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

/* A joined state of its own width: [k; v] is mapped into it, and out of it by kappa and nu. */
static void declare_joined(const dra_branch *b, dra_specs *params)
{
    const dra_memory_sizes *s = &b->sizes;
    const int64_t           R = s->stream[0].width, W = s->D + s->E;
    const struct {
        const char *name;
        int64_t     out, in;
    } maps[] = {{"join", R, W}, {"kappa", s->D, R}, {"nu", s->E, R}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        dra_specs_add(params, b->prefix,
                      &(dra_spec){.name = maps[i].name,
                                  .shape = DRA_SHAPE(s->H, maps[i].out, maps[i].in),
                                  .fill = DRA_FILL_NORMAL,
                                  .number = 1 / sqrt((double)maps[i].in),
                                  .group = DRA_PARAM_MAP});
}

void dra_identity_declare(dra_specs *params, const char *prefix, const char *name, dra_shape shape,
                          int64_t from, dra_param_group group)
{
    const int64_t in = shape.dim[shape.rank - 1], out = shape.dim[shape.rank - 2];
    const int64_t heads = shape.rank == 3 ? shape.dim[0] : 1;
    double       *eye = calloc((size_t)(heads * out * in) + 1, sizeof *eye);
    for (int64_t i = 0; eye && i < heads * out; i++) eye[i * in + from + i % out] = 1;
    dra_specs_add(params, prefix,
                  &(dra_spec){name, shape, DRA_FILL_VALUES, .values = eye, .group = group});
    free(eye);
}

/* Where nobody reads keys there is no map of them. */
static void declare_maps(const dra_branch *b, dra_specs *params)
{
    const dra_memory_sizes *s = &b->sizes;
    const dra_stream       *k = &s->stream[0], *v = &s->stream[s->streams - 1];
    if (strcmp(b->config.retrieval, "none") != 0)
        dra_identity_declare(params, b->prefix, "kappa", DRA_SHAPE(s->H, s->D, k->width), 0,
                             DRA_PARAM_MAP);
    dra_identity_declare(params, b->prefix, "nu", DRA_SHAPE(s->H, s->E, v->width), v->width - s->E,
                         DRA_PARAM_MAP);
}

static void declare_vector(const dra_branch *b, const char *name, int64_t n, double number,
                           dra_specs *params)
{
    dra_specs_add(params, b->prefix,
                  &(dra_spec){name, DRA_SHAPE(n), .number = number, .group = DRA_PARAM_NORM});
}

static void declare_norm(const dra_branch *b, dra_specs *params)
{
    declare_vector(b, "gain_mk", b->sizes.D, 1, params);
    declare_vector(b, "gain_mv", b->sizes.E, 1, params);
    if (b->config.norm_kind != DRA_ITEM_LAYER) return;
    declare_vector(b, "bias_mk", b->sizes.D, 0, params);
    declare_vector(b, "bias_mv", b->sizes.E, 0, params);
}

void dra_branch_declare(dra_branch *b, dra_specs *params, dra_specs *state)
{
    const dra_memory_sizes *s = &b->sizes;
    const int64_t           all = (b->retrieval->pooled ? 1 : s->Q) * s->E;
    b->own = params;
    b->specs = state;
    b->params = dra_specs_count(params);
    b->states = dra_specs_count(state);
    b->memory->declare(s, b->prefix, params, state);
    b->n_params = dra_specs_count(params) - b->params;
    b->n_states = dra_specs_count(state) - b->states;
    b->reads = dra_specs_count(state);
    if (b->retrieval->declare) b->retrieval->declare(s, b->prefix, state);
    dra_recurrent_declare(b, params);
    if (b->config.dim > 0) declare_joined(b, params);
    if (b->config.maps) declare_maps(b, params);
    if (b->config.pi)
        dra_identity_declare(params, b->prefix, "pi_k", DRA_SHAPE(s->D, s->D), 0, DRA_PARAM_MAP);
    if (b->config.pi)
        dra_identity_declare(params, b->prefix, "pi_v", DRA_SHAPE(s->E, s->E), 0, DRA_PARAM_MAP);
    if (b->config.norm) declare_norm(b, params);
    if (b->config.head_norm != DRA_ON) return;
    declare_vector(b, "hn_g", all, 1, params);
    declare_vector(b, "hn_b", all, 0, params);
}
