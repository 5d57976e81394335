/* Logs of runs: lines as reports read them, and the log that a resumed run appends to. What must
 * hold:
 *   - keys and texts of a line that was taken apart are inside of it;
 *   - a log is opened whatever it holds; what is no line of it is cut off. */
#include "report/jsonl.h"
#include "harness.h"
#include "train/train.h"

enum { LIST = 8, STEP = 5 };

static char path[FUZZ_PATH];

static void make(fuzz_bytes *b)
{
    char line[128];
    for (uint32_t i = 0, n = 1 + below(6); i < n; i++) {
        snprintf(line, sizeof line, "{\"step\":%u,\"loss\":%u.5,\"lr\":1e-3", i + 1, below(9));
        say(b, line);
        say(b, (const char *[]){"", ",\"text\":\"a\\u00e9\\ud83d\\ude00\"", ",\"x\":null",
                                ",\"list\":[\"a\",\"b\"],\"o\":{\"a\":[{}]}"}[below(4)]);
        say(b, "}\n");
    }
}

static void check_text(const char *text, const char *line, size_t n)
{
    if (text < line || text > line + n || text + strlen(text) > line + n)
        broken("a text outside its line");
}

/* Returns whether it is an object. */
static bool try_line(const uint8_t *data, size_t n)
{
    char       *line = malloc(n + 1);
    cli_member  members[CLI_MEMBERS];
    const char *texts[LIST];
    if (!line) broken("no memory");
    memcpy(line, data, n);
    line[n] = 0;
    const int count = cli_line_read(line, members);
    for (int i = 0; i < count; i++) {
        const cli_member *m = &members[i];
        check_text(m->key, line, n);
        if (m->kind == CLI_MEMBER_TEXT) check_text(m->text, line, n);
    }
    for (int i = count - 1; i >= 0; i--) { /* from the end: reading a list changes it */
        const cli_member *m = &members[i];
        if (m->kind != CLI_MEMBER_OTHER || *m->at != '[') continue;
        const int some = cli_list_read(line + (m->at - line), texts, LIST);
        for (int k = 0; k < some && k < LIST; k++) check_text(texts[k], line, n);
    }
    free(line);
    return count >= 0;
}

static void try_log(const uint8_t *data, size_t bytes)
{
    dra_runlog log;
    dra_error  err = {0};
    put_file(path, data, bytes);
    dra_runlog_is(path);
    must(dra_runlog_open(path, STEP, &log, &err), &err);
    dra_runlog_close(&log);
}

int harness(const uint8_t *data, size_t bytes)
{
    bool all = bytes > 0;
    try_log(data, bytes);
    for (size_t at = 0; at < bytes;) {
        const uint8_t *end = memchr(data + at, '\n', bytes - at);
        const size_t   n = end ? (size_t)(end - data) - at : bytes - at;
        all = try_line(data + at, n) && all;
        at += n + 1;
    }
    return all;
}

static void begin(void) { fuzz_path(path); }
static void end(void) { unlink(path); }

static const char *const words[] = {"{", "}",  "[",         "]",       "\"",   ",",
                                    ":", "\\", "\\ud83d",   "\\u0000", "null", "1e999",
                                    "-", "\n", "\"step\":", "true",    "\xff", NULL};

const fuzz_subject fuzz_this = {.words = words, .begin = begin, .end = end, .make = make};
