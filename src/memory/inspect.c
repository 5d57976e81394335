/* Looking inside a mixer: its decays with their half-lives, and its kernel, the weight that a token
 * n steps back has in what the memory holds now (value side, mean over a head's channels).
 * A memory that is linear in its values holds sums of exponentials, so its kernel is
 *   k(n) = sum_i a_i gamma_i^n + d [n = 0]
 * For all others, and to check that formula, it is measured: one backward pass from the memory
 * after the last token to the values of every token. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

static const double LN2 = 0.69314718055994530942;

/* ---- a mixer with its values ----------------------------------------------------------------- */

typedef struct look {
    dra_mixer             *mixer; /* checks the config and knows the parameters */
    const dra_specs       *specs;
    const dra_real *const *params;
    dra_mixer_config       config; /* with all widths */
    int                    branches;
    dra_branch             branch[2];
} look;

static dra_status open_look(look *l, const dra_mixer_config *config, const dra_real *const *params,
                            dra_error *err)
{
    *l = (look){.params = params, .config = *config};
    dra_status st = dra_mixer_create(config, &l->mixer, err);
    if (st != DRA_OK) return st;
    l->specs = dra_mixer_module(l->mixer)->params;
    l->config.gives_memory = true; /* asks memories to show what they hold after each token */
    l->config.heads = dra_mixer_config_of(l->mixer)->heads;
    l->config.key_dim = dra_mixer_config_of(l->mixer)->key_dim;
    l->config.value_dim = dra_mixer_config_of(l->mixer)->value_dim;
    l->branches = config->blend == DRA_BLEND_NONE ? 1 : 2;
    for (int i = 0; i < l->branches && st == DRA_OK; i++) {
        st = dra_branch_open(&l->branch[i], &l->config, i ? &config->b : &config->a, err);
        l->branch[i].prefix = l->branches == 1 ? "" : i ? "b." : "a.";
    }
    if (st != DRA_OK) dra_mixer_destroy(l->mixer);
    return st;
}

static void close_look(look *l) { dra_mixer_destroy(l->mixer); }

/* The number of a branch's parameter; -1: it has none of this name. */
static int find_param(const look *l, const dra_branch *b, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s%s", b->prefix, name);
    return dra_specs_find(l->specs, text);
}

/* Its values, or NULL. */
static const dra_real *param_values(const look *l, const dra_branch *b, const char *name)
{
    const int i = find_param(l, b, name);
    return i < 0 ? NULL : l->params[i];
}

/* Those of name_v, or of name_m where keys and values are joined. */
static const dra_real *stream_values(const look *l, const dra_branch *b, const char *name)
{
    char text[48];
    snprintf(text, sizeof text, "%s_%s", name, b->sizes.stream[b->sizes.streams - 1].name);
    return param_values(l, b, text);
}

/* ---- gammas ---------------------------------------------------------------------------------- */

/* ln(gamma) of what a parameter holds, never from a rounded gamma. */
static double log_sigmoid(double beta)
{
    return beta < 0 ? beta - log1p(exp(beta)) : -log1p(exp(-beta));
}

static double log_wkv(double time_decay) { return -exp(time_decay); }

static const char *const decays[] = {"beta",       "beta_k",     "beta_v",
                                     "ssm_beta_k", "ssm_beta_v", "ssm_beta_m",
                                     "b_decay",    "time_decay", "dt_bias"};

/* Of data decay at x = 0: the bias alone. */
static bool is_by_data(const dra_branch *b) { return b->config.lambda.decay == DRA_DECAY_DATA; }

/* The rate of a softplus decay. */
static double rate_of(const dra_lambda_options *o, double bias)
{
    const double rate = fmax(-log_sigmoid(-bias), o->rate_least);
    return o->rate_most > 0 ? fmin(rate, o->rate_most) : rate;
}

static double log_gamma_of(const dra_branch *b, const char *param, double value)
{
    if (strcmp(param, "dt_bias") == 0) return -rate_of(&b->config.lambda, value);
    if (strcmp(param, "b_decay") == 0) return log_sigmoid(value) / 16;
    if (strcmp(param, "time_decay") != 0) return log_sigmoid(value);
    return b->config.lambda.decay_form == DRA_FORM_BOUNDED ? -exp(log_sigmoid(value) - 0.5)
                                                           : log_wkv(value);
}

