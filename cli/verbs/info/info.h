/* dra info, in parts. */
#ifndef DRA_CLI_VERBS_INFO_INFO_H
#define DRA_CLI_VERBS_INFO_INFO_H

#include "outline.h"

/* The stacks of a model that is no language model; as JSON, the key "stacks" and a comma. */
void info_stacks_text(const dra_model *m, const outline *o);
void info_stacks_json(const outline *o);

typedef struct info_state { /* bytes of the state of a sequence */
    size_t fixed, per_token;
    size_t windows;     /* of what keeps its last items only, when full */
    size_t per_context; /* for each token of the context */
} info_state;

info_state info_state_of(const dra_model *m);

/* The memory of each layer of the model itself; as JSON, the key "layers" and a comma. */
void info_layers_text(const dra_model *m);
void info_layers_json(const dra_model *m);

/* A state file: what was read into it, whose it is, its tensors. */
bool       info_is_state(const char *path); /* NULL is allowed */
dra_status info_show_state(const char *path, bool json, dra_error *err);

#endif
