/* Pages of the manual in each form: what is special in roff and Markdown comes out as it is. */
#include "options/manual.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct args {
    bool        quick;
    const char *out;
    int64_t     steps;
};

static const struct args defaults = {.quick = true};

static const cli_option options[] = {
    {"out", CLI_TEXT, offsetof(struct args, out), 0, 0, "a|b, *c*, d_e, ~f ^g `h` \\i", "FILE",
     .group = "First", .brief = 'o'},
    {"quick", CLI_FLAG, offsetof(struct args, quick), 0, 0, ".dots and 'quotes'",
     .group = "Second"},
    {"steps", CLI_INT, offsetof(struct args, steps), 0, 9, "of many", .unset = "eight"},
};

static const cli_note examples[] = {{"dra try --out \"a b\"", "it tries"}, {0}};

static const cli_verb verb = {.name = "try",
                              .summary = "tries things",
                              .options = options,
                              .n_options = COUNT(options),
                              .defaults = &defaults,
                              .args_size = sizeof defaults,
                              .about = "The first line.\nThe second one.",
                              .examples = examples,
                              .also = "train eval"};

static void expect(const cli_format *format, const char *const *parts)
{
    char  *text = NULL;
    size_t size = 0;
    FILE  *out = open_memstream(&text, &size);
    assert_non_null(out);
    cli_manual(&verb, format, out);
    fclose(out);
    for (const char *at = text; *parts; parts++) { /* in this order */
        at = strstr(at, *parts);
        if (!at) fail_msg("lacks: %s\nin:\n%s", *parts, text);
    }
    free(text);
}

static void as_text(void **state)
{
    static const char *const parts[] = {
        "usage: dra try [options]\n\ntries things\n\nThe first line.\n\nThe second one.\n",
        "\nFirst options\n  -o, --out FILE              a|b, *c*, d_e, ~f ^g `h` \\i\n",
        "\nSecond options\n      --[no-]quick            .dots and 'quotes' (default on)\n",
        "      --steps N               of many (at most 9, default eight)\n",
        "\nExit status\n  0                           done\n",
        "\nSee also\n  dra train                   train a model on texts\n  dra eval  ",
        "\nExamples\n  $ dra try --out \"a b\"\n      it tries\n",
        NULL,
    };
    (void)state;
    expect(&cli_as_text, parts);
}

static void as_man(void **state)
{
    static const char *const parts[] = {
        ".TH DRA-TRY 1 ",
        ".SH NAME\ndra\\-try \\- tries things\n.SH SYNOPSIS\n.B dra try\n[options]\n",
        ".PP\nThe first line.\n.PP\nThe second one.\n",
        ".SH FIRST OPTIONS\n.TP\n.B \\-o, \\-\\-out FILE\n",
        "a|b, *c*, d_e, \\(tif \\(hag \\(gah\\(ga \\ei\n",
        ".SH SECOND OPTIONS\n.TP\n.B \\-\\-[no\\-]quick\n"
        "\\&.dots and \\(aqquotes\\(aq (default on)\n",
        ".SH SEE ALSO\n.TP\n.B dra\\-train(1)\ntrain a model on texts\n",
        ".RS 4\n.nf\n$ dra try \\-\\-out \"a b\"\n.fi\n.RE\n",
        NULL,
    };
    (void)state;
    expect(&cli_as_man, parts);
}

static void as_markdown(void **state)
{
    static const char *const parts[] = {
        "# dra try\n\n    dra try [options]\n\ntries things\n\n"
        "The first line.\n\nThe second one.\n",
        "\n## First options\n* `-o, --out FILE` - a\\|b, \\*c\\*, d\\_e, ~f ^g \\`h\\` \\\\i\n",
        "\n## Examples\n\nit tries:\n\n    $ dra try --out \"a b\"\n",
        NULL,
    };
    (void)state;
    expect(&cli_as_markdown, parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_text),
        cmocka_unit_test(as_man),
        cmocka_unit_test(as_markdown),
    };
    return cmocka_run_group_tests_name("manual", tests, NULL, NULL);
}
