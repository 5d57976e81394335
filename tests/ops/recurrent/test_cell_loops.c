/* Steps of recurrent cells on every level against the formulas of gru.c and lstm.c in
 * double: all numbers of rows, odd widths, guard elements around what may be written, and that a
 * row's results do not depend on the rows computed with it. */
#include "device/guarded.h"
#include "ops/recurrent/cell_loops.h"

enum { ROWS = DRA_CELL_ROWS, UNITS = DRA_CELL_UNITS, WIDEST = 49, BLOCKS = 4 };
enum { MOST_GATES = 4, MOST_KEPT = 6 };

static const int64_t widths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 48, WIDEST};

static row x[ROWS], h[ROWS], mix[ROWS], to[ROWS], kept[ROWS], dy[ROWS], d[ROWS], dx[ROWS], du[ROWS];
static row c[ROWS], dc[ROWS], swing[ROWS], b, db;

static dra_real w[MOST_GATES * WIDEST][WIDEST];               /* as the formula has it */
static dra_real wide[MOST_GATES * WIDEST * BLOCKS * UNITS];   /* with columns of zeros */
static dra_real packed[BLOCKS * WIDEST * MOST_GATES * UNITS]; /* by blocks of units */

/* ---- the cells ------------------------------------------------------------------------------- */

typedef struct ahead { /* what a unit gives */
    double to, c, kept[MOST_KEPT];
} ahead;

typedef struct grads { /* what it gives backward; d less w^T du */
    double dx[MOST_GATES], du[MOST_GATES], d, dc, swing;
} grads;

typedef struct cell {
    int gates, kept;
    void (*forward)(const dra_cell_loops *loops, const dra_cell_step *s);
    void (*back)(const dra_cell_loops *loops, const dra_cell_back *s);
    /* x and u = w h + b of each gate */
    ahead (*unit)(const double *x, const double *u, double h, double c, double mix);
    /* all: of the new h; dc: of the new c */
    grads (*unit_back)(const double *kept, double h, double mix, double all, double dc);
} cell;

static double sigmoid(double v) { return 1 / (1 + exp(-v)); }

static void gru(const dra_cell_loops *loops, const dra_cell_step *s) { loops->gru(s); }
static void gru_back(const dra_cell_loops *loops, const dra_cell_back *s) { loops->gru_back(s); }

static ahead gru_unit(const double *v, const double *u, double old, double same, double share)
{
    const double r = sigmoid(v[0] + u[0]), fresh = sigmoid(-v[1] - u[1]);
    const double n = tanh(v[2] + r * u[2]);
    return (ahead){old + share * fresh * (n - old), same, {r, fresh, n, u[2]}};
}

static grads gru_unit_back(const double *k, double old, double share, double all, double same)
{
    const double r = k[0], fresh = k[1], n = k[2], e = share * fresh * all, q = e * (old - n);
    const double a_n = e * (1 - n * n), a_z = q * (1 - fresh), a_r = a_n * k[3] * r * (1 - r);
    return (grads){{a_r, a_z, a_n}, {a_r, a_z, r * a_n}, all - e, same, q};
}

static void lstm(const dra_cell_loops *loops, const dra_cell_step *s) { loops->lstm(s); }
static void lstm_back(const dra_cell_loops *loops, const dra_cell_back *s) { loops->lstm_back(s); }

static ahead lstm_unit(const double *v, const double *u, double old, double old_c, double share)
{
    const double i = sigmoid(v[0] + u[0]), f = sigmoid(v[1] + u[1]), n = tanh(v[2] + u[2]);
    const double o = sigmoid(v[3] + u[3]), new_c = f * old_c + i * n, y = tanh(new_c);
    return (ahead){old + share * (o * y - old), new_c, {i, f, n, o, y, old_c}};
}

static grads lstm_unit_back(const double *k, double old, double share, double all, double of_c)
{
    const double i = k[0], f = k[1], n = k[2], o = k[3], y = k[4], e = share * all;
    const double sum = of_c + e * o * (1 - y * y);
    const double a_i = sum * n * i * (1 - i), a_f = sum * k[5] * f * (1 - f);
    const double a_n = sum * i * (1 - n * n), a_o = e * y * o * (1 - o);
    return (grads){{a_i, a_f, a_n, a_o}, {a_i, a_f, a_n, a_o}, all - e, sum * f, e * (old - o * y)};
}

