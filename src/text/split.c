/* The pieces of GPT-2 [Radford et al. 2019], alternatives in this order:
 *
 *     's | 't | 're | 've | 'm | 'll | 'd
 *     | one space or none, then letters, or numbers, or others
 *     | white space that no other letter follows | white space
 *
 * The first of the last two makes a run of white space leave its last letter to what follows it.
 * Those of Llama 3 and Qwen:
 *
 *     's and so on, in either case
 *     | one letter or none that is no letter, number or line end, then letters
 *     | numbers, so many at most
 *     | one space or none, then others, then line ends
 *     | white space up to its last line end
 *     | white space that no other letter follows | white space
 *
 * One pass does either: every alternative is decided by the letters it takes and one more. */
#include "text/split.h"

#include <string.h>

#include "text/letters.h"

#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const dra_splitter dra_splitters[] = {
    [DRA_SPLITTER_GPT2] = {.name = "gpt-2"},
    [DRA_SPLITTER_DIGITS] = {.name = "digits", .numbers = 1, .digits = true},
    [DRA_SPLITTER_LLAMA3] = {.name = "llama3",
                             .pattern = WORDS
                             "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
                             .numbers = 3,
                             .binds = true},
    [DRA_SPLITTER_QWEN2] = {.name = "qwen2",
                            .pattern = WORDS
                            "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
                            .numbers = 1,
                            .binds = true},
    [DRA_SPLITTER_QWEN35] = {.name = "qwen35",
                             .pattern = WORDS "[\\p{L}\\p{M}]+|\\p{N}| "
                                              "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES,
                             .numbers = 1,
                             .binds = true,
                             .marks = true}};

const dra_splitter *dra_splitter_of(const char *pattern)
{
    for (size_t i = 0; i < sizeof dra_splitters / sizeof *dra_splitters; i++)
        if (dra_splitters[i].pattern && strcmp(dra_splitters[i].pattern, pattern) == 0)
            return &dra_splitters[i];
    return NULL;
}

/* ---- letters --------------------------------------------------------------------------------- */

static dra_kind kind_at(const dra_splitter *s, const char *text, size_t bytes, size_t *n)
{
    const dra_kind kind = dra_kind_at(text, bytes, n);
    return kind == DRA_OTHER && s->marks && dra_is_mark(text, bytes) ? DRA_LETTER : kind;
}

/* Where the letters of a kind end that start at a place. */
static size_t skip_kind(const dra_splitter *s, const char *text, size_t at, size_t bytes,
                        dra_kind kind)
{
    for (size_t n; at < bytes && kind_at(s, text + at, bytes - at, &n) == kind;) at += n;
    return at;
}

static bool ends_line(char c) { return c == '\r' || c == '\n'; }

/* ---- alternatives ---------------------------------------------------------------------------- */

/* The bytes that are one letter of a contraction, in either case if asked; 0: they are not. U+017F
 * is a small s. */
static size_t match_letter(bool fold, char letter, const char *text, size_t bytes)
{
    if (!bytes) return 0;
    if (text[0] == letter || (fold && text[0] == letter - 'a' + 'A')) return 1;
    return fold && letter == 's' && bytes > 1 && memcmp(text, "\xc5\xbf", 2) == 0 ? 2 : 0;
}

static size_t match_contraction(const dra_splitter *s, const char *text, size_t bytes)
{
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *end = ends[i];
        size_t      at = 1, n = 1;
        for (; *end && n; end++, at += n) n = match_letter(s->binds, *end, text + at, bytes - at);
        if (n) return at;
    }
    return 0;
}

static size_t take_numbers(const dra_splitter *s, const char *text, size_t bytes)
{
    size_t at = 0, n;
    for (uint8_t i = 0; i < s->numbers && at < bytes; i++, at += n)
        if (kind_at(s, text + at, bytes - at, &n) != DRA_NUMBER) break;
    return at;
}

static size_t take_spaces(const dra_splitter *s, const char *text, size_t bytes)
{
    size_t last = 0, line = 0, at = 0, n;
    for (; at < bytes && dra_kind_at(text + at, bytes - at, &n) == DRA_SPACE; at += n) {
        last = at;
        if (s->binds && ends_line(text[at])) line = at + 1;
    }
    if (line) return line;
    const bool follows = at < bytes &&
                         !(s->digits && dra_kind_at(text + at, bytes - at, &n) == DRA_NUMBER);
    return follows && last > 0 ? last : at;
}

/* Letters and perhaps a sign in front of them; 0: there are none. */
static size_t take_letters(const dra_splitter *s, const char *text, size_t bytes)
{
    size_t         n, next;
    const dra_kind kind = kind_at(s, text, bytes, &n);
    if (kind == DRA_LETTER) return skip_kind(s, text, n, bytes, DRA_LETTER);
    if (kind == DRA_NUMBER || ends_line(text[0]) || n == bytes) return 0;
    if (kind_at(s, text + n, bytes - n, &next) != DRA_LETTER) return 0;
    return skip_kind(s, text, n, bytes, DRA_LETTER);
}

size_t dra_split_piece(const dra_splitter *s, const char *text, size_t bytes)
{
    const size_t first = text[0] == ' ';
    size_t       n = text[0] == '\'' ? match_contraction(s, text, bytes) : 0;
    if (!n && s->binds) n = take_letters(s, text, bytes);
    if (!n && s->numbers) n = take_numbers(s, text, bytes);
    if (n) return n;
    if (first == bytes) return first;
    const dra_kind kind = kind_at(s, text + first, bytes - first, &n);
    if (kind == DRA_SPACE || (kind == DRA_NUMBER && s->numbers)) return take_spaces(s, text, bytes);
    size_t at = skip_kind(s, text, first + n, bytes, kind);
    while (s->binds && kind == DRA_OTHER && at < bytes && ends_line(text[at])) at++;
    return at;
}
