/* Running a module over the next tokens of its states: a program for each shape met, compiled
 * once; states are updated in place. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/shape.h"
#include "sequence/module.h"

typedef struct running { /* a program with its buffers */
    const dra_program *program;
    dra_buffers       *buffers;
    const char       **input; /* names of what its first run was given, in the reader's arena */
    int                n_input;
} running;

struct dra_reader {
    dra_device   *device;
    dra_module    module;
    dra_programs *programs;
    running      *at;
    size_t        n;
    running      *last;   /* of the last read */
    dra_named    *params; /* in the order of the specs */
    dra_form     *forms;  /* of them */
    dra_real    **own;    /* values of parameters that the reader made itself */
    dra_shape    *key;
    dra_extents   extents;
    dra_arena     arena;
    bool          unguarded;
    double        limit;   /* of the guard, see dra_reader_limit() */
    int64_t       guarded; /* numbers of states changed so far */
};

/* ---- programs: keyed by (B, T, options, limit of the guard) and the rows of each state ------- */

enum { MARKED = 1, SKIPS = 2, GUARD = 4 }; /* options */

static void build(dra_graph *g, void *user, const dra_shape *key, size_t n_key)
{
    const dra_reader *r = user;
    const dra_module *m = &r->module;
    const int         n = dra_specs_count(m->state);
    int64_t          *rows = calloc((size_t)n + 1, sizeof *rows);
    dra_value        *state = calloc(2 * (size_t)n + 1, sizeof *state);
    char              name[DRA_NAME_TEXT];
    if (rows && state) {
        for (int i = 0; i < n; i++) rows[i] = key[i + 1].dim[0];
        const dra_module_shape shape = {.B = key[0].dim[0],
                                        .T = key[0].dim[1],
                                        .marked = key[0].dim[2] & MARKED,
                                        .skips = key[0].dim[2] & SKIPS,
                                        .guard = key[0].dim[2] & GUARD,
                                        .rows = rows,
                                        .forms = r->forms,
                                        .limit = r->limit};
        dra_module_graph(g, m, &shape, NULL, state, state + n);
        for (int i = 0; i < n; i++)
            dra_donate(g, dra_state_name(name, "next", dra_specs_at(m->state, i)->name),
                       state[n + i], state[i]);
    }
    free(rows);
    free(state);
}

dra_status dra_reader_create(dra_device *device, const dra_module *module, dra_reader **out,
                             dra_error *err)
{
    const size_t n_param = (size_t)dra_specs_count(module->params);
    const size_t n_state = (size_t)dra_specs_count(module->state);
    dra_reader  *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    r->device = device;
    r->module = *module;
    r->params = calloc(n_param + 1, sizeof *r->params);
    r->forms = calloc(n_param + 1, sizeof *r->forms);
    r->own = calloc(n_param + 1, sizeof *r->own);
    r->key = calloc(n_state + 2, sizeof *r->key);
    for (size_t i = 0; r->forms && i < n_param; i++) r->forms[i].dtype = DRA_REAL;
    dra_status st = r->params && r->forms && r->own && r->key
                        ? dra_programs_create(device, build, r, &r->programs, err)
                        : dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    if (st == DRA_OK)
        *out = r;
    else
        dra_reader_destroy(r);
    return st;
}

static void free_programs(dra_reader *r)
{
    for (size_t i = 0; i < r->n; i++) {
        dra_buffers_destroy(r->at[i].buffers);
        free(r->at[i].input);
    }
    dra_programs_destroy(r->programs);
    r->last = NULL;
    r->n = 0;
}

void dra_reader_destroy(dra_reader *r)
{
    if (!r) return;
    free_programs(r);
    for (int i = 0; r->own && i < dra_specs_count(r->module.params); i++) free(r->own[i]);
    free(r->at);
    free(r->own);
    free(r->forms);
    free(r->params);
    free(r->key);
    dra_extents_free(&r->extents);
    dra_arena_free(&r->arena);
    free(r);
}

size_t dra_reader_programs(const dra_reader *r) { return dra_programs_count(r->programs); }

dra_status dra_reader_bind(dra_reader *r, const char *name, const void *data, size_t bytes,
                           dra_error *err)
{
    return dra_reader_bind_as(r, name, (dra_form){DRA_REAL}, data, bytes, err);
}

static bool is_possible(const dra_form *f, const dra_spec *p)
{
    const dra_dtype_info *t = dra_dtype_get(f->dtype);
    const bool part = f->parts ? f->parts > 0 && f->part >= 0 && f->part < f->parts : !f->part;
    return t && t->is_float && part && (f->parts == 0 || p->shape.rank > 0) &&
           (!f->turned || p->shape.rank == 2);
}