static const cell cells[] = {{3, 4, gru, gru_back, gru_unit, gru_unit_back},
                             {4, 6, lstm, lstm_back, lstm_unit, lstm_unit_back}};

/* ---- inputs ---------------------------------------------------------------------------------- */

static void fill_weights(int64_t G, int64_t D, uint64_t *seed)
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

static void fill_all(const cell *of, int64_t D, uint64_t *seed)
{
    const int64_t G = of->gates;
    fill_weights(G, D, seed);
    fill_rows(x, G * D, -4, 4, seed);
    fill_rows(h, D, -1, 1, seed);
    fill_rows(mix, D, 0, 1, seed);
    fill_rows(to, D, 5, 6, seed);
    fill_rows(c, D, -2, 2, seed);
    fill_rows(dc, D, -1, 1, seed);
    fill_rows(kept, of->kept * D, 0, 1, seed);
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
        s.c[i] = c[first + i].at;
        s.kept[i] = keep ? kept[first + i].at : NULL;
    }
    return s;
}

static double gate_sum(int64_t D, int64_t i, int gate, int64_t j)
{
    double sum = (double)b.at[gate * D + j];
    for (int64_t k = 0; k < D; k++) sum += (double)w[gate * D + j][k] * (double)h[i].at[k];
    return sum;
}

static void check_unit(const cell *of, int64_t D, int64_t i, int64_t j, bool keep)
{
    const double allowed = tiny * (double)(8 + D);
    double       own[MOST_GATES], u[MOST_GATES];
    for (int gate = 0; gate < of->gates; gate++) {
        own[gate] = (double)x[i].at[gate * D + j];
        u[gate] = gate_sum(D, i, gate, j);
    }
    const ahead want = of->unit(own, u, (double)h[i].at[j], (double)was(&c[i], j),
                                (double)mix[i].at[j]);
    near("state", D, (double)to[i].at[j], want.to, allowed);
    near("c", D, (double)c[i].at[j], want.c, allowed);
    for (int k = 0; k < of->kept && keep; k++)
        near("kept", D, (double)kept[i].at[k * D + j], want.kept[k], allowed);
}

static void forward_once(const dra_simd *simd, const cell *of, int64_t D, int64_t rows, bool keep,
                         uint64_t *seed)
{
    fill_all(of, D, seed);
    const dra_cell_step s = step_of(D, 0, rows, keep);
    of->forward(dra_cell_loops_of(simd), &s);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < D; j++) check_unit(of, D, i, j, keep);
    check_all(to, rows, false);
    check_all(c, rows, false);
    check_all(kept, keep ? rows : 0, false);
    check_all(x, rows, true);
    check_all(h, rows, true);
}

static void goes_forward(const dra_simd *simd)
{
    uint64_t seed = 3;
    for (size_t n = 0; n < COUNT(cells); n++)
        for (size_t k = 0; k < COUNT(widths); k++)
            for (int64_t rows = 0; rows <= ROWS; rows++)
                forward_once(simd, &cells[n], widths[k], rows, (rows + (int64_t)k) % 2, &seed);
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
        s.dc[i] = dc[first + i].at;
        s.dx[i] = dx[first + i].at;
        s.du[i] = du[first + i].at;
        s.swing[i] = swing[first + i].at;
    }
    return s;
}

static grads grads_of(const cell *of, int64_t D, int64_t i, int64_t j)
{
    const double all = (double)was(&d[i], j) + (double)dy[i].at[j];
    double       k[MOST_KEPT];
    for (int part = 0; part < of->kept; part++) k[part] = (double)kept[i].at[part * D + j];
    return of->unit_back(k, (double)h[i].at[j], (double)mix[i].at[j], all, (double)was(&dc[i], j));
}

static void check_back_row(const cell *of, int64_t D, int64_t i, double *sum)
{
    const double allowed = tiny * (double)(8 + D);
    for (int64_t j = 0; j < D; j++) {
        const grads s = grads_of(of, D, i, j);
        double      pass = s.d;
        for (int gate = 0; gate < of->gates; gate++) {
            near("dx", D, (double)dx[i].at[gate * D + j], s.dx[gate], allowed);
            near("du", D, (double)du[i].at[gate * D + j], s.du[gate], allowed);
            sum[gate * D + j] += s.du[gate];
        }
        for (int64_t k = 0; k < of->gates * D; k++) pass += (double)du[i].at[k] * (double)w[k][j];
        near("d", D, (double)d[i].at[j], pass, allowed);
        near("dc", D, (double)dc[i].at[j], s.dc, allowed);
        near("swing", D, (double)swing[i].at[j], (double)was(&swing[i], j) + s.swing, allowed);
    }
}

