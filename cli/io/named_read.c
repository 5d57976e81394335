/* Inputs by name, for models that are not language models: what a model reads follows from its
 * config; any other tensor of the file is refused. */
#include "named.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const dra_example_input *find_mask(const dra_examples *e, const dra_model *m, bool context)
{
    const char              *name = cli_named_mask(m, context);
    const dra_example_input *t = dra_examples_find(e, name);
    if (named_main(m, context).kind == DRA_SOURCE_IMAGE) return NULL;
    return t || strcmp(name, "src_mask") != 0 ? t : dra_examples_find(e, "mask");
}

typedef struct reading {
    const dra_examples     *e;
    const dra_model        *m;
    const cli_named_config *c;
    const char             *path;
    cli_inputs             *in;
} reading;

/* Checks the shape of a tensor; an axis of -1 becomes its size, which is 1 or more. */
static dra_status check_shape(const reading *r, const dra_example_input *t, dra_shape *s,
                              dra_error *err)
{
    char found[80], expected[80];
    bool same = t->shape.rank == s->rank;
    for (int32_t i = 0; i < s->rank && same; i++)
        same = s->dim[i] < 0 ? t->shape.dim[i] > 0 : t->shape.dim[i] == s->dim[i];
    if (!same)
        return cli_error(err, DRA_ERR_SHAPE, "%.200s: tensor %.40s is %s, expected %s", r->path,
                         t->name, named_shape_text(&t->shape, "", found, sizeof found),
                         named_shape_text(s, "1 or more", expected, sizeof expected));
    *s = t->shape;
    return DRA_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static dra_status check_ids(const reading *r, const char *name, int64_t each, int64_t least,
                            int64_t most, const int32_t *ids, dra_error *err)
{
    for (int64_t i = 0; i < r->in->B * each; i++)
        if (ids[i] < least || ids[i] > most)
            return cli_error(err, DRA_ERR_INDEX,
                             "%.200s: tensor %.40s: number %lld of row %lld is %d, expected %lld "
                             "to %lld",
                             r->path, name, (long long)(i % each), (long long)(i / each), ids[i],
                             (long long)least, (long long)most);
    return DRA_OK;
}

/* where: NULL, or ids (B, each): only numbers of token `token` are looked at. */
static dra_status check_finite(const reading *r, const char *name, int64_t each,
                               const int32_t *where, int64_t token, const dra_real *x,
                               dra_error *err)
{
    for (int64_t i = 0; i < r->in->B * each; i++)
        if (!isfinite(x[i]) && (!where || where[i] == token))
            return cli_error(err, DRA_ERR_VALUE,
                             "%.200s: tensor %.40s: number %lld of row %lld is %g, expected a "
                             "finite one",
                             r->path, name, (long long)(i % each), (long long)(i / each),
                             (double)x[i]);
    return DRA_OK;
}

/* Reads all numbers of a tensor, integers or reals. */
static void *read_all(const reading *r, const dra_example_input *t, dra_shape *s, dra_dtype dtype,
                      dra_error *err)
{
    const bool whole = t->dtype == DRA_I32 || t->dtype == DRA_BOOL;
    if (check_shape(r, t, s, err) != DRA_OK) return NULL;
    if (!(dtype == DRA_I32 ? whole : t->real)) {
        cli_error(err, DRA_ERR_DTYPE, "%.200s: tensor %.40s is %s, expected %s", r->path, t->name,
                  t->dtype_name, dtype == DRA_I32 ? "integers" : "real numbers");
        return NULL;
    }
    return cli_rows_read(r->e, t->name, dra_shape_count(s), dtype, err);
}

/* ---- one input ------------------------------------------------------------------------------- */

static int64_t *tokens_of(const reading *r, bool context)
{
    return context ? &r->in->S : &r->in->T;
}

/* The tokens whose numbers are read next. */
static const int32_t *ids_before(const reading *r) { return r->in->named[r->in->n_named - 1].data; }

static bool is_own(const dra_model_input *in)
{
    return !in->context && !in->prepended && !in->numbers && in->kind == DRA_SOURCE_TOKENS;
}

static const dra_example_input *find_input(const reading *r, const dra_model_input *in)
{
    const dra_example_input *t = dra_examples_find(r->e, in->name);
    if (!t && named_is_target(r->m, in)) t = dra_examples_find(r->e, "tgt");
    if (!t && is_own(in) && r->c->starts) t = dra_examples_find(r->e, "start");
    return t;
}

/* A first token for each row. */
static dra_status start_rows(const reading *r, const dra_model_input *in, dra_error *err)
{
    cli_named    *to = &r->in->named[r->in->n_named];
    const int64_t B = r->in->B;
    int32_t      *ids = calloc((size_t)B + 1, sizeof *ids);
    if (!ids) return cli_error(err, DRA_ERR_MEMORY, "out of memory");
    for (int64_t b = 0; b < B; b++) ids[b] = (int32_t)r->c->start;
    *to = (cli_named){.name = in->name, .data = ids, .row = sizeof *ids, .token = sizeof *ids};
    r->in->n_named++;
    r->in->T++;
    if (r->c->start < in->vocab) return DRA_OK;
    return cli_error(err, DRA_ERR_INDEX, "--start: %lld, expected 0 to %lld",
                     (long long)r->c->start, (long long)in->vocab - 1);
}

static dra_status fail_missing(const reading *r, const dra_model_input *in, dra_error *err)
{
    char list[300];
    return cli_error(err, DRA_ERR_NAME, "%.200s: tensor %s is missing: the model reads %s", r->path,
                     in->name, cli_named_list(r->m, list, sizeof list));
}

static dra_status check_numbers(const reading *r, const dra_model_input *in,
                                const dra_example_input *t, int64_t each, const void *data,
                                dra_error *err)
{
    const int64_t token = dra_model_config_of(in->model)->source.number_token;
    if (in->numbers) return check_finite(r, t->name, each, ids_before(r), token, data, err);
    if (in->kind == DRA_SOURCE_TOKENS)
        return check_ids(r, t->name, each, 0, in->vocab - 1, data, err);
    return check_finite(r, t->name, each, NULL, 0, data, err);
}

static dra_status read_input(const reading *r, const dra_model_input *in, dra_error *err)
{
    const dra_example_input *t = find_input(r, in);
    const bool               ids = in->kind == DRA_SOURCE_TOKENS && !in->numbers;
    const size_t             size = ids ? sizeof(int32_t) : sizeof(dra_real);
    cli_named               *to = &r->in->named[r->in->n_named];
    dra_shape                s = named_shape(in);
    if (!t && is_own(in) && r->c->start >= 0) return start_rows(r, in, err);
    if (!t) return fail_missing(r, in, err);
    if (in->numbers) s = DRA_SHAPE((int64_t)(to[-1].row / to[-1].token));
    *to = (cli_named){.name = in->name, .context = in->context};
    to->data = read_all(r, t, &s, ids ? DRA_I32 : DRA_REAL, err);
    if (!to->data) return err->code;
    const dra_status st = check_numbers(r, in, t, dra_shape_count(&s), to->data, err);
    r->in->n_named++; /* from now on its memory is freed with the others */
    to->row = (size_t)dra_shape_count(&s) * size;
    if (in->condition) return st; /* the same for all tokens */
    if (in->kind != DRA_SOURCE_IMAGE && !in->prepended) to->token = to->row / (size_t)s.dim[0];
    if (in->prepended) *(in->context ? &r->in->context_first : &r->in->first) = in->length;
    if (!in->numbers) *tokens_of(r, in->context) += in->length ? in->length : s.dim[0];
    return st;
}

/* ---- masks, labels and targets --------------------------------------------------------------- */

/* (B, n) of the last n tokens of a text becomes marks (B, all). */
static dra_status read_marks(const reading *r, const dra_example_input *t, int64_t n, int64_t all,
                             bool zero, int32_t mark, int32_t **to, dra_error *err)
{
    dra_shape s = DRA_SHAPE(n);
    if (!t) return DRA_OK;
    int32_t *given = read_all(r, t, &s, DRA_I32, err);
    if (!given) return err->code;
    if (!*to) *to = calloc((size_t)(r->in->B * all) + 1, sizeof **to);
    for (int64_t i = 0; *to && i < r->in->B * n; i++)
        if (!given[i] == zero) (*to)[i / n * all + all - n + i % n] |= mark;
    free(given);
    return *to ? DRA_OK : cli_error(err, DRA_ERR_MEMORY, "out of memory");
}

static dra_status read_masks(const reading *r, bool context, dra_error *err)
{
    cli_inputs              *in = r->in;
    const dra_example_input *mask = find_mask(r->e, r->m, context);
    const int64_t            all = *tokens_of(r, context);
    const int64_t            n = all - (context ? in->context_first : in->first);
    int32_t                **to = context ? &in->context_mark : &in->mark;
    dra_status               st = read_marks(r, mask, n, all, true, DRA_MARK_PAD, to, err);
    if (context || st != DRA_OK) return st;
    return read_marks(r, dra_examples_find(r->e, "reset"), n, all, false, DRA_MARK_RESET, to, err);
}

/* The source's stack may have learned positions, too. */
static dra_status check_places(const reading *r, dra_error *err)
{
    const dra_model *m = dra_model_context_stack(r->m);
    dra_error        why = {0};
    if (dra_model_check_positions(m, 0, r->in->S - r->in->context_first, &why) == DRA_OK)
        return DRA_OK;
    return cli_error(err, why.code, "%.200s: tensor %s: %.200s", r->path,
                     named_main(r->m, true).name, why.text);
}

/* Reads classes; numbers below 0 do not count: -1, or -100 as in PyTorch. */
static dra_status read_classes(const reading *r, const char *name, int64_t n, int64_t V,
                               int32_t **to, dra_error *err)
{
    const dra_example_input *t = dra_examples_find(r->e, name);
    dra_shape                s = n ? DRA_SHAPE(n) : (dra_shape){0};
    if (!t) return DRA_OK;
    *to = read_all(r, t, &s, DRA_I32, err);
    if (!*to) return err->code;
    for (int64_t i = 0; i < r->in->B * (n ? n : 1); i++)
        if ((*to)[i] == -100) (*to)[i] = -1;
    return check_ids(r, name, n ? n : 1, -1, V - 1, *to, err);
}

static dra_status read_goals(const reading *r, const char *name, dra_shape s, dra_error *err)
{
    const dra_example_input *t = dra_examples_find(r->e, name);
    if (!t) return DRA_OK;
    r->in->goals = read_all(r, t, &s, DRA_REAL, err);
    return r->in->goals ? DRA_OK : err->code;
}

/* Reads the targets that the model's outputs are compared with. */
static dra_status read_answers(const reading *r, dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(r->m);
    const int64_t           n = r->in->T, width = dra_model_head_width(r->m);
    dra_status              st = DRA_OK;
    switch (c->head.kind) {
    case DRA_HEAD_TOKENS:
        st = read_classes(r, "targets", n, c->vocab, &r->in->targets, err);
        if (st == DRA_OK && c->head.numbers) st = read_goals(r, "target_nums", DRA_SHAPE(n), err);
        return st;
    case DRA_HEAD_CLASSES:
        return c->head.dim ? read_classes(r, "labels", 0, width, &r->in->labels, err) : DRA_OK;
    case DRA_HEAD_VECTORS: return read_goals(r, "targets", DRA_SHAPE(n, width), err);
    case DRA_HEAD_NONE:
        return r->c->hidden ? read_goals(r, "targets", DRA_SHAPE(n, width), err) : DRA_OK;
    default: return DRA_OK;
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

typedef struct name_list {
    const char *name[16];
    int         n;
} name_list;

static void add_name(name_list *l, const char *name)
{
    if (name) l->name[l->n++] = name;
}

/* All tensors a file may have. */
static name_list known_names(const dra_model *m, const cli_named_config *how)
{
    const bool              context = how->context;
    const dra_model_config *c = dra_model_config_of(m);
    const bool              reads = context && dra_model_context_stack(m);
    const bool              src = reads && strcmp(named_main(m, true).name, "src") == 0;
    const bool              classes = c->head.kind == DRA_HEAD_CLASSES;
    dra_model_input         in;
    name_list               l = {.n = 0};
    for (int i = 0; dra_model_input_at(m, i, &in); i++) {
        if (in.context && !context) continue;
        add_name(&l, in.name);
        if (named_is_target(m, &in)) add_name(&l, "tgt");
        if (is_own(&in) && how->starts) add_name(&l, "start");
    }
    if (named_main(m, false).kind != DRA_SOURCE_IMAGE) {
        add_name(&l, cli_named_mask(m, false));
        add_name(&l, "reset");
    }
    if (reads && named_main(m, true).kind != DRA_SOURCE_IMAGE)
        add_name(&l, cli_named_mask(m, true));
    if (src) add_name(&l, "mask");
    if (classes && c->head.dim) add_name(&l, "labels");
    if (!classes && (c->head.kind != DRA_HEAD_NONE || how->hidden)) add_name(&l, "targets");
    if (c->head.numbers) add_name(&l, "target_nums");
    return l;
}

static dra_status check_names(const reading *r, dra_error *err)
{
    const name_list          l = known_names(r->m, r->c);
    const dra_example_input *t;
    char                     list[300] = "";
    size_t                   at = 0;
    for (int i = 0; i < l.n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", l.name[i]);
    for (int i = 0; (t = dra_examples_at(r->e, i)) != NULL; i++) {
        int k = 0;
        while (k < l.n && strcmp(l.name[k], t->name) != 0) k++;
        if (k == l.n)
            return cli_error(err, DRA_ERR_NAME,
                             "%.200s: tensor %.80s is not an input of this model, expected %s",
                             r->path, t->name, list);
    }
    return DRA_OK;
}

dra_status cli_named_read(const dra_model *m, const cli_named_config *c, cli_inputs *out,
                          dra_error *err)
{
    const dra_examples_config config = {.path = c->path, .B = 1};
    dra_examples             *e = NULL;
    dra_model_input           in;
    dra_status                st = dra_examples_open(&config, &e, err);
    const reading             r = {e, m, c, c->path, out};
    if (st == DRA_OK) st = check_names(&r, err);
    if (st == DRA_OK) out->B = dra_examples_count(e);
    out->batched = true;
    for (int i = 0; st == DRA_OK && dra_model_input_at(m, i, &in); i++)
        if (c->context || !in.context) st = read_input(&r, &in, err);
    if (st == DRA_OK) st = read_masks(&r, false, err);
    if (st == DRA_OK && out->S) st = read_masks(&r, true, err);
    if (st == DRA_OK && out->S) st = check_places(&r, err);
    if (st == DRA_OK) st = read_answers(&r, err);
    if (st == DRA_OK && c->resets) st = cli_resets_add(c->resets, out, err);
    if (st == DRA_OK && !out->first && named_main(m, false).kind == DRA_SOURCE_TOKENS)
        out->ids = out->named[0].data;
    dra_examples_close(e);
    if (st != DRA_OK) cli_inputs_free(out);
    return st;
}
