/* Files of states. The first byte of an input says of which states, the rest is the file. What must
 * hold:
 *   - a file as saved gives the same state;
 *   - any other is refused by one line and gives no state, or accepted and fit for use; so is it
 *     with a hash that fits.
 * The rules of safetensors have a fuzzer of their own. */
#include "dra/file.h"
#include "file/fail.h"
#include "file/seal.h"
#include "harness.h"
#include "sequence/states.h"

enum { KINDS = 16, SPECS = 5, ROWS = 4, META = 16 };

static const uint64_t FINGER = 0xfeed;

static char        path[FUZZ_PATH], other[FUZZ_PATH + 8];
static dra_device *device;
static dra_specs  *kinds[KINDS]; /* of states */
static dra_states *saved;        /* what the file that was made last holds */
static fuzz_bytes  last;         /* that file, with its first byte */

/* ---- states ---------------------------------------------------------------------------------- */

static dra_specs *random_specs(void)
{
    static const char *const names[] = {"h", "K", "V", "a.long.name", "\xe6\xb0\xb4"};
    const int64_t            limits[] = {0, 0, 1, 3, 70};
    dra_specs               *s = NULL;
    dra_error                err = {0};
    must(dra_specs_create(&s, &err), &err);
    for (uint32_t i = 0, n = below(SPECS + 1); i < n; i++) {
        dra_spec p = {.name = names[i], .number = below(2), .items = below(2)};
        for (uint32_t k = below(4); k; k--) p.shape.dim[p.shape.rank++] = below(9) ? below(4) : 0;
        if (p.items) p.limit = limits[below(COUNT(limits))];
        if (!p.items) p.context = below(3) == 0;
        dra_specs_add(s, NULL, &p);
    }
    must(dra_specs_error(s, &err), &err);
    return s;
}

static void advance(dra_states *s, int64_t T)
{
    dra_error err = {0};
    int32_t   mark[ROWS * 100];
    for (int64_t i = 0; i < s->B * T; i++) {
        const uint32_t dice = below(40);
        mark[i] = dice < 4 ? DRA_MARK_PAD : dice == 39 ? DRA_MARK_RESET : 0;
    }
    must(dra_states_reserve(s, T, &err), &err);
    dra_states_advance(s, 0, T, mark);
}

/* Rows have contexts of their own, or none, where a state holds them. */
static void add_contexts(dra_states *s)
{
    const int64_t sizes[] = {-1, 0, 1, 5, 63, 65};
    dra_error     err = {0};
    bool          some = false;
    for (int i = 0; i < dra_specs_count(s->specs); i++)
        some = some || dra_specs_at(s->specs, i)->context;
    for (int64_t b = 0; some && b < s->B; b++) {
        const int64_t n = sizes[below(COUNT(sizes))];
        if (n >= 0) must(dra_states_reserve_context(s, n, &err), &err);
        s->context[b] = n;
    }
}

static dra_states *random_states(const dra_specs *specs)
{
    dra_states *s = NULL;
    dra_error   err = {0};
    must(dra_states_create(device, specs, below(ROWS + 1), &s, &err), &err);
    for (uint32_t n = below(4); n; n--) advance(s, 1 + below(below(3) ? 6 : 100));
    add_contexts(s);
    for (int i = 0; i < dra_specs_count(specs); i++)
        for (int64_t b = 0; b < s->B; b++) {
            const size_t n = dra_states_size(s, i, b);
            dra_real    *v = malloc((n + 1) * sizeof *v);
            if (!v) broken("no memory");
            for (size_t k = 0; k < n; k++) v[k] = (dra_real)below(1000);
            must(dra_states_write(s, i, b, v, n, &err), &err);
            free(v);
        }
    return s;
}

static void make(fuzz_bytes *b)
{
    const uint8_t kind = (uint8_t)below(KINDS);
    dra_error     err = {0};
    dra_states_destroy(saved);
    saved = random_states(kinds[kind]);
    must(dra_states_save(saved, FINGER, path, &err), &err);
    get_file(path, &last);
    put(b, &kind, 1);
    put(b, last.at, last.n);
    last = *b;
}

/* ---- what must hold -------------------------------------------------------------------------- */

/* Everything a state is for. */
static void use(dra_states *s)
{
    dra_states           *copy = NULL;
    dra_states_difference d;
    dra_error             err = {0};
    must(dra_states_fork(s, &copy, &err), &err);
    must(dra_states_compare(copy, s, &d, &err), &err);
    if (!d.same) broken("a fork differs");
    if (s->B <= ROWS) advance(copy, 1 + below(5));
    if (s->B <= ROWS) must(dra_states_reserve_context(copy, 1 + below(100), &err), &err);
    must(dra_states_reset(copy, -1, &err), &err);
    dra_states_destroy(copy);
}

static bool try_file(const dra_specs *specs, const void *data, size_t bytes)
{
    char        shown[DRA_BRIEF];
    dra_states *s = (dra_states *)shown; /* must be cleared */
    dra_error   err = {0};
    put_file(path, data, bytes);
    const dra_status st = dra_states_load(device, specs, FINGER, path, &s, &err);
    if (st == DRA_OK) {
        use(s);
    } else {
        if (s) broken("a refused file gave a state");
        expect_line(&err, dra_brief(path, shown));
    }
    dra_states_destroy(s);
    return st == DRA_OK;
}

