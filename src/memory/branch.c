/* One memory with its retrieval inside a mixer: names resolved and checked. */
#include <string.h>

#include "file/field_rows.h"
#include "memory/memory.h"
#include "memory/part.h"

/* ---- the table of memories ------------------------------------------------------------------- */

#define DRA_MEMORY(name) extern const dra_memory dra_memory_##name;
#include "memory/memory.def"
#undef DRA_MEMORY

#define DRA_MEMORY(name) &dra_memory_##name,
static const dra_memory *const table[] = {
#include "memory/memory.def"
};
#undef DRA_MEMORY

const dra_memory *dra_memory_at(size_t i)
{
    return i < sizeof table / sizeof *table ? table[i] : NULL;
}

const dra_memory *dra_memory_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}

/* ---- what all of them may be told ------------------------------------------------------------ */

#define DRA_MEMORY(name) #name,
static const char *const memory_names[] = {
#include "memory/memory.def"
    NULL};
#undef DRA_MEMORY
static const char *const retrieval_names[] = {"time", "window", "slots-own", "slots-all", "pooled",
                                              "none", "joint",  "formula",   NULL};
DRA_CHOICES(whose, DRA_SLOTS_COUNT, "own", "all");
DRA_CHOICES(norms, DRA_ITEM_LAYER + 1, "rms", "layer");

#define PART(part, table)                                                                          \
    {                                                                                              \
        .name = "", .kind = DRA_FIELD_INLINE, .offset = offsetof(dra_memory_config, part),         \
        .fields = table                                                                            \
    }

const dra_field dra_memory_fields[] = {
    {.name = "memory",
     .kind = DRA_FIELD_NAME,
     .offset = offsetof(dra_memory_config, memory),
     .choices = memory_names,
     .given = offsetof(dra_memory_config, own),
     .also = "attention",
     .unset = "append",
     .about =
         "what is kept of the past; append, or attention: all of it, as softmax attention does"},
    NAME(dra_memory_config, retrieval, retrieval_names, "the first that the memory has",
         "how a query reads what is kept"),
    INT(dra_memory_config, window, "none", "retrieval window: how many of the last items it sees"),
    OBJECT(dra_memory_config, gamma, dra_gamma_fields, NULL),
    BOOL(dra_memory_config, joined, "keys and values share one state"),
    INT(dra_memory_config, dim, "both widths", "joined: the width of that state"),
    SWITCH(dra_memory_config, head_norm, "true for moment without normalise",
           "normalise the output of each head"),
    CHOICE(dra_memory_config, joint, whose, "retrieval joint: slots of the own head, or of all"),
    BOOL(dra_memory_config, steps, "run token by token, by definition, instead of the fused form"),
    PART(ema, dra_ema_fields),
    PART(ssm, dra_ssm_fields),
    PART(cell, dra_cell_fields),
    PART(moment, dra_moment_fields),
    PART(lambda, dra_lambda_fields),
    PART(slots, dra_slots_fields),
    BOOL(dra_memory_config, pi, "slots are read through learned maps, the same for all heads"),
    BOOL(dra_memory_config, norm, "normalise items and slots as they are read"),
    PART(cell, dra_cell_late_fields),
    BOOL(dra_memory_config, maps, "items and slots are read through learned maps of each head"),
    CHOICE(dra_memory_config, norm_kind, norms, "how norm does it"),
    PART(lambda, dra_lambda_late_fields),
    PART(delta, dra_delta_fields),
    PART(shortconv, dra_shortconv_fields),
    REAL(dra_memory_config, head_norm_eps, 0, 1, "1e-5", "epsilon of head_norm"),
    {.name = "",
     .kind = DRA_FIELD_OWN,
     .offset = offsetof(dra_memory_config, options),
     .given = offsetof(dra_memory_config, own),
     .size = DRA_OPTIONS_BYTES,
     .row = dra_memory_option_field},
    {0},
};

/* ---- what is read ---------------------------------------------------------------------------- */

static const dra_retrieval *retrieval_of(const dra_memory_config *c)
{
    static const dra_retrieval unknown = {0}; /* which is refused later */
    const dra_memory    *m = c->own ? c->own : dra_memory_find(c->memory ? c->memory : "append");
    const char          *name = c->retrieval ? c->retrieval : m ? m->retrievals[0] : "none";
    const dra_retrieval *how = dra_retrieval_find(name);
    return how ? how : &unknown;
}

bool dra_mixer_reads_time(const dra_mixer_config *c)
{
    return retrieval_of(&c->a)->over_time ||
           (c->blend != DRA_BLEND_NONE && retrieval_of(&c->b)->over_time);
}

