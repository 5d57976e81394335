/* Models of which only the start of their states learns. */
#include "base/error.h"
#include "model/model.h"
#include "sequence/module.h"
#include "sequence/states.h"

/* Items come one for each token, tables are rows of them. */
static bool has_start(const dra_spec *p) { return !dra_spec_has_rows(p) && !p->table; }

dra_status dra_start_declare(dra_model *m, dra_error *err)
{
    int n = 0;
    if (m->config.visible == DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE, "start: the model is an encoder, which has no state");
    dra_specs_freeze(m->params);
    for (int i = 0; i < dra_specs_count(m->state); i++) {
        const dra_spec *p = dra_specs_at(m->state, i);
        if (p->maximum)
            return dra_fail(err, DRA_ERR_VALUE,
                            "start: state %s is a running maximum, which starts at nothing else",
                            p->name);
        if (!has_start(p)) continue;
        dra_specs_add_start(m->params, m->state, i);
        n++;
    }
    if (n) return DRA_OK;
    return dra_fail(
        err, DRA_ERR_VALUE,
        "start: no layer has a memory of fixed size, whose state could start elsewhere");
}
