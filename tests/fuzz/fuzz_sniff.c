/* fuzz_sniff SECONDS [SEED]: ids of nanoGPT, llm.c and NumPy, text, plain or compressed by gzip or
 * zstd, under any name, then damaged. What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a file as made is accepted, with its ids;
 *   - a damaged one is refused by one line that names it, or accepted with ids that are in range;
 *   - a stream that was cut short is refused.
 * File number n of a run has seed SEED + n; SECONDS 0 tries that one file. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "data/sniff.h"
#include "dra/data.h"
#include "file/fail.h"
#include "fuzz/fuzzer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { ROOM = 1 << 14, IDS = 300, DAMAGES = 24, LIMIT = 256 };

static char           folder[200], path[256];
static dra_tokenizer *tokenizer;

typedef struct bytes {
    unsigned char at[ROOM];
    size_t        n;
} bytes;

typedef struct made {
    int32_t ids[IDS];
    int64_t n;
} made;

static void say(bytes *b, const void *data, size_t n)
{
    if (b->n + n > ROOM) broken("the fuzzer's own room is too small");
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void put_bytes(const bytes *b)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->at, 1, b->n, f) != b->n) broken("cannot write");
    fclose(f);
}

/* ---- good files ------------------------------------------------------------------------------ */

static void say_ids(bytes *b, const made *m, size_t width)
{
    for (int64_t i = 0; i < m->n; i++) say(b, &(int64_t){m->ids[i]}, width);
}

static void draw(made *m, uint32_t least, uint32_t limit)
{
    m->n = 20 + below(IDS - 20);
    for (int64_t i = 0; i < m->n; i++) m->ids[i] = (int32_t)(least + below(limit - least));
}

static void make_text(bytes *b, made *m)
{
    draw(m, 32, 127);
    say_ids(b, m, 1);
}

/* Every fourth byte or so is 0, so this is no text. */
static void make_nano(bytes *b, made *m)
{
    draw(m, 128, 256);
    say_ids(b, m, 2);
}

static void make_llmc(bytes *b, made *m)
{
    const bool wide = below(2);
    draw(m, 0, 256);
    const int32_t header[256] = {wide ? 20240801 : 20240520, wide ? 7 : 1, (int32_t)m->n};
    say(b, header, sizeof header);
    say_ids(b, m, wide ? 4 : 2);
}

static void make_array(bytes *b, made *m)
{
    static const char *const types[] = {"|u1", "<u2", "<u4", "<u8"};
    const uint32_t           type = below(4);
    char                     text[128];
    draw(m, 0, 256);
    const int n = snprintf(text, sizeof text,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }\n",
                           types[type], (int)m->n);
    say(b, "\x93NUMPY\x01\0", 8);
    say(b, &(uint16_t){(uint16_t)n}, 2);
    say(b, text, (size_t)n);
    say_ids(b, m, (size_t)1 << type);
}

static void gzip_it(bytes *b)
{
    static bytes from;
    z_stream     z = {0};
    from = *b;
    if (deflateInit2(&z, (int)below(10), Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        broken("zlib");
    z.next_in = from.at, z.avail_in = (uInt)from.n;
    z.next_out = b->at, z.avail_out = ROOM;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END) broken("zlib: room");
    b->n = z.total_out;
    deflateEnd(&z);
}

static void zstd_it(bytes *b)
{
    static bytes from;
    from = *b;
    b->n = ZSTD_compress(b->at, ROOM, from.at, from.n, (int)below(8));
    if (ZSTD_isError(b->n)) broken("zstd");
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void damage(bytes *b)
{
    static const char *const words[] = {
        "\x1f\x8b\x08", "\x28\xb5\x2f\xfd", "\x93NUMPY", "\x88\xd8\x34\x01", "PAR1", "{",
        "\x80\x02",     "\xff\xff\xff\xff", "9999999999"};
    const uint32_t at = below((uint32_t)b->n + 1);
    const char    *word = words[below(COUNT(words))];
    const size_t   n = strlen(word);
    switch (below(5)) {
    case 0:
        if (at < b->n) b->at[at] = (unsigned char)below(256);
        break;
    case 1:
        if (at < b->n) b->at[at] ^= (unsigned char)(1u << below(8));
        break;
    case 2: b->n = at; break;
    case 3:
        if (n <= b->n) memcpy(b->at, word, n);
        break;
    default:
        if (at + n <= b->n) memcpy(b->at + at, word, n);
    }
}

static void check_ids(const dra_corpus *c, const made *m)
{
    const int64_t n = dra_corpus_tokens(c);
    int32_t      *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) broken("no memory");
    dra_corpus_read(c, 0, n, ids);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= LIMIT) broken("a token outside");
    if (m && (n != m->n || memcmp(ids, m->ids, (size_t)n * sizeof *ids) != 0)) broken("other ids");
    for (int64_t i = 0; i < dra_corpus_documents(c); i++)
        if (dra_corpus_document(c, i) >= dra_corpus_document(c, i + 1)) broken("documents");
    free(ids);
}

