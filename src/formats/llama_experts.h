/* Mixtures of experts among the Llama family. */
#ifndef DRA_SRC_FORMATS_LLAMA_EXPERTS_H
#define DRA_SRC_FORMATS_LLAMA_EXPERTS_H

#include "formats/llama.h"
#include "formats/rule_list.h"

/* The experts of a config whose sizes are read, where the family has them and the keys say so; and
 * back, also that there are none. */
void dra_llama_read_experts(dra_keys *k, const dra_llama *f, dra_model_config *c);
void dra_llama_write_experts(dra_keys *k, const dra_llama *f, const dra_model_config *c);

/* Adds their rules, which go before those of feed-forwards without. */
void dra_llama_expert_rules(const dra_model_config *c, const dra_llama *f, dra_rule_list *a);

#endif
