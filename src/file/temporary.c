/* Temporary files. */
#include "file/temporary.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

FILE *dra_temporary_open(void)
{
    char        path[512];
    const char *folder = getenv("TMPDIR");
    const char  any[] = {'X', 'X', 'X', 'X', 'X', 'X', 0}; /* for mkstemp to choose */
    snprintf(path, sizeof path, "%s/dra-tokens-%s", folder && *folder ? folder : "/tmp", any);
    const int fd = mkstemp(path);
    if (fd < 0) return NULL;
    unlink(path);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    FILE *f = fdopen(fd, "w+b");
    if (!f) close(fd);
    return f;
}

bool dra_temporary_map(FILE *f, dra_file_map *out)
{
    *out = (dra_file_map){0};
    if (fflush(f) != 0) return false;
    const long bytes = ftell(f);
    if (bytes <= 0) return bytes == 0;
    void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fileno(f), 0);
    if (data == MAP_FAILED) return false;
    *out = (dra_file_map){data, (size_t)bytes};
    return true;
}
