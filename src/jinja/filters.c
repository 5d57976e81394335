/* Filters of strings and of single values. */
#include "jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                               \
    static bool name(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out)

static bool is_given(const dra_targs *a, size_t i)
{
    return a->at[i].kind != DRA_T_ABSENT && a->at[i].kind != DRA_T_NONE;
}

/* An argument that must be an int; `otherwise` if it is not given. */
static bool int_argument(dra_trun *r, const dra_targs *a, size_t i, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (!is_given(a, i)) return true;
    if (!dra_tis_whole(&a->at[i]))
        return dra_trun_fail(r, "expected an int as argument, found %s", dra_tkind_name(&a->at[i]));
    *out = dra_twhole(&a->at[i]);
    return true;
}

/* ---- strings --------------------------------------------------------------------------------- */

FILTER(string) { return a->n == 0 && dra_tstring_of(r, self, out); }

FILTER(safe)
{
    (void)r, (void)a;
    *out = *self;
    return true;
}

static bool set_case(dra_trun *r, const dra_tvalue *self, dra_tcase how, dra_tvalue *out)
{
    dra_tvalue text;
    return dra_tstring_of(r, self, &text) && dra_tcased(r, &text, how, out);
}

FILTER(upper) { return a->n == 0 && set_case(r, self, DRA_CASE_UPPER, out); }
FILTER(lower) { return a->n == 0 && set_case(r, self, DRA_CASE_LOWER, out); }
FILTER(title) { return a->n == 0 && set_case(r, self, DRA_CASE_WORDS, out); }
FILTER(capitalize) { return a->n == 0 && set_case(r, self, DRA_CASE_FIRST, out); }

FILTER(trim)
{
    dra_tvalue text;
    return dra_tstring_of(r, self, &text) && dra_tstrip(r, text, &a->at[0], DRA_SIDE_BOTH, out);
}

FILTER(replace)
{
    dra_tvalue text, from, to;
    int64_t    most;
    return dra_tstring_of(r, self, &text) && dra_tstring_of(r, &a->at[0], &from) &&
           dra_tstring_of(r, &a->at[1], &to) && int_argument(r, a, 2, -1, &most) &&
           dra_treplace(r, &text, &from, &to, most, out);
}

