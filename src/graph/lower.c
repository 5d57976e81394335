/* Lowering: graph -> blocks of instructions. Only what the outputs need is lowered. Views become
 * strides; where an op's kernel does not take the strides of an input, a dense copy is put in
 * between; what depends on parameters alone goes to the prepare block, also out of regions;
 * recompute is inlined. */
#include "graph/graph.h"
#include "graph/program.h"

#include <stdlib.h>

typedef struct frame { /* one graph being lowered into one block */
    dra_program     *p;
    const dra_graph *g;
    int32_t          block;
    dra_place       *place; /* by value; storage < 0: not there */
    dra_place       *dense; /* by value: its dense copy, if there is one */
    bool            *fixed; /* by value: depends on parameters alone */
    bool            *used;  /* by value */
} frame;

/* ---- frames ---------------------------------------------------------------------------------- */

static bool frame_open(frame *f, dra_program *p, const dra_graph *g, int32_t block)
{
    const size_t n = dra_value_count(g);
    *f = (frame){.p = p, .g = g, .block = block};
    f->place = calloc(n, sizeof *f->place);
    f->dense = calloc(n, sizeof *f->dense);
    f->fixed = calloc(n, sizeof *f->fixed);
    f->used = calloc(n, sizeof *f->used);
    if (!f->place || !f->dense || !f->fixed || !f->used) {
        dra_no_memory(p);
        return false;
    }
    for (size_t i = 0; i < n; i++) f->place[i].storage = f->dense[i].storage = -1;
    return true;
}

static void frame_close(frame *f)
{
    free(f->place);
    free(f->dense);
    free(f->fixed);
    free(f->used);
}

static bool node_used(const frame *f, const dra_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (f->used[dra_index(n->out[i])]) return true;
    return false;
}

static dra_place place_of(const frame *f, dra_value v) { return f->place[dra_index(v)]; }

static int32_t find_home(const frame *f, bool fixed)
{
    return fixed ? DRA_BLOCK_PREPARE : f->block;
}

/* A dense copy of a value, made once per frame. */
static dra_place dense_of(frame *f, dra_value v)
{
    const uint32_t  i = dra_index(v);
    const dra_type *t = dra_type_of(f->g, v);
    if (dra_tensor_is_dense(&f->place[i].tensor)) return f->place[i];
    if (f->dense[i].storage < 0) {
        f->dense[i] = dra_local_place(f->p, find_home(f, f->fixed[i]), t);
        if (!dra_program_failed(f->p))
            dra_emit_copy(f->p, find_home(f, f->fixed[i]), &f->place[i], &f->dense[i]);
    }
    return f->dense[i];
}

static bool suits_layout(dra_layout layout, const dra_tensor *t)
{
    switch (layout) {
    case DRA_LAYOUT_ANY: return true;
    case DRA_LAYOUT_ROWS: return dra_tensor_has_rows(t);
    case DRA_LAYOUT_DENSE: break;
    }
    return dra_tensor_is_dense(t);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void lower_graph(frame *f);

static void lower_view(frame *f, const dra_node *n)
{
    const uint32_t  from = dra_index(n->in[0]), to = dra_index(n->out[0]);
    const dra_type *t = dra_type_of(f->g, n->out[0]);
    dra_place       in = f->place[from], out = {0};
    int64_t         start = 0;
    out.tensor = (dra_tensor){.dtype = t->dtype, .shape = t->shape};
    if (!n->op->view(n, &in.tensor, &out.tensor, &start)) {
        in = dense_of(f, n->in[0]);
        start = 0;
        n->op->view(n, &in.tensor, &out.tensor, &start);
    }
    if (dra_shape_count(&t->shape) == 0)
        start = 0; /* it could be past the end of an empty
                                                     * storage */
    out.storage = in.storage;
    if (start % (int64_t)dra_dtype_get(t->dtype)->block_elements)
        dra_fail(&f->p->error, DRA_ERR_SHAPE, "compile: '%s' cuts a block of %s", n->op->name,
                 dra_dtype_get(t->dtype)->name);
    out.offset = in.offset + dra_elements_bytes(t->dtype, start);
    f->place[to] = out;
    f->fixed[to] = f->fixed[from];
}

static bool all_fixed(const frame *f, const dra_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!f->fixed[dra_index(n->in[i])]) return false;
    return true;
}

