/* A matcher as its files see it: sets.c keeps items and gives them numbers, match.c
 * makes a step, value.c turns states into values and back. */
#ifndef DRA_SRC_GENERATE_GRAMMAR_MATCH_H
#define DRA_SRC_GENERATE_GRAMMAR_MATCH_H

#include "generate/grammar/grammar.h"

enum { DRA_GRAMMAR_ACCEPT = -1 }; /* the place that the whole text returns to */

typedef struct dra_grammar_item {
    int32_t place, frame; /* frame below 0: ~number of a frame of this step */
} dra_grammar_item;

typedef struct dra_item_span { /* of m->content */
    int32_t first, n;
    bool    accept; /* of states */
} dra_item_span;

typedef struct dra_item_table { /* by content */
    dra_item_span *at;
    int32_t       *slot; /* (slots): a number + 1; 0: free */
    int32_t        n, room, slots;
} dra_item_table;

typedef struct dra_item_set { /* each once, in the order they came */
    dra_grammar_item *at;
    int32_t           n, room;
    int32_t          *slot; /* (slots), of more than a few: a place in `at` + 1; 0: free */
    int32_t           slots;
} dra_item_set;

typedef struct dra_frame { /* of this step: it may still get returns */
    dra_item_set to;
    bool         ended;  /* it has returned at this step already */
    int32_t      number; /* among all frames, once that is known; -1 before */
} dra_frame;

struct dra_matcher {
    const dra_grammar *g;
    dra_grammar_item  *content;
    int32_t            contents, content_room;
    dra_item_table     frames, states;
    int32_t           *next; /* (states, classes of bytes) */
    int32_t            next_room;
    /* Of one step: */
    dra_frame   *fresh;
    int32_t      n_fresh, fresh_room;
    int32_t     *called; /* (rules): the frame of this step, if called_at is this step */
    uint32_t    *called_at, step;
    dra_item_set work;  /* all that was reached; what reads bytes moves to the front */
    dra_item_set tails; /* (frame of this step, frame whose returns it has got as well) */
    dra_item_set heads; /* (loop, frame) with a head that was reached */
    int32_t     *top;   /* (heads): the one with most copies left */
    int32_t      top_room;
    bool         accept;
    /* What it costs: */
    int64_t     moves, step_end, question_end; /* so far; where it is too much */
    int64_t     question_most;
    dra_status  failed;
    const char *what, *of; /* what was too much, if that failed */
    int64_t     most;
};

/* Room for one more of `size` bytes; data points to a pointer. */
bool dra_items_grow(dra_matcher *m, void *data, int32_t n, int32_t *room, size_t size);
void dra_items_no_memory(dra_matcher *m);

/* The number of a content, which is added if it is new; -1: failed. */
int32_t dra_items_number(dra_matcher *m, dra_item_table *t, const dra_grammar_item *at, int32_t n,
                         bool accept);
/* Puts a list in its order, each once. Returns how many are left. */
int32_t dra_items_arrange(dra_grammar_item *at, int32_t n);
bool    dra_items_arranged_has(const dra_grammar_item *at, int32_t n, dra_grammar_item x);

int32_t dra_items_find(const dra_item_set *s, dra_grammar_item x);          /* -1: not there */
bool    dra_items_add(dra_matcher *m, dra_item_set *s, dra_grammar_item x); /* is new, now there */
void    dra_items_free(dra_item_set *s);

/* The number of a state; arranges its items. */
int32_t dra_matcher_add_state(dra_matcher *m, dra_grammar_item *at, int32_t n, bool accept);
int32_t dra_matcher_start(dra_matcher *m);

#endif
