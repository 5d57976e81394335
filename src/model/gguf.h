/* GGUF files as models: which architectures there are, their settings and the names of tensors. */
#ifndef DRA_SRC_MODEL_GGUF_H
#define DRA_SRC_MODEL_GGUF_H

#include "model/convert.h"
#include "model/format.h"

/* The config of an open file: its pairs, and what only its tensors tell. */
dra_status dra_gguf_config(const dra_tensor_source *s, dra_model_config *c, dra_error *err);

/* Writes a conversion as one file, with the tokenizer of the model where GGUF has words for it. */
dra_status dra_gguf_save(dra_conversion *c, const char *path, dra_error *err);

#endif
