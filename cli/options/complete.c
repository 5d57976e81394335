/* What can be offered as the value of an option, as far as its table row tells. */
#include "complete.h"
#include "verbs/verbs.h"

#include "dra/model.h"

#include <ctype.h>
#include <string.h>

static bool value_has(const cli_option *o, const char *name)
{
    return o->value && strstr(o->value, name);
}

bool cli_takes_files(const cli_option *o)
{
    return value_has(o, "FILE") || value_has(o, "PATH") || value_has(o, "RUN");
}

bool cli_takes_folders(const cli_option *o) { return value_has(o, "DIR"); }

static void write_word(const char *word, size_t length, size_t *n, FILE *out)
{
    if (out) fprintf(out, "%s%.*s", *n ? " " : "", (int)length, word);
    (*n)++;
}

/* "PATH|bytes|none" has the words bytes and none. */
static void write_plain_parts(const char *value, size_t *n, FILE *out)
{
    while (value && *value) {
        const size_t length = strcspn(value, "|");
        if (islower((unsigned char)*value)) write_word(value, length, n, out);
        value += length + (value[length] == '|');
    }
}

size_t cli_write_words(const cli_option *o, FILE *out)
{
    const dra_preset *preset;
    const cli_verb   *verb;
    size_t            n = 0;
    for (size_t i = 0; o->choices && o->choices[i]; i++)
        write_word(o->choices[i], strlen(o->choices[i]), &n, out);
    for (size_t i = 0; (o->flags & CLI_A_PRESET) && (preset = dra_preset_at(i)) != NULL; i++)
        write_word(preset->name, strlen(preset->name), &n, out);
    for (size_t i = 0; (o->flags & CLI_A_VERB) && (verb = cli_verb_at(i)) != NULL; i++)
        write_word(verb->name, strlen(verb->name), &n, out);
    write_plain_parts(o->value, &n, out);
    return n;
}

void cli_write_keys(FILE *out)
{
    dra_config_key key;
    for (size_t i = 0; dra_config_key_at(i, &key); i++)
        fprintf(out, "%s%s%s", i ? " " : "", key.name, key.value[0] ? "=" : ".");
}
