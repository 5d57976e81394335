/* Mixers that were given another memory: what they say besides and the new one does not have. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "file/fields.h"
#include "model/model.h"
#include "model/owned.h"

enum { NAME_MOST = 64 };

typedef struct fitting {
    size_t             n; /* of `set` */
    const char *const *set;
    dra_model_config  *trial;
} fitting;

/* Whether a key gives a mixer another memory, or takes one away. */
static bool replaces_memory(const char *key)
{
    return strncmp(key, "mixer.", 6) == 0 &&
           (strstr(key, "memory") || strcmp(key, "mixer.blend") == 0);
}

static bool replaces_any(size_t n, const char *const *set)
{
    while (n > 0 && !replaces_memory(set[n - 1])) n--;
    return n > 0;
}

static bool can_be_made(const dra_model_config *c, dra_error *err)
{
    dra_model *m;
    const bool made = dra_model_create(c, &m, err) == DRA_OK;
    dra_model_destroy(m);
    return made;
}

/* "mixer.1.decay" is about mixer.decay. */
static bool is_about(const char *set, const char *key)
{
    const size_t n = strlen("mixer.");
    if (strncmp(set, "mixer.", n) != 0 || strncmp(key, "mixer.", n) != 0) return false;
    set += n;
    while (*set >= '0' && *set <= '9') set++;
    set += *set == '.';
    const char *rest = key + n + strlen(set); /* gamma is about gamma.range, too */
    return strncmp(set, key + n, strlen(set)) == 0 && (*rest == '\0' || *rest == '.');
}

/* A key of a mixer that says something and that nobody has set just now. */
static bool may_go(const fitting *f, const char *key, const dra_model_config *c)
{
    if (strncmp(key, "mixer.", 6) != 0 || strcmp(key, "mixer.memory") == 0) return false;
    for (size_t i = 0; i < f->n; i++)
        if (is_about(f->set[i], key)) return false;
    return dra_fields_has(dra_model_fields(), key, c);
}

static void add_dropped(const char *key, char *dropped, size_t size)
{
    const size_t n = strlen(dropped);
    snprintf(dropped + n, size - n, "%s%s", n ? ", " : "", key);
}

/* Without all that may go a model must be possible; then as much comes back as can. */
static bool drop_least(const fitting *f, const dra_model_config *from, char *dropped, size_t size)
{
    const dra_field *table = dra_model_fields(), *field;
    char             key[NAME_MOST];
    dra_error        why = {0};
    for (size_t i = 0; dra_fields_at(table, i, key, sizeof key, &field); i++)
        if (may_go(f, key, from)) dra_fields_copy(table, key, f->trial, NULL);
    if (!can_be_made(f->trial, &why)) return false;
    for (size_t i = 0; dra_fields_at(table, i, key, sizeof key, &field); i++) {
        if (!may_go(f, key, from)) continue;
        dra_fields_copy(table, key, f->trial, from);
        if (can_be_made(f->trial, &why)) continue;
        dra_fields_copy(table, key, f->trial, NULL);
        add_dropped(key, dropped, size);
    }
    return true;
}

dra_status dra_model_config_fit(dra_model_config *config, size_t n, const char *const *set,
                                char *dropped, size_t size, dra_error *err)
{
    dra_error        why = {0};
    dra_model_config trial;
    const fitting    f = {n, set, &trial};
    dra_status       st = dra_config_check_own(config, err);
    dropped[0] = '\0';
    if (st != DRA_OK || !replaces_any(n, set) || can_be_made(config, &why)) return st;
    st = dra_config_fill(&trial, config, config->own, err);
    if (st == DRA_OK && drop_least(&f, config, dropped, size)) *config = trial;
    dra_config_point(config);
    return st;
}
