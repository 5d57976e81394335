/* The directory of a ZIP archive, which is at its end. All numbers are little-endian:
 *   entry      "PK\1\2", flags at 8, method at 10, sizes packed at 20 and plain at 24, lengths of
 *              name, extra and comment from 28, place of its own header at 42; then the three texts
 *   its own    "PK\3\4", lengths of name and extra at 26 and 28; name, extra, data
 *   end        "PK\5\6", entries at 10, place of the directory at 16, length of a comment at 20
 * A number that does not fit is all ones. Then the extra of an entry has it (id 1), and for the
 * directory "PK\6\7" 20 bytes before the end has at 8 the place of "PK\6\6", which has entries at
 * 32 and the place at 48. Checksums are not computed: that would read every byte of a large file.
 * [PKWARE, APPNOTE.TXT, 4.3] */
#include "file/zip.h"

#include <stdlib.h>
#include <string.h>

#include "file/fail.h"

enum {
    END = 22,
    COMMENT_MOST = 65535,
    WIDE_END = 56,
    WIDE_PLACE = 20,
    ENTRY = 46,
    OWN = 30,
    ENCRYPTED = 1,
    WIDE_ID = 1
};

typedef struct reader {
    const char          *path;
    const unsigned char *file;
    size_t               bytes;
    dra_arena           *arena;
    dra_zip             *out;
    dra_error           *err;
} reader;

static uint64_t read_number(const unsigned char *at, int bytes)
{
    uint64_t n = 0;
    for (int i = 0; i < bytes; i++) n |= (uint64_t)at[i] << 8 * i;
    return n;
}

static bool begins_with(const unsigned char *at, unsigned char a, unsigned char b)
{
    return at[0] == 'P' && at[1] == 'K' && at[2] == a && at[3] == b;
}

bool dra_zip_is(const unsigned char *file, size_t bytes)
{
    return bytes >= 4 && begins_with(file, 3, 4);
}

/* Whether n bytes from `place` on are in the file. */
static bool is_inside(const reader *r, uint64_t place, uint64_t n)
{
    return place <= r->bytes && n <= r->bytes - place;
}

static dra_status refuse_zip(const reader *r, const char *name, const char *what)
{
    char room[DRA_BRIEF];
    return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "entry '%s' of the archive %s",
                       dra_brief(name, room), what);
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Replaces what does not fit into 32 bits by what the extra says, which has only those. */
static bool widen_sizes(const unsigned char *extra, size_t left, uint64_t *numbers[3])
{
    while (left >= 4) {
        const size_t         id = read_number(extra, 2), length = read_number(extra + 2, 2);
        const unsigned char *at = extra + 4;
        size_t               rest = length;
        if (length > left - 4) return false;
        for (int i = 0; i < 3 && id == WIDE_ID; i++) {
            if (*numbers[i] != UINT32_MAX) continue;
            if (rest < 8) return false;
            *numbers[i] = read_number(at, 8);
            at += 8;
            rest -= 8;
        }
        extra += 4 + length;
        left -= 4 + length;
    }
    return true;
}

/* The entry at `at`, of which `left` bytes are in the file; *used: how long it is. */
static dra_status read_entry(const reader *r, const unsigned char *at, size_t left, size_t *used)
{
    if (left < ENTRY || !begins_with(at, 1, 2))
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "its directory is damaged");
    const size_t length = read_number(at + 28, 2), extra = read_number(at + 30, 2);
    uint64_t     packed = read_number(at + 20, 4), plain = read_number(at + 24, 4),
             own = read_number(at + 42, 4);
    *used = ENTRY + length + extra + read_number(at + 32, 2);
    if (*used > left)
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "its directory is cut short");
    char *name = dra_arena_alloc(r->arena, length + 1);
    if (!name) return dra_fail_at(r->err, DRA_ERR_MEMORY, r->path, "out of memory");
    memcpy(name, at + ENTRY, length);
    if (!widen_sizes(at + ENTRY + length, extra, (uint64_t *[]){&plain, &packed, &own}))
        return refuse_zip(r, name, "has no sizes");
    if (read_number(at + 8, 2) & ENCRYPTED) return refuse_zip(r, name, "is encrypted");
    if (read_number(at + 10, 2) != 0 || packed != plain)
        return refuse_zip(r, name, "is packed, not stored");
    if (!is_inside(r, own, OWN) || !begins_with(r->file + own, 3, 4))
        return refuse_zip(r, name, "is outside the file");
    const unsigned char *head = r->file + own;
    const uint64_t       data = own + OWN + read_number(head + 26, 2) + read_number(head + 28, 2);
    if (!is_inside(r, data, plain)) return refuse_zip(r, name, "is outside the file");
    r->out->entry[r->out->count++] = (dra_zip_entry){name, r->file + data, (size_t)plain};
    return DRA_OK;
}