bool dra_mixer_has_scores(const dra_mixer_config *c)
{
    return dra_mixer_reads_time(c) || retrieval_of(&c->a)->slots ||
           (c->blend != DRA_BLEND_NONE && retrieval_of(&c->b)->slots);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static const char *join_names(const char *const *name, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (; *name && at < size; name++) {
        const size_t n = strlen(*name) + (at ? 2 : 0);
        if (at + n + 1 > size) break;
        if (at) memcpy(text + at, ", ", 2);
        memcpy(text + at + (at ? 2 : 0), *name, strlen(*name) + 1);
        at += n;
    }
    return text;
}

/* A table from outside may be wrong. */
static dra_status check_table(const dra_memory *m, dra_error *err)
{
    if (!m->name || !m->retrievals || !m->retrievals[0] || !m->declare || !m->step)
        return dra_fail(err, DRA_ERR_VALUE,
                        "memory %s: a table needs name, retrievals, declare, step",
                        m->name ? m->name : "without a name");
    for (const char *const *r = m->retrievals; *r; r++)
        if (!dra_retrieval_find(*r))
            return dra_fail(err, DRA_ERR_NAME, "memory %s: no retrieval is called %.40s", m->name,
                            *r);
    return dra_memory_check_options(m, err);
}

static dra_status find_memory(dra_branch *b, dra_error *err)
{
    const char *all[sizeof table / sizeof *table + 1] = {0};
    char        text[120];
    b->memory = b->config.own ? b->config.own
                              : dra_memory_find(b->config.memory ? b->config.memory : "append");
    if (b->memory) return check_table(b->memory, err);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) all[i] = table[i]->name;
    return dra_fail(err, DRA_ERR_NAME, "memory is %.40s, expected one of %s", b->config.memory,
                    join_names(all, text, sizeof text));
}

static dra_status find_retrieval(dra_branch *b, dra_error *err)
{
    const char *const *legal = b->memory->retrievals;
    char               text[120];
    if (!b->config.retrieval) b->config.retrieval = legal[0];
    b->retrieval = dra_retrieval_find(b->config.retrieval);
    for (; *legal; legal++)
        if (strcmp(*legal, b->config.retrieval) == 0) return DRA_OK;
    return dra_fail(err, DRA_ERR_NAME, "retrieval of %s is %.40s, expected one of %s",
                    b->memory->name, b->config.retrieval,
                    join_names(b->memory->retrievals, text, sizeof text));
}

static dra_status check_window(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    const char              *name = b->memory->name, *how = c->retrieval;
    const bool               window = strcmp(how, "window") == 0, joint = strcmp(how, "joint") == 0;
    if (c->window && !window && !joint)
        return dra_fail(err, DRA_ERR_VALUE, "%s: window is %lld, but retrieval %s has none", name,
                        (long long)c->window, how);
    if (c->window < window)
        return dra_fail(err, DRA_ERR_VALUE, "%s: window is %lld, expected %d or more", name,
                        (long long)c->window, window);
    return DRA_OK;
}

/* ---- parts ----------------------------------------------------------------------------------- */

bool dra_memory_has(const dra_memory *m, const dra_part *part)
{
    return dra_parts_have(m->parts, part);
}

static dra_status check_parts(const dra_branch *b, dra_error *err)
{
#define DRA_PART(part) &dra_##part##_part,
    static const dra_part *const all[] = {
#include "memory/parts.def"
        NULL};
#undef DRA_PART
    dra_choice memories[sizeof table / sizeof *table + 1] = {0};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        memories[i] = (dra_choice){table[i]->name, table[i]->parts};
    return dra_parts_check(b->memory->name, all, b->memory->parts, memories, &b->config, err);
}

/* Parts of the stability kit that need something to act on. */
static dra_status check_kit(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    if (c->norm && strcmp(c->retrieval, "formula") == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%s: norm is for items and slots, but retrieval is formula",
                        b->memory->name);
    if (c->norm_kind && !c->norm)
        return dra_fail(err, DRA_ERR_VALUE, "%s: norm_kind is set, but norm is off",
                        b->memory->name);
    if (c->maps && strcmp(c->retrieval, "formula") == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%s: maps are for items and slots, but retrieval is formula",
                        b->memory->name);
    if (c->pi && !b->retrieval->slots)
        return dra_fail(err, DRA_ERR_VALUE, "%s: pi is for reading slots, but retrieval is %s",
                        b->memory->name, c->retrieval);
    if (c->maps && c->dim > 0)
        return dra_fail(err, DRA_ERR_VALUE, "%s: maps is set, but dim brings maps of its own",
                        b->memory->name);
    return DRA_OK;
}

