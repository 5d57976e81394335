/* Options: what is accepted, what is refused and in which words, what help shows. */
#include "options/manual.h"
#include "options/value.h"
#include "verbs/verbs.h"

#include "dra/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct args {
    bool        json, check;
    int64_t     tokens, seed;
    double      temperature, shift;
    const char *out, *prompt, *name;
    int         mode;
    cli_list    set, files;
};

static const char *const modes[] = {"fast", "exact", "replay", NULL};

static const struct args defaults = {
    .check = true, .tokens = 128, .temperature = 0.8, .prompt = "hello", .mode = 1};

static const cli_option options[] = {
    {"json", CLI_FLAG, offsetof(struct args, json), 0, 0, "JSON explained", .brief = 'j'},
    {"check", CLI_FLAG, offsetof(struct args, check), 0, 0, "check explained"},
    {"tokens", CLI_INT, offsetof(struct args, tokens), 1, 65536, "tokens explained", .brief = 'n'},
    {"seed", CLI_INT, offsetof(struct args, seed), 0, 0, "seed explained"},
    {"temperature", CLI_REAL, offsetof(struct args, temperature), 0, 10, "temperature explained"},
    {"shift", CLI_REAL, offsetof(struct args, shift), 0, 0, "shift explained"},
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0, "out explained", "DIR", NULL, CLI_REQUIRED,
     .brief = 'o'},
    {"prompt", CLI_TEXT, offsetof(struct args, prompt), 0, 0, "prompt explained"},
    {"mode", CLI_CHOICE, offsetof(struct args, mode), 0, 0, "mode explained", NULL, modes},
    {"set", CLI_LIST, offsetof(struct args, set), 0, 0, "set explained", "KEY=VALUE", .brief = 's'},
    {"name", CLI_TEXT, offsetof(struct args, name), 0, 0, "name explained", "NAME", NULL,
     CLI_POSITIONAL},
    {"files", CLI_LIST, offsetof(struct args, files), 0, 0, "files explained", "FILE", NULL,
     CLI_POSITIONAL},
};

static const cli_note examples[] = {{"dra try -s a=1", "no"}, {"dra try --out d", "out"}, {0}};

static const cli_verb verb = {.name = "try",
                              .summary = "tries things",
                              .options = options,
                              .n_options = COUNT(options),
                              .defaults = &defaults,
                              .args_size = sizeof defaults,
                              .examples = examples};

enum { MOST = 8 };

static cli_outcome parse(const char *const *words, struct args *a, char *why)
{
    char *argv[MOST + 1];
    int   argc = 0;
    for (; argc < MOST && words[argc]; argc++) argv[argc] = (char *)(uintptr_t)words[argc];
    return cli_parse(&verb, argc, argv, a, why);
}

/* The fields as one line of text, so that a table can say what is expected. */
static void describe(const struct args *a, char *text, size_t size)
{
    int n = snprintf(text, size, "%s%s%lld %lld %g %g %s %s %s", a->json ? "json " : "",
                     a->check ? "check " : "", (long long)a->tokens, (long long)a->seed,
                     a->temperature, a->shift, a->out ? a->out : "-", a->prompt, modes[a->mode]);
    for (size_t i = 0; i < a->set.count; i++)
        n += snprintf(text + n, size - (size_t)n, " set:%s", a->set.text[i]);
    if (a->name) n += snprintf(text + n, size - (size_t)n, " name:%s", a->name);
    for (size_t i = 0; i < a->files.count; i++)
        n += snprintf(text + n, size - (size_t)n, " file:%s", a->files.text[i]);
}

