/* Starts this command once more as several ranks, by mpirun, and passes on what they say. mpirun
 * gets signals from here alone: the first lets the ranks finish a step and save, by SIGUSR1, which
 * mpirun hands on as it is. */
#include "io/launch.h"
#include "io/model.h"
#include "options/options.h"
#include "options/term.h"

#include "dra/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { WORDS_MOST = 1 << 20, FIXED = 12 }; /* bytes of a command; words before it */

static volatile sig_atomic_t signals;
static volatile pid_t        launcher;

static void pass_signal(int number)
{
    if (launcher > 0) kill(launcher, signals++ ? SIGTERM : SIGUSR1);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* mpirun, its options, this program, and the words it was started with, NULL at the end; `words`
 * keeps them. */
static char **make_command(int64_t n, char **words, dra_error *err)
{
    static char count[24], self[4096];
    size_t      bytes = 0, at = 0;
    if (dra_file_read("/proc/self/cmdline", WORDS_MOST, words, &bytes, err) != DRA_OK) return NULL;
    const ssize_t path = readlink("/proc/self/exe", self, sizeof self - 1);
    char        **list = calloc(bytes + FIXED + 1, sizeof *list);
    if (!list || path < 0) {
        free(list);
        cli_error(err, DRA_ERR_MEMORY, "--ranks: %s", cli_reason(list ? errno : ENOMEM));
        return NULL;
    }
    self[path] = '\0';
    snprintf(count, sizeof count, "%lld", (long long)n);
    static char *const fixed[] = {"mpirun",    "-np",  count,   "--oversubscribe",
                                  "--bind-to", "none", "--mca", "orte_base_help_aggregate",
                                  "0"};
    for (size_t i = 0; i < COUNT(fixed); i++) list[at++] = fixed[i];
    if (geteuid() == 0) list[at++] = "--allow-run-as-root";
    list[at++] = self;
    for (size_t i = strlen(*words) + 1; i < bytes; i += strlen(*words + i) + 1)
        list[at++] = *words + i;
    return list;
}

static void become_launcher(char **command, int out)
{
    const int nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0); /* Ctrl-C is for the process that waits */
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    dup2(nothing, STDIN_FILENO);
    dup2(out, STDERR_FILENO);
    setenv("HWLOC_HIDE_ERRORS", "2", 0); /* it would tell of a missing /sys, rank by rank */
    execvp(command[0], command);
    dprintf(STDERR_FILENO, "dra: --ranks: cannot run mpirun: %s (Debian: openmpi-bin)\n",
            strerror(errno));
    _exit(127);
}

/* ---- what is said ---------------------------------------------------------------------------- */

typedef struct filter { /* of lines */
    bool block;         /* in one of mpirun's own, between two lines of dashes */
    bool told;          /* the reason of the end */
    char line[4096];
} filter;

/* mpirun tells at length that a rank was ended; a failure of one has been told by itself. */
static void take_block_line(filter *f)
{
    const char *rank = strstr(f->line, "process rank "),
               *how = strstr(f->line, "exited on signal ");
    if (!rank || !how || f->told) return;
    f->told = true;
    cli_line(stderr,
             "dra: rank %ld was ended by signal %ld, and all others with it; --resume goes on from "
             "the last checkpoint",
             strtol(rank + 13, NULL, 10), strtol(how + 17, NULL, 10));
}

/* What it says of itself besides. */
static bool is_of_launcher(const char *line)
{
    return strncmp(line, "mpirun: Forwarding signal", 25) == 0 || strstr(line, " ORTE_ERROR_LOG: ");
}

static void take_line(filter *f)
{
    if (strncmp(f->line, "----------", 10) == 0)
        f->block = !f->block;
    else if (f->block)
        take_block_line(f);
    else if (!is_of_launcher(f->line))
        fputs(f->line, stderr);
}

static void pass_lines(int from)
{
    filter f = {0};
    FILE  *in = dra_stream_from(from);
    while (in && fgets(f.line, sizeof f.line, in)) take_line(&f);
    if (in) fclose(in);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int wait_for_end(void)
{
    int how = 0;
    while (waitpid(launcher, &how, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(how) && WEXITSTATUS(how) <= CLI_USAGE) return WEXITSTATUS(how);
    return CLI_FAILED;
}

int cli_ranks_start(int64_t n)
{
    dra_error err = {0};
    char      text[80], *words = NULL;
    int       both[2];
    if (dra_comm_describe("mpi", text, sizeof text, &err) != DRA_OK) return cli_fail(&err);
    char **command = make_command(n, &words, &err);
    if (!command || pipe(both) != 0) {
        if (command) cli_error(&err, DRA_ERR_FILE, "--ranks: %s", cli_reason(errno));
        free(command);
        free(words);
        return cli_fail(&err);
    }
    const struct sigaction pass = {.sa_handler = pass_signal, .sa_flags = SA_RESTART};
    fflush(NULL);
    fcntl(both[0], F_SETFD, FD_CLOEXEC);
    launcher = fork();
    if (launcher == 0) become_launcher(command, both[1]);
    sigaction(SIGINT, &pass, NULL);
    sigaction(SIGTERM, &pass, NULL);
    sigaction(SIGHUP, &pass, NULL);
    close(both[1]);
    pass_lines(both[0]);
    free(command);
    free(words);
    return wait_for_end();
}
