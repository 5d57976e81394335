/* Sessions: programs cached by key, one workspace, inputs in memory of their own, bindings by
 * number. */
#include "session/session.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/names.h"
#include "base/shape.h"
#include "graph/program.h"

typedef struct entry { /* a program of the cache */
    void        *key;
    size_t       key_bytes;
    uint64_t     hash; /* of the key */
    dra_program *program;
    dra_buffers *buffers; /* made when it is selected */
    dra_array   *inputs;
    size_t       input_bytes;
    int         *name; /* by slot */
    uint64_t    *seen; /* by slot: the version that was bound; for an input: whether it was put */
    int         *slot; /* by name; -1: none */
    int          n_slot;
} entry;

typedef struct named { /* a binding by name */
    const char *text;
    dra_span    memory;
    uint64_t    version; /* 0: nothing is */
} named;

struct dra_session {
    dra_device     *device;
    dra_build       build;
    void           *user;
    entry          *at;
    size_t          n, room;
    entry          *now;  /* the selected one */
    dra_session    *home; /* the session whose workspace is used, usually itself */
    dra_array      *workspace;
    size_t          needed; /* the largest workspace of all programs */
    named          *name;
    int             n_name, name_room;
    dra_names       numbers;  /* of names */
    bool            nameless; /* out of memory for a name */
    uint64_t        version;
    dra_arena       arena;
    atomic_flag     busy;
    dra_time_slice *slice; /* of its runs; NULL: they run to the end */
};

/* ---- making one ------------------------------------------------------------------------------ */

dra_status dra_session_create(dra_device *device, dra_build build, void *user, dra_session **out,
                              dra_error *err)
{
    *out = NULL;
    if (!device || !build) return dra_fail(err, DRA_ERR_VALUE, "session: no device or no build");
    dra_session *s = calloc(1, sizeof *s);
    if (!s) return dra_fail(err, DRA_ERR_MEMORY, "session: out of memory");
    s->device = device;
    s->home = s;
    s->build = build;
    s->user = user;
    atomic_flag_clear(&s->busy);
    *out = s;
    return DRA_OK;
}

static void entry_free(entry *e)
{
    dra_buffers_destroy(e->buffers);
    dra_array_destroy(e->inputs);
    dra_program_destroy(e->program);
    free(e->key);
    free(e->name);
    free(e->seen);
    free(e->slot);
}

void dra_session_clear(dra_session *s)
{
    for (size_t i = 0; i < s->n; i++) entry_free(&s->at[i]);
    s->n = 0;
    s->now = NULL;
}

void dra_session_destroy(dra_session *s)
{
    if (!s) return;
    dra_session_clear(s);
    dra_array_destroy(s->workspace);
    dra_arena_free(&s->arena);
    free(s->at);
    free(s->name);
    dra_names_free(&s->numbers);
    free(s);
}

dra_device *dra_session_device(const dra_session *s) { return s->device; }
void        dra_session_share(dra_session *s, dra_session *with) { s->home = with->home; }
size_t      dra_session_programs(const dra_session *s) { return s->n; }

void dra_session_slice(dra_session *s, dra_time_slice *slice) { s->slice = slice; }

static dra_status enter_session(dra_session *s, dra_error *err)
{
    if (!atomic_flag_test_and_set(&s->busy)) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "session: another thread is using it");
}

static dra_status leave_session(dra_session *s, dra_status st)
{
    atomic_flag_clear(&s->busy);
    return st;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool more_names(dra_session *s)
{
    const int room = s->name_room ? 2 * s->name_room : 64;
    named    *name = realloc(s->name, (size_t)room * sizeof *name);
    if (!name) return false;
    s->name = name;
    s->name_room = room;
    return true;
}

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "session: out of memory");
}

static int no_name(dra_session *s)
{
    s->nameless = true;
    return -1;
}

int dra_session_name(dra_session *s, const char *name)
{
    const int64_t at = dra_names_find(&s->numbers, name);
    if (at >= 0) return (int)at;
    if (s->n_name == s->name_room && !more_names(s)) return no_name(s);
    const char *copy = dra_arena_text(&s->arena, name);
    if (!copy || !dra_names_add(&s->numbers, copy, s->n_name)) return no_name(s);
    s->name[s->n_name] = (named){.text = copy};
    return s->n_name++;
}

