/* The inside of dra_file_writer, for tests that break it. */
#ifndef DRA_SRC_FILE_WRITER_H
#define DRA_SRC_FILE_WRITER_H

#include "base/hash.h"
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
    bool      seals;
    size_t    seal; /* where the digits of the hash are */
    dra_hash  hash; /* of what was written, where it seals */

    unsigned char buffer[DRA_WRITER_BUFFER];
};

/* Right after the beginning: the commit puts the digits of the hash of all bytes over those from
 * byte `at` on, which are written as zeros (seal.h). */
void dra_file_writer_seal(dra_file_writer *w, size_t at);

#endif
