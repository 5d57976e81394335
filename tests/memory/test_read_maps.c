/* Learned maps between a memory and its reader: kappa, nu and pi. A memory that is linear in what
 * it is fed holds the mapped items of the plain stream if it is fed the mapped stream, so maps of
 * its items equal other projections W_k and W_v. */
#include "subject.h"

enum { B = 2, T = 11, C = 12, H = 3, D = 4, E = 5 };

#define SIZES .dim = C, .heads = H, .value_dim = E

static dra_real *param(const subject *s, const char *name)
{
    const int i = dra_specs_find(s->t.module->params, name);
    if (i < 0) fail_msg("no parameter is called %s", name);
    return s->param[i];
}

static void expect_near(const char *what, int64_t n, const dra_real *a, const dra_real *b,
                        double least)
{
    const double d = relative_difference(n, a, b, least);
    if (!(d <= EQUAL)) fail_msg("%s differs by %g", what, d);
}

/* y and dx of two mixers; same: the bits of y. */
static void expect_equal(subject *a, subject *b, bool same)
{
    outcome       of_a, of_b;
    const int64_t n = a->t.B * a->t.T * a->t.C;
    run(a, &of_a);
    run(b, &of_b);
    expect_near("y", n, of_a.y, of_b.y, 0);
    expect_near("dx", n, of_a.dx, of_b.dx, 0);
    if (same) check_reals(of_a.y, of_b.y, (size_t)n * sizeof *of_a.y);
    outcome_free(&a->t, &of_a);
    outcome_free(&b->t, &of_b);
}

/* w (H width, C) becomes m w, head by head, m (H, width, width) or one (width, width) for all. */
static void multiply(dra_real *w, const dra_real *m, int64_t width, bool one)
{
    for (int64_t h = 0; h < H; h++)
        for (int64_t c = 0; c < C; c++) {
            double row[8] = {0};
            for (int64_t i = 0; i < width; i++)
                for (int64_t k = 0; k < width; k++)
                    row[i] += (double)m[((one ? 0 : h) * width + i) * width + k] *
                              (double)w[(h * width + k) * C + c];
            for (int64_t i = 0; i < width; i++) w[(h * width + i) * C + c] = (dra_real)row[i];
        }
}

/* ---- kappa and nu ---------------------------------------------------------------------------- */

static const dra_memory_config linear[] = {
    {"append"},
    {"append", .retrieval = "window", .window = 4},
    {"append", .retrieval = "none"},
    {"ema", .ema.timescales = 2},
    {"ema", .retrieval = "slots-own", .ema.timescales = 3},
    {"ema", .retrieval = "slots-all", .ema.timescales = 2},
    {"ema", .retrieval = "pooled"},
    {"slots", .slots.count = 3, .slots.gate = DRA_GATE_FIXED},
    {"slots", .slots.count = 3},
    {"slots", .slots.count = 3, .steps = true},
    {"slots", .slots.count = 3, .retrieval = "slots-all"},
    {"slots", .slots.count = 2, .retrieval = "pooled", .slots.gate = DRA_GATE_GATED},
};

static void maps_are_other_projections(void **state)
{
    for (size_t i = 0; i < COUNT(linear); i++) {
        dra_mixer_config plain = {SIZES, .a = linear[i]}, mapped = plain;
        mapped.a.maps = true;
        subject a = open_subject(&mapped, B, T), b = open_subject(&plain, B, T);
        if (!linear[i].retrieval || strcmp(linear[i].retrieval, "none") != 0)
            multiply(param(&b, "W_k"), param(&a, "kappa"), D, false);
        else
            assert_true(dra_specs_find(a.t.module->params, "kappa") < 0); /* nobody reads keys */
        multiply(param(&b, "W_v"), param(&a, "nu"), E, false);
        expect_equal(&a, &b, false);
        close_subject(&a);
        close_subject(&b);
    }
}

/* Maps of a joined state are those of one with a width of its own, fed through the identity. */
static void joined_maps_are_those_of_a_width(void **state)
{
    static const char *const memories[] = {"ema", "gru", "ssm"};
    for (size_t i = 0; i < COUNT(memories); i++) {
        const dra_mixer_config maps = {SIZES, .a = {memories[i], .joined = true, .maps = true}};
        const dra_mixer_config dim = {SIZES, .a = {memories[i], .joined = true, .dim = D + E}};
        subject                a = open_subject(&maps, B, T), b = open_subject(&dim, B, T);
        for (int64_t k = 0; k < H * (D + E) * (D + E); k++)
            param(&b, "join")[k] = k / (D + E) % (D + E) == k % (D + E);
        expect_equal(&a, &b, false);
        close_subject(&a);
        close_subject(&b);
    }
}

