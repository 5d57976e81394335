/* Hashes of weights: files of dra are sealed, others are not; a fingerprint of all values, however
 * they are stored, and where it is kept between processes. */
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/shape.h"
#include "file/folder.h"
#include "model/model.h"
#include "model/weights_cache.h"

static dra_model *model;

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static void make_model(dra_format_kind format, dra_model **out)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_preset_config("gpt2-tiny", &c, &err), &err);
    c->dim = 4, c->heads = 1, c->depth = 1, c->vocab = 3, c->context = 4;
    c->format = format;
    expect_ok(dra_model_create(c, out, &err), &err);
}

static dra_weights *drawn(const dra_model *m)
{
    dra_weights *w = NULL;
    dra_error    err = {0};
    expect_ok(dra_weights_draw(m, 1, &w, &err), &err);
    return w;
}

static void put_weights(const dra_model *m, const char *name)
{
    dra_weights *w = drawn(m);
    dra_error    err = {0};
    expect_ok(dra_weights_save(w, in_folder(name), &err), &err);
    dra_weights_destroy(w);
}

static dra_weights *loaded(const dra_model *m, const char *name)
{
    dra_weights *w = NULL;
    dra_error    err = {0};
    expect_ok(dra_weights_load(m, in_folder(name), &w, &err), &err);
    return w;
}

static uint64_t print_of(const dra_weights *w)
{
    uint64_t  h = 0;
    dra_error err = {0};
    expect_ok(dra_weights_fingerprint(w, &h, &err), &err);
    return h;
}

