/* Which files of examples there are, mapped. */
#include "data/example_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/fail.h"
#include "file/system.h"
#include "file/file_map.h"
#include "file/npy.h"
#include "file/zip.h"

struct dra_held_file {
    dra_tensors   *tensors;
    dra_file_map   map;
    dra_held_file *next;
};

typedef struct list { /* of paths, in the arena of the files */
    const char **at;
    size_t       n, room;
} list;

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static dra_status no_memory(const char *path, dra_error *err)
{
    return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory, cannot open it");
}

/* ---- which there are ------------------------------------------------------------------------- */

static dra_status add_path(dra_example_files *f, list *l, const char *path, dra_error *err)
{
    if (l->n == l->room) { /* the old list stays in the arena: twice the memory at most */
        const char **at = dra_arena_alloc(&f->arena, (2 * l->room + 8) * sizeof *at);
        if (!at) return no_memory(path, err);
        if (l->n) memcpy(at, l->at, l->n * sizeof *at);
        l->at = at;
        l->room = 2 * l->room + 8;
    }
    if (!(l->at[l->n] = dra_arena_text(&f->arena, path))) return no_memory(path, err);
    l->n++;
    return DRA_OK;
}

static int is_example_file(const struct dirent *e)
{
    const char *name = e->d_name;
    return name[0] != '.' &&
           (ends_with(name, ".safetensors") || ends_with(name, ".npy") || ends_with(name, ".npz"));
}

static int by_bytes(const struct dirent **a, const struct dirent **b) /* in no locale's order */
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static dra_status add_folder(dra_example_files *f, list *l, const char *folder, dra_error *err)
{
    struct dirent **found = NULL;
    char            path[4096];
    dra_status      st = DRA_OK;
    const int       n = scandir(folder, &found, is_example_file, by_bytes);
    if (n < 0) return dra_fail_system(err, folder, "list it", errno);
    for (int i = 0; i < n; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name);
        if (st == DRA_OK && length >= (int)sizeof path)
            st = dra_fail_at(err, DRA_ERR_FILE, folder, "its path is too long");
        if (st == DRA_OK) st = add_path(f, l, path, err);
        free(found[i]);
    }
    free(found);
    if (st == DRA_OK && n == 0)
        return dra_fail_at(err, DRA_ERR_FILE, folder,
                           "has no files of examples (.safetensors, .npy, .npz)");
    return st;
}

