/* What filters and methods do with strings. */
#include "jinja/run.h"

#include <string.h>
#include <utf8proc.h>

#include "text/letters.h"

size_t dra_tfind(const dra_tvalue *text, size_t at, const dra_tvalue *part)
{
    if (part->n == 0) return at <= text->n ? at : SIZE_MAX;
    for (const char *from = text->text + at, *end = text->text + text->n;
         (size_t)(end - from) >= part->n;) {
        from = memchr(from, part->text[0], (size_t)(end - from) - part->n + 1);
        if (!from) break;
        if (memcmp(from, part->text, part->n) == 0) return (size_t)(from - text->text);
        from++;
    }
    return SIZE_MAX;
}

/* ---- strip ----------------------------------------------------------------------------------- */

static bool is_stripped(const char *letter, size_t n, const dra_tvalue *chars)
{
    if (chars->kind != DRA_T_STRING) return dra_tblank(letter, n) > 0;
    const dra_tvalue x = dra_tstring(letter, n);
    for (size_t at = 0, bytes; at < chars->n; at += bytes) {
        int32_t code;
        bytes = dra_utf8(chars->text + at, chars->n - at, &code);
        if (bytes == x.n && memcmp(chars->text + at, letter, n) == 0) return true;
    }
    return false;
}

bool dra_tstrip(dra_trun *r, dra_tvalue text, const dra_tvalue *chars, dra_tside side,
                dra_tvalue *out)
{
    int32_t code;
    if (chars->kind != DRA_T_ABSENT && chars->kind != DRA_T_NONE && chars->kind != DRA_T_STRING)
        return dra_trun_fail(r, "expected a str of letters to strip, found %s",
                             dra_tkind_name(chars));
    while ((side & DRA_SIDE_LEFT) && text.n) {
        const size_t n = dra_utf8(text.text, text.n, &code);
        if (!is_stripped(text.text, n, chars)) break;
        text.text += n;
        text.n -= n;
    }
    while ((side & DRA_SIDE_RIGHT) && text.n) {
        const size_t before = dra_utf8_before(text.text, text.n, &code);
        if (!is_stripped(text.text + before, text.n - before, chars)) break;
        text.n = before;
    }
    *out = text;
    return dra_trun_spend(r, 1 + (chars->kind == DRA_T_STRING ? chars->n / 4 : 0));
}

/* ---- upper and lower ------------------------------------------------------------------------- */

/* Letters that part words for the filter title; the method's words are runs of letters. */
static bool parts_words(int32_t code, size_t blank)
{
    return blank > 0 || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

static bool is_cased(int32_t code)
{
    return code >= 0 && (utf8proc_tolower(code) != code || utf8proc_toupper(code) != code);
}

static bool add_letter(dra_trun *r, dra_tbuffer *b, const char *text, size_t n, int32_t code,
                       bool upper)
{
    char room[4];
    if (code < 0) return dra_tbuffer_add(r, b, text, n);
    if (upper && code == 0xdf) return dra_tbuffer_add(r, b, "SS", 2);
    code = upper ? utf8proc_toupper(code) : utf8proc_tolower(code);
    return dra_tbuffer_add(r, b, room, dra_utf8_write(code, room));
}

bool dra_tcased(dra_trun *r, const dra_tvalue *text, dra_tcase how, dra_tvalue *out)
{
    dra_tbuffer b = {0};
    bool        begins = true; /* a word, or the text */
    for (size_t at = 0, bytes; at < text->n; at += bytes) {
        int32_t code;
        bytes = dra_utf8(text->text + at, text->n - at, &code);
        const bool upper = how == DRA_CASE_UPPER || (how != DRA_CASE_LOWER && begins);
        if (!add_letter(r, &b, text->text + at, bytes, code, upper)) return false;
        begins = how == DRA_CASE_TITLE ? !is_cased(code)
                                       : how == DRA_CASE_WORDS &&
                                             parts_words(code, dra_tblank(text->text + at, bytes));
    }
    *out = dra_tbuffer_value(&b);
    return true;
}

/* ---- replace and join ------------------------------------------------------------------------ */

/* Nothing is found in front of each letter and at the end. */
static bool replace_nothing(dra_trun *r, const dra_tvalue *text, const dra_tvalue *to, int64_t most,
                            dra_tbuffer *b)
{
    size_t at = 0;
    for (; most != 0 && at <= text->n; most--) {
        int32_t      code;
        const size_t n = at < text->n ? dra_utf8(text->text + at, text->n - at, &code) : 0;
        if (!dra_tbuffer_add(r, b, to->text, to->n) || !dra_tbuffer_add(r, b, text->text + at, n) ||
            !dra_trun_spend(r, 1))
            return false;
        if (at == text->n) return true;
        at += n;
    }
    return at >= text->n || dra_tbuffer_add(r, b, text->text + at, text->n - at);
}

bool dra_treplace(dra_trun *r, const dra_tvalue *text, const dra_tvalue *from, const dra_tvalue *to,
                  int64_t most, dra_tvalue *out)
{
    dra_tbuffer b = {0};
    size_t      at = 0;
    if (from->n == 0) {
        if (!replace_nothing(r, text, to, most, &b)) return false;
        *out = dra_tbuffer_value(&b);
        return true;
    }
    for (size_t found; most != 0 && (found = dra_tfind(text, at, from)) != SIZE_MAX; most--) {
        if (!dra_tbuffer_add(r, &b, text->text + at, found - at) ||
            !dra_tbuffer_add(r, &b, to->text, to->n) || !dra_trun_spend(r, 1))
            return false;
        at = found + from->n;
    }
    if (!dra_tbuffer_add(r, &b, text->text + at, text->n - at)) return false;
    *out = dra_tbuffer_value(&b);
    return true;
}

bool dra_tjoin(dra_trun *r, const dra_tvalue *list, const dra_tvalue *between, dra_tvalue *out)
{
    dra_tbuffer b = {0};
    for (size_t i = 0; i < list->n; i++)
        if ((i && !dra_tshow(r, &b, between)) || !dra_tshow(r, &b, &list->items[i])) return false;
    *out = dra_tbuffer_value(&b);
    return true;
}
