/* The logits that follow sequences, for the host and for programs on the device. Those of a read
 * are on the device already; what the host has made, or kept, is put there. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/device.h"
#include "generate/engine.h"
#include "sequence/module.h"

/* ---- for the host ---------------------------------------------------------------------------- */

const dra_real *dra_engine_result(dra_reader *r, const char *name, dra_error *err)
{
    const dra_status st = dra_reader_finish(r, err);
    const dra_real  *x = st == DRA_OK ? dra_reader_result(r, name) : NULL;
    if (st == DRA_OK && !x) dra_engine_no_memory(err);
    return x;
}

dra_status dra_sequence_logits(dra_engine *e, const dra_sequence *s, int lane, const dra_real **out,
                               dra_error *err)
{
    *out = s->logits + lane * e->V;
    if (s->view == DRA_VIEWS) return DRA_OK;
    dra_error       why = {0};
    const dra_real *x = dra_engine_result(e->lane[lane].reader[s->view], "logits", &why);
    *out = x ? x + s->at * e->V : NULL;
    if (!x && err) *err = why;
    return x ? DRA_OK : why.code;
}

dra_status dra_sequence_keep_logits(dra_engine *e, const dra_sequence *s, dra_real *to,
                                    dra_error *err)
{
    dra_status      st = DRA_OK;
    const dra_real *x;
    for (int i = 0; i < e->lanes && st == DRA_OK; i++) {
        st = dra_sequence_logits(e, s, i, &x, err);
        if (st == DRA_OK) memcpy(to + i * e->V, x, (size_t)e->V * sizeof *x);
    }
    return st;
}

dra_status dra_sequence_own_logits(dra_engine *e, dra_sequence *s, dra_error *err)
{
    const size_t bytes = (size_t)(e->lanes * e->V) * sizeof *s->logits;
    if (s->view == DRA_VIEWS) return DRA_OK;
    if (!s->logits) s->logits = malloc(bytes);
    if (!s->logits) return dra_engine_no_memory(err);
    const dra_status st = dra_sequence_keep_logits(e, s, s->logits, err);
    s->view = DRA_VIEWS;
    return st;
}

/* ---- on the device --------------------------------------------------------------------------- */

void dra_made_free(dra_made *m)
{
    free(m->host);
    dra_array_destroy(m->array);
    *m = (dra_made){0};
}

dra_status dra_made_reserve(dra_engine *e, dra_made *m, int64_t rows, dra_error *err)
{
    const size_t bytes = (size_t)(rows * e->V) * sizeof *m->host;
    if (rows <= m->rows) return DRA_OK;
    dra_made_free(m);
    m->host = malloc(bytes);
    if (!m->host) return dra_engine_no_memory(err);
    const dra_status st = dra_array_create(e->config.device, bytes, &m->array, err);
    if (st == DRA_OK) m->rows = rows;
    return st;
}

dra_status dra_made_put(dra_engine *e, const dra_made *m, int64_t rows, dra_span *out,
                        dra_error *err)
{
    *out = dra_span_part(dra_array_whole(m->array), 0, (size_t)(rows * e->V) * sizeof *m->host);
    return dra_array_upload(*out, m->host, err);
}

dra_status dra_view_logits(dra_engine *e, dra_engine_view view, int64_t first, int64_t rows,
                           dra_made *room, dra_span *out, dra_error *err)
{
    dra_reader    *r = e->lane[0].reader[view];
    const dra_span all = dra_reader_result_span(r, "logits");
    const size_t   each = (size_t)e->V * sizeof(dra_real);
    if (all.array) {
        *out = dra_span_part(all, (size_t)first * each, (size_t)rows * each);
        return DRA_OK;
    }
    dra_error       why = {0};
    const dra_real *x = dra_engine_result(r, "logits", &why);
    dra_status      st = x ? dra_made_reserve(e, room, rows, err) : why.code;
    if (!x && err) *err = why;
    if (st != DRA_OK) return st;
    memcpy(room->host, x + first * e->V, (size_t)rows * each);
    return dra_made_put(e, room, rows, out, err);
}

dra_status dra_batch_logits(dra_engine *e, const dra_sequence *first, int64_t rows, dra_made *room,
                            dra_span *out, dra_error *err)
{
    if (first->view != DRA_VIEWS)
        return dra_view_logits(e, first->view, first->at, rows, room, out, err);
    const dra_status st = dra_made_reserve(e, room, rows, err);
    if (st != DRA_OK) return st;
    memcpy(room->host, first->logits, (size_t)e->V * sizeof *room->host);
    return dra_made_put(e, room, rows, out, err);
}
