/* What the system says about this process and its machine; what it does not say is left out. */
#include "started.h"
#include "jsonl.h"
#include "io/model.h"
#include "options/term.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { PATH_TEXT = 4096, COMMAND = 8192, FILE_MOST = 1 << 24 };

/* ---- the command ----------------------------------------------------------------------------- */

static bool is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=+,./:@%";
    return *word && word[strspn(word, plain)] == '\0';
}

/* As a shell would read it. */
static void write_word(const char *word, FILE *out)
{
    if (is_plain(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++) fputs(*word == '\'' ? "'\\''" : (char[]){*word, '\0'}, out);
    fputc('\'', out);
}

/* The words of this process, the program by its name alone, to be freed; NULL: not known. False: no
 * memory. */
static bool find_command(char **text)
{
    char      *words = NULL;
    size_t     n = 0, bytes = 0;
    dra_status st = dra_file_read("/proc/self/cmdline", FILE_MOST, &words, &n, NULL);
    *text = NULL;
    if (st != DRA_OK || n == 0) {
        free(words);
        return st != DRA_ERR_MEMORY;
    }
    if (n > COMMAND) words[n = COMMAND] = '\0';
    FILE *out = dra_stream_memory(text, &bytes);
    for (size_t at = 0; out && at < n; at += strlen(words + at) + 1) {
        const char *slash = at ? NULL : strrchr(words, '/');
        if (at) fputc(' ', out);
        write_word(slash ? slash + 1 : words + at, out);
    }
    free(words);
    return out && fclose(out) == 0;
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* The name of the processor, else its architecture. False: no memory. */
static bool find_processor(char name[256])
{
    char          *text = NULL;
    size_t         bytes = 0;
    struct utsname system;
    snprintf(name, 256, "%s", uname(&system) == 0 ? system.machine : "");
    const dra_status st = dra_file_read("/proc/cpuinfo", FILE_MOST, &text, &bytes, NULL);
    if (st != DRA_OK) return st != DRA_ERR_MEMORY;
    const char *line = strstr(text, "model name"), *value = line ? strchr(line, ':') : NULL;
    if (value) {
        value += 1 + strspn(value + 1, " \t");
        snprintf(name, 256, "%.*s", (int)strcspn(value, "\n"), value);
    }
    free(text);
    return true;
}

static void write_text(const char *key, const char *value, FILE *out)
{
    if (!value || !*value) return;
    fprintf(out, ", \"%s\": ", key);
    cli_json_text(value, out);
}

static void write_facts(const dra_device *device, const char *command, const char *processor,
                        FILE *out)
{
    char         date[32] = "";
    const time_t now = time(NULL);
    struct tm    utc;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    fprintf(out, "{\"threads\": %d", dra_device_threads(device));
    write_text("date", date, out);
    write_text("command", command, out);
    write_text("processor", processor, out);
    write_text("level", dra_device_level(device), out);
    write_text("version", dra_version(), out);
    fputs("}\n", out);
}

/* False: no memory for what is to be said. */
static bool write_start(const dra_device *device, FILE *out)
{
    char       processor[256], *command;
    const bool known = find_command(&command) && find_processor(processor);
    if (known) write_facts(device, command, processor, out);
    free(command);
    return known;
}

/* ---- the file -------------------------------------------------------------------------------- */

dra_status cli_started_note(const char *run, const dra_device *device, bool more, dra_error *err)
{
    char   path[PATH_TEXT], *before = NULL, *text = NULL;
    size_t n = 0, bytes = 0;
    if (!cli_path(run, "train/started.jsonl", path, sizeof path))
        return cli_error(err, DRA_ERR_FILE, "%.80s...: the path is too long", run);
    if (more && cli_is_there(path)) {
        const dra_status st = dra_file_read(path, FILE_MOST, &before, &n, err);
        if (st != DRA_OK) return st;
    }
    FILE *out = dra_stream_memory(&text, &bytes);
    if (out && n) fwrite(before, 1, n, out);
    const bool known = out && write_start(device, out);
    dra_status st = out && fclose(out) == 0 && known
                        ? dra_file_write(path, text, bytes, err)
                        : cli_error(err, DRA_ERR_MEMORY, "%.200s: out of memory", path);
    free(before);
    free(text);
    return st;
}

bool cli_started_command(const char *run, char *text, size_t size)
{
    char       path[PATH_TEXT], *lines = NULL;
    size_t     bytes = 0;
    cli_member m[CLI_MEMBERS];
    text[0] = '\0';
    if (!cli_path(run, "train/started.jsonl", path, sizeof path) ||
        dra_file_read(path, FILE_MOST, &lines, &bytes, NULL) != DRA_OK)
        return false;
    while (bytes && lines[bytes - 1] == '\n') lines[--bytes] = '\0';
    char     *end = strrchr(lines, '\n');
    const int n = cli_line_read(end ? end + 1 : lines, m);
    for (int i = 0; i < n; i++)
        if (m[i].kind == CLI_MEMBER_TEXT && strcmp(m[i].key, "command") == 0 &&
            strlen(m[i].text) < size)
            snprintf(text, size, "%s", m[i].text);
    free(lines);
    return text[0];
}
