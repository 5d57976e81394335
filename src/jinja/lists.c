/* Filters of lists, dicts and other values with members. */
#include "jinja/run.h"

#include <string.h>

#define FILTER(name)                                                                               \
    static bool name(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out)

static bool is_given(const dra_tvalue *x)
{
    return x->kind != DRA_T_ABSENT && x->kind != DRA_T_NONE;
}

/* ---- whole lists ----------------------------------------------------------------------------- */

FILTER(length)
{
    int64_t n;
    (void)a;
    if (!dra_tlength(r, self, &n)) return false;
    *out = dra_tint(n);
    return true;
}

FILTER(as_list) { return a->n == 0 && dra_titerate(r, self, out); }

static bool end_of(dra_trun *r, const dra_tvalue *self, bool last, dra_tvalue *out)
{
    dra_tvalue list;
    if (!dra_titerate(r, self, &list)) return false;
    *out = dra_tundefined("a member of what is empty", 25);
    if (list.n) *out = list.items[last ? list.n - 1 : 0];
    return true;
}

FILTER(first) { return a->n == 0 && end_of(r, self, false, out); }
FILTER(last) { return a->n == 0 && end_of(r, self, true, out); }

FILTER(reverse)
{
    const dra_tvalue back[3] = {dra_tnone(), dra_tnone(), dra_tint(-1)};
    dra_tvalue       list = *self;
    (void)a;
    if (self->kind != DRA_T_STRING && !dra_titerate(r, self, &list)) return false;
    return dra_tslice(r, &list, back, out);
}

bool dra_tpair_list(dra_trun *r, const dra_tvalue *dict, dra_tvalue *out)
{
    dra_tvalue *pairs = dra_trun_alloc(r, dict->n, sizeof *pairs);
    dra_tvalue *parts = dra_trun_alloc(r, 2 * dict->n, sizeof *parts);
    if (!pairs || !parts) return false;
    for (size_t i = 0; i < dict->n; i++) {
        parts[2 * i] = dict->pairs[i].key;
        parts[2 * i + 1] = dict->pairs[i].value;
        pairs[i] = (dra_tvalue){DRA_T_TUPLE, 2, {.items = &parts[2 * i]}};
    }
    *out = dra_tlist(pairs, dict->n);
    return true;
}

FILTER(items)
{
    (void)a;
    *out = dra_tlist(NULL, 0);
    if (self->kind == DRA_T_UNDEFINED) return true;
    if (self->kind != DRA_T_DICT)
        return dra_trun_fail(r, "items: expected a dict, found %s", dra_tkind_name(self));
    return dra_tpair_list(r, self, out);
}

/* The members, or an attribute of each. */
static bool read_attributes(dra_trun *r, const dra_tvalue *self, const dra_tvalue *path,
                            dra_tvalue *out)
{
    if (!dra_titerate(r, self, out) || !is_given(path)) return r->status == DRA_OK;
    dra_tvalue *items = dra_trun_alloc(r, out->n, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < out->n; i++)
        if (!dra_tpath(r, &out->items[i], path, &items[i])) return false;
    out->items = items;
    return true;
}

FILTER(join)
{
    dra_tvalue       list;
    const dra_tvalue nothing = dra_tstring("", 0);
    return read_attributes(r, self, &a->at[1], &list) &&
           dra_tjoin(r, &list, is_given(&a->at[0]) ? &a->at[0] : &nothing, out);
}

