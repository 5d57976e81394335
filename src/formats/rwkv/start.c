/* First values of RWKV as its original trainers have them: every block starts as the identity.
 *   zero         what mixers and feed-forwards put out; receptances of feed-forwards
 *   orthogonal   other matrices with a gain; up to version 5.1 times sqrt(max(1, out / in)), as
 *                that of the head always
 *   mu           ramps over the channels x = c / C, steeper in early layers
 *   embedding    uniform within 6e-4, the first rate of learning, later 1e-4
 * [https://github.com/BlinkDL/RWKV-LM, RWKV-v4neo, RWKV-v5, RWKV-v7] */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "formats/format.h"
#include "model/model.h"

/* ---- orthogonal ------------------------------------------------------------------------------ */

/* n vectors of length k, one after the other, made orthonormal (Gram-Schmidt). */
static void orthonormalise_vectors(int64_t n, int64_t k, double *v)
{
    for (int64_t i = 0; i < n; i++) {
        double *a = v + i * k, square = 0;
        for (int64_t j = 0; j < i; j++) {
            const double *b = v + j * k;
            double        dot = 0;
            for (int64_t c = 0; c < k; c++) dot += a[c] * b[c];
            for (int64_t c = 0; c < k; c++) a[c] -= dot * b[c];
        }
        for (int64_t c = 0; c < k; c++) square += a[c] * a[c];
        for (int64_t c = 0; c < k; c++) a[c] /= sqrt(square);
    }
}

/* w (m, n), drawn from a normal distribution: the shorter of rows and columns become
 * orthonormal. */
static dra_status make_orthogonal(int64_t m, int64_t n, double gain, dra_real *w, dra_error *err)
{
    const bool wide = m < n;
    double    *v = malloc((size_t)(m * n) * sizeof *v);
    if (!v) return dra_fail(err, DRA_ERR_MEMORY, "rwkv start: out of memory");
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++) v[wide ? r * n + c : c * m + r] = (double)w[r * n + c];
    orthonormalise_vectors(wide ? m : n, wide ? n : m, v);
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++)
            w[r * n + c] = (dra_real)(gain * v[wide ? r * n + c : c * m + r]);
    free(v);
    return DRA_OK;
}

/* ---- vectors --------------------------------------------------------------------------------- */

typedef struct place { /* of a number: channel or head n of N, in heads of S; of layer l of L */
    int64_t n, N, S;
    double  r, s; /* 1 - l/L, l/(L-1) */
} place;

static double layer_share(const place *p)
{
    return p->N > 1 ? (double)p->n / (double)(p->N - 1) : 0;
}

/* q |q|, q from -1 to 1 over the channels of a head. */
static double zigzag_value(const place *p)
{
    const double half = (double)(p->S - 1) / 2;
    const double q = half > 0 ? ((double)(p->n % p->S) - half) / half : 0;
    return q * fabs(q);
}

static double decay_start(const place *p) { return -6 + 5 * pow(layer_share(p), 0.7 + 1.3 * p->s); }
static double decay_7(const place *p)
{
    return -6 + 6 * pow(layer_share(p), 1 + pow(p->s, 0.3)) + 0.5 + 2.5 * zigzag_value(p);
}
static double bonus_head(const place *p) { return p->s * (1 - layer_share(p)); }
static double bonus_start(const place *p)
{
    return p->s * (1 - layer_share(p)) + 0.1 * (double)((p->n + 1) % 3 - 1);
}
static double first_start(const place *p) { return -3; }
static double rate_7(const place *p)
{
    return -0.19 + 0.3 * zigzag_value(p) + 0.4 * (layer_share(p) - 0.5);
}
static double mix_7(const place *p) { return 0.73 - 0.4 * (layer_share(p) - 0.5); }
static double k_k(const place *p) { return 0.71 - 0.1 * (layer_share(p) - 0.5); }
static double k_a(const place *p) { return 1.02; }
static double r_k(const place *p) { return -0.04; }

/* ---- by name --------------------------------------------------------------------------------- */

typedef enum start_kind { ZERO, ORTHOGONAL, RAMP, SMALL, EACH, GAIN } start_kind;

/* Trainers: of RWKV-4, of 5.0 and 5.1, of 5.2, 6, 7. */
enum {
    V4 = 1,
    V50 = 2,
    V52 = 4,
    V6 = 8,
    V7 = 16,
    V5 = V50 | V52,
    OLD = V4 | V50,
    NEW = V52 | V6 | V7
};

