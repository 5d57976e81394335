/* One memory with its retrieval inside a mixer: the graph of remembering and retrieving. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

typedef struct building {
    dra_graph              *g;
    const dra_branch       *b;
    const dra_module_call  *call;
    const dra_value        *qkv;
    const dra_read_options *options;
} building;

/* A parameter that comes after the memory's own. */
static dra_value find_param(const building *u, const char *name)
{
    const dra_branch *b = u->b;
    const size_t      prefix = strlen(b->prefix);
    for (int i = b->params + b->n_params; i < dra_specs_count(b->own); i++) {
        const char *found = dra_specs_at(b->own, i)->name;
        if (strncmp(found, b->prefix, prefix) == 0 && strcmp(found + prefix, name) == 0)
            return u->call->param[i];
    }
    return (dra_value){0};
}

dra_value dra_head_linear(dra_graph *g, dra_value x, dra_value w)
{
    if (dra_graph_failed(g)) return (dra_value){0};
    const dra_shape s = dra_shape_of(g, x), m = dra_shape_of(g, w);
    dra_shape       out = s;
    const int64_t   B = s.dim[0], T = s.rank > 3 ? s.dim[1] : 1, S = s.rank > 4 ? s.dim[3] : 1;
    out.dim[s.rank - 1] = m.dim[1];
    x = dra_transpose(g, dra_reshape(g, x, DRA_SHAPE(B, T, m.dim[0], S * m.dim[2])), 1, 2);
    x = dra_reshape(g, x, DRA_SHAPE(B, m.dim[0], T * S, m.dim[2]));
    dra_value y = dra_matmul(g, x, dra_transpose(g, w, 1, 2));
    y = dra_reshape(g, y, DRA_SHAPE(B, m.dim[0], T, S * m.dim[1]));
    return dra_reshape(g, dra_transpose(g, y, 1, 2), out);
}

dra_value dra_branch_start(dra_graph *g, const dra_branch *b, int i, int64_t B, dra_value state)
{
    const dra_spec *p = dra_branch_state(b, i);
    dra_shape       start = p->shape;
    for (int32_t k = start.rank++; k > 0; k--) start.dim[k] = start.dim[k - 1];
    start.dim[0] = B;
    return state.id ? state : dra_broadcast(g, dra_number(g, p->number), start);
}

/* What the memory is fed: keys and values, or both as one stream. */
static void feed_memory(const building *u, dra_value x[2])
{
    x[0] = u->qkv[1];
    x[1] = u->qkv[2];
    if (!u->b->config.joined) return;
    const dra_value join = find_param(u, "join");
    x[0] = dra_concat(u->g, 2, u->qkv + 1, -1);
    if (join.id) x[0] = dra_head_linear(u->g, x[0], join);
}

/* Keys and values of the items: two streams, or the halves of one; through their maps, unless
 * these act on the query and on what was read. */
static void split_items(const building *u, dra_value item[2])
{
    const dra_memory_sizes *s = &u->b->sizes;
    const dra_value         kappa = find_param(u, "kappa"), nu = find_param(u, "nu"), m = item[0];
    const bool              mapped = nu.id && !u->b->folds;
    if (u->b->sizes.joined) item[1] = m;
    if (u->b->config.joined && !mapped && !u->b->sizes.joined) {
        item[0] = dra_slice(u->g, m, -1, 0, s->D);
        item[1] = dra_slice(u->g, m, -1, s->D, s->E);
    }
    if (!mapped) return;
    if (u->b->config.joined) item[1] = m;
    if (kappa.id) item[0] = dra_head_linear(u->g, item[0], kappa);
    item[1] = dra_head_linear(u->g, item[1], nu);
}

/* The query as slots are asked: q.(pi_k P) = (pi_k^T q).P, and the same for kappa, also of items.
 * Reads of slots divide by sqrt(D), which another score_scale undoes. */
static dra_value query_of_slots(const building *u)
{
    dra_graph   *g = u->g;
    const double scale = u->options->config->score_scale * sqrt((double)u->b->sizes.D);
    dra_value    q = u->qkv[0];
    if (u->b->retrieval->slots && scale > 0) q = dra_affine(g, q, scale, 0);
    if (u->b->config.pi)
        q = dra_linear(g, q, dra_transpose(g, find_param(u, "pi_k"), 0, 1), (dra_value){0});
    if (u->b->folds) q = dra_head_linear(g, q, dra_transpose(g, find_param(u, "kappa"), 1, 2));
    return q;
}

static void norm_items(const building *u, dra_value item[2])
{
    static const char *const gain[] = {"gain_mk", "gain_mv"}, *const bias[] = {"bias_mk",
                                                                               "bias_mv"};
    for (int i = 0; i < 2 && u->b->config.norm; i++)
        item[i] = u->b->config.norm_kind == DRA_ITEM_LAYER
                      ? dra_layer_norm(u->g, item[i], find_param(u, gain[i]),
                                       find_param(u, bias[i]), 1e-5)
                      : dra_rms_norm(u->g, item[i], find_param(u, gain[i]), 1e-6);
}