static dra_status list_paths(dra_example_files *f, list *l, int n, const char *const *paths,
                             dra_error *err)
{
    dra_status  st = DRA_OK;
    struct stat s;
    for (int i = 0; i < n && st == DRA_OK; i++)
        st = dra_sys_stat(paths[i], &s) == 0 && S_ISDIR(s.st_mode) ? add_folder(f, l, paths[i], err)
                                                                   : add_path(f, l, paths[i], err);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static dra_held_file *hold_file(dra_example_files *f)
{
    dra_held_file *h = dra_arena_alloc(&f->arena, sizeof *h);
    if (!h) return NULL;
    *h = (dra_held_file){.next = f->held};
    return f->held = h;
}

static dra_status make_part(dra_example_files *f, const char *path, size_t n,
                            dra_example_part **out, dra_error *err)
{
    dra_example_part *p = &f->part[f->n];
    *p = (dra_example_part){path, 0, dra_arena_alloc(&f->arena, (n + 1) * sizeof *p->tensor)};
    *out = p;
    if (!p->tensor) return no_memory(path, err);
    f->n++;
    return DRA_OK;
}

static dra_status open_tensors(dra_example_files *f, const char *path, dra_error *err)
{
    dra_held_file    *h = hold_file(f);
    dra_example_part *p;
    if (!h) return no_memory(path, err);
    dra_status st = dra_tensors_open(path, &h->tensors, err);
    if (st == DRA_OK) st = make_part(f, path, dra_tensors_count(h->tensors), &p, err);
    if (st != DRA_OK) return st;
    for (; p->n < dra_tensors_count(h->tensors); p->n++)
        p->tensor[p->n] = (dra_example_tensor){*dra_tensors_at(h->tensors, p->n), path};
    return DRA_OK;
}

/* The tensor's name: that of its file, without folders and ".npy". */
static dra_status add_array(dra_example_files *f, dra_example_part *p, const char *path,
                            const char *file, const unsigned char *data, size_t bytes,
                            dra_error *err)
{
    const char *slash = strrchr(file, '/');
    char       *name = dra_arena_text(&f->arena, slash ? slash + 1 : file);
    if (!name || !path) return no_memory(path ? path : file, err);
    if (ends_with(name, ".npy")) name[strlen(name) - 4] = '\0';
    dra_example_tensor *t = &p->tensor[p->n];
    t->path = path;
    const dra_status st = dra_npy_read(path, name, data, bytes, &t->info, err);
    if (st == DRA_OK) p->n++;
    return st;
}

static dra_status open_arrays(dra_example_files *f, const list *l, dra_error *err)
{
    dra_example_part *p;
    dra_status        st = make_part(f, l->at[0], l->n, &p, err);
    for (size_t i = 0; i < l->n && st == DRA_OK; i++) {
        dra_held_file *h = hold_file(f);
        st = h ? dra_file_map_open(l->at[i], &h->map, err) : no_memory(l->at[i], err);
        if (st == DRA_OK) st = add_array(f, p, l->at[i], l->at[i], h->map.data, h->map.bytes, err);
    }
    return st;
}

static dra_status open_archive(dra_example_files *f, const char *path, dra_error *err)
{
    dra_held_file    *h = hold_file(f);
    dra_example_part *p;
    dra_zip           zip;
    char              place[512], a[DRA_BRIEF], b[DRA_BRIEF];
    dra_status        st = h ? dra_file_map_open(path, &h->map, err) : no_memory(path, err);
    if (st == DRA_OK && !dra_zip_is(h->map.data, h->map.bytes))
        st = dra_fail_at(err, DRA_ERR_FORMAT, path, "is not an archive of NumPy (.npz)");
    if (st == DRA_OK) st = dra_zip_read(path, h->map.data, h->map.bytes, &f->arena, &zip, err);
    if (st == DRA_OK) st = make_part(f, path, zip.count, &p, err);
    for (size_t i = 0; st == DRA_OK && i < zip.count; i++) {
        const dra_zip_entry *e = &zip.entry[i];
        snprintf(place, sizeof place, "%s: %s", dra_brief(path, a), dra_brief(e->name, b));
        st = add_array(f, p, dra_arena_text(&f->arena, place), e->name, e->data, e->bytes, err);
    }
    return st;
}

static dra_status open_part(dra_example_files *f, const char *path, dra_error *err)
{
    return ends_with(path, ".npz") ? open_archive(f, path, err) : open_tensors(f, path, err);
}

dra_status dra_example_files_open(int n, const char *const *paths, dra_example_files *out,
                                  dra_error *err)
{
    list   l = {0};
    size_t arrays = 0;
    *out = (dra_example_files){0};
    dra_status st = list_paths(out, &l, n, paths, err);
    if (st != DRA_OK) return st;
    for (size_t i = 0; i < l.n; i++) arrays += ends_with(l.at[i], ".npy");
    if (arrays && arrays < l.n)
        return dra_fail_at(err, DRA_ERR_VALUE, l.at[0],
                           "files of single arrays (.npy) and of whole examples in one list, "
                           "expected either kind");
    out->part = dra_arena_alloc(&out->arena, (l.n + 1) * sizeof *out->part);
    if (!out->part) return no_memory(l.n ? l.at[0] : "", err);
    if (arrays) return open_arrays(out, &l, err);
    for (size_t i = 0; i < l.n && st == DRA_OK; i++) st = open_part(out, l.at[i], err);
    return st;
}

void dra_example_files_close(dra_example_files *f)
{
    for (dra_held_file *h = f->held; h; h = h->next) {
        dra_tensors_close(h->tensors);
        if (h->map.data) dra_file_map_close(&h->map);
    }
    dra_arena_free(&f->arena);
    *f = (dra_example_files){0};
}
