/* Transformer-XL [Dai et al. 2019]: what an attention sublayer was fed in earlier segments.
 *
 * Each has a table X (M + L, C): M rows of memory, then those of the segment, as they came in,
 * before any norm. Where a segment starts, its memory is the last M rows that were there. With
 * `down` s, sublayer l takes them from sublayer l + s, around the end (Ding et al. 2020), so that
 * rows of k segments ago are those of sublayer l + k s. No gradient passes from memory to what it
 * was. */
#include "model/xl.h"

#include "base/error.h"
#include "base/shape.h"
#include "file/field_rows.h"
#include "model/parts.h"

const dra_field dra_xl_fields[] = {
    INT(dra_xl_config, memory, "none",
        "Transformer-XL: positions of earlier segments that attention sees"),
    INT(dra_xl_config, down, "0", "it reads what came into the sublayer this many above"),
    {0},
};

dra_status dra_xl_check(const dra_model_config *c, dra_error *err)
{
    if (c->xl.memory < 0 || c->xl.memory > 1 << 20)
        return dra_fail(err, DRA_ERR_VALUE, "model: xl.memory is %lld, expected 0 to 1048576",
                        (long long)c->xl.memory);
    if (!c->xl.memory && c->xl.down)
        return dra_fail(err, DRA_ERR_VALUE, "model: xl.down without xl.memory");
    if (!c->xl.memory) return DRA_OK;
    if (c->context_stack) /* later segments would have to be read without it */
        return dra_fail(err, DRA_ERR_VALUE, "model: xl.memory and a context exclude each other");
    if (c->visible == DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: xl.memory and visible bidirectional exclude each "
                        "other");
    if (c->memory_tokens)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: xl.memory and memory_tokens exclude each "
                        "other");
    return DRA_OK;
}

int dra_xl_declare(const dra_sublayer_config *c, dra_specs *state)
{
    const int64_t M = c->mixer.xl_memory, L = c->mixer.xl_segment;
    const int     at = dra_specs_count(state);
    if (!M || c->kind != DRA_SUBLAYER_MIXER) return -1;
    dra_specs_add(
        state, NULL,
        &(dra_spec){"X", DRA_SHAPE(M + L, c->mixer.dim), .table = true, .detached = true});
    return at;
}

dra_value dra_xl_turn(dra_graph *g, const dra_tokens *tokens, dra_value table, dra_value from)
{
    const dra_token_segments *p = &tokens->segments;
    dra_value                 memory = {0};
    if (p->seen) memory = dra_slice(g, from, 1, p->length, p->memory);
    return dra_tokens_apply_event(g, tokens, table, memory);
}

/* The state X of number i of the sublayers that have one; -1: there are fewer. */
static int state_of(const dra_model *m, int64_t i)
{
    const dra_stack *s = &m->stack;
    for (int k = 0; k < s->n_steps; k++) {
        const int at = dra_sublayer_xl(dra_stack_at(s, k));
        if (at >= 0 && i-- == 0) return s->step[k].states + at;
    }
    return -1;
}

static int64_t count_memories(const dra_model *m)
{
    int64_t n = 0;
    for (int k = 0; k < m->stack.n_steps; k++)
        n += dra_sublayer_xl(dra_stack_at(&m->stack, k)) >= 0;
    return n;
}

dra_status dra_xl_check_stack(const dra_model *m, dra_error *err)
{
    const int64_t n = count_memories(m);
    if (m->config.xl.down <= n) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "model: xl.down is %lld, expected at most %lld attention sublayers",
                    (long long)m->config.xl.down, (long long)n);
}

const dra_value *dra_xl_turn_all(dra_graph *g, const dra_model *m, const dra_module_call *call,
                                 dra_value *room)
{
    const dra_tokens *t = &call->tokens;
    const int64_t     n = count_memories(m);
    if (!m->config.xl.memory || t->fresh || !t->segments.max_event) return call->state;
    for (int i = 0; i < dra_specs_count(m->state); i++) room[i] = call->state[i];
    for (int64_t i = 0; i < n; i++) {
        const int at = state_of(m, i), from = state_of(m, (i + m->config.xl.down) % n);
        room[at] = dra_xl_turn(g, t, call->state[at], call->state[from]);
    }
    return room;
}

dra_value dra_xl_memory(dra_graph *g, const dra_tokens *tokens, dra_value table, dra_value x,
                        dra_value *state_out)
{
    const dra_token_segments *p = &tokens->segments;
    *state_out = dra_write_rows(g, table, x, p->rows.at);
    if (!p->seen) return (dra_value){0};
    return dra_stop_gradient(g, dra_slice(g, table, 1, p->memory - p->seen, p->seen));
}
