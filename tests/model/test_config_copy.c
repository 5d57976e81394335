/* Configs that own their parts: equal to what they were made of, and whole without it. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "setting.h"

static char *text_of(const dra_model_config *c)
{
    const size_t n = dra_model_config_text(c, NULL, 0);
    char        *text = malloc(n + 1);
    assert_non_null(text);
    assert_true(n > 0 && dra_model_config_text(c, text, n + 1) == n);
    return text;
}

static void expect_text(const dra_model_config *c, const char *text)
{
    char *now = text_of(c);
    assert_string_equal(now, text);
    free(now);
}

/* A copy, and a copy of the copy, of which only the last is left. */
static void expect_copies(const dra_model_config *c)
{
    char             *text = text_of(c);
    dra_model_config *one, *two;
    dra_error         err = {0};
    expect_ok(dra_model_config_copy(c, &one, &err), &err);
    expect_text(one, text);
    expect_ok(dra_model_config_copy(one, &two, &err), &err);
    dra_model_config_destroy(one);
    expect_text(two, text);
    expect_text(c, text);
    dra_model_config_destroy(two);
    free(text);
}

static void presets(void **state)
{
    CHECK_CONFIG(c);
    dra_error err = {0};
    size_t    i = 0;
    for (const dra_preset *p; (p = dra_preset_at(i)); i++) {
        check_drop_config(&c);
        expect_ok(dra_preset_config(p->name, &c, &err), &err);
        expect_copies(c);
    }
    assert_true(i > 20);
}

/* Other stacks, written as a C program writes them; all of it is gone when the copy is used. */
static void stacks(void **state)
{
    dra_error              err = {0};
    dra_model_config      *copy;
    dra_model             *m;
    dra_model_config       prepend = {.dim = 8, .source = {DRA_SOURCE_VECTORS, .length = 3}};
    dra_model_config       encoder = {.name = "encoder",
                                      .vocab = 9,
                                      .dim = 8,
                                      .depth = 1,
                                      .heads = 2,
                                      .visible = DRA_VISIBLE_BIDIRECTIONAL,
                                      .head = {DRA_HEAD_NONE},
                                      .prepend_stack = &prepend};
    const dra_model_config c = {
        .name = "decoder", .vocab = 9, .dim = 8, .depth = 1, .heads = 2, .context_stack = &encoder};
    prepend.head.kind = DRA_HEAD_NONE;
    char *text = text_of(&c);
    expect_copies(&c);
    expect_ok(dra_model_config_copy(&c, &copy, &err), &err);
    expect_ok(dra_model_create(copy, &m, &err), &err);
    memset(&encoder, 1, sizeof encoder);
    memset(&prepend, 1, sizeof prepend);
    expect_text(copy, text);
    dra_model_config_destroy(copy);
    assert_int_equal(dra_model_config_of(m)->context_stack->vocab, 9);
    assert_int_equal(dra_model_config_of(m)->context_stack->prepend_stack->source.length, 3);
    dra_model_destroy(m);
    free(text);
}

/* Lists and texts, which are gone when the copy is used. */
static void lists(void **state)
{
    dra_error              err = {0};
    dra_model             *m;
    int64_t                order[] = {1, 0, 1}, shifts[] = {1, 2}, pattern[] = {0};
    double                 drops[] = {0.1, 0.2};
    char                   layout[] = "fa";
    dra_mixer_config       mixer = {.a.memory = "gru"}, cross = {0};
    const dra_model_config c = {.vocab = 9,
                                .dim = 8,
                                .depth = 1,
                                .mixer = &mixer,
                                .cross = &cross,
                                .layout = layout,
                                .order = order,
                                .n_order = 3,
                                .shifts = shifts,
                                .n_shifts = 2,
                                .drops = drops,
                                .n_drops = 2,
                                .pattern = pattern,
                                .n_pattern = 1};
    expect_copies(&c);
    expect_ok(dra_model_create(&c, &m, &err), &err);
    char *text = text_of(dra_model_config_of(m));
    memset(order, 9, sizeof order), memset(shifts, 9, sizeof shifts);
    memset(drops, 9, sizeof drops), memset(pattern, 9, sizeof pattern);
    memset(&mixer, 9, sizeof mixer), memset(&cross, 9, sizeof cross);
    layout[0] = 'x';
    expect_text(dra_model_config_of(m), text);
    assert_non_null(strstr(text, "\"memory\": \"gru\""));
    assert_string_equal(dra_model_config_of(m)->layout, "fa");
    dra_model_destroy(m);
    free(text);
}

