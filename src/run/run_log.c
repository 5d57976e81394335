/* log.jsonl: a JSON object a line. Lines are appended by one write each, so that a kill leaves
 * whole ones; a run that is resumed from step s first forgets what was said after s. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/system.h"
#include "run/train.h"

enum { LOG_MOST = 1 << 30 };

/* Whether a line is one of ours and not from after `step`. */
static bool belongs(const char *line, size_t bytes, int64_t step)
{
    json_t       *object = json_loadb(line, bytes, 0, NULL);
    const json_t *at = json_object_get(object, "step");
    const bool    yes = json_is_integer(at) && json_integer_value(at) <= step;
    json_decref(object);
    return yes;
}

/* Moves the lines that stay to the front; returns how many bytes they are. */
static size_t keep_lines(char *text, size_t bytes, int64_t step)
{
    size_t kept = 0;
    for (size_t at = 0; at < bytes;) {
        const char  *end = memchr(text + at, '\n', bytes - at);
        const size_t n = end ? (size_t)(end - text) + 1 - at : bytes - at;
        if (end && belongs(text + at, n, step)) {
            memmove(text + kept, text + at, n);
            kept += n;
        }
        at += n;
    }
    return kept;
}

static dra_status cut(const char *path, int64_t step, dra_error *err)
{
    char      *text = NULL;
    size_t     bytes = 0;
    dra_status st = dra_file_read(path, LOG_MOST, &text, &bytes, err);
    if (st == DRA_OK) {
        const size_t kept = keep_lines(text, bytes, step);
        if (kept < bytes) st = dra_file_write(path, text, kept, err);
    }
    free(text);
    return st;
}

bool dra_runlog_is(const char *path)
{
    char  *text = NULL;
    size_t bytes = 0;
    if (dra_file_read(path, LOG_MOST, &text, &bytes, NULL) != DRA_OK) return false;
    const char *end = bytes ? memchr(text, '\n', bytes) : NULL;
    const bool  yes = bytes == 0 || (end && belongs(text, (size_t)(end - text), INT64_MAX));
    free(text);
    return yes;
}

dra_status dra_runlog_open(const char *path, int64_t step, dra_runlog *out, dra_error *err)
{
    dra_status st = DRA_OK;
    *out = (dra_runlog){.path = path, .fd = -1};
    if (dra_sys_exists(path)) st = cut(path, step, err);
    if (st != DRA_OK) return st;
    out->fd = dra_sys_open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    return out->fd < 0 ? dra_fail_system(err, path, "open it", errno) : DRA_OK;
}

void dra_runlog_close(dra_runlog *log)
{
    if (log->path && log->fd >= 0) close(log->fd);
    dra_events_close(log->events);
    *log = (dra_runlog){.fd = -1};
}

dra_status dra_append_whole(int fd, const char *path, const void *data, size_t bytes,
                            dra_error *err)
{
    const off_t end = lseek(fd, 0, SEEK_END);
    size_t      done = 0;
    int         number = 0;
    while (done < bytes && !number) {
        const ssize_t n = dra_sys_write(fd, (const char *)data + done, bytes - done);
        if (n > 0)
            done += (size_t)n;
        else
            number = n < 0 ? errno : ENOSPC;
    }
    if (!number) return DRA_OK;
    if (done > 0 && end >= 0 && dra_sys_ftruncate(fd, end) != 0)
        return dra_fail_system(err, path, "cut it", errno);
    return dra_fail_system(err, path, "write it", number);
}

/* The numbers of a line but its step; what is null is not finite. */
static dra_status write_events(dra_events *events, json_t *line, dra_error *err)
{
    enum { MOST = 64 };
    dra_scalar  s[MOST];
    size_t      n = 0;
    const char *key;
    json_t     *value;
    json_object_foreach(line, key, value)
    {
        if (n == MOST || strcmp(key, "step") == 0) continue;
        if (json_is_number(value)) s[n++] = (dra_scalar){key, json_number_value(value)};
        if (json_is_null(value)) s[n++] = (dra_scalar){key, NAN};
    }
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    return n ? dra_events_write(events, step, n, s, err) : DRA_OK;
}

dra_status dra_runlog_write(dra_runlog *log, json_t *line, dra_error *err)
{
    char      *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    dra_status st = DRA_ERR_MEMORY;
    if (log->run && dra_trainer_here(log->run, err) != DRA_OK) {
        st = DRA_ERR_FILE;
    } else if (text) {
        const size_t n = strlen(text);
        text[n] = '\n'; /* over the 0 at its end */
        st = dra_append_whole(log->fd, log->path, text, n + 1, err);
    } else {
        dra_fail_at(err, st, log->path, "no memory for a line");
    }
    if (st == DRA_OK && log->events) st = write_events(log->events, line, err);
    json_decref(line);
    free(text);
    return st;
}

dra_status dra_runlog_sync(dra_runlog *log, dra_error *err)
{
    if (dra_sys_fsync(log->fd) == 0 || errno == EINVAL || errno == EROFS) return DRA_OK;
    return dra_fail_system(err, log->path, "sync it", errno);
}

void dra_put_real(json_t *object, const char *key, double x)
{
    json_object_set_new(object, key, isfinite(x) ? json_real(x) : json_null());
}
