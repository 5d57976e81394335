/* Attention: y = softmax(s) v over the keys, the one entry of every softmax read.
 *   s_tj = cap tanh(scale q_t.k_j / cap) + bias_tj + distance[q_pos_t - k_pos_j]
 *          - slope |q_pos_t - k_pos_j| + q_level_t - k_level_j
 * where query t sees key j (lo_t <= j < hi_t and mask_tj), nothing elsewhere; the first `always`
 * keys are seen by all and get q.k alone. A late cap is that of all this sum; a sink is one more
 * logit without a value. This file checks what is asked and picks the path. */
#include <math.h>
#include <stdio.h>

#include "ops/attention/attend.h"

/* ---- checks ---------------------------------------------------------------------------------- */

static bool refuse_attend(dra_graph *g, dra_status code, const char *format, ...) DRA_PRINTF(3, 4);

static bool refuse_attend(dra_graph *g, dra_status code, const char *format, ...)
{
    char    text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    dra_build_fail(g, "attend", code, "%s", text);
    return false;
}

static bool is_4d(dra_graph *g, const char *name, dra_value x, bool cached, const char *shape)
{
    const dra_type *t = dra_type_of(g, x);
    const bool      fits = t->dtype == DRA_REAL || (cached && t->dtype == DRA_BF16);
    if (fits && t->shape.rank == 4) return true;
    return refuse_attend(g, fits ? DRA_ERR_SHAPE : DRA_ERR_DTYPE, "%s is %s, expected %s%s %s",
                         name, dra_type_text(g, x), dra_dtype_get(DRA_REAL)->name,
                         cached ? " or bf16" : "", shape);
}

/* Row b sees keys in pages, whose number bounds how many there are. */
static bool check_pages(dra_graph *g, dra_attention *x)
{
    if (!dra_check_values(g, "attend: pages", 1, &x->config->pages)) return false;
    const dra_shape s = dra_shape_of(g, x->config->pages);
    if (s.rank == 2) x->a.J = s.dim[1] * DRA_ATTEND_PAGE;
    return s.rank == 2 || refuse_attend(g, DRA_ERR_SHAPE, "pages is %s, expected %s (B, J / %d)",
                                        dra_type_text(g, x->config->pages),
                                        dra_dtype_get(DRA_I32)->name, DRA_ATTEND_PAGE);
}

static bool check_qkv(dra_graph *g, dra_attention *x)
{
    const dra_value all[] = {x->q, x->k, x->v};
    if (!dra_check_values(g, "attend", 3, all) || !is_4d(g, "q", x->q, false, "(B, H, T, D)") ||
        !is_4d(g, "k", x->k, true, "(B, K, J, D)") || !is_4d(g, "v", x->v, true, "(B, K, J, E)"))
        return false;
    const int64_t *q = dra_type_of(g, x->q)->shape.dim, *k = dra_type_of(g, x->k)->shape.dim;
    const int64_t *v = dra_type_of(g, x->v)->shape.dim;
    x->a.B = q[0], x->a.H = q[1], x->a.T = q[2], x->a.J = k[2], x->K = k[1];
    if (x->config->pages.id && !check_pages(g, x)) return false;
    if ((x->config->pages.id ? 1 : q[0]) != k[0] || q[3] != k[3])
        return refuse_attend(g, DRA_ERR_SHAPE, "q %s, k %s: B and D must agree",
                             dra_type_text(g, x->q), dra_type_text(g, x->k));
    if (k[0] != v[0] || k[1] != v[1] || k[2] != v[2])
        return refuse_attend(g, DRA_ERR_SHAPE, "k %s, v %s: B, K and J must agree",
                             dra_type_text(g, x->k), dra_type_text(g, x->v));
    if (q[1] != k[1] && (k[1] == 0 || q[1] % k[1] != 0))
        return refuse_attend(g, DRA_ERR_SHAPE, "%lld heads of q, %lld of k: not a multiple",
                             (long long)q[1], (long long)k[1]);
    return true;
}

