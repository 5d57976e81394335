/* The stability kit: norms of values and items, the first spread of logits, recurrent matrices in
 * bounds, state dropout, clamping. The harness of mixers puts most of it through its
 * invariants; here are its values. */
#include "plain.h"
#include "memory/memory.h"
#include "singular.h"
#include "subject.h"

enum { B = 2, T = 9, C = 8, H = 2, D = 4 };

#define SIZES .dim = C, .heads = H

/* ---- by loops -------------------------------------------------------------------------------- */

static plain open_plain(const subject *s)
{
    plain p = {.specs = s->t.module->params, .T = s->t.T, .C = C, .H = H, .D = D};
    for (int i = 0; i < params_of(s); i++) {
        const int64_t n = dra_shape_count(&param_spec(s, i)->shape);
        p.param[i] = plain_zeros(n);
        for (int64_t k = 0; k < n; k++) p.param[i][k] = (double)s->param[i][k];
    }
    return p;
}

/* Heads of (T, H D) divided by their root mean square, times a gain. */
static void norm_rows(double *x, const double *gain)
{
    for (int64_t r = 0; r < T * H; r++) {
        double sum = 0;
        for (int i = 0; i < D; i++) sum += x[r * D + i] * x[r * D + i] / D;
        for (int i = 0; i < D; i++) x[r * D + i] *= gain[i] / sqrt(sum + 1e-6);
    }
}

/* The same with the mean taken off, and a bias. */
static void layer_norm_rows(double *x, const double *gain, const double *bias)
{
    for (int64_t r = 0; r < T * H; r++) {
        double mean = 0, variance = 0;
        for (int i = 0; i < D; i++) mean += x[r * D + i] / D;
        for (int i = 0; i < D; i++) variance += (x[r * D + i] - mean) * (x[r * D + i] - mean) / D;
        for (int i = 0; i < D; i++)
            x[r * D + i] = (x[r * D + i] - mean) / sqrt(variance + 1e-5) * gain[i] + bias[i];
    }
}

/* Of the memory: rms, or layer where it has biases. */
static void norm_memory(const plain *p, double *x, const char *gain, const char *bias)
{
    if (plain_param(p, bias))
        layer_norm_rows(x, plain_param(p, gain), plain_param(p, bias));
    else
        norm_rows(x, plain_param(p, gain));
}

static const int32_t *loop_marks; /* (T), of every row */

static bool is_skipped(int64_t t) { return loop_marks && loop_marks[t] & DRA_MARK_SKIP; }

/* m = gamma m + (1 - gamma) v of normed values; its normed value is the output. */
static void normed_ema(const plain *p)
{
    double *v = plain_project(p, "W_v", "b_v"), *m = plain_zeros(C);
    norm_rows(v, plain_param(p, "gain_v"));
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < C; i++) {
            const double beta = plain_param(p, "beta_v")[i / D];
            if (!is_skipped(t))
                m[i] = plain_sigmoid(beta) * m[i] + plain_sigmoid(-beta) * v[t * C + i];
            v[t * C + i] = m[i];
        }
    norm_memory(p, v, "gain_mv", "bias_mv");
    plain_output(p, v);
    free(v), free(m);
}

static bool reads_means; /* where nothing is seen */

/* y = the mean of n rows of v */
static void mean_rows(int64_t n, const double *v, double *y)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < C; i++) y[i] += v[j * C + i] / (double)n;
}

/* Causal attention over what was written. */
static void normed_attention(const plain *p)
{
    double *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(T * C);
    norm_memory(p, k, "gain_mk", "bias_mk");
    norm_memory(p, v, "gain_mv", "bias_mv");
    double *all = plain_zeros(T * C);
    memcpy(all, v, T * C * sizeof *all);
    int64_t n = 0;
    for (int64_t t = 0; t < T; t++) {
        memmove(k + n * C, k + t * C, C * sizeof *k);
        memmove(v + n * C, v + t * C, C * sizeof *v);
        n += !is_skipped(t);
        if (n) plain_attend(p, q + t * C, n, k, v, y + t * C);
        if (!n && reads_means) mean_rows(t + 1, all, y + t * C);
    }
    plain_output(p, y);
    free(q), free(k), free(v), free(y), free(all);
}

