/* Layers of gated DeltaNet or Mamba-2 among those of the Llama family: keys and tensors. */
#ifndef DRA_SRC_FORMATS_GATED_DELTA_H
#define DRA_SRC_FORMATS_GATED_DELTA_H

#include "formats/llama.h"
#include "formats/rule_list.h"

/* The mixer of such layers, from the keys of a config whose sizes are read; and back. */
void dra_gated_delta_read(dra_keys *k, const dra_llama *f, const dra_model_config *c,
                          dra_mixer_config *m);
void dra_gated_delta_write(dra_keys *k, const dra_llama *f, const dra_model_config *c);
bool dra_linear_is(const dra_mixer_config *m);

/* Adds the rules that only some layers have; they go before those of all. */
void dra_gated_delta_rules(const dra_model_config *c, const dra_llama *f, dra_rule_list *list);

#endif
