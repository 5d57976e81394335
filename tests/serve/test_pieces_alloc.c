/* Files of states in pieces: what they share, what stays of it when one goes, and that a fault or a
 * kill at any moment leaves every file old or new, and whole. */
#include "check.h"
#include "failing.h"

#include "serve/pieces.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* As in serve/serve.h, which has a COUNT of its own. */
dra_status serve_file_link(const char *from, const char *to, dra_error *err);
dra_status serve_file_remove(const char *from, const char *path, dra_error *err);

enum { WIDE = 24, NARROW = 12, FIXED = 20, WINDOW = 50, PIECE = 512, PATHS = 4200 };

static char          folder[64];
static dra_specs    *specs;
static serve_pieces *pieces;

/* ---- system calls that fail ------------------------------------------------------------------ */

static long calls_left = -1; /* -1: all succeed */
static bool call_kills;

static bool call_fails(void)
{
    if (calls_left < 0 || calls_left-- > 0) return false;
    if (call_kills) _exit(9);
    calls_left = -1;
    errno = EIO;
    return true;
}

/* In place of the library's. */
int fsync(int fd) { return call_fails() ? -1 : (int)syscall(SYS_fsync, fd); }
int rename(const char *a, const char *b)
{
    return call_fails() ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 0);
}
int renameat(int x, const char *a, int y, const char *b)
{
    return call_fails() ? -1 : (int)syscall(SYS_renameat2, x, a, y, b, 0);
}
int link(const char *a, const char *b)
{
    return call_fails() ? -1 : (int)syscall(SYS_linkat, AT_FDCWD, a, AT_FDCWD, b, 0);
}
/* Only kills: what is not removed is removed by the next start. */
int unlink(const char *a)
{
    if (call_kills) call_fails();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, a, 0);
}

/* ---- states ---------------------------------------------------------------------------------- */

static const char *in(const char *name)
{
    static char path[4][PATHS];
    static int  i;
    char       *at = path[i++ % 4];
    snprintf(at, PATHS, "%s/%s", folder, name);
    return at;
}

static void fill(dra_real *x, int64_t rows, int64_t width, int64_t end, int64_t common, int seed)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < width; k++) {
            const int64_t item = end - rows + i;
            x[i * width + k] = (dra_real)(item * 1000 + k + (item >= common ? 7 * seed : 0));
        }
}

/* A state of `tokens` tokens, of which the first `common` are those of all. */
static void make_state(const char *path, int64_t tokens, int64_t common, int seed)
{
    static dra_real         wide[1000 * WIDE], narrow[1000 * NARROW], fixed[FIXED];
    const int64_t           window = tokens < WINDOW ? tokens : WINDOW;
    const int               n = dra_specs_find(specs, "narrow") >= 0 ? 3 : 2;
    char                    number[24];
    const dra_metadata_item meta[] = {{"tokens", number}, {"end", number}};
    const dra_tensor_item   items[] = {{"wide", DRA_REAL, {3, {1, tokens, WIDE}}, wide},
                                       {"fixed", DRA_REAL, {2, {1, FIXED}}, fixed},
                                       {"narrow", DRA_REAL, {3, {1, window, NARROW}}, narrow}};
    snprintf(number, sizeof number, "%lld", (long long)tokens);
    fill(wide, tokens, WIDE, tokens, common, seed);
    fill(narrow, window, NARROW, tokens, common, seed);
    for (int i = 0; i < FIXED; i++) fixed[i] = (dra_real)(tokens * seed + i);
    assert_int_equal(dra_tensors_write(path, items, (size_t)n, meta, COUNT(meta), NULL), DRA_OK);
}

static char *bytes_of(const char *path, size_t *n)
{
    char *data = NULL;
    *n = 0;
    dra_file_read(path, 1 << 26, &data, n, NULL);
    return data;
}

