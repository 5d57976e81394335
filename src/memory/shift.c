/* Token shift of a mixer: what is made of x also sees the token before, in equal parts or each in
 * its own. State x: the last token. */
#include "file/field_rows.h"
#include "memory/mixer.h"
#include "memory/part.h"

DRA_CHOICES(shifts, DRA_SHIFT_COUNT, "none", "half", "mix", "lerp", "data");

const dra_field dra_shift_fields[] = {
    CHOICE(dra_mixer_config, shift, shifts,
           "how queries, keys and values also see the token before"),
    {0}};
const dra_field dra_shift_late_fields[] = {
    INT(dra_mixer_config, shift_rank, "none", "shift data: rank of its maps"), {0}};

dra_status dra_shift_check(const dra_mixer_config *c, dra_error *err)
{
    const bool ranked = c->shift == DRA_SHIFT_DATA;
    if (ranked && !c->shift_rank)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: shift_rank is 0, expected 1 to %d",
                        DRA_SIZE_MOST);
    if (!ranked && c->shift_rank)
        return dra_fail(err, DRA_ERR_VALUE,
                        "mixer: shift_rank is %lld, but only shift data has one",
                        (long long)c->shift_rank);
    return DRA_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Which of the mixes the mixer has use for. Of shift mix, which is older than most of them, only
 * gates that are younger have one. */
static bool has_mix(const dra_mixer *m, int mix)
{
    bool decay = false, rate = false;
    if (m->config.shift == DRA_SHIFT_MIX && mix >= DRA_MIX_DECAY)
        return mix == DRA_MIX_GATE && m->config.gate_values >= DRA_GATE_SILU;
    for (int i = 0; i < m->branches; i++) {
        decay = decay || m->branch[i].config.lambda.decay == DRA_DECAY_DATA;
        rate = rate || dra_memory_has(m->branch[i].memory, &dra_delta_part);
    }
    return mix == DRA_MIX_DECAY  ? decay
           : mix == DRA_MIX_RATE ? rate
           : mix == DRA_MIX_GATE ? m->config.gate_values != DRA_GATE_NONE
                                 : true;
}

static void declare_mixes(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    for (int i = DRA_MIX_DECAY; i < DRA_MIXES; i++)
        if (has_mix(m, i)) dra_mixer_add_constant(m, dra_mix_mu(i), DRA_SHAPE(c->dim), 0.5);
    if (c->shift != DRA_SHIFT_DATA) return;
    dra_mixer_add_constant(m, DRA_MU_X, DRA_SHAPE(c->dim), 0.5);
    for (int i = 0; i < DRA_MIXES; i++) {
        if (!has_mix(m, i)) continue;
        dra_mixer_add_constant(m, DRA_MU_1 + i, DRA_SHAPE(c->shift_rank, c->dim), 0);
        dra_mixer_add(m, DRA_MU_2 + i, DRA_SHAPE(c->dim, c->shift_rank), DRA_FILL_UNIFORM, 0.01);
    }
}

void dra_shift_declare(dra_mixer *m)
{
    for (int i = DRA_MU_Q; i <= DRA_MU_V && m->config.shift >= DRA_SHIFT_MIX; i++)
        dra_mixer_add_constant(m, i, DRA_SHAPE(m->config.dim), 0.5);
}

void dra_shift_declare_others(dra_mixer *m)
{
    const dra_mixer_config *c = &m->config;
    if (c->shift >= DRA_SHIFT_MIX) declare_mixes(m);
    m->shift = c->shift != DRA_SHIFT_NONE ? dra_specs_count(m->state) : -1;
    if (m->shift >= 0) dra_specs_add(m->state, NULL, &(dra_spec){"x", DRA_SHAPE(c->dim)});
}

/* ---- how it is built ------------------------------------------------------------------------- */

dra_value dra_mix_two(dra_graph *g, dra_value mu, dra_value x, dra_value before)
{
    const dra_value rest = dra_affine(g, mu, -1, 1);
    return dra_add(g, dra_mul(g, x, mu), dra_mul(g, before, rest));
}

/* x + mu (before - x) for each of what is made of x; with `data`, mu + B tanh(A z) of
 * z = x + mu_x (before - x) in place of mu. */
static void lerp(const dra_mixing *b, dra_value x, dra_value before, bool data, dra_value *out)
{
    dra_graph      *g = b->g;
    const dra_value none = {0}, dx = dra_sub(g, before, x);
    const dra_value z = data ? dra_add(g, x, dra_mul(g, dx, dra_mixing_param(b, DRA_MU_X))) : none;
    for (int i = 0; i < DRA_MIXES; i++) {
        dra_value mu = dra_mixing_param(b, dra_mix_mu(i));
        if (!mu.id) continue;
        if (data) {
            const dra_value t = dra_tanh(g,
                                         dra_linear(g, z, dra_mixing_param(b, DRA_MU_1 + i), none));
            mu = dra_add(g, mu, dra_linear(g, t, dra_mixing_param(b, DRA_MU_2 + i), none));
        }
        out[i] = dra_add(g, x, dra_mul(g, dx, mu));
    }
}

void dra_shift_build(const dra_mixing *b, dra_value x, dra_value out[DRA_MIXES])
{
    dra_graph           *g = b->g;
    const int64_t        C = b->m->config.dim;
    const dra_shift_kind kind = b->m->config.shift;
    const int            at = b->m->shift;
    for (int i = 0; i < DRA_MIXES; i++) out[i] = x;
    if (at < 0) return;
    const dra_value before = dra_tokens_shift(g, &b->call->tokens, x, b->call->state[at],
                                              &b->state_out[at]);
    if (kind == DRA_SHIFT_HALF) { /* the same for all */
        const dra_value parts[] = {dra_slice(g, before, -1, 0, C / 2),
                                   dra_slice(g, x, -1, C / 2, C - C / 2)};
        for (int i = 0; i < DRA_MIXES; i++) out[i] = i ? out[0] : dra_concat(g, 2, parts, -1);
        return;
    }
    if (kind != DRA_SHIFT_MIX) {
        lerp(b, x, before, kind == DRA_SHIFT_DATA, out);
        return;
    }
    for (int i = 0; i < DRA_MIXES; i++) {
        const dra_value mu = dra_mixing_param(b, dra_mix_mu(i));
        if (mu.id) out[i] = dra_mix_two(g, mu, x, before);
    }
}
