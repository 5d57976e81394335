/* libdra-mpi.so: ranks by MPI. It links nothing of libdra.
 *
 * All calls are those of MPI that do not wait. Waiting is a loop here, because MPI itself spins,
 * and would wait for a rank that hangs for ever. After DRA_RANKS_TIMEOUT seconds (1800) all that
 * still wait call the roll: a rank that does not answer is named. */
#include <mpi.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"

enum {
    TAG_EXCHANGE = 1,
    TAG_ROLL,
    SPINS = 2000,   /* tries before a wait sleeps */
    NAP = 50,       /* microseconds of such a sleep */
    PATIENCE = 1800 /* seconds */
};
static const double ROLL = 3, GRACE = 10; /* seconds */

typedef struct world {
    MPI_Comm comm, roll; /* collectives; who is still there */
    int      rank, size;
    double   patience;
} world;

/* ---- errors ---------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static dra_status fail_here(dra_error  *err,
                                                                  const char *format, ...)
{
    va_list args;
    if (!err) return DRA_ERR_DEVICE;
    va_start(args, format);
    err->code = DRA_ERR_DEVICE;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return DRA_ERR_DEVICE;
}

static dra_status fail_mpi(const char *what, int code, dra_error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int  n = 0;
    MPI_Error_string(code, text, &n);
    return fail_here(err, "ranks: %s: %.300s", what, text);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static double read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Between two tries: first at once, then later and later, so that ranks that share a core let each
 * other work. */
static void take_a_break(long tries)
{
    if (tries < SPINS)
        sched_yield();
    else
        nanosleep(&(struct timespec){0, 1000L * NAP}, NULL);
}

/* Those that wait tell all others so; who has not told in time is missing. Returns the first that
 * is, -1: all are there. *speaks: this rank is the first that is there, and says it. */
static int call_roll(const world *w, bool *speaks)
{
    const double until = read_clock() + ROLL;
    const char   here = 1;
    char        *heard = calloc((size_t)w->size, 1);
    MPI_Request *sent = calloc(2 * (size_t)w->size, sizeof *sent), *got = sent + w->size;
    int          missing = -1, first = w->rank;
    for (int r = 0; heard && sent && r < w->size; r++) {
        sent[r] = got[r] = MPI_REQUEST_NULL;
        if (r == w->rank) continue;
        MPI_Isend(&here, 1, MPI_CHAR, r, TAG_ROLL, w->roll, &sent[r]);
        MPI_Irecv(&heard[r], 1, MPI_CHAR, r, TAG_ROLL, w->roll, &got[r]);
    }
    for (int done = 0; heard && sent && !done && read_clock() < until;) {
        MPI_Testall(w->size, got, &done, MPI_STATUSES_IGNORE);
        nanosleep(&(struct timespec){0, 1000L * NAP}, NULL);
    }
    for (int r = w->size - 1; heard && r >= 0; r--) {
        if (r == w->rank) continue;
        if (!heard[r]) missing = r;
        if (heard[r] && r < first) first = r;
    }
    *speaks = first == w->rank;
    return missing; /* what is under way keeps its memory: the process ends now */
}

static dra_status give_up(const world *w, const char *what, dra_error *err)
{
    bool         speaks = true;
    const int    missing = call_roll(w, &speaks);
    const double until = read_clock() + (speaks ? 0 : GRACE); /* the one that does ends this one */
    while (read_clock() < until) nanosleep(&(struct timespec){1, 0}, NULL);
    if (missing < 0)
        return fail_here(err, "ranks: %s took more than %g seconds, though all answer", what,
                         w->patience);
    return fail_here(err,
                     "rank %d does not answer: the others wait since %g seconds (%s; a longer "
                     "DRA_RANKS_TIMEOUT waits longer)",
                     missing, w->patience, what);
}

static dra_status wait_for(const world *w, int n, MPI_Request *request, const char *what,
                           dra_error *err)
{
    const double until = read_clock() + w->patience;
    int          done = 0;
    for (long tries = 0;; tries++) {
        const int code = MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS) return fail_mpi(what, code, err);
        if (done) return DRA_OK;
        if (tries >= SPINS && read_clock() > until) return give_up(w, what, err);
        take_a_break(tries);
    }
}

