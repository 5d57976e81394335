/* Every optimizer against its paper, in double: several steps of a model with its own gradients,
 * the states it keeps, steps that are skipped, threads, and settings it has no use for. */
#include "course.h"

/* Of Newton-Schulz: five steps make the smallest singular values up to 3.4445^5 = 485 times larger,
 * and rounding errors with them. */
#ifdef DRA_REAL_DOUBLE
#define TOLERANCE 1e-12
#define ORTHOGONAL 1e-9
#else
#define TOLERANCE 1e-5
#define ORTHOGONAL 2e-4
#endif

enum { STEPS = 5 };

/* ---- the papers ------------------------------------------------------------------------------ */

typedef struct weight { /* in double */
    const dra_spec *spec;
    int64_t         n;
    double         *p, *m, *v, *d; /* d: the gradient, clipped */
} weight;

static const double decay = 0.1;

static double decay_of(const weight *w)
{
    return strstr(w->spec->name, "W_") || strstr(w->spec->name, "head") ? decay : 0;
}

static void oracle_adamw(const dra_optimizer_config *c, weight *w, double rate, int t)
{
    for (int64_t i = 0; i < w->n; i++) {
        w->m[i] = 0.9 * w->m[i] + 0.1 * w->d[i];
        w->v[i] = 0.95 * w->v[i] + 0.05 * w->d[i] * w->d[i];
        const double m = w->m[i] / (1 - pow(0.9, t)), v = w->v[i] / (1 - pow(0.95, t));
        w->p[i] -= rate * (decay_of(w) * w->p[i] + m / (sqrt(v) + 1e-8));
    }
}

static void oracle_sgd(const dra_optimizer_config *c, weight *w, double rate, int t)
{
    const double b = c->momentum < 0 ? 0 : c->momentum > 0 ? c->momentum : 0.9;
    for (int64_t i = 0; i < w->n; i++) {
        w->m[i] = b * w->m[i] + w->d[i];
        const double u = c->nesterov ? w->d[i] + b * w->m[i] : w->m[i];
        w->p[i] -= rate * (decay_of(w) * w->p[i] + u);
    }
}

static void oracle_lion(const dra_optimizer_config *c, weight *w, double rate, int t)
{
    const double b1 = c->beta1 > 0 ? c->beta1 : 0.9, b2 = c->beta2 > 0 ? c->beta2 : 0.99;
    for (int64_t i = 0; i < w->n; i++) {
        const double u = b1 * w->m[i] + (1 - b1) * w->d[i];
        w->m[i] = b2 * w->m[i] + (1 - b2) * w->d[i];
        w->p[i] -= rate * (decay_of(w) * w->p[i] + (u > 0) - (u < 0));
    }
}

/* z = x y, of matrices r x k and k x c; y may be given transposed. */
static void product(int64_t r, int64_t k, int64_t c, const double *x, const double *y,
                    bool transposed, double *z)
{
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < c; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += x[i * k + l] * (transposed ? y[j * k + l] : y[l * c + j]);
            z[i * c + j] = sum;
        }
}

/* As in the author's post, on the matrix as it is: x (a I + b x'x + c (x'x)^2) is the same whether
 * the products are taken on the left or on the right. */
static void orthogonalise(int64_t r, int64_t c, double *x)
{
    double *gram = calloc((size_t)(r * r), sizeof *gram), *twice = calloc((size_t)(r * r), 8);
    double *next = calloc((size_t)(r * c), sizeof *next), sum = 0;
    for (int64_t i = 0; i < r * c; i++) sum += x[i] * x[i];
    for (int64_t i = 0; i < r * c; i++) x[i] /= sqrt(sum) + 1e-7;
    for (int step = 0; step < 5; step++) {
        product(r, c, r, x, x, true, gram);
        product(r, r, r, gram, gram, false, twice);
        for (int64_t i = 0; i < r * r; i++) gram[i] = -4.7750 * gram[i] + 2.0315 * twice[i];
        product(r, r, c, gram, x, false, next);
        for (int64_t i = 0; i < r * c; i++) x[i] = 3.4445 * x[i] + next[i];
    }
    free(gram);
    free(twice);
    free(next);
}

static bool is_hidden(const weight *w)
{
    return strncmp(w->spec->name, "layers.", 7) == 0 && strstr(w->spec->name, "W_") &&
           w->spec->shape.rank == 2;
}

