/* Pickles of Python, without an archive around them. What must hold:
 *   - a pickle as made is accepted;
 *   - any other is read into values that can be walked, or refused by one line. */
#include "file/archive.h"
#include "file/pickle.h"
#include "harness.h"

enum { DEPTH = 6, WALKED = 10000 };

static const char *const globals[] = {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2",
                                      "torch.FloatStorage", NULL};

static void say_value(archive *a, int depth)
{
    switch (below(depth < DEPTH ? 9 : 6)) {
    case 0: archive_text(a, "N"); break;
    case 1: archive_text(a, below(2) ? "\x88" : "\x89"); break;
    case 2: pickle_int(a, below(99)); break;
    case 3: pickle_text(a, "text"); break;
    case 4: archive_put(a, "Nq\0h\0\x86", 6); break; /* the same None twice */
    case 5: archive_text(a, "ccollections\nOrderedDict\n)R"); break;
    case 6:
        archive_text(a, "}"), pickle_text(a, "k"), say_value(a, depth + 1), archive_text(a, "s");
        break;
    case 7:
        archive_text(a, "]("), say_value(a, depth + 1), say_value(a, depth + 1),
            archive_text(a, "e");
        break;
    default: archive_text(a, "("), say_value(a, depth + 1), archive_text(a, "t");
    }
}

static void make(fuzz_bytes *b)
{
    static archive a;
    a = (archive){0};
    archive_text(&a, "\x80\x02");
    archive_text(&a, "](");
    for (uint32_t n = 1 + below(4); n; n--) archive_text(&a, "K\1"), say_value(&a, 0);
    archive_text(&a, "e.");
    put(b, a.at, a.n);
}

static void walk(const dra_pickled *v, int depth, int *left)
{
    static volatile unsigned sum;
    if (depth > 20 || --*left < 0) return;
    if (v->kind == DRA_PICKLE_MARK) broken("a mark among the values");
    if (v->text)
        for (size_t i = 0; v->kind == DRA_PICKLE_TEXT && i < v->count; i++)
            sum += (unsigned char)v->text[i];
    if (!v->item) return;
    for (size_t i = 0; i < v->count; i++) walk(v->item[i], depth + 1, left);
}

int harness(const uint8_t *data, size_t bytes)
{
    unsigned char     *copy = exact_copy(data, bytes);
    dra_arena          arena = {0};
    const dra_pickled *v = NULL;
    size_t             end = 0;
    dra_error          err = {0};
    int                left = WALKED;
    const dra_pickle   p = {"f", copy, 0, bytes, globals, &arena};
    const dra_status   st = dra_pickle_read(&p, &v, &end, &err);
    if (st == DRA_OK) {
        if (end > bytes) broken("ends after the file");
        walk(v, 0, &left);
    } else {
        expect_line(&err, "f: ");
    }
    dra_arena_free(&arena);
    free(copy);
    return st == DRA_OK;
}

static const char *const words[] = {"(",        "N",
                                    "Q",        "R",
                                    "b",        "ccollections\nOrderedDict\n",
                                    "e",        "h",
                                    "j",        "q",
                                    "r",        "s",
                                    "t",        "u",
                                    ".",        "}",
                                    "]",        ")",
                                    "K\1",      "M",
                                    "J",        "X",
                                    "\x80\x02", "\x85",
                                    "\x86",     "\x87",
                                    "\x88",     "\x8a",
                                    "\x94",     "\x95",
                                    "\x8c",     "\x93",
                                    "1",        "0",
                                    "2",        "a",
                                    "G",        "B",
                                    "C",        "\xff\xff\xff\x7f",
                                    NULL};

const fuzz_subject fuzz_this = {.words = words, .make = make};
