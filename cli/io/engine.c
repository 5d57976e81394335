/* An engine for verbs that read texts. */
#include "engine.h"

dra_status cli_engine_open(const cli_source *s, const cli_model *m, int64_t slots, dra_engine **out,
                           dra_error *err)
{
    const dra_engine_config config = {.model = m->model,
                                      .weights = m->weights,
                                      .device = m->device,
                                      .slots = slots,
                                      .queue = 2 * slots,
                                      .memory_limit = SIZE_MAX / 4,
                                      .state_limit = cli_clamp_limit(s),
                                      .forget = true};
    return dra_engine_create(&config, out, err);
}

dra_status cli_engine_run(dra_engine *e, int64_t left, dra_error *err)
{
    dra_status st = DRA_OK;
    for (;;) {
        const dra_engine_stats stats = dra_engine_stats_of(e);
        bool                   idle;
        if (st != DRA_OK || stats.waiting + stats.active <= left) return st;
        st = dra_engine_step(e, &idle, err);
    }
}
