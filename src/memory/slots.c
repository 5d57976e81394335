/* slots: S places of keys and values for each head, each drawn towards a candidate by its gate.
 *   P_i' = P_i + u_i (c_i - P_i),   Q_i' likewise,   u_i = 1 - g_i the weight of the write
 * gate   fixed: g = gamma_i     routed: u = softmax_i(tau W_w x), with decay g = gamma_i (1 - w_i)
 *        gated: g = sigmoid(W_g x)^(1/8)
 * candidate   token: (k, v)     gru: a GRU from the slot's own content
 * State P (H, S, D), Q (H, S, E). A slot never written is an item of zeros. */
#include <math.h>
#include <string.h>

#include "file/field_rows.h"
#include "memory/cell.h"
#include "memory/memory.h"
#include "memory/part.h"

static const char *const gate_names[] = {"default", "fixed", "routed", "gated", NULL};
static const char *const candidate_names[] = {"token", "gru", NULL};

const dra_field dra_slots_fields[] = {
    {.name = "slots",
     .kind = DRA_FIELD_INT,
     .offset = offsetof(dra_slots_options, count),
     .max = MOST,
     .unset = "1",
     .about = "slots: how many there are for each head"},
    CHOICE(dra_slots_options, gate, gate_names,
           "slots: how a write is shared among them; default: fixed for one slot, else routed"),
    CHOICE(dra_slots_options, candidate, candidate_names,
           "slots: what is written, the token or the output of a GRU"),
    REAL(dra_slots_options, tau, 0, 1e6, "4", "slots: temperature of routed gates"),
    BOOL(dra_slots_options, tau_learned, "slots: tau is trained"),
    BOOL(dra_slots_options, slot_decay, "slots: what is not written fades"),
    {0}};
const dra_part dra_slots_part = {offsetof(dra_memory_config, slots), {dra_slots_fields}};

static const dra_part *const parts[] = {&dra_slots_part, &dra_cell_part, NULL};
static const char *const     retrievals[] = {"slots-own", "slots-all", "pooled", "joint", NULL};

static const double ROOT = 8; /* of the gate's sigmoid */

static int64_t count_slots(const dra_memory_sizes *s)
{
    return s->config->slots.count ? s->config->slots.count : 1;
}

static dra_gate_kind gate_kind(const dra_memory_sizes *s)
{
    if (s->config->slots.gate != DRA_GATE_DEFAULT) return s->config->slots.gate;
    return count_slots(s) > 1 ? DRA_GATE_ROUTED : DRA_GATE_FIXED;
}

static bool has_gammas(const dra_memory_sizes *s) /* has gammas */
{
    return gate_kind(s) == DRA_GATE_FIXED || s->config->slots.slot_decay;
}

static int count_cell_params(const dra_memory_sizes *s) /* parameters before the gate's */
{
    return s->config->slots.candidate == DRA_CANDIDATE_GRU ? s->streams * DRA_CELL_PARAMS : 0;
}

static dra_status check_slots(const dra_memory_sizes *s, dra_error *err)
{
    const dra_memory_config *c = s->config;
    const dra_slots_options *o = &c->slots;
    if (c->joined)
        return dra_fail(err, DRA_ERR_VALUE, "slots: keys and values cannot share one state");
    if (c->gamma.per == DRA_PER_CHANNEL)
        return dra_fail(err, DRA_ERR_VALUE, "slots: gamma is per slot, found per channel");
    if (c->cell.per_head && o->candidate != DRA_CANDIDATE_GRU)
        return dra_fail(err, DRA_ERR_VALUE,
                        "slots: per_head asks for cells, which only candidate "
                        "gru has");
    if (o->slot_decay && gate_kind(s) != DRA_GATE_ROUTED)
        return dra_fail(err, DRA_ERR_VALUE, "slots: slot_decay is for routed gates");
    if ((o->tau != 0 || o->tau_learned) && gate_kind(s) != DRA_GATE_ROUTED)
        return dra_fail(err, DRA_ERR_VALUE, "slots: tau is %g, which only routed gates have",
                        o->tau);
    if (c->cell.recurrent && o->candidate != DRA_CANDIDATE_GRU)
        return dra_fail(err, DRA_ERR_VALUE,
                        "slots: recurrent is %d, but only candidate gru has recurrent matrices",
                        (int)c->cell.recurrent);
    return DRA_OK;
}

