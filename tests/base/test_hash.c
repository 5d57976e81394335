/* XXH64 against answers of its reference implementation, and in parts. */
#include "check.h"

#include "base/hash.h"

static const struct {
    size_t   bytes;
    uint64_t hash;
} answers[] = {
    {0, 0xef46db3751d8e999},    {1, 0x5014607643a9b4c3},  {3, 0x769c61f04e9ff849},
    {4, 0x327d6aa558dd5191},    {7, 0xdef2c9d6cf73ea7b},  {8, 0x2472021ad9000892},
    {31, 0x01cff58b802d183b},   {32, 0x66022afc2909b376}, {33, 0x67739298d49637df},
    {63, 0x695e70502a41d8ec},   {64, 0x2709a3511c7be7d7}, {100, 0xf1a3ebffff0c377d},
    {1000, 0x2ce041ebcaa247b8},
};

static void fill(unsigned char text[1000])
{
    for (int i = 0; i < 1000; i++) text[i] = (unsigned char)((i * 7 + i * i / 3) % 251);
}

static uint64_t seed_of(size_t bytes) { return bytes * 2654435761u; }

static void gives_known_answers(void **state)
{
    unsigned char text[1000];
    fill(text);
    for (size_t i = 0; i < COUNT(answers); i++)
        assert_int_equal(dra_hash_of(seed_of(answers[i].bytes), text, answers[i].bytes),
                         answers[i].hash);
    assert_int_equal(dra_hash_of(0, "abc", 3), 0x44bc2cf5ad770999);
}

static void parts_do_not_matter(void **state)
{
    unsigned char text[1000];
    fill(text);
    for (size_t i = 0; i < COUNT(answers); i++)
        for (size_t part = 1; part < 70; part++) {
            const size_t bytes = answers[i].bytes;
            dra_hash     h;
            dra_hash_begin(&h, seed_of(bytes));
            for (size_t at = 0; at < bytes; at += part)
                dra_hash_add(&h, text + at, bytes - at < part ? bytes - at : part);
            assert_int_equal(dra_hash_end(&h), answers[i].hash);
        }
}

static void numbers_are_their_bytes(void **state)
{
    for (uint64_t i = 0, x = 1; i < 1000; i++, x = x * 6364136223846793005u + i) {
        unsigned char byte[8];
        for (int k = 0; k < 8; k++) byte[k] = (unsigned char)(x >> 8 * k);
        assert_true(dra_hash_number(x) == dra_hash_of(0, byte, 8));
    }
}

static uint64_t of_texts(const char *a, const char *b)
{
    dra_hash h;
    dra_hash_begin(&h, 0);
    dra_hash_add_text(&h, a);
    dra_hash_add_text(&h, b);
    return dra_hash_end(&h);
}

static void texts_have_ends(void **state)
{
    assert_true(of_texts("ab", "c") != of_texts("a", "bc"));
    assert_true(of_texts("", NULL) != of_texts(NULL, ""));
    assert_true(of_texts("", "") != of_texts(NULL, NULL));
}

/* What earlier hashes of ours did not do: the last bytes reach all bits. */
static void last_bits_are_mixed(void **state)
{
    unsigned char text[1000];
    fill(text);
    for (size_t bytes = 1; bytes < 100; bytes++) {
        const uint64_t whole = dra_hash_of(0, text, bytes);
        for (int bit = 0; bit < 8; bit++) {
            text[bytes - 1] ^= (unsigned char)(1 << bit);
            const int changed = __builtin_popcountll(whole ^ dra_hash_of(0, text, bytes));
            assert_in_range(changed, 10, 54);
            text[bytes - 1] ^= (unsigned char)(1 << bit);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_known_answers), cmocka_unit_test(parts_do_not_matter),
        cmocka_unit_test(numbers_are_their_bytes), cmocka_unit_test(texts_have_ends),
        cmocka_unit_test(last_bits_are_mixed)};
    return check_main("hash", NULL, 0, tests, COUNT(tests));
}
