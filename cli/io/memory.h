/* Memory for functions that show something and return nothing. Where there is none they leave out
 * what needs it; the lack is remembered, and the command fails for it in the end. */
#ifndef DRA_CLI_IO_MEMORY_H
#define DRA_CLI_IO_MEMORY_H

#include "dra/base.h"

#include <stdint.h>

void *cli_room(size_t n, size_t size); /* zeroed, to be freed; NULL: none, which is remembered */

/* Remembers a failure that is one of memory; others are the caller's. */
void cli_memory_note(dra_status status);
bool cli_memory_lacked(void); /* at any time until now */

/* The most memory of the host that this process has had. */
int64_t cli_peak_bytes(void);

#endif
