#include "memory/distance.h"

#include <math.h>
int dra_t5_bucket(int64_t n, int buckets, int max_distance, bool causal)
{
    int nb = causal ? buckets : buckets / 2, add = 0;
    if (!causal && n < 0) add = nb, n = -n;
    if (n < 0) n = 0;
    const int me = nb / 2;
    if (n < me) return add + (int)n;
    const float r = logf((float)n / (float)me) / logf((float)max_distance / (float)me);
    const int b = me + (int)(r * (float)(nb - me));
    return add + (b < nb - 1 ? b : nb - 1);
}
double dra_alibi_slope(int h, int heads)
{
    int p = 1;
    while (p * 2 <= heads) p *= 2;
    if (p == heads || h < p) return pow(2, -8.0 * (h + 1) / p);
    return pow(2, -8.0 * (2 * (h - p) + 1) / (2 * p));
}
