/* Data that is too large for the repository: real tokenizers, tiny trained models. The folder is
 * named by DRA_SHARED_DATA, else it is ../shared/data of the source folder, in which tests run. */
#ifndef DRA_TESTS_SHARED_H
#define DRA_TESTS_SHARED_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The folder, or NULL. A variable that is set is meant, also where it names nothing. */
static inline const char *shared_data(void)
{
    static const char near[] = "../shared/data";
    const char       *named = getenv("DRA_SHARED_DATA");
    struct stat       s;
    if (named) return named;
    return stat(near, &s) == 0 && S_ISDIR(s.st_mode) ? near : NULL;
}

/* A file of it, to be closed; NULL: it is not there, and a line says so. */
static inline FILE *shared_file(const char *name)
{
    const char *from = shared_data();
    char        path[1024];
    snprintf(path, sizeof path, "%s/%s", from ? from : "", name);
    FILE *f = from ? fopen(path, "rb") : NULL;
    if (!f) printf("# no %s in %s\n", name, from ? from : "../shared/data or DRA_SHARED_DATA");
    return f;
}

#endif
