/* The plain bytes of a source: mapped as they are, or decompressed into a temporary file. */
#include <errno.h>
#include <stdio.h>

#include "data/sources.h"
#include "file/fail.h"
#include "file/temporary.h"

typedef struct output {
    dra_temporary *file;
    const char    *path; /* of the source */
} output;

static dra_status fail_temporary(const char *path, const char *what, dra_error *err)
{
    char text[80];
    snprintf(text, sizeof text, "%s a temporary file for what is in it", what);
    return dra_fail_system(err, path, text, errno);
}

static dra_status put_plain(void *user, const unsigned char *data, size_t bytes, dra_error *err)
{
    const output *o = user;
    if (dra_temporary_write(o->file, data, bytes)) return DRA_OK;
    return fail_temporary(o->path, "write", err);
}

/* *out is to be closed, if it is not NULL. */
static dra_status unpack_source(const dra_source *s, dra_temporary **out, dra_error *err)
{
    dra_file_map packed;
    output       o = {.path = s->path};
    *out = NULL;
    dra_status st = dra_file_map_open(s->path, &packed, err);
    if (st != DRA_OK) return st;
    if (!(*out = o.file = dra_temporary_open())) st = fail_temporary(s->path, "make", err);
    if (st == DRA_OK) st = dra_unpack(s->packing, s->path, &packed, SIZE_MAX, put_plain, &o, err);
    dra_file_map_close(&packed);
    return st;
}

dra_status dra_source_map(const dra_source *s, dra_file_map *out, dra_error *err)
{
    dra_temporary *file = NULL;
    *out = (dra_file_map){0};
    if (!s->packing) return dra_file_map_open(s->path, out, err);
    dra_status st = unpack_source(s, &file, err);
    if (st == DRA_OK && !dra_temporary_map(file, out)) st = fail_temporary(s->path, "map", err);
    dra_temporary_close(file);
    return st;
}

static dra_status open_plain(const dra_source *s, int *fd, dra_error *err)
{
    dra_temporary *file = NULL;
    dra_status     st = unpack_source(s, &file, err);
    if (st == DRA_OK && (*fd = dra_temporary_reopen(file)) < 0)
        st = fail_temporary(s->path, "write", err);
    dra_temporary_close(file);
    return st;
}

dra_status dra_data_text(const char *path, const char *format, int *fd, dra_error *err)
{
    dra_sniffed found;
    *fd = -1;
    const dra_status st = dra_sniff(path, format, &found, err);
    if (st != DRA_OK) return st;
    if (dra_data_kind_is_tokens(found.kind))
        return dra_fail_at(err, DRA_ERR_FORMAT, path, "holds %s, expected text",
                           dra_data_kind_text(found.kind));
    const dra_source s = {.path = path, .kind = found.kind, .packing = found.packing};
    return found.packing ? open_plain(&s, fd, err) : DRA_OK;
}
