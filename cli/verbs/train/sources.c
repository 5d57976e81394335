/* The data that a run was trained on, noted in its folder. */
#include "sources.h"
#include "report/jsonl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_TEXT = 4096, SOURCES_MOST = 1 << 26 };

/* An option of `dra train`; which of its values are paths depends on the value. */
typedef struct source {
    const char  *option;
    cli_list    *list; /* or */
    const char **text;
    bool         path, fresh; /* fresh: is written, need not be there */
} source;

enum { SOURCES = 11 };

static void list_sources(cli_train_sources *s, source all[SOURCES])
{
    const source rows[SOURCES] = {
        {"data", .list = &s->data, .path = true},
        {"eval-data", .list = &s->eval_data, .path = true},
        {"tokenizer", .text = &s->tokenizer, .path = true},
        {"src-tokenizer", .text = &s->pairs.src_tokenizer, .path = true},
        {"text-key", .text = &s->text_key},
        {"separator", .text = &s->separator},
        {"data-format", .text = &s->format},
        {"src-key", .text = &s->pairs.src_key},
        {"tgt-key", .text = &s->pairs.tgt_key},
        {"cache", .text = &s->cache, .path = true, .fresh = true},
        {"log", .text = &s->log, .path = true, .fresh = true},
    };
    memcpy(all, rows, sizeof rows);
}

static bool file_of(const char *run, char path[PATH_TEXT], dra_error *err)
{
    if (cli_path(run, "train/sources.jsonl", path, PATH_TEXT)) return true;
    cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", run);
    return false;
}

/* ---- noting ---------------------------------------------------------------------------------- */

static char *whole_path(const char *value)
{
    char *path;
    do path = realpath(value, NULL);
    while (!path && errno == EINTR);
    return path;
}

/* False: no memory for its path. */
static bool write_source(const source *s, const char *value, FILE *out)
{
    char *path = s->path ? whole_path(value) : NULL;
    if (s->path && !path && errno == ENOMEM) return false;
    fprintf(out, "{\"option\": \"%s\", \"value\": ", s->option);
    cli_json_text(value, out);
    if (path) {
        fputs(", \"path\": ", out);
        cli_json_text(path, out);
    }
    fputs("}\n", out);
    free(path);
    return true;
}

dra_status cli_sources_note(const char *run, const cli_train_sources *s, dra_error *err)
{
    cli_train_sources copy = *s;
    source            all[SOURCES];
    char              path[PATH_TEXT], *text = NULL;
    size_t            bytes = 0;
    if (!file_of(run, path, err)) return DRA_ERR_FILE;
    FILE *out = dra_stream_memory(&text, &bytes);
    if (!out) return cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    list_sources(&copy, all);
    bool whole = true;
    for (int i = 0; i < SOURCES; i++) {
        if (all[i].text && *all[i].text) whole = write_source(&all[i], *all[i].text, out) && whole;
        for (size_t k = 0; all[i].list && k < all[i].list->count; k++)
            whole = write_source(&all[i], all[i].list->text[k], out) && whole;
    }
    dra_status st = fclose(out) == 0 && whole
                        ? dra_file_write(path, text, bytes, err)
                        : cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    free(text);
    return st;
}

/* ---- recalling ------------------------------------------------------------------------------- */

typedef struct line {
    const char *option, *value, *path;
} line;

static bool read_line(char *text, line *out)
{
    cli_member m[CLI_MEMBERS];
    const int  n = cli_line_read(text, m);
    *out = (line){0};
    for (int i = 0; i < n; i++) {
        if (m[i].kind != CLI_MEMBER_TEXT) continue;
        if (strcmp(m[i].key, "option") == 0) out->option = m[i].text;
        if (strcmp(m[i].key, "value") == 0) out->value = m[i].text;
        if (strcmp(m[i].key, "path") == 0) out->path = m[i].text;
    }
    return out->option && out->value;
}

static bool is_there(const char *path) { return path && access(path, F_OK) == 0; }

/* Chooses the path that exists. Words such as "bytes" have none. */
static dra_status choose_path(const char *run, const source *s, const line *l, const char **out,
                              dra_error *err)
{
    *out = l->value;
    if (!s->path || !l->path) return DRA_OK;
    if (s->fresh || is_there(l->path) || !is_there(l->value)) *out = l->path;
    if (s->fresh || is_there(*out)) return DRA_OK;
    return cli_error(err, DRA_ERR_FILE,
                     "%.200s: its data is not there: %.400s; give the new path by --%s", run,
                     l->path, s->option);
}

static dra_status take_line(const char *run, char *text, const source *all, const bool *given,
                            cli_recalled *r, dra_error *err)
{
    line l;
    if (!read_line(text, &l))
        return cli_error(err, DRA_ERR_FORMAT,
                         "%.200s/train/sources.jsonl: expected {\"option\": ..., \"value\": ...}",
                         run);
    for (int i = 0; i < SOURCES; i++) {
        const char *value;
        if (given[i] || strcmp(all[i].option, l.option) != 0) continue;
        const dra_status st = choose_path(run, &all[i], &l, &value, err);
        if (st != DRA_OK) return st;
        if (all[i].text) {
            *all[i].text = value;
            continue;
        }
        cli_list    *list = all[i].list;
        const char **more = realloc(r->list[i], (list->count + 1) * sizeof *more);
        if (!more) return cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", run);
        r->list[i] = more;
        list->text = more;
        list->text[list->count++] = value;
    }
    return DRA_OK;
}

/* A run that has its tokenizer in its folder needs no other. */
static void mark_given(const char *run, const source *all, bool *given)
{
    for (int i = 0; i < SOURCES; i++) {
        given[i] = all[i].list ? all[i].list->count > 0 : *all[i].text != NULL;
        if (strcmp(all[i].option, "tokenizer") == 0) given[i] |= dra_tokenizer_is_in(run);
    }
}

dra_status cli_sources_recall(const char *run, cli_train_sources *s, cli_recalled *r,
                              dra_error *err)
{
    source     all[SOURCES];
    bool       given[SOURCES];
    char       path[PATH_TEXT];
    size_t     bytes = 0;
    dra_status st = DRA_OK;
    if (!file_of(run, path, err)) return DRA_ERR_FILE;
    if (!is_there(path))
        return cli_error(err, DRA_ERR_FILE,
                         "%.200s: does not say what data it was trained on; give it by --data",
                         run);
    st = dra_file_read(path, SOURCES_MOST, &r->text, &bytes, err);
    list_sources(s, all);
    mark_given(run, all, given);
    for (char *at = r->text, *end = at + bytes; st == DRA_OK && at < end;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end; /* the final 0 */
        *stop = '\0';
        st = take_line(run, at, all, given, r, err);
        at = stop + 1;
    }
    return st;
}

void cli_recalled_free(cli_recalled *r)
{
    free(r->text);
    free(r->list[0]);
    free(r->list[1]);
    *r = (cli_recalled){0};
}
