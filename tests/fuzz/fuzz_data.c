/* fuzz_data SECONDS [SEED]: lines of JSON, texts, ids in safetensors and kept tokens, made at
 * random, then damaged. What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a file as made is accepted, with all its tokens and documents;
 *   - a damaged one is refused by one line that names it, or accepted and fit to be fed;
 *   - whatever is done to kept tokens, the corpus stays the same.
 * File number n of a run has seed SEED + n; SECONDS 0 tries that one file. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shape.h"
#include "data/token_cache.h"
#include "dra/data.h"
#include "file/fail.h"
#include "fuzz/fuzzer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { ROOM = 1 << 14, DOCUMENTS = 12, DAMAGES = 24 };

static char           folder[200], path[256], kept[512];
static dra_tokenizer *tokenizer;

typedef struct bytes {
    unsigned char at[ROOM];
    size_t        n;
} bytes;

typedef struct made { /* what a good file must become */
    int64_t tokens, documents;
} made;

static void put_bytes(const char *to, const bytes *b)
{
    FILE *f = fopen(to, "wb");
    if (!f || fwrite(b->at, 1, b->n, f) != b->n) broken("cannot write");
    fclose(f);
}

static void read_bytes(const char *from, bytes *b)
{
    FILE *f = fopen(from, "rb");
    b->n = f ? fread(b->at, 1, ROOM, f) : ROOM;
    if (b->n == ROOM) broken("cannot read, or the fuzzer's own room is too small");
    fclose(f);
}

/* ---- good files ------------------------------------------------------------------------------ */

static void say(bytes *b, const char *text, size_t n)
{
    if (b->n + n > ROOM) broken("the fuzzer's own room is too small");
    memcpy(b->at + b->n, text, n);
    b->n += n;
}

static void say_text(bytes *b, const char *text) { say(b, text, strlen(text)); }

static made make_lines(bytes *b)
{
    static const char *const letters[] = {"a",       " ",       "\\n",         "\\\"",
                                          "\\u00e9", "\\u0000", "\xe6\xb0\xb4"};
    const int64_t            length[] = {1, 1, 1, 1, 2, 1, 3};
    made                     m = {0};
    for (uint32_t i = 1 + below(DOCUMENTS); i; i--) {
        const int64_t before = m.tokens;
        say_text(b, (const char *[]){"{\"text\":\"", " {\"n\": [1,-2e3,{}], \"text\" : \"",
                                     "\n\r\n{\"text\": \""}[below(3)]);
        for (uint32_t k = below(9); k; k--) {
            const uint32_t letter = below(COUNT(letters));
            say_text(b, letters[letter]);
            m.tokens += length[letter];
        }
        say_text(b, (const char *[]){"\"}\n", "\" , \"b\":null}\r\n"}[below(2)]);
        m.documents += m.tokens > before;
    }
    return m;
}

/* Documents of lines of letters, between them lines that are "-". */
static made make_text(bytes *b)
{
    made m = {0};
    for (uint32_t i = 1 + below(DOCUMENTS); i; i--) {
        const int64_t before = m.tokens;
        for (uint32_t k = below(5); k; k--) {
            const char *line = (const char *[]){"\n", "--\n", "\xff\n", "x -\n", " -\n"}[below(5)];
            say_text(b, line);
            m.tokens += (int64_t)strlen(line);
        }
        say_text(b, below(2) ? "-\n" : "-\r\n");
        m.documents += m.tokens > before;
    }
    return m;
}

