/* Files of states: DIR/MODEL/NAME.state in the state directory, written whole or not at all, and a
 * folder of our own for those on their way. */
#include "pieces.h"
#include "serve.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".state";

bool serve_files_folder(const serve_model *m, uint64_t owner, char *path, size_t size)
{
    const char *top = m->server->args->state_dir;
    const int   n = owner ? snprintf(path, size, "%s/%s/@%016llx", top, m->name,
                                     (unsigned long long)owner)
                          : snprintf(path, size, "%s/%s", top, m->name);
    return n > 0 && (size_t)n < size;
}

bool serve_state_path(const serve_model *m, uint64_t owner, const char *name, char *path,
                      size_t size)
{
    char folder[4096];
    if (!serve_files_folder(m, owner, folder, sizeof folder)) return false;
    const int n = snprintf(path, size, "%s/%s%s", folder, name, suffix);
    return n > 0 && (size_t)n < size;
}

void serve_files_make(const serve_model *m, uint64_t owner)
{
    char folder[4096];
    if (owner && serve_files_folder(m, owner, folder, sizeof folder)) mkdir(folder, 0700);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), k = strlen(end);
    return n > k && strcmp(text + n - k, end) == 0;
}

/* ---- names of files -------------------------------------------------------------------------- */

void serve_file_sync(const char *path)
{
    char         folder[4096];
    const char  *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) : 0;
    if (n == 0 || n >= sizeof folder) return;
    memcpy(folder, path, n);
    folder[n] = '\0';
    cli_folder_sync(folder);
}

dra_status serve_file_link(const char *from, const char *to, dra_error *err)
{
    char      temp_name[4096 + 8];
    const int n = snprintf(temp_name, sizeof temp_name, "%s.tmp", to);
    if (n < 0 || (size_t)n >= sizeof temp_name)
        return cli_error(err, DRA_ERR_FILE, "path too long");
    unlink(temp_name);
    if (link(from, temp_name) == 0 && rename(temp_name, to) == 0) {
        unlink(temp_name); /* where both were one file, rename() leaves both */
        serve_file_sync(to);
        return DRA_OK;
    }
    return cli_error(err, DRA_ERR_FILE, "%.200s: %s", to, cli_reason(errno));
}

dra_status serve_file_remove(const char *from, const char *path, dra_error *err)
{
    (void)from;
    const int failed = unlink(path);
    const int why = errno;
    serve_file_sync(path);
    return failed ? cli_error(err, DRA_ERR_FILE, "%s", cli_reason(why)) : DRA_OK;
}

/* ---- the state directory --------------------------------------------------------------------- */

typedef struct finding {
    const serve_model *model;
    bool (*each)(void *user, uint64_t owner, const char *name, const char *path);
    void *user;
} finding;

static bool find_file(const finding *f, uint64_t owner, const char *folder, const char *file)
{
    char         path[4096], name[SERVE_NAME + 1] = "";
    const size_t n = strlen(file);
    if (!cli_path(folder, file, path, sizeof path)) return true;
    if (ends_with(file, ".tmp")) unlink(path); /* left half written by a process that was killed */
    if (!ends_with(file, suffix) || n - strlen(suffix) > SERVE_NAME) return true;
    memcpy(name, file, n - strlen(suffix));
    return !serve_state_name_ok(name) || f->each(f->user, owner, name, path);
}

static bool find_in_folder(const finding *f, uint64_t owner)
{
    char folder[4096], *end;
    DIR *d = serve_files_folder(f->model, owner, folder, sizeof folder) ? opendir(folder) : NULL;
    bool well = true;
    for (struct dirent *x; d && well && (errno = 0, x = readdir(d));) {
        const uint64_t other = x->d_name[0] == '@' ? strtoull(x->d_name + 1, &end, 16) : 0;
        if (!owner && other && !*end)
            well = find_in_folder(f, other);
        else
            well = find_file(f, owner, folder, x->d_name);
    }
    const bool all = d && well && errno == 0;
    if (d) closedir(d);
    if (all && f->model->pieces) serve_pieces_sweep(f->model->pieces, folder);
    return well;
}

bool serve_files_find(const serve_model *m,
                      bool (*each)(void *user, uint64_t owner, const char *name, const char *path),
                      void *user)
{
    return !m->server->args->state_dir || find_in_folder(&(finding){m, each, user}, 0);
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

void serve_temp_path(serve *s, char *path, size_t size)
{
    serve_temp_again(s, ++s->temps, path, size);
}

void serve_temp_again(const serve *s, uint64_t n, char *path, size_t size)
{
    snprintf(path, size, "%s/" SERVE_TEMP "%llu", s->temp, (unsigned long long)n);
}

static void remove_folder(const char *folder)
{
    char path[4096];
    DIR *d = opendir(folder);
    for (struct dirent *x; d && (x = readdir(d));)
        if (x->d_name[0] != '.' || x->d_name[1] == '.')
            if (cli_path(folder, x->d_name, path, sizeof path)) unlink(path);
    if (d) closedir(d);
    rmdir(folder);
}

static const char temp[] = "dra-serve-"; /* then the number of the process, - and six letters */

/* Folders of processes that were killed. */
static void remove_stale(const char *base)
{
    char path[4096], *end;
    DIR *d = opendir(base);
    for (struct dirent *x; d && (x = readdir(d));) {
        if (strncmp(x->d_name, temp, strlen(temp)) != 0) continue;
        const long pid = strtol(x->d_name + strlen(temp), &end, 10);
        if (pid <= 0 || *end != '-' || kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
        if (cli_path(base, x->d_name, path, sizeof path)) remove_folder(path);
    }
    if (d) closedir(d);
}

bool serve_files_open(serve *s, dra_error *err)
{
    const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    const int   n = snprintf(s->temp, sizeof s->temp, "%s/%s%ld-%s", base, temp, (long)getpid(),
                             "XX"
                               "XX"
                               "XX"); /* which mkdtemp replaces */
    if (n < 0 || (size_t)n >= sizeof s->temp) {
        s->temp[0] = '\0';
        return cli_error(err, DRA_ERR_FILE, "TMPDIR: %.100s is too long", base) == DRA_OK;
    }
    remove_stale(base);
    if (!mkdtemp(s->temp)) {
        cli_error(err, DRA_ERR_FILE, "%s: cannot make the folder: %s", s->temp, cli_reason(errno));
        s->temp[0] = '\0';
        return false;
    }
    return !s->args->state_dir || make_folders(s, err);
}

void serve_files_close(serve *s)
{
    if (s->temp[0]) remove_folder(s->temp);
}
