/* Text on its way out: bytes wait while they may become a stop string or a whole character. */
#ifndef DRA_SRC_GENERATE_TEXT_STREAM_H
#define DRA_SRC_GENERATE_TEXT_STREAM_H

#include "dra/generate.h"

typedef struct dra_text_stream {
    int                n_stop;
    const char *const *stop;
    char              *held; /* bytes that came in and did not go out */
    size_t             n_held, room;
    size_t             gone; /* bytes that did */
    char              *text; /* what went out last, made valid */
    size_t             text_room;
} dra_text_stream; /* starts as {.n_stop, .stop} */

typedef struct dra_text_chunk {
    const char *text; /* good until the next call */
    size_t      bytes;
    bool        stopped; /* a stop string was met; it begins after `before` of all bytes */
    size_t      before;
    bool        partial; /* what came ends with the beginning of one, which is there */
} dra_text_chunk;

/* Takes the next bytes in. */
dra_status dra_text_stream_push(dra_text_stream *o, const char *bytes, size_t n,
                                dra_text_chunk *out, dra_error *err);
/* All that is held goes out: it will not be a stop string any more. */
dra_status dra_text_stream_flush(dra_text_stream *o, dra_text_chunk *out, dra_error *err);
void       dra_text_stream_free(dra_text_stream *o);

#endif
