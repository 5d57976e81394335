/* Decoding as tokens come: bytes wait until they are a whole letter. */
#include <stdlib.h>
#include <string.h>

#include "text/letters.h"
#include "text/tokenizer.h"

enum { HELD = 3 }; /* bytes of an unfinished letter, at most */

struct dra_decoder {
    const dra_tokenizer *t;
    bool                 skip_special, starts;
    size_t               held;
    char                *bytes; /* what was held back, then a token */
    char                *text;  /* what is ready */
};

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

dra_status dra_decoder_create(const dra_tokenizer *t, bool skip_special, dra_decoder **out,
                              dra_error *err)
{
    if (out) *out = NULL;
    if (!t || !out) return dra_fail(err, DRA_ERR_VALUE, "decoder_create: no tokenizer or result");
    const size_t most = HELD + (size_t)t->longest;
    dra_decoder *d = calloc(1, sizeof *d);
    if (d)
        *d = (dra_decoder){.t = t,
                           .skip_special = skip_special,
                           .bytes = malloc(most),
                           .text = malloc(3 * most + 1)};
    if (d && d->bytes && d->text) {
        *out = d;
        return DRA_OK;
    }
    dra_decoder_destroy(d);
    return dra_fail(err, DRA_ERR_MEMORY, "decoder_create: out of memory");
}

void dra_decoder_destroy(dra_decoder *d)
{
    if (!d) return;
    free(d->bytes);
    free(d->text);
    free(d);
}

/* Moves n bytes to the text, whole letters as they are; what is open at the end stays, unless this
 * is the end of all. Returns the bytes of the text. */
static size_t release_letters(dra_decoder *d, size_t n, bool last)
{
    size_t at = 0, made = 0;
    d->held = 0;
    while (at < n) {
        int32_t      code;
        const size_t bytes = dra_utf8(d->bytes + at, n - at, &code);
        if (code == DRA_OPEN && !last) {
            memmove(d->bytes, d->bytes + at, d->held = bytes);
            break;
        }
        const char  *from = code < 0 ? replacement : d->bytes + at;
        const size_t k = code < 0 ? sizeof replacement - 1 : bytes;
        memcpy(d->text + made, from, k);
        made += k;
        at += bytes;
    }
    d->text[made] = 0;
    return made;
}

/* Copies the bytes of a token without spaces that encoding puts in front. */
static size_t put_piece(dra_decoder *d, const char *piece, size_t n, char *to)
{
    const uint8_t strip = d->starts && n ? d->t->how.strip : DRA_STRIP_NONE;
    size_t        made = 0;
    if (n) d->starts = false;
    for (size_t i = 0; i < n; i++) {
        const bool off = piece[i] == ' ' &&
                         (strip == DRA_STRIP_TOKEN || (strip == DRA_STRIP_ONE && i == 0));
        if (!off) to[made++] = piece[i];
    }
    return made;
}

void dra_decoder_start(dra_decoder *d) { d->starts = true; }

/* The bytes of a token go behind those that are held. */
static dra_status take_token(dra_decoder *d, int32_t id, size_t *n, dra_error *err)
{
    size_t      bytes;
    const char *piece = dra_tokenizer_piece(d->t, id, &bytes);
    if (!piece)
        return dra_fail(err, DRA_ERR_INDEX, "decode: id %d: the tokenizer has ids 0 to %d%s", id,
                        d->t->size - 1, id >= 0 && id < d->t->size ? ", but not this one" : "");
    if (d->skip_special && d->t->token[id].special) bytes = 0;
    *n = put_piece(d, piece, bytes, d->bytes + d->held);
    return DRA_OK;
}

dra_status dra_decoder_bytes(dra_decoder *d, int32_t id, const char **text, size_t *bytes,
                             dra_error *err)
{
    *bytes = 0;
    *text = d->bytes + d->held;
    return take_token(d, id, bytes, err);
}

dra_status dra_decoder_push(dra_decoder *d, int32_t id, const char **text, size_t *bytes,
                            dra_error *err)
{
    size_t n;
    *text = "";
    *bytes = 0;
    const dra_status st = take_token(d, id, &n, err);
    if (st != DRA_OK || !n) return st;
    *bytes = release_letters(d, d->held + n, false);
    *text = d->text;
    return DRA_OK;
}

void dra_decoder_flush(dra_decoder *d, const char **text, size_t *bytes)
{
    *bytes = release_letters(d, d->held, true);
    d->starts = false;
    *text = d->text;
}
