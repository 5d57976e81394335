/* An array as NumPy saves it (.npy): where its numbers are in the file, and what they are. */
#ifndef DRA_SRC_FILE_NPY_H
#define DRA_SRC_FILE_NPY_H

#include "dra/file.h"

/* Reads the header of the `bytes` at `file`. `name` becomes the tensor's, which must outlive it;
 * `path` is named in errors. Of what NumPy can save it takes C order and little-endian f2 f4 f8, i1
 * i2 i4 i8, u1 u2 u4 u8 and bool; all else is refused by its name. u4 and u8 are of no use but as
 * ids of tokens. */
dra_status dra_npy_read(const char *path, const char *name, const unsigned char *file, size_t bytes,
                        dra_tensor_info *out, dra_error *err);

#endif
