/* Files of states: DIR/MODEL/NAME.state in the state directory, written whole or not at all, and a
 * folder of our own for those on their way. */
#include "serve.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".state";

static bool state_path(const serve_model *m, const char *name, char *path, size_t size)
{
    const int n = snprintf(path, size, "%s/%s/%s%s", m->server->args->state_dir, m->name, name,
                           suffix);
    return n > 0 && (size_t)n < size;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n > k && strcmp(text + n - k, end) == 0;
}

/* ---- the state directory --------------------------------------------------------------------- */

bool serve_state_keep(serve_call *call, serve_model *m, const char *name,
                      void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    char           path[4096];
    dra_job_config config = {.kind = DRA_JOB_EXPORT, .state = name, .path = path};
    if (!state_path(m, name, path, sizeof path))
        return serve_wrong(e, 507, NULL, "the path of the state is too long");
    return serve_job_start(call, m, &config, 0, NULL, end, e);
}

void serve_state_remove(const serve_model *m, const char *name)
{
    char path[4096];
    if (m->server->args->state_dir && state_path(m, name, path, sizeof path)) unlink(path);
}

/* ---- at the start ---------------------------------------------------------------------------- */

static void load_next(serve_model *m);

static void on_loaded(serve_job *job, const dra_job_result *r)
{
    if (r->end == DRA_JOB_FAILED) cli_line(stderr, "dra serve: %s", r->error.text);
    load_next(job->model);
}

/* One after another, however short the queue is. The model is ready when all are there. */
static void load_next(serve_model *m)
{
    char        path[4096], name[SERVE_NAME + 1];
    serve_error e = {0};
    while (m->n_files > 0) {
        char *file = m->files[--m->n_files];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(suffix)), file);
        free(file);
        if (!state_path(m, name, path, sizeof path)) continue;
        dra_job_config config = {.kind = DRA_JOB_IMPORT, .save = name, .path = path};
        if (serve_job_start(NULL, m, &config, 0, NULL, on_loaded, &e)) return;
        cli_line(stderr, "dra serve: %s: %s", path, e.text);
    }
    free(m->files);
    m->files = NULL;
    m->phase = SERVE_READY;
}

static void add_file(serve_model *m, const char *file)
{
    char         name[SERVE_NAME + 1];
    const size_t n = strlen(file) - strlen(suffix);
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : 0), file);
    char **more = serve_state_name_ok(name) ? realloc(m->files, (m->n_files + 1) * sizeof *m->files)
                                            : NULL;
    if (!more) return;
    m->files = more;
    m->files[m->n_files] = strdup(file);
    if (m->files[m->n_files]) m->n_files++;
}

/* What a process that was killed left half written is removed. */
void serve_states_load(serve_model *m)
{
    char        folder[4096], path[4096];
    const char *top = m->server->args->state_dir;
    DIR        *d = top && cli_path(top, m->name, folder, sizeof folder) ? opendir(folder) : NULL;
    for (struct dirent *x; d && (x = readdir(d));) {
        if (ends_with(x->d_name, suffix)) add_file(m, x->d_name);
        if (ends_with(x->d_name, ".tmp") && cli_path(folder, x->d_name, path, sizeof path))
            unlink(path);
    }
    if (d) closedir(d);
    load_next(m);
}

static bool make_folders(serve *s, dra_error *err)
{
    char path[4096];
    for (size_t i = 0; i < s->n_models; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s/", s->args->state_dir, s->models[i].name);
        if (n < 0 || (size_t)n >= sizeof path)
            return cli_error(err, DRA_ERR_FILE, "--state-dir: too long") == DRA_OK;
        if (cli_make_folders(path, 0700, err) != DRA_OK) return false;
    }
    return true;
}

/* ---- files on their way ---------------------------------------------------------------------- */

bool serve_files_open(serve *s, dra_error *err)
{
    const char *base = getenv("TMPDIR");
    const int   n = snprintf(s->temp, sizeof s->temp, "%s/dra-serve-%c%c%c%c%c%c",
                           base ? base : "/tmp", 'X', 'X', 'X', 'X', 'X',
                             'X'); /* which mkdtemp replaces */
    if (n < 0 || (size_t)n >= sizeof s->temp) {
        s->temp[0] = '\0';
        return cli_error(err, DRA_ERR_FILE, "TMPDIR: %.100s is too long", base ? base : "") ==
               DRA_OK;
    }
    if (!mkdtemp(s->temp)) {
        cli_error(err, DRA_ERR_FILE, "%s: cannot make the folder: %s", s->temp, cli_reason(errno));
        s->temp[0] = '\0';
        return false;
    }
    return !s->args->state_dir || make_folders(s, err);
}

void serve_files_close(serve *s)
{
    char path[4096];
    DIR *d = s->temp[0] ? opendir(s->temp) : NULL;
    for (struct dirent *x; d && (x = readdir(d));)
        if (x->d_name[0] != '.' || x->d_name[1] == '.')
            if (cli_path(s->temp, x->d_name, path, sizeof path)) unlink(path);
    if (d) closedir(d);
    if (s->temp[0]) rmdir(s->temp);
}
