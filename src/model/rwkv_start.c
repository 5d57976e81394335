/* First values of RWKV-4 as its original trainer has them: every block starts as the identity.
 *   zero         key, receptance and output of mixers, value and receptance of feed-forwards
 *   orthogonal   value of mixers, key of feed-forwards, gain sqrt(max(1, out / in)); head, half
 *   that mu           ramps over the channels x = c / C, steeper in early layers
 *   embedding    uniform within 6e-4, the first rate of learning
 * Decays and bonuses start so anyway. [https://github.com/BlinkDL/RWKV-LM, RWKV-v4neo] */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "model/format.h"
#include "model/model.h"

/* ---- orthogonal ------------------------------------------------------------------------------ */

/* n vectors of length k, one after the other, made orthonormal (Gram-Schmidt). */
static void straighten(int64_t n, int64_t k, double *v)
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
    straighten(wide ? m : n, wide ? n : m, v);
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++)
            w[r * n + c] = (dra_real)(gain * v[wide ? r * n + c : c * m + r]);
    free(v);
    return DRA_OK;
}

/* ---- by name --------------------------------------------------------------------------------- */

typedef enum start_kind { KEEP, ZERO, ORTHOGONAL, RAMP, RAMP_VALUE, RAMP_ROOT, SMALL } start_kind;

typedef struct start {
    const char *param; /* "*": the number of a layer */
    start_kind  kind;
    double      gain;
} start;

static const start starts[] = {{"embedding", SMALL, 6e-4},
                               {"head", ORTHOGONAL, 0.5},
                               {"layers.*.mixer.W_q", ZERO},
                               {"layers.*.mixer.W_k", ZERO},
                               {"layers.*.mixer.W_o", ZERO},
                               {"layers.*.mixer.W_v", ORTHOGONAL, 1},
                               {"layers.*.mixer.mu_k", RAMP},
                               {"layers.*.mixer.mu_v", RAMP_VALUE},
                               {"layers.*.mixer.mu_q", RAMP_ROOT},
                               {"layers.*.ff.mu_k", RAMP},
                               {"layers.*.ff.mu_r", RAMP},
                               {"layers.*.ff.W_up", ORTHOGONAL, 1},
                               {"layers.*.ff.W_down", ZERO},
                               {"layers.*.ff.W_r", ZERO},
                               {0}};

/* With r = 1 - l/L and s = l/(L-1): x^r, x^r + 0.3 s, x^(r/2). */
static void fill_ramp(start_kind kind, int64_t l, int64_t L, int64_t C, dra_real *w)
{
    const double r = 1 - (double)l / (double)L, s = L > 1 ? (double)l / (double)(L - 1) : 0;
    for (int64_t c = 0; c < C; c++) {
        const double x = (double)c / (double)C;
        w[c] = (dra_real)(pow(x, kind == RAMP_ROOT ? r / 2 : r) +
                          (kind == RAMP_VALUE ? 0.3 * s : 0));
    }
}

static dra_status fill(const dra_model *m, const start *s, int64_t l, const dra_spec *p,
                       dra_real *w, dra_error *err)
{
    const int64_t n = dra_shape_count(&p->shape), out = p->shape.dim[0], in = p->shape.dim[1];
    switch (s->kind) {
    case ZERO: memset(w, 0, (size_t)n * sizeof *w); break;
    case ORTHOGONAL:
        return make_orthogonal(out, in, s->gain * (out > in ? sqrt((double)out / (double)in) : 1),
                               w, err);
    case SMALL: /* the distribution function of what was drawn is uniform */
        for (int64_t i = 0; i < n; i++)
            w[i] = (dra_real)(s->gain * erf((double)w[i] / (p->number * sqrt(2))));
        break;
    case KEEP: break;
    default: fill_ramp(s->kind, l, dra_model_config_of(m)->depth, n, w);
    }
    return DRA_OK;
}

dra_status dra_weights_draw_rwkv(const dra_model *m, uint64_t seed, dra_weights **out,
                                 dra_error *err)
{
    const dra_specs *params = dra_model_params(m);
    *out = NULL;
    if (dra_specs_find(params, "layers.0.mixer.time_decay") < 0 ||
        dra_specs_find(params, "layers.0.ff.mu_r") < 0)
        return dra_fail(err, DRA_ERR_VALUE,
                        "rwkv start: expected layers of wkv with shift mix and ff.kind mix");
    dra_status st = dra_weights_draw(m, seed, out, err);
    for (int i = 0; i < dra_specs_count(params) && st == DRA_OK; i++) {
        const dra_spec *p = dra_specs_at(params, i);
        int64_t         l = 0;
        const start    *s = starts;
        while (s->param && !dra_pattern_fits(s->param, p->name, &l)) s++;
        if (s->param) st = fill(m, s, l, p, dra_weights_edit(*out, i), err);
    }
    if (st != DRA_OK) dra_weights_destroy(*out);
    if (st != DRA_OK) *out = NULL;
    return st;
}
