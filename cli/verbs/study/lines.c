/* The lines of a study: what its runs came to, appended one by one. */
#include "study.h"
#include "io/append.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what makes a run the same --------------------------------------------------------------- */

enum { KEY = 17 };

static void add_text(uint64_t *h, const char *text) /* FNV-1a */
{
    for (; *text; text++) *h = (*h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
}

/* Its commands, as they are written with no places, and its config. false: no memory. */
static bool make_key(const cli_study_run *r, char key[KEY])
{
    const size_t n = json_array_size(r->block->commands);
    uint64_t     h = UINT64_C(0xcbf29ce484222325);
    dra_error    err = {0};
    for (size_t i = 0; i < n; i++) {
        char *text = cli_study_command(r, &(cli_study_places){0}, i, &err);
        if (!text) return false;
        add_text(&h, text);
        add_text(&h, "\n");
        free(text);
    }
    if (r->model) add_text(&h, r->model->text);
    snprintf(key, KEY, "%016llx", (unsigned long long)h);
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A line that is no object, such as half of one after a power loss, is passed over. */
static void take_line(cli_study_lines *l, const char *text, size_t bytes)
{
    json_t     *x = json_loadb(text, bytes, 0, NULL);
    const char *name = json_string_value(json_object_get(x, "run"));
    if (name) json_object_set(l->by_name, name, x);
    json_decref(x);
}

dra_status cli_study_lines_read(const char *folder, cli_study_lines *out, dra_error *err)
{
    enum { MOST = 1 << 28 };
    char  *text = NULL;
    size_t bytes = 0;
    *out = (cli_study_lines){.by_name = json_object()};
    if (!out->by_name) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (!cli_path(folder, "lines.jsonl", out->path, sizeof out->path))
        return cli_error(err, DRA_ERR_FILE, "--out: too long: %.60s...", folder);
    if (!cli_is_there(out->path)) return DRA_OK;
    const dra_status st = dra_file_read(out->path, MOST, &text, &bytes, err);
    for (size_t at = 0; st == DRA_OK && at < bytes;) {
        const char  *stop = memchr(text + at, '\n', bytes - at);
        const size_t n = stop ? (size_t)(stop - text) - at : bytes - at;
        take_line(out, text + at, n);
        at += n + 1;
    }
    free(text);
    return st;
}

void cli_study_lines_free(cli_study_lines *l)
{
    json_decref(l->by_name);
    *l = (cli_study_lines){0};
}

bool cli_study_line_of(const cli_study_lines *l, const cli_study_run *r, cli_study_line *out)
{
    json_t     *x = json_object_get(l->by_name, r->name);
    const char *found = json_string_value(json_object_get(x, "key"));
    char        key[KEY];
    if (!found || !make_key(r, key) || strcmp(key, found) != 0) return false;
    const json_t *score = json_object_get(x, "score"), *seconds = json_object_get(x, "seconds");
    *out = (cli_study_line){.json = x,
                            .score = json_is_number(score) ? json_number_value(score) : NAN,
                            .seconds = json_is_number(seconds) ? json_number_value(seconds) : NAN};
    return true;
}

void cli_study_lines_forget(cli_study_lines *l)
{
    const char *name;
    json_t     *line;
    void       *next;
    json_object_foreach_safe(l->by_name, next, name, line)
    {
        if (json_object_get(line, "failed")) json_object_del(l->by_name, name);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The first number of this name in the results. */
static json_t *find_score(json_t *results, const char *name)
{
    size_t  i;
    json_t *x;
    json_array_foreach(results, i, x)
    {
        json_t *found = json_object_get(x, name);
        if (json_is_number(found)) return json_incref(found);
    }
    return json_null();
}

static json_t *axis_value(const char *text)
{
    json_t *x = json_loads(text, JSON_DECODE_ANY, NULL);
    if (json_is_number(x)) return x;
    json_decref(x);
    return json_string(text);
}

static json_t *list_commands(const cli_study_run *r)
{
    dra_error err = {0};
    json_t   *list = json_array();
    char     *text;
    for (size_t i = 0; (text = cli_study_command(r, &(cli_study_places){0}, i, &err)); i++) {
        json_array_append_new(list, json_string(text));
        free(text);
    }
    return list;
}

static json_t *say_date(void)
{
    char         text[32];
    const time_t now = time(NULL);
    struct tm    t;
    if (!gmtime_r(&now, &t) || !strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t))
        return json_null();
    return json_string(text);
}

static void put_member(json_t *line, const char *key, json_t *value)
{
    json_object_set_new(line, key, value ? value : json_null());
}

static json_t *make_line(const cli_study_run *r, const cli_study_outcome *o, const char *key)
{
    json_t *line = json_object();
    put_member(line, "run", json_string(r->name));
    put_member(line, "study", json_string(r->study->name));
    put_member(line, "scale", json_string(r->study->scale_name));
    put_member(line, "block", json_string(r->block->name));
    for (int i = 0; i < r->block->over.n; i++)
        put_member(line, r->block->over.axis[i].name,
                   axis_value(cli_sweep_value(&r->block->over, i, r->number)));
    if (o->failed) put_member(line, "failed", json_string(o->failed));
    put_member(line, "score", find_score(o->results, r->block->score));
    put_member(line, "seconds", json_real(o->seconds));
    put_member(line, "peak_bytes", json_integer(o->peak_bytes));
    if (r->model) put_member(line, "parameters", json_integer(r->model->parameters));
    put_member(line, "results", json_incref(o->results));
    put_member(line, "commands", list_commands(r));
    if (r->model) put_member(line, "config", json_loads(r->model->text, 0, NULL));
    put_member(line, "device", json_string(o->device));
    put_member(line, "version", json_string(dra_version()));
    put_member(line, "date", say_date());
    put_member(line, "key", json_string(key));
    return line;
}

/* Whether the file ends in the middle of a line. */
static bool is_torn(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    const bool torn = fseek(f, -1, SEEK_END) == 0 && fgetc(f) != '\n';
    fclose(f);
    return torn;
}

dra_status cli_study_lines_add(cli_study_lines *l, const cli_study_run *r,
                               const cli_study_outcome *o, dra_error *err)
{
    char       key[KEY];
    json_t    *line = make_key(r, key) ? make_line(r, o, key) : NULL;
    char      *text = line ? json_dumps(line, JSON_REAL_PRECISION(9)) : NULL;
    char      *whole = text ? malloc(strlen(text) + 3) : NULL;
    dra_status st = cli_error(err, DRA_ERR_MEMORY, "out of memory");
    if (whole) {
        const int n = sprintf(whole, "%s%s\n", is_torn(l->path) ? "\n" : "", text);
        st = cli_append(l->path, 0666, whole, (size_t)n, err);
    }
    if (st == DRA_OK) json_object_set(l->by_name, r->name, line);
    free(whole);
    free(text);
    json_decref(line);
    return st;
}