static bool same_files(const char *a, const char *b)
{
    size_t     n, m;
    char      *x = bytes_of(a, &n), *y = bytes_of(b, &m);
    const bool same = x && y && n == m && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

/* Keeps a copy of the whole file as NAME.good, and places it. */
static dra_status place(const char *name, int64_t tokens, int64_t common, int seed)
{
    char       good[80];
    size_t     bytes;
    bool       cut;
    dra_error  err = {0};
    const long left = allocations_left, calls = calls_left;
    allocations_left = calls_left = -1;
    snprintf(good, sizeof good, "%s.good", name);
    make_state(in(good), tokens, common, seed);
    make_state(in("whole.tmp"), tokens, common, seed);
    allocations_left = left;
    calls_left = calls;
    const dra_status st = serve_pieces_place(pieces, in("whole.tmp"), in(name), &bytes, &cut, &err);
    allocations_left = calls_left = -1;
    if (st == DRA_OK) {
        assert_int_equal(cut, tokens >= 2 * WINDOW);
        assert_true(bytes > 0);
    } else {
        assert_true(err.text[0]);
    }
    assert_int_not_equal(access(in("whole.tmp"), F_OK), 0);
    return st;
}

static bool restores(const char *name, const char *good)
{
    dra_error  err = {0};
    const bool well = serve_pieces_restore(in(name), in("again"), &err) == DRA_OK &&
                      same_files(in("again"), in(good));
    unlink(in("again"));
    return well;
}

static size_t list_pieces(size_t *bytes)
{
    struct stat how;
    size_t      n = 0;
    *bytes = 0;
    DIR *d = opendir(in(".pieces"));
    for (struct dirent *x; d && (x = readdir(d));) {
        char path[PATHS];
        if (x->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%.2000s/%.255s", in(".pieces"), x->d_name);
        assert_int_equal(stat(path, &how), 0);
        *bytes += (size_t)how.st_size;
        n++;
    }
    if (d) closedir(d);
    return n;
}

/* The folder has what is counted. */
static size_t count(void)
{
    size_t       bytes;
    const size_t n = list_pieces(&bytes);
    assert_int_equal(bytes, serve_pieces_bytes(pieces, folder));
    return n;
}

static dra_status remove_state(const char *name)
{
    return serve_pieces_change(pieces, NULL, in(name), serve_file_remove, &(dra_error){0});
}

static void open_specs(bool window)
{
    const dra_spec wide = {.name = "wide", .shape = {1, {WIDE}}, .items = true};
    const dra_spec narrow = {
        .name = "narrow", .shape = {1, {NARROW}}, .items = true, .limit = WINDOW};
    const dra_spec fixed = {.name = "fixed", .shape = {1, {FIXED}}};
    assert_int_equal(dra_specs_create(&specs, NULL), DRA_OK);
    dra_specs_add(specs, "", &wide);
    dra_specs_add(specs, "", &fixed);
    if (window) dra_specs_add(specs, "", &narrow);
    assert_true(serve_pieces_grow(specs));
    pieces = serve_pieces_open(specs, PIECE);
    assert_non_null(pieces);
}

static int begin(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/dra-pieces-%s",
             "XX"
             "XX"
             "XX");
    if (!mkdtemp(folder)) return -1;
    open_specs(false);
    return 0;
}

static void remove_all(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *x; d && (x = readdir(d));) {
        char one[PATHS];
        snprintf(one, sizeof one, "%.2000s/%.255s", path, x->d_name);
        if (strcmp(x->d_name, ".") && strcmp(x->d_name, "..") && unlink(one) != 0) remove_all(one);
    }
    if (d) closedir(d);
    rmdir(path);
}

static int end(void **state)
{
    serve_pieces_close(pieces);
    dra_specs_destroy(specs);
    remove_all(folder);
    return 0;
}

/* ---- what they share ------------------------------------------------------------------------- */

/* Two pieces and the rest of one: 16 tokens at most are not shared. */
static void a_fork_costs_its_difference(void **state)
{
    assert_int_equal(place("a.state", 300, 300, 1), DRA_OK);
    const size_t before = count();
    assert_true(before > 8);
    assert_int_equal(place("b.state", 303, 300, 2), DRA_OK);
    assert_true(count() <= before + 1);
    assert_int_equal(place("c.state", 400, 200, 3), DRA_OK);
    const size_t tokens = 300 / before;
    assert_true(count() <= before + 1 + 200 / tokens + 2);
    assert_true(restores("a.state", "a.state.good"));
    assert_true(restores("b.state", "b.state.good"));
    assert_true(restores("c.state", "c.state.good"));
}

