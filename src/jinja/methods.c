/* Methods of strings and dicts, and functions. */
#include "jinja/run.h"

#include <string.h>
#include <time.h>

#include "file/fail.h"
#include "text/letters.h"

#define METHOD(name)                                                                               \
    static bool name(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out)

static bool is_given(const dra_targs *a, size_t i)
{
    return a->at[i].kind != DRA_T_ABSENT && a->at[i].kind != DRA_T_NONE;
}

static bool need_text(dra_trun *r, const dra_tvalue *x)
{
    return x->kind == DRA_T_STRING ||
           dra_trun_fail(r, "expected a str as argument, found %s", dra_tkind_name(x));
}

static bool int_argument(dra_trun *r, const dra_targs *a, size_t i, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (a->at[i].kind == DRA_T_ABSENT) return true;
    if (!dra_tis_whole(&a->at[i]))
        return dra_trun_fail(r, "expected an int as argument, found %s", dra_tkind_name(&a->at[i]));
    *out = dra_twhole(&a->at[i]);
    return true;
}

/* ---- strings --------------------------------------------------------------------------------- */

METHOD(strip) { return dra_tstrip(r, *self, &a->at[0], DRA_SIDE_BOTH, out); }
METHOD(lstrip) { return dra_tstrip(r, *self, &a->at[0], DRA_SIDE_LEFT, out); }
METHOD(rstrip) { return dra_tstrip(r, *self, &a->at[0], DRA_SIDE_RIGHT, out); }
METHOD(upper) { return a->n == 0 && dra_tcased(r, self, DRA_CASE_UPPER, out); }
METHOD(lower) { return a->n == 0 && dra_tcased(r, self, DRA_CASE_LOWER, out); }
METHOD(title) { return a->n == 0 && dra_tcased(r, self, DRA_CASE_TITLE, out); }
METHOD(capitalize) { return a->n == 0 && dra_tcased(r, self, DRA_CASE_FIRST, out); }

METHOD(replace)
{
    int64_t most;
    return need_text(r, &a->at[0]) && need_text(r, &a->at[1]) && int_argument(r, a, 2, -1, &most) &&
           dra_treplace(r, self, &a->at[0], &a->at[1], most, out);
}

/* Whether a string begins or ends with a part, or with any of a tuple. */
static bool has_affix(dra_trun *r, const dra_tvalue *self, const dra_tvalue *parts, bool at_end,
                      dra_tvalue *out)
{
    const bool        many = parts->kind == DRA_T_TUPLE;
    const dra_tvalue *part = many ? parts->items : parts;
    bool              found = false;
    for (size_t i = 0, n = many ? parts->n : 1; i < n && !found; i++) {
        if (!need_text(r, &part[i])) return false;
        const size_t bytes = part[i].n, at = at_end && self->n > bytes ? self->n - bytes : 0;
        found = bytes <= self->n && (!bytes || memcmp(self->text + at, part[i].text, bytes) == 0);
    }
    *out = dra_tbool(found);
    return true;
}

METHOD(startswith) { return has_affix(r, self, &a->at[0], false, out); }
METHOD(endswith) { return has_affix(r, self, &a->at[0], true, out); }

METHOD(find)
{
    if (!need_text(r, &a->at[0])) return false;
    const size_t     at = dra_tfind(self, 0, &a->at[0]);
    const dra_tvalue before = dra_tstring(self->text, at == SIZE_MAX ? 0 : at);
    int64_t          letters;
    if (!dra_tlength(r, &before, &letters)) return false;
    *out = dra_tint(at == SIZE_MAX ? -1 : letters);
    return dra_trun_spend(r, self->n / 16);
}

METHOD(count)
{
    int64_t n = 0;
    if (!need_text(r, &a->at[0]) || !dra_trun_spend(r, self->n / 16)) return false;
    if (a->at[0].n == 0) {
        if (!dra_tlength(r, self, &n)) return false;
        n++;
    } else {
        for (size_t at = 0; (at = dra_tfind(self, at, &a->at[0])) != SIZE_MAX; at += a->at[0].n)
            n++;
    }
    *out = dra_tint(n);
    return true;
}

METHOD(join)
{
    dra_tvalue list;
    if (!dra_titerate(r, &a->at[0], &list)) return false;
    for (size_t i = 0; i < list.n; i++)
        if (!need_text(r, &list.items[i])) return false;
    return dra_tjoin(r, &list, self, out);
}

/* ---- split ----------------------------------------------------------------------------------- */

typedef struct pieces {
    dra_tvalue *at;
    size_t      n, room;
} pieces;

static bool push_piece(dra_trun *r, pieces *p, const char *text, size_t n)
{
    if (p->n == p->room) {
        const size_t room = p->room ? 2 * p->room : 8;
        dra_tvalue  *more = dra_trun_alloc(r, room, sizeof *more);
        if (!more) return false;
        if (p->n) memcpy(more, p->at, p->n * sizeof *more);
        p->at = more;
        p->room = room;
    }
    p->at[p->n++] = dra_tstring(text, n);
    return true;
}

