/* Formats that are known but not read: what each is called, and what to do instead. */
#include <string.h>

#include "data/sniff.h"
#include "file/fail.h"

#define BYTES(text) text, sizeof(text) - 1

static const char to_lines[] = "write its texts as lines of JSON (.jsonl)";
static const char from_parquet[] = "write its texts as lines of JSON, such as with pandas: "
                                   "read_parquet(NAME).to_json(OUT, orient='records', lines=True)";
static const char from_arrow[] =
    "write its texts as lines of JSON, such as with Hugging Face's datasets: "
    "Dataset.from_file(NAME).to_json(OUT)";
static const char extract[] = "extract it and give the files";
static const char again[] = "decompress it, or use gzip or zstd";
static const char from_python[] = "save the ids by numpy.save (.npy), or texts as .jsonl";
static const char to_text[] = "extract its text first";
static const char no_text[] = "expected text or tokens";
static const char weights[] = "which are no data; a model is given by --model";
static const char to_utf8[] = "convert it to UTF-8, such as by iconv -f UTF-16 -t UTF-8";

/* All bytes at one place, and perhaps some at another. Where the first are plain letters a text may
 * start with them, so only what is no text is refused; `always` makes an exception. */
static const struct format {
    const char *name, *advice;
    size_t      at;
    const char *magic;
    size_t      n;
    size_t      also_at;
    const char *also;
    size_t      also_n;
    bool        always;
} formats[] = {
    {"a Parquet file", from_parquet, 0, BYTES("PAR1")},
    {"an encrypted Parquet file", from_parquet, 0, BYTES("PARE")},
    {"an Arrow file", from_arrow, 0, BYTES("ARROW1")},
    {"an Arrow stream", from_arrow, 0, BYTES("\xff\xff\xff\xff"), 8, BYTES("\x10\0\0\0")},
    {"a Feather file", from_arrow, 0, BYTES("FEA1")},
    {"an ORC file", to_lines, 0, BYTES("ORC")},
    {"an Avro file", to_lines, 0, BYTES("Obj\x01")},
    {"a checkpoint of PyTorch", from_python, 0,
     BYTES("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")},
    {"a zip archive (also .pt, .npz and .docx are such)", extract, 0, BYTES("PK\x03\x04")},
    {"an empty zip archive", extract, 0, BYTES("PK\x05\x06")},
    {"a 7z archive", extract, 0, BYTES("7z\xbc\xaf\x27\x1c")},
    {"a rar archive", extract, 0, BYTES("Rar!\x1a\x07")},
    {"a tar archive", extract, 257, BYTES("ustar")},
    {"compressed by xz", again, 0, BYTES("\xfd\x37zXZ\0")},
    {"compressed by bzip2", again, 0, BYTES("BZh"), 4, BYTES("\x31\x41\x59\x26\x53\x59")},
    {"compressed by lz4", again, 0, BYTES("\x04\x22\x4d\x18")},
    {"compressed by compress", again, 0, BYTES("\x1f\x9d")},
    {"a PDF", to_text, 0, BYTES("%PDF-"), .always = true},
    {"an Office document", to_text, 0, BYTES("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")},
    {"a SQLite database", to_lines, 0, BYTES("SQLite format 3\0"), .always = true},
    {"an HDF5 file", from_python, 0, BYTES("\x89HDF\r\n\x1a\n")},
    {"a PNG image", no_text, 0, BYTES("\x89PNG\r\n\x1a\n")},
    {"a JPEG image", no_text, 0, BYTES("\xff\xd8\xff")},
    {"a GIF image", no_text, 0, BYTES("GIF8")},
    {"a TIFF image", no_text, 0, BYTES("II*\0")},
    {"a TIFF image", no_text, 0, BYTES("MM\0*")},
    {"a WebP image", no_text, 0, BYTES("RIFF"), 8, BYTES("WEBP")},
    {"a sound file", no_text, 0, BYTES("RIFF"), 8, BYTES("WAVE")},
    {"a sound file", no_text, 0, BYTES("OggS")},
    {"a sound file", no_text, 0, BYTES("fLaC")},
    {"a video", no_text, 4, BYTES("ftyp")},
    {"a program", no_text, 0,
     BYTES("\x7f"
           "ELF")},
    {"weights in GGUF", weights, 0, BYTES("GGUF")},
    {"weights in GGML", weights, 0, BYTES("fmgg")},
    {"weights in GGML", weights, 0, BYTES("lmgg")},
    {"weights of llm.c", weights, 0, BYTES("\xc6\xd7\x34\x01")},            /* 20240326 */
    {"the state of a run of llm.c", no_text, 0, BYTES("\xc7\xd7\x34\x01")}, /* 20240327 */
    {"an evaluation of llm.c, questions and answers", no_text, 0, BYTES("\x8a\xd8\x34\x01")},
    {"an index of Megatron-LM", "give its .bin with --data-format tokens-u16 or tokens-u32", 0,
     BYTES("MMIDIDX\0")},
    {"text in UTF-16", to_utf8, 0, BYTES("\xff\xfe")},
    {"text in UTF-16", to_utf8, 0, BYTES("\xfe\xff")},
};

static bool has_bytes(const dra_sample *s, size_t at, const char *bytes, size_t n)
{
    return n == 0 || (s->n >= at && s->n - at >= n && memcmp(s->at + at, bytes, n) == 0);
}

/* Two bytes and the last one: nothing else of a pickle is always the same. */
static bool is_pickle(const dra_sample *s)
{
    return s->n > 3 && s->at[0] == 0x80 && s->at[1] >= 2 && s->at[1] <= 5 && s->last == '.';
}

static dra_status refuse_format(const dra_sample *s, const char *name, const char *advice,
                                dra_error *err)
{
    return dra_fail_at(err, DRA_ERR_FORMAT, s->path, "is %s: %s", name, advice);
}

dra_status dra_sample_refuse(const dra_sample *s, dra_error *err)
{
    const bool text = dra_sample_is_text(s);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const struct format *f = &formats[i];
        if ((!text || f->always) && has_bytes(s, f->at, f->magic, f->n) &&
            has_bytes(s, f->also_at, f->also, f->also_n))
            return refuse_format(s, f->name, f->advice, err);
    }
    return is_pickle(s) ? refuse_format(s, "a pickle of Python", from_python, err) : DRA_OK;
}