typedef struct start {
    unsigned    versions;
    const char *param; /* "*": the number of a layer */
    start_kind  kind;
    double      gain; /* of matrices; a ramp is x^(gain r^power), and more */
    int         power;
    double (*each)(const place *p);
} start;

static const start starts[] = {{OLD, "embedding", SMALL, 6e-4},
                               {NEW, "embedding", SMALL, 1e-4},
                               {OLD | NEW, "head", ORTHOGONAL, 0.5},
                               {OLD | NEW, "layers.*.mixer.W_o", ZERO},
                               {OLD | NEW, "layers.*.ff.W_down", ZERO},
                               {OLD | NEW, "layers.*.ff.W_r", ZERO},
                               {OLD | NEW, "layers.*.ff.W_up", ORTHOGONAL, 1},
                               {OLD | NEW, "layers.*.mixer.W_v", ORTHOGONAL, 1},
                               {V4, "layers.*.mixer.W_q", ZERO},
                               {V4, "layers.*.mixer.W_k", ZERO},
                               {V5 | V6 | V7, "layers.*.mixer.W_q", ORTHOGONAL, 1},
                               {V50, "layers.*.mixer.W_k", ORTHOGONAL, 1},
                               {V50, "layers.*.mixer.W_g", ORTHOGONAL, 1},
                               {NEW, "layers.*.mixer.W_k", ORTHOGONAL, 0.1},
                               {NEW, "layers.*.mixer.W_g", ORTHOGONAL, 0.1},
                               {V7, "layers.*.mixer.W_g_1", ZERO},
                               {V7, "layers.*.mixer.W_g_2", ORTHOGONAL, 0.1},
                               {V7, "layers.*.mixer.W_decay_2", ORTHOGONAL, 0.1},
                               {V7, "layers.*.mixer.W_rate_2", ORTHOGONAL, 0.1},
                               {V7, "layers.*.mixer.W_mix_2", ORTHOGONAL, 0.1},
                               {V4 | V5 | V6, "layers.*.mixer.mu_k", RAMP, 1, 1},
                               {V4 | V5 | V6, "layers.*.mixer.mu_v", RAMP, 1, 1},
                               {V4 | V5 | V6, "layers.*.mixer.mu_q", RAMP, 0.5, 1},
                               {V5 | V6, "layers.*.mixer.mu_g", RAMP, 0.5, 1},
                               {V6, "layers.*.mixer.mu_w", RAMP, 1, 1},
                               {V6, "layers.*.mixer.mu_x", RAMP, 1, 1},
                               {V7, "layers.*.mixer.mu_q", RAMP, 0.2, 1},
                               {V7, "layers.*.mixer.mu_g", RAMP, 0.2, 1},
                               {V7, "layers.*.mixer.mu_w", RAMP, 0.9, 1},
                               {V7, "layers.*.mixer.mu_a", RAMP, 0.9, 1},
                               {V7, "layers.*.mixer.mu_k", RAMP, 0.7, 1},
                               {V7, "layers.*.mixer.mu_v", RAMP, 0.7, 1},
                               {V4 | V5, "layers.*.ff.mu_k", RAMP, 1, 1},
                               {V4 | V5, "layers.*.ff.mu_r", RAMP, 1, 1},
                               {V6, "layers.*.ff.mu_k", RAMP, 1, 3},
                               {V6, "layers.*.ff.mu_r", RAMP, 1, 3},
                               {V7, "layers.*.ff.mu_k", RAMP, 1, 4},
                               {V5 | V6 | V7, "layers.*.mixer.hn_g", GAIN},
                               {V5 | V6, "layers.*.mixer.time_decay", EACH, .each = decay_start},
                               {V7, "layers.*.mixer.time_decay", EACH, .each = decay_7},
                               {V50, "layers.*.mixer.time_first", EACH, .each = first_start},
                               {V50, "layers.*.mixer.bonus", EACH, .each = bonus_head},
                               {V52 | V6, "layers.*.mixer.bonus", EACH, .each = bonus_start},
                               {V7, "layers.*.mixer.b_rate", EACH, .each = rate_7},
                               {V7, "layers.*.mixer.b_mix", EACH, .each = mix_7},
                               {V7, "layers.*.mixer.k_k", EACH, .each = k_k},
                               {V7, "layers.*.mixer.k_a", EACH, .each = k_a},
                               {V7, "layers.*.mixer.r_k", EACH, .each = r_k},
                               {0}};

