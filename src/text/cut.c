/* Where a text may be cut. Between the letters a and b the ids of the whole are those of the left
 * side, then those of the right side, if
 *   - no piece spans them: a is no white space, and b is of another kind. The scan of pieces looks
 *     one letter ahead only in white space and after an apostrophe, which is left out. Where signs
 *     bind, a is no sign, or b is white space that is no line end. Of characters, b is a space that
 *     no merge joins to a;
 *   - normalisation leaves them alone: b is ASCII, which never joins what is before it, and so is
 *     the letter after it. What becomes of a is known if it is ASCII; otherwise b must be white
 *     space, because no letter becomes white space;
 *   - no added token spans them, and none that looks at its neighbours touches them;
 *   - the right side would not get a space in front of it: where it would, b is a space. */
#include "text/letters.h"
#include "text/tokenizer.h"

#include <string.h>

static bool are_joined(const dra_tokenizer *t, unsigned char a, unsigned char b)
{
    return t->joins[a][b / 8] >> b % 8 & 1;
}

/* An added token could span the place, or touch it and take white space along. */
static bool near_added(const dra_tokenizer *t, unsigned char a, unsigned char b)
{
    bool near = a < 0x80 && are_joined(t, a, b);
    /* What is not ASCII may become other bytes. */
    for (unsigned other = 0; a >= 0x80 && other < 256; other++)
        near = near || are_joined(t, (unsigned char)other, b);
    for (size_t i = 0; i < t->n_added && !near; i++) {
        const dra_added *k = &t->added[i];
        near = (k->left || k->right) && ((unsigned char)k->text[0] == b || a >= 0x80 ||
                                         (unsigned char)k->text[k->bytes - 1] == a);
    }
    return near;
}

static bool is_blank(unsigned char c) /* white space that ends no line */
{
    return dra_ascii_kinds[c] == DRA_SPACE && c != '\r' && c != '\n';
}

/* What is written for a space is one. */
static bool breaks_before(const dra_tokenizer *t, const char *text, size_t at)
{
    const size_t n = sizeof DRA_BLOCK - 1;
    const bool   block = at >= n && memcmp(text + at - n, DRA_BLOCK, n) == 0;
    return t->breaks[block ? ' ' : (unsigned char)text[at - 1]];
}

static bool may_cut(const dra_tokenizer *t, const char *text, size_t bytes, size_t at)
{
    const unsigned char a = (unsigned char)text[at - 1], b = (unsigned char)text[at];
    int32_t             code;
    const bool spaced = t->how.prefix == DRA_PREFIX_EACH || t->how.prefix == DRA_PREFIX_FIRST;
    if (b >= 0x80 || (spaced && b != ' ')) return false;
    if (!t->how.split) return b == ' ' && breaks_before(t, text, at) && !near_added(t, a, b);
    if (t->how.nfc && (at + 1 == bytes || (unsigned char)text[at + 1] >= 0x80)) return false;
    const dra_kind right = (dra_kind)dra_ascii_kinds[b];
    if (a < 0x80) {
        const dra_kind left = (dra_kind)dra_ascii_kinds[a];
        if (left == DRA_SPACE || left == right || (a == '\'' && right == DRA_LETTER)) return false;
        if (left == DRA_OTHER && t->how.split->binds && !is_blank(b)) return false;
    } else {
        dra_utf8_before(text, at, &code);
        if (right != DRA_SPACE || dra_kind_of(code) == DRA_SPACE) return false;
        if (t->how.split->binds && !is_blank(b)) return false;
    }
    return !near_added(t, a, b);
}

/* Where entries end is known from the left on, as long as the longest entry would still fit. */
static size_t cut_longest(const dra_tokenizer *t, const char *text, size_t bytes)
{
    size_t    at = 0;
    dra_match found;
    while (bytes - at >= t->longest && dra_matcher_find(&t->raw, t->added, text, bytes, at, &found))
        at = found.stop;
    return at;
}

size_t dra_encode_cut(const dra_tokenizer *t, const char *text, size_t bytes)
{
    if (t->is_bytes) return bytes;
    if (t->longest_first) return cut_longest(t, text, bytes);
    for (size_t at = bytes; at-- > 1;)
        if (may_cut(t, text, bytes, at)) return at;
    return 0;
}

size_t dra_cut_next(const dra_tokenizer *t, const char *text, size_t bytes, size_t part)
{
    for (; part < bytes; part *= 2) {
        const size_t cut = dra_encode_cut(t, text, part);
        if (cut) return cut;
    }
    return bytes;
}