/* ---- tensors: cells of the candidates, gammas, weights of the gate, log_tau ------------------ */

static void declare_slots(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                          dra_specs *state)
{
    const int64_t  S = count_slots(s);
    const dra_spec weight = {.shape = DRA_SHAPE(s->H * S, s->C),
                             .fill = DRA_FILL_NORMAL,
                             .number = 1 / sqrt((double)s->C),
                             .name = gate_kind(s) == DRA_GATE_ROUTED ? "W_w" : "W_g"};
    for (int i = 0; i < s->streams && count_cell_params(s); i++)
        dra_cell_declare(s, i, 3, 1, prefix, params);
    if (has_gammas(s)) dra_gamma_declare(s, prefix, "beta", S, 1, params);
    if (gate_kind(s) != DRA_GATE_FIXED) dra_specs_add(params, prefix, &weight);
    if (s->config->slots.tau_learned)
        dra_specs_add(
            params, prefix,
            &(dra_spec){"log_tau", DRA_SHAPE(s->H),
                        .number = log(s->config->slots.tau > 0 ? s->config->slots.tau : 4)});
    dra_specs_add(state, prefix, &(dra_spec){"P", DRA_SHAPE(s->H, S, s->D)});
    dra_specs_add(state, prefix, &(dra_spec){"Q", DRA_SHAPE(s->H, S, s->E)});
}

/* ---- gates: u, the weight of each write, and l = ln(1 - u), both (B, T, H, S) or (H, S) ------ */

enum { U, L };

/* ln(1 - w), where 1 - w is the sum of the other weights if that is the smaller part. */
static dra_value log_rest(dra_graph *g, int64_t S, dra_value w)
{
    const dra_value at = dra_arange(g, S);
    const dra_value others = dra_not_equal(g, dra_reshape(g, at, DRA_SHAPE(S, 1)), at);
    const dra_value rest = dra_matmul(g, w, dra_cast(g, others, DRA_REAL));
    const dra_value half = dra_number(g, 0.5), least = dra_number(g, 1e-30);
    const dra_value near = dra_log1p(g, dra_neg(g, dra_minimum(g, w, half)));
    return dra_select(g, dra_greater(g, w, half), dra_log(g, dra_maximum(g, rest, least)), near);
}

static void fixed_gates(dra_graph *g, const dra_memory_sizes *s, const dra_value *p, dra_value *out)
{
    const dra_value beta = p[count_cell_params(s)];
    out[U] = dra_sigmoid(g, dra_neg(g, beta));
    out[L] = dra_log_sigmoid(g, beta);
}

static void routed_gates(dra_graph *g, const dra_memory_sizes *s, const dra_value *p, dra_value z,
                         dra_value *out)
{
    const double tau = s->config->slots.tau > 0 ? s->config->slots.tau : 4;
    if (s->config->slots.tau_learned) {
        const dra_value log_tau = p[count_cell_params(s) + has_gammas(s) + 1];
        z = dra_mul(g, z, dra_reshape(g, dra_exp(g, log_tau), DRA_SHAPE(s->H, 1)));
    } else {
        z = dra_affine(g, z, tau, 0);
    }
    const dra_value w = dra_softmax(g, z);
    out[U] = w;
    out[L] = log_rest(g, count_slots(s), w);
    if (!s->config->slots.slot_decay) return;
    dra_value decay[2]; /* 1 - gamma (1 - w) = (1 - gamma) + gamma w */
    fixed_gates(g, s, p, decay);
    out[U] = dra_add(g, decay[U], dra_mul(g, dra_sigmoid(g, p[count_cell_params(s)]), w));
    out[L] = dra_add(g, decay[L], out[L]);
}

static int code_slots(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                      const dra_seen *seen, dra_value *out)
{
    if (gate_kind(s) == DRA_GATE_FIXED) return 0;
    dra_value z = dra_linear(g, seen->x, param[count_cell_params(s) + has_gammas(s)],
                             (dra_value){0});
    if (dra_graph_failed(g)) return 0;
    const dra_shape shape = dra_shape_of(g, z);
    z = dra_reshape(g, z, DRA_SHAPE(shape.dim[0], shape.dim[1], s->H, count_slots(s)));
    if (gate_kind(s) == DRA_GATE_ROUTED) {
        routed_gates(g, s, param, z, out);
    } else { /* g = sigmoid(z)^(1/8) */
        out[L] = dra_affine(g, dra_log_sigmoid(g, z), 1 / ROOT, 0);
        out[U] = dra_neg(g, dra_expm1(g, out[L]));
    }
    return 2;
}

