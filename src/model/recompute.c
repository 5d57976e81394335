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

static void hand_value(handing *h, dra_value *v)
{
    if (!v->id) return;
    if (h->inside)
        *v = h->list[h->n];
    else if (h->list)
        h->list[h->n] = *v;
    h->n++;
}

static void hand_items(handing *h, dra_token_items *items)
{
    hand_value(h, &items->at);
    hand_value(h, &items->lo);
    hand_value(h, &items->hi);
    hand_value(h, &items->base);
    hand_value(h, &items->pages);
    hand_value(h, &items->own);
}

static void hand_tokens(handing *h, dra_tokens *t)
{
    hand_value(h, &t->mark);
    hand_value(h, &t->writes);
    hand_value(h, &t->skip);
    hand_value(h, &t->pos);
    hand_value(h, &t->prev);
    hand_value(h, &t->last);
    hand_value(h, &t->lo);
    hand_value(h, &t->hi);
    hand_value(h, &t->seen);
    hand_value(h, &t->context_n);
    for (int i = 0; i < t->n_items; i++) hand_items(h, &t->items[i]);
    hand_items(h, &t->segments.rows);
    hand_value(h, &t->segments.event);
}

/* The steps of a layer, and where its tensors are in the lists of the model. Parameters may be
 * shared by several steps, states never are. */
typedef struct extent {
    int first, end; /* steps */
    int states, states_end;
} extent;

static extent extent_of(const dra_model *m, int first)
{
    const dra_stack *s = &m->stack;
    const int        end = dra_stack_layer_end(s, first);
    return (extent){first, end, s->step[first].states,
                    end < s->n_steps ? s->step[end].states : dra_specs_count(m->state)};
}

typedef struct inside { /* a layer's call with arrays of its own */
    const dra_model *model;
    extent           at;
    dra_module_call  call;
    dra_channels     channels;
    dra_value       *param, *state, *state_out, x;
} inside;

/* Each parameter once, though several steps may use it. */
static void hand_params(handing *h, inside *in)
{
    const dra_stack *s = &in->model->stack;
    for (int i = in->at.first; i < in->at.end; i++) {
        const int e = s->step[i].entry,
                  n = dra_specs_count(dra_sublayer_module(dra_stack_at(s, i))->params);
        bool seen = false;
        for (int k = in->at.first; k < i; k++) seen = seen || s->step[k].entry == e;
        for (int k = 0; k < n && !seen; k++) hand_value(h, &in->param[s->entry[e].params + k]);
    }
}

/* Everything the layer reads, in one order. */
static void hand_all(handing *h, inside *in)
{
    hand_value(h, &in->x);
    hand_tokens(h, &in->call.tokens);
    hand_value(h, &in->call.random);
    hand_value(h, &in->call.at);
    hand_params(h, in);
    for (int i = in->at.states; i < in->at.states_end; i++) hand_value(h, &in->state[i]);
    for (int i = 0; i < DRA_CHANNELS; i++) hand_value(h, &in->channels.value[i]);
}

/* The auxiliary losses that it measures, as bits. */
static uint32_t measured_losses(const dra_model *m, const extent *at)
{
    uint32_t bits = 0;
    for (int i = at->first; i < at->end; i++) {
        const dra_sublayer *s = dra_stack_at(&m->stack, i);
        const dra_mixer    *mixer = dra_sublayer_mixer(s);
        if (!mixer) bits |= dra_sublayer_config_of(s)->mixer.aux;
        if (mixer && !dra_mixer_config_of(mixer)->context) bits |= dra_mixer_config_of(mixer)->aux;
    }
    return bits;
}