static void oracle_muon(const dra_optimizer_config *c, weight *w, double rate, int t)
{
    if (!is_hidden(w)) {
        oracle_adamw(c, w, rate, t);
        return;
    }
    const int64_t rows = w->spec->shape.dim[0], columns = w->spec->shape.dim[1];
    const double  scale = sqrt(fmax(1, (double)rows / (double)columns));
    double       *u = calloc((size_t)w->n, sizeof *u);
    for (int64_t i = 0; i < w->n; i++) {
        w->m[i] = 0.95 * w->m[i] + 0.05 * w->d[i];
        u[i] = 0.05 * w->d[i] + 0.95 * w->m[i];
    }
    orthogonalise(rows, columns, u);
    for (int64_t i = 0; i < w->n; i++)
        w->p[i] -= 20 * rate * (decay_of(w) * w->p[i] + scale * u[i]);
    free(u);
}

static const struct row {
    const char          *name;
    dra_optimizer_config config;
    void (*step)(const dra_optimizer_config *c, weight *w, double rate, int t);
    int states; /* of a hidden matrix */
} rows[] = {
    {"adamw", {.kind = DRA_OPTIMIZER_ADAMW}, oracle_adamw, 2},
    {"sgd", {.kind = DRA_OPTIMIZER_SGD}, oracle_sgd, 1},
    {"sgd without momentum", {.kind = DRA_OPTIMIZER_SGD, .momentum = -1}, oracle_sgd, 0},
    {"nesterov", {.kind = DRA_OPTIMIZER_SGD, .momentum = 0.8, .nesterov = true}, oracle_sgd, 1},
    {"lion", {.kind = DRA_OPTIMIZER_LION}, oracle_lion, 1},
    {"lion with betas", {.kind = DRA_OPTIMIZER_LION, .beta1 = 0.95, .beta2 = 0.98}, oracle_lion, 1},
    {"muon", {.kind = DRA_OPTIMIZER_MUON}, oracle_muon, 1},
};

/* ---- a model in double ----------------------------------------------------------------------- */

static int count_of(const course *c) { return dra_specs_count(dra_model_params(c->model)); }

static weight *take_weights(const course *c)
{
    weight *all = calloc((size_t)count_of(c), sizeof *all);
    for (int i = 0; i < count_of(c); i++) {
        weight *w = &all[i];
        w->spec = dra_specs_at(dra_model_params(c->model), i);
        w->n = size_of(c, i);
        w->p = calloc(4 * (size_t)w->n + 1, sizeof *w->p);
        w->m = w->p + w->n, w->v = w->m + w->n, w->d = w->v + w->n;
        for (int64_t k = 0; k < w->n; k++) w->p[k] = (double)dra_weights_at(c->weights, i)[k];
    }
    return all;
}

static void free_weights(const course *c, weight *all)
{
    for (int i = 0; i < count_of(c); i++) free(all[i].p);
    free(all);
}

/* The gradients as they are, clipped; returns their norm. */
static double take_clipped(const course *c, weight *all, double clip)
{
    double sum = 0;
    for (int i = 0; i < count_of(c); i++)
        for (int64_t k = 0; k < all[i].n; k++) {
            all[i].d[k] = (double)dra_gradients_of(c->gradients, i)[k];
            sum += all[i].d[k] * all[i].d[k];
        }
    for (int i = 0; i < count_of(c); i++)
        for (int64_t k = 0; k < all[i].n; k++) all[i].d[k] *= fmin(1, clip / (sqrt(sum) + 1e-6));
    return sqrt(sum);
}

static void expect_moment(const course *c, const dra_optimizer *o, int i, int which, int states,
                          const double *want)
{
    const dra_span  span = dra_optimizer_moment(o, i, which);
    const size_t    bytes = (size_t)size_of(c, i) * sizeof(dra_real);
    const dra_spec *spec = dra_specs_at(dra_model_params(c->model), i);
    assert_int_equal(span.array != NULL, which < states);
    if (!span.array) return;
    dra_real *found = malloc(bytes + 1);
    dra_error err = {0};
    assert_int_equal(span.bytes, bytes);
    expect_ok(dra_array_download(found, span, &err), &err);
    check_close(spec->name, size_of(c, i), found, want, TOLERANCE);
    free(found);
}

static void expect_all(const course *c, const dra_optimizer *o, const struct row *r, weight *all)
{
    size_t bytes = 0;
    for (int i = 0; i < count_of(c); i++) {
        const weight *w = &all[i];
        const bool    by_muon = r->step == oracle_muon && is_hidden(w);
        const int     states = r->step == oracle_muon && !by_muon ? 2 : r->states;
        bytes += (size_t)(states * w->n) * sizeof(dra_real);
        check_close(w->spec->name, w->n, dra_weights_at(c->weights, i), w->p,
                    by_muon ? ORTHOGONAL : TOLERANCE);
        expect_moment(c, o, i, 0, states, w->m);
        expect_moment(c, o, i, 1, states, w->v);
    }
    assert_int_equal(dra_optimizer_bytes(o), bytes);
}

