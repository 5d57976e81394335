#include "pieces.h"
#include "shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20 /* bytes */, PATH_TEXT = 4096 };

static void update_file(serve_state *x);

static double seconds_now(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool has_folder(const serve_model *m) { return m->server->args->state_dir != NULL; }

/* ---- bodies ---------------------------------------------------------------------------------- */

static void drop_body(serve_model *m, serve_kept *b)
{
    if (!b || --b->refs > 0) return;
    if (b->held) serve_state_forget(m, b->handle);
    free(b);
}

static void hold_body(serve_kept **at, serve_kept *b)
{
    b->refs++;
    *at = b;
}

/* From now on the file of a name has this body. */
static void set_filed(serve_state *x, serve_kept *b)
{
    serve_kept *before = x->filed;
    x->filed = NULL;
    if (b) hold_body(&x->filed, b);
    if (b) b->files++;
    if (before) before->files--;
    drop_body(x->model, before);
}

static void set_body(serve_state *x, serve_kept *b)
{
    serve_kept *before = x->body;
    x->body = NULL;
    if (b) hold_body(&x->body, b);
    if (b) b->names++;
    if (before) before->names--;
    drop_body(x->model, before);
}

void serve_shelf_handle(serve_model *m, char handle[SERVE_NAME + 1])
{
    snprintf(handle, SERVE_NAME + 1, "s%llu", (unsigned long long)++m->shelf->handles);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_to_name(const serve_state *x, uint64_t owner, const char *name)
{
    return x->owner < owner ? -1 : x->owner > owner ? 1 : strcmp(x->name, name);
}

static size_t place_of(const serve_shelf *s, uint64_t owner, const char *name)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (compare_to_name(s->all[mid], owner, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Also one that was deleted and whose file is not gone yet. */
static serve_state *find_any(const serve_model *m, uint64_t owner, const char *name)
{
    const serve_shelf *s = m->shelf;
    const size_t       i = place_of(s, owner, name);
    return i < s->n && compare_to_name(s->all[i], owner, name) == 0 ? s->all[i] : NULL;
}

serve_state *serve_shelf_find(const serve_model *m, uint64_t owner, const char *name)
{
    serve_state *x = find_any(m, owner, name);
    return x && x->body ? x : NULL;
}

serve_state *serve_shelf_at(const serve_model *m, uint64_t owner, size_t i)
{
    const serve_shelf *s = m->shelf;
    for (size_t k = place_of(s, owner, ""); k < s->n && s->all[k]->owner == owner; k++)
        if (s->all[k]->body && i-- == 0) return s->all[k];
    return NULL;
}

serve_state *serve_shelf_any(const serve_model *m, size_t i, bool *more)
{
    const serve_shelf *s = m->shelf;
    *more = i < s->n;
    return *more && s->all[i]->body ? s->all[i] : NULL;
}

/* NULL: no memory. */
static serve_state *add_state(serve_model *m, uint64_t owner, const char *name)
{
    serve_shelf *s = m->shelf;
    if (s->n == s->room) {
        const size_t  room = s->room ? 2 * s->room : 64;
        serve_state **all = realloc(s->all, room * sizeof *all);
        if (!all) return NULL;
        s->all = all;
        s->room = room;
    }
    serve_state *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->model = m;
    x->owner = owner;
    x->created = seconds_now();
    snprintf(x->name, sizeof x->name, "%s", name);
    const size_t at = place_of(s, owner, name);
    memmove(s->all + at + 1, s->all + at, (s->n++ - at) * sizeof *s->all);
    s->all[at] = x;
    return x;
}

static void remove_state(serve_state *x)
{
    serve_shelf *s = x->model->shelf;
    const size_t at = place_of(s, x->owner, x->name);
    memmove(s->all + at, s->all + at + 1, (--s->n - at) * sizeof *s->all);
    free(x);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static size_t disk_of(const serve_kept *b) { return b->disk ? b->disk : b->bytes; }

serve_shelf_figures serve_shelf_count(const serve_model *m)
{
    const serve_shelf  *s = m->shelf;
    serve_shelf_figures f = {0};
    for (size_t i = 0; i < s->n; i++) {
        const serve_kept *b = s->all[i]->body, *filed = s->all[i]->filed;
        f.names += b != NULL;
        /* A body with several names counts once: each name has a share. */
        if (b && b->held) f.held++, f.held_bytes += b->memory / (size_t)b->names;
        if (filed) f.files++, f.file_bytes += disk_of(filed) / (size_t)filed->files;
    }
    if (m->pieces) f.file_bytes += serve_pieces_bytes(m->pieces, NULL);
    return f;
}

bool serve_shelf_has_room(const serve_model *m, uint64_t owner, const char *name, serve_error *e)
{
    const serve       *s = m->server;
    const serve_shelf *shelf = m->shelf;
    size_t             bytes = 0, disk = 0;
    int64_t            names = 0;
    char               folder[PATH_TEXT];
    for (size_t k = place_of(shelf, owner, ""); k < shelf->n && shelf->all[k]->owner == owner;
         k++) {
        const serve_state *x = shelf->all[k];
        if (!x->body || strcmp(x->name, name) == 0) continue;
        /* Forks count once, a share for each. */
        bytes += (x->body->pieces ? x->body->disk : x->body->bytes) / (size_t)x->body->names;
        names++;
    }
    if (m->pieces && serve_files_folder(m, owner, folder, sizeof folder))
        bytes += serve_pieces_bytes(m->pieces, folder);
    if (names >= s->args->states)
        return serve_limited(e, SERVE_MAX_STATES, NULL,
                             "there are %lld states, the limit; delete some", (long long)names);
    if (bytes >= s->state_quota)
        return serve_limited(e, SERVE_STATE_QUOTA, NULL,
                             "states have %zu bytes, the limit is %zu; delete some", bytes,
                             s->state_quota);
    for (size_t i = 0; i < s->n_models; i++)
        if (s->models[i].phase == SERVE_READY) disk += serve_shelf_count(&s->models[i]).file_bytes;
    return disk < s->state_disk || serve_limited(e, SERVE_STATE_DISK, NULL,
                                                 "files of states have %zu bytes, the limit", disk);
}

/* The least recently used body in memory that may be dropped from it. */
static serve_kept *find_oldest(const serve_model *m, const serve_kept *but)
{
    const serve_shelf *s = m->shelf;
    serve_kept        *oldest = NULL;
    for (size_t i = 0; i < s->n; i++) {
        serve_kept *b = s->all[i]->body;
        if (!b || !b->held || b == but || b->loading || (has_folder(m) && !b->files)) continue;
        if (!oldest || b->used < oldest->used) oldest = b;
    }
    return oldest;
}

/* Without files, a body that leaves memory is lost. */
static void forget_names(serve_model *m, const serve_kept *b)
{
    serve_shelf *s = m->shelf;
    for (size_t i = s->n; i-- > 0;)
        if (s->all[i]->body == b) {
            set_body(s->all[i], NULL);
            remove_state(s->all[i]);
        }
}

/* Half of the memory is for states with names; `more` bytes are to come. */
static void make_room(serve_model *m, size_t more, const serve_kept *but)
{
    const size_t most = m->server->memory_limit / 2;
    serve_kept  *b;
    while (serve_shelf_count(m).held_bytes + more > most && (b = find_oldest(m, but))) {
        serve_limit_acts(&m->server->limits, SERVE_MEMORY_LIMIT);
        if (has_folder(m)) {
            serve_state_forget(m, b->handle);
            b->held = false;
        } else {
            forget_names(m, b);
        }
    }
}

static void on_clock(evutil_socket_t fd, short what, void *user)
{
    serve_model *m = user;
    serve_shelf *s = m->shelf;
    const double oldest = seconds_now() - 86400 * m->server->args->state_days;
    (void)fd;
    (void)what;
    for (size_t i = s->n; i-- > 0;) {
        serve_state *x = s->all[i];
        if (!x->body || x->busy || x->body->used >= oldest) continue;
        serve_limit_acts(&m->server->limits, SERVE_STATE_DAYS);
        set_body(x, NULL);
        update_file(x);
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool wait_for(serve_job **list, serve_call *call, serve_model *m,
                     void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    serve_job *job = serve_job_wait(call, m, end);
    if (!job) return serve_wrong(e, 503, NULL, "out of memory");
    while (*list) list = &(*list)->after;
    *list = job;
    return true;
}

static void tell_all(serve_job **list, const dra_error *error)
{
    serve_job *job = *list;
    *list = NULL;
    for (serve_job *next; job; job = next) {
        next = job->after;
        serve_job_tell(job, error);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

bool serve_shelf_path(const serve_state *x, char *path, size_t size)
{
    return serve_state_path(x->model, x->owner, x->name, path, size);
}

/* Where a state of a model that has pieces is written first. */
static bool whole_path(const serve_state *x, char *path, size_t size)
{
    char      name[PATH_TEXT];
    const int n = serve_shelf_path(x, name, sizeof name)
                      ? snprintf(path, size, "%s.whole.tmp", name)
                      : -1;
    return n > 0 && (size_t)n < size;
}

static void on_written(serve_job *job, const dra_job_result *r)
{
    serve_state *x = job->subject;
    serve_kept  *b = x->coming;
    x->busy = false;
    x->coming = NULL;
    if (r->end == DRA_JOB_DONE) {
        if (job->filed) b->pieces = job->pieces; /* it was placed, and is no other name of one */
        if (job->filed && job->pieces) b->disk = job->filed;
        set_filed(x, b);
    } else {
        x->failed = b; /* while it is the body; no other has its place in memory */
        x->error = r->error;
        if (r->end == DRA_JOB_CANCELLED) x->error.code = DRA_ERR_BUSY;
    }
    if (x->body != b) x->failed = NULL;
    drop_body(x->model, b);
    update_file(x);
}

/* The state is in a file of its own, which becomes that of the name, and is cut into pieces if it
 * is large. */
static void on_exported(serve_job *job, const dra_job_result *r)
{
    serve_state *x = job->subject;
    char         path[PATH_TEXT], whole[PATH_TEXT];
    serve_text   data = {0};
    if (r->end == DRA_JOB_DONE && serve_shelf_path(x, path, sizeof path) &&
        whole_path(x, whole, sizeof whole)) {
        serve_puts(&data, whole);
        if (serve_work_alone(x->model, SERVE_PLACE, path, &data, x, on_written)) return;
        job->result.end = DRA_JOB_FAILED;
        cli_error(&job->result.error, DRA_ERR_MEMORY, "out of memory");
    }
    if (whole_path(x, whole, sizeof whole)) unlink(whole); /* it may be there after an error, too */
    serve_text_free(&data);
    on_written(job, r);
}

static void on_unlinked(serve_job *job, const dra_job_result *r)
{
    serve_state *x = job->subject;
    (void)r;
    x->busy = false;
    set_filed(x, NULL);
    update_file(x);
}

/* Another name whose file has the same. */
static const serve_state *find_filed(const serve_state *x)
{
    const serve_shelf *s = x->model->shelf;
    for (size_t i = 0; i < s->n && x->body->files > 0; i++)
        if (s->all[i]->filed == x->body && !s->all[i]->busy) return s->all[i];
    return NULL;
}

static void write_file(serve_state *x)
{
    const serve_state *same = find_filed(x);
    serve_model       *m = x->model;
    char               path[PATH_TEXT], from[PATH_TEXT];
    serve_error        e = {0};
    bool               well = m->pieces && !same ? whole_path(x, path, sizeof path)
                                                 : serve_shelf_path(x, path, sizeof path);
    x->busy = true;
    hold_body(&x->coming, x->body);
    serve_files_make(m, x->owner);
    if (well && same) {
        serve_text data = {0};
        serve_puts(&data, serve_shelf_path(same, from, sizeof from) ? from : "");
        well = serve_work_alone(m, SERVE_LINK, path, &data, x, on_written);
        serve_text_free(&data);
    } else if (well) {
        dra_job_config config = {.kind = DRA_JOB_EXPORT, .state = x->body->handle, .path = path};
        well = serve_job_alone(m, &config, x, m->pieces ? on_exported : on_written, &e);
    }
    if (well) return;
    x->busy = false;
    x->failed = x->body;
    cli_error(&x->error, DRA_ERR_FILE, "%s", e.text[0] ? e.text : "the path is too long");
    drop_body(x->model, x->coming);
    x->coming = NULL;
}

static void remove_file(serve_state *x)
{
    char path[4096];
    x->busy = true;
    if (serve_shelf_path(x, path, sizeof path) &&
        serve_work_alone(x->model, SERVE_UNLINK, path, NULL, x, on_unlinked))
        return;
    x->busy = false; /* it comes back when the server starts again: there was no memory */
    set_filed(x, NULL);
}

/* The file becomes what the name stands for. */
static void update_file(serve_state *x)
{
    if (x->busy || !x->model->engine) return;
    if (has_folder(x->model)) {
        if (x->body && x->filed != x->body && x->failed != x->body)
            write_file(x);
        else if (!x->body && x->filed)
            remove_file(x);
        if (x->busy) return;
    }
    dra_error  error = x->error;
    const bool failed = x->body && x->failed == x->body;
    serve_job *waiting = x->waiting;
    x->waiting = NULL;
    if (!x->body) remove_state(x);
    tell_all(&waiting, failed ? &error : NULL);
}

/* ---- what clients do ------------------------------------------------------------------------- */

typedef struct found { /* in the engine */
    const char *handle;
    serve_kept *body;
} found;

static void take_info(void *user, const dra_state_info *x)
{
    found *f = user;
    if (strcmp(x->name, f->handle) != 0) return;
    f->body->tokens = x->tokens;
    f->body->bytes = x->bytes;
    f->body->memory = x->held;
}

/* A body that is in the engine; NULL: no memory. */
static serve_kept *make_body(serve_model *m, const char *handle)
{
    serve_kept *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    *b = (serve_kept){.refs = 1, .held = true, .tokens = -1, .used = seconds_now()};
    snprintf(b->handle, sizeof b->handle, "%s", handle);
    dra_engine_states(m->engine, take_info, &(found){handle, b});
    return b;
}

static bool put_body(serve_call *call, serve_model *m, uint64_t owner, const char *name,
                     serve_kept  *b, void (*end)(serve_job *, const dra_job_result *),
                     serve_error *e)
{
    if (!serve_shelf_has_room(m, owner, name, e)) return false;
    serve_state *x = find_any(m, owner, name);
    if (!x) x = add_state(m, owner, name);
    if (!x) return serve_wrong(e, 503, NULL, "out of memory");
    if (!wait_for(&x->waiting, call, m, end, e)) {
        update_file(x);
        return false;
    }
    x->created = b->used = seconds_now();
    x->failed = NULL;
    set_body(x, b);
    make_room(m, 0, b);
    update_file(x);
    return true;
}

bool serve_shelf_put(serve_call *call, serve_model *m, uint64_t owner, const char *name,
                     const char  *handle, void (*end)(serve_job *, const dra_job_result *),
                     serve_error *e)
{
    serve_kept *b = make_body(m, handle);
    if (!b) serve_state_forget(m, handle);
    const bool well = b ? put_body(call, m, owner, name, b, end, e)
                        : serve_wrong(e, 503, NULL, "out of memory");
    drop_body(m, b);
    return well;
}

bool serve_shelf_fork(serve_call *call, const serve_state *from, const char *name,
                      void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    return put_body(call, from->model, from->owner, name, from->body, end, e);
}

bool serve_shelf_delete(serve_call *call, serve_state                                 *x,
                        void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    if (!wait_for(&x->waiting, call, x->model, end, e)) return false;
    set_body(x, NULL);
    update_file(x);
    return true;
}

static void drop_whole(const serve_model *m, serve_kept *b)
{
    char path[PATH_TEXT];
    if (!b->temp) return;
    serve_temp_again(m->server, b->temp, path, sizeof path);
    unlink(path);
    b->temp = 0;
}

static void on_loaded(serve_job *job, const dra_job_result *r)
{
    serve_kept  *b = job->subject;
    serve_model *m = job->model;
    drop_whole(m, b);
    b->loading = false;
    b->held = r->end == DRA_JOB_DONE;
    if (b->held) dra_engine_states(m->engine, take_info, &(found){b->handle, b});
    dra_error error = r->error;
    if (!b->held && error.code == DRA_OK) cli_error(&error, DRA_ERR_BUSY, "it was cancelled");
    tell_all(&b->waiting, b->held ? NULL : &error);
    drop_body(m, b);
}

static bool import_file(serve_model *m, serve_kept *b, const char *path, serve_error *e)
{
    dra_job_config config = {.kind = DRA_JOB_IMPORT, .save = b->handle, .path = path};
    return serve_job_alone(m, &config, b, on_loaded, e);
}

/* Its pieces are one file again. */
static void on_restored(serve_job *job, const dra_job_result *r)
{
    serve_kept *b = job->subject;
    serve_error e = {0};
    if (r->end == DRA_JOB_DONE && import_file(job->model, b, job->name, &e)) return;
    if (r->end == DRA_JOB_DONE) {
        job->result.end = DRA_JOB_FAILED;
        cli_error(&job->result.error, DRA_ERR_BUSY, "%s", e.text);
    }
    on_loaded(job, r);
}

static bool restore_file(serve_model *m, serve_kept *b, const char *path)
{
    char       whole[PATH_TEXT];
    serve_text from = {0};
    serve_puts(&from, path);
    serve_temp_path(m->server, whole, sizeof whole);
    b->temp = m->server->temps;
    const bool well = serve_work_alone(m, SERVE_RESTORE, whole, &from, b, on_restored);
    serve_text_free(&from);
    return well;
}

bool serve_shelf_load(serve_call *call, serve_state                                 *x,
                      void (*end)(serve_job *, const dra_job_result *), serve_error *e)
{
    char         path[4096];
    serve_kept  *b = x->body;
    serve_model *m = x->model;
    b->used = seconds_now();
    if (!wait_for(&b->waiting, call, m, end, e)) return false;
    if (b->held) {
        tell_all(&b->waiting, NULL);
        return true;
    }
    if (b->loading) return true;
    make_room(m, b->bytes > b->memory ? b->bytes : b->memory, b);
    serve_shelf_handle(m, b->handle);
    const serve_state *has = x->filed == b && !x->busy ? x : find_filed(x);
    b->refs++;
    b->loading = has && serve_shelf_path(has, path, sizeof path) &&
                 (b->pieces ? restore_file(m, b, path) : import_file(m, b, path, e));
    if (b->loading) return true;
    b->temp = 0;
    dra_error error = {0};
    cli_error(&error, DRA_ERR_BUSY, "%s", e->text[0] ? e->text : "its file is being written");
    tell_all(&b->waiting, &error);
    drop_body(m, b);
    return true;
}

/* ---- the start and the end ------------------------------------------------------------------- */

static int64_t tokens_of(const char *path)
{
    dra_tensors *file = NULL;
    int64_t      tokens = -1;
    if (dra_tensors_open(path, &file, NULL) == DRA_OK) {
        const char *text = dra_tensors_metadata(file, "tokens");
        if (text) tokens = strtoll(text, NULL, 10);
    }
    dra_tensors_close(file);
    return tokens;
}

static bool add_file(void *user, uint64_t owner, const char *name, const char *path)
{
    serve_model *m = user;
    struct stat  how;
    if (stat(path, &how) != 0 || !S_ISREG(how.st_mode)) return true;
    size_t       whole = 0;
    serve_kept  *b = calloc(1, sizeof *b);
    serve_state *x = b ? add_state(m, owner, name) : NULL;
    if (!x) {
        free(b);
        return false;
    }
    const double made = (double)how.st_mtim.tv_sec, read = (double)how.st_atim.tv_sec;
    if (m->pieces && !serve_pieces_found(m->pieces, path, &whole))
        cli_line(stderr,
                 "dra serve: warning: %s cannot be read; no piece of a state is removed "
                 "until it can",
                 path);
    *b = (serve_kept){.tokens = tokens_of(path),
                      .bytes = whole ? whole : (size_t)how.st_size,
                      .disk = (size_t)how.st_size,
                      .pieces = whole > 0,
                      .used = read > made ? read : made,
                      .device = how.st_dev,
                      .number = how.st_ino};
    x->created = made;
    set_body(x, b);
    set_filed(x, b);
    return true;
}

static int compare_files(const void *a, const void *b)
{
    const serve_kept *x = (*(serve_state *const *)a)->filed, *y = (*(serve_state *const *)b)->filed;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static int compare_names(const void *a, const void *b)
{
    const serve_state *x = *(serve_state *const *)a, *y = *(serve_state *const *)b;
    return compare_to_name(x, y->owner, y->name);
}

/* Names whose files are one file stand for one body. */
static void join_links(serve_shelf *s)
{
    if (s->n) qsort(s->all, s->n, sizeof *s->all, compare_files);
    for (size_t i = 1; i < s->n; i++) {
        serve_kept *b = s->all[i - 1]->filed;
        if (compare_files(&s->all[i - 1], &s->all[i]) != 0) continue;
        set_body(s->all[i], b);
        set_filed(s->all[i], b);
    }
    if (s->n) qsort(s->all, s->n, sizeof *s->all, compare_names);
}

/* Pieces are counted by one process. */
static dra_status lock_folder(serve_model *m, dra_error *err)
{
    char      folder[PATH_TEXT];
    const int fd = serve_files_folder(m, 0, folder, sizeof folder)
                       ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                       : -1;
    m->shelf->lock = fd < 0 ? 0 : fd;
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return DRA_OK;
    return cli_error(err, DRA_ERR_FILE, "--state-dir: %.200s is in use by another server", folder);
}

dra_status serve_shelf_open(serve_model *m, dra_error *err)
{
    const dra_specs *specs = dra_model_state(m->m.model);
    m->shelf = calloc(1, sizeof *m->shelf);
    if (m->shelf && has_folder(m) && serve_pieces_grow(specs)) {
        const dra_status st = lock_folder(m, err);
        if (st != DRA_OK) return st;
        m->pieces = serve_pieces_open(specs, PIECE);
        if (!m->pieces) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    }
    if (!m->shelf || !serve_files_find(m, add_file, m))
        return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    join_links(m->shelf);
    return DRA_OK;
}

bool serve_shelf_start(serve_model *m)
{
    if (m->server->args->state_days <= 0) return true;
    m->shelf->clock = event_new(m->server->base, -1, EV_PERSIST, on_clock, m);
    if (!m->shelf->clock) return false;
    on_clock(-1, 0, m);
    return event_add(m->shelf->clock, &(struct timeval){60, 0}) == 0;
}

/* When a state was used is the time at which its file was read. */
static void note_use(const serve_state *x)
{
    char path[4096];
    if (!x->filed || x->filed != x->body || !serve_shelf_path(x, path, sizeof path)) return;
    const struct timespec times[2] = {{(time_t)x->body->used, 0}, {0, UTIME_OMIT}};
    utimensat(AT_FDCWD, path, times, 0);
}

void serve_shelf_close(serve_model *m)
{
    serve_shelf *s = m->shelf;
    if (!s) return;
    if (s->clock) event_free(s->clock);
    for (size_t i = 0; i < s->n; i++) {
        serve_state *x = s->all[i];
        dra_error    over = {0};
        cli_error(&over, DRA_ERR_BUSY, "the server ends");
        tell_all(&x->waiting, &over);
        if (x->body) tell_all(&x->body->waiting, &over);
        note_use(x);
        if (x->body) x->body->held = false; /* the engine is gone */
        if (x->filed) x->filed->held = false;
        set_body(x, NULL);
        set_filed(x, NULL);
        free(x);
    }
    free(s->all);
    if (s->lock) close(s->lock);
    free(s);
    m->shelf = NULL;
    serve_pieces_close(m->pieces);
    m->pieces = NULL;
}
