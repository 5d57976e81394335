/* What tests/data/presets holds of the models there: for every preset the text of its config, as it
 * is written and with all filled in, its fingerprint, and the names of its parameters and states in
 * their order; the same for the models of the other fixtures. Their numbers are those of
 * cli/test_presets.
 *   test_presets write         writes these lists (make.sh there does it)
 *   test_presets bare FILE TO  copies a file's tensors, without its hash and fingerprint
 *   test_presets machine       prints a number for the arithmetic of this machine; see machine() */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "base/shape.h"
#include "device/simd.h"
#include "dra/file.h"
#include "model/model.h"

#define FIXTURES "tests/data/presets"

static const char *const presets[] = {
    "adr",          "adr-tiny",          "dra-delta",  "dra-delta-tiny",
    "dra-ema",      "dra-ema-tiny",      "dra-gru",    "dra-gru-tiny",
    "dra-moment",   "dra-moment-tiny",   "dra-pooled", "dra-pooled-tiny",
    "dra-slot-gru", "dra-slot-gru-tiny", "dra-slots",  "dra-slots-tiny",
    "gpt2",         "gpt2-tiny",         "hybrid",     "hybrid-tiny",
    "retention",    "retention-tiny",    "rwkv4",      "rwkv4-tiny"};

static const char *const kinds[] = {
    "adr",          "dra-delta", "dra-ema", "dra-gru", "dra-moment", "dra-pooled",
    "dra-slot-gru", "dra-slots", "gpt2",    "hybrid",  "retention",  "rwkv4",
    "hf-gpt2",      "hf-rwkv",   "graft",   "window",  "post",       "list"};

enum { PRESETS = sizeof presets / sizeof *presets, KINDS = sizeof kinds / sizeof *kinds };

/* ---- the list of a model --------------------------------------------------------------------- */

typedef struct text {
    size_t n;
    char   at[1 << 16];
} text;

static void say(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(t->at + t->n, sizeof t->at - t->n, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof t->at - t->n);
    t->n += (size_t)n;
}

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

static void say_config(text *t, const char *what, const dra_model_config *c)
{
    static char  config[8192];
    const size_t n = dra_model_config_text(c, config, sizeof config);
    assert_true(n > 0 && n < sizeof config);
    say(t, "%s %s\n", what, config);
}

static void say_specs(text *t, const char *what, const dra_specs *specs)
{
    static const char *const fills[] = {"const", "normal", "uniform", "values", "favor"};
    for (int i = 0; i < dra_specs_count(specs); i++) {
        const dra_spec *p = dra_specs_at(specs, i);
        say(t, "%s %s (", what, p->name);
        for (int k = 0; k < p->shape.rank; k++)
            say(t, "%s%lld", k ? ", " : "", (long long)p->shape.dim[k]);
        say(t, ") %s %.9g", fills[p->fill], p->number);
        say(t, "%s%s%s%s%s%s", p->frozen ? " frozen" : "", p->decay ? " decay" : "",
            p->recurrent ? " recurrent" : "", p->product ? " product" : "",
            p->maximum ? " maximum" : "", p->items ? " items" : "");
        if (p->limit) say(t, " limit %lld", (long long)p->limit);
        say(t, "\n");
    }
}

/* Large models say less: the fingerprint stands for their names and shapes. */
static void list_model(text *t, const dra_model_config *c, bool names)
{
    dra_model *m = NULL;
    dra_error  err = {0};
    t->n = 0;
    expect_ok(dra_model_create(c, &m, &err), &err);
    say_config(t, "config", c);
    say_config(t, "filled in", dra_model_config_of(m));
    say(t, "fingerprint %016llx, %d parameters, %d states\n",
        (unsigned long long)dra_model_fingerprint(m), dra_specs_count(dra_model_params(m)),
        dra_specs_count(dra_model_state(m)));
    if (names) say_specs(t, "parameter", dra_model_params(m));
    if (names) say_specs(t, "state", dra_model_state(m));
    dra_model_destroy(m);
}

static void list_preset(text *t, const char *name)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    expect_ok(dra_preset_config(name, &c, &err), &err);
    list_model(t, c, strstr(name, "-tiny") != NULL);
}

static void list_kind(text *t, const char *kind)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    char      folder[200];
    snprintf(folder, sizeof folder, FIXTURES "/%s/run", kind);
    expect_ok(dra_folder_config(folder, &c, &err), &err);
    list_model(t, c, true);
}

/* ---- compared with a file -------------------------------------------------------------------- */

static text now;

static void expect_list(const char *path)
{
    char     *was = NULL;
    size_t    bytes = 0;
    dra_error err = {0};
    expect_ok(dra_file_read(path, sizeof now.at, &was, &bytes, &err), &err);
    const char *a = was, *b = now.at;
    for (int line = 1; a < was + bytes || b < now.at + now.n; line++) {
        const size_t n = a < was + bytes ? strcspn(a, "\n") : 0;
        const size_t m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0)
            fail_msg("%s:%d: expected '%.*s', found '%.*s'", path, line, (int)n, a, (int)m, b);
        a += n + 1;
        b += m + (b < now.at + now.n);
    }
    free(was);
}

