/* Checkpoints of PyTorch: a dict of tensors as torch.save writes it, as an archive or in the older
 * format of several pickles in a row. */
#ifndef DRA_SRC_FILE_PTH_H
#define DRA_SRC_FILE_PTH_H

#include "file/header.h"

bool dra_pth_is(const unsigned char *file, size_t bytes);

/* Metadata of a checkpoint that holds its state dict as "model" beside "model_args": these as a
 * JSON object. */
#define DRA_PTH_ARGS "model_args"

/* As dra_header_read. Tensors that are dense point into the file; those that are transposed or
 * slices of others are copied into the arena of *out. Tensors may share memory. */
dra_status dra_pth_read(const char *path, const unsigned char *file, size_t bytes, dra_header *out,
                        dra_error *err);

#endif
