/* A run of a study is a process of its own: a copy of this one before it has a device or threads.
 * It executes the commands one after the other; what they print is kept in its folder. */
#include "process.h"
#include "options/status.h"
#include "options/units.h"
#include "options/value.h"
#include "verbs/train/progress.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { WORDS = 256 };

/* ---- commands -------------------------------------------------------------------------------- */

typedef struct words { /* of a command */
    char *text;        /* to be freed; words point into it */
    char *word[WORDS];
    int   n;
    char  threads[32];
} words;

static bool has_option(const cli_verb *v, const char *name)
{
    return cli_option_of(v, name) != NULL;
}

/* Adds what all commands get. */
static void add_common(words *w, const cli_verb *v, const cli_study_settings *c)
{
    snprintf(w->threads, sizeof w->threads, "--threads=%lld", (long long)c->threads);
    if (has_option(v, "json")) w->word[w->n++] = (char *)(uintptr_t) "--json";
    if (has_option(v, "threads") && c->threads) w->word[w->n++] = w->threads;
    if (!has_option(v, "device") || !c->device) return;
    w->word[w->n++] = (char *)(uintptr_t) "--device";
    w->word[w->n++] = (char *)(uintptr_t)c->device;
}

/* Cuts a command at blanks; the first word is its verb. NULL: it is wrong, which is said. */
static const cli_verb *cut_command(const cli_study_run *r, char *text, const cli_study_settings *c,
                                   words *w)
{
    *w = (words){.text = text};
    char *at = text, *save = NULL;
    for (char *word; (word = strtok_r(at, " ", &save)) && w->n < WORDS - 8; at = NULL)
        w->word[w->n++] = word;
    const cli_verb *v = w->n ? cli_verb_find(w->word[0]) : NULL;
    if (!v || strcmp(v->name, "study") == 0) {
        cli_misused("study", "block %.60s: expected commands of dra, found '%.60s'", r->block->name,
                    w->n ? w->word[0] : "");
        return NULL;
    }
    add_common(w, v, c);
    return v;
}

static dra_status find_places(const cli_study_run *r, const cli_study_settings *c, char *config,
                              char *out, cli_study_places *p, dra_error *err)
{
    char name[CLI_STUDY_NAME + 16];
    snprintf(name, sizeof name, "models/%s.json", r->model ? r->model->name : "none");
    bool ok = cli_path(c->folder, name, config, CLI_STUDY_PATH);
    snprintf(name, sizeof name, "runs/%s", r->name);
    ok = ok && cli_path(c->folder, name, out, CLI_STUDY_PATH);
    *p = (cli_study_places){config, out, c->corpus, c->folder};
    return ok ? DRA_OK : cli_error(err, DRA_ERR_FILE, "--out: too long: %.60s...", c->folder);
}

/* Whether they are right. */
static int check_words(const cli_verb *v, const words *w)
{
    char  why[CLI_WHY] = "dra: out of memory";
    void *args = calloc(1, v->args_size + 1);
    int   status = CLI_FAILED;
    if (args) status = cli_outcome_status(cli_parse(v, w->n - 1, w->word + 1, args, why));
    if (status != CLI_OK) cli_line(stderr, "%s", why);
    if (args) cli_release(v, args);
    free(args);
    return status;
}

/* Parses command i and, if `runs`, executes it. Exit status; *more: there was one. */
static int take_command(const cli_study_run *r, const cli_study_settings *c, size_t i, bool runs,
                        bool *more)
{
    char             config[CLI_STUDY_PATH], out[CLI_STUDY_PATH];
    dra_error        err = {0};
    cli_study_places places;
    words            w;
    *more = false;
    if (find_places(r, c, config, out, &places, &err) != DRA_OK) return cli_fail(&err);
    char *text = cli_study_command(r, &places, i, &err);
    if (!text) return err.code == DRA_OK ? CLI_OK : cli_fail(&err);
    const cli_verb *v = cut_command(r, text, c, &w);
    const int       status = !v     ? CLI_USAGE
                             : runs ? cli_verb_run(v, w.n - 1, w.word + 1)
                                    : check_words(v, &w);
    free(text);
    *more = true;
    return status;
}

int cli_study_check(const cli_study_run *r, const cli_study_settings *c)
{
    int  status = CLI_OK;
    bool more = true;
    for (size_t i = 0; more && status == CLI_OK; i++) status = take_command(r, c, i, false, &more);
    return status;
}

/* ---- the process ----------------------------------------------------------------------------- */

static bool stream_to(const char *folder, const char *name, int fd)
{
    char      path[CLI_STUDY_PATH];
    const int file = cli_path(folder, name, path, sizeof path)
                         ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666)
                         : -1;
    if (file < 0) return false;
    const bool ok = dup2(file, fd) >= 0;
    close(file);
    return ok;
}