static const char *preset_file(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, FIXTURES "/lists/%s", name);
    return path;
}

static const char *kind_file(const char *kind)
{
    static char path[200];
    snprintf(path, sizeof path, FIXTURES "/%s/names", kind);
    return path;
}

static void keeps_a_preset(void **name)
{
    list_preset(&now, *name);
    expect_list(preset_file(*name));
}

static void keeps_a_kind(void **kind)
{
    list_kind(&now, *kind);
    expect_list(kind_file(*kind));
}

/* ---- writing and describing ------------------------------------------------------------------ */

static void put_list(const char *path)
{
    dra_error err = {0};
    if (dra_file_write(path, now.at, now.n, &err) != DRA_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

static int write_lists(void)
{
    for (int i = 0; i < PRESETS; i++) {
        list_preset(&now, presets[i]);
        put_list(preset_file(presets[i]));
    }
    for (int i = 0; i < KINDS; i++) {
        list_kind(&now, kinds[i]);
        put_list(kind_file(kinds[i]));
    }
    return 0;
}

/* Of metadata: whose release wrote a file, and what depends on the words of a config. */
static bool is_about_the_file(const char *key)
{
    static const char *const keys[] = {"dra", "hash", "version", "fingerprint"};
    for (size_t i = 0; i < COUNT(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static dra_status write_bare(const dra_tensors *file, const char *to, dra_error *err)
{
    static dra_tensor_item   item[1000];
    static dra_metadata_item meta[16];
    const size_t             n = dra_tensors_count(file);
    size_t                   k = 0;
    assert_true(n <= COUNT(item) && dra_tensors_metadata_count(file) <= COUNT(meta));
    for (size_t i = 0; i < n; i++) {
        const dra_tensor_info *t = dra_tensors_at(file, i);
        item[i] = (dra_tensor_item){t->name, t->dtype, t->shape, t->data};
    }
    for (size_t i = 0; i < dra_tensors_metadata_count(file); i++) {
        const dra_metadata_item *x = dra_tensors_metadata_at(file, i);
        if (!is_about_the_file(x->key)) meta[k++] = *x;
    }
    return dra_tensors_write(to, item, n, meta, k, err);
}

static int copy_bare(const char *path, const char *to)
{
    dra_tensors *file = NULL;
    dra_error    err = {0};
    dra_status   st = dra_tensors_open(path, &file, &err);
    if (st == DRA_OK) st = write_bare(file, to, &err);
    if (st != DRA_OK) fprintf(stderr, "%s\n", err.text);
    dra_tensors_close(file);
    return st != DRA_OK;
}

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

/* A number for all that the plain level computes with: sums and products, which a compiler
 * contracts to fused multiply-adds where every processor has them (not on x86-64), and the
 * functions of libm; what those give in double is always rounded to real. Where the number is
 * another one, so are the last bits of models. */
static int machine(void)
{
    enum { POINTS = 1 << 15, N = 61 };
    uint64_t h = 0xcbf29ce484222325u;
    dra_real row[N], squares;
    for (int i = 0; i < POINTS; i++) {
        const double x = (i + 0.37) * 12 / POINTS, y = x - 6;
        const float  a = (float)x, b = (float)y;
        const float  f[] = {expf(b), expm1f(b), logf(a), log1pf(a), tanhf(b),
                            erff(b), sinf(b),   cosf(b), powf(a, b)};
        const double d[] = {exp(y), expm1(y), exp2(y), log(x),   log1p(x),
                            sin(y), cos(y),   erf(y),  pow(x, y)};
        h = mix(h, f, sizeof f);
        for (size_t k = 0; k < sizeof d / sizeof *d; k++) {
            const dra_real rounded = (dra_real)d[k];
            h = mix(h, &rounded, sizeof rounded);
        }
        row[i % N] = (dra_real)sin(1.7 * i);
        if (i % N < N - 1) continue;
        const dra_real dot = dra_simd_ref.dot(N - 1, row, row + 1);
        const dra_real sum = dra_simd_ref.moments(N, row, row[3], &squares);
        h = mix(mix(mix(h, &dot, sizeof dot), &sum, sizeof sum), &squares, sizeof squares);
    }
    printf("%016llx\n", (unsigned long long)h);
    return 0;
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[PRESETS + KINDS];
    char              names[KINDS][40];
    if (argc == 2 && strcmp(argv[1], "write") == 0) return write_lists();
    if (argc == 2 && strcmp(argv[1], "machine") == 0) return machine();
    if (argc == 4 && strcmp(argv[1], "bare") == 0) return copy_bare(argv[2], argv[3]);
    for (int i = 0; i < PRESETS; i++)
        tests[i] = (struct CMUnitTest){presets[i], keeps_a_preset, NULL, NULL,
                                       (void *)(uintptr_t)presets[i]};
    for (int i = 0; i < KINDS; i++) {
        snprintf(names[i], sizeof names[i], "the fixture %s", kinds[i]);
        tests[PRESETS + i] = (struct CMUnitTest){names[i], keeps_a_kind, NULL, NULL,
                                                 (void *)(uintptr_t)kinds[i]};
    }
    return cmocka_run_group_tests_name("presets", tests, NULL, NULL);
}
