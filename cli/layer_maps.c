/* The maps of a layer. What goes into layer l is what a model of the first l layers puts out; where
 * norms stand before blocks this comes normalised, which the layer's own norm undoes but for its
 * eps. TODO when views of a model put out maps: read them there, exactly and all at once. */
#include "layer_maps.h"
#include "decays.h"

#include <stdlib.h>
#include <string.h>

/* ---- what goes in ---------------------------------------------------------------------------- */

/* Binds the weights by their names; the last norm gets no gain and no bias. */
static dra_status bind_first_layers(dra_reader *r, const dra_model *part, const dra_model *m,
                                    const dra_weights *w, const dra_real *plain, dra_error *err)
{
    const dra_specs *specs = dra_model_params(part), *all = dra_model_params(m);
    const int64_t    C = dra_model_config_of(m)->dim;
    dra_status       st = DRA_OK;
    for (int i = 0; i < dra_specs_count(specs) && st == DRA_OK; i++) {
        const dra_spec *s = dra_specs_at(specs, i);
        const dra_real *data = dra_weights_at(w, dra_specs_find(all, s->name));
        if (strcmp(s->name, "norm_g") == 0) data = plain;
        if (strcmp(s->name, "norm_b") == 0) data = plain + C;
        if (!data) return cli_error(err, DRA_ERR_DTYPE, "maps: %s is not real", s->name);
        st = dra_reader_bind(r, s->name, data, (size_t)dra_shape_count(&s->shape) * sizeof *data,
                             err);
    }
    return st;
}

/* x (T, C): what a model of the first `layers` layers puts out. */
static dra_status read_layers(dra_device *device, const dra_model *m, const dra_weights *w,
                              int64_t layers, const int32_t *ids, int64_t T, dra_real *x,
                              dra_error *err)
{
    dra_model_config c = *dra_model_config_of(m);
    const size_t     n = (size_t)c.dim;
    dra_real        *plain = calloc(2 * n, sizeof *plain); /* ones, then zeros */
    dra_model       *part = NULL;
    dra_reader      *r = NULL;
    dra_states      *states = NULL;
    c.depth = layers;
    if (c.mixers > layers) c.mixers = (int)layers;
    for (size_t i = 0; plain && i < n; i++) plain[i] = 1;
    dra_status st = plain ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK) st = dra_model_create(&c, &part, err);
    const dra_view   view = {.model = part, .hidden = true};
    const dra_module module = st == DRA_OK ? dra_view_module(&view) : (dra_module){0};
    if (st == DRA_OK) st = dra_reader_create(device, &module, &r, err);
    if (st == DRA_OK) st = bind_first_layers(r, part, m, w, plain, err);
    if (st == DRA_OK) st = dra_states_create(dra_model_state(part), 1, &states, err);
    const dra_named in = {"ids", ids, (size_t)T * sizeof *ids};
    if (st == DRA_OK) st = dra_reader_read(r, states, T, NULL, 1, &in, err);
    if (st == DRA_OK) memcpy(x, dra_reader_result(r, "hidden"), (size_t)T * n * sizeof *x);
    dra_states_destroy(states);
    dra_reader_destroy(r);
    dra_model_destroy(part);
    free(plain);
    return st;
}

/* x (T, C) = embedding[id] (+ position). */
static dra_status embed(const dra_model *m, const dra_weights *w, const int32_t *ids, int64_t T,
                        dra_real *x, dra_error *err)
{
    const dra_specs *specs = dra_model_params(m);
    const int64_t    C = dra_model_config_of(m)->dim;
    const int        positions = dra_specs_find(specs, "positions");
    const dra_real  *e = dra_weights_at(w, dra_specs_find(specs, "embedding"));
    const dra_real  *p = positions < 0 ? NULL : dra_weights_at(w, positions);
    if (!e || dra_model_config_of(m)->embed_norm)
        return cli_error(err, DRA_ERR_VALUE, "maps: an embedding that is not plain");
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < C; i++) x[t * C + i] = e[ids[t] * C + i] + (p ? p[t * C + i] : 0);
    return DRA_OK;
}

/* ---- the layer ------------------------------------------------------------------------------- */

typedef struct watched { /* a module that puts out maps and knows their shapes */
    const dra_mixer *mixer;
    cli_layer_maps  *maps;
} watched;

static const char *map_name(int memory, int kind, char name[32])
{
    snprintf(name, 32, "map%d.%d", memory, kind);
    return name;
}

