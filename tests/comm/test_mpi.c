/* The functions of a communicator by MPI: this program once more, as the ranks of an mpirun. */
#include <stdlib.h>
#include <unistd.h>

#include "comm/functions.h"

/* ---- a rank ---------------------------------------------------------------------------------- */

static dra_status try_all(dra_comm *c, dra_error *err)
{
    dra_status st = share_numbers(c, err);
    if (st == DRA_OK) st = agree_on_one(c, err);
    if (st == DRA_OK) st = move_arrays(c, err);
    for (int64_t leaves = dra_comm_size(c); leaves <= LEAVES_MOST && st == DRA_OK; leaves++)
        st = sum_leaves(c, leaves, err);
    return st;
}

static int be_a_rank(void)
{
    dra_comm  *c = NULL;
    dra_error  err = {0};
    dra_status st = dra_comm_open("mpi", &c, &err);
    if (st == DRA_OK) st = try_all(c, &err);
    if (st != DRA_OK) fprintf(stderr, "rank %d: %s\n", dra_comm_rank(c), err.text);
    dra_comm_destroy(c);
    return st != DRA_OK;
}

/* ---- the test -------------------------------------------------------------------------------- */

static char self[4096];

/* Why there are no ranks here; NULL: there are. */
static const char *find_reason(void)
{
    static dra_error err;
    char             text[80];
    if (system("command -v mpirun >/dev/null 2>&1") != 0) return "no mpirun";
    return dra_comm_describe("mpi", text, sizeof text, &err) == DRA_OK ? NULL : err.text;
}

static void functions_hold(void **state)
{
    char        command[5000];
    const char *reason = find_reason();
    if (reason) {
        printf("# skipped: %s\n", reason);
        skip();
    }
    for (int n = 2; n <= RANKS_MOST; n += 3) {
        snprintf(command, sizeof command,
                 "mpirun %s --oversubscribe --bind-to none -np %d '%s' </dev/null",
                 geteuid() == 0 ? "--allow-run-as-root" : "", n, self);
        if (system(command) != 0) fail_msg("%s", command);
    }
}

/* The plugin lies two folders above this program. */
static void find_plugin(void)
{
    char          folder[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return;
    snprintf(folder, sizeof folder, "%.*s", (int)n, self);
    for (int k = 0; k < 3; k++) {
        char *slash = strrchr(folder, '/');
        if (slash) *slash = '\0';
    }
    setenv("DRA_PLUGIN_PATH", folder, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(functions_hold)};
    if (getenv("OMPI_COMM_WORLD_SIZE")) return be_a_rank();
    find_plugin();
    return check_main("mpi", NULL, 0, tests, COUNT(tests));
}
