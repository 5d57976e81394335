/* Vocabularies as of RWKV World. What must hold:
 *   - a file as made is accepted;
 *   - any other as well, and the tokenizer is sound (tokenizers.h), or it is refused by one
 *     line. */
#include "tokenizers.h"
#include "vocabularies.h"
#include "text/literal.h"
#include "text/world.h"

static char path[FUZZ_PATH];

/* All bytes, and entries made of others put together. */
static void make(fuzz_bytes *f)
{
    made m = {0};
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

int harness(const uint8_t *data, size_t bytes)
{
    char            *copy = exact_copy(data, bytes);
    dra_tokenizer   *t = NULL;
    dra_error        err = {0};
    const dra_status status = dra_world_read("f", copy, bytes, &t, &err);
    free(copy);
    return text_judge(status, t, &err, "f: ", path);
}

static void begin(void) { fuzz_path(path); }
static void end(void) { unlink(path); }

static const char *const words[] = {"'",    "\"",    "b'",   "\\",    "\\x",      "\\u", "\\n",
                                    " ",    "\n",    "\r\n", "65536", "1",        "-1",  "0",
                                    "\xff", "\\xff", "\\'",  "\\U00", "99999999", NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
