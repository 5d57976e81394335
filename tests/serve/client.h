/* A server as a process of its own, and requests to it over sockets. */
#ifndef DRA_TESTS_SERVE_CLIENT_H
#define DRA_TESTS_SERVE_CLIENT_H

#include "check.h"
#include "serve/json.h"

#include <sys/types.h>

typedef struct server {
    pid_t pid;
    int   port;
    int   log; /* what it says */
} server;

/* Makes a folder with a tiny model of random weights: its path, good until the process ends. */
const char *server_model(const char *preset);

/* Starts `dra serve` with these words, NULL at the end, on a port that is free; waits until it is
 * ready. pid 0: it did not start. */
server server_start(const char *const *words);
/* SIGTERM. Returns the exit status; -1: it did not end by itself. */
int server_stop(server *s);

/* Runs another verb in a process of its own, with what it prints in the file `out`. Returns its
 * exit status; -1: it did not end by itself. */
struct cli_verb;
int client_verb(const struct cli_verb *verb, const char *out, const char *const *words);

typedef struct answer {
    int         status; /* 0: there was none */
    char       *text;   /* all of it, head included */
    size_t      bytes;
    const char *body;
    json_t     *json; /* NULL: it is none */
} answer;

int    client_open(int port);
bool   client_send(int fd, const char *text, size_t bytes);
answer client_read(int fd); /* to its end; closes */
void   answer_free(answer *a);

/* One request on a connection of its own. */
answer client_ask(int port, const char *method, const char *path, const char *body);
answer client_ask_with(int port, const char *method, const char *path, const char *headers,
                       const char *body, size_t bytes);
/* A value by its path, "choices.0.text"; NULL: it is not there. */
json_t     *answer_at(const answer *a, const char *path);
const char *answer_text(const answer *a, const char *path); /* "" where it is none */
double      answer_number(const answer *a, const char *path);
/* The texts of all parts of a stream, joined; to be freed. */
char *answer_stream(const answer *a, bool chat);

#endif
