/* Reading a log: each number of a line becomes a point of the series of its name. */
#include "record.h"
#include "io/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_MOST = 1 << 30, PATH_TEXT = 4096 };

/* The array with room for one more after n; doubled if it is full. NULL: no memory. */
static void *grow_array(void *array, size_t n, size_t size)
{
    if (n & (n - 1)) return array; /* sizes are powers of 2 */
    return realloc(array, (n ? 2 * n : 1) * size);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The index of a series; n_series: there is none yet. */
static size_t find_series(const cli_record *r, const char *name, bool tokens)
{
    size_t i = 0;
    while (i < r->n_series &&
           (r->series[i].tokens != tokens || strcmp(r->series[i].name, name) != 0))
        i++;
    return i;
}

const cli_series *cli_record_series(const cli_record *r, const char *name, bool tokens)
{
    const size_t i = find_series(r, name, tokens);
    return i < r->n_series ? &r->series[i] : NULL;
}

static bool add_point(cli_record *r, const char *name, bool tokens, double x, double y)
{
    const size_t i = find_series(r, name, tokens);
    if (i == r->n_series) {
        cli_series *all = grow_array(r->series, i, sizeof *all);
        if (!all) return false;
        r->series = all;
        r->series[r->n_series++] = (cli_series){.name = name, .tokens = tokens};
    }
    cli_series *s = &r->series[i];
    double     *xs = grow_array(s->x, s->n, sizeof *xs);
    if (xs) s->x = xs;
    double *ys = grow_array(s->y, s->n, sizeof *ys);
    if (ys) s->y = ys;
    if (!xs || !ys) return false;
    s->x[s->n] = x;
    s->y[s->n++] = y;
    return true;
}

static const cli_member *find_member(const cli_member *m, int n, const char *key,
                                     cli_member_kind kind)
{
    for (int i = 0; i < n; i++)
        if (m[i].kind == kind && strcmp(m[i].key, key) == 0) return &m[i];
    return NULL;
}

/* ---- probes ---------------------------------------------------------------------------------- */

/* The number that the bar of a row shows: its accuracy, score or loss, else its last number. */
static const cli_member *probe_value(const cli_member *m, int n)
{
    static const char *const names[] = {"accuracy", "score", "loss"};
    const cli_member        *last = NULL;
    for (size_t i = 0; i < COUNT(names); i++) {
        const cli_member *found = find_member(m, n, names[i], CLI_MEMBER_NUMBER);
        if (found) return isfinite(found->number) ? found : NULL;
    }
    for (int i = 0; i < n; i++)
        if (m[i].kind == CLI_MEMBER_NUMBER && isfinite(m[i].number)) last = &m[i];
    return last;
}

/* The number of the first of some names that has one; NaN: none. */
static double number_of(const cli_member *m, int n, const char *const *names)
{
    for (; *names; names++) {
        const cli_member *found = find_member(m, n, *names, CLI_MEMBER_NUMBER);
        if (found) return found->number;
    }
    return NAN;
}

static bool add_probe(cli_record *r, const char *name, const cli_member *m, int n)
{
    const cli_member *value = probe_value(m, n);
    if (!value) {
        r->broken++;
        return true;
    }
    cli_probe *all = grow_array(r->probes, r->n_probes, sizeof *all);
    if (!all) return false;
    r->probes = all;
    cli_probe *p = &r->probes[r->n_probes++];
    *p = (cli_probe){.name = name,
                     .value = *value,
                     .count = number_of(m, n, (const char *[]){"answers", "asked", "count", NULL}),
                     .chance = number_of(m, n, (const char *[]){"chance", "guess", NULL})};
    for (; m < value && p->n_tried < CLI_TRIED; m++) {
        const bool said = m->kind == CLI_MEMBER_NUMBER ? isfinite(m->number)
                                                       : m->kind == CLI_MEMBER_TEXT;
        if (said && m->text != name) p->tried[p->n_tried++] = *m;
    }
    return true;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* false: no memory. */
static bool add_line(cli_record *r, char *line)
{
    cli_member        m[CLI_MEMBERS];
    const int         n = cli_line_read(line, m);
    const cli_member *place = find_member(m, n, "position", CLI_MEMBER_NUMBER);
    const cli_member *step = place ? place : find_member(m, n, "step", CLI_MEMBER_NUMBER);
    const cli_member *probe = find_member(m, n, "probe", CLI_MEMBER_TEXT);
    const cli_member *sample = find_member(m, n, "sample", CLI_MEMBER_TEXT);
    r->lines++;
    if (probe) return add_probe(r, probe->text, m, n);
    if (!step || !isfinite(step->number)) {
        r->broken++;
        return true;
    }
    if (sample) {
        cli_sample *all = grow_array(r->samples, r->n_samples, sizeof *all);
        if (!all) return false;
        r->samples = all;
        r->samples[r->n_samples++] = (cli_sample){step->number, sample->text};
    }
    for (int i = 0; i < n; i++)
        if (m[i].kind == CLI_MEMBER_NUMBER && &m[i] != step &&
            !add_point(r, m[i].key, place != NULL, step->number, m[i].number))
            return false;
    return true;
}

static dra_status read_log(cli_record *r, const char *path, char **text, dra_error *err)
{
    size_t     bytes = 0;
    dra_status st = dra_file_read(path, LOG_MOST, text, &bytes, err);
    if (st != DRA_OK) return st;
    for (char *line = *text, *end = *text + bytes; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end; /* the final 0 */
        *stop = '\0';
        if (line[strspn(line, " \t\r")] && !add_line(r, line))
            return cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
        line = stop + 1;
    }
    return DRA_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* The last part of the path. */
static void name_record(cli_record *r)
{
    const char *end = r->path + strlen(r->path);
    while (end > r->path + 1 && end[-1] == '/') end--;
    const char *begin = end;
    while (begin > r->path && begin[-1] != '/') begin--;
    snprintf(r->name, sizeof r->name, "%.*s", (int)(end - begin), begin);
}

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_TEXT];
    return cli_path(folder, name, path, sizeof path) && cli_is_there(path);
}

dra_status cli_record_read(const char *path, cli_record *r, dra_error *err)
{
    char        log[PATH_TEXT];
    struct stat s;
    dra_status  st = DRA_OK;
    r->path = path;
    name_record(r);
    if (cli_stat(path, &s) != 0)
        return cli_error(err, DRA_ERR_FILE, "%.200s: cannot open it: %s", path, strerror(errno));
    r->folder = S_ISDIR(s.st_mode);
    if (!r->folder) {
        st = read_log(r, path, &r->text[0], err);
        if (st == DRA_OK && r->lines && r->lines == r->broken)
            st = cli_error(err, DRA_ERR_FORMAT,
                           "%.200s: expected lines of JSON with a step or a probe, found none",
                           path);
        return st;
    }
    const bool logged = is_there(path, "log.jsonl"), model = is_there(path, "config.json");
    if (!logged && !model)
        return cli_error(err, DRA_ERR_FILE,
                         "%.200s: expected a run, found neither log.jsonl nor config.json", path);
    if (logged && cli_path(path, "log.jsonl", log, sizeof log))
        st = read_log(r, log, &r->text[0], err);
    if (st == DRA_OK && is_there(path, "probes.jsonl") &&
        cli_path(path, "probes.jsonl", log, sizeof log))
        st = read_log(r, log, &r->text[1], err);
    if (st == DRA_OK) st = cli_facts_read(path, &r->settings, err);
    if (st == DRA_OK && model) {
        const dra_status read = cli_record_model(r, err);
        if (read == DRA_ERR_MEMORY) return read;
        /* Without a model, or with a damaged one, the rest of the page is still useful. */
        if (read == DRA_ERR_FILE && is_there(path, "model.safetensors")) return read;
        if (read != DRA_OK) snprintf(r->note, sizeof r->note, "%s", err->text);
    }
    return st;
}

void cli_record_free(cli_record *r)
{
    for (size_t i = 0; i < r->n_series; i++) {
        free(r->series[i].x);
        free(r->series[i].y);
    }
    for (size_t i = 0; i < r->n_spectra; i++) free(r->spectra[i].decays.rows);
    free(r->series);
    free(r->samples);
    free(r->probes);
    free(r->spectra);
    cli_facts_free(&r->settings);
    dra_tokenizer_destroy(r->tokenizer);
    dra_weights_destroy(r->weights);
    dra_model_destroy(r->model);
    free(r->text[0]);
    free(r->text[1]);
    *r = (cli_record){0};
}
