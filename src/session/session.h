/* What the rest of the library does with sessions beyond dra/session.h. */
#ifndef DRA_SRC_SESSION_H
#define DRA_SRC_SESSION_H

#include "device/array.h"
#include "dra/session.h"

/* dra_session_finish(), and up to DRA_FETCHES results in the same wait. */
dra_status dra_session_fetch(dra_session *s, const dra_fetch *more, size_t n, dra_error *err);

/* What is called between instructions of its programs, where the device lets it: programs of
 * sessions with another workspace may run meanwhile. NULL: nothing. */
void dra_session_pause(dra_session *s, void (*pause)(void *user), void *user);

#endif
