/* How well do a few exponentials follow a power law? Fits t^-a by M of them
 * (support/exponentials.h) and prints the errors; with a path, also draws docs/power-law.svg there.
 *   06_power_law [FILE.svg]      DRA_EXAMPLE_FAST=1: only the first rows */
#include <stdio.h>
#include <stdlib.h>

#include "support/exponentials.h"
#include "support/plot.h"

static const int    counts[] = {1, 2, 3, 4, 6, 8, 12, 16};
static const double powers[] = {0.5, 1, 1.5};
enum { COUNTS = 8, POWERS = 3, SHORT = 1024, LONG = 16384 };

static fit fits[2][2][COUNTS][POWERS]; /* T, positive, M, a */

static void print_table(int which, int positive, int rows)
{
    printf("\nT = %d, %s: largest / rms relative error\n\n", which ? LONG : SHORT,
           positive ? "weights not negative" : "any weights");
    printf("| M | a = 0.5 | a = 1 | a = 1.5 |\n|---|---|---|---|\n");
    for (int m = 0; m < rows; m++) {
        printf("| %d |", counts[m]);
        for (int k = 0; k < POWERS; k++) {
            fit *f = &fits[which][positive][m][k];
            *f = fit_power(powers[k], which ? LONG : SHORT, counts[m], positive);
            printf(" %.2g / %.2g |", f->worst, f->rms);
        }
        printf("\n");
    }
}

/* a = 1, T = 16384: what a fixed range of half-lives costs. */
static void print_ranges(int rows)
{
    static const double ranges[][2] = {{2, 14}, {-1, 14}};
    printf("\n| M | 2^2 to 2^14 | 2^-1 to 2^14 | best | its range |\n|---|---|---|---|---|\n");
    for (int m = 3; m < rows; m++) {
        const fit best = fits[1][1][m][1];
        printf("| %d |", counts[m]);
        for (int r = 0; r < 2; r++) {
            fit f = best;
            f.lo = ranges[r][0], f.hi = ranges[r][1];
            fit_weights(&f);
            printf(" %.2g |", f.worst);
        }
        printf(" %.2g | 2^%.1f to 2^%.1f |\n", best.worst, best.lo, best.hi);
    }
}

/* ---- the picture ----------------------------------------------------------------------------- */

static const char *const styles[] = {"c0", "c1", "c2", "c3"};

/* A kernel over the lags 2^0 to 2^17, as far as it is inside. */
static void draw_kernel(FILE *out, const panel *p, const fit *f, const char *style)
{
    fprintf(out, "<path class='%s' d='", style);
    for (double x = 0; x <= 17; x += 0.125) {
        const double y = f ? log10(fmax(fit_value(f, exp2(x)), 1e-300)) : -x * log10(2);
        if (y >= p->y0) fprintf(out, "%c%.1f %.1f", x > 0 ? 'L' : 'M', px(p, x), py(p, y));
    }
    fprintf(out, "'/>\n");
}

static void draw_kernels(FILE *out)
{
    static const int         which[] = {0, 1, 3, 5}; /* of counts */
    static const char *const names[] = {"M = 1", "M = 2", "M = 4", "M = 8"};
    const panel              p = {60, 0, 17, -6, 0};
    draw_frame(out, &p, "1/t and sums of M exponentials, fitted up to t = 16384", "lag t");
    draw_mark(out, &p, 0, "1");
    draw_mark(out, &p, 4, "16");
    draw_mark(out, &p, 8, "256");
    draw_mark(out, &p, 12, "4096");
    draw_mark(out, &p, 14, "16384");
    draw_kernel(out, &p, NULL, "target");
    draw_name(out, 76, 232, "target", "1/t");
    for (int i = 0; i < 4; i++) {
        draw_kernel(out, &p, &fits[1][1][which[i]][1], styles[i]);
        draw_name(out, 76, 252 + 20 * i, styles[i], names[i]);
    }
}

static void draw_errors(FILE *out)
{
    static const char *const names[] = {"a = 0.5", "a = 1", "a = 1.5"};
    const panel              p = {500, 1, 16, -6, 0};
    char                     text[16];
    draw_frame(out, &p, "largest relative error (dashed: T = 1024, else 16384)", "M");
    for (int m = 0; m < COUNTS; m++) {
        snprintf(text, sizeof text, "%d", counts[m]);
        draw_mark(out, &p, counts[m], text);
    }
    for (int k = 0; k < POWERS; k++) {
        for (int T = 0; T < 2; T++) {
            fprintf(out, "<path class='%s'%s d='", styles[k + 1],
                    T ? "" : " stroke-dasharray='5 4'");
            for (int m = 0; m < COUNTS; m++)
                fprintf(out, "%c%.1f %.1f", m ? 'L' : 'M', px(&p, counts[m]),
                        py(&p, log10(fits[T][1][m][k].worst)));
            fprintf(out, "'/>\n");
        }
        draw_name(out, 516, 272 + 20 * k, styles[k + 1], names[k]);
    }
}

static int draw(const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "06_power_law: cannot write %s\n", path);
        return 1;
    }
    fprintf(out, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 880 400'>\n");
    fprintf(out, "<style>%s</style>\n", style_sheet);
    draw_kernels(out);
    draw_errors(out);
    fprintf(out, "</svg>\n");
    return fclose(out) != 0;
}

int main(int argc, char **argv)
{
    const int fast = getenv("DRA_EXAMPLE_FAST") != NULL && argc < 2;
    for (int which = 0; which < (fast ? 1 : 2); which++)
        for (int positive = 1; positive >= 0; positive--)
            print_table(which, positive, fast ? 4 : COUNTS);
    if (!fast) print_ranges(COUNTS);
    return argc > 1 ? draw(argv[1]) : 0;
}
