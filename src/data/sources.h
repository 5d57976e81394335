/* Sources of a corpus: the files its paths name, and the tokens that come out of each. */
#ifndef DRA_SRC_DATA_SOURCES_H
#define DRA_SRC_DATA_SOURCES_H

#include "base/arena.h"
#include "data/sniff.h"
#include "data/token_file.h"
#include "dra/data.h"

typedef struct dra_source {
    const char   *path;
    dra_data_kind kind; /* of what is inside, where it is compressed */
    dra_packing   packing;
    int64_t       bytes;      /* of the file */
    int64_t       changed[2]; /* when: seconds, nanoseconds */
} dra_source;

typedef struct dra_sources {
    dra_arena   arena; /* holds all below */
    dra_source *at;
    size_t      n, room;
    int64_t     bytes;  /* of all */
    const char *format; /* NULL: recognised */
} dra_sources;

/* All files of n paths, in order; folders are looked into. `format` as of dra_sniff. Free it also
 * after a failure. */
dra_status dra_sources_list(int n, const char *const *paths, const char *format, dra_sources *out,
                            dra_error *err);
void       dra_sources_free(dra_sources *s);

/* Its bytes, decompressed. */
dra_status dra_source_map(const dra_source *s, dra_file_map *out, dra_error *err);

/* Counts bytes for the caller's callback. */
typedef struct dra_meter {
    dra_progress fn;
    void        *user;
    int64_t      before, total; /* bytes of the sources that are done, of all */
    /* Of a source that is compressed: how long it is inside, where places are told, and as a file.
     * 0: the same. */
    int64_t inside, outside;
} dra_meter;

dra_meter dra_meter_inside(const dra_meter *m, const dra_source *s, const dra_file_map *map);

void dra_meter_tell(const dra_meter *m, int64_t done); /* of the present source */

/* A source as a checked piece; its text may have to be encoded first. Its ids are added to `hash`.
 * On failure *out is empty. */
dra_status dra_source_open(const dra_source *s, const dra_corpus_config *c, const dra_meter *meter,
                           dra_hash *hash, dra_token_file *out, dra_error *err);

#endif