static const struct {
    const char *words[MOST], *expected;
} accepted[] = {
    {{"--out", "d"}, "check 128 0 0.8 0 d hello exact"},
    {{"--out=d"}, "check 128 0 0.8 0 d hello exact"},
    {{"--out="}, "check 128 0 0.8 0  hello exact"},
    {{"--out=a=b"}, "check 128 0 0.8 0 a=b hello exact"},
    {{"--out=--json"}, "check 128 0 0.8 0 --json hello exact"},
    {{"--out=d", "--json"}, "json check 128 0 0.8 0 d hello exact"},
    {{"--out=d", "--json=off", "--no-check"}, "128 0 0.8 0 d hello exact"},
    {{"--out=d", "--json=yes", "--check=0"}, "json 128 0 0.8 0 d hello exact"},
    {{"--out=d", "--tokens", "1"}, "check 1 0 0.8 0 d hello exact"},
    {{"--out=d", "--tokens=65536"}, "check 65536 0 0.8 0 d hello exact"},
    {{"--out=d", "--seed", "-5"}, "check 128 -5 0.8 0 d hello exact"},
    {{"--out=d", "--seed=9223372036854775807"},
     "check 128 9223372036854775807 0.8 0 d hello exact"},
    {{"--out=d", "--seed=-9223372036854775808"},
     "check 128 -9223372036854775808 0.8 0 d hello exact"},
    {{"--out=d", "--temperature", "0"}, "check 128 0 0 0 d hello exact"},
    {{"--out=d", "--temperature=1e1"}, "check 128 0 10 0 d hello exact"},
    {{"--out=d", "--shift", "-1.5e-3"}, "check 128 0 0.8 -0.0015 d hello exact"},
    {{"--out=d", "--prompt", ""}, "check 128 0 0.8 0 d  exact"},
    {{"--out=d", "--prompt", "-x"}, "check 128 0 0.8 0 d -x exact"},
    {{"--out=d", "--mode", "replay"}, "check 128 0 0.8 0 d hello replay"},
    {{"--out=d", "--set", "a=1", "--set=b=2"}, "check 128 0 0.8 0 d hello exact set:a=1 set:b=2"},
    {{"-o", "d", "-n", "5"}, "check 5 0 0.8 0 d hello exact"},
    {{"-od", "-n5", "-j"}, "json check 5 0 0.8 0 d hello exact"},
    {{"-o=d", "-n=5"}, "check 5 0 0.8 0 d hello exact"},
    {{"-o", "-x", "-s", "a=1", "-sb=2"}, "check 128 0 0.8 0 -x hello exact set:a=1 set:b=2"},
    {{"-o=-j"}, "check 128 0 0.8 0 -j hello exact"},
    {{"n", "--out=d"}, "check 128 0 0.8 0 d hello exact name:n"},
    {{"n", "f", "--out=d", "g"}, "check 128 0 0.8 0 d hello exact name:n file:f file:g"},
    {{"--out=d", "-", "-7"}, "check 128 0 0.8 0 d hello exact name:- file:-7"},
    {{"--out=d", "--", "--json", "--"}, "check 128 0 0.8 0 d hello exact name:--json file:--"},
};

static void accepts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(accepted); i++) {
        struct args a;
        char        why[CLI_WHY], text[512];
        if (parse(accepted[i].words, &a, why) != CLI_PARSED) fail_msg("row %zu: %s", i, why);
        describe(&a, text, sizeof text);
        assert_string_equal(text, accepted[i].expected);
        assert_string_equal(why, "");
        cli_release(&verb, &a);
    }
}