/* Value i of (H), (H, units), (H, width) or (H, units, width); of wkv: (channels). */
static dra_gamma_row gamma_row(const dra_branch *b, const char *param, const dra_shape *shape,
                               int64_t i, double log_gamma)
{
    const int32_t rank = shape->rank;
    const bool    channels = rank == 3 || (rank == 2 && b->config.gamma.per == DRA_PER_CHANNEL);
    const int64_t width = channels ? shape->dim[rank - 1] : 1;
    const int64_t units = rank - channels == 2 ? shape->dim[1] : 1;
    dra_gamma_row r = {.layer = b->config.gamma.layer,
                       .memory = b->memory->name,
                       .param = param,
                       .head = i / width / units,
                       .unit = i / width % units,
                       .channel = channels ? i % width : -1,
                       .gamma = exp(log_gamma),
                       .half_life = -LN2 / log_gamma,
                       .by_data = is_by_data(b)};
    if (strcmp(b->memory->name, "wkv") == 0) r.head = r.unit = -1, r.channel = i;
    return r;
}

/* The numbers of a parameter, or those that it starts with, which are to be freed. */
static const dra_real *numbers_of(const look *l, int at, dra_real **first)
{
    *first = NULL;
    if (l->params) return l->params[at];
    *first = malloc((size_t)dra_shape_count(&dra_specs_at(l->specs, at)->shape) * sizeof **first +
                    1);
    if (*first) dra_specs_fill(l->specs, at, 0, *first);
    return *first;
}

/* The rows of one parameter, from *count on. After biases of rates come logarithms of factors. */
static dra_status add_gammas(const look *l, const dra_branch *b, const char *param, int at,
                             size_t size, dra_gamma_row *rows, size_t *count, dra_error *err)
{
    const dra_shape *shape = &dra_specs_at(l->specs, at)->shape;
    const int64_t    n = dra_shape_count(shape);
    const bool       rates = strcmp(param, "dt_bias") == 0;
    dra_real        *first, *second;
    const dra_real  *value = numbers_of(l, at, &first);
    const dra_real  *factor = numbers_of(l, at + rates, &second);
    dra_status       st = DRA_OK;
    if (!value || !factor) st = dra_fail(err, DRA_ERR_MEMORY, "gammas: out of memory");
    for (int64_t i = 0; i < n && st == DRA_OK; i++, (*count)++) {
        if (*count >= size) continue;
        const double by = rates ? exp((double)factor[i]) : 1;
        rows[*count] = gamma_row(b, param, shape, i, by * log_gamma_of(b, param, (double)value[i]));
    }
    free(first);
    free(second);
    return st;
}

dra_status dra_mixer_gammas(const dra_mixer_config *config, const dra_real *const *params,
                            size_t size, dra_gamma_row *rows, size_t *count, dra_error *err)
{
    look       l;
    dra_status st = open_look(&l, config, params, err);
    *count = 0;
    if (st != DRA_OK) return st;
    for (int k = 0; k < l.branches; k++)
        for (size_t j = 0; j < sizeof decays / sizeof *decays; j++) {
            const int at = find_param(&l, &l.branch[k], decays[j]);
            if (at < 0 || st != DRA_OK) continue;
            st = add_gammas(&l, &l.branch[k], decays[j], at, size, rows, count, err);
        }
    close_look(&l);
    return st;
}

/* ---- gammas as text -------------------------------------------------------------------------- */

typedef struct page { /* as snprintf: `at` counts what would have been written */
    char  *text;
    size_t size, at;
} page;

static void add_line(page *p, const char *format, ...) DRA_PRINTF(2, 3);

static void add_line(page *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t left = p->at < p->size ? p->size - p->at : 0;
    const int    n = vsnprintf(left ? p->text + p->at : NULL, left, format, args);
    va_end(args);
    if (n > 0) p->at += (size_t)n;
}

/* Rows that differ in the channel only. */
static size_t same_unit(const dra_gamma_row *r, size_t n)
{
    size_t k = 1;
    while (k < n && r[k].channel > 0 && r[k].layer == r->layer && r[k].head == r->head &&
           r[k].unit == r->unit && strcmp(r[k].param, r->param) == 0)
        k++;
    return k;
}

/* How many of n rows last shorter than row i; equal ones in their order. */
static size_t rank_of(const dra_gamma_row *r, size_t n, size_t i)
{
    size_t rank = 0;
    for (size_t k = 0; k < n; k++)
        rank += r[k].half_life < r[i].half_life || (k < i && r[k].half_life == r[i].half_life);
    return rank;
}

