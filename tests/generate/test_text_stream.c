/* Text on its way out of a generator: stop strings never show, characters come whole. */
#include "generate/text_stream.h"

#include <string.h>

#include "check.h"

static void expect_ok(dra_status st, const dra_error *err)
{
    if (st != DRA_OK) fail_msg("%s", err->text);
}

/* Pushes a text in pieces of `size` bytes; what went out is in `out`. Returns whether it
 * stopped. */
static bool pour(const char *text, size_t size, int n, const char *const *stop, char *out,
                 size_t *before)
{
    dra_text_stream o = {.n_stop = n, .stop = stop};
    dra_text_chunk  f = {0};
    dra_error       err = {0};
    out[0] = 0;
    for (size_t at = 0, all = strlen(text); at < all && !f.stopped; at += size) {
        const size_t take = all - at < size ? all - at : size;
        expect_ok(dra_text_stream_push(&o, text + at, take, &f, &err), &err);
        memcpy(out + strlen(out), f.text, f.bytes + 1);
        *before = f.before;
    }
    const bool stopped = f.stopped;
    expect_ok(dra_text_stream_flush(&o, &f, &err), &err);
    memcpy(out + strlen(out), f.text, f.bytes + 1);
    dra_text_stream_free(&o);
    return stopped;
}

static void stop_strings_never_show(void **unused)
{
    static const char *const stop[] = {"STOP", "aab", "\xc3\xa9!"};
    static const struct {
        const char *text, *out;
        bool        stopped;
    } rows[] = {
        {"hello STOP there", "hello ", true},
        {"STOP", "", true},
        {"a STO is no S", "a STO is no S", false},
        {"STSTSTOPST", "STST", true},
        {"aaaaaab", "aaaa", true},
        {"caf\xc3\xa9 caf\xc3\xa9!", "caf\xc3\xa9 caf", true},
        {"\xe2\x82\xac\xc3", "\xe2\x82\xac\xef\xbf\xbd", false},
        {"\xc3STOP", "\xef\xbf\xbd", true},
        {"", "", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t size = 1; size < 8; size++) {
            char   out[80];
            size_t before = 0;
            assert_int_equal(pour(rows[i].text, size, 3, stop, out, &before), rows[i].stopped);
            assert_string_equal(out, rows[i].out);
            if (rows[i].stopped && i != 7) assert_int_equal(before, strlen(rows[i].out));
        }
}

static void characters_come_whole(void **unused)
{
    dra_text_stream o = {0};
    dra_text_chunk  f;
    dra_error       err = {0};
    expect_ok(dra_text_stream_push(&o, "x\xe2", 2, &f, &err), &err);
    assert_string_equal(f.text, "x");
    expect_ok(dra_text_stream_push(&o, "\x82", 1, &f, &err), &err);
    assert_string_equal(f.text, "");
    expect_ok(dra_text_stream_push(&o, "\xacy", 2, &f, &err), &err);
    assert_string_equal(f.text, "\xe2\x82\xacy");
    dra_text_stream_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_never_show),
        cmocka_unit_test(characters_come_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
