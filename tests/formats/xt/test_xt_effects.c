/* Every option of the tables of x-transformers in every wrapper: one that is taken changes
 * something, and what it makes can be read. tests/data/xt-effects.json has the wrappers, a value
 * for each option that is not just true, what some need besides, and those that change nothing,
 * with the reason. tests/parity/x_options.py compares the same models with the library. */
#include <jansson.h>

#include "model/effect.h"
#include "formats/xt/xt.h"

typedef struct subject { /* a wrapper in which options are tried */
    const json_t *row;
    const char   *name, *prefix; /* of a side of XTransformer; "" */
    bool          cross;         /* it attends to a context */
    effect_model  without;       /* the last one, which the next option may have in common */
    int           accepted, refused, seen[EFFECT_NOTHING + 1], explained, unexplained;
} subject;

static json_t *file;

/* ---- names ----------------------------------------------------------------------------------- */

static bool begins(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

/* An option without the prefix of a side, and attn_* instead of cross_attn_*. */
static const char *bare(const subject *s, const char *option)
{
    if (begins(option, s->prefix)) option += strlen(s->prefix);
    const bool own = strcmp(option, "cross_attn_dim_context") == 0;
    return begins(option, "cross_attn_") && !own ? option + strlen("cross_") : option;
}

static bool is_cross(const subject *s, const char *option)
{
    const char *is = option + (begins(option, s->prefix) ? strlen(s->prefix) : 0);
    return is != bare(s, option);
}

static bool is_of_stack(const subject *s, const char *option)
{
    return begins(option, "cross_attn_") || dra_xt_is_known(dra_xt_stack_fields(), bare(s, option));
}

/* ---- configs --------------------------------------------------------------------------------- */

static void put(const subject *s, json_t *config, const char *option, json_t *value)
{
    json_t *net = json_object_get(config, "net"),
           *own = strcmp(option, "release") == 0 ? NULL : net;
    json_t *to = own && strcmp(option, "mask_id") != 0 ? own : config;
    json_t *stack = json_object_get(to, "attn_layers");
    if (stack && is_of_stack(s, option)) to = stack;
    if (json_is_null(value))
        json_object_del(to, option);
    else
        json_object_set(to, option, value);
}

/* What an option needs, spelled as the option is. */
static void put_all(const subject *s, json_t *config, const char *option, const char *list)
{
    const json_t *more = json_object_get(json_object_get(file, list), bare(s, option));
    const char   *key;
    json_t       *v;
    json_object_foreach((json_t *)(uintptr_t)more, key, v)
    {
        char       name[80];
        const bool attention = begins(key, "attn_") && is_cross(s, option);
        if (strcmp(key, "cross_attend") == 0 && s->cross) continue;
        snprintf(name, sizeof name, "%s%s%s", strcmp(key, "release") == 0 ? "" : s->prefix,
                 attention ? "cross_" : "", key);
        put(s, config, name, v);
    }
}

/* A value that is not the default. */
static json_t *value_of(const subject *s, const char *option, const dra_field *f)
{
    const json_t *v = json_object_get(json_object_get(file, "values"), bare(s, option));
    if (strcmp(bare(s, option), "custom_layers") == 0 && s->cross)
        return strcmp(s->name, "CrossAttender") == 0
                   ? json_pack("[s, s, s]", "c", "f", "c")
                   : json_pack("[s, s, s, s]", "a", "c", "f", "c");
    if (v) return json_deep_copy(v);
    if (f->kind != DRA_FIELD_BOOL && f->kind != DRA_FIELD_SWITCH)
        fail_msg("%s has no value in xt-effects.json", option);
    return json_boolean(f->kind == DRA_FIELD_BOOL);
}

static json_t *config_of(const subject *s)
{
    json_t *config = json_deep_copy(json_object_get(s->row, "config"));
    json_object_set_new(config, "model_type", json_string("x-transformers"));
    return config;
}

/* ---- one option ------------------------------------------------------------------------------ */

/* "a|b*": a, or what begins with b. */
static bool fits(const char *list, const char *name)
{
    for (const char *at = list; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t n = strcspn(at, "|*");
        if (strncmp(at, name, n) == 0 && (at[n] == '*' || name[n] == 0)) return true;
    }
    return false;
}

static bool is_explained(const subject *s, const char *option)
{
    const json_t *row;
    size_t        i;
    json_array_foreach(json_object_get(file, "explained"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "what")), "nothing") == 0 &&
            fits(json_string_value(json_object_get(row, "subjects")), s->name) &&
            fits(json_string_value(json_object_get(row, "options")), bare(s, option)))
            return true;
    }
    return false;
}

static void count(subject *s, const char *option, effect_kind what)
{
    const bool explained = is_explained(s, option);
    s->accepted++;
    s->seen[what]++;
    if ((what == EFFECT_NOTHING) == explained) {
        s->explained += explained;
        return;
    }
    s->unexplained++;
    print_error("%s: %s changes %s%s\n", s->name, option, effect_names[what],
                explained ? ", which it should not" : "");
}