static const dra_gamma_row *row_of_rank(const dra_gamma_row *r, size_t n, size_t rank)
{
    for (size_t i = 0; i < n; i++)
        if (rank_of(r, n, i) == rank) return &r[i];
    return r; /* only where some are NaN */
}

/* "-" where there is none. */
static const char *number_text(char text[24], int64_t i)
{
    if (i < 0) return "-";
    snprintf(text, 24, "%lld", (long long)i);
    return text;
}

size_t dra_gammas_text(const dra_gamma_row *rows, size_t n, char *text, size_t size)
{
    page p = {text, size, 0};
    bool by_data = false;
    add_line(&p, "%5s  %-8s %-10s %4s %5s  %-24s %s\n", "layer", "memory", "decay", "head", "unit",
             "gamma", "half-life");
    for (size_t i = 0, k = 0; i < n; i += k) {
        const dra_gamma_row *r = rows + i;
        char                 head[24], unit[24], gamma[64], half_life[64];
        k = same_unit(r, n - i);
        if (r->channel < 0) {
            snprintf(gamma, sizeof gamma, "%.6f", r->gamma);
            snprintf(half_life, sizeof half_life, "%.4g", r->half_life);
        } else {
            const dra_gamma_row *a = row_of_rank(r, k, 0), *b = row_of_rank(r, k, (k - 1) / 2);
            const dra_gamma_row *c = row_of_rank(r, k, k - 1);
            snprintf(gamma, sizeof gamma, "%.4f / %.4f / %.4f", a->gamma, b->gamma, c->gamma);
            snprintf(half_life, sizeof half_life, "%.3g / %.3g / %.3g", a->half_life, b->half_life,
                     c->half_life);
        }
        by_data = by_data || r->by_data;
        add_line(&p, "%5d  %-8s %-10s %4s %5s  %-24s %s%s\n", r->layer, r->memory, r->param,
                 number_text(head, r->head), number_text(unit, r->unit), gamma, half_life,
                 r->by_data ? " *" : "");
    }
    if (by_data) add_line(&p, "* by data; this is its value at x = 0\n");
    return p.at;
}

/* ---- the kernel by formula ------------------------------------------------------------------- */

typedef struct term { /* a gamma^n */
    double a, log_gamma;
} term;

/* The sum of exponentials of one channel c of head h; d: what only the token itself gets. */
typedef struct formula {
    const char *memory;
    int64_t (*terms)(const look *l, const dra_branch *b); /* -1: there is no formula */
    term (*term)(const look *l, const dra_branch *b, int64_t h, int64_t c, int64_t i);
    double (*own)(const look *l, const dra_branch *b, int64_t h, int64_t c);
} formula;

static int64_t no_terms(const look *l, const dra_branch *b) { return 0; }
static double  all_own(const look *l, const dra_branch *b, int64_t h, int64_t c) { return 1; }

/* ema: w_i (1 - gamma_i) gamma_i^n, where w is softmax(mix), or 1/M over slots. */
static int64_t ema_terms(const look *l, const dra_branch *b)
{
    return b->config.ema.timescales ? b->config.ema.timescales : 1;
}

static term running_mean(double w, double beta)
{
    return (term){w / (1 + exp(beta)), log_sigmoid(beta)};
}

static term ema_term(const look *l, const dra_branch *b, int64_t h, int64_t c, int64_t i)
{
    const int64_t   M = ema_terms(l, b), W = b->sizes.stream[b->sizes.streams - 1].width;
    const dra_real *own = param_values(l, b, "beta_v"),
                   *beta = own ? own : param_values(l, b, "beta");
    const dra_real *mix = stream_values(l, b, "mix");
    double          sum = 0;
    for (int64_t k = 0; mix && k < M; k++)
        sum += exp((double)mix[h * M + k] - (double)mix[h * M + i]);
    const int64_t at = b->config.gamma.per == DRA_PER_CHANNEL ? (h * M + i) * W + c : h * M + i;
    return running_mean(1 / (mix ? sum : (double)M), (double)beta[at]);
}

/* ssm: sum_i c_i b_i a_i^n, and d at 0. */
static int64_t ssm_terms(const look *l, const dra_branch *b)
{
    return b->config.ssm.modes ? b->config.ssm.modes : 4;
}

static term ssm_term(const look *l, const dra_branch *b, int64_t h, int64_t c, int64_t i)
{
    const int64_t W = b->sizes.stream[b->sizes.streams - 1].width;
    const int64_t at = (h * ssm_terms(l, b) + i) * W + c;
    return (term){(double)stream_values(l, b, "ssm_c")[at] *
                      (double)stream_values(l, b, "ssm_b")[at],
                  log_sigmoid((double)stream_values(l, b, "ssm_beta")[at])};
}

