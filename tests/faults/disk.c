/* The disk: safe contents, changes that are not safe yet, and mixtures of both. */
#include "disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

enum { PATH = 4096 };

static _Noreturn void stop(const char *what)
{
    fprintf(stderr, "power: %s\n", what);
    exit(2);
}

static void *more(void *old, size_t n, size_t each)
{
    void *p = realloc(old, n * each);
    if (!p) stop("out of memory");
    return p;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int find(const disk_folder *f, const char *text, uint32_t length)
{
    for (int i = 0; i < f->n; i++)
        if (f->name[i].length == length && memcmp(f->name[i].text, text, length) == 0) return i;
    return -1;
}

static void take_out(disk_folder *f, const char *text, uint32_t length)
{
    const int i = find(f, text, length);
    if (i >= 0) f->name[i] = f->name[--f->n];
}

static void put_in(disk_folder *f, const char *text, uint32_t length, int object)
{
    take_out(f, text, length);
    if (f->n == f->room)
        f->name = more(f->name, (size_t)(f->room = 2 * f->room + 8), sizeof *f->name);
    f->name[f->n++] = (disk_name){text, length, object};
}

/* One change of names; folder(d, i): that of object i. */
static void rename_in(const disk_change *c, disk_folder *to, disk_folder *from)
{
    switch (c->e.kind) {
    case RECORD_UNLINK: take_out(to, c->name, c->e.name); break;
    case RECORD_RENAME:
        take_out(from, c->from_name, c->e.from_name);
        /* fall through */
    default: put_in(to, c->name, c->e.name, c->e.object);
    }
}

static bool is_of_names(const disk_change *c)
{
    return c->e.kind >= RECORD_CREATE && c->e.kind <= RECORD_UNLINK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void write_at(unsigned char **bytes, size_t *n, size_t at, const void *data, size_t some)
{
    if (at + some > *n) {
        *bytes = more(*bytes, at + some + 1, 1);
        memset(*bytes + *n, 0, at + some - *n);
        *n = at + some;
    }
    if (data && some) memcpy(*bytes + at, data, some);
}

static void change_bytes(const disk_change *c, size_t some, unsigned char **bytes, size_t *n)
{
    if (c->e.kind == RECORD_WRITE) write_at(bytes, n, c->e.offset, c->data, some);
    if (c->e.kind == RECORD_TRUNCATE && c->e.offset < *n) *n = c->e.offset;
    if (c->e.kind == RECORD_TRUNCATE) write_at(bytes, n, c->e.offset, NULL, 0);
}

/* The bytes of a file by choice, in memory of their own. */
static unsigned char *bytes_by(const disk *d, int object, int choice, size_t *n)
{
    const disk_object *o = &d->object[object];
    const int          part = o->n ? (choice - 1) / o->n : 0; /* 0: prefix, 1: and half, 2: zeros */
    const int          whole = part && choice ? choice - 1 - part * o->n : choice;
    unsigned char     *bytes = more(NULL, o->n_bytes + 1, 1);
    *n = o->n_bytes;
    if (*n) memcpy(bytes, o->bytes, *n);
    for (int i = 0; i < o->n; i++) {
        const disk_change *c = &d->change[o->change[i]];
        if (i < whole)
            change_bytes(c, c->e.bytes, &bytes, n);
        else if (part == 1 && i == whole)
            change_bytes(c, c->e.bytes / 2, &bytes, n);
        else if (part == 2 && c->e.kind == RECORD_WRITE) /* beyond the end: zeros */
            write_at(&bytes, n, c->e.offset + c->e.bytes, NULL, 0);
    }
    return bytes;
}

/* ---- opening --------------------------------------------------------------------------------- */

static size_t read_file(const char *path, unsigned char **out)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) stop("no such recording");
    const long n = ftell(f);
    rewind(f);
    *out = more(NULL, (size_t)n + 1, 1);
    if (n < 0 || fread(*out, 1, (size_t)n, f) != (size_t)n) stop("the recording cannot be read");
    fclose(f);
    return (size_t)n;
}

static void add_change(disk *d, const record_entry *e, const unsigned char *after)
{
    disk_change *c = &d->change[d->n_changes++];
    *c = (disk_change){*e, (const char *)after, (const char *)after + e->name,
                       after + e->name + e->from_name, -1};
    if (e->object >= d->n_objects) d->n_objects = e->object + 1;
    if (e->kind == RECORD_START) d->start = d->n_changes;
}

