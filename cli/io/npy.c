/* NumPy's format, version 1.0: a magic number, the length of the header in two bytes, the header as
 * a Python dictionary, filled up with blanks so that data starts at a multiple of 64 bytes. */
#include "npy.h"

#include <string.h>

enum { MAGIC = 8, ALIGN = 64, HEADER = 512, ROOM = HEADER - ALIGN };

dra_status cli_npy_write(const char *path, const char *descr, const char *shape, const void *data,
                         size_t bytes, dra_error *err)
{
    char             head[MAGIC + 2 + HEADER] = "\x93NUMPY\x01";
    char            *text = head + MAGIC + 2;
    dra_file_writer *w = NULL;
    const int        n = snprintf(text, ROOM, "{'descr': %s, %s'shape': (%s), }", descr,
                                  "'fortran_order': False, ", shape);
    if (n < 0 || n >= ROOM)
        return cli_error(err, DRA_ERR_VALUE, "%.200s: header of %d bytes", path, n);
    const size_t whole = (MAGIC + 2 + (size_t)n + 1 + ALIGN - 1) / ALIGN * ALIGN;
    const size_t length = whole - MAGIC - 2;
    memset(text + n, ' ', length - (size_t)n);
    text[length - 1] = '\n';
    head[MAGIC] = (char)(length & 0xff);
    head[MAGIC + 1] = (char)(length >> 8);
    const dra_status st = dra_file_writer_begin(path, &w, err);
    if (st != DRA_OK) return st;
    dra_file_writer_write(w, head, whole, err);
    dra_file_writer_write(w, data, bytes, err);
    return dra_file_writer_commit(w, err);
}
