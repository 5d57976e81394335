#include "recipe.h"
#include "pieces.h"
#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool serve_piece_folder(const char *path, char folder[SERVE_PIECES_PATH])
{
    const char  *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) : 0;
    if (n == 0 || n + sizeof SERVE_PIECES_FOLDER + 40 > SERVE_PIECES_PATH) return false;
    memcpy(folder, path, n);
    folder[n] = '\0';
    return true;
}

void serve_piece_path(const char *folder, uint64_t hash, char path[SERVE_PIECES_PATH])
{
    snprintf(path, SERVE_PIECES_PATH, "%.4000s%s/%016" PRIx64, folder, SERVE_PIECES_FOLDER, hash);
}

/* ---- what NAME.state says -------------------------------------------------------------------- */

void serve_recipe_free(serve_recipe *r)
{
    free(r->hash);
    free(r->size);
    free(r->cuts);
    *r = (serve_recipe){0};
}

/* Numbers up to the next ';', or fewer; *at is behind it. */
static int read_numbers(const char **at, int base, int most, uint64_t *to)
{
    int n = 0;
    for (char *end; n < most && **at && **at != ';'; n++, *at = end) {
        while (**at == ' ') ++*at;
        to[n] = strtoull(*at, &end, base);
        if (end == *at || (*end && *end != ' ' && *end != ';')) return -1;
    }
    if (**at == ';') ++*at;
    return n;
}

static size_t count_entries(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += *text == ';';
    return n;
}

static bool read_pieces(const char *text, serve_recipe *r)
{
    uint64_t x[1];
    for (size_t i = 0; i < r->n; i++) {
        if (read_numbers(&text, 16, 1, x) != 1) return false;
        r->hash[i] = x[0];
    }
    return !*text;
}

/* Cuts that are in their pieces, and one after another the whole file. */
static bool read_cuts(const char *text, serve_recipe *r)
{
    size_t whole = 0, rest = 0;
    for (size_t i = 0; i < r->n_cuts; i++) {
        uint64_t       x[4];
        const int      n = read_numbers(&text, 10, 4, x);
        const uint64_t most = (uint64_t)r->whole;
        if (n == 1 && x[0] <= most) {
            r->cuts[i] = (serve_cut){-1, 1, 0, (int64_t)x[0]};
            rest += (size_t)x[0];
        } else if (n == 4 && x[0] <= r->n && x[1] <= r->n - x[0] && x[2] <= most &&
                   x[3] <= most / (x[1] ? x[1] : 1)) {
            r->cuts[i] = (serve_cut){(int64_t)x[0], (int64_t)x[1], (int64_t)x[2], (int64_t)x[3]};
        } else {
            return false;
        }
        const serve_cut *c = &r->cuts[i];
        for (int64_t k = 0; c->piece >= 0 && k < c->count; k++) {
            size_t *size = &r->size[c->piece + k];
            if (*size < (size_t)(c->from + c->bytes)) *size = (size_t)(c->from + c->bytes);
        }
        whole += (size_t)c->count * (size_t)c->bytes;
        if (whole > r->whole) return false;
    }
    return !*text && whole == r->whole && rest == r->rest;
}

static bool take_number(const dra_tensors *t, const char *key, size_t *to)
{
    const char *text = dra_tensors_metadata(t, key);
    char       *end = NULL;
    if (!text || text[0] < '0' || text[0] > '9') return false;
    *to = (size_t)strtoull(text, &end, 10);
    return !*end && *to < (size_t)1 << 46;
}

dra_status serve_recipe_read(const dra_tensors *t, const char *path, serve_recipe *r,
                             dra_error *err)
{
    const char *pieces = dra_tensors_metadata(t, "pieces"), *cuts = dra_tensors_metadata(t, "cuts");
    *r = (serve_recipe){0};
    bool well = pieces && cuts && take_number(t, "whole", &r->whole) &&
                take_number(t, "rest", &r->rest);
    if (well) {
        r->n = count_entries(pieces);
        r->n_cuts = count_entries(cuts);
        r->hash = calloc(r->n + 1, sizeof *r->hash);
        r->size = calloc(r->n + 1, sizeof *r->size);
        r->cuts = calloc(r->n_cuts + 1, sizeof *r->cuts);
        if (!r->hash || !r->size || !r->cuts)
            return cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    }
    const dra_tensor_info *rest = dra_tensors_find(t, "rest");
    well = well && read_pieces(pieces, r) && read_cuts(cuts, r) && rest && rest->bytes >= r->rest;
    return well ? DRA_OK
                : cli_error(err, DRA_ERR_FORMAT,
                            "%.200s: is not a state in pieces, or a damaged one", path);
}

