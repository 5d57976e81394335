/* Values compared: equal, in order, one in another. */
#include "jinja/run.h"

#include <string.h>

enum { DEEPEST = 100 }; /* values in one another */

static bool equal_in(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, int depth, bool *equal);

static bool equal_pairs(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, int depth,
                        bool *equal)
{
    for (size_t i = 0; *equal && i < a->n; i++) {
        const dra_tvalue *other;
        if (!dra_tpairs_find(r, b->pairs, b->n, &a->pairs[i].key, &other)) return false;
        if (!other)
            *equal = false;
        else if (!equal_in(r, &a->pairs[i].value, other, depth, equal))
            return false;
    }
    return true;
}

static bool equal_in(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, int depth, bool *equal)
{
    if (depth > DEEPEST) return dra_trun_fail(r, "values nest more than %d deep", DEEPEST);
    if (!dra_trun_spend(r, 1)) return false;
    *equal = a->kind == b->kind;
    if (dra_tis_number(a) && dra_tis_number(b)) {
        *equal = dra_tis_whole(a) && dra_tis_whole(b) ? dra_twhole(a) == dra_twhole(b)
                                                      : dra_tnumber(a) == dra_tnumber(b);
        return true;
    }
    if (!*equal) return true;
    switch (a->kind) {
    case DRA_T_STRING:
        *equal = a->n == b->n && (a->n == 0 || memcmp(a->text, b->text, a->n) == 0);
        return dra_trun_spend(r, *equal ? a->n / 16 : 0);
    case DRA_T_LIST:
    case DRA_T_TUPLE:
        *equal = a->n == b->n;
        for (size_t i = 0; *equal && i < a->n; i++)
            if (!equal_in(r, &a->items[i], &b->items[i], depth + 1, equal)) return false;
        return true;
    case DRA_T_DICT: *equal = a->n == b->n; return equal_pairs(r, a, b, depth + 1, equal);
    case DRA_T_NAMESPACE: *equal = a->space == b->space; return true;
    case DRA_T_MACRO: *equal = a->macro == b->macro; return true;
    case DRA_T_FUNCTION: *equal = a->builtin == b->builtin; return true;
    default: return true;
    }
}

bool dra_tequal(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, bool *equal)
{
    return equal_in(r, a, b, 0, equal);
}

static int sign_of(double a, double b) { return (a > b) - (a < b); }

static bool order_in(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, int depth, int *order);

/* By the first members that differ; those before need no order. */
static bool order_lists(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, int depth,
                        int *order)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool equal;
        if (!equal_in(r, &a->items[i], &b->items[i], depth + 1, &equal)) return false;
        if (!equal) return order_in(r, &a->items[i], &b->items[i], depth + 1, order);
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return true;
}

static bool order_in(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, int depth, int *order)
{
    if (depth > DEEPEST) return dra_trun_fail(r, "values nest more than %d deep", DEEPEST);
    if (!dra_trun_spend(r, 1)) return false;
    const size_t both = a->n < b->n ? a->n : b->n;
    *order = 0;
    if (dra_tis_number(a) && dra_tis_number(b)) {
        const int64_t x = dra_tis_whole(a) ? dra_twhole(a) : 0;
        const int64_t y = dra_tis_whole(b) ? dra_twhole(b) : 0;
        *order = dra_tis_whole(a) && dra_tis_whole(b) ? (x > y) - (x < y)
                                                      : sign_of(dra_tnumber(a), dra_tnumber(b));
        return true;
    }
    if (a->kind == DRA_T_STRING && b->kind == DRA_T_STRING) {
        *order = both ? memcmp(a->text, b->text, both) : 0;
    } else if (a->kind == b->kind && dra_tis_list(a)) {
        return order_lists(r, a, b, depth, order);
    } else {
        return dra_trun_fail(r, "%s and %s have no order", dra_tkind_name(a), dra_tkind_name(b));
    }
    if (*order == 0) *order = (a->n > b->n) - (a->n < b->n);
    return dra_trun_spend(r, both / 16);
}

bool dra_torder(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, int *order)
{
    return order_in(r, a, b, 0, order);
}

bool dra_tcontains(dra_trun *r, const dra_tvalue *all, const dra_tvalue *x, bool *found)
{
    const dra_tvalue *member = NULL;
    *found = false;
    switch (all->kind) {
    case DRA_T_UNDEFINED: return true;
    case DRA_T_STRING:
        if (x->kind != DRA_T_STRING)
            return dra_trun_fail(r, "expected a str to look for in a str, found %s",
                                 dra_tkind_name(x));
        *found = dra_tfind(all, 0, x) != SIZE_MAX;
        return dra_trun_spend(r, all->n / 16);
    case DRA_T_DICT:
        if (!dra_tcan_be_key(r, x) || !dra_tpairs_find(r, all->pairs, all->n, x, &member))
            return false;
        *found = member != NULL;
        return true;
    case DRA_T_LIST:
    case DRA_T_TUPLE:
        for (size_t i = 0; i < all->n && !*found; i++)
            if (!dra_tequal(r, &all->items[i], x, found)) return false;
        return true;
    default: return dra_trun_fail(r, "%s has no members to look for", dra_tkind_name(all));
    }
}