FILTER(sum)
{
    dra_tvalue list;
    *out = a->at[1].kind == DRA_T_ABSENT ? dra_tint(0) : a->at[1];
    if (!read_attributes(r, self, &a->at[0], &list)) return false;
    for (size_t i = 0; i < list.n; i++) {
        const dra_tvalue so_far = *out;
        if (!dra_tbinary(r, DRA_OP_ADD, &so_far, &list.items[i], out)) return false;
    }
    return true;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* The sort key of each member: itself or an attribute, strings in lower case unless `exact`. */
static bool sort_keys(dra_trun *r, const dra_tvalue *self, const dra_tvalue *path, bool exact,
                      dra_tvalue *keys)
{
    if (!read_attributes(r, self, path, keys) || exact) return r->status == DRA_OK;
    dra_tvalue *items = dra_trun_alloc(r, keys->n, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < keys->n; i++) {
        items[i] = keys->items[i];
        if (items[i].kind == DRA_T_STRING &&
            !dra_tcased(r, &keys->items[i], DRA_CASE_LOWER, &items[i]))
            return false;
    }
    keys->items = items;
    return true;
}

/* Stable: equal members keep their order, also when reversed. */
static bool sort_by(dra_trun *r, const dra_tvalue *list, const dra_tvalue *keys, bool reversed,
                    dra_tvalue *out)
{
    size_t     *order = dra_trun_alloc(r, list->n, sizeof *order);
    dra_tvalue *items = dra_trun_alloc(r, list->n, sizeof *items);
    if (!order || !items) return false;
    for (size_t i = 0; i < list->n; i++) {
        size_t at = i;
        for (int o; at > 0; at--) {
            if (!dra_torder(r, &keys->items[i], &keys->items[order[at - 1]], &o)) return false;
            if (reversed ? o <= 0 : o >= 0) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    for (size_t i = 0; i < list->n; i++) items[i] = list->items[order[i]];
    *out = dra_tlist(items, list->n);
    return true;
}

FILTER(sort)
{
    dra_tvalue list, keys;
    return dra_titerate(r, self, &list) &&
           sort_keys(r, &list, &a->at[2], dra_ttruth(&a->at[1]), &keys) &&
           sort_by(r, &list, &keys, dra_ttruth(&a->at[0]), out);
}

FILTER(dictsort)
{
    const bool       by_value = dra_tis(&a->at[1], "value");
    const dra_tvalue part = dra_tint(by_value);
    dra_tvalue       list, keys;
    if (self->kind != DRA_T_DICT)
        return dra_trun_fail(r, "dictsort: expected a dict, found %s", dra_tkind_name(self));
    if (is_given(&a->at[1]) && !by_value && !dra_tis(&a->at[1], "key"))
        return dra_trun_fail(r, "dictsort: by: expected 'key' or 'value'");
    return dra_tpair_list(r, self, &list) &&
           sort_keys(r, &list, &part, dra_ttruth(&a->at[0]), &keys) &&
           sort_by(r, &list, &keys, dra_ttruth(&a->at[2]), out);
}

static bool find_extreme(dra_trun *r, const dra_tvalue *self, const dra_targs *a, int sign,
                         dra_tvalue *out)
{
    dra_tvalue list, keys;
    size_t     best = 0;
    if (!dra_titerate(r, self, &list) ||
        !sort_keys(r, &list, &a->at[1], dra_ttruth(&a->at[0]), &keys))
        return false;
    for (size_t i = 1; i < list.n; i++) {
        int o;
        if (!dra_torder(r, &keys.items[i], &keys.items[best], &o)) return false;
        if (o * sign > 0) best = i;
    }
    *out = list.n ? list.items[best] : dra_tundefined("a member of what is empty", 25);
    return true;
}

FILTER(least) { return find_extreme(r, self, a, -1, out); }
FILTER(greatest) { return find_extreme(r, self, a, 1, out); }

FILTER(unique)
{
    dra_tvalue list, keys;
    size_t     n = 0;
    if (!dra_titerate(r, self, &list) ||
        !sort_keys(r, &list, &a->at[1], dra_ttruth(&a->at[0]), &keys))
        return false;
    dra_tvalue *items = dra_trun_alloc(r, list.n, sizeof *items);
    dra_tvalue *seen = dra_trun_alloc(r, list.n, sizeof *seen);
    if (!items || !seen) return false;
    for (size_t i = 0; i < list.n; i++) {
        const dra_tvalue so_far = dra_tlist(seen, n);
        bool             there;
        if (!dra_tcan_be_key(r, &keys.items[i]) ||
            !dra_tcontains(r, &so_far, &keys.items[i], &there))
            return false;
        if (there) continue;
        seen[n] = keys.items[i];
        items[n++] = list.items[i];
    }
    *out = dra_tlist(items, n);
    return true;
}

/* ---- map and select -------------------------------------------------------------------------- */

static const dra_tvalue *named_argument(const dra_targs *a, const char *key)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->key && a->key[i] && strcmp(a->key[i], key) == 0) return &a->at[i];
    return NULL;
}

static bool map_attribute(dra_trun *r, dra_tvalue *list, const dra_targs *a, const dra_tvalue *path)
{
    const dra_tvalue *otherwise = named_argument(a, "default");
    dra_tvalue       *items = dra_trun_alloc(r, list->n, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < list->n; i++) {
        if (!dra_tpath(r, &list->items[i], path, &items[i])) return false;
        if (items[i].kind == DRA_T_UNDEFINED && otherwise) items[i] = *otherwise;
    }
    list->items = items;
    return true;
}

/* The filter or test that argument `at` names, and the arguments after it. */
static const dra_tbuiltin *builtin_of(dra_trun *r, const dra_targs *a, size_t at, bool filter,
                                      dra_targs *rest)
{
    const dra_tbuiltin *b = NULL;
    const bool          there = at < a->n && a->at[at].kind == DRA_T_STRING && !a->key[at];
    if (there && filter) b = dra_tfilter_find(a->at[at].text, a->at[at].n);
    if (there && !filter) b = dra_tbuiltin_find(&dra_ttests, a->at[at].text, a->at[at].n);
    if (!b)
        dra_trun_fail(r, "expected the name of a %s, found %s", filter ? "filter" : "test",
                      there ? "an unknown one" : "none");
    else
        *rest = (dra_targs){a->at + at + 1, a->key + at + 1, a->n - at - 1};
    return b;
}

/* A false value, even a number, has no members here. */
static bool truthy_members(dra_trun *r, const dra_tvalue *self, dra_tvalue *out)
{
    *out = dra_tlist(NULL, 0);
    return !dra_ttruth(self) || dra_titerate(r, self, out);
}

FILTER(map)
{
    const dra_tvalue *path = named_argument(a, "attribute");
    dra_targs         rest = {0};
    if (!truthy_members(r, self, out)) return false;
    if (path) return map_attribute(r, out, a, path);
    const dra_tbuiltin *b = builtin_of(r, a, 0, true, &rest);
    dra_tvalue         *items = b ? dra_trun_alloc(r, out->n, sizeof *items) : NULL;
    if (!items) return false;
    for (size_t i = 0; i < out->n; i++)
        if (!dra_tbuiltin_call(r, b, &out->items[i], &rest, &items[i])) return false;
    out->items = items;
    return true;
}

/* Keeps the members for which a test, or their truth, is `wanted`; looks at an attribute if
 * `by_attribute`. */
static bool choose_members(dra_trun *r, const dra_tvalue *self, const dra_targs *a,
                           bool by_attribute, bool wanted, dra_tvalue *out)
{
    const dra_tbuiltin *test = NULL;
    const size_t        at = by_attribute;
    dra_targs           rest = {0};
    size_t              n = 0;
    if (by_attribute && a->n == 0) return dra_trun_fail(r, "expected an attribute, found none");
    if (a->n > at && !(test = builtin_of(r, a, at, false, &rest))) return false;
    if (!truthy_members(r, self, out)) return false;
    dra_tvalue *items = dra_trun_alloc(r, out->n, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < out->n; i++) {
        dra_tvalue x = out->items[i], holds;
        if (by_attribute && !dra_tpath(r, &out->items[i], &a->at[0], &x)) return false;
        holds = x;
        if (test && !dra_tbuiltin_call(r, test, &x, &rest, &holds)) return false;
        if (dra_ttruth(&holds) == wanted) items[n++] = out->items[i];
    }
    *out = dra_tlist(items, n);
    return true;
}

FILTER(select_if) { return choose_members(r, self, a, false, true, out); }
FILTER(reject) { return choose_members(r, self, a, false, false, out); }
FILTER(selectattr) { return choose_members(r, self, a, true, true, out); }
FILTER(rejectattr) { return choose_members(r, self, a, true, false, out); }

static const dra_tbuiltin lists[] = {
    {"length", "", 0, length},
    {"count", "", 0, length},
    {"join", "d attribute", 0, join},
    {"first", "", 0, first},
    {"last", "", 0, last},
    {"list", "", 0, as_list},
    {"items", "", 0, items},
    {"dictsort", "case_sensitive by reverse", 0, dictsort},
    {"map", NULL, 0, map},
    {"select", NULL, 0, select_if},
    {"reject", NULL, 0, reject},
    {"selectattr", NULL, 0, selectattr},
    {"rejectattr", NULL, 0, rejectattr},
    {"unique", "case_sensitive attribute", 0, unique},
    {"reverse", "", 0, reverse},
    {"min", "case_sensitive attribute", 0, least},
    {"max", "case_sensitive attribute", 0, greatest},
    {"sum", "attribute start", 0, sum},
    {"sort", "reverse case_sensitive attribute", 0, sort},
};
const dra_tbuiltins dra_tlist_filters = {lists, sizeof lists / sizeof *lists};
