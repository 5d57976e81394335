/* One memory with its retrieval inside a mixer: names resolved and checked. */
#include <string.h>

#include "memory/memory.h"

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
    return DRA_OK;
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

/* Numbers and choices in their ranges, and only those that the memory has. */
static dra_status check_options(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    const struct {
        const char *name;
        int64_t     value, most;
        uint32_t    option; /* 0: every memory has it */
    } options[] = {
        {"head_norm", (int64_t)c->head_norm, DRA_OFF, 0},
        {"joint", (int64_t)c->joint, DRA_SLOTS_ALL, 0},
        {"norm_kind", (int64_t)c->norm_kind, DRA_ITEM_LAYER, 0},
        {"timescales", c->timescales, DRA_SIZE_MOST, DRA_OPTION_TIMESCALES},
        {"modes", c->modes, DRA_SIZE_MOST, DRA_OPTION_MODES},
        {"per_head", c->per_head, true, DRA_OPTION_CELLS},
        {"recurrent", (int64_t)c->recurrent, DRA_RECURRENT_WEIGHT, DRA_OPTION_CELLS},
        {"phi", (int64_t)c->phi, DRA_PHI_IDENTITY, DRA_OPTION_PHI},
        {"features", c->features, DRA_SIZE_MOST, DRA_OPTION_PHI},
        {"normalise", (int64_t)c->normalise, DRA_OFF, DRA_OPTION_PHI},
        {"decay", (int64_t)c->decay, DRA_DECAY_DATA, DRA_OPTION_DECAY},
        {"decay_form", (int64_t)c->decay_form, DRA_FORM_BOUNDED, DRA_OPTION_DECAY},
        {"decay_rank", c->decay_rank, DRA_SIZE_MOST, DRA_OPTION_DECAY},
        {"bonus", (int64_t)c->bonus, DRA_BONUS_CHANNEL, DRA_OPTION_BONUS},
        {"bonus_exp", c->bonus_exp, true, DRA_OPTION_BONUS},
        {"transition", (int64_t)c->transition, DRA_TRANSITION_DIAGONAL, DRA_OPTION_TRANSITION},
        {"rate_rank", c->rate_rank, DRA_SIZE_MOST, DRA_OPTION_TRANSITION},
        {"slots", c->slots, DRA_SIZE_MOST, DRA_OPTION_SLOTS},
        {"gate", (int64_t)c->gate, DRA_GATE_GATED, DRA_OPTION_SLOTS},
        {"candidate", (int64_t)c->candidate, DRA_CANDIDATE_GRU, DRA_OPTION_SLOTS},
        {"tau", c->tau != 0 || c->tau_learned, true, DRA_OPTION_SLOTS},
        {"slot_decay", c->slot_decay, true, DRA_OPTION_SLOTS},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const char   *name = options[i].name;
        const int64_t value = options[i].value, most = options[i].most;
        if (value < 0 || value > most)
            return dra_fail(err, DRA_ERR_VALUE, "%s: %s is %lld, expected 0 to %lld",
                            b->memory->name, name, (long long)value, (long long)most);
        if (value && options[i].option & ~b->memory->options)
            return dra_fail(err, DRA_ERR_VALUE, "%s: %s is set, which this memory does not have",
                            b->memory->name, name);
    }
    return DRA_OK;
}

/* Parts of the stability kit that need something to act on. */
static dra_status check_kit(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    if (c->norm && strcmp(c->retrieval, "formula") == 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%s: norm is for items and slots, but retrieval is formula",
                        b->memory->name);
    if (!(c->head_norm_eps >= 0 && c->head_norm_eps <= 1))
        return dra_fail(err, DRA_ERR_VALUE, "%s: head_norm_eps is %g, expected 0 to 1",
                        b->memory->name, c->head_norm_eps);
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
    if (c->recurrent && b->memory->options & DRA_OPTION_SLOTS && c->candidate != DRA_CANDIDATE_GRU)
        return dra_fail(err, DRA_ERR_VALUE,
                        "%s: recurrent is %d, but only candidate gru has recurrent matrices",
                        b->memory->name, (int)c->recurrent);
    return DRA_OK;
}

static dra_status check_numbers(const dra_branch *b, dra_error *err)
{
    const dra_memory_config *c = &b->config;
    const char              *name = b->memory->name;
    if (c->dim < 0 || c->dim > DRA_SIZE_MOST)
        return dra_fail(err, DRA_ERR_VALUE, "%s: dim is %lld, expected 0 to %d", name,
                        (long long)c->dim, DRA_SIZE_MOST);
    if (c->joint && strcmp(c->retrieval, "joint") != 0)
        return dra_fail(err, DRA_ERR_VALUE, "%s: joint is %d, but retrieval is %s", name,
                        (int)c->joint, c->retrieval);
    if (c->gamma.share && !(b->memory->options & DRA_OPTION_TIMESCALES))
        return dra_fail(err, DRA_ERR_VALUE, "%s: gamma.share is set, which only ema has", name);
    if (c->dim > 0 && !c->joined)
        return dra_fail(err, DRA_ERR_VALUE, "%s: dim is %lld, which only a joined state has", name,
                        (long long)c->dim);
    dra_status st = check_options(b, err);
    if (st == DRA_OK) st = check_window(b, err);
    if (st == DRA_OK) st = check_kit(b, err);
    return st == DRA_OK ? dra_gamma_check(&c->gamma, err) : st;
}

/* Each head reads its own slots: q.(kappa P) = (kappa^T q).P, sum a_i nu Q_i = nu sum a_i Q_i. */
static bool folds(const dra_branch *b)
{
    const dra_memory_config *c = &b->config;
    const bool own = strcmp(c->retrieval, "slots-all") != 0 && c->joint == DRA_SLOTS_OWN;
    return c->maps && b->retrieval->slots && own && !b->retrieval->pooled && !c->norm && !c->joined;
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
    /* A sum without a denominator grows with the length: its heads are normalised. */
    if (b->config.head_norm == DRA_DEFAULT && b->memory->options & DRA_OPTION_PHI &&
        (b->config.normalise == DRA_OFF || b->config.phi == DRA_PHI_IDENTITY))
        b->config.head_norm = DRA_ON;
    if (b->config.head_norm_eps > 0 && b->config.head_norm != DRA_ON)
        return dra_fail(err, DRA_ERR_VALUE, "%s: head_norm_eps is set, but head_norm is off",
                        b->memory->name);
    b->folds = folds(b);
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
                                  .levels = mixer->forget,
                                  .latent = mixer->latent_kv,
                                  .rope = mixer->latent_rope};
    if (config->joined) {
        b->sizes.streams = 1;
        b->sizes.stream[0] = (dra_stream){"m", config->dim ? config->dim : D + E};
    }
    return b->memory->check ? b->memory->check(&b->sizes, err) : DRA_OK;
}
