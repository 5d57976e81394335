/* Options of a program's own memory: its struct from a C program, from JSON and from settings, back
 * to JSON, in their ranges, and what its functions see of them. */
#include <stddef.h>
#include <string.h>

#include "check.h"
#include "dra/model.h"
#include "setting.h"

typedef struct gain_options {
    double  gain; /* 0: 2 */
    int64_t times;
    bool    flips;
    int     sign; /* plus, minus, none */
} gain_options;

static const char *const signs[] = {"plus", "minus", "none", NULL};

static const dra_memory_option options[] = {
    {"gain", DRA_OPTION_REAL, offsetof(gain_options, gain), 0, 100, .unset = "2"},
    {"times", DRA_OPTION_INT, offsetof(gain_options, times), 0, 9},
    {"flips", DRA_OPTION_BOOL, offsetof(gain_options, flips)},
    {"sign", DRA_OPTION_CHOICE, offsetof(gain_options, sign), .choices = signs},
    {0}};

static const char *const retrievals[] = {"none", "time", NULL};

static void declare(const dra_memory_sizes *s, const char *prefix, dra_specs *params,
                    dra_specs *state)
{
    dra_specs_add(state, prefix,
                  &(dra_spec){.name = "last", .shape = DRA_SHAPE(s->H, s->stream[1].width)});
}

/* The value times gain^times, with its sign. */
static void step(dra_graph *g, const dra_memory_call *c, dra_memory_result *r)
{
    const gain_options *o = c->sizes->options;
    double              by = o->flips || o->sign == 1 ? -1 : o->sign == 2 ? 0 : 1;
    for (int64_t i = 0; i < o->times; i++) by *= o->gain > 0 ? o->gain : 2;
    r->state[0] = c->x[1];
    for (int i = 0; i < 2; i++) r->item[i] = dra_affine(g, c->x[i], by, 0);
}

static const dra_memory        gain = {.name = "gain",
                                       .retrievals = retrievals,
                                       .declare = declare,
                                       .step = step,
                                       .options_size = sizeof(gain_options),
                                       .options = options};
static const dra_memory        plain = {.name = "plain",
                                        .retrievals = retrievals,
                                        .declare = declare,
                                        .step = step,
                                        .options_size = sizeof(gain_options)};
static const dra_memory *const all[] = {&gain, &plain, NULL};

#define MODEL "{\"model_type\": \"dra\", \"vocab\": 8, \"dim\": 4, \"depth\": 1, \"mixer\": "

static dra_status parse(const char *mixer, dra_model_config **out, dra_error *err)
{
    char text[600];
    snprintf(text, sizeof text, MODEL "%s}", mixer);
    return dra_model_config_parse_own("text", text, strlen(text), all, out, err);
}

static gain_options options_of(const dra_memory_config *c)
{
    gain_options o;
    memcpy(&o, c->options, sizeof o);
    return o;
}

