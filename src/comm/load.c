/* The library that moves the bytes of ranks, loaded when it is asked for. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/comm.h"
#include "device/plugin.h"

static dra_status load_library(const char *kind, const dra_comm_plugin **out, dra_error *err)
{
    void            *library;
    const dra_status st = dra_plugin_open("ranks", kind, &library, err);
    if (st != DRA_OK) return st;
    const dra_comm_plugin *p = dlsym(library, "dra_comm_plugin_table");
    if (!p)
        return dra_fail(err, DRA_ERR_DEVICE, "libdra-%s.so: it has no dra_comm_plugin_table", kind);
    if (p->abi != DRA_COMM_ABI || strcmp(p->version, DRA_VERSION_TEXT) != 0)
        return dra_fail(err, DRA_ERR_DEVICE,
                        "libdra-%s.so: made for another build of dra %s, this is %s; make it again",
                        kind, p->version, DRA_VERSION_TEXT);
    *out = p;
    return DRA_OK;
}

dra_status dra_comm_describe(const char *kind, char *text, size_t size, dra_error *err)
{
    const dra_comm_plugin *p = NULL;
    const dra_status       st = load_library(kind, &p, err);
    return st == DRA_OK ? p->describe(text, size, err) : st;
}

dra_status dra_comm_open(const char *kind, dra_comm **out, dra_error *err)
{
    const dra_comm_plugin *p = NULL;
    dra_status             st = load_library(kind, &p, err);
    *out = NULL;
    if (st != DRA_OK) return st;
    dra_comm *c = calloc(1, sizeof *c);
    if (!c) return dra_fail(err, DRA_ERR_MEMORY, "ranks: out of memory");
    st = p->open(c, err);
    if (st != DRA_OK) {
        free(c);
        return st;
    }
    st = dra_comm_check(c, err);
    if (st == DRA_OK)
        *out = c;
    else
        dra_comm_destroy(c);
    return st;
}
