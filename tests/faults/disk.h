/* A disk that may lose power: what of a recording is safe at a moment, and what a power loss then
 * may leave. The model, stricter than any common file system:
 *   - Bytes of a file are safe after a sync of that file. Before, it holds any prefix of its
 *     changes, the next one perhaps cut in half; or it has its new length, with zeros in place of
 *     new bytes that were not written yet (delayed allocation).
 *   - Names are safe after a sync of the folder they are in; a sync of the file does not help.
 *     Before, a folder holds any prefix of its changes, whatever other folders hold; or one later
 *     change alone, without those before it (no journal).
 *   - A rename is one change. Between two folders it belongs to the one it leads to; when it is
 *     safe, so is what happened before it in the other.
 * What an object holds is a number from 0 (nothing of its changes) to disk_choices() - 1. */
#ifndef DRA_TESTS_FAULTS_DISK_H
#define DRA_TESTS_FAULTS_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "recording.h"

typedef struct disk_change {
    record_entry         e;
    const char          *name, *from_name;
    const unsigned char *data;
    int                  place; /* among the unsafe changes of its object; -1: it is safe */
} disk_change;

typedef struct disk_name {
    const char *text;
    uint32_t    length;
    int         object;
} disk_name;

typedef struct disk_folder {
    disk_name *name;
    int        n, room;
} disk_folder;

typedef struct disk_object {
    bool           is_folder;
    disk_folder    safe;  /* names */
    unsigned char *bytes; /* that are safe */
    size_t         n_bytes;
    int           *change, n, room; /* that are not safe */
    disk_name      called;          /* last, for messages */
} disk_object;

typedef struct disk {
    unsigned char *recording;
    disk_change   *change;
    int            n_changes, now, start; /* now: changes made; start: those before the command */
    disk_object   *object;
    int            n_objects;
} disk;

void disk_open(disk *d, const char *recording); /* as the command starts */
void disk_close(disk *d);
void disk_rewind(disk *d);
bool disk_next(disk *d); /* makes the next change; false: there is none */

int  disk_choices(const disk *d, int object);
int  disk_all(const disk *d, int object);    /* the choice of all changes */
int  disk_newest(const disk *d, int object); /* a folder: its newest change alone; else nothing */
void disk_describe(const disk *d, int object, int choice, char *text, size_t size);

/* Of what the choices, one for each object, leave. */
uint64_t disk_hash(const disk *d, const int *choice);
bool     disk_write(const disk *d, const int *choice, const char *folder);

#endif
