/* The file of a study: reading and checking it. */
#include "study.h"
#include "options/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *kind_of(const json_t *x)
{
    return json_is_object(x)   ? "an object"
           : json_is_array(x)  ? "a list"
           : json_is_string(x) ? "a text"
           : json_is_number(x) ? "a number"
           : x                 ? "true, false or null"
                               : "nothing";
}

static dra_status fail_kind(const cli_study *s, const char *where, const char *expected,
                            const json_t *found, dra_error *err)
{
    return cli_error(err, DRA_ERR_VALUE, "%.200s: %.120s: expected %s, found %s", s->path, where,
                     expected, kind_of(found));
}

static dra_status check_keys(const cli_study *s, const char *where, json_t *x,
                             const char *const *keys, size_t n, dra_error *err)
{
    const char *key;
    json_t     *value;
    json_object_foreach(x, key, value)
    {
        dra_guess guess = {.typed = key};
        bool      known = false;
        for (size_t i = 0; i < n; i++) {
            known = known || strcmp(key, keys[i]) == 0;
            dra_guess_try(&guess, keys[i]);
        }
        if (!known)
            return cli_error(err, DRA_ERR_VALUE, "%.200s: %.120s: no such key: '%.60s'%s%s%s",
                             s->path, where, key, guess.best ? "; did you mean " : "",
                             guess.best ? guess.best : "", guess.best ? "?" : "");
    }
    return DRA_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* What "$NAME" stands for in the scale; anything else stands for itself. NULL: no such value. */
static json_t *resolve_value(const cli_study *s, json_t *x)
{
    const char *text = json_string_value(x);
    return text && text[0] == '$' ? json_object_get(s->scale, text + 1) : x;
}

static json_t *find_value(const cli_study *s, json_t *object, const char *key)
{
    return resolve_value(s, json_object_get(object, key));
}

static const char *find_text(const cli_study *s, json_t *object, const char *key)
{
    return json_string_value(find_value(s, object, key));
}

static double find_number(const cli_study *s, json_t *object, const char *key)
{
    const json_t *x = find_value(s, object, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* The values of an axis as cli_sweep_add() takes them. false: one is neither text nor number. */
static bool join_values(json_t *list, char *text, size_t size)
{
    size_t  i, used = 0;
    json_t *x;
    char    room[CLI_NUMBER];
    if (json_array_size(list) == 0) return false;
    json_array_foreach(list, i, x)
    {
        const char *value = json_is_string(x)   ? json_string_value(x)
                            : json_is_number(x) ? cli_study_number(x, room)
                                                : NULL;
        if (!value || !*value) return false;
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "", value);
        if (used >= size) return false;
    }
    return true;
}

static dra_status read_axes(const cli_study *s, const char *where, json_t *over, cli_study_block *b,
                            dra_error *err)
{
    const char *key;
    json_t     *value;
    char        text[4096], at[160];
    b->model = b->seed = b->tune = -1;
    json_object_foreach(over, key, value)
    {
        json_t *list = resolve_value(s, value);
        snprintf(at, sizeof at, "%s.over.%.60s", where, key);
        if (!json_is_array(list) || !join_values(list, text, sizeof text) ||
            !cli_sweep_add(&b->over, key, false, text))
            return fail_kind(s, at, "a list of texts or numbers", list, err);
        if (strcmp(key, "model") == 0) b->model = b->over.n - 1;
        if (strcmp(key, "seed") == 0) b->seed = b->over.n - 1;
    }
    return DRA_OK;
}

static dra_status find_tuned(const cli_study *s, const char *where, const char *name,
                             cli_study_block *b, dra_error *err)
{
    for (int i = 0; name && i < b->over.n; i++)
        if (strcmp(b->over.axis[i].name, name) == 0) b->tune = i;
    if (!name || (b->tune >= 0 && b->tune != b->seed && b->tune != b->model)) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE,
                     "%.200s: %.120s.tune: expected an axis of over, not seed or model, found "
                     "'%.60s'",
                     s->path, where, name);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool are_texts(const json_t *list)
{
    size_t  i;
    json_t *x;
    json_array_foreach(list, i, x) if (!json_is_string(x)) return false;
    return json_array_size(list) > 0;
}

static const cli_study_model *find_model(const cli_study *s, const char *name)
{
    for (size_t i = 0; i < s->n_models; i++)
        if (strcmp(s->models[i].name, name) == 0) return &s->models[i];
    return NULL;
}

static dra_status check_models(const cli_study *s, const char *where, const cli_study_block *b,
                               dra_error *err)
{
    const cli_axis *a = b->model < 0 ? NULL : &b->over.axis[b->model];
    for (int64_t i = 0; a && i < a->count; i++)
        if (!find_model(s, a->value[i]))
            return cli_error(err, DRA_ERR_VALUE,
                             "%.200s: %.120s.over.model: no such model: '%.60s'", s->path, where,
                             a->value[i]);
    return DRA_OK;
}

/* Every command can be made. */
static dra_status check_commands(const cli_study *s, size_t block, dra_error *err)
{
    cli_study_run r;
    dra_error     why = {0};
    char         *text;
    if (!cli_study_run_at(s, block, 0, &r))
        return cli_error(err, DRA_ERR_VALUE,
                         "%.200s: block %.60s: the names of its runs are too "
                         "long",
                         s->path, s->blocks[block].name);
    for (size_t i = 0; (text = cli_study_command(&r, &(cli_study_places){0}, i, &why)); i++)
        free(text);
    if (why.code != DRA_OK) *err = why;
    return why.code;
}

static dra_status read_block(cli_study *s, json_t *x, const char *where, dra_error *err)
{
    static const char *const keys[] = {"name", "about",  "priority", "minutes", "needs",
                                       "over", "tune",   "run",      "tokens",  "score",
                                       "best", "window", "scales"};
    cli_study_block         *b = &s->blocks[s->n_blocks];
    *b = (cli_study_block){.model = -1, .seed = -1, .tune = -1};
    if (!json_is_object(x)) return fail_kind(s, where, "an object", x, err);
    dra_status st = check_keys(s, where, x, keys, COUNT(keys), err);
    if (st != DRA_OK) return st;
    const char   *best = find_text(s, x, "best");
    const json_t *priority = json_object_get(x, "priority"), *scales = json_object_get(x, "scales");
    size_t        i;
    json_t       *one;
    bool          here = !scales;
    json_array_foreach(scales, i, one)
        here = here || (json_is_string(one) && strcmp(json_string_value(one), s->scale_name) == 0);
    if (!here) return DRA_OK;
    s->n_blocks++;
    b->name = find_text(s, x, "name");
    b->score = find_text(s, x, "score");
    b->needs = find_text(s, x, "needs");
    b->tokens = json_string_value(json_object_get(x, "tokens"));
    b->commands = json_object_get(x, "run");
    b->priority = json_is_integer(priority) ? json_integer_value(priority) : 1;
    b->minutes = find_number(s, x, "minutes");
    b->window = find_number(s, x, "window");
    b->lowest = best && strcmp(best, "lowest") == 0;
    if (!b->name || !*b->name || strchr(b->name, '/'))
        return cli_error(err, DRA_ERR_VALUE, "%.200s: %s.name: expected a text without slashes",
                         s->path, where);
    if (!b->score) return fail_kind(s, where, "a score, the name of a number", NULL, err);
    if (!best || (!b->lowest && strcmp(best, "highest") != 0))
        return cli_error(err, DRA_ERR_VALUE,
                         "%.200s: %s.best: expected highest or lowest, found %.60s", s->path, where,
                         best ? best : "nothing");
    if (!are_texts(b->commands))
        return fail_kind(s, where, "a list of commands, run", b->commands, err);
    json_t *over = json_object_get(x, "over");
    if (!json_is_object(over)) return fail_kind(s, where, "an object, over", over, err);
    st = read_axes(s, where, over, b, err);
    if (st == DRA_OK) st = find_tuned(s, where, find_text(s, x, "tune"), b, err);
    return st == DRA_OK ? check_models(s, where, b, err) : st;
}

static int compare_blocks(const void *a, const void *b)
{
    const cli_study_block *x = a, *y = b;
    if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
    return 0;
}

/* By priority, otherwise in the order of the file. */
static void sort_blocks(cli_study *s)
{
    for (size_t i = 1; i < s->n_blocks; i++)
        for (size_t k = i; k > 0 && compare_blocks(&s->blocks[k - 1], &s->blocks[k]) > 0; k--) {
            const cli_study_block other = s->blocks[k];
            s->blocks[k] = s->blocks[k - 1];
            s->blocks[k - 1] = other;
        }
}

/* What a block needs runs before it. */
static dra_status check_needs(const cli_study *s, size_t block, dra_error *err)
{
    const char *needs = s->blocks[block].needs;
    for (size_t i = 0; needs && i < block; i++)
        if (strcmp(s->blocks[i].name, needs) == 0) return DRA_OK;
    if (!needs) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE,
                     "%.200s: block %.60s: needs %.60s, which is no block before it", s->path,
                     s->blocks[block].name, needs);
}

static dra_status read_blocks(cli_study *s, dra_error *err)
{
    json_t    *list = json_object_get(s->root, "blocks"), *x;
    size_t     i;
    char       where[64];
    dra_status st = DRA_OK;
    if (json_array_size(list) == 0) return fail_kind(s, "blocks", "a list of blocks", list, err);
    s->blocks = calloc(json_array_size(list), sizeof *s->blocks);
    if (!s->blocks) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    json_array_foreach(list, i, x)
    {
        snprintf(where, sizeof where, "blocks[%zu]", i);
        if (st == DRA_OK) st = read_block(s, x, where, err);
    }
    if (st != DRA_OK) return st;
    sort_blocks(s);
    for (i = 0; i < s->n_blocks && st == DRA_OK; i++) {
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->blocks[k].name, s->blocks[i].name) == 0)
                return cli_error(err, DRA_ERR_VALUE, "%.200s: two blocks are called %.60s", s->path,
                                 s->blocks[i].name);
        st = check_commands(s, i, err);
        if (st == DRA_OK) st = check_needs(s, i, err);
    }
    return st;
}