static bool check_option(dra_graph *g, const char *name, dra_value x, dra_dtype dtype,
                         dra_shape shape, bool broadcasts)
{
    char what[32], text[64];
    if (!x.id) return true;
    snprintf(what, sizeof what, "attend: %s", name);
    if (!dra_check_values(g, what, 1, &x)) return false;
    const dra_type *t = dra_type_of(g, x);
    dra_shape       both;
    const bool      fits = broadcasts ? dra_broadcast_shapes(&t->shape, &shape, &both) &&
                                       dra_shape_equal(&both, &shape)
                                      : dra_shape_equal(&t->shape, &shape);
    if (fits && t->dtype == dtype) return true;
    return refuse_attend(g, fits ? DRA_ERR_DTYPE : DRA_ERR_SHAPE, "%s is %s, expected %s %s%s",
                         name, dra_type_text(g, x), dra_dtype_get(dtype)->name,
                         broadcasts ? "that broadcasts to " : "",
                         dra_shape_text(&shape, text, sizeof text));
}

static bool check_plain_options(dra_graph *g, dra_attention *x)
{
    const dra_attend_config *f = x->config;
    const int64_t            H = x->a.H;
    const dra_shape          pairs = DRA_SHAPE(x->a.B, H, x->a.T, x->a.J), heads = DRA_SHAPE(H, H);
    const dra_shape          cope = f->cope.id ? dra_shape_of(g, f->cope) : DRA_SHAPE(1);
    const int64_t            P = cope.rank == 2 && cope.dim[0] > 0 ? cope.dim[0] : 1;
    x->previous = f->previous;
    x->mix_before = f->mix_before;
    x->mix_after = f->mix_after;
    return check_option(g, "previous", f->previous, DRA_REAL, pairs, false) &&
           check_option(g, "mix_before", f->mix_before, DRA_REAL, heads, false) &&
           check_option(g, "mix_after", f->mix_after, DRA_REAL, heads, false) &&
           check_option(g, "sink", f->sink, DRA_REAL, DRA_SHAPE(H), false) &&
           check_option(g, "cope", f->cope, DRA_REAL,
                        DRA_SHAPE(P, dra_type_of(g, x->q)->shape.dim[3]), false) &&
           check_option(g, "taken", f->taken, DRA_REAL, DRA_SHAPE(x->a.B, f->selective, 2),
                        false) &&
           check_option(g, "taken_mark", f->taken_mark, DRA_I32, DRA_SHAPE(x->a.B, x->a.T), false);
}

/* A table by distance has as many columns as it likes, one at least. */
static bool check_distance(dra_graph *g, const dra_attention *x)
{
    const dra_attend_config *f = x->config;
    if (!f->distance.id)
        return f->distance_zero == 0 ||
               refuse_attend(g, DRA_ERR_VALUE, "distance_zero without distance");
    if (!dra_check_values(g, "attend: distance", 1, &f->distance)) return false;
    const dra_type *t = dra_type_of(g, f->distance);
    const int64_t  *dim = t->shape.dim;
    const bool      fits = t->shape.rank == 2 && (dim[0] == 1 || dim[0] == x->a.H) && dim[1] > 0;
    if (!fits || t->dtype != DRA_REAL)
        return refuse_attend(g, fits ? DRA_ERR_DTYPE : DRA_ERR_SHAPE,
                             "distance is %s, expected %s (%lld, N) or (1, N), N > 0",
                             dra_type_text(g, f->distance), dra_dtype_get(DRA_REAL)->name,
                             (long long)x->a.H);
    if (f->distance_zero < 0 || f->distance_zero >= dim[1])
        return refuse_attend(g, DRA_ERR_VALUE, "distance_zero is %lld, expected 0 to %lld",
                             (long long)f->distance_zero, (long long)dim[1] - 1);
    return true;
}

/* Levels come in pairs with as many parts as they like, one at least. */
static bool check_levels(dra_graph *g, const dra_attention *x, dra_shape *q, dra_shape *k)
{
    const dra_attend_config *f = x->config;
    const dra_attend_attr   *a = &x->a;
    *q = *k = DRA_SHAPE(0);
    if (!f->q_level.id && !f->k_level.id) return true;
    if (!f->q_level.id || !f->k_level.id)
        return refuse_attend(g, DRA_ERR_VALUE, "q_level and k_level need each other");
    if (!dra_check_values(g, "attend: q_level", 1, &f->q_level)) return false;
    const dra_shape s = dra_shape_of(g, f->q_level);
    const int64_t   P = s.rank == 4 && s.dim[3] > 0 ? s.dim[3] : 1;
    *q = DRA_SHAPE(a->B, a->H, a->T, P);
    *k = DRA_SHAPE(a->B, a->H, a->J, P);
    return true;
}

