#include "pieces.h"
#include "recipe.h"
#include "serve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUCKETS = 1024, LEAST = 2 /* pieces of a file that is cut */, LONG = 512 /* tokens */ };

typedef struct piece {
    struct piece *next;
    uint64_t      hash; /* and its name */
    size_t        bytes;
    int64_t       users; /* files that have it */
} piece;

typedef struct store { /* a folder of pieces */
    struct store *next;
    char         *folder; /* in which .pieces is */
    size_t        bytes;
    piece        *bucket[BUCKETS];
} store;

struct serve_pieces {
    const dra_specs *specs;
    size_t           each;
    bool             unsure; /* a file could not be read: it may need any piece */
    pthread_mutex_t  lock;   /* of the list of stores and their bytes */
    store           *stores;
};

serve_pieces *serve_pieces_open(const dra_specs *specs, size_t bytes)
{
    serve_pieces *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->specs = specs;
    p->each = bytes;
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void free_store(store *s)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (piece *x = s->bucket[i], *next; x; x = next) {
            next = x->next;
            free(x);
        }
    free(s->folder);
    free(s);
}

void serve_pieces_close(serve_pieces *p)
{
    if (!p) return;
    for (store *s = p->stores, *next; s; s = next) {
        next = s->next;
        free_store(s);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static bool is_cut(const dra_spec *x) { return x && x->items && !x->context; }

/* Short windows are of one size, nearly. */
static bool grows_much(const dra_spec *x) { return x->limit == 0 || x->limit >= LONG; }

bool serve_pieces_grow(const dra_specs *specs)
{
    for (int i = 0; i < dra_specs_count(specs); i++)
        if (is_cut(dra_specs_at(specs, i)) && grows_much(dra_specs_at(specs, i))) return true;
    return false;
}

/* ---- folders --------------------------------------------------------------------------------- */

static store *find_store(serve_pieces *p, const char *folder)
{
    store *s = p->stores;
    while (s && strcmp(s->folder, folder) != 0) s = s->next;
    return s;
}

static store *make_store(serve_pieces *p, const char *folder)
{
    store *s = find_store(p, folder);
    if (s) return s;
    s = calloc(1, sizeof *s);
    if (s) s->folder = strdup(folder);
    if (!s || !s->folder) {
        free(s);
        return NULL;
    }
    pthread_mutex_lock(&p->lock);
    s->next = p->stores;
    p->stores = s;
    pthread_mutex_unlock(&p->lock);
    return s;
}

size_t serve_pieces_bytes(serve_pieces *p, const char *folder)
{
    size_t bytes = 0;
    pthread_mutex_lock(&p->lock);
    for (const store *s = p->stores; s; s = s->next)
        if (!folder || strcmp(s->folder, folder) == 0) bytes += s->bytes;
    pthread_mutex_unlock(&p->lock);
    return bytes;
}

/* ---- who has which --------------------------------------------------------------------------- */

static piece **place_of(store *s, uint64_t hash)
{
    piece **at = &s->bucket[hash % BUCKETS];
    while (*at && (*at)->hash != hash) at = &(*at)->next;
    return at;
}

static void count_bytes(serve_pieces *p, store *s, const piece *x, bool more)
{
    pthread_mutex_lock(&p->lock);
    s->bytes = more ? s->bytes + x->bytes : s->bytes - x->bytes;
    pthread_mutex_unlock(&p->lock);
}

static bool use_piece(serve_pieces *p, store *s, uint64_t hash, size_t bytes)
{
    piece **at = place_of(s, hash);
    if (!*at && !(*at = calloc(1, sizeof **at))) return false;
    piece *x = *at;
    if (!x->users++) {
        x->hash = hash;
        x->bytes = bytes;
        count_bytes(p, s, x, true);
    }
    return true;
}

static void leave_piece(serve_pieces *p, store *s, uint64_t hash)
{
    char    path[SERVE_PIECES_PATH];
    piece **at = place_of(s, hash), *x = *at;
    if (!x || --x->users > 0) return;
    serve_piece_path(s->folder, hash, path);
    if (!p->unsure) unlink(path);
    count_bytes(p, s, x, false);
    *at = x->next;
    free(x);
}

/* ---- files that have them -------------------------------------------------------------------- */

/* What `path` has before it is replaced or removed; nothing of one that is damaged. */
static dra_status look_before(const char *path, serve_recipe *r, dra_error *err)
{
    const dra_status st = serve_recipe_look(path, r, err);
    if (st == DRA_ERR_FORMAT) serve_recipe_free(r);
    return st == DRA_ERR_FORMAT ? DRA_OK : st;
}

/* All of them, or none. */
static bool use_all(serve_pieces *p, store *s, const serve_recipe *r)
{
    size_t n = 0;
    while (n < r->n && use_piece(p, s, r->hash[n], r->size[n])) n++;
    if (n == r->n) return true;
    while (n-- > 0) leave_piece(p, s, r->hash[n]);
    return false;
}

static void leave_all(serve_pieces *p, const char *path, const serve_recipe *r)
{
    char   folder[SERVE_PIECES_PATH];
    store *s = serve_piece_folder(path, folder) ? find_store(p, folder) : NULL;
    for (size_t i = 0; s && i < r->n; i++) leave_piece(p, s, r->hash[i]);
}

/* ---- cutting --------------------------------------------------------------------------------- */

typedef struct whole { /* a file that is cut */
    const dra_tensors *t;
    const char        *data; /* of its tensors; the header comes before them */
    size_t             n, tensors, header;
    int64_t            end;         /* its last item, counted from the beginning of the sequence */
    int64_t            tokens;      /* of a piece */
    int64_t            first, last; /* pieces it has, by their number in the sequence */
} whole;

static const dra_tensor_info *cut_tensor(const serve_pieces *p, const whole *w, size_t i)
{
    const dra_tensor_info *x = dra_tensors_at(w->t, i);
    const int              k = dra_specs_find(p->specs, x->name);
    return k >= 0 && is_cut(dra_specs_at(p->specs, k)) && x->shape.rank > 1 &&
                   x->shape.dim[0] == 1 && x->shape.dim[1] > 0
               ? x
               : NULL;
}

static size_t row_bytes(const dra_tensor_info *x) { return x->bytes / (size_t)x->shape.dim[1]; }

/* Where its data begin, and which pieces all of its growing tensors have. */
static bool measure_file(const serve_pieces *p, const char *path, whole *w)
{
    struct stat how;
    const char *end = dra_tensors_metadata(w->t, "end");
    size_t      row = 0;
    int64_t     least = INT64_MAX;
    char       *stop = NULL;
    w->n = dra_tensors_count(w->t);
    w->end = end ? strtoll(end, &stop, 10) : 0;
    if (!stop || *stop || w->end <= 0 || cli_stat(path, &how) != 0) return false;
    for (size_t i = 0; i < w->n; i++) {
        const dra_tensor_info *x = dra_tensors_at(w->t, i), *grows = cut_tensor(p, w, i);
        w->tensors += x->bytes;
        if (!w->data || (const char *)x->data < w->data) w->data = x->data;
        if (grows) row += row_bytes(x);
        if (grows && x->shape.dim[1] < least) least = x->shape.dim[1];
    }
    w->header = (size_t)how.st_size - w->tensors;
    if (!row || least > w->end) return false;
    w->tokens = 1;
    while ((size_t)w->tokens * row < p->each) w->tokens *= 2;
    w->first = (w->end - least + w->tokens - 1) / w->tokens;
    w->last = w->end / w->tokens;
    return w->last - w->first >= LEAST;
}

/* The hash of a piece, eight bytes at a time; those with the same are told apart by their bytes. */
static uint64_t hash_of(const char *data, size_t bytes)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ bytes, x = 0;
    for (size_t i = 0; i < bytes; i += sizeof x) {
        x = 0;
        memcpy(&x, data + i, bytes - i < sizeof x ? bytes - i : sizeof x);
        h = (h ^ x) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 29;
    }
    return h;
}

/* Whether the file has exactly this. */
static dra_status compare_file(const char *path, const char *data, size_t bytes, bool *there,
                               bool *same, dra_error *err)
{
    struct stat how;
    char       *found = NULL;
    size_t      n = 0;
    *there = cli_stat(path, &how) == 0;
    *same = false;
    if (!*there && errno != ENOENT)
        return cli_error(err, DRA_ERR_FILE, "%.200s: %s", path, cli_reason(errno));
    if (!*there || (size_t)how.st_size != bytes) return DRA_OK;
    const dra_status st = dra_file_read(path, bytes, &found, &n, err);
    *same = st == DRA_OK && n == bytes && memcmp(found, data, bytes) == 0;
    free(found);
    return st;
}

/* It is there already, or written; another one with the same hash lets it have the next. */
static dra_status keep_piece(serve_pieces *p, store *s, const char *data, size_t bytes,
                             uint64_t *hash, dra_error *err)
{
    char       path[SERVE_PIECES_PATH];
    bool       there = true, same = false;
    dra_status st = DRA_OK;
    for (*hash = hash_of(data, bytes); st == DRA_OK; ++*hash) {
        serve_piece_path(s->folder, *hash, path);
        st = compare_file(path, data, bytes, &there, &same, err);
        if (!there || same) break;
    }
    if (st == DRA_OK && !use_piece(p, s, *hash, bytes))
        st = cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    else if (st == DRA_OK && !same && (st = dra_file_write(path, data, bytes, err)) != DRA_OK)
        leave_piece(p, s, *hash);
    return st;
}

static void copy_piece(const serve_pieces *p, const whole *w, int64_t k, char *to)
{
    for (size_t i = 0; i < w->n; i++) {
        const dra_tensor_info *x = cut_tensor(p, w, i);
        if (!x) continue;
        const size_t  row = row_bytes(x), n = (size_t)w->tokens * row;
        const int64_t begins = w->end - x->shape.dim[1];
        memcpy(to, (const char *)x->data + (size_t)(k * w->tokens - begins) * row, n);
        to += n;
    }
}

/* All pieces, each of them used once more. */
static dra_status keep_pieces(serve_pieces *p, store *s, const whole *w, serve_recipe *r,
                              dra_error *err)
{
    size_t     each = 0;
    dra_status st = DRA_OK;
    for (size_t i = 0; i < w->n; i++) {
        const dra_tensor_info *x = cut_tensor(p, w, i);
        if (x) each += (size_t)w->tokens * row_bytes(x);
    }
    const size_t n = (size_t)(w->last - w->first);
    char        *data = malloc(each);
    r->hash = calloc(n, sizeof *r->hash);
    r->size = calloc(n, sizeof *r->size);
    if (!data || !r->hash || !r->size)
        st = cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", s->folder);
    for (; r->n < n && st == DRA_OK; r->n += st == DRA_OK) {
        copy_piece(p, w, w->first + (int64_t)r->n, data);
        r->size[r->n] = each;
        st = keep_piece(p, s, data, each, &r->hash[r->n], err);
    }
    free(data);
    return st;
}

/* The next bytes of the whole file are not in pieces. */
static void put_rest(const void *data, size_t bytes, serve_text *cuts, serve_text *rest)
{
    if (!bytes) return;
    serve_put(rest, data, bytes);
    serve_printf(cuts, "%zu;", bytes);
}

/* A tensor that grows: rows before the first piece, pieces, rows after the last one. */
static void put_rows(const whole *w, const dra_tensor_info *x, size_t from, serve_text *cuts,
                     serve_text *rest)
{
    const size_t  row = row_bytes(x);
    const int64_t begins = w->end - x->shape.dim[1];
    const size_t  before = (size_t)(w->first * w->tokens - begins) * row;
    const size_t  after = (size_t)(w->last * w->tokens - begins) * row;
    put_rest(x->data, before, cuts, rest);
    serve_printf(cuts, "0 %lld %zu %zu;", (long long)(w->last - w->first), from,
                 (size_t)w->tokens * row);
    put_rest((const char *)x->data + after, x->bytes - after, cuts, rest);
}

/* All of the file but its header, in the order of the file; `order` has room for all tensors. */
static void put_tensors(const serve_pieces *p, const whole *w, size_t *order, serve_text *cuts,
                        serve_text *rest)
{
    for (size_t i = 0; i < w->n; i++) { /* few, and mostly in order already */
        size_t at = i;
        for (; at > 0 && dra_tensors_at(w->t, order[at - 1])->data > dra_tensors_at(w->t, i)->data;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (size_t i = 0; i < w->n; i++) {
        const dra_tensor_info *x = dra_tensors_at(w->t, order[i]);
        size_t                 from = 0;
        if (!cut_tensor(p, w, order[i])) {
            put_rest(x->data, x->bytes, cuts, rest);
            continue;
        }
        for (size_t k = 0; k < order[i]; k++) { /* those that are before it in a piece */
            const dra_tensor_info *other = cut_tensor(p, w, k);
            if (other) from += (size_t)w->tokens * row_bytes(other);
        }
        put_rows(w, x, from, cuts, rest);
    }
}

static dra_status write_recipe(const whole *w, const serve_recipe *r, const serve_text *cuts,
                               serve_text *rest, const char *path, dra_error *err)
{
    serve_text pieces = {0}, size = {0}, left = {0};
    serve_printf(&size, "%zu", w->header + w->tensors);
    serve_printf(&left, "%zu", rest->n);
    for (size_t i = 0; i < r->n; i++) serve_printf(&pieces, "%016" PRIx64 ";", r->hash[i]);
    serve_put(rest, "\0\0\0", 3); /* of its last number */
    const char             *tokens = dra_tensors_metadata(w->t, "tokens");
    const dra_metadata_item meta[] = {{"format", SERVE_PIECES_FORMAT},
                                      {"tokens", tokens ? tokens : "0"},
                                      {"whole", size.data},
                                      {"rest", left.data},
                                      {"pieces", pieces.data},
                                      {"cuts", cuts->data}};
    const dra_tensor_item   item = {"rest", DRA_I32, {1, {(int64_t)(rest->n / 4)}}, rest->data};
    const bool failed = pieces.failed | size.failed | left.failed | cuts->failed | rest->failed;
    const dra_status st = failed ? cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path)
                                 : dra_tensors_write(path, &item, 1, meta, COUNT(meta), err);
    serve_text_free(&pieces);
    serve_text_free(&size);
    serve_text_free(&left);
    return st;
}

static dra_status write_cut(const serve_pieces *p, const whole *w, const serve_recipe *r,
                            const char *from, const char *path, dra_error *err)
{
    serve_text cuts = {0}, rest = {0};
    size_t    *order = calloc(w->n + 1, sizeof *order);
    char      *header = malloc(w->header + 1);
    dra_status st = order && header ? serve_read_some(from, header, w->header, err)
                                    : cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    if (st == DRA_OK) {
        put_rest(header, w->header, &cuts, &rest);
        put_tensors(p, w, order, &cuts, &rest);
        st = write_recipe(w, r, &cuts, &rest, path, err);
    }
    free(order);
    free(header);
    serve_text_free(&cuts);
    serve_text_free(&rest);
    return st;
}

static dra_status rename_file(const char *from, const char *path, dra_error *err)
{
    if (cli_rename(from, path) != 0)
        return cli_error(err, DRA_ERR_FILE, "%.200s: %s", path, cli_reason(errno));
    serve_file_sync(path);
    return DRA_OK;
}

static dra_status place_cut(serve_pieces *p, const whole *w, const char *from, const char *path,
                            dra_error *err)
{
    enum { MORE = 16 }; /* letters after a path */
    char         folder[SERVE_PIECES_PATH], inside[SERVE_PIECES_PATH + MORE];
    char         cut[SERVE_PIECES_PATH + MORE];
    serve_recipe r = {0};
    if (!serve_piece_folder(path, folder))
        return cli_error(err, DRA_ERR_FILE, "the path is too long");
    snprintf(inside, sizeof inside, "%s%s/", folder, SERVE_PIECES_FOLDER);
    store     *s = make_store(p, folder);
    dra_status st = s ? cli_make_folders(inside, 0700, err)
                      : cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    if (st == DRA_OK) st = keep_pieces(p, s, w, &r, err);
    /* The rename alone decides: a file that is written may be there although its folder could not
     * be synced. */
    snprintf(cut, sizeof cut, "%s.cut.tmp", path);
    if (st == DRA_OK) st = write_cut(p, w, &r, from, cut, err);
    if (st == DRA_OK) st = rename_file(cut, path, err);
    if (st != DRA_OK) unlink(cut);
    if (st != DRA_OK) leave_all(p, path, &r);
    serve_recipe_free(&r);
    return st;
}

/* ---- what the worker does -------------------------------------------------------------------- */

dra_status serve_pieces_place(serve_pieces *p, const char *from, const char *path, size_t *bytes,
                              bool *pieces, dra_error *err)
{
    whole        w = {0};
    serve_recipe before = {0};
    struct stat  how;
    dra_tensors *t = NULL;
    dra_status   st = look_before(path, &before, err);
    *pieces = false;
    if (st == DRA_OK && dra_tensors_open(from, &t, err) == DRA_ERR_MEMORY) st = DRA_ERR_MEMORY;
    w.t = t;
    if (st == DRA_OK && t) *pieces = measure_file(p, from, &w);
    if (st == DRA_OK)
        st = *pieces ? place_cut(p, &w, from, path, err) : rename_file(from, path, err);
    dra_tensors_close(t);
    if (st != DRA_OK || *pieces) unlink(from);
    if (st == DRA_OK) leave_all(p, path, &before);
    *bytes = cli_stat(path, &how) == 0 ? (size_t)how.st_size : 0;
    serve_recipe_free(&before);
    return st;
}

dra_status serve_pieces_change(serve_pieces *p, const char *from, const char *path,
                               dra_status (*change)(const char *from, const char *path,
                                                    dra_error *err),
                               dra_error *err)
{
    char         folder[SERVE_PIECES_PATH];
    serve_recipe before = {0}, after = {0};
    if (!p) return change(from, path, err);
    dra_status st = look_before(path, &before, err);
    if (st == DRA_OK && from) st = look_before(from, &after, err);
    store *s = st == DRA_OK && serve_piece_folder(path, folder) ? make_store(p, folder) : NULL;
    if (st == DRA_OK && (!s || !use_all(p, s, &after)))
        st = cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    if (st == DRA_OK) {
        st = change(from, path, err);
        leave_all(p, path, st == DRA_OK ? &before : &after);
    }
    serve_recipe_free(&before);
    serve_recipe_free(&after);
    return st;
}

/* ---- the start ------------------------------------------------------------------------------- */

bool serve_pieces_found(serve_pieces *p, const char *path, size_t *bytes)
{
    char         folder[SERVE_PIECES_PATH];
    dra_error    err = {0};
    serve_recipe r = {0};
    const bool   read = serve_recipe_look(path, &r, &err) == DRA_OK &&
                      serve_piece_folder(path, folder);
    store     *s = read && r.n ? make_store(p, folder) : NULL;
    const bool well = read && (!r.n || (s && use_all(p, s, &r)));
    *bytes = r.whole;
    p->unsure |= !well;
    serve_recipe_free(&r);
    return well;
}

void serve_pieces_sweep(serve_pieces *p, const char *folder)
{
    char   inside[SERVE_PIECES_PATH + sizeof SERVE_PIECES_FOLDER], path[SERVE_PIECES_PATH], *end;
    store *s = find_store(p, folder);
    snprintf(inside, sizeof inside, "%s%s", folder, SERVE_PIECES_FOLDER);
    DIR *d = p->unsure ? NULL : opendir(inside);
    for (struct dirent *x; d && (x = readdir(d));) {
        const uint64_t hash = strtoull(x->d_name, &end, 16);
        const bool     named = end == x->d_name + 16 && !*end;
        if (x->d_name[0] == '.' || (named && s && *place_of(s, hash))) continue;
        if (cli_path(inside, x->d_name, path, sizeof path)) unlink(path);
    }
    if (d) closedir(d);
}
