/* log.jsonl: one JSON object a line. Each line is appended by one write, so that a kill leaves
 * whole lines; a run that is resumed from step s first removes lines of later steps. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dra/file.h"
#include "file/fail.h"
#include "file/json.h"
#include "file/system.h"
#include "train/train.h"

enum { LOG_MOST = 1 << 30 };

/* Whether a line is one of ours and its step is at most `step`. */
static dra_status is_kept(const char *line, size_t bytes, int64_t step, bool *yes)
{
    json_error_t  found;
    json_t       *object;
    dra_status    st = dra_json_load(line, bytes, 0, &object, &found);
    const json_t *at = json_object_get(object, "step");
    *yes = json_is_integer(at) && json_integer_value(at) <= step;
    json_decref(object);
    return st == DRA_ERR_FORMAT ? DRA_OK : st;
}

/* Moves the lines that stay to the front; *kept: how many bytes they are. */
static dra_status keep_lines(char *text, size_t bytes, int64_t step, size_t *kept)
{
    dra_status st = DRA_OK;
    *kept = 0;
    for (size_t at = 0; at < bytes && st == DRA_OK;) {
        const char  *end = memchr(text + at, '\n', bytes - at);
        const size_t n = end ? (size_t)(end - text) + 1 - at : bytes - at;
        bool         stays = false;
        if (end) st = is_kept(text + at, n, step, &stays);
        if (stays) {
            memmove(text + *kept, text + at, n);
            *kept += n;
        }
        at += n;
    }
    return st;
}

static dra_status cut_log(const char *path, int64_t step, dra_error *err)
{
    char      *text = NULL;
    size_t     bytes = 0, kept;
    dra_status st = dra_file_read(path, LOG_MOST, &text, &bytes, err);
    if (st == DRA_OK) {
        st = keep_lines(text, bytes, step, &kept);
        if (st != DRA_OK) dra_fail_at(err, st, path, "out of memory for its lines");
        if (st == DRA_OK && kept < bytes) st = dra_file_write(path, text, kept, err);
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
    bool        yes = bytes == 0;
    if (end) is_kept(text, (size_t)(end - text), INT64_MAX, &yes);
    free(text);
    return yes;
}

dra_status dra_runlog_open(const char *path, int64_t step, dra_runlog *out, dra_error *err)
{
    dra_status st = DRA_OK;
    *out = (dra_runlog){.path = path, .fd = -1};
    if (dra_sys_exists(path)) st = cut_log(path, step, err);
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
    const off_t end = dra_sys_seek(fd, 0, SEEK_END);
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

/* The tag of a number, named as by transformers' Trainer: "eval_loss" becomes "eval/loss",
 * "grad_norm" "train/grad_norm". */
static const char *tag_of(const char *key, char tag[96])
{
    static const char *const others[][2] = {{"lr", "train/learning_rate"},
                                            {"best_loss", "eval/best_loss"}};
    const bool               eval = strncmp(key, "eval_", 5) == 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(key, others[i][0]) == 0) return others[i][1];
    snprintf(tag, 96, "%s/%s", eval ? "eval" : "train", eval ? key + 5 : key);
    return tag;
}

/* Writes the numbers of a line except its step; null means not finite. */
static dra_status write_events(dra_events *events, json_t *line, dra_error *err)
{
    enum { MOST = 64 };
    dra_scalar  s[MOST];
    char        tag[MOST][96];
    size_t      n = 0;
    const char *key;
    json_t     *value;
    json_object_foreach(line, key, value)
    {
        if (n == MOST || strcmp(key, "step") == 0) continue;
        if (!json_is_number(value) && !json_is_null(value)) continue;
        const double x = json_is_null(value) ? NAN : json_number_value(value);
        s[n] = (dra_scalar){tag_of(key, tag[n]), x};
        n++;
    }
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    return n ? dra_events_write(events, step, n, s, err) : DRA_OK;
}

dra_status dra_runlog_write(dra_runlog *log, dra_json *j, json_t *line, dra_error *err)
{
    char      *text = NULL;
    size_t     n = 0;
    dra_status st = log->run ? dra_trainer_here(log->run, err) : DRA_OK;
    if (j->not_finite) dra_json_set(j, line, "not_finite", dra_json_int(j, j->not_finite));
    if (st == DRA_OK)
        st = dra_json_dump(j, line, JSON_COMPACT | JSON_REAL_PRECISION(9), log->path, &text, &n,
                           err);
    if (st == DRA_OK) {
        text[n] = '\n'; /* replaces the final 0 */
        st = dra_append_whole(log->fd, log->path, text, n + 1, err);
    }
    if (st == DRA_OK && log->events) st = write_events(log->events, line, err);
    json_decref(line);
    free(text);
    return st;
}

dra_status dra_runlog_sync(dra_runlog *log, dra_error *err)
{
    const dra_status st = log->events ? dra_events_sync(log->events, err) : DRA_OK;
    if (st != DRA_OK) return st;
    if (dra_sys_fsync(log->fd) == 0 || errno == EINVAL || errno == EROFS) return DRA_OK;
    return dra_fail_system(err, log->path, "sync it", errno);
}
