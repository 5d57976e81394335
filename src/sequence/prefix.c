/* Prefixes: the first tokens of a sequence, which all see each other. Their outputs depend on the
 * last of them, so a call has all of a prefix or none of it. */
#include "base/error.h"
#include "sequence/states.h"

int64_t dra_prefix_items(const int32_t *mark, int64_t n)
{
    int64_t items = 0;
    for (int64_t t = 0; t < n; t++) {
        if (t > 0 && mark[t] & DRA_MARK_RESET) break;
        if (mark[t] & DRA_MARK_PAD) continue;
        if (!(mark[t] & DRA_MARK_PREFIX)) break;
        items += !(mark[t] & DRA_MARK_SKIP);
    }
    return items;
}

/* The first token of a row that is marked but outside of a prefix; T: there is none. */
static int64_t find_stray(const int32_t *mark, int64_t T, bool begun)
{
    bool inside = !begun;
    for (int64_t t = 0; t < T; t++) {
        if (mark[t] & DRA_MARK_RESET) inside = true;
        if (mark[t] & DRA_MARK_PAD) continue;
        if (mark[t] & DRA_MARK_PREFIX && !inside) return t;
        inside = inside && mark[t] & DRA_MARK_PREFIX;
    }
    return T;
}

dra_status dra_prefix_check(const char *who, const dra_module *m, const dra_states *s, int64_t B,
                            int64_t T, const int32_t *mark, dra_error *err)
{
    bool any = false;
    for (int64_t i = 0; mark && i < B * T && !any; i++) any = mark[i] & DRA_MARK_PREFIX;
    if (!any) return DRA_OK;
    if (!m->prefix)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%s: the module has no prefixes: expected a model with visible prefix",
                        who);
    for (int64_t b = 0; b < B; b++) {
        const int64_t t = find_stray(mark + b * T, T, s && s->tokens[b] > 0);
        if (t < T)
            return dra_fail(
                err, DRA_ERR_VALUE,
                "%s: row %lld, token %lld: a prefix is read in one call, from the first "
                "token of its sequence on",
                who, (long long)b, (long long)t);
    }
    return DRA_OK;
}
