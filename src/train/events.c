/* Event files: scalars over steps, as TensorBoard reads them. A file is a sequence of records
 *     length u64 | mask(crc(length)) u32 | data | mask(crc(data)) u32       little-endian
 * with crc = CRC-32C and mask(c) = (c rotated right by 15) + 0xa282ead8; data is a protobuf message
 *     Event {1: wall_time double, 2: step varint, 3: file_version | 5: Summary | 7: SessionLog}
 *     Summary {1: Value {1: tag, 2: simple_value float}, ...}    SessionLog {1: status, 1 = start}
 * The second record says that a session starts after a step: readers then drop what an earlier
 * file, of a run that was killed, has for later steps. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "file/fail.h"
#include "file/system.h"
#include "train/train.h"

struct dra_events {
    int  fd;
    char path[DRA_PATH];
};

/* ---- messages -------------------------------------------------------------------------------- */

enum { MESSAGE = 1 << 14, FRAME = 16 };

typedef struct message {
    size_t  n;
    bool    full; /* something did not fit */
    uint8_t data[MESSAGE];
} message;

static void put_data(message *m, const void *data, size_t bytes)
{
    if (bytes > sizeof m->data - m->n) {
        m->full = true;
        return;
    }
    if (bytes) memcpy(m->data + m->n, data, bytes);
    m->n += bytes;
}

static void put_little(message *m, uint64_t x, int bytes)
{
    uint8_t b[8];
    for (int i = 0; i < bytes; i++) b[i] = (uint8_t)(x >> 8 * i);
    put_data(m, b, (size_t)bytes);
}

static void put_varint(message *m, uint64_t x)
{
    for (; x > 127; x >>= 7) put_little(m, (x & 127) | 128, 1);
    put_little(m, x, 1);
}

/* How a field's value is written. */
enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_key(message *m, int field, enum wire wire)
{
    put_varint(m, (uint64_t)(field << 3 | (int)wire));
}

static void put_bytes(message *m, int field, const void *data, size_t bytes)
{
    put_key(m, field, BYTES);
    put_varint(m, bytes);
    put_data(m, data, bytes);
}

static void put_double(message *m, int field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, FIXED64);
    put_little(m, bits, 8);
}

static void put_float(message *m, int field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, FIXED32);
    put_little(m, bits, 4);
}

static void put_integer(message *m, int field, int64_t x)
{
    put_key(m, field, VARINT);
    put_varint(m, (uint64_t)x);
}

/* ---- records --------------------------------------------------------------------------------- */

/* CRC-32C bit by bit, the polynomial reflected: records are small and rare. */
uint32_t dra_crc32c(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint32_t       c = 0xffffffff;
    for (size_t i = 0; i < bytes; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (0x82f63b78 & (0 - (c & 1)));
    }
    return ~c;
}

static uint32_t masked_crc(const void *data, size_t bytes)
{
    const uint32_t c = dra_crc32c(data, bytes);
    return (c >> 15 | c << 17) + 0xa282ead8;
}

static dra_status write_record(dra_events *e, const message *body, dra_error *err)
{
    message record = {0};
    put_little(&record, body->n, 8);
    put_little(&record, masked_crc(record.data, 8), 4);
    put_data(&record, body->data, body->n);
    put_little(&record, masked_crc(body->data, body->n), 4);
    if (body->full || record.full)
        return dra_fail_at(err, DRA_ERR_VALUE, e->path, "a record of more than %d bytes",
                           MESSAGE - FRAME);
    return dra_append_whole(e->fd, e->path, record.data, record.n, err);
}

static message begin_event(int64_t step)
{
    struct timespec t;
    message         m = {0};
    clock_gettime(CLOCK_REALTIME, &t);
    put_double(&m, 1, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    put_integer(&m, 2, step);
    return m;
}

/* ---- files ----------------------------------------------------------------------------------- */

static dra_status write_start(dra_events *e, int64_t step, dra_error *err)
{
    static const char version[] = "brain.Event:2";
    message           first = begin_event(0), second = begin_event(step + 1), session = {0};
    put_bytes(&first, 3, version, sizeof version - 1);
    put_integer(&session, 1, 1);
    put_bytes(&second, 7, session.data, session.n);
    const dra_status st = write_record(e, &first, err);
    return st == DRA_OK ? write_record(e, &second, err) : st;
}

dra_status dra_events_create(const char *folder, int64_t step, dra_events **out, dra_error *err)
{
    struct timespec t;
    *out = NULL;
    dra_events *e = calloc(1, sizeof *e);
    if (!e) return dra_fail(err, DRA_ERR_MEMORY, "events: out of memory");
    e->fd = -1;
    clock_gettime(CLOCK_REALTIME, &t);
    /* Readers take files in the order of their names. */
    dra_status st = dra_path(e->path, err, "%s/events.out.tfevents.%010lld.%09ld.dra", folder,
                             (long long)t.tv_sec, t.tv_nsec);
    if (st == DRA_OK) e->fd = dra_sys_open(e->path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (st == DRA_OK && e->fd < 0) st = dra_fail_system(err, e->path, "make it", errno);
    if (st == DRA_OK) st = write_start(e, step, err);
    if (st == DRA_OK)
        *out = e;
    else
        dra_events_close(e);
    return st;
}

void dra_events_close(dra_events *e)
{
    if (e && e->fd >= 0) close(e->fd);
    free(e);
}

dra_status dra_events_sync(dra_events *e, dra_error *err)
{
    if (dra_sys_fsync(e->fd) == 0 || errno == EINVAL || errno == EROFS) return DRA_OK;
    return dra_fail_system(err, e->path, "sync it", errno);
}

dra_status dra_events_write(dra_events *e, int64_t step, size_t n, const dra_scalar *scalars,
                            dra_error *err)
{
    message event = begin_event(step), summary = {0};
    for (size_t i = 0; i < n; i++) {
        message value = {0};
        put_bytes(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
        put_float(&value, 2, (float)scalars[i].value);
        summary.full |= value.full;
        put_bytes(&summary, 1, value.data, value.n);
    }
    put_bytes(&event, 5, summary.data, summary.n);
    event.full |= summary.full;
    return write_record(e, &event, err);
}
