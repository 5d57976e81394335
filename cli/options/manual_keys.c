/* The keys of a model's config, as a page of the manual: from the tables that read it. */
#include "manual.h"

#include "dra/model.h"

#include <string.h>
#include <strings.h>

static const char about[] =
    "These are the keys of config.json in dra's own format, and of --set KEY=VALUE, which changes "
    "one on the command line. A missing key has its default.\n"
    "mixer may be a list of objects: attention sublayers take them in turn. mixer.memory sets the "
    "key in all of them, mixer.1.memory in the second. In a model of several stacks encoder.depth "
    "is the depth of the stack encoder. docs/models.md says more, and has the formulas.";

/* The length of "mixer.gamma" in "mixer.gamma.range". */
static size_t object_of(const char *name)
{
    const char *last = strrchr(name, '.');
    return last ? (size_t)(last - name) : 0;
}

static bool are_together(const dra_config_key *a, const dra_config_key *b)
{
    const size_t n = object_of(a->name);
    return n == object_of(b->name) && strncmp(a->name, b->name, n) == 0;
}

static bool has_part(const char *text, const char *part)
{
    const size_t n = strlen(part);
    while (*text && strncasecmp(text, part, n) != 0) text++;
    return *text != '\0';
}

/* Whether a key is asked for, by a part of its name or of its explanation. */
static bool is_asked(const dra_config_key *k, const char *part)
{
    return !part || has_part(k->name, part) || has_part(k->about, part);
}

static bool is_first(const dra_config_key *key, size_t i, const char *part)
{
    dra_config_key before;
    for (size_t k = 0; k < i && dra_config_key_at(k, &before); k++)
        if (are_together(key, &before) && is_asked(&before, part)) return false;
    return is_asked(key, part);
}

static void write_key(const dra_config_key *k, const cli_format *f, FILE *out)
{
    char       term[256], text[512];
    const bool needed = k->unset && strcmp(k->unset, "required") == 0;
    const bool said = k->unset && strcmp(k->unset, "none") != 0 && strcmp(k->unset, "false") != 0;
    snprintf(term, sizeof term, "%s%s%s", k->name, k->value[0] ? " " : "", k->value);
    snprintf(text, sizeof text, said ? "%s (%s%s)" : "%s", k->about, needed ? "" : "default ",
             k->unset);
    f->item(term, text, out);
}

bool cli_has_keys(const char *part)
{
    dra_config_key key;
    for (size_t i = 0; dra_config_key_at(i, &key); i++)
        if (is_asked(&key, part)) return true;
    return false;
}

void cli_manual_keys(const char *part, const cli_format *f, FILE *out)
{
    dra_config_key key, other;
    f->begin("dra keys", "the keys of a model's config", "dra VERB --set KEY=VALUE", out);
    if (!part) cli_write_paragraphs(f, about, out);
    for (size_t i = 0; dra_config_key_at(i, &key); i++) {
        char heading[80] = "The model";
        if (!is_first(&key, i, part)) continue;
        if (object_of(key.name))
            snprintf(heading, sizeof heading, "%.*s", (int)object_of(key.name), key.name);
        f->heading(heading, out);
        for (size_t k = i; dra_config_key_at(k, &other); k++)
            if (are_together(&key, &other) && is_asked(&other, part)) write_key(&other, f, out);
    }
}

bool cli_key_meant(const char *typed, char *name, size_t size)
{
    dra_config_key key;
    dra_guess      nearest = {.typed = typed};
    name[0] = '\0';
    for (size_t i = 0; dra_config_key_at(i, &key); i++) {
        dra_guess guess = {.typed = typed};
        dra_guess_try(&guess, key.name);
        if (!key.value[0] || !guess.best || guess.wrong > DRA_GUESS_MEANT) continue;
        if (name[0] && guess.wrong >= nearest.wrong) continue;
        nearest.wrong = guess.wrong;
        snprintf(name, size, "%s", key.name);
    }
    return name[0];
}
