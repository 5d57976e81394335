/* dra/session.h - one mechanism to run graphs of many shapes: programs compiled on first use and
 * cached by shape, one workspace as large as the largest of them needs, bindings by number.
 *
 * Flow:    select a program by its key; put inputs, which are copied to the device; bind parameters
 *          and states, which stay bound for all programs; start; finish; read results.
 * Shapes:  are static, extents are values: growing tensors have a capacity that doubles
 *          (dra_capacity), live lengths are i32 inputs. So the number of programs stays logarithmic
 *          in the length.
 * Threads: one thread at a time uses a session; a second one is refused. */
#ifndef DRA_SESSION_H
#define DRA_SESSION_H

#include "dra/graph.h"
DRA_BEGIN_C

typedef struct dra_session dra_session; /* opaque */

/* Builds the graph for a key: plain data of the caller, compared byte by byte, so it must not have
 * gaps. Errors are those of the graph. */
typedef void (*dra_build)(dra_graph *g, void *user, const void *key, size_t bytes);

/* The device and `user` are borrowed until dra_session_destroy. */
DRA_API dra_status  dra_session_create(dra_device *device, dra_build build, void *user,
                                       dra_session **out, dra_error *err);
DRA_API void        dra_session_destroy(dra_session *s); /* NULL is allowed */
DRA_API dra_device *dra_session_device(const dra_session *s);
/* From the next select on, runs in the workspace of another session of the device, in turns with
 * it. That one must outlive the last run of this one. */
DRA_API void dra_session_share(dra_session *s, dra_session *with);

/* The number of a name of an input, parameter or state, the same in all programs; -1: no memory. */
DRA_API int dra_session_name(dra_session *s, const char *name);
/* Binds a parameter or state for all programs that have one of this name. A parameter that is
 * bound again counts as changed. Sizes are checked when a program starts. */
DRA_API dra_status dra_session_bind(dra_session *s, int name, dra_span memory, dra_error *err);

/* Selects the program of a key; compiles it on first use. Results of the last run may be gone. */
DRA_API dra_status dra_session_select(dra_session *s, const void *key, size_t bytes,
                                      dra_error *err);
/* An input of the selected program, for the next start. */
DRA_API dra_status dra_session_put(dra_session *s, int name, const void *data, size_t bytes,
                                   dra_error *err);
/* As dra_run_start() and dra_run_finish(): several programs may be started before one finish. */
DRA_API dra_status dra_session_start(dra_session *s, dra_error *err);
DRA_API dra_status dra_session_finish(dra_session *s, dra_error *err);

/* An i32 that is not 0 after a fault, for programs that must not act on results then. */
DRA_API dra_span dra_session_fault(const dra_session *s);

/* An output of the program that was selected last, until another one is started. The null span:
 * there is none of this name. */
DRA_API dra_span dra_session_result(const dra_session *s, const char *name);
DRA_API bool     dra_session_result_shape(const dra_session *s, const char *name, dra_shape *shape);
/* Output i of that program, not counting those that take over a state; NULL: there are fewer. */
DRA_API const char *dra_session_result_at(const dra_session *s, size_t i, dra_dtype *dtype,
                                          dra_shape *shape);
/* Bytes of an input of the selected program; 0: it has none of this name. */
DRA_API size_t dra_session_input_bytes(const dra_session *s, const char *name);

DRA_API void   dra_session_clear(dra_session *s);          /* forgets all programs */
DRA_API size_t dra_session_programs(const dra_session *s); /* how many there are */
/* Bytes of the device that the session holds or, once the program of each key that was measured
 * has run, will hold: the workspace that it shares with others, and its inputs and what is prepared
 * from parameters. */
DRA_API size_t     dra_session_workspace(const dra_session *s);
DRA_API size_t     dra_session_bytes(const dra_session *s);
DRA_API dra_status dra_session_measure(dra_session *s, const void *key, size_t bytes,
                                       dra_error *err);

/* The capacity to allocate for n live items: a power of two, at least 16; -1 when it overflows. */
DRA_API int64_t dra_capacity(int64_t n);

DRA_END_C
#endif