dra_status dra_session_bind(dra_session *s, int name, dra_span memory, dra_error *err)
{
    if (s->nameless) return out_of_memory(err);
    if (name < 0 || name >= s->n_name)
        return dra_fail(err, DRA_ERR_INDEX, "session: name %d of %d", name, s->n_name);
    named           *n = &s->name[name];
    const dra_status st = dra_span_check(memory, "bind", n->text, err);
    if (st == DRA_OK) *n = (named){n->text, memory, ++s->version};
    return st;
}

/* ---- programs -------------------------------------------------------------------------------- */

static bool is_of_key(const entry *e, uint64_t hash, const void *key, size_t bytes)
{
    return e->hash == hash && e->key_bytes == bytes && memcmp(e->key, key, bytes) == 0;
}

static dra_status compile_entry(dra_session *s, entry *e, dra_error *err)
{
    dra_graph *g = NULL;
    dra_status st = dra_graph_create(&g, err);
    if (st == DRA_OK) s->build(g, s->user, e->key, e->key_bytes);
    if (st == DRA_OK) st = dra_compile(g, s->device, &e->program, err);
    dra_graph_destroy(g);
    return st;
}

static size_t align_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Numbers the names of all slots, and finds the slot of each name. */
static dra_status number_slots(dra_session *s, entry *e, dra_error *err)
{
    const size_t n = e->program->n_slot;
    e->name = calloc(n + 1, sizeof *e->name);
    e->seen = calloc(n + 1, sizeof *e->seen);
    if (!e->name || !e->seen) return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        e->name[i] = dra_session_name(s, e->program->slot[i].name);
        if (e->name[i] < 0) return out_of_memory(err);
        if (e->program->slot[i].role == DRA_ROLE_INPUT)
            e->input_bytes += align_bytes(e->program->slot[i].bytes);
    }
    e->n_slot = s->n_name;
    e->slot = malloc(((size_t)e->n_slot + 1) * sizeof *e->slot);
    if (!e->slot) return out_of_memory(err);
    for (int i = 0; i < e->n_slot; i++) e->slot[i] = -1;
    for (size_t i = 0; i < n; i++) e->slot[e->name[i]] = (int)i;
    return DRA_OK;
}

static bool reserve_entry(dra_session *s)
{
    if (s->n < s->room) return true;
    const size_t room = s->room ? 2 * s->room : 8;
    const size_t now = s->now ? (size_t)(s->now - s->at) : 0;
    entry       *at = realloc(s->at, room * sizeof *at);
    if (!at) return false;
    if (s->now) s->now = at + now;
    s->at = at;
    s->room = room;
    return true;
}

static dra_status find_entry(dra_session *s, const void *key, size_t bytes, entry **out,
                             dra_error *err)
{
    const uint64_t hash = dra_hash_of(0, key, bytes);
    for (size_t i = 0; i < s->n; i++) {
        if (!is_of_key(&s->at[i], hash, key, bytes)) continue;
        *out = &s->at[i];
        return DRA_OK;
    }
    entry e = {.key = malloc(bytes + 1), .key_bytes = bytes, .hash = hash};
    if (e.key) memcpy(e.key, key, bytes);
    dra_status st = e.key && reserve_entry(s) ? compile_entry(s, &e, err) : out_of_memory(err);
    if (st == DRA_OK) st = number_slots(s, &e, err);
    if (st != DRA_OK) {
        entry_free(&e);
        return st;
    }
    const size_t needed = dra_workspace_bytes(e.program);
    if (needed > s->home->needed) s->home->needed = needed;
    s->at[s->n] = e;
    *out = &s->at[s->n++];
    return DRA_OK;
}

