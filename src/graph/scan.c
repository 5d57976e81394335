/* scan: run a body T times with carried values.
 * Inputs of the node: carries, xs (T, ...), constants. Outputs: last carries, ys (T, ...), and the
 * carries kept at borders, one (segments, ...) each; an output that is not read costs nothing.
 *
 * Gradient. Steps are cut into segments of `border` steps; the last one may be shorter. Walking
 * back over the segments, each runs the body forward once more from its kept carry (a scan that
 * puts out the carry before each step), then backward (a scan over the body's own gradient, whose
 * carries are the gradients of the carries and of the constants). Both are ordinary scans, so
 * memory is O(T / border + border) carries and a gradient of the gradient works too. */
#include "graph/graph.h"

#include <math.h>
#include <stdlib.h>

static int64_t count_segments(const dra_scan_attr *a) { return dra_div_up(a->length, a->border); }

static dra_type stack_type(int64_t n, const dra_type *t)
{
    dra_type out = {t->dtype, {t->shape.rank + 1, {n}}};
    for (int32_t i = 0; i < t->shape.rank && i < DRA_MAX_RANK - 1; i++)
        out.shape.dim[i + 1] = t->shape.dim[i];
    return out;
}

static dra_status infer_scan(dra_graph *g, const dra_node *n, dra_type *out)
{
    const dra_scan_attr *a = n->attr;
    for (int i = 0; i < a->carries; i++) {
        const dra_type *t = dra_type_of(g, n->in[i]);
        out[i] = *dra_body_output_type(n->body, i);
        if (t->dtype != out[i].dtype || !dra_shape_equal(&t->shape, &out[i].shape)) {
            const dra_value back = dra_output_at(n->body, (size_t)i)->value;
            return dra_op_fail(g, n, DRA_ERR_SHAPE, "carry %d starts as %s, a step returns %s", i,
                               dra_type_text(g, n->in[i]),
                               dra_type_text((dra_graph *)n->body, back));
        }
        out[a->carries + a->ys + i] = stack_type(count_segments(a), &out[i]);
    }
    for (int i = 0; i < a->ys; i++)
        out[a->carries + i] = stack_type(a->length, dra_body_output_type(n->body, a->carries + i));
    return DRA_OK;
}

/* ---- building -------------------------------------------------------------------------------- */

/* A scan given by an attr and plain arrays: in = carries, xs, constants; out = carries, ys. */
static const dra_node *add_scan(dra_graph *g, dra_scan_attr a, const dra_value *in,
                                dra_scan_body body, void *user)
{
    const int       n_in = a.carries + a.xs + a.constants, n_out = a.carries + a.ys;
    dra_type       *types = calloc((size_t)n_in + 1, sizeof *types);
    dra_value      *inner = calloc((size_t)(n_in + n_out) + 1, sizeof *inner);
    const dra_node *node = NULL;
    if (types && inner) {
        for (int i = 0; i < n_in; i++) {
            types[i] = *dra_type_of(g, in[i]);
            if (i < a.carries || i >= a.carries + a.xs) continue;
            for (int32_t d = 1; d < types[i].shape.rank; d++)
                types[i].shape.dim[d - 1] = types[i].shape.dim[d];
            types[i].shape.rank--;
        }
        dra_graph *b = dra_body_create(g, n_in, types, inner);
        dra_value *out = inner + n_in;
        if (b)
            body(b, user, inner, inner + a.carries, inner + a.carries + a.xs, out, out + a.carries);
        if (b && dra_body_return(g, b, n_out, out))
            node = dra_region_add(g, &dra_op_scan, n_in, in, &a, b);
    } else {
        dra_build_fail(g, "scan", DRA_ERR_MEMORY, "out of memory");
    }
    free(types);
    free(inner);
    return node;
}

/* At least 1, and never more than there are steps: it is added to their number. */
static int64_t border_of(const dra_scan_config *c)
{
    const int64_t border = c->border ? c->border : (int64_t)ceil(sqrt((double)c->length));
    return dra_imax(1, dra_imin(border, c->length));
}