static dra_status check_numbers(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    const char              *name = b->memory->name;
    dra_status               st = dra_fields_check(dra_memory_fields, name, c, err);
    if (st == DRA_OK) st = dra_memory_check_own(c, err);
    if (st != DRA_OK) return st;
    if (c->joint && strcmp(c->retrieval, "joint") != 0)
        return dra_fail(err, DRA_ERR_VALUE, "%s: joint is %d, but retrieval is %s", name,
                        (int)c->joint, c->retrieval);
    if (c->gamma.share && !dra_memory_has(b->memory, &dra_ema_part))
        return dra_fail(err, DRA_ERR_VALUE, "%s: gamma.share is set, which only ema has", name);
    if (c->dim > 0 && !c->joined)
        return dra_fail(err, DRA_ERR_VALUE, "%s: dim is %lld, which only a joined state has", name,
                        (long long)c->dim);
    st = check_parts(b, err);
    if (st == DRA_OK) st = check_window(b, err);
    if (st == DRA_OK) st = check_kit(b, err);
    return st == DRA_OK ? dra_gamma_check(&c->gamma, err) : st;
}

/* Each head reads its own slots: q.(kappa P) = (kappa^T q).P, sum a_i nu Q_i = nu sum a_i Q_i. */
static bool folds_maps(const dra_branch *b)
{
    const dra_memory_config *c = &b->config;
    const bool own = strcmp(c->retrieval, "slots-all") != 0 && c->joint == DRA_SLOTS_OWN;
    return c->maps && b->retrieval->slots && own && !b->retrieval->pooled && !c->norm && !c->joined;
}

/* A timeline keeps m itself where that is less than kappa m and nu m, and nothing is done to either
 * of them: q.(kappa m) = (kappa^T q).m, sum a_i nu m_i = nu sum a_i m_i. */
static bool keeps_joined(const dra_branch *b, const dra_mixer_config *mixer)
{
    const dra_memory_config *c = &b->config;
    const bool               items = b->retrieval->over_time && b->retrieval->from_memory;
    const bool               grouped = mixer->kv_heads && mixer->kv_heads != mixer->heads;
    return items && c->dim > 0 && c->dim < mixer->key_dim + mixer->value_dim && !c->norm &&
           !mixer->rotary && !grouped && !mixer->attention.mem_kv && !mixer->attention.laser &&
           !mixer->attention.mean_unseen;
}

dra_status dra_branch_open(dra_branch *b, const dra_mixer_config *mixer,
                           const dra_memory_config *config, dra_error *err)
{
    b->config = *config;
    b->aux = mixer->aux;
    b->maps = mixer->maps;
    b->attention_dropout = mixer->attention_dropout;
    dra_status st = find_memory(b, err);
    if (st == DRA_OK) st = find_retrieval(b, err);
    if (st == DRA_OK) st = check_numbers(b, err);
    if (st != DRA_OK) return st;
    /* A sum without a denominator grows with the length: its heads are normalised, here or by the
     * mixer. */
    if (b->config.head_norm == DRA_DEFAULT && !mixer->out_norm.place &&
        dra_memory_has(b->memory, &dra_moment_part) &&
        (b->config.moment.normalise == DRA_OFF || b->config.moment.phi == DRA_PHI_IDENTITY))
        b->config.head_norm = DRA_ON;
    if (b->config.head_norm_eps > 0 && b->config.head_norm != DRA_ON)
        return dra_fail(err, DRA_ERR_VALUE, "%s: head_norm_eps is set, but head_norm is off",
                        b->memory->name);
    const bool joined = keeps_joined(b, mixer);
    b->folds = joined || folds_maps(b);
    const bool items = mixer->maps || config->norm || (config->maps && !b->folds);
    /* Reads over items take fewer heads of keys than of queries; for others they are repeated. */
    const bool    grouped = b->retrieval->over_time && b->retrieval->from_memory;
    const int64_t D = mixer->key_dim, E = mixer->value_dim;
    b->sizes = (dra_memory_sizes){.C = mixer->dim,
                                  .H = grouped && mixer->kv_heads ? mixer->kv_heads : mixer->heads,
                                  .Q = mixer->heads,
                                  .D = D,
                                  .E = E,
                                  .streams = 2,
                                  .stream = {{"k", D}, {"v", E}},
                                  .shows_items = mixer->gives_memory,
                                  .gives_items = items,
                                  .whole = mixer->whole,
                                  .context = mixer->context,
                                  .segment = mixer->xl_segment,
                                  .memory = mixer->xl_memory,
                                  .config = &b->config,
                                  .options = b->config.options,
                                  .levels = mixer->attention.forget,
                                  .mean = mixer->attention.mean_unseen,
                                  .selective = mixer->attention.selective,
                                  .latent = mixer->latent.kv,
                                  .rope = mixer->latent.rope,
                                  .joined = joined ? config->dim : 0,
                                  .bf16_items = mixer->bf16_items};
    if (config->joined) {
        b->sizes.streams = 1;
        b->sizes.stream[0] = (dra_stream){"m", config->dim ? config->dim : D + E};
    }
    return b->memory->check ? b->memory->check(&b->sizes, err) : DRA_OK;
}