/* Places inputs in memory of the session, at addresses that do not change. */
static dra_status place_inputs(const dra_session *s, entry *e, dra_error *err)
{
    size_t     at = 0;
    dra_status st = dra_array_create(s->device, e->input_bytes, &e->inputs, err);
    for (size_t i = 0; i < e->program->n_slot && st == DRA_OK; i++) {
        const dra_slot *slot = &e->program->slot[i];
        if (slot->role != DRA_ROLE_INPUT) continue;
        st = dra_bind_slot(e->buffers, (int)i, (dra_span){e->inputs, at, slot->bytes}, err);
        at += align_bytes(slot->bytes);
    }
    return st;
}

static dra_status make_workspace(dra_session *home, const entry *e, dra_error *err)
{
    const size_t bytes = dra_workspace_bytes(e->program);
    if (home->workspace && home->workspace->bytes >= bytes) return DRA_OK;
    const dra_status st = home->workspace ? dra_workspace_fault(home->workspace, NULL, 0, err)
                                          : DRA_OK;
    if (st != DRA_OK) return st;
    dra_array_destroy(home->workspace); /* first, so that both never exist at once */
    home->workspace = NULL;
    return dra_workspace_create(home->device, bytes, &home->workspace, err);
}

static dra_status select_program(dra_session *s, const void *key, size_t bytes, dra_error *err)
{
    entry *e = NULL;
    s->now = NULL;
    dra_status st = find_entry(s, key, bytes, &e, err);
    if (st == DRA_OK) st = make_workspace(s->home, e, err);
    if (st != DRA_OK) return st;
    if (e->buffers) {
        dra_buffers_move(e->buffers, s->home->workspace);
    } else {
        st = dra_buffers_create_in(e->program, s->home->workspace, &e->buffers, err);
        if (st == DRA_OK) st = place_inputs(s, e, err);
        if (st != DRA_OK) {
            dra_buffers_destroy(e->buffers);
            dra_array_destroy(e->inputs);
            e->buffers = NULL;
            e->inputs = NULL;
            return st;
        }
    }
    s->now = e;
    return DRA_OK;
}

dra_status dra_session_select(dra_session *s, const void *key, size_t bytes, dra_error *err)
{
    if (s->nameless) return out_of_memory(err);
    const dra_status st = enter_session(s, err);
    return st == DRA_OK ? leave_session(s, select_program(s, key, bytes, err)) : st;
}

/* ---- running --------------------------------------------------------------------------------- */

dra_status dra_session_put(dra_session *s, int name, const void *data, size_t bytes, dra_error *err)
{
    entry    *e = s->now;
    const int slot = e && name >= 0 && name < e->n_slot ? e->slot[name] : -1;
    if (slot < 0 || e->program->slot[slot].role != DRA_ROLE_INPUT)
        return dra_fail(err, DRA_ERR_NAME, "bind: no input is called '%s'",
                        name >= 0 && name < s->n_name ? s->name[name].text : "");
    const dra_slot *p = &e->program->slot[slot];
    if (bytes != p->bytes)
        return dra_fail(err, DRA_ERR_SHAPE, "bind: '%s' has %zu bytes, expected %zu", p->name,
                        bytes, p->bytes);
    if (!data && bytes) return dra_fail(err, DRA_ERR_VALUE, "bind: '%s' gets no memory", p->name);
    e->seen[slot] = 1;
    return dra_array_upload(dra_slot_memory(e->buffers, slot), data, err);
}

/* Gives the selected program all bindings made since it last ran. */
static dra_status bind_new(const dra_session *s, entry *e, dra_error *err)
{
    dra_status st = DRA_OK;
    for (size_t i = 0; i < e->program->n_slot && st == DRA_OK; i++) {
        const dra_slot *slot = &e->program->slot[i];
        const named    *n = &s->name[e->name[i]];
        const bool      input = slot->role == DRA_ROLE_INPUT;
        if (slot->used && (input ? !e->seen[i] : !n->version))
            return dra_fail(err, DRA_ERR_BIND, "run: '%s' is not bound", slot->name);
        if (input || n->version == e->seen[i]) continue;
        st = dra_bind_slot(e->buffers, (int)i, n->memory, err);
        e->seen[i] = st == DRA_OK ? n->version : 0;
    }
    return st;
}

/* Forgets the inputs of this call, so that the next one cannot read them by mistake. */
static void forget_inputs(entry *e)
{
    for (size_t i = 0; i < e->program->n_slot; i++)
        if (e->program->slot[i].role == DRA_ROLE_INPUT) e->seen[i] = 0;
}

