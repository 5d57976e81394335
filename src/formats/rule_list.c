/* Rules that are put together for a config: see rule_list.h. */
#include "formats/rule_list.h"

#include "base/error.h"

dra_status dra_rules_open(dra_name_rules *out, dra_rule_list *list, dra_error *err)
{
    *list = (dra_rule_list){.out = out};
    list->row = dra_arena_alloc(&out->arena, (DRA_RULES_MOST + 1) * sizeof *list->row);
    out->row = list->row;
    return list->row ? DRA_OK
                     : dra_fail(err, DRA_ERR_MEMORY, "%s: out of memory", out->format->name);
}

dra_name_rule *dra_rules_add(dra_rule_list *list, const char *ours, const char *theirs)
{
    dra_name_rule *r = &list->row[list->n];
    if (list->n < DRA_RULES_MOST) list->n++;
    *r = (dra_name_rule){ours, theirs, .mixers = list->mixers, .mixer = list->mixer};
    return r;
}

void dra_rules_add_parts(dra_rule_list *list, const char *theirs, int n, const char *const *ours,
                         const int64_t *rows, int64_t blocks, int64_t width)
{
    const int64_t *kept = dra_arena_copy(&list->out->arena, rows, (size_t)n * sizeof *rows);
    int64_t        all = 0;
    for (int i = 0; i < n; i++) all += blocks * rows[i];
    for (int i = 0; i < n && kept; i++) {
        dra_name_rule *r = dra_rules_add(list, ours[i], theirs);
        r->part = i, r->parts = n;
        r->rows = kept, r->blocks = blocks;
        if (width) r->shape = DRA_SHAPE(all, 1, width);
    }
}