static bool check_options(dra_graph *g, dra_attention *x)
{
    const dra_attend_config *f = x->config;
    const dra_attend_attr   *a = &x->a;
    const dra_shape          pairs = DRA_SHAPE(a->B, a->H, a->T, a->J);
    const dra_shape          queries = DRA_SHAPE(a->B, a->T), keys = DRA_SHAPE(a->B, a->J);
    const dra_shape          pages = DRA_SHAPE(a->B, a->J / DRA_ATTEND_PAGE);
    const dra_random_config  none = {0}, *random = f->dropout > 0 ? f->random : &none;
    dra_shape                q_level, k_level;
    if (!check_distance(g, x) || !check_levels(g, x, &q_level, &k_level)) return false;
    const dra_shape by_distance = f->distance.id ? dra_shape_of(g, f->distance) : DRA_SHAPE(0);
    const struct {
        const char *name;
        dra_value   value;
        dra_dtype   dtype;
        dra_shape   shape;
        bool        broadcasts;
    } table[DRA_ATTEND_OPTIONS] = {
        [DRA_ATTEND_LO] = {"lo", f->lo, DRA_I32, queries, false},
        [DRA_ATTEND_HI] = {"hi", f->hi, DRA_I32, queries, false},
        [DRA_ATTEND_MASK] = {"mask", f->mask, DRA_BOOL, pairs, true},
        [DRA_ATTEND_BIAS] = {"bias", f->bias, DRA_REAL, pairs, true},
        [DRA_ATTEND_DISTANCE] = {"distance", f->distance, DRA_REAL, by_distance, false},
        [DRA_ATTEND_SLOPES] = {"slopes", f->slopes, DRA_REAL, DRA_SHAPE(a->H), false},
        [DRA_ATTEND_Q_POS] = {"q_pos", f->q_pos, DRA_I32, queries, false},
        [DRA_ATTEND_K_POS] = {"k_pos", f->k_pos, DRA_I32, keys, false},
        [DRA_ATTEND_KEY] = {"random.key", random->key, DRA_I32, DRA_SHAPE(4), false},
        [DRA_ATTEND_ROW] = {"random.row", random->row, DRA_I32, DRA_SHAPE(a->B), false},
        [DRA_ATTEND_Q_LEVEL] = {"q_level", f->q_level, DRA_REAL, q_level, false},
        [DRA_ATTEND_K_LEVEL] = {"k_level", f->k_level, DRA_REAL, k_level, false},
        [DRA_ATTEND_PAGES] = {"pages", f->pages, DRA_I32, pages, false},
    };
    for (int i = 0; i < DRA_ATTEND_OPTIONS; i++) {
        if (!check_option(g, table[i].name, table[i].value, table[i].dtype, table[i].shape,
                          table[i].broadcasts))
            return false;
        if (table[i].value.id && f->path == DRA_ATTEND_FEW)
            return refuse_attend(g, DRA_ERR_VALUE, "the few path has no %s", table[i].name);
        x->option[i] = table[i].value;
    }
    if (f->distance.id)
        x->option[DRA_ATTEND_DISTANCE] = dra_broadcast(g, f->distance,
                                                       DRA_SHAPE(a->H, by_distance.dim[1]));
    return true;
}

/* Dropout draws by position: where the queries are cut must not change it. */
static bool check_random(dra_graph *g, const dra_attend_config *f)
{
    if (!(f->dropout >= 0 && f->dropout < 1))
        return refuse_attend(g, DRA_ERR_VALUE, "dropout is %g, expected 0 <= p < 1", f->dropout);
    if (f->dropout == 0) return true;
    if (!f->random || !f->random->name || !*f->random->name || !f->random->key.id)
        return refuse_attend(g, DRA_ERR_VALUE, "dropout %g needs random with a name and a key",
                             f->dropout);
    if (f->random->pos.id && !f->q_pos.id)
        return refuse_attend(g, DRA_ERR_VALUE,
                             "random.pos without q_pos: queries are placed by q_pos");
    return true;
}

/* The first of the options asked for that need the scores, and so the plain path; or NULL. */
static const char *needs_scores(const dra_attend_config *f)
{
    if (f->topk > 0) return "topk";
    if (f->hard) return "hard";
    if (f->sigmoid) return "sigmoid";
    if (f->cope.id) return "cope";
    if (f->selective > 0) return "selective";
    if (f->scores) return "scores";
    if (f->weights) return "weights";
    if (f->previous.id) return "previous";
    if (f->mix_before.id) return "mix_before";
    return f->mix_after.id ? "mix_after" : NULL;
}