/* sum over written tau of (phi(q).phi(k)) v / (sum phi(q).phi(k) + 1e-6), phi = elu + 1 */
static void linear_attention(const plain *p)
{
    double *q = plain_project(p, "W_q", "b_q"), *k = plain_project(p, "W_k", "b_k");
    double *v = plain_project(p, "W_v", "b_v"), *y = plain_zeros(T * C);
    for (int64_t i = 0; i < T * C; i++) q[i] = q[i] > 0 ? q[i] + 1 : exp(q[i]);
    for (int64_t i = 0; i < T * C; i++) k[i] = k[i] > 0 ? k[i] + 1 : exp(k[i]);
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < C; h += D) {
            double den = 1e-6;
            for (int64_t j = 0; j <= t; j++) {
                double a = 0;
                for (int64_t i = h; i < h + D; i++) a += q[t * C + i] * k[j * C + i];
                if (is_skipped(j)) continue;
                for (int64_t i = h; i < h + D; i++) y[t * C + i] += a * v[j * C + i];
                den += a;
            }
            for (int64_t i = h; i < h + D; i++) y[t * C + i] /= den;
        }
    plain_output(p, y);
    free(q), free(k), free(v), free(y);
}

static void expect_loops(const dra_mixer_config *config, plain_mixer mixer, const int32_t *marks)
{
    for (int steps = 0; steps < 2; steps++) {
        dra_mixer_config c = *config;
        int32_t          all[B * T];
        outcome          out;
        c.a.steps = steps;
        subject s = open_subject(&c, B, T);
        plain   p = open_plain(&s);
        double  x[B * T * C], y[B * T * C] = {0};
        for (int i = 0; i < B * T * C; i++) x[i] = (double)s.x[i];
        for (int i = 0; i < B * T; i++) all[i] = marks ? marks[i % T] : 0;
        if (marks) s.t.mark = all;
        run(&s, &out);
        loop_marks = marks;
        for (int b = 0; b < B; b++) {
            p.x = x + b * T * C, p.y = y + b * T * C;
            mixer(&p);
        }
        check_close("y", B * T * C, out.y, y, EQUAL);
        for (int i = 0; i < params_of(&s); i++) free(p.param[i]);
        outcome_free(&s.t, &out);
        close_subject(&s);
    }
}

static const dra_mixer_config ema = {SIZES, .v_norm = true,
                                     .a = {"ema", .retrieval = "none", .norm = true}};
static const dra_mixer_config append = {SIZES, .a = {"append", .norm = true}};
static const dra_mixer_config moment = {SIZES, .a = {"moment"}};

static void norms_are_their_formulas(void **state)
{
    dra_mixer_config layer[] = {ema, append};
    layer[0].a.norm_kind = layer[1].a.norm_kind = DRA_ITEM_LAYER;
    expect_loops(&ema, normed_ema, NULL);
    expect_loops(&append, normed_attention, NULL);
    expect_loops(&layer[0], normed_ema, NULL);
    expect_loops(&layer[1], normed_attention, NULL);
}

/* The mean of the values of all tokens so far, as in the code that DRA comes from. */
static void unseen_rows_read_means(void **state)
{
    const int32_t    marks[T] = {DRA_MARK_SKIP, DRA_MARK_SKIP, DRA_MARK_SKIP, 0, DRA_MARK_SKIP};
    dra_mixer_config means = append;
    means.attention.mean_unseen = true;
    reads_means = true;
    expect_loops(&means, normed_attention, marks);
    reads_means = false;
    expect_loops(&append, normed_attention, marks);
}

