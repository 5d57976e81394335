/* Benchmarks: cases are a table (bench_cases.c), each builds a graph and says what a run of it
 * takes by formula; bench_run.c times it, bench_print.c shows the rows. */
#ifndef DRA_CLI_BENCH_H
#define DRA_CLI_BENCH_H

#include "dra/dra.h"

/* Memory for one input, parameter or state of a graph, filled with numbers from lo to hi. */
typedef struct bench_tensor {
    char      name[56];
    dra_dtype dtype;
    size_t    count, bytes;
    double    lo, hi; /* i32: lo <= x < hi; equal: all lo */
    void     *data;
} bench_tensor;

/* What a builder fills in: the graph and what one run of it means. */
typedef struct bench_work {
    dra_graph        *graph;
    bench_tensor     *tensor;
    size_t            tensors, room;
    double            flops;  /* of a run; formulas are in docs/speed.md */
    dra_stream_config stream; /* passes a run cannot do without; bytes 0: not worth a word */
    const char *forward; /* an op whose time does not count, where only the gradient is meant */
    double      units;   /* what a run does so many of, 0: nothing to count */
    const char *unit;
} bench_work;

typedef struct bench_case {
    const char *name, *group, *about;
    void (*build)(bench_work *w, const int64_t *size); /* NULL: nothing but the limits */
    int64_t size[5];
    void (*without)(bench_work *w, const int64_t *size); /* its time is subtracted, pair by pair */
    bool slow; /* runs only by its own name or with --all */
} bench_case;

extern const bench_case bench_cases[];
extern const size_t     bench_case_count;

/* dra_input, dra_parameter or dra_state. */
typedef dra_value (*bench_declare)(dra_graph *g, const char *name, dra_dtype dtype,
                                   dra_shape shape);

/* Declares a value of the graph and asks for its memory. */
dra_value bench_value(bench_work *w, bench_declare declare, const char *name, dra_dtype dtype,
                      dra_shape shape, double lo, double hi);

/* A GPT-2-shaped training step: size = {layers, heads, width, time, batch} (bench_gpt.c). */
void bench_gpt(bench_work *w, const int64_t *size);

typedef struct bench_row {
    const bench_case *c;
    double            seconds, least, most; /* median and range of a run */
    int               repeats;
    double            flops, bytes;
    const char       *bound;             /* "compute", "memory", or NULL where there is no limit */
    double            percent;           /* of that limit */
    double            streaming_percent; /* of the same passes with streaming stores; 0: none */
    double            units;
    const char       *unit;
    size_t            memory; /* activations, prepared and bound */
} bench_row;

/* One run of the program: what all cases share. */
typedef struct bench_session {
    dra_device *device;
    dra_limits  limits;
    int         repeats;
    bool        profile; /* one more run of each case, split by op, on stderr */
} bench_session;

dra_status bench_measure(const bench_session *s, const bench_case *c, bench_row *row,
                         dra_error *err);

void bench_write_profile(const char *name, const dra_profile_row *rows, size_t n);
void bench_write_list(void);
void bench_write_table(const bench_session *s, const bench_row *rows, size_t n);
void bench_write_json(const bench_session *s, const bench_row *rows, size_t n);

#endif
