/* Sources: what a stack reads.
 *   tokens    rows of a table; with numbers (xVal) the row of one token times its number
 *   vectors   x, or W x
 *   image     patches, row by row: LN(W LN(patch) + b) */
#include <math.h>

#include "base/error.h"
#include "base/shape.h"
#include "graph/op.h"
#include "model/model.h"
#include "file/field_rows.h"
#include "model/parts.h"

DRA_CHOICES(source_kinds, DRA_SOURCE_COUNT, "tokens", "vectors", "image");
static const char *const name_letters[] = {"abcdefghijklmnopqrstuvwxyz_0123456789", NULL};

const dra_field dra_source_fields[] = {
    CHOICE(dra_source_config, kind, source_kinds, "what the model reads"),
    {.name = "input",
     .kind = DRA_FIELD_TEXT,
     .offset = offsetof(dra_source_config, input),
     .choices = name_letters,
     .most = DRA_STACK_NAME,
     .unset = "ids, x or img",
     .about = "name of the input"},
    INT(dra_source_config, dim, "dim", "vectors: their width"),
    INT(dra_source_config, length, "any", "vectors that are prepended: how many"),
    INT(dra_source_config, size, "required", "image: pixels of a side"),
    INT(dra_source_config, patch, "required", "image: pixels of a side of a patch"),
    INT(dra_source_config, channels, "3", "image: colours"),
    BOOL(dra_source_config, numbers, "tokens: numbers are a second input (xVal)"),
    INT(dra_source_config, number_token, "0", "numbers: the token that stands for a number"),
    BOOL(dra_source_config, shared, "tokens: the table is that of the context's stack"),
    {0},
};

int64_t dra_embed_width(const dra_model_config *c) { return c->embed_dim ? c->embed_dim : c->dim; }

static int64_t count_patches(const dra_source_config *s)
{
    const int64_t side = s->patch ? s->size / s->patch : 0;
    return side * side;
}

int64_t dra_source_length(const dra_model_config *c)
{
    return c->source.kind == DRA_SOURCE_IMAGE     ? count_patches(&c->source)
           : c->source.kind == DRA_SOURCE_VECTORS ? c->source.length
                                                  : 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static dra_status check_image(const dra_model_config *c, dra_error *err)
{
    const dra_source_config *s = &c->source;
    if (s->size < 1 || s->patch < 1 || s->size % s->patch)
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: source: patch is %lld, which does not divide size %lld",
                        (long long)s->patch, (long long)s->size);
    if (c->visible != DRA_VISIBLE_BIDIRECTIONAL)
        return dra_fail(err, DRA_ERR_VALUE, "model: source image needs visible bidirectional");
    if (c->positions == DRA_POSITIONS_LEARNED && c->context != count_patches(s))
        return dra_fail(err, DRA_ERR_VALUE, "model: context is %lld, but an image has %lld patches",
                        (long long)c->context, (long long)count_patches(s));
    return DRA_OK;
}

