/* dra forward: outputs and the state, as files. */
#include "forward.h"

#include <stdlib.h>
#include <string.h>

/* A state of all rows: (B, ...), items (B, n, ...), n the most that any row has. */
static dra_status copy_state(const forward_work *w, int i, dra_tensor_item *item, dra_error *err)
{
    const dra_states *s = w->context.states;
    const dra_spec   *p = dra_specs_at(dra_model_state(w->m.model), i);
    const size_t      one = (size_t)dra_shape_count(&p->shape);
    const bool        items = p->items || p->context;
    size_t            most = items ? 0 : one;
    dra_shape         shape = {1, {w->in.B}};
    char             *name = malloc(strlen(p->name) + 8);
    for (int64_t b = 0; b < w->in.B; b++)
        if (dra_states_size(s, i, b) > most) most = dra_states_size(s, i, b);
    if (items) shape.dim[shape.rank++] = one ? (int64_t)(most / one) : 0;
    for (int32_t k = 0; k < p->shape.rank && shape.rank < DRA_MAX_RANK; k++)
        shape.dim[shape.rank++] = p->shape.dim[k];
    dra_real *data = calloc((size_t)w->in.B * most + 1, sizeof *data);
    if (name) snprintf(name, strlen(p->name) + 8, "state.%s", p->name);
    *item = (dra_tensor_item){name, DRA_REAL, shape, data};
    if (!name || !data) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    dra_status st = DRA_OK;
    for (int64_t b = 0; b < w->in.B && st == DRA_OK; b++)
        st = dra_states_read(s, i, b, data + (size_t)b * most, dra_states_size(s, i, b), err);
    return st;
}

static dra_tensor_item result_item(const forward_work *w, const char *name, int64_t n,
                                   int64_t width, const dra_real *data)
{
    const dra_shape shape = w->in.batched ? DRA_SHAPE(w->in.B, n, width) : DRA_SHAPE(n, width);
    return (dra_tensor_item){name, DRA_REAL, shape, data};
}

/* Lists the states that were asked for; names and data are to be freed, except those of
 * rwkv-state. */
static dra_status list_states(const forward_work *w, dra_tensor_item *items, size_t *n,
                              dra_error *err)
{
    const int  states = w->state ? dra_specs_count(dra_model_state(w->m.model)) : 0;
    dra_status st = DRA_OK;
    const int  cached = w->cache ? dra_cache_count(w->m.model, err) : 0;
    for (int i = 0; i < states && st == DRA_OK; i++) st = copy_state(w, i, &items[(*n)++], err);
    if (w->cache && !cached) st = DRA_ERR_VALUE;
    for (int i = 0; i < cached && st == DRA_OK; i++)
        st = forward_cache_write(w, i, &items[(*n)++], err);
    for (int i = 0; i < dra_rwkv_state_count(w->m.model) && w->rwkv_state && st == DRA_OK; i++)
        st = forward_rwkv_write(w, i, &items[(*n)++], err);
    return st;
}

static void free_states(const forward_work *w, dra_tensor_item *items, size_t n)
{
    size_t named = w->state ? (size_t)dra_specs_count(dra_model_state(w->m.model)) : 0;
    if (w->cache) named += (size_t)dra_cache_count(w->m.model, NULL);
    for (size_t i = 0; items && i < n; i++) {
        if (i < named) free((void *)items[i].name);
        free((void *)items[i].data);
    }
    free(items);
}

dra_status forward_write(const forward_work *w, dra_error *err)
{
    forward_maps     maps = {0};
    const size_t     all = (size_t)dra_specs_count(dra_model_state(w->m.model));
    const size_t     most = 2 * all + DRA_RWKV_STATES; /* a cache has at most as many */
    dra_status       st = forward_maps_list(w, &maps, err);
    dra_tensor_item *items = calloc(most + maps.n + 4 + FORWARD_STACKS + FORWARD_HEADS,
                                    sizeof *items);
    size_t           n = 0;
    if (!items) st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (st == DRA_OK) st = list_states(w, items, &n, err);
    const size_t states = n;
    if (st == DRA_OK && w->logits && w->tokens)
        items[n++] = result_item(w, "logits", w->keep, w->V, w->out_logits);
    if (st == DRA_OK && w->hidden)
        items[n++] = result_item(w, "hidden", w->in.T, w->C, w->out_hidden);
    for (int i = 0; i < FORWARD_STACKS && st == DRA_OK; i++) {
        const forward_stack *s = &w->stack[i];
        const dra_shape      shape = w->in.batched ? DRA_SHAPE(s->n, w->in.B, w->in.T, w->C)
                                                   : DRA_SHAPE(s->n, w->in.T, w->C);
        if (s->wanted) items[n++] = (dra_tensor_item){s->all, DRA_REAL, shape, s->data};
    }
    if (st == DRA_OK) n += forward_heads_list(w, items + n);
    for (size_t i = 0; i < maps.n && st == DRA_OK; i++) items[n++] = maps.item[i];
    if (st == DRA_OK && w->in.lengths && w->in.batched && n)
        items[n++] = (dra_tensor_item){"lengths", DRA_I32, DRA_SHAPE(w->in.B), w->in.lengths};
    if (st == DRA_OK && (w->maps || w->scores) && maps.n == 0)
        st = cli_error(err, DRA_ERR_VALUE, "--outputs: the model has no %s",
                       w->maps ? "attentions" : "scores");
    if (st == DRA_OK) st = dra_tensors_write(w->a->out, items, n, NULL, 0, err);
    forward_maps_free(&maps);
    free_states(w, items, states);
    if (st != DRA_OK || !w->a->state_out) return st;
    return dra_context_save(w->m.model, w->m.weights, &w->context, w->a->state_out, err);
}
