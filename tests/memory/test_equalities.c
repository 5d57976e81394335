/* What must come out equal: mixers that are special cases of one another, outputs and gradients.
 * The whole list, and where each is tested (L: in test_loops.c, against plain loops):
 *
 *   append + time                  causal attention         L append_is_softmax_attention
 *   ema, gamma = 0, any M          append                   ema_without_decay_is_append
 *   gru + time, any gamma          recurrent attention      L gru_over_time_is_recurrent_attention
 *   moment elu1, no decay          linear attention         L moment_is_linear_attention
 *   moment identity, fixed decay   retention                L moment_is_retention
 *   moment exp, H = C, D = 1       wkv with u = -w          moment_of_scalars_is_wkv
 *   slots fixed, S = 1, slots-all  DRA-Slot                 L slots_are_DRA_Slot
 *   slots fixed, S = 1, pooled     pooled DRA               L pooled_slots_are_pooled_DRA
 *   gru over slots                 slots fixed, S = 1, gru  gru_is_one_slot_of_gru
 *   ema over slots, M, shared      slots fixed, S = M       timescales_are_fixed_slots
 *   ssm, N = 1, b = 1 - a, c = 1   ema, gamma per channel   ssm_of_one_mode_is_ema
 *   window, N >= T                 time                     wide_windows_are_time
 *   gru + joint, N = 0             ADR, growing prefixes    L gru_joint_is_ADR, ..._for_heads
 *   moment favor, F large          append + time            favor_comes_to_attention
 *   blend, a = 1 or 0              its part, the same bits  ends_of_a_blend_...
 *   ema joined                     ema, shared              joined_ema_is_ema
 *   wkv                            RWKV-4                   L wkv_is_its_sums,
 *                                                           L wkv_holds_what_RWKV_holds */
#include <stdio.h>

#include "subject.h"

enum { B = 2, T = 19, C = 8 };

#define SIZES .dim = C, .heads = 2

/* ---- two mixers ------------------------------------------------------------------------------ */

static void expect_near(const char *what, int64_t n, const dra_real *a, const dra_real *b,
                        double least)
{
    const double d = relative_difference(n, a, b, least);
    for (int64_t i = 0; i < n; i++) assert_false(isnan((double)a[i]) || isnan((double)b[i]));
    if (!(d <= EQUAL)) fail_msg("%s differs by %g", what, d);
}

/* y (the same bits if asked for), dx, and the gradients of all parameters that both have. */
static void expect_equal(subject *a, subject *b, bool same)
{
    outcome       of_a, of_b;
    const int64_t n = a->t.B * a->t.T * a->t.C;
    run(a, &of_a);
    run(b, &of_b);
    const double least = least_gradient(b, &of_b);
    expect_near("y", n, of_a.y, of_b.y, 0);
    if (same) check_reals(of_a.y, of_b.y, (size_t)n * sizeof *of_a.y);
    expect_near("dx", n, of_a.dx, of_b.dx, 0);
    int common = 0;
    for (int i = 0; i < params_of(a); i++)
        for (int k = 0; k < params_of(b); k++) {
            const dra_spec *p = param_spec(a, i), *q = param_spec(b, k);
            if (strcmp(plain_name(p->name), plain_name(q->name)) != 0) continue;
            expect_near(p->name, dra_shape_count(&p->shape), of_a.dparam[i], of_b.dparam[k], least);
            common++;
        }
    assert_true(common >= 4);
    outcome_free(&a->t, &of_a);
    outcome_free(&b->t, &of_b);
}

static void expect_equal_mixers(const dra_mixer_config *a, const dra_mixer_config *b, bool same)
{
    subject of_a = open_subject(a, B, T), of_b = open_subject(b, B, T);
    expect_equal(&of_a, &of_b, same);
    close_subject(&of_a);
    close_subject(&of_b);
}

