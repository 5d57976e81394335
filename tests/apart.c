#include "apart.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"

static const size_t MOST = (size_t)8 << 30;

typedef struct pages { /* of one array; the page after it stays closed for good */
    struct pages  *next;
    unsigned char *map, *data;
    size_t         mapped, bytes;
} pages;

/* All arrays of all such devices. One operation at a time, so that no thread closes pages that
 * another one works on. */
static pthread_mutex_t         lock = PTHREAD_MUTEX_INITIALIZER;
static pages                  *all;
static const dra_device_table *cpu; /* the table of plain CPU devices */
static dra_device_table        apart;

/* ---- memory ---------------------------------------------------------------------------------- */

static void set_rights(const pages *p, int rights) { mprotect(p->map, p->mapped, rights); }

static void open_all(void)
{
    pthread_mutex_lock(&lock);
    for (const pages *p = all; p; p = p->next) set_rights(p, PROT_READ | PROT_WRITE);
}

static void close_all(void)
{
    for (const pages *p = all; p; p = p->next) set_rights(p, PROT_NONE);
    pthread_mutex_unlock(&lock);
}

static const pages *find(const void *at, size_t bytes)
{
    const unsigned char *from = at;
    for (const pages *p = all; p; p = p->next)
        if (from >= p->data && from + bytes <= p->data + p->bytes) return p;
    return NULL;
}

/* The array ends with its last page, or less than 64 bytes before, to stay aligned. */
static void *alloc(dra_device *d, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    pages       *p = calloc(1, sizeof *p);
    if (!p || bytes > MOST) { /* there is only so much, as on a card */
        free(p);
        return NULL;
    }
    const size_t used = (bytes + 63) / 64 * 64;
    p->bytes = bytes;
    p->mapped = (used / page + 1) * page;
    p->map = mmap(NULL, p->mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->map == MAP_FAILED) {
        free(p);
        return NULL;
    }
    p->data = p->map + p->mapped - used;
    pthread_mutex_lock(&lock);
    p->next = all;
    all = p;
    pthread_mutex_unlock(&lock);
    return p->data;
}

static void release(dra_device *d, void *data, size_t bytes)
{
    pthread_mutex_lock(&lock);
    for (pages **at = &all; *at; at = &(*at)->next) {
        pages *p = *at;
        if (p->data != data) continue;
        *at = p->next;
        munmap(p->map, p->mapped + (size_t)sysconf(_SC_PAGESIZE));
        free(p);
        break;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static dra_status fail(dra_error *err, const char *text)
{
    if (err) {
        err->code = DRA_ERR_DEVICE;
        snprintf(err->text, sizeof err->text, "%s", text);
    }
    return DRA_ERR_DEVICE;
}

/* Opens what [at, at + bytes) is part of. */
static const pages *open_one(const void *at, size_t bytes)
{
    const pages *p = find(at, bytes);
    if (p) set_rights(p, PROT_READ | PROT_WRITE);
    return p;
}

static dra_status move(void *to, const void *from, size_t bytes, bool to_is_ours, bool from_is_ours,
                       dra_error *err)
{
    pthread_mutex_lock(&lock);
    const pages *a = to_is_ours ? open_one(to, bytes) : NULL;
    const pages *b = from_is_ours ? open_one(from, bytes) : NULL;
    const bool   ok = (a || !to_is_ours) && (b || !from_is_ours);
    if (ok) memmove(to, from, bytes);
    if (a) set_rights(a, PROT_NONE);
    if (b) set_rights(b, PROT_NONE);
    pthread_mutex_unlock(&lock);
    return ok ? DRA_OK : fail(err, "apart: a transfer outside the device's memory");
}

static dra_status upload(dra_device *d, const dra_send *list, size_t n, dra_error *err)
{
    dra_status st = DRA_OK;
    for (size_t i = 0; i < n && st == DRA_OK; i++)
        st = move(dra_span_address(list[i].to), list[i].from, list[i].to.bytes, true, false, err);
    return st;
}

static dra_status download(dra_device *d, const dra_fetch *list, size_t n, dra_error *err)
{
    dra_status st = DRA_OK;
    for (size_t i = 0; i < n && st == DRA_OK; i++)
        st = move(list[i].to, dra_span_address(list[i].from), list[i].from.bytes, false, true, err);
    return st;
}

static dra_status copy(dra_device *d, void *to, const void *from, size_t bytes, dra_error *err)
{
    return move(to, from, bytes, true, true, err);
}

static dra_status fill(dra_device *d, void *to, dra_real value, size_t count, dra_error *err)
{
    pthread_mutex_lock(&lock);
    const pages *p = open_one(to, count * sizeof value);
    dra_status   st = p ? cpu->fill(d, to, value, count, err)
                        : fail(err, "apart: a transfer outside the device's memory");
    if (p) set_rights(p, PROT_NONE);
    pthread_mutex_unlock(&lock);
    return st;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool knows_all(const dra_launch *l)
{
    for (size_t i = 0; i < l->n_storage; i++) {
        const dra_storage *s = &l->storage[i];
        const bool         unused = s->kind == DRA_STORAGE_LOCAL && s->first < 0;
        if (s->alias >= 0 || s->kind == DRA_STORAGE_MOVING || unused || !l->base[i]) continue;
        if (!find(l->base[i], s->bytes)) return false;
    }
    return find(l->fault, sizeof *l->fault) != NULL;
}

static dra_status run(dra_device *d, const dra_launch *l, int32_t block, dra_error *err)
{
    open_all();
    dra_status st = knows_all(l) ? cpu->run(d, l, block, err)
                                 : fail(err, "apart: a block was handed memory of the host");
    close_all();
    return st;
}

dra_status apart_create(const dra_cpu_config *config, dra_device **out, dra_error *err)
{
    const dra_status st = dra_device_create_cpu(config, out, err);
    if (st != DRA_OK) return st;
    cpu = (*out)->table;
    apart = *cpu; /* finds the same kernels and ends the same way */
    apart.alloc = alloc;
    apart.free = release;
    apart.upload = upload;
    apart.download = download;
    apart.copy = copy;
    apart.fill = fill;
    apart.run = run;
    apart.limits = NULL;
    apart.borrows = false;
    (*out)->table = &apart;
    return DRA_OK;
}
