/* Counters updated when requests end: seconds, and tokens by key. */
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

/* ---- rates ----------------------------------------------------------------------------------- */

static int64_t limit_of(int64_t own, int64_t all) { return own ? own : all; }

static double refill_rate(double left, double seconds, int64_t most)
{
    const double now = left + seconds / 60 * (double)most;
    return now < (double)most ? now : (double)most;
}

/* A request takes one at once; its tokens are known at its end only, so what is left may fall
 * below 0. */
bool serve_rate_allows(serve *s, const serve_key *key, double *wait, serve_error *e)
{
    const int64_t requests = limit_of(key->requests, s->args->key_requests);
    const int64_t tokens = limit_of(key->tokens, s->args->key_tokens);
    serve_tally  *t = requests || tokens ? tally_of(s, key->owner, key->name) : NULL;
    const double  now = serve_now();
    if (!t) return true;
    const double seconds = t->since > 0 ? now - t->since : 60;
    t->since = now;
    t->requests_left = refill_rate(t->requests_left, seconds, requests);
    t->tokens_left = refill_rate(t->tokens_left, seconds, tokens);
    if (requests && t->requests_left < 1) {
        *wait = 60 * (1 - t->requests_left) / (double)requests;
        return serve_limited(e, SERVE_KEY_REQUESTS, NULL, "the key has had %lld requests a minute",
                             (long long)requests);
    }
    if (tokens && t->tokens_left <= 0) {
        *wait = 60 * (1 - t->tokens_left) / (double)tokens;
        return serve_limited(e, SERVE_KEY_TOKENS, NULL, "the key has had %lld tokens a minute",
                             (long long)tokens);
    }
    t->requests_left -= requests > 0;
    return true;
}

/* ---- what is counted ------------------------------------------------------------------------- */

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
        t->tokens_left -= (double)(r->prompt + r->written);
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