/* One head's own slots are those of all heads; only own ones are asked by a mapped query. */
static void mapped_queries_are_mapped_slots(void **state)
{
    static const dra_memory_config memories[] = {
        {"gru"}, {"lstm"}, {"slots", .slots.count = 3}, {"ema", .ema.timescales = 2}};
    for (size_t i = 0; i < COUNT(memories); i++)
        for (int joint = 0; joint < 2; joint++) {
            dra_mixer_config own = {.dim = C, .heads = 1, .value_dim = E, .a = memories[i]}, all;
            own.a.maps = true;
            own.a.retrieval = joint ? "joint" : "slots-own";
            all = own;
            if (joint)
                all.a.joint = DRA_SLOTS_ALL;
            else
                all.a.retrieval = "slots-all";
            /* Law 5 reads the values through nu as well. */
            dra_sublayer_config x = {.block = {.memory_residual = true, .project = true}}, y = x;
            x.mixer = own, y.mixer = all;
            subject a = open_subject_in(&x, B, T), b = open_subject_in(&y, B, T);
            expect_equal(&a, &b, false);
            close_subject(&a);
            close_subject(&b);
        }
}

/* ---- pi -------------------------------------------------------------------------------------- */

/* The same for all heads. */
static void pi_is_another_projection(void **state)
{
    static const dra_memory_config memories[] = {
        {"ema", .retrieval = "slots-own", .ema.timescales = 3},
        {"ema", .retrieval = "slots-all", .ema.timescales = 2},
        {"ema", .retrieval = "pooled", .joined = true},
        {"slots", .slots.count = 3},
    };
    for (size_t i = 0; i < COUNT(memories); i++) {
        dra_mixer_config plain = {SIZES, .a = memories[i]}, mapped = plain;
        mapped.a.pi = true;
        subject a = open_subject(&mapped, B, T), b = open_subject(&plain, B, T);
        multiply(param(&b, "W_k"), param(&a, "pi_k"), D, true);
        multiply(param(&b, "W_v"), param(&a, "pi_v"), E, true);
        expect_equal(&a, &b, false);
        close_subject(&a);
        close_subject(&b);
    }
}

/* Maps of all heads that are alike are pi, whatever the memory; raw items of joint know neither. */
static void equal_maps_are_pi(void **state)
{
    static const dra_memory_config memories[] = {
        {"gru", .retrieval = "joint", .window = 3},
        {"gru", .retrieval = "slots-all"},
        {"lstm", .retrieval = "pooled"},
        {"ssm", .retrieval = "joint", .joint = DRA_SLOTS_ALL},
    };
    for (size_t i = 0; i < COUNT(memories); i++) {
        dra_mixer_config pi = {SIZES, .a = memories[i]}, maps = pi;
        pi.a.pi = maps.a.maps = true;
        subject a = open_subject(&pi, B, T), b = open_subject(&maps, B, T);
        for (int64_t k = 0; k < H * D * D; k++)
            param(&b, "kappa")[k] = param(&a, "pi_k")[k % (D * D)];
        for (int64_t k = 0; k < H * E * E; k++) param(&b, "nu")[k] = param(&a, "pi_v")[k % (E * E)];
        expect_equal(&a, &b, false);
        close_subject(&a);
        close_subject(&b);
    }
}

/* ---- how they start -------------------------------------------------------------------------- */

static void start_as_drawn(const subject *s, const char *name)
{
    const int i = dra_specs_find(s->t.module->params, name);
    if (i >= 0) dra_specs_fill(s->t.module->params, i, 3, s->param[i]);
}

static void maps_start_neutral(void **state)
{
    static const dra_memory_config memories[] = {
        {"append"},
        {"gru", .joined = true},
        {"lstm", .retrieval = "joint", .window = 3},
        {"slots", .slots.count = 3},
        {"slots", .slots.count = 2, .slots.candidate = DRA_CANDIDATE_GRU, .retrieval = "pooled"},
    };
    for (size_t i = 0; i < COUNT(memories); i++) {
        dra_mixer_config plain = {SIZES, .a = memories[i]}, mapped = plain;
        mapped.a.maps = true;
        mapped.a.pi = i >= 2; /* those read as slots */
        subject                  a = open_subject(&mapped, B, T), b = open_subject(&plain, B, T);
        static const char *const maps[] = {"kappa", "nu", "pi_k", "pi_v"};
        for (size_t k = 0; k < COUNT(maps); k++) start_as_drawn(&a, maps[k]);
        expect_equal(&a, &b, true);
        close_subject(&a);
        close_subject(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_other_projections),
        cmocka_unit_test(joined_maps_are_those_of_a_width),
        cmocka_unit_test(mapped_queries_are_mapped_slots),
        cmocka_unit_test(pi_is_another_projection),
        cmocka_unit_test(equal_maps_are_pi),
        cmocka_unit_test(maps_start_neutral),
    };
    return check_main("read_maps", NULL, 0, tests, COUNT(tests));
}
