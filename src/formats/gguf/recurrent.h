/* Recurrent families in GGUF, what their keys and their tensors share. */
#ifndef DRA_SRC_FORMATS_GGUF_RECURRENT_H
#define DRA_SRC_FORMATS_GGUF_RECURRENT_H

#include "formats/gguf/gguf.h"

typedef struct dra_gguf_pair { /* a key, after the name of the architecture, and of the folder */
    const char *rest, *key;
} dra_gguf_pair;

typedef enum dra_gguf_kind {
    DRA_GGUF_QWEN35,
    DRA_GGUF_MAMBA2,
    DRA_GGUF_GRANITE,
    DRA_GGUF_LFM2
} dra_gguf_kind;

typedef struct dra_gguf_family {
    dra_gguf_kind        kind;
    const char          *name;
    const dra_format    *as;     /* whose keys and rules it has                               */
    const dra_gguf_pair *pairs;  /* the last has no name                                      */
    const char          *linear; /* in layer_types, of layers that are not attention; or NULL */
    bool                 counts; /* head_count_kv is a list, 0 for such layers                */
} dra_gguf_family;

/* The family of a config; NULL: it is none. */
const dra_gguf_family *dra_gguf_family_of(const dra_model_config *c);
/* The first mixer that is not attention; NULL: there is none. */
const dra_mixer_config *dra_gguf_find_linear(const dra_model_config *c);

#endif
