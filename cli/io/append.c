/* Appends lines to a file. */
#include "append.h"
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int open_again(const char *path, unsigned mode)
{
    int file;
    do file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, (mode_t)mode);
    while (file < 0 && errno == EINTR);
    return file;
}

static off_t end_of(int file)
{
    off_t at;
    do at = lseek(file, 0, SEEK_END);
    while (at < 0 && errno == EINTR);
    return at;
}

static ssize_t write_again(int file, const char *text, size_t bytes)
{
    ssize_t n;
    do n = write(file, text, bytes);
    while (n < 0 && errno == EINTR);
    return n;
}

static dra_status fail_system(const char *path, const char *what, int number, dra_error *err)
{
    return cli_error(err, DRA_ERR_FILE, "%.200s: cannot %s: %s", path, what, cli_reason(number));
}

dra_status cli_append(const char *path, unsigned mode, const char *text, size_t bytes,
                      dra_error *err)
{
    dra_status st = DRA_OK;
    const int  file = open_again(path, mode);
    if (file < 0) return fail_system(path, "open", errno, err);
    const off_t   end = end_of(file);
    const ssize_t n = write_again(file, text, bytes);
    if (n != (ssize_t)bytes) st = fail_system(path, "write", n < 0 ? errno : ENOSPC, err);
    if (n > 0 && st != DRA_OK && ftruncate(file, end) != 0)
        st = fail_system(path, "cut", errno, err);
    close(file);
    return st;
}