static made make_ids(bytes *b)
{
    static const char *const types[] = {"U8", "U16", "I32", "I64"};
    const uint32_t           kind = below(4), n = 1 + below(60), documents = 1 + below(n);
    const size_t             width = (size_t)1 << kind, wide = below(2) ? 8 : 4;
    char                     header[256];
    int length = snprintf(header, sizeof header, "{\"ids\":{\"dtype\":\"%s\",\"shape\":[%u],",
                          types[kind], n);
    length += snprintf(header + length, sizeof header - (size_t)length,
                       "\"data_offsets\":[0,%zu]},\"starts\":{\"dtype\":\"%s\",\"shape\":[%u],",
                       n * width, wide == 8 ? "I64" : "I32", documents);
    length += snprintf(header + length, sizeof header - (size_t)length,
                       "\"data_offsets\":[%zu,%zu]}}", n * width, n * width + documents * wide);
    say(b, (const char *)&(uint64_t){(uint64_t)length}, 8);
    say(b, header, (size_t)length);
    for (uint32_t i = 0; i < n; i++) say(b, (const char *)&(uint64_t){below(256)}, width);
    for (uint32_t i = 0; i < documents; i++) say(b, (const char *)&(uint64_t){i}, wide);
    return (made){n, documents};
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void damage(bytes *b)
{
    static const char *const words[] = {"\"",
                                        "}",
                                        "{",
                                        "\n",
                                        "-\n",
                                        "\\",
                                        "\\ud800",
                                        "\xff",
                                        "null",
                                        "-1",
                                        "9223372036854775807",
                                        "I64",
                                        "text",
                                        "ids",
                                        ""};
    const uint32_t           at = below((uint32_t)b->n + 1);
    const char              *word = words[below(COUNT(words))];
    const size_t             n = strlen(word);
    switch (below(5)) {
    case 0:
        if (at < b->n) b->at[at] = (unsigned char)below(256);
        break;
    case 1:
        if (at < b->n) b->at[at] ^= (unsigned char)(1u << below(8));
        break;
    case 2:
        if (b->n + n > ROOM) break;
        memmove(b->at + at + n, b->at + at, b->n - at);
        memcpy(b->at + at, word, n);
        b->n += n;
        break;
    case 3: b->n = below(4) ? b->n : at; break;
    default:
        if (at + n <= b->n) memcpy(b->at + at, word, n);
    }
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void check_feed(const dra_corpus *c)
{
    static int32_t  ids[64], targets[64], mark[64];
    dra_feed_config config = {.corpus = c, .B = 1 + below(4), .T = 1 + below(16), .seed = below(9)};
    dra_feed       *f = NULL;
    const int32_t   largest = dra_corpus_largest(c);
    config.carry = below(2), config.cross = below(2), config.once = below(2);
    if (below(2)) config.to = 0.5;
    if (dra_feed_create(&config, &f, NULL) != DRA_OK) return;
    for (int64_t step = 0; step < 6; step++) {
        dra_feed_batch(f, step < 5 ? step : (int64_t)1 << 50, ids, targets, mark);
        for (int64_t i = 0; i < config.B * config.T; i++) {
            if (ids[i] < 0 || ids[i] > largest) broken("an id outside");
            if (targets[i] < -1 || targets[i] > largest) broken("a target outside");
            if (mark[i] < 0 || mark[i] > DRA_MARK_RESET) broken("a strange mark");
        }
    }
    dra_feed_destroy(f);
}

static void check_corpus(const dra_corpus *c)
{
    const int64_t n = dra_corpus_tokens(c), documents = dra_corpus_documents(c);
    int32_t      *ids = malloc((size_t)n * sizeof *ids);
    if (!ids || n < 1 || documents < 1) broken("a corpus without tokens or documents");
    dra_corpus_read(c, 0, n, ids);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] > 255) broken("a token outside");
    for (int64_t i = 0; i < documents; i++)
        if (dra_corpus_document(c, i) >= dra_corpus_document(c, i + 1)) broken("documents");
    free(ids);
    for (int i = 0; i < 3; i++) check_feed(c);
}

/* The corpus of `path`, checked, or NULL where it is refused as it should be. */
static dra_corpus *try_file(const char *separator, bool keep)
{
    char              shown[DRA_BRIEF];
    const char       *paths[] = {path};
    dra_corpus       *c = (dra_corpus *)path; /* must be cleared */
    dra_error         err = {0};
    dra_corpus_config config = {.n = 1, .paths = paths, .tokenizer = tokenizer};
    config.separator = separator;
    config.cache = keep ? folder : NULL;
    if (dra_corpus_open(&config, NULL, NULL, &c, &err) == DRA_OK) {
        check_corpus(c);
        return c;
    }
    dra_brief(path, shown);
    if (c) broken("a refused file gave a corpus");
    if (strncmp(err.text, shown, strlen(shown)) != 0) broken("an error without the path");
    if (strpbrk(err.text, "\n\r\t\033")) broken("an error of several lines");
    return NULL;
}

/* The one file of kept tokens in the folder. */
static void find_kept(void)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    if (!d) broken("no folder");
    kept[0] = 0;
    while ((e = readdir(d)))
        if (strstr(e->d_name, ".tokens")) snprintf(kept, sizeof kept, "%s/%s", folder, e->d_name);
    closedir(d);
    if (!kept[0]) broken("no tokens were kept");
}

