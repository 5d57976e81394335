/* The inside of dra_file_writer, for tests that break it. */
#ifndef DRA_SRC_FILE_WRITER_H
#define DRA_SRC_FILE_WRITER_H

#include "dra/file.h"

enum { DRA_WRITER_BUFFER = 1 << 16 };

struct dra_file_writer {
    char     *path;      /* as the caller wrote it, for errors */
    char     *target;    /* the same with links followed */
    char     *name;      /* the last part of target */
    char     *temporary; /* next to it; NULL once renamed or when not made yet */
    int       folder, fd;
    dra_error first;
    size_t    used; /* of the buffer, which gathers small pieces */

    unsigned char buffer[DRA_WRITER_BUFFER];
};

#endif
