/* Checkpoints of PyTorch made by hand, and what must hold for any bytes; for tests and fuzzers. */
#ifndef DRA_TESTS_FILE_ARCHIVE_H
#define DRA_TESTS_FILE_ARCHIVE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "file/pth.h"
#include "refusal.h"

enum { ARCHIVE_ROOM = 1 << 15, ARCHIVE_ENTRIES = 40 };

typedef struct archive {
    unsigned char at[ARCHIVE_ROOM];
    size_t        n, start;
    bool          wide; /* sizes and places in 64 bits */
    int           entries;
    struct {
        char   name[64];
        size_t place, bytes;
    } entry[ARCHIVE_ENTRIES];
} archive;

static inline void archive_put(archive *a, const void *data, size_t n)
{
    if (a->n + n > ARCHIVE_ROOM) abort();
    if (n) memcpy(a->at + a->n, data, n);
    a->n += n;
}

static inline void archive_text(archive *a, const char *text)
{
    archive_put(a, text, strlen(text));
}

static inline void archive_number(archive *a, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++, number >>= 8)
        archive_put(a, &(unsigned char){(unsigned char)(number & 0xff)}, 1);
}

/* An entry from here to archive_close(). */
static inline void archive_open(archive *a, const char *name)
{
    if (a->entries == ARCHIVE_ENTRIES || strlen(name) >= sizeof a->entry[0].name) abort();
    memcpy(a->entry[a->entries].name, name, strlen(name) + 1);
    a->entry[a->entries].place = a->n;
    archive_text(a, "PK\3\4");
    archive_number(a, 0, 22); /* read from the directory */
    archive_number(a, strlen(name), 2);
    archive_number(a, 0, 2);
    archive_text(a, name);
    a->start = a->n;
}

static inline void archive_close(archive *a)
{
    a->entry[a->entries].bytes = a->n - a->start;
    a->entries++;
}

static inline void archive_entry(archive *a, const char *name, const void *data, size_t n)
{
    archive_open(a, name);
    archive_put(a, data, n);
    archive_close(a);
}

static inline void archive_directory(archive *a)
{
    for (int i = 0; i < a->entries; i++) {
        const size_t bytes = a->entry[i].bytes, length = strlen(a->entry[i].name);
        archive_text(a, "PK\1\2");
        archive_number(a, 0, 16);
        archive_number(a, a->wide ? UINT32_MAX : bytes, 4);
        archive_number(a, a->wide ? UINT32_MAX : bytes, 4);
        archive_number(a, length, 2);
        archive_number(a, a->wide ? 28 : 0, 2);
        archive_number(a, 0, 10);
        archive_number(a, a->wide ? UINT32_MAX : a->entry[i].place, 4);
        archive_text(a, a->entry[i].name);
        if (!a->wide) continue;
        archive_number(a, 1 | 24 << 16, 4);
        archive_number(a, bytes, 8);
        archive_number(a, bytes, 8);
        archive_number(a, a->entry[i].place, 8);
    }
}

static inline void archive_end(archive *a)
{
    const size_t place = a->n, entries = (size_t)a->entries;
    archive_directory(a);
    const size_t end = a->n, bytes = end - place;
    if (a->wide) {
        archive_text(a, "PK\6\6");
        archive_number(a, 44, 8);
        archive_number(a, 0, 12);
        archive_number(a, entries, 8);
        archive_number(a, entries, 8);
        archive_number(a, bytes, 8);
        archive_number(a, place, 8);
        archive_text(a, "PK\6\7");
        archive_number(a, 0, 4);
        archive_number(a, end, 8);
        archive_number(a, 1, 4);
    }
    archive_text(a, "PK\5\6");
    archive_number(a, 0, 4);
    archive_number(a, a->wide ? UINT16_MAX : entries, 2);
    archive_number(a, a->wide ? UINT16_MAX : entries, 2);
    archive_number(a, a->wide ? UINT32_MAX : bytes, 4);
    archive_number(a, a->wide ? UINT32_MAX : place, 4);
    archive_number(a, 0, 2);
}

/* ---- words of a pickle ----------------------------------------------------------------------- */

static inline void pickle_text(archive *a, const char *text)
{
    archive_text(a, "X");
    archive_number(a, strlen(text), 4);
    archive_text(a, text);
}

static inline void pickle_int(archive *a, int64_t number)
{
    archive_text(a, "\x8a\x08");
    archive_number(a, (uint64_t)number, 8);
}

static inline void pickle_ints(archive *a, int n, const int64_t *numbers)
{
    archive_text(a, "(");
    for (int i = 0; i < n; i++) pickle_int(a, numbers[i]);
    archive_text(a, "t");
}

/* A name and its tensor, which a dict on the stack takes by "s". */
static inline void pickle_tensor(archive *a, const char *name, const char *storage, const char *key,
                                 int64_t held, int64_t offset, int rank, const int64_t *sizes,
                                 const int64_t *strides)
{
    pickle_text(a, name);
    archive_text(a, "ctorch._utils\n_rebuild_tensor_v2\n((");
    pickle_text(a, "storage");
    archive_text(a, "ctorch\n");
    archive_text(a, storage);
    archive_text(a, "\n");
    pickle_text(a, key);
    pickle_text(a, "cpu");
    pickle_int(a, held);
    archive_text(a, "tQ");
    pickle_int(a, offset);
    pickle_ints(a, rank, sizes);
    pickle_ints(a, rank, strides);
    archive_text(a, "\x89"
                    "ccollections\nOrderedDict\n)RtRs");
}

/* ---- any bytes ------------------------------------------------------------------------------- */

/* NULL, or what is wrong with tensors that were accepted. Touches every byte of every tensor. */
static inline const char *archive_check(const dra_header *h, size_t n)
{
    volatile unsigned sum = 0;
    for (size_t i = 0; i < h->count; i++) {
        const dra_tensor_info *t = &h->tensor[i];
        const unsigned char   *p = t->data;
        if (strlen(t->name) > n || !t->dtype_name) return "no name or no dtype";
        if (t->shape.rank < 0 || t->shape.rank > DRA_MAX_RANK) return "rank";
        if (t->bytes > n) return "larger than the file";
        for (size_t k = 0; k < t->bytes; k++) sum += p[k];
        if (i && strcmp(h->by_name[i - 1]->name, h->by_name[i]->name) >= 0) return "names";
    }
    return NULL;
}

/* Reads a copy of exactly these bytes, so that a sanitizer sees the first one beyond. They must be
 * accepted, or be refused by one line that starts with the path. NULL, or what broke. */
static inline const char *archive_try(const unsigned char *bytes, size_t n, bool *accepted,
                                      dra_error *err)
{
    unsigned char *copy = malloc(n ? n : 1);
    dra_header     h;
    const char    *broken = NULL;
    *err = (dra_error){0};
    if (!copy) return "no memory";
    if (n) memcpy(copy, bytes, n);
    *accepted = dra_pth_read("f", copy, n, &h, err) == DRA_OK;
    broken = *accepted ? archive_check(&h, n) : refusal_check(&h, err);
    dra_header_free(&h);
    free(copy);
    return broken;
}

#endif
