/* Files that a verb will write, tried before its work begins. */
#include "outputs.h"
#include "model.h"
#include "options/term.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_TEXT = 4096 };

static void name_folder(const char *path, char folder[PATH_TEXT])
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, PATH_TEXT, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
}

/* A name that ends as another format's would lie about what is in the file. */
static dra_status check_ending(const cli_option *o, const char *path, dra_error *err)
{
    static const char *const others[] = {"npy", "npz", "pt", "pth", "bin", "gguf", "json", "csv"};
    const char              *dot = strrchr(path, '.');
    for (size_t i = 0; i < COUNT(others) && dot; i++)
        if (strcmp(dot + 1, others[i]) == 0)
            return cli_error(err, DRA_ERR_FILE,
                             "--%s: expected a name such as %.*s.safetensors, "
                             "since that is what is written, found %.300s",
                             o->name, (int)(dot - path < 300 ? dot - path : 300), path, path);
    return DRA_OK;
}

/* A device or a pipe is what somebody meant. */
static dra_status try_path(const cli_option *o, const char *path, dra_error *err)
{
    char        folder[PATH_TEXT];
    struct stat s;
    const bool  there = cli_stat(path, &s) == 0;
    if (there && S_ISDIR(s.st_mode))
        return cli_error(err, DRA_ERR_FILE, "--%s: %.300s is a folder, expected a file", o->name,
                         path);
    if (there && !S_ISREG(s.st_mode)) return DRA_OK;
    name_folder(path, folder);
    if (access(folder, W_OK | X_OK) == 0) return DRA_OK;
    return cli_error(err, DRA_ERR_FILE, "--%s: %.300s cannot be written: its folder: %s", o->name,
                     path, cli_reason(errno));
}

dra_status cli_outputs_try(const cli_verb *verb, const void *args, dra_error *err)
{
    dra_status st = DRA_OK;
    for (size_t i = 0; i < verb->n_options && st == DRA_OK; i++) {
        const cli_option *o = &verb->options[i];
        if (!(o->flags & CLI_WRITES)) continue;
        const char *path = *(const char *const *)(const void *)((const char *)args + o->offset);
        if (!path || strcmp(path, "-") == 0) continue;
        if (o->flags & CLI_TENSORS) st = check_ending(o, path, err);
        if (st == DRA_OK) st = try_path(o, path, err);
    }
    return st;
}