dra_status dra_source_check(const dra_model_config *c, dra_error *err)
{
    const dra_source_config *s = &c->source;
    const bool               tokens = s->kind == DRA_SOURCE_TOKENS;
    if ((unsigned)s->kind > DRA_SOURCE_IMAGE)
        return dra_fail(err, DRA_ERR_VALUE, "model: source: kind is %d, expected 0 to %d",
                        (int)s->kind, DRA_SOURCE_IMAGE);
    if (!tokens && (s->numbers || s->shared))
        return dra_fail(err, DRA_ERR_VALUE, "model: source: %s needs kind tokens",
                        s->numbers ? "numbers" : "shared");
    if (s->dim && s->kind != DRA_SOURCE_VECTORS)
        return dra_fail(err, DRA_ERR_VALUE, "model: source: dim needs kind vectors");
    if (s->kind != DRA_SOURCE_IMAGE && (s->size || s->patch || s->channels))
        return dra_fail(err, DRA_ERR_VALUE, "model: source: size, patch and channels need image");
    if (s->numbers && (s->number_token < 0 || s->number_token >= c->vocab))
        return dra_fail(err, DRA_ERR_VALUE, "model: source: number_token is %lld, vocab %lld",
                        (long long)s->number_token, (long long)c->vocab);
    if (s->shared && (!c->context_stack || c->context_stack->source.kind != DRA_SOURCE_TOKENS))
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: source: shared needs a context that is made of tokens");
    if (s->shared && (c->context_stack->vocab != c->vocab ||
                      dra_embed_width(c->context_stack) != dra_embed_width(c)))
        return dra_fail(err, DRA_ERR_VALUE,
                        "model: source: shared needs a table of one size, found (%lld, %lld) and "
                        "(%lld, %lld)",
                        (long long)c->context_stack->vocab,
                        (long long)dra_embed_width(c->context_stack), (long long)c->vocab,
                        (long long)dra_embed_width(c));
    return s->kind == DRA_SOURCE_IMAGE ? check_image(c, err) : DRA_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int add_param(dra_model *m, const char *name, dra_param_group group, dra_shape shape,
                     dra_fill fill, double number)
{
    const int at = dra_specs_count(m->params);
    dra_specs_add(m->params, NULL,
                  &(dra_spec){name, shape, fill, .number = number, .product = shape.rank == 2,
                              .group = group});
    return at;
}

/* How the table of tokens starts: rows of length 1, or as x-transformers has it. */
static double table_std(const dra_model_config *c)
{
    const double W = (double)dra_embed_width(c);
    if (c->embed_unit) return 1e-5;
    if (c->source.numbers) return 1;
    return c->init == DRA_INIT_UNIFORM ? sqrt(2 / W) : 1 / sqrt(W);
}

static void declare_image(dra_model *m)
{
    const dra_model_config  *c = &m->config;
    const dra_source_config *s = &c->source;
    const dra_norm_config    norm = {.kind = DRA_NORM_LAYER, .bias = DRA_OFF, .eps = c->norm_eps};
    const int64_t            W = dra_embed_width(c), n = s->patch * s->patch * s->channels;
    const double             within = 1 / sqrt((double)n);
    m->patch_norm = dra_norm_declare(&norm, n, "patch_", m->params);
    m->source_w = add_param(m, "patch_w", DRA_PARAM_INPUT, DRA_SHAPE(W, n), DRA_FILL_UNIFORM,
                            within);
    m->source_b = add_param(m, "patch_b", DRA_PARAM_BIAS, DRA_SHAPE(W), DRA_FILL_UNIFORM, within);
    m->patch_out_norm = dra_norm_declare(&norm, W, "patch_out_", m->params);
}

void dra_source_declare(dra_model *m)
{
    const dra_model_config *c = &m->config;
    const int64_t           W = dra_embed_width(c), n = c->source.dim;
    m->embedding = m->source_w = m->source_b = -1;
    if (c->source.kind == DRA_SOURCE_TOKENS && !c->source.shared)
        m->embedding = add_param(m, "embedding", DRA_PARAM_EMBEDDING, DRA_SHAPE(c->vocab, W),
                                 DRA_FILL_NORMAL, table_std(c));
    if (c->source.kind == DRA_SOURCE_VECTORS && n)
        m->source_w = add_param(m, "source_w", DRA_PARAM_INPUT, DRA_SHAPE(W, n), DRA_FILL_UNIFORM,
                                1 / sqrt((double)n));
    if (c->source.kind == DRA_SOURCE_IMAGE) declare_image(m);
}

/* ---- the graph ------------------------------------------------------------------------------- */

static dra_value build_tokens(dra_graph *g, const dra_model *m, const dra_module_call *call,
                              dra_value ids)
{
    const dra_source_config *s = &m->config.source;
    dra_value                x = dra_embedding(g, call->param[m->embedding], ids);
    if (dra_graph_failed(g)) return x;
    if (dra_dtype_of(g, x) != DRA_REAL) x = dra_cast(g, x, DRA_REAL);
    if (m->config.embed_unit) x = dra_unit_clamped(g, x, 1e-12);
    if (m->config.embed_scale > 0) x = dra_affine(g, x, m->config.embed_scale, 0);
    if (!s->numbers) return x;
    const dra_shape each = dra_shape_of(g, ids);
    const dra_value nums = dra_input(g, "nums", DRA_REAL, each);
    const dra_value is = dra_equal(g, ids, dra_integer(g, (int32_t)s->number_token));
    const dra_value factor = dra_select(g, is, nums, dra_number(g, 1));
    return dra_mul(g, x, dra_reshape(g, factor, DRA_SHAPE(each.dim[0], each.dim[1], 1)));
}

/* img (B, channels, size, size) as patches, each (row, column, channel). */
static dra_value cut_patches(dra_graph *g, const dra_source_config *s, dra_value img, int64_t B)
{
    const int64_t   p = s->patch, side = s->size / p, C = s->channels;
    const int       order[] = {0, 2, 4, 3, 5, 1};
    const dra_value parts = dra_reshape(g, img, DRA_SHAPE(B, C, side, p, side, p));
    return dra_reshape(g, dra_permute(g, parts, order), DRA_SHAPE(B, side * side, p * p * C));
}

static dra_value build_image(dra_graph *g, const dra_model *m, const dra_module_call *call,
                             const char *name)
{
    const dra_source_config *s = &m->config.source;
    const int64_t            B = call->tokens.B;
    const double             eps = m->config.norm_eps;
    const dra_value img = dra_input(g, name, DRA_REAL, DRA_SHAPE(B, s->channels, s->size, s->size));
    dra_value x = dra_norm_build(g, &m->patch_norm, call->param, cut_patches(g, s, img, B), eps);
    x = dra_linear(g, x, call->param[m->source_w], call->param[m->source_b]);
    return dra_norm_build(g, &m->patch_out_norm, call->param, x, eps);
}

const char *dra_source_name(const dra_source_config *s)
{
    static const char *const names[] = {"ids", "x", "img"};
    _Static_assert(sizeof names / sizeof *names == DRA_SOURCE_COUNT, "a name for each");
    return s->input[0] ? s->input : names[s->kind];
}

int64_t dra_source_width(const dra_model_config *c)
{
    return c->source.dim ? c->source.dim : dra_embed_width(c);
}

dra_value dra_source_build(dra_graph *g, const dra_model *m, const dra_module_call *call, int64_t n,
                           dra_value ids)
{
    const dra_model_config  *c = &m->config;
    const dra_source_config *s = &c->source;
    const int64_t            B = call->tokens.B;
    if (dra_graph_failed(g)) return (dra_value){0};
    if (ids.id && dra_dtype_of(g, ids) == DRA_REAL) return ids;
    if (s->kind == DRA_SOURCE_IMAGE) return build_image(g, m, call, dra_source_name(s));
    if (s->kind == DRA_SOURCE_TOKENS) {
        if (!ids.id) ids = dra_input(g, dra_source_name(s), DRA_I32, DRA_SHAPE(B, n));
        return build_tokens(g, m, call, ids);
    }
    const dra_value x = dra_input(g, dra_source_name(s), DRA_REAL,
                                  DRA_SHAPE(B, n, dra_source_width(c)));
    return m->source_w < 0 ? x : dra_linear(g, x, call->param[m->source_w], (dra_value){0});
}
