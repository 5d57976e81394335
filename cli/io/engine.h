/* An engine of jobs that write nothing: texts are read, many at a time. */
#ifndef DRA_CLI_IO_ENGINE_H
#define DRA_CLI_IO_ENGINE_H

#include "dra/engine.h"
#include "model.h"

/* With room for `slots` texts at a time. */
dra_status cli_engine_open(const cli_source *s, const cli_model *m, int64_t slots, dra_engine **out,
                           dra_error *err);
/* Steps until no more than `left` jobs wait or run. */
dra_status cli_engine_run(dra_engine *e, int64_t left, dra_error *err);

#endif