static void ema_without_decay_is_append(void **state)
{
    const dra_mixer_config append = {SIZES, .bias = true};
    for (int64_t M = 1; M <= 3; M++)
        for (int per = DRA_PER_HEAD; per <= DRA_PER_CHANNEL; per++) {
            dra_mixer_config c = append;
            c.a = (dra_memory_config){"ema", .ema.timescales = M, .gamma.per = (dra_gamma_per)per};
            subject a = open_subject(&c, B, T), b = open_subject(&append, B, T);
            set(&a, "beta", -1000);
            expect_equal(&a, &b, false);
            close_subject(&a);
            close_subject(&b);
        }
}

static void wide_windows_are_time(void **state)
{
    static const char *const memories[] = {"append", "ema", "gru"};
    const int64_t            wide[] = {T, T + 1, 1000};
    for (size_t i = 0; i < COUNT(memories); i++)
        for (size_t k = 0; k < COUNT(wide); k++) {
            const dra_mixer_config time = {SIZES, .rotary = true, .a = {memories[i]}};
            dra_mixer_config       window = time;
            window.a.retrieval = "window";
            window.a.window = wide[k];
            expect_equal_mixers(&window, &time, true);
        }
}

static void joined_ema_is_ema(void **state)
{
    for (int64_t M = 1; M <= 2; M++) {
        const dra_mixer_config joined = {SIZES, .a = {"ema", .joined = true, .ema.timescales = M}};
        const dra_mixer_config apart = {SIZES,
                                        .a = {"ema", .ema.timescales = M, .gamma.share = true}};
        subject                a = open_subject(&joined, B, T), b = open_subject(&apart, B, T);
        if (M > 1) set(&a, "mix", 0.5), set(&b, "mix", 0.5); /* one for both, or one each */
        expect_equal(&a, &b, false);
        close_subject(&a);
        close_subject(&b);
    }
}

/* Row i of every head's (rows, n) as the first of every (more, m) of `to`, the rest 0. */
static void widen_rows(const subject *from, subject *to, const char *name)
{
    const int       a = dra_specs_find(from->t.module->params, name);
    const int       b = dra_specs_find(to->t.module->params, name);
    const dra_shape s = param_spec(from, a)->shape, w = param_spec(to, b)->shape;
    memset(to->param[b], 0, (size_t)dra_shape_count(&w) * sizeof(dra_real));
    for (int64_t h = 0; h < s.dim[0]; h++)
        for (int64_t i = 0; i < s.dim[1]; i++)
            memcpy(to->param[b] + (h * w.dim[1] + i) * w.dim[2],
                   from->param[a] + (h * s.dim[1] + i) * s.dim[2],
                   (size_t)s.dim[2] * sizeof(dra_real));
}

/* A narrow timeline is kept as it is, a wide one as its keys and values; with zeros in what is more
 * both are the same. */
