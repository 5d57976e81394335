/* Memory for functions that show something and return nothing. */
#include "memory.h"

#include <stdlib.h>
#include <sys/resource.h>

static bool lacked;

void *cli_room(size_t n, size_t size)
{
    void *room = calloc(n ? n : 1, size);
    if (!room) lacked = true;
    return room;
}

void cli_memory_note(dra_status status)
{
    if (status == DRA_ERR_MEMORY) lacked = true;
}

bool cli_memory_lacked(void) { return lacked; }

int64_t cli_peak_bytes(void)
{
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? (int64_t)use.ru_maxrss * 1024 : 0;
}
