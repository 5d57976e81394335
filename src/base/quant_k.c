/* Writing Q4_K, Q5_K and Q6_K: blocks of 256 whose groups have scales (and minima) of few bits, see
 * quant.c for the bytes. What a group loses is a sum of squares: for some ranges of whole numbers
 * the nearest ones are taken and then the scale and the minimum for which they are best, and the
 * best of these is kept; then scales are rounded, and the whole numbers taken anew. */
#include "base/quant_k.h"

#include <math.h>
#include <string.h>

#include "base/quant.h"

typedef unsigned char byte;

enum { ALL = 256, GROUP = 32, GROUPS = ALL / GROUP, SIX = 16, SIXES = ALL / SIX };
enum { TRIES = 16 }; /* ranges of whole numbers that are tried, on both sides of the plain one */

static int cut_to(double x, int least, int most)
{
    const double r = nearbyint(x);
    return r < least ? least : r > most ? most : (int)r;
}

/* As it is stored. */
static float put_half(byte *p, double x)
{
    const uint16_t half = dra_f32_to_f16((float)x);
    memcpy(p, &half, sizeof half);
    return dra_f16_to_f32(half);
}

/* ---- d u - m, m at least 0: groups of Q4_K and Q5_K ------------------------------------------ */

typedef struct affine {
    double d, m, error;
} affine;

/* The best d and m for the whole numbers that x / d and the minimum give. */
static affine fit_affine(const float *x, double inverse, double least, int top)
{
    double u1 = 0, u2 = 0, x1 = 0, ux = 0, x2 = 0;
    for (int e = 0; e < GROUP; e++) {
        const double u = cut_to((x[e] - least) * inverse, 0, top);
        u1 += u, u2 += u * u, x1 += x[e], ux += u * x[e], x2 += (double)x[e] * x[e];
    }
    const double det = GROUP * u2 - u1 * u1;
    affine       f = {.d = u2 > 0 ? ux / u2 : 0}; /* of m = 0 */
    if (det > 0) {
        const double d = (GROUP * ux - u1 * x1) / det, m = (u1 * ux - u2 * x1) / det;
        if (m > 0) f.d = d, f.m = m;
    }
    if (f.d < 0) f.d = 0;
    f.error = x2 - 2 * f.d * ux + 2 * f.m * x1 + f.d * f.d * u2 - 2 * f.d * f.m * u1 +
              GROUP * f.m * f.m;
    return f;
}

static affine best_affine(const float *x, int top)
{
    double least = 0, most = x[0];
    for (int e = 0; e < GROUP; e++) {
        if (x[e] < least) least = x[e];
        if (x[e] > most) most = x[e];
    }
    affine best = {.m = -least, .error = INFINITY};
    if (!(most > least)) return best;
    for (int i = -TRIES; i <= TRIES; i++) {
        const affine f = fit_affine(x, (top + 0.1 * i) / (most - least), least, top);
        if (f.error < best.error) best = f;
    }
    return best;
}

/* Scales and minima of 6 bits, the upper two of the last four with the first. */
static void put_scales(const int *s, const int *t, byte *to)
{
    for (int g = 0; g < 4; g++) {
        to[g] = (byte)(s[g] | (s[g + 4] >> 4) << 6);
        to[g + 4] = (byte)(t[g] | (t[g + 4] >> 4) << 6);
        to[g + 8] = (byte)((s[g + 4] & 15) | (t[g + 4] & 15) << 4);
    }
}

/* Head, scales and whole numbers up to `top` of a block. */
static void write_affine(const float *x, int top, byte *b, int *u)
{
    affine group[GROUPS];
    double d = 0, m = 0;
    int    s[GROUPS], t[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        group[g] = best_affine(x + g * GROUP, top);
        d = fmax(d, group[g].d), m = fmax(m, group[g].m);
    }
    const double scale = put_half(b, d / 63), least = put_half(b + 2, m / 63);
    for (int g = 0; g < GROUPS; g++) {
        s[g] = scale > 0 ? cut_to(group[g].d / scale, 0, 63) : 0;
        t[g] = least > 0 ? cut_to(group[g].m / least, 0, 63) : 0;
        const double own = scale * s[g];
        for (int e = g * GROUP; e < (g + 1) * GROUP; e++)
            u[e] = own > 0 ? cut_to((x[e] + least * t[g]) / own, 0, top) : 0;
    }
    put_scales(s, t, b + 4);
}

void dra_write_q4_k(const float *x, byte *b)
{
    int u[ALL];
    write_affine(x, 15, b, u);
    for (int i = 0; i < ALL / 2; i++) {
        const int *from = u + i / GROUP * 2 * GROUP + i % GROUP;
        b[16 + i] = (byte)(from[0] | from[GROUP] << 4);
    }
}

void dra_write_q5_k(const float *x, byte *b)
{
    int u[ALL];
    write_affine(x, 31, b, u);
    memset(b + 16, 0, GROUP);
    for (int e = 0; e < ALL; e++) b[16 + e % GROUP] |= (byte)(u[e] >> 4 << e / GROUP);
    for (int i = 0; i < ALL / 2; i++) {
        const int *from = u + i / GROUP * 2 * GROUP + i % GROUP;
        b[48 + i] = (byte)((from[0] & 15) | (from[GROUP] & 15) << 4);
    }
}

/* ---- d (u - 32): groups of Q6_K -------------------------------------------------------------- */

/* The best d for the whole numbers that an inverse gives; *error: what is lost. */
static double fit_scale(const float *x, double inverse, double *error)
{
    double u2 = 0, ux = 0, x2 = 0;
    for (int e = 0; e < SIX; e++) {
        const double u = cut_to(x[e] * inverse, -32, 31);
        u2 += u * u, ux += u * x[e], x2 += (double)x[e] * x[e];
    }
    *error = u2 > 0 ? x2 - ux * ux / u2 : x2;
    return u2 > 0 ? ux / u2 : 0;
}

/* The farthest number may be -32 or 31: d may be negative. */
static double best_scale(const float *x)
{
    double far = 0, best = 0, least = INFINITY;
    for (int e = 0; e < SIX; e++)
        if (fabs(x[e]) > fabs(far)) far = x[e];
    for (int i = -TRIES; i <= TRIES && far != 0; i++) {
        double       error;
        const double d = fit_scale(x, -(32 + 0.1 * i) / far, &error);
        if (error < least) least = error, best = d;
    }
    return best;
}

void dra_write_q6_k(const float *x, byte *b)
{
    double scale[SIXES], far = 0;
    int    u[ALL];
    for (int i = 0; i < SIXES; i++) {
        scale[i] = best_scale(x + i * SIX);
        if (fabs(scale[i]) > fabs(far)) far = scale[i];
    }
    const double d = put_half(b + 208, -far / 128);
    for (int i = 0; i < SIXES; i++) {
        const int    s = d != 0 ? cut_to(scale[i] / d, -128, 127) : 0;
        const double own = d * s;
        b[192 + i] = (byte)(int8_t)s;
        for (int e = i * SIX; e < (i + 1) * SIX; e++)
            u[e] = own != 0 ? cut_to(x[e] / own, -32, 31) + 32 : 32;
    }
    memset(b, 0, 192);
    for (int e = 0; e < ALL; e++) { /* 128 at a time: four groups of 32 */
        const int half = e / 128, g = e % 128 / GROUP, i = e % GROUP;
        b[64 * half + GROUP * (g % 2) + i] |= (byte)((u[e] & 15) << 4 * (g / 2));
        b[128 + GROUP * half + i] |= (byte)(u[e] >> 4 << 2 * g);
    }
}
