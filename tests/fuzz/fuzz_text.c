/* fuzz_text SECONDS [SEED]: tokenizer.json files, vocab.json and merges.txt, or vocabularies as of
 * RWKV World, made at random and then damaged, and random text. What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a file as made is accepted; a damaged one as well, or refused by one line;
 *   - ids are those of plain loops, the same for a text in parts, and give the text back;
 *   - a tokenizer that is saved and opened is the same one.
 * File number n of a run has seed SEED + n; SECONDS 0 tries that one file. */
#include <string.h>
#include <unistd.h>

#include "text/letters.h"
#include "text/literal.h"
#include "text/split.h"
#include "text/tokenizer.h"
#include "text/world.h"
#include "fuzz/fuzzer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { ROOM = 1 << 15, TOKENS = 300, TOKEN = 16, TEXT = 200, DAMAGES = 24 };

static char saved[128], merges_path[128];

/* ---- a good file ----------------------------------------------------------------------------- */

typedef struct file {
    char   at[ROOM];
    size_t n;
} file;

static void say(file *f, const char *text)
{
    const size_t n = strlen(text);
    if (f->n + n > ROOM) broken("the fuzzer's own room is too small");
    memcpy(f->at + f->n, text, n);
    f->n += n;
}

static const char *one_of(const char *const *texts, uint32_t n) { return texts[below(n)]; }

static void say_quoted(file *f, const char *bytes, size_t n, bool escaped)
{
    dra_alphabet a;
    char         spelled[2 * TOKEN + 1];
    dra_alphabet_make(&a);
    dra_alphabet_write(&a, bytes, n, spelled);
    for (const char *p = spelled; *p; p++) {
        if (escaped && (*p == '"' || *p == '\\')) say(f, "\\");
        say(f, (char[]){*p, 0});
    }
}

typedef struct made {
    char   token[TOKENS][TOKEN];
    size_t bytes[TOKENS], n, single;
} made;

static bool has(const made *m, const char *bytes, size_t n)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->bytes[i] == n && memcmp(m->token[i], bytes, n) == 0) return true;
    return false;
}

/* Spelled like one of the added tokens, which would then have two ids. */
static bool taken(const char *bytes, size_t n)
{
    return (n == 2 && (memcmp(bytes, "<|", 2) == 0 || memcmp(bytes,
                                                             "\xe9"
                                                             "a",
                                                             2) == 0)) ||
           (n == 13 && memcmp(bytes, "<|endoftext|>", 13) == 0);
}

static void add(made *m, const char *bytes, size_t n)
{
    memcpy(m->token[m->n], bytes, n);
    m->bytes[m->n++] = n;
}

static void make_bytes(made *m)
{
    static const char few[] = "abst' \n1.\xc3\xa9\xcc\x81<|>\"\\";
    for (size_t i = 0; i < sizeof few - 1; i++)
        if (below(20) && !has(m, few + i, 1)) add(m, few + i, 1);
    for (int i = 0; i < 256 && below(4); i++)
        if (!has(m, &(char){(char)i}, 1)) add(m, &(char){(char)i}, 1);
    if (!m->n) add(m, "a", 1);
    m->single = m->n;
}

/* One merge, as a line, as a text or as a list of two. */
static void say_merge(file *f, const made *m, uint32_t left, uint32_t right,
                      const char *const *form)
{
    say(f, form[0]);
    say_quoted(f, m->token[left], m->bytes[left], form[2][0] == '"');
    say(f, form[1]);
    say_quoted(f, m->token[right], m->bytes[right], form[2][0] == '"');
    say(f, form[2]);
}

/* Writes merges while it makes the tokens for them. */
static void say_merges(file *f, made *m, bool lines)
{
    static const char *const forms[][3] = {
        {"\"", " ", "\""}, {"[\"", "\",\"", "\"]"}, {"", " ", "\n"}};
    const char *comma = "";
    for (uint32_t k = below(40); k && m->n < TOKENS; k--) {
        const uint32_t i = below((uint32_t)m->n), j = below((uint32_t)m->n);
        const size_t   n = m->bytes[i] + m->bytes[j];
        char           both[2 * TOKEN];
        memcpy(both, m->token[i], m->bytes[i]);
        memcpy(both + m->bytes[i], m->token[j], m->bytes[j]);
        if (n > TOKEN || has(m, both, n) || taken(both, n)) continue;
        say(f, comma);
        say_merge(f, m, i, j, forms[lines ? 2 : below(2)]);
        add(m, both, n);
        comma = lines ? "" : ",";
    }
}

