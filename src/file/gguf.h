/* GGUF, version 3 (2 has the same layout): one file with a model's settings, tokenizer and tensors.
 *   "GGUF"  u32 version  u64 tensors  u64 pairs
 *   pairs    key, u32 type, value
 *   tensors  name, u32 axes, u64 sizes (fastest axis first), u32 type, u64 offset in the data
 *   data     from the next multiple of the alignment on, offsets multiples of it
 * Texts are u64 bytes and their UTF-8. All numbers are little-endian, nothing else is aligned.
 * [https://github.com/ggml-org/ggml/blob/master/docs/gguf.md] */
#ifndef DRA_SRC_FILE_GGUF_H
#define DRA_SRC_FILE_GGUF_H

#include "file/header.h"
#include "file/json_make.h"

typedef struct dra_gguf {
    dra_header header; /* its tensors, which point into the file */
    json_t *pairs; /* an object; of arrays only those of the tokenizer, and short ones of numbers */
} dra_gguf;

bool dra_gguf_is(const unsigned char *file, size_t bytes);
/* Checks all rules for the `bytes` at `file`; `path` is named in errors. On failure *out is
 * empty. */
dra_status dra_gguf_read(const char *path, const unsigned char *file, size_t bytes, dra_gguf *out,
                         dra_error *err);
void       dra_gguf_free(dra_gguf *g); /* all zero is allowed */

/* Writes pairs and tensors, these in their order. A whole number becomes u32, another f32, a list
 * one of texts or of i32. */
dra_status dra_gguf_write(const char *path, const json_t *pairs, const dra_tensor_item *items,
                          size_t n, dra_error *err);

typedef struct dra_gguf_type {
    uint32_t  number; /* ggml's */
    dra_dtype dtype;
} dra_gguf_type;

/* The types of tensors that dra has, DRA_DTYPE_COUNT at the end. */
extern const dra_gguf_type dra_gguf_types[];

enum { /* types of values */
       DRA_GGUF_U8,
       DRA_GGUF_I8,
       DRA_GGUF_U16,
       DRA_GGUF_I16,
       DRA_GGUF_U32,
       DRA_GGUF_I32,
       DRA_GGUF_F32,
       DRA_GGUF_BOOL,
       DRA_GGUF_TEXT,
       DRA_GGUF_LIST,
       DRA_GGUF_U64,
       DRA_GGUF_I64,
       DRA_GGUF_F64,
       DRA_GGUF_TYPES
};

#define DRA_GGUF_ALIGNMENT_KEY "general.alignment"
enum { DRA_GGUF_MAGIC = 0x46554747, DRA_GGUF_VERSION = 3, DRA_GGUF_ALIGNMENT = 32 };

#endif
