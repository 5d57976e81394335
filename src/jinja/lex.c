/* Tokens of a template. White space around tags is removed as Hugging Face configures Jinja:
 *   {%- and -%}    all of it on that side
 *   {% {#          blanks between the start of the line and the tag (lstrip_blocks), not with {%+
 *   %} #}          the newline after the tag (trim_blocks), not with +%} */
#include "jinja/tree.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/fail.h"
#include "text/letters.h"

dra_status dra_template_fail(const dra_tsource *s, int line, const char *format, ...)
{
    char    text[DRA_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return dra_fail_at(s->err, DRA_ERR_FORMAT, s->name, "line %d: %s", line, text);
}

static dra_status no_memory(const dra_tsource *s)
{
    return dra_fail_at(s->err, DRA_ERR_MEMORY, s->name, "out of memory for the template");
}

static dra_status push_token(dra_tsource *s, dra_ttoken t)
{
    if (s->tokens == s->room) {
        const size_t room = s->room ? 2 * s->room : 64;
        dra_ttoken  *more = realloc(s->token, room * sizeof *more);
        if (!more) return no_memory(s);
        s->token = more;
        s->room = room;
    }
    s->token[s->tokens++] = t;
    return DRA_OK;
}

static bool starts_with(const dra_tsource *s, size_t at, const char *text)
{
    const size_t n = strlen(text);
    return s->n - at >= n && memcmp(s->text + at, text, n) == 0;
}

/* Moves on to `to` and counts lines. */
static void skip_to(dra_tsource *s, size_t to)
{
    for (; s->at < to; s->at++) s->line += s->text[s->at] == '\n';
}

/* ---- outside of tags ------------------------------------------------------------------------- */

static size_t next_tag(const dra_tsource *s)
{
    size_t at = s->at;
    while (at + 1 < s->n && !(s->text[at] == '{' && memchr("{%#", s->text[at + 1], 3))) at++;
    return at + 1 < s->n ? at : s->n;
}

/* The end of the text before a tag that starts at `tag`. */
static size_t end_of_text(const dra_tsource *s, size_t tag)
{
    const char  *text = s->text + s->at;
    const size_t n = tag - s->at;
    const char   sign = tag + 2 < s->n ? s->text[tag + 2] : '\0';
    size_t       line = n;
    if (tag == s->n) return tag;
    if (sign == '-') return s->at + dra_twithout_end(text, n);
    if (sign == '+' || s->text[tag + 1] == '{') return tag;
    while (line > 0 && text[line - 1] != '\n') line--;
    if (line == 0 && !s->starts_line) return tag;
    return dra_tblanks(text + line, n - line) == n - line ? s->at + line : tag;
}

/* Moves behind a tag that ends at `end`, with or without a sign. */
static void after_tag(dra_tsource *s, size_t end, char sign, bool is_print)
{
    if (sign == '-') end += dra_tblanks(s->text + end, s->n - end);
    if (!sign && !is_print && end < s->n && s->text[end] == '\n') end++;
    s->starts_line = s->text[end - 1] == '\n';
    skip_to(s, end);
}

static dra_status skip_comment(dra_tsource *s, size_t from)
{
    size_t end = from;
    while (end < s->n && !starts_with(s, end, "#}")) end++;
    if (end == s->n) return dra_template_fail(s, s->line, "expected #} after {#, found the end");
    const char sign = end > from ? s->text[end - 1] : '\0';
    after_tag(s, end + 2, sign == '-' || sign == '+' ? sign : '\0', false);
    return DRA_OK;
}

/* The text up to a tag, and its beginning. */
static dra_status read_text(dra_tsource *s, bool *is_print, bool *inside)
{
    const size_t     tag = next_tag(s), end = end_of_text(s, tag);
    const dra_ttoken text = {DRA_W_TEXT, s->line, s->text + s->at, end - s->at, {0}};
    dra_status       st = text.n ? push_token(s, text) : DRA_OK;
    skip_to(s, tag);
    if (tag == s->n || st != DRA_OK) return st;
    const char   kind = s->text[tag + 1];
    const size_t from = tag + 2 +
                        (tag + 2 < s->n && strchr("-+", s->text[tag + 2]) && s->text[tag + 2]);
    if (kind == '#') return skip_comment(s, from);
    *is_print = kind == '{';
    *inside = true;
    s->brackets = 0;
    st = push_token(s, (dra_ttoken){*is_print ? DRA_W_PRINT : DRA_W_BLOCK, s->line, "", 0, {0}});
    skip_to(s, from);
    return st;
}

/* ---- inside of tags -------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

static int read_octal(const char *at, const char *end, int64_t *code)
{
    int n = 0;
    *code = 0;
    while (n < 3 && at + n < end && at[n] >= '0' && at[n] <= '7') *code = *code * 8 + at[n++] - '0';
    return n;
}

static int read_hex(const char *at, const char *end, int digits, int64_t *code)
{
    *code = 0;
    for (int i = 0; i < digits; i++) {
        const char *hex = "0123456789abcdef";
        const char *digit = at + i < end && at[i] > ' ' ? strchr(hex, at[i] | 0x20) : NULL;
        if (!digit || at[i] < '0') return -1;
        *code = *code * 16 + (digit - hex);
    }
    return digits;
}

/* Reads what follows a backslash, by Python's rules. Returns how many bytes it took; 0: the
 * backslash stands for itself; -1: malformed. */
static int read_escape(const char *at, const char *end, char *to, size_t *wrote)
{
    static const char names[] = "ntr\\'\"abfv", codes[] = "\n\t\r\\'\"\a\b\f\v";
    const char       *name = strchr(names, *at);
    int64_t           code = 0;
    *wrote = 0;
    if (*at == '\n') return 1;
    if (name && *at) {
        to[(*wrote)++] = codes[name - names];
        return 1;
    }
    int       n = read_octal(at, end, &code);
    const int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    if (digits) n = read_hex(at + 1, end, digits, &code);
    if (n < 0 || *at == 'N' || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return -1;
    if (n > 0) *wrote = dra_utf8_write((int32_t)code, to);
    return n + (digits > 0);
}

static dra_status read_string(dra_tsource *s)
{
    const char  quote = s->text[s->at];
    size_t      end = s->at + 1, n = 0;
    const char *at = s->text + end;
    while (end < s->n && s->text[end] != quote) end += s->text[end] == '\\' ? 2 : 1;
    if (end >= s->n)
        return dra_template_fail(s, s->line, "expected %c at the end of a string, found the end",
                                 quote);
    char *to = dra_arena_alloc(s->arena, end - s->at);
    if (!to) return no_memory(s);
    for (const char *stop = s->text + end; at < stop;) {
        size_t    wrote = 0;
        const int taken = *at == '\\' ? read_escape(at + 1, stop, to + n, &wrote) : 0;
        if (taken < 0)
            return dra_template_fail(s, s->line, "expected an escape of a letter, found \\%c",
                                     at[1]);
        if (taken == 0) to[n++] = *at;
        n += wrote;
        at += 1 + taken;
    }
    const dra_status st = push_token(s, (dra_ttoken){DRA_W_STRING, s->line, to, n, {0}});
    skip_to(s, end + 1);
    return st;
}

static dra_status read_number(dra_tsource *s)
{
    const char  *text = s->text + s->at;
    size_t       n = 0;
    bool         is_float = false;
    char         room[64];
    const size_t left = s->n - s->at;
    while (n < left && is_digit(text[n])) n++;
    const size_t digits = n;
    if (n + 1 < left && text[n] == '.' && is_digit(text[n + 1]))
        for (is_float = true, n++; n < left && is_digit(text[n]);) n++;
    size_t power = n + 1;
    if (n < left && (text[n] | 0x20) == 'e') {
        if (power < left && (text[power] == '+' || text[power] == '-')) power++;
        if (power < left && is_digit(text[power]))
            for (is_float = true, n = power; n < left && is_digit(text[n]);) n++;
    }
    if (n >= sizeof room || (n < left && is_name(text[n])) ||
        (digits > 1 && text[0] == '0' && !is_float))
        return dra_template_fail(s, s->line, "expected a number, found '%.*s'",
                                 (int)(n < 40 ? n + 1 : 40), text);
    memcpy(room, text, n);
    room[n] = '\0';
    errno = 0;
    const dra_tvalue x = is_float ? dra_treal(strtod(room, NULL))
                                  : dra_tint(strtoll(room, NULL, 10));
    if (errno && !is_float)
        return dra_template_fail(s, s->line, "expected an integer of 64 bits, found %s", room);
    s->at += n;
    return push_token(s, (dra_ttoken){is_float ? DRA_W_FLOAT : DRA_W_INT, s->line, text, n, x});
}

/* Tags end outside of brackets only, so that {{ {'a': {}} }} is one. */
static dra_status count_bracket(dra_tsource *s, char c)
{
    const char *open = strchr("([{", c), *close = strchr(")]}", c);
    if (open && s->brackets == DRA_TEMPLATE_DEPTH)
        return dra_template_fail(s, s->line, "nests more than %d deep", DRA_TEMPLATE_DEPTH);
    if (open) s->open[s->brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    if (close && s->brackets == 0)
        return dra_template_fail(s, s->line, "found %c without its beginning", c);
    if (close && s->open[--s->brackets] != c)
        return dra_template_fail(s, s->line, "expected %c, found %c", s->open[s->brackets], c);
    return DRA_OK;
}

static dra_status read_sign(dra_tsource *s)
{
    static const char *const signs[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                        "/",  "%",  "~",  "<",  ">",  "=",  ".", ",", ":",
                                        "|",  "(",  ")",  "[",  "]",  "{",  "}"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!starts_with(s, s->at, signs[i])) continue;
        const size_t     n = strlen(signs[i]);
        const dra_status st = count_bracket(s, *signs[i]);
        if (st != DRA_OK) return st;
        s->at += n;
        return push_token(s, (dra_ttoken){DRA_W_SIGN, s->line, signs[i], n, {0}});
    }
    int32_t      code;
    const size_t n = dra_utf8(s->text + s->at, s->n - s->at, &code);
    return dra_template_fail(s, s->line, "no sign of the language: '%.*s'", (int)n,
                             s->text + s->at);
}

/* Whether a tag ends here; if so, moves behind it. */
static bool tag_ends(dra_tsource *s, bool is_print, dra_status *st)
{
    const char  *end = is_print ? "}}" : "%}";
    const char   first = s->text[s->at];
    const bool   signed_end = first == '-' || (first == '+' && !is_print);
    const size_t at = s->at + signed_end;
    if (s->brackets || at >= s->n || !starts_with(s, at, end)) return false;
    *st = push_token(
        s, (dra_ttoken){is_print ? DRA_W_PRINT_END : DRA_W_BLOCK_END, s->line, end, 2, {0}});
    after_tag(s, at + 2, signed_end ? first : '\0', is_print);
    return true;
}

static dra_status inside_tag(dra_tsource *s, bool is_print, bool *inside)
{
    dra_status st = DRA_OK;
    skip_to(s, s->at + dra_tblanks(s->text + s->at, s->n - s->at));
    if (s->at == s->n)
        return dra_template_fail(s, s->line, "expected %s, found the end of the template",
                                 is_print ? "}}" : "%}");
    const char c = s->text[s->at];
    if (tag_ends(s, is_print, &st)) {
        *inside = false;
        return st;
    }
    if (c == '\'' || c == '"') return read_string(s);
    if (is_digit(c)) return read_number(s);
    if (!is_name(c)) return read_sign(s);
    const size_t from = s->at;
    while (s->at < s->n && is_name(s->text[s->at])) s->at++;
    return push_token(s, (dra_ttoken){DRA_W_NAME, s->line, s->text + from, s->at - from, {0}});
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool copy_text(dra_tsource *s, const char *text, size_t bytes)
{
    char *to = dra_arena_alloc(s->arena, bytes + 1);
    if (!to) return false;
    s->text = to;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') continue;
        to[s->n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (s->n && to[s->n - 1] == '\n') s->n--;
    return true;
}

dra_status dra_template_lex(dra_tsource *s, const char *text, size_t bytes)
{
    bool       is_print = false, inside = false;
    dra_status st = copy_text(s, text, bytes) ? DRA_OK : no_memory(s);
    s->line = 1;
    s->starts_line = true;
    while (st == DRA_OK && (inside || s->at < s->n))
        st = inside ? inside_tag(s, is_print, &inside) : read_text(s, &is_print, &inside);
    if (st == DRA_OK) st = push_token(s, (dra_ttoken){DRA_W_END, s->line, "", 0, {0}});
    return st;
}