static dra_status check_memory(const dra_spec *p, const dra_form *f, const void *data, size_t bytes,
                               dra_error *err)
{
    if (!is_possible(f, p) || (!p->product && !dra_form_equal(f, &(dra_form){DRA_REAL})))
        return dra_fail(err, DRA_ERR_DTYPE, "reader: parameter %s cannot be %s%s%s", p->name,
                        dra_dtype_get(f->dtype) ? dra_dtype_get(f->dtype)->name : "that",
                        f->turned ? ", turned" : "", f->parts ? ", beside others" : "");
    const size_t expected = dra_form_bytes(f, &p->shape);
    if (bytes != expected)
        return dra_fail(err, DRA_ERR_SHAPE, "reader: parameter %s has %zu bytes, expected %zu",
                        p->name, bytes, expected);
    if (!data && bytes)
        return dra_fail(err, DRA_ERR_VALUE, "reader: parameter %s gets no memory", p->name);
    return DRA_OK;
}

/* What was compiled reads the parameter as it lay before: all is compiled anew. */
static dra_status change_form(dra_reader *r, int i, const dra_form *f, dra_error *err)
{
    if (dra_form_equal(&r->forms[i], f)) return DRA_OK;
    if (dra_programs_count(r->programs) > 0) {
        dra_programs    *others;
        const dra_status st = dra_programs_create(r->device, build, r, &others, err);
        if (st != DRA_OK) return st;
        free_programs(r);
        r->programs = others;
    }
    r->forms[i] = *f;
    return DRA_OK;
}

dra_status dra_reader_bind_as(dra_reader *r, const char *name, dra_form form, const void *data,
                              size_t bytes, dra_error *err)
{
    const int i = dra_specs_find(r->module.params, name);
    if (i < 0) return dra_fail(err, DRA_ERR_NAME, "reader: no parameter is called %s", name);
    const dra_spec *p = dra_specs_at(r->module.params, i);
    dra_status      st = check_memory(p, &form, data, bytes, err);
    if (st == DRA_OK) st = change_form(r, i, &form, err);
    if (st == DRA_OK) r->params[i] = (dra_named){p->name, data, bytes};
    for (size_t k = 0; k < r->n && st == DRA_OK; k++)
        st = dra_bind(r->at[k].buffers, name, (void *)data, bytes, err);
    return st;
}

dra_status dra_reader_start(dra_reader *r, uint64_t seed, dra_error *err)
{
    for (int i = 0; i < dra_specs_count(r->module.params); i++) {
        const dra_spec *p = dra_specs_at(r->module.params, i);
        const size_t    n = (size_t)dra_shape_count(&p->shape);
        if (r->params[i].name) continue;
        r->own[i] = calloc(n + 1, sizeof *r->own[i]);
        if (!r->own[i]) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
        dra_specs_fill(r->module.params, i, seed, r->own[i]);
        const dra_status st = dra_reader_bind(r, p->name, r->own[i], n * sizeof *r->own[i], err);
        if (st != DRA_OK) return st;
    }
    return DRA_OK;
}

static dra_status bind_params(const dra_reader *r, dra_buffers *b, dra_error *err)
{
    for (int i = 0; i < dra_specs_count(r->module.params); i++) {
        const dra_named *p = &r->params[i];
        if (!p->name)
            return dra_fail(err, DRA_ERR_BIND, "reader: parameter %s is not bound",
                            dra_specs_at(r->module.params, i)->name);
        const dra_status st = dra_bind(b, p->name, (void *)p->data, p->bytes, err);
        if (st != DRA_OK) return st;
    }
    return DRA_OK;
}

