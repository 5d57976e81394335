/* Limits of the server: bytes of requests and answers on their way, of all connections and threads,
 * and how often each limit has acted. */
#ifndef DRA_CLI_SERVE_LIMITS_H
#define DRA_CLI_SERVE_LIMITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum serve_limit {
    SERVE_NO_LIMIT,
    SERVE_REQUEST_MEMORY,
    SERVE_MAX_ANSWER,
    SERVE_MAX_PROMPT,
    SERVE_MAX_BODY,
    SERVE_MAX_HEADERS,
    SERVE_MAX_STATE,
    SERVE_MEMORY_LIMIT,
    SERVE_QUEUE,
    SERVE_CONNECTIONS,
    SERVE_CLIENT_SECONDS,
    SERVE_REQUEST_SECONDS,
    SERVE_MAX_STATES,
    SERVE_STATE_QUOTA,
    SERVE_STATE_DISK,
    SERVE_STATE_DAYS,
    SERVE_KEY_REQUESTS,
    SERVE_KEY_TOKENS,
    SERVE_LIMITS
} serve_limit;

typedef struct serve_limits {
    size_t        memory;     /* what `used` may come to */
    atomic_size_t used, peak; /* peak: since memory was given back to the system */
    int64_t       acted[SERVE_LIMITS];
    double        said[SERVE_LIMITS]; /* when a line was written; 0: never */
} serve_limits;

/* To be called before threads start: memory that one frees is for all. */
void serve_memory_open(void);
/* Reserves bytes of the memory of requests. false: that would exceed the limit, and none are
 * reserved. */
bool serve_memory_take(serve_limits *l, size_t bytes);
/* Counts memory that is in use already. Returns whether that is within the limit. */
bool serve_memory_add(serve_limits *l, size_t bytes);
void serve_memory_give(serve_limits *l, size_t bytes);

/* Whether much has become free that the system does not have yet; and giving it back. */
bool serve_memory_is_slack(const serve_limits *l);
void serve_memory_settle(serve_limits *l);

/* On the loop: it has acted. A line says so, once a second at most. */
void        serve_limit_acts(serve_limits *l, serve_limit which);
const char *serve_limit_name(serve_limit which); /* its option without dashes */
const char *serve_limit_code(serve_limit which); /* of errors; NULL: none */
int         serve_limit_status(serve_limit which);

#endif
