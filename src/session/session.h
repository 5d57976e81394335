/* Sessions as the rest of the library uses them, beyond dra/session.h. */
#ifndef DRA_SRC_SESSION_H
#define DRA_SRC_SESSION_H

#include "device/array.h"
#include "dra/session.h"

typedef struct dra_time_slice dra_time_slice; /* device/code.h */

/* dra_session_finish(), and up to DRA_FETCHES results in the same wait. */
dra_status dra_session_fetch(dra_session *s, const dra_fetch *more, size_t n, dra_error *err);

/* Runs that are started from now on return when the time of the slice is up, see dra_time_slice;
 * dra_session_continue() goes on with the selected program. Programs of sessions with another
 * workspace may run meanwhile. NULL: they run to their ends. */
void       dra_session_slice(dra_session *s, dra_time_slice *slice);
dra_status dra_session_continue(dra_session *s, dra_error *err);

#endif
