/* The header of a safetensors file, checked and taken apart. */
#ifndef DRA_SRC_FILE_HEADER_H
#define DRA_SRC_FILE_HEADER_H

#include "base/arena.h"
#include "dra/file.h"
#include "file/file_map.h"

typedef struct dra_header {
    dra_arena               arena; /* holds all below */
    size_t                  count, n_metadata;
    dra_tensor_info        *tensor;  /* in the order of their data */
    const dra_tensor_info **by_name; /* the same, sorted */
    dra_metadata_item      *metadata;
} dra_header;

/* Whether a file may be safetensors at all, by its first bytes. */
bool dra_header_is(const unsigned char *file, size_t bytes);

/* Checks all rules for the `bytes` at `file`; tensors point into them. `path` is named in errors.
 * On failure *out is empty. */
dra_status dra_header_read(const char *path, const unsigned char *file, size_t bytes,
                           dra_header *out, dra_error *err);
/* Fills and sorts by_name, which has room. */
void dra_header_sort(dra_header *h);
void dra_header_free(dra_header *h);

/* As dra_tensors_open, but the file may also be a checkpoint of PyTorch (pth.h): its tensors may
 * overlap. */
dra_status          dra_tensors_open_any(const char *path, dra_tensors **out, dra_error *err);
void                dra_tensors_rest(const dra_tensors *t); /* as dra_file_map_rest */
const dra_file_map *dra_tensors_map(const dra_tensors *t);

#endif