/* A skipped token leaves what is remembered and reads it with a query of its own. */
static void skipped_tokens_only_read(void **state)
{
    const int32_t marks[T] = {DRA_MARK_SKIP, 0, 0, DRA_MARK_SKIP, DRA_MARK_SKIP, 0, 0, 0,
                              DRA_MARK_SKIP};
    expect_loops(&ema, normed_ema, marks);
    expect_loops(&append, normed_attention, marks);
    expect_loops(&moment, linear_attention, marks);
}

/* ---- the first spread of logits -------------------------------------------------------------- */

static void logits_start_with_variance_one(void **state)
{
    enum { WIDE = 64, HEADS = 4, EACH = WIDE / HEADS, ROWS = 64 };
    static const double stds[] = {0, 0.02, 0.5, 0}, gains[] = {0, 0, 0, 3};
    for (size_t i = 0; i < COUNT(stds); i++) {
        const dra_mixer_config config = {
            .dim = WIDE, .heads = HEADS, .key_std = stds[i], .query_gain = gains[i]};
        const double    expected = gains[i] > 0 ? gains[i] : 1;
        dra_mixer      *m = NULL;
        dra_error       err = {0};
        static dra_real w[2][WIDE * WIDE];
        static double   x[ROWS * WIDE], qk[2][ROWS * WIDE];
        uint64_t        seed = 9;
        double          sum = 0;
        expect_ok(dra_mixer_create(&config, &m, &err), &err);
        for (int k = 0; k < 2; k++) dra_specs_fill(dra_mixer_module(m)->params, k, 4, w[k]);
        for (int r = 0; r < ROWS; r++) { /* rows of mean square 1 */
            double size = 0;
            for (int c = 0; c < WIDE; c++) x[r * WIDE + c] = check_random(&seed) - 0.5;
            for (int c = 0; c < WIDE; c++) size += x[r * WIDE + c] * x[r * WIDE + c] / WIDE;
            for (int c = 0; c < WIDE; c++) x[r * WIDE + c] /= sqrt(size);
        }
        for (int k = 0; k < 2; k++)
            for (int r = 0; r < ROWS * WIDE; r++) {
                qk[k][r] = 0;
                for (int c = 0; c < WIDE; c++)
                    qk[k][r] += (double)w[k][r % WIDE * WIDE + c] * x[r / WIDE * WIDE + c];
            }
        for (int a = 0; a < ROWS; a++)
            for (int b = 0; b < ROWS; b++)
                for (int h = 0; h < HEADS; h++) {
                    double dot = 0;
                    for (int c = h * EACH; c < (h + 1) * EACH; c++)
                        dot += qk[0][a * WIDE + c] * qk[1][b * WIDE + c];
                    sum += dot * dot / EACH;
                }
        const double std = sqrt(sum / (ROWS * ROWS * HEADS));
        if (!(std > 0.85 * expected && std < 1.15 * expected))
            fail_msg("key_std %g, query_gain %g: %g", stds[i], gains[i], std);
        dra_mixer_destroy(m);
    }
}

/* ---- recurrent matrices ---------------------------------------------------------------------- */

static void build_spectral(dra_graph *g, const void *a, const dra_value *in, dra_value *out)
{
    out[0] = dra_spectral(g, in[0]);
}

static void spectral_oracle(const void *a, const check_tensor *in, check_tensor *out)
{
    const dra_shape *s = &in[0].shape;
    const int64_t    cols = s->dim[s->rank - 1], rows = s->dim[s->rank - 2];
    for (int64_t i = 0; i < out[0].count; i++)
        out[0].at[i] = fmax(1, singular_largest(rows, cols, in[0].at + i * rows * cols));
}

static const double zeros[6] = {0};
static const double twins[8] = {3, 0, 0, 3, 0, 0, 0, 0}; /* two equal ones: any mixture will do */
static const double near[4] = {2, 0, 0, 2 - 1e-4};

