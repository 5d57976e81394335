/* Checkpoints of PyTorch, as archives and in the older form. What must hold:
 *   - a file as made is accepted, with all its tensors;
 *   - any other is accepted and its tensors can be touched, or refused by one line. */
#include "file/archive.h"
#include "harness.h"

enum { TENSORS = 6, STORAGES = 4, HELD = 24 };

typedef struct maker {
    int     tensors;
    archive a;
} maker;

static const struct {
    const char *name;
    size_t      width;
} kinds[] = {{"FloatStorage", 4},  {"HalfStorage", 2}, {"BFloat16Storage", 2},
             {"DoubleStorage", 8}, {"LongStorage", 8}, {"ByteStorage", 1}};

/* A tensor of up to three axes in one of the storages, dense or with its axes in reverse order. */
static void say_tensor(maker *m, const uint32_t *kind)
{
    const uint32_t storage = below(STORAGES), rank = below(4), dense = below(3);
    int64_t        sizes[3], strides[3], step = 1;
    char           name[16], key[16];
    snprintf(name, sizeof name, "t%d", m->tensors++);
    snprintf(key, sizeof key, "%u", storage);
    for (uint32_t i = rank; i-- > 0; step *= sizes[i]) {
        sizes[i] = below(12) ? 1 + below(2) : 0;
        strides[i] = sizes[i] == 1 && !below(4) ? INT64_MAX : step;
    }
    for (uint32_t i = 0; i < rank / 2 && !dense; i++) {
        const int64_t n = sizes[i], s = strides[i];
        sizes[i] = sizes[rank - 1 - i], strides[i] = strides[rank - 1 - i];
        sizes[rank - 1 - i] = n, strides[rank - 1 - i] = s;
    }
    pickle_tensor(&m->a, name, kinds[kind[storage]].name, key, HELD, below(HELD - 8), (int)rank,
                  sizes, strides);
}

static void say_dict(maker *m, const uint32_t *kind)
{
    const uint32_t tensors = below(TENSORS + 1), memo = below(2);
    archive_text(&m->a, below(2) ? "\x80\x02}"
                                 : "\x80\x02"
                                   "ccollections\nOrderedDict\n)R");
    if (memo) archive_put(&m->a, "q\x00", 2);
    for (uint32_t i = 0; i < tensors; i++) say_tensor(m, kind);
    if (memo) { /* attributes, which refer to the dict itself */
        archive_text(&m->a, "}");
        pickle_text(&m->a, "_metadata");
        archive_put(&m->a,
                    "h\x00"
                    "sb",
                    4);
    }
    archive_text(&m->a, ".");
}

static void make_archive(maker *m, const uint32_t *kind)
{
    static const unsigned char data[HELD * 8];
    char                       name[32];
    m->a.wide = below(2);
    archive_open(&m->a, "r/data.pkl");
    say_dict(m, kind);
    archive_close(&m->a);
    if (below(2)) archive_entry(&m->a, "r/byteorder", "little", 6);
    for (int i = 0; i < STORAGES; i++) {
        snprintf(name, sizeof name, "r/data/%d", i);
        archive_entry(&m->a, name, data, HELD * kinds[kind[i]].width);
    }
    archive_end(&m->a);
}

/* The older form; every storage has a tensor, which says its dtype. */
static void make_old(maker *m, const uint32_t *kind)
{
    static const unsigned char data[HELD * 8];
    archive_put(&m->a,
                "\x80\x02\x8a\nl\xfc\x9c"
                "F\xf9 j\xa8P\x19.",
                15);
    archive_text(&m->a, "\x80\x02M\xe9\x03.\x80\x02}");
    pickle_text(&m->a, "little_endian");
    archive_text(&m->a, "\x88s.\x80\x02}");
    for (int i = 0; i < STORAGES; i++) {
        char name[16], key[16];
        snprintf(name, sizeof name, "s%d", i);
        snprintf(key, sizeof key, "%d", i);
        pickle_tensor(&m->a, name, kinds[kind[i]].name, key, HELD, 0, 0, NULL, NULL);
        m->tensors++;
    }
    for (uint32_t i = below(TENSORS); i > 0; i--) say_tensor(m, kind);
    archive_text(&m->a, ".\x80\x02](");
    for (int i = 0; i < STORAGES; i++) pickle_text(&m->a, (char[]){(char)('0' + i), 0});
    archive_text(&m->a, "e.");
    for (int i = 0; i < STORAGES; i++) {
        archive_number(&m->a, HELD, 8);
        archive_put(&m->a, data, HELD * kinds[kind[i]].width);
    }
}

static void make(fuzz_bytes *b)
{
    static maker m;
    uint32_t     kind[STORAGES];
    m = (maker){0};
    for (int i = 0; i < STORAGES; i++) kind[i] = below(COUNT(kinds));
    if (below(3))
        make_archive(&m, kind);
    else
        make_old(&m, kind);
    put(b, m.a.at, m.a.n);
}

int harness(const uint8_t *data, size_t bytes)
{
    bool        accepted;
    dra_error   err;
    const char *wrong = archive_try(data, bytes, &accepted, &err);
    if (wrong) broken(wrong);
    return accepted;
}

/* Opcodes and signatures meet more than any byte would. */
static const char *const words[] = {"(",
                                    "N",
                                    "Q",
                                    "R",
                                    "b",
                                    "c",
                                    "e",
                                    "h",
                                    "j",
                                    "q",
                                    "r",
                                    "s",
                                    "t",
                                    "u",
                                    ".",
                                    "}",
                                    "]",
                                    ")",
                                    "K",
                                    "M",
                                    "J",
                                    "X",
                                    "\x80\x02",
                                    "\x85",
                                    "\x86",
                                    "\x87",
                                    "\x88",
                                    "\x8a",
                                    "\x94",
                                    "\x95",
                                    "\xff",
                                    "PK\1\2",
                                    "PK\5\6",
                                    "PK\6\6",
                                    "PK\6\7",
                                    "storage",
                                    "ctorch\nFloatStorage\n",
                                    "\xff\xff\xff\x7f",
                                    "ctorch._utils\n_rebuild_tensor_v2\n",
                                    "ctorch._utils\n_rebuild_parameter\n",
                                    NULL};

const fuzz_subject fuzz_this = {.words = words, .make = make};
