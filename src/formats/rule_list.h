/* Rules that are put together for a config, one after the other. */
#ifndef DRA_SRC_FORMATS_RULE_LIST_H
#define DRA_SRC_FORMATS_RULE_LIST_H

#include "formats/format.h"

enum { DRA_RULES_MOST = 80 };

typedef struct dra_rule_list {
    dra_name_rules *out; /* whose arena keeps what rules point to */
    dra_name_rule  *row; /* room for DRA_RULES_MOST, all zero, of which n are used */
    int             n;
    const int64_t  *mixers; /* of layers, and of which of them the rules are that follow; or NULL */
    int64_t         mixer;
} dra_rule_list;

/* An empty list in the arena of `out`, whose rows it becomes. */
dra_status     dra_rules_open(dra_name_rules *out, dra_rule_list *list, dra_error *err);
dra_name_rule *dra_rules_add(dra_rule_list *list, const char *ours, const char *theirs);
/* Parameters that share the rows of one tensor in turns, see dra_name_rule.rows. Those of
 * convolutions of `width` are (channels, 1, width) there; 0: they are as ours. */
void dra_rules_add_parts(dra_rule_list *list, const char *theirs, int n, const char *const *ours,
                         const int64_t *rows, int64_t blocks, int64_t width);

#endif
