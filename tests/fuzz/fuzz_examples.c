/* Arrays of NumPy as examples, alone or in an archive. What must hold:
 *   - a file as made is accepted, with all its examples;
 *   - any other is refused by one line that names it, or accepted and can be read. */
#include "dra/data.h"
#include "feed/arrays.h"
#include "file/fail.h"
#include "file/zip.h"
#include "harness.h"

static char    path[2][FUZZ_PATH + 8]; /* of an array, of an archive */
static int64_t examples;               /* of the file that was made */

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

static void make(fuzz_bytes *b)
{
    static array_bytes file, part[2];
    const uint32_t     N = 1 + below(9);
    file.n = part[0].n = part[1].n = 0;
    examples = N;
    if (below(2)) {
        make_array(&part[0], N), make_array(&part[1], N);
        archive_make(&file, (const char *const[]){"x.npy", "labels.npy"},
                     (const array_bytes *const[]){&part[0], &part[1]});
    } else {
        make_array(&file, N);
    }
    put(b, file.at, file.n);
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

static int try_bytes(const uint8_t *data, size_t bytes, int64_t expected)
{
    const char               *name = path[dra_zip_is(data, bytes)];
    const dra_examples_config c = {.path = name, .B = 2};
    char                      shown[DRA_BRIEF];
    dra_examples             *e = (dra_examples *)shown; /* must be cleared */
    dra_error                 err = {0};
    put_file(name, data, bytes);
    const dra_status st = dra_examples_open(&c, &e, &err);
    if (st == DRA_OK) {
        if (expected && dra_examples_count(e) != expected) broken("examples of the file as made");
        read_all(e);
    } else {
        if (e) broken("a refused file gave examples");
        expect_line(&err, dra_brief(name, shown));
    }
    dra_examples_close(e);
    return st == DRA_OK;
}

int harness(const uint8_t *data, size_t bytes) { return try_bytes(data, bytes, 0); }

static void made(const fuzz_bytes *b)
{
    if (!try_bytes(b->at, b->n, examples)) broken("a file as made is refused");
}

static void begin(void)
{
    char name[FUZZ_PATH];
    fuzz_path(name);
    for (int i = 0; i < 2; i++) snprintf(path[i], sizeof path[i], "%s.%s", name, i ? "npz" : "npy");
}

static void end(void)
{
    unlink(path[0]);
    unlink(path[1]);
}

static const char *const words[] = {
    "'",    "(",   ")",      ",",      "{",    "}", "'shape'",        "True",
    "<f4'", "-1",  "PK\1\2", "PK\5\6", "\xff", "0", "99999999999999", "descr",
    ": ()", "|b1", "<i8",    ".npy",   NULL};

const fuzz_subject fuzz_this = {
    .words = words, .begin = begin, .end = end, .make = make, .made = made};