static void narrow_items_are_kept_joined(void **state)
{
    for (int window = 0; window < 2; window++) {
        dra_mixer_config narrow = {SIZES, .attention.sink = true,
                                   .a = {"ema", .joined = true, .dim = 3}};
        if (window) narrow.a.retrieval = "window", narrow.a.window = 3;
        dra_mixer_config wide = narrow;
        wide.a.dim = 64;
        subject a = open_subject(&narrow, B, T), b = open_subject(&wide, B, T);
        outcome of_a, of_b;
        assert_int_equal(dra_specs_find(a.t.module->state, "K"), -1);
        assert_true(dra_specs_find(a.t.module->state, "m") >= 0);
        assert_true(dra_specs_find(b.t.module->state, "K") >= 0);
        for (int i = 0; i < params_of(&a); i++)
            if (dra_shape_equal(&param_spec(&a, i)->shape, &param_spec(&b, i)->shape))
                memcpy(b.param[i], a.param[i],
                       (size_t)dra_shape_count(&param_spec(&a, i)->shape) * sizeof(dra_real));
        widen_rows(&a, &b, "join"), widen_rows(&a, &b, "kappa"), widen_rows(&a, &b, "nu");
        run(&a, &of_a);
        run(&b, &of_b);
        expect_near("y", B * T * a.t.C, of_a.y, of_b.y, 0);
        expect_near("dx", B * T * a.t.C, of_a.dx, of_b.dx, 0);
        outcome_free(&a.t, &of_a);
        outcome_free(&b.t, &of_b);
        close_subject(&a);
        close_subject(&b);
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

static const char *const over_slots[] = {"slots-own", "slots-all", "pooled", "joint"};

static void gru_is_one_slot_of_gru(void **state)
{
    for (size_t i = 0; i < COUNT(over_slots); i++)
        for (int per_head = 0; per_head < 2; per_head++) {
            dra_mixer_config gru = {SIZES, .a = {"gru", .retrieval = over_slots[i]}}, slots = gru;
            gru.a.cell.per_head = per_head;
            slots.a = gru.a;
            slots.a.memory = "slots";
            slots.a.slots.candidate = DRA_CANDIDATE_GRU;
            expect_equal_mixers(&gru, &slots, false);
        }
}

static void timescales_are_fixed_slots(void **state)
{
    for (size_t i = 0; i < COUNT(over_slots); i++)
        for (int64_t M = 1; M <= 4; M += 3) {
            const char            *how = over_slots[i];
            const dra_mixer_config ema = {
                SIZES, .a = {"ema", .retrieval = how, .ema.timescales = M, .gamma.share = true}};
            const dra_mixer_config slots = {
                SIZES,
                .a = {"slots", .retrieval = how, .slots.count = M, .slots.gate = DRA_GATE_FIXED}};
            expect_equal_mixers(&ema, &slots, false);
        }
}

/* ---- other parametrisations: values set to agree, gradients by the chain rule ---------------- */

static dra_real *param_of(const subject *s, const char *name)
{
    const int i = dra_specs_find(s->t.module->params, name);
    assert_true(i >= 0);
    return s->param[i];
}

static const dra_real *slope_of(const subject *s, const outcome *out, const char *name)
{
    return out->dparam[dra_specs_find(s->t.module->params, name)];
}

/* b = 1 - a = sigmoid(-beta) moves with beta in ema: dbeta = d(ssm_beta) - a (1 - a) db. */
static void expect_slope_of_modes(subject *ssm, subject *ema, const char *stream)
{
    outcome  of_ssm, of_ema;
    char     beta[16], b[16], own[16];
    dra_real chained[C];
    run(ssm, &of_ssm);
    run(ema, &of_ema);
    snprintf(beta, sizeof beta, "ssm_beta_%s", stream);
    snprintf(b, sizeof b, "ssm_b_%s", stream);
    snprintf(own, sizeof own, "beta_%s", stream);
    for (int i = 0; i < C; i++) {
        const double fade = (double)param_of(ssm, b)[i];
        chained[i] = (dra_real)((double)slope_of(ssm, &of_ssm, beta)[i] -
                                (1 - fade) * fade * (double)slope_of(ssm, &of_ssm, b)[i]);
    }
    expect_near(own, C, chained, slope_of(ema, &of_ema, own), least_gradient(ema, &of_ema));
    outcome_free(&ssm->t, &of_ssm);
    outcome_free(&ema->t, &of_ema);
}

static void ssm_of_one_mode_is_ema(void **state)
{
    static const char *const how[] = {"time", "none", "slots-all"};
    for (size_t i = 0; i < COUNT(how); i++) {
        const dra_mixer_config one = {SIZES, .a = {"ssm", .retrieval = how[i], .ssm.modes = 1}};
        const dra_mixer_config mean = {
            SIZES, .a = {"ema", .retrieval = how[i], .gamma.per = DRA_PER_CHANNEL}};
        subject ssm = open_subject(&one, B, T), ema = open_subject(&mean, B, T);
        set(&ssm, "ssm_c", 1);
        set(&ssm, "ssm_d", 0);
        for (int k = 0; k < C; k++) {
            const dra_real beta[] = {param_of(&ema, "beta_k")[k], param_of(&ema, "beta_v")[k]};
            param_of(&ssm, "ssm_beta_k")[k] = beta[0];
            param_of(&ssm, "ssm_beta_v")[k] = beta[1];
            param_of(&ssm, "ssm_b_k")[k] = (dra_real)(1 / (1 + exp((double)beta[0])));
            param_of(&ssm, "ssm_b_v")[k] = (dra_real)(1 / (1 + exp((double)beta[1])));
        }
        expect_equal(&ssm, &ema, false);
        expect_slope_of_modes(&ssm, &ema, "k");
        expect_slope_of_modes(&ssm, &ema, "v");
        close_subject(&ssm);
        close_subject(&ema);
    }
}

/* State `of_a` of one holds what `of_b` of the other does, C numbers in each row. */
static void expect_states(const subject *a, const outcome *out_a, const char *of_a,
                          const subject *b, const outcome *out_b, const char *of_b)
{
    dra_error err = {0};
    dra_real  x[B * C], y[B * C];
    for (int64_t r = 0; r < B; r++) {
        const int i = dra_specs_find(a->t.module->state, of_a);
        const int k = dra_specs_find(b->t.module->state, of_b);
        expect_ok(dra_states_read(out_a->final, i, r, x + r * C, C, &err), &err);
        expect_ok(dra_states_read(out_b->final, k, r, y + r * C, C, &err), &err);
    }
    expect_near(of_a, B * C, x, y, 0);
}

/* w = ln gamma = -exp(time_decay) and u = -w, so dbeta = (1 - gamma) (d(time_decay) / w - du). */
static void expect_same_sums(subject *moment, subject *wkv, const double w[C])
{
    outcome  of_moment, of_wkv;
    dra_real chained[C];
    run(moment, &of_moment);
    run(wkv, &of_wkv);
    expect_states(moment, &of_moment, "S", wkv, &of_wkv, "A");
    expect_states(moment, &of_moment, "z", wkv, &of_wkv, "B");
    expect_states(moment, &of_moment, "max", wkv, &of_wkv, "p");
    for (int i = 0; i < C; i++)
        chained[i] = (dra_real)(-expm1(w[i]) *
                                ((double)slope_of(wkv, &of_wkv, "time_decay")[i] / w[i] -
                                 (double)slope_of(wkv, &of_wkv, "time_first")[i]));
    expect_near("beta", C, slope_of(moment, &of_moment, "beta"), chained,
                least_gradient(wkv, &of_wkv));
    outcome_free(&moment->t, &of_moment);
    outcome_free(&wkv->t, &of_wkv);
}

/* The receptance is 1 where its bias is large; a scalar query cancels out of moment. */
static void moment_of_scalars_is_wkv(void **state)
{
    const dra_mixer_config scalars = {
        .dim = C,
        .heads = C,
        .bias = true,
        .a = {"moment", .moment.phi = DRA_PHI_EXP, .lambda.decay = DRA_DECAY_FIXED}};
    const dra_mixer_config rwkv = {.dim = C, .heads = C, .bias = true, .a = {"wkv"}};
    subject                moment = open_subject(&scalars, B, T), wkv = open_subject(&rwkv, B, T);
    double                 w[C];
    set(&wkv, "W_q", 0);
    set(&wkv, "b_q", 1000);
    for (int i = 0; i < C; i++) {
        w[i] = -0.02 * (1 << i);
        param_of(&moment, "beta")[i] = (dra_real)(w[i] - log(-expm1(w[i])));
        param_of(&wkv, "time_decay")[i] = (dra_real)log(-w[i]);
        param_of(&wkv, "time_first")[i] = (dra_real)-w[i];
    }
    expect_equal(&moment, &wkv, false);
    expect_same_sums(&moment, &wkv, w);
    close_subject(&moment);
    close_subject(&wkv);
}

/* ---- random features ------------------------------------------------------------------------- */

static void read_whole(const subject *s, dra_real *y)
{
    const size_t bytes = B * T * C * sizeof *y;
    dra_error    err = {0};
    dra_states  *states = new_states(s->t.module->state, B);
    dra_reader  *r = open_reader(s);
    expect_ok(dra_reader_read(r, states, T, NULL, 1, &(dra_named){"x", s->x, bytes}, &err), &err);
    memcpy(y, dra_reader_result(r, "y"), bytes);
    dra_reader_destroy(r);
    dra_states_destroy(states);
}

/* Queries and keys made short. The variance of e^(w.x) grows exponentially with |x|^2: with keys as
 * long as subjects have them a few features dominate, and up to F = 2048 the error falls as F^-0.17
 * to F^-0.25; with these, as F^-0.44 to F^-0.54 (eight sets of 16 draws each). */
static void shorten(const subject *s)
{
    dra_real *q = param_of(s, "W_q"), *k = param_of(s, "W_k");
    for (int i = 0; i < C * C; i++) {
        q[i] = (dra_real)(0.4 * (double)q[i]);
        k[i] = (dra_real)(0.4 * (double)k[i]);
    }
}

/* The root of the mean square of y - exact over several draws of F features. */
static double error_of_features(int64_t F, const dra_real *exact)
{
    enum { DRAWS = 16 };
    const dra_mixer_config c = {SIZES,
                                .a = {"moment", .moment.phi = DRA_PHI_FAVOR, .moment.features = F}};
    subject                s = open_subject(&c, B, T);
    const int              omega = dra_specs_find(s.t.module->params, "omega");
    dra_real               y[B * T * C];
    double                 sum = 0;
    shorten(&s);
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        dra_specs_fill(s.t.module->params, omega, seed, s.param[omega]);
        read_whole(&s, y);
        for (int i = 0; i < B * T * C; i++)
            sum += ((double)y[i] - (double)exact[i]) * ((double)y[i] - (double)exact[i]);
    }
    close_subject(&s);
    return sqrt(sum / (DRAWS * B * T * C));
}

/* The error falls about as F^(-1/2). The draws are seeded. */
static void favor_comes_to_attention(void **state)
{
    const dra_mixer_config attention = {SIZES};
    subject                s = open_subject(&attention, B, T);
    dra_real               exact[B * T * C];
    double                 size = 0;
    shorten(&s);
    read_whole(&s, exact);
    for (int i = 0; i < B * T * C; i++) size = fmax(size, fabs((double)exact[i]));
    const double few = error_of_features(32, exact), many = error_of_features(2048, exact);
    const double slope = log(many / few) / log(2048.0 / 32);
    printf("# favor: error %.4f of the largest with 32 features, %.4f with 2048: F^%.2f\n",
           few / size, many / size, slope);
    assert_true(slope > -0.6 && slope < -0.4 && many < 0.02 * size);
    close_subject(&s);
}

/* ---- blends ---------------------------------------------------------------------------------- */

/* Fresh, so that the state of the part left out is in no loss: 0 times NaN would be NaN. */
static void ends_of_a_blend_are_its_parts(void **state)
{
    for (int a = 0; a < 2; a++)
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            const dra_mixer_config c = {SIZES, .blend = DRA_BLEND_NUMBER, .blend_value = a,
                                        .a = {"wkv"}, .b = {"gru"}};
            const dra_mixer_config part = {SIZES, .a = a ? c.a : c.b};
            subject blend = open_subject(&c, B, T), alone = open_subject(&part, B, T);
            blend.t.fresh = alone.t.fresh = true;
            if (poisoned) set(&blend, a ? "b." : "a.", NAN);
            expect_equal(&blend, &alone, true);
            close_subject(&blend);
            close_subject(&alone);
        }
}