static const struct {
    const char *words[MOST], *why;
} refused[] = {
    {{NULL}, "--out DIR is required, as in: dra try --out d"},
    {{"--json"}, "--out DIR is required, as in: dra try --out d"},
    {{"--out"}, "--out: expected a value, found nothing"},
    {{"--out", "--json"},
     "--out: expected a value, found '--json'; if that is meant, write --out=VALUE"},
    {{"--out=d", "--out=e"}, "--out: given twice, expected once"},
    {{"--json", "--no-json"}, "--json: given twice, expected once"},
    {{"--json=maybe"}, "--json: expected on or off, found 'maybe'"},
    {{"--json="}, "--json: expected on or off, found ''"},
    {{"--tokens", "0"}, "--tokens: expected a whole number from 1 to 65536, found '0'"},
    {{"--tokens", "65537"}, "--tokens: expected a whole number from 1 to 65536, found '65537'"},
    {{"--tokens", "-1"}, "--tokens: expected a whole number from 1 to 65536, found '-1'"},
    {{"--tokens", "12x"}, "--tokens: expected a whole number from 1 to 65536, found '12x'"},
    {{"--tokens", "1.5"}, "--tokens: expected a whole number from 1 to 65536, found '1.5'"},
    {{"--tokens", "0x10"}, "--tokens: expected a whole number from 1 to 65536, found '0x10'"},
    {{"--tokens", " 1"}, "--tokens: expected a whole number from 1 to 65536, found ' 1'"},
    {{"--tokens", "1-"}, "--tokens: expected a whole number from 1 to 65536, found '1-'"},
    {{"--tokens="}, "--tokens: expected a whole number from 1 to 65536, found ''"},
    {{"--tokens"}, "--tokens: expected a whole number from 1 to 65536, found nothing"},
    {{"--seed", "9223372036854775808"},
     "--seed: expected a whole number, found '9223372036854775808'"},
    {{"--seed", "-"}, "--seed: expected a whole number, found '-'"},
    {{"--temperature", "10.01"}, "--temperature: expected a number from 0 to 10, found '10.01'"},
    {{"--temperature", "nan"}, "--temperature: expected a number from 0 to 10, found 'nan'"},
    {{"--shift", "inf"}, "--shift: expected a number, found 'inf'"},
    {{"--shift", "1e999"}, "--shift: expected a number, found '1e999'"},
    {{"--shift", "1e-999"}, "--shift: expected a number, found '1e-999'"},
    {{"--shift", "1e"}, "--shift: expected a number, found '1e'"},
    {{"--shift", "1,5"}, "--shift: expected a number, found '1,5'"},
    {{"--shift", "."}, "--shift: expected a number, found '.'"},
    {{"--mode", "quick"}, "--mode: expected fast|exact|replay, found 'quick'"},
    {{"--mode", "exatc"}, "--mode: no such choice: 'exatc'; did you mean exact?"},
    {{"--mode", ""}, "--mode: expected fast|exact|replay, found ''"},
    {{"--josn"}, "no such option: '--josn'; did you mean --json?"},
    {{"-json"}, "no such option: '-json'; did you mean --json?"},
    {{"--temp=1"}, "no such option: '--temp'; did you mean --temperature?"},
    {{"--max-tokens=4"}, "no such option: '--max-tokens'; did you mean --tokens?"},
    {{"--n_predict", "4"}, "no such option: '--n_predict'; did you mean --tokens?"},
    {{"--output-dir=d"}, "no such option: '--output-dir'; did you mean --out?"},
    {{"--tofuuu"}, "no such option: '--tofuuu'; 'dra try --help' lists them"},
    {{"--helo"}, "no such option: '--helo'; did you mean --help?"},
    {{"--zebra"}, "no such option: '--zebra'; 'dra try --help' lists them"},
    {{"-tokens", "3"}, "no such option: '-tokens'; did you mean --tokens?"},
    {{"-out=d"}, "no such option: '-out'; did you mean --out?"},
    {{"-n"}, "--tokens: expected a whole number from 1 to 65536, found nothing"},
    {{"-n", "0"}, "--tokens: expected a whole number from 1 to 65536, found '0'"},
    {{"-n5", "--tokens=6"}, "--tokens: given twice, expected once"},
    {{"-o", "-j"}, "--out: expected a value, found '-j'; if that is meant, write --out=VALUE"},
    {{"-jn"}, "no such option: '-jn'; 'dra try --help' lists them"},
    {{"-q"}, "no such option: '-q'; 'dra try --help' lists them"},
    {{"--=3"}, "no such option: '--'; 'dra try --help' lists them"},
    {{"--no-tokens"}, "no such option: '--no-tokens'; did you mean --tokens?"},
    {{"--name", "n"}, "no such option: '--name'; 'dra try --help' lists them"},
    {{"--tokens", "a\nb"}, "--tokens: expected a whole number from 1 to 65536, found 'a?b'"},
};

static void refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct args a;
        char        why[CLI_WHY], expected[CLI_WHY];
        snprintf(expected, sizeof expected, "dra try: %s", refused[i].why);
        if (parse(refused[i].words, &a, why) != CLI_MISUSED) fail_msg("row %zu was accepted", i);
        assert_string_equal(why, expected);
        cli_release(&verb, &a);
    }
}

static void refuses_what_nobody_takes(void **state)
{
    static const cli_verb bare = {.name = "bare", .summary = "takes nothing"};
    char *const           argv[] = {(char[]){"x"}};
    char                  why[CLI_WHY];
    (void)state;
    assert_int_equal(cli_parse(&bare, 1, argv, NULL, why), CLI_MISUSED);
    assert_string_equal(why, "dra bare: expected no further argument, found 'x'");
    assert_int_equal(cli_parse(&bare, 0, argv, NULL, why), CLI_PARSED);
}

/* However long a value is, the error fits its buffer and stays one line. */
static void shortens_long_values(void **state)
{
    static char long_value[4096] = "--tokens=";
    const char *words[MOST] = {long_value};
    struct args a;
    char        why[CLI_WHY];
    (void)state;
    memset(long_value + strlen(long_value), 'x', sizeof long_value - 1 - strlen(long_value));
    assert_int_equal(parse(words, &a, why), CLI_MISUSED);
    assert_non_null(strstr(why, "xxx...'"));
    cli_release(&verb, &a);

    memset(long_value + 2, '\t', 1000);
    assert_int_equal(parse(words, &a, why), CLI_MISUSED);
    assert_null(strchr(why, '\t'));
    cli_release(&verb, &a);
}

