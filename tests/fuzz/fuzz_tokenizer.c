/* Files tokenizer.json. What must hold:
 *   - a file as made is accepted;
 *   - any other as well, and the tokenizer is sound (tokenizers.h), or it is refused by one
 *     line. */
#include "tokenizers.h"
#include "vocabularies.h"

static char path[FUZZ_PATH];

static void say_added(fuzz_bytes *f)
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

/* "NAME": one of some. */
static void say_one(fuzz_bytes *f, const char *name, const char *const *some, size_t n)
{
    say(f, "\"");
    say(f, name);
    say(f, "\":");
    say(f, one_of(some, (uint32_t)n));
    say(f, ",");
}

#define SEQUENCE(members, a, b) "{\"type\":\"Sequence\",\"" members "\":[" a "," b "]}"
#define BYTES(regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":" regex "}"
#define REPLACE(from, to)                                                                          \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" from "\"},\"content\":\"" to "\"}"
#define METASPACE(scheme)                                                                          \
    "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"" scheme "\"}"
#define FALLBACK SEQUENCE("decoders", REPLACE("\\u2581", " "), "{\"type\":\"ByteFallback\"}")

/* Pieces of bytes, by any of the patterns. */
static void say_bytes(fuzz_bytes *f)
{
    static const char *const normalizers[] = {"null", "{\"type\":\"NFC\"}"};
    static const char *const flags[] = {"false", "false", "true"};
    const uint32_t           kind = below(4);
    say_one(f, "normalizer", normalizers, COUNT(normalizers));
    say(f, "\"pre_tokenizer\":");
    if (kind == 0) {
        say(f, "{\"type\":\"ByteLevel\",\"add_prefix_space\":");
        say(f, one_of(flags, COUNT(flags)));
        say(f, "}");
    } else if (kind == 1) {
        say(f, SEQUENCE("pretokenizers", "{\"type\":\"Digits\",\"individual_digits\":true}",
                        BYTES("true")));
    } else {
        say(f, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
               "\"pattern\":{\"Regex\":\"");
        for (const char *p = dra_splitters[DRA_SPLITTER_LLAMA3 + below(3)].pattern; *p; p++) {
            if (*p == '\\') say(f, "\\");
            say(f, (char[]){*p, 0});
        }
        say(f, "\"},\"behavior\":\"Isolated\"}," BYTES("false") "]}");
    }
    say(f, ",\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",");
    say_one(f, "ignore_merges", flags, COUNT(flags));
}

/* Characters; some that have no token become their bytes, or what is unknown. */
static void say_characters(fuzz_bytes *f)
{
    static const char *const normalizers[] = {
        REPLACE(" ", "\\u2581"),
        SEQUENCE("normalizers", "{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"}",
                 REPLACE(" ", "\\u2581"))};
    static const char *const spaces[] = {METASPACE("never"), METASPACE("first"),
                                         METASPACE("always")};
    static const char *const decoders[] = {FALLBACK};
    static const char *const flags[] = {"false", "true"};
    static const char *const nothing[] = {"null"};
    const bool               early = below(2);
    say_one(f, "normalizer", early ? normalizers : nothing, early ? COUNT(normalizers) : 1);
    say_one(f, "pre_tokenizer", early ? nothing : spaces, early ? 1 : COUNT(spaces));
    say_one(f, "decoder", decoders, COUNT(decoders));
    say(f, "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",");
    say_one(f, "byte_fallback", flags, COUNT(flags));
    say_one(f, "fuse_unk", flags, COUNT(flags));
}

/* The 256 bytes and the sign for a space, after the other tokens and added ones. */
static void say_fallback(fuzz_bytes *f)
{
    char text[32];
    for (uint32_t i = 0; i < 256; i++) {
        snprintf(text, sizeof text, ",\"<0x%02X>\":%u", i, 2 * TOKENS + i);
        say(f, text);
    }
    snprintf(text, sizeof text, ",\"\\u2581\":%u", 3 * TOKENS);
    say(f, text);
}

static void make(fuzz_bytes *f)
{
    made       m = {0};
    const bool characters = below(3) == 0;
    make_bytes(&m);
    if (characters && !has(&m, "a", 1)) add(&m, "a", 1);
    m.single = m.n;
    say(f, "{");
    if (!characters) say_added(f);
    (characters ? say_characters : say_bytes)(f);
    say(f, "\"merges\":[");
    say_merges(f, &m, false);
    say(f, "],\"vocab\":");
    say_vocabulary(f, &m);
    if (characters) {
        f->n--; /* of the object's end */
        say_fallback(f);
        say(f, "}");
    }
    say(f, "}}");
}

int harness(const uint8_t *data, size_t bytes)
{
    char            *copy = exact_copy(data, bytes);
    dra_tokenizer   *t = NULL;
    dra_error        err = {0};
    const dra_status status = dra_tokenizer_read_json("f", copy, bytes, &t, &err);
    free(copy);
    return text_judge(status, t, &err, "f: ", path);
}

static void begin(void) { fuzz_path(path); }
static void end(void) { unlink(path); }

static const char *const words[] = {
    "{",         "}",          "[",           "]",       "\"",      ",",
    ":",         "\\",         "-1",          "0",       "1e3",     "null",
    "true",      "\\u0000",    "\\ud800",     "\xff",    "4194303", "4194304",
    "\\u0120",   "\"vocab\":", "\"merges\":", "\"id\":", " ",       "9223372036854775807",
    "ByteLevel", "\"type\":",  "NFC",         "lstrip",  "content", "Sequence",
    "Split",     "Digits",     "Metaspace",   "Prepend", "Replace", "ByteFallback",
    "Fuse",      "Strip",      "\\u2581",     "<0x0A>",  "single",  NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