/* ---- several steps --------------------------------------------------------------------------- */

/* Each step starts from the same weights in both: errors do not add up by way of the gradients. */
static void follow_paper(const struct row *r, const char *preset)
{
    const double         clip = 0.5, rate = 0.01;
    dra_optimizer_config config = r->config;
    dra_optimizer       *o = NULL;
    dra_error            err = {0};
    course               c;
    config.clip = clip, config.decay = decay;
    open_course(&c, preset);
    weight *all = take_weights(&c);
    expect_ok(dra_optimizer_create(&config, c.model, c.device, &o, &err), &err);
    for (int t = 1; t <= STEPS; t++) {
        const dra_microbatch  q = microbatch_of(&c);
        dra_microbatch_result out;
        double                norm = 0;
        expect_ok(dra_gradients_run(c.gradients, &q, &out, &err), &err);
        const double want = take_clipped(&c, all, clip);
        expect_ok(dra_optimizer_step(o, c.weights, c.gradients, rate / t, t, &norm, &err), &err);
        assert_true(fabs(norm - want) <= 1e-5 * want);
        for (int i = 0; i < count_of(&c); i++)
            r->step(&r->config, &all[i], (dra_real)(rate / t), t);
        expect_all(&c, o, r, all);
    }
    dra_optimizer_destroy(o);
    free_weights(&c, all);
    close_course(&c);
}

static void follows_its_paper(void **state)
{
    follow_paper(*state, "gpt2-tiny");
    follow_paper(*state, "dra-gru-tiny"); /* with matrices that are tall */
}

/* ---- steps that are skipped ------------------------------------------------------------------ */

static dra_real *copy_all(const course *c, const dra_optimizer *o, size_t *bytes)
{
    dra_real *all = NULL;
    size_t    n = 0;
    dra_error err = {0};
    for (int i = 0; i < count_of(c); i++)
        for (int w = -1; w < 2; w++) {
            const dra_span span = w < 0 ? (dra_span){0} : dra_optimizer_moment(o, i, w);
            const size_t   k = (size_t)size_of(c, i);
            if (w >= 0 && !span.array) continue;
            all = realloc(all, (n + k) * sizeof *all);
            if (w < 0)
                memcpy(all + n, dra_weights_at(c->weights, i), k * sizeof *all);
            else
                expect_ok(dra_array_download(all + n, span, &err), &err);
            n += k;
        }
    *bytes = n * sizeof *all;
    return all;
}

static void step_once(course *c, dra_optimizer *o, int t, double *norm)
{
    const dra_microbatch  q = microbatch_of(c);
    dra_microbatch_result out;
    dra_error             err = {0};
    expect_ok(dra_gradients_run(c->gradients, &q, &out, &err), &err);
    expect_ok(dra_optimizer_step(o, c->weights, c->gradients, 0.01, t, norm, &err), &err);
}

/* A gradient that is not finite changes nothing, to the bit. */
static void skips_what_is_not_finite(void **state)
{
    const struct row *r = *state;
    dra_optimizer    *o = NULL;
    dra_error         err = {0};
    course            c;
    double            norm = 0;
    size_t            bytes, again;
    open_course(&c, "dra-gru-tiny");
    expect_ok(dra_optimizer_create(&r->config, c.model, c.device, &o, &err), &err);
    step_once(&c, o, 1, &norm);
    const int      norm_g = dra_specs_find(dra_model_params(c.model), "norm_g");
    dra_real      *gain = dra_weights_edit(c.weights, norm_g);
    const dra_real old = gain[0];
    gain[0] = (dra_real)NAN;
    expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
    dra_real *before = copy_all(&c, o, &bytes);
    step_once(&c, o, 2, &norm);
    assert_true(!isfinite(norm));
    dra_real *after = copy_all(&c, o, &again);
    assert_int_equal(bytes, again);
    assert_memory_equal(before, after, bytes);
    dra_weights_edit(c.weights, norm_g)[0] = old;
    expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
    step_once(&c, o, 2, &norm); /* and the next one is as if there had been none */
    assert_true(isfinite(norm) != 0);
    free(before);
    free(after);
    dra_optimizer_destroy(o);
    close_course(&c);
}

