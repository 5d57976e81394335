/* One memory with its retrieval inside a mixer: names resolved and checked, tensors declared, the
 * graph of remembering and retrieving built. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

/* ---- the table of memories ------------------------------------------------------------------- */

#define DRA_MEMORY(name) extern const dra_memory dra_memory_##name;
#include "memory/memory.def"
#undef DRA_MEMORY

#define DRA_MEMORY(name) &dra_memory_##name,
static const dra_memory *const table[] = {
#include "memory/memory.def"
};
#undef DRA_MEMORY

const dra_memory *dra_memory_at(size_t i)
{
    return i < sizeof table / sizeof *table ? table[i] : NULL;
}

const dra_memory *dra_memory_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static const char *join_names(const char *const *name, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (; *name && at < size; name++) {
        const size_t n = strlen(*name) + (at ? 2 : 0);
        if (at + n + 1 > size) break;
        if (at) memcpy(text + at, ", ", 2);
        memcpy(text + at + (at ? 2 : 0), *name, strlen(*name) + 1);
        at += n;
    }
    return text;
}

/* A table from outside may be wrong. */
static dra_status check_table(const dra_memory *m, dra_error *err)
{
    if (!m->name || !m->retrievals || !m->retrievals[0] || !m->declare || !m->step)
        return dra_fail(err, DRA_ERR_VALUE,
                        "memory %s: a table needs name, retrievals, declare, step",
                        m->name ? m->name : "without a name");
    for (const char *const *r = m->retrievals; *r; r++)
        if (!dra_retrieval_find(*r))
            return dra_fail(err, DRA_ERR_NAME, "memory %s: no retrieval is called %.40s", m->name,
                            *r);
    return DRA_OK;
}

static dra_status find_memory(dra_branch *b, dra_error *err)
{
    const char *all[sizeof table / sizeof *table + 1] = {0};
    char        text[120];
    b->memory = b->config.own ? b->config.own
                              : dra_memory_find(b->config.memory ? b->config.memory : "append");
    if (b->memory) return check_table(b->memory, err);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) all[i] = table[i]->name;
    return dra_fail(err, DRA_ERR_NAME, "memory is %.40s, expected one of %s", b->config.memory,
                    join_names(all, text, sizeof text));
}

static dra_status find_retrieval(dra_branch *b, dra_error *err)
{
    const char *const *legal = b->memory->retrievals;
    char               text[120];
    if (!b->config.retrieval) b->config.retrieval = legal[0];
    b->retrieval = dra_retrieval_find(b->config.retrieval);
    for (; *legal; legal++)
        if (strcmp(*legal, b->config.retrieval) == 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_NAME, "retrieval of %s is %.40s, expected one of %s",
                    b->memory->name, b->config.retrieval,
                    join_names(b->memory->retrievals, text, sizeof text));
}

static dra_status check_window(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    const char              *name = b->memory->name, *how = c->retrieval;
    const bool               window = strcmp(how, "window") == 0, joint = strcmp(how, "joint") == 0;
    if (c->window && !window && !joint)
        return dra_fail(err, DRA_ERR_VALUE, "%s: window is %lld, but retrieval %s has none", name,
                        (long long)c->window, how);
    if (c->window < window)
        return dra_fail(err, DRA_ERR_VALUE, "%s: window is %lld, expected %d or more", name,
                        (long long)c->window, window);
    return DRA_OK;
}

/* Numbers and choices in their ranges, and only those that the memory has. */
static dra_status check_options(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    const struct {
        const char *name;
        int64_t     value, most;
        uint32_t    option; /* 0: every memory has it */
    } options[] = {
        {"head_norm", (int64_t)c->head_norm, DRA_OFF, 0},
        {"joint", (int64_t)c->joint, DRA_SLOTS_ALL, 0},
        {"timescales", c->timescales, DRA_SIZE_MOST, DRA_OPTION_TIMESCALES},
        {"modes", c->modes, DRA_SIZE_MOST, DRA_OPTION_MODES},
        {"per_head", c->per_head, true, DRA_OPTION_CELLS},
        {"phi", (int64_t)c->phi, DRA_PHI_IDENTITY, DRA_OPTION_PHI},
        {"features", c->features, DRA_SIZE_MOST, DRA_OPTION_PHI},
        {"normalise", (int64_t)c->normalise, DRA_OFF, DRA_OPTION_PHI},
        {"decay", (int64_t)c->decay, DRA_DECAY_DATA, DRA_OPTION_DECAY},
        {"slots", c->slots, DRA_SIZE_MOST, DRA_OPTION_SLOTS},
        {"gate", (int64_t)c->gate, DRA_GATE_GATED, DRA_OPTION_SLOTS},
        {"candidate", (int64_t)c->candidate, DRA_CANDIDATE_GRU, DRA_OPTION_SLOTS},
        {"tau", c->tau != 0 || c->tau_learned, true, DRA_OPTION_SLOTS},
        {"slot_decay", c->slot_decay, true, DRA_OPTION_SLOTS},
        {"pi", c->pi, true, DRA_OPTION_SLOTS},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const char   *name = options[i].name;
        const int64_t value = options[i].value, most = options[i].most;
        if (value < 0 || value > most)
            return dra_fail(err, DRA_ERR_VALUE, "%s: %s is %lld, expected 0 to %lld",
                            b->memory->name, name, (long long)value, (long long)most);
        if (value && options[i].option & ~b->memory->options)
            return dra_fail(err, DRA_ERR_VALUE, "%s: %s is set, which this memory does not have",
                            b->memory->name, name);
    }
    return DRA_OK;
}