/* ---- models ---------------------------------------------------------------------------------- */

static dra_status read_models(cli_study *s, dra_error *err)
{
    json_t     *all = json_object_get(s->root, "models"), *set;
    const char *name;
    char        where[120];
    if (!json_is_object(all) || !json_object_size(all))
        return fail_kind(s, "models", "an object of lists", all, err);
    s->models = calloc(json_object_size(all), sizeof *s->models);
    if (!s->models) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    json_object_foreach(all, name, set)
    {
        snprintf(where, sizeof where, "models.%.60s", name);
        if (!json_is_array(set) || (json_array_size(set) && !are_texts(set)))
            return fail_kind(s, where, "a list of texts KEY=VALUE", set, err);
        if (strchr(name, '/') || strchr(name, ',') || !*name)
            return cli_error(err, DRA_ERR_VALUE,
                             "%.200s: %s: expected a name without slashes and commas", s->path,
                             where);
        s->models[s->n_models++] = (cli_study_model){.name = name, .set = set};
    }
    s->like = json_string_value(json_object_get(s->root, "like"));
    if (s->like && !find_model(s, s->like))
        return cli_error(err, DRA_ERR_VALUE, "%.200s: like: no such model: '%.60s'", s->path,
                         s->like);
    return DRA_OK;
}

