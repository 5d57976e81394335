/* How optimizers treat the parameters of a group: learning rate, weight decay, whether Muon updates
 * them. The caller's choice comes before that of RWKV's trainers, and this before the table's. */
#include <math.h>

#include "base/error.h"
#include "train/optimizer.h"

typedef struct group_row {
    bool   decays;
    bool   hidden;        /* matrices of hidden layers */
    double rwkv_rates[2]; /* in the two stages of RWKV's trainers; 0: 1 */
    bool   rwkv_decays;   /* also in these, from version 5 on: where heads are normalised */
} group_row;

/* Weight decay acts on projection matrices, not on norms, biases, decay logits or tables. */
static const group_row rows[DRA_PARAM_GROUPS] = {
    [DRA_PARAM_MATRIX] = {.decays = true, .hidden = true},
    [DRA_PARAM_LOW_RANK] = {.hidden = true},
    [DRA_PARAM_MAP] = {.decays = true},
    [DRA_PARAM_HEAD] = {.decays = true},
    [DRA_PARAM_EMBEDDING] = {.rwkv_decays = true},
    [DRA_PARAM_TIME_DECAY] = {.rwkv_rates = {2, 5}},
    [DRA_PARAM_TIME_FIRST] = {.rwkv_rates = {3, 5}},
    [DRA_PARAM_BONUS] = {.rwkv_rates = {1, 5}},
    [DRA_PARAM_SHIFT] = {.rwkv_rates = {1, 5}},
};

static bool norms_heads(const dra_model *m)
{
    const dra_mixer *first = dra_model_mixer(m, 0);
    return first && dra_mixer_config_of(first)->a.head_norm == DRA_ON;
}

bool dra_group_is_hidden(dra_param_group group) { return rows[group].hidden; }

dra_group_config dra_optimizer_group(const dra_optimizer_config *c, const dra_model *m,
                                     dra_param_group group)
{
    const group_row        *row = &rows[group];
    const dra_group_config *own = &c->group[group];
    const bool   decays = row->decays || (c->rwkv_rates && row->rwkv_decays && norms_heads(m));
    const double rate = c->rwkv_rates ? row->rwkv_rates[c->rwkv_stage == 2] : 0;
    return (dra_group_config){.lr = own->lr != 0 ? fmax(0, own->lr)
                                    : rate > 0   ? rate
                                                 : 1,
                              .wd = own->wd != 0 ? fmax(0, own->wd)
                                    : decays     ? c->decay
                                                 : 0};
}

/* A setting of a group needs a parameter to act on. */
dra_status dra_groups_check(const char *what, const dra_optimizer_config *c, const dra_model *m,
                            dra_error *err)
{
    int64_t count[DRA_PARAM_GROUPS];
    dra_model_groups(m, count);
    for (int k = 1; k < DRA_PARAM_GROUPS; k++) {
        const dra_group_config *g = &c->group[k];
        const char             *name = dra_param_group_name((dra_param_group)k);
        if (!isfinite(g->lr) || !isfinite(g->wd))
            return dra_fail(err, DRA_ERR_VALUE, "%s: group %s: lr %g, wd %g, expected numbers",
                            what, name, g->lr, g->wd);
        if ((g->lr != 0 || g->wd != 0) && !count[k])
            return dra_fail(err, DRA_ERR_VALUE,
                            "%s: group %s is set, but has no trained parameter of the model", what,
                            name);
    }
    return DRA_OK;
}

void dra_model_groups(const dra_model *m, int64_t count[DRA_PARAM_GROUPS])
{
    const dra_specs *params = dra_model_params(m);
    for (int k = 0; k < DRA_PARAM_GROUPS; k++) count[k] = 0;
    for (int i = 0; i < dra_specs_count(params); i++) {
        const dra_spec *p = dra_specs_at(params, i);
        if (!p->frozen) count[p->group] += dra_shape_count(&p->shape);
    }
}