static const check_case spectral_cases[] = {
    {"one matrix", 1, {{{2, {12, 4}}}}, .tol = 1e-6},
    {"one for each head", 1, {{{3, {3, 15, 5}}, .lo = -3, .hi = 3}}, .tol = 1e-6},
    {"within bounds", 1, {{{2, {6, 3}}, .lo = -0.2, .hi = 0.2}}, .tol = 1e-6},
    {"large", 1, {{{2, {9, 3}}, .lo = -1e3, .hi = 1e3}}, .tol = 1e-6},
    {"one number", 1, {{{2, {1, 1}}, .lo = 2, .hi = 3}}, .tol = 1e-6},
    {"zeros", 1, {{{2, {3, 2}}, .values = zeros}}},
    {"twins", 1, {{{2, {4, 2}}, .values = twins}}, .tol = 1e-6, .no_grad = true},
    {"nearly twins", 1, {{{2, {2, 2}}, .values = near}}, .tol = 1e-6, .no_grad = true},
    {"wide", 1, {{{2, {192, 64}}}}, .tol = 1e-6, .no_grad = true},
};

static void scale(subject *s, const char *end, double by)
{
    for (int i = 0; i < params_of(s); i++) {
        const char  *name = param_spec(s, i)->name;
        const size_t n = strlen(name), m = strlen(end);
        if (n < m || strcmp(name + n - m, end) != 0) continue;
        for (int64_t k = 0; k < dra_shape_count(&param_spec(s, i)->shape); k++)
            s->param[i][k] = (dra_real)(by * (double)s->param[i][k]);
    }
}

static void divide_by_singular(const subject *s, bool all)
{
    for (int i = 0; i < params_of(s); i++) {
        const dra_shape *shape = &param_spec(s, i)->shape;
        if (!param_spec(s, i)->recurrent && !(all && param_spec(s, i)->feeds)) continue;
        const int64_t cols = shape->dim[shape->rank - 1], rows = shape->dim[shape->rank - 2];
        for (int64_t at = 0; at < dra_shape_count(shape); at += rows * cols) {
            double *w = plain_zeros(rows * cols);
            for (int64_t k = 0; k < rows * cols; k++) w[k] = (double)s->param[i][at + k];
            const double most = fmax(1, singular_largest(rows, cols, w));
            for (int64_t k = 0; k < rows * cols; k++) s->param[i][at + k] = (dra_real)(w[k] / most);
            free(w);
        }
    }
}

static const dra_memory_config cells[] = {
    {"gru"},
    {"lstm", .cell.per_head = true},
    {"slots", .slots.count = 2, .slots.candidate = DRA_CANDIDATE_GRU},
};

static void expect_outcomes(subject *a, subject *b, double tol)
{
    outcome out[2];
    run(a, &out[0]);
    run(b, &out[1]);
    const double y = relative_difference(B * T * C, out[0].y, out[1].y, 0);
    const double dx = relative_difference(B * T * C, out[0].dx, out[1].dx, 0);
    if (!(y <= tol && dx <= tol)) fail_msg("y differs by %g, dx by %g", y, dx);
    outcome_free(&a->t, &out[0]);
    outcome_free(&b->t, &out[1]);
}

/* Small matrices are left alone; large ones are as if they had been divided. */
static void spectral_divides_large_matrices(void **state)
{
    for (size_t i = 0; i < COUNT(cells); i++)
        for (int way = 0; way < 4; way++) {
            const bool       large = way & 1, all = way & 2;
            dra_mixer_config c = {SIZES, .a = cells[i]};
            subject          bare = open_subject(&c, B, T);
            c.a.cell.recurrent = all ? DRA_RECURRENT_SPECTRAL_ALL : DRA_RECURRENT_SPECTRAL;
            subject kept = open_subject(&c, B, T);
            scale(&bare, "W_hh", large ? 3 : 0.1), scale(&bare, "W_ih", large ? 3 : 0.1);
            scale(&kept, "W_hh", large ? 3 : 0.1), scale(&kept, "W_ih", large ? 3 : 0.1);
            if (large) divide_by_singular(&bare, all);
            expect_outcomes(&kept, &bare, large ? fmax(1e-6, EQUAL) : 0);
            close_subject(&bare);
            close_subject(&kept);
        }
}

