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
    unsigned             how;    /* DRA_ENCODE_ and so on */
    const char          *start;  /* of the text */
    char                *spaced; /* the last text that spaces were normalised in, `room` bytes */
    size_t               room;
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

static bool reserve_ids(dra_ids *ids, size_t more)
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
    size_t               at;
    if (n >= INT32_MAX)
        return dra_fail(e->err, DRA_ERR_VALUE,
                        "encode: a piece of %zu bytes without a place to split it, expected less "
                        "than 2^31",
                        n);
    if (!dra_merger_reserve(m, n) || !reserve_ids(e->out, n)) return no_memory(e);
    const size_t symbols = dra_symbols_make(t, m->symbol, text, n, &at);
    if (symbols == SIZE_MAX)
        return dra_fail(e->err, DRA_ERR_VALUE,
                        "encode: the vocabulary has no token for the byte 0x%02x",
                        (unsigned char)text[at]);
    dra_merge(m, &t->pairs, symbols);
    for (uint32_t i = 0; i != (uint32_t)DRA_NOWHERE; i = m->symbol[i].next)
        e->out->data[e->out->n++] = m->symbol[i].id;
    return DRA_OK;
}

size_t dra_piece_next(const dra_tokenizer *t, const char *text, size_t bytes)
{
    if (t->how.split) return dra_split_piece(t->how.split, text, bytes);
    size_t at = 1;
    while (at < bytes && !(text[at] == ' ' && t->breaks[(unsigned char)text[at - 1]])) at++;
    return at;
}

static dra_status encode_pieces(encoder *e, const char *text, size_t bytes)
{
    dra_status status = DRA_OK;
    for (size_t n; bytes && status == DRA_OK; text += n, bytes -= n) {
        n = dra_piece_next(e->t, text, bytes);
        const int32_t word = dra_word_find(e->t, text, n);
        if (word < 0)
            status = merge_piece(e, text, n);
        else if (reserve_ids(e->out, 1))
            e->out->data[e->out->n++] = word;
        else
            status = no_memory(e);
    }
    return status;
}

static bool starts_with_block(const char *text, size_t bytes)
{
    return bytes >= sizeof DRA_BLOCK - 1 && memcmp(text, DRA_BLOCK, sizeof DRA_BLOCK - 1) == 0;
}

/* A space in front of the text, if asked for, and spaces for what is written for them. */
static bool space_text(encoder *e, bool front, const char **text, size_t *bytes)
{
    if (e->room <= *bytes) {
        free(e->spaced);
        e->spaced = malloc(e->room = 2 * *bytes + 1);
        if (!e->spaced) e->room = 0;
        if (!e->spaced) return false;
    }
    e->spaced[0] = ' ';
    if (e->t->how.split)
        memcpy(e->spaced + front, *text, *bytes);
    else
        *bytes = dra_blocks_to_spaces(*text, *bytes, e->spaced + front);
    *text = e->spaced;
    *bytes += front;
    return true;
}

/* The tokenizer may want stretches of text to start with a space. */
static dra_status encode_stretch(encoder *e, const char *text, size_t bytes)
{
    const dra_layout *how = &e->t->how;
    const bool        first = text == e->start && !(e->how & DRA_ENCODE_REST);
    const bool        spaced = text[0] == ' ' || (!how->split && starts_with_block(text, bytes));
    const bool        wanted = how->prefix == DRA_PREFIX_EACH ||
                        (how->prefix == DRA_PREFIX_FIRST && first);
    if ((wanted && !spaced) || !(how->split || how->early))
        if (!space_text(e, wanted && !spaced, &text, &bytes)) return no_memory(e);
    return encode_pieces(e, text, bytes);
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
        if ((e->how & DRA_ENCODE_PLAIN) && found.token->special) continue;
        if (found.token->left) found.start = spaces_before(text, done, found.start);
        if (found.token->right) found.stop = spaces_behind(text, found.stop, bytes);
        if (found.start > done) status = rest(e, text + done, found.start - done);
        if (status == DRA_OK && !reserve_ids(e->out, 1)) status = no_memory(e);
        if (status == DRA_OK) e->out->data[e->out->n++] = found.token->id;
        done = found.stop;
    }
    if (status == DRA_OK && done < bytes) status = rest(e, text + done, bytes - done);
    return status;
}

