/* What sublayers read of the streams before all earlier ones, see integrate.c. */
#ifndef DRA_SRC_MODEL_INTEGRATE_H
#define DRA_SRC_MODEL_INTEGRATE_H

#include "dra/stack.h"

typedef struct dra_integrate { /* parameters by handle; -1: it reads its stream alone */
    int gain, W, b;
} dra_integrate;

void          dra_integrate_declare(const dra_sublayer_config *c, dra_specs *params);
dra_integrate dra_integrate_find(const dra_specs *params);
/* What the sublayer reads in place of x; keys and values of a mixer with views of their own are the
 * channel of views. */
dra_value dra_integrate_build(dra_graph *g, const dra_integrate *s, const dra_sublayer_config *c,
                              const dra_value *param, dra_value x, dra_channels *channels);

#endif
