/* Files of training data under any name and format: text, ids of nanoGPT, llm.c, NumPy and
 * safetensors, plain or compressed by gzip or zstd. The first byte of an input says which name,
 * format and separator; the rest is the file. What must hold:
 *   - a file as made is accepted, with its ids;
 *   - any other is refused by one line that names it, or accepted with ids that are in range;
 *   - a stream that was cut short is refused. */
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "corpora.h"

enum { IDS = 300 };

static const struct row {
    const char *name, *format, *separator;
} rows[] = {{"f.txt"},
            {"f.bin"},
            {"f.npy"},
            {"f.safetensors"},
            {"f.txt", NULL, "-"},
            {"f.txt", NULL, ""},
            {"f.txt.gz"},
            {"f.jsonl.zst"},
            {"f"},
            {"f.txt", "text"},
            {"f.txt", "bytes"},
            {"f.bin", "npy"},
            {"f.bin", "tokens-u16"},
            {"f.bin", "tokens-u32"},
            {"f.bin", "llmc"},
            {"f.bin", "safetensors"}};
enum { TXT, BIN, NPY, TENSORS, LINES }; /* the first rows */

static char    folder[FUZZ_PATH], path[2 * FUZZ_PATH];
static int32_t ids[IDS]; /* of the file that was made */
static int64_t n_ids;
static bool    packed;

/* ---- good files ------------------------------------------------------------------------------ */

static void say_ids(fuzz_bytes *b, size_t width)
{
    for (int64_t i = 0; i < n_ids; i++) put(b, &(int64_t){ids[i]}, width);
}

static void draw(uint32_t least, uint32_t limit)
{
    n_ids = 20 + below(IDS - 20);
    for (int64_t i = 0; i < n_ids; i++) ids[i] = (int32_t)(least + below(limit - least));
}

static int make_text(fuzz_bytes *b)
{
    draw(32, 127);
    say_ids(b, 1);
    return TXT;
}

/* Every second byte is 0, so this is no text. */
static int make_nano(fuzz_bytes *b)
{
    draw(128, 256);
    say_ids(b, 2);
    return BIN;
}

static int make_llmc(fuzz_bytes *b)
{
    const bool wide = below(2);
    draw(0, 256);
    const int32_t header[256] = {wide ? 20240801 : 20240520, wide ? 7 : 1, (int32_t)n_ids};
    put(b, header, sizeof header);
    say_ids(b, wide ? 4 : 2);
    return BIN;
}

static int make_array(fuzz_bytes *b)
{
    static const char *const types[] = {"|u1", "<u2", "<u4", "<u8"};
    const uint32_t           type = below(4);
    char                     text[128];
    draw(0, 256);
    const int n = snprintf(text, sizeof text,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }\n",
                           types[type], (int)n_ids);
    put(b, "\x93NUMPY\x01\0", 8);
    put(b, &(uint16_t){(uint16_t)n}, 2);
    put(b, text, (size_t)n);
    say_ids(b, (size_t)1 << type);
    return NPY;
}

static int make_tensors(fuzz_bytes *b)
{
    static const char *const types[] = {"U8", "U16", "I32", "I64"};
    draw(0, 256);
    const uint32_t kind = below(4), n = (uint32_t)n_ids, documents = 1 + below(n);
    const size_t   width = (size_t)1 << kind, wide = below(2) ? 8 : 4;
    char           header[256];
    int length = snprintf(header, sizeof header, "{\"ids\":{\"dtype\":\"%s\",\"shape\":[%u],",
                          types[kind], n);
    length += snprintf(header + length, sizeof header - (size_t)length,
                       "\"data_offsets\":[0,%zu]},\"starts\":{\"dtype\":\"%s\",\"shape\":[%u],",
                       n * width, wide == 8 ? "I64" : "I32", documents);
    length += snprintf(header + length, sizeof header - (size_t)length,
                       "\"data_offsets\":[%zu,%zu]}}", n * width, n * width + documents * wide);
    put(b, &(uint64_t){(uint64_t)length}, 8);
    put(b, header, (size_t)length);
    say_ids(b, width);
    for (uint32_t i = 0; i < documents; i++) put(b, &(uint64_t){i}, wide);
    return TENSORS;
}

