/* The norm of what the heads of a mixer answer, x / sqrt(mean x^2 + eps) over groups of channels,
 * before its gate (gated DeltaNet) or after it (Mamba-2). */
#include "file/field_rows.h"
#include "memory/mixer.h"
#include "memory/part.h"

DRA_CHOICES(places, DRA_OUT_NORM_COUNT, "none", "before", "after");

#define OUT_NORM(f) offsetof(dra_out_norm_options, f)
const dra_field dra_out_norm_fields[] = {
    {.name = "out_norm",
     .kind = DRA_FIELD_CHOICE,
     .offset = OUT_NORM(place),
     .choices = places,
     .about = "an RMS norm of what heads answer, before gate_values or after it"},
    {.name = "out_norm_groups",
     .kind = DRA_FIELD_INT,
     .offset = OUT_NORM(groups),
     .max = MOST,
     .unset = "heads",
     .about = "out_norm: in how many groups of channels"},
    {.name = "out_norm_gains",
     .kind = DRA_FIELD_BOOL,
     .unset = "false",
     .offset = OUT_NORM(gains),
     .about = "out_norm: each channel has a gain; else groups share theirs"},
    {.name = "out_norm_eps",
     .kind = DRA_FIELD_REAL,
     .offset = OUT_NORM(eps),
     .max = 1,
     .unset = "1e-5",
     .about = "out_norm: its epsilon"},
    {0}};

dra_status dra_out_norm_check(const dra_mixer_config *c, dra_error *err)
{
    const dra_out_norm_options *o = &c->out_norm;
    const char                 *said = o->groups    ? "out_norm_groups"
                                       : o->gains   ? "out_norm_gains"
                                       : o->eps > 0 ? "out_norm_eps"
                                                    : NULL;
    if (!o->place && said)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: %s is set, but there is no out_norm", said);
    if (o->place == DRA_OUT_NORM_AFTER && c->gate_values == DRA_GATE_NONE)
        return dra_fail(err, DRA_ERR_VALUE, "mixer: out_norm is after, but there is no gate");
    if (o->place && (c->a.head_norm == DRA_ON || c->b.head_norm == DRA_ON))
        return dra_fail(err, DRA_ERR_VALUE, "mixer: out_norm and head_norm exclude each other");
    return DRA_OK;
}

static int64_t count_groups(const dra_mixer *m)
{
    const int64_t own = m->config.out_norm.groups;
    return own ? own : dra_mixer_answer_width(m) / m->config.value_dim;
}

dra_status dra_out_norm_check_width(const dra_mixer *m, dra_error *err)
{
    const int64_t all = dra_mixer_answer_width(m), groups = count_groups(m);
    if (!m->config.out_norm.place || all % groups == 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "mixer: out_norm_groups %lld do not divide the %lld channels of all heads",
                    (long long)groups, (long long)all);
}

void dra_out_norm_declare(dra_mixer *m)
{
    const int64_t all = dra_mixer_answer_width(m);
    if (!m->config.out_norm.place) return;
    dra_mixer_add_constant(m, DRA_GAIN_OUT,
                           DRA_SHAPE(m->config.out_norm.gains ? all : all / count_groups(m)), 1);
}

dra_value dra_out_norm_build(const dra_mixing *b, dra_out_norm_place here, dra_value y)
{
    const dra_out_norm_options *o = &b->m->config.out_norm;
    const dra_value             gain = dra_mixing_param(b, DRA_GAIN_OUT), none = {0};
    const int64_t               B = b->call->tokens.B, T = b->call->tokens.T;
    if (o->place != here || dra_graph_failed(b->g)) return y;
    const dra_shape s = dra_shape_of(b->g, y);
    y = dra_reshape(b->g, y, DRA_SHAPE(B, T, count_groups(b->m), -1));
    y = dra_rms_norm(b->g, y, o->gains ? none : gain, o->eps > 0 ? o->eps : 1e-5);
    y = dra_reshape(b->g, y, s);
    return o->gains ? dra_mul(b->g, y, gain) : y;
}
