/* The header of llm.c's files of tokens. */
#include "data/llmc.h"

#include <string.h>

#include "file/fail.h"

enum { HEADER = 256 * 4 };

static const struct variant {
    int32_t magic, version;
    int     width;
    int32_t end, begin;
} variants[] = {{20240520, 1, 2, 50256, -1}, {20240801, 7, 4, -1, 128000}};

static int32_t read_number(const unsigned char *file, int i)
{
    int32_t x;
    memcpy(&x, file + 4 * i, sizeof x);
    return x;
}

static const struct variant *find_variant(const unsigned char *at, size_t n)
{
    for (size_t i = 0; n >= 4 && i < sizeof variants / sizeof *variants; i++)
        if (variants[i].magic == read_number(at, 0)) return &variants[i];
    return NULL;
}

int dra_llmc_width(const unsigned char *at, size_t n)
{
    const struct variant *v = find_variant(at, n);
    return v ? v->width : 0;
}

dra_status dra_llmc_read(const char *path, const unsigned char *file, size_t bytes, dra_llmc *out,
                         dra_error *err)
{
    const struct variant *v = find_variant(file, bytes);
    if (!v)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "is not a token file of llm.c: expected to start with %d or %d",
                           (int)variants[0].magic, (int)variants[1].magic);
    if (bytes < HEADER)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "its header of llm.c is cut short: %zu bytes, expected %d", bytes,
                           (int)HEADER);
    const int32_t version = read_number(file, 1), tokens = read_number(file, 2);
    if (version != v->version)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "version %d of llm.c's tokens with magic %d, expected %d", (int)version,
                           (int)v->magic, (int)v->version);
    if (tokens < 0 || (size_t)tokens != (bytes - HEADER) / (size_t)v->width ||
        (bytes - HEADER) % (size_t)v->width)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "its header says %d tokens of %d bytes, found %zu bytes of them",
                           (int)tokens, v->width, bytes - HEADER);
    *out = (dra_llmc){v->width, file + HEADER, tokens, v->end, v->begin};
    return DRA_OK;
}