static void lower_kernel(frame *f, const dra_node *n)
{
    const bool        fixed = all_fixed(f, n);
    const int32_t     block = find_home(f, fixed);
    const dra_kernel *kernel = dra_find_kernel(f->p, n->op);
    if (!kernel) return;
    dra_place *in = calloc((size_t)n->n_in + 1, sizeof *in);
    if (!in) {
        dra_no_memory(f->p);
        return;
    }
    for (int i = 0; i < n->n_in; i++) { /* copies come before the instruction itself */
        in[i] = place_of(f, n->in[i]);
        if (!suits_layout(kernel->layout, &in[i].tensor)) in[i] = dense_of(f, n->in[i]);
    }
    dra_instr *instr = dra_instr_new(f->p, block, n->op, n->n_in, n->n_out);
    if (instr) {
        for (int i = 0; i < n->n_in; i++) instr->in[i] = in[i];
        for (int i = 0; i < n->n_out; i++) {
            const dra_type *t = dra_type_of(f->g, n->out[i]);
            const uint32_t  v = dra_index(n->out[i]);
            instr->out[i] = f->used[v] ? dra_local_place(f->p, block, t) : dra_dense_place(-1, t);
            f->place[v] = instr->out[i];
            f->fixed[v] = fixed;
        }
        instr->attr = dra_arena_copy(&f->p->arena, n->attr, n->op->attr_size);
        if (!instr->attr) dra_no_memory(f->p);
        dra_set_kernel(f->p, instr, kernel);
        dra_add_scratch(f->p, block, instr);
    }
    free(in);
}

/* ---- regions --------------------------------------------------------------------------------- */

/* Makes storage `to` hold the result of a body's output: the instruction that computes it writes
 * there directly when its memory is its own and not promised to another output; otherwise a copy
 * is put at the end of the block. */
static void claim_result(frame *f, dra_value v, const dra_place *to)
{
    dra_program       *p = f->p;
    const dra_place    from = place_of(f, v);
    const int32_t      root = dra_root(p, from.storage);
    const dra_storage *s = &p->storage[root];
    if (s->kind == DRA_STORAGE_LOCAL && s->block == f->block && from.offset == 0 &&
        dra_tensor_is_dense(&from.tensor) && s->bytes == p->storage[to->storage].bytes)
        p->storage[root].alias = dra_root(p, to->storage);
    else
        dra_emit_copy(p, f->block, &from, to);
}

static void hand_in(frame *body, size_t i, dra_place place, bool fixed)
{
    body->place[i + 1] = place; /* inputs are the first values of a body */
    body->fixed[i + 1] = fixed;
}

static dra_value body_output(const frame *f, int i)
{
    return dra_output_at(f->g, (size_t)i)->value;
}

static void lower_recompute(frame *f, const dra_node *n)
{
    frame body;
    if (frame_open(&body, f->p, n->body, f->block)) {
        for (int i = 0; i < n->n_in; i++)
            hand_in(&body, (size_t)i, place_of(f, n->in[i]), f->fixed[dra_index(n->in[i])]);
        for (int i = 0; i < n->n_out; i++)
            if (f->used[dra_index(n->out[i])]) body.used[dra_index(body_output(&body, i))] = true;
        lower_graph(&body);
        for (int i = 0; i < n->n_out; i++) {
            const uint32_t from = dra_index(body_output(&body, i)), to = dra_index(n->out[i]);
            f->place[to] = body.place[from];
            f->fixed[to] = body.fixed[from];
        }
    }
    frame_close(&body);
}

