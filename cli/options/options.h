/* Options of the command line: one table per verb drives parsing, ranges, defaults, help, man pages
 * and completion.
 *
 * A verb keeps what it was asked in a plain struct of its own. The table says which field each
 * option fills and of what kind it is; the verb's `defaults` are both the start values and what
 * help shows. Nothing here prints or exits: misuse comes back as one line of text. */
#ifndef DRA_CLI_OPTIONS_OPTIONS_H
#define DRA_CLI_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Exit status; the last as shells have it. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* Choices: the names of an enum's first `count` values, in its order. */
#define CLI_CHOICES(list, count, ...)                                                              \
    static const char *const list[] = {__VA_ARGS__, NULL};                                         \
    _Static_assert(sizeof(list) / sizeof *(list) == (size_t)(count) + 1, #list ": " #count)

typedef enum cli_kind {
    CLI_FLAG,   /* bool: --json, --no-json, --json=on|off, -j */
    CLI_INT,    /* int64_t */
    CLI_REAL,   /* double, finite */
    CLI_TEXT,   /* const char *, borrowed from argv */
    CLI_CHOICE, /* int: the index of one of `choices` */
    CLI_LIST    /* cli_list: text that may be repeated */
} cli_kind;

typedef struct cli_list {
    size_t       count;
    const char **text; /* the array belongs to the list, the texts to argv */
} cli_list;

enum {
    CLI_REQUIRED = 1,     /* must be given; has no default */
    CLI_POSITIONAL = 2,   /* given by place, not by name; a list takes all that is left */
    CLI_A_PRESET = 4,     /* names a preset, for completion */
    CLI_A_VERB = 8,       /* names a verb */
    CLI_A_KEY = 16,       /* KEY=VALUE of a config, for completion */
    CLI_ALSO_PLACED = 32, /* by name, or by place, see cli_turn() */
    CLI_A_MODEL = 64,     /* says where the model comes from: where another one of them is given,
                             none is looked for by place */
    CLI_BY_NAME = 128,    /* a list that others fill, too: its name stands in it before the text */
    CLI_ZERO = 256,   /* a number whose 0 is asked for: the field keeps it as -1, since its own 0
                             is what was not given */
    CLI_WRITES = 512, /* a text: a file that is written, see outputs.h */
    CLI_ONE_PLACE = 1024, /* a list of texts: by place only one, since a second word is more often
                             of the same text, without quotes */
    CLI_TENSORS = 2048    /* of CLI_WRITES: safetensors, so no name that says another format */
};

typedef struct cli_option {
    const char        *name; /* without dashes */
    cli_kind           kind;
    size_t             offset;   /* of the field in the verb's struct */
    double             min, max; /* of a number, both included; equal: any number */
    const char        *help;
    const char        *value; /* how help calls the value; NULL: by kind. FILE, PATH, RUN and DIR in
                               * it make completion offer such */
    const char *const *choices; /* NULL at the end; of a text or list only what completion offers */
    unsigned           flags;
    const char        *group; /* heading over this and what follows; NULL: as before */
    const char        *unset; /* what a default of 0 or NULL stands for, in words; may be NULL */
    char               brief; /* a letter: -n 5 and -n5 are --steps 5; 0: none. The same letter of
                               * all verbs is for the same purpose */
} cli_option;

typedef struct cli_note {
    const char *term, *text;
} cli_note; /* arrays of them end with {0} */

typedef struct cli_verb {
    const char       *name;
    const char       *summary; /* one line, for the list of verbs and the verb's own help */
    const cli_option *options;
    size_t            n_options;
    const void       *defaults; /* the verb's struct as it is before parsing */
    size_t            args_size;
    int (*run)(const void *args); /* returns the exit status */
    /* Other start values that follow from what was asked, such as those of a model; what is given
     * still wins over them. Says what went wrong and returns the exit status. May be NULL. */
    int (*prepare)(const void *args, void *defaults);
    /* A verb that runs another one takes its options, too, and keeps them as the words they are, in
     * a cli_list at the offset `rest`. NULL: there is none. */
    const struct cli_verb *over;
    size_t                 rest;
    /* What help says besides; all of it may be left out. Lines of a text are paragraphs. */
    const char     *group;    /* of verbs in the overview; NULL: that of the verb before */
    const char     *about;    /* what it does, reads and writes, and the defaults that matter */
    const cli_note *files;    /* by name, what they are */
    const cli_note *examples; /* a command, what it shows; tests run them */
    const cli_note *status;   /* the exit status, where there is more to say than for all */
    const char     *also;     /* verbs to look at, with blanks between them */
} cli_verb;

typedef enum cli_outcome { CLI_PARSED, CLI_ASKED_HELP, CLI_MISUSED, CLI_NO_MEMORY } cli_outcome;

enum { CLI_WHY = 512 };

/* Fills `args` (args_size bytes) from the defaults and from argv, which starts after the verb.
 * CLI_MISUSED and CLI_NO_MEMORY leave one line without newline in `why` (CLI_WHY bytes): what,
 * expected, found.
 * Call cli_release() afterwards, whatever the outcome. */
cli_outcome cli_parse(const cli_verb *verb, int argc, char *const *argv, void *args, char *why);
int         cli_outcome_status(cli_outcome outcome);       /* the exit status that it means */
void        cli_release(const cli_verb *verb, void *args); /* frees the lists */

/* The option of a verb by its name; NULL: there is none. */
const cli_option *cli_option_of(const cli_verb *verb, const char *name);

/* When an argument by place is an option's: 1 to CLI_TURNS; 0: it has none. What has a place only
 * comes first, but for a list, which takes all that is left, so that a model comes before it. */
enum { CLI_TURNS = 4 };
int cli_turn(const cli_option *option);

/* How help and errors call an option's value: "N", "FILE", "fast|exact". Returns `text`. */
const char *cli_value_name(const cli_option *option, char *text, size_t size);

/* The finite range of a number as " from 1 to 8", or "". Returns `text`. */
const char *cli_range(const cli_option *option, char *text, size_t size);

#endif