/* ---- claims ---------------------------------------------------------------------------------- */

static bool has_axis(const cli_study_block *b, const char *name)
{
    for (int i = 0; i < b->over.n; i++)
        if (strcmp(b->over.axis[i].name, name) == 0) return true;
    return false;
}

static dra_status check_side(const cli_study *s, const char *where, const char *side, json_t *x,
                             const cli_study_block *b, dra_error *err)
{
    const char *axis;
    json_t     *values;
    char        at[120];
    snprintf(at, sizeof at, "%s.%s", where, side);
    if (!json_is_object(x)) return fail_kind(s, at, "an object of axes", x, err);
    json_object_foreach(x, axis, values)
    {
        if (b && !has_axis(b, axis))
            return cli_error(err, DRA_ERR_VALUE, "%.200s: %s: block %.60s has no axis '%.60s'",
                             s->path, at, b->name, axis);
        if (json_array_size(values) == 0) return fail_kind(s, at, "a list of values", values, err);
    }
    return DRA_OK;
}

static const cli_study_block *find_block(const cli_study *s, const char *name)
{
    for (size_t i = 0; i < s->n_blocks; i++)
        if (strcmp(s->blocks[i].name, name) == 0) return &s->blocks[i];
    return NULL;
}

static dra_status check_claim(const cli_study *s, json_t *x, const char *where, dra_error *err)
{
    static const char *const keys[] = {"claim",   "text",          "block", "of",
                                       "against", "against_block", "rule",  "margin"};
    if (!json_is_object(x)) return fail_kind(s, where, "an object", x, err);
    dra_status             st = check_keys(s, where, x, keys, COUNT(keys), err);
    const char            *rule = json_string_value(json_object_get(x, "rule"));
    const char            *name = json_string_value(json_object_get(x, "block"));
    const cli_study_block *b = NULL;
    if (st != DRA_OK) return st;
    if (!rule ||
        (strcmp(rule, "above") != 0 && strcmp(rule, "at least") != 0 && strcmp(rule, "times") != 0))
        return cli_error(err, DRA_ERR_VALUE,
                         "%.200s: %s.rule: expected above, at least or times, found %.60s", s->path,
                         where, rule ? rule : "nothing");
    if (!json_is_number(json_object_get(x, "margin")) || !name)
        return cli_error(err, DRA_ERR_VALUE, "%.200s: %s: expected a block and a margin", s->path,
                         where);
    const char            *other = json_string_value(json_object_get(x, "against_block"));
    const cli_study_block *against = find_block(s, other ? other : name);
    b = find_block(s, name); /* NULL: it is of another scale */
    if (b && against && strcmp(b->score, against->score) != 0)
        return cli_error(err, DRA_ERR_VALUE, "%.200s: %s: blocks with the same score, found two",
                         s->path, where);
    st = check_side(s, where, "of", json_object_get(x, "of"), b, err);
    if (st != DRA_OK) return st;
    return check_side(s, where, "against", json_object_get(x, "against"), against, err);
}

