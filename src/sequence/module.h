/* Names of a module's state in its graph. */
#ifndef DRA_SRC_MODULE_H
#define DRA_SRC_MODULE_H

#include "sequence/states.h"

enum { DRA_NAME_TEXT = 160, DRA_NAME_MOST = DRA_NAME_TEXT - 8 };

/* "kind.name": kind is "state" for what comes in, "next" for what goes out. */
const char *dra_state_name(char text[DRA_NAME_TEXT], const char *kind, const char *name);

#endif
