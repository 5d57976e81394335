/* Which files there are, and what is in them. */
#include "data/sources.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/fail.h"

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* Silently training on the bytes of a compressed file would be a bad surprise. */
static dra_status kind_of(const char *path, dra_source_kind *out, dra_error *err)
{
    static const char *const packed[] = {".gz", ".bz2", ".xz", ".zst", ".zip", ".parquet"};
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (ends_with(path, packed[i]))
            return dra_fail_at(err, DRA_ERR_FORMAT, path,
                               "is packed, expected text, .jsonl or .safetensors");
    *out = ends_with(path, ".safetensors") ? DRA_SOURCE_IDS
           : ends_with(path, ".jsonl")     ? DRA_SOURCE_LINES
                                           : DRA_SOURCE_TEXT;
    return DRA_OK;
}

static dra_status no_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "corpus_open: no memory for a list of files");
}

static dra_status add_file(dra_sources *s, const char *path, const struct stat *st, dra_error *err)
{
    dra_source f = {.path = dra_arena_text(&s->arena, path), .bytes = st->st_size};
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
    const dra_status status = kind_of(path, &f.kind, err);
    if (status == DRA_OK) s->at[s->n++] = f, s->bytes += f.bytes;
    return status;
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
    if (stat(path, &st) != 0) return dra_fail_system(err, path, "look at it", errno);
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

dra_status dra_sources_list(int n, const char *const *paths, dra_sources *out, dra_error *err)
{
    dra_status  status = DRA_OK;
    struct stat st;
    *out = (dra_sources){0};
    for (int i = 0; i < n && status == DRA_OK; i++) {
        if (!paths[i])
            status = dra_fail(err, DRA_ERR_VALUE, "corpus_open: path %d of %d is NULL", i, n);
        else if (stat(paths[i], &st) != 0)
            status = dra_fail_system(err, paths[i], "open it", errno);
        else
            status = S_ISDIR(st.st_mode) ? add_folder(out, paths[i], err)
                                         : add_file(out, paths[i], &st, err);
    }
    return status;
}

bool dra_corpus_is_tokens(int n, const char *const *paths)
{
    dra_sources s;
    bool        all = dra_sources_list(n, paths, &s, NULL) == DRA_OK;
    for (size_t i = 0; i < s.n; i++) all = all && s.at[i].kind == DRA_SOURCE_IDS;
    dra_sources_free(&s);
    return all;
}

void dra_sources_free(dra_sources *s)
{
    dra_arena_free(&s->arena);
    *s = (dra_sources){0};
}

void dra_meter_tell(const dra_meter *m, int64_t done)
{
    if (m->fn) m->fn(m->user, m->before + done, m->total);
}