/* Channels that a layer writes, as bits. */
static uint32_t written_channels(const dra_model *m, const extent *at)
{
    uint32_t bits = 0;
    for (int i = at->first; i < at->end; i++) {
        const dra_sublayer *s = dra_stack_at(&m->stack, i);
        if (dra_sublayer_config_of(s)->block.norm == DRA_PLACE_DUAL) bits |= 1u << DRA_CHANNEL_DUAL;
        const dra_sublayer_config *c = dra_sublayer_config_of(s);
        if (c->block.integrate) bits |= 1u << DRA_CHANNEL_STREAMS;
        if (dra_sublayer_mixer(s) && c->mixer.attention.residual_scores)
            bits |= 1u << (c->mixer.context ? DRA_CHANNEL_CROSS_SCORES : DRA_CHANNEL_SCORES);
        if (dra_sublayer_mixer(s) && c->mixer.value_residual)
            bits |= 1u << (c->mixer.context ? DRA_CHANNEL_CROSS_VALUES : DRA_CHANNEL_VALUES);
    }
    return bits;
}

static void layer_body(dra_graph *g, void *user, const dra_value *list, dra_value *out)
{
    inside         in = *(const inside *)user; /* arrays are shared: the values in them change */
    handing        h = {.list = (dra_value *)(uintptr_t)list, .inside = true};
    const uint32_t aux = measured_losses(in.model, &in.at),
                   channels = written_channels(in.model, &in.at);
    hand_all(&h, &in);
    const dra_layer_result r = dra_layer_build(g, in.model, &in.call, in.at.first, in.x,
                                               &in.channels, in.state_out);
    *out++ = r.y;
    for (int i = in.at.states; i < in.at.states_end && !in.call.tokens.fresh; i++)
        *out++ = in.state_out[i];
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (aux >> k & 1) *out++ = r.mixer.aux[k];
    for (int k = 0; k < DRA_CHANNELS; k++)
        if (channels >> k & 1) *out++ = in.channels.value[k];
}

static dra_value *copy_values(dra_value *to, const dra_value *from, int n)
{
    for (int i = 0; i < n; i++) to[i] = from[i];
    return to;
}

/* Takes apart what the region gives, in the order of layer_body(). */
static dra_layer_result take_results(const inside *in, const dra_value *out, int n_state,
                                     dra_channels *channels, dra_value *state_out)
{
    const uint32_t aux = measured_losses(in->model, &in->at),
                   set = written_channels(in->model, &in->at);
    dra_layer_result r = {.y = *out++};
    copy_values(state_out + in->at.states, out, n_state);
    out += n_state;
    for (int k = 0; k < DRA_AUX_COUNT; k++)
        if (aux >> k & 1) r.mixer.aux[k] = *out++;
    for (int k = 0; k < DRA_CHANNELS; k++)
        if (set >> k & 1) channels->value[k] = *out++;
    return r;
}

static int count_bits(uint32_t x)
{
    int n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

dra_layer_result dra_layer_recompute(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                     int first, dra_value x, dra_channels *channels,
                                     dra_value *state_out)
{
    const int P = dra_specs_count(m->params), S = dra_specs_count(m->state);
    inside    in = {
           .model = m, .at = extent_of(m, first), .call = *call, .channels = *channels, .x = x};
    const int n_state = call->tokens.fresh ? 0 : in.at.states_end - in.at.states;
    const int n_out = 1 + n_state + count_bits(measured_losses(m, &in.at)) +
                      count_bits(written_channels(m, &in.at));
    dra_value       *room = calloc((size_t)(P + 2 * S + n_out) + 1, sizeof *room);
    handing          h = {0};
    dra_layer_result r = {0};
    if (room) {
        in.call.param = in.param = copy_values(room, call->param, P);
        in.call.state = in.state = copy_values(room + P, call->state, S);
        in.state_out = room + P + S;
        hand_all(&h, &in); /* how many are there? */
        h.list = calloc((size_t)h.n + 1, sizeof *h.list);
        h.n = 0;
    }
    if (h.list) {
        dra_value *out = in.state_out + S;
        hand_all(&h, &in);
        dra_recompute(g, layer_body, &in, h.n, h.list, n_out, out);
        r = take_results(&in, out, n_state, channels, state_out);
    } else {
        dra_build_fail(g, "layer", DRA_ERR_MEMORY, "out of memory");
    }
    free(room);
    free(h.list);
    return r;
}
