/* Configs of several stacks. */
#ifndef DRA_SRC_MODEL_COMPOSE_H
#define DRA_SRC_MODEL_COMPOSE_H

#include "dra/model.h"
#include "file/json.h"
#include "file/json_make.h"

/* The memories of the user's own that a config and its stacks name, each once. Returns how many;
 * NULL follows the last. */
enum { DRA_OWN_MOST = 3 * 2 * (DRA_MIXERS_MOST + 1) };
int dra_config_own(const dra_model_config *c, const dra_memory *own[DRA_OWN_MOST + 1]);

/* Reads one stack's fields; `place` begins every error. own: as of dra_model_config_parse_own(). */
typedef dra_status (*dra_stack_read)(const char *place, json_t *object,
                                     const dra_memory *const *own, dra_model_config *out,
                                     dra_error *err);
/* The value of "stacks" as one config: that of the stack which no other reads. */
dra_status dra_stacks_read(const char *place, const json_t *stacks, dra_stack_read read,
                           const dra_memory *const *own, dra_model_config *out, dra_error *err);

typedef json_t *(*dra_stack_write)(dra_json *j, const dra_model_config *c);
/* The reverse. */
json_t *dra_stacks_write(dra_json *j, const dra_model_config *c, dra_stack_write write);

/* Whether a config names other stacks, or is one of several. */
bool dra_has_stacks(const dra_model_config *c);

#endif