/* ---- compressed ------------------------------------------------------------------------------ */

static void gzip_it(fuzz_bytes *b, size_t from)
{
    static uint8_t out[FUZZ_MOST];
    z_stream       z = {0};
    if (deflateInit2(&z, (int)below(10), Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        broken("zlib");
    z.next_in = b->at + from, z.avail_in = (uInt)(b->n - from);
    z.next_out = out, z.avail_out = sizeof out;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END) broken("zlib: room");
    b->n = from;
    put(b, out, z.total_out);
    deflateEnd(&z);
}

static void zstd_it(fuzz_bytes *b, size_t from)
{
    static uint8_t out[FUZZ_MOST];
    const size_t   n = ZSTD_compress(out, sizeof out, b->at + from, b->n - from, (int)below(8));
    if (ZSTD_isError(n)) broken("zstd");
    b->n = from;
    put(b, out, n);
}

static void make(fuzz_bytes *b)
{
    int (*const kinds[])(fuzz_bytes *) = {make_text, make_nano, make_llmc, make_array,
                                          make_tensors};
    const size_t   from = b->n + 1;
    const uint32_t kind = below(COUNT(kinds)), packing = below(3);
    put(b, "", 1);
    b->at[from - 1] = (uint8_t)kinds[kind](b);
    packed = packing && kind != COUNT(kinds) - 1;
    if (packed) (packing == 1 ? gzip_it : zstd_it)(b, from);
}

/* ---- what must hold -------------------------------------------------------------------------- */

static dra_corpus *open_bytes(const uint8_t *data, size_t bytes)
{
    const struct row *r = &rows[data[0] % COUNT(rows)];
    snprintf(path, sizeof path, "%s/%s", folder, r->name);
    put_file(path, data + 1, bytes - 1);
    dra_corpus *c = corpus_try(path,
                               (dra_corpus_config){.format = r->format, .separator = r->separator});
    unlink(path);
    return c;
}

int harness(const uint8_t *data, size_t bytes)
{
    dra_corpus *c = bytes ? open_bytes(data, bytes) : NULL;
    dra_corpus_close(c);
    return c != NULL;
}

static void made(const fuzz_bytes *b)
{
    int32_t     back[IDS];
    dra_corpus *c = open_bytes(b->at, b->n);
    if (!c) broken("a file as made is refused");
    if (dra_corpus_tokens(c) != n_ids) broken("another number of ids");
    dra_corpus_read(c, 0, n_ids, back);
    if (memcmp(back, ids, (size_t)n_ids * sizeof *ids) != 0) broken("other ids");
    dra_corpus_close(c);
    if (packed && harness(b->at, 5 + below((uint32_t)b->n - 5)))
        broken("a stream that was cut short is accepted");
}

static void begin(void)
{
    corpora_begin();
    fuzz_path(folder);
    if (mkdir(folder, 0700) != 0) broken("cannot make a folder");
}

static void end(void)
{
    corpora_end();
    unlink(path);
    rmdir(folder);
}

static const char *const words[] = {"\x1f\x8b\x08", "\x28\xb5\x2f\xfd",
                                    "\x93NUMPY",    "\x88\xd8\x34\x01",
                                    "PAR1",         "{",
                                    "\x80\x02",     "\xff\xff\xff\xff",
                                    "9999999999",   "-\n",
                                    "\n\n",         "ids",
                                    "starts",       "<u2",
                                    "'shape': (",   "fortran_order",
                                    "I64",          "\xef\xbb\xbf",
                                    "PK\3\4",       NULL};

const fuzz_subject fuzz_this = {
    .words = words, .begin = begin, .end = end, .make = make, .made = made};
