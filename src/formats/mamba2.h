/* Mixers of Mamba-2 in the words of others. */
#ifndef DRA_SRC_FORMATS_MAMBA2_H
#define DRA_SRC_FORMATS_MAMBA2_H

#include "formats/rule_list.h"

enum { DRA_MAMBA2_H, DRA_MAMBA2_P, DRA_MAMBA2_N, DRA_MAMBA2_G, DRA_MAMBA2_W, DRA_MAMBA2_SIZES };

typedef struct dra_mamba2_sizes {
    int64_t     H, P, N, G, W; /* heads, their width, that of a state, groups, of the convolution */
    bool        conv_bias;
    const char *names[DRA_MAMBA2_SIZES]; /* of their keys */
} dra_mamba2_sizes;

/* The mixer of these sizes, with the key time_step_limit; and that key back. */
void dra_mamba2_mixer(dra_keys *k, const dra_mamba2_sizes *s, double eps, dra_mixer_config *m);
void dra_mamba2_put_limits(dra_keys *k, const dra_mixer_config *m);
/* Rules of what several of its parameters share: their tensors by their patterns. */
void dra_mamba2_rules(const dra_mixer_config *m, const char *in_proj, const char *conv,
                      const char *conv_bias, dra_rule_list *list);

#endif
