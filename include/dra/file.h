/* dra/file.h - files: whole ones, replaced at once or not at all, and safetensors.
 * Errors:  the text starts with the file's path. DRA_ERR_FILE: the system refuses (and says why);
 *          DRA_ERR_FORMAT: the bytes break a rule of their format; the others as in base.h.
 * Threads: open tensors are read-only and may be shared. A writer belongs to one thread at a
 *          time. Two writers of one path do not mix: the last commit wins, whole. */
#ifndef DRA_FILE_H
#define DRA_FILE_H

#include "dra/base.h"

#include <stdio.h>
DRA_BEGIN_C

/* ---- whole files ----------------------------------------------------------------------------- */

/* Reads a file, or a pipe to its end, of at most `limit` bytes. *data has a 0 after its last byte
 * and is the caller's, to be released by free(). On failure *data is NULL and *bytes 0. */
DRA_API dra_status dra_file_read(const char *path, size_t limit, char **data, size_t *bytes,
                                 dra_error *err);

/* Begin, write and commit in one. */
DRA_API dra_status dra_file_write(const char *path, const void *data, size_t bytes, dra_error *err);

/* ---- writing in pieces ----------------------------------------------------------------------- */

/* Writes to a temporary name in the same folder; the commit syncs, renames and syncs the folder. A
 * process killed at any moment leaves the old file or the new one, whole, and at worst a file
 * "NAME.PID-N.tmp" next to it. A link to a file is followed, a dangling one is replaced; the
 * permissions of an old file stay. What is not a regular file (a folder, a device) is refused. */
typedef struct dra_file_writer dra_file_writer; /* opaque */

/* On failure *out is NULL. */
DRA_API dra_status dra_file_writer_begin(const char *path, dra_file_writer **out, dra_error *err);

/* A writer keeps its first error: later calls do nothing and return it, so that only the commit
 * needs to be checked. */
DRA_API dra_status dra_file_writer_write(dra_file_writer *w, const void *data, size_t bytes,
                                         dra_error *err);

/* Both release the writer. A failed commit leaves the old file and no temporary; only where the
 * folder could not be synced, as the text then says, the new file is already there. */
DRA_API dra_status dra_file_writer_commit(dra_file_writer *w, dra_error *err);
DRA_API void       dra_file_writer_abort(dra_file_writer *w); /* NULL is allowed */

/* ---- streams --------------------------------------------------------------------------------- */

/* Like open_memstream(), which may silently lose a part of the text: here, ferror() and fclose()
 * report it if there is no memory. *text (to be freed, also then) and *bytes hold what was flushed;
 * rewind() starts over. NULL: no memory. */
DRA_API FILE *dra_stream_memory(char **text, size_t *bytes);

/* Like fopen() and fdopen() for reading, which give up if a signal interrupts them: here, reads are
 * repeated. fclose() closes the file. NULL: errno says why, and `fd` is still the caller's. */
DRA_API FILE *dra_stream_open(const char *path);
DRA_API FILE *dra_stream_from(int fd);

/* ---- safetensors: reading -------------------------------------------------------------------- */

/* A file mapped into memory. All rules of the format are checked when it is opened, so tensors are
 * inside the file and do not overlap. Replacing the file by a rename, as all writers here do, does
 * no harm while it is open; cutting it short does: touching what is gone ends the process. */
typedef struct dra_tensors dra_tensors; /* opaque */

typedef struct dra_tensor_info {
    const char *name;       /* UTF-8 without control characters */
    const char *dtype_name; /* as in the file: "F32", "I64", ... */
    dra_dtype   dtype;      /* DRA_DTYPE_COUNT where dra has no such type */
    dra_shape   shape;
    const void *data; /* dense, little-endian; NOT aligned: older files start anywhere */
    size_t      bytes;
} dra_tensor_info;

typedef struct dra_metadata_item {
    const char *key, *value; /* UTF-8 */
} dra_metadata_item;

/* On failure *out is NULL. Everything below that points somewhere is good until the close. */
DRA_API dra_status dra_tensors_open(const char *path, dra_tensors **out, dra_error *err);
DRA_API void       dra_tensors_close(dra_tensors *t); /* NULL is allowed */

DRA_API size_t                 dra_tensors_count(const dra_tensors *t);
DRA_API const dra_tensor_info *dra_tensors_at(const dra_tensors *t, size_t i); /* NULL beyond */
DRA_API const dra_tensor_info *dra_tensors_find(const dra_tensors *t, const char *name);

DRA_API size_t                   dra_tensors_metadata_count(const dra_tensors *t);
DRA_API const dra_metadata_item *dra_tensors_metadata_at(const dra_tensors *t, size_t i);
DRA_API const char              *dra_tensors_metadata(const dra_tensors *t, const char *key);

/* Copies a tensor of exactly this shape to `to`, aligned for `dtype`. Into F32 and F64 any of F16,
 * BF16, F32 and F64 is converted: exactly where the target is wider, else rounded to the nearest
 * (F64 to F32; too large becomes infinite). Every other dtype must be that of the file. BOOL holds
 * 0 and 1 only. On failure `to` is untouched. */
DRA_API dra_status dra_tensors_read(const dra_tensors *t, const char *name, dra_dtype dtype,
                                    dra_shape shape, void *to, dra_error *err);

/* Elements first..first+n-1 of a tensor, by the same conversions and without any check of the
 * shape. false: there is no such conversion, and `to` is untouched. */
DRA_API bool dra_tensor_copy(const dra_tensor_info *t, size_t first, size_t n, dra_dtype dtype,
                             void *to);

/* ---- safetensors: writing -------------------------------------------------------------------- */

typedef struct dra_tensor_item {
    const char *name; /* UTF-8 without control characters, not "__metadata__" */
    dra_dtype   dtype;
    dra_shape   shape;
    const void *data; /* dense; may be NULL where the shape has a 0 */
    /* Or data is made on demand, so that not all tensors are in memory at once: the result must be
     * valid until the next call. NULL: it failed, and err says why. */
    const void *(*make)(void *user, dra_error *err);
    void *user;
} dra_tensor_item;

/* Writes all items as one file, by a dra_file_writer. The order in the file is by width, widest
 * first, then by name, and data starts at a multiple of 64 bytes, so each tensor is aligned for its
 * type; equal items give equal bytes. */
DRA_API dra_status dra_tensors_write(const char *path, const dra_tensor_item *items, size_t n,
                                     const dra_metadata_item *metadata, size_t n_metadata,
                                     dra_error *err);

DRA_END_C
#endif