static bool check_config(dra_graph *g, const dra_scan_config *c)
{
    if (dra_graph_failed(g)) return false;
    if (c->carries < 0 || c->xs < 0 || c->constants < 0 || c->ys < 0 || c->length < 0 ||
        c->border < 0 || !c->body) {
        dra_build_fail(g, "scan", DRA_ERR_VALUE, "a count is negative or there is no body");
        return false;
    }
    if (!dra_check_values(g, "scan", c->carries, c->carry) ||
        !dra_check_values(g, "scan", c->xs, c->x) ||
        !dra_check_values(g, "scan", c->constants, c->constant))
        return false;
    for (int i = 0; i < c->xs; i++) {
        const dra_shape *s = &dra_type_of(g, c->x[i])->shape;
        if (s->rank > 0 && s->dim[0] == c->length) continue;
        dra_build_fail(g, "scan", DRA_ERR_SHAPE, "x %d is %s, expected (%lld, ...)", i,
                       dra_type_text(g, c->x[i]), (long long)c->length);
        return false;
    }
    return true;
}

/* carry_out and y may be the arrays that hold the inputs, so they are written last. */
void dra_scan(dra_graph *g, const dra_scan_config *c, dra_value *carry_out, dra_value *y)
{
    const dra_node *n = NULL;
    if (check_config(g, c)) {
        const dra_scan_attr a = {c->length,    border_of(c), c->carries, c->xs,
                                 c->constants, c->ys,        c->reverse};
        dra_value *in = calloc((size_t)(c->carries + c->xs + c->constants) + 1, sizeof *in);
        for (int i = 0; in && i < c->carries; i++) in[i] = c->carry[i];
        for (int i = 0; in && i < c->xs; i++) in[c->carries + i] = c->x[i];
        for (int i = 0; in && i < c->constants; i++) in[c->carries + c->xs + i] = c->constant[i];
        if (in)
            n = add_scan(g, a, in, c->body, c->user);
        else
            dra_build_fail(g, "scan", DRA_ERR_MEMORY, "out of memory");
        free(in);
    }
    for (int i = 0; i < c->carries; i++) carry_out[i] = n ? n->out[i] : (dra_value){0};
    for (int i = 0; i < c->ys; i++) y[i] = n ? n->out[c->carries + i] : (dra_value){0};
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* Shared by the functions below. "Float" lists hold the numbers of the carries, xs, ys and
 * constants that can have gradients. */
typedef struct back {
    const dra_graph *body;
    dra_scan_attr    a;      /* of the scan being differentiated */
    int64_t          length; /* steps in the segment being built */
    int              n_carry, n_x, n_const, n_y;
    int             *carry, *x, *constant, *y;
    bool             border; /* do gradients of the kept carries come in? */
} back;

static int find_floats(const dra_graph *g, int n, const dra_value *v, int *which)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        if (dra_is_float(g, v[i])) which[found++] = i;
    return found;
}