/* Whether it was accepted. m: the ids that must come out, or NULL. */
static bool try_file(const char *format, const made *m)
{
    char                    shown[DRA_BRIEF];
    const char             *paths[] = {path};
    dra_corpus             *c = NULL;
    dra_error               err = {0};
    const dra_corpus_config config = {
        .n = 1, .paths = paths, .tokenizer = tokenizer, .format = format};
    if (dra_corpus_open(&config, NULL, NULL, &c, &err) == DRA_OK) {
        check_ids(c, m);
        dra_corpus_close(c);
        return true;
    }
    dra_brief(path, shown);
    if (strncmp(err.text, shown, strlen(shown)) != 0) broken("an error without the path");
    if (strpbrk(err.text, "\n\r\t\033")) broken("an error of several lines");
    return false;
}

static const struct kind {
    const char *name;
    void (*make)(bytes *, made *);
} kinds[] = {
    {"f.txt", make_text}, {"f.bin", make_nano}, {"f.bin", make_llmc}, {"f.npy", make_array}};

static const struct packing {
    const char *end;
    void (*pack)(bytes *);
} packings[] = {{"", NULL}, {".gz", gzip_it}, {".zst", zstd_it}};

static void one_file(void)
{
    static const char *const formats[] = {NULL,    NULL,  NULL,         NULL,         "text",
                                          "bytes", "npy", "tokens-u16", "tokens-u32", "llmc"};
    static bytes             good, bad;
    static made              m;
    const struct kind       *kind = &kinds[below(COUNT(kinds))];
    const struct packing    *packing = &packings[below(COUNT(packings))];
    good.n = 0;
    kind->make(&good, &m);
    if (packing->pack) packing->pack(&good);
    snprintf(path, sizeof path, "%s/%s%s", folder, kind->name, packing->end);
    put_bytes(&good);
    if (!try_file(NULL, &m)) broken("the file as made");
    if (packing->pack) {
        bad = good;
        bad.n = 4 + below((uint32_t)good.n - 4);
        put_bytes(&bad);
        if (try_file(NULL, NULL)) broken("a stream that was cut short");
    }
    for (int i = 0; i < DAMAGES; i++, fuzz_damaged++) {
        if (i % 4 == 0) bad = good;
        for (uint32_t k = 1 + below(3); k; k--) damage(&bad);
        put_bytes(&bad);
        fuzz_accepted += try_file(formats[below(COUNT(formats))], NULL);
    }
    unlink(path);
}

static void clean(void)
{
    unlink(path);
    rmdir(folder);
}

int main(int argc, char **argv)
{
    fuzz_begin(&(fuzzer){"fuzz_sniff", one_file, clean});
    snprintf(folder, sizeof folder, "%.150s/fuzz-sniff-%ld", fuzz_folder(), (long)getpid());
    if (mkdir(folder, 0700) != 0 || dra_tokenizer_bytes(&tokenizer, NULL) != DRA_OK)
        broken("cannot begin");
    const int status = fuzz_all(argc, argv);
    dra_tokenizer_destroy(tokenizer);
    return status;
}
