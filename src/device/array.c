/* Arrays: memory of a device, and the functions that cross between it and the host. */
#include <stdlib.h>

#include "device/device.h"

void dra_arrays_open(dra_arrays *a)
{
    *a = (dra_arrays){0};
    pthread_mutex_init(&a->lock, NULL);
}

static void release_array(dra_array *a)
{
    if (!a->borrowed) a->device->table->free(a->device, a->data, a->bytes);
    a->data = NULL;
    a->device = NULL;
    a->bytes = 0;
    a->serial = 0;
}

void dra_arrays_close(dra_device *d)
{
    dra_arrays *all = &d->arrays;
    for (dra_array *a = all->live, *next; a; a = next) {
        next = a->next;
        release_array(a);
    }
    for (size_t i = 0; i < DRA_ARRAYS_GONE; i++) free(all->gone[i]);
    pthread_mutex_destroy(&all->lock);
}

/* ---- making and unmaking --------------------------------------------------------------------- */

static void add_array(dra_device *d, dra_array *a)
{
    dra_arrays *all = &d->arrays;
    pthread_mutex_lock(&all->lock);
    a->serial = ++all->made;
    a->next = all->live;
    if (all->live) all->live->before = a;
    all->live = a;
    pthread_mutex_unlock(&all->lock);
}

static dra_status make_array(dra_device *d, size_t bytes, const void *lent, dra_array **out,
                             dra_error *err)
{
    *out = NULL;
    if (!d) return dra_fail(err, DRA_ERR_VALUE, "array: no device");
    dra_array *a = calloc(1, sizeof *a);
    if (a)
        *a = (dra_array){.device = d,
                         .data = (unsigned char *)(uintptr_t)lent,
                         .bytes = bytes,
                         .borrowed = lent != NULL,
                         .read_only = lent != NULL};
    if (a && !lent) a->data = d->table->alloc(d, bytes);
    if (!a || !a->data) {
        free(a);
        if (d->table->available)
            return dra_fail(err, DRA_ERR_MEMORY,
                            "array: out of memory for %zu bytes, the device has %zu left", bytes,
                            d->table->available(d));
        return dra_fail(err, DRA_ERR_MEMORY, "array: out of memory for %zu bytes", bytes);
    }
    add_array(d, a);
    *out = a;
    return DRA_OK;
}

dra_status dra_array_create(dra_device *device, size_t bytes, dra_array **out, dra_error *err)
{
    return make_array(device, bytes, NULL, out, err);
}

static dra_status upload_loans(const dra_loan *list, size_t n, dra_error *err)
{
    dra_send *sends = calloc(n + 1, sizeof *sends);
    if (!sends) return dra_fail(err, DRA_ERR_MEMORY, "array: out of memory");
    for (size_t i = 0; i < n; i++)
        sends[i] = (dra_send){dra_array_whole(list[i].array), list[i].data};
    const dra_status st = dra_arrays_send(sends, n, err);
    free(sends);
    return st;
}

dra_status dra_arrays_borrow(dra_device *device, dra_loan *list, size_t n, dra_error *err)
{
    const bool borrows = device && device->table->borrows;
    dra_status st = DRA_OK;
    for (size_t i = 0; i < n; i++) list[i].array = NULL;
    for (size_t i = 0; i < n && st == DRA_OK; i++)
        if (!list[i].data && list[i].bytes)
            st = dra_fail(err, DRA_ERR_VALUE, "array: no memory to borrow");
        else
            st = make_array(device, list[i].bytes, borrows ? list[i].data : NULL, &list[i].array,
                            err);
    if (st == DRA_OK && !borrows) st = upload_loans(list, n, err);
    for (size_t i = 0; i < n && st == DRA_OK; i++) list[i].array->read_only = true;
    for (size_t i = 0; i < n && st != DRA_OK; i++) {
        dra_array_destroy(list[i].array);
        list[i].array = NULL;
    }
    return st;
}

dra_status dra_array_borrow(dra_device *device, const void *data, size_t bytes, dra_array **out,
                            dra_error *err)
{
    dra_loan         loan = {data, bytes, NULL};
    const dra_status st = dra_arrays_borrow(device, &loan, 1, err);
    *out = loan.array;
    return st;
}

dra_status dra_array_wrap(dra_device *device, void *data, size_t bytes, dra_array **out,
                          dra_error *err)
{
    *out = NULL;
    if (!data && bytes) return dra_fail(err, DRA_ERR_VALUE, "array: no memory to wrap");
    const dra_status st = make_array(device, bytes, data, out, err);
    if (st == DRA_OK) (*out)->read_only = false;
    return st;
}

/* The handle is kept for a while, so that a binding that still names it is detected. */
void dra_array_destroy(dra_array *a)
{
    if (!a) return;
    if (!a->device) { /* went with its device */
        free(a);
        return;
    }
    dra_arrays *all = &a->device->arrays;
    pthread_mutex_lock(&all->lock);
    if (a->next) a->next->before = a->before;
    if (a->before)
        a->before->next = a->next;
    else
        all->live = a->next;
    free(all->gone[all->next_gone]);
    all->gone[all->next_gone] = a;
    all->next_gone = (all->next_gone + 1) % DRA_ARRAYS_GONE;
    release_array(a);
    pthread_mutex_unlock(&all->lock);
}