static dra_status start_program(dra_session *s, dra_error *err)
{
    if (!s->now) return dra_fail(err, DRA_ERR_VALUE, "session: no program is selected");
    const dra_status st = bind_new(s, s->now, err);
    forget_inputs(s->now);
    dra_buffers_slice(s->now->buffers, s->slice);
    return st == DRA_OK ? dra_run_start(s->now->buffers, err) : st;
}

dra_status dra_session_start(dra_session *s, dra_error *err)
{
    const dra_status st = enter_session(s, err);
    return st == DRA_OK ? leave_session(s, start_program(s, err)) : st;
}

dra_status dra_session_continue(dra_session *s, dra_error *err)
{
    const dra_status st = enter_session(s, err);
    if (st != DRA_OK) return st;
    return leave_session(s, s->now
                                ? dra_run_continue(s->now->buffers, err)
                                : dra_fail(err, DRA_ERR_VALUE, "session: no program is selected"));
}

static dra_status finish_programs(dra_session *s, const dra_fetch *more, size_t n, dra_error *err)
{
    dra_array       *workspace = s->home->workspace;
    const dra_status st = workspace ? dra_workspace_fault(workspace, more, n, err)
                                    : dra_arrays_fetch(more, n, err);
    for (size_t i = 0; i < s->n && st != DRA_OK; i++)
        if (s->at[i].buffers) dra_touch(s->at[i].buffers, NULL, NULL);
    return st;
}

dra_status dra_session_fetch(dra_session *s, const dra_fetch *more, size_t n, dra_error *err)
{
    const dra_status st = enter_session(s, err);
    return st == DRA_OK ? leave_session(s, finish_programs(s, more, n, err)) : st;
}

dra_status dra_session_finish(dra_session *s, dra_error *err)
{
    return dra_session_fetch(s, NULL, 0, err);
}

/* ---- results --------------------------------------------------------------------------------- */

dra_span dra_session_result(const dra_session *s, const char *name)
{
    return s->now ? dra_result(s->now->buffers, name) : (dra_span){0};
}

bool dra_session_result_shape(const dra_session *s, const char *name, dra_shape *shape)
{
    return s->now && dra_result_type(s->now->program, name, NULL, shape, NULL) == DRA_OK;
}

const char *dra_session_result_at(const dra_session *s, size_t i, dra_dtype *dtype,
                                  dra_shape *shape)
{
    for (size_t k = 0; s->now && k < s->now->program->n_result; k++) {
        const dra_result_slot *r = &s->now->program->result[k];
        if (r->donor >= 0 || i-- > 0) continue;
        const dra_status st = dra_result_type(s->now->program, r->name, dtype, shape, NULL);
        return st == DRA_OK ? r->name : NULL;
    }
    return NULL;
}

size_t dra_session_input_bytes(const dra_session *s, const char *name)
{
    const int i = s->now ? dra_slot_find(s->now->program, name) : -1;
    return i >= 0 && s->now->program->slot[i].role == DRA_ROLE_INPUT
               ? s->now->program->slot[i].bytes
               : 0;
}

dra_span dra_session_fault(const dra_session *s)
{
    return dra_span_part(dra_array_whole(s->home->workspace), offsetof(dra_fault, kind),
                         sizeof(int32_t));
}

size_t dra_session_workspace(const dra_session *s) { return s->home->needed; }

size_t dra_session_bytes(const dra_session *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->n; i++)
        bytes += s->at[i].input_bytes + s->at[i].program->block[DRA_BLOCK_PREPARE].bytes;
    return bytes;
}

dra_status dra_session_measure(dra_session *s, const void *key, size_t bytes, dra_error *err)
{
    entry *e;
    return find_entry(s, key, bytes, &e, err);
}

/* ---- capacities ------------------------------------------------------------------------------ */

int64_t dra_capacity(int64_t n)
{
    int64_t c = 16;
    while (c < n) {
        if (c > INT64_MAX / 2) return -1;
        c *= 2;
    }
    return c;
}