static dra_value norm_heads(const building *u, dra_value y)
{
    dra_graph *g = u->g;
    if (u->b->config.head_norm != DRA_ON || dra_graph_failed(g)) return y;
    const dra_shape heads = dra_shape_of(g, y);
    y = dra_reshape(g, y, DRA_SHAPE(heads.dim[0], heads.dim[1], heads.dim[2] * heads.dim[3]));
    const double eps = u->b->config.head_norm_eps > 0 ? u->b->config.head_norm_eps : 1e-5;
    y = dra_group_norm(g, y, heads.dim[2], find_param(u, "hn_g"), find_param(u, "hn_b"), eps);
    return dra_reshape(g, y, heads);
}

/* The value side of the memory after each token, (B, T, H, E): the mean over slots. */
static dra_value value_side(const building *u, dra_value item)
{
    dra_graph *g = u->g;
    if (dra_graph_failed(g) || !item.id) return item;
    if (dra_shape_of(g, item).rank == 5) {
        const int64_t S = dra_shape_of(g, item).dim[3];
        item = dra_affine(g, dra_sum(g, item, (dra_axes){1, {3}, false}), 1 / (double)S, 0);
    }
    return u->b->folds ? dra_head_linear(g, item, find_param(u, "nu")) : item;
}

static bool fuses_chunk(const building *u)
{
    const dra_memory *m = u->b->memory;
    if (!m->chunk || u->b->config.steps || (m->fuses && !m->fuses(&u->b->sizes))) return false;
    if (u->call->tokens.skip.id && !(m->chunks & DRA_CHUNK_SKIPS)) return false;
    return !dra_aux_needs_trail(u->b) || m->chunks & DRA_CHUNK_TRAIL;
}

/* A call with a key drops weights out; the two memories of a blend drop different ones. */
static dra_read_drop drop_of(const building *u, char name[32])
{
    if (!u->call->random.id) return (dra_read_drop){0};
    snprintf(name, 32, "%sattention.dropout", u->b->sizes.context ? "cross." : u->b->prefix);
    return (dra_read_drop){u->b->attention_dropout, name, u->call->random, u->call->at};
}

/* Reads what the memory made: its items, normed where that is wanted. */
static void retrieve_items(const building *u, const dra_memory_call *c, dra_memory_result *r,
                           dra_value *state_out, dra_value *lse, dra_branch_result *out)
{
    dra_graph *g = u->g;
    const bool sums = u->b->aux >> DRA_AUX_ATTENTION & 1 && dra_aux_has(u->b, DRA_AUX_ATTENTION);
    dra_value  scores = {0}, weights = {0};
    char       name[32];
    const dra_read_call read = {.sizes = &u->b->sizes,
                                .tokens = &u->call->tokens,
                                .options = u->options,
                                .q = u->qkv[0],
                                .k = u->qkv[1],
                                .v = u->qkv[2],
                                .key = r->item[0],
                                .value = r->item[1],
                                .slot_q = c->q,
                                .nu = u->b->folds ? find_param(u, "nu") : (dra_value){0},
                                .pi_v = find_param(u, "pi_v"),
                                .y = r->y,
                                .lse = r->lse,
                                .drop = drop_of(u, name),
                                .state = u->call->state + u->b->reads,
                                .scores = u->b->maps ? &scores : NULL,
                                .weights = u->b->maps ? &weights : NULL,
                                .sums = sums ? lse : NULL};
    const bool          asks = u->b->retrieval->slots || !r->y.id;
    out->y = norm_heads(u, asks ? u->b->retrieval->read(g, &read, state_out + u->b->reads) : r->y);
    const dra_value late = u->b->memory->late ? u->b->memory->late(g, c) : (dra_value){0};
    if (late.id) out->y = dra_add(g, out->y, late);
    if (u->b->maps) dra_map_attention(g, u->b, &read, out->map);
}

/* What was written where, and what it did to the state. */
static void observe_losses(const building *u, const dra_memory_call *c, const dra_memory_result *r,
                           const dra_value square[2], dra_value lse, dra_branch_result *out)
{
    dra_graph        *g = u->g;
    const dra_tokens *tokens = &u->call->tokens;
    dra_aux_losses    w = {.b = u->b,
                           .tokens = tokens,
                           .param = u->call->param + u->b->params,
                           .used = c->param,
                           .state = c->state,
                           .trail = r->trail,
                           .square = {square[0], square[1]},
                           .lse = lse};
    if (!u->b->aux && !u->b->maps) return;
    if (u->b->memory->writes) {
        w.write = u->b->memory->writes(g, &u->b->sizes, c->param, c->code);
        if (dra_graph_failed(g)) return;
        const dra_shape s = dra_shape_of(g, w.write);
        w.write = dra_broadcast(
            g, w.write, DRA_SHAPE(tokens->B, tokens->T, s.dim[s.rank - 2], s.dim[s.rank - 1]));
        w.write = dra_tokens_zero_pads(g, tokens, dra_memory_written(g, c, w.write, 4));
    }
    dra_aux_branch(g, &w, out->aux);
    if (!u->b->maps || !w.write.id) return;
    out->map[DRA_SHOW_WRITE] = w.write;
    out->map[DRA_SHOW_OCCUPANCY] = dra_map_occupancy(g, tokens, w.write);
}