void disk_open(disk *d, const char *recording)
{
    record_entry e;
    *d = (disk){.n_objects = 1};
    const size_t n = read_file(recording, &d->recording);
    d->change = more(NULL, n / sizeof e + 1, sizeof *d->change);
    for (size_t at = 0; at + sizeof e <= n;) {
        memcpy(&e, d->recording + at, sizeof e);
        at += sizeof e;
        if (n - at < e.bytes + e.name + e.from_name) stop("the recording is cut");
        add_change(d, &e, d->recording + at);
        at += e.bytes + e.name + e.from_name;
    }
    if (!d->start || d->change[d->n_changes - 1].e.kind != RECORD_END)
        stop("the recording has no end");
    d->object = calloc((size_t)d->n_objects, sizeof *d->object);
    if (!d->object) stop("out of memory");
    disk_rewind(d);
}

void disk_close(disk *d)
{
    for (int i = 0; i < d->n_objects; i++) {
        free(d->object[i].safe.name);
        free(d->object[i].bytes);
        free(d->object[i].change);
    }
    free(d->object);
    free(d->change);
    free(d->recording);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Makes changes of an object safe, those up to change `last`. */
static void make_safe(disk *d, int object, int last)
{
    disk_object *o = &d->object[object];
    int          done = 0;
    for (; done < o->n && o->change[done] <= last; done++) {
        disk_change *c = &d->change[o->change[done]];
        c->place = -1;
        if (!is_of_names(c)) {
            change_bytes(c, c->e.bytes, &o->bytes, &o->n_bytes);
            continue;
        }
        if (c->e.kind == RECORD_RENAME && c->e.from != object)
            make_safe(d, c->e.from, o->change[done]);
        rename_in(c, &o->safe, &d->object[c->e.from].safe);
    }
    for (int i = done; i < o->n; i++) d->change[o->change[i]].place = i - done;
    o->n -= done;
    memmove(o->change, o->change + done, (size_t)o->n * sizeof *o->change);
}

static void add_unsafe(disk *d, int object, int change)
{
    disk_object *o = &d->object[object];
    if (o->n == o->room)
        o->change = more(o->change, (size_t)(o->room = 2 * o->room + 8), sizeof *o->change);
    d->change[change].place = o->n;
    o->change[o->n++] = change;
}

bool disk_next(disk *d)
{
    if (d->now == d->n_changes) return false;
    const int          i = d->now++;
    const disk_change *c = &d->change[i];
    disk_object       *o = &d->object[c->e.object];
    if (c->e.kind == RECORD_MKDIR) o->is_folder = true;
    if (c->e.kind == RECORD_SYNC) make_safe(d, c->e.object, i);
    if (c->e.kind == RECORD_WRITE || c->e.kind == RECORD_TRUNCATE) add_unsafe(d, c->e.object, i);
    if (!is_of_names(c)) return true;
    add_unsafe(d, c->e.dir, i);
    if (c->e.kind != RECORD_UNLINK) o->called = (disk_name){c->name, c->e.name, c->e.object};
    return true;
}

void disk_rewind(disk *d)
{
    for (int i = 0; i < d->n_objects; i++) {
        d->object[i].safe.n = d->object[i].n = 0;
        d->object[i].n_bytes = 0;
    }
    d->object[0].is_folder = true;
    for (d->now = 0; d->now < d->start;) disk_next(d);
    for (int i = 0; i < d->n_objects; i++) make_safe(d, i, d->start);
}

/* ---- choices --------------------------------------------------------------------------------- */

int disk_all(const disk *d, int object) { return d->object[object].n; }

/* A folder: prefixes, then each change but the first alone. A file: prefixes, prefixes and half,
 * prefixes and zeros. */
int disk_choices(const disk *d, int object)
{
    const disk_object *o = &d->object[object];
    return o->n == 0 ? 1 : o->is_folder ? 2 * o->n : 3 * o->n + 1;
}

int disk_newest(const disk *d, int object)
{
    const disk_object *o = &d->object[object];
    return !o->is_folder ? 0 : o->n < 2 ? o->n : 2 * o->n - 1;
}

void disk_describe(const disk *d, int object, int choice, char *text, size_t size)
{
    static const char *const kinds[] = {"of", "and half of one of", "and zeros for the rest of"};
    const disk_object       *o = &d->object[object];
    const int                part = choice ? (choice - 1) / o->n : 0;
    const int                length = (int)o->called.length;
    const char              *name = object ? o->called.text : "";
    if (o->is_folder && choice > o->n)
        snprintf(text, size, "%.*s/: only %d of %d", length, name, choice - o->n + 1, o->n);
    else
        snprintf(text, size, "%.*s%s: %d %s %d", length, name, o->is_folder ? "/" : "",
                 part ? choice - 1 - part * o->n : choice, kinds[o->is_folder ? 0 : part], o->n);
}

/* ---- what is left ---------------------------------------------------------------------------- */

static bool is_chosen(const disk *d, const disk_change *c, const int *choice)
{
    const int n = d->object[c->e.dir].n, by = choice[c->e.dir];
    return by <= n ? c->place < by : c->place == by - n;
}

static int by_name(const void *a, const void *b)
{
    const disk_name *x = a, *y = b;
    const uint32_t   n = x->length < y->length ? x->length : y->length;
    const int        order = memcmp(x->text, y->text, n);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* The names in all folders by choice. Changes of several folders are made in their order. */
static disk_folder *names_by(const disk *d, const int *choice)
{
    disk_folder *f = calloc((size_t)d->n_objects, sizeof *f);
    if (!f) stop("out of memory");
    for (int i = 0; i < d->n_objects; i++) {
        const disk_folder *safe = &d->object[i].safe;
        for (int k = 0; k < safe->n; k++)
            put_in(&f[i], safe->name[k].text, safe->name[k].length, safe->name[k].object);
    }
    for (int i = d->start; i < d->now; i++) {
        const disk_change *c = &d->change[i];
        if (is_of_names(c) && c->place >= 0 && is_chosen(d, c, choice))
            rename_in(c, &f[c->e.dir], &f[c->e.from]);
    }
    for (int i = 0; i < d->n_objects; i++)
        if (f[i].n) qsort(f[i].name, (size_t)f[i].n, sizeof *f[i].name, by_name);
    return f;
}

typedef struct walk {
    const disk  *d;
    const int   *choice;
    disk_folder *names;
    char (*path)[PATH]; /* of files that were written, for further links; NULL: only hash */
    int     *seen;      /* when an object was met first; 0: not yet */
    int      met;
    dra_hash hash;
    bool     failed;
} walk;

static void leave_file(walk *w, int object, const char *path)
{
    if (w->seen[object]) { /* another link */
        if (w->path && link(w->path[object], path) != 0) w->failed = true;
        return;
    }
    size_t         n;
    unsigned char *bytes = bytes_by(w->d, object, w->choice[object], &n);
    if (w->path) {
        FILE *f = fopen(path, "wbe");
        if (!f || (n && fwrite(bytes, 1, n, f) != n) || fclose(f) != 0) w->failed = true;
        snprintf(w->path[object], PATH, "%s", path);
    } else {
        dra_hash_add(&w->hash, &n, sizeof n);
        dra_hash_add(&w->hash, bytes, n);
    }
    free(bytes);
}

static void leave(walk *w, int folder, const char *path)
{
    char below[PATH];
    for (int i = 0; i < w->names[folder].n; i++) {
        const disk_name *name = &w->names[folder].name[i];
        if (snprintf(below, sizeof below, "%s/%.*s", path, (int)name->length, name->text) >= PATH)
            stop("a path that is too long");
        dra_hash_add(&w->hash, below, strlen(below) + 1);
        dra_hash_add(&w->hash, &w->seen[name->object], sizeof(int));
        if (!w->d->object[name->object].is_folder) {
            leave_file(w, name->object, below);
        } else if (!w->seen[name->object]) { /* folders have one name, whatever was lost */
            if (w->path && mkdir(below, 0777) != 0) w->failed = true;
            leave(w, name->object, below);
        }
        if (!w->seen[name->object]) w->seen[name->object] = ++w->met;
    }
}

static walk walk_all(const disk *d, const int *choice, const char *folder, bool write)
{
    walk w = {.d = d, .choice = choice, .names = names_by(d, choice)};
    w.seen = calloc((size_t)d->n_objects, sizeof *w.seen);
    if (write) w.path = calloc((size_t)d->n_objects, sizeof *w.path);
    if (!w.seen || (write && !w.path)) stop("out of memory");
    dra_hash_begin(&w.hash, 0);
    leave(&w, 0, folder);
    for (int i = 0; i < d->n_objects; i++) free(w.names[i].name);
    free(w.names);
    free(w.seen);
    free(w.path);
    return w;
}

uint64_t disk_hash(const disk *d, const int *choice)
{
    const walk w = walk_all(d, choice, "", false);
    return dra_hash_end(&w.hash);
}

bool disk_write(const disk *d, const int *choice, const char *folder)
{
    return !walk_all(d, choice, folder, true).failed;
}
