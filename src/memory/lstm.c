/* lstm: an LSTM cell for each stream whose output is mixed into the old one by gamma.
 *   i, f, o = s(W_i x + b_i + W_h h + b_h)   g = tanh(...)   order i, f, g, o
 *   c' = f c + i g    h' = h + (1 - gamma) (o tanh(c') - h),    item = h'
 * State h_k, c_k (H, D), h_v, c_v (H, E). [Hochreiter, Schmidhuber 1997] */
#include "memory/cell.h"
#include "memory/memory.h"
#include "memory/part.h"

static const dra_part *const parts[] = {&dra_cell_part, NULL};
static const char *const     retrievals[] = {"time",   "window", "slots-own", "slots-all",
                                             "pooled", "none",   "joint",     NULL};

enum { GATES = 4, FORGET = 1 };

static dra_status check_lstm(const dra_memory_sizes *s, dra_error *err)
{
    return dra_cell_check(s, "lstm", err);
}

static void declare_lstm(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                         dra_specs *state)
{
    for (int i = 0; i < s->streams; i++) dra_cell_declare(s, i, GATES, FORGET, prefix, params);
    dra_gamma_declare(s, prefix, "beta", 0, s->stream[0].width, params);
    for (int i = 0; i < s->streams; i++) {
        dra_cell_declare_state(s, i, "h", prefix, state);
        dra_cell_declare_state(s, i, "c", prefix, state);
    }
}

static void step_lstm(dra_graph *g, const dra_memory_call *call, dra_memory_result *out)
{
    for (int i = 0; i < call->sizes->streams; i++) {
        const int64_t   W = call->sizes->stream[i].width;
        const dra_value h = call->state[2 * i], c = call->state[2 * i + 1];
        const dra_value u = dra_cell_gates(g, call, i, call->x[i], h);
        const dra_value in = dra_sigmoid(g, dra_slice(g, u, -1, 0, W));
        const dra_value forget = dra_sigmoid(g, dra_slice(g, u, -1, W, W));
        const dra_value new = dra_tanh(g, dra_slice(g, u, -1, 2 * W, W));
        const dra_value show = dra_sigmoid(g, dra_slice(g, u, -1, 3 * W, W));
        const dra_value cell = dra_add(g, dra_mul(g, forget, c), dra_mul(g, in, new));
        const dra_value shown = dra_mul(g, show, dra_tanh(g, cell));
        out->state[2 * i] = out->item[i] = dra_cell_mix(g, call, i, h, shown);
        out->state[2 * i + 1] = cell;
    }
}

static void chunk_lstm(dra_graph *g, const dra_memory_call *call, dra_memory_result *out)
{
    dra_lstm_cell cell[2];
    dra_value     h[2], c[2];
    for (int i = 0; i < call->sizes->streams; i++) {
        const dra_value *p = call->param + i * DRA_CELL_PARAMS;
        cell[i] = (dra_lstm_cell){.x = dra_cell_linear(g, call, i, DRA_W_IH, call->x[i]),
                                  .w = p[DRA_W_HH],
                                  .b = p[DRA_B_HH],
                                  .beta = dra_cell_betas(g, call, i),
                                  .start_h = call->state[2 * i],
                                  .start_c = call->state[2 * i + 1]};
    }
    dra_lstm(g, call->sizes->streams, cell, call->mark, out->item, h, c);
    for (int i = 0; i < call->sizes->streams; i++) {
        out->state[2 * i] = h[i];
        out->state[2 * i + 1] = c[i];
    }
}

const dra_memory dra_memory_lstm = {
    "lstm",    retrievals, check_lstm,     declare_lstm,
    step_lstm, chunk_lstm, .parts = parts, .chunks = DRA_CHUNK_SKIPS};
