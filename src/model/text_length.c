/* How long a text may be: as many tokens as there are learned positions, unless they are those of a
 * segment, which begin anew. */
#include "base/error.h"
#include "model/model.h"

int64_t dra_model_positions(const dra_model *m)
{
    const dra_model_config *c = dra_model_config_of(m);
    return c->positions == DRA_POSITIONS_LEARNED && !c->xl.memory ? c->context : INT32_MAX;
}

dra_status dra_model_check_positions(const dra_model *m, int64_t before, int64_t n, dra_error *err)
{
    const int64_t most = dra_model_positions(m);
    if (n <= most - before) return DRA_OK;
    if (before == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "the text has %lld tokens, this model has positions for %lld; nothing is "
                        "cut off",
                        (long long)n, (long long)most);
    return dra_fail(err, DRA_ERR_VALUE,
                    "%lld tokens after %lld: this model has positions for %lld; nothing is cut off",
                    (long long)n, (long long)before, (long long)most);
}