/* What is said, and not there. */
static void missing_lists(void **state)
{
    static const struct {
        dra_model_config config;
        const char      *text;
    } rows[] = {{{.n_order = 2}, "order: 2 are said, but there are none"},
                {{.n_pattern = 1}, "pattern: 1 are said, but there are none"},
                {{.n_drops = 3}, "drops: 3 are said, but there are none"},
                {{.mixers = 2}, "mixer: 2 are said, but there are none"},
                {{.mixers = 17}, "mixer: 17 are said, expected 0 to 16"},
                {{.n_shifts = 257}, "shifts: 257 are said, expected 0 to 256"},
                {{.n_order = -1}, "order: -1 are said, expected 0 to 256"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_error  err = {0};
        dra_model *m;
        assert_int_equal(dra_model_create(&rows[i].config, &m, &err), DRA_ERR_VALUE);
        assert_string_equal(err.text, rows[i].text);
    }
}

/* A config is small: what is large is behind pointers. */
static void sizes(void **state) { assert_true(sizeof(dra_model_config) < 1024); }

/* A stack that reads itself has no copy. */
static void circles(void **state)
{
    dra_error         err = {0};
    dra_model_config *copy, c = {.vocab = 9, .dim = 8, .depth = 1, .context_stack = &c};
    dra_model        *m;
    assert_int_equal(dra_model_config_copy(&c, &copy, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "config: more than 8 stacks that read each other");
    assert_null(copy);
    assert_int_equal(dra_model_create(&c, &m, &err), DRA_ERR_VALUE);
    assert_null(m);
    dra_model_config_destroy(NULL);
}

/* What is changed in place is one's own; a stack that was borrowed is copied first. */
static void changes(void **state)
{
    CHECK_CONFIG(c);
    dra_error        err = {0};
    char             dropped[80];
    dra_model_config encoder = {.name = "encoder", .vocab = 9};
    dra_model_config plain = {.vocab = 9, .dim = 8, .depth = 1, .context_stack = &encoder};
    const char      *refused = "config: expected one that was read or copied";
    assert_int_equal(dra_model_config_set(&plain, "dim", "4", &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, refused);
    assert_int_equal(dra_model_config_graft(&plain, "gru", &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, refused);
    assert_int_equal(dra_model_config_fit(&plain, 0, NULL, dropped, sizeof dropped, &err),
                     DRA_ERR_VALUE);
    assert_string_equal(err.text, refused);
    expect_ok(dra_model_config_copy(&plain, &c, &err), &err);
    expect_ok(dra_model_config_set(c, "encoder.vocab", "7", &err), &err);
    assert_int_equal(c->context_stack->vocab, 7);
    c->context_stack = &encoder;
    expect_ok(dra_model_config_set(c, "encoder.vocab", "6", &err), &err);
    assert_int_equal(c->context_stack->vocab, 6);
    assert_int_equal(encoder.vocab, 9);
}

/* What docs/c-interface.md shows. */
static void as_the_page_says(void **state)
{
    dra_error        err = {0};
    dra_model       *model = NULL, *other = NULL;
    dra_status       st;
    dra_model_config made = {
        .vocab = 256, .dim = 64, .depth = 2, .mixer = &(dra_mixer_config){.a.memory = "gru"}};
    st = dra_model_create(&made, &model, &err);
    dra_model_config *read = NULL;
    if (st == DRA_OK) st = dra_preset_config("dra-gru-tiny", &read, &err);
    if (st == DRA_OK) st = dra_model_config_set(read, "depth", "1", &err);
    if (st == DRA_OK) st = dra_model_create(read, &other, &err);
    dra_model_config_destroy(read);
    expect_ok(st, &err);
    assert_int_equal(dra_model_config_of(model)->dim, 64);
    assert_int_equal(dra_model_config_of(other)->depth, 1);
    dra_model_destroy(model);
    dra_model_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets), cmocka_unit_test(stacks),
        cmocka_unit_test(lists),   cmocka_unit_test(missing_lists),
        cmocka_unit_test(sizes),   cmocka_unit_test(circles),
        cmocka_unit_test(changes), cmocka_unit_test(as_the_page_says),
    };
    return check_main("copies of configs", NULL, 0, tests, COUNT(tests));
}
