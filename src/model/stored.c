/* Rules backwards: which tensors a file gets, and what is in them. */
#include <stdio.h>
#include <stdlib.h>

#include "model/format.h"

/* The parameter in part k of a tensor: its rule is k rows behind that of the first. */
static int part(const dra_specs *params, const dra_rule *first, int64_t l, int k)
{
    char name[DRA_TENSOR_NAME];
    dra_pattern_fill("", first[k].ours, l, name);
    return dra_specs_find(params, name);
}

int dra_stored_list(const dra_format *f, const dra_specs *params, dra_stored **out)
{
    const int   P = dra_specs_count(params);
    dra_stored *list = *out = calloc((size_t)P + 1, sizeof *list);
    int         n = 0;
    for (int i = 0; list && i < P; i++) {
        const dra_spec *p = dra_specs_at(params, i);
        int64_t         l = 0;
        const dra_rule *r = dra_format_rule(f, p->name, &l);
        if (r && r->part) continue; /* lies in the tensor of the first */
        dra_stored *t = &list[n++];
        t->rule = r;
        t->shape = dra_rule_shape(r, &p->shape);
        t->param[0] = i;
        for (int k = 1; r && k < r->parts && k < DRA_PARTS_MOST; k++)
            t->param[k] = part(params, r, l, k);
        if (r)
            dra_rule_name(f, r, l, t->name);
        else
            snprintf(t->name, sizeof t->name, "%s", p->name);
    }
    return list ? n : -1;
}

const dra_real *dra_stored_fill(const dra_stored *t, const dra_specs *params, dra_get_param get,
                                void *user, bool cpp, dra_real *room, dra_error *err)
{
    const dra_rule *r = t->rule;
    if (!r || (!r->turned && !r->parts && !(cpp && r->decay))) return get(user, t->param[0], err);
    for (int k = 0; k == 0 || k < r->parts; k++) {
        const dra_real *from = get(user, t->param[k], err);
        if (!from) return NULL;
        dra_rule_write(r + k, dra_specs_at(params, t->param[k]), from, cpp, room);
    }
    return room;
}
