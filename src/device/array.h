/* What the rest of the library knows of arrays beyond dra/device.h. */
#ifndef DRA_SRC_ARRAY_H
#define DRA_SRC_ARRAY_H

#include "dra/device.h"

/* Is the span inside an array that is there? The error says what is wrong with `name`. */
dra_status dra_span_check(dra_span s, const char *place, const char *name, dra_error *err);

dra_device *dra_span_device(dra_span s); /* NULL: of none */

/* Where the host sees a span, if the device computes in the host's memory; else NULL. */
void *dra_span_on_host(dra_span s);
/* The bytes of a span as the host sees them, for reading: where they are, or downloaded into *copy,
 * which grows to *room bytes. NULL: an error. */
const void *dra_span_see(dra_span s, void **copy, size_t *room, dra_error *err);

enum { DRA_FETCHES = 16 }; /* of one wait for a session */

typedef struct dra_fetch { /* bytes that the host wants to have */
    void    *to;
    dra_span from;
} dra_fetch;

/* Downloads all of them, which are of one device, by waiting for it once. */
dra_status dra_arrays_fetch(const dra_fetch *list, size_t n, dra_error *err);

typedef struct dra_send { /* bytes that a device is to have */
    dra_span    to;
    const void *from;
} dra_send;

/* Uploads all of them, which are of one device; large ones one after the other without a gap. */
dra_status dra_arrays_send(const dra_send *list, size_t n, dra_error *err);

typedef struct dra_loan { /* memory of the host, see dra_array_borrow() */
    const void *data;
    size_t      bytes;
    dra_array  *array; /* what it becomes */
} dra_loan;

/* dra_array_borrow() of them all, by one upload. After an error there are no arrays. */
dra_status dra_arrays_borrow(dra_device *device, dra_loan *list, size_t n, dra_error *err);

#endif