static double ssm_own(const look *l, const dra_branch *b, int64_t h, int64_t c)
{
    return (double)stream_values(l, b,
                                 "ssm_d")[h * b->sizes.stream[b->sizes.streams - 1].width + c];
}

/* moment: lambda^n, a token's own write being 1. */
static int64_t moment_terms(const look *l, const dra_branch *b)
{
    const bool head = b->config.gamma.per == DRA_PER_HEAD;
    return b->config.lambda.decay == DRA_DECAY_DATA || !head ? -1 : 1;
}

static term moment_term(const look *l, const dra_branch *b, int64_t h, int64_t c, int64_t i)
{
    const dra_real *beta = param_values(l, b, "beta"), *z = param_values(l, b, "time_decay");
    const double    own = z ? log_gamma_of(b, "time_decay", (double)z[h]) : 0;
    return (term){1, beta ? log_sigmoid((double)beta[h]) : own};
}

/* slots: the mean over the slots of (1 - gamma_i) gamma_i^n. */
static int64_t slots_terms(const look *l, const dra_branch *b)
{
    const int64_t S = b->config.slots.count ? b->config.slots.count : 1;
    const bool    by_data = param_values(l, b, "W_w") || param_values(l, b, "W_g");
    return by_data || b->config.slots.candidate != DRA_CANDIDATE_TOKEN ? -1 : S;
}

static term slots_term(const look *l, const dra_branch *b, int64_t h, int64_t c, int64_t i)
{
    const int64_t S = slots_terms(l, b);
    return running_mean(1 / (double)S, (double)param_values(l, b, "beta")[h * S + i]);
}

/* wkv: e^(w n) for each channel. */
static int64_t wkv_terms(const look *l, const dra_branch *b) { return 1; }

static term wkv_term(const look *l, const dra_branch *b, int64_t h, int64_t c, int64_t i)
{
    return (term){1, log_wkv((double)param_values(l, b, "time_decay")[h * b->sizes.E + c])};
}

static const formula formulas[] = {
    {"append", no_terms, NULL, all_own},   {"ema", ema_terms, ema_term},
    {"ssm", ssm_terms, ssm_term, ssm_own}, {"moment", moment_terms, moment_term},
    {"slots", slots_terms, slots_term},    {"wkv", wkv_terms, wkv_term}};

static const formula *find_formula(const look *l, const dra_branch *b)
{
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        if (b->memory == dra_memory_find(formulas[i].memory) && formulas[i].terms(l, b) >= 0)
            return &formulas[i];
    return NULL;
}

/* How channel c of the stream counts in the mean over values: 1/E for those of the value half; with
 * maps, m = join [k; v] and value = nu m: the sums of its row and column. */
static double channel_share(const look *l, const dra_branch *b, int64_t h, int64_t c)
{
    const dra_memory_sizes *s = &b->sizes;
    const dra_real         *join = param_values(l, b, "join"), *nu = param_values(l, b, "nu");
    const int64_t           R = s->stream[s->streams - 1].width, W = s->D + s->E;
    double                  in = !join && (s->streams == 2 || c >= s->D), out = !nu;
    for (int64_t e = 0; e < s->E; e++) {
        if (join) in += (double)join[(h * R + c) * W + s->D + e];
        if (nu) out += (double)nu[(h * s->E + e) * R + c];
    }
    return in * out / (double)s->E;
}

static void add_channel(const look *l, const dra_branch *b, const formula *f, int64_t h, int64_t c,
                        int64_t lags, double *out)
{
    const double part = channel_share(l, b, h, c);
    if (f->own) out[0] += part * f->own(l, b, h, c);
    for (int64_t i = 0; i < f->terms(l, b); i++) {
        const term t = f->term(l, b, h, c, i);
        for (int64_t n = 0; n < lags; n++) out[n] += part * t.a * exp((double)n * t.log_gamma);
    }
}

static dra_status check_lags(int64_t lags, int64_t most, dra_error *err)
{
    if (lags >= 1 && lags <= most) return DRA_OK;
    return dra_fail(err, DRA_ERR_VALUE, "kernel: lags is %lld, expected 1 to %lld", (long long)lags,
                    (long long)most);
}

