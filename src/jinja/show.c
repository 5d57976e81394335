/* Values as texts: str(), repr() and json.dumps() of Python. */
#include "jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/letters.h"
#include "text/literal.h"

enum { DEEPEST = 100, NUMBER = 40 };

bool dra_tbuffer_add(dra_trun *r, dra_tbuffer *b, const char *text, size_t n)
{
    if (n > b->room - b->n) {
        size_t room = b->room ? b->room : 64;
        while (room < b->n + n && room < DRA_TEMPLATE_BYTES) room *= 2;
        char *more = room < b->n + n ? NULL : dra_trun_alloc(r, room, 1);
        if (!more) return dra_trun_fail(r, "the text is too long");
        if (b->n) memcpy(more, b->at, b->n);
        b->at = more;
        b->room = room;
    }
    if (n) memcpy(b->at + b->n, text, n);
    b->n += n;
    return dra_trun_spend(r, n / 16);
}

static bool add_text(dra_trun *r, dra_tbuffer *b, const char *text)
{
    return dra_tbuffer_add(r, b, text, strlen(text));
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* As many digits as read back to the same number, like repr(). */
static void show_real(double x, char room[NUMBER])
{
    char digits[NUMBER];
    int  precision = 0;
    if (!isfinite(x)) {
        snprintf(room, NUMBER, "%s", isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    do snprintf(digits, sizeof digits, "%.*e", precision, x);
    while (strtod(digits, NULL) != x && ++precision < 17);
    const int power = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (power < -4 || power >= 16) {
        const int n = (int)(strchr(digits, 'e') - digits);
        snprintf(room, NUMBER, "%.*se%c%02d", n, digits, power < 0 ? '-' : '+', abs(power));
    } else {
        const int places = precision > power ? precision - power : 1;
        snprintf(room, NUMBER, "%.*f", places, x);
    }
}

static bool add_number(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x)
{
    char room[NUMBER];
    if (x->kind == DRA_T_FLOAT)
        show_real(x->real, room);
    else
        snprintf(room, sizeof room, "%lld", (long long)x->whole);
    return add_text(r, b, room);
}

/* ---- str() and repr() ------------------------------------------------------------------------ */

static bool add_quoted(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x)
{
    char *room = dra_trun_alloc(r, x->n + 1, 4); /* see dra_literal_write() */
    return room && dra_tbuffer_add(r, b, room, dra_literal_write(x->text, x->n, room));
}

static bool show_value(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, int depth);

static bool show_list(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, int depth)
{
    const bool tuple = x->kind == DRA_T_TUPLE;
    bool       ok = add_text(r, b, tuple ? "(" : "[");
    for (size_t i = 0; ok && i < x->n; i++)
        ok = (i == 0 || add_text(r, b, ", ")) && show_value(r, b, &x->items[i], depth + 1);
    return ok && add_text(r, b, !tuple ? "]" : x->n == 1 ? ",)" : ")");
}

static bool show_dict(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, int depth)
{
    bool ok = add_text(r, b, "{");
    for (size_t i = 0; ok && i < x->n; i++)
        ok = (i == 0 || add_text(r, b, ", ")) && show_value(r, b, &x->pairs[i].key, depth + 1) &&
             add_text(r, b, ": ") && show_value(r, b, &x->pairs[i].value, depth + 1);
    return ok && add_text(r, b, "}");
}

/* depth 0: str(), else repr(). */
static bool show_value(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, int depth)
{
    if (depth > DEEPEST) return dra_trun_fail(r, "values nest more than %d deep", DEEPEST);
    if (!dra_trun_spend(r, 1)) return false;
    switch (x->kind) {
    case DRA_T_ABSENT: return true;
    case DRA_T_UNDEFINED: return add_text(r, b, depth ? "Undefined" : "");
    case DRA_T_NONE: return add_text(r, b, "None");
    case DRA_T_BOOL: return add_text(r, b, x->truth ? "True" : "False");
    case DRA_T_INT:
    case DRA_T_FLOAT: return add_number(r, b, x);
    case DRA_T_STRING: return depth ? add_quoted(r, b, x) : dra_tbuffer_add(r, b, x->text, x->n);
    case DRA_T_LIST:
    case DRA_T_TUPLE: return show_list(r, b, x, depth);
    case DRA_T_DICT: return show_dict(r, b, x, depth);
    default: return dra_trun_fail(r, "%s cannot be written", dra_tkind_name(x));
    }
}

bool dra_tshow(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x) { return show_value(r, b, x, 0); }

bool dra_tstring_of(dra_trun *r, const dra_tvalue *x, dra_tvalue *out)
{
    dra_tbuffer b = {0};
    *out = *x;
    if (x->kind == DRA_T_STRING) return true;
    if (!show_value(r, &b, x, 0)) return false;
    *out = dra_tbuffer_value(&b);
    return true;
}

/* ---- json.dumps() ---------------------------------------------------------------------------- */

static bool dump_code(dra_trun *r, dra_tbuffer *b, int32_t code)
{
    static const char names[] = "\"\\nrtfb", codes[] = "\"\\\n\r\t\f\b";
    const char       *at = code > 0 && code < 0x80 ? strchr(codes, code) : NULL;
    char              room[16];
    if (at)
        snprintf(room, sizeof room, "\\%c", names[at - codes]);
    else if (code < 0x10000)
        snprintf(room, sizeof room, "\\u%04x", (unsigned)code);
    else
        snprintf(room, sizeof room, "\\u%04x\\u%04x", 0xd800 + ((unsigned)(code - 0x10000) >> 10),
                 0xdc00 + ((unsigned)code & 0x3ff));
    return add_text(r, b, room);
}

static bool dump_string(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, bool ascii)
{
    bool ok = add_text(r, b, "\"");
    for (size_t at = 0, bytes; ok && at < x->n; at += bytes) {
        int32_t code;
        bytes = dra_utf8(x->text + at, x->n - at, &code);
        const bool escaped = code >= 0 &&
                             (code < 0x20 || code == '"' || code == '\\' || (ascii && code > 0x7e));
        ok = escaped ? dump_code(r, b, code) : dra_tbuffer_add(r, b, x->text + at, bytes);
    }
    return ok && add_text(r, b, "\"");
}

static bool dump_value(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, const dra_tjson *how,
                       int depth);

/* With an indent, each member has a line. */
static bool dump_line(dra_trun *r, dra_tbuffer *b, const dra_tjson *how, int depth)
{
    if (how->indent.kind != DRA_T_STRING) return true;
    bool ok = add_text(r, b, "\n");
    for (int i = 0; ok && i < depth; i++)
        ok = dra_tbuffer_add(r, b, how->indent.text, how->indent.n);
    return ok;
}

static bool dump_part(dra_trun *r, dra_tbuffer *b, const dra_tjson *how, int depth, size_t i)
{
    return (i == 0 || dra_tbuffer_add(r, b, how->comma.text, how->comma.n)) &&
           dump_line(r, b, how, depth + 1);
}

static bool dump_list(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, const dra_tjson *how,
                      int depth)
{
    bool ok = add_text(r, b, "[");
    for (size_t i = 0; ok && i < x->n; i++)
        ok = dump_part(r, b, how, depth, i) && dump_value(r, b, &x->items[i], how, depth + 1);
    return ok && (x->n == 0 || dump_line(r, b, how, depth)) && add_text(r, b, "]");
}

/* Keys that are not strings are converted. */
static bool dump_key(dra_trun *r, dra_tbuffer *b, const dra_tvalue *key, const dra_tjson *how)
{
    if (key->kind == DRA_T_STRING) return dump_string(r, b, key, how->ascii);
    if (key->kind == DRA_T_TUPLE)
        return dra_trun_fail(r, "tojson: a tuple cannot be a key in JSON");
    return add_text(r, b, "\"") && dump_value(r, b, key, how, 0) && add_text(r, b, "\"");
}

static bool sort_pairs(dra_trun *r, dra_tvalue *x)
{
    dra_tpair *pairs = dra_trun_alloc(r, x->n, sizeof *pairs);
    if (!pairs) return false;
    for (size_t i = 0; i < x->n; i++) {
        size_t at = i;
        for (int order = 0; at > 0; at--) {
            if (!dra_torder(r, &x->pairs[i].key, &pairs[at - 1].key, &order)) return false;
            if (order >= 0) break;
            pairs[at] = pairs[at - 1];
        }
        pairs[at] = x->pairs[i];
    }
    x->pairs = pairs;
    return true;
}

static bool dump_dict(dra_trun *r, dra_tbuffer *b, dra_tvalue x, const dra_tjson *how, int depth)
{
    if (how->sorted && !sort_pairs(r, &x)) return false;
    bool ok = add_text(r, b, "{");
    for (size_t i = 0; ok && i < x.n; i++)
        ok = dump_part(r, b, how, depth, i) && dump_key(r, b, &x.pairs[i].key, how) &&
             dra_tbuffer_add(r, b, how->colon.text, how->colon.n) &&
             dump_value(r, b, &x.pairs[i].value, how, depth + 1);
    return ok && (x.n == 0 || dump_line(r, b, how, depth)) && add_text(r, b, "}");
}

static bool dump_value(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, const dra_tjson *how,
                       int depth)
{
    if (depth > DEEPEST) return dra_trun_fail(r, "values nest more than %d deep", DEEPEST);
    if (!dra_trun_spend(r, 1)) return false;
    switch (x->kind) {
    case DRA_T_NONE: return add_text(r, b, "null");
    case DRA_T_BOOL: return add_text(r, b, x->truth ? "true" : "false");
    case DRA_T_INT: return add_number(r, b, x);
    case DRA_T_FLOAT:
        if (isfinite(x->real)) return add_number(r, b, x);
        return add_text(r, b, isnan(x->real) ? "NaN" : x->real > 0 ? "Infinity" : "-Infinity");
    case DRA_T_STRING: return dump_string(r, b, x, how->ascii);
    case DRA_T_LIST:
    case DRA_T_TUPLE: return dump_list(r, b, x, how, depth);
    case DRA_T_DICT: return dump_dict(r, b, *x, how, depth);
    default: return dra_trun_fail(r, "tojson: %s has no form in JSON", dra_tkind_name(x));
    }
}

bool dra_tjson_add(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, const dra_tjson *how)
{
    return dump_value(r, b, x, how, 0);
}
