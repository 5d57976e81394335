/* The next tokens of some rows, chosen on their device by the op `sample`: logits stay there, and
 * the host waits once for the ids. What the host looks at itself is brought over when it asks. */
#ifndef DRA_SRC_GENERATE_PICKER_H
#define DRA_SRC_GENERATE_PICKER_H

#include "dra/generate.h"

typedef struct dra_picker dra_picker; /* opaque */

dra_status dra_picker_create(dra_device *device, int64_t rows, int64_t V, dra_picker **out,
                             dra_error *err);
void       dra_picker_destroy(dra_picker *p); /* NULL is allowed */

/* ---- logits (rows, V) ------------------------------------------------------------------------ */

/* Those of n rows from `row` on, in memory of the device. */
dra_span dra_picker_logits(const dra_picker *p, int64_t row, int64_t n);
/* They become those of another memory of the device, or of the host. */
dra_status dra_picker_take(dra_picker *p, int64_t row, int64_t n, dra_span from, dra_error *err);
dra_status dra_picker_put(dra_picker *p, int64_t row, const dra_real *logits, dra_error *err);
/* All of them as the host sees them, until the next change; `after` as for dra_picker_pick(). */
dra_status dra_picker_see(dra_picker *p, dra_reader *after, dra_real **out, dra_error *err);

/* ---- tokens that rows have read: for the repetition penalty ---------------------------------- */

bool *dra_picker_seen(const dra_picker *p, int64_t row); /* (V), to look at */
void  dra_picker_mark(dra_picker *p, int64_t row, int32_t id);
void  dra_picker_set_seen(dra_picker *p, int64_t row, const bool *seen); /* NULL: none are */

/* ---- picking --------------------------------------------------------------------------------- */

/* What is added to all logits, (V), from the next pick on; NULL: nothing. */
dra_status dra_picker_bias(dra_picker *p, const dra_real *bias, dra_error *err);

/* Picks a token of every row, see dra_sample_ids(). rows (rows); allowed (rows, V), NULL: all are.
 * after: what has made the logits, and is finished with the same wait: what went wrong in its reads
 * is an error here. */
dra_status dra_picker_pick(dra_picker *p, const dra_sample_row *rows, const bool *allowed,
                           dra_reader *after, int32_t *ids, dra_error *err);

#endif
