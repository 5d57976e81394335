/* Vocabularies made at random, for harnesses of tokenizers. */
#ifndef DRA_TESTS_FUZZ_VOCABULARIES_H
#define DRA_TESTS_FUZZ_VOCABULARIES_H

#include "harness.h"
#include "text/letters.h"

enum { TOKENS = 300, TOKEN = 16 };

static inline void say_quoted(fuzz_bytes *f, const char *bytes, size_t n, bool escaped)
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

static inline bool has(const made *m, const char *bytes, size_t n)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->bytes[i] == n && memcmp(m->token[i], bytes, n) == 0) return true;
    return false;
}

/* Spelled like one of the added tokens, which would then have two ids. */
static inline bool taken(const char *bytes, size_t n)
{
    return (n == 2 && (memcmp(bytes, "<|", 2) == 0 || memcmp(bytes,
                                                             "\xe9"
                                                             "a",
                                                             2) == 0)) ||
           (n == 13 && memcmp(bytes, "<|endoftext|>", 13) == 0);
}

static inline void add(made *m, const char *bytes, size_t n)
{
    memcpy(m->token[m->n], bytes, n);
    m->bytes[m->n++] = n;
}

static inline void make_bytes(made *m)
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
static inline void say_merge(fuzz_bytes *f, const made *m, uint32_t left, uint32_t right,
                             const char *const *form)
{
    say(f, form[0]);
    say_quoted(f, m->token[left], m->bytes[left], form[2][0] == '"');
    say(f, form[1]);
    say_quoted(f, m->token[right], m->bytes[right], form[2][0] == '"');
    say(f, form[2]);
}

/* Writes merges while it makes the tokens for them. */
static inline void say_merges(fuzz_bytes *f, made *m, bool lines)
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

static inline void say_vocabulary(fuzz_bytes *f, const made *m)
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

#endif
