/* What a piece is merged from: its bytes or, in a tokenizer of characters, its characters. There,
 * those without a token become their bytes, if all of these have tokens, or what is unknown. */
#include "text/letters.h"
#include "text/tokenizer.h"

static size_t make_bytes(const dra_tokenizer *t, dra_symbol *symbol, const char *text, size_t bytes,
                         size_t *at)
{
    for (*at = 0; *at < bytes; ++*at) {
        symbol[*at].id = t->byte_id[(unsigned char)text[*at]];
        if (symbol[*at].id < 0) return SIZE_MAX;
    }
    return bytes;
}

static bool has_bytes(const dra_tokenizer *t, const char *text, size_t bytes)
{
    bool has = t->how.fallback;
    for (size_t i = 0; i < bytes && has; i++) has = t->byte_id[(unsigned char)text[i]] >= 0;
    return has;
}

size_t dra_symbols_make(const dra_tokenizer *t, dra_symbol *symbol, const char *text, size_t bytes,
                        size_t *at)
{
    size_t n = 0, open = 0; /* of what is unknown */
    if (t->how.split) return make_bytes(t, symbol, text, bytes, at);
    *at = 0;
    for (size_t k; *at < bytes; *at += k) {
        int32_t code;
        k = dra_utf8(text + *at, bytes - *at, &code);
        const int32_t id = code < 0 ? -1 : dra_word_find(t, text + *at, k);
        if (id >= 0) {
            for (; open; open--) symbol[n++].id = t->how.unknown;
            symbol[n++].id = id;
        } else if (has_bytes(t, text + *at, k)) {
            for (size_t i = 0; i < k; i++)
                symbol[n++].id = t->byte_id[(unsigned char)text[*at + i]];
        } else {
            if (t->how.unknown < 0) return SIZE_MAX;
            open = t->how.fuse ? 1 : open + 1;
        }
    }
    for (; open; open--) symbol[n++].id = t->how.unknown;
    return n;
}
