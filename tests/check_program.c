/* Programs of tests on any device, see check.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device/device.h"
#include "graph/program.h"

static void *must(void *p)
{
    if (!p) fail_msg("out of memory");
    return p;
}

/* ---- memory of the test, as programs of any device see it ------------------------------------ */

struct check_bound { /* on a device that cannot compute in it, copied before and after a run */
    struct check_bound *next;
    dra_array          *array;
    void               *data;
    size_t              bytes;
    bool                written; /* by the program */
};

struct check_result {
    struct check_result *next;
    char                 name[160];
    dra_span             from;
    void                *copy;
    size_t               room;
    const void          *seen;
};

static dra_array *array_of(dra_device *d, void *data, size_t bytes)
{
    dra_error  err = {0};
    dra_array *a = NULL;
    dra_status st = d->table->borrows && data ? dra_array_borrow(d, data, bytes, &a, &err)
                                              : dra_array_create(d, bytes, &a, &err);
    if (st != DRA_OK) fail_msg("%s", err.text);
    a->read_only = false; /* tests look at what programs wrote there */
    return a;
}

void check_bind(check_program *p, const char *name, void *data, size_t bytes)
{
    dra_error           err = {0};
    const int           slot = dra_slot_find(p->program, name);
    struct check_bound *b = must(calloc(1, sizeof *b));
    *b = (struct check_bound){p->bound, array_of(p->program->device, data, bytes), data, bytes,
                              slot >= 0 &&
                                  p->program->storage[p->program->slot[slot].storage].donor};
    p->bound = b;
    if (dra_bind(p->buffers, name, dra_array_whole(b->array), &err) != DRA_OK)
        fail_msg("%s", err.text);
}

static bool is_host(const check_program *p) { return p->program->device->table->borrows; }

dra_status check_try(check_program *p, dra_error *err)
{
    for (struct check_bound *b = p->bound; b && !is_host(p); b = b->next)
        assert_int_equal(dra_array_upload(dra_array_whole(b->array), b->data, NULL), DRA_OK);
    const dra_status st = dra_run(p->buffers, err);
    for (struct check_bound *b = p->bound; b && !is_host(p); b = b->next)
        if (b->written)
            assert_int_equal(dra_array_download(b->data, dra_array_whole(b->array), NULL), DRA_OK);
    for (struct check_result *r = p->seen; r; r = r->next)
        r->seen = dra_span_see(r->from, &r->copy, &r->room, NULL);
    return st;
}

void check_run(check_program *p)
{
    dra_error err = {0};
    if (check_try(p, &err) != DRA_OK) fail_msg("%s", err.text);
}

const void *check_result_of(check_program *p, const char *name)
{
    for (struct check_result *r = p->seen; r; r = r->next)
        if (strcmp(r->name, name) == 0) return r->seen;
    const dra_span from = dra_result(p->buffers, name);
    if (!from.array) return NULL;
    struct check_result *r = must(calloc(1, sizeof *r));
    *r = (struct check_result){.next = p->seen, .from = from};
    snprintf(r->name, sizeof r->name, "%s", name);
    r->seen = dra_span_see(from, &r->copy, &r->room, NULL);
    p->seen = r;
    return r->seen;
}

const dra_real *check_result(check_program *p, const char *name)
{
    const void *data = check_result_of(p, name);
    if (!data) fail_msg("no result called %s", name);
    return data;
}

bool check_has_input(const check_program *p, const char *name)
{
    return dra_slot_find(p->program, name) >= 0;
}

bool check_in_place(const check_program *p, const char *result, const char *bound)
{
    const dra_span a = dra_result(p->buffers, result);
    const dra_span b = dra_slot_memory(p->buffers, dra_slot_find(p->program, bound));
    return a.array && a.array == b.array && a.offset == b.offset;
}

void check_free(check_program *p)
{
    dra_buffers_destroy(p->buffers);
    dra_program_destroy(p->program);
    for (struct check_bound *b = p->bound, *next; b; b = next) {
        next = b->next;
        dra_array_destroy(b->array);
        free(b);
    }
    for (struct check_result *r = p->seen, *next; r; r = next) {
        next = r->next;
        free(r->copy);
        free(r);
    }
    *p = (check_program){0};
}
