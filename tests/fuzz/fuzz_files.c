/* fuzz_files SECONDS [SEED]: safetensors files made at random, then damaged. What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a file as made is accepted, with all its tensors;
 *   - a damaged one is accepted and its tensors stay inside it, or refused by one line.
 * File number n of a run has seed SEED + n; SECONDS 0 tries that one file. */
#include "file/format.h"
#include "file/sample.h"
#include "fuzz/fuzzer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { ROOM = 1 << 14, TENSORS = 12, DAMAGES = 64 };

typedef struct maker {
    unsigned char at[ROOM]; /* N, header, data */
    size_t        n, tensors, data;
} maker;

/* ---- a good file ----------------------------------------------------------------------------- */

static void say(maker *m, const char *text)
{
    const size_t n = strlen(text);
    if (m->n + n > ROOM) broken("the fuzzer's own room is too small");
    memcpy(m->at + m->n, text, n);
    m->n += n;
}

static void space(maker *m) { say(m, (const char *[]){"", "", "", " ", "\n", "\t "}[below(6)]); }

static void say_tensor(maker *m)
{
    const char *const names[] = {"w", "h.0.\\u00e9", "\xe6\xb0\xb4", "a\\\"b", "\\\\", "data"};
    const char *const types[] = {"F32", "F64", "BF16", "F16",     "I32", "BOOL",
                                 "U8",  "I64", "C64",  "F8_E4M3", "F4",  "F6_E3M2"};
    const char       *type = types[below(COUNT(types))];
    const uint32_t    rank = below(DRA_MAX_RANK + 1);
    char              text[160];
    size_t            bits = dra_file_dtype_find(type)->bits, n = 1;
    snprintf(text, sizeof text, "\"%s%zu\"", names[below(COUNT(names))], m->tensors++);
    say(m, text);
    space(m);
    snprintf(text, sizeof text, ":{\"dtype\":\"%s\",\"shape\":[", type);
    say(m, text);
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t size = below(20) == 0 ? 0 : 1 + below(3);
        snprintf(text, sizeof text, "%s%u", i ? "," : "", size);
        say(m, text);
        n *= size;
    }
    if (n * bits % 8 != 0) { /* F4 and F6: one more axis fills whole bytes */
        say(m, rank == 0 ? "4" : rank < DRA_MAX_RANK ? ",4" : "");
        n *= rank < DRA_MAX_RANK ? 4 : 1;
    }
    bits *= n;
    snprintf(text, sizeof text, "],\"data_offsets\":[%zu,%zu]}", m->data, m->data + bits / 8);
    say(m, text);
    m->data += bits / 8;
    if (bits % 8 != 0) m->tensors = SIZE_MAX; /* no axis was left: the file is a bad one */
}

static void make(maker *m)
{
    const uint32_t tensors = below(TENSORS);
    m->n = DRA_HEADER_LENGTH;
    say(m, "{");
    if (below(2)) say(m, tensors ? "\"__metadata__\":{\"k\":\"v\"}," : "\"__metadata__\":{}");
    for (uint32_t i = 0; i < tensors && m->tensors != SIZE_MAX; i++) {
        if (i) say(m, ",");
        space(m);
        say_tensor(m);
    }
    say(m, "}");
    for (uint32_t i = below(9); i; i--) say(m, " ");
    memcpy(m->at, &(uint64_t){m->n - DRA_HEADER_LENGTH}, DRA_HEADER_LENGTH);
    if (m->n + m->data > ROOM) m->data = ROOM - m->n, m->tensors = SIZE_MAX;
    for (size_t i = 0; i < m->data; i++) m->at[m->n++] = (unsigned char)below(256);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static uint32_t place(maker *m) /* mostly in the header */
{
    const size_t header = m->n > m->data ? m->n - m->data : m->n;
    return below((uint32_t)(below(8) ? header : m->n) + 1);
}

static void cut(maker *m, size_t from, size_t to)
{
    memmove(m->at + from, m->at + to, m->n - to);
    m->n -= to - from;
}

static void insert(maker *m, size_t where, const void *bytes, size_t n)
{
    if (m->n + n > ROOM) return;
    memmove(m->at + where + n, m->at + where, m->n - where);
    memmove(m->at + where, bytes, n);
    m->n += n;
}

/* Bytes that mean something to a reader of JSON, or to one of safetensors. */
static const char words[] = "{ } [ ] \" , : \\ - 0 1e3 1.0 null true \\u0000 \\ud800 -0 [] {} \n "
                            "\xff \x80 F32 dtype shape data_offsets __metadata__ 4294967296 "
                            "9223372036854775807 18446744073709551616 ";

static void insert_word(maker *m, size_t where)
{
    const char *from = words + below(sizeof words - 1);
    while (from > words && from[-1] != ' ') from--;
    insert(m, where, from, strcspn(from, " "));
}

static void damage(maker *m)
{
    const size_t x = place(m), y = place(m), a = x < y ? x : y;
    size_t       b = x < y ? y : x;
    char         copy[64];
    switch (below(8)) {
    case 0:
        if (a < m->n) m->at[a] = (unsigned char)below(256);
        break;
    case 1:
        if (a < m->n) m->at[a] ^= (unsigned char)(1u << below(8));
        break;
    case 2:
        if (a < m->n) m->at[a] = (unsigned char)('0' + below(10));
        break;
    case 3: insert_word(m, a); break;
    case 4: cut(m, a, b - a > 20 ? a + below(20) : b); break;
    case 5: /* something twice */
        b = b - a < sizeof copy ? b : a + sizeof copy;
        memcpy(copy, m->at + a, b - a);
        insert(m, a, copy, b - a);
        break;
    case 6: m->n = b; break;
    default: /* the length fits again, so that the rules after it are reached */
        if (m->n >= DRA_HEADER_LENGTH + m->data)
            memcpy(m->at, &(uint64_t){m->n - DRA_HEADER_LENGTH - m->data}, DRA_HEADER_LENGTH);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool try_now(const maker *m)
{
    bool        accepted = false;
    const char *what = sample_try(m->at, m->n, &accepted);
    if (what) broken(what);
    return accepted;
}

static void one_file(void)
{
    static maker m;
    static maker whole;
    m = (maker){0};
    make(&m);
    if (try_now(&m) != (m.tensors != SIZE_MAX)) broken("the file as made");
    whole = m;
    for (int i = 0; i < DAMAGES; i++) {
        if (below(3) == 0) m = whole; /* else more damage on top */
        for (uint32_t k = 1 + below(3); k; k--) damage(&m);
        fuzz_accepted += try_now(&m);
        fuzz_damaged++;
    }
}

int main(int argc, char **argv)
{
    fuzz_begin(&(fuzzer){"fuzz_files", one_file, NULL});
    return fuzz_all(argc, argv);
}