/* Recomputes forward: outputs the carries before each step. */
static void step_forward(dra_graph *b, void *user, const dra_value *carry, const dra_value *x,
                         const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const back *k = user;
    const int   n_in = k->a.carries + k->a.xs + k->a.constants;
    dra_value  *in = calloc((size_t)(n_in + k->a.carries + k->a.ys) + 1, sizeof *in);
    if (!in) {
        dra_build_fail(b, "scan", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    for (int i = 0; i < k->a.carries; i++) in[i] = y[i] = carry[i];
    for (int i = 0; i < k->a.xs; i++) in[k->a.carries + i] = x[i];
    for (int i = 0; i < k->a.constants; i++) in[k->a.carries + k->a.xs + i] = constant[i];
    dra_inline(b, k->body, in, in + n_in);
    for (int i = 0; i < k->a.carries; i++) carry_out[i] = in[n_in + i];
    free(in);
}

/* Backward over one step. Carries: dcarry, dconstant. x: carries before the step, the step's xs,
 * dy. Returns dx of the step. */
static void step_backward(dra_graph *b, void *user, const dra_value *carry, const dra_value *x,
                          const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    const back *k = user;
    const int   n_in = k->a.carries + k->a.xs + k->a.constants, n_out = k->a.carries + k->a.ys;
    const int   n_ys = k->n_carry + k->n_y, n_xs = k->n_carry + k->n_x + k->n_const;
    dra_value  *in = calloc((size_t)(n_in + n_out + 2 * n_ys + 2 * n_xs) + 1, sizeof *in);
    if (!in) {
        dra_build_fail(b, "scan", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    dra_value *out = in + n_in, *ys = out + n_out, *dys = ys + n_ys, *xs = dys + n_ys;
    dra_value *dxs = xs + n_xs;
    for (int i = 0; i < k->a.carries + k->a.xs; i++) in[i] = x[i];
    for (int i = 0; i < k->a.constants; i++) in[k->a.carries + k->a.xs + i] = constant[i];
    dra_inline(b, k->body, in, out);
    for (int i = 0; i < k->n_carry; i++) ys[i] = out[k->carry[i]], dys[i] = carry[i];
    for (int i = 0; i < k->n_y; i++) {
        ys[k->n_carry + i] = out[k->a.carries + k->y[i]];
        dys[k->n_carry + i] = x[k->a.carries + k->a.xs + i];
    }
    int n = 0;
    for (int i = 0; i < k->n_carry; i++) xs[n++] = in[k->carry[i]];
    for (int i = 0; i < k->n_x; i++) xs[n++] = in[k->a.carries + k->x[i]];
    for (int i = 0; i < k->n_const; i++) xs[n++] = in[k->a.carries + k->a.xs + k->constant[i]];
    dra_gradient(b, n_ys, ys, dys, n_xs, xs, dxs);
    for (int i = 0; i < k->n_carry; i++) carry_out[i] = dxs[i];
    for (int i = 0; i < k->n_x; i++) y[i] = dxs[k->n_carry + i];
    for (int i = 0; i < k->n_const; i++)
        carry_out[k->n_carry + i] = dra_add(b, carry[k->n_carry + i], dxs[k->n_carry + k->n_x + i]);
    free(in);
}

/* One segment. d: dcarry, dconstant. kept: the carries at its start. x, dy: its steps.
 * d_out: the new dcarry, dconstant; dx: (steps, ...) each. */
static void derive_segment(dra_graph *g, back *k, const dra_value *d, const dra_value *kept,
                           const dra_value *x, const dra_value *dy, const dra_value *constant,
                           dra_value *d_out, dra_value *dx)
{
    const int  n_d = k->n_carry + k->n_const;
    dra_value *before = calloc((size_t)(2 * k->a.carries + k->a.xs + k->n_y) + 1, sizeof *before);
    if (!before) {
        dra_build_fail(g, "scan", DRA_ERR_MEMORY, "out of memory");
        return;
    }
    dra_value *last = before + k->a.carries + k->a.xs + k->n_y;
    dra_scan(g,
             &(dra_scan_config){.length = k->length,
                                .carries = k->a.carries,
                                .xs = k->a.xs,
                                .constants = k->a.constants,
                                .ys = k->a.carries,
                                .carry = kept,
                                .x = x,
                                .constant = constant,
                                .reverse = k->a.reverse,
                                .body = step_forward,
                                .user = k},
             last, before);
    for (int i = 0; i < k->a.xs; i++) before[k->a.carries + i] = x[i];
    for (int i = 0; i < k->n_y; i++) before[k->a.carries + k->a.xs + i] = dy[i];
    dra_scan(g,
             &(dra_scan_config){.length = k->length,
                                .carries = n_d,
                                .xs = k->a.carries + k->a.xs + k->n_y,
                                .constants = k->a.constants,
                                .ys = k->n_x,
                                .carry = d,
                                .x = before,
                                .constant = constant,
                                .reverse = !k->a.reverse,
                                .body = step_backward,
                                .user = k},
             d_out, dx);
    free(before);
}

/* The body of the scan over whole segments. x: kept carries, xs, dy, gradients of the kept. */
static void segment_step(dra_graph *b, void *user, const dra_value *carry, const dra_value *x,
                         const dra_value *constant, dra_value *carry_out, dra_value *y)
{
    back            *k = user;
    const dra_value *xs = x + k->a.carries, *dy = xs + k->a.xs, *d_kept = dy + k->n_y;
    derive_segment(b, k, carry, x, xs, dy, constant, carry_out, y);
    for (int i = 0; k->border && i < k->n_carry; i++)
        carry_out[i] = dra_add(b, carry_out[i], d_kept[i]);
}

/* Rows [start, start + n) of the first axis. */
static dra_value slice_rows(dra_graph *g, dra_value v, int64_t start, int64_t n)
{
    return dra_slice(g, v, 0, start, n);
}

/* (n * steps, ...) -> (n, steps, ...) */
static dra_value split_time(dra_graph *g, dra_value v, int64_t n, int64_t steps)
{
    const dra_shape s = dra_shape_of(g, v);
    dra_shape       to = {s.rank + 1, {n, steps}};
    for (int32_t i = 1; i < s.rank && i < DRA_MAX_RANK - 1; i++) to.dim[i + 1] = s.dim[i];
    return dra_reshape(g, v, to);
}

static dra_value merge_time(dra_graph *g, dra_value v)
{
    const dra_shape s = dra_shape_of(g, v);
    dra_shape       to = {s.rank - 1, {s.dim[0] * s.dim[1]}};
    for (int32_t i = 2; i < s.rank; i++) to.dim[i - 1] = s.dim[i];
    return dra_reshape(g, v, to);
}

/* The layout: the short segment is last in the order of steps, so it is at the end of the arrays of
 * a forward scan and at the front of those of a reverse one. */
typedef struct parts {
    int64_t whole, rest;     /* whole segments; steps in the short one     */
    int64_t whole_x, rest_x; /* where their steps start                    */
    int64_t whole_border, rest_border;
} parts;

static parts cut_steps(const dra_scan_attr *a)
{
    /* A single segment counts as the short one: no scan around it. */
    const int64_t whole = a->length > a->border ? a->length / a->border : 0;
    const int64_t rest = a->length - whole * a->border;
    const bool    front = a->reverse;
    return (parts){whole,
                   rest,
                   front ? rest : 0,
                   front ? 0 : whole * a->border,
                   front && rest ? 1 : 0,
                   front ? 0 : whole};
}

/* Arrays of the gradient rule: inputs as the segment functions want them. */
typedef struct arrays {
    dra_value *d, *kept, *x, *dy, *d_kept, *d_out, *dx_rest, *dx_whole, *in;
} arrays;

static void rest_segment(dra_graph *g, back *k, const dra_node *n, const dra_value *up,
                         const parts *p, const arrays *s)
{
    const dra_value *constant = n->in + k->a.carries + k->a.xs;
    const dra_value *borders = n->out + k->a.carries + k->a.ys;
    if (p->rest == 0) return;
    k->length = p->rest;
    for (int i = 0; i < k->a.carries; i++) {
        const dra_shape to = dra_shape_of(g, n->in[i]);
        s->kept[i] = dra_reshape(g, slice_rows(g, borders[i], p->rest_border, 1), to);
    }
    for (int i = 0; i < k->a.xs; i++)
        s->x[i] = slice_rows(g, n->in[k->a.carries + i], p->rest_x, p->rest);
    for (int i = 0; i < k->n_y; i++)
        s->dy[i] = slice_rows(g, up[k->n_carry + i], p->rest_x, p->rest);
    derive_segment(g, k, s->d, s->kept, s->x, s->dy, constant, s->d_out, s->dx_rest);
    for (int i = 0; i < k->n_carry + k->n_const; i++) s->d[i] = s->d_out[i];
    for (int i = 0; k->border && i < k->n_carry; i++) {
        const dra_value d = slice_rows(g, s->d_kept[i], p->rest_border, 1);
        s->d[i] = dra_add(g, s->d[i], dra_reshape(g, d, dra_shape_of(g, s->d[i])));
    }
}

static void whole_segments(dra_graph *g, back *k, const dra_node *n, const dra_value *up,
                           const parts *p, const arrays *s)
{
    if (p->whole == 0) return;
    const int64_t    steps = k->a.border, used = p->whole * steps;
    const dra_value *borders = n->out + k->a.carries + k->a.ys;
    int              m = 0;
    k->length = steps;
    for (int i = 0; i < k->a.carries; i++)
        s->in[m++] = slice_rows(g, borders[i], p->whole_border, p->whole);
    for (int i = 0; i < k->a.xs; i++)
        s->in[m++] = split_time(g, slice_rows(g, n->in[k->a.carries + i], p->whole_x, used),
                                p->whole, steps);
    for (int i = 0; i < k->n_y; i++)
        s->in[m++] = split_time(g, slice_rows(g, up[k->n_carry + i], p->whole_x, used), p->whole,
                                steps);
    for (int i = 0; k->border && i < k->n_carry; i++)
        s->in[m++] = slice_rows(g, s->d_kept[i], p->whole_border, p->whole);
    dra_scan(g,
             &(dra_scan_config){.length = p->whole,
                                .carries = k->n_carry + k->n_const,
                                .xs = m,
                                .constants = k->a.constants,
                                .ys = k->n_x,
                                .carry = s->d,
                                .x = s->in,
                                .constant = n->in + k->a.carries + k->a.xs,
                                .reverse = !k->a.reverse,
                                .body = segment_step,
                                .user = k},
             s->d_out, s->dx_whole);
    for (int i = 0; i < k->n_carry + k->n_const; i++) s->d[i] = s->d_out[i];
}

static dra_value join_time(dra_graph *g, const parts *p, bool reverse, dra_value whole,
                           dra_value rest)
{
    if (p->whole == 0) return rest;
    whole = merge_time(g, whole);
    if (p->rest == 0) return whole;
    const dra_value both[] = {reverse ? rest : whole, reverse ? whole : rest};
    return dra_concat(g, 2, both, 0);
}

static dra_value make_zeros(dra_graph *g, dra_value like)
{
    return dra_broadcast(g, dra_number(g, 0), dra_shape_of(g, like));
}

/* up: upstream of the float carries, then of the float ys, zeros where there is none. */
static void run_back(dra_graph *g, back *k, const dra_node *n, const dra_value *dy, const arrays *s,
                     dra_value *up, dra_value *dx)
{
    const parts p = cut_steps(&k->a);
    const int   first_const = k->a.carries + k->a.xs, first_border = k->a.carries + k->a.ys;
    for (int i = 0; i < k->n_carry; i++) {
        const int c = k->carry[i];
        up[i] = s->d[i] = dy[c].id ? dy[c] : make_zeros(g, n->out[c]);
        if (!k->border) continue;
        s->d_kept[i] = dy[first_border + c].id ? dy[first_border + c]
                                               : make_zeros(g, n->out[first_border + c]);
    }
    for (int i = 0; i < k->n_const; i++)
        s->d[k->n_carry + i] = make_zeros(g, n->in[first_const + k->constant[i]]);
    for (int i = 0; i < k->n_y; i++) {
        const int y = k->a.carries + k->y[i];
        up[k->n_carry + i] = dy[y].id ? dy[y] : make_zeros(g, n->out[y]);
    }
    rest_segment(g, k, n, up, &p, s);
    whole_segments(g, k, n, up, &p, s);
    for (int i = 0; i < k->n_carry; i++) dx[k->carry[i]] = s->d[i];
    for (int i = 0; i < k->n_const; i++) dx[first_const + k->constant[i]] = s->d[k->n_carry + i];
    for (int i = 0; i < k->n_x; i++)
        dx[k->a.carries + k->x[i]] = join_time(g, &p, k->a.reverse, s->dx_whole[i], s->dx_rest[i]);
}

static void derive_scan(dra_graph *g, const dra_node *n, const dra_value *dy, dra_value *dx)
{
    back         k = {.body = n->body, .a = *(const dra_scan_attr *)n->attr};
    const size_t all = (size_t)(n->n_in + n->n_out) + 1; /* enough for any of the arrays */
    int         *which = calloc(4 * all, sizeof *which);
    dra_value   *room = calloc(11 * all, sizeof *room);
    if (which && room) {
        k.carry = which, k.x = k.carry + all, k.constant = k.x + all, k.y = k.constant + all;
        k.n_carry = find_floats(g, k.a.carries, n->in, k.carry);
        k.n_x = find_floats(g, k.a.xs, n->in + k.a.carries, k.x);
        k.n_const = find_floats(g, k.a.constants, n->in + k.a.carries + k.a.xs, k.constant);
        k.n_y = find_floats(g, k.a.ys, n->out + k.a.carries, k.y);
        for (int i = 0; i < k.a.carries; i++)
            k.border = k.border || dy[k.a.carries + k.a.ys + i].id;
        const arrays s = {room,           room + all,     room + 2 * all,
                          room + 3 * all, room + 4 * all, room + 5 * all,
                          room + 6 * all, room + 7 * all, room + 8 * all};
        run_back(g, &k, n, dy, &s, room + 10 * all, dx);
    } else {
        dra_op_fail(g, n, DRA_ERR_MEMORY, "out of memory");
    }
    free(which);
    free(room);
}

const dra_op dra_op_scan = {.name = "scan",
                            .n_in = DRA_MANY,
                            .n_out = DRA_MANY,
                            .flags = DRA_OP_REGION,
                            .attr_size = sizeof(dra_scan_attr),
                            .infer = infer_scan,
                            .gradient = derive_scan};
