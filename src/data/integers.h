/* Integers as files store them: little-endian, without alignment, 1 (U8, BOOL), 2 (U16), 4 (I32) or
 * 8 (I64) bytes wide. */
#ifndef DRA_SRC_DATA_INTEGERS_H
#define DRA_SRC_DATA_INTEGERS_H

#include "dra/base.h"

typedef struct dra_integers {
    const unsigned char *data;
    size_t               width;
    bool                 other; /* signed where 1 or 2 bytes wide, unsigned where 4 */
} dra_integers;

size_t  dra_integer_width(const char *dtype_name); /* 0: none of these */
int64_t dra_integer_at(dra_integers x, int64_t i);

/* n of them from number `from` on; what an int32_t cannot hold becomes -1. */
void dra_integers_copy(dra_integers x, int64_t from, int64_t n, int32_t *to);

#endif
