/* What the tasks of probes share. */
#ifndef DRA_SRC_TRAIN_PROBE_H
#define DRA_SRC_TRAIN_PROBE_H

#include "dra/probe.h"

/* Tokens: filler, marks, and from FIRST on the task's own alphabets. */
enum { DRA_PROBE_FILLERS = 8, DRA_PROBE_ASK = 8, DRA_PROBE_PLUS = 9, DRA_PROBE_FIRST = 10 };

/* A row as it is written. Its random numbers are those of a counter: row, block and attempt. */
typedef struct dra_probe_line {
    const dra_probe *p;
    uint64_t         key;
    uint32_t         counter[4], bits[4];
    int              left; /* of bits */
    int32_t         *ids, *targets;
    int64_t         *from; /* for each target, where what it asks for stood; -1: nowhere; or NULL */
    int64_t          at;   /* tokens so far */
} dra_probe_line;

typedef enum dra_answer_kind {
    DRA_ANSWER_ROW,   /* all targets of a row are one answer: right if all of them are */
    DRA_ANSWER_TARGET /* each target is an answer of its own                           */
} dra_answer_kind;

/* Options that not every task has, as bits of dra_probe_task.has. */
enum {
    DRA_PROBE_SYMBOLS = 1,
    DRA_PROBE_PAIRS = 2,
    DRA_PROBE_QUERIES = 4,
    DRA_PROBE_DIGITS = 8,
    DRA_PROBE_KINDS = 16,
    DRA_PROBE_DEPTH = 32,
    DRA_PROBE_TEXT = 64
};

typedef struct dra_probe_task {
    const char     *name, *summary;
    dra_answer_kind answer;
    unsigned        has;
} dra_probe_task;

typedef struct dra_probe_maker {
    dra_probe_task info;
    void (*defaults)(dra_probe *p);
    int64_t (*least_length)(const dra_probe *p);
    int64_t (*least_vocab)(const dra_probe *p);
    double (*chance)(const dra_probe *p);
    void (*make)(dra_probe_line *r); /* writes `length` tokens; those after it are dropped */
} dra_probe_maker;

extern const dra_probe_maker dra_probe_makers[];
extern const size_t          dra_probe_makers_count;

/* dra_probe_row() that also says, for each target, where what it asks for stood. `from` (length)
 * may be NULL. */
dra_status dra_probe_row_from(const dra_probe *p, dra_split split, int64_t number, int32_t *ids,
                              int32_t *targets, int64_t *from, dra_error *err);

int32_t dra_probe_below(dra_probe_line *r, int64_t n); /* 0 to n - 1 */

#endif
