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

static void make(fuzz_bytes *f)
{
    static const char *const normalizers[] = {"null", "{\"type\":\"NFC\"}"};
    static const char *const flags[] = {"false", "false", "true"};
    made                     m = {0};
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
    "Split",     NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
