/* cond: out = flag != 0 ? body(in) : otherwise, chosen at run time.
 * Inputs of the node: flag, otherwise (n_out), in.
 * Gradient: of `in`, a cond around the body's gradient (zeros otherwise); of `otherwise`, a cond
 * that lets dy through when the flag is 0. */
#include "graph/graph.h"

#include <stdlib.h>

static dra_status infer_cond(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_type *flag = dra_type_of(g, n->in[0]);
    if (flag->dtype != DRA_I32 || flag->shape.rank != 0)
        return dra_op_fail(g, n, DRA_ERR_DTYPE, "flag is %s, expected i32 ()",
                           dra_type_text(g, n->in[0]));
    for (int i = 0; i < n->n_out; i++) {
        const dra_type *t = dra_type_of(g, n->in[1 + i]);
        out[i] = *dra_body_output_type(n->body, i);
        if (t->dtype != out[i].dtype || !dra_shape_equal(&t->shape, &out[i].shape))
            return dra_op_fail(
                g, n, DRA_ERR_SHAPE, "otherwise %d is %s, the body returns %s", i,
                dra_type_text(g, n->in[1 + i]),
                dra_type_text((dra_graph *)n->body, dra_output_at(n->body, (size_t)i)->value));
    }
    return DRA_OK;
}

static void body_zeros(dra_graph *b, void *user, const dra_value *in, dra_value *out)
{
    out[0] = dra_broadcast(b, dra_number(b, 0), *(const dra_shape *)user);
}

/* dy where the flag is 0, else zeros. */
static dra_value when_skipped(dra_graph *g, dra_value flag, dra_value dy)
{
    dra_shape shape = dra_type_of(g, dy)->shape;
    dra_value out;
    dra_cond(g, flag, body_zeros, &shape, 0, NULL, 1, &dy, &out);
    return out;
}

/* For building the body of the gradient: its inputs are `in` of the cond, then the upstreams that
 * exist; its outputs are the gradients of the float inputs. */
typedef struct back {
    const dra_graph *body;
    int              n_in, n_out, n_x;
    const dra_value *dy;    /* of the outer graph; only whether it is null matters */
    const int       *which; /* the float inputs */
} back;

static void body_gradient(dra_graph *b, void *user, const dra_value *in, dra_value *out)
{
    const back  *k = user;
    const size_t first = dra_node_count(b);
    dra_value   *y = calloc((size_t)(2 * k->n_out + k->n_in), sizeof *y);
    if (!y) {
        dra_build_fail(b, "cond", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    dra_value *live = y + k->n_out, *x = live + k->n_out;
    int        n_live = 0;
    dra_inline(b, k->body, in, y);
    for (int i = 0; i < k->n_out; i++)
        if (k->dy[i].id) live[n_live++] = y[i];
    for (int i = 0; i < k->n_x; i++) x[i] = in[k->which[i]];
    dra_gradient_since(b, first, n_live, live, in + k->n_in, k->n_x, x, out);
    free(y);
}

static void input_gradients(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx,
                            dra_value *room, int *which)
{
    const int  n_in = n->n_in - 1 - n->n_out;
    dra_value *in = room, *zeros = in + n_in + n->n_out, *d = zeros + n_in;
    back       k = {n->body, n_in, n->n_out, 0, dy, which};
    int        fed = n_in;
    for (int i = 0; i < n_in; i++) {
        in[i] = n->in[1 + n->n_out + i];
        if (!dra_is_float(g, in[i])) continue;
        zeros[k.n_x] = dra_broadcast(g, dra_number(g, 0), dra_type_of(g, in[i])->shape);
        which[k.n_x++] = i;
    }
    for (int i = 0; i < n->n_out; i++)
        if (dy[i].id) in[fed++] = dy[i];
    if (k.n_x == 0) return;
    dra_cond(g, n->in[0], body_gradient, &k, fed, in, k.n_x, zeros, d);
    for (int i = 0; i < k.n_x; i++) dx[1 + n->n_out + which[i]] = d[i];
}

static void derive_cond(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    for (int i = 0; i < n->n_out; i++)
        if (dy[i].id) dx[1 + i] = when_skipped(g, n->in[0], dy[i]);
    dra_value *room = calloc((size_t)(3 * n->n_in), sizeof *room);
    int       *which = calloc((size_t)n->n_in, sizeof *which);
    if (room && which)
        input_gradients(g, n, dy, dx, room, which);
    else
        dra_op_fail(g, n, DRA_ERR_MEMORY, "out of memory");
    free(room);
    free(which);
}

const dra_op dra_op_cond = {.name = "cond",
                            .n_in = DRA_MANY,
                            .n_out = DRA_MANY,
                            .flags = DRA_OP_REGION,
                            .infer = infer_cond,
                            .gradient = derive_cond};

static void add_cond(dra_graph *g, dra_value flag, dra_region_body body, void *user, int n_in,
                     const dra_value *in, int n_out, const dra_value *otherwise, dra_value *out,
                     dra_type *types, dra_value *inner, dra_value *all)
{
    for (int i = 0; i < n_in; i++) types[i] = *dra_type_of(g, in[i]);
    dra_graph *b = dra_body_create(g, n_in, types, inner);
    if (b) body(b, user, inner, inner + n_in);
    if (!b || !dra_body_return(g, b, n_out, inner + n_in)) return;
    all[0] = flag;
    for (int i = 0; i < n_out; i++) all[1 + i] = otherwise[i];
    for (int i = 0; i < n_in; i++) all[1 + n_out + i] = in[i];
    const dra_node *n = dra_region_add(g, &dra_op_cond, 1 + n_out + n_in, all, NULL, b);
    for (int i = 0; n && i < n_out; i++) out[i] = n->out[i];
}

void dra_cond(dra_graph *g, dra_value flag, dra_region_body body, void *user, int n_in,
              const dra_value *in, int n_out, const dra_value *otherwise, dra_value *out)
{
    const size_t room = (size_t)(n_in + n_out) + 1;
    dra_type    *types = calloc(room, sizeof *types);
    dra_value   *inner = calloc(room, sizeof *inner), *all = calloc(room, sizeof *all);
    dra_value   *kept = calloc(room, sizeof *kept); /* out may be the array of otherwise */
    if (!types || !inner || !all || !kept)
        dra_build_fail(g, "cond", DRA_ERR_MEMORY, "out of memory");
    else if (dra_check_values(g, "cond", 1, &flag) && dra_check_values(g, "cond", n_in, in) &&
             dra_check_values(g, "cond", n_out, otherwise))
        add_cond(g, flag, body, user, n_in, in, n_out, otherwise, kept, types, inner, all);
    for (int i = 0; i < n_out; i++) out[i] = kept ? kept[i] : (dra_value){0};
    free(types);
    free(inner);
    free(all);
    free(kept);
}
