/* Layers of gated DeltaNet among those of the Llama family: their keys and their tensors. */
#ifndef DRA_SRC_FORMATS_GATED_DELTA_H
#define DRA_SRC_FORMATS_GATED_DELTA_H

#include "formats/llama.h"

/* The mixer of such layers, from the keys of a config whose sizes are read; and back. */
void dra_gated_delta_read(dra_keys *k, const dra_llama *f, const dra_model_config *c,
                          dra_mixer_config *m);
void dra_gated_delta_write(dra_keys *k, const dra_llama *f, const dra_model_config *c);
bool dra_gated_delta_is(const dra_mixer_config *m);

/* Adds the rules of both kinds of layers to those of all, which end at `row`; returns how many, at
 * most DRA_GATED_DELTA_RULES. */
enum { DRA_GATED_DELTA_RULES = 40 };
int dra_gated_delta_rules(const dra_model_config *c, const dra_llama *f, dra_name_rules *out,
                          dra_name_rule *row);

#endif
