/* The largest singular value of a small matrix in double: Jacobi's rotations make the columns
 * orthogonal, then it is the longest of them. */
#ifndef DRA_TESTS_MEMORY_SINGULAR_H
#define DRA_TESTS_MEMORY_SINGULAR_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline double singular_dot(int64_t rows, int64_t cols, const double *a, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += a[r * cols + i] * a[r * cols + j];
    return sum;
}

/* Turns columns i and j until they are orthogonal. */
static inline void singular_turn(int64_t rows, int64_t cols, double *a, int64_t i, int64_t j)
{
    const double off = singular_dot(rows, cols, a, i, j);
    const double p = singular_dot(rows, cols, a, i, i), q = singular_dot(rows, cols, a, j, j);
    if (off * off <= 1e-34 * p * q) return;
    const double z = (q - p) / (2 * off), t = (z < 0 ? -1 : 1) / (fabs(z) + sqrt(1 + z * z));
    const double c = 1 / sqrt(1 + t * t), s = c * t;
    for (int64_t r = 0; r < rows; r++) {
        const double x = a[r * cols + i], y = a[r * cols + j];
        a[r * cols + i] = c * x - s * y;
        a[r * cols + j] = s * x + c * y;
    }
}

/* w (rows, cols) */
static inline double singular_largest(int64_t rows, int64_t cols, const double *w)
{
    const size_t bytes = (size_t)(rows * cols) * sizeof *w;
    double      *a = malloc(bytes + 1), most = 0;
    if (!a) abort();
    memcpy(a, w, bytes);
    for (int sweep = 0; sweep < 30; sweep++)
        for (int64_t i = 0; i < cols; i++)
            for (int64_t j = i + 1; j < cols; j++) singular_turn(rows, cols, a, i, j);
    for (int64_t i = 0; i < cols; i++) most = fmax(most, singular_dot(rows, cols, a, i, i));
    free(a);
    return sqrt(most);
}

#endif
