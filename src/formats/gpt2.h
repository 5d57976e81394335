/* GPT-2 in files that have no config.json: checkpoints of nanoGPT. */
#ifndef DRA_SRC_FORMATS_GPT2_H
#define DRA_SRC_FORMATS_GPT2_H

#include "formats/format.h"

/* What all of its kind have; sizes and the activation are to be filled in. */
void dra_gpt2_layers(dra_model_config *c);

/* Whether projections are stored (out, in), which the shape of c_attn tells. */
bool dra_gpt2_is_linear(const dra_tensor_source *s);
/* Whether a file says its own sizes, as nanoGPT's model_args; then its config. */
bool       dra_gpt2_is_nano(const dra_tensor_source *s);
dra_status dra_gpt2_infer(const dra_tensor_source *s, dra_model_config *c, dra_error *err);

#endif