/* What the file at `path` has; nothing, if it is not in pieces or not there. */
dra_status serve_recipe_look(const char *path, serve_recipe *r, dra_error *err)
{
    dra_tensors *t = NULL;
    *r = (serve_recipe){0};
    if (!cli_is_there(path)) return DRA_OK;
    dra_status st = dra_tensors_open(path, &t, err);
    if (st != DRA_OK) return st;
    const char *format = dra_tensors_metadata(t, "format");
    if (format && strcmp(format, SERVE_PIECES_FORMAT) == 0) st = serve_recipe_read(t, path, r, err);
    dra_tensors_close(t);
    return st;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int open_file(const char *path, int how)
{
    int fd;
    do fd = open(path, how | O_CLOEXEC, 0600);
    while (fd < 0 && errno == EINTR);
    return fd;
}

dra_status serve_read_some(const char *path, char *to, size_t bytes, dra_error *err)
{
    size_t    n = 0;
    ssize_t   got = 1;
    const int fd = open_file(path, O_RDONLY);
    while (fd >= 0 && n < bytes && got != 0 && (got >= 0 || errno == EINTR)) {
        got = read(fd, to + n, bytes - n);
        if (got > 0) n += (size_t)got;
    }
    dra_status st = DRA_OK;
    if (n < bytes)
        st = cli_error(err, DRA_ERR_FILE, "%.200s: %s", path,
                       fd >= 0 && got == 0 ? "it is too short" : cli_reason(errno));
    if (fd >= 0) close(fd);
    return st;
}

static dra_status write_at(int fd, const char *data, size_t bytes, int64_t at, const char *path,
                           dra_error *err)
{
    while (bytes > 0) {
        const ssize_t n = pwrite(fd, data, bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return cli_error(err, DRA_ERR_FILE, "%.200s: %s", path,
                             cli_reason(n < 0 ? errno : ENOSPC));
        data += n;
        at += n;
        bytes -= (size_t)n;
    }
    return DRA_OK;
}

/* ---- making it whole again ------------------------------------------------------------------- */

/* What a piece has of the whole file. */
static dra_status spread_piece(int fd, const serve_recipe *r, size_t i, const char *data,
                               const char *path, dra_error *err)
{
    int64_t    at = 0;
    dra_status st = DRA_OK;
    for (size_t k = 0; k < r->n_cuts && st == DRA_OK; k++) {
        const serve_cut *c = &r->cuts[k];
        const int64_t    n = (int64_t)i - c->piece;
        if (c->piece >= 0 && n >= 0 && n < c->count)
            st = write_at(fd, data + c->from, (size_t)c->bytes, at + n * c->bytes, path, err);
        at += c->count * c->bytes;
    }
    return st;
}

static dra_status spread_rest(int fd, const serve_recipe *r, const char *data, const char *path,
                              dra_error *err)
{
    int64_t    at = 0;
    dra_status st = DRA_OK;
    for (size_t k = 0; k < r->n_cuts && st == DRA_OK; k++) {
        const serve_cut *c = &r->cuts[k];
        if (c->piece < 0) {
            st = write_at(fd, data, (size_t)c->bytes, at, path, err);
            data += c->bytes;
        }
        at += c->count * c->bytes;
    }
    return st;
}

static dra_status spread_all(int fd, const serve_recipe *r, const char *rest, const char *folder,
                             const char *to, dra_error *err)
{
    dra_status st = spread_rest(fd, r, rest, to, err);
    for (size_t i = 0; i < r->n && st == DRA_OK; i++) {
        char   path[SERVE_PIECES_PATH], *data = NULL;
        size_t bytes = 0;
        serve_piece_path(folder, r->hash[i], path);
        st = dra_file_read(path, r->size[i], &data, &bytes, err);
        if (st == DRA_OK && bytes != r->size[i])
            st = cli_error(err, DRA_ERR_FORMAT, "%.200s: %zu bytes, expected %zu", path, bytes,
                           r->size[i]);
        if (st == DRA_OK) st = spread_piece(fd, r, i, data, to, err);
        free(data);
    }
    return st;
}

dra_status serve_pieces_restore(const char *path, const char *to, dra_error *err)
{
    char         folder[SERVE_PIECES_PATH];
    serve_recipe r = {0};
    dra_tensors *t = NULL;
    dra_status   st = dra_tensors_open(path, &t, err);
    if (st == DRA_OK) st = serve_recipe_read(t, path, &r, err);
    if (st == DRA_OK && !serve_piece_folder(path, folder))
        st = cli_error(err, DRA_ERR_FILE, "the path is too long");
    const int fd = st == DRA_OK ? open_file(to, O_WRONLY | O_CREAT | O_TRUNC) : -1;
    if (st == DRA_OK && fd < 0)
        st = cli_error(err, DRA_ERR_FILE, "%.200s: %s", to, cli_reason(errno));
    if (st == DRA_OK) st = spread_all(fd, &r, dra_tensors_find(t, "rest")->data, folder, to, err);
    if (fd >= 0 && close(fd) != 0 && errno != EINTR && st == DRA_OK)
        st = cli_error(err, DRA_ERR_FILE, "%.200s: %s", to, cli_reason(errno));
    if (st != DRA_OK) unlink(to);
    dra_tensors_close(t);
    serve_recipe_free(&r);
    return st;
}
