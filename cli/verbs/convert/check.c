/* The check of dra convert: both models read some tokens, vectors and images; what they put out is
 * compared. A vocabulary may have another size: logits of what both have count. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKED = 32, INPUTS = 8, RESULTS = 4 };

/* ---- inputs ---------------------------------------------------------------------------------- */

typedef struct texts {
    dra_named        in[INPUTS];
    void            *data[INPUTS];
    int              n;
    int64_t          T;
    dra_context_text context;
} texts;

/* Tokens, as many as the stack has positions for. */
static int64_t length_of(const dra_model_input *in)
{
    const dra_model_config *c = dra_model_config_of(in->model);
    if (in->length) return in->length;
    if (in->condition) return 1;
    return c->positions == DRA_POSITIONS_LEARNED && c->context < CHECKED ? c->context : CHECKED;
}

static int64_t numbers_of(const dra_model_input *in, int64_t n)
{
    const dra_source_config *s = &dra_model_config_of(in->model)->source;
    if (in->numbers || in->kind == DRA_SOURCE_TOKENS) return n;
    return in->kind == DRA_SOURCE_IMAGE ? s->channels * s->size * s->size : n * in->width;
}

static dra_status add_input(texts *t, const dra_model_input *in, int64_t vocab, dra_error *err)
{
    const bool    ids = in->kind == DRA_SOURCE_TOKENS && !in->numbers;
    const int64_t n = length_of(in), all = numbers_of(in, n);
    const int64_t V = vocab && !in->context && vocab < in->vocab ? vocab : in->vocab;
    const size_t  size = ids ? sizeof(int32_t) : sizeof(dra_real);
    void         *data = t->n < INPUTS ? calloc((size_t)all + 1, size) : NULL;
    if (!data) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < all; i++)
        if (ids)
            ((int32_t *)data)[i] = (int32_t)((i * 7919 + 13) % V);
        else
            ((dra_real *)data)[i] = (dra_real)sin(0.9 * (double)i + 0.017 * (double)(i * i));
    t->data[t->n] = data;
    t->in[t->n++] = (dra_named){in->name, data, (size_t)all * size};
    if (!in->numbers && !in->condition) *(in->context ? &t->context.T : &t->T) += n;
    return DRA_OK;
}

static dra_status make_texts(const dra_model *m, int64_t vocab, texts *t, dra_error *err)
{
    dra_model_input in;
    dra_status      st = DRA_OK;
    for (int i = 0; st == DRA_OK && dra_model_input_at(m, i, &in); i++)
        st = add_input(t, &in, vocab, err);
    return st;
}

/* ---- outputs --------------------------------------------------------------------------------- */

typedef struct answers {
    int       n;
    int64_t   rows[RESULTS], width[RESULTS];
    dra_real *x[RESULTS];
} answers;

static dra_status keep_result(dra_reader *r, const char *name, answers *out, dra_error *err)
{
    dra_shape s;
    if (!dra_reader_result_shape(r, name, &s)) return DRA_OK;
    const int64_t   all = dra_shape_count(&s);
    const dra_real *x = dra_reader_result(r, name);
    dra_real       *copy = x ? malloc((size_t)all * sizeof *copy + 1) : NULL;
    if (!copy) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    memcpy(copy, x, (size_t)all * sizeof *copy);
    out->width[out->n] = s.dim[s.rank - 1];
    out->rows[out->n] = all / s.dim[s.rank - 1];
    out->x[out->n++] = copy;
    return DRA_OK;
}

static dra_status read_texts(dra_reader *r, dra_states *s, const texts *t, dra_error *err)
{
    if (!t->context.T) return dra_reader_read(r, s, t->T, NULL, t->n, t->in, err);
    return dra_reader_read_context(r, s, &t->context, t->T, NULL, t->n, t->in, err);
}

static dra_status read_answers(const char *path, const cli_check_config *c, answers *out,
                               dra_error *err)
{
    static const char *const names[] = {"logits", "out", "numbers", "hidden"};
    /* One was read with its hash before, the other is just written. */
    const cli_source    source = {.model = path, .threads = c->threads, .skip_hash = true};
    cli_model           m = {0};
    texts               t = {0};
    dra_reader         *r = NULL;
    dra_states         *s = NULL;
    dra_status          st = cli_model_open(&source, &m, err);
    const dra_head_kind head = st == DRA_OK ? dra_model_config_of(m.model)->head.kind
                                            : DRA_HEAD_TOKENS;
    const dra_view      view = {.model = m.model,
                                .logits = head == DRA_HEAD_TOKENS,
                                .hidden = head == DRA_HEAD_NONE,
                                .outs = true};
    if (st == DRA_OK) st = make_texts(m.model, c->vocab, &t, err);
    if (st == DRA_OK) {
        const dra_module module = dra_view_module(&view);
        st = dra_reader_create(m.device, &module, &r, err);
    }
    if (st == DRA_OK) st = dra_weights_bind(m.weights, r, err);
    if (st == DRA_OK) st = dra_states_create(m.device, dra_model_state(m.model), 1, &s, err);
    if (st == DRA_OK) st = read_texts(r, s, &t, err);
    for (int i = 0; i < RESULTS && st == DRA_OK; i++) st = keep_result(r, names[i], out, err);
    dra_states_destroy(s);
    dra_reader_destroy(r);
    for (int i = 0; i < t.n; i++) free(t.data[i]);
    cli_model_close(&m);
    return st;
}

/* ---- the comparison -------------------------------------------------------------------------- */

static double compare_answers(int64_t n, const dra_real *a, int64_t A, const dra_real *b, int64_t B)
{
    double worst = 0, most = 0;
    for (int64_t t = 0; t < n; t++)
        for (int64_t v = 0; v < A && v < B; v++) {
            const double d = fabs((double)a[t * A + v] - (double)b[t * B + v]);
            if (isnan(d)) return d;
            if (d > worst) worst = d;
            if (fabs((double)a[t * A + v]) > most) most = fabs((double)a[t * A + v]);
        }
    return most > 0 ? worst / most : worst;
}

static dra_status compare_all(const answers *a, const answers *b, double *worst, dra_error *err)
{
    *worst = 0;
    for (int i = 0; i < a->n; i++) {
        if (b->n != a->n || b->rows[i] != a->rows[i])
            return cli_error(err, DRA_ERR_SHAPE, "the models put out different things");
        const double d = compare_answers(a->rows[i], a->x[i], a->width[i], b->x[i], b->width[i]);
        if (isnan(d) || d > *worst) *worst = d;
        if (isnan(d)) break;
    }
    return DRA_OK;
}

dra_status cli_check(const cli_check_config *c, double *difference, dra_error *err)
{
    answers           a = {0}, b = {0};
    cli_check_config  both = *c; /* ids that both have */
    dra_model_config *from = NULL;
    dra_status        st = dra_folder_config(c->from, &from, err);
    if (st == DRA_OK && (!c->vocab || from->vocab < c->vocab)) both.vocab = from->vocab;
    dra_model_config_destroy(from);
    if (st == DRA_OK) st = read_answers(c->from, &both, &a, err);
    if (st == DRA_OK) st = read_answers(c->to, &both, &b, err);
    if (st == DRA_OK) st = compare_all(&a, &b, difference, err);
    for (int i = 0; i < RESULTS; i++) {
        free(a.x[i]);
        free(b.x[i]);
    }
    return st;
}
