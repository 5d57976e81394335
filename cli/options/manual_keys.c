/* The keys of a model's config, as a page of the manual: from the tables that read it. */
#include "manual.h"

#include "dra/model.h"

#include <string.h>

static const char about[] =
    "These are the keys of config.json in dra's own format, and of --set KEY=VALUE, which changes "
    "one on the command line. A key that is not there has its default.\n"
    "mixer may be a list of objects: attention sublayers take them in turn. mixer.memory sets the "
    "key in all of them, mixer.1.memory in the second. In a model of several stacks "
    "encoder.depth is the depth of the stack encoder. docs/models.md says more, and has the "
    "formulas.";

/* Of "mixer.gamma.range" the letters of "mixer.gamma". */
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

static bool is_first(const dra_config_key *key, size_t i)
{
    dra_config_key before;
    for (size_t k = 0; k < i && dra_config_key_at(k, &before); k++)
        if (are_together(key, &before)) return false;
    return true;
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

void cli_manual_keys(const cli_format *f, FILE *out)
{
    dra_config_key key, other;
    f->begin("dra keys", "the keys of a model's config", "dra VERB --set KEY=VALUE", out);
    cli_write_paragraphs(f, about, out);
    for (size_t i = 0; dra_config_key_at(i, &key); i++) {
        char heading[80] = "The model";
        if (!is_first(&key, i)) continue;
        if (object_of(key.name))
            snprintf(heading, sizeof heading, "%.*s", (int)object_of(key.name), key.name);
        f->heading(heading, out);
        for (size_t k = i; dra_config_key_at(k, &other); k++)
            if (are_together(&key, &other)) write_key(&other, f, out);
    }
}
