/* What a model learns from rows of tokens or vectors x_0 .. x_{T-1}.
 *   next      position t predicts x_{t+1}
 *   masked    hidden positions predict x_t itself: objective_masked.c
 *   classes   the mean over all positions predicts a label
 *   squared, gaussian   position t predicts the vector x_{t+1}
 *   xval      next, and the number that comes with x_{t+1} where that is the number token
 *   dpo       of two texts, the first shall become likelier than the second
 * Random numbers follow from seed, step, row and position alone, so that resuming a run or cutting
 * a batch into microbatches changes nothing. */
#include "train/objective.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"

/* ---- the loss of next and masked: cross entropy of targets ----------------------------------- */

static dra_loss target_loss(dra_graph *g, const dra_model_result *r, const dra_value *in,
                            const dra_loss_config *c)
{
    if (dra_head_is_linear(r))
        return (dra_loss){dra_linear_cross_entropy(g, dra_head_input(g, r, r->hidden), r->head,
                                                   in[0], &c->entropy),
                          {{0}}};
    return (dra_loss){dra_cross_entropy(g, dra_head_apply(g, r, r->hidden), in[0], &c->entropy),
                      {{0}}};
}

/* ---- next ------------------------------------------------------------------------------------ */

static bool is_encoder(const dra_model *m)
{
    return dra_model_config_of(m)->visible == DRA_VISIBLE_BIDIRECTIONAL;
}

static dra_status complete_next(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    if (is_encoder(m))
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective next: the model is an encoder, whose tokens see the next one; "
                        "expected masked");
    return DRA_OK;
}

/* A feed's targets are the next tokens already. */
static void make_next(const dra_objective_config *c, const dra_model *m,
                      const dra_objective_rows *r)
{}

/* ---- classes --------------------------------------------------------------------------------- */

static dra_status fail_unfit(dra_error *err, const char *name, const char *why)
{
    return dra_fail(err, DRA_ERR_VALUE, "objective %s: %s", name, why);
}

static void make_nothing(const dra_objective_config *c, const dra_model *m,
                         const dra_objective_rows *r)
{}

static dra_status complete_classes(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    const dra_head_config *head = &dra_model_config_of(m)->head;
    if (head->kind == DRA_HEAD_CLASSES && head->dim > 0) return DRA_OK;
    return fail_unfit(err, "classes", "the model has no head of classes (head.kind)");
}

static dra_loss class_loss(dra_graph *g, const dra_model_result *r, const dra_value *in,
                           const dra_loss_config *c)
{
    return dra_loss_classes(g, dra_head_apply(g, r, r->pooled), in[0], &c->entropy);
}

/* ---- vectors --------------------------------------------------------------------------------- */

/* Vectors that predict vectors, by `factor` numbers for each. */
static dra_status complete_vectors(const char *name, int64_t factor, const dra_model *m,
                                   dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(m);
    const int64_t           out = c->head.dim ? c->head.dim : c->dim, in = dra_source_width(c);
    if (c->source.kind != DRA_SOURCE_VECTORS || c->head.kind == DRA_HEAD_CLASSES)
        return fail_unfit(err, name,
                          "the model does not read vectors and put out others (source, head)");
    if (is_encoder(m))
        return fail_unfit(err, name, "the model is an encoder, which sees the next vector");
    if (out == factor * in) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE,
                    "objective %s: the model has %lld output channels for %lld, expected %lld",
                    name, (long long)out, (long long)in, (long long)(factor * in));
}

static dra_status complete_squared(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    return complete_vectors("squared", 1, m, err);
}

static dra_status complete_gaussian(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    return complete_vectors("gaussian", 2, m, err);
}

static dra_loss squared_loss(dra_graph *g, const dra_model_result *r, const dra_value *in,
                             const dra_loss_config *c)
{
    return dra_loss_squared(g, dra_head_apply(g, r, r->hidden), in[0], in[1],
                            c->objective->equal_rows);
}