/* Splits at white space; what remains after the last split keeps its trailing, or leading,
 * space. */
static bool split_blanks(dra_trun *r, dra_tvalue x, int64_t most, bool from_end, pieces *p)
{
    const dra_tvalue any = {0};
    for (;; most--) {
        if (!dra_tstrip(r, x, &any, from_end ? DRA_SIDE_RIGHT : DRA_SIDE_LEFT, &x)) return false;
        if (x.n == 0) return true;
        if (most == 0) return push_piece(r, p, x.text, x.n);
        size_t  at = from_end ? x.n : 0;
        int32_t code;
        while (from_end && at > 0) {
            const size_t before = dra_utf8_before(x.text, at, &code);
            if (dra_tblank(x.text + before, at - before)) break;
            at = before;
        }
        while (!from_end && at < x.n && !dra_tblank(x.text + at, x.n - at))
            at += dra_utf8(x.text + at, x.n - at, &code);
        if (!push_piece(r, p, from_end ? x.text + at : x.text, from_end ? x.n - at : at))
            return false;
        x = from_end ? dra_tstring(x.text, at) : dra_tstring(x.text + at, x.n - at);
    }
}

static bool split_at(dra_trun *r, dra_tvalue x, const dra_tvalue *by, int64_t most, pieces *p)
{
    for (size_t at; most != 0 && (at = dra_tfind(&x, 0, by)) != SIZE_MAX; most--) {
        if (!push_piece(r, p, x.text, at)) return false;
        x = dra_tstring(x.text + at + by->n, x.n - at - by->n);
    }
    return push_piece(r, p, x.text, x.n);
}

static bool rsplit_at(dra_trun *r, dra_tvalue x, const dra_tvalue *by, int64_t most, pieces *p)
{
    for (size_t at = x.n; most != 0 && at >= by->n;) {
        if (memcmp(x.text + at - by->n, by->text, by->n) != 0) {
            at--;
            continue;
        }
        if (!push_piece(r, p, x.text + at, x.n - at)) return false;
        x.n = at -= by->n;
        most--;
    }
    return push_piece(r, p, x.text, x.n);
}

static bool split_by(dra_trun *r, const dra_tvalue *self, const dra_targs *a, bool from_end,
                     dra_tvalue *out)
{
    pieces  p = {0};
    int64_t most;
    bool    ok;
    if (!int_argument(r, a, 1, -1, &most) || !dra_trun_spend(r, self->n / 16)) return false;
    if (most < 0) most = -1;
    if (!is_given(a, 0))
        ok = split_blanks(r, *self, most, from_end, &p);
    else if (!need_text(r, &a->at[0]))
        return false;
    else if (a->at[0].n == 0)
        return dra_trun_fail(r, "split: expected a separator that is not empty");
    else
        ok = (from_end ? rsplit_at : split_at)(r, *self, &a->at[0], most, &p);
    for (size_t i = 0; ok && from_end && i < p.n / 2; i++) {
        const dra_tvalue kept = p.at[i];
        p.at[i] = p.at[p.n - 1 - i];
        p.at[p.n - 1 - i] = kept;
    }
    *out = dra_tlist(p.at, p.n);
    return ok;
}

METHOD(split) { return split_by(r, self, a, false, out); }
METHOD(rsplit) { return split_by(r, self, a, true, out); }

/* ---- dicts ----------------------------------------------------------------------------------- */

METHOD(items) { return a->n == 0 && dra_tpair_list(r, self, out); }
METHOD(keys) { return a->n == 0 && dra_titerate(r, self, out); }

METHOD(values)
{
    dra_tvalue *list = dra_trun_alloc(r, self->n, sizeof *list);
    if (!list || a->n) return false;
    for (size_t i = 0; i < self->n; i++) list[i] = self->pairs[i].value;
    *out = dra_tlist(list, self->n);
    return true;
}

METHOD(get)
{
    bool there;
    if (!dra_tcontains(r, self, &a->at[0], &there)) return false;
    if (there) return dra_titem(r, self, &a->at[0], out);
    *out = a->at[1].kind == DRA_T_ABSENT ? dra_tnone() : a->at[1];
    return true;
}

/* ---- functions ------------------------------------------------------------------------------- */

METHOD(raise_exception)
{
    char       room[DRA_ERROR_TEXT];
    dra_tvalue text;
    (void)self, (void)out;
    if (!dra_tstring_of(r, &a->at[0], &text)) return false;
    const size_t n = text.n < sizeof room ? text.n : sizeof room - 1;
    if (n) memcpy(room, text.text, n);
    room[n] = '\0';
    return dra_trun_fail(r, "%s", room);
}

