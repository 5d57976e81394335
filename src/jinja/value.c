/* Values of templates: truth, members, order, as Python has them. */
#include "jinja/run.h"

#include <stdlib.h>
#include <string.h>

#include "text/letters.h"

/* ---- white space ----------------------------------------------------------------------------- */

size_t dra_tblank(const char *text, size_t n)
{
    int32_t      code;
    const size_t bytes = dra_utf8(text, n, &code);
    const bool   blank = (code >= 0x1c && code <= 0x1f) || dra_kind_of(code) == DRA_SPACE;
    return blank ? bytes : 0;
}

size_t dra_tblanks(const char *text, size_t n)
{
    size_t at = 0;
    for (size_t bytes; at < n && (bytes = dra_tblank(text + at, n - at)) > 0;) at += bytes;
    return at;
}

size_t dra_twithout_end(const char *text, size_t n)
{
    while (n > 0) {
        int32_t      code;
        const size_t before = dra_utf8_before(text, n, &code);
        if (!dra_tblank(text + before, n - before)) break;
        n = before;
    }
    return n;
}

/* ---- truth and kinds ------------------------------------------------------------------------- */

bool dra_ttruth(const dra_tvalue *x)
{
    switch (x->kind) {
    case DRA_T_ABSENT:
    case DRA_T_UNDEFINED:
    case DRA_T_NONE: return false;
    case DRA_T_BOOL: return x->truth;
    case DRA_T_INT: return x->whole != 0;
    case DRA_T_FLOAT: return x->real != 0;
    case DRA_T_STRING:
    case DRA_T_LIST:
    case DRA_T_TUPLE:
    case DRA_T_DICT: return x->n > 0;
    default: return true;
    }
}

bool dra_tis(const dra_tvalue *x, const char *text)
{
    return x->kind == DRA_T_STRING && x->n == strlen(text) && memcmp(x->text, text, x->n) == 0;
}

const char *dra_tkind_name(const dra_tvalue *x)
{
    static const char *const names[] = {"nothing",     "an undefined value",
                                        "none",        "a boolean",
                                        "an int",      "a float",
                                        "a str",       "a list",
                                        "a tuple",     "a dict",
                                        "a namespace", "a loop",
                                        "a macro",     "a function",
                                        "a method"};
    _Static_assert(sizeof names / sizeof *names == DRA_T_COUNT, "a name for each");
    return names[x->kind];
}

/* ---- members --------------------------------------------------------------------------------- */

const dra_tvalue *dra_tpairs_get(dra_trun *r, const dra_tpair *pairs, size_t n, const char *name,
                                 size_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        const dra_tvalue *key = &pairs[i].key;
        if (key->kind == DRA_T_STRING && key->n == bytes && memcmp(key->text, name, bytes) == 0)
            return &pairs[i].value;
    }
    dra_trun_spend(r, n / 4);
    return NULL;
}

bool dra_tpairs_find(dra_trun *r, const dra_tpair *pairs, size_t n, const dra_tvalue *key,
                     const dra_tvalue **found)
{
    *found = NULL;
    if (key->kind == DRA_T_STRING) {
        *found = dra_tpairs_get(r, pairs, n, key->text, key->n);
        return r->status == DRA_OK;
    }
    for (size_t i = 0; i < n && !*found; i++) {
        bool equal;
        if (!dra_tequal(r, &pairs[i].key, key, &equal)) return false;
        if (equal) *found = &pairs[i].value;
    }
    return true;
}

bool dra_tcan_be_key(dra_trun *r, const dra_tvalue *x)
{
    return (x->kind != DRA_T_LIST && x->kind != DRA_T_DICT) ||
           dra_trun_fail(r, "%s cannot be a key", dra_tkind_name(x));
}

bool dra_tmap_set(dra_trun *r, dra_tspace *space, const dra_tvalue *key, const dra_tvalue *value)
{
    const dra_tvalue *old;
    if (!dra_tcan_be_key(r, key) || !dra_tpairs_find(r, space->pairs, space->n, key, &old))
        return false;
    if (old) {
        space
            ->pairs[(const dra_tpair *)(const void *)((const char *)old -
                                                      offsetof(dra_tpair, value)) -
                    space->pairs]
            .value = *value;
        return true;
    }
    if (space->n == space->room) {
        const size_t room = space->room ? 2 * space->room : 4;
        dra_tpair   *more = dra_trun_alloc(r, room, sizeof *more);
        if (!more) return false;
        if (space->n) memcpy(more, space->pairs, space->n * sizeof *more);
        space->pairs = more;
        space->room = room;
    }
    space->pairs[space->n++] = (dra_tpair){*key, *value};
    return true;
}