/* Lengths that are those of the rows change nothing; nor does scaling the rows. */
static void weight_norm_sets_lengths(void **state)
{
    for (size_t i = 0; i < COUNT(cells); i++) {
        dra_mixer_config c = {SIZES, .a = cells[i]};
        subject          bare = open_subject(&c, B, T);
        c.a.cell.recurrent = DRA_RECURRENT_WEIGHT;
        subject kept = open_subject(&c, B, T);
        for (int k = 0; k < params_of(&bare); k++) {
            const dra_spec *p = param_spec(&bare, k);
            char            name[32];
            if (!p->recurrent) continue;
            snprintf(name, sizeof name, "%.1s_g_hh", p->name);
            const int     at = dra_specs_find(kept.t.module->params, name);
            const int64_t rows = dra_shape_count(&param_spec(&kept, at)->shape);
            assert_int_equal(rows * D, dra_shape_count(&p->shape));
            for (int64_t r = 0; r < rows; r++) {
                double sum = 0;
                for (int64_t j = r * D; j < (r + 1) * D; j++)
                    sum += (double)bare.param[k][j] * (double)bare.param[k][j];
                kept.param[at][r] = (dra_real)sqrt(sum);
            }
        }
        scale(&kept, "W_hh", 7);
        expect_outcomes(&kept, &bare, EQUAL);
        close_subject(&bare);
        close_subject(&kept);
    }
}

/* ---- state dropout --------------------------------------------------------------------------- */

static void skips_depend_on_place_alone(void **state)
{
    enum { ROWS = 3, LONG = 4000, CUT = 17 };
    static int32_t whole[ROWS * LONG], other[ROWS * LONG], part[LONG];
    const int64_t  pos[ROWS] = {5, 5, 5}, later[] = {5 + CUT};
    int            count = 0, same = 0;
    whole[3] = DRA_MARK_PAD, whole[4] = DRA_MARK_RESET;
    dra_marks_skip(whole, ROWS, LONG, 0.3, 7, 2, 10, pos);
    for (int i = 0; i < ROWS * LONG; i++) count += whole[i] >= DRA_MARK_SKIP;
    assert_true(fabs(count / (double)(ROWS * LONG) - 0.3) < 0.015);
    assert_int_equal(whole[3], DRA_MARK_PAD);
    assert_int_equal(whole[4] & DRA_MARK_RESET, DRA_MARK_RESET);
    dra_marks_skip(part, 1, LONG - CUT, 0.3, 7, 2, 11, later); /* the second row from CUT on */
    assert_memory_equal(part, whole + LONG + CUT, (LONG - CUT) * sizeof *part);
    dra_marks_skip(other, ROWS, LONG, 0.3, 7, 3, 10, pos);
    for (int i = 0; i < ROWS * LONG; i++) same += other[i] == whole[i];
    assert_true(same < 0.65 * ROWS * LONG); /* 0.7^2 + 0.3^2 */
    memset(part, 0, sizeof part);
    dra_marks_skip(part, 1, LONG, 0, 7, 2, 0, NULL);
    for (int i = 0; i < LONG; i++) assert_int_equal(part[i], 0);
}

/* ---- clamping -------------------------------------------------------------------------------- */

static void write_number(dra_states *s, const dra_specs *specs, const char *name, size_t at,
                         double x)
{
    const int    i = dra_specs_find(specs, name);
    const size_t n = dra_states_size(s, i, 0);
    dra_real    *v = malloc(n * sizeof *v);
    dra_error    err = {0};
    expect_ok(dra_states_read(s, i, 0, v, n, &err), &err);
    v[at] = (dra_real)x;
    expect_ok(dra_states_write(s, i, 0, v, n, &err), &err);
    free(v);
}

