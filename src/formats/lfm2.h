/* Liquid's LFM2: what its layers and keys have otherwise than those of the Llama family. */
#ifndef DRA_SRC_FORMATS_LFM2_H
#define DRA_SRC_FORMATS_LFM2_H

#include "formats/llama.h"
#include "formats/rule_list.h"

/* The width of feed-forwards, of which a config may say 3/2; and back. */
int64_t dra_lfm2_inner(dra_keys *k, int64_t fallback);
void    dra_lfm2_put_inner(dra_keys *k, int64_t n, int64_t fallback);
/* Whether layer l is a convolution, where no layer_types say it. */
bool dra_lfm2_has_conv(dra_keys *k, int64_t l);

/* The mixer of such layers; and back. */
void dra_lfm2_read(dra_keys *k, const dra_model_config *c, dra_mixer_config *m);
void dra_lfm2_write(dra_keys *k, const dra_mixer_config *m);
/* Rules of all layers; those of convolutions alone. */
void dra_lfm2_rules(dra_rule_list *list);
void dra_lfm2_conv_rules(const dra_mixer_config *m, dra_rule_list *list);

#endif
