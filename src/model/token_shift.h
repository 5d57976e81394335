/* Token shift: channels in parts, each from another token. */
#ifndef DRA_SRC_MODEL_TOKEN_SHIFT_H
#define DRA_SRC_MODEL_TOKEN_SHIFT_H

#include "dra/stack.h"

typedef struct dra_token_shift {
    int64_t by;    /* tokens back, or to either side; 0: nothing is shifted */
    int64_t width; /* channels of a part; what is left over is not shifted  */
    bool    whole;
    bool    masks; /* whole: pads count as zeros */
} dra_token_shift;

/* Adds the states "shift.1", ...: what the parts saw last. */
dra_token_shift dra_token_shift_declare(int64_t by, int64_t dim, bool whole, bool masks,
                                        dra_specs *state);
/* at: where these states are in the call. */
dra_value dra_token_shift_build(dra_graph *g, const dra_token_shift *s, const dra_module_call *call,
                                dra_value x, int at, dra_value *state_out);

#endif