/* x^e, of values up to version 6 x^e + 0.3 s; where the token before is weighed (from version 6 on)
 * 1 less that. */
static void fill_ramp(unsigned version, const start *s, const place *p, int64_t C, dra_real *w)
{
    const bool   before = version & (V6 | V7), values = strstr(s->param, "mixer.mu_v") != NULL;
    const double e = s->gain * pow(p->r, s->power), more = values && version != V7 ? 0.3 * p->s : 0;
    for (int64_t c = 0; c < C; c++) {
        const double y = pow((double)c / (double)C, e) + more;
        w[c] = (dra_real)(before ? 1 - y : y);
    }
}

/* The trainer of a model; 0: it is no RWKV. */
static unsigned version_of(const dra_model *m)
{
    static const unsigned   versions[] = {[4] = V4, [5] = V52, V6, V7};
    const dra_model_config *c = dra_model_config_of(m);
    const int               version = dra_model_config_rwkv(c);
    const bool              heads = c->mixer[0].a.gamma.per == DRA_PER_HEAD;
    if (version == 5 && heads) return V50;
    return version ? versions[version] : 0;
}

static double gain_of(unsigned version, const start *s, int64_t out, int64_t in)
{
    const bool   factor = strstr(s->param, "_2") != NULL; /* there (rank, out) */
    const double rows = (double)(factor ? in : out), columns = (double)(factor ? out : in);
    const bool   grows = version & OLD || factor || strcmp(s->param, "head") == 0;
    return s->gain * (grows && rows > columns ? sqrt(rows / columns) : 1);
}

static dra_status fill_param(const dra_model *m, unsigned version, const start *s, int64_t l,
                             const dra_spec *p, dra_real *w, dra_error *err)
{
    const dra_model_config *c = dra_model_config_of(m);
    const int64_t           n = dra_shape_count(&p->shape), L = c->depth;
    const int64_t           out = p->shape.dim[0], in = p->shape.dim[1];
    const int64_t           S = c->mixer[0].key_dim ? c->mixer[0].key_dim : c->key_dim;
    place                   at = {0, n, S ? S : c->dim / c->heads, 1 - (double)l / (double)L,
                L > 1 ? (double)l / (double)(L - 1) : 0};
    switch (s->kind) {
    case ZERO: memset(w, 0, (size_t)n * sizeof *w); break;
    case ORTHOGONAL: return make_orthogonal(out, in, gain_of(version, s, out, in), w, err);
    case SMALL: /* the distribution function of what was drawn is uniform */
        for (int64_t i = 0; i < n; i++)
            w[i] = (dra_real)(s->gain * erf((double)w[i] / (p->number * sqrt(2))));
        break;
    case EACH:
        for (; at.n < n; at.n++) w[at.n] = (dra_real)s->each(&at);
        break;
    case GAIN:
        for (int64_t i = 0; i < n; i++) w[i] = (dra_real)pow((double)(l + 1) / (double)L, 0.7);
        break;
    case RAMP: fill_ramp(version, s, &at, n, w);
    }
    return DRA_OK;
}

dra_status dra_weights_draw_rwkv(const dra_model *m, uint64_t seed, dra_weights **out,
                                 dra_error *err)
{
    const dra_specs *params = dra_model_params(m);
    const unsigned   version = version_of(m);
    *out = NULL;
    if (!version || dra_specs_find(params, "layers.0.ff.mu_k") < 0 ||
        dra_specs_find(params, "layers.0.mixer.mu_k") < 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "rwkv start: expected layers of RWKV: wkv with shift mix and ff.kind mix, "
                        "or those of versions 5 to 7");
    dra_status st = dra_weights_draw(m, seed, out, err);
    for (int i = 0; i < dra_specs_count(params) && st == DRA_OK; i++) {
        const dra_spec *p = dra_specs_at(params, i);
        int64_t         l = 0;
        const start    *s = starts;
        while (s->param && !(s->versions & version && dra_pattern_fits(s->param, p->name, &l))) s++;
        if (s->param) st = fill_param(m, version, s, l, p, dra_weights_edit(*out, i), err);
    }
    if (st != DRA_OK) dra_weights_destroy(*out);
    if (st != DRA_OK) *out = NULL;
    return st;
}