static dra_status read_claims(cli_study *s, dra_error *err)
{
    size_t     i;
    json_t    *x;
    char       where[64];
    dra_status st = DRA_OK;
    s->claims = json_object_get(s->root, "claims");
    if (s->claims && !json_is_array(s->claims))
        return fail_kind(s, "claims", "a list", s->claims, err);
    json_array_foreach(s->claims, i, x)
    {
        snprintf(where, sizeof where, "claims[%zu]", i);
        if (st == DRA_OK) st = check_claim(s, x, where, err);
    }
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static dra_status read_scale(cli_study *s, dra_error *err)
{
    json_t *all = json_object_get(s->root, "scale");
    if (!json_is_object(all)) return fail_kind(s, "scale", "an object of scales", all, err);
    s->scale = json_object_get(all, s->scale_name);
    if (!json_is_object(s->scale))
        return cli_error(err, DRA_ERR_VALUE, "%.200s: scale: no such scale: '%.60s'", s->path,
                         s->scale_name);
    json_t *base = json_object_get(s->scale, "base");
    return json_is_object(base) ? DRA_OK : fail_kind(s, "scale: base", "a config", base, err);
}

/* The file's name without folders and its end. */
static void take_name(cli_study *s)
{
    const char *slash = strrchr(s->path, '/'), *own;
    own = json_string_value(json_object_get(s->root, "study"));
    snprintf(s->name, sizeof s->name, "%s", own ? own : slash ? slash + 1 : s->path);
    if (!own && strrchr(s->name, '.')) *strrchr(s->name, '.') = '\0';
}

dra_status cli_study_read(const char *path, const char *scale, cli_study *out, dra_error *err)
{
    enum { MOST = 1 << 24 };
    static const char *const keys[] = {"study", "about",  "scale", "models",
                                       "like",  "blocks", "claims"};
    char                    *text = NULL;
    size_t                   bytes = 0;
    json_error_t             why;
    *out = (cli_study){.path = path, .scale_name = scale};
    dra_status st = dra_file_read(path, MOST, &text, &bytes, err);
    if (st != DRA_OK) return st;
    out->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!json_is_object(out->root))
        return cli_error(err, DRA_ERR_VALUE, "%.200s: line %d: %.120s", path,
                         out->root ? 1 : why.line,
                         out->root ? "expected an object of JSON" : why.text);
    take_name(out);
    st = check_keys(out, "the study", out->root, keys, COUNT(keys), err);
    if (st == DRA_OK) st = read_scale(out, err);
    if (st == DRA_OK) st = read_models(out, err);
    if (st == DRA_OK) st = read_blocks(out, err);
    return st == DRA_OK ? read_claims(out, err) : st;
}

void cli_study_free(cli_study *s)
{
    for (size_t i = 0; i < s->n_blocks; i++) cli_sweep_free(&s->blocks[i].over);
    for (size_t i = 0; i < s->n_models; i++) free(s->models[i].text);
    free(s->blocks);
    free(s->models);
    json_decref(s->root);
    *s = (cli_study){0};
}
