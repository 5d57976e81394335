/* fuzz_examples SECONDS [SEED]: arrays of NumPy, alone and in an archive, made at random, then
 * damaged. What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a file as made is accepted, with all its examples;
 *   - a damaged one is refused by one line that names it, or accepted and can be read. */
#include <string.h>
#include <sys/stat.h>

#include "dra/data.h"
#include "file/fail.h"
#include "feed/arrays.h"
#include "fuzz/fuzzer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { DAMAGES = 32 };

static char path[256];

static void put_bytes(const array_bytes *b)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->at, 1, b->n, f) != b->n) broken("cannot write");
    fclose(f);
}

/* N examples of a random type and width. */
static void make_array(array_bytes *b, uint32_t N)
{
    static const struct {
        const char *descr;
        size_t      width;
    } types[] = {{"<f2", 2}, {"<f4", 4}, {"<f8", 8}, {"|i1", 1}, {"<i2", 2},
                 {"<i4", 4}, {"<i8", 8}, {"|u1", 1}, {"<u2", 2}, {"|b1", 1}};
    const uint32_t kind = below(COUNT(types)), width = below(5);
    unsigned char  data[512];
    char           shape[64];
    const size_t   bytes = (size_t)N * (width ? width : 1) * types[kind].width;
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)below(kind == 9 ? 2 : 256);
    snprintf(shape, sizeof shape, width ? "(%u, %u)" : "(%u,)", N, width);
    array_make(b, 1 + (int)below(2), types[kind].descr, shape, data, bytes);
}

static void damage(array_bytes *b)
{
    static const char *const words[] = {"'",     "(",    ")",  ",",  "{",    "}", "'shape'",
                                        "True",  "<f4'", "-1", "PK", "\xff", "0", "99999999999999",
                                        "descr", ": ()"};
    const uint32_t           at = below((uint32_t)b->n + 1);
    const char              *word = words[below(COUNT(words))];
    const size_t             n = strlen(word);
    switch (below(4)) {
    case 0:
        if (at < b->n) b->at[at] = (unsigned char)below(256);
        break;
    case 1:
        if (at < b->n) b->at[at] ^= (unsigned char)(1u << below(8));
        break;
    case 2: b->n = below(4) ? b->n : at; break;
    default:
        if (at + n <= b->n) memcpy(b->at + at, word, n);
    }
}

static void read_all(const dra_examples *e)
{
    static unsigned char to[1 << 16];
    for (int i = 0; i < dra_examples_inputs(e); i++) {
        const dra_example_input *in = dra_examples_at(e, i);
        const int64_t            n = dra_shape_count(&in->shape);
        const int64_t            rows[] = {dra_examples_count(e) - 1, 0, -1};
        dra_examples_check_floats(e, in->name, NULL);
        dra_examples_check_integers(e, in->name, 0, 9, true, NULL);
        if (n < 1000 && in->dtype != DRA_DTYPE_COUNT)
            dra_examples_read(e, in->name, 3, rows, in->dtype, to, NULL);
    }
    dra_examples_fingerprint(e);
}

static bool try_file(int64_t expected)
{
    const dra_examples_config c = {.path = path, .B = 2};
    char                      shown[DRA_BRIEF];
    dra_examples             *e = (dra_examples *)path; /* must be cleared */
    dra_error                 err = {0};
    if (dra_examples_open(&c, &e, &err) == DRA_OK) {
        if (expected && dra_examples_count(e) != expected) broken("examples of the file as made");
        read_all(e);
        dra_examples_close(e);
        return true;
    }
    dra_brief(path, shown);
    if (e) broken("a refused file gave examples");
    if (strncmp(err.text, shown, strlen(shown)) != 0) broken("an error without the path");
    if (strpbrk(err.text, "\n\r\t\033")) broken("an error of several lines");
    return false;
}

static void one_file(void)
{
    static array_bytes good, bad, part[2];
    const bool         archive = below(2);
    const uint32_t     N = 1 + below(9);
    good.n = part[0].n = part[1].n = 0;
    if (archive) {
        make_array(&part[0], N), make_array(&part[1], N);
        archive_make(&good, (const char *const[]){"x.npy", "labels.npy"},
                     (const array_bytes *const[]){&part[0], &part[1]});
    } else {
        make_array(&good, N);
    }
    snprintf(path, sizeof path, "%.150s/fuzz-examples-%ld.%s", fuzz_folder(), (long)getpid(),
             archive ? "npz" : "npy");
    put_bytes(&good);
    if (!try_file(N)) broken("the file as made");
    for (int i = 0; i < DAMAGES; i++, fuzz_damaged++) {
        if (i % 4 == 0) bad = good;
        for (uint32_t k = 1 + below(3); k; k--) damage(&bad);
        put_bytes(&bad);
        fuzz_accepted += try_file(0);
    }
    unlink(path);
}

static void clean(void) { unlink(path); }

int main(int argc, char **argv)
{
    fuzz_begin(&(fuzzer){"fuzz_examples", one_file, clean});
    return fuzz_all(argc, argv);
}
