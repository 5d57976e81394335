/* What one attention sublayer of a model attends to and writes while it reads a text. */
#ifndef DRA_CLI_REPORT_LAYER_MAPS_H
#define DRA_CLI_REPORT_LAYER_MAPS_H

#include "dra/dra.h"

typedef struct cli_shown { /* a map of a mixer */
    dra_shape shape;       /* with B = 1 in front */
    double   *at;          /* NULL: there is none */
} cli_shown;

typedef struct cli_layer_maps {
    cli_shown map[2][DRA_SHOW_COUNT]; /* of each memory of a blend */
} cli_layer_maps;                     /* starts as {0} */

/* Attention sublayer i reads T tokens from a fresh state. DRA_ERR_VALUE: it has no maps. */
dra_status cli_layer_maps_read(const dra_model *m, const dra_weights *w, int64_t i,
                               const int32_t *ids, int64_t T, cli_layer_maps *out, dra_error *err);
void       cli_layer_maps_free(cli_layer_maps *maps);

#endif
