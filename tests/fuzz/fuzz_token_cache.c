/* Kept tokens of a text. What must hold:
 *   - whatever such a file says, a reader that believes it stays inside of it;
 *   - with any file in their place, the corpus opens; after damage it is the same as before. */
#include <dirent.h>
#include <sys/stat.h>

#include "data/token_cache.h"
#include "corpora.h"
#include "mutate.h"

enum { DAMAGES = 24 };

static char       folder[FUZZ_PATH], path[2 * FUZZ_PATH], kept[FUZZ_PATH + 300];
static fuzz_bytes good; /* the file as it was kept */
static uint64_t   key;  /* of the text */

static dra_corpus *open_text(void)
{
    return corpus_try(path, (dra_corpus_config){.separator = "-", .cache = folder});
}

/* ---- facts ----------------------------------------------------------------------------------- */

static bool get_facts(const uint8_t *data, size_t bytes, dra_facts *facts)
{
    if (bytes < sizeof *facts) return false;
    memcpy(facts, data + bytes - sizeof *facts, sizeof *facts);
    return true;
}

static uint64_t hash_of(const uint8_t *data, size_t bytes)
{
    return dra_hash_of(0, data, bytes - sizeof(uint64_t));
}

/* And a hash that fits. */
static void set_facts(uint8_t *data, size_t bytes, dra_facts *facts)
{
    memcpy(data + bytes - sizeof *facts, facts, sizeof *facts);
    facts->hash = hash_of(data, bytes);
    memcpy(data + bytes - sizeof *facts, facts, sizeof *facts);
}

static void repair(fuzz_bytes *b)
{
    dra_facts facts;
    if (!get_facts(b->at, b->n, &facts)) return;
    facts.key = key;
    set_facts(b->at, b->n, &facts);
}

/* False facts with a valid hash: a reader that believes them must still stay inside. */
static void lie(fuzz_bytes *b)
{
    const uint64_t values[] = {0, 1, 2, 4, 1u << 20, INT64_MAX, UINT64_MAX, UINT64_MAX / 2 + 2};
    dra_facts      facts;
    if (!get_facts(b->at, b->n, &facts)) return;
    uint64_t *const field[] = {&facts.width, &facts.tokens, &facts.documents, &facts.bytes};
    uint64_t       *x = field[below(COUNT(field))];
    *x = below(2) ? values[below(COUNT(values))] : *x + below(5) - 2;
    set_facts(b->at, b->n, &facts);
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void read_kept(uint64_t of)
{
    dra_file_map   map;
    dra_token_file p;
    dra_hash       hash;
    dra_error      err = {0};
    dra_hash_begin(&hash, 0);
    must(dra_file_map_open(kept, &map, &err), &err);
    if (!dra_token_cache_read(&map, of, 256, &hash, &p)) return;
    for (int64_t i = 0; i < p.tokens; i++)
        if (dra_integer_at(p.ids, i) > 255) broken("a kept token outside");
    for (int64_t i = 0; i < p.documents; i++)
        if (dra_token_file_start(&p, i) >= p.tokens) broken("a kept document outside");
    dra_token_file_close(&p);
}

/* A file that was stored has the key of another text: it gets that of this one, and a hash that
 * fits if it had one. */
int harness(const uint8_t *data, size_t bytes)
{
    uint8_t  *copy = exact_copy(data, bytes);
    dra_facts facts;
    if (get_facts(copy, bytes, &facts) && facts.hash == hash_of(copy, bytes)) {
        facts.key = key;
        set_facts(copy, bytes, &facts);
    }
    put_file(kept, copy, bytes);
    free(copy);
    if (bytes) read_kept(key);
    dra_corpus *c = open_text();
    if (!c) broken("kept tokens spoil a corpus");
    dra_corpus_close(c);
    return 1;
}

/* The one file of kept tokens in the folder. */
static void find_kept(void)
{
    DIR                 *d = opendir(folder);
    const struct dirent *e;
    if (!d) broken("no folder");
    kept[0] = 0;
    while ((e = readdir(d)))
        if (strstr(e->d_name, ".tokens"))
            snprintf(kept, sizeof kept, "%s/%.255s", folder, e->d_name);
    closedir(d);
    if (!kept[0]) broken("no tokens were kept");
}

static uint64_t keep(const fuzz_bytes *text)
{
    dra_facts facts;
    if (kept[0]) unlink(kept);
    put_file(path, text->at, text->n);
    dra_corpus *c = open_text();
    if (!c) broken("the text as made");
    const uint64_t fingerprint = dra_corpus_fingerprint(c);
    dra_corpus_close(c);
    find_kept();
    get_file(kept, &good);
    if (!get_facts(good.at, good.n, &facts)) broken("kept tokens without facts");
    key = facts.key;
    return fingerprint;
}

static void make_text(fuzz_bytes *b)
{
    say(b, "a\n");
    for (uint32_t i = below(40); i; i--)
        say(b, (const char *[]){"\n", "--\n", "\xff\n", "x -\n", "-\n", "-\r\n"}[below(6)]);
}

static void make(fuzz_bytes *b) { put(b, good.at, good.n); }

/* Damage does not forge the hash, so it cannot change a corpus. */
static void made(const fuzz_bytes *b)
{
    static fuzz_bytes text, bad;
    text.n = 0;
    make_text(&text);
    const uint64_t fingerprint = keep(&text);
    for (int i = 0; i < DAMAGES; i++) {
        bad = good;
        for (uint32_t k = below(3); k; k--) mutate_once(&bad, fuzz_this.words);
        static fuzz_bytes false_one;
        false_one = bad;
        lie(&false_one);
        put_file(kept, false_one.at, false_one.n);
        if (false_one.n) read_kept(key);
        put_file(kept, bad.at, bad.n);
        dra_corpus *c = open_text();
        if (!c || dra_corpus_fingerprint(c) != fingerprint) broken("kept tokens changed a corpus");
        dra_corpus_close(c);
    }
}

static void begin(void)
{
    static fuzz_bytes text;
    corpora_begin();
    fuzz_path(folder);
    if (mkdir(folder, 0700) != 0) broken("cannot make a folder");
    snprintf(path, sizeof path, "%s/f.txt", folder);
    say(&text, "some\n-\ntext of\n-\nthree documents\n");
    keep(&text);
}

static void end(void)
{
    corpora_end();
    unlink(kept);
    unlink(path);
    rmdir(folder);
}

static const char *const words[] = {"\1", "\2", "\4", "\xff\xff\xff\xff\xff\xff\xff\x7f", NULL};

const fuzz_subject fuzz_this = {
    .words = words, .begin = begin, .end = end, .make = make, .made = made, .repair = repair};
