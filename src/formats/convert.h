/* A conversion under way. */
#ifndef DRA_SRC_FORMATS_CONVERT_H
#define DRA_SRC_FORMATS_CONVERT_H

#include "formats/format.h"

typedef struct dra_room { /* memory that grows to what is asked for */
    void  *data;
    size_t bytes;
} dra_room;

typedef struct dra_conversion {
    const dra_convert_config *how;
    dra_model_config         *read_config; /* of what is read */
    dra_model_config         *config;      /* of what is written */
    dra_name_rules            old, rules;  /* of what is read, of what is written */
    dra_tensor_source        *from;
    dra_model                *source, *target;
    dra_file_tensor          *list; /* tensors to write */
    int                       n;
    dra_room                  read, param, tensor, narrow;
    int                       held; /* 1 + the parameter whose numbers `param` has; 0: none */
} dra_conversion;

/* The dtype of a tensor when written: the one asked for where it can have it. */
dra_dtype dra_conversion_dtype(const dra_conversion *c, const dra_file_tensor *t);
/* The bytes of a tensor as they are written, good until the next. NULL: err says why not. */
const void *dra_conversion_make(dra_conversion *c, const dra_file_tensor *t, dra_error *err);

/* The dtype of a quantised tensor where K-quants are asked for: mixed as llama.cpp does. head: it is
 * what makes logits. */
dra_dtype dra_quant_mix(const dra_conversion *c, const dra_file_tensor *t, bool head);

/* Writes the weights into a folder, in shards if these are asked for. */
dra_status dra_conversion_write(dra_conversion *c, const char *folder, dra_error *err);
/* What a tensor of rwkv.cpp is stored in, where `wanted` is asked for. */
dra_dtype dra_rwkv_cpp_dtype(const char *name, const dra_shape *shape, dra_dtype wanted);
/* A file of rwkv.cpp; what the format cannot express is refused. */
dra_status dra_rwkv_cpp_check(const dra_conversion *c, dra_error *err);
dra_status dra_rwkv_cpp_write(dra_conversion *c, const char *path, dra_error *err);
/* Nothing has this name yet. */
dra_status dra_path_free(const char *path, dra_error *err);
typedef dra_status (*dra_make_content)(void *user, const char *path, dra_error *err);
/* Makes a temporary folder next to `path`, calls `fill`, then renames it to `path`; on failure
 * nothing is left. With `file`, only that file of the folder is renamed to `path`. */
dra_status dra_make_new(const char *path, const char *file, dra_make_content fill, void *user,
                        dra_error *err);

#endif
