/* The decays of all layers of a model. */
#ifndef DRA_CLI_REPORT_DECAYS_H
#define DRA_CLI_REPORT_DECAYS_H

#include "io/model.h"

typedef struct cli_decays {
    dra_gamma_row *rows; /* to be freed */
    size_t         n;
} cli_decays; /* starts as {0} */

/* w may be NULL: the decays it starts with. */
dra_status cli_decays_find(const dra_model *m, const dra_weights *w, cli_decays *out,
                           dra_error *err);
/* The parameters of a layer's mixer, in its own order; to be freed. NULL: no memory. */
const dra_real **cli_layer_params(const dra_model *m, const dra_weights *w, int64_t layer);

#endif
