/* Files of rwkv.cpp. What must hold:
 *   - a file as made is accepted;
 *   - any other is accepted and all its tensors can be touched, or refused by one line. */
#include "tensor_files.h"

static char path[FUZZ_PATH];

static void say_number(fuzz_bytes *b, uint32_t n) { put(b, &n, sizeof n); }

static void say_tensor(fuzz_bytes *b, uint32_t i)
{
    static const unsigned char data[64];
    char                       name[32];
    const uint32_t             axes = 1 + below(3), dtype = below(2);
    uint32_t                   count = 1;
    static const char *const   names[] = {"key.weight", "r_k",        "ln_x.weight",
                                          "time_maa_x", "time_faaaa", "time_decay"};
    snprintf(name, sizeof name, "blocks.%u.att.%s", i, names[below(COUNT(names))]);
    say_number(b, axes);
    say_number(b, (uint32_t)strlen(name));
    say_number(b, dtype);
    for (uint32_t k = 0; k < axes; k++) {
        const uint32_t dim = 1 + below(2);
        count *= dim;
        say_number(b, dim);
    }
    say(b, name);
    put(b, data, count * (dtype ? 2 : 4));
}

static void make(fuzz_bytes *b)
{
    const uint32_t head[] = {0x67676d66, 100 + below(2), 5, 4, 1, below(2)};
    put(b, head, sizeof head);
    for (uint32_t i = 0, n = below(6); i < n; i++) say_tensor(b, i);
}

int harness(const uint8_t *data, size_t bytes)
{
    put_file(path, data, bytes);
    return tensor_files_try(path, path);
}

static void begin(void) { fuzz_path(path); }
static void end(void) { unlink(path); }

static const char *const words[] = {"fmgg",
                                    "\x01",
                                    "\x02",
                                    "\xff\xff\xff\xff",
                                    "\x64",
                                    "blocks.",
                                    ".att.time_decay",
                                    "emb.weight",
                                    "r_k",
                                    "ln_x.weight",
                                    "time_maa_x",
                                    "time_maa_w1",
                                    ".att.w1",
                                    "time_faaaa",
                                    NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
