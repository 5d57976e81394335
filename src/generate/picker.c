/* Picking on a device: one program,
 *   seen = seen with the token that was read last     (where a penalty is on)
 *   ids  = sample(logits, rows, ..) */
#include "generate/picker.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sequence/module.h"

enum { BIAS = 1, ALLOWED = 2, SEEN = 4 }; /* options of a program */

struct dra_picker {
    dra_device  *device;
    int64_t      B, V;
    dra_session *session;
    dra_array   *logits; /* (B, V) */
    dra_real    *copy;   /* (B, V): of the host, where it cannot see them; NULL: not yet */
    bool         fresh;  /* the copy is what they are now */
    bool        *seen;   /* (B, V) */
    dra_array   *known;  /* (B, V): seen, on the device; NULL: no penalty was on yet */
    bool        *stale;  /* (B): a row of it is not even like seen without `last` */
    int32_t     *last;   /* (B): the token that it does not know; -1: none */
    dra_array   *bias;   /* (V); NULL: none */
};

static dra_status out_of_memory(dra_error *err)
{
    return dra_fail(err, DRA_ERR_MEMORY, "generator: out of memory");
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Tokens that were read are marked; the state is updated in place. */
static dra_value see(dra_graph *g, int64_t B, dra_shape all)
{
    const dra_value seen = dra_state(g, "seen", DRA_BOOL, all);
    const dra_value last = dra_input(g, "last", DRA_I32, DRA_SHAPE(B, 1));
    const dra_value next = dra_write_rows(g, seen, dra_equal(g, last, last), last);
    dra_donate(g, "seen.next", next, seen);
    return next;
}

static void build(dra_graph *g, void *user, const dra_shape *key, size_t n_key)
{
    const int64_t     B = key->dim[0], V = key->dim[1], options = key->dim[2];
    const dra_shape   all = DRA_SHAPE(B, V);
    const dra_value   logits = dra_state(g, "logits", DRA_REAL, all);
    const dra_value   rows = dra_input(g, "rows", DRA_I32, DRA_SHAPE(B, DRA_SAMPLE_WORDS));
    dra_sample_config c = {0};
    if (options & BIAS) c.bias = dra_state(g, "bias", DRA_REAL, DRA_SHAPE(V));
    if (options & ALLOWED) c.allowed = dra_input(g, "allowed", DRA_BOOL, all);
    if (options & SEEN) c.seen = see(g, B, all);
    dra_output(g, "ids", dra_sample_ids(g, logits, rows, &c, NULL));
}

/* ---- making one ------------------------------------------------------------------------------ */

static dra_status bind(dra_picker *p, const char *name, dra_span memory, dra_error *err)
{
    return dra_session_bind(p->session, dra_session_name(p->session, name), memory, err);
}

static dra_status make_arrays(dra_picker *p, dra_error *err)
{
    const size_t n = (size_t)(p->B * p->V) * sizeof(dra_real);
    dra_status   st = dra_array_create(p->device, n, &p->logits, err);
    if (st == DRA_OK) st = dra_array_fill(dra_array_whole(p->logits), 0, err);
    if (st == DRA_OK) st = dra_session_create(p->device, build, NULL, &p->session, err);
    return st == DRA_OK ? bind(p, "logits", dra_array_whole(p->logits), err) : st;
}

dra_status dra_picker_create(dra_device *device, int64_t rows, int64_t V, dra_picker **out,
                             dra_error *err)
{
    const size_t B = (size_t)rows;
    dra_picker  *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return out_of_memory(err);
    p->device = device;
    p->B = rows;
    p->V = V;
    p->seen = calloc(B * (size_t)V, sizeof *p->seen);
    p->stale = calloc(B, sizeof *p->stale);
    p->last = malloc(B * sizeof *p->last);
    dra_status st = p->seen && p->stale && p->last ? make_arrays(p, err) : out_of_memory(err);
    for (size_t b = 0; b < B && p->last; b++) p->last[b] = -1;
    if (st == DRA_OK)
        *out = p;
    else
        dra_picker_destroy(p);
    return st;
}

void dra_picker_destroy(dra_picker *p)
{
    if (!p) return;
    dra_session_destroy(p->session);
    dra_array_destroy(p->logits);
    dra_array_destroy(p->known);
    dra_array_destroy(p->bias);
    free(p->copy);
    free(p->seen);
    free(p->stale);
    free(p->last);
    free(p);
}

/* ---- logits ---------------------------------------------------------------------------------- */

dra_span dra_picker_logits(const dra_picker *p, int64_t row, int64_t n)
{
    const size_t each = (size_t)p->V * sizeof(dra_real);
    return dra_span_part(dra_array_whole(p->logits), (size_t)row * each, (size_t)n * each);
}

dra_status dra_picker_take(dra_picker *p, int64_t row, int64_t n, dra_span from, dra_error *err)
{
    p->fresh = false;
    return dra_array_copy(dra_picker_logits(p, row, n), from, err);
}

dra_status dra_picker_put(dra_picker *p, int64_t row, const dra_real *logits, dra_error *err)
{
    p->fresh = false;
    return dra_array_upload(dra_picker_logits(p, row, 1), logits, err);
}

dra_status dra_picker_see(dra_picker *p, dra_reader *after, dra_real **out, dra_error *err)
{
    const dra_span all = dra_array_whole(p->logits);
    *out = dra_span_on_host(all);
    if (*out) return dra_reader_finish(after, err);
    if (!p->copy) p->copy = malloc(all.bytes + 1);
    if (!p->copy) return out_of_memory(err);
    const dra_fetch  wanted = {p->copy, all};
    const dra_status st = dra_reader_fetch(after, &wanted, !p->fresh, err);
    p->fresh = st == DRA_OK;
    *out = p->copy;
    return st;
}

/* ---- tokens that were read ------------------------------------------------------------------- */

bool *dra_picker_seen(const dra_picker *p, int64_t row) { return p->seen + row * p->V; }

void dra_picker_mark(dra_picker *p, int64_t row, int32_t id)
{
    bool *seen = dra_picker_seen(p, row);
    if (seen[id]) return;
    seen[id] = true;
    if (p->last[row] >= 0) p->stale[row] = true;
    p->last[row] = id;
}

void dra_picker_set_seen(dra_picker *p, int64_t row, const bool *seen)
{
    if (seen)
        memcpy(dra_picker_seen(p, row), seen, (size_t)p->V * sizeof *seen);
    else
        memset(dra_picker_seen(p, row), 0, (size_t)p->V * sizeof *p->seen);
    p->stale[row] = true;
}

/* The device gets to know rows that are not as it knows them; `last` is left for the program. */
static dra_status tell_seen(dra_picker *p, dra_error *err)
{
    const size_t V = (size_t)p->V;
    dra_status   st = DRA_OK;
    const bool   first = !p->known;
    if (first) st = dra_array_create(p->device, (size_t)p->B * V, &p->known, err);
    if (first && st == DRA_OK) st = bind(p, "seen", dra_array_whole(p->known), err);
    for (int64_t b = 0; b < p->B && st == DRA_OK; b++) {
        if (!first && !p->stale[b]) continue;
        p->stale[b] = false;
        p->last[b] = -1;
        st = dra_array_upload(dra_span_part(dra_array_whole(p->known), (size_t)b * V, V),
                              dra_picker_seen(p, b), err);
    }
    return st;
}

/* ---- picking --------------------------------------------------------------------------------- */

dra_status dra_picker_bias(dra_picker *p, const dra_real *bias, dra_error *err)
{
    const size_t bytes = (size_t)p->V * sizeof *bias;
    dra_array   *a = NULL;
    dra_status   st = bias ? dra_array_create(p->device, bytes, &a, err) : DRA_OK;
    if (st == DRA_OK && bias) st = dra_array_upload(dra_array_whole(a), bias, err);
    if (st == DRA_OK && bias) st = bind(p, "bias", dra_array_whole(a), err);
    if (st != DRA_OK) {
        dra_array_destroy(a);
        return st;
    }
    dra_array_destroy(p->bias);
    p->bias = a;
    return DRA_OK;
}

static bool penalises(const dra_picker *p, const dra_sample_row *rows)
{
    for (int64_t b = 0; b < p->B; b++)
        if (rows[b].repetition_penalty != 0 && rows[b].repetition_penalty != 1) return true;
    return false;
}

static dra_status put(dra_picker *p, const char *name, const void *data, size_t bytes,
                      dra_error *err)
{
    return dra_session_put(p->session, dra_session_name(p->session, name), data, bytes, err);
}

static dra_status start(dra_picker *p, const dra_sample_row *rows, const bool *allowed,
                        dra_error *err)
{
    const size_t    B = (size_t)p->B;
    const bool      seen = penalises(p, rows);
    const dra_shape key = DRA_SHAPE(
        p->B, p->V, (p->bias ? BIAS : 0) | (allowed ? ALLOWED : 0) | (seen ? SEEN : 0));
    dra_status st = dra_session_select(p->session, &key, 1, err);
    if (st == DRA_OK) st = put(p, "rows", rows, B * sizeof *rows, err);
    if (st == DRA_OK && allowed)
        st = put(p, "allowed", allowed, B * (size_t)p->V * sizeof *allowed, err);
    if (st == DRA_OK && seen) st = tell_seen(p, err);
    if (st == DRA_OK && seen) st = put(p, "last", p->last, B * sizeof *p->last, err);
    if (st == DRA_OK) st = dra_session_start(p->session, err);
    for (size_t b = 0; b < B && seen && st == DRA_OK; b++) p->last[b] = -1;
    return st;
}

dra_status dra_picker_pick(dra_picker *p, const dra_sample_row *rows, const bool *allowed,
                           dra_reader *after, int32_t *ids, dra_error *err)
{
    const dra_status st = start(p, rows, allowed, err);
    const dra_fetch  wanted = {ids, dra_session_result(p->session, "ids")};
    return st == DRA_OK ? dra_reader_fetch(after, &wanted, 1, err) : st;
}
