/* Opening texts, with a status line while they are encoded. */
#include "corpus.h"
#include "options/status.h"

typedef struct reading {
    cli_status  status;
    const char *what;
} reading;

static void show_progress(void *user, int64_t done, int64_t total)
{
    reading *r = user;
    if (total > 0) cli_status_step(&r->status, r->what, (double)done / (double)total);
}

dra_status cli_corpus_open(const dra_corpus_config *c, const char *what, dra_corpus **out,
                           dra_error *err)
{
    reading r = {.what = what};
    cli_status_open(&r.status, stderr);
    const dra_status st = dra_corpus_open(c, show_progress, &r, out, err);
    cli_status_clear(&r.status);
    return st;
}
