/* What the formats of RWKV share: configs by version, names, and what files tell. */
#ifndef DRA_SRC_FORMATS_RWKV_RWKV_H
#define DRA_SRC_FORMATS_RWKV_RWKV_H

#include "formats/format.h"

/* Layers of version 4, 5 (as 5.2), 6 or 7; sizes and ranks are to be filled in. */
void dra_rwkv_layers(dra_model_config *c, int version);
/* The usual inner width of its feed-forwards. */
int64_t dra_rwkv_ff_dim(int version, int64_t dim);

/* Rules for a dialect, of the version of the format. */
dra_status dra_rwkv_rules(const dra_model_config *c, dra_name_rules *out, dra_error *err);
/* Ranks that only the tensors tell. */
dra_status dra_rwkv_settle(const dra_tensor_source *s, dra_model_config *c, dra_error *err);

/* rwkv.cpp's numbers of dtypes; 0: f32, or one that it does not have. */
extern const uint32_t dra_rwkv_cpp_numbers[DRA_DTYPE_COUNT];

/* Tensors that files of some trainers have and no model uses. */
extern const char *const dra_rwkv_ignored[];

#endif