/* The weight as an input of the graph, through a reader; the other part holds NaN. */
static void ends_of_a_blend_by_input(void **state)
{
    const dra_mixer_config c = {SIZES, .blend = DRA_BLEND_INPUT, .a = {"wkv"}, .b = {"gru"}};
    for (int a = 0; a < 2; a++) {
        const dra_mixer_config part = {SIZES, .a = a ? c.a : c.b};
        subject                blend = open_subject(&c, B, T), alone = open_subject(&part, B, T);
        dra_error              err = {0};
        outcome                out;
        const dra_real         weight = (dra_real)a;
        const size_t           bytes = B * T * C * sizeof(dra_real);
        const dra_named        in[] = {{"x", blend.x, bytes}, {"blend", &weight, sizeof weight}};
        set(&blend, a ? "b." : "a.", NAN);
        run(&alone, &out);
        dra_reader *r = open_reader(&blend);
        expect_ok(dra_reader_read(r, blend.start, T, NULL, 2, in, &err), &err);
        check_reals(dra_reader_result(r, "y"), out.y, bytes);
        dra_reader_destroy(r);
        outcome_free(&alone.t, &out);
        close_subject(&blend);
        close_subject(&alone);
    }
}

/* score_scale s is the same as queries that are s sqrt(D) times as large, whatever is read. */
static void a_scale_is_one_of_queries(void **state)
{
    static const dra_memory_config memories[] = {
        {"append"},
        {"slots", .slots.count = 3},
        {"slots", .retrieval = "slots-all", .slots.count = 2},
        {"slots", .retrieval = "pooled", .slots.count = 2},
        {"slots", .slots.count = 2, .maps = true, .pi = true},
        {"slots", .slots.count = 2, .steps = true},
        {"gru", .retrieval = "slots-all"},
        {"gru", .retrieval = "joint"},
        {"slots", .retrieval = "joint", .slots.count = 2}};
    const double scale = 1.7, D = C / 2;
    for (size_t i = 0; i < COUNT(memories); i++) {
        const dra_mixer_config plain = {SIZES, .a = memories[i]};
        dra_mixer_config       scaled = plain;
        scaled.score_scale = scale;
        subject a = open_subject(&scaled, B, T), b = open_subject(&plain, B, T);
        outcome of_a, of_b;
        for (int64_t k = 0; k < C * C; k++) b.param[0][k] *= (dra_real)(scale * sqrt(D));
        assert_string_equal(param_spec(&b, 0)->name, "W_q");
        run(&a, &of_a);
        run(&b, &of_b);
        expect_near("y", B * T * C, of_a.y, of_b.y, 0);
        expect_near("dx", B * T * C, of_a.dx, of_b.dx, 0);
        outcome_free(&a.t, &of_a);
        outcome_free(&b.t, &of_b);
        close_subject(&a);
        close_subject(&b);
    }
}

