/* Recognition: what is certain first (compression, magic numbers), then names, then how the bytes
 * look. What is neither text nor known is refused, since learning its bytes would be a bad
 * surprise; a format that is named is believed. */
#include "data/sniff.h"

#include <stdlib.h>
#include <string.h>

#include "data/llmc.h"
#include "file/fail.h"
#include "file/format.h"
#include "text/letters.h"

/* ---- the kinds ------------------------------------------------------------------------------- */

static const struct kind {
    const char *text;
    bool        tokens, wants_end;
} kinds[DRA_DATA_KINDS] = {
    [DRA_DATA_TEXT] = {"text"},
    [DRA_DATA_LINES] = {"lines of JSON"},
    [DRA_DATA_IDS] = {"tokens in safetensors", true},
    [DRA_DATA_NPY] = {"tokens in an array of NumPy", true, true},
    [DRA_DATA_U16] = {"tokens, 16 bits each (nanoGPT)", true, true},
    [DRA_DATA_U32] = {"tokens, 32 bits each", true, true},
    [DRA_DATA_LLMC16] = {"tokens, 16 bits each (llm.c)", true, true},
    [DRA_DATA_LLMC32] = {"tokens, 32 bits each (llm.c)", true},
};

bool        dra_data_kind_is_tokens(dra_data_kind kind) { return kinds[kind].tokens; }
bool        dra_data_kind_wants_end(dra_data_kind kind) { return kinds[kind].wants_end; }
const char *dra_data_kind_text(dra_data_kind kind) { return kinds[kind].text; }

/* What --data-format may say. */
static const struct named {
    const char   *name;
    dra_data_kind kind;
} named[] = {
    {"text", DRA_DATA_TEXT},       {"bytes", DRA_DATA_TEXT},  {"jsonl", DRA_DATA_LINES},
    {"safetensors", DRA_DATA_IDS}, {"npy", DRA_DATA_NPY},     {"tokens-u16", DRA_DATA_U16},
    {"tokens-u32", DRA_DATA_U32},  {"llmc", DRA_DATA_LLMC16},
};

static dra_status find_format(const char *format, const struct named **out, dra_error *err)
{
    char room[DRA_BRIEF];
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(named[i].name, format) == 0) return *out = &named[i], DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "data format '%s', expected text, bytes, jsonl, safetensors, npy, tokens-u16, "
                    "tokens-u32 or llmc",
                    dra_brief(format, room));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static bool is_control(unsigned char c)
{
    return c == 0x7f || (c < 0x20 && !(c && strchr("\b\t\n\v\f\r\033", c)));
}

/* NUL and other control characters are rare in text, but legal. In an encoding other than UTF-8
 * they are not, and one byte in thirty is enough to tell what was compressed or computed. */
bool dra_sample_is_text(const dra_sample *s)
{
    size_t  broken = 0, nuls = 0, controls = 0;
    int32_t code;
    for (size_t i = 0; i < s->n;) {
        nuls += s->at[i] == 0;
        controls += is_control(s->at[i]);
        i += dra_utf8((const char *)s->at + i, s->n - i, &code);
        broken += code == DRA_BROKEN || (code == DRA_OPEN && s->whole);
    }
    return broken ? nuls == 0 && controls <= 1 + s->n / 32 : controls <= 2 + s->n / 4;
}

static bool is_called(const dra_sample *s, const char *end)
{
    const size_t n = strlen(end);
    return s->name_bytes > n && memcmp(s->name + s->name_bytes - n, end, n) == 0;
}

static bool is_tensors(const dra_sample *s)
{
    uint64_t header;
    if (s->n <= sizeof header || s->at[sizeof header] != '{') return false;
    memcpy(&header, s->at, sizeof header);
    return header >= 2 && header <= DRA_HEADER_LIMIT;
}

/* Two objects, each on a line of its own. */
static bool is_lines(const dra_sample *s)
{
    const unsigned char *end = memchr(s->at, '\n', s->n);
    if (!end || s->at[0] != '{' || (size_t)(end - s->at) + 1 >= s->n || end[1] != '{') return false;
    return end[-1] == '}' || (end[-1] == '\r' && end - s->at > 1 && end[-2] == '}');
}

/* Ids below 2^18 in 32 bits: as 16 bits, every second would be 0 to 3, and no other. */
static bool looks_wide(const dra_sample *s)
{
    size_t large = 0;
    if (s->n < 32) return false;
    for (size_t i = 0; i + 4 <= s->n; i += 4) {
        large += s->at[i] > 3 || s->at[i + 1];
        if (s->at[i + 2] > 3 || s->at[i + 3]) return false;
    }
    return large > s->n / 8;
}

static dra_status kind_of_ids(const dra_sample *s, dra_data_kind *out, dra_error *err)
{
    *out = DRA_DATA_U16;
    if (!looks_wide(s)) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, s->path,
                       "every second number of 16 bits is nearly 0, so these may be ids of 32 "
                       "bits: say --data-format tokens-u32 or tokens-u16");
}

static bool find_magic(const dra_sample *s, dra_data_kind *out)
{
    const int width = dra_llmc_width(s->at, s->n);
    if (width)
        *out = width == 2 ? DRA_DATA_LLMC16 : DRA_DATA_LLMC32;
    else if (s->n >= 6 && memcmp(s->at, "\x93NUMPY", 6) == 0)
        *out = DRA_DATA_NPY;
    else if (is_tensors(s) || is_called(s, ".safetensors"))
        *out = DRA_DATA_IDS;
    else
        return is_called(s, ".npy") ? (*out = DRA_DATA_NPY, true) : false;
    return true;
}

