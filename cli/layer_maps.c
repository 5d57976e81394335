/* The maps of a layer: the model says what goes into it, then its mixer reads that alone, which
 * also says what shapes its maps have. */
#include "layer_maps.h"
#include "decays.h"

#include <stdlib.h>
#include <string.h>

/* ---- what goes in ---------------------------------------------------------------------------- */

/* x (T, C): what the layers before this one made of the tokens. */
static dra_status read_stream(dra_device *device, const dra_model *m, const dra_weights *w,
                              int64_t layer, const int32_t *ids, int64_t T, dra_real *x,
                              dra_error *err)
{
    const dra_view   view = {.model = m, .streams = true};
    const dra_module module = dra_view_module(&view);
    const dra_named  in = {"ids", ids, (size_t)T * sizeof *ids};
    const size_t     bytes = (size_t)(T * dra_model_config_of(m)->dim) * sizeof *x;
    dra_reader      *r = NULL;
    dra_states      *states = NULL;
    char             name[32];
    snprintf(name, sizeof name, "stream.%lld", (long long)layer);
    dra_status st = dra_reader_create(device, &module, &r, err);
    if (st == DRA_OK) st = dra_weights_bind(w, r, err);
    if (st == DRA_OK) st = dra_states_create(device, dra_model_state(m), 1, &states, err);
    if (st == DRA_OK) st = dra_reader_read(r, states, T, NULL, 1, &in, err);
    const dra_real *stream = st == DRA_OK ? dra_reader_result(r, name) : NULL;
    if (st == DRA_OK && !stream) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (stream) memcpy(x, stream, bytes);
    dra_states_destroy(states);
    dra_reader_destroy(r);
    return st;
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

static dra_status copy_maps(dra_reader *r, cli_layer_maps *out, dra_error *err)
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

static dra_status bind_params(dra_reader *r, const dra_specs *specs, const dra_real *const *params,
                              dra_error *err)
{
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(specs) && st == DRA_OK; i++) {
        const dra_spec *s = dra_specs_at(specs, i);
        const size_t    bytes = (size_t)dra_shape_count(&s->shape) * sizeof(dra_real);
        st = params[i] ? dra_reader_bind(r, s->name, params[i], bytes, err)
                       : cli_error(err, DRA_ERR_MEMORY, "maps: no memory for %s", s->name);
    }
    return st;
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
    c.rescale = 1; /* the stream is divided already */
    dra_status    st = params ? dra_mixer_create(&c, &mixer, err)
                              : cli_error(err, DRA_ERR_MEMORY, "out of memory");
    const watched self = {mixer, out};
    dra_module    module = st == DRA_OK ? *dra_mixer_module(mixer) : (dra_module){0};
    module.build = build;
    module.self = &self;
    if (st == DRA_OK) st = dra_reader_create(device, &module, &r, err);
    if (st == DRA_OK) st = bind_params(r, module.params, params, err);
    if (st == DRA_OK) st = dra_states_create(device, module.state, 1, &states, err);
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
    if (st == DRA_OK) st = read_stream(device, m, w, layer, ids, T, x, err);
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
