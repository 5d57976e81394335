/* dra forward: attention maps and scores, as tensors. A state has room for more tokens than it
 * holds, and maps have a column for all of that room; unpadded maps leave out columns that no token
 * of any text may see. */
#include "forward.h"

#include <stdlib.h>
#include <string.h>

static const char *const parts[] = {"", "a.", "b.", "cross."}; /* a blend's memories have names */

static void name_map(char *name, size_t size, size_t layer, size_t part, dra_show_kind kind)
{
    snprintf(name, size, "layers.%zu.%s%s", layer, parts[part], dra_show_name(kind));
}

/* Finds which of the J columns of scores (..., J) are seen; returns how many. */
static int64_t find_seen(const dra_real *scores, int64_t rows, int64_t J, bool *seen)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rows * J; i++) seen[i % J] |= (double)scores[i] > DRA_MASKED / 2;
    for (int64_t j = 0; j < J; j++) n += seen[j];
    return n;
}

/* A copy of x (rows, J) with these columns alone. */
static dra_real *take_columns(const dra_real *x, int64_t rows, int64_t J, const bool *seen,
                              int64_t n)
{
    dra_real *out = malloc((size_t)(rows * n) * sizeof *out + 1), *to = out;
    for (int64_t i = 0; out && i < rows * J; i++)
        if (seen[i % J]) *to++ = x[i];
    return out;
}

/* Leaves out columns that no token may see, by the scores of the same layer. */
static dra_status unpad_map(const forward_work *w, const char *scores_name, dra_tensor_item *item,
                            dra_real **own, dra_error *err)
{
    const dra_real *scores = dra_reader_result(w->reader, scores_name);
    const int64_t   J = item->shape.dim[item->shape.rank - 1];
    dra_shape       s;
    if (!scores || !dra_reader_result_shape(w->reader, scores_name, &s) || J == 0) return DRA_OK;
    if (s.dim[s.rank - 1] != J) return DRA_OK;
    const int64_t rows = dra_shape_count(&item->shape) / J;
    bool         *seen = calloc((size_t)J, sizeof *seen);
    const int64_t n = seen ? find_seen(scores, rows, J, seen) : 0;
    if (seen) *own = take_columns(item->data, rows, J, seen, n);
    free(seen);
    if (!*own) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    item->shape.dim[item->shape.rank - 1] = n;
    item->data = *own;
    return DRA_OK;
}

static dra_status add_map(const forward_work *w, size_t layer, size_t part, dra_show_kind kind,
                          forward_maps *m, dra_error *err)
{
    char     *name = m->name[m->n], scores[sizeof *m->name];
    dra_shape s;
    name_map(name, sizeof *m->name, layer, part, kind);
    const dra_real *data = dra_reader_result(w->reader, name);
    if (!data || !dra_reader_result_shape(w->reader, name, &s)) return DRA_OK;
    if (!w->in.batched) memmove(s.dim, s.dim + 1, (size_t)--s.rank * sizeof *s.dim);
    m->item[m->n] = (dra_tensor_item){name, DRA_REAL, s, data};
    const size_t i = m->n++;
    if (!w->unpadded || (kind != DRA_SHOW_ATTENTION && kind != DRA_SHOW_SCORES)) return DRA_OK;
    name_map(scores, sizeof scores, layer, part, DRA_SHOW_SCORES);
    return unpad_map(w, scores, &m->item[i], &m->own[i], err);
}

dra_status forward_maps_list(const forward_work *w, forward_maps *m, dra_error *err)
{
    const int64_t L = w->maps || w->scores ? dra_model_layers(w->m.model) : 0;
    const size_t  most = (size_t)L * COUNT(parts) * DRA_SHOW_COUNT;
    dra_status    st = DRA_OK;
    m->name = calloc(most + 1, sizeof *m->name);
    m->item = calloc(most + 1, sizeof *m->item);
    m->own = calloc(most + 1, sizeof *m->own);
    if (!m->name || !m->item || !m->own) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < most && st == DRA_OK; i++) {
        const dra_show_kind kind = (dra_show_kind)(i / COUNT(parts) % DRA_SHOW_COUNT);
        if (kind == DRA_SHOW_SCORES ? !w->scores : !w->maps) continue;
        st = add_map(w, i / COUNT(parts) / DRA_SHOW_COUNT, i % COUNT(parts), kind, m, err);
    }
    return st;
}

void forward_maps_free(forward_maps *m)
{
    for (size_t i = 0; i < m->n; i++) free(m->own[i]);
    free(m->name);
    free(m->item);
    free(m->own);
}