static double largest(const dra_states *s, const dra_specs *specs, const char *name)
{
    const int    i = dra_specs_find(specs, name);
    const size_t n = dra_states_size(s, i, 0);
    dra_real    *v = malloc(n * sizeof *v);
    double       most = 0;
    dra_states_read(s, i, 0, v, n, NULL);
    for (size_t k = 0; k < n; k++)
        most = isfinite(v[k]) ? fmax(most, fabs((double)v[k])) : INFINITY;
    free(v);
    return most;
}

static void states_are_clamped(void **state)
{
    const dra_mixer_config config = {
        SIZES, .a = {"moment", .moment.phi = DRA_PHI_EXP, .lambda.decay = DRA_DECAY_FIXED}};
    reading        r = open_reading(&config);
    dra_states    *s = new_states(r.module->state, 1);
    const dra_real x[C] = {1, 0, -1, 0.5};
    read_tokens(&r, s, 1, NULL, x, NULL);
    assert_int_equal(dra_reader_clamped(r.reader), 0);
    write_number(s, r.module->state, "S", 3, NAN);
    write_number(s, r.module->state, "z", 1, 3e4);
    read_tokens(&r, s, 1, NULL, x, NULL);
    assert_int_equal(dra_reader_clamped(r.reader), 2);
    assert_true(largest(s, r.module->state, "S") < 1e4);
    read_tokens(&r, s, 1, NULL, x, NULL);
    assert_int_equal(dra_reader_clamped(r.reader), 2);
    dra_reader_clamp(r.reader, false);
    write_number(s, r.module->state, "S", 3, NAN);
    read_tokens(&r, s, 1, NULL, x, NULL);
    assert_int_equal(dra_reader_clamped(r.reader), 2);
    assert_true(isinf(largest(s, r.module->state, "S")));
    dra_reader_clamp(r.reader, true);
    assert_int_equal(dra_states_reset(s, 0, NULL), DRA_OK); /* a maximum of -1e30 is left alone */
    read_tokens(&r, s, 1, NULL, x, NULL);
    assert_int_equal(dra_reader_clamped(r.reader), 2);
    dra_states_destroy(s);
    close_reading(&r);
}

static void the_bound_can_be_set(void **state)
{
    const dra_mixer_config config = {
        SIZES, .a = {"moment", .moment.phi = DRA_PHI_EXP, .lambda.decay = DRA_DECAY_FIXED}};
    reading        r = open_reading(&config);
    dra_states    *s = new_states(r.module->state, 1);
    const dra_real x[C] = {1, 0, -1, 0.5};
    read_tokens(&r, s, 1, NULL, x, NULL);
    write_number(s, r.module->state, "S", 3, 3e4);
    dra_reader_clamp_limit(r.reader, 1e5);
    read_tokens(&r, s, 1, NULL, x, NULL);
    assert_int_equal(dra_reader_clamped(r.reader), 0);
    assert_true(largest(s, r.module->state, "S") > DRA_STATE_LIMIT);
    dra_reader_clamp_limit(r.reader, 50);
    read_tokens(&r, s, 1, NULL, x, NULL);
    assert_true(dra_reader_clamped(r.reader) > 0);
    assert_true(largest(s, r.module->state, "S") <= 50);
    const int64_t before = dra_reader_clamped(r.reader);
    write_number(s, r.module->state, "S", 3, 3e4);
    dra_reader_clamp_limit(r.reader, 0); /* the usual one again */
    read_tokens(&r, s, 1, NULL, x, NULL);
    assert_true(dra_reader_clamped(r.reader) > before);
    assert_true(largest(s, r.module->state, "S") <= DRA_STATE_LIMIT);
    dra_states_destroy(s);
    close_reading(&r);
}