static void back_once(const dra_simd *simd, const cell *of, int64_t D, int64_t rows, uint64_t *seed)
{
    const int64_t n = of->gates * D;
    double        sum[MOST_GATES * WIDEST];
    fill_all(of, D, seed);
    for (int64_t k = 0; k < n; k++) sum[k] = (double)db.at[k];
    const dra_cell_back s = back_of(D, 0, rows);
    of->back(dra_cell_loops_of(simd), &s);
    for (int64_t i = 0; i < rows; i++) check_back_row(of, D, i, sum);
    for (int64_t k = 0; k < n; k++) near("db", D, (double)db.at[k], sum[k], tiny * (double)(8 + D));
    row *const written[] = {d, dc, dx, du, swing}, *const read[] = {kept, h, mix, dy};
    for (size_t k = 0; k < COUNT(written); k++) check_all(written[k], rows, false);
    for (size_t k = 0; k < COUNT(read); k++) check_all(read[k], rows, true);
    check_untouched(&db, false);
}

static void goes_back(const dra_simd *simd)
{
    uint64_t seed = 4;
    for (size_t n = 0; n < COUNT(cells); n++)
        for (size_t k = 0; k < COUNT(widths); k++)
            for (int64_t rows = 0; rows <= ROWS; rows++)
                back_once(simd, &cells[n], widths[k], rows, &seed);
}

static void back(void **state) { for_each_level(goes_back); }

/* ---- rows alone ------------------------------------------------------------------------------ */

static void same(const row *r, const row *before, int64_t i)
{
    assert_memory_equal(r[i].at, before[i].at, (size_t)r[i].n * sizeof(dra_real));
}

/* Copies of rows that stay when they are filled again. */
static void keep_rows(const row *r, row *copy)
{
    for (int i = 0; i < ROWS; i++) {
        copy[i] = r[i];
        copy[i].at = copy[i].memory + (r[i].at - r[i].memory);
    }
}

/* All rows in one step, then the same from `first` on. */
static void rows_once(const dra_simd *simd, const cell *of, int64_t D, int64_t first, int64_t rows)
{
    row *const results[] = {to, c, d, dc};
    static row together[COUNT(results)][ROWS];
    uint64_t   seed = 5 + (uint64_t)D;
    fill_all(of, D, &seed);
    const dra_cell_step s = step_of(D, 0, ROWS, false);
    const dra_cell_back t = back_of(D, 0, ROWS);
    of->forward(dra_cell_loops_of(simd), &s);
    of->back(dra_cell_loops_of(simd), &t);
    for (size_t k = 0; k < COUNT(results); k++) keep_rows(results[k], together[k]);
    seed = 5 + (uint64_t)D;
    fill_all(of, D, &seed);
    const dra_cell_step some = step_of(D, first, rows, true);
    const dra_cell_back back_some = back_of(D, first, rows);
    of->back(dra_cell_loops_of(simd), &back_some);
    of->forward(dra_cell_loops_of(simd), &some);
    for (size_t k = 0; k < COUNT(results); k++)
        for (int64_t i = first; i < first + rows; i++) same(results[k], together[k], i);
}

static void rows_do_not_meet(const dra_simd *simd)
{
    for (size_t n = 0; n < COUNT(cells); n++)
        for (size_t k = 0; k < COUNT(widths); k++)
            for (int64_t rows = 1; rows <= ROWS; rows++)
                for (int64_t first = 0; first + rows <= ROWS; first += 3)
                    rows_once(simd, &cells[n], widths[k], first, rows);
}

static void depends_on_its_row_alone(void **state) { for_each_level(rows_do_not_meet); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward),
        cmocka_unit_test(back),
        cmocka_unit_test(depends_on_its_row_alone),
    };
    return check_main("cell_loops", NULL, 0, tests, COUNT(tests));
}
