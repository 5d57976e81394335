/* Segments of Transformer-XL: where calls are cut, which rows of tables tokens have, and outputs of
 * several calls put together. */
#ifndef DRA_SRC_SEQUENCE_SEGMENTS_H
#define DRA_SRC_SEQUENCE_SEGMENTS_H

#include "sequence/states.h"

/* What happens to the tables of a row that has read `tokens` tokens, before it reads T more with
 * these marks (or NULL), all of one segment. */
dra_segment_event dra_segment_next_event(int64_t segment, int64_t tokens, int64_t T,
                                         const int32_t *mark);

/* The max_event of dra_module_shape for a row whose segment starts after `tokens` others. */
int dra_segment_shift(int64_t segment, int64_t memory, int64_t tokens);

/* How many of the tokens first .. end - 1 of mark (B, T) (or NULL) a call may read, so that no row
 * crosses the border of a segment. tokens (B): read by each row since its reset, counted on. */
int64_t dra_segment_cut(int64_t segment, int64_t B, int64_t T, const int32_t *mark, int64_t first,
                        int64_t end, int64_t *tokens);

/* Fills the numbers of row b, once its positions are there. */
void dra_segments_fill(dra_extents *e, const dra_states *s, int64_t b, const int32_t *mark);

/* to (B, n, ...): tokens first .. first + n - 1 of from (B, T, ...); `each` bytes for a token. */
void dra_tokens_cut(void *to, const void *from, int64_t B, int64_t T, int64_t first, int64_t n,
                    size_t each);

/* ---- several calls as one -------------------------------------------------------------------- */

typedef struct dra_joined {
    char           name[160];
    dra_dtype      dtype;
    dra_shape      shape;
    unsigned char *data;
    size_t         room;
} dra_joined;

typedef struct dra_joins { /* all zero = empty */
    dra_joined *at;
    size_t      n, room;
} dra_joins;

typedef struct dra_join_part { /* tokens first .. first + n - 1 of T */
    int64_t        B, T, first, n;
    int64_t        keep, picks; /* as of dra_module */
    const int32_t *pick;        /* (B, picks), of the whole call */
} dra_join_part;

/* to (B, picks): the picks as token numbers in this part, -1 for those in other parts. */
void dra_picks_cut(int32_t *to, const dra_join_part *part);
/* Adds the outputs of the program that the session ran last. */
dra_status        dra_joins_add(dra_joins *j, const dra_session *s, const dra_join_part *part,
                                dra_error *err);
const dra_joined *dra_joins_find(const dra_joins *j, const char *name); /* NULL: there is none */
void              dra_joins_free(dra_joins *j);

#endif