static dra_value token_of(dra_graph *g, dra_value x, int64_t t)
{
    return x.id ? dra_slice(g, x, 1, t, 1) : x;
}

/* The tokens of a call one by one, as calls of their own would read them. */
static void chunk_by_token(const building *u, const dra_memory_call *c, dra_memory_result *r)
{
    enum { PARTS = 4 };
    const dra_branch *b = u->b;
    dra_graph        *g = u->g;
    const int64_t     T = u->call->tokens.T;
    dra_value        *part = calloc((size_t)(PARTS * T + b->n_states) + 1, sizeof *part);
    dra_value *state = part + PARTS * T, *to[PARTS] = {&r->item[0], &r->item[1], &r->y, &r->lse};
    if (!part) {
        dra_build_fail(g, b->memory->name, DRA_ERR_MEMORY, "out of memory");
        return;
    }
    for (int i = 0; i < b->n_states; i++) state[i] = c->state[i];
    for (int64_t t = 0; t < T; t++) {
        dra_memory_call   one = *c;
        dra_memory_result own = {.state = r->state};
        one.q = token_of(g, c->q, t);
        for (int i = 0; i < 2; i++) one.x[i] = token_of(g, c->x[i], t);
        for (int i = 0; i < c->codes; i++) one.code[i] = token_of(g, c->code[i], t);
        one.mark = token_of(g, c->mark, t);
        one.skip = token_of(g, c->skip, t);
        one.reads = token_of(g, c->reads, t);
        one.state = state;
        b->memory->chunk(g, &one, &own);
        for (int i = 0; i < b->n_states; i++) state[i] = r->state[i];
        part[t] = own.item[0], part[T + t] = own.item[1];
        part[2 * T + t] = own.y, part[3 * T + t] = own.lse;
    }
    for (int i = 0; i < PARTS; i++)
        if (part[i * T].id) *to[i] = dra_concat(g, (int)T, part + i * T, 1);
    free(part);
}

static bool reads_by_token(const building *u)
{
    return u->call->tokens.by_token && u->call->tokens.T > 1 && !dra_aux_needs_trail(u->b) &&
           u->b->memory->chunks & DRA_CHUNK_BLOCKS;
}

/* `room` holds the parameters as they are used, then the trail. */
static void remember_tokens(const building *u, const dra_seen *seen, dra_value *room,
                            dra_value *state_out, dra_branch_result *out)
{
    const dra_branch *b = u->b;
    dra_graph        *g = u->g;
    const dra_tokens *tokens = &u->call->tokens;
    dra_memory_result r = {.state = state_out + b->states,
                           .trail = dra_aux_needs_trail(b) && fuses_chunk(u) ? room + b->n_params
                                                                             : NULL};
    dra_value         square[2] = {{0}};
    dra_memory_call   c = {.sizes = &b->sizes,
                           .q = query_of_slots(u),
                           .param = room,
                           .state = u->call->state + b->states,
                           .mark = tokens->writes,
                           .skip = tokens->skip,
                           .reads = tokens->mark};
    dra_recurrent_apply(g, b, u->call->param + b->params, room);
    feed_memory(u, c.x);
    dra_seen all = *seen;
    all.k = c.x[0];
    if (b->memory->code) c.codes = b->memory->code(g, &b->sizes, c.param, &all, c.code);
    if (fuses_chunk(u) && reads_by_token(u))
        chunk_by_token(u, &c, &r);
    else if (fuses_chunk(u))
        b->memory->chunk(g, &c, &r);
    else
        dra_memory_scan(g, b, &c, &r, dra_aux_needs_trail(b) ? square : NULL);
    if (!r.y.id) split_items(u, r.item);
    out->memory = value_side(u, r.item[1]);
    norm_items(u, r.item);
    dra_value lse = {0};
    retrieve_items(u, &c, &r, state_out, &lse, out);
    observe_losses(u, &c, &r, square, lse, out);
}

/* Items of the context are what they are: there is nothing to remember. */
static void read_context(const building *u, dra_value *state_out, dra_branch_result *out)
{
    dra_memory_result     r = {.item = {u->qkv[1], u->qkv[2]}};
    const dra_memory_call c = {.sizes = &u->b->sizes, .q = u->qkv[0]};
    dra_value             lse;
    retrieve_items(u, &c, &r, state_out, &lse, out);
}

dra_branch_result dra_branch_build(dra_graph *g, const dra_branch *b, const dra_module_call *call,
                                   const dra_read_options *options, const dra_seen *seen,
                                   const dra_value qkv[3], dra_value *state_out)
{
    const building    u = {g, b, call, qkv, options};
    dra_branch_result out = {0};
    dra_value        *room = calloc((size_t)(b->n_params + b->n_states) + 1, sizeof *room);
    if (b->sizes.context)
        read_context(&u, state_out, &out);
    else if (room)
        remember_tokens(&u, seen, room, state_out, &out);
    else
        dra_build_fail(g, b->memory->name, DRA_ERR_MEMORY, "out of memory");
    free(room);
    return out;
}
