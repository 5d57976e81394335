/* Where the tensors of a model come from: one safetensors file or checkpoint of PyTorch, shards of
 * either with an index, a GGUF file, or an rwkv.cpp file. By name they look alike. */
#ifndef DRA_SRC_FORMATS_TENSOR_SOURCE_H
#define DRA_SRC_FORMATS_TENSOR_SOURCE_H

#include "dra/file.h"
#include "file/header.h"
#include "file/file_map.h"
#include "file/gguf.h"

typedef struct dra_tensor_source_entry {
    const dra_tensor_info    *info;
    const char               *file;    /* that holds it */
    const struct dra_adapter *adapter; /* what may be added to it, see formats/adapter.h; or NULL */
    struct dra_joined_tensor *joined;  /* of several, see formats/expert_tensors.h; or NULL */
} dra_tensor_source_entry;

typedef struct dra_joined_tensor dra_joined_tensor;

typedef struct dra_tensor_source {
    char                    *path; /* what was opened, for errors */
    size_t                   count;
    dra_tensor_source_entry *entry; /* by name */

    size_t              n_files; /* safetensors, PyTorch */
    dra_tensors       **file;
    char              **file_name;
    dra_gguf            gguf;   /* GGUF: its settings and tensors; `map` is the file         */
    dra_file_map        map;    /* rwkv.cpp: the file,                                       */
    dra_header          header; /* its tensors,                                              */
    int64_t             vocab, dim, depth; /* and its header: 0 where it is none of these */
    struct dra_adapter *adapter;  /* of its folder, which has another model's tensors; or NULL */
    size_t              n_joined; /* tensors that are several of the file */
    dra_joined_tensor **joined;
} dra_tensor_source;

/* path: a file, or what its index belongs to ("DIR/model.safetensors"), or a folder with
 * model.safetensors, its index, pytorch_model.bin, its index, model.pt or model.pth, looked for in
 * this order. The folder of an adapter stands for its model: whoever reads a parameter gets it with
 * the factors added. */
dra_status dra_tensor_source_open(const char *path, dra_tensor_source **out, dra_error *err);
void       dra_tensor_source_close(dra_tensor_source *s);      /* NULL is allowed */
void       dra_tensor_source_rest(const dra_tensor_source *s); /* all files, as dra_file_map_rest */

/* Checks the hashes of the files that have one (file/seal.h), which reads all of them. */
dra_status dra_tensor_source_check(const dra_tensor_source *s, dra_error *err);
/* Of what the files are, not of their bytes; 0: they changed so lately that a change might follow
 * which this does not show. */
uint64_t dra_tensor_source_key(const dra_tensor_source *s);

const dra_tensor_source_entry *dra_tensor_source_find(const dra_tensor_source *s,
                                                      const char *name); /* NULL: none */

/* rwkv.cpp files. */
bool       dra_rwkv_cpp_is(const unsigned char *file, size_t bytes);
dra_status dra_rwkv_cpp_read(dra_tensor_source *s, dra_error *err);

#endif
