/* Which files there are, and what is in them. */
#include "data/sources.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/fail.h"
#include "file/system.h"

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static dra_status no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "corpus_open: out of memory for a list of files");
}

static dra_status add_file(dra_sources *s, const char *path, const struct stat *st, dra_error *err)
{
    dra_sniffed found;
    dra_source  f = {.path = dra_arena_text(&s->arena, path), .bytes = st->st_size};
    f.changed[0] = st->st_mtim.tv_sec;
    f.changed[1] = st->st_mtim.tv_nsec;
    if (s->n == s->room) { /* the old list stays in the arena: twice the memory at most */
        dra_source *at = dra_arena_alloc(&s->arena, (2 * s->room + 8) * sizeof *at);
        if (!at) return no_memory(err);
        if (s->n) memcpy(at, s->at, s->n * sizeof *at);
        s->at = at;
        s->room = 2 * s->room + 8;
    }
    if (!f.path) return no_memory(err);
    const dra_status status = dra_sniff(path, s->format, &found, err);
    if (status != DRA_OK) return status;
    f.kind = found.kind;
    f.packing = found.packing;
    s->at[s->n++] = f;
    s->bytes += f.bytes;
    return DRA_OK;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.' && !ends_with(e->d_name, ".tokens") && !ends_with(e->d_name, ".tmp");
}

static int by_bytes(const struct dirent **a, const struct dirent **b) /* in no locale's order */
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static dra_status add_entry(dra_sources *s, const char *folder, const char *name, dra_error *err)
{
    struct stat  st;
    const size_t size = strlen(folder) + strlen(name) + 2;
    char        *path = dra_arena_alloc(&s->arena, size);
    if (!path) return no_memory(err);
    snprintf(path, size, "%s/%s", folder, name);
    if (dra_sys_stat(path, &st) != 0) return dra_fail_system(err, path, "look at it", errno);
    return S_ISREG(st.st_mode) ? add_file(s, path, &st, err) : DRA_OK;
}

static dra_status add_folder(dra_sources *s, const char *folder, dra_error *err)
{
    struct dirent **list = NULL;
    dra_status      status = DRA_OK;
    const size_t    before = s->n;
    const int       n = scandir(folder, &list, is_visible, by_bytes);
    if (n < 0) return dra_fail_system(err, folder, "list it", errno);
    for (int i = 0; i < n; i++) {
        if (status == DRA_OK) status = add_entry(s, folder, list[i]->d_name, err);
        free(list[i]);
    }
    free(list);
    if (status == DRA_OK && s->n == before)
        return dra_fail_at(err, DRA_ERR_FILE, folder, "has no files");
    return status;
}

dra_status dra_sources_list(int n, const char *const *paths, const char *format, dra_sources *out,
                            dra_error *err)
{
    dra_status  status = DRA_OK;
    struct stat st;
    *out = (dra_sources){.format = format};
    for (int i = 0; i < n && status == DRA_OK; i++) {
        if (!paths[i])
            status = dra_fail(err, DRA_ERR_VALUE, "corpus_open: path %d of %d is NULL", i, n);
        else if (dra_sys_stat(paths[i], &st) != 0)
            status = dra_fail_system(err, paths[i], "open it", errno);
        else
            status = S_ISDIR(st.st_mode) ? add_folder(out, paths[i], err)
                                         : add_file(out, paths[i], &st, err);
    }
    return status;
}

bool dra_corpus_is_tokens(int n, const char *const *paths, const char *format)
{
    dra_sources s;
    bool        all = dra_sources_list(n, paths, format, &s, NULL) == DRA_OK;
    for (size_t i = 0; i < s.n; i++) all = all && dra_data_kind_is_tokens(s.at[i].kind);
    dra_sources_free(&s);
    return all;
}

void dra_corpus_find_texts(int n, const char *const *paths, const char *format, bool *lines,
                           bool *texts)
{
    dra_sources s;
    dra_sources_list(n, paths, format, &s, NULL);
    for (size_t i = 0; i < s.n; i++) {
        *lines = *lines || s.at[i].kind == DRA_DATA_LINES;
        *texts = *texts || s.at[i].kind == DRA_DATA_TEXT;
    }
    dra_sources_free(&s);
}

dra_status dra_corpus_look(int n, const char *const *paths, const char *format, dra_error *err)
{
    dra_sources      s;
    const dra_status st = dra_sources_list(n, paths, format, &s, err);
    dra_sources_free(&s);
    return st;
}

bool dra_corpus_wants_end(int n, const char *const *paths, const char *format)
{
    dra_sources s;
    bool        any = false;
    dra_sources_list(n, paths, format, &s, NULL);
    for (size_t i = 0; i < s.n; i++) any = any || dra_data_kind_wants_end(s.at[i].kind);
    dra_sources_free(&s);
    return any;
}

void dra_sources_free(dra_sources *s)
{
    dra_arena_free(&s->arena);
    *s = (dra_sources){0};
}

void dra_meter_tell(const dra_meter *m, int64_t done)
{
    if (m->inside) done = (int64_t)((double)done / (double)m->inside * (double)m->outside);
    if (m->fn) m->fn(m->user, m->before + done, m->total);
}

dra_meter dra_meter_inside(const dra_meter *m, const dra_source *s, const dra_file_map *map)
{
    dra_meter out = *m;
    if (s->packing) out.inside = (int64_t)map->bytes, out.outside = s->bytes;
    return out;
}