dra_status dra_sample_kind(const dra_sample *s, dra_data_kind *out, dra_error *err)
{
    *out = DRA_DATA_TEXT;
    if (find_magic(s, out)) return DRA_OK;
    const dra_status st = dra_sample_refuse(s, err);
    if (st != DRA_OK) return st;
    if (is_called(s, ".jsonl") || is_called(s, ".ndjson") || (is_called(s, ".json") && is_lines(s)))
        return *out = DRA_DATA_LINES, DRA_OK;
    const bool ids = is_called(s, ".bin"), text = dra_sample_is_text(s);
    if (ids && (!text || memchr(s->at, 0, s->n))) return kind_of_ids(s, out, err);
    if (text) return DRA_OK;
    return dra_fail_at(err, DRA_ERR_FORMAT, s->path,
                       "is not text and has no known format; if it is meant, say what it "
                       "is: --data-format bytes, tokens-u16, ...");
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct inside { /* the first bytes of what was compressed */
    unsigned char at[DRA_SAMPLE];
    size_t        n;
} inside;

static dra_status take_sample(void *user, const unsigned char *data, size_t bytes, dra_error *err)
{
    inside *in = user;
    memcpy(in->at + in->n, data, bytes);
    in->n += bytes;
    return DRA_OK;
}

/* Ends of names of compressed files. */
static dra_packing packing_of_name(const char *path, size_t *bytes)
{
    static const struct {
        const char *end;
        dra_packing packing;
    } ends[] = {{".gz", DRA_PACKED_GZIP}, {".zst", DRA_PACKED_ZSTD}, {".zstd", DRA_PACKED_ZSTD}};
    *bytes = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i].end);
        if (*bytes <= n || strcmp(path + *bytes - n, ends[i].end) != 0) continue;
        *bytes -= n;
        return ends[i].packing;
    }
    return DRA_PACKED_NOT;
}

static dra_status sniff_inside(dra_sample s, const dra_file_map *file, dra_sniffed *out,
                               dra_error *err)
{
    inside *in = calloc(1, sizeof *in);
    if (!in) return dra_fail_at(err, DRA_ERR_MEMORY, s.path, "out of memory, cannot look at it");
    dra_status st = dra_unpack(out->packing, s.path, file, sizeof in->at, take_sample, in, err);
    s.at = in->at;
    s.n = in->n;
    s.whole = in->n < sizeof in->at;
    if (st == DRA_OK) st = dra_sample_kind(&s, &out->kind, err);
    free(in);
    if (st == DRA_OK && out->kind == DRA_DATA_IDS)
        st = dra_fail_at(err, DRA_ERR_FORMAT, s.path, "holds safetensors: decompress them first");
    return st;
}

static dra_status sniff_map(const char *path, const dra_file_map *file, dra_sniffed *out,
                            dra_error *err)
{
    dra_sample        s = {.path = path,
                           .name = path,
                           .at = file->data ? file->data : (const unsigned char *)"",
                           .n = file->bytes < DRA_SAMPLE ? file->bytes : DRA_SAMPLE,
                           .whole = file->bytes <= DRA_SAMPLE,
                           .last = file->bytes ? file->data[file->bytes - 1] : 0};
    const dra_packing by_name = packing_of_name(path, &s.name_bytes);
    out->packing = dra_packing_of(s.at, s.n);
    if (out->packing) return sniff_inside((dra_sample){path, path, s.name_bytes}, file, out, err);
    if (by_name)
        return dra_fail_at(err, DRA_ERR_FORMAT, path,
                           "is named as if compressed by %s, but does not start so; if it is "
                           "plain, rename it or say --data-format",
                           dra_packing_name(by_name));
    return dra_sample_kind(&s, &out->kind, err);
}

/* A format that is named tells what is inside. What is compressed is unpacked, ids only where the
 * name says so, too, as any bytes may be ids. */
static dra_status sniff_named(const char *path, const dra_file_map *file, const struct named *f,
                              dra_sniffed *out)
{
    size_t            bytes;
    const dra_packing by_name = packing_of_name(path, &bytes),
                      found = dra_packing_of(file->data, file->bytes);
    out->kind = f->kind;
    if (f->kind == DRA_DATA_LLMC16 && !found && dra_llmc_width(file->data, file->bytes) == 4)
        out->kind = DRA_DATA_LLMC32;
    if (found && (!dra_data_kind_is_tokens(f->kind) || found == by_name)) out->packing = found;
    return DRA_OK;
}

dra_status dra_sniff(const char *path, const char *format, dra_sniffed *out, dra_error *err)
{
    dra_file_map        file;
    const struct named *f = NULL;
    *out = (dra_sniffed){0};
    dra_status st = format ? find_format(format, &f, err) : DRA_OK;
    if (st == DRA_OK) st = dra_file_map_open(path, &file, err);
    if (st != DRA_OK) return st;
    st = f ? sniff_named(path, &file, f, out) : sniff_map(path, &file, out, err);
    dra_file_map_close(&file);
    return st;
}
