/* gru: a GRU cell for each stream whose new state is mixed into the old by gamma.
 *   r = s(W_ir x + b_ir + W_hr h + b_hr)   z = s(W_iz x + b_iz + W_hz h + b_hz)
 *   n = tanh(W_in x + b_in + r (W_hn h + b_hn))   c = (1-z) n + z h
 *   h' = h + (1 - gamma) (c - h),  item = h'
 * One cell for all heads, or one for each; one gamma for all streams, per head or per channel.
 * State h_k, h_v (H, width). [Cho et al. 2014] */
#include "memory/cell.h"
#include "memory/memory.h"
#include "memory/part.h"

static const dra_part *const parts[] = {&dra_cell_part, NULL};
static const char *const     retrievals[] = {"time",   "window", "slots-own", "slots-all",
                                             "pooled", "none",   "joint",     NULL};

enum { GATES = 3, KEEP = 1 };

static dra_status check_gru(const dra_memory_sizes *s, dra_error *err)
{
    return dra_cell_check(s, "gru", err);
}

static void declare_gru(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                        dra_specs *state)
{
    for (int i = 0; i < s->streams; i++) dra_cell_declare(s, i, GATES, KEEP, prefix, params);
    dra_gamma_declare(s, prefix, "beta", 0, s->stream[0].width, params);
    for (int i = 0; i < s->streams; i++) dra_cell_declare_state(s, i, "h", prefix, state);
}

static void step_gru(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    for (int i = 0; i < c->sizes->streams; i++) {
        const dra_value h = c->state[i];
        r->item[i] = dra_cell_mix(g, c, i, h, dra_cell_gru(g, c, i, c->x[i], h));
        r->state[i] = r->item[i];
    }
}

static void chunk_gru(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    dra_gru_cell cell[2];
    for (int i = 0; i < c->sizes->streams; i++) {
        const dra_value *p = c->param + i * DRA_CELL_PARAMS;
        cell[i] = (dra_gru_cell){.x = dra_cell_linear(g, c, i, DRA_W_IH, c->x[i]),
                                 .w = p[DRA_W_HH],
                                 .b = p[DRA_B_HH],
                                 .beta = dra_cell_betas(g, c, i),
                                 .start = c->state[i]};
    }
    dra_gru(g, c->sizes->streams, cell, c->mark, r->item, r->state);
    for (int i = 0; i < c->sizes->streams && r->trail; i++) r->trail[i] = r->item[i];
}

const dra_memory dra_memory_gru = {
    "gru",    retrievals, check_gru,      declare_gru,
    step_gru, chunk_gru,  .parts = parts, .chunks = DRA_CHUNK_SKIPS | DRA_CHUNK_TRAIL};