static void what_is_needed_stays(void **state)
{
    assert_int_equal(place("a.state", 300, 300, 1), DRA_OK);
    const size_t one = count();
    assert_int_equal(place("b.state", 300, 300, 2), DRA_OK);
    assert_int_equal(count(), one);
    assert_int_equal(serve_pieces_change(pieces, in("b.state"), in("twig.state"), serve_file_link,
                                         &(dra_error){0}),
                     DRA_OK);
    assert_int_equal(remove_state("a.state"), DRA_OK);
    assert_int_equal(remove_state("b.state"), DRA_OK);
    assert_int_equal(count(), one);
    assert_true(restores("twig.state", "b.state.good"));
    assert_int_equal(place("twig.state", 300, 0, 3), DRA_OK); /* in its place */
    assert_int_equal(count(), one);
    assert_true(restores("twig.state", "twig.state.good"));
    assert_int_equal(place("twig.state", 7, 0, 3), DRA_OK); /* a small one is whole */
    assert_int_equal(count(), 0);
    assert_true(same_files(in("twig.state"), in("twig.state.good")));
    assert_int_equal(remove_state("twig.state"), DRA_OK);
    assert_int_equal(serve_pieces_bytes(pieces, NULL), 0);
}

/* Of layers that see a window, pieces are those of the tokens that all have. */
static void windows_are_cut_too(void **state)
{
    serve_pieces_close(pieces);
    dra_specs_destroy(specs);
    open_specs(true);
    assert_int_equal(place("a.state", 300, 300, 1), DRA_OK);
    const size_t one = count();
    assert_true(one >= 2);
    assert_int_equal(place("b.state", 301, 300, 2), DRA_OK);
    assert_true(count() <= one + 1);
    assert_true(restores("a.state", "a.state.good"));
    assert_true(restores("b.state", "b.state.good"));
}

