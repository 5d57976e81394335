/* Stories: every return was told before, where it says; the same seed gives the same bytes. */
#include <string.h>

#include "check.h"
#include "demo/story.h"

static story_config config_of(uint64_t seed)
{
    return (story_config){.seed = seed,
                          .facts = 2 + (int)(seed % (STORY_FACTS - 1)),
                          .gap = (int)(seed % 5),
                          .sentences = 20};
}

/* The word before the blank at `at`: its first letter and length. */
static const char *word_before(const story *s, size_t at, size_t *bytes)
{
    size_t from = at;
    while (from > 0 && s->text[from - 1] != ' ') from--;
    *bytes = at - from;
    return s->text + from;
}

static void expect_return(const story *s, const story_config *c, const story_return *r)
{
    size_t      a, b;
    const char *asked = word_before(s, r->at, &a), *told = word_before(s, r->told, &b);
    assert_true(r->told < r->at && r->at + r->bytes <= s->bytes);
    assert_int_equal(s->text[r->at], ' ');
    assert_memory_equal(s->text + r->at, s->text + r->told, r->bytes);
    assert_int_equal(a, b); /* and it is the same word it belongs to */
    assert_memory_equal(asked, told, a);
    assert_int_equal(r->choices, c->facts);
}

/* The word and the name do not stand together between the telling and the return, nor the word with
 * another name. */
static void expect_last(const story *s, const story_return *r)
{
    size_t      n;
    const char *word = word_before(s, r->at, &n);
    for (const char *p = s->text + r->told + 1; p < word; p++)
        if (p[-1] == ' ' && memcmp(p, word, n) == 0 && p[n] == ' ')
            fail_msg("'%.*s' is said in between", (int)n, word);
}

static void facts_return(void **state)
{
    story s = {0};
    for (uint64_t seed = 0; seed < 200; seed++) {
        const story_config c = config_of(seed);
        story_write(&s, &c);
        assert_false(s.failed);
        assert_int_equal(strlen(s.text), s.bytes);
        assert_true(s.n >= 10);
        for (size_t i = 0; i < s.n; i++) {
            expect_return(&s, &c, &s.returns[i]);
            expect_last(&s, &s.returns[i]);
        }
    }
    story_free(&s);
}

static void a_gap_says_nothing(void **state)
{
    const story_config c = {.seed = 3, .facts = 3, .gap = 100, .sentences = 4};
    story_config       without = c;
    story              s = {0}, t = {0};
    without.gap = without.sentences = 0;
    story_write(&s, &c);
    story_write(&t, &without);
    assert_int_equal(t.n, 0);
    assert_memory_equal(s.text, t.text, t.bytes);
    assert_true(s.n > 0 && s.returns[0].at > t.bytes + 1500);
    story_free(&s);
    story_free(&t);
}

static void same_seed_same_bytes(void **state)
{
    story a = {0}, b = {0};
    for (uint64_t seed = 0; seed < 50; seed++) {
        const story_config c = config_of(seed), other = config_of(seed + 1);
        story_write(&a, &c);
        story_write(&b, &c);
        assert_string_equal(a.text, b.text);
        assert_int_equal(a.n, b.n);
        story_write(&b, &other);
        assert_string_not_equal(a.text, b.text);
    }
    story_free(&a);
    story_free(&b);
}

/* Blanks between words, no slot left open, on one line. */
static void reads_well(void **state)
{
    story s = {0};
    for (uint64_t seed = 0; seed < 200; seed++) {
        const story_config c = config_of(seed);
        story_write(&s, &c);
        assert_null(strpbrk(s.text, "$\n\t"));
        assert_null(strstr(s.text, "  "));
        assert_true(s.text[s.bytes - 1] == '.' || s.text[s.bytes - 1] == '"');
    }
    story_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_return),
        cmocka_unit_test(a_gap_says_nothing),
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(reads_well),
    };
    return check_main("story", NULL, 0, tests, COUNT(tests));
}