/* The buffers for the shapes of this call, made and bound when first met. */
static dra_status find_buffers(dra_reader *r, dra_error *err)
{
    const dra_program *program;
    const size_t       n_key = 1 + (size_t)dra_specs_count(r->module.state);
    dra_status         st = dra_programs_get(r->programs, r->key, n_key, &program, err);
    if (st != DRA_OK) return st;
    for (size_t i = 0; i < r->n; i++)
        if (r->at[i].program == program) {
            r->last = &r->at[i];
            return DRA_OK;
        }
    running *at = realloc(r->at, (r->n + 1) * sizeof *at);
    if (!at) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    r->at = at;
    at[r->n] = (running){.program = program};
    st = dra_buffers_create(program, &at[r->n].buffers, err);
    if (st == DRA_OK) st = bind_params(r, at[r->n].buffers, err);
    if (st == DRA_OK)
        r->last = &at[r->n++];
    else
        dra_buffers_destroy(at[r->n].buffers);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static dra_status bind_states(dra_reader *r, const dra_states *s, dra_error *err)
{
    char       name[DRA_NAME_TEXT];
    dra_status st = DRA_OK;
    for (int i = 0; i < dra_specs_count(s->specs) && st == DRA_OK; i++) {
        const dra_held *h = &s->at[i];
        const size_t    bytes = (size_t)(s->B * h->rows * h->size) * sizeof(dra_real);
        st = dra_bind(r->last->buffers,
                      dra_state_name(name, "state", dra_specs_at(s->specs, i)->name), h->data,
                      bytes, err);
    }
    return st;
}

static bool is_named(const char *name, int n, const dra_named *inputs)
{
    for (int i = 0; i < n; i++)
        if (strcmp(inputs[i].name, name) == 0) return true;
    return false;
}

/* Remembers that an input was bound, by this call or one that failed. */
static dra_status keep_name(dra_reader *r, running *at, const char *name, dra_error *err)
{
    for (int i = 0; i < at->n_input; i++)
        if (strcmp(at->input[i], name) == 0) return DRA_OK;
    const char **list = realloc(at->input, ((size_t)at->n_input + 1) * sizeof *list);
    if (list) at->input = list;
    const char *copy = list ? dra_arena_text(&r->arena, name) : NULL;
    if (!copy) return dra_fail(err, DRA_ERR_MEMORY, "reader: out of memory");
    list[at->n_input++] = copy;
    return DRA_OK;
}

/* Buffers keep what they were bound to: an input left out would be read from an earlier call. */
static dra_status bind_inputs(dra_reader *r, int n, const dra_named *inputs, dra_error *err)
{
    running   *at = r->last;
    dra_status st = DRA_OK;
    for (int k = 0; k < at->n_input; k++)
        if (!is_named(at->input[k], n, inputs))
            return dra_fail(err, DRA_ERR_BIND, "run: '%s' is not bound", at->input[k]);
    for (int i = 0; i < n && st == DRA_OK; i++) {
        st = dra_bind(at->buffers, inputs[i].name, (void *)inputs[i].data, inputs[i].bytes, err);
        if (st == DRA_OK) st = keep_name(r, at, inputs[i].name, err);
    }
    return st;
}

static dra_status check(const dra_reader *r, const dra_states *s, int64_t T, const int32_t *mark,
                        dra_error *err)
{
    if (dra_specs_fingerprint(s->specs) != dra_specs_fingerprint(r->module.state))
        return dra_fail(err, DRA_ERR_VALUE, "reader: the states belong to another module");
    if (T < 1)
        return dra_fail(err, DRA_ERR_VALUE, "reader: %lld tokens, expected 1 or more",
                        (long long)T);
    for (int64_t i = 0; mark && i < s->B * T; i++)
        if (mark[i] & ~(DRA_MARK_PAD | DRA_MARK_RESET | DRA_MARK_SKIP))
            return dra_fail(err, DRA_ERR_VALUE,
                            "reader: mark of row %lld, token %lld is %d, expected 0 to 7",
                            (long long)(i / T), (long long)(i % T), (int)mark[i]);
    for (int64_t b = 0; b < s->B; b++)
        if (s->tokens[b] > INT32_MAX - T)
            return dra_fail(err, DRA_ERR_VALUE, "reader: row %lld has read %lld tokens: too many",
                            (long long)b, (long long)s->tokens[b]);
    return DRA_OK;
}

/* A number as a part of a key. */
static int64_t bits_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

dra_status dra_reader_read(dra_reader *r, dra_states *states, int64_t T, const int32_t *mark, int n,
                           const dra_named *inputs, dra_error *err)
{
    r->last = NULL;
    dra_status st = check(r, states, T, mark, err);
    if (st == DRA_OK) st = dra_states_reserve(states, T, err);
    if (st != DRA_OK) return st;
    const bool skips = dra_marks_any_skip(mark, states->B * T);
    r->key[0] = DRA_SHAPE(states->B, T,
                          (mark ? MARKED : 0) | (skips ? SKIPS : 0) | (r->unguarded ? 0 : GUARD),
                          r->unguarded ? 0 : bits_of(r->limit));
    for (int i = 0; i < dra_specs_count(states->specs); i++)
        r->key[i + 1] = DRA_SHAPE(states->at[i].rows);
    st = find_buffers(r, err);
    if (st == DRA_OK)
        st = dra_extents_fill(&r->extents, states->specs, states, states->B, T, mark, err);
    if (st == DRA_OK) st = dra_extents_bind(&r->extents, r->last->buffers, mark != NULL, err);
    if (st == DRA_OK) st = bind_states(r, states, err);
    if (st == DRA_OK) st = bind_inputs(r, n, inputs, err);
    if (st == DRA_OK) st = dra_run(r->last->buffers, err);
    if (st != DRA_OK) return st;
    dra_states_advance(states, T, mark);
    const int32_t *guarded = dra_result(r->last->buffers, "guarded");
    if (guarded && !r->unguarded) r->guarded += *guarded;
    return DRA_OK;
}

void    dra_reader_guard(dra_reader *r, bool on) { r->unguarded = !on; }
void    dra_reader_limit(dra_reader *r, double limit) { r->limit = isfinite(limit) ? limit : 0; }
int64_t dra_reader_guarded(const dra_reader *r) { return r->guarded; }

const void *dra_reader_result(const dra_reader *r, const char *name)
{
    return r->last ? dra_result(r->last->buffers, name) : NULL;
}

bool dra_reader_result_shape(const dra_reader *r, const char *name, dra_shape *shape)
{
    dra_dtype dtype;
    return r->last && dra_result_type(r->last->program, name, &dtype, shape, NULL) == DRA_OK;
}
