/* Numbers of x-transformers: what is measured of an output, and how it is compared. */
#ifndef DRA_TESTS_FORMATS_XT_XT_GOLDEN_H
#define DRA_TESTS_FORMATS_XT_XT_GOLDEN_H

#include "xt_tensors.h"

enum { XT_MEASURES = 3 };

/* What a printed number leaves open is half a unit of its last digit. Besides, both sides round:
 * sums of about a hundred numbers agree to 1e-4, single numbers to 2e-6. The references are in
 * float32, so that the double build can agree no better. */
static const double XT_SINGLE = 2e-6, XT_SUM = 1e-4;

/* The last but one number, the sum of absolute values, the sum of y_t cos(t); or the mean. */
static inline void xt_measure(const dra_real *y, int64_t n, bool mean, double found[XT_MEASURES])
{
    double all = 0;
    found[0] = n > 1 ? (double)y[n - 2] : NAN;
    found[1] = found[2] = 0;
    for (int64_t t = 0; t < n; t++) {
        all += (double)y[t];
        found[1] += fabs((double)y[t]);
        found[2] += (double)y[t] * cos((double)t);
    }
    if (mean) found[0] = all / (double)n;
}

/* should: as many of them as there are, as printed. */
static inline void xt_compare(const json_t *should, const double *found)
{
    bool bad = json_array_size(should) == 0;
    for (size_t i = 0; i < json_array_size(should); i++) {
        const char  *text = json_string_value(json_array_get(should, i));
        const double half = 0.5 * pow(10, -(double)strlen(strchr(text, '.') + 1));
        if (!(fabs(found[i] - strtod(text, NULL)) <= half + (i ? XT_SUM : XT_SINGLE))) {
            print_error("number %d is %.7f, should be %s\n", (int)i, found[i], text);
            bad = true;
        }
    }
    if (bad) fail_msg("%s", "not what x-transformers computes");
}

#endif
