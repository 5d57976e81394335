/* What a command did to the files of one folder, in order: written by `record`, read by `power`.
 * Files and folders are objects with numbers; object 0 is the folder itself. A recording is a row
 * of entries: this struct, both names without a 0 at their end, the bytes. The first entries make
 * what was there before; RECORD_START ends them. */
#ifndef DRA_TESTS_FAULTS_RECORDING_H
#define DRA_TESTS_FAULTS_RECORDING_H

#include <stdint.h>

typedef enum record_kind {
    RECORD_START,    /* the command starts: all before is safe */
    RECORD_END,      /* the command has ended */
    RECORD_CREATE,   /* `name` in folder `dir` is the new file `object` */
    RECORD_MKDIR,    /* ... the new folder `object` */
    RECORD_LINK,     /* ... another name of the file `object` */
    RECORD_RENAME,   /* `object` was `from_name` in `from`, and is `name` in `dir` */
    RECORD_UNLINK,   /* `name` in `dir`, a file or an empty folder, is gone */
    RECORD_WRITE,    /* `bytes` bytes of `object` at `offset` */
    RECORD_TRUNCATE, /* `object` has `offset` bytes */
    RECORD_SYNC,     /* of a file or a folder */
    RECORD_KINDS,
} record_kind;

typedef struct record_entry {
    int32_t  kind, object, dir, from;
    uint32_t name, from_name; /* their lengths */
    uint64_t offset, bytes;
} record_entry;

#endif