static int run_commands(const cli_study_run *r, const cli_study_settings *c)
{
    int  status = CLI_OK;
    bool more = true;
    for (size_t i = 0; more && status == CLI_OK && !cli_progress_stopped(); i++)
        status = take_command(r, c, i, true, &more);
    if (fflush(stdout) != 0 && status == CLI_OK) status = CLI_FAILED;
    return cli_progress_stopped() ? CLI_INTERRUPTED : status;
}

/* Does not outlive the study, and leaves an answer to Ctrl-C to it. */
static void be_a_child(pid_t parent)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) _exit(CLI_INTERRUPTED);
    setpgid(0, 0);
}

dra_status cli_study_start(const cli_study_run *r, size_t block, const cli_study_settings *c,
                           cli_study_process *out, dra_error *err)
{
    char             config[CLI_STUDY_PATH], folder[CLI_STUDY_PATH], file[CLI_STUDY_PATH];
    cli_study_places places;
    const pid_t      parent = getpid();
    dra_status       st = find_places(r, c, config, folder, &places, err);
    if (st == DRA_OK && !cli_path(folder, "out.jsonl", file, sizeof file))
        st = cli_error(err, DRA_ERR_FILE, "--out: too long: %.60s...", c->folder);
    if (st == DRA_OK) st = cli_make_folders(file, 0777, err);
    if (st != DRA_OK) return st;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0)
        return cli_error(err, DRA_ERR_FILE, "%.200s: no process: %s", r->name, cli_reason(errno));
    if (pid == 0) {
        be_a_child(parent);
        if (!stream_to(folder, "out.jsonl", STDOUT_FILENO) ||
            !stream_to(folder, "said.txt", STDERR_FILENO))
            _exit(CLI_FAILED);
        _exit(run_commands(r, c));
    }
    *out = (cli_study_process){.run = *r, .block = block, .pid = pid, .began = cli_now()};
    return DRA_OK;
}

void cli_study_stop(const cli_study_process *p)
{
    if (p->pid > 0) kill(p->pid, SIGTERM);
}

/* ---- what it came to ------------------------------------------------------------------------- */

/* The objects that its commands printed, line by line. */
static json_t *read_results(const char *folder)
{
    enum { MOST = 1 << 26 };
    json_t *list = json_array();
    char    path[CLI_STUDY_PATH], *text = NULL;
    size_t  bytes = 0;
    if (!cli_path(folder, "out.jsonl", path, sizeof path) ||
        dra_file_read(path, MOST, &text, &bytes, NULL) != DRA_OK)
        return list;
    for (size_t at = 0; at < bytes;) {
        const char  *stop = memchr(text + at, '\n', bytes - at);
        const size_t n = stop ? (size_t)(stop - text) - at : bytes - at;
        json_t      *x = json_loadb(text + at, n, 0, NULL);
        if (json_is_object(x)) json_array_append(list, x);
        json_decref(x);
        at += n + 1;
    }
    free(text);
    return list;
}

/* The last line that it said, which is why it failed. */
static const char *read_why(const char *folder, int status, char why[DRA_ERROR_TEXT])
{
    enum { MOST = 1 << 26 };
    char   path[CLI_STUDY_PATH], *text = NULL;
    size_t bytes = 0;
    snprintf(why, DRA_ERROR_TEXT, "it ended with status %d", status);
    if (cli_path(folder, "said.txt", path, sizeof path) &&
        dra_file_read(path, MOST, &text, &bytes, NULL) == DRA_OK) {
        while (bytes > 0 && text[bytes - 1] == '\n') text[--bytes] = '\0';
        const char *line = bytes ? strrchr(text, '\n') : NULL;
        if (bytes) snprintf(why, DRA_ERROR_TEXT, "%s", line ? line + 1 : text);
    }
    free(text);
    return why;
}

bool cli_study_ended(cli_study_process *p, const cli_study_settings *c, bool *stopped,
                     cli_study_outcome *out, char *why)
{
    char             config[CLI_STUDY_PATH], folder[CLI_STUDY_PATH];
    cli_study_places places;
    dra_error        err = {0};
    struct rusage    use;
    int              status = 0;
    if (wait4(p->pid, &status, WNOHANG, &use) != p->pid) return false;
    *stopped = WIFSIGNALED(status) || WEXITSTATUS(status) == CLI_INTERRUPTED;
    p->pid = 0;
    *out = (cli_study_outcome){.seconds = cli_now() - p->began,
                               .peak_bytes = (int64_t)use.ru_maxrss * 1024,
                               .device = c->device ? c->device : "cpu"};
    if (*stopped || find_places(&p->run, c, config, folder, &places, &err) != DRA_OK) return true;
    out->results = read_results(folder);
    if (WEXITSTATUS(status) != CLI_OK) out->failed = read_why(folder, WEXITSTATUS(status), why);
    return true;
}
