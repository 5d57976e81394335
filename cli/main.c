/* The command line `dra`: picks the verb, parses its options, runs it.
 * Exit status: 0 done, 1 failed, 2 misused. Results on stdout, everything else on stderr. */
#include "options/manual.h"
#include "io/outputs.h"
#include "io/memory.h"
#include "options/term.h"
#include "verbs/verbs.h"

#include "dra/abi.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int run_command(int argc, char *const *argv)
{
    if (argc < 2) {
        cli_manual_overview(&cli_as_text, stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dra %s\n", dra_version());
        return CLI_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_manual_overview(&cli_as_text, stdout);
        return CLI_OK;
    }
    const cli_verb *verb = cli_verb_find(argv[1]);
    return verb ? cli_verb_run(verb, argc - 2, argv + 2) : cli_verb_unknown(argv[1]);
}

/* Opens streams that are closed as ones that fail: otherwise the next file would get their number
 * and receive what is printed. */
static void reserve_streams(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) _exit(1);
}

/* Models and texts are mapped: a file that is cut while it is read raises SIGBUS. */
static void lost_file(int signal)
{
    static const char text[] = "dra: a file was made shorter, or failed, while it was read\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(128 + signal);
    _exit(CLI_FAILED);
}

/* A library of another version, found by mistake, is told before it is used. */
static bool fits_the_library(void)
{
    dra_error  err = {0};
    const bool fits = dra_abi_check(&err) == DRA_OK;
    if (!fits) cli_line(stderr, "dra: %s", err.text);
    return fits;
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error, as a full disk is */
    reserve_streams();
    if (!fits_the_library()) return CLI_FAILED;
    sigaction(SIGBUS, &(struct sigaction){.sa_handler = lost_file}, NULL);
    int status = run_command(argc, argv);
    if (status == CLI_OK && cli_memory_lacked()) {
        fputs("dra: out of memory: a part of the output is missing\n", stderr);
        status = CLI_FAILED;
    }
    /* Results that could not be written are a failure, even if the verb succeeded. */
    bool lost = ferror(stdout) != 0;
    errno = 0;
    lost |= fflush(stdout) != 0;
    lost |= fclose(stdout) != 0 && errno != EINTR; /* interrupted, it is closed all the same */
    if (lost) {
        cli_line(stderr, "dra: stdout: cannot write: %s",
                 errno ? cli_reason(errno) : "output lost");
        if (status == CLI_OK) status = CLI_FAILED;
    }
    return status;
}