/* ---- threads --------------------------------------------------------------------------------- */

static dra_real *train_on(int threads, const struct row *r, size_t *bytes)
{
    dra_optimizer *o = NULL;
    dra_error      err = {0};
    course         c;
    double         norm = 0;
    open_course(&c, "dra-gru-tiny");
    dra_gradients_destroy(c.gradients);
    dra_device *own = NULL;
    expect_ok(check_cpu(&(dra_cpu_config){.threads = threads}, &own, &err), &err);
    const dra_gradients_config gc = {.model = c.model, .device = own};
    expect_ok(dra_gradients_create(&gc, &c.gradients, &err), &err);
    expect_ok(dra_gradients_bind(c.gradients, c.weights, &err), &err);
    expect_ok(dra_optimizer_create(&r->config, c.model, own, &o, &err), &err);
    for (int t = 1; t <= 3; t++) step_once(&c, o, t, &norm);
    dra_real *all = copy_all(&c, o, bytes);
    dra_optimizer_destroy(o);
    dra_gradients_destroy(c.gradients);
    c.gradients = NULL;
    dra_weights_destroy(c.weights);
    c.weights = NULL;
    dra_device_destroy(own);
    close_course(&c);
    return all;
}

static void threads_give_the_same_bits(void **state)
{
    size_t    bytes, again;
    dra_real *one = train_on(1, *state, &bytes);
    for (int threads = 2; threads <= 7; threads += 5) {
        dra_real *more = train_on(threads, *state, &again);
        assert_int_equal(bytes, again);
        assert_memory_equal(one, more, bytes);
        free(more);
    }
    free(one);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void refuses(void **state)
{
    static const struct {
        dra_optimizer_config config;
        const char          *text;
    } cases[] = {
        {{.momentum = 0.9}, "optimizer: momentum is 0.9, but optimizer adamw has none"},
        {{.kind = DRA_OPTIMIZER_SGD, .beta2 = 0.9},
         "optimizer: beta2 is 0.9, but optimizer sgd has none"},
        {{.kind = DRA_OPTIMIZER_LION, .eps = 1e-6},
         "optimizer: eps is 1e-06, but optimizer lion has none"},
        {{.kind = DRA_OPTIMIZER_SGD, .muon_rate = 2},
         "optimizer: muon_rate is 2, but optimizer sgd has none"},
        {{.kind = DRA_OPTIMIZER_MUON, .nesterov = true},
         "optimizer: nesterov is set, but is for optimizer sgd, not muon"},
        {{.kind = DRA_OPTIMIZER_SGD, .nesterov = true, .momentum = -1},
         "optimizer: nesterov is set, but momentum is 0"},
        {{.kind = DRA_OPTIMIZER_SGD, .momentum = 1},
         "optimizer: beta1 0, beta2 0, momentum 1, expected less than 1"},
        {{.kind = (dra_optimizer_kind)9}, "optimizer: optimizer 9, expected 0 to 3"},
        {{.decay = -1}, "optimizer: decay -1, clip 0, expected 0 or more"},
    };
    course c;
    open_course(&c, "gpt2-tiny");
    for (size_t i = 0; i < COUNT(cases); i++) {
        dra_optimizer *o = NULL;
        dra_error      err = {0};
        assert_int_equal(dra_optimizer_create(&cases[i].config, c.model, c.device, &o, &err),
                         DRA_ERR_VALUE);
        assert_string_equal(err.text, cases[i].text);
        assert_null(o);
    }
    close_course(&c);
}

static void has_names(void **state)
{
    assert_string_equal(dra_optimizer_name(DRA_OPTIMIZER_MUON), "muon");
    assert_null(dra_optimizer_name((dra_optimizer_kind)4));
}

int main(void)
{
    enum { OTHERS = 2 };
    static struct CMUnitTest tests[3 * COUNT(rows) + OTHERS];
    static char              names[3 * COUNT(rows)][80];
    static const struct {
        const char *text;
        void (*test)(void **);
    } kinds[] = {{"follows its paper", follows_its_paper},
                 {"skips what is not finite", skips_what_is_not_finite},
                 {"1, 2, 7 threads", threads_give_the_same_bits}};
    size_t n = 0;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(kinds); k++, n++) {
            snprintf(names[n], sizeof names[n], "%s: %s", rows[i].name, kinds[k].text);
            tests[n] = (struct CMUnitTest){names[n], kinds[k].test, NULL, NULL,
                                           (void *)(uintptr_t)&rows[i]};
        }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(refuses);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(has_names);
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
