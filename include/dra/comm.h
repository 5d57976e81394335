/* dra/comm.h - ranks: processes that compute one thing together, each a part of it. docs/ranks.md
 * says what they give each other and how they end.
 *
 * Calls:   all ranks make the same calls in the same order, except where a rank is asked about
 *          itself. NULL stands for a process that is alone: rank 0 of 1.
 * Threads: one thread uses a communicator, the one that opened it. */
#ifndef DRA_COMM_H
#define DRA_COMM_H

#include "dra/device.h"
DRA_BEGIN_C

typedef struct dra_comm dra_comm; /* opaque */

/* Joins the ranks that a launcher has started, by the library of a kind: "mpi", libdra-mpi.so,
 * which is searched as plugins of devices are. It is an error if this process is the only one, or
 * if another rank runs another version. Once a process. On failure *out is NULL. */
DRA_API dra_status dra_comm_open(const char *kind, dra_comm **out, dra_error *err);
/* Leaves them; where it is broken, ends all of them. NULL is allowed. */
DRA_API void dra_comm_destroy(dra_comm *c);

DRA_API int dra_comm_rank(const dra_comm *c);
DRA_API int dra_comm_size(const dra_comm *c);

/* All ranks come with what they have met. DRA_OK: none has failed. Else all get the error of the
 * first that has, with its name; rank 0 needs none, it is the one that speaks. */
DRA_API dra_status dra_comm_agree(dra_comm *c, dra_status st, dra_error *err);
/* Ranks cannot hear each other any more: one has ended or does not answer. */
DRA_API bool dra_comm_broken(const dra_comm *c);

/* What the library of a kind is, such as "Open MPI 4.1.4"; an error says why there is none. */
DRA_API dra_status dra_comm_describe(const char *kind, char *text, size_t size, dra_error *err);

DRA_END_C
#endif