dra_status dra_mixer_kernel(const dra_mixer_config *config, const dra_real *const *params,
                            int64_t lags, double *out, dra_error *err)
{
    look       l;
    dra_status st = check_lags(lags, INT64_C(1) << 31, err);
    if (st == DRA_OK) st = open_look(&l, config, params, err);
    if (st != DRA_OK) return st;
    const dra_branch       *b = &l.branch[l.branches - 1];
    const dra_memory_sizes *s = &b->sizes;
    const formula          *f = find_formula(&l, b);
    if (!f)
        st = dra_fail(err, DRA_ERR_VALUE, "kernel: %s, as configured, has no formula; measure it",
                      b->memory->name);
    for (int64_t h = 0; f && h < s->H; h++) {
        for (int64_t n = 0; n < lags; n++) out[h * lags + n] = 0;
        for (int64_t c = 0; c < s->stream[s->streams - 1].width; c++)
            add_channel(&l, b, f, h, c, lags, out + h * lags);
    }
    close_look(&l);
    return st;
}

/* ---- the kernel as measured ------------------------------------------------------------------ */

/* One branch alone: from what it is fed to dv, the gradient of the sum of its last memory. */
static void build_memory(dra_graph *g, const void *self, const dra_module_call *call,
                         dra_value *state_out)
{
    const dra_branch       *b = self;
    const dra_memory_sizes *s = &b->sizes;
    const int64_t           T = call->tokens.T;
    const dra_value         x = dra_input(g, "x", DRA_REAL, DRA_SHAPE(1, T, s->C));
    const dra_value         k = dra_input(g, "k", DRA_REAL, DRA_SHAPE(1, T, s->H, s->D));
    const dra_value         v = dra_input(g, "v", DRA_REAL, DRA_SHAPE(1, T, s->H, s->E));
    const dra_value         qkv[] = {k, k, v};
    const dra_mixer_config  plain = {0}; /* what is read does not matter, nor how */
    dra_channels            channels = {0};
    const dra_value         none[DRA_MIXER_PARAMS] = {0};
    const dra_read_options  options = {.config = &plain, .param = none, .channels = &channels};
    const dra_seen          seen = {.x = x, .decay = x, .rate = x};
    const dra_value memory = dra_branch_build(g, b, call, &options, &seen, qkv, state_out).memory;
    dra_value       dv;
    const dra_value sum = dra_sum_all(g, dra_slice(g, memory, 1, T - 1, 1));
    dra_gradient(g, 1, &sum, NULL, 1, &v, &dv);
    dra_output(g, "dv", dv);
}

typedef struct measuring {
    dra_specs        *params, *state;
    const dra_branch *branch;
    dra_session      *session;
    dra_array       **lent; /* values of the parameters */
} measuring;

static void close_measuring(measuring *m)
{
    dra_session_destroy(m->session);
    for (int i = 0; m->lent && i < dra_specs_count(m->params); i++) dra_array_destroy(m->lent[i]);
    free(m->lent);
    dra_specs_destroy(m->params);
    dra_specs_destroy(m->state);
}

/* A stream of T rows as given, or of one number, then `more` copies of its last row. */
static dra_real *repeat_stream(const dra_real *given, int64_t T, int64_t more, int64_t width,
                               double number)
{
    dra_real *x = malloc((size_t)((T + more) * width) * sizeof *x + 1);
    for (int64_t i = 0; x && i < (T + more) * width; i++) {
        const int64_t t = i / width < T ? i / width : T - 1;
        x[i] = given ? given[t * width + i % width] : (dra_real)number;
    }
    return x;
}

static void build_measured(dra_graph *g, void *user, const void *key, size_t bytes)
{
    const measuring       *m = user;
    const dra_module       module = {m->params, m->state, build_memory, m->branch};
    const dra_module_shape shape = {.B = 1, .T = *(const int64_t *)key, .fresh = true};
    (void)bytes;
    dra_module_graph(g, &module, &shape, NULL, NULL, NULL);
}

