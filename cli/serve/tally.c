/* What is counted of requests when they end: seconds, and tokens by key. */
#include "serve.h"

#include <stdlib.h>
#include <string.h>

enum { TALLIES = 4096 };

const double serve_bounds[SERVE_BUCKETS] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                            0.05,   0.1,   0.25,   0.5,   1,    2.5,
                                            5,      10,    30,     60,    300,  600};

void serve_seconds_add(serve_seconds *x, double seconds)
{
    int i = 0;
    while (i < SERVE_BUCKETS && seconds > serve_bounds[i]) i++;
    x->bucket[i]++;
    x->count++;
    x->sum += seconds;
}

/* NULL: there are too many, or no memory. */
static serve_tally *tally_of(serve *s, uint64_t owner, const char *name)
{
    for (size_t i = 0; i < s->n_tallies; i++)
        if (s->tallies[i].owner == owner) return &s->tallies[i];
    serve_tally *more = s->n_tallies < TALLIES
                            ? realloc(s->tallies, (s->n_tallies + 1) * sizeof *more)
                            : NULL;
    if (!more) return NULL;
    s->tallies = more;
    more[s->n_tallies] = (serve_tally){.owner = owner};
    snprintf(more[s->n_tallies].name, sizeof more->name, "%s", name);
    return &more[s->n_tallies++];
}

void serve_ended(void *user, const http_head *h, const http_record *r)
{
    serve *s = user;
    if (h->method) {
        serve_seconds_add(&s->seconds[SERVE_REQUEST], serve_now() - r->began);
        if (r->first > 0) serve_seconds_add(&s->seconds[SERVE_FIRST_TOKEN], r->first - r->began);
    }
    serve_tally *t = r->owner ? tally_of(s, r->owner, r->key) : NULL;
    if (t) {
        t->requests++;
        t->read += r->prompt;
        t->cached += r->cached;
        t->written += r->written;
    }
    serve_log(user, h, r);
}

void serve_tally_job(serve *s, const dra_job_result *r)
{
    if (r->end != DRA_JOB_DONE || r->prompt_tokens + r->written_tokens == 0) return;
    serve_seconds_add(&s->seconds[SERVE_WAITING], r->seconds_waited);
    if (r->written_tokens > 1)
        serve_seconds_add(&s->seconds[SERVE_TOKEN],
                          r->seconds_written / (double)(r->written_tokens - 1));
}
