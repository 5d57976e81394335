/* What a file of data is, by its first bytes: one place decides, before anything is read. */
#ifndef DRA_SRC_DATA_SNIFF_H
#define DRA_SRC_DATA_SNIFF_H

#include "file/unpack.h"

/* The first three are part of the keys of kept tokens. */
typedef enum dra_data_kind {
    DRA_DATA_TEXT,
    DRA_DATA_LINES,  /* of JSON */
    DRA_DATA_IDS,    /* safetensors */
    DRA_DATA_NPY,    /* integers of NumPy */
    DRA_DATA_U16,    /* nothing but ids, as nanoGPT writes them */
    DRA_DATA_U32,    /* the same of 32 bits */
    DRA_DATA_LLMC16, /* a header and ids, as llm.c writes them for GPT-2 */
    DRA_DATA_LLMC32, /* and for Llama 3 */
    DRA_DATA_KINDS
} dra_data_kind;

typedef struct dra_sniffed {
    dra_data_kind kind; /* of what is inside, where it is compressed */
    dra_packing   packing;
} dra_sniffed;

enum { DRA_SAMPLE = 1 << 16 }; /* bytes that are looked at */

/* The first bytes of a file, or of what is inside of it. */
typedef struct dra_sample {
    const char          *path; /* as in errors */
    const char          *name; /* its end tells the kind: without that of the compression */
    size_t               name_bytes;
    const unsigned char *at;
    size_t               n;
    bool                 whole; /* there is no more of it */
    unsigned char        last;  /* byte of the file, where that is known; else 0 */
} dra_sample;

/* Whether these bytes are text: UTF-8, or another encoding without NUL; few control characters. */
bool dra_sample_is_text(const dra_sample *s);
/* Fails, with what to do, where the bytes belong to a format that cannot be read. */
dra_status dra_sample_refuse(const dra_sample *s, dra_error *err);
/* The kind of a plain file. */
dra_status dra_sample_kind(const dra_sample *s, dra_data_kind *out, dra_error *err);

/* `format`: NULL, or its name, which is believed. What is no regular file is taken for text. */
dra_status dra_sniff(const char *path, const char *format, dra_sniffed *out, dra_error *err);

bool dra_data_kind_is_tokens(dra_data_kind kind);
/* Whether its documents can only be told by a tokenizer's end of text. */
bool dra_data_kind_wants_end(dra_data_kind kind);
/* As a person reads it: "tokens, 16 bits each (nanoGPT)". */
const char *dra_data_kind_text(dra_data_kind kind);

#endif
