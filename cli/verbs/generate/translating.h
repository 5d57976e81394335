/* The most likely translations of texts: beams of a model that reads one and writes another. */
#ifndef DRA_CLI_VERBS_GENERATE_TRANSLATING_H
#define DRA_CLI_VERBS_GENERATE_TRANSLATING_H

#include "io/inputs.h"
#include "search.h"

typedef struct cli_translating {
    const cli_model    *m;
    const cli_source   *from;
    const cli_sampling *how;
    const cli_search   *search;
    const cli_inputs   *in; /* rows of sources, and the token that each text starts with */
    int                 ends;
    const int32_t      *end;
    bool (*step)(void *user); /* false: shall end */
} cli_translating;

typedef struct cli_beams { /* starts as {0} */
    int64_t        N;      /* of each row; 0: there was no search */
    dra_beam      *beam;   /* (B, N), the best first */
    dra_generator *generator;
} cli_beams;

/* Finds them; `out` gets the best of each row. */
dra_status cli_translate(const cli_translating *t, cli_beams *beams, dra_continued *out,
                         dra_error *err);
void       cli_beams_free(cli_beams *b);

#endif
