/* Philox 4x32-10 against the published known answers, and the hash that makes its keys. */
#include "check.h"

#include "base/philox.h"

typedef struct answer {
    uint32_t counter[4], key[2], out[4];
} answer;

static const answer answers[] = {
    {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, /* digits of pi */
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void gives_known_answers(void **state)
{
    for (size_t i = 0; i < COUNT(answers); i++) {
        const answer *a = &answers[i];
        uint32_t      out[4] = {0};
        dra_philox(a->counter, (uint64_t)a->key[1] << 32 | a->key[0], out);
        assert_memory_equal(out, a->out, sizeof out);
    }
}

static void may_write_over_its_counter(void **state)
{
    uint32_t words[4] = {0};
    dra_philox(words, 0, words);
    assert_memory_equal(words, answers[0].out, sizeof words);
}

/* Every bit of seed, step and path gives another key, and none is lost in another's place. */
static void keys_differ(void **state)
{
    uint64_t key[1 + 4 * 32 + 64];
    size_t   n = 0;
    int32_t  seed_step[4] = {0};
    key[n++] = dra_philox_key(seed_step, 0);
    for (int word = 0; word < 4; word++) {
        for (int bit = 0; bit < 32; bit++) {
            seed_step[word] = (int32_t)(1u << bit);
            key[n++] = dra_philox_key(seed_step, 0);
        }
        seed_step[word] = 0;
    }
    for (int bit = 0; bit < 64; bit++) key[n++] = dra_philox_key(seed_step, (uint64_t)1 << bit);
    assert_int_equal(n, COUNT(key));
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) assert_true(key[i] != key[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gives_known_answers),
                                       cmocka_unit_test(may_write_over_its_counter),
                                       cmocka_unit_test(keys_differ)};
    return check_main("philox", NULL, 0, tests, COUNT(tests));
}