static uint64_t print_of_file(const dra_model *m, const char *name)
{
    dra_weights   *w = loaded(m, name);
    const uint64_t h = print_of(w);
    dra_weights_destroy(w);
    return h;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool loads(const dra_model *m, bool skip_hash)
{
    dra_weights *w = NULL;
    dra_error    err = {0};
    const bool   ok = dra_weights_load_with(m, &(dra_weights_config){in_folder("f"), skip_hash}, &w,
                                            &err) == DRA_OK;
    if (!ok && !strstr(err.text, "/f: ")) fail_msg("%s", err.text);
    dra_weights_destroy(w);
    return ok;
}

/* Tries all bits, or those of the last number; how many were accepted. */
static int flip(const dra_model *m, bool last, bool skip_hash)
{
    char  *data = NULL;
    size_t n = 0;
    int    accepted = 0;
    assert_int_equal(dra_file_read(in_folder("f"), 1 << 20, &data, &n, NULL), DRA_OK);
    const int fd = open(in_folder("f"), O_WRONLY);
    for (size_t bit = last ? 8 * n - 16 : 0; bit < 8 * n; bit++) {
        const char bad = (char)(data[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)(bit / 8)), 1);
        accepted += loads(m, skip_hash);
        assert_int_equal(pwrite(fd, &data[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    close(fd);
    free(data);
    return accepted;
}

static void every_flipped_bit_is_found(void **state)
{
    put_weights(model, "f");
    assert_true(loads(model, false));
    assert_int_equal(flip(model, false, false), 0);
    assert_int_equal(flip(model, true, true), 16); /* nobody looked */
}

static void other_formats_have_none(void **state)
{
    dra_model   *hf = NULL;
    dra_tensors *t = NULL;
    make_model(DRA_FORMAT_GPT2, &hf);
    put_weights(hf, "f");
    assert_int_equal(dra_tensors_open(in_folder("f"), &t, NULL), DRA_OK);
    assert_int_equal(dra_tensors_metadata_count(t), 1);
    dra_tensors_close(t);
    assert_int_equal(flip(hf, true, false), 16);
    dra_model_destroy(hf);
}

/* ---- fingerprints ---------------------------------------------------------------------------- */

static void is_of_values(void **state)
{
    dra_model     *hf = NULL;
    dra_weights   *w = drawn(model);
    const uint64_t h = print_of(w);
    make_model(DRA_FORMAT_GPT2, &hf);
    put_weights(model, "own");
    put_weights(hf, "hf"); /* matrices are transposed there */
    assert_true(h == print_of_file(model, "own"));
    assert_true(h == print_of_file(hf, "hf"));
    dra_weights_destroy(w);
    dra_model_destroy(hf);
}

static void follows_every_change(void **state)
{
    dra_weights   *w = drawn(model);
    const uint64_t h = print_of(w);
    for (int i = 0; i < dra_specs_count(dra_model_params(model)); i++) {
        const dra_shape *s = &dra_specs_at(dra_model_params(model), i)->shape;
        dra_real        *x = dra_weights_edit(w, i);
        for (int64_t k = 0; k < dra_shape_count(s); k++) {
            const dra_real was = x[k];
            x[k] += 1;
            assert_true(print_of(w) != h);
            x[k] = was;
        }
    }
    assert_true(print_of(w) == h);
    dra_error err = {0};
    expect_ok(dra_weights_to_bf16(w, &err), &err);
    assert_true(print_of(w) != h);
    dra_weights_destroy(w);
}

/* ---- kept ------------------------------------------------------------------------------------ */

static void set_age(const char *name, int64_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = time(NULL) - seconds},
                                      {.tv_sec = time(NULL) - seconds}};
    assert_int_equal(utimensat(AT_FDCWD, in_folder(name), times, 0), 0);
}

static size_t kept_bytes(void)
{
    struct stat s;
    return stat(in_folder("cache/dra/weights"), &s) == 0 ? (size_t)s.st_size : 0;
}

static void is_kept_between_processes(void **state)
{
    enum { LINE = 51 };
    char *text = NULL;
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
    put_weights(model, "own");
    const uint64_t h = print_of_file(model, "own");
    assert_int_equal(kept_bytes(), 0); /* it may change within a tick of the clock */
    set_age("own", 100);
    assert_true(print_of_file(model, "own") == h);
    assert_int_equal(kept_bytes(), LINE);
    assert_true(print_of_file(model, "own") == h);
    assert_int_equal(kept_bytes(), LINE);
    size_t n = 0;
    assert_int_equal(dra_file_read(in_folder("cache/dra/weights"), 1 << 20, &text, &n, NULL),
                     DRA_OK);
    const uint64_t key = strtoull(text, NULL, 16);
    dra_weights_cache_note(key ^ 1, 5);
    uint64_t found = 0;
    assert_true(dra_weights_cache_find(key, &found) && found == h);
    assert_true(dra_weights_cache_find(key ^ 1, &found) && found == 5);
    for (size_t bit = 0; bit < 8 * LINE; bit++) { /* a damaged line is none */
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        put_file("cache/dra/weights", text, n);
        assert_false(dra_weights_cache_find(key, &found));
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    set_age("own", 50); /* another file, for all we know */
    assert_true(print_of_file(model, "own") == h);
    static char many[256 * LINE];
    for (int i = 0; i < 256; i++) memcpy(many + i * LINE, text, LINE);
    put_file("cache/dra/weights", many, sizeof many);
    dra_weights_cache_note(7, 8);
    assert_int_equal(kept_bytes(), 256 * LINE); /* the oldest is gone */
    assert_true(dra_weights_cache_find(7, &found) && found == 8);
    free(text);
}

static void makes_no_home(void **state)
{
    struct stat s;
    uint64_t    found;
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", in_folder("nobody"), 1);
    dra_weights_cache_note(1, 2);
    assert_false(dra_weights_cache_find(1, &found));
    assert_int_equal(stat(in_folder("nobody"), &s), -1);
    assert_int_equal(mkdir(in_folder("nobody"), 0700), 0);
    dra_weights_cache_note(1, 2);
    assert_true(dra_weights_cache_find(1, &found) && found == 2);
    unsetenv("HOME");
    dra_weights_cache_note(1, 2);
    assert_false(dra_weights_cache_find(1, &found));
}

int main(void)
{
    const struct CMUnitTest  tests[] = {cmocka_unit_test(every_flipped_bit_is_found),
                                        cmocka_unit_test(other_formats_have_none),
                                        cmocka_unit_test(is_of_values),
                                        cmocka_unit_test(follows_every_change),
                                        cmocka_unit_test(is_kept_between_processes),
                                        cmocka_unit_test(makes_no_home)};
    static const char *const folders[] = {"cache", "nobody/.cache"};
    char                     file[500];
    if (folder_make(NULL) != 0) return 1;
    setenv("XDG_CACHE_HOME", in_folder("none/none"), 1);
    make_model(DRA_FORMAT_DRA, &model);
    const int failed = check_main("weights_hash", NULL, 0, tests, COUNT(tests));
    dra_model_destroy(model);
    for (size_t i = 0; i < COUNT(folders); i++) {
        snprintf(file, sizeof file, "%s/dra/weights", in_folder(folders[i]));
        unlink(file);
        snprintf(file, sizeof file, "%s/dra", in_folder(folders[i]));
        rmdir(file);
        rmdir(in_folder(folders[i]));
    }
    rmdir(in_folder("nobody"));
    return folder_remove(NULL) == 0 ? failed : 1;
}