static void say_vocabulary(file *f, const made *m)
{
    char id[32];
    say(f, "{");
    for (size_t i = 0; i < m->n; i++) {
        say(f, i ? ",\"" : "\"");
        say_quoted(f, m->token[i], m->bytes[i], true);
        snprintf(id, sizeof id, "\":%zu", i);
        say(f, id);
    }
    say(f, "}");
}

static void say_added(file *f)
{
    static const char *const texts[] = {"<|endoftext|>", "  ",   "   ",     "<|",
                                        "ab a",          "1\\n", "\\u00e9a"};
    static const char *const flags[] = {"", "", "", ",\"lstrip\":true", ",\"rstrip\":true"};
    uint32_t                 used = 0;
    char                     text[256];
    say(f, "\"added_tokens\":[");
    for (uint32_t i = 0; i < COUNT(texts); i++) {
        if (below(3)) continue;
        snprintf(text, sizeof text,
                 "%s{\"id\":%u,\"content\":\"%s\",\"special\":%s,\"normalized\":%s%s}",
                 used++ ? "," : "", TOKENS + i, texts[i], below(2) ? "true" : "false",
                 below(2) ? "true" : "false", one_of(flags, COUNT(flags)));
        say(f, text);
    }
    say(f, "],");
}

static void make(file *f)
{
    static const char *const normalizers[] = {"null", "{\"type\":\"NFC\"}"};
    static const char *const flags[] = {"false", "false", "true"};
    made                     m = {0};
    f->n = 0;
    make_bytes(&m);
    say(f, "{");
    say_added(f);
    say(f, "\"normalizer\":");
    say(f, one_of(normalizers, COUNT(normalizers)));
    say(f, ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":");
    say(f, one_of(flags, COUNT(flags)));
    say(f, "},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",");
    say(f, "\"merges\":[");
    say_merges(f, &m, false);
    say(f, "],\"vocab\":");
    say_vocabulary(f, &m);
    say(f, "}}");
}

static void make_pair(file *vocab, file *merges)
{
    made m = {0};
    vocab->n = merges->n = 0;
    make_bytes(&m);
    if (below(2)) say(merges, "#version: 0.2\n");
    say_merges(merges, &m, true);
    say_vocabulary(vocab, &m);
}

/* All bytes, and entries made of others put together. */
static void make_world(file *f)
{
    made m = {0};
    f->n = 0;
    for (int i = 0; i < 256; i++) add(&m, &(char){(char)i}, 1);
    for (uint32_t k = below(TOKENS - 256); k; k--) {
        const uint32_t i = below(4) ? 32 + below(96) : below((uint32_t)m.n);
        const uint32_t j = below(2) ? i : below((uint32_t)m.n);
        const size_t   n = m.bytes[i] + m.bytes[j];
        char           both[2 * TOKEN];
        memcpy(both, m.token[i], m.bytes[i]);
        memcpy(both + m.bytes[i], m.token[j], m.bytes[j]);
        if (n <= TOKEN && !has(&m, both, n)) add(&m, both, n);
    }
    for (size_t i = 0; i < m.n; i++) {
        char line[8 * TOKEN], literal[5 * TOKEN];
        literal[dra_literal_write(m.token[i], m.bytes[i], literal)] = 0;
        snprintf(line, sizeof line, "%zu %s %zu%s\n", i + 1, literal, m.bytes[i],
                 below(9) ? "" : "\r");
        say(f, line);
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static const char *const words[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    "\"",
                                    ",",
                                    ":",
                                    "\\",
                                    "-1",
                                    "0",
                                    "1e3",
                                    "null",
                                    "true",
                                    "\\u0000",
                                    "\\ud800",
                                    "\xff",
                                    "4194303",
                                    "4194304",
                                    "9223372036854775807",
                                    "\\u0120",
                                    "\"vocab\":",
                                    "\"merges\":",
                                    "\"id\":",
                                    " "};

static void replace(file *f, size_t from, size_t to, const char *with, size_t n)
{
    if (f->n - (to - from) + n > ROOM) return;
    memmove(f->at + from + n, f->at + to, f->n - to);
    memmove(f->at + from, with, n);
    f->n += n - (to - from);
}

static void damage(file *f)
{
    const size_t a = below((uint32_t)f->n + 1), rest = f->n - a;
    const size_t b = a + below((uint32_t)(rest < 20 ? rest : 20) + 1);
    const char  *word = one_of(words, COUNT(words));
    char         copy[20];
    switch (below(6)) {
    case 0:
        if (a < f->n) f->at[a] = (char)below(256);
        break;
    case 1:
        if (a < f->n) f->at[a] ^= (char)(1u << below(8));
        break;
    case 2: replace(f, a, a, word, strlen(word)); break;
    case 3: replace(f, a, b, "", 0); break;
    case 4: /* something twice */
        memcpy(copy, f->at + a, b - a);
        replace(f, a, a, copy, b - a);
        break;
    default: f->n = below(8) ? f->n : a;
    }
}

/* ---- use ------------------------------------------------------------------------------------- */

static size_t random_text(char *text)
{
    static const char *const parts[] = {
        "a",        "ab",          "st",           "'s", "'",
        " ",        "  ",          "\n",           "1",  ".",
        "\xc3\xa9", "\xcc\x81",    "\xe6\xb0\xb4", "<|", "<|endoftext|>",
        "\xff",     "\xe2\x80\x83"};
    size_t n = 0;
    for (uint32_t k = below(40); k && n + 16 < TEXT; k--) {
        const char *part = one_of(parts, COUNT(parts));
        memcpy(text + n, part, strlen(part));
        n += strlen(part);
        if (below(12) == 0) text[n++] = (char)below(256);
    }
    return n;
}

/* The lowest rank, then the first place, until there is none: merging without a heap. */
static size_t slow_merge(const dra_tokenizer *t, const char *text, size_t n, int32_t *id)
{
    for (size_t i = 0; i < n; i++) id[i] = t->byte_id[(unsigned char)text[i]];
    for (;;) {
        const dra_pair *best = NULL;
        size_t          place = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const dra_pair *p = dra_pairs_find(&t->pairs, id[i], id[i + 1]);
            if (p->id >= 0 && (!best || p->rank < best->rank)) best = p, place = i;
        }
        if (!best) return n;
        id[place] = best->id;
        memmove(id + place + 1, id + place + 2, (--n - place - 1) * sizeof *id);
    }
}

static void check_merges(const dra_tokenizer *t, const char *text, size_t n, const dra_ids *ids)
{
    size_t made_ids = 0;
    for (size_t k; n; text += k, n -= k) {
        int32_t id[TEXT];
        k = dra_split_piece(text, n);
        const size_t some = slow_merge(t, text, k, id);
        if (made_ids + some > ids->n || memcmp(ids->data + made_ids, id, some * sizeof *id) != 0)
            broken("merged otherwise");
        made_ids += some;
    }
    if (made_ids != ids->n) broken("too many ids");
}

/* No token that matches the text at this place is longer than the one taken. */
static void check_longest(const dra_tokenizer *t, const char *text, size_t n, const dra_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        const uint32_t bytes = t->token[ids->data[i]].bytes;
        for (int32_t k = 1; k < t->size; k++) {
            const dra_token *other = &t->token[k];
            if (other->kind && other->bytes > bytes && other->bytes <= n &&
                memcmp(other->text, text, other->bytes) == 0)
                broken("a longer entry fits");
        }
        text += bytes;
        n -= bytes;
    }
}

static void check_back(const dra_tokenizer *t, const char *text, size_t n, const dra_ids *ids)
{
    for (size_t i = 0, k; i < ids->n; i++, text += k, n -= k) {
        const char *piece = dra_tokenizer_piece(t, ids->data[i], &k);
        if (!piece || k > n || memcmp(piece, text, k) != 0) broken("the text does not come back");
    }
    if (n) broken("the text comes back short");
}

static void check_parts(const dra_tokenizer *t, const char *text, size_t n, const dra_ids *whole)
{
    dra_ids ids = {0};
    size_t  done = 0, here = 0;
    while (here < n) {
        here += 1 + below(20);
        if (here > n) here = n;
        const size_t cut = dra_encode_cut(t, text + done, here - done);
        if (dra_encode(t, text + done, cut, &ids, NULL) != DRA_OK) broken("a part is refused");
        done += cut;
    }
    if (dra_encode(t, text + done, n - done, &ids, NULL) != DRA_OK) broken("the rest is refused");
    if (ids.n != whole->n ||
        (ids.n && memcmp(ids.data, whole->data, ids.n * sizeof *ids.data) != 0))
        broken("other ids in parts");
    dra_ids_free(&ids);
}

static void check_decoded(const dra_tokenizer *t, const dra_ids *ids)
{
    dra_decoder *d = NULL;
    const char  *text;
    size_t       n;
    int32_t      code;
    if (dra_decoder_create(t, below(2), &d, NULL) != DRA_OK) broken("no decoder");
    for (size_t i = 0; i <= ids->n; i++) {
        if (i == ids->n)
            dra_decoder_flush(d, &text, &n);
        else if (dra_decoder_push(d, ids->data[i], &text, &n, NULL) != DRA_OK)
            broken("an id is refused");
        for (size_t at = 0; at < n;) {
            at += dra_utf8(text + at, n - at, &code);
            if (code < 0) broken("half a letter");
        }
    }
    dra_decoder_destroy(d);
}

static void use(const dra_tokenizer *t)
{
    char         text[TEXT];
    const size_t n = random_text(text);
    dra_ids      ids = {0};
    dra_error    err = {0};
    bool         plain = !t->nfc && !t->prefix_space;
    for (size_t i = 0; i < t->n_added; i++)
        plain = plain && !t->added[i].left && !t->added[i].right;
    const dra_status status = dra_encode(t, text, n, &ids, &err);
    if (status == DRA_OK) {
        if (plain) check_back(t, text, n, &ids);
        if (plain && !t->n_added) check_merges(t, text, n, &ids);
        if (t->longest_first) check_longest(t, text, n, &ids);
        check_parts(t, text, n, &ids);
        check_decoded(t, &ids);
    } else if (!strstr(err.text, "has no token for the byte") || ids.n) {
        broken(err.text);
    }
    dra_ids_free(&ids);
}

static void save(const dra_tokenizer *t)
{
    dra_tokenizer *again = NULL;
    dra_error      err = {0};
    if (dra_tokenizer_save(t, saved, &err) != DRA_OK) broken(err.text);
    if (dra_tokenizer_open(saved, &again, &err) != DRA_OK) broken(err.text);
    if (dra_tokenizer_fingerprint(t) != dra_tokenizer_fingerprint(again)) broken("saved otherwise");
    dra_tokenizer_destroy(again);
}

/* Uses what was opened, or looks at why it was not. */
static bool judge(dra_status status, dra_tokenizer *t, const dra_error *err, const char *path)
{
    const size_t n = strlen(path);
    if (status == DRA_OK) {
        for (int i = 0; i < 4; i++) use(t);
        if (below(8) == 0) save(t);
    } else if (t || status != DRA_ERR_FORMAT || strncmp(err->text, path, n) != 0 ||
               strchr(err->text, '\n')) {
        broken(err->text);
    }
    dra_tokenizer_destroy(t);
    return status == DRA_OK;
}

static bool try_json(const file *f)
{
    dra_tokenizer   *t = NULL;
    dra_error        err = {0};
    const dra_status status = dra_tokenizer_read_json("f", f->at, f->n, &t, &err);
    return judge(status, t, &err, "f: ");
}

static bool try_world(const file *f)
{
    dra_tokenizer   *t = NULL;
    dra_error        err = {0};
    const dra_status status = dra_world_read("f", f->at, f->n, &t, &err);
    return judge(status, t, &err, "f: ");
}

static void put(const char *path, const file *f)
{
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(f->at, 1, f->n, out) != f->n || fclose(out) != 0) broken("cannot write");
}