/* ---- six functions --------------------------------------------------------------------------- */

/* A count of MPI is an int: larger pieces go in as many messages as they need. */
enum { PIECE = 1 << 30 };

static int count_pieces(size_t bytes) { return (int)((bytes + PIECE - 1) / PIECE); }

static int piece_bytes(size_t bytes, int k)
{
    const size_t rest = bytes - (size_t)k * PIECE;
    return (int)(rest < PIECE ? rest : PIECE);
}

static int send_piece(const world *w, int to, dra_piece p, MPI_Request *out)
{
    int code = MPI_SUCCESS;
    for (int k = 0; k < count_pieces(p.bytes) && code == MPI_SUCCESS; k++)
        code = MPI_Isend((char *)p.data + (size_t)k * PIECE, piece_bytes(p.bytes, k), MPI_BYTE, to,
                         TAG_EXCHANGE, w->comm, out + k);
    return code;
}

static int receive_piece(const world *w, int from, dra_piece p, MPI_Request *out)
{
    int code = MPI_SUCCESS;
    for (int k = 0; k < count_pieces(p.bytes) && code == MPI_SUCCESS; k++)
        code = MPI_Irecv((char *)p.data + (size_t)k * PIECE, piece_bytes(p.bytes, k), MPI_BYTE,
                         from, TAG_EXCHANGE, w->comm, out + k);
    return code;
}

/* Each rank begins with the one after it, so that not all send to the same one at first. */
static dra_status all_to_all(void *self, const dra_piece *to, const dra_piece *from, dra_error *err)
{
    const world *w = self;
    int          n = 0, code = MPI_SUCCESS;
    for (int r = 0; r < w->size; r++) n += count_pieces(to[r].bytes) + count_pieces(from[r].bytes);
    MPI_Request *all = calloc((size_t)n + 1, sizeof *all);
    if (!all) return fail_here(err, "ranks: out of memory");
    n = 0;
    if (to[w->rank].bytes) memmove(to[w->rank].data, from[w->rank].data, to[w->rank].bytes);
    for (int k = 1; k < w->size && code == MPI_SUCCESS; k++) {
        const int r = (w->rank + w->size - k) % w->size;
        code = receive_piece(w, r, to[r], all + n);
        n += count_pieces(to[r].bytes);
    }
    for (int k = 1; k < w->size && code == MPI_SUCCESS; k++) {
        const int r = (w->rank + k) % w->size;
        code = send_piece(w, r, from[r], all + n);
        n += count_pieces(from[r].bytes);
    }
    const dra_status st = code == MPI_SUCCESS ? wait_for(w, n, all, "all to all", err)
                                              : fail_mpi("all to all", code, err);
    free(all);
    return st;
}

/* By MPI where its counts reach; a block that is larger goes from each rank to each. */
static dra_status all_gather(void *self, unsigned char *all, const size_t *offset, dra_error *err)
{
    const world *w = self;
    const size_t n = (size_t)w->size;
    if (offset[n] >= PIECE) {
        dra_piece *to = calloc(2 * n, sizeof *to), *from = to + n;
        if (!to) return fail_here(err, "ranks: out of memory");
        for (size_t r = 0; r < n; r++) {
            to[r] = (dra_piece){all + offset[r], offset[r + 1] - offset[r]};
            from[r] = (dra_piece){all + offset[w->rank], offset[w->rank + 1] - offset[w->rank]};
        }
        const dra_status st = all_to_all(self, to, from, err);
        free(to);
        return st;
    }
    int *count = calloc(2 * n, sizeof *count), *at = count + n;
    if (!count) return fail_here(err, "ranks: out of memory");
    for (size_t r = 0; r < n; r++) {
        count[r] = (int)(offset[r + 1] - offset[r]);
        at[r] = (int)offset[r];
    }
    MPI_Request request;
    const int   code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all, count, at, MPI_BYTE, w->comm,
                                       &request);
    const dra_status st = code == MPI_SUCCESS ? wait_for(w, 1, &request, "all gather", err)
                                              : fail_mpi("all gather", code, err);
    free(count);
    return st;
}