static dra_status check_numbers(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    const char              *name = b->memory->name;
    if (c->dim < 0 || c->dim > DRA_SIZE_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "%s: dim is %lld, expected 0 to %d", name,
                        (long long)c->dim, DRA_SIZE_MOST);
    if (c->joint && strcmp(c->retrieval, "joint") != 0)
        return dra_fail(err, DRA_ERR_VALUE, "%s: joint is %d, but retrieval is %s", name,
                        (int)c->joint, c->retrieval);
    if (c->dim > 0 && !c->joined)
        return dra_fail(err, DRA_ERR_VALUE, "%s: dim is %lld, which only a joined state has", name,
                        (long long)c->dim);
    dra_status st = check_options(b, err);
    if (st == DRA_OK) st = check_window(b, err);
    return st == DRA_OK ? dra_gamma_check(&c->gamma, err) : st;
}

dra_status dra_branch_open(dra_branch *b, const dra_mixer_config *mixer,
                           const dra_memory_config *config, dra_error *err)
{
    b->config = *config;
    dra_status st = find_memory(b, err);
    if (st == DRA_OK) st = find_retrieval(b, err);
    if (st == DRA_OK) st = check_numbers(b, err);
    if (st != DRA_OK) return st;
    /* A sum without a denominator grows with the length: its heads are normalised. */
    if (b->config.head_norm == DRA_DEFAULT && b->memory->options & DRA_OPTION_PHI &&
        (b->config.normalise == DRA_OFF || b->config.phi == DRA_PHI_IDENTITY))
        b->config.head_norm = DRA_ON;
    const int64_t D = mixer->key_dim, E = mixer->value_dim;
    b->sizes = (dra_memory_sizes){.C = mixer->dim,
                                  .H = mixer->heads,
                                  .D = D,
                                  .E = E,
                                  .streams = 2,
                                  .stream = {{"k", D}, {"v", E}},
                                  .shows_items = mixer->memory_residual,
                                  .config = &b->config};
    if (config->joined) {
        b->sizes.streams = 1;
        b->sizes.stream[0] = (dra_stream){"m", config->dim ? config->dim : D + E};
    }
    return b->memory->check ? b->memory->check(&b->sizes, err) : DRA_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Behind the memory's own: maps of a joined state, those of slots, gains of the head norm. */
enum { JOIN, KAPPA, NU, MAPS };
enum { PI_K, PI_V, PIS };

static bool has_maps(const dra_branch *b) { return b->config.joined && b->config.dim > 0; }
static int  pi_at(const dra_branch *b) { return b->n_params + (has_maps(b) ? MAPS : 0); }
static int  gain_at(const dra_branch *b) { return pi_at(b) + (b->config.pi ? PIS : 0); }

static void declare_maps(const dra_branch *b, dra_specs *params)
{
    const dra_memory_sizes *s = &b->sizes;
    const int64_t           R = s->stream[0].width, W = s->D + s->E;
    const struct {
        const char *name;
        int64_t     out, in;
    } maps[MAPS] = {{"join", R, W}, {"kappa", s->D, R}, {"nu", s->E, R}};
    for (int i = 0; i < MAPS; i++)
        dra_specs_add(params, b->prefix,
                      &(dra_spec){.name = maps[i].name,
                                  .shape = DRA_SHAPE(s->H, maps[i].out, maps[i].in),
                                  .fill = DRA_FILL_NORMAL,
                                  .number = 1 / sqrt((double)maps[i].in)});
}

/* Starts as the identity. */
static void declare_pi(const dra_branch *b, const char *name, int64_t W, dra_specs *params)
{
    double *eye = calloc((size_t)(W * W) + 1, sizeof *eye);
    for (int64_t i = 0; eye && i < W; i++) eye[i * W + i] = 1;
    dra_specs_add(params, b->prefix,
                  &(dra_spec){name, DRA_SHAPE(W, W), DRA_FILL_VALUES, .values = eye});
    free(eye);
}

void dra_branch_declare(dra_branch *b, dra_specs *params, dra_specs *state)
{
    const dra_shape all = DRA_SHAPE((b->retrieval->pooled ? 1 : b->sizes.H) * b->sizes.E);
    b->params = dra_specs_count(params);
    b->states = dra_specs_count(state);
    b->memory->declare(&b->sizes, b->prefix, params, state);
    b->n_params = dra_specs_count(params) - b->params;
    b->n_states = dra_specs_count(state) - b->states;
    b->reads = dra_specs_count(state);
    b->specs = state;
    if (b->retrieval->declare) b->retrieval->declare(&b->sizes, b->prefix, state);
    if (has_maps(b)) declare_maps(b, params);
    if (b->config.pi) declare_pi(b, "pi_k", b->sizes.D, params);
    if (b->config.pi) declare_pi(b, "pi_v", b->sizes.E, params);
    if (b->config.head_norm != DRA_ON) return;
    dra_specs_add(params, b->prefix, &(dra_spec){"hn_g", all, .number = 1});
    dra_specs_add(params, b->prefix, &(dra_spec){"hn_b", all});
}

/* ---- the graph ------------------------------------------------------------------------------- */

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

/* What the memory is fed: keys and values, or both as one stream. */
static void feed(dra_graph *g, const dra_branch *b, const dra_value *param, const dra_value qkv[3],
                 dra_value x[2])
{
    x[0] = qkv[1];
    x[1] = qkv[2];
    if (!b->config.joined) return;
    x[0] = dra_concat(g, 2, qkv + 1, -1);
    if (has_maps(b)) x[0] = dra_head_linear(g, x[0], param[b->n_params + JOIN]);
}

/* Keys and values of the items of one stream. */
static void split(dra_graph *g, const dra_branch *b, const dra_value *param, dra_value item[2])
{
    const dra_memory_sizes *s = &b->sizes;
    const dra_value         m = item[0];
    if (!b->config.joined) return;
    if (has_maps(b)) {
        item[0] = dra_head_linear(g, m, param[b->n_params + KAPPA]);
        item[1] = dra_head_linear(g, m, param[b->n_params + NU]);
    } else {
        item[0] = dra_slice(g, m, -1, 0, s->D);
        item[1] = dra_slice(g, m, -1, s->D, s->E);
    }
}

static dra_value normalise(dra_graph *g, const dra_branch *b, const dra_value *param, dra_value y)
{
    if (b->config.head_norm != DRA_ON || dra_graph_failed(g)) return y;
    const dra_shape  heads = dra_shape_of(g, y);
    const dra_value *gain = param + gain_at(b);
    y = dra_reshape(g, y, DRA_SHAPE(heads.dim[0], heads.dim[1], heads.dim[2] * heads.dim[3]));
    return dra_reshape(g, dra_group_norm(g, y, heads.dim[2], gain[0], gain[1], 1e-5), heads);
}

/* The value side of the memory after each token, (B, T, H, E): the mean over slots. */
static dra_value value_side(dra_graph *g, dra_value item)
{
    if (dra_graph_failed(g) || !item.id || dra_shape_of(g, item).rank < 5) return item;
    const int64_t S = dra_shape_of(g, item).dim[3];
    return dra_affine(g, dra_sum(g, item, (dra_axes){1, {3}, false}), 1 / (double)S, 0);
}

static bool fuses(const dra_branch *b)
{
    return b->memory->chunk && !b->config.steps &&
           (!b->memory->fuses || b->memory->fuses(&b->sizes));
}

dra_value dra_branch_build(dra_graph *g, const dra_branch *b, const dra_module_call *call,
                           bool rotary, dra_value x, const dra_value qkv[3], dra_value *memory,
                           dra_value *state_out)
{
    const dra_value  *param = call->param + b->params, *state = call->state + b->states;
    dra_memory_result r = {.state = state_out + b->states};
    dra_memory_call   c = {.sizes = &b->sizes, .q = qkv[0], .param = param, .state = state};
    c.mark = call->tokens.mark;
    feed(g, b, param, qkv, c.x);
    dra_value pi_v = {0};
    if (b->config.pi) { /* q.(pi_k P) = (pi_k^T q).P */
        pi_v = param[pi_at(b) + PI_V];
        c.q = dra_linear(g, c.q, dra_transpose(g, param[pi_at(b) + PI_K], 0, 1), (dra_value){0});
    }
    if (b->memory->code) c.codes = b->memory->code(g, &b->sizes, param, x, c.code);
    if (fuses(b))
        b->memory->chunk(g, &c, &r);
    else
        dra_memory_scan(g, b, &c, &r);
    if (!r.y.id) split(g, b, param, r.item);
    *memory = value_side(g, r.item[1]);
    const dra_read_call read = {.sizes = &b->sizes,
                                .tokens = &call->tokens,
                                .rotary = rotary,
                                .q = qkv[0],
                                .k = qkv[1],
                                .v = qkv[2],
                                .key = r.item[0],
                                .value = r.item[1],
                                .slot_q = c.q,
                                .pi_v = pi_v,
                                .state = call->state + b->reads};
    dra_value           y = r.y;
    if (!y.id)
        y = b->retrieval->read(g, &read, state_out + b->reads);
    else if (pi_v.id)
        y = dra_linear(g, y, pi_v, (dra_value){0});
    return normalise(g, b, param, y);
}
