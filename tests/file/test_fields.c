/* Numbers of all tables of settings: a 0 that is given is 0, or is refused. */
#include "check.h"
#include "dra/model.h"
#include "file/fields.h"
#include "formats/format.h"
#include "formats/xt/xt.h"
#include "model/model.h"
#include "train/train.h"

typedef union any_settings { /* larger than every struct that a table fills */
    dra_model_config model;
    dra_train_config train;
    dra_xt           xt;
} any_settings;

static bool is_number(const dra_field *f)
{
    return f->kind == DRA_FIELD_INT || f->kind == DRA_FIELD_REAL;
}

/* One number set to 0 in a struct of defaults. */
static void set_zero(const dra_field *table, const dra_field *f, const char *name)
{
    any_settings *s = test_calloc(1, sizeof *s);
    dra_error     err = {0};
    char          expected[300];
    dra_arena     memory = {0};
    const bool    ok = dra_fields_set_own(table, s, NULL, &memory, name, "0", &err) == DRA_OK;
    if (ok && dra_field_zero_is_unset(f)) fail_msg("%s: 0 is read as %s", name, f->unset);
    if (ok) {
        assert_int_equal(dra_fields_has(table, name, s), f->zero || f->given);
    } else if (f->min <= 0) {
        snprintf(expected, sizeof expected,
                 "setting: %s is 0, which stands for the default (%s); leave it out", name,
                 f->unset);
        assert_string_equal(err.text, expected);
    }
    dra_arena_free(&memory);
    test_free(s);
}

static size_t set_zeros(const dra_field *table)
{
    const dra_field *f;
    char             name[120];
    size_t           n = 0;
    for (size_t i = 0; dra_fields_at(table, i, name, sizeof name, &f); i++) {
        if (!is_number(f)) continue;
        set_zero(table, f, name);
        n++;
    }
    return n;
}

static void zeros_are_zero_or_refused(void **unused)
{
    assert_true(set_zeros(dra_model_fields()) > 70);
    assert_true(set_zeros(dra_train_fields()) > 30);
    assert_true(set_zeros(dra_xt_stack_fields()) > 20);
    for (int w = DRA_XT_TOKENS; w <= DRA_XT_IMAGE; w++)
        assert_true(set_zeros(dra_xt_fields((dra_xt_wrapper)w)) > 20);
}

/* A row of a run's settings that says nothing of its default has 0. */
static void defaults_of_runs_are_told(void **unused)
{
    CHECK_CONFIG(model);
    dra_train_config c = {0};
    dra_model       *m;
    dra_error        err = {0};
    const dra_field *f;
    char             name[120];
    assert_int_equal(dra_preset_config("dra-ema-tiny", &model, &err), DRA_OK);
    assert_int_equal(dra_model_create(model, &m, &err), DRA_OK);
    assert_int_equal(dra_train_config_complete(&c, m, &err), DRA_OK);
    for (size_t i = 0; dra_fields_at(dra_train_fields(), i, name, sizeof name, &f); i++)
        if (is_number(f) && !f->zero && !f->unset && dra_fields_has(dra_train_fields(), name, &c))
            fail_msg("%s has a default that its row does not tell", name);
    dra_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(zeros_are_zero_or_refused),
                                       cmocka_unit_test(defaults_of_runs_are_told)};
    return check_main("fields", NULL, 0, tests, COUNT(tests));
}
