/* Pages of the manual: their contents, written in a format of cli_format. */
#include "manual.h"
#include "verbs/verbs.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

enum { TERM = 320, TEXT = 1024, NO_LIMIT = 1000000000 }; /* a bound of no use to readers */
enum { SMALL = 10000 };                                  /* a bound that may matter */

static const cli_note common_status[] = {
    {"0", "done"},
    {"1", "failed: one line on stderr says what failed and where, what was expected and what was "
          "found"},
    {"2", "wrong usage: one line says how"},
    {0},
};

/* Appends to a text; what does not fit is left out. */
static void add_text(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_text(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list      values;
    va_start(values, format);
    vsnprintf(text + used, size - used, format, values);
    va_end(values);
}

const char *cli_value_name(const cli_option *o, char *text, size_t size)
{
    static const char *const by_kind[] = {"on|off", "N", "X", "TEXT", "", "TEXT"};
    text[0] = '\0';
    if (o->value || o->kind != CLI_CHOICE)
        add_text(text, size, "%s", o->value ? o->value : by_kind[o->kind]);
    else
        for (size_t i = 0; o->choices[i]; i++)
            add_text(text, size, "%s%s", i ? "|" : "", o->choices[i]);
    return text;
}

const char *cli_range(const cli_option *o, char *text, size_t size)
{
    const bool number = o->kind == CLI_INT || o->kind == CLI_REAL;
    text[0] = '\0';
    if (number && o->min < o->max) snprintf(text, size, " from %.15g to %.15g", o->min, o->max);
    return text;
}

static const void *default_of(const cli_verb *verb, const cli_option *o)
{
    return (const char *)verb->defaults + o->offset;
}

bool cli_starts_on(const cli_verb *verb, const cli_option *o)
{
    return o->kind == CLI_FLAG && *(const bool *)default_of(verb, o);
}

/* ---- one option ------------------------------------------------------------------------------ */

/* The default as text, or "" if there is none worth showing. */
static const char *default_text(const cli_verb *verb, const cli_option *o, char *text, size_t size)
{
    const void *field = default_of(verb, o);
    const char *words = o->kind == CLI_TEXT ? *(const char *const *)field : NULL;
    text[0] = '\0';
    if (o->flags & CLI_REQUIRED) return text;
    if (o->unset) { /* help would show a 0 that is not meant */
        snprintf(text, size, "%s", o->unset);
        return text;
    }
    switch (o->kind) {
    case CLI_FLAG: snprintf(text, size, "%s", *(const bool *)field ? "on" : ""); break;
    case CLI_INT: snprintf(text, size, "%lld", (long long)*(const int64_t *)field); break;
    case CLI_REAL: snprintf(text, size, "%g", *(const double *)field); break;
    case CLI_CHOICE: snprintf(text, size, "%s", o->choices[*(const int *)field]); break;
    case CLI_TEXT: snprintf(text, size, "%s", words ? words : ""); break;
    case CLI_LIST: break;
    }
    return text;
}

/* Appends limits and default in brackets, if there are any: "(from 1 to 8, default 4)". */
static void add_limits(const cli_verb *verb, const cli_option *o, char *text, size_t size)
{
    char       range[64], start[128], limits[256] = "";
    const bool hidden = o->unset && o->min <= 0; /* the lower limit 0 only means the default */
    cli_range(o, range, sizeof range);
    if (range[0] && hidden && o->max <= SMALL)
        add_text(limits, sizeof limits, ", at most %g", o->max);
    if (range[0] && !hidden && o->max < NO_LIMIT) add_text(limits, sizeof limits, ",%s", range);
    if (range[0] && !hidden && o->max >= NO_LIMIT)
        add_text(limits, sizeof limits, ", from %.15g up", o->min);
    if (o->flags & CLI_REQUIRED)
        add_text(limits, sizeof limits, ", required");
    else if (default_text(verb, o, start, sizeof start)[0])
        add_text(limits, sizeof limits, ", default %s", start);
    if (o->kind == CLI_LIST && !(o->flags & CLI_POSITIONAL))
        add_text(limits, sizeof limits, ", may be repeated");
    if (o->flags & CLI_ALSO_PLACED)
        add_text(limits, sizeof limits, ", --%s may be left out", o->name);
    if (limits[0]) add_text(text, size, " (%s)", limits + 2);
}

/* An option as it is written: "-o, --out DIR", "FILE...", "--[no-]check". */
static const char *option_form(const cli_verb *verb, const cli_option *o, bool brief, char *text,
                               size_t size)
{
    char value[256], letter[8] = "";
    cli_value_name(o, value, sizeof value);
    if (o->brief && brief) snprintf(letter, sizeof letter, "-%c, ", o->brief);
    if (o->flags & CLI_POSITIONAL)
        snprintf(text, size, "%s%s", value, o->kind == CLI_LIST ? "..." : "");
    else if (o->kind == CLI_FLAG)
        snprintf(text, size, "%s--%s%s", letter, cli_starts_on(verb, o) ? "[no-]" : "", o->name);
    else
        snprintf(text, size, "%s--%s %s", letter, o->name, value);
    return text;
}

/* ---- a verb ---------------------------------------------------------------------------------- */

/* Whether an option is an action: a word that always comes first. */
static bool is_action(const cli_option *o)
{
    return o->kind == CLI_CHOICE && (o->flags & CLI_POSITIONAL) && (o->flags & CLI_REQUIRED);
}

/* Appends an option that may be given by place: " [FILE...]", or also by place: " [MODEL]". */
static void add_place(const cli_verb *verb, const cli_option *o, char *text, size_t size)
{
    const bool required = o->flags & CLI_REQUIRED;
    const bool many = o->kind == CLI_LIST && !(o->flags & CLI_ONE_PLACE);
    char       name[TERM];
    size_t     n = 0;
    if (o->flags & CLI_POSITIONAL) {
        option_form(verb, o, false, name, sizeof name);
    } else {
        for (; o->name[n] && n + 1 < sizeof name; n++)
            name[n] = (char)toupper((unsigned char)o->name[n]);
        name[n] = '\0';
    }
    add_text(text, size, " %s%s%s%s", required ? "" : "[", name,
             many && !(o->flags & CLI_POSITIONAL) ? "..." : "", required ? "" : "]");
}

/* The usage line: the action, required options, then arguments by place. */
static void add_usage(const cli_verb *verb, char *text, size_t size)
{
    char term[TERM];
    snprintf(text, size, "dra %s", verb->name);
    for (size_t i = 0; i < verb->n_options; i++)
        if (is_action(&verb->options[i]))
            add_text(text, size, " %s",
                     option_form(verb, &verb->options[i], false, term, sizeof term));
    for (size_t i = 0; i < verb->n_options; i++) {
        const cli_option *o = &verb->options[i];
        if ((o->flags & CLI_REQUIRED) && !(o->flags & (CLI_POSITIONAL | CLI_ALSO_PLACED)))
            add_text(text, size, " %s", option_form(verb, o, false, term, sizeof term));
    }
    add_text(text, size, " [options]");
    for (int turn = 1; turn <= CLI_TURNS; turn++)
        for (size_t i = 0; i < verb->n_options; i++)
            if (cli_turn(&verb->options[i]) == turn && !is_action(&verb->options[i]))
                add_place(verb, &verb->options[i], text, size);
}

void cli_write_paragraphs(const cli_format *f, const char *text, FILE *out)
{
    while (text && *text) {
        const size_t length = strcspn(text, "\n");
        f->paragraph(text, length, out);
        text += length + (text[length] == '\n');
    }
}

static void write_notes(const cli_format *f, const char *heading, const cli_note *notes, FILE *out)
{
    if (notes) f->heading(heading, out);
    for (; notes && notes->term; notes++) f->item(notes->term, notes->text, out);
}

static void write_examples(const cli_format *f, const char *heading, const cli_note *notes,
                           FILE *out)
{
    if (notes) f->heading(heading, out);
    for (; notes && notes->term; notes++) f->example(notes->term, notes->text, out);
}

/* Writes the heading of an option's group if a new group begins. */
static void write_group(const cli_format *f, const cli_option *o, const char **group, FILE *out)
{
    char heading[TERM];
    if (*group && (!o->group || strcmp(o->group, *group) == 0)) return;
    *group = o->group ? o->group : "";
    snprintf(heading, sizeof heading, "%s%sptions", *group, **group ? " o" : "O");
    f->heading(heading, out);
}

static void write_options(const cli_verb *verb, const cli_format *f, FILE *out)
{
    const cli_option none = {0};
    const char      *group = NULL;
    char             term[TERM], text[TEXT];
    for (size_t i = 0; i < verb->n_options; i++) {
        const cli_option *o = &verb->options[i];
        write_group(f, o, &group, out);
        snprintf(text, sizeof text, "%s", o->help);
        add_limits(verb, o, text, sizeof text);
        f->item(option_form(verb, o, true, term, sizeof term), text, out);
    }
    write_group(f, &none, &group, out);
    f->item("-h, --help", "this text", out);
}

/* The verbs of "init train", each with what it does. */
static void write_also(const cli_verb *verb, const cli_format *f, FILE *out)
{
    char term[TERM];
    if (verb->also) f->heading("See also", out);
    for (const char *name = verb->also; name && *name;) {
        const int length = (int)strcspn(name, " ");
        snprintf(term, sizeof term, "%.*s", length, name);
        const cli_verb *other = cli_verb_find(term);
        snprintf(term, sizeof term, "%s%.*s%s", f->before, length, name, f->after);
        f->item(term, other ? other->summary : "", out);
        name += length + (name[length] == ' ');
    }
}

void cli_manual(const cli_verb *verb, const cli_format *f, FILE *out)
{
    char name[TERM], text[TEXT];
    snprintf(name, sizeof name, "dra %s", verb->name);
    add_usage(verb, text, sizeof text);
    f->begin(name, verb->summary, text, out);
    cli_write_paragraphs(f, verb->about, out);
    write_options(verb, f, out);
    write_notes(f, "Files", verb->files, out);
    write_notes(f, "Exit status", verb->status ? verb->status : common_status, out);
    write_also(verb, f, out);
    write_examples(f, "Examples", verb->examples, out);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const char overview[] =
    "dra makes, trains, converts, evaluates and runs sequence models whose attention reads a "
    "trainable recurrent memory. Reading a text whole, in chunks, token by token or resumed from "
    "a file gives the same outputs and states.\n"
    "A model is a folder with config.json, model.safetensors and, if its tokens are not bytes, "
    "tokenizer.json. Results go to stdout, everything else to stderr. Files are replaced whole or "
    "not at all.\n"
    "Pages that help mentions, such as docs/data.md, are installed in share/doc/dra, and are in "
    "the folder of the sources.";

static const cli_note first_steps[] = {
    {"dra train --preset dra-slots-tiny --data my.txt --out my-model", "train on a text"},
    {"dra generate my-model \"Once upon a time\"", "let it continue a text"},
    {"dra eval my-model --data other.txt", "see how well it predicts another one"},
    {0},
};

static const cli_note variables[] = {
    {"DRA_CPU",
     "kernels to use: avx512amx, avx512bf16, avx512, avx2, neon or ref; default: the best that "
     "is there"},
    {"NO_COLOR", "if set: no colours, even on a terminal"},
    {0},
};

void cli_manual_overview(const cli_format *f, FILE *out)
{
    const char     *group = "";
    const cli_verb *verb;
    f->begin("dra", "differentiable recurrent attention: sequence models with a trainable memory",
             "dra VERB [options]", out);
    cli_write_paragraphs(f, overview, out);
    for (size_t i = 0; (verb = cli_verb_at(i)) != NULL; i++) {
        if (verb->group && strcmp(verb->group, group) != 0) {
            group = verb->group;
            f->heading(group, out);
        }
        f->item(verb->name, verb->summary, out);
    }
    f->heading("Options", out);
    f->item("help keys", "lists the keys of a model's config, which --set changes", out);
    f->item("VERB --help", "explains one verb; 'dra help VERB' and 'man dra-VERB' do too", out);
    f->item("-h, --help", "this text", out);
    f->item("--version", "prints the version", out);
    write_examples(f, "First steps", first_steps, out);
    write_notes(f, "Environment", variables, out);
    write_notes(f, "Exit status", common_status, out);
}