static dra_status open_measuring(measuring *m, const look *l, dra_branch *b, dra_device *device,
                                 int64_t T, dra_error *err)
{
    dra_status st = dra_specs_create(&m->params, err);
    if (st == DRA_OK) st = dra_specs_create(&m->state, err);
    if (st == DRA_OK) st = dra_session_create(device, build_measured, m, &m->session, err);
    if (st != DRA_OK) return st;
    m->branch = b;
    dra_branch_declare(b, m->params, m->state);
    m->lent = calloc((size_t)dra_specs_count(m->params) + 1, sizeof *m->lent);
    if (!m->lent) return dra_fail(err, DRA_ERR_MEMORY, "kernel: out of memory");
    for (int i = 0; st == DRA_OK && i < dra_specs_count(m->params); i++) {
        const dra_spec *p = dra_specs_at(m->params, i);
        const size_t    bytes = (size_t)dra_shape_count(&p->shape) * sizeof(dra_real);
        const dra_real *from = l->params[dra_specs_find(l->specs, p->name)];
        st = dra_array_borrow(device, from, bytes, &m->lent[i], err);
        if (st == DRA_OK)
            st = dra_session_bind(m->session, dra_session_name(m->session, p->name),
                                  dra_array_whole(m->lent[i]), err);
    }
    return st == DRA_OK ? dra_session_select(m->session, &T, sizeof T, err) : st;
}

static dra_status run_measured(measuring *m, const dra_memory_sizes *s,
                               const dra_kernel_input *around, int64_t more, dra_error *err)
{
    const struct {
        const char     *name;
        const dra_real *given;
        int64_t         width;
        double          number;
    } in[] = {{"x", around->x, s->C, 0},
              {"k", around->k, s->H * s->D, 1},
              {"v", around->v, s->H * s->E, 0}};
    dra_status st = DRA_OK;
    for (int i = 0; i < 3 && st == DRA_OK; i++) {
        const size_t n = (size_t)((around->T + more) * in[i].width);
        dra_real    *x = repeat_stream(in[i].given, around->T, more, in[i].width, in[i].number);
        st = x ? dra_session_put(m->session, dra_session_name(m->session, in[i].name), x,
                                 n * sizeof *x, err)
               : dra_fail(err, DRA_ERR_MEMORY, "kernel: out of memory");
        free(x);
    }
    if (st == DRA_OK) st = dra_session_start(m->session, err);
    return st == DRA_OK ? dra_session_finish(m->session, err) : st;
}

/* The mean over channels of dv (T, H, E) at each lag; `relative` to that of lag 0. */
static dra_status average_lags(const dra_memory_sizes *s, const dra_real *dv, int64_t T,
                               bool relative, int64_t lags, double *out, dra_error *err)
{
    for (int64_t h = 0; h < s->H; h++)
        for (int64_t n = 0; n < lags; n++) {
            double sum = 0;
            for (int64_t e = 0; e < s->E; e++) {
                const double last = (double)dv[((T - 1) * s->H + h) * s->E + e];
                const double d = (double)dv[((T - 1 - n) * s->H + h) * s->E + e];
                sum += relative ? d / last : d;
            }
            out[h * lags + n] = sum / (double)s->E;
            if (!isfinite(out[h * lags + n]))
                return dra_fail(err, DRA_ERR_VALUE,
                                "kernel: head %lld, lag %lld: found %g; does the last key read "
                                "what it wrote?",
                                (long long)h, (long long)n, out[h * lags + n]);
        }
    return DRA_OK;
}

static dra_status read_kernel(const measuring *m, const dra_memory_sizes *s, int64_t T,
                              bool relative, int64_t lags, double *out, dra_error *err)
{
    const dra_span from = dra_session_result(m->session, "dv");
    dra_real      *dv = malloc(from.bytes + 1);
    dra_status     st = dv ? dra_array_download(dv, from, err)
                           : dra_fail(err, DRA_ERR_MEMORY, "kernel: out of memory");
    if (st == DRA_OK) st = average_lags(s, dv, T, relative, lags, out, err);
    free(dv);
    return st;
}

dra_status dra_mixer_kernel_measured(dra_device *device, const dra_mixer_config *config,
                                     const dra_real *const *params, const dra_kernel_input *around,
                                     int64_t lags, double *out, dra_error *err)
{
    look       l;
    measuring  m = {0};
    dra_status st = check_lags(lags, around->T, err);
    if (st == DRA_OK) st = open_look(&l, config, params, err);
    if (st != DRA_OK) return st;
    dra_branch   *b = &l.branch[l.branches - 1];
    const bool    reads_itself = strcmp(b->config.retrieval, "formula") == 0;
    const int64_t more = reads_itself; /* the token that reads, with the last key */
    st = open_measuring(&m, &l, b, device, around->T + more, err);
    if (st == DRA_OK) st = run_measured(&m, &b->sizes, around, more, err);
    if (st == DRA_OK) st = read_kernel(&m, &b->sizes, around->T, reads_itself, lags, out, err);
    close_measuring(&m);
    close_look(&l);
    return st;
}
