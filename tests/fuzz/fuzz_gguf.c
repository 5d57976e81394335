/* GGUF files. What must hold:
 *   - a file as made is accepted;
 *   - any other is accepted and all its tensors can be touched, or refused by one line; so are its
 *     config and its tokenizer. */
#include "dra/text.h"
#include "file/gguf.h"
#include "tensor_files.h"
#include "own_config.h"

static char path[FUZZ_PATH];

static void say_u32(fuzz_bytes *b, uint32_t n) { put(b, &n, sizeof n); }
static void say_u64(fuzz_bytes *b, uint64_t n) { put(b, &n, sizeof n); }

static void say_text(fuzz_bytes *b, const char *text)
{
    say_u64(b, strlen(text));
    say(b, text);
}

static void say_pairs(fuzz_bytes *b)
{
    static const char *const tokens[] = {"a", "b", "ab", "<|endoftext|>"};
    say_text(b, "general.architecture");
    say_u32(b, DRA_GGUF_TEXT);
    say_text(b, "gpt2");
    say_text(b, "gpt2.block_count");
    say_u32(b, DRA_GGUF_U32);
    say_u32(b, below(3));
    say_text(b, "tokenizer.ggml.model");
    say_u32(b, DRA_GGUF_TEXT);
    say_text(b, "gpt2");
    say_text(b, "tokenizer.ggml.tokens");
    say_u32(b, DRA_GGUF_LIST);
    say_u32(b, DRA_GGUF_TEXT);
    say_u64(b, 4);
    for (int i = 0; i < 4; i++) say_text(b, tokens[i]);
    say_text(b, "tokenizer.ggml.merges");
    say_u32(b, DRA_GGUF_LIST);
    say_u32(b, DRA_GGUF_TEXT);
    say_u64(b, 1);
    say_text(b, "a b");
}

static void make(fuzz_bytes *b)
{
    static const unsigned char zeros[128];
    static const struct {
        uint32_t number, bytes;
    } types[] = {{0, 128}, {1, 64}, {2, 18}, {8, 34}};
    const uint32_t n = below(4);
    const size_t   before = b->n;
    say_u32(b, DRA_GGUF_MAGIC);
    say_u32(b, 2 + below(2));
    say_u64(b, n);
    say_u64(b, 5);
    say_pairs(b);
    for (uint32_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%u.attn_qkv.weight", i);
        say_text(b, name);
        say_u32(b, 1);
        say_u64(b, 32);
        say_u32(b, types[i].number);
        say_u64(b, 128 * (uint64_t)i);
    }
    while ((b->n - before) % DRA_GGUF_ALIGNMENT) put(b, zeros, 1);
    for (uint32_t i = 0; i < n; i++) put(b, zeros, sizeof zeros);
}

int harness(const uint8_t *data, size_t bytes)
{
    CHECK_CONFIG(c);
    dra_tokenizer *t = NULL;
    dra_error      err = {0};
    put_file(path, data, bytes);
    dra_folder_config(path, &c, &err);
    if (dra_gguf_is(data, bytes)) dra_tokenizer_open(path, &t, &err);
    dra_tokenizer_destroy(t);
    return tensor_files_try(path, path);
}

static void begin(void) { fuzz_path(path); }
static void end(void) { unlink(path); }

static const char *const words[] = {"GGUF",
                                    "gpt2",
                                    "general.alignment",
                                    "split.count",
                                    "\xff\xff\xff\xff",
                                    "blk.",
                                    ".weight",
                                    "token_embd.weight",
                                    "tokenizer.ggml.tokens",
                                    "\x09\x00\x00\x00",
                                    "gpt2.",
                                    "gpt2.vocab",
                                    "\x08\x00\x00\x00",
                                    NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
