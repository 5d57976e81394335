/* Memory for large arrays. */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGN = 64, PAGES = 256 << 10, HUGE_PAGE = 2 << 20 };

void *dra_alloc(size_t bytes)
{
    const size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : ALIGN;
    if (bytes > SIZE_MAX - align) return NULL;
    const size_t whole = bytes ? (bytes + align - 1) / align * align : align;
    void        *data = aligned_alloc(align, whole);
#ifdef MADV_HUGEPAGE
    if (data && align == HUGE_PAGE) madvise(data, whole, MADV_HUGEPAGE); /* only a wish */
#endif
    return data;
}

/* Blocks larger than a huge page start at one; memory in front of it is given back. */
static size_t unit_of(size_t bytes) { return bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 4096; }

static size_t size_mapped(size_t bytes)
{
    const size_t unit = unit_of(bytes);
    return (bytes + unit - 1) / unit * unit;
}

static void *map_block(size_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

static void *map_on_huge_pages(size_t bytes)
{
    unsigned char *data = map_block(bytes + HUGE_PAGE);
    if (!data) return NULL;
    const size_t front = (HUGE_PAGE - (uintptr_t)data % HUGE_PAGE) % HUGE_PAGE;
    if (front) munmap(data, front);
    munmap(data + front + bytes, HUGE_PAGE - front);
#ifdef MADV_HUGEPAGE
    madvise(data + front, bytes, MADV_HUGEPAGE); /* only a wish */
#endif
    return data + front;
}

void *dra_pages_alloc(size_t bytes)
{
    if (bytes < PAGES) return dra_alloc(bytes);
    if (bytes > SIZE_MAX / 2) return NULL;
    return unit_of(bytes) == HUGE_PAGE ? map_on_huge_pages(size_mapped(bytes))
                                       : map_block(size_mapped(bytes));
}

void dra_pages_free(void *data, size_t bytes)
{
    if (data && bytes >= PAGES)
        munmap(data, size_mapped(bytes));
    else
        free(data);
}
