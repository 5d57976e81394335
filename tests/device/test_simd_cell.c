/* Steps of recurrent cells on every level against the formulas of src/ops/gru.c in double: all
 * numbers of rows, odd widths, guard elements around what may be written, and that a row's results
 * do not depend on the rows beside it. */
#include "guarded.h"

enum { ROWS = DRA_CELL_ROWS, UNITS = DRA_CELL_UNITS, WIDEST = 49, BLOCKS = 4, G = 3, K = 4 };

static const int64_t widths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 48, WIDEST};

static row x[ROWS], h[ROWS], mix[ROWS], to[ROWS], kept[ROWS], dy[ROWS], d[ROWS], dx[ROWS], du[ROWS];
static row swing[ROWS], b, db;

static dra_real w[G * WIDEST][WIDEST];               /* as the formula has it */
static dra_real wide[G * WIDEST * BLOCKS * UNITS];   /* with columns of zeros */
static dra_real packed[BLOCKS * WIDEST * G * UNITS]; /* by blocks of units */

static void fill_weights(int64_t D, uint64_t *seed)
{
    const int64_t blocks = (D + UNITS - 1) / UNITS;
    memset(wide, 0, sizeof wide);
    memset(packed, 0, sizeof packed);
    for (int64_t gate = 0; gate < G; gate++)
        for (int64_t j = 0; j < D; j++)
            for (int64_t k = 0; k < D; k++) {
                const dra_real value = (dra_real)(check_random(seed) - 0.5);
                w[gate * D + j][k] = wide[(gate * D + j) * blocks * UNITS + k] = value;
                packed[((j / UNITS * D + k) * G + gate) * UNITS + j % UNITS] = value;
            }
}

static void fill_rows(row *r, int64_t n, double lo, double hi, uint64_t *seed)
{
    for (int i = 0; i < ROWS; i++) fill(&r[i], n, i % OFFSETS, lo, hi, seed);
}

static void fill_all(int64_t D, uint64_t *seed)
{
    fill_weights(D, seed);
    fill_rows(x, G * D, -4, 4, seed);
    fill_rows(h, D, -1, 1, seed);
    fill_rows(mix, D, 0, 1, seed);
    fill_rows(to, D, 5, 6, seed);
    fill_rows(kept, K * D, 0, 1, seed);
    fill_rows(dy, D, -1, 1, seed);
    fill_rows(d, D, -1, 1, seed);
    fill_rows(dx, G * D, 5, 6, seed);
    fill_rows(du, G * D, 5, 6, seed);
    fill_rows(swing, D, -1, 1, seed);
    fill(&b, G * D, 1, -1, 1, seed);
    fill(&db, G * D, 3, -1, 1, seed);
}

static void check_all(row *r, int64_t rows, bool inside_too)
{
    for (int64_t i = 0; i < ROWS; i++) check_untouched(&r[i], inside_too || i >= rows);
}

/* ---- forward --------------------------------------------------------------------------------- */

static dra_cell_step step_of(int64_t D, int64_t first, int64_t rows, bool keep)
{
    dra_cell_step s = {.rows = rows, .D = D, .ahead = 1, .w = packed, .b = b.at};
    for (int64_t i = 0; i < rows; i++) {
        s.x[i] = x[first + i].at;
        s.h[i] = h[first + i].at;
        s.mix[i] = mix[first + i].at;
        s.to[i] = to[first + i].at;
        s.kept[i] = keep ? kept[first + i].at : NULL;
    }
    return s;
}

static double sigmoid(double v) { return 1 / (1 + exp(-v)); }

static double gate_sum(int64_t D, int64_t i, int gate, int64_t j)
{
    double sum = (double)b.at[gate * D + j];
    for (int64_t k = 0; k < D; k++) sum += (double)w[gate * D + j][k] * (double)h[i].at[k];
    return sum;
}

static void check_unit(int64_t D, int64_t i, int64_t j, bool keep)
{
    const double m = gate_sum(D, i, 2, j), old = (double)h[i].at[j];
    const double r = sigmoid((double)x[i].at[j] + gate_sum(D, i, 0, j));
    const double fresh = sigmoid(-(double)x[i].at[D + j] - gate_sum(D, i, 1, j));
    const double n = tanh((double)x[i].at[2 * D + j] + r * m);
    const double want = old + (double)mix[i].at[j] * fresh * (n - old);
    const double gates[K] = {r, fresh, n, m}, allowed = tiny * (double)(8 + D);
    near("state", D, (double)to[i].at[j], want, allowed);
    for (int k = 0; k < K && keep; k++)
        near("kept", D, (double)kept[i].at[k * D + j], gates[k], allowed);
}

static void forward_once(const dra_simd *simd, int64_t D, int64_t rows, bool keep, uint64_t *seed)
{
    fill_all(D, seed);
    const dra_cell_step s = step_of(D, 0, rows, keep);
    simd->gru(&s);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < D; j++) check_unit(D, i, j, keep);
    check_all(to, rows, false);
    check_all(kept, keep ? rows : 0, false);
    check_all(x, rows, true);
    check_all(h, rows, true);
}

static void goes_forward(const dra_simd *simd)
{
    uint64_t seed = 3;
    for (size_t k = 0; k < COUNT(widths); k++)
        for (int64_t rows = 0; rows <= ROWS; rows++)
            forward_once(simd, widths[k], rows, (rows + (int64_t)k) % 2, &seed);
}

static void forward(void **state) { for_each_level(goes_forward); }

/* ---- backward -------------------------------------------------------------------------------- */

