/* Encoding in pieces: a text of any size takes the memory of one piece. */
#include "data/encode.h"

#include "data/documents.h"
#include "file/fail.h"
#include "text/tokenizer.h"

dra_status dra_encode_document(void *encoder, const char *text, size_t bytes, int64_t at,
                               dra_error *err)
{
    dra_encoder *e = encoder;
    dra_error    why = {0};
    dra_status   status = DRA_OK;
    for (size_t done = 0, n = 0; done < bytes && status == DRA_OK; done += n) {
        n = dra_cut_next(e->tokenizer, text + done, bytes - done, DRA_DOCUMENT_PART);
        e->ids.n = 0;
        status = dra_encode_as(e->tokenizer, text + done, n,
                               done ? DRA_ENCODE_REST : DRA_ENCODE_BEGIN, &e->ids, &why);
        if (status != DRA_OK)
            return dra_fail_at(err, status, e->cache->source, "document at byte %lld: %s",
                               (long long)at, why.text);
        status = dra_token_cache_put(e->cache, e->ids.data, e->ids.n, err);
        if (n >= DRA_DOCUMENT_PART / 2) dra_meter_tell(e->meter, at + (int64_t)(done + n));
    }
    if (status == DRA_OK && e->end >= 0) status = dra_token_cache_put(e->cache, &e->end, 1, err);
    return status == DRA_OK ? dra_token_cache_document(e->cache, bytes, err) : status;
}
