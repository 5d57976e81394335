/* The maps of a layer: a model that is asked to show them reads the text. */
#include "layer_maps.h"
#include "decays.h"

#include <stdlib.h>

/* Where an output is a map of this layer, a copy of it. */
static dra_status copy_map(dra_reader *r, int64_t layer, int memory, bool two, int kind,
                           cli_shown *out, dra_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%lld.%s%s", (long long)layer,
             !two     ? ""
             : memory ? "b."
                      : "a.",
             dra_show_name((dra_show_kind)kind));
    const dra_real *from = dra_reader_result(r, name);
    if (!from || !dra_reader_result_shape(r, name, &out->shape)) return DRA_OK;
    const size_t n = (size_t)dra_shape_count(&out->shape);
    out->at = malloc(n * sizeof *out->at + 1);
    if (!out->at) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t j = 0; j < n; j++) out->at[j] = (double)from[j];
    return DRA_OK;
}

static dra_status copy_maps(const dra_model *m, dra_reader *r, int64_t i, cli_layer_maps *out,
                            dra_error *err)
{
    const bool two = dra_mixer_config_of(dra_model_mixer(m, i))->blend != DRA_BLEND_NONE;
    dra_status st = DRA_OK;
    for (int k = 0; k < 2 * DRA_SHOW_COUNT && st == DRA_OK; k++) {
        const int memory = k / DRA_SHOW_COUNT, kind = k % DRA_SHOW_COUNT;
        if (memory && !two) break;
        st = copy_map(r, dra_model_attention_layer(m, i), memory, two, kind,
                      &out->map[memory][kind], err);
    }
    return st;
}

static dra_status read_maps(const dra_model *m, const dra_weights *w, int64_t i, const int32_t *ids,
                            int64_t T, cli_layer_maps *out, dra_error *err)
{
    const dra_cpu_config cpu = {.threads = 1};
    const dra_view       view = {.model = m, .maps = true};
    const dra_module     module = dra_view_module(&view);
    const dra_named      in = {"ids", ids, (size_t)T * sizeof *ids};
    dra_device          *device = NULL;
    dra_reader          *r = NULL;
    dra_states          *states = NULL;
    dra_status           st = dra_device_create_cpu(&cpu, &device, err);
    if (st == DRA_OK) st = dra_reader_create(device, &module, &r, err);
    if (st == DRA_OK) st = dra_weights_bind(w, r, err);
    if (st == DRA_OK) st = dra_states_create(device, dra_model_state(m), 1, &states, err);
    if (st == DRA_OK) st = dra_reader_read(r, states, T, NULL, 1, &in, err);
    if (st == DRA_OK) st = copy_maps(m, r, i, out, err);
    dra_states_destroy(states);
    dra_reader_destroy(r);
    dra_device_destroy(device);
    return st;
}

dra_status cli_layer_maps_read(const dra_model *m, const dra_weights *w, int64_t i,
                               const int32_t *ids, int64_t T, cli_layer_maps *out, dra_error *err)
{
    dra_model_config config = *dra_model_config_of(m);
    dra_model       *shows = NULL;
    if (!dra_mixer_mappable(dra_model_mixer(m, i)))
        return cli_error(err, DRA_ERR_VALUE, "attention %lld has no maps", (long long)i);
    config.maps = true;
    dra_status st = dra_model_create(&config, &shows, err);
    if (st == DRA_OK) st = read_maps(shows, w, i, ids, T, out, err);
    if (st != DRA_OK) cli_layer_maps_free(out);
    dra_model_destroy(shows);
    return st;
}

void cli_layer_maps_free(cli_layer_maps *maps)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < DRA_SHOW_COUNT; k++) free(maps->map[i][k].at);
    *maps = (cli_layer_maps){0};
}