/* ---- spans ----------------------------------------------------------------------------------- */

dra_span dra_array_whole(dra_array *a) { return (dra_span){a, 0, a ? a->bytes : 0}; }

void *dra_span_data(dra_span s) { return s.array && s.array->device ? dra_span_address(s) : NULL; }

dra_span dra_span_part(dra_span s, size_t offset, size_t bytes)
{
    if (!s.array || offset > s.bytes || bytes > s.bytes - offset) return (dra_span){0};
    return (dra_span){s.array, s.offset + offset, bytes};
}

dra_status dra_span_check(dra_span s, const char *place, const char *name, dra_error *err)
{
    const dra_array *a = s.array;
    if (!a) return dra_fail(err, DRA_ERR_VALUE, "%s: '%s' gets no memory", place, name);
    if (!a->device)
        return dra_fail(err, DRA_ERR_VALUE, "%s: the array of '%s' is gone", place, name);
    if (s.offset <= a->bytes && s.bytes <= a->bytes - s.offset) return DRA_OK;
    return dra_fail(err, DRA_ERR_SHAPE, "%s: '%s' wants bytes %zu to %zu of an array of %zu", place,
                    name, s.offset, s.offset + s.bytes, a->bytes);
}

dra_device *dra_span_device(dra_span s) { return s.array ? s.array->device : NULL; }

void *dra_span_on_host(dra_span s)
{
    const dra_device *d = dra_span_device(s);
    return d && d->table->borrows ? dra_span_address(s) : NULL;
}

const void *dra_span_see(dra_span s, void **copy, size_t *room, dra_error *err)
{
    if (dra_span_check(s, "download", "from", err) != DRA_OK) return NULL;
    if (dra_span_on_host(s)) return dra_span_on_host(s);
    if (!*copy || *room < s.bytes) {
        free(*copy);
        *copy = malloc(s.bytes + 1);
        *room = *copy ? s.bytes : 0;
    }
    if (!*copy) {
        dra_fail(err, DRA_ERR_MEMORY, "download: out of memory for %zu bytes", s.bytes);
        return NULL;
    }
    return dra_array_download(*copy, s, err) == DRA_OK ? *copy : NULL;
}

dra_status dra_arrays_send(const dra_send *list, size_t n, dra_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const dra_status st = dra_span_check(list[i].to, "upload", "to", err);
        if (st != DRA_OK) return st;
        bytes += list[i].to.bytes;
    }
    if (bytes == 0) return DRA_OK;
    dra_device *d = list[0].to.array->device;
    return d->table->upload(d, list, n, err);
}

dra_status dra_array_upload(dra_span to, const void *from, dra_error *err)
{
    return dra_arrays_send(&(dra_send){to, from}, 1, err);
}

dra_status dra_arrays_fetch(const dra_fetch *list, size_t n, dra_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const dra_status st = dra_span_check(list[i].from, "download", "from", err);
        if (st != DRA_OK) return st;
        bytes += list[i].from.bytes;
    }
    if (bytes == 0) return DRA_OK;
    dra_device *d = list[0].from.array->device;
    __atomic_fetch_add(&d->waits, 1, __ATOMIC_RELAXED); /* threads may share a device */
    return d->table->download(d, list, n, err);
}

dra_status dra_array_download(void *to, dra_span from, dra_error *err)
{
    return dra_arrays_fetch(&(dra_fetch){to, from}, 1, err);
}

dra_status dra_array_fill(dra_span to, dra_real value, dra_error *err)
{
    const dra_status st = dra_span_check(to, "fill", "to", err);
    if (st != DRA_OK || to.bytes == 0) return st;
    dra_device *d = to.array->device;
    return d->table->fill(d, dra_span_address(to), value, to.bytes / sizeof value, err);
}

/* From one device to another: through the host. */
static dra_status copy_between(dra_span to, dra_span from, dra_error *err)
{
    void       *copy = NULL;
    size_t      room = 0;
    const void *data = dra_span_see(from, &copy, &room, err);
    dra_status  st = data ? dra_array_upload(to, data, err) : DRA_ERR_MEMORY;
    free(copy);
    return st;
}

dra_status dra_array_copy(dra_span to, dra_span from, dra_error *err)
{
    dra_status st = dra_span_check(to, "copy", "to", err);
    if (st == DRA_OK) st = dra_span_check(from, "copy", "from", err);
    if (st != DRA_OK) return st;
    if (to.bytes != from.bytes)
        return dra_fail(err, DRA_ERR_SHAPE, "copy: %zu bytes into %zu", from.bytes, to.bytes);
    dra_device *d = to.array->device;
    if (to.bytes == 0) return DRA_OK;
    if (d != from.array->device) return copy_between(to, from, err);
    return d->table->copy(d, dra_span_address(to), dra_span_address(from), to.bytes, err);
}

dra_status dra_device_order(dra_device *device, void *stream, bool back, dra_error *err)
{
    if (!device) return dra_fail(err, DRA_ERR_VALUE, "device: expected one");
    return device->table->order ? device->table->order(device, stream, back, err) : DRA_OK;
}
