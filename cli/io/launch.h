/* Ranks of a command: what a launcher (mpirun, srun) says in the environment, and starting one. */
#ifndef DRA_CLI_IO_LAUNCH_H
#define DRA_CLI_IO_LAUNCH_H

#include "dra/comm.h"

#include <stdbool.h>
#include <stdint.h>

bool cli_is_launched(void);   /* as one of several ranks, or as what a launcher takes for one */
int  cli_launched_rank(void); /* 0 where it is not */
/* Ranks on this machine, and which of them this one is. */
int cli_launched_here(int *which);

/* Cores of this machine that this process may use all of; 0: it is bound to some of them. */
int cli_cores_unbound(void);

/* Joins the other ranks; *out NULL: there are none. From then on only rank 0 is heard. */
dra_status cli_ranks_join(dra_comm **out, dra_error *err);
/* Says what went wrong, once for all ranks; returns the exit status. */
int  cli_ranks_fail(const dra_comm *c, const dra_error *err);
void cli_ranks_leave(dra_comm *c);

/* Runs this same command as n ranks on this machine, by mpirun, and returns its exit status. */
int cli_ranks_start(int64_t n);

#endif