/* False facts with a valid hash of the file. */
static void lie(bytes *b)
{
    uint64_t       words[sizeof(dra_facts) / 8];
    const size_t   n = COUNT(words);
    const uint64_t values[] = {0, 1, 2, 4, 1u << 20, INT64_MAX, UINT64_MAX, UINT64_MAX / 2 + 2};
    unsigned char *at = b->at + b->n - sizeof words;
    if (b->n < sizeof words) return;
    memcpy(words, at, sizeof words);
    uint64_t *word = &words[2 + below((uint32_t)n - 3)];
    *word = below(2) ? values[below(COUNT(values))] : *word + below(5) - 2;
    memcpy(at, words, sizeof words);
    words[n - 1] = dra_hash_of(0, b->at, b->n - 8);
    memcpy(at, words, sizeof words);
}

/* A reader that believes false facts must still stay inside the file. */
static void try_store(uint64_t key)
{
    dra_file_map   map;
    dra_token_file p;
    dra_hash       hash;
    dra_hash_begin(&hash, 0);
    if (dra_file_map_open(kept, &map, NULL) != DRA_OK) broken("kept tokens are gone");
    if (!dra_token_cache_read(&map, key, 256, &hash, &p)) return;
    for (int64_t i = 0; i < p.tokens; i++)
        if (dra_integer_at(p.ids, i) > 255) broken("a kept token outside");
    for (int64_t i = 0; i < p.documents; i++)
        if (dra_token_file_start(&p, i) >= p.tokens) broken("a kept document outside");
    dra_token_file_close(&p);
}

static void fuzz_kept(const char *separator)
{
    static bytes good, bad, false_one;
    dra_corpus  *c = try_file(separator, true);
    dra_facts    facts;
    if (!c) broken("the file as made, kept");
    const uint64_t fingerprint = dra_corpus_fingerprint(c);
    dra_corpus_close(c);
    find_kept();
    read_bytes(kept, &good);
    memcpy(&facts, good.at + good.n - sizeof facts, sizeof facts);
    for (int i = 0; i < DAMAGES; i++) {
        bad = good;
        for (uint32_t k = below(3); k; k--) damage(&bad);
        false_one = bad;
        if (below(2)) lie(&false_one);
        put_bytes(kept, &false_one);
        try_store(facts.key);
        put_bytes(kept, &bad); /* damage without a hash that fits is always found */
        c = try_file(separator, true);
        if (!c || dra_corpus_fingerprint(c) != fingerprint) broken("kept tokens changed a corpus");
        dra_corpus_close(c);
    }
    unlink(kept);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void one_file(void)
{
    static const struct {
        const char *name, *separator;
        made (*make)(bytes *);
        bool keep;
    } kinds[] = {{"f.jsonl", NULL, make_lines, true},
                 {"f.txt", "-", make_text, true},
                 {"f.safetensors", NULL, make_ids, false}};
    static bytes   good, bad;
    const uint32_t kind = below(COUNT(kinds));
    const char    *separator = kinds[kind].separator;
    good.n = 0;
    const made m = kinds[kind].make(&good);
    snprintf(path, sizeof path, "%s/%s", folder, kinds[kind].name);
    put_bytes(path, &good);
    dra_corpus *c = try_file(separator, false);
    if (!c != (m.tokens == 0)) broken("the file as made");
    if (c && (dra_corpus_tokens(c) != m.tokens || dra_corpus_documents(c) != m.documents))
        broken("the tokens or documents of the file as made");
    dra_corpus_close(c);
    if (m.tokens && kinds[kind].keep && below(4) == 0) fuzz_kept(separator);
    for (int i = 0; i < DAMAGES; i++, fuzz_damaged++) {
        if (i % 4 == 0) bad = good;
        for (uint32_t k = 1 + below(3); k; k--) damage(&bad);
        put_bytes(path, &bad);
        c = try_file(separator, false);
        fuzz_accepted += c != NULL;
        dra_corpus_close(c);
    }
    unlink(path);
}

static void clean(void) { rmdir(folder); }

int main(int argc, char **argv)
{
    fuzz_begin(&(fuzzer){"fuzz_data", one_file, clean});
    snprintf(folder, sizeof folder, "%.150s/fuzz-data-%ld", fuzz_folder(), (long)getpid());
    if (mkdir(folder, 0700) != 0 || dra_tokenizer_bytes(&tokenizer, NULL) != DRA_OK)
        broken("cannot begin");
    const int status = fuzz_all(argc, argv);
    dra_tokenizer_destroy(tokenizer);
    return status;
}
