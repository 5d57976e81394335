/* Several residual streams x (B, T, S, C) instead of one [Zhu et al. 2024: Hyper-Connections].
 *   n = layer norm of each stream
 *   A = tanh(n W_a) a + A_0 (S, 1 + S),  b = tanh(n w_b) c + b_0 (S)
 *   the core reads sum_s A[s, 0] x_s;  x'_t = sum_s A[s, t] x_s + b_t o
 * A_0 starts so that sublayer i reads stream i mod S and every stream stays what it is, b_0 as 1,
 * W_a and w_b as 0: at first all streams are equal and each is what a single one would be. */
#include <stdlib.h>

#include "base/shape.h"
#include "graph/op.h"
#include "model/streams.h"

enum { NORM, W_A, A_SCALE, A_START, W_B, B_SCALE, B_START };

static const char *const names[DRA_STREAM_PARAMS] = {
    [NORM] = "stream_norm_g", [W_A] = "stream_W_a", [A_SCALE] = "stream_a_scale",
    [A_START] = "stream_a",   [W_B] = "stream_w_b", [B_SCALE] = "stream_b_scale",
    [B_START] = "stream_b"};

/* One-hot of the stream it reads, next to the identity. */
static void declare_mixture(int64_t S, int64_t index, dra_specs *params)
{
    double *a = calloc((size_t)(S * (1 + S)) + 1, sizeof *a);
    for (int64_t s = 0; a && s < S; s++) {
        a[s * (1 + S)] = s == index % S;
        a[s * (1 + S) + 1 + s] = 1;
    }
    dra_specs_add(params, NULL,
                  &(dra_spec){names[A_START], DRA_SHAPE(S, 1 + S), DRA_FILL_VALUES, .values = a,
                              .group = DRA_PARAM_OTHER});
    free(a);
}

void dra_streams_declare(int64_t S, int64_t C, int64_t index, dra_specs *params)
{
    const dra_shape one = {0};
    dra_specs_add(params, NULL,
                  &(dra_spec){names[NORM], DRA_SHAPE(C), .number = 1, .group = DRA_PARAM_NORM});
    dra_specs_add(params, NULL, &(dra_spec){names[W_A], DRA_SHAPE(C, 1 + S)});
    dra_specs_add(params, NULL, &(dra_spec){names[A_SCALE], one, .number = 0.01});
    declare_mixture(S, index, params);
    dra_specs_add(params, NULL, &(dra_spec){names[W_B], DRA_SHAPE(C)});
    dra_specs_add(params, NULL, &(dra_spec){names[B_SCALE], one, .number = 0.01});
    dra_specs_add(params, NULL, &(dra_spec){names[B_START], DRA_SHAPE(S), .number = 1});
}

dra_streams dra_streams_find(const dra_specs *params)
{
    dra_streams s;
    for (int i = 0; i < DRA_STREAM_PARAMS; i++) s.at[i] = dra_specs_find(params, names[i]);
    return s;
}

/* tanh(n w) scale + start for w (C, N) */
static dra_value stream_weights(dra_graph *g, dra_value n, dra_value w, dra_value scale,
                                dra_value start)
{
    return dra_add(g, dra_mul(g, dra_tanh(g, dra_matmul(g, n, w)), scale), start);
}

dra_value dra_streams_read(dra_graph *g, const dra_streams *s, const dra_value *param, dra_value x,
                           dra_streams_rest *rest)
{
    *rest = (dra_streams_rest){0};
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape shape = dra_shape_of(g, x);
    const int64_t   B = shape.dim[0], T = shape.dim[1], S = shape.dim[2], C = shape.dim[3];
    const dra_value n = dra_layer_norm(g, x, param[s->at[NORM]], (dra_value){0}, 1e-5);
    const dra_value a = stream_weights(g, n, param[s->at[W_A]], param[s->at[A_SCALE]],
                                       param[s->at[A_START]]);           /* (B, T, S, 1 + S) */
    const dra_value mixed = dra_matmul(g, dra_transpose(g, a, 2, 3), x); /* (B, T, 1 + S, C) */
    rest->share = stream_weights(g, n, dra_reshape(g, param[s->at[W_B]], DRA_SHAPE(C, 1)),
                                 param[s->at[B_SCALE]],
                                 dra_reshape(g, param[s->at[B_START]], DRA_SHAPE(S, 1)));
    rest->x = dra_slice(g, mixed, 2, 1, S);
    return dra_reshape(g, dra_slice(g, mixed, 2, 0, 1), DRA_SHAPE(B, T, C));
}

dra_value dra_streams_join(dra_graph *g, const dra_streams_rest *rest, dra_value o)
{
    if (dra_graph_failed(g)) return o;
    const dra_shape s = dra_shape_of(g, o);
    const dra_value one = dra_reshape(g, o, DRA_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2]));
    return dra_add(g, rest->x, dra_mul(g, rest->share, one));
}

dra_value dra_streams_open(dra_graph *g, dra_value offsets, dra_value x)
{
    if (dra_graph_failed(g)) return x;
    const dra_shape s = dra_shape_of(g, x);
    return dra_add(g, dra_reshape(g, x, DRA_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2])), offsets);
}

dra_value dra_streams_close(dra_graph *g, dra_value x)
{
    if (dra_graph_failed(g) || dra_shape_of(g, x).rank != 4) return x;
    return dra_sum(g, x, (dra_axes){1, {2}, false});
}
