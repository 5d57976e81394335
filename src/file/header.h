/* The header of a safetensors file, checked and taken apart. */
#ifndef DRA_SRC_FILE_HEADER_H
#define DRA_SRC_FILE_HEADER_H

#include "base/arena.h"
#include "dra/file.h"

typedef struct dra_header {
    dra_arena               arena; /* holds all below */
    size_t                  count, n_metadata;
    dra_tensor_info        *tensor;  /* in the order of their data */
    const dra_tensor_info **by_name; /* the same, sorted */
    dra_metadata_item      *metadata;
} dra_header;

/* Checks all rules for the `bytes` at `file`; tensors point into them. `path` is named in errors.
 * On failure *out is empty. */
dra_status dra_header_read(const char *path, const unsigned char *file, size_t bytes,
                           dra_header *out, dra_error *err);
void       dra_header_free(dra_header *h);

#endif
