/* Decompression by zlib and libzstd, one block of output at a time. */
#include "file/unpack.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "file/fail.h"

enum {
    BLOCK = 1 << 17,      /* bytes of output at a time */
    PIECE = 1 << 30,      /* most of the input that zlib sees at a time: its counts have 32 bits */
    GZIP_WINDOW = 15 + 16 /* the largest window, and a header of gzip */
};

typedef struct unpacking {
    const char         *path;
    const dra_file_map *file;
    size_t              at; /* bytes of the file that were read */
    size_t              most, done;
    dra_unpacked        fn;
    void               *user;
    unsigned char      *block;
} unpacking;

dra_packing dra_packing_of(const unsigned char *at, size_t n)
{
    if (n >= 3 && memcmp(at, "\x1f\x8b\x08", 3) == 0) return DRA_PACKED_GZIP;
    const bool frame = n >= 4 && memcmp(at, "\x28\xb5\x2f\xfd", 4) == 0;
    const bool skipped = n >= 4 && (at[0] & 0xf0) == 0x50 && memcmp(at + 1, "\x2a\x4d\x18", 3) == 0;
    return frame || skipped ? DRA_PACKED_ZSTD : DRA_PACKED_NOT;
}

const char *dra_packing_name(dra_packing p)
{
    return p == DRA_PACKED_GZIP ? "gzip" : p == DRA_PACKED_ZSTD ? "zstd" : NULL;
}

static dra_status put_unpacked(unpacking *u, size_t bytes, dra_error *err)
{
    if (bytes > u->most - u->done) bytes = u->most - u->done;
    u->done += bytes;
    return bytes ? u->fn(u->user, u->block, bytes, err) : DRA_OK;
}

static dra_status fail_stream(const unpacking *u, dra_packing how, const char *why, dra_error *err)
{
    const char *name = dra_packing_name(how);
    if (!why)
        return dra_fail_at(err, DRA_ERR_FORMAT, u->path,
                           "ends after %zu bytes, in the middle of its %s stream", u->file->bytes,
                           name);
    return dra_fail_at(err, DRA_ERR_FORMAT, u->path, "its %s stream is damaged at byte %zu: %s",
                       name, u->at, why);
}

/* ---- gzip ------------------------------------------------------------------------------------ */

/* One call of inflate. *ended: a stream is over, and the file perhaps too. */
static dra_status inflate_block(unpacking *u, z_stream *z, bool *ended, dra_error *err)
{
    const size_t left = u->file->bytes - u->at;
    const uInt   given = left < PIECE ? (uInt)left : (uInt)PIECE;
    z->next_in = (Bytef *)(uintptr_t)(u->file->data + u->at);
    z->avail_in = given;
    z->next_out = u->block;
    z->avail_out = BLOCK;
    const int how = inflate(z, Z_NO_FLUSH);
    u->at += given - z->avail_in;
    *ended = how == Z_STREAM_END;
    if (how == Z_MEM_ERROR)
        return dra_fail_at(err, DRA_ERR_MEMORY, u->path, "out of memory, cannot decompress it");
    if (how == Z_BUF_ERROR && left == 0) return fail_stream(u, DRA_PACKED_GZIP, NULL, err);
    if (how != Z_OK && how != Z_STREAM_END)
        return fail_stream(u, DRA_PACKED_GZIP, z->msg ? z->msg : "it cannot be read", err);
    return put_unpacked(u, BLOCK - z->avail_out, err);
}

static dra_status unpack_gzip(unpacking *u, dra_error *err)
{
    z_stream   z = {0};
    bool       ended = false;
    dra_status st = DRA_OK;
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return dra_fail_at(err, DRA_ERR_MEMORY, u->path, "out of memory, cannot decompress it");
    while (st == DRA_OK && u->done < u->most && !(ended && u->at == u->file->bytes)) {
        if (ended) inflateReset(&z);
        st = inflate_block(u, &z, &ended, err);
    }
    inflateEnd(&z);
    return st;
}

/* ---- Zstandard ------------------------------------------------------------------------------- */

/* The largest window that is allowed, as a power of two: a frame names its own, up to 2 GB (zstd
 * --long=31), which is allocated whole. Beyond 128 MiB it has to be worth it: at most 1024 times
 * the file. */
static int window_limit(size_t bytes)
{
    int log = 27;
    while (log < 31 && bytes >> (log - 10)) log++;
    return log;
}

static dra_status unpack_zstd(unpacking *u, dra_error *err)
{
    ZSTD_DStream *z = ZSTD_createDStream();
    ZSTD_inBuffer in = {u->file->data, u->file->bytes, 0};
    size_t        left = 1; /* 0: a frame is over */
    dra_status    st = DRA_OK;
    if (!z) return dra_fail_at(err, DRA_ERR_MEMORY, u->path, "out of memory, cannot decompress it");
    ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, window_limit(u->file->bytes));
    while (st == DRA_OK && u->done < u->most && !(left == 0 && in.pos == in.size)) {
        ZSTD_outBuffer out = {u->block, BLOCK, 0};
        const size_t   before = in.pos;
        left = ZSTD_decompressStream(z, &out, &in);
        u->at = in.pos;
        if (ZSTD_isError(left))
            st = fail_stream(u, DRA_PACKED_ZSTD, ZSTD_getErrorName(left), err);
        else if (left && in.pos == before && in.pos == in.size && out.pos == 0)
            st = fail_stream(u, DRA_PACKED_ZSTD, NULL, err);
        else
            st = put_unpacked(u, out.pos, err);
    }
    ZSTD_freeDStream(z);
    return st;
}

dra_status dra_unpack(dra_packing how, const char *path, const dra_file_map *file, size_t most,
                      dra_unpacked fn, void *user, dra_error *err)
{
    unpacking u = {path, file, 0, most, 0, fn, user, malloc(BLOCK)};
    if (!u.block)
        return dra_fail_at(err, DRA_ERR_MEMORY, path, "out of memory, cannot decompress it");
    const dra_status st = how == DRA_PACKED_GZIP ? unpack_gzip(&u, err) : unpack_zstd(&u, err);
    free(u.block);
    return st;
}