/* In a blend, the memory that reads items is rotated, and the other is as it is alone. */
static void one_part_of_a_blend_rotates(void **state)
{
    const dra_mixer_config rotated = {SIZES, .rotary = true};
    dra_mixer_config       both = rotated;
    both.blend = DRA_BLEND_NUMBER;
    both.blend_value = 1;
    both.b.memory = "delta";
    subject a = open_subject(&both, B, T), b = open_subject(&rotated, B, T);
    outcome of_a, of_b;
    run(&a, &of_a);
    run(&b, &of_b);
    expect_near("y", B * T * C, of_a.y, of_b.y, 0);
    outcome_free(&a.t, &of_a);
    outcome_free(&b.t, &of_b);
    close_subject(&a);
    close_subject(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ema_without_decay_is_append),
        cmocka_unit_test(wide_windows_are_time),
        cmocka_unit_test(joined_ema_is_ema),
        cmocka_unit_test(narrow_items_are_kept_joined),
        cmocka_unit_test(gru_is_one_slot_of_gru),
        cmocka_unit_test(timescales_are_fixed_slots),
        cmocka_unit_test(ssm_of_one_mode_is_ema),
        cmocka_unit_test(moment_of_scalars_is_wkv),
        cmocka_unit_test(favor_comes_to_attention),
        cmocka_unit_test(ends_of_a_blend_are_its_parts),
        cmocka_unit_test(ends_of_a_blend_by_input),
        cmocka_unit_test(a_scale_is_one_of_queries),
        cmocka_unit_test(one_part_of_a_blend_rotates),
    };
    return check_main("equalities", NULL, 0, tests, COUNT(tests));
}
