/* Ranks for tests: threads of one process that meet at a board. Calls may be late, and a rank may
 * fail or end at a call; then the others hear of it, as they would from a launcher. */
#ifndef DRA_TESTS_COMM_BOARD_H
#define DRA_TESTS_COMM_BOARD_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "comm/comm.h"

enum { BOARD_RANKS = 8 };

typedef struct board_seat { /* of a rank */
    struct board    *board;
    int              rank, calls;
    const dra_piece *to, *from; /* of the call that all are in */
    unsigned char   *all;
    dra_comm         comm;
    void            *user;
    pthread_t        thread;
    dra_status       status;
    dra_error        error;
} board_seat;

typedef struct board_mail { /* from one rank to another */
    dra_piece piece;
    bool      full;
} board_mail;

typedef struct board {
    int             n, arrived, gone; /* gone: a rank that has ended; -1: none */
    long            round;
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    board_seat      seat[BOARD_RANKS];
    board_mail      mail[BOARD_RANKS][BOARD_RANKS];
    int             ends, at; /* that rank is gone at its call with this number; -1: none is */
    long            delay;    /* of every call of odd ranks, in microseconds */
    void (*run)(board_seat *s);
} board;

/* ---- meeting --------------------------------------------------------------------------------- */

static inline dra_status board_lost(const board *b, dra_error *err)
{
    return dra_fail(err, DRA_ERR_DEVICE, "rank %d has ended", b->gone);
}

/* Begins a call of a rank; an error where it ends here. */
static inline dra_status board_begin(board_seat *s, dra_error *err)
{
    board *b = s->board;
    if (b->delay && s->rank % 2) nanosleep(&(struct timespec){0, 1000 * b->delay}, NULL);
    if (b->ends != s->rank || s->calls++ != b->at) return DRA_OK;
    pthread_mutex_lock(&b->lock);
    b->gone = s->rank;
    pthread_cond_broadcast(&b->moved);
    pthread_mutex_unlock(&b->lock);
    return dra_fail(err, DRA_ERR_DEVICE, "this rank ends here");
}

/* Until all ranks are here. */
static inline dra_status board_meet(board *b, dra_error *err)
{
    pthread_mutex_lock(&b->lock);
    const long round = b->round;
    if (++b->arrived == b->n) {
        b->arrived = 0;
        b->round++;
        pthread_cond_broadcast(&b->moved);
    }
    while (b->round == round && b->gone < 0) pthread_cond_wait(&b->moved, &b->lock);
    const bool lost = b->round == round;
    pthread_mutex_unlock(&b->lock);
    return lost ? board_lost(b, err) : DRA_OK;
}

/* ---- what a library does --------------------------------------------------------------------- */

static inline dra_status board_all_to_all(void *self, const dra_piece *to, const dra_piece *from,
                                          dra_error *err)
{
    board_seat *s = self;
    board      *b = s->board;
    dra_status  st = board_begin(s, err);
    s->from = from;
    if (st == DRA_OK) st = board_meet(b, err);
    if (st != DRA_OK) return st;
    for (int r = 0; r < b->n && st == DRA_OK; r++) {
        const dra_piece p = b->seat[r].from[s->rank];
        if (p.bytes != to[r].bytes) st = dra_fail(err, DRA_ERR_SHAPE, "pieces differ in size");
        if (st == DRA_OK && p.bytes) memcpy(to[r].data, p.data, p.bytes);
    }
    const dra_status met = board_meet(b, st == DRA_OK ? err : NULL);
    return st == DRA_OK ? met : st;
}

static inline dra_status board_all_gather(void *self, unsigned char *all, const size_t *offset,
                                          dra_error *err)
{
    board_seat *s = self;
    board      *b = s->board;
    dra_status  st = board_begin(s, err);
    s->all = all;
    if (st == DRA_OK) st = board_meet(b, err);
    for (int r = 0; r < b->n && st == DRA_OK; r++)
        if (r != s->rank && offset[r + 1] > offset[r])
            memcpy(all + offset[r], b->seat[r].all + offset[r], offset[r + 1] - offset[r]);
    return st == DRA_OK ? board_meet(b, err) : st;
}

static inline dra_status board_exchange(void *self, int to, dra_piece out, int from, dra_piece in,
                                        dra_error *err)
{
    board_seat *s = self;
    board      *b = s->board;
    dra_status  st = board_begin(s, err);
    if (st != DRA_OK) return st;
    pthread_mutex_lock(&b->lock);
    if (to >= 0) b->mail[s->rank][to] = (board_mail){out, true};
    pthread_cond_broadcast(&b->moved);
    if (from >= 0) {
        board_mail *m = &b->mail[from][s->rank];
        while (!m->full && b->gone < 0) pthread_cond_wait(&b->moved, &b->lock);
        if (m->full && m->piece.bytes != in.bytes)
            st = dra_fail(err, DRA_ERR_SHAPE, "%zu bytes, expected %zu", m->piece.bytes, in.bytes);
        else if (m->full && in.bytes)
            memcpy(in.data, m->piece.data, in.bytes);
        if (m->full)
            m->full = false;
        else
            st = board_lost(b, err);
        pthread_cond_broadcast(&b->moved);
    }
    while (to >= 0 && b->mail[s->rank][to].full && b->gone < 0)
        pthread_cond_wait(&b->moved, &b->lock);
    if (to >= 0 && b->mail[s->rank][to].full) st = board_lost(b, err);
    pthread_mutex_unlock(&b->lock);
    return st;
}

static inline void board_leave(void *self, bool broken) {}

static const dra_comm_table board_table = {board_all_to_all, board_all_gather, board_exchange,
                                           board_leave};

/* ---- ranks ----------------------------------------------------------------------------------- */

static inline board board_of(int n) { return (board){.n = n, .gone = -1, .ends = -1}; }

static inline void *board_sit(void *seat)
{
    board_seat *s = seat;
    s->board->run(s);
    return NULL;
}

/* Runs `run` as each rank; their statuses and errors stay in the seats. */
static inline void board_run(board *b, void (*run)(board_seat *s), void *user)
{
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->moved, NULL);
    b->run = run;
    for (int r = 0; r < b->n; r++) {
        board_seat *s = &b->seat[r];
        *s = (board_seat){.board = b, .rank = r, .user = user};
        s->comm = (dra_comm){&board_table, s, r, b->n, false};
    }
    for (int r = 0; r < b->n; r++)
        if (pthread_create(&b->seat[r].thread, NULL, board_sit, &b->seat[r]) != 0) abort();
    for (int r = 0; r < b->n; r++) pthread_join(b->seat[r].thread, NULL);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->moved);
}

#endif