static bool check_numbers(dra_graph *g, const dra_attention *x)
{
    const dra_attend_config *f = x->config;
    if (f->heads != DRA_HEADS_DIV && f->heads != DRA_HEADS_MOD)
        return refuse_attend(g, DRA_ERR_VALUE, "heads is %d, expected DRA_HEADS_DIV or _MOD",
                             (int)f->heads);
    if ((unsigned)f->path > DRA_ATTEND_FEW)
        return refuse_attend(g, DRA_ERR_VALUE,
                             "path is %d, expected DRA_ATTEND_AUTO, _PLAIN, _TILED or _FEW",
                             (int)f->path);
    if (!isfinite(f->scale))
        return refuse_attend(g, DRA_ERR_VALUE, "scale is %g, expected a number", f->scale);
    if (!(f->softcap >= 0) || isinf(f->softcap))
        return refuse_attend(g, DRA_ERR_VALUE, "softcap is %g, expected 0 or more", f->softcap);
    if (f->topk < 0)
        return refuse_attend(g, DRA_ERR_VALUE, "topk is %lld, expected 0 or more",
                             (long long)f->topk);
    if (f->selective < 0 || f->selective > INT32_MAX / 2)
        return refuse_attend(g, DRA_ERR_VALUE, "selective is %lld, expected 0 or more",
                             (long long)f->selective);
    if (f->selective ? !f->lo.id || !f->hi.id : f->taken.id || f->taken_mark.id)
        return refuse_attend(g, DRA_ERR_VALUE,
                             f->selective ? "selective needs lo and hi"
                                          : "taken without selective");
    if (f->topk_straight && f->topk == 0)
        return refuse_attend(g, DRA_ERR_VALUE, "topk_straight without topk");
    if (f->hard && f->topk > 0)
        return refuse_attend(g, DRA_ERR_VALUE, "hard and topk exclude each other");
    if (f->sigmoid && (f->hard || f->topk > 0 || f->sink.id))
        return refuse_attend(g, DRA_ERR_VALUE, "sigmoid and %s exclude each other",
                             f->hard       ? "hard"
                             : f->topk > 0 ? "topk"
                                           : "sink");
    if (f->path >= DRA_ATTEND_TILED && needs_scores(f))
        return refuse_attend(g, DRA_ERR_VALUE, "the %s path has no %s",
                             f->path == DRA_ATTEND_FEW ? "few" : "tiled", needs_scores(f));
    if (f->always < 0 || f->always > x->a.J)
        return refuse_attend(g, DRA_ERR_VALUE, "always is %lld, expected 0 to %lld",
                             (long long)f->always, (long long)x->a.J);
    if (f->pages.id && (f->always > 0 || f->path == DRA_ATTEND_PLAIN || needs_scores(f)))
        return refuse_attend(g, DRA_ERR_VALUE, "pages without the tiled path, or with always");
    if (f->path == DRA_ATTEND_FEW &&
        (f->softcap > 0 || f->dropout > 0 || f->always > 0 || f->sink.id))
        return refuse_attend(g, DRA_ERR_VALUE, "the few path has no %s",
                             f->softcap > 0   ? "softcap"
                             : f->dropout > 0 ? "dropout"
                             : f->always > 0  ? "always"
                                              : "sink");
    if (f->path == DRA_ATTEND_FEW && (x->a.T == 0 || x->a.J == 0))
        return refuse_attend(g, DRA_ERR_SHAPE, "T is %lld, J %lld, the few path expects 1 and more",
                             (long long)x->a.T, (long long)x->a.J);
    if (f->lse && (f->path == DRA_ATTEND_PLAIN || needs_scores(f)))
        return refuse_attend(g, DRA_ERR_VALUE, "the plain path has no lse");
    return check_random(g, f);
}

/* Softmax with one more logit z: y e^l / (e^l + e^z) = y sigmoid(l - z) with l the lse of the rest.
 * A query that sees nothing has y = 0, so that its l does not matter. */
static dra_value drain_outputs(dra_graph *g, const dra_attention *x, dra_value y, dra_value lse)
{
    const dra_attend_attr *a = &x->a;
    const dra_value        sink = dra_reshape(g, x->config->sink, DRA_SHAPE(a->H, 1));
    const dra_value        share = dra_sigmoid(g, dra_sub(g, lse, sink));
    return dra_mul(g, y, dra_reshape(g, share, DRA_SHAPE(a->B, a->H, a->T, 1)));
}

