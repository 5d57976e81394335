/* Reading facts: JSON objects become pairs of key and value. Keys of nested objects are joined;
 * arrays stay text. */
#include "facts.h"
#include "io/memory.h"
#include "io/model.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT = 4096, FILE_MOST = 1 << 24, DEPTH = 8, SETTINGS = 4096 };

/* ---- pairs ----------------------------------------------------------------------------------- */

static cli_fact *find_fact(const cli_facts *s, cli_fact_group group, const char *key)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i].group == group && strcmp(s->all[i].key, key) == 0) return &s->all[i];
    return NULL;
}

const char *cli_facts_find(const cli_facts *s, cli_fact_group group, const char *key)
{
    const cli_fact *found = find_fact(s, group, key);
    return found ? found->value : NULL;
}

/* Adds a fact; values of the same key are joined, such as the names of two data files. */
static void add_fact(cli_facts *s, cli_fact_group group, const char *key, const char *value)
{
    cli_fact *to = find_fact(s, group, key);
    if (to) {
        const size_t used = strlen(to->value);
        snprintf(to->value + used, sizeof to->value - used, ", %s", value);
        return;
    }
    if (s->n >= SETTINGS) return;
    cli_fact *all = realloc(s->all, (s->n + 1) * sizeof *all);
    if (!all) {
        cli_memory_note(DRA_ERR_MEMORY);
        return;
    }
    s->all = all;
    to = &s->all[s->n++];
    *to = (cli_fact){.group = group};
    snprintf(to->key, sizeof to->key, "%s", key);
    snprintf(to->value, sizeof to->value, "%s", value);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char *skip_blanks(const char *p) { return p + strspn(p, " \t\r\n"); }

/* The end of the text whose opening quote is at p; NULL: it has none. */
static const char *end_of_text(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : NULL;
}

/* The end of a value; brackets are counted, not matched. */
static const char *end_of_value(const char *p)
{
    int depth = 0;
    if (*p == '"') return end_of_text(p);
    for (; *p; p++) {
        if (*p == '"') {
            p = end_of_text(p);
            if (!p) return NULL;
            p--;
        } else if (*p == '{' || *p == '[') {
            depth++;
        } else if (*p == '}' || *p == ']') {
            if (depth == 0) return p;
            if (--depth == 0) return p + 1;
        } else if (depth == 0 && strchr(", \t\r\n", *p)) {
            return p;
        }
    }
    return depth ? NULL : p;
}

/* Copies a value: texts without quotes, numbers in few digits, the rest without line breaks. */
static void copy_value(const char *p, const char *end, char value[1024])
{
    size_t n = 0;
    char  *stop;
    if (*p == '"') {
        for (p++; p + 1 < end && n < 1023; p++) {
            if (*p == '\\' && p + 2 < end) p++;
            value[n++] = *p;
        }
        value[n] = '\0';
        return;
    }
    const double x = strtod(p, &stop);
    if (stop == end && stop != p) {
        snprintf(value, 1024, "%.9g", x);
        return;
    }
    for (; p < end && n < 1023; p++)
        if (!strchr(" \t\r\n", *p)) value[n++] = *p;
    value[n] = '\0';
}

typedef struct reader {
    cli_facts     *to;
    cli_fact_group group;
    char           path[96]; /* keys that lead here */
} reader;

/* Whether the key is the file's own hash, which is not a setting. */
static bool is_seal(const reader *r)
{
    return r->group == CLI_FACT_TRAINING && strcmp(r->path, "hash") == 0;
}

/* Reads an object; returns its end, NULL if there is no object. */
static const char *read_object(reader *r, const char *p, int depth)
{
    const size_t used = strlen(r->path);
    char         value[1024];
    if (*p != '{' || depth > DEPTH) return NULL;
    p = skip_blanks(p + 1);
    while (*p == '"') {
        const char *end = end_of_text(p);
        if (!end) return NULL;
        snprintf(r->path + used, sizeof r->path - used, "%s%.*s", used ? "." : "",
                 (int)(end - p - 2), p + 1);
        p = skip_blanks(end);
        if (*p != ':') return NULL;
        p = skip_blanks(p + 1);
        const bool nested = *p == '{';
        end = nested ? read_object(r, p, depth + 1) : end_of_value(p);
        if (!end) return NULL;
        if (!nested) {
            copy_value(p, end, value);
            if (!is_seal(r)) add_fact(r->to, r->group, r->path, value);
        }
        r->path[used] = '\0';
        p = skip_blanks(end);
        if (*p == ',') p = skip_blanks(p + 1);
    }
    return *p == '}' ? p + 1 : NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* *text stays NULL if there is no such file. */
static dra_status read_file(const char *run, const char *name, char **text, dra_error *err)
{
    char   path[PATH_TEXT];
    size_t bytes = 0;
    *text = NULL;
    if (!cli_path(run, name, path, sizeof path) || !cli_is_there(path)) return DRA_OK;
    return dra_file_read(path, FILE_MOST, text, &bytes, err);
}

static dra_status read_config(cli_facts *s, const char *run, const char *name, cli_fact_group group,
                              dra_error *err)
{
    reader           r = {s, group, ""};
    char            *text;
    const dra_status st = read_file(run, name, &text, err);
    if (text) read_object(&r, skip_blanks(text), 0);
    /* A seed of 0 is not written. */
    if (text && group == CLI_FACT_TRAINING && !find_fact(s, group, "seed"))
        add_fact(s, group, "seed", "0");
    free(text);
    return st;
}

/* The first start tells how the run was created; later ones are counted. */
static dra_status read_started(cli_facts *s, const char *run, dra_error *err)
{
    char            *text;
    const dra_status st = read_file(run, "train/started.jsonl", &text, err);
    size_t           lines = 0;
    char             count[32];
    reader           r = {s, CLI_FACT_START, ""};
    for (const char *p = text; p && *p; lines++) {
        const char *end = strchr(p, '\n');
        if (lines == 0) read_object(&r, skip_blanks(p), 0);
        p = end ? end + 1 : p + strlen(p);
    }
    snprintf(count, sizeof count, "%zu", lines - 1);
    if (lines > 1) add_fact(s, CLI_FACT_START, "resumed (times)", count);
    free(text);
    return st;
}

static dra_status read_sources(cli_facts *s, const char *run, dra_error *err)
{
    char            *text;
    const dra_status st = read_file(run, "train/sources.jsonl", &text, err);
    for (const char *p = text; p && *p;) {
        const char *end = strchr(p, '\n');
        cli_facts   one = {0};
        reader      r = {&one, CLI_FACT_DATA, ""};
        read_object(&r, skip_blanks(p), 0);
        const cli_fact *option = find_fact(&one, CLI_FACT_DATA, "option");
        const cli_fact *value = find_fact(&one, CLI_FACT_DATA, "value");
        if (option && value) add_fact(s, CLI_FACT_DATA, option->value, value->value);
        cli_facts_free(&one);
        p = end ? end + 1 : p + strlen(p);
    }
    free(text);
    return st;
}

dra_status cli_facts_read(const char *run, cli_facts *s, dra_error *err)
{
    dra_status st = read_started(s, run, err);
    if (st == DRA_OK) st = read_config(s, run, "train/config.json", CLI_FACT_TRAINING, err);
    if (st == DRA_OK) st = read_config(s, run, "config.json", CLI_FACT_MODEL, err);
    return st == DRA_OK ? read_sources(s, run, err) : st;
}

void cli_facts_free(cli_facts *s)
{
    free(s->all);
    *s = (cli_facts){0};
}
