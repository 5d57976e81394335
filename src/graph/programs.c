/* Programs keyed by the shapes of their inputs, compiled when first asked for. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "dra/graph.h"

typedef struct entry {
    dra_shape   *key;
    size_t       n_key;
    dra_program *program;
} entry;

struct dra_programs {
    dra_device *device;
    dra_build   build;
    void       *user;
    entry      *at;
    size_t      n, room;
};

dra_status dra_programs_create(dra_device *device, dra_build build, void *user, dra_programs **out,
                               dra_error *err)
{
    *out = NULL;
    if (!device || !build) return dra_fail(err, DRA_ERR_VALUE, "programs: no device or no build");
    *out = calloc(1, sizeof **out);
    if (!*out) return dra_fail(err, DRA_ERR_MEMORY, "programs: out of memory");
    **out = (dra_programs){.device = device, .build = build, .user = user};
    return DRA_OK;
}

void dra_programs_destroy(dra_programs *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->n; i++) {
        free(p->at[i].key);
        dra_program_destroy(p->at[i].program);
    }
    free(p->at);
    free(p);
}

static bool same_key(const entry *e, const dra_shape *key, size_t n_key)
{
    if (e->n_key != n_key) return false;
    for (size_t i = 0; i < n_key; i++)
        if (!dra_shape_equal(&e->key[i], &key[i])) return false;
    return true;
}

static dra_status build_program(dra_programs *p, const dra_shape *key, size_t n_key,
                                dra_program **out, dra_error *err)
{
    dra_graph *g = NULL;
    dra_status st = dra_graph_create(&g, err);
    if (st != DRA_OK) return st;
    p->build(g, p->user, key, n_key);
    st = dra_compile(g, p->device, out, err);
    dra_graph_destroy(g);
    return st;
}

static bool reserve(dra_programs *p)
{
    if (p->n < p->room) return true;
    const size_t room = p->room ? 2 * p->room : 8;
    entry       *at = realloc(p->at, room * sizeof *at);
    if (!at) return false;
    p->at = at;
    p->room = room;
    return true;
}

dra_status dra_programs_get(dra_programs *p, const dra_shape *key, size_t n_key,
                            const dra_program **out, dra_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < p->n; i++) {
        if (!same_key(&p->at[i], key, n_key)) continue;
        *out = p->at[i].program;
        return DRA_OK;
    }
    entry e = {calloc(n_key + 1, sizeof *e.key), n_key, NULL};
    if (!e.key || !reserve(p)) {
        free(e.key);
        return dra_fail(err, DRA_ERR_MEMORY, "programs: out of memory");
    }
    if (n_key) memcpy(e.key, key, n_key * sizeof *key);
    const dra_status st = build_program(p, key, n_key, &e.program, err);
    if (st != DRA_OK) {
        free(e.key);
        return st;
    }
    p->at[p->n++] = e;
    *out = e.program;
    return DRA_OK;
}

size_t dra_programs_count(const dra_programs *p) { return p->n; }

int64_t dra_capacity(int64_t n)
{
    int64_t c = 16;
    while (c < n) {
        if (c > INT64_MAX / 2) return -1;
        c *= 2;
    }
    return c;
}