static void clamping_changes_no_bit(void **state)
{
    static const dra_memory_config memories[] = {
        {"append"}, {"gru"}, {"wkv"}, {"delta"}, {"slots", .slots.count = 3}};
    for (size_t i = 0; i < COUNT(memories); i++) {
        const dra_mixer_config config = {SIZES, .shift = DRA_SHIFT_HALF, .a = memories[i]};
        reading                r = open_reading(&config);
        dra_states            *s[2];
        dra_real               y[2][T * C];
        uint64_t               seed = 8;
        dra_real              *x = random_reals(&seed, T * C);
        for (int k = 0; k < 2; k++) {
            s[k] = new_states(r.module->state, 1);
            dra_reader_clamp(r.reader, k == 0);
            read_tokens(&r, s[k], T, NULL, x, y[k]);
            read_tokens(&r, s[k], T, NULL, x, y[k]);
        }
        check_reals(y[0], y[1], sizeof y[0]);
        expect_same_states(s[0], s[1]);
        assert_int_equal(dra_reader_clamped(r.reader), 0);
        for (int k = 0; k < 2; k++) dra_states_destroy(s[k]);
        free(x);
        close_reading(&r);
    }
}

/* What was changed passes no gradient. */
static void clamping_stops_gradients(void **state)
{
    const dra_mixer_config config = {SIZES, .a = {"ema", .retrieval = "none"}};
    subject                s = open_subject(&config, 1, 2);
    dra_graph             *g = check_graph();
    dra_value              in[2], next[2], d;
    const dra_module_shape shape = {.B = 1, .T = 2, .rows = (int64_t[]){0, 0}, .clamp = true};
    dra_module_graph(g, s.t.module, &shape, NULL, in, next);
    const dra_value L = dra_sum_all(g, next[1]);
    dra_gradient(g, 1, &L, NULL, 1, &in[1], &d);
    dra_output(g, "d", d);
    check_program p = check_compile(g, 1);
    dra_real      m[C] = {1, (dra_real)NAN, 2, (dra_real)2e4, 3, 4, (dra_real)-1e4, (dra_real)-2e4};
    const int     changed[C] = {0, 1, 0, 1, 0, 0, 0, 1};
    dra_extents   extents = {0};
    dra_error     err = {0};
    for (int i = 0; i < params_of(&s); i++)
        check_bind(&p, param_spec(&s, i)->name, s.param[i],
                   (size_t)dra_shape_count(&param_spec(&s, i)->shape) * sizeof(dra_real));
    check_bind(&p, "x", s.x, 2 * C * sizeof *s.x);
    check_bind(&p, "state.m_k", m, sizeof m);
    check_bind(&p, "state.m_v", m, sizeof m);
    expect_ok(dra_extents_fill(&extents, s.t.module->state, NULL, 1, 2, NULL, &err), &err);
    put_extents(p.buffers, &extents, false);
    check_run(&p);
    for (int i = 0; i < C; i++)
        assert_true(changed[i] ? check_result(&p, "d")[i] == 0 : check_result(&p, "d")[i] > 0);
    assert_int_equal(*(const int32_t *)check_result_of(&p, "clamped"), 6);
    check_free(&p);
    dra_extents_free(&extents);
    close_subject(&s);
}

int main(void)
{
    const check_spec specs[] = {
        {"spectral", 1, build_spectral, spectral_oracle, spectral_cases, COUNT(spectral_cases)}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_their_formulas),
        cmocka_unit_test(unseen_rows_read_means),
        cmocka_unit_test(skipped_tokens_only_read),
        cmocka_unit_test(logits_start_with_variance_one),
        cmocka_unit_test(spectral_divides_large_matrices),
        cmocka_unit_test(weight_norm_sets_lengths),
        cmocka_unit_test(skips_depend_on_place_alone),
        cmocka_unit_test(states_are_clamped),
        cmocka_unit_test(the_bound_can_be_set),
        cmocka_unit_test(clamping_changes_no_bit),
        cmocka_unit_test(clamping_stops_gradients),
    };
    return check_main("kit", specs, COUNT(specs), tests, COUNT(tests));
}
