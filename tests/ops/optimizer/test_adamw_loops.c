/* A step of AdamW over rows, at every level, against its formula in double: odd lengths, unaligned
 * pointers, guard elements, outputs that nobody wants or that are the inputs. */
#include "device/guarded.h"
#include "ops/optimizer/adamw_loops.h"

static const dra_adamw_step step = {(dra_real)0.9,  (dra_real)0.1,  (dra_real)0.99, (dra_real)0.01,
                                    (dra_real)1.3,  (dra_real)2.5,  (dra_real)0.02, (dra_real)0.5,
                                    (dra_real)1e-6, (dra_real)0.125};

static void check_step(const row *p, const row *m, const row *v, const row *dp, const row *out,
                       int64_t i)
{
    const double d = (double)step.s * (double)was(dp, i);
    const double m1 = (double)step.b1 * (double)was(m, i) + (double)step.new1 * d;
    const double v1 = (double)step.b2 * (double)was(v, i) + (double)step.new2 * d * d;
    const double way = m1 * (double)step.fix1 / (sqrt(v1 * (double)step.fix2) + (double)step.eps);
    const double old = (double)was(p, i);
    const double p1 = old - (double)step.rate * ((double)step.decay * old + way);
    if (out[0].at) near("adamw, p", i, (double)out[0].at[i], p1, 4 * tiny * (1 + fabs(way)));
    if (out[1].at) near("adamw, m", i, (double)out[1].at[i], m1, 4 * tiny);
    if (out[2].at) near("adamw, v", i, (double)out[2].at[i], v1, 4 * tiny);
}

/* `without`: an output nobody wants (3: all are wanted); in_place: outputs are the inputs. */
static void adamw_once(const dra_simd *simd, int64_t n, int offset, int without, bool in_place)
{
    static row in[4], out[3]; /* p, m, v, dp */
    uint64_t   seed = 51 + (uint64_t)n;
    for (int i = 0; i < 4; i++) fill(&in[i], n, (offset + i) % OFFSETS, i == 2 ? 0 : -1, 1, &seed);
    for (int i = 0; i < 3; i++) fill(&out[i], n, (offset + 2 * i) % OFFSETS, 5, 6, &seed);
    row      *to = in_place ? in : out;
    dra_real *at[3];
    for (int i = 0; i < 3; i++) at[i] = i == without ? NULL : to[i].at;
    dra_adamw_loops_of(simd)->step(n, &step, in[3].at, in[0].at, in[1].at, in[2].at, at[0], at[1],
                                   at[2]);
    for (int64_t i = 0; i < n; i++) {
        dra_real alone[3] = {was(&in[0], i), was(&in[1], i), was(&in[2], i)};
        dra_adamw_loops_of(simd)->step(1, &step, &in[3].at[i], &alone[0], &alone[1], &alone[2],
                                       &alone[0], &alone[1], &alone[2]);
        for (int j = 0; j < 3; j++)
            if (j != without) assert_memory_equal(&alone[j], &to[j].at[i], sizeof alone[j]);
        if (without == 3) check_step(&in[0], &in[1], &in[2], &in[3], to, i);
    }
    for (int i = 0; i < 3; i++) {
        check_untouched(&in[i], !in_place || i == without);
        check_untouched(&out[i], in_place || i == without);
    }
    check_untouched(&in[3], true);
}

static void steps(const dra_simd *simd)
{
    for (int64_t n = 0; n <= LONGEST + 1; n++)
        for (int how = 0; how < 8; how++)
            adamw_once(simd, n <= LONGEST ? n : 1000, how % OFFSETS, how / 2, how % 2);
}

static void adamw(void **state) { for_each_level(steps); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(adamw)};
    return check_main("adamw_loops", NULL, 0, tests, COUNT(tests));
}