METHOD(range)
{
    int64_t from = 0, to, step = 1;
    (void)self;
    if (a->at[1].kind == DRA_T_ABSENT) {
        if (!int_argument(r, a, 0, 0, &to)) return false;
    } else if (!int_argument(r, a, 0, 0, &from) || !int_argument(r, a, 1, 0, &to) ||
               !int_argument(r, a, 2, 1, &step)) {
        return false;
    }
    if (step == 0) return dra_trun_fail(r, "range: the step is 0");
    const uint64_t span = step > 0 ? (to > from ? (uint64_t)to - (uint64_t)from : 0)
                                   : (from > to ? (uint64_t)from - (uint64_t)to : 0);
    const uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const uint64_t n = span ? (span - 1) / by + 1 : 0;
    if (n > DRA_TEMPLATE_RANGE)
        return dra_trun_fail(r, "range: more than %d members", DRA_TEMPLATE_RANGE);
    dra_tvalue *list = dra_trun_alloc(r, n, sizeof *list);
    if (!list) return false;
    for (uint64_t i = 0; i < n; i++)
        list[i] = dra_tint((int64_t)((uint64_t)from + i * (uint64_t)step));
    *out = dra_tlist(list, n);
    return true;
}

/* Members of a dict and named arguments. */
static bool gather_pairs(dra_trun *r, const dra_targs *a, dra_tspace *all)
{
    for (size_t i = 0; i < a->n; i++) {
        if (!a->key[i]) {
            if (i || a->at[i].kind != DRA_T_DICT)
                return dra_trun_fail(r, "expected a dict and named arguments, found %s",
                                     dra_tkind_name(&a->at[i]));
            for (size_t k = 0; k < a->at[i].n; k++)
                if (!dra_tmap_set(r, all, &a->at[i].pairs[k].key, &a->at[i].pairs[k].value))
                    return false;
            continue;
        }
        const dra_tvalue key = dra_tstring(a->key[i], strlen(a->key[i]));
        if (!dra_tmap_set(r, all, &key, &a->at[i])) return false;
    }
    return true;
}

METHOD(namespace)
{
    dra_tspace *space = dra_trun_alloc(r, 1, sizeof *space);
    (void)self;
    if (!space || !gather_pairs(r, a, space)) return false;
    *out = (dra_tvalue){DRA_T_NAMESPACE, 0, {.space = space}};
    return true;
}

METHOD(dict)
{
    dra_tspace all = {0};
    (void)self;
    if (!gather_pairs(r, a, &all)) return false;
    *out = dra_tdict(all.pairs, all.n);
    return true;
}

METHOD(strftime_now)
{
    enum { ROOM = 1024, FORMAT = 256 };
    char         format[FORMAT + 1] = "";
    const time_t now = time(NULL);
    struct tm    parts;
    (void)self;
    if (!need_text(r, &a->at[0])) return false;
    if (a->at[0].n >= FORMAT || !localtime_r(&now, &parts))
        return dra_trun_fail(r, "strftime_now: expected a format of fewer than %d bytes", FORMAT);
    memcpy(format, a->at[0].text, a->at[0].n);
    char *text = dra_trun_alloc(r, ROOM, 1);
    if (!text) return false;
    *out = dra_tstring(text, strftime(text, ROOM, format, &parts));
    return true;
}

static const dra_tbuiltin text_methods[] = {
    {"strip", "chars", 0, strip},
    {"lstrip", "chars", 0, lstrip},
    {"rstrip", "chars", 0, rstrip},
    {"split", "sep maxsplit", 0, split},
    {"rsplit", "sep maxsplit", 0, rsplit},
    {"startswith", "prefix", 1, startswith},
    {"endswith", "suffix", 1, endswith},
    {"replace", "old new count", 2, replace},
    {"upper", "", 0, upper},
    {"lower", "", 0, lower},
    {"title", "", 0, title},
    {"capitalize", "", 0, capitalize},
    {"join", "iterable", 1, join},
    {"find", "sub", 1, find},
    {"count", "sub", 1, count},
};
const dra_tbuiltins dra_ttext_methods = {text_methods, sizeof text_methods / sizeof *text_methods};

static const dra_tbuiltin dict_methods[] = {
    {"items", "", 0, items},
    {"keys", "", 0, keys},
    {"values", "", 0, values},
    {"get", "key default", 1, get},
};
const dra_tbuiltins dra_tdict_methods = {dict_methods, sizeof dict_methods / sizeof *dict_methods};

static const dra_tbuiltin functions[] = {
    {"raise_exception", "message", 1, raise_exception},
    {"range", "start stop step", 1, range},
    {"namespace", NULL, 0, namespace},
    {"dict", NULL, 0, dict},
    {"strftime_now", "format", 1, strftime_now},
};
const dra_tbuiltins dra_tfunctions = {functions, sizeof functions / sizeof *functions};
