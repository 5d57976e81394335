/* The vocabulary of RWKV World (rwkv_vocab_v20230424.txt), a line for each entry:
 *   ID LITERAL BYTES       such as   33 ' ' 1
 * ids growing from 1, all 256 bytes among the entries. A text is encoded from left to right, always
 * by the longest entry that matches. Added tokens are found the same way, so all entries are added
 * tokens. Id 0 is the end of a text; no text becomes it. */
#include <stdlib.h>
#include <string.h>

#include "dra/file.h"
#include "file/fail.h"
#include "text/literal.h"
#include "text/vocabulary.h"
#include "text/world.h"

/* ---- reading --------------------------------------------------------------------------------- */

/* A number that fills the n bytes; < 0: it does not, or is larger than any id. */
static int64_t read_number(const char *text, size_t n)
{
    int64_t value = n ? 0 : -1;
    for (size_t i = 0; i < n && value >= 0; i++) {
        value = text[i] < '0' || text[i] > '9' ? -1 : 10 * value + (text[i] - '0');
        if (value > DRA_MOST_IDS) value = -1;
    }
    return value;
}

static dra_status bad_line(const dra_vocabulary *v, size_t line, const char *text, size_t n)
{
    char part[2 * DRA_BRIEF], brief[DRA_BRIEF];
    if (n >= sizeof part) n = sizeof part - 1;
    memcpy(part, text, n);
    part[n] = 0;
    return dra_vocabulary_fail(v, "line %zu: expected an id, a literal and its bytes, found '%s'",
                               line, dra_brief(part, brief));
}

/* One entry; its bytes go to *text. */
static dra_status read_entry(dra_vocabulary *v, size_t line, const char *at, size_t n, char **text)
{
    dra_tokenizer *t = v->t;
    const char    *first = memchr(at, ' ', n), *last = at + n;
    while (first && last[-1] != ' ') last--; /* after the last space */
    if (!first || last - first < 3) return bad_line(v, line, at, n);
    const int64_t id = read_number(at, (size_t)(first - at));
    const int64_t says = read_number(last, (size_t)(at + n - last));
    const size_t  bytes = dra_literal_read(first + 1, (size_t)(last - first) - 2, *text);
    if (id < 0 || says < 0 || bytes == SIZE_MAX) return bad_line(v, line, at, n);
    if (id >= DRA_MOST_IDS || id <= (t->n_added ? t->added[t->n_added - 1].id : 0))
        return dra_vocabulary_fail(v,
                                   "line %zu: id %lld, expected ids that grow from 1 to %d at most",
                                   line, (long long)id, DRA_MOST_IDS - 1);
    if (!bytes || (int64_t)bytes != says)
        return dra_vocabulary_fail(v, "line %zu: id %lld has %zu bytes, expected %s%lld as it says",
                                   line, (long long)id, bytes, bytes ? "" : "some, and ",
                                   (long long)says);
    t->added[t->n_added++] = (dra_added){.id = (int32_t)id, .text = *text, .bytes = bytes};
    *text += bytes;
    return DRA_OK;
}

static dra_status read_lines(dra_vocabulary *v, const char *text, size_t bytes)
{
    size_t lines = 1, line = 1;
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    char *room = dra_arena_alloc(&v->t->arena, bytes);
    v->t->added = dra_arena_alloc(&v->t->arena, lines * sizeof *v->t->added);
    if (!room || !v->t->added) return dra_vocabulary_no_memory(v);
    dra_status status = DRA_OK;
    for (const char *at = text, *next; at < text + bytes && status == DRA_OK; at = next, line++) {
        const char *end = memchr(at, '\n', (size_t)(text + bytes - at));
        next = end ? end + 1 : text + bytes;
        if (!end) end = next;
        if (end > at && end[-1] == '\r') end--;
        status = read_entry(v, line, at, (size_t)(end - at), &room);
    }
    return status;
}

static dra_status make_tokens(dra_vocabulary *v)
{
    dra_tokenizer *t = v->t;
    t->size = t->n_added ? t->added[t->n_added - 1].id + 1 : 1;
    t->token = dra_arena_alloc(&t->arena, (size_t)t->size * sizeof *t->token);
    if (!t->token || !dra_pairs_make(&t->pairs, 0, &t->arena)) return dra_vocabulary_no_memory(v);
    t->token[0] = (dra_token){DRA_END_OF_TEXT, sizeof DRA_END_OF_TEXT - 1, DRA_TOKEN_LITERAL, true};
    for (size_t i = 0; i < t->n_added; i++) {
        const dra_added *a = &t->added[i];
        t->token[a->id] = (dra_token){a->text, (uint32_t)a->bytes, DRA_TOKEN_BYTES, false};
    }
    return DRA_OK;
}

/* Every text has to start with some entry, and every entry to be found as itself. */
static dra_status check_entries(const dra_vocabulary *v, const dra_tokenizer *t)
{
    for (int i = 0; i < 256; i++)
        if (t->byte_id[i] < 0) return dra_vocabulary_fail(v, "no entry is the byte 0x%02x", i);
    for (size_t i = 0; i < t->n_added; i++) {
        const dra_added *a = &t->added[i];
        dra_match        found;
        dra_matcher_find(&t->raw, t->added, a->text, a->bytes, 0, &found);
        if (found.token != a)
            return dra_vocabulary_fail(v, "ids %d and %d are the same bytes", a->id,
                                       found.token->id);
    }
    return DRA_OK;
}

dra_status dra_world_end(dra_vocabulary *v, dra_status status, dra_tokenizer **out)
{
    if (status == DRA_OK) status = make_tokens(v);
    status = dra_vocabulary_end(v, status, out);
    if (status == DRA_OK) status = check_entries(v, *out);
    if (status == DRA_OK) return status;
    dra_tokenizer_destroy(*out);
    *out = NULL;
    return status;
}

bool dra_world_is(const char *text, size_t bytes)
{
    return bytes && text[0] >= '0' && text[0] <= '9';
}

dra_status dra_world_read(const char *path, const char *text, size_t bytes, dra_tokenizer **out,
                          dra_error *err)
{
    dra_vocabulary v;
    dra_status     status = dra_vocabulary_begin(&v, path, err);
    if (status != DRA_OK) return status;
    v.t->longest_first = true;
    return dra_world_end(&v, read_lines(&v, text, bytes), out);
}

/* ---- writing --------------------------------------------------------------------------------- */

dra_status dra_world_write(const dra_tokenizer *t, const char *path, dra_error *err)
{
    enum { NUMBERS = 32 }; /* id, length, spaces and quotes */
    size_t room = 1, n = 0;
    for (size_t i = 0; i < t->n_added; i++) room += 4 * t->added[i].bytes + NUMBERS;
    char *text = malloc(room);
    if (!text)
        return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory, cannot write a tokenizer");
    for (size_t i = 0; i < t->n_added; i++) {
        const dra_added *a = &t->added[i];
        n += (size_t)snprintf(text + n, room - n, "%d ", a->id);
        n += dra_literal_write(a->text, a->bytes, text + n);
        n += (size_t)snprintf(text + n, room - n, " %zu\n", a->bytes);
    }
    const dra_status status = dra_file_write(path, text, n, err);
    free(text);
    return status;
}