static dra_cell_back back_of(int64_t D, int64_t first, int64_t rows)
{
    const int64_t blocks = (D + UNITS - 1) / UNITS;
    dra_cell_back s = {.rows = rows, .D = D, .ahead = -1, .w = wide, .w_row = blocks * UNITS};
    s.db = db.at;
    for (int64_t i = 0; i < rows; i++) {
        s.kept[i] = kept[first + i].at;
        s.h[i] = h[first + i].at;
        s.mix[i] = mix[first + i].at;
        s.dy[i] = dy[first + i].at;
        s.d[i] = d[first + i].at;
        s.dx[i] = dx[first + i].at;
        s.du[i] = du[first + i].at;
        s.swing[i] = swing[first + i].at;
    }
    return s;
}

/* a_r, a_z, a_n, r a_n, e and q of the formulas. */
typedef struct slopes {
    double a_r, a_z, a_n, b_n, e, q;
} slopes;

static slopes slopes_of(int64_t D, int64_t i, int64_t j)
{
    const dra_real *at = kept[i].at + j;
    const double    r = (double)at[0], fresh = (double)at[D], n = (double)at[2 * D];
    const double    all = (double)was(&d[i], j) + (double)dy[i].at[j];
    slopes          s = {.e = (double)mix[i].at[j] * fresh * all};
    s.q = s.e * ((double)h[i].at[j] - n);
    s.a_n = s.e * (1 - n * n);
    s.a_z = s.q * (1 - fresh);
    s.b_n = r * s.a_n;
    s.a_r = s.a_n * (double)at[3 * D] * r * (1 - r);
    return s;
}

static void check_back_row(int64_t D, int64_t i, double *sum)
{
    const double allowed = tiny * (double)(8 + D);
    for (int64_t j = 0; j < D; j++) {
        const slopes s = slopes_of(D, i, j);
        const double want_dx[G] = {s.a_r, s.a_z, s.a_n}, want_du[G] = {s.a_r, s.a_z, s.b_n};
        double       pass = (double)was(&d[i], j) + (double)dy[i].at[j] - s.e;
        for (int gate = 0; gate < G; gate++) {
            near("dx", D, (double)dx[i].at[gate * D + j], want_dx[gate], allowed);
            near("du", D, (double)du[i].at[gate * D + j], want_du[gate], allowed);
            sum[gate * D + j] += want_du[gate];
        }
        for (int64_t k = 0; k < G * D; k++) pass += (double)du[i].at[k] * (double)w[k][j];
        near("d", D, (double)d[i].at[j], pass, allowed);
        near("swing", D, (double)swing[i].at[j], (double)was(&swing[i], j) + s.q, allowed);
    }
}

static void back_once(const dra_simd *simd, int64_t D, int64_t rows, uint64_t *seed)
{
    double sum[G * WIDEST];
    fill_all(D, seed);
    for (int64_t k = 0; k < G * D; k++) sum[k] = (double)db.at[k];
    const dra_cell_back s = back_of(D, 0, rows);
    simd->gru_back(&s);
    for (int64_t i = 0; i < rows; i++) check_back_row(D, i, sum);
    for (int64_t k = 0; k < G * D; k++)
        near("db", D, (double)db.at[k], sum[k], tiny * (double)(8 + D));
    row *const written[] = {d, dx, du, swing}, *const read[] = {kept, h, mix, dy};
    for (int k = 0; k < 4; k++) {
        check_all(written[k], rows, false);
        check_all(read[k], rows, true);
    }
    check_untouched(&db, false);
}

static void goes_back(const dra_simd *simd)
{
    uint64_t seed = 4;
    for (size_t k = 0; k < COUNT(widths); k++)
        for (int64_t rows = 0; rows <= ROWS; rows++) back_once(simd, widths[k], rows, &seed);
}

static void back(void **state) { for_each_level(goes_back); }

/* ---- rows alone ------------------------------------------------------------------------------ */

/* All rows in one step, then the same from `first` on. */
static void rows_once(const dra_simd *simd, int64_t D, int64_t first, int64_t rows)
{
    static dra_real together[ROWS][WIDEST], back_together[ROWS][WIDEST];
    uint64_t        seed = 5 + (uint64_t)D;
    fill_all(D, &seed);
    const dra_cell_step s = step_of(D, 0, ROWS, false);
    const dra_cell_back t = back_of(D, 0, ROWS);
    simd->gru(&s);
    simd->gru_back(&t);
    for (int i = 0; i < ROWS; i++) {
        memcpy(together[i], to[i].at, (size_t)D * sizeof(dra_real));
        memcpy(back_together[i], d[i].at, (size_t)D * sizeof(dra_real));
    }
    seed = 5 + (uint64_t)D;
    fill_all(D, &seed);
    const dra_cell_step some = step_of(D, first, rows, true);
    const dra_cell_back back_some = back_of(D, first, rows);
    simd->gru_back(&back_some);
    simd->gru(&some);
    for (int64_t i = first; i < first + rows; i++) {
        assert_memory_equal(to[i].at, together[i], (size_t)D * sizeof(dra_real));
        assert_memory_equal(d[i].at, back_together[i], (size_t)D * sizeof(dra_real));
    }
}

static void rows_do_not_meet(const dra_simd *simd)
{
    for (size_t k = 0; k < COUNT(widths); k++)
        for (int64_t rows = 1; rows <= ROWS; rows++)
            for (int64_t first = 0; first + rows <= ROWS; first += 3)
                rows_once(simd, widths[k], first, rows);
}

static void depends_on_its_row_alone(void **state) { for_each_level(rows_do_not_meet); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward),
        cmocka_unit_test(back),
        cmocka_unit_test(depends_on_its_row_alone),
    };
    return check_main("simd cell", NULL, 0, tests, COUNT(tests));
}
