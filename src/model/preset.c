/* Presets by name. */
#include "model/presets.h"

#include <string.h>

#include "base/error.h"

const dra_preset *dra_preset_at(size_t i)
{
    for (size_t k = 0; dra_presets[k].name; k++)
        if (k == i) return &dra_presets[k];
    return NULL;
}

/* Whether a word, without dashes, is one of the words of a name. */
static bool has_word(const char *name, const char *word, size_t n)
{
    for (;;) {
        const size_t length = strcspn(name, "-");
        if (length == n && strncmp(name, word, n) == 0) return true;
        if (!name[length]) return false;
        name += length + 1;
    }
}

/* How many words a name has besides those that were typed, "tiny" apart; below 0: one of those is
 * not among them. */
static int words_more(const char *typed, const char *name)
{
    int more = 0;
    for (const char *w = typed; *w;) {
        const size_t n = strcspn(w, "-");
        if (n && !has_word(name, w, n)) return -1;
        w += n + (w[n] == '-');
    }
    for (const char *w = name; *w;) {
        const size_t n = strcspn(w, "-");
        more += !has_word(typed, w, n) && strncmp(w, "tiny", n) != 0;
        w += n + (w[n] == '-');
    }
    return more;
}

/* The preset that has all words of a name and the fewest others; NULL: none has them. */
static const char *with_words(const char *typed)
{
    const char *best = NULL;
    int         least = 0;
    for (const dra_preset *p = dra_presets; p->name && *typed; p++) {
        const int more = words_more(typed, p->name);
        if (more < 0 || (best && more >= least)) continue;
        best = p->name;
        least = more;
    }
    return best;
}

dra_status dra_preset_config(const char *name, dra_model_config **out, dra_error *err)
{
    dra_guess guess = {.typed = name};
    for (const dra_preset *p = dra_presets; p->name; p++) {
        if (strcmp(p->name, name) == 0)
            return dra_model_config_parse(name, p->json, strlen(p->json), out, err);
        dra_guess_try(&guess, p->name);
    }
    *out = NULL;
    const char *meant = guess.best ? guess.best : with_words(name);
    return dra_fail(err, DRA_ERR_NAME, "no preset is called %.40s%s%s%s", name,
                    meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
}
