/* The Llama family in GGUF: what its architectures do otherwise. */
#ifndef DRA_SRC_FORMATS_GGUF_LLAMA_H
#define DRA_SRC_FORMATS_GGUF_LLAMA_H

#include "formats/gguf/gguf.h"
#include "formats/llama.h"

typedef struct dra_gguf_llama {
    const char       *name;
    const dra_format *as;         /* the folders whose layers it has                           */
    bool              neighbours; /* rows of queries and keys stand pair by pair               */
    int64_t           every;      /* of layers with a window, every n-th has none; 0: all have */
    bool (*is)(const dra_model_config *c);
} dra_gguf_llama;

/* The architecture of a config; NULL: it is none of them. */
const dra_gguf_llama *dra_gguf_llama_of(const dra_model_config *c);
/* The mixer that says how layers rotate: the first that does, without a window where one has none;
 * NULL: none rotates. */
const dra_mixer_config *dra_gguf_rotated(const dra_model_config *c);

#endif
