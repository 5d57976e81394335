#include "limits.h"

#include "options/term.h"
#include "options/units.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { SLACK = 4 << 20 /* bytes from which on returning them is worth the time */ };

static const struct {
    const char *name, *code;
    int         status;
} limits[SERVE_LIMITS] = {
    [SERVE_NO_LIMIT] = {"none", NULL, 500},
    [SERVE_REQUEST_MEMORY] = {"request-memory", "request_memory", 503},
    [SERVE_MAX_ANSWER] = {"max-answer", "answer_too_long", 400},
    [SERVE_MAX_PROMPT] = {"max-prompt", "context_length_exceeded", 400},
    [SERVE_MAX_BODY] = {"max-body", NULL, 413},
    [SERVE_MAX_HEADERS] = {"max-headers", NULL, 431},
    [SERVE_MAX_STATE] = {"max-state", NULL, 413},
    [SERVE_MEMORY_LIMIT] = {"memory-limit", "memory_limit", 429},
    [SERVE_QUEUE] = {"queue", "queue_full", 429},
    [SERVE_CONNECTIONS] = {"connections", NULL, 503},
    [SERVE_CLIENT_SECONDS] = {"client-seconds", NULL, 408},
    [SERVE_REQUEST_SECONDS] = {"request-seconds", NULL, 504},
    [SERVE_MAX_STATES] = {"max-states", "state_quota", 507},
    [SERVE_STATE_QUOTA] = {"state-quota", "state_quota", 507},
    [SERVE_STATE_DISK] = {"state-disk", "state_disk", 507},
    [SERVE_STATE_DAYS] = {"state-days", NULL, 404},
    [SERVE_KEY_REQUESTS] = {"key-requests", "rate_limit_exceeded", 429},
    [SERVE_KEY_TOKENS] = {"key-tokens", "rate_limit_exceeded", 429},
};

const char *serve_limit_name(serve_limit which) { return limits[which].name; }
const char *serve_limit_code(serve_limit which) { return limits[which].code; }
int         serve_limit_status(serve_limit which) { return limits[which].status; }

void serve_limit_acts(serve_limits *l, serve_limit which)
{
    const double now = cli_now();
    l->acted[which]++;
    if (l->said[which] > 0 && now - l->said[which] < 1) return;
    l->said[which] = now;
    cli_line(stderr, "dra serve: limit --%s was reached, %lld times so far", limits[which].name,
             (long long)l->acted[which]);
}

/* ---- memory of requests ---------------------------------------------------------------------- */

void serve_memory_open(void)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 1);
#endif
}

static void note_peak(serve_limits *l, size_t used)
{
    size_t peak = atomic_load(&l->peak);
    while (used > peak && !atomic_compare_exchange_weak(&l->peak, &peak, used)) continue;
}

bool serve_memory_take(serve_limits *l, size_t bytes)
{
    size_t used = atomic_load(&l->used);
    do {
        if (bytes > l->memory || used > l->memory - bytes) return false;
    } while (!atomic_compare_exchange_weak(&l->used, &used, used + bytes));
    note_peak(l, used + bytes);
    return true;
}

bool serve_memory_add(serve_limits *l, size_t bytes)
{
    const size_t used = atomic_fetch_add(&l->used, bytes) + bytes;
    note_peak(l, used);
    return used <= l->memory;
}

void serve_memory_give(serve_limits *l, size_t bytes) { atomic_fetch_sub(&l->used, bytes); }

bool serve_memory_is_slack(const serve_limits *l)
{
    return atomic_load(&l->peak) > atomic_load(&l->used) + SLACK;
}

void serve_memory_settle(serve_limits *l)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    atomic_store(&l->peak, atomic_load(&l->used));
}