static void open_without(subject *s, json_t *config)
{
    char *text = json_dumps(config, JSON_SORT_KEYS);
    assert_non_null(text);
    if (s->without.text && strcmp(s->without.text, text) == 0) {
        free(text);
        return;
    }
    effect_close(&s->without);
    effect_open(&s->without, text);
}

static void try_option(subject *s, const char *option, const dra_field *f)
{
    json_t      *config = config_of(s), *without, *value = value_of(s, option, f);
    effect_model with;
    put_all(s, config, option, "has");
    without = json_deep_copy(config);
    put_all(s, config, option, "also");
    put(s, config, option, value);
    effect_open(&with, json_dumps(config, JSON_SORT_KEYS));
    if (!with.model) {
        s->refused++;
    } else if (!json_equal(config, without)) {
        open_without(s, without);
        if (!s->without.model) fail_msg("%s without %s: %s", s->name, option, s->without.err.text);
        count(s, option, effect_of(&s->without, &with));
    }
    effect_close(&with);
    json_decref(config);
    json_decref(without);
    json_decref(value);
}

/* ---- one wrapper ----------------------------------------------------------------------------- */

static const char *const of_sides[] = {"num_tokens", "max_seq_len", "emb_dropout",
                                       "use_abs_pos_emb", "num_memory_tokens"};

static bool is_of_side(const char *name)
{
    for (size_t i = 0; i < COUNT(of_sides); i++)
        if (strcmp(name, of_sides[i]) == 0) return true;
    return false;
}

static void try_named(subject *s, const char *prefix, const dra_field *f)
{
    char name[80];
    snprintf(name, sizeof name, "%s%s%s", s->prefix, prefix, f->name);
    try_option(s, name, f);
}

static void try_tables(subject *s)
{
    const json_t *config = json_object_get(s->row, "config"), *net = json_object_get(config, "net");
    const char   *wrapper = json_string_value(json_object_get(net ? net : config, "wrapper"));
    int           w = 0;
    while (dra_xt_wrappers[w] && strcmp(dra_xt_wrappers[w], wrapper) != 0) w++;
    const dra_field *outer = dra_xt_fields(w == DRA_XT_PAIR ? DRA_XT_TOKENS : (dra_xt_wrapper)w);
    for (const dra_field *f = outer; f->name; f++)
        if (f->kind != DRA_FIELD_OBJECT && (!s->prefix[0] || is_of_side(f->name)))
            try_named(s, "", f);
    for (const dra_field *f = dra_xt_stack_fields(); f->name; f++) {
        if (f->kind == DRA_FIELD_CHOICE || (s->prefix[0] && strcmp(f->name, "dim") == 0)) continue;
        try_named(s, "", f);
        if (s->cross && begins(f->name, "attn_")) try_named(s, "cross_", f);
    }
    if (s->cross)
        try_named(s, "", &(dra_field){.name = "cross_attn_dim_context", .kind = DRA_FIELD_INT});
    if (json_object_get(config, "mask_id"))
        try_named(s, "", &(dra_field){.name = "mask_id", .kind = DRA_FIELD_INT});
    if (strcmp(s->prefix, "enc_") != 0) return;
    try_option(s, "dim", &(dra_field){.name = "dim", .kind = DRA_FIELD_INT});
    try_option(s, "tie_token_emb", &(dra_field){.name = "tie_token_emb", .kind = DRA_FIELD_BOOL});
}

static void options_have_effects(void **state)
{
    const json_t *row;
    size_t        i;
    int accepted = 0, refused = 0, explained = 0, unexplained = 0, seen[EFFECT_NOTHING + 1] = {0};
    json_array_foreach(json_object_get(file, "subjects"), i, row)
    {
        const char *prefix = json_string_value(json_object_get(row, "prefix"));
        subject     s = {.row = row,
                         .name = json_string_value(json_object_get(row, "name")),
                         .prefix = prefix ? prefix : "",
                         .cross = json_is_true(json_object_get(row, "cross"))};
        try_tables(&s);
        effect_close(&s.without);
        print_message("# %-42s %3d accepted %3d refused\n", s.name, s.accepted, s.refused);
        accepted += s.accepted, refused += s.refused;
        explained += s.explained, unexplained += s.unexplained;
        for (int k = 0; k <= EFFECT_NOTHING; k++) seen[k] += s.seen[k];
    }
    print_message("# %d accepted, %d refused; they change", accepted, refused);
    for (int k = 0; k <= EFFECT_NOTHING; k++) print_message(" %s %d,", effect_names[k], seen[k]);
    print_message(" %d explained, %d unexplained\n", explained, unexplained);
    assert_true(accepted > 1800);
    assert_int_equal(unexplained, 0);
}

int main(void)
{
    json_error_t            e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(options_have_effects)};
    file = json_load_file("tests/data/xt-effects.json", 0, &e);
    const int failed = file ? check_main("xt_effects", NULL, 0, tests, COUNT(tests)) : 1;
    json_decref(file);
    return failed;
}
