/* NumPy's files, written. */
#ifndef DRA_CLI_IO_NPY_H
#define DRA_CLI_IO_NPY_H

#include "model.h"

/* A dense array as one .npy file, replaced whole or not at all. descr: what NumPy calls its dtype,
 * such as "'<f4'" or a list of fields; shape: what is between the brackets, such as "3, 4". */
dra_status cli_npy_write(const char *path, const char *descr, const char *shape, const void *data,
                         size_t bytes, dra_error *err);

/* descr of dra_real. */
#define CLI_NPY_REAL (sizeof(dra_real) == 8 ? "'<f8'" : "'<f4'")

#endif
