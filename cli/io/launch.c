#define _GNU_SOURCE /* affinity masks */
#include "io/launch.h"
#include "io/model.h"
#include "options/options.h"
#include "options/term.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what a launcher says -------------------------------------------------------------------- */

static long number_of(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

/* Open MPI's mpirun says it always; inside a job of Slurm there may be one task that is no rank. */
bool cli_is_launched(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || number_of("PMI_SIZE", 1) > 1 ||
           number_of("SLURM_STEP_NUM_TASKS", 1) > 1;
}

int cli_launched_rank(void)
{
    if (!cli_is_launched()) return 0;
    const long slurm = number_of("SLURM_PROCID", 0);
    return (int)number_of("OMPI_COMM_WORLD_RANK", number_of("PMI_RANK", slurm));
}

int cli_launched_here(int *which)
{
    *which = (int)number_of("OMPI_COMM_WORLD_LOCAL_RANK", number_of("SLURM_LOCALID", 0));
    const long n = number_of("OMPI_COMM_WORLD_LOCAL_SIZE", number_of("SLURM_TASKS_PER_NODE", 1));
    return n > 1 ? (int)n : 1;
}

int cli_cores_unbound(void)
{
    cpu_set_t  mask;
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof mask, &mask) == 0 && CPU_COUNT(&mask) < all) return 0;
    return all > 0 ? (int)all : 1;
}

static dra_status check_torchrun(dra_error *err)
{
    if (!getenv("TORCHELASTIC_RUN_ID") || number_of("WORLD_SIZE", 1) < 2) return DRA_OK;
    return cli_error(err, DRA_ERR_VALUE,
                     "torchrun starts ranks that talk by NCCL, expected MPI: mpirun -np %ld dra "
                     "train ...",
                     number_of("WORLD_SIZE", 1));
}

/* ---- joining --------------------------------------------------------------------------------- */

static int heard = -1; /* stderr, where it is not heard any more */

/* What other ranks say goes nowhere: it would be said once by each. */
static void hush_rank(void)
{
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    fflush(stdout);
    heard = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
}

dra_status cli_ranks_join(dra_comm **out, dra_error *err)
{
    *out = NULL;
    dra_status st = check_torchrun(err);
    if (st != DRA_OK || !cli_is_launched()) return st;
    st = dra_comm_open("mpi", out, err);
    if (st == DRA_OK && dra_comm_rank(*out) > 0) hush_rank();
    return st;
}

void cli_ranks_leave(dra_comm *c) { dra_comm_destroy(c); }

/* Without a communicator every rank has met this alone. Rank 0 speaks first, and its end is that of
 * the others. */
int cli_ranks_fail(const dra_comm *c, const dra_error *err)
{
    const int rank = c ? dra_comm_rank(c) : cli_launched_rank();
    if (rank > 0 && c && !dra_comm_broken(c)) return CLI_FAILED;
    for (int left = 2; rank > 0 && !c && left > 0;) left = (int)sleep((unsigned)left);
    if (heard >= 0) dup2(heard, STDERR_FILENO);
    return cli_fail(err);
}
