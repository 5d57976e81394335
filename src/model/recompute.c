/* A layer whose inside is not kept for the gradient: what it reads is handed to a region, value by
 * value, and put together again inside. */
#include <stdlib.h>

#include "graph/op.h"
#include "model/model.h"

typedef struct handing { /* values on their way into the region, or out of its list */
    dra_value *list;
    int        n;
    bool       inside;
} handing;

static void hand(handing *h, dra_value *v)
{
    if (!v->id) return;
    if (h->inside)
        *v = h->list[h->n];
    else if (h->list)
        h->list[h->n] = *v;
    h->n++;
}

static void hand_tokens(handing *h, dra_tokens *t)
{
    hand(h, &t->mark);
    hand(h, &t->writes);
    hand(h, &t->skip);
    hand(h, &t->pos);
    hand(h, &t->prev);
    hand(h, &t->last);
    for (int i = 0; i < t->n_items; i++) {
        hand(h, &t->items[i].at);
        hand(h, &t->items[i].lo);
        hand(h, &t->items[i].hi);
        hand(h, &t->items[i].base);
    }
}

typedef struct inside { /* a layer's call with arrays of its own */
    const dra_model *model;
    int64_t          layer;
    dra_module_call  call;
    dra_value       *param, *state, *state_out, x;
} inside;

/* Everything the layer reads, in one order. */
static void hand_all(handing *h, inside *in)
{
    const dra_layer *l = &in->model->layer[in->layer];
    hand(h, &in->x);
    hand_tokens(h, &in->call.tokens);
    hand(h, &in->call.random);
    hand(h, &in->call.at);
    for (int i = l->mix.params; i < l->end.params; i++) hand(h, &in->param[i]);
    for (int i = l->mix.states; i < l->end.states; i++) hand(h, &in->state[i]);
    if (in->model->blend >= 0) hand(h, &in->param[in->model->blend]);
}

static bool measures(const dra_layer *l, int k)
{
    return dra_mixer_config_of(l->mixer)->aux >> k & 1;
}

static void body(dra_graph *g, void *user, const dra_value *list, dra_value *out)
{
    inside           in = *(const inside *)user; /* arrays are shared: the values in them change */
    const dra_layer *l = &in.model->layer[in.layer];
    handing          h = {.list = (dra_value *)(uintptr_t)list, .inside = true};
    hand_all(&h, &in);
    const dra_mixer_result r = dra_layer_build(g, in.model, &in.call, in.layer, in.x, in.state_out);
    *out++ = r.y;
    for (int i = l->mix.states; i < l->end.states && !in.call.tokens.fresh; i++)
        *out++ = in.state_out[i];
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (measures(l, k)) *out++ = r.aux[k];
}

static dra_value *copy(dra_value *to, const dra_value *from, int n)
{
    for (int i = 0; i < n; i++) to[i] = from[i];
    return to;
}

dra_mixer_result dra_layer_recompute(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                     int64_t l, dra_value x, dra_value *state_out)
{
    const dra_layer *layer = &m->layer[l];
    const int        P = dra_specs_count(m->params), S = dra_specs_count(m->state);
    const int        n_state = call->tokens.fresh ? 0 : layer->end.states - layer->mix.states;
    dra_value       *room = calloc((size_t)(P + 3 * S + DRA_AUX_COUNT) + 2, sizeof *room);
    inside           in = {.model = m, .layer = l, .call = *call, .x = x};
    handing          h = {0};
    dra_mixer_result r = {0};
    int              n_aux = 0;
    for (int k = 0; k < DRA_AUX_COUNT; k++) n_aux += measures(layer, k);
    if (room) {
        in.call.param = in.param = copy(room, call->param, P);
        in.call.state = in.state = copy(room + P, call->state, S);
        in.state_out = room + P + S;
        hand_all(&h, &in); /* how many are there? */
        h.list = calloc((size_t)h.n + 1, sizeof *h.list);
        h.n = 0;
    }
    if (h.list) {
        dra_value *out = in.state_out + S;
        hand_all(&h, &in);
        dra_recompute(g, body, &in, h.n, h.list, 1 + n_state + n_aux, out);
        r.y = *out++;
        copy(state_out + layer->mix.states, out, n_state);
        out += n_state;
        for (int k = 0; k < DRA_AUX_COUNT; k++)
            if (measures(layer, k)) r.aux[k] = *out++;
    } else {
        dra_build_fail(g, "layer", DRA_ERR_MEMORY, "out of memory");
    }
    free(room);
    free(h.list);
    return r;
}
