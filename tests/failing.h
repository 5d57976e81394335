/* Allocations that fail: for tests whose name ends in _alloc, which are linked with these in place
 * of the system's. */
#ifndef DRA_TESTS_FAILING_H
#define DRA_TESTS_FAILING_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

static long allocations_left = -1; /* allocations that still succeed; -1: all */

static bool allocation_succeeds(void)
{
    if (allocations_left > 0) {
        allocations_left--;
    } else if (allocations_left == 0) {
        errno = ENOMEM;
        return false;
    }
    return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int   __real_posix_memalign(void **p, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int   __wrap_posix_memalign(void **p, size_t align, size_t n);

void *__wrap_malloc(size_t n) { return allocation_succeeds() ? __real_malloc(n) : NULL; }
void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_succeeds() ? __real_calloc(n, size) : NULL;
}
void *__wrap_realloc(void *p, size_t n)
{
    return allocation_succeeds() ? __real_realloc(p, n) : NULL;
}
void *__wrap_aligned_alloc(size_t align, size_t n) { return __real_aligned_alloc(align, n); }
int   __wrap_posix_memalign(void **p, size_t a, size_t n) { return __real_posix_memalign(p, a, n); }

#endif