/* A piece that is not what it was is not taken for one. */
static void damaged_pieces_are_not_shared(void **state)
{
    char           path[PATHS];
    struct dirent *x;
    assert_int_equal(place("a.state", 300, 300, 1), DRA_OK);
    DIR *d = opendir(in(".pieces"));
    do x = readdir(d);
    while (x->d_name[0] == '.');
    snprintf(path, sizeof path, "%.2000s/%.255s", in(".pieces"), x->d_name);
    closedir(d);
    const int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "damage", 6, 9), 6);
    close(fd);
    assert_false(restores("a.state", "a.state.good"));
    assert_int_equal(place("b.state", 300, 300, 1), DRA_OK);
    assert_true(restores("b.state", "b.state.good"));
    assert_int_equal(truncate(path, 5), 0);
    dra_error err = {0};
    assert_int_equal(serve_pieces_restore(in("a.state"), in("again"), &err), DRA_ERR_FORMAT);
    assert_non_null(strstr(err.text, "5 bytes, expected"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(serve_pieces_restore(in("a.state"), in("again"), &err), DRA_ERR_FILE);
}

static void forged_recipes_are_refused(void **state)
{
    static const char *const all[][4] = {
        {"100", "8", "0123456789abcdef;", "8;0 1 0 91;"},
        {"100", "8", "0123456789abcdef;", "8;0 2 0 46;"},
        {"100", "8", "0123456789abcdef;", "8;1 1 0 92;"},
        {"100", "8", "x;", "8;0 1 0 92;"},
        {"100", "8", "0123456789abcdef;", "8;0 1 0 92"},
        {"100", "9999", "0123456789abcdef;", "9999;"},
        {"100", "8", "0123456789abcdef;", "8;0 1 0 -92;"},
        {"-1", "8", "0123456789abcdef;", "8;0 1 0 92;"},
        {"18446744073709551615", "8", "0123456789abcdef;", "8;0 1 0 92;"},
        {"100", "8", "0123456789abcdef;", "8;0 1 9223372036854775807 92;"},
        {"100", "8", "", ""},
    };
    const int32_t rest[2] = {1, 2};
    for (size_t i = 0; i < COUNT(all); i++) {
        const dra_metadata_item meta[] = {{"format", "dra-state-pieces"},
                                          {"whole", all[i][0]},
                                          {"rest", all[i][1]},
                                          {"pieces", all[i][2]},
                                          {"cuts", all[i][3]}};
        const dra_tensor_item   item = {"rest", DRA_I32, {1, {2}}, rest};
        dra_error               err = {0};
        assert_int_equal(dra_tensors_write(in("f"), &item, 1, meta, COUNT(meta), NULL), DRA_OK);
        const dra_status st = serve_pieces_restore(in("f"), in("again"), &err);
        if (st != DRA_ERR_FORMAT) fail_msg("row %zu: %d, %s", i, st, err.text);
        assert_int_not_equal(access(in("again"), F_OK), 0);
    }
}

/* ---- starts ---------------------------------------------------------------------------------- */

static void start_again(void)
{
    size_t whole;
    serve_pieces_close(pieces);
    pieces = serve_pieces_open(specs, PIECE);
    DIR *d = opendir(folder);
    for (struct dirent *x; (x = readdir(d));) {
        const size_t n = strlen(x->d_name);
        if (n > 4 && strcmp(x->d_name + n - 4, ".tmp") == 0) unlink(in(x->d_name));
        if (n > 6 && strcmp(x->d_name + n - 6, ".state") == 0)
            serve_pieces_found(pieces, in(x->d_name), &whole);
    }
    closedir(d);
    serve_pieces_sweep(pieces, folder);
}

static void a_start_finds_them(void **state)
{
    size_t bytes;
    assert_int_equal(place("a.state", 300, 300, 1), DRA_OK);
    assert_int_equal(place("b.state", 320, 300, 2), DRA_OK);
    const size_t n = count();
    assert_int_equal(dra_file_write(in(".pieces/0123456789abcdef"), "old", 3, NULL), DRA_OK);
    assert_int_equal(dra_file_write(in(".pieces/0123.77-1.tmp"), "old", 3, NULL), DRA_OK);
    start_again();
    assert_int_equal(count(), n);
    assert_int_equal(remove_state("a.state"), DRA_OK);
    assert_true(restores("b.state", "b.state.good"));
    /* Where a file cannot be read, nothing goes that it may need. */
    assert_int_equal(dra_file_write(in("broken.state"), "none", 4, NULL), DRA_OK);
    assert_int_equal(dra_file_write(in(".pieces/0123456789abcdef"), "old", 3, NULL), DRA_OK);
    start_again();
    assert_int_equal(access(in(".pieces/0123456789abcdef"), F_OK), 0);
    assert_int_equal(remove_state("b.state"), DRA_OK);
    assert_true(list_pieces(&bytes) > 8);
    unlink(in("broken.state"));
    start_again();
    assert_int_equal(count(), 0);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* After a fault b is the old one, whole, and a is untouched; without one it is the new one. */
static void expect_old_or_new(bool may_be_new, const char *what, long n)
{
    const bool old = restores("b.state", "old"), new = restores("b.state", "new");
    if (!old && !(may_be_new && new)) fail_msg("%s %ld: b is neither", what, n);
    if (!restores("a.state", "a.state.good")) fail_msg("%s %ld: a is lost", what, n);
}

/* a, and b that is about to be replaced; its good ones are `old` and `new`. */
static void set_up(void)
{
    assert_int_equal(place("b.state", 310, 300, 5), DRA_OK);
    assert_int_equal(rename(in("b.state.good"), in("new")), 0);
    assert_int_equal(place("a.state", 200, 200, 1), DRA_OK);
    assert_int_equal(place("b.state", 260, 150, 2), DRA_OK);
    assert_int_equal(rename(in("b.state.good"), in("old")), 0);
}

static void any_allocation_may_fail(void **state)
{
    long n = 0;
    set_up();
    const size_t before = count();
    for (;; n++) {
        allocations_left = n;
        if (place("b.state", 310, 300, 5) == DRA_OK) break;
        assert_int_equal(count(), before);
        expect_old_or_new(false, "allocation", n);
    }
    assert_true(n > 20);
    for (n = 0;; n++) {
        allocations_left = n;
        const dra_status st = serve_pieces_change(pieces, in("b.state"), in("a.state"),
                                                  serve_file_link, &(dra_error){0});
        allocations_left = -1;
        if (st == DRA_OK) break;
        count();
        assert_true(restores("a.state", "a.state.good"));
    }
    assert_true(restores("a.state", "new"));
    for (n = 0;; n++) {
        allocations_left = n;
        const dra_status st = serve_pieces_restore(in("b.state"), in("again"), &(dra_error){0});
        allocations_left = -1;
        if (st == DRA_OK) break;
        assert_int_not_equal(access(in("again"), F_OK), 0);
    }
}

static void any_call_may_fail(void **state)
{
    long n = 0;
    set_up();
    const size_t before = count();
    for (;; n++) {
        calls_left = n;
        const bool well = place("b.state", 310, 300, 5) == DRA_OK;
        const bool new = restores("b.state", "new");
        assert_int_equal(well && n < 1000, well);
        if (!well) {
            expect_old_or_new(false, "call", n);
            assert_int_equal(count(), before);
        } else if (!new) {
            fail_msg("call %ld: done, but not there", n);
        } else if (n > 100) {
            break;
        } else { /* a sync of the folder that failed, or none did */
            assert_int_equal(place("b.state", 260, 150, 2), DRA_OK);
            assert_int_equal(count(), before);
        }
    }
}

/* b is replaced, forked, and the fork goes: a kill between any two calls. */
static void any_moment_may_be_the_last(void **state)
{
    int killed = 1;
    set_up();
    for (long n = 0; killed; n++) {
        assert_int_equal(place("b.state", 260, 150, 2), DRA_OK);
        const pid_t child = fork();
        if (child == 0) {
            make_state(in("b.state.good"), 310, 300, 5);
            make_state(in("whole.tmp"), 310, 300, 5);
            call_kills = true;
            calls_left = n;
            size_t bytes;
            bool   cut;
            char   twig[PATHS];
            snprintf(twig, sizeof twig, "%s", in("twig.state"));
            serve_pieces_place(pieces, in("whole.tmp"), in("b.state"), &bytes, &cut,
                               &(dra_error){0});
            serve_pieces_change(pieces, in("b.state"), twig, serve_file_link, &(dra_error){0});
            remove_state("twig.state");
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        killed = WEXITSTATUS(status);
        assert_true(killed == 0 || killed == 9);
        start_again();
        count();
        expect_old_or_new(true, "kill", n);
        if (access(in("twig.state"), F_OK) == 0) {
            assert_true(restores("twig.state", "new"));
            assert_int_equal(remove_state("twig.state"), DRA_OK);
        }
        assert_int_equal(remove_state("b.state"), DRA_OK);
        assert_true(n < 1000);
    }
    assert_int_equal(remove_state("a.state"), DRA_OK);
    assert_int_equal(count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_fork_costs_its_difference, begin, end),
        cmocka_unit_test_setup_teardown(what_is_needed_stays, begin, end),
        cmocka_unit_test_setup_teardown(windows_are_cut_too, begin, end),
        cmocka_unit_test_setup_teardown(damaged_pieces_are_not_shared, begin, end),
        cmocka_unit_test_setup_teardown(forged_recipes_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_start_finds_them, begin, end),
        cmocka_unit_test_setup_teardown(any_allocation_may_fail, begin, end),
        cmocka_unit_test_setup_teardown(any_call_may_fail, begin, end),
        cmocka_unit_test_setup_teardown(any_moment_may_be_the_last, begin, end),
    };
    return check_main("pieces", NULL, 0, tests, COUNT(tests));
}