static dra_loss gaussian_loss(dra_graph *g, const dra_model_result *r, const dra_value *in,
                              const dra_loss_config *c)
{
    return dra_loss_gaussian(g, dra_head_apply(g, r, r->hidden), in[0], in[1]);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static dra_status complete_xval(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    const dra_model_config *of = dra_model_config_of(m);
    if (c->number_weight == 0) c->number_weight = 1;
    if (of->source.numbers && of->head.numbers && !is_encoder(m)) return DRA_OK;
    return fail_unfit(err, "xval",
                      "the model does not read and predict numbers (source.numbers, head.numbers)");
}

static dra_value token_losses(dra_graph *g, const dra_model_result *r, dra_value targets,
                              const dra_loss_config *c)
{
    return dra_token_losses(g, dra_head_apply(g, r, r->hidden), targets, &c->entropy);
}

static dra_loss xval_loss(dra_graph *g, const dra_model_result *r, const dra_value *in,
                          const dra_loss_config *c)
{
    return dra_loss_numbers(g, token_losses(g, r, in[0], c), in[0], r->numbers, in[1],
                            (int32_t)c->model->source.number_token,
                            fmax(0, c->objective->number_weight));
}

/* ---- preferences ----------------------------------------------------------------------------- */

static dra_status complete_dpo(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    const dra_model_config *of = dra_model_config_of(m);
    if (c->beta == 0) c->beta = 0.1;
    if (of->source.kind == DRA_SOURCE_TOKENS && of->head.kind == DRA_HEAD_TOKENS && !is_encoder(m))
        return DRA_OK;
    return fail_unfit(err, "dpo", "the model does not predict next tokens");
}

static dra_loss dpo_loss(dra_graph *g, const dra_model_result *r, const dra_value *in,
                         const dra_loss_config *c)
{
    return dra_loss_preference(g, token_losses(g, r, in[0], c), in[0], in[1],
                               fmax(0, c->objective->beta));
}

/* ---- the table ------------------------------------------------------------------------------- */

#define TARGETS                                                                                    \
    {                                                                                              \
        "targets", DRA_I32, DRA_AXES_TOKENS                                                        \
    }
#define VECTORS                                                                                    \
    {"y", DRA_REAL, DRA_AXES_VECTORS}, { "weights", DRA_REAL, DRA_AXES_TOKENS }
#define OUTPUTS                                                                                    \
    {"y", DRA_REAL, DRA_AXES_OUTPUTS}, { "weights", DRA_REAL, DRA_AXES_TOKENS }
#define PERPLEXITY                                                                                 \
    {                                                                                              \
        "perplexity", DRA_MEASURE_EXP, true                                                        \
    }
#define ERROR                                                                                      \
    {                                                                                              \
        "error", DRA_MEASURE_ROOT, false                                                           \
    }
#define ACCURACY                                                                                   \
    {                                                                                              \
        "accuracy", DRA_MEASURE_PLAIN, false                                                       \
    }

static const dra_objective table[] = {
    [DRA_OBJECTIVE_NEXT] =
        {"next", {TARGETS}, {PERPLEXITY}, true, complete_next, make_next, target_loss},
    [DRA_OBJECTIVE_MASKED] = {"masked",
                              {TARGETS},
                              {PERPLEXITY},
                              false,
                              dra_masked_complete,
                              dra_masked_make,
                              target_loss},
    [DRA_OBJECTIVE_CLASSES] = {"classes",
                               {{"labels", DRA_I32, DRA_AXES_ROWS}},
                               {ACCURACY},
                               false,
                               complete_classes,
                               make_nothing,
                               class_loss},
    [DRA_OBJECTIVE_SQUARED] =
        {"squared", {OUTPUTS}, {ERROR}, true, complete_squared, make_nothing, squared_loss},
    [DRA_OBJECTIVE_GAUSSIAN] =
        {"gaussian", {VECTORS}, {ERROR}, true, complete_gaussian, make_nothing, gaussian_loss},
    [DRA_OBJECTIVE_XVAL] = {"xval",
                            {TARGETS, {"numbers", DRA_REAL, DRA_AXES_TOKENS}},
                            {{"perplexity", DRA_MEASURE_EXP, false}, ERROR},
                            true,
                            complete_xval,
                            make_nothing,
                            xval_loss},
    [DRA_OBJECTIVE_DPO] = {"dpo",
                           {TARGETS, {"reference", DRA_REAL, DRA_AXES_ROWS}},
                           {ACCURACY},
                           true,
                           complete_dpo,
                           make_nothing,
                           dpo_loss},
};

/* The objective that a model's output is made for. */
static dra_objective_kind own_kind(const dra_model *m)
{
    const dra_model_config *c = dra_model_config_of(m);
    if (c->head.kind == DRA_HEAD_CLASSES) return DRA_OBJECTIVE_CLASSES;
    if (c->source.kind == DRA_SOURCE_VECTORS && c->head.kind != DRA_HEAD_TOKENS)
        return DRA_OBJECTIVE_SQUARED;
    if (c->head.numbers) return DRA_OBJECTIVE_XVAL;
    return is_encoder(m) ? DRA_OBJECTIVE_MASKED : DRA_OBJECTIVE_NEXT;
}

const dra_objective *dra_objective_of(dra_objective_kind kind, const dra_model *m)
{
    const unsigned row = kind == DRA_OBJECTIVE_OWN ? own_kind(m) : (unsigned)kind;
    return row < sizeof table / sizeof *table ? &table[row] : NULL;
}

const char *dra_objective_name(dra_objective_kind kind, const dra_model *m)
{
    const dra_objective *o = dra_objective_of(kind, m);
    return o ? o->name : "unknown";
}

const char *dra_objective_measure(dra_objective_kind kind, const dra_model *m, int i)
{
    const dra_objective *o = dra_objective_of(kind, m);
    return o && i >= 0 && i < DRA_MEASURES ? o->measures[i].name : NULL;
}

double dra_measure_show(const dra_measure *m, double mean)
{
    return m->form == DRA_MEASURE_ROOT ? sqrt(mean) : m->form == DRA_MEASURE_EXP ? exp(mean) : mean;
}

dra_shape dra_objective_shape(const dra_objective_input *in, const dra_model *m, int64_t B,
                              int64_t T)
{
    if (in->axes == DRA_AXES_ROWS) return DRA_SHAPE(B);
    if (in->axes == DRA_AXES_TOKENS) return DRA_SHAPE(B, T);
    if (in->axes == DRA_AXES_OUTPUTS) return DRA_SHAPE(B, T, dra_model_head_width(m));
    return DRA_SHAPE(B, T, dra_source_width(dra_model_config_of(m)));
}

/* Refuses settings of one objective that another does not have. */
static dra_status check_settings(const dra_objective_config *c, const dra_objective *o,
                                 dra_error *err)
{
    const struct {
        const char *name, *of;
        bool        set;
    } own[] = {{"mask_share", "masked", c->mask_share != 0},
               {"mask_token", "masked", c->mask_token != 0},
               {"mask_schedule", "masked", c->mask_schedule != DRA_MASK_CONSTANT},
               {"equal_rows", "squared", c->equal_rows},
               {"number_weight", "xval", c->number_weight != 0},
               {"beta", "dpo", c->beta != 0}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].set && strcmp(own[i].of, o->name) != 0)
            return dra_fail(err, DRA_ERR_VALUE, "objective %s: %s is for the objective %s", o->name,
                            own[i].name, own[i].of);
    return DRA_OK;
}

dra_status dra_objective_complete(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    const dra_objective *o = dra_objective_of(c->kind, m);
    if (!o) return dra_fail(err, DRA_ERR_VALUE, "objective %d is not known", (int)c->kind);
    if (c->kind == DRA_OBJECTIVE_OWN) c->kind = own_kind(m);
    const dra_status st = o->complete(c, m, err);
    return st == DRA_OK ? check_settings(c, o, err) : st;
}

void dra_objective_make(const dra_objective_config *c, const dra_model *m,
                        const dra_objective_rows *rows)
{
    dra_objective_of(c->kind, m)->make(c, m, rows);
}
