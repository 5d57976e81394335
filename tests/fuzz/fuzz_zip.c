/* Archives of ZIP. What must hold:
 *   - an archive as made is accepted;
 *   - any other is accepted and its entries stay inside it, or refused by one line. */
#include "file/archive.h"
#include "file/zip.h"
#include "harness.h"

static void make(fuzz_bytes *b)
{
    static const unsigned char data[64];
    static archive             a;
    char                       name[32];
    a = (archive){.wide = below(2)};
    for (uint32_t i = 0, n = below(6); i < n; i++) {
        snprintf(name, sizeof name, "%s%u", below(2) ? "r/data/" : "x", i);
        archive_entry(&a, name, data, below(sizeof data));
    }
    archive_end(&a);
    put(b, a.at, a.n);
}

static void check(const dra_zip *z, const unsigned char *file, size_t n)
{
    volatile unsigned sum = 0;
    for (size_t i = 0; i < z->count; i++) {
        const dra_zip_entry *e = &z->entry[i];
        if (e->data < file || e->data > file + n || e->bytes > (size_t)(file + n - e->data))
            broken("an entry outside the file");
        for (size_t k = 0; k < e->bytes && k < 4096; k++) sum += e->data[k];
        if (!dra_zip_find(z, e->name)) broken("an entry is not found");
    }
}

int harness(const uint8_t *data, size_t bytes)
{
    unsigned char   *copy = exact_copy(data, bytes);
    dra_arena        arena = {0};
    dra_zip          z = {0};
    dra_error        err = {0};
    const dra_status st = dra_zip_read("f", copy, bytes, &arena, &z, &err);
    if (st == DRA_OK) {
        dra_zip_sort(&z);
        check(&z, copy, bytes);
    } else {
        expect_line(&err, "f: ");
    }
    dra_arena_free(&arena);
    free(copy);
    return st == DRA_OK;
}

static const char *const words[] = {"PK\1\2",   "PK\3\4",           "PK\5\6",   "PK\6\6", "PK\6\7",
                                    "\xff\xff", "\xff\xff\xff\xff", "r/data/0", "\1",     NULL};

const fuzz_subject fuzz_this = {.words = words, .make = make};