static dra_status exchange_pieces(void *self, int to, dra_piece out, int from, dra_piece in,
                                  dra_error *err)
{
    const world *w = self;
    const int    n_in = from < 0 ? 0 : count_pieces(in.bytes);
    const int    n_out = to < 0 ? 0 : count_pieces(out.bytes);
    MPI_Request *all = calloc((size_t)(n_in + n_out) + 1, sizeof *all);
    int          code = MPI_SUCCESS;
    if (!all) return fail_here(err, "ranks: out of memory");
    if (from >= 0) code = receive_piece(w, from, in, all);
    if (to >= 0 && code == MPI_SUCCESS) code = send_piece(w, to, out, all + n_in);
    const dra_status st = code == MPI_SUCCESS
                              ? wait_for(w, n_in + n_out, all, "point to point", err)
                              : fail_mpi("point to point", code, err);
    free(all);
    return st;
}

/* Where it is broken MPI_Finalize() would wait for ever. */
static void leave_world(void *self, bool broken)
{
    world *w = self;
    if (broken) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_free(&w->comm);
    MPI_Comm_free(&w->roll);
    free(w);
    MPI_Finalize();
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The words before the first comma: "Open MPI v4.1.4". */
static void version_text(char *text, size_t size)
{
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int  n = 0;
    MPI_Get_library_version(all, &n);
    all[strcspn(all, ",\n")] = '\0';
    snprintf(text, size, "%s", all);
}

/* Open MPI promises one interface within a major version. */
static dra_status check_version(dra_error *err)
{
#ifdef OMPI_MAJOR_VERSION
    char expected[40], found[80];
    snprintf(expected, sizeof expected, "Open MPI v%d.", OMPI_MAJOR_VERSION);
    version_text(found, sizeof found);
    if (strncmp(found, expected, strlen(expected)) != 0)
        return fail_here(err, "libdra-mpi.so: made for %d.%d of Open MPI, found %s; make it again",
                         OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, found);
#endif
    return DRA_OK;
}

static dra_status describe_library(char *text, size_t size, dra_error *err)
{
    version_text(text, size);
    return check_version(err);
}

static double find_patience(void)
{
    const char  *text = getenv("DRA_RANKS_TIMEOUT");
    const double x = text ? strtod(text, NULL) : 0;
    return x > 0 ? x : PATIENCE;
}

static const dra_comm_table table = {all_to_all, all_gather, exchange_pieces, leave_world};

static dra_status open_world(dra_comm *out, dra_error *err)
{
    int        given = 0, begun = 0;
    dra_status st = check_version(err);
    if (st != DRA_OK) return st;
    MPI_Initialized(&begun);
    if (begun) return fail_here(err, "ranks: MPI can be opened once in a process");
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given);
    if (code != MPI_SUCCESS) return fail_mpi("MPI_Init_thread", code, err);
    world *w = calloc(1, sizeof *w);
    if (!w) return fail_here(err, "ranks: out of memory");
    MPI_Comm_rank(MPI_COMM_WORLD, &w->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w->size);
    w->patience = find_patience();
    if (w->size < 2) {
        free(w);
        MPI_Finalize();
        return fail_here(err,
                         "ranks: MPI knows of one rank, expected 2 or more (mpirun -np 2, srun "
                         "--mpi=pmix; alone, no launcher is needed)");
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &w->comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &w->roll);
    MPI_Comm_set_errhandler(w->comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(w->roll, MPI_ERRORS_RETURN);
    *out = (dra_comm){&table, w, w->rank, w->size, false};
    return DRA_OK;
}

__attribute__((visibility("default"))) extern const dra_comm_plugin dra_comm_plugin_table;

const dra_comm_plugin dra_comm_plugin_table = {DRA_COMM_ABI, DRA_VERSION_TEXT, open_world,
                                               describe_library};