static bool try_pair(const file *vocab, const file *merges)
{
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    put(saved, vocab);
    put(merges_path, merges);
    const dra_status status = dra_tokenizer_read_pair(saved, merges_path, &t, &err);
    return judge(status, t, &err, fuzz_folder());
}

/* The three kinds of vocabularies; a pair has two files. */
typedef enum kind { JSON, PAIR, WORLD } kind;

static void make_kind(kind k, file *f, file *merges)
{
    if (k == PAIR)
        make_pair(f, merges);
    else
        (k == WORLD ? make_world : make)(f);
}

static bool try_kind(kind k, const file *f, const file *merges)
{
    return k == PAIR ? try_pair(f, merges) : (k == WORLD ? try_world : try_json)(f);
}

static void one_file(void)
{
    static file       f, merges, whole, whole_merges;
    static const kind often[] = {JSON, JSON, JSON, PAIR, WORLD};
    const kind        k = often[below(COUNT(often))];
    make_kind(k, &f, &merges);
    if (!try_kind(k, &f, &merges)) broken("the file as made is refused");
    whole = f;
    whole_merges = merges;
    for (int i = 0; i < DAMAGES; i++) {
        if (below(3)) f = whole, merges = whole_merges; /* else more damage on top */
        for (uint32_t n = 1 + below(2); n; n--) damage(k == PAIR && below(2) ? &merges : &f);
        fuzz_accepted += try_kind(k, &f, &merges);
        fuzz_damaged++;
    }
}

static void clean(void)
{
    unlink(saved);
    unlink(merges_path);
}

int main(int argc, char **argv)
{
    fuzz_begin(&(fuzzer){"fuzz_text", one_file, clean});
    snprintf(saved, sizeof saved, "%.40s/dra-fuzz-text-%ld.json", fuzz_folder(), (long)getpid());
    snprintf(merges_path, sizeof merges_path, "%.40s/dra-fuzz-text-%ld.txt", fuzz_folder(),
             (long)getpid());
    return fuzz_all(argc, argv);
}
