/* The models of a study, with equal numbers of parameters. */
#include "study.h"

#include <stdlib.h>
#include <string.h>

typedef struct tried { /* a model with some width of its feed-forward */
    char   *text;
    int64_t parameters;
} tried;

enum { STEP = 8, WIDEST = 1 << 14 }; /* of ff.dim, in steps */

static dra_status take_text(const dra_model_config *c, char **out, dra_error *err)
{
    const size_t n = dra_model_config_text(c, NULL, 0);
    *out = n ? malloc(n + 1) : NULL;
    if (!*out) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    dra_model_config_text(c, *out, n + 1);
    return DRA_OK;
}

static dra_status apply_settings(const cli_study *s, const cli_study_model *m, dra_model_config *c,
                                 dra_error *err)
{
    dra_status st = DRA_OK;
    size_t     i;
    json_t    *x;
    json_array_foreach(m->set, i, x)
    {
        char        key[120];
        const char *text = json_string_value(x), *equals = strchr(text, '=');
        if (st != DRA_OK) break;
        if (!equals || equals == text || (size_t)(equals - text) >= sizeof key)
            return cli_error(err, DRA_ERR_VALUE,
                             "%.200s: models.%.60s: expected KEY=VALUE, found '%.60s'", s->path,
                             m->name, text);
        snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
        st = dra_model_config_set(c, key, equals + 1, err);
    }
    return st;
}

/* width 0: the config's own. */
static dra_status try_width(const cli_study *s, const cli_study_model *m, int64_t width, tried *out,
                            dra_error *err)
{
    char *base = json_dumps(json_object_get(s->scale, "base"), JSON_ENCODE_ANY), number[32];
    dra_model_config *c = NULL;
    dra_model        *model = NULL;
    *out = (tried){0};
    if (!base) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    snprintf(number, sizeof number, "%lld", (long long)width);
    dra_status st = dra_model_config_parse("base", base, strlen(base), &c, err);
    free(base);
    if (st == DRA_OK) st = apply_settings(s, m, c, err);
    if (st == DRA_OK && width) st = dra_model_config_set(c, "ff.dim", number, err);
    if (st == DRA_OK) st = dra_model_create(c, &model, err);
    if (st == DRA_OK) out->parameters = dra_model_param_count(model);
    if (st == DRA_OK) st = take_text(c, &out->text, err);
    dra_model_destroy(model);
    dra_model_config_destroy(c);
    return st;
}

static int64_t distance_of(int64_t a, int64_t b) { return a < b ? b - a : a - b; }

/* The width with the nearest number of parameters: it grows with the width. */
static dra_status find_width(const cli_study *s, const cli_study_model *m, int64_t want,
                             tried *best, dra_error *err)
{
    int64_t low = 1, high = WIDEST;
    while (low <= high) {
        const int64_t middle = (low + high) / 2;
        tried         t;
        dra_status    st = try_width(s, m, middle * STEP, &t, err);
        if (st != DRA_OK) return st;
        const int64_t found = t.parameters;
        if (!best->text || distance_of(found, want) < distance_of(best->parameters, want)) {
            free(best->text);
            *best = t;
        } else {
            free(t.text);
        }
        if (found == want) break;
        if (found < want)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return DRA_OK;
}

static dra_status match_model(const cli_study *s, cli_study_model *m, int64_t want, dra_error *err)
{
    tried            best = {0};
    const dra_status st = find_width(s, m, want, &best, err);
    m->text = best.text;
    m->parameters = best.parameters;
    if (st != DRA_OK || 100 * distance_of(m->parameters, want) <= 3 * want) return st;
    return cli_error(err, DRA_ERR_VALUE,
                     "%.200s: models.%.60s: %lld parameters are as near to the %lld of %.60s as "
                     "ff.dim makes them, expected within 3 %%",
                     s->path, m->name, (long long)m->parameters, (long long)want, s->like);
}

dra_status cli_study_match(cli_study *s, dra_error *err)
{
    dra_status st = DRA_OK;
    int64_t    want = 0;
    tried      t;
    for (size_t pass = 0; pass < 2; pass++) /* first the one that all others are like */
        for (size_t i = 0; i < s->n_models && st == DRA_OK; i++) {
            cli_study_model *m = &s->models[i];
            const bool       own = !s->like || strcmp(m->name, s->like) == 0;
            if (own != (pass == 0)) continue;
            if (!own) {
                st = match_model(s, m, want, err);
                continue;
            }
            st = try_width(s, m, 0, &t, err);
            m->text = t.text;
            want = m->parameters = t.parameters;
        }
    return st;
}
