/* fuzz_states SECONDS [SEED]: states of random kinds written to files, whose numbers, names, shapes
 * and bytes are then changed. What must hold:
 *   - no crash, no leak, nothing a sanitizer finds;
 *   - a file as saved gives the same state;
 *   - one with other bytes is refused by one line and gives no state;
 *   - one that was written with other texts is refused, too, or accepted and fit for use.
 * The rules of safetensors have a fuzzer of their own, fuzz_files. File number n of a run has seed
 * SEED + n; SECONDS 0 tries that one file. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/seal.h"
#include "sequence/states.h"
#include "fuzz/fuzzer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { SPECS = 5, ROWS = 4, CHANGES = 40, META = 7, ROOM = 1 << 16 };

static const uint64_t FINGER = 0xfeed;

static char path[256], shown[DRA_BRIEF]; /* as errors show it */

static void must(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) broken(err->text);
}

static dra_device *device;

/* ---- a random state -------------------------------------------------------------------------- */

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

static bool try_file(const dra_specs *specs)
{
    dra_states *s = (dra_states *)path; /* must be cleared */
    dra_error   err = {0};
    if (dra_states_load(device, specs, FINGER, path, &s, &err) == DRA_OK) {
        use(s);
        dra_states_destroy(s);
        return true;
    }
    if (s) broken("a refused file gave a state");
    if (strncmp(err.text, shown, strlen(shown)) != 0) broken("an error without the path");
    if (strpbrk(err.text, "\n\r\t\033")) broken("an error of several lines");
    return false;
}

static void expect_back(const dra_specs *specs, const dra_states *s)
{
    dra_states           *back = NULL;
    dra_states_difference d;
    dra_error             err = {0};
    must(dra_states_load(device, specs, FINGER, path, &back, &err), &err);
    must(dra_states_compare(back, s, &d, &err), &err);
    if (!d.same) broken("the file as saved gives another state");
    use(back);
    dra_states_destroy(back);
}

/* ---- changed meanings ------------------------------------------------------------------------ */

static const char *const words[] = {"",
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

/* Writes the file again with some of its texts and tensors changed. */
static void rewrite(const char *from)
{
    static dra_real   data[4096];
    dra_tensors      *file = NULL;
    dra_error         err = {0};
    dra_metadata_item meta[META + 1];
    dra_tensor_item   items[SPECS + 1];
    size_t            n = 0, n_meta = 0;
    must(dra_tensors_open(from, &file, &err), &err);
    for (size_t i = 0; i < dra_tensors_metadata_count(file); i++) {
        meta[n_meta] = *dra_tensors_metadata_at(file, i);
        if (below(12) == 0 || strcmp(meta[n_meta].key, "dra") == 0 ||
            strcmp(meta[n_meta].key, "hash") == 0)
            continue;
        if (below(6) == 0) meta[n_meta].value = words[below(COUNT(words) - 1)];
        n_meta++;
    }
    for (size_t i = 0; i < dra_tensors_count(file); i++) {
        const dra_tensor_info *t = dra_tensors_at(file, i);
        if (below(12) == 0) continue;
        items[n] = (dra_tensor_item){t->name, below(15) ? DRA_REAL : DRA_I32, t->shape, data};
        if (below(4) == 0) change_shape(&items[n].shape);
        if (dra_shape_count(&items[n].shape) <= (int64_t)COUNT(data)) n++;
    }
    if (below(8) == 0) items[n++] = (dra_tensor_item){"extra", DRA_REAL, {0}, data};
    must(below(8) ? dra_tensors_write_sealed(path, items, n, meta, n_meta, &err)
                  : dra_tensors_write(path, items, n, meta, n_meta, &err),
         &err);
    dra_tensors_close(file);
}

/* ---- changed bytes --------------------------------------------------------------------------- */

/* Half of them in the first bytes, where the texts are; sometimes the end is missing. */
static void change_bytes(const unsigned char *good, size_t n)
{
    static unsigned char bytes[ROOM];
    memcpy(bytes, good, n);
    for (uint32_t k = 1 + below(3); k && n; k--) {
        const uint32_t at = below((uint32_t)(below(2) && n > 400 ? 400 : n));
        bytes[at] = (unsigned char)(below(2) ? '0' + below(10) : below(256));
    }
    const size_t kept = below(10) ? n : below((uint32_t)n + 1);
    const int    fd = open(path, O_WRONLY | O_TRUNC);
    if (fd < 0 || write(fd, bytes, kept) != (ssize_t)kept) broken("cannot write");
    close(fd);
}

static size_t read_bytes(unsigned char *to)
{
    FILE        *f = fopen(path, "rb");
    const size_t n = f ? fread(to, 1, ROOM, f) : 0;
    if (!f || n == ROOM) broken("the fuzzer's own room is too small");
    fclose(f);
    return n;
}

static void put_bytes(const char *to, const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(to, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n) broken("cannot write");
    fclose(f);
}

static bool is_same(const unsigned char *good, size_t n)
{
    static unsigned char now[ROOM];
    return read_bytes(now) == n && memcmp(now, good, n) == 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void one_file(void)
{
    static unsigned char good[ROOM];
    char                 kept[sizeof path + 8];
    dra_error            err = {0};
    dra_specs           *specs = random_specs();
    dra_states          *s = random_states(specs);
    must(dra_states_save(s, FINGER, path, &err), &err);
    expect_back(specs, s);
    const size_t n = read_bytes(good);
    snprintf(kept, sizeof kept, "%s.kept", path);
    put_bytes(kept, good, n);
    for (int i = 0; i < CHANGES; i++, fuzz_damaged++) {
        if (i % 8 == 0)
            rewrite(kept);
        else
            change_bytes(good, n);
        const bool accepted = try_file(specs);
        if (accepted && i % 8 && !is_same(good, n)) broken("other bytes were accepted");
        fuzz_accepted += accepted;
    }
    unlink(kept);
    dra_states_destroy(s);
    dra_specs_destroy(specs);
}

static void clean(void) { unlink(path); }

int main(int argc, char **argv)
{
    must(dra_device_create_cpu(&(dra_cpu_config){.threads = 1}, &device, NULL), &(dra_error){0});
    fuzz_begin(&(fuzzer){"fuzz_states", one_file, clean});
    snprintf(path, sizeof path, "%s/fuzz-states-%ld", fuzz_folder(), (long)getpid());
    dra_brief(path, shown);
    return fuzz_all(argc, argv);
}
