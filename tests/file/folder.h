/* A folder of its own for each test program, removed at the end. */
#ifndef DRA_TESTS_FILE_FOLDER_H
#define DRA_TESTS_FILE_FOLDER_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char folder[256];

static inline int folder_make(void **state)
{
    const char *base = getenv("TMPDIR");
    const int   n = snprintf(folder, sizeof folder - 7, "%s/dra-test-", base ? base : "/tmp");
    if (n < 0 || n >= (int)sizeof folder - 7) return -1;
    memset(folder + n, 'X', 6); /* which mkdtemp replaces */
    folder[n + 6] = '\0';
    return mkdtemp(folder) ? 0 : -1;
}

/* The path of a name in the folder; good for the next eight calls. */
static inline const char *in_folder(const char *name)
{
    static char paths[8][1024];
    static int  next;
    char       *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%.300s/%.700s", folder, name);
    return path;
}

/* How many files are in the folder; `remove` deletes them. */
static inline int folder_files(bool remove_them)
{
    DIR           *d = opendir(folder);
    struct dirent *e;
    int            n = 0;
    assert_non_null(d);
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        n++;
        if (remove_them && unlink(in_folder(e->d_name)) != 0) rmdir(in_folder(e->d_name));
    }
    closedir(d);
    return n;
}

static inline int clean(void **state) /* the set-up of tests that count files */
{
    folder_files(true);
    return 0;
}

static inline int folder_remove(void **state)
{
    folder_files(true);
    return rmdir(folder);
}

/* Bytes as they are, by the plainest means. */
static inline const char *put_file(const char *name, const void *data, size_t bytes)
{
    const char *path = in_folder(name);
    FILE       *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline void check_file(const char *name, const void *data, size_t bytes)
{
    char *found = calloc(1, bytes + 2);
    FILE *f = fopen(in_folder(name), "rb");
    assert_non_null(f);
    assert_int_equal(fread(found, 1, bytes + 1, f), bytes);
    assert_memory_equal(found, data, bytes);
    fclose(f);
    free(found);
}

/* The error is this code; its text is the path of `name` and then `rest`. */
static inline void check_error(dra_error *err, dra_status code, const char *name, const char *rest)
{
    char text[DRA_ERROR_TEXT + 64];
    snprintf(text, sizeof text, "%s%s", in_folder(name), rest);
    assert_string_equal(err->text, text);
    assert_int_equal(err->code, code);
    *err = (dra_error){0};
}

#endif
