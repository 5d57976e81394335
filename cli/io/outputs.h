/* Files that a verb will write, tried before its work begins. */
#ifndef DRA_CLI_IO_OUTPUTS_H
#define DRA_CLI_IO_OUTPUTS_H

#include "options/options.h"

#include "dra/base.h"

/* Whether what the options with CLI_WRITES name can be written: no folder, in a folder that is
 * there and may be written to. The error names the option. */
dra_status cli_outputs_try(const cli_verb *verb, const void *args, dra_error *err);

#endif