/* ---- the directory --------------------------------------------------------------------------- */

/* Where the end record is: only its comment follows. */
static bool find_end(const reader *r, size_t *place)
{
    for (size_t comment = 0; comment <= COMMENT_MOST && END + comment <= r->bytes; comment++) {
        *place = r->bytes - END - comment;
        if (begins_with(r->file + *place, 5, 6) && read_number(r->file + *place + 20, 2) == comment)
            return true;
    }
    return false;
}

static dra_status find_directory(const reader *r, uint64_t *entries, uint64_t *place)
{
    size_t end;
    if (!find_end(r, &end))
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path,
                           "a ZIP archive without its end: cut short?");
    *entries = read_number(r->file + end + 10, 2);
    *place = read_number(r->file + end + 16, 4);
    if (end >= WIDE_PLACE && begins_with(r->file + end - WIDE_PLACE, 6, 7)) {
        const uint64_t wide = read_number(r->file + end - WIDE_PLACE + 8, 8);
        if (!is_inside(r, wide, WIDE_END) || !begins_with(r->file + wide, 6, 6))
            return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path, "its directory is damaged");
        *entries = read_number(r->file + wide + 32, 8);
        *place = read_number(r->file + wide + 48, 8);
    }
    if (*place > r->bytes || *entries > (r->bytes - *place) / ENTRY)
        return dra_fail_at(r->err, DRA_ERR_FORMAT, r->path,
                           "%llu entries from byte %llu on, but it has only %zu bytes",
                           (unsigned long long)*entries, (unsigned long long)*place, r->bytes);
    return DRA_OK;
}

static int by_name(const void *a, const void *b)
{
    const dra_zip_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void dra_zip_sort(dra_zip *z)
{
    if (z->count) qsort(z->entry, z->count, sizeof *z->entry, by_name);
}

dra_status dra_zip_read(const char *path, const unsigned char *file, size_t bytes, dra_arena *arena,
                        dra_zip *out, dra_error *err)
{
    const reader r = {path, file, bytes, arena, out, err};
    uint64_t     entries = 0, place = 0;
    size_t       used = 0;
    *out = (dra_zip){0};
    dra_status st = find_directory(&r, &entries, &place);
    if (st != DRA_OK) return st;
    out->entry = dra_arena_alloc(arena, (size_t)entries * sizeof *out->entry);
    if (!out->entry) return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory");
    for (size_t at = (size_t)place; out->count < entries && st == DRA_OK; at += used)
        st = read_entry(&r, file + at, bytes - at, &used);
    if (st != DRA_OK) return st;
    dra_zip_sort(out);
    for (size_t i = 1; i < out->count; i++)
        if (by_name(&out->entry[i - 1], &out->entry[i]) == 0)
            return refuse_zip(&r, out->entry[i].name, "is there twice");
    return DRA_OK;
}

const dra_zip_entry *dra_zip_find(const dra_zip *z, const char *name)
{
    const dra_zip_entry wanted = {.name = name};
    return z->count ? bsearch(&wanted, z->entry, z->count, sizeof *z->entry, by_name) : NULL;
}
