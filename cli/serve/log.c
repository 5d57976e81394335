/* --log: a line of JSON for every request that has ended. */
#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool serve_log_open(serve *s, dra_error *err)
{
    const char *path = s->args->log;
    if (!path) return true;
    const bool screen = strcmp(path, "-") == 0;
    const int  log = screen ? STDOUT_FILENO
                            : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (log < 0) {
        cli_error(err, DRA_ERR_FILE, "--log %.200s: %s", path, strerror(errno));
        return false;
    }
    serve_log_close(s);
    s->log = log;
    return true;
}

void serve_log_close(serve *s)
{
    if (s->log >= 0 && s->log != STDOUT_FILENO) close(s->log);
    s->log = -1;
}

/* Lines that a full disk does not take are lost; requests go on. */
static void write_line(const serve *s, const serve_text *t)
{
    for (size_t done = 0; done < t->n;) {
        const ssize_t n = write(s->log, t->data + done, t->n - done);
        if (n < 0 && errno != EINTR) return;
        if (n > 0) done += (size_t)n;
    }
}

static void put_time(serve_text *t)
{
    struct timespec now = {0};
    struct tm       utc = {0};
    char            text[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    serve_printf(t, "{\"time\": \"%s.%03ldZ\"", text, now.tv_nsec / 1000000);
}

static void put_word(serve_text *t, const char *name, const char *word)
{
    serve_printf(t, ", \"%s\": ", name);
    serve_json_word(t, word && word[0] ? word : NULL);
}

static void put_count(serve_text *t, const char *name, bool known, int64_t n)
{
    serve_printf(t, ", \"%s\": ", name);
    if (known)
        serve_json_int(t, n);
    else
        serve_puts(t, "null");
}

static void put_seconds(serve_text *t, const char *name, double seconds)
{
    if (seconds >= 0)
        serve_printf(t, ", \"%s\": %.6f", name, seconds);
    else
        serve_printf(t, ", \"%s\": null", name);
}

void serve_log(void *user, const http_head *h, const http_record *r)
{
    serve     *s = user;
    serve_text t = {0};
    if (s->log < 0) return;
    put_time(&t);
    put_word(&t, "id", r->id);
    put_word(&t, "method", h->method);
    put_word(&t, "path", h->method ? h->path : NULL);
    put_count(&t, "status", r->status > 0, r->status);
    put_word(&t, "key", r->key);
    put_word(&t, "model", r->model);
    put_count(&t, "prompt_tokens", r->counted, r->prompt);
    put_count(&t, "cached_tokens", r->counted, r->cached);
    put_count(&t, "completion_tokens", r->counted, r->written);
    put_seconds(&t, "first_token_seconds", r->first > 0 ? r->first - r->began : -1);
    put_seconds(&t, "seconds", serve_now() - r->began);
    if (r->left) serve_puts(&t, ", \"left\": true");
    serve_puts(&t, "}\n");
    if (!t.failed) write_line(s, &t);
    serve_text_free(&t);
}
