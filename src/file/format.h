/* What reading and writing safetensors share.
 *   bytes 0..7       N, unsigned, little-endian
 *   bytes 8..8+N-1   header: a JSON object, then spaces
 *   the rest         data: the tensors, one after the other, without gaps
 * [https://github.com/huggingface/safetensors, "Format"] */
#ifndef DRA_SRC_FILE_FORMAT_H
#define DRA_SRC_FILE_FORMAT_H

#include "dra/file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are mapped and written as is");

enum { DRA_HEADER_LENGTH = 8, DRA_HEADER_LIMIT = 100000000 };

#define DRA_METADATA_KEY "__metadata__" /* a member of the header that is no tensor */

typedef struct dra_file_dtype {
    const char *name;
    size_t      bits;  /* of an element */
    dra_dtype   dtype; /* DRA_DTYPE_COUNT: dra has none */
} dra_file_dtype;

const dra_file_dtype *dra_file_dtype_find(const char *name); /* NULL: none of safetensors' */
const char           *dra_file_dtype_name(dra_dtype dtype);

/* safetensors has no quantised types: such a tensor is U8 there, its last axis in bytes, and the
 * metadata names its type under this and the tensor's name. */
#define DRA_QUANTISED_KEY "quantised:"
dra_dtype dra_file_quantised_find(const char *name); /* "Q8_0", ...; DRA_DTYPE_COUNT: none */

/* Bits of a tensor whose elements have `bits`; false when they overflow. An axis of size 0 does not
 * excuse the others. */
bool dra_bits_of(const dra_shape *s, size_t bits, size_t *out);

/* The first element that is neither 0 nor 1, or n. */
size_t dra_bools_wrong(const void *data, size_t n);

bool dra_name_has_control(const char *name);
bool dra_is_utf8(const char *text);
/* Whether a text of `length` bytes and a 0 may be the name of a tensor. */
bool dra_name_fits(const char *name, size_t length);

#endif