static dra_value write_rates(dra_graph *g, const dra_memory_sizes *s, const dra_value *param,
                             const dra_value *made)
{
    dra_value gates[2];
    if (gate_kind(s) != DRA_GATE_FIXED) return made[U];
    fixed_gates(g, s, param, gates);
    return gates[U];
}

static void step_slots(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    const int64_t           S = count_slots(s);
    const bool              fixed = gate_kind(s) == DRA_GATE_FIXED;
    const dra_value rate = fixed ? dra_sigmoid(g, dra_neg(g, c->param[count_cell_params(s)]))
                                 : c->code[U];
    const dra_value u = dra_reshape(g, rate,
                                    fixed ? DRA_SHAPE(s->H, S, 1) : DRA_SHAPE(-1, s->H, S, 1));
    for (int i = 0; i < s->streams; i++) {
        const dra_value old = c->state[i];
        const dra_value new = count_cell_params(s)
                                  ? dra_cell_gru(g, c, i, c->x[i], old)
                                  : dra_reshape(g, c->x[i],
                                                DRA_SHAPE(-1, s->H, 1, s->stream[i].width));
        r->item[i] = r->state[i] = dra_add(g, old, dra_mul(g, u, dra_sub(g, new, old)));
    }
}

/* ---- over time: gru candidates give all slots, token candidates read them themselves --------- */

static void walk_cells(dra_graph *g, const dra_memory_call *c, dra_value u, dra_memory_result *r)
{
    dra_slot_gru_cell cell[2];
    for (int i = 0; i < c->sizes->streams; i++) {
        const dra_value *p = c->param + i * DRA_CELL_PARAMS;
        cell[i] = (dra_slot_gru_cell){.x = dra_cell_linear(g, c, i, DRA_W_IH, c->x[i]),
                                      .w = p[DRA_W_HH],
                                      .b = p[DRA_B_HH],
                                      .u = u,
                                      .start = c->state[i]};
    }
    dra_slot_gru(g, c->sizes->streams, cell, c->mark, r->item, r->state);
}

static bool fuses_slots(const dra_memory_sizes *s)
{
    return count_cell_params(s) || !s->gives_items;
}

static dra_slots_read read_of(const dra_memory_config *c)
{
    const char *how = c->retrieval;
    if (strcmp(how, "pooled") == 0) return DRA_READ_POOLED;
    return strcmp(how, "slots-all") == 0 || c->joint == DRA_SLOTS_ALL ? DRA_READ_ALL : DRA_READ_OWN;
}

static void chunk_slots(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const dra_memory_sizes *s = c->sizes;
    dra_value               gates[2] = {c->code[U], c->code[L]};
    if (gate_kind(s) == DRA_GATE_FIXED) fixed_gates(g, s, c->param, gates);
    for (int i = 0; i < 2; i++) gates[i] = dra_memory_written(g, c, gates[i], 4);
    if (count_cell_params(s)) {
        walk_cells(g, c, gates[U], r);
        return;
    }
    const dra_slots_config config = {.q = c->q,
                                     .k = c->x[0],
                                     .v = c->x[1],
                                     .l = gates[L],
                                     .u = gates[U],
                                     .P = c->state[0],
                                     .Q = c->state[1],
                                     .mark = c->reads,
                                     .read = read_of(s->config),
                                     .lse = &r->lse,
                                     .mean = s->shows_items ? &r->item[1] : NULL};
    r->y = dra_slots(g, &config, &r->state[0], &r->state[1]);
}

const dra_memory dra_memory_slots = {.name = "slots",
                                     .retrievals = retrievals,
                                     .check = check_slots,
                                     .declare = declare_slots,
                                     .step = step_slots,
                                     .chunk = chunk_slots,
                                     .code = code_slots,
                                     .fuses = fuses_slots,
                                     .writes = write_rates,
                                     .parts = parts,
                                     .chunks = DRA_CHUNK_SKIPS};