static bool loop_attribute(const dra_tloop *l, const char *name, size_t n, dra_tvalue *out)
{
    const int64_t at = (int64_t)l->index, all = (int64_t)l->n;
    const struct {
        const char *name;
        dra_tvalue  value;
    } rows[] = {
        {"index", dra_tint(at + 1)},
        {"index0", dra_tint(at)},
        {"revindex", dra_tint(all - at)},
        {"revindex0", dra_tint(all - at - 1)},
        {"first", dra_tbool(at == 0)},
        {"last", dra_tbool(at + 1 == all)},
        {"length", dra_tint(all)},
        {"depth", dra_tint(1)}, /* grows in recursive loops only */
        {"depth0", dra_tint(0)},
        {"previtem", at > 0 ? l->items[at - 1] : dra_tundefined("loop.previtem", 13)},
        {"nextitem", at + 1 < all ? l->items[at + 1] : dra_tundefined("loop.nextitem", 13)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strlen(rows[i].name) != n || memcmp(rows[i].name, name, n) != 0) continue;
        *out = rows[i].value;
        return true;
    }
    return false;
}

bool dra_tattribute(dra_trun *r, const dra_tvalue *x, const char *name, size_t n, dra_tvalue *out)
{
    const dra_tvalue *found = NULL;
    *out = dra_tundefined(name, n);
    switch (x->kind) {
    case DRA_T_UNDEFINED:
        return dra_trun_fail(r, "'%.*s' is undefined, so it has no '%.*s'", (int)x->n, x->text,
                             (int)n, name);
    case DRA_T_DICT:
        if (dra_tbuiltin_find(&dra_tdict_methods, name, n))
            *out = (dra_tvalue){.kind = DRA_T_METHOD};
        else
            found = dra_tpairs_get(r, x->pairs, x->n, name, n);
        break;
    case DRA_T_NAMESPACE: found = dra_tpairs_get(r, x->space->pairs, x->space->n, name, n); break;
    case DRA_T_LOOP: loop_attribute(x->loop, name, n, out); break;
    case DRA_T_STRING:
        if (dra_tbuiltin_find(&dra_ttext_methods, name, n))
            *out = (dra_tvalue){.kind = DRA_T_METHOD};
        break;
    default: break;
    }
    if (found) *out = *found;
    return r->status == DRA_OK;
}

/* The n-th letter of a text. */
static bool letter_at(dra_trun *r, const dra_tvalue *x, int64_t index, dra_tvalue *out)
{
    int64_t length;
    size_t  at = 0;
    if (!dra_tlength(r, x, &length)) return false;
    if (index < 0) index += length;
    if (index < 0 || index >= length) return true;
    for (;; index--) {
        int32_t      code;
        const size_t bytes = dra_utf8(x->text + at, x->n - at, &code);
        if (index == 0) {
            *out = dra_tstring(x->text + at, bytes);
            return true;
        }
        at += bytes;
    }
}

bool dra_titem(dra_trun *r, const dra_tvalue *x, const dra_tvalue *key, dra_tvalue *out)
{
    const dra_tvalue *found;
    *out = dra_tundefined("a member", 8);
    if (key->kind == DRA_T_STRING) *out = dra_tundefined(key->text, key->n);
    if (x->kind == DRA_T_UNDEFINED)
        return dra_trun_fail(r, "'%.*s' is undefined, so it has no members", (int)x->n, x->text);
    if (x->kind == DRA_T_DICT) {
        if (!dra_tpairs_find(r, x->pairs, x->n, key, &found)) return false;
        if (found) *out = *found;
        if (found || key->kind != DRA_T_STRING) return true;
    }
    if (dra_tis_whole(key)) {
        int64_t i = dra_twhole(key);
        if (x->kind == DRA_T_STRING) return letter_at(r, x, i, out);
        if (!dra_tis_list(x)) return true;
        if (i < 0) i += (int64_t)x->n;
        if (i >= 0 && i < (int64_t)x->n) *out = x->items[i];
        return true;
    }
    return key->kind == DRA_T_STRING ? dra_tattribute(r, x, key->text, key->n, out) : true;
}

bool dra_tpath(dra_trun *r, const dra_tvalue *x, const dra_tvalue *path, dra_tvalue *out)
{
    *out = *x;
    if (path->kind != DRA_T_STRING) return dra_titem(r, x, path, out);
    for (size_t at = 0, n; at <= path->n; at += n + 1) {
        const char      *part = path->text + at;
        const char      *dot = at < path->n ? memchr(part, '.', path->n - at) : NULL;
        const dra_tvalue from = *out;
        n = dot ? (size_t)(dot - part) : path->n - at;
        bool number = n > 0 && n < 10;
        for (size_t i = 0; i < n; i++) number = number && part[i] >= '0' && part[i] <= '9';
        int64_t index = 0;
        for (size_t i = 0; number && i < n; i++) index = index * 10 + part[i] - '0';
        const dra_tvalue key = number ? dra_tint(index) : dra_tstring(part, n);
        if (!dra_titem(r, &from, &key, out)) return false;
    }
    return true;
}

