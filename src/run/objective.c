/* What a model learns from rows of tokens x_0 .. x_{T-1}.
 *   next     position t predicts x_{t+1}
 *   masked   a share of the positions predicts x_t itself. Of these 80 % read the mask token in its
 *            place, 10 % a random token, 10 % x_t as it is [Devlin et al. 2018]
 * What is drawn follows from seed, step, row and position alone, so that resuming a run and cutting
 * a batch into microbatches change nothing. */
#include "run/objective.h"

#include "base/error.h"
#include "base/philox.h"

/* ---- the loss of both: cross entropy of targets ---------------------------------------------- */

static dra_value target_loss(dra_graph *g, const dra_model_result *r, const dra_value *in,
                             const dra_cross_entropy_config *c)
{
    return dra_linear_cross_entropy(g, r->hidden, r->head, in[0], c);
}

/* ---- next ------------------------------------------------------------------------------------ */

static bool is_encoder(const dra_model *m)
{
    return dra_model_config_of(m)->visible == DRA_VISIBLE_WHOLE;
}

static dra_status complete_next(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    if (is_encoder(m))
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective next: the model is an encoder, whose tokens see the next one; "
                        "expected masked");
    if (c->mask_share != 0 || c->mask_token != 0)
        return dra_fail(err, DRA_ERR_VALUE, "objective next: %s is for the objective masked",
                        c->mask_share != 0 ? "mask_share" : "mask_token");
    return DRA_OK;
}

/* A feed's targets are the next tokens already. */
static void make_next(const dra_objective_config *c, const dra_model *m,
                      const dra_objective_rows *r)
{}

/* ---- masked ---------------------------------------------------------------------------------- */

/* Of a causal model the logits of a token stand for the next one, wherever it is used; and it could
 * only guess from what comes before. */
static dra_status complete_masked(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    const int64_t V = dra_model_config_of(m)->vocab;
    if (!is_encoder(m))
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective masked: the model is causal, not an encoder, and its logits are "
                        "those of the next token; expected next");
    if (c->mask_share == 0) c->mask_share = 0.15;
    if (c->mask_token == 0) c->mask_token = V - 1;
    if (!(c->mask_share > 0 && c->mask_share <= 1))
        return dra_fail(err, DRA_ERR_VALUE, "objective masked: mask_share is %g, expected 0 to 1",
                        c->mask_share);
    if (V < 2 || c->mask_token >= V)
        return dra_fail(err, DRA_ERR_VALUE,
                        "objective masked: mask_token is %lld, the model has 0 to %lld",
                        (long long)c->mask_token, (long long)V - 1);
    return DRA_OK;
}

static double unit(uint32_t bits) { return ((double)bits + 0.5) * 0x1p-32; }

/* What is read in place of token `id`, by three random numbers. A random token is any but the mask
 * token, each as likely as the others. */
static int32_t hide(int32_t id, int32_t mask, int64_t V, const uint32_t *bits)
{
    const double  how = unit(bits[1]);
    const int32_t other = (int32_t)((uint64_t)bits[2] * (uint64_t)(V - 1) >> 32);
    if (how < 0.8) return mask;
    return how < 0.9 ? other + (other >= mask) : id;
}

static void make_masked(const dra_objective_config *c, const dra_model *m,
                        const dra_objective_rows *r)
{
    const int64_t  V = dra_model_config_of(m)->vocab;
    const int32_t  mask = c->mask_token < 0 ? 0 : (int32_t)c->mask_token;
    const uint64_t path = 0x6d61736b; /* "mask": apart from all other numbers of this step */
    const int32_t  words[4] = {(int32_t)r->seed, (int32_t)(r->seed >> 32), (int32_t)r->step,
                               (int32_t)(r->step >> 32)};
    const uint64_t key = dra_philox_key(words, path);
    for (int64_t i = 0; i < r->B * r->T; i++) {
        const uint64_t b = (uint64_t)(r->row + i / r->T), t = (uint64_t)(i % r->T);
        const uint32_t counter[4] = {(uint32_t)t, (uint32_t)(t >> 32), (uint32_t)b,
                                     (uint32_t)(b >> 32)};
        uint32_t       bits[4];
        r->targets[i] = -1;
        if (r->mark[i] & DRA_MARK_PAD) continue;
        dra_philox(counter, key, bits);
        if (!(unit(bits[0]) < c->mask_share)) continue;
        r->targets[i] = r->ids[i];
        r->ids[i] = hide(r->ids[i], mask, V, bits);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static const dra_objective table[] = {
    [DRA_OBJECTIVE_NEXT] = {"next", {"targets"}, complete_next, make_next, target_loss},
    [DRA_OBJECTIVE_MASKED] = {"masked", {"targets"}, complete_masked, make_masked, target_loss},
};

/* What a model's logits are for. */
static dra_objective_kind own_kind(const dra_model *m)
{
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

dra_status dra_objective_complete(dra_objective_config *c, const dra_model *m, dra_error *err)
{
    const dra_objective *o = dra_objective_of(c->kind, m);
    if (!o) return dra_fail(err, DRA_ERR_VALUE, "objective %d is not known", (int)c->kind);
    if (c->kind == DRA_OBJECTIVE_OWN) c->kind = own_kind(m);
    return o->complete(c, m, err);
}

void dra_objective_make(const dra_objective_config *c, const dra_model *m,
                        const dra_objective_rows *rows)
{
    dra_objective_of(c->kind, m)->make(c, m, rows);
}
