/* Memory for large arrays. */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

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