static void build(dra_graph *g, const void *self, const dra_module_call *call, dra_value *state_out)
{
    const watched          *s = self;
    const dra_mixer_config *c = dra_mixer_config_of(s->mixer);
    const dra_tokens       *t = &call->tokens;
    char                    name[32];
    const dra_value         x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(t->B, t->T, c->dim));
    dra_value               blend = {0};
    if (c->blend == DRA_BLEND_INPUT) blend = dra_input(g, "blend", DRA_REAL, (dra_shape){0});
    const dra_mixer_result r = dra_mixer_build(g, s->mixer, call, x, blend, state_out);
    dra_output(g, "y", r.y);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < DRA_SHOW_COUNT; k++) {
            if (!r.map[i][k].id) continue;
            s->maps->map[i][k].shape = dra_shape_of(g, r.map[i][k]);
            dra_output(g, map_name(i, k, name), r.map[i][k]);
        }
}

static dra_status copy_maps(const dra_reader *r, cli_layer_maps *out, dra_error *err)
{
    char name[32];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < DRA_SHOW_COUNT; k++) {
            cli_shown      *s = &out->map[i][k];
            const dra_real *from = dra_reader_result(r, map_name(i, k, name));
            const size_t    n = from ? (size_t)dra_shape_count(&s->shape) : 0;
            if (!from) continue;
            s->at = malloc(n * sizeof *s->at + 1);
            if (!s->at) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
            for (size_t j = 0; j < n; j++) s->at[j] = (double)from[j];
        }
    return DRA_OK;
}

static dra_status read_mixer(dra_device *device, const dra_model *m, const dra_weights *w,
                             int64_t layer, const dra_real *x, int64_t T, cli_layer_maps *out,
                             dra_error *err)
{
    dra_mixer_config c = *dra_mixer_config_of(dra_model_mixer(m, layer));
    const dra_real **params = cli_layer_params(m, w, layer);
    const int        blend = dra_specs_find(dra_model_params(m), "blend");
    dra_mixer       *mixer = NULL;
    dra_reader      *r = NULL;
    dra_states      *states = NULL;
    c.maps = true;
    dra_status    st = params ? dra_mixer_create(&c, &mixer, err)
                              : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    const watched self = {mixer, out};
    dra_module    module = st == DRA_OK ? *dra_mixer_module(mixer) : (dra_module){0};
    module.build = build;
    module.self = &self;
    if (st == DRA_OK) st = dra_reader_create(device, &module, &r, err);
    for (int i = 0; st == DRA_OK && i < dra_specs_count(module.params); i++) {
        const dra_spec *s = dra_specs_at(module.params, i);
        const size_t    bytes = (size_t)dra_shape_count(&s->shape) * sizeof(dra_real);
        st = params[i] ? dra_reader_bind(r, s->name, params[i], bytes, err)
                       : cli_error(err, DRA_ERR_DTYPE, "maps: %s is not real", s->name);
    }
    if (st == DRA_OK) st = dra_states_create(module.state, 1, &states, err);
    const dra_named in[] = {{"x", x, (size_t)(T * c.dim) * sizeof *x},
                            {"blend", blend < 0 ? NULL : dra_weights_at(w, blend), sizeof *x}};
    if (st == DRA_OK)
        st = dra_reader_read(r, states, T, NULL, c.blend == DRA_BLEND_INPUT ? 2 : 1, in, err);
    if (st == DRA_OK) st = copy_maps(r, out, err);
    dra_states_destroy(states);
    dra_reader_destroy(r);
    dra_mixer_destroy(mixer);
    free(params);
    return st;
}

dra_status cli_layer_maps_read(const dra_model *m, const dra_weights *w, int64_t layer,
                               const int32_t *ids, int64_t T, cli_layer_maps *out, dra_error *err)
{
    const dra_cpu_config cpu = {.threads = 1};
    dra_device          *device = NULL;
    dra_real            *x = calloc((size_t)(T * dra_model_config_of(m)->dim) + 1, sizeof *x);
    dra_status           st = x ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK) st = dra_device_create_cpu(&cpu, &device, err);
    if (st == DRA_OK)
        st = layer ? read_layers(device, m, w, layer, ids, T, x, err) : embed(m, w, ids, T, x, err);
    if (st == DRA_OK) st = read_mixer(device, m, w, layer, x, T, out, err);
    if (st != DRA_OK) cli_layer_maps_free(out);
    dra_device_destroy(device);
    free(x);
    return st;
}

void cli_layer_maps_free(cli_layer_maps *maps)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < DRA_SHOW_COUNT; k++) free(maps->map[i][k].at);
    *maps = (cli_layer_maps){0};
}