int harness(const uint8_t *data, size_t bytes)
{
    static uint8_t   sealed[FUZZ_MOST];
    dra_seal_text    digits;
    const dra_specs *specs = bytes ? kinds[data[0] % KINDS] : NULL;
    if (bytes == 0) return 0;
    if (try_file(specs, data + 1, bytes - 1)) return 1;
    if (--bytes < DRA_SEAL_AT + DRA_SEAL_DIGITS || bytes > sizeof sealed) return 0;
    memcpy(sealed, data + 1, bytes);
    dra_seal_of(sealed, bytes, DRA_SEAL_AT, digits);
    memcpy(sealed + DRA_SEAL_AT, digits, DRA_SEAL_DIGITS);
    return try_file(specs, sealed, bytes);
}

static void made(const fuzz_bytes *b)
{
    dra_states           *back = NULL;
    dra_states_difference d;
    dra_error             err = {0};
    put_file(path, b->at + 1, b->n - 1);
    must(dra_states_load(device, kinds[b->at[0]], FINGER, path, &back, &err), &err);
    must(dra_states_compare(back, saved, &d, &err), &err);
    if (!d.same) broken("the file as saved gives another state");
    use(back);
    dra_states_destroy(back);
}

/* ---- changed meanings ------------------------------------------------------------------------ */

static const char *const values[] = {"",
                                     "0",
                                     "1",
                                     "2 2",
                                     "0 0 0 0",
                                     "-1",
                                     "7 3 5",
                                     "9223372036854775807",
                                     "4611686018427387903",
                                     "1 2 3 4611686018427387904",
                                     " 1",
                                     "1 ",
                                     "x",
                                     "dra-state",
                                     "1e3",
                                     "65 70 3 0",
                                     "\n",
                                     "\xff"};

static void change_shape(dra_shape *s)
{
    const int64_t sizes[] = {0, 1, 2, 3, 4, 70};
    if (s->rank && below(3))
        s->dim[below((uint32_t)s->rank)] = sizes[below(COUNT(sizes))];
    else
        s->rank = (int32_t)below(DRA_MAX_RANK + 1);
    for (int32_t i = 0; i < s->rank; i++)
        if (s->dim[i] < 0 || s->dim[i] > 100) s->dim[i] = 1;
    while (s->rank && dra_shape_count(s) > 4096) s->rank--;
}

static size_t change_texts(const dra_tensors *file, dra_metadata_item *meta)
{
    size_t n = 0;
    for (size_t i = 0; i < dra_tensors_metadata_count(file) && n < META; i++) {
        if (below(12) == 0) continue;
        meta[n] = *dra_tensors_metadata_at(file, i);
        if (strcmp(meta[n].key, "dra") == 0 || strcmp(meta[n].key, "hash") == 0) continue;
        if (below(6) == 0) meta[n].value = values[below(COUNT(values) - 1)];
        n++;
    }
    return n;
}

static size_t change_tensors(const dra_tensors *file, dra_tensor_item *items)
{
    static dra_real data[4096];
    size_t          n = 0;
    for (size_t i = 0; i < dra_tensors_count(file) && n < SPECS; i++) {
        const dra_tensor_info *t = dra_tensors_at(file, i);
        if (below(12) == 0) continue;
        items[n] = (dra_tensor_item){t->name, below(15) ? DRA_REAL : DRA_I32, t->shape, data};
        if (below(4) == 0) change_shape(&items[n].shape);
        if (dra_shape_count(&items[n].shape) <= (int64_t)COUNT(data)) n++;
    }
    if (below(8) == 0) items[n++] = (dra_tensor_item){"extra", DRA_REAL, {0}, data};
    return n;
}

/* Writes a file again with some of its texts and tensors changed: this one, or where it cannot be
 * opened the last that was made. */
static void repair(fuzz_bytes *b)
{
    dra_tensors      *file = NULL;
    dra_metadata_item meta[META];
    dra_tensor_item   items[SPECS + 1];
    const fuzz_bytes *from = b->n ? b : &last;
    put_file(path, from->at + 1, from->n ? from->n - 1 : 0);
    if (dra_tensors_open(path, &file, NULL) != DRA_OK) {
        if (last.n == 0) return;
        from = &last;
        put_file(path, last.at + 1, last.n - 1);
        if (dra_tensors_open(path, &file, NULL) != DRA_OK) return;
    }
    const size_t n_meta = change_texts(file, meta), n = change_tensors(file, items);
    const bool   ok = (below(8) ? dra_tensors_write_sealed(other, items, n, meta, n_meta, NULL)
                                : dra_tensors_write(other, items, n, meta, n_meta, NULL)) == DRA_OK;
    dra_tensors_close(file);
    if (!ok) return;
    static fuzz_bytes back;
    const uint8_t     kind = from->at[0];
    get_file(other, &back);
    b->n = 0;
    put(b, &kind, 1);
    put(b, back.at, back.n);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void begin(void)
{
    dra_error err = {0};
    fuzz_path(path);
    snprintf(other, sizeof other, "%s.new", path);
    must(dra_device_create_cpu(&(dra_cpu_config){.threads = 1}, &device, &err), &err);
    for (uint64_t i = 0; i < KINDS; i++) {
        fuzz_draw_from(i);
        kinds[i] = random_specs();
    }
}

static void end(void)
{
    dra_states_destroy(saved);
    for (int i = 0; i < KINDS; i++) dra_specs_destroy(kinds[i]);
    dra_device_destroy(device);
    unlink(path);
    unlink(other);
}

static const char *const words[] = {
    "{",           "}",           "\"",        "0",
    "-1",          "1e3",         "\xff",      "begin",
    "end",         "tokens",      "context",   "F32",
    "\"shape\":[", "fingerprint", "dra-state", "4611686018427387904",
    NULL};

const fuzz_subject fuzz_this = {
    .words = words, .begin = begin, .end = end, .make = make, .made = made, .repair = repair};
