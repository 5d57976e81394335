/* A server with the engine of fake_engine.c, for tests that share their start. */
#ifndef DRA_TESTS_SERVE_STARTED_H
#define DRA_TESTS_SERVE_STARTED_H

#include "client.h"

#include <stdio.h>
#include <time.h>

static server      it;
static const char *tiny; /* its model's folder */

static inline void nap(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static inline answer post(const char *path, const char *body)
{
    return client_ask(it.port, "POST", path, body);
}
static inline answer get(const char *path) { return client_ask(it.port, "GET", path, NULL); }

static inline int start(void **state)
{
    static char word[160];
    tiny = server_model("dra-ema-tiny");
    snprintf(word, sizeof word, "tiny=%s", tiny);
    it = server_start((const char *const[]){
        "--model", word, "--port", "0", "--slots", "2", "--queue", "8", "--connections", "64",
        "--client-seconds", "2", "--request-seconds", "3", "--max-tokens", "4000", NULL});
    return it.port ? 0 : -1;
}

static inline void ends_well(void **state) { assert_int_equal(server_stop(&it), 0); }

#endif