/* ---- the entry ------------------------------------------------------------------------------- */

/* Other paths than the tiled one read keys and values in bf16 as numbers in full precision. */
static dra_value widen_items(dra_graph *g, dra_value x)
{
    return dra_dtype_of(g, x) == DRA_BF16 ? dra_cast(g, x, DRA_REAL) : x;
}

dra_value dra_attend(dra_graph *g, dra_value q, dra_value k, dra_value v,
                     const dra_attend_config *config)
{
    const dra_attend_config zero = {0}, *f = config ? config : &zero;
    dra_attention           x = {.config = f, .q = q, .k = k, .v = v};
    if (f->scores) *f->scores = (dra_value){0};
    if (f->weights) *f->weights = (dra_value){0};
    if (f->lse) *f->lse = (dra_value){0};
    if (!check_qkv(g, &x) || !check_numbers(g, &x) || !check_options(g, &x) ||
        !check_plain_options(g, &x))
        return (dra_value){0};
    const int64_t D = dra_type_of(g, q)->shape.dim[3];
    x.a.scale = f->scale != 0 ? f->scale : D > 0 ? 1 / sqrt((double)D) : 1;
    x.a.softcap = f->softcap;
    x.a.dropout = f->dropout;
    x.a.always = f->always;
    x.a.distance_zero = f->distance_zero;
    x.a.heads = f->heads;
    x.a.precision = dra_graph_precision(g);
    x.a.late = f->softcap > 0 && f->softcap_late;
    if (f->dropout > 0) x.a.path = dra_scope_hash(g, f->random->name);
    if (f->path == DRA_ATTEND_PLAIN || f->path == DRA_ATTEND_FEW || needs_scores(f))
        x.k = k = widen_items(g, k), x.v = v = widen_items(g, v);
    if (f->path == DRA_ATTEND_PLAIN || needs_scores(f)) return dra_attend_plain(g, &x);
    if (f->path == DRA_ATTEND_FEW) return dra_attend_small(g, q, k, v, &x.a, f->lse);
    const dra_shape pairs = DRA_SHAPE(x.a.B, x.a.H, x.a.T, x.a.J);
    for (int i = DRA_ATTEND_MASK; i <= DRA_ATTEND_BIAS; i++)
        if (x.option[i].id) x.option[i] = dra_broadcast(g, x.option[i], pairs);
    if (!f->sink.id) return dra_attend_tiled(g, q, k, v, x.option, &x.a, f->lse);
    dra_value       lse;
    const dra_value y = dra_attend_tiled(g, q, k, v, x.option, &x.a, f->lse ? f->lse : &lse);
    return dra_graph_failed(g) ? y : drain_outputs(g, &x, y, f->lse ? *f->lse : lse);
}

/* hi = pos + t + 1, lo = max(0, hi - window) */
void dra_causal_interval(dra_graph *g, dra_value pos, int64_t B, int64_t T, int64_t window,
                         dra_value *lo, dra_value *hi)
{
    *lo = *hi = (dra_value){0};
    if (dra_graph_failed(g)) return;
    if (B < 0 || T < 0 || window < 0) {
        dra_build_fail(g, "causal_interval", DRA_ERR_VALUE, "B %lld, T %lld, window %lld: below 0",
                       (long long)B, (long long)T, (long long)window);
        return;
    }
    dra_value end = dra_add(g, dra_arange(g, T), dra_integer(g, 1));
    if (pos.id) {
        if (!dra_check_values(g, "causal_interval", 1, &pos)) return;
        const dra_type *t = dra_type_of(g, pos);
        if (t->dtype != DRA_I32 || t->shape.rank != 1 || t->shape.dim[0] != B) {
            dra_build_fail(g, "causal_interval",
                           t->dtype != DRA_I32 ? DRA_ERR_DTYPE : DRA_ERR_SHAPE,
                           "pos is %s, expected i32 (%lld)", dra_type_text(g, pos), (long long)B);
            return;
        }
        end = dra_add(g, end, dra_reshape(g, pos, DRA_SHAPE(B, 1)));
    }
    const dra_value zero = dra_integer(g, 0);
    dra_value       start = zero;
    if (window > 0 && window < INT32_MAX)
        start = dra_maximum(g, dra_sub(g, end, dra_integer(g, (int32_t)window)), zero);
    *hi = dra_broadcast(g, end, DRA_SHAPE(B, T));
    *lo = dra_broadcast(g, start, DRA_SHAPE(B, T));
}
