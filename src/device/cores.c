/* The cores that this process may run on: in a container or under taskset fewer than there are. */
#define _GNU_SOURCE /* affinity masks */
#include "device/cores.h"

#include <sched.h>
#include <unistd.h>

#ifdef __linux__

/* Enough for 1024 cores, as cpu_set_t; a larger machine counts as one without a mask. */
static int count_masked(cpu_set_t *mask)
{
    return sched_getaffinity(0, sizeof *mask, mask) == 0 ? CPU_COUNT(mask) : 0;
}

void dra_cores_pin(pthread_t thread, int i)
{
    cpu_set_t mask, one;
    if (i >= count_masked(&mask)) return;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &mask) || i-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        pthread_setaffinity_np(thread, sizeof one, &one); /* only a wish */
        return;
    }
}

#else

typedef int cpu_set_t;
static int  count_masked(cpu_set_t *mask) { return *mask = 0; }
void        dra_cores_pin(pthread_t thread, int i) {}

#endif

int dra_cores_count(void)
{
    cpu_set_t  mask;
    const int  n = count_masked(&mask);
    const long all = n > 0 ? n : sysconf(_SC_NPROCESSORS_ONLN);
    return all > 0 ? (int)all : 1;
}