/* The region's own instruction touches everything that its body and the executor touch outside. */
static dra_instr *region_instr(frame *f, const dra_node *n, int32_t block, dra_region *r,
                               const dra_place *in, int n_in, const dra_place *out, int n_out)
{
    dra_instr *instr = dra_instr_new(f->p, block, n->op, n_in, n_out);
    if (!instr) return NULL;
    for (int i = 0; i < n_in; i++) instr->in[i] = in[i];
    for (int i = 0; i < n_out; i++) instr->out[i] = out[i];
    instr->region = r;
    r->memory = dra_storage_new(f->p, (dra_storage){.kind = DRA_STORAGE_LOCAL, .block = block});
    if (r->memory >= 0) f->p->block[r->block].memory = r->memory;
    return instr;
}

static bool scan_arrays(dra_program *p, dra_region *r)
{
    const size_t c = (size_t)r->carries, x = (size_t)r->xs, y = (size_t)r->ys;
    dra_place   *places = dra_arena_alloc(&p->arena, (3 * c + x + y) * sizeof *places);
    int32_t     *ids = dra_arena_alloc(&p->arena, (2 * c + x + y) * sizeof *ids);
    if (!places || !ids) {
        dra_no_memory(p);
        return false;
    }
    r->carry[0] = places, r->carry[1] = places + c, r->kept = places + 2 * c;
    r->x = places + 3 * c, r->y = r->x + x;
    r->carry_in = ids, r->carry_out = ids + c, r->x_in = ids + 2 * c, r->y_out = r->x_in + x;
    return true;
}

static void scan_inputs(frame *f, const dra_node *n, dra_region *r, frame *body)
{
    dra_program *p = f->p;
    for (int i = 0; i < n->n_in; i++) {
        const uint32_t  v = dra_index(n->in[i]);
        const dra_type *t = dra_type_of(n->body, (dra_value){(uint32_t)i + 1});
        dra_place       inside = f->place[v];
        if (i < r->carries) {
            inside = dra_moving_place(p, r->block, t);
            r->carry_in[i] = inside.storage;
        } else if (i < r->carries + r->xs) { /* x[t]: the strides of x without the first */
            const int x = i - r->carries;
            r->x[x] = f->place[v];
            inside = dra_moving_place(p, r->block, t);
            for (int32_t d = 0; d < t->shape.rank; d++)
                inside.tensor.stride[d] = r->x[x].tensor.stride[d + 1];
            r->x_in[x] = inside.storage;
        }
        hand_in(body, (size_t)i, inside, i >= r->carries + r->xs && f->fixed[v]);
    }
}

static void scan_outputs(frame *f, const dra_node *n, dra_region *r, frame *body)
{
    dra_program *p = f->p;
    for (int i = 0; i < r->carries + r->ys; i++) {
        const dra_value inner = body_output(body, i);
        const bool      is_y = i >= r->carries;
        if (is_y && !f->used[dra_index(n->out[i])]) continue;
        const dra_place to = dra_moving_place(p, r->block, dra_type_of(n->body, inner));
        if (dra_program_failed(p)) return;
        *(is_y ? &r->y_out[i - r->carries] : &r->carry_out[i]) = to.storage;
        claim_result(body, inner, &to);
    }
}

/* Places outside: results, the second buffer of each carry, start values copied in. */
static void scan_outside(frame *f, const dra_node *n, int32_t block, dra_region *r)
{
    dra_program *p = f->p;
    for (int i = 0; i < n->n_out; i++) {
        const dra_type *t = dra_type_of(f->g, n->out[i]);
        const uint32_t  v = dra_index(n->out[i]);
        const bool      carry = i < r->carries;
        const dra_place place = f->used[v] || carry ? dra_local_place(p, block, t)
                                                    : dra_dense_place(-1, t);
        if (carry) {
            r->carry[0][i] = place;
            r->carry[1][i] = dra_local_place(p, block, t);
            dra_emit_copy(p, block, &f->place[dra_index(n->in[i])], &r->carry[r->length % 2][i]);
        } else if (i < r->carries + r->ys) {
            r->y[i - r->carries] = place;
        } else {
            r->kept[i - r->carries - r->ys] = place;
        }
        f->place[v] = place;
    }
}

