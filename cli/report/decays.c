/* Decays of a model, layer after layer. */
#include "decays.h"

#include <stdlib.h>

const dra_real **cli_layer_params(const dra_model *m, const dra_weights *w, int64_t layer)
{
    const dra_specs *specs = dra_mixer_module(dra_model_mixer(m, layer))->params;
    const int        n = dra_specs_count(specs);
    const dra_real **params = calloc((size_t)n + 1, sizeof *params);
    char             name[256];
    for (int i = 0; i < n && params; i++) {
        snprintf(name, sizeof name, "layers.%lld.mixer.%s",
                 (long long)dra_model_attention_params(m, layer), dra_specs_at(specs, i)->name);
        params[i] = dra_weights_at(w, dra_specs_find(dra_model_params(m), name));
    }
    return params;
}

static dra_status add_layer(const dra_mixer_config *c, const dra_real *const *params, cli_decays *d,
                            dra_error *err)
{
    size_t     count = 0;
    dra_status st = dra_mixer_gammas(c, params, 0, NULL, &count, err);
    if (st != DRA_OK || count == 0) return st;
    dra_gamma_row *rows = realloc(d->rows, (d->n + count) * sizeof *rows);
    if (!rows) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    d->rows = rows;
    st = dra_mixer_gammas(c, params, count, rows + d->n, &count, err);
    if (st == DRA_OK) d->n += count;
    return st;
}

dra_status cli_decays_find(const dra_model *m, const dra_weights *w, cli_decays *out,
                           dra_error *err)
{
    dra_status    st = DRA_OK;
    const int64_t n = dra_model_attentions(m);
    for (int64_t l = 0; l < n && st == DRA_OK; l++) {
        const dra_real **params = w ? cli_layer_params(m, w, l) : NULL;
        st = params || !w ? add_layer(dra_mixer_config_of(dra_model_mixer(m, l)), params, out, err)
                          : cli_error(err, DRA_ERR_MEMORY, "out of memory");
        free(params);
    }
    return st;
}
