/* A memory with a name that dra has. */
#include <dra/dra.h>

static const char *const retrievals[] = {"none", NULL};
static const dra_memory  gru = {.name = "gru", .retrievals = retrievals};

DRA_MEMORY_PLUGIN(&gru)
