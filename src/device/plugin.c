/* Devices by name, whose libraries are loaded on first use. */
#define _GNU_SOURCE /* dladdr() */
#include "device/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/system.h"

#ifndef DRA_PLUGIN_FOLDER
#define DRA_PLUGIN_FOLDER "/usr/local/lib/dra"
#endif

enum { PATH = 4096, KIND = 32 };

/* ---- finding --------------------------------------------------------------------------------- */

/* Tries FOLDER/libdra-KIND.so; `reason` keeps why the last file that exists was refused. */
static void *open_in(const char *folder, size_t n, const char *kind, char *reason, size_t room)
{
    char path[PATH];
    if ((size_t)snprintf(path, sizeof path, "%.*s/libdra-%s.so", (int)n, folder, kind) >=
        sizeof path)
        return NULL;
    if (dra_sys_access(path, R_OK) != 0) return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) snprintf(reason, room, "%s", dlerror());
    return library;
}

static void *open_on_path(const char *path, const char *kind, char *reason, size_t room)
{
    void *library = NULL;
    while (path && *path && !library) {
        const size_t n = strcspn(path, ":");
        if (n) library = open_in(path, n, kind, reason, room);
        path += n + (path[n] == ':');
    }
    return library;
}

/* The folder of the library or program that this code is in. */
static void *open_beside(const char *kind, char *reason, size_t room)
{
    static const char here = 0;
    Dl_info           about;
    if (!dladdr((const void *)&here, &about) || !about.dli_fname) return NULL;
    const char *slash = strrchr(about.dli_fname, '/');
    return slash ? open_in(about.dli_fname, (size_t)(slash - about.dli_fname), kind, reason, room)
                 : NULL;
}

static dra_status check_plugin(const char *kind, const dra_plugin *p, dra_error *err)
{
    if (!p) return dra_fail(err, DRA_ERR_DEVICE, "libdra-%s.so: it has no dra_plugin_table", kind);
    if (p->abi != DRA_PLUGIN_ABI || strcmp(p->version, DRA_VERSION_TEXT) != 0)
        return dra_fail(err, DRA_ERR_DEVICE,
                        "libdra-%s.so: made for another build of dra %s, this is %s; make it again",
                        kind, p->version, DRA_VERSION_TEXT);
    return DRA_OK;
}

dra_status dra_plugin_open(const char *what, const char *kind, void **out, dra_error *err)
{
    char  reason[256] = "";
    void *library = open_on_path(getenv("DRA_PLUGIN_PATH"), kind, reason, sizeof reason);
    if (!library) library = open_beside(kind, reason, sizeof reason);
    if (!library)
        library = open_in(DRA_PLUGIN_FOLDER, strlen(DRA_PLUGIN_FOLDER), kind, reason,
                          sizeof reason);
    *out = library;
    if (library) return DRA_OK;
    if (*reason) return dra_fail(err, DRA_ERR_DEVICE, "%s '%s': %s", what, kind, reason);
    return dra_fail(err, DRA_ERR_DEVICE,
                    "%s '%s': no libdra-%s.so in DRA_PLUGIN_PATH, beside libdra or in %s", what,
                    kind, kind, DRA_PLUGIN_FOLDER);
}

static dra_status load_plugin(const char *kind, const dra_plugin **out, dra_error *err)
{
    void            *library;
    const dra_status st = dra_plugin_open("device", kind, &library, err);
    if (st != DRA_OK) return st;
    *out = dlsym(library, "dra_plugin_table");
    return check_plugin(kind, *out, err);
}

/* ---- names ----------------------------------------------------------------------------------- */

typedef struct device_name {
    char kind[KIND];
    int  number;
} device_name;

static dra_status parse_name(const char *text, device_name *out, dra_error *err)
{
    const size_t n = strcspn(text, ":");
    char        *end = NULL;
    const long   number = text[n] ? strtol(text + n + 1, &end, 10) : 0;
    const bool   digits = !text[n] || (text[n + 1] >= '0' && text[n + 1] <= '9' && !*end);
    if (n >= KIND || strspn(text, "abcdefghijklmnopqrstuvwxyz") != n || !n || !digits ||
        number > 1023)
        return dra_fail(err, DRA_ERR_VALUE, "device '%s': expected cpu, cuda, or cuda:NUMBER",
                        text);
    memcpy(out->kind, text, n);
    out->kind[n] = 0;
    out->number = (int)number;
    return DRA_OK;
}

dra_status dra_plugin_create(const char *name, dra_device **out, dra_error *err)
{
    const dra_plugin *p = NULL;
    device_name       d;
    *out = NULL;
    dra_status st = parse_name(name, &d, err);
    if (st == DRA_OK) st = load_plugin(d.kind, &p, err);
    return st == DRA_OK ? p->create(d.number, out, err) : st;
}

dra_status dra_device_count(const char *kind, int *out, dra_error *err)
{
    const dra_plugin *p = NULL;
    const dra_status  st = load_plugin(kind, &p, err);
    *out = st == DRA_OK ? p->count(err) : 0;
    return st == DRA_OK && *out < 0 ? DRA_ERR_DEVICE : st;
}

dra_status dra_device_describe(const char *kind, int number, dra_device_info *out, dra_error *err)
{
    const dra_plugin *p = NULL;
    const dra_status  st = load_plugin(kind, &p, err);
    *out = (dra_device_info){0};
    return st == DRA_OK ? p->describe(number, out, err) : st;
}