static dra_status encode_normal(encoder *e, const char *text, size_t bytes)
{
    const dra_layout *how = &e->t->how;
    const bool        rest = text == e->start && (e->how & DRA_ENCODE_REST);
    const bool        front = how->prefix == DRA_PREFIX_ALWAYS && !rest;
    if (how->nfc && !dra_normal_make(&e->normal, text, bytes, &text, &bytes)) return no_memory(e);
    if (how->early && !space_text(e, front, &text, &bytes)) return no_memory(e);
    return cut_out(e, &e->t->normal, text, bytes, encode_stretch);
}

/* ---- the interface --------------------------------------------------------------------------- */

static dra_status encode_bytes(encoder *e, const char *text, size_t bytes)
{
    if (!reserve_ids(e->out, bytes)) return no_memory(e);
    for (size_t i = 0; i < bytes; i++) e->out->data[e->out->n++] = (unsigned char)text[i];
    return DRA_OK;
}

/* A text that starts with these tokens already keeps them, and gets no others. */
static void drop_double(dra_ids *ids, size_t from, const dra_around *a)
{
    const size_t n = a->n, bytes = n * sizeof *ids->data;
    if (ids->n - from < 2 * n || memcmp(ids->data + from + n, a->id, bytes) != 0) return;
    ids->n -= n;
    memmove(ids->data + from, ids->data + from + n, (ids->n - from) * sizeof *ids->data);
}

static dra_status put_around(encoder *e, const dra_around *a)
{
    if (!reserve_ids(e->out, a->n)) return no_memory(e);
    for (int i = 0; i < a->n; i++) e->out->data[e->out->n++] = a->id[i];
    return DRA_OK;
}

static dra_status encode_all(encoder *e, const char *text, size_t bytes)
{
    const dra_around *before = &e->t->how.before;
    const size_t      from = e->out->n;
    const bool        begin = (e->how & DRA_ENCODE_BEGIN) && before->n;
    dra_status        st = begin ? put_around(e, before) : DRA_OK;
    if (st == DRA_OK)
        st = e->t->is_bytes ? encode_bytes(e, text, bytes)
                            : cut_out(e, &e->t->raw, text, bytes, encode_normal);
    if (st == DRA_OK && begin) drop_double(e->out, from, before);
    if (st == DRA_OK && (e->how & DRA_ENCODE_END)) st = put_around(e, &e->t->how.behind);
    return st;
}

dra_status dra_encode_as(const dra_tokenizer *t, const char *text, size_t bytes, unsigned how,
                         dra_ids *out, dra_error *err)
{
    if (!t || !out || (!text && bytes))
        return dra_fail(err, DRA_ERR_VALUE, "encode: no tokenizer, text or list of ids");
    encoder          e = {.t = t, .out = out, .how = how, .start = text, .err = err};
    const size_t     before = out->n;
    const dra_status status = encode_all(&e, text, bytes);
    if (status != DRA_OK) out->n = before;
    free(e.spaced);
    dra_merger_free(&e.merger);
    dra_normal_free(&e.normal);
    return status;
}

dra_status dra_encode(const dra_tokenizer *t, const char *text, size_t bytes, dra_ids *out,
                      dra_error *err)
{
    return dra_encode_as(t, text, bytes, 0, out, err);
}

dra_status dra_encode_plain(const dra_tokenizer *t, const char *text, size_t bytes, dra_ids *out,
                            dra_error *err)
{
    return dra_encode_as(t, text, bytes, DRA_ENCODE_PLAIN, out, err);
}