static void lower_scan(frame *f, const dra_node *n)
{
    const dra_scan_attr *a = n->attr;
    dra_region          *r = dra_arena_alloc(&f->p->arena, sizeof *r);
    const bool           fixed = all_fixed(f, n);
    const int32_t        block = find_home(f, fixed);
    frame                body = {0};
    if (!r) {
        dra_no_memory(f->p);
        return;
    }
    *r = (dra_region){.kind = DRA_REGION_SCAN,
                      .length = a->length,
                      .border = a->border,
                      .reverse = a->reverse,
                      .carries = a->carries,
                      .xs = a->xs,
                      .ys = a->ys,
                      .otherwise = -1};
    r->block = dra_code_block_new(f->p);
    r->flag.storage = -1;
    if (r->block >= 0 && scan_arrays(f->p, r) && frame_open(&body, f->p, n->body, r->block)) {
        for (int i = 0; i < a->carries + a->ys; i++)
            if (i < a->carries || f->used[dra_index(n->out[i])])
                body.used[dra_index(body_output(&body, i))] = true;
        scan_inputs(f, n, r, &body);
        lower_graph(&body);
        if (!dra_program_failed(f->p)) scan_outputs(f, n, r, &body);
        if (!dra_program_failed(f->p)) scan_outside(f, n, block, r);
        for (int i = 0; i < n->n_out; i++) f->fixed[dra_index(n->out[i])] = fixed;
        /* touched outside: x, both buffers of the carries, y, kept */
        const size_t n_out = (size_t)(3 * r->carries + r->ys);
        dra_place   *out = calloc(n_out + 1, sizeof *out);
        if (!out) dra_no_memory(f->p);
        for (size_t i = 0; out && i < n_out; i++) /* contiguous, with x in between */
            out[i] = i < (size_t)(3 * r->carries) ? r->carry[0][i]
                                                  : r->y[i - (size_t)(3 * r->carries)];
        if (out && !dra_program_failed(f->p))
            region_instr(f, n, block, r, r->x, r->xs, out, (int)n_out);
        free(out);
    }
    frame_close(&body);
}

static void cond_body(frame *f, const dra_node *n, dra_region *r, const dra_place *out)
{
    frame body;
    if (frame_open(&body, f->p, n->body, r->block)) {
        for (int i = 0; i < n->n_in - 1 - n->n_out; i++) {
            const uint32_t v = dra_index(n->in[1 + n->n_out + i]);
            hand_in(&body, (size_t)i, f->place[v], f->fixed[v]);
        }
        for (int i = 0; i < n->n_out; i++)
            if (out[i].storage >= 0) body.used[dra_index(body_output(&body, i))] = true;
        lower_graph(&body);
        for (int i = 0; i < n->n_out && !dra_program_failed(f->p); i++)
            if (out[i].storage >= 0) claim_result(&body, body_output(&body, i), &out[i]);
    }
    frame_close(&body);
}

static void lower_cond(frame *f, const dra_node *n)
{
    dra_region *r = dra_arena_alloc(&f->p->arena, sizeof *r);
    dra_place  *out = calloc((size_t)n->n_out + 1, sizeof *out);
    if (!r || !out) {
        dra_no_memory(f->p);
        free(out);
        return;
    }
    *r = (dra_region){.kind = DRA_REGION_COND, .flag = place_of(f, n->in[0])};
    r->block = dra_code_block_new(f->p);
    r->otherwise = dra_code_block_new(f->p);
    const bool    fixed = all_fixed(f, n);
    const int32_t block = find_home(f, fixed);
    for (int i = 0; i < n->n_out; i++) {
        const dra_type *t = dra_type_of(f->g, n->out[i]);
        const uint32_t  v = dra_index(n->out[i]);
        out[i] = f->used[v] ? dra_local_place(f->p, block, t) : dra_dense_place(-1, t);
        f->place[v] = out[i];
        f->fixed[v] = fixed;
    }
    if (!dra_program_failed(f->p)) cond_body(f, n, r, out);
    for (int i = 0; i < n->n_out && !dra_program_failed(f->p); i++) {
        const dra_place otherwise = place_of(f, n->in[1 + i]);
        if (out[i].storage >= 0) dra_emit_copy(f->p, r->otherwise, &otherwise, &out[i]);
    }
    if (!dra_program_failed(f->p)) region_instr(f, n, block, r, &r->flag, 1, out, n->n_out);
    free(out);
}

