/* Encoding: added tokens are cut out of the text, the text between them is normalised, added tokens
 * of normalised text are cut out, the text between them is split into pieces, and pieces are
 * merged. */
#include <stdlib.h>
#include <string.h>

#include "text/letters.h"
#include "text/normal.h"
#include "text/split.h"
#include "text/tokenizer.h"

typedef struct encoder {
    const dra_tokenizer *t;
    dra_ids             *out;
    bool                 plain; /* special tokens are ordinary text */
    dra_merger           merger;
    dra_normal           normal;
    dra_error           *err;
} encoder;

typedef dra_status (*between)(encoder *e, const char *text, size_t bytes);

static dra_status no_memory(const encoder *e)
{
    return dra_fail(e->err, DRA_ERR_MEMORY, "encode: out of memory after %zu ids", e->out->n);
}

void dra_ids_free(dra_ids *ids)
{
    if (!ids) return;
    free(ids->data);
    *ids = (dra_ids){0};
}

static bool reserve(dra_ids *ids, size_t more)
{
    if (ids->room - ids->n >= more) return true;
    const size_t room = 2 * ids->room + more + 16;
    int32_t     *data = realloc(ids->data, room * sizeof *data);
    if (!data) return false;
    ids->data = data;
    ids->room = room;
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static dra_status merge_piece(encoder *e, const char *text, size_t n)
{
    const dra_tokenizer *t = e->t;
    dra_merger          *m = &e->merger;
    if (n >= INT32_MAX)
        return dra_fail(e->err, DRA_ERR_VALUE,
                        "encode: a piece of %zu bytes without a place to split it, expected less "
                        "than 2^31",
                        n);
    if (!dra_merger_reserve(m, n) || !reserve(e->out, n)) return no_memory(e);
    for (size_t i = 0; i < n; i++) {
        m->symbol[i].id = t->byte_id[(unsigned char)text[i]];
        if (m->symbol[i].id < 0)
            return dra_fail(e->err, DRA_ERR_VALUE,
                            "encode: the vocabulary has no token for the byte 0x%02x",
                            (unsigned char)text[i]);
    }
    dra_merge(m, &t->pairs, n);
    for (uint32_t i = 0; i != (uint32_t)DRA_NOWHERE; i = m->symbol[i].next)
        e->out->data[e->out->n++] = m->symbol[i].id;
    return DRA_OK;
}

static dra_status encode_pieces(encoder *e, const char *text, size_t bytes)
{
    dra_status status = DRA_OK;
    for (size_t n; bytes && status == DRA_OK; text += n, bytes -= n) {
        n = dra_split_piece(text, bytes);
        const int32_t word = dra_word_find(e->t, text, n);
        if (word < 0)
            status = merge_piece(e, text, n);
        else if (reserve(e->out, 1))
            e->out->data[e->out->n++] = word;
        else
            status = no_memory(e);
    }
    return status;
}

/* The tokenizer may want every stretch of text to start with a space. */
static dra_status encode_stretch(encoder *e, const char *text, size_t bytes)
{
    if (!e->t->prefix_space || text[0] == ' ') return encode_pieces(e, text, bytes);
    char *spaced = malloc(bytes + 1);
    if (!spaced) return no_memory(e);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, bytes);
    const dra_status status = encode_pieces(e, spaced, bytes + 1);
    free(spaced);
    return status;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static size_t spaces_before(const char *text, size_t from, size_t at)
{
    while (at > from) {
        int32_t      code;
        const size_t before = dra_utf8_before(text, at, &code);
        if (dra_kind_of(code) != DRA_SPACE) break;
        at = before;
    }
    return at;
}

static size_t spaces_behind(const char *text, size_t at, size_t bytes)
{
    for (size_t n; at < bytes && dra_kind_at(text + at, bytes - at, &n) == DRA_SPACE;) at += n;
    return at;
}

/* Ids of the added tokens, and what `rest` makes of the text between them, which is never empty. */
static dra_status cut_out(encoder *e, const dra_matcher *m, const char *text, size_t bytes,
                          between rest)
{
    dra_status status = DRA_OK;
    dra_match  found;
    size_t     done = 0, from = 0;
    while (status == DRA_OK && dra_matcher_find(m, e->t->added, text, bytes, from, &found)) {
        from = found.stop;
        if (e->plain && found.token->special) continue;
        if (found.token->left) found.start = spaces_before(text, done, found.start);
        if (found.token->right) found.stop = spaces_behind(text, found.stop, bytes);
        if (found.start > done) status = rest(e, text + done, found.start - done);
        if (status == DRA_OK && !reserve(e->out, 1)) status = no_memory(e);
        if (status == DRA_OK) e->out->data[e->out->n++] = found.token->id;
        done = found.stop;
    }
    if (status == DRA_OK && done < bytes) status = rest(e, text + done, bytes - done);
    return status;
}

static dra_status encode_normal(encoder *e, const char *text, size_t bytes)
{
    if (e->t->nfc && !dra_normal_make(&e->normal, text, bytes, &text, &bytes)) return no_memory(e);
    return cut_out(e, &e->t->normal, text, bytes, encode_stretch);
}

/* ---- the interface --------------------------------------------------------------------------- */

static dra_status encode_bytes(encoder *e, const char *text, size_t bytes)
{
    if (!reserve(e->out, bytes)) return no_memory(e);
    for (size_t i = 0; i < bytes; i++) e->out->data[e->out->n++] = (unsigned char)text[i];
    return DRA_OK;
}

static dra_status encode(const dra_tokenizer *t, const char *text, size_t bytes, bool plain,
                         dra_ids *out, dra_error *err)
{
    if (!t || !out || (!text && bytes))
        return dra_fail(err, DRA_ERR_VALUE, "encode: no tokenizer, text or list of ids");
    encoder          e = {.t = t, .out = out, .plain = plain, .err = err};
    const size_t     before = out->n;
    const dra_status status = t->is_bytes ? encode_bytes(&e, text, bytes)
                                          : cut_out(&e, &t->raw, text, bytes, encode_normal);
    if (status != DRA_OK) out->n = before;
    dra_merger_free(&e.merger);
    dra_normal_free(&e.normal);
    return status;
}

dra_status dra_encode(const dra_tokenizer *t, const char *text, size_t bytes, dra_ids *out,
                      dra_error *err)
{
    return encode(t, text, bytes, false, out, err);
}

dra_status dra_encode_plain(const dra_tokenizer *t, const char *text, size_t bytes, dra_ids *out,
                            dra_error *err)
{
    return encode(t, text, bytes, true, out, err);
}
