/* Files of examples: which ones there are, and the tensors in them. */
#ifndef DRA_SRC_DATA_EXAMPLE_FILES_H
#define DRA_SRC_DATA_EXAMPLE_FILES_H

#include "base/arena.h"
#include "dra/file.h"

typedef struct dra_example_tensor {
    dra_tensor_info info;
    const char     *path; /* of the file it is in */
} dra_example_tensor;

typedef struct dra_example_part { /* tensors of the same examples; a shard */
    const char         *path;
    size_t              n;
    dra_example_tensor *tensor;
} dra_example_part;

typedef struct dra_held_file dra_held_file; /* mapped until the files are closed */

typedef struct dra_example_files {
    dra_arena         arena; /* holds all below */
    dra_held_file    *held;
    size_t            n;
    dra_example_part *part;
} dra_example_files;

/* n paths, one after the other, each a file or a folder of these, which are sorted by name:
 *   NAME.npy   a tensor `NAME`; all of them together are one part
 *   NAME.npz   a part
 *   others     .safetensors: a part; of a folder only by this name
 * Arrays of NumPy and parts are not mixed. Close it also after a failure. */
dra_status dra_example_files_open(int n, const char *const *paths, dra_example_files *out,
                                  dra_error *err);
void       dra_example_files_close(dra_example_files *f);

#endif
