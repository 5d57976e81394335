/* log p_i = x_i - max - ln sum_j e^(x_j - max), of one token and of the most likely ones; the same
 * number for a token that is both. */
#include <math.h>

#include "engine/engine.h"

/* Whether token a comes before b: it is likelier, or as likely and has the lesser id. */
static bool before(const dra_real *x, int32_t a, int32_t b)
{
    return x[a] > x[b] || (a < b && x[a] == x[b]);
}

double dra_logprobs(int64_t V, const dra_real *logits, int32_t id, int64_t top, dra_logprob *most)
{
    int64_t n = 0;
    double  max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < V; i++) {
        if ((double)logits[i] > max) max = (double)logits[i];
        if (top == 0 || (n == top && !before(logits, i, most[n - 1].id))) continue;
        int64_t at = n < top ? n++ : n - 1;
        for (; at > 0 && before(logits, i, most[at - 1].id); at--) most[at] = most[at - 1];
        most[at].id = i;
    }
    for (int64_t i = 0; i < V; i++) sum += exp((double)logits[i] - max);
    const double log_sum = log(sum);
    for (int64_t k = 0; k < n; k++) most[k].logprob = (double)logits[most[k].id] - max - log_sum;
    return (double)logits[id] - max - log_sum;
}
