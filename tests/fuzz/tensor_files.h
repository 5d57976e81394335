/* Tensors of files of a model that were opened, for harnesses. */
#ifndef DRA_TESTS_FUZZ_TENSOR_FILES_H
#define DRA_TESTS_FUZZ_TENSOR_FILES_H

#include "dra/model.h"
#include "harness.h"
#include "formats/tensor_source.h"

/* Opens what is at `path`, touches all of it, and tries to read a model from it. Refusals begin
 * with `folder`, where it is. */
static inline int tensor_files_try(const char *path, const char *folder)
{
    dra_tensor_source *o = NULL;
    dra_model         *model = NULL;
    dra_weights       *weights = NULL;
    dra_error          err = {0};
    if (dra_tensor_source_open(path, &o, &err) != DRA_OK) {
        expect_line(&err, folder);
        return 0;
    }
    for (size_t i = 0; i < o->count; i++) {
        const unsigned char *data = o->entry[i].info->data;
        volatile unsigned    sum = 0;
        for (size_t k = 0; k < o->entry[i].info->bytes; k++) sum += data[k];
    }
    dra_tensor_source_close(o);
    if (dra_folder_load(path, &model, &weights, NULL) == DRA_OK) {
        dra_weights_destroy(weights);
        dra_model_destroy(model);
    }
    return 1;
}

#endif
