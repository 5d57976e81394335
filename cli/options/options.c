/* The parser of every verb's option table. */
#include "options.h"
#include "manual.h"
#include "value.h"

#include "dra/base.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One call of cli_parse(). */
typedef struct parser {
    const cli_verb *verb;
    int             argc;
    char *const    *argv;
    int             next; /* index of the first argument not read yet */
    char           *args;
    bool           *given;  /* per option */
    const char    **placed; /* arguments without a name, placed after all options are read */
    int             n_placed;
    int             placed_text; /* arguments placed at a CLI_ONE_PLACE option */
    char           *why;
    bool            no_memory; /* why parsing failed */
} parser;

static bool fail_usage(parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail_usage(parser *p, const char *format, ...)
{
    va_list   values;
    const int n = snprintf(p->why, CLI_WHY, "dra %s: ", p->verb->name);
    va_start(values, format);
    vsnprintf(p->why + n, CLI_WHY - (size_t)n, format, values);
    va_end(values);
    return false;
}

static bool out_of_memory(parser *p)
{
    p->no_memory = true;
    return fail_usage(p, "out of memory");
}

static bool is_positional(const cli_option *o) { return (o->flags & CLI_POSITIONAL) != 0; }

/* What a user calls an option: "--out" by name, "FILE" by place. */
static const char *option_label(const cli_option *o, char *text, size_t size)
{
    if (is_positional(o)) return cli_value_name(o, text, size);
    snprintf(text, size, "--%s", o->name);
    return text;
}

static bool in_range(const cli_option *o, double x)
{
    return !(o->min < o->max) || (x >= o->min && x <= o->max);
}

/* Describes the values that an option takes, for errors. */
static void describe_expected(const cli_option *o, char *text, size_t size)
{
    char       range[64], name[256];
    cli_option choices = *o;
    choices.value = NULL; /* list the choices, even if help has a name for them */
    switch (o->kind) {
    case CLI_FLAG: snprintf(text, size, "on or off"); break;
    case CLI_INT:
        snprintf(text, size, "a whole number%s", cli_range(o, range, sizeof range));
        break;
    case CLI_REAL: snprintf(text, size, "a number%s", cli_range(o, range, sizeof range)); break;
    case CLI_CHOICE: snprintf(text, size, "%s", cli_value_name(&choices, name, sizeof name)); break;
    case CLI_TEXT:
    case CLI_LIST: snprintf(text, size, "a value"); break;
    }
}

static bool fail_expected(parser *p, const cli_option *o, const char *found)
{
    char what[256], name[256], quoted[80];
    describe_expected(o, what, sizeof what);
    if (found) found = cli_quote(found, quoted, sizeof quoted);
    return fail_usage(p, "%s: expected %s, found %s", option_label(o, name, sizeof name), what,
                      found ? found : "nothing");
}

static bool read_choice(const cli_option *o, const char *value, int *out)
{
    for (int i = 0; o->choices[i]; i++)
        if (strcmp(o->choices[i], value) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static bool fail_choice(parser *p, const cli_option *o, const char *value)
{
    char      quoted[80], name[256];
    dra_guess guess = {.typed = value};
    for (int i = 0; o->choices[i]; i++) dra_guess_try(&guess, o->choices[i]);
    if (!guess.best) return fail_expected(p, o, value);
    return fail_usage(p, "%s: no such choice: %s; did you mean %s?",
                      option_label(o, name, sizeof name), cli_quote(value, quoted, sizeof quoted),
                      guess.best);
}

/* The array holds twice as many texts as there are arguments, so it never grows. */
static bool append_value(parser *p, cli_list *list, const char *value)
{
    if (!list->text) list->text = calloc(2 * (size_t)p->argc, sizeof *list->text);
    if (!list->text) return out_of_memory(p);
    list->text[list->count++] = value;
    return true;
}

static bool append_named(parser *p, const cli_option *o, cli_list *list, const char *value)
{
    const bool named = o->flags & CLI_BY_NAME;
    return (!named || append_value(p, list, o->name)) && append_value(p, list, value);
}

/* Reads a value into the option's field. */
static bool store_value(parser *p, const cli_option *o, const char *value)
{
    void   *field = p->args + o->offset;
    int64_t n;
    double  x;
    switch (o->kind) {
    case CLI_FLAG: return cli_read_bool(value, field) || fail_expected(p, o, value);
    case CLI_INT:
        if (!cli_read_int(value, &n) || !in_range(o, (double)n)) return fail_expected(p, o, value);
        *(int64_t *)field = n == 0 && (o->flags & CLI_ZERO) ? -1 : n;
        return true;
    case CLI_REAL:
        if (!cli_read_real(value, &x) || !in_range(o, x)) return fail_expected(p, o, value);
        *(double *)field = x == 0 && (o->flags & CLI_ZERO) ? -1 : x;
        return true;
    case CLI_CHOICE: return read_choice(o, value, field) || fail_choice(p, o, value);
    case CLI_TEXT: *(const char **)field = value; return true;
    case CLI_LIST: return append_named(p, o, field, value);
    }
    return false;
}

/* An option that is given twice would lose one of its values, so only lists may repeat. */
static bool take_value(parser *p, const cli_option *o, const char *value)
{
    bool *given = &p->given[o - p->verb->options];
    char  name[256];
    if (*given && o->kind != CLI_LIST)
        return fail_usage(p, "%s: given twice, expected once", option_label(o, name, sizeof name));
    *given = true;
    return store_value(p, o, value);
}

static const cli_option *find_option(const cli_verb *verb, const char *name, size_t length)
{
    for (size_t i = 0; i < verb->n_options; i++) {
        const cli_option *o = &verb->options[i];
        if (!is_positional(o) && strlen(o->name) == length && memcmp(o->name, name, length) == 0)
            return o;
    }
    return NULL;
}

const cli_option *cli_option_of(const cli_verb *verb, const char *name)
{
    return find_option(verb, name, strlen(name));
}

static const cli_option *find_brief(const cli_verb *verb, char letter)
{
    for (size_t i = 0; i < verb->n_options && letter; i++)
        if (verb->options[i].brief == letter) return &verb->options[i];
    return NULL;
}

/* Whether --set changes keys of a model's config. */
static bool sets_keys(const cli_verb *verb)
{
    return cli_option_of(verb, "set") || (verb->over && cli_option_of(verb->over, "set"));
}

static bool fail_unknown(parser *p, const char *argument)
{
    char              name[64], quoted[80], key[64];
    const cli_option *o;
    dra_guess         guess = {.typed = name};
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument, "="), argument);
    cli_quote(name, quoted, sizeof quoted);
    memmove(name, name + strspn(name, "-"), strlen(name + strspn(name, "-")) + 1);
    for (const cli_verb *v = p->verb; v; v = v->over)
        for (size_t i = 0; i < v->n_options; i++)
            if (!is_positional(&v->options[i])) dra_guess_try(&guess, v->options[i].name);
    dra_guess_try(&guess, "help");
    if (!guess.best && strncmp(name, "no-", 3) == 0) { /* --no- of an option that is not a flag */
        o = cli_option_of(p->verb, name + 3);
        guess.best = o ? o->name : NULL;
    }
    if (name[0] && !name[1] && find_brief(p->verb, name[0]))
        return fail_usage(p, "no such option: %s; did you mean -%s?", quoted, name);
    if (guess.best && guess.wrong <= DRA_GUESS_MEANT)
        return fail_usage(p, "no such option: %s; did you mean --%s?", quoted, guess.best);
    if (sets_keys(p->verb) && cli_key_meant(name, key, sizeof key))
        return fail_usage(p, "no such option: %s; did you mean --set %s=VALUE?", quoted, key);
    if (guess.best)
        return fail_usage(p, "no such option: %s; did you mean --%s?", quoted, guess.best);
    return fail_usage(p, "no such option: %s; 'dra %s --help' lists them", quoted, p->verb->name);
}

/* "--name", or "-n" of this verb. */
static bool looks_like_option(const parser *p, const char *value)
{
    if (strncmp(value, "--", 2) == 0) return true;
    return value[0] == '-' && value[1] && !value[2] && find_brief(p->verb, value[1]);
}

/* The example of the verb that shows an option, or the first one; NULL: it has none. */
static const char *example_of(const cli_verb *verb, const cli_option *o)
{
    char              name[80], letter[8];
    const cli_note   *note = verb->examples;
    const char *const first = note ? note->term : NULL;
    snprintf(name, sizeof name, "--%s ", o->name);
    snprintf(letter, sizeof letter, " -%c ", o->brief);
    for (; note && note->term; note++)
        if (strstr(note->term, name) || (o->brief && strstr(note->term, letter))) return note->term;
    return first;
}

static bool fail_required(parser *p, const cli_option *o)
{
    char        name[256], value[256];
    const char *example = example_of(p->verb, o);
    option_label(o, name, sizeof name);
    cli_value_name(o, value, sizeof value);
    return fail_usage(p, "%s%s%s is required%s%s", name, is_positional(o) ? "" : " ",
                      is_positional(o) ? "" : value, example ? ", as in: " : "",
                      example ? example : "");
}

/* A value that looks like an option usually means that the value was forgotten. */
static bool fail_forgotten(parser *p, const cli_option *o, const char *found)
{
    char what[256], quoted[80];
    describe_expected(o, what, sizeof what);
    return fail_usage(p, "--%s: expected %s, found %s; if that is meant, write --%s=VALUE", o->name,
                      what, cli_quote(found, quoted, sizeof quoted), o->name);
}

/* Keeps an option of the verb that this verb runs; that one will check its value. */
static bool pass_on(parser *p, const cli_option *o, const char *argument, bool whole)
{
    cli_list *rest = (void *)(p->args + p->verb->rest);
    if (!append_value(p, rest, argument)) return false;
    if (whole || o->kind == CLI_FLAG) return true;
    const char *value = p->next < p->argc ? p->argv[p->next++] : NULL;
    if (!value) return fail_expected(p, o, NULL);
    return looks_like_option(p, value) ? fail_forgotten(p, o, value) : append_value(p, rest, value);
}

/* The value of an option is the next argument. */
static bool take_next(parser *p, const cli_option *o)
{
    const char *value = p->next < p->argc ? p->argv[p->next++] : NULL;
    if (!value) return fail_expected(p, o, NULL);
    return looks_like_option(p, value) ? fail_forgotten(p, o, value) : take_value(p, o, value);
}

/* Reads "-n value", "-nvalue", "-n=value", or "-f" of a flag. "-model" is not -m: it lacks a
 * dash. */
static bool read_brief(parser *p, const char *argument)
{
    const cli_option *o = find_brief(p->verb, argument[1]);
    const char       *value = argument + 2;
    const bool        undashed = find_option(p->verb, argument + 1, strcspn(argument + 1, "="));
    const cli_option *other = p->verb->over ? find_brief(p->verb->over, argument[1]) : NULL;
    if (!o && other && !undashed) return pass_on(p, other, argument, *value != '\0');
    if (!o || undashed || (o->kind == CLI_FLAG && *value)) return fail_unknown(p, argument);
    if (o->kind == CLI_FLAG) return take_value(p, o, "on");
    if (!*value) return take_next(p, o);
    return take_value(p, o, value + (*value == '='));
}

/* Reads "--name value", "--name=value", "--flag" or "--no-flag". */
static bool read_named(parser *p, const char *argument)
{
    const char  *name = argument + 2, *equals = strchr(name, '=');
    const size_t length = equals ? (size_t)(equals - name) : strlen(name);
    if (argument[1] != '-') return read_brief(p, argument);
    const cli_option *o = find_option(p->verb, name, length);
    if (o && equals) return take_value(p, o, equals + 1);
    if (o && o->kind == CLI_FLAG) return take_value(p, o, "on");
    if (o) return take_next(p, o);
    const cli_verb *over = p->verb->over;
    o = over ? find_option(over, name, length) : NULL;
    if (o) return pass_on(p, o, argument, equals != NULL);
    if (!equals && length > 3 && strncmp(name, "no-", 3) == 0) {
        o = find_option(p->verb, name + 3, length - 3);
        if (o && o->kind == CLI_FLAG) return take_value(p, o, "off");
        o = over ? find_option(over, name + 3, length - 3) : NULL;
        if (o && o->kind == CLI_FLAG) return pass_on(p, o, argument, true);
    }
    return fail_unknown(p, argument);
}

/* Whether an option can still be given and, if it names the source of the model, no other source
 * was given. */
static bool is_open(const parser *p, size_t i)
{
    const cli_option *o = &p->verb->options[i];
    if (p->given[i] && o->kind != CLI_LIST) return false;
    for (size_t k = 0; (o->flags & CLI_A_MODEL) && k < p->verb->n_options; k++)
        if (k != i && (p->verb->options[k].flags & CLI_A_MODEL) && p->given[k]) return false;
    return true;
}

/* Fails on a superfluous argument and suggests the option it may belong to: a model is more likely
 * a folder than a file. */
static bool fail_too_many(parser *p, const char *argument)
{
    static const char *const names[] = {"model", "data"};
    struct stat              found;
    const bool               file = stat(argument, &found) == 0 && S_ISREG(found.st_mode);
    char                     quoted[80];
    cli_quote(argument, quoted, sizeof quoted);
    for (size_t i = 0; i < COUNT(names); i++) {
        const char       *name = names[file ? COUNT(names) - 1 - i : i];
        const cli_option *o = find_option(p->verb, name, strlen(name));
        if (o && is_open(p, (size_t)(o - p->verb->options)))
            return fail_usage(p, "expected no further argument, found %s; did you mean --%s?",
                              quoted, o->name);
    }
    return fail_usage(p, "expected no further argument, found %s", quoted);
}

int cli_turn(const cli_option *o)
{
    if (o->flags & CLI_POSITIONAL) return o->kind == CLI_LIST ? 3 : 1;
    return !(o->flags & CLI_ALSO_PLACED) ? 0 : o->flags & CLI_A_MODEL ? 2 : CLI_TURNS;
}

static bool place_value(parser *p, const cli_option *o, const char *argument)
{
    char quoted[80];
    if (!(o->flags & CLI_ONE_PLACE) || !p->placed_text++) return take_value(p, o, argument);
    return fail_usage(p,
                      "expected one text, found %s after it; a text of several words needs quotes, "
                      "and several texts --%s each",
                      cli_quote(argument, quoted, sizeof quoted), o->name);
}

static bool place_argument(parser *p, const char *argument)
{
    for (int turn = 1; turn <= CLI_TURNS; turn++)
        for (size_t i = 0; i < p->verb->n_options; i++)
            if (cli_turn(&p->verb->options[i]) == turn && is_open(p, i))
                return place_value(p, &p->verb->options[i], argument);
    return fail_too_many(p, argument);
}

static bool place_all(parser *p)
{
    for (int i = 0; i < p->n_placed; i++)
        if (!place_argument(p, p->placed[i])) return false;
    return true;
}

static bool check_required(parser *p)
{
    for (size_t i = 0; i < p->verb->n_options; i++)
        if ((p->verb->options[i].flags & CLI_REQUIRED) && !p->given[i])
            return fail_required(p, &p->verb->options[i]);
    return true;
}

static bool asks_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static cli_outcome parse_arguments(parser *p)
{
    bool by_name = true; /* until "--" */
    while (p->next < p->argc) {
        const char *argument = p->argv[p->next++];
        const bool  dashed = by_name && argument[0] == '-' && argument[1];
        double      x;
        if (dashed && asks_help(argument)) return CLI_ASKED_HELP;
        if (dashed && strcmp(argument, "--") == 0) {
            by_name = false;
            continue;
        }
        /* "-" is an argument by place, "-3" a number. */
        const bool is_option = dashed && !cli_read_real(argument, &x);
        if (!is_option)
            p->placed[p->n_placed++] = argument;
        else if (!read_named(p, argument))
            return CLI_MISUSED;
    }
    return place_all(p) && check_required(p) ? CLI_PARSED : CLI_MISUSED;
}

cli_outcome cli_parse(const cli_verb *verb, int argc, char *const *argv, void *args, char *why)
{
    parser p = {.verb = verb, .argc = argc, .argv = argv, .args = args, .why = why};
    why[0] = '\0';
    if (verb->args_size) memcpy(args, verb->defaults, verb->args_size);
    p.given = calloc(verb->n_options + 1, sizeof *p.given);
    p.placed = calloc((size_t)argc + 1, sizeof *p.placed);
    const bool        room = (p.given && p.placed) || out_of_memory(&p);
    const cli_outcome outcome = room ? parse_arguments(&p) : CLI_MISUSED;
    free(p.given);
    free(p.placed);
    return p.no_memory ? CLI_NO_MEMORY : outcome;
}

int cli_outcome_status(cli_outcome outcome)
{
    return outcome == CLI_MISUSED ? CLI_USAGE : outcome == CLI_NO_MEMORY ? CLI_FAILED : CLI_OK;
}

void cli_release(const cli_verb *verb, void *args)
{
    for (size_t i = 0; i < verb->n_options; i++) {
        if (verb->options[i].kind != CLI_LIST) continue;
        cli_list *list = (void *)((char *)args + verb->options[i].offset);
        free(list->text);
        *list = (cli_list){0};
    }
    if (!verb->over) return;
    cli_list *rest = (void *)((char *)args + verb->rest);
    free(rest->text);
    *rest = (cli_list){0};
}