/* Indents the lines after the first; empty lines and the first one only if asked for. */
FILTER(indent)
{
    dra_tvalue       text, by = a->at[0];
    const dra_tvalue space = dra_tstring(" ", 1), four = dra_tint(4);
    dra_tbuffer      b = {0};
    const bool       first = dra_ttruth(&a->at[1]), blank = dra_ttruth(&a->at[2]);
    if (!is_given(a, 0)) by = four;
    if (by.kind != DRA_T_STRING) {
        const dra_tvalue width = by;
        if (!dra_tbinary(r, DRA_OP_MUL, &space, &width, &by)) return false;
    }
    if (self->kind != DRA_T_STRING)
        return dra_trun_fail(r, "indent: expected a str, found %s", dra_tkind_name(self));
    text = *self;
    if (first && !dra_tbuffer_add(r, &b, by.text, by.n)) return false;
    for (size_t at = 0, n; at < text.n; at += n) {
        const char *end = memchr(text.text + at, '\n', text.n - at);
        n = end ? (size_t)(end - text.text) + 1 - at : text.n - at;
        const bool empty = text.text[at] == '\n';
        if (at && (!empty || blank) && !dra_tbuffer_add(r, &b, by.text, by.n)) return false;
        if (!dra_tbuffer_add(r, &b, text.text + at, n)) return false;
    }
    if (blank && text.n && text.text[text.n - 1] == '\n' && !dra_tbuffer_add(r, &b, by.text, by.n))
        return false;
    *out = dra_tbuffer_value(&b);
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* An int is a number of spaces. */
static bool json_indent(dra_trun *r, dra_tvalue *indent)
{
    const dra_tvalue given_indent = *indent, space = dra_tstring(" ", 1);
    if (indent->kind == DRA_T_ABSENT || indent->kind == DRA_T_NONE || indent->kind == DRA_T_STRING)
        return true;
    return dra_tbinary(r, DRA_OP_MUL, &space, &given_indent, indent);
}

FILTER(tojson)
{
    dra_tjson   how = {.ascii = dra_ttruth(&a->at[0]), .sorted = dra_ttruth(&a->at[3])};
    dra_tbuffer b = {0};
    how.indent = a->at[1];
    if (!json_indent(r, &how.indent)) return false;
    how.comma = how.indent.kind == DRA_T_STRING ? dra_tstring(",", 1) : dra_tstring(", ", 2);
    how.colon = dra_tstring(": ", 2);
    if (is_given(a, 2)) {
        const dra_tvalue *s = &a->at[2];
        if (!dra_tis_list(s) || s->n != 2 || s->items[0].kind != DRA_T_STRING ||
            s->items[1].kind != DRA_T_STRING)
            return dra_trun_fail(r, "tojson: separators: expected two strings");
        how.comma = s->items[0];
        how.colon = s->items[1];
    }
    if (!dra_tjson_add(r, &b, self, &how)) return false;
    *out = dra_tbuffer_value(&b);
    return true;
}

/* ---- any value ------------------------------------------------------------------------------- */

FILTER(otherwise)
{
    const bool falsy = dra_ttruth(&a->at[1]) && !dra_ttruth(self);
    (void)r;
    *out = *self;
    if (self->kind == DRA_T_UNDEFINED || falsy)
        *out = a->at[0].kind == DRA_T_ABSENT ? dra_tstring("", 0) : a->at[0];
    return true;
}

/* A number written in a string, white space around it allowed. */
static bool read_number(const dra_tvalue *x, int base, bool real, dra_tvalue *out)
{
    char         room[128], *end = room;
    const size_t from = dra_tblanks(x->text, x->n);
    const size_t to = dra_twithout_end(x->text, x->n);
    const size_t n = to > from ? to - from : 0;
    if (n == 0 || n >= sizeof room || memchr(x->text + from, '\0', n)) return false;
    memcpy(room, x->text + from, n);
    room[n] = '\0';
    if (real) {
        if (strpbrk(room, "xXpP(")) return false;
        *out = dra_treal(strtod(room, &end));
    } else {
        if (room[0] == '0' && (room[1] | 0x20) == 'x' && base != 16) return false;
        *out = dra_tint(strtoll(room, &end, base));
    }
    return *end == '\0';
}

FILTER(to_int)
{
    dra_tvalue x = *self;
    int64_t    base;
    if (!int_argument(r, a, 1, 10, &base)) return false;
    if (base < 2 || base > 36) return dra_trun_fail(r, "int: expected a base of 2 to 36");
    *out = a->at[0].kind == DRA_T_ABSENT ? dra_tint(0) : a->at[0];
    if (x.kind == DRA_T_STRING && !read_number(self, (int)base, false, &x) &&
        !read_number(self, 10, true, &x))
        return true;
    if (dra_tis_whole(&x))
        *out = dra_tint(dra_twhole(&x));
    else if (x.kind == DRA_T_FLOAT && fabs(x.real) < 9e18)
        *out = dra_tint((int64_t)x.real);
    else if (x.kind == DRA_T_UNDEFINED)
        return dra_trun_fail(r, "int: '%.*s' is undefined", (int)x.n, x.text);
    return true;
}

FILTER(to_float)
{
    dra_tvalue x = *self;
    *out = a->at[0].kind == DRA_T_ABSENT ? dra_treal(0) : a->at[0];
    if (x.kind == DRA_T_UNDEFINED)
        return dra_trun_fail(r, "float: '%.*s' is undefined", (int)x.n, x.text);
    if (x.kind == DRA_T_STRING && !read_number(self, 10, true, &x)) return true;
    if (dra_tis_number(&x)) *out = dra_treal(dra_tnumber(&x));
    return true;
}

/* ---- numbers --------------------------------------------------------------------------------- */

FILTER(absolute)
{
    (void)a;
    *out = dra_tis_whole(self) ? dra_tint(dra_twhole(self)) : *self;
    if (!dra_tis_number(self))
        return dra_trun_fail(r, "abs: expected a number, found %s", dra_tkind_name(self));
    return dra_tnumber(self) < 0 ? dra_tnegate(r, self, out) : true;
}

/* Decimal digits are rounded as written: to the nearest, halves to even, by printf(). */
static double round_to(double x, int64_t places)
{
    char room[400];
    if (places > 300) return x;
    if (places >= 0 && fabs(x) < 1e300) {
        snprintf(room, sizeof room, "%.*f", (int)(places > 60 ? 60 : places), x);
        return strtod(room, NULL);
    }
    const double unit = pow(10, (double)-places);
    return rint(x / unit) * unit;
}

FILTER(rounded)
{
    int64_t places;
    if (!int_argument(r, a, 0, 0, &places)) return false;
    if (!dra_tis_number(self))
        return dra_trun_fail(r, "round: expected a number, found %s", dra_tkind_name(self));
    const double x = dra_tnumber(self), unit = pow(10, (double)places);
    if (!is_given(a, 1) || dra_tis(&a->at[1], "common")) {
        const bool kept = dra_tis_whole(self) && places >= 0;
        *out = kept ? dra_tint(dra_twhole(self)) : dra_treal(round_to(x, places));
        if (dra_tis_whole(self) && !kept) *out = dra_tint((int64_t)out->real);
    } else if (dra_tis(&a->at[1], "ceil") || dra_tis(&a->at[1], "floor")) {
        *out = dra_treal((dra_tis(&a->at[1], "ceil") ? ceil(x * unit) : floor(x * unit)) / unit);
    } else {
        return dra_trun_fail(r, "round: expected 'common', 'ceil' or 'floor'");
    }
    return true;
}

static const dra_tbuiltin texts[] = {
    {"trim", "chars", 0, trim},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson},
    {"upper", "", 0, upper},
    {"lower", "", 0, lower},
    {"title", "", 0, title},
    {"capitalize", "", 0, capitalize},
    {"replace", "old new count", 2, replace},
    {"string", "", 0, string},
    {"safe", "", 0, safe},
    {"indent", "width first blank", 0, indent},
};
const dra_tbuiltins dra_ttext_filters = {texts, sizeof texts / sizeof *texts};

static const dra_tbuiltin numbers[] = {
    {"default", "default_value boolean", 0, otherwise},
    {"d", "default_value boolean", 0, otherwise},
    {"int", "default base", 0, to_int},
    {"float", "default", 0, to_float},
    {"abs", "", 0, absolute},
    {"round", "precision method", 0, rounded},
};
const dra_tbuiltins dra_tnumber_filters = {numbers, sizeof numbers / sizeof *numbers};
