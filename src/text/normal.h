/* Normalisation form C: letters that are composed of others become one where there is one. */
#ifndef DRA_SRC_TEXT_NORMAL_H
#define DRA_SRC_TEXT_NORMAL_H

#include "dra/base.h"

typedef struct dra_normal { /* {0} at first; the text of the last call and room to work in */
    char    *text;
    size_t   bytes, room;
    int32_t *code, *sorted; /* `codes` each */
    size_t   codes;
} dra_normal;

void dra_normal_free(dra_normal *n);

/* *out is the text in NFC: `text` itself, or n's own, good until the next call. Bytes that are not
 * UTF-8 stay, and nothing is composed across them. False: no memory. */
bool dra_normal_make(dra_normal *n, const char *text, size_t bytes, const char **out,
                     size_t *out_bytes);

#endif