static char *help_text(const cli_verb *v)
{
    char  *text = NULL;
    size_t size = 0;
    FILE  *out = open_memstream(&text, &size);
    assert_non_null(out);
    cli_manual(v, &cli_as_text, out);
    fclose(out);
    return text;
}

/* ---- options that may do without their name -------------------------------------------------- */

struct placed {
    const char *model, *preset;
    cli_list    prompt;
    int64_t     tokens;
};

static const struct placed no_places = {0};
static const cli_option    placed_options[] = {
       {"model", CLI_TEXT, offsetof(struct placed, model), 0, 0, "model explained", "DIR",
        .flags = CLI_A_MODEL | CLI_ALSO_PLACED, .brief = 'm'},
       {"preset", CLI_TEXT, offsetof(struct placed, preset), 0, 0, "preset explained", "NAME",
        .flags = CLI_A_MODEL},
       {"prompt", CLI_LIST, offsetof(struct placed, prompt), 0, 0, "prompt explained", "TEXT",
        .flags = CLI_ALSO_PLACED},
       {"tokens", CLI_INT, offsetof(struct placed, tokens), 0, 0, "tokens explained"},
};

/* Names may stand anywhere; what has none fills the rest in the order of the table, and is no model
 * where another source of one is given. */
static void places_what_has_no_name(void **state)
{
    static const cli_verb v = {.name = "place",
                               .summary = "places things",
                               .options = placed_options,
                               .n_options = COUNT(placed_options),
                               .defaults = &no_places,
                               .args_size = sizeof no_places};
    static const struct {
        const char *words[MOST], *model, *preset, *prompt;
    } rows[] = {
        {{"m"}, "m", NULL, NULL},
        {{"m", "hi"}, "m", NULL, "hi"},
        {{"--tokens", "3", "m", "hi"}, "m", NULL, "hi"},
        {{"hi", "--model", "m"}, "m", NULL, "hi"},
        {{"hi", "-mm"}, "m", NULL, "hi"},
        {{"hi", "--preset=p"}, NULL, "p", "hi"},
        {{"--preset=p", "--prompt", "hi"}, NULL, "p", "hi"},
        {{"--", "--m", "-hi"}, "--m", NULL, "-hi"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct placed a;
        char          why[CLI_WHY], *argv[MOST];
        int           argc = 0;
        for (; argc < MOST && rows[i].words[argc]; argc++)
            argv[argc] = (char *)(uintptr_t)rows[i].words[argc];
        if (cli_parse(&v, argc, argv, &a, why) != CLI_PARSED) fail_msg("row %zu: %s", i, why);
        assert_string_equal(a.model ? a.model : "", rows[i].model ? rows[i].model : "");
        assert_string_equal(a.preset ? a.preset : "", rows[i].preset ? rows[i].preset : "");
        assert_int_equal(a.prompt.count, rows[i].prompt ? 1 : 0);
        if (rows[i].prompt) assert_string_equal(a.prompt.text[0], rows[i].prompt);
        cli_release(&v, &a);
    }
    char *text = help_text(&v);
    assert_non_null(strstr(text, "usage: dra place [options] [MODEL] [PROMPT...]\n"));
    free(text);
}

static void help_wins(void **state)
{
    const char *rows[][MOST] = {{"--help"}, {"-h"}, {"--json", "--help", "--nonsense"}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct args a;
        char        why[CLI_WHY];
        assert_int_equal(parse(rows[i], &a, why), CLI_ASKED_HELP);
        cli_release(&verb, &a);
    }
}

static void help_names_every_option(void **state)
{
    static const char *const lines[] = {
        "usage: dra try --out DIR [options] [NAME] [FILE...]\n",
        "\ntries things\n",
        "  -j, --json                  JSON explained\n",
        "      --[no-]check            check explained (default on)\n",
        "  -n, --tokens N              tokens explained (from 1 to 65536, default 128)\n",
        "      --seed N                seed explained (default 0)\n",
        "      --temperature X         temperature explained (from 0 to 10, default 0.8)\n",
        "  -o, --out DIR               out explained (required)\n",
        "      --prompt TEXT           prompt explained (default hello)\n",
        "      --mode fast|exact|replay\n                              mode explained (default "
        "exact)\n",
        "  -s, --set KEY=VALUE         set explained (may be repeated)\n",
        "  NAME                        name explained\n",
        "  FILE...                     files explained\n",
        "  -h, --help                  this text\n",
    };
    char *text = help_text(&verb);
    (void)state;
    for (size_t i = 0; i < COUNT(lines); i++)
        if (!strstr(text, lines[i])) fail_msg("help lacks: %sin:\n%s", lines[i], text);
    for (size_t i = 0; i < COUNT(options); i++) assert_non_null(strstr(text, options[i].help));
    free(text);
}

static void help_breaks_after_a_long_name(void **state)
{
    static const cli_option long_one[] = {
        {"a-name-longer-than-the-column", CLI_INT, 0, 0, 0, "explained"}};
    static const int64_t  zero = 0;
    static const cli_verb v = {"v", "does", long_one, 1, &zero, sizeof zero, NULL};
    char                 *text = help_text(&v);
    (void)state;
    assert_non_null(strstr(text, "      --a-name-longer-than-the-column N\n"
                                 "                              explained (default 0)\n"));
    free(text);
}

/* A letter stands for one option of a verb, and for the same one in all verbs; but for -n, which
 * says how much there shall be. */
static void letters_mean_one_thing(void **state)
{
    const char     *name[128] = {"", ['h'] = "help"};
    const cli_verb *v;
    int             letters = 0;
    (void)state;
    for (size_t i = 0; (v = cli_verb_at(i)) != NULL; i++) {
        bool taken[128] = {0};
        for (size_t k = 0; k < v->n_options; k++) {
            const cli_option *o = &v->options[k];
            const int         c = o->brief;
            if (!c) continue;
            assert_false(taken[c] || c == 'h' || (o->flags & CLI_POSITIONAL));
            taken[c] = true;
            letters += !name[c];
            if (c == 'n') {
                assert_true(strcmp(o->name, "steps") == 0 || strcmp(o->name, "tokens") == 0);
                assert_int_equal(o->kind, CLI_INT);
            } else if (name[c]) {
                assert_string_equal(o->name, name[c]);
            }
            name[c] = o->name;
        }
    }
    assert_int_equal(letters, 10);
    for (size_t i = 0; (v = cli_verb_at(i)) != NULL; i++)
        for (size_t k = 0; k < v->n_options; k++)
            for (int c = 'A'; c <= 'z'; c++)
                if (name[c] && c != 'n' && strcmp(name[c], v->options[k].name) == 0 &&
                    v->options[k].brief != c)
                    fail_msg("dra %s: --%s has no -%c", v->name, name[c], c);
}

/* Help never shows a 0 that stands for something else. */
static void defaults_are_values(void **state)
{
    const cli_verb *v;
    (void)state;
    for (size_t i = 0; (v = cli_verb_at(i)) != NULL; i++) {
        char *text = help_text(v);
        for (const char *bad = text; (bad = strstr(bad, "default 0)")) != NULL; bad++) {
            const char *of = bad; /* seeds start at 0, a penalty is off at 0 */
            while (of > text && strncmp(of, "\n      --", 9) != 0 && strncmp(of, "\n  -", 4) != 0)
                of--;
            if (strncmp(of + 7, "--seed", 6) != 0 && strncmp(of + 7, "--length-penalty", 16) != 0)
                fail_msg("dra %s: %.60s", v->name, of);
        }
        assert_null(strstr(text, "; 0: 1"));
        free(text);
    }
}

static void guesses_the_nearest_name(void **state)
{
    static const char *const names[] = {"train", "tokenize", "eval", "generate", "convert"};
    static const struct {
        const char *typed, *best;
    } rows[] = {
        {"trian", "train"},
        {"trainn", "train"},
        {"rain", "train"},
        {"tokenise", "tokenize"},
        {"sample", "generate"},
        {"quantize", "convert"},
        {"train_", "train"},
        {"GENERATE", "generate"},
        {"tram", NULL},
        {"evil", "eval"},
        {"covert-all", NULL},
        {"gen", "generate"},
        {"evla", "eval"},
        {"Train", "train"},
        {"xyzzy", NULL},
        {"q", NULL},
        {"", NULL},
        {"cnovrt", "convert"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        dra_guess guess = {.typed = rows[i].typed};
        for (size_t j = 0; j < COUNT(names); j++) dra_guess_try(&guess, names[j]);
        if (rows[i].best)
            assert_string_equal(guess.best ? guess.best : "nothing", rows[i].best);
        else
            assert_null(guess.best);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_what_nobody_takes),
        cmocka_unit_test(shortens_long_values),
        cmocka_unit_test(places_what_has_no_name),
        cmocka_unit_test(help_wins),
        cmocka_unit_test(help_names_every_option),
        cmocka_unit_test(help_breaks_after_a_long_name),
        cmocka_unit_test(letters_mean_one_thing),
        cmocka_unit_test(defaults_are_values),
        cmocka_unit_test(guesses_the_nearest_name),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