/* ---- a whole graph --------------------------------------------------------------------------- */

static void lower_node(frame *f, const dra_node *n)
{
    if (n->op == &dra_op_recompute)
        lower_recompute(f, n);
    else if (n->op == &dra_op_scan)
        lower_scan(f, n);
    else if (n->op == &dra_op_cond)
        lower_cond(f, n);
    else if (n->op->flags & DRA_OP_VIEW)
        lower_view(f, n);
    else
        lower_kernel(f, n);
}

static void lower_graph(frame *f)
{
    dra_mark_used(f->g, f->used);
    for (size_t i = 0; i < dra_node_count(f->g) && !dra_program_failed(f->p); i++) {
        const dra_node *n = dra_node_at(f->g, i);
        if (node_used(f, n)) lower_node(f, n);
    }
}

static void lower_inputs(frame *f)
{
    dra_program *p = f->p;
    p->slot = dra_arena_alloc(&p->arena, dra_value_count(f->g) * sizeof *p->slot);
    if (!p->slot) {
        dra_no_memory(p);
        return;
    }
    for (size_t i = 1; i < dra_value_count(f->g); i++) {
        const dra_value_info *v = f->g->values.at[i];
        if (v->role == DRA_ROLE_NODE) continue;
        const int32_t     slot = (int32_t)p->n_slot++;
        const dra_storage s = {.kind = DRA_STORAGE_BOUND,
                               .block = DRA_BLOCK_STEP,
                               .slot = slot,
                               .bytes = dra_bytes_of(&v->type)};
        p->slot[slot] = (dra_slot){dra_arena_text(&p->arena, v->name), v->role, false, s.bytes,
                                   dra_storage_new(p, s)};
        if (!p->slot[slot].name || !dra_names_add(&p->slots, p->slot[slot].name, slot)) {
            dra_no_memory(p);
            return;
        }
        f->place[i] = dra_dense_place(p->slot[slot].storage, &v->type);
        f->fixed[i] = v->role == DRA_ROLE_PARAMETER;
    }
}

static void lower_outputs(frame *f)
{
    dra_program *p = f->p;
    p->n_result = f->g->outputs.n;
    p->result = dra_arena_alloc(&p->arena, p->n_result * sizeof *p->result);
    for (size_t i = 0; p->result && i < p->n_result && !dra_program_failed(p); i++) {
        const dra_output_info *o = dra_output_at(f->g, i);
        dra_result_slot       *r = &p->result[i];
        *r = (dra_result_slot){dra_arena_text(&p->arena, o->name), dense_of(f, o->value), -1};
        if (!r->name || !dra_names_add(&p->results, r->name, (int64_t)i)) dra_no_memory(p);
        if (!o->donor.id) continue;
        r->donor = place_of(f, o->donor).storage;
        p->storage[r->donor].donor = true;
        f->used[dra_index(o->donor)] = true; /* written, so it must be bound */
        if (p->slot[p->storage[r->donor].slot].role == DRA_ROLE_PARAMETER)
            p->updates_parameters = true;
    }
    if (!p->result) dra_no_memory(p);
}

dra_status dra_lower(const dra_graph *g, dra_program *p)
{
    frame f = {0};
    if (dra_code_block_new(p) == DRA_BLOCK_PREPARE && dra_code_block_new(p) == DRA_BLOCK_STEP &&
        frame_open(&f, p, g, DRA_BLOCK_STEP)) {
        lower_inputs(&f);
        for (size_t i = 0; i < g->outputs.n; i++)
            f.used[dra_index(dra_output_at(g, i)->value)] = true;
        if (!dra_program_failed(p)) lower_graph(&f);
        if (!dra_program_failed(p)) lower_outputs(&f);
        for (size_t i = 0, slot = 0; i < dra_value_count(g); i++)
            if (i && ((dra_value_info *)g->values.at[i])->role != DRA_ROLE_NODE &&
                !dra_program_failed(p))
                p->slot[slot++].used = f.used[i];
    }
    frame_close(&f);
    return p->error.code;
}
