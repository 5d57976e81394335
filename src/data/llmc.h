/* Files of tokens as llm.c writes them: 256 numbers of 32 bits, then the ids.
 *   0  magic      20240520: 16 bits each, GPT-2; 20240801: 32 bits each, Llama 3
 *   1  version    1; 7
 *   2  tokens     how many
 *   3..255        zeros
 * [https://github.com/karpathy/llm.c, dev/data/data_common.py] */
#ifndef DRA_SRC_DATA_LLMC_H
#define DRA_SRC_DATA_LLMC_H

#include "dra/base.h"

typedef struct dra_llmc {
    int                  width;  /* bytes of an id */
    const unsigned char *ids;    /* inside the file */
    int64_t              tokens; /* at least 0 */
    /* What separates documents: GPT-2's end of text, which counts as the last token of a document;
     * Llama 3's begin of text, the first. -1: none. */
    int32_t end, begin;
} dra_llmc;

/* Bytes of an id, by the magic number that a file starts with; 0: it is no such file. */
int dra_llmc_width(const unsigned char *at, size_t n);
/* A whole file; `path` is named in errors. */
dra_status dra_llmc_read(const char *path, const unsigned char *file, size_t bytes, dra_llmc *out,
                         dra_error *err);

#endif
