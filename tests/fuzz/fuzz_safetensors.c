/* Files of safetensors. What must hold:
 *   - a file as made is accepted, with all its tensors;
 *   - any other is accepted and its tensors stay inside it, or refused by one line. */
#include "file/format.h"
#include "file/sample.h"
#include "harness.h"

enum { TENSORS = 12 };

static size_t tensors, data; /* of the file that is made: their number, their bytes */

static void space(fuzz_bytes *b)
{
    say(b, (const char *[]){"", "", "", " ", "\n", "\t "}[below(6)]);
}

/* Sizes of up to all axes, as "[2,1,3]". F4 and F6 fill whole bytes by a last axis of 4. */
static size_t say_shape(fuzz_bytes *b, size_t bits)
{
    const uint32_t rank = below(DRA_MAX_RANK);
    size_t         n = 1;
    char           text[32];
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t size = below(20) == 0 ? 0 : 1 + below(3);
        snprintf(text, sizeof text, "%s%u", i ? "," : "", size);
        say(b, text);
        n *= size;
    }
    if (bits % 8 == 0) return n;
    say(b, rank ? ",4" : "4");
    return 4 * n;
}

static void say_tensor(fuzz_bytes *b)
{
    const char *const names[] = {"w", "h.0.\\u00e9", "\xe6\xb0\xb4", "a\\\"b", "\\\\", "data"};
    const char *const types[] = {"F32", "F64", "BF16", "F16",     "I32", "BOOL",
                                 "U8",  "I64", "C64",  "F8_E4M3", "F4",  "F6_E3M2"};
    const char       *type = types[below(COUNT(types))];
    const size_t      bits = dra_file_dtype_find(type)->bits;
    char              text[160];
    snprintf(text, sizeof text, "\"%s%zu\"", names[below(COUNT(names))], tensors++);
    say(b, text);
    space(b);
    snprintf(text, sizeof text, ":{\"dtype\":\"%s\",\"shape\":[", type);
    say(b, text);
    const size_t bytes = say_shape(b, bits) * bits / 8;
    snprintf(text, sizeof text, "],\"data_offsets\":[%zu,%zu]}", data, data + bytes);
    say(b, text);
    data += bytes;
}

static void make(fuzz_bytes *b)
{
    const uint32_t most = below(TENSORS);
    tensors = data = 0;
    put(b, &(uint64_t){0}, DRA_HEADER_LENGTH);
    say(b, "{");
    if (below(2)) say(b, most ? "\"__metadata__\":{\"k\":\"v\"}," : "\"__metadata__\":{}");
    for (uint32_t i = 0; i < most && (!i || data < FUZZ_MOST / 4); i++) {
        if (i) say(b, ",");
        space(b);
        say_tensor(b);
    }
    say(b, "}");
    for (uint32_t i = below(9); i; i--) say(b, " ");
    memcpy(b->at, &(uint64_t){b->n - DRA_HEADER_LENGTH}, DRA_HEADER_LENGTH);
    for (size_t i = 0; i < data; i++) put(b, &(uint8_t){(uint8_t)below(256)}, 1);
}

/* The length of the header fits: up to the last bracket. */
static void repair(fuzz_bytes *b)
{
    size_t n = b->n;
    while (n > DRA_HEADER_LENGTH && b->at[n - 1] != '}') n--;
    if (n > DRA_HEADER_LENGTH) memcpy(b->at, &(uint64_t){n - DRA_HEADER_LENGTH}, DRA_HEADER_LENGTH);
}

int harness(const uint8_t *bytes, size_t n)
{
    bool        accepted = false;
    const char *what = sample_try(bytes, n, &accepted);
    if (what) broken(what);
    return accepted;
}

static const char *const words[] = {FUZZ_JSON,
                                    "\\",
                                    "-",
                                    "0",
                                    "1e3",
                                    "1.0",
                                    "null",
                                    "true",
                                    "\\u0000",
                                    "\\ud800",
                                    "-0",
                                    "[]",
                                    "{}",
                                    "\n",
                                    "\xff",
                                    "\x80",
                                    "F32",
                                    "F4",
                                    "BOOL",
                                    "dtype",
                                    "data_offsets",
                                    "__metadata__",
                                    "shape",
                                    "4294967296",
                                    "9223372036854775807",
                                    "18446744073709551616",
                                    NULL};

const fuzz_subject fuzz_this = {.words = words, .make = make, .repair = repair};