static void expect_options(const dra_memory_config *c, gain_options e)
{
    const gain_options o = options_of(c);
    assert_ptr_equal(c->own, &gain);
    assert_true(o.gain == e.gain && o.times == e.times && o.flips == e.flips && o.sign == e.sign);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void reads_and_writes(void **state)
{
    static const char *const mixers[] = {
        "{\"memory\": \"own:gain\", \"gain\": 3, \"times\": 2, \"flips\": true, "
        "\"sign\": \"none\"}",
        "{\"sign\": \"none\", \"flips\": true, \"times\": 2, \"gain\": 3, "
        "\"memory\": \"own:gain\"}"};
    const gain_options e = {3, 2, true, 2};
    dra_error          err = {0};
    for (size_t i = 0; i < COUNT(mixers); i++) {
        CHECK_CONFIG(c);
        CHECK_CONFIG(again);
        char text[2000];
        expect_ok(parse(mixers[i], &c, &err), &err);
        expect_options(&c->mixer[0].a, e);
        assert_true(dra_model_config_text(c, text, sizeof text) < sizeof text);
        assert_non_null(strstr(text, "\"memory\": \"own:gain\",\n    \"gain\": 3"));
        expect_ok(dra_model_config_parse_own("again", text, strlen(text), all, &again, &err), &err);
        expect_options(&again->mixer[0].a, e);
    }
}

static void are_of_one_memory(void **state)
{
    dra_error err = {0};
    CHECK_CONFIG(c);
    expect_ok(parse("[{\"memory\": \"own:gain\", \"times\": 1}, {\"blend\": \"learned\", \"b\": "
                    "{\"times\": 2, \"memory\": \"own:gain\"}}]",
                    &c, &err),
              &err);
    expect_options(&c->mixer[0].a, (gain_options){.times = 1});
    expect_options(&c->mixer[1].b, (gain_options){.times = 2});
    assert_null(c->mixer[1].a.own);
}

static void settings(void **state)
{
    dra_error err = {0};
    CHECK_CONFIG(c);
    expect_ok(parse("{\"memory\": \"gru\"}", &c, &err), &err);
    expect_ok(dra_model_config_set_own(c, all, "mixer.memory", "own:gain", &err), &err);
    expect_ok(dra_model_config_set_own(c, all, "mixer.times", "3", &err), &err);
    expect_ok(dra_model_config_set(c, "mixer.sign", "minus", &err), &err);
    expect_options(&c->mixer[0].a, (gain_options){.times = 3, .sign = 1});
    expect_ok(dra_model_config_set_own(c, all, "mixer.memory", "own:gain", &err), &err);
    expect_options(&c->mixer[0].a, (gain_options){.times = 3, .sign = 1});
    /* Another memory does not have them. */
    expect_ok(dra_model_config_set(c, "mixer.memory", "gru", &err), &err);
    assert_int_equal(options_of(&c->mixer[0].a).times, 0);
}

static void refuses(const char *mixer, const char *text)
{
    dra_error err = {0};
    CHECK_CONFIG(c);
    assert_int_not_equal(parse(mixer, &c, &err), DRA_OK);
    assert_string_equal(err.text, text);
}

static void refuses_json(void **state)
{
    refuses("{\"memory\": \"own:gain\", \"tims\": 1}",
            "text: mixer.tims is not a key; did you mean times?");
    refuses("{\"memory\": \"own:gain\", \"times\": 10}",
            "text: mixer.times is 10, expected a whole number from 0 to 9");
    refuses("{\"memory\": \"own:gain\", \"gain\": 0}",
            "text: mixer.gain is 0, which stands for the default (2); leave it out");
    refuses("{\"memory\": \"own:gain\", \"sign\": \"both\"}",
            "text: mixer.sign is \"both\", expected one of plus, minus, none");
    refuses("{\"memory\": \"gru\", \"times\": 1}",
            "text: mixer.times is not a key; did you mean timescales?");
    refuses("{\"memory\": \"own:plain\", \"times\": 1}",
            "text: mixer.times is not a key; did you mean timescales?");
}

/* ---- C programs ------------------------------------------------------------------------------ */

static void refuses_config(const dra_memory *own, const gain_options *o, const char *text)
{
    dra_error        err = {0};
    dra_mixer       *m;
    dra_mixer_config c = {.dim = 4, .heads = 2, .a = {.own = own}};
    dra_memory_set_options(&c.a, o);
    assert_int_not_equal(dra_mixer_create(&c, &m, &err), DRA_OK);
    assert_string_equal(err.text, text);
}

static void refuses_tables(void **state)
{
    static const dra_memory_option taken[] = {{"window", DRA_OPTION_INT, 0, 0, 1}, {0}};
    static const dra_memory_option beyond[] = {{"more", DRA_OPTION_INT, 24, 0, 1}, {0}};
    static const dra_memory_option crooked[] = {{"more", DRA_OPTION_INT, 4, 0, 1}, {0}};
    static const dra_memory_option chosen[] = {{"more", DRA_OPTION_CHOICE, 0}, {0}};
    const gain_options             none = {0}, much = {.times = 12}, other = {.sign = 3};
    dra_memory                     m = gain;
    refuses_config(&gain, &much, "gain: times is 12, expected 0 to 9");
    refuses_config(&gain, &other, "gain: sign is 3, expected 0 to 2");
    m.options = taken;
    refuses_config(&m, &none, "memory gain: option window: a key of mixers is called so");
    m.options = beyond;
    refuses_config(&m, &none, "memory gain: option more has offset 24 in a struct of 24 bytes");
    m.options = crooked;
    refuses_config(&m, &none, "memory gain: option more has offset 4 in a struct of 24 bytes");
    m.options = chosen;
    refuses_config(&m, &none, "memory gain: option more has no choices");
    m.options = options, m.options_size = DRA_OPTIONS_BYTES + 1;
    refuses_config(&m, &none, "memory gain: options have 129 bytes, expected at most 128");
}

static void refuses_options_of_nobody(void **state)
{
    dra_error        err = {0};
    dra_mixer       *m;
    dra_mixer_config c = {.dim = 4, .heads = 2, .a = {"gru", .options = {1}}};
    assert_int_equal(dra_mixer_create(&c, &m, &err), DRA_ERR_VALUE);
    assert_string_equal(err.text, "gru: options are set, which only a program's own memory has");
}

/* ---- what they do ---------------------------------------------------------------------------- */

enum { WIDTH = 4, TOKENS = 3 };

static void read_with(gain_options o, dra_real y[TOKENS * WIDTH])
{
    dra_error        err = {0};
    dra_mixer_config c = {.dim = WIDTH, .heads = 2, .a = {.own = &gain}};
    dra_device      *cpu;
    dra_mixer       *m;
    dra_reader      *r;
    dra_states      *s;
    dra_real         x[TOKENS * WIDTH];
    for (int i = 0; i < TOKENS * WIDTH; i++) x[i] = (dra_real)(i % 5) - 2;
    dra_memory_set_options(&c.a, &o);
    expect_ok(dra_device_create_cpu(NULL, &cpu, &err), &err);
    expect_ok(dra_mixer_create(&c, &m, &err), &err);
    expect_ok(dra_reader_create(cpu, dra_mixer_module(m), &r, &err), &err);
    expect_ok(dra_reader_start(r, 1, &err), &err);
    expect_ok(dra_states_create(cpu, dra_mixer_module(m)->state, 1, &s, &err), &err);
    expect_ok(dra_reader_read(r, s, TOKENS, NULL, 1, &(dra_named){"x", x, sizeof x}, &err), &err);
    memcpy(y, dra_reader_result(r, "y"), sizeof x);
    dra_states_destroy(s), dra_reader_destroy(r), dra_mixer_destroy(m), dra_device_destroy(cpu);
}

static void steps_see_them(void **state)
{
    dra_real one[TOKENS * WIDTH], y[TOKENS * WIDTH];
    read_with((gain_options){0}, one);
    for (int sign = -1; sign <= 1; sign++) {
        read_with((gain_options){.gain = 4, .times = 2, .flips = sign < 0, .sign = sign ? 0 : 2},
                  y);
        for (int i = 0; i < TOKENS * WIDTH; i++)
            assert_true(y[i] == (dra_real)(sign * 16) * one[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes), cmocka_unit_test(are_of_one_memory),
        cmocka_unit_test(settings),         cmocka_unit_test(refuses_json),
        cmocka_unit_test(refuses_tables),   cmocka_unit_test(refuses_options_of_nobody),
        cmocka_unit_test(steps_see_them)};
    return check_main("own options", NULL, 0, tests, COUNT(tests));
}
