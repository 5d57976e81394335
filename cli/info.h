/* dra info, in parts. */
#ifndef DRA_CLI_INFO_H
#define DRA_CLI_INFO_H

#include "outline.h"

/* The stacks of a model that is no language model; as JSON, the key "stacks" and a comma. */
void info_stacks_text(const dra_model *m, const outline *o);
void info_stacks_json(const outline *o);

/* The memory of each layer of the model itself; as JSON, the key "layers" and a comma. */
void info_layers_text(const dra_model *m);
void info_layers_json(const dra_model *m);

/* A state file: what was read into it, whose it is, its tensors. */
bool       info_is_state(const char *path); /* NULL is allowed */
dra_status info_state(const char *path, bool json, dra_error *err);

#endif