bool dra_tlength(dra_trun *r, const dra_tvalue *x, int64_t *length)
{
    *length = 0;
    if (x->kind == DRA_T_UNDEFINED) return true;
    if (x->kind == DRA_T_STRING) {
        for (size_t at = 0; at < x->n; ++*length) {
            int32_t code;
            at += dra_utf8(x->text + at, x->n - at, &code);
        }
        return dra_trun_spend(r, x->n / 16);
    }
    *length = (int64_t)x->n;
    if (dra_tis_list(x) || x->kind == DRA_T_DICT) return true;
    return dra_trun_fail(r, "%s has no length", dra_tkind_name(x));
}

static bool split_letters(dra_trun *r, const dra_tvalue *x, dra_tvalue *list)
{
    int64_t length;
    if (!dra_tlength(r, x, &length)) return false;
    dra_tvalue *items = dra_trun_alloc(r, (size_t)length, sizeof *items);
    if (!items) return false;
    for (size_t at = 0, i = 0, bytes; at < x->n; at += bytes) {
        int32_t code;
        bytes = dra_utf8(x->text + at, x->n - at, &code);
        items[i++] = dra_tstring(x->text + at, bytes);
    }
    *list = dra_tlist(items, (size_t)length);
    return true;
}

bool dra_titerate(dra_trun *r, const dra_tvalue *x, dra_tvalue *list)
{
    *list = dra_tlist(NULL, 0);
    if (x->kind == DRA_T_UNDEFINED) return true;
    if (x->kind == DRA_T_STRING) return split_letters(r, x, list);
    if (dra_tis_list(x)) {
        *list = dra_tlist(x->items, x->n);
        return true;
    }
    if (x->kind != DRA_T_DICT)
        return dra_trun_fail(r, "%s has no members to go through", dra_tkind_name(x));
    dra_tvalue *items = dra_trun_alloc(r, x->n, sizeof *items);
    if (!items) return false;
    for (size_t i = 0; i < x->n; i++) items[i] = x->pairs[i].key;
    *list = dra_tlist(items, x->n);
    return true;
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* A bound as Python takes it: a negative one counts from the end, and all are clipped to the
 * list. */
static int64_t slice_bound(const dra_tvalue *x, int64_t n, int64_t step, int64_t none)
{
    if (x->kind == DRA_T_NONE) return none;
    int64_t i = dra_twhole(x);
    if (i < 0) i = i < -n ? -1 : i + n;
    if (i < 0) i = step < 0 ? -1 : 0;
    if (i >= n) i = step < 0 ? n - 1 : n;
    return i;
}

static bool slice_list(dra_trun *r, const dra_tvalue *x, const int64_t at[3], dra_tvalue *out)
{
    const int64_t step = at[2], span = step > 0 ? at[1] - at[0] : at[0] - at[1];
    const size_t  n = span > 0 ? (size_t)((span - 1) / (step > 0 ? step : -step)) + 1 : 0;
    *out = (dra_tvalue){x->kind, n, {.items = x->items}};
    if (step == 1) {
        if (n) out->items = x->items + at[0];
        return true;
    }
    dra_tvalue *items = dra_trun_alloc(r, n, sizeof *items);
    if (!items) return false;
    for (size_t k = 0; k < n; k++) items[k] = x->items[at[0] + (int64_t)k * step];
    out->items = items;
    return true;
}

bool dra_tslice(dra_trun *r, const dra_tvalue *x, const dra_tvalue bounds[3], dra_tvalue *out)
{
    dra_tvalue list = *x;
    if (x->kind == DRA_T_UNDEFINED)
        return dra_trun_fail(r, "'%.*s' is undefined, so it has no members", (int)x->n, x->text);
    if (x->kind != DRA_T_STRING && !dra_tis_list(x))
        return dra_trun_fail(r, "%s has no slices", dra_tkind_name(x));
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != DRA_T_NONE && !dra_tis_whole(&bounds[i]))
            return dra_trun_fail(r, "expected an int in a slice, found %s",
                                 dra_tkind_name(&bounds[i]));
    if (x->kind == DRA_T_STRING && !split_letters(r, x, &list)) return false;
    const int64_t n = (int64_t)list.n;
    int64_t       step = bounds[2].kind == DRA_T_NONE ? 1 : dra_twhole(&bounds[2]);
    if (step == 0) return dra_trun_fail(r, "the step of a slice is 0");
    if (step > n) step = n + 1;
    if (step < -n) step = -n - 1;
    const int64_t at[3] = {slice_bound(&bounds[0], n, step, step < 0 ? n - 1 : 0),
                           slice_bound(&bounds[1], n, step, step < 0 ? -1 : n), step};
    if (!slice_list(r, &list, at, out)) return false;
    if (x->kind != DRA_T_STRING) return true;
    const dra_tvalue parts = *out, nothing = dra_tstring("", 0);
    return dra_tjoin(r, &parts, &nothing, out);
}
