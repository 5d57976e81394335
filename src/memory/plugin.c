/* Memories of a program's own that shared objects bring. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file/system.h"
#include "memory/memory.h"

enum { PATH = 4096 };

/* What a shared object has, see DRA_MEMORY_PLUGIN() in dra/abi.h. */
typedef dra_status (*memory_entry)(const dra_memory *const **out, dra_error *err);

/* A name without a folder is one here, not one of the system's libraries. It stays loaded. */
static dra_status open_library(const char *path, void **out, dra_error *err)
{
    char      here[PATH];
    const int n = snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
    if (n >= PATH) return dra_fail(err, DRA_ERR_FILE, "%.80s...: the path is too long", path);
    if (dra_sys_access(here, R_OK) != 0)
        return dra_fail(err, DRA_ERR_FILE, "%.200s: %s", path,
                        errno == ENOENT ? "no such file" : "cannot be read");
    *out = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    if (*out) return DRA_OK;
    return dra_fail(err, DRA_ERR_FILE, "%.200s: is no shared object that can be loaded: %.200s",
                    path, dlerror());
}

static dra_status open_memories(const char *path, const dra_memory *const **out, dra_error *err)
{
    void        *library = NULL;
    memory_entry entry = NULL;
    dra_error    why = {0};
    dra_status   st = open_library(path, &library, err);
    if (st != DRA_OK) return st;
    void *const at = dlsym(library, "dra_memory_plugin");
    if (!at)
        return dra_fail(err, DRA_ERR_FORMAT,
                        "%.200s: has no function dra_memory_plugin, which DRA_MEMORY_PLUGIN makes",
                        path);
    memcpy(&entry, &at, sizeof entry);
    st = entry(out, &why);
    if (st == DRA_OK) return DRA_OK;
    return dra_fail(err, st, "%.200s: made for another build of dra: %.200s", path,
                    why.text[0] ? why.text : "its errors have another size");
}

static dra_status add_memory(const char *path, const dra_memory *memory, const dra_memory **own,
                             dra_error *err)
{
    size_t n = 0;
    if (!memory->name) return dra_fail(err, DRA_ERR_VALUE, "%.200s: a memory without a name", path);
    if (dra_memory_find(memory->name))
        return dra_fail(err, DRA_ERR_NAME, "%.200s: memory %.40s: dra has one of this name", path,
                        memory->name);
    for (; own[n]; n++)
        if (strcmp(own[n]->name, memory->name) == 0 && own[n] != memory)
            return dra_fail(err, DRA_ERR_NAME, "%.200s: memory %.40s: the name is taken", path,
                            memory->name);
        else if (own[n] == memory)
            return DRA_OK;
    if (n == DRA_MEMORIES_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "%.200s: more than %d memories", path,
                        DRA_MEMORIES_MOST);
    own[n] = memory;
    own[n + 1] = NULL;
    return DRA_OK;
}

dra_status dra_memories_load(size_t n, const char *const *path,
                             const dra_memory *own[DRA_MEMORIES_MOST + 1], dra_error *err)
{
    const dra_memory *const *found = NULL;
    dra_status               st = DRA_OK;
    own[0] = NULL;
    for (size_t i = 0; i < n && st == DRA_OK; i++) {
        st = open_memories(path[i], &found, err);
        for (; st == DRA_OK && *found; found++) st = add_memory(path[i], *found, own, err);
    }
    return st;
}
