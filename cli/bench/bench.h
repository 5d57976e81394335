/* Benchmarks: cases are a table (cases.c), each builds a graph and says what a run of it
 * takes by formula; run.c times it, print.c shows the rows. */
#ifndef DRA_CLI_BENCH_BENCH_H
#define DRA_CLI_BENCH_BENCH_H

#include "dra/dra.h"

/* Memory for one input, parameter or state of a graph, filled with numbers from lo to hi. */
typedef struct bench_tensor {
    char      name[56];
    dra_dtype dtype;
    size_t    count, bytes;
    double    lo, hi; /* i32: lo <= x < hi; equal: all lo */
    size_t    with;   /* 1 + number of an earlier tensor whose memory it shares; 0: its own */
    void     *data;
    size_t    at; /* its offset in the memory of the device */
} bench_tensor;

/* What a builder fills in: the graph and what one run of it means. */
typedef struct bench_work {
    dra_graph           *graph;
    bench_tensor        *tensor;
    size_t               tensors, room;
    double               flops;     /* of a run; formulas are in docs/speed.md */
    dra_precision        precision; /* of its products, see bench_precision() */
    dra_bandwidth_config stream;    /* passes a run cannot do without; bytes 0: not worth a word */
    const char *forward; /* an op whose time does not count, where only the gradient is meant */
    double      units;   /* how many of `unit` a run does, 0: nothing to count */
    const char *unit;
    int64_t     product[4]; /* S, M, N, K of tensors 0 (S, M, K) and 1 (S, N, K), for a peer */
} bench_work;

typedef enum bench_against { BENCH_NOTHING, BENCH_LIMIT, BENCH_PEER, BENCH_NODE } bench_against;

typedef struct bench_bar { /* what a case should reach; 5 % off still counts */
    bench_against against;
    double value; /* percent of the limit's, peer's or rival's speed; most microseconds a node */
} bench_bar;

typedef struct bench_case {
    const char *name, *group, *about;
    void (*build)(bench_work *w, const int64_t *size); /* NULL: nothing but the limits */
    int64_t size[5];
    void (*without)(bench_work *w, const int64_t *size); /* its time is subtracted, pair by pair */
    bool      slow; /* runs only by its own name or with --all */
    bench_bar bar;
    void (*rival)(bench_work *w, const int64_t *size); /* the same work in full precision */
} bench_case;

#define BENCH_SCALING "scaling" /* the group that is run on several numbers of threads */
#define BENCH_GPU "gpu"         /* the group of cases too large for a CPU: only by their names */

extern const bench_case bench_cases[];
extern const size_t     bench_case_count;

/* dra_input, dra_parameter or dra_state. */
typedef dra_value (*bench_declare)(dra_graph *g, const char *name, dra_dtype dtype,
                                   dra_shape shape);

/* Declares a value of the graph and asks for its memory. */
size_t    bench_bytes(dra_dtype dtype, size_t count);
dra_value bench_value(bench_work *w, bench_declare declare, const char *name, dra_dtype dtype,
                      dra_shape shape, double lo, double hi);

/* What a module has declared by this name, as something to ask memory for. */
dra_value bench_declared(dra_graph *g, const char *name, dra_dtype dtype, dra_shape shape);
/* Integers of a module, all alike, where it has declared some by this name. */
void bench_integers(bench_work *w, const char *name, int64_t rows, int64_t columns, double value);

/* Products from here on are computed in this precision, and compared with the peak of it. */
void bench_precision(bench_work *w, dra_precision precision);

enum { BENCH_GRADIENTS = 32 }; /* of one case, at most */

/* Puts out y and, for an upstream of its own, the gradients of n values: all stay, so none is
 * computed in place. */
void bench_gradient(bench_work *w, dra_value y, int n, const dra_value *x);

/* A GPT-2-shaped training step: size = {layers, heads, width, time, batch} (gpt.c). */
void bench_gpt(bench_work *w, const int64_t *size);

/* GPT-2 and RWKV-4 reading tokens of one sequence: one as they generate, many as they read a
 * prompt. size = {tokens, dtype of the matrices: real, bf16 or f16, and of GPT-2: 1 if they are
 * stored as in its files, (in, out) and three in one} (generate.c). */
void bench_read_gpt2(bench_work *w, const int64_t *size);
void bench_read_rwkv(bench_work *w, const int64_t *size);

/* The loss of a tiny preset and its gradients, size = {which, batch, time}, and of one with softmax
 * attention (train.c). */
void bench_train(bench_work *w, const int64_t *size);
void bench_train_softmax(bench_work *w, const int64_t *size);
void bench_train_rwkv4(bench_work *w, const int64_t *size);

/* Mixer layers, forward and backward: size = {width, heads, batch, time[, slots]}
 * (mixer.c). */
void bench_gru_time(bench_work *w, const int64_t *size);
void bench_ema_time(bench_work *w, const int64_t *size);
void bench_append_time(bench_work *w, const int64_t *size);
void bench_wkv_mixer(bench_work *w, const int64_t *size);
void bench_slot_gru(bench_work *w, const int64_t *size);
void bench_slot_gru_steps(bench_work *w, const int64_t *size);
/* linear.c: size = B, H, T, D */
void bench_moment(bench_work *w, const int64_t *size);
void bench_delta(bench_work *w, const int64_t *size);
void bench_moment_channels(bench_work *w, const int64_t *size);
void bench_delta_rank1(bench_work *w, const int64_t *size);
void bench_slots(bench_work *w, const int64_t *size);

/* Scans alone: size = {batch, time, channels}. */
void bench_ema(bench_work *w, const int64_t *size);
void bench_ema_back(bench_work *w, const int64_t *size);
void bench_ema_train(bench_work *w, const int64_t *size);
void bench_conv(bench_work *w, const int64_t *size);
void bench_conv_back(bench_work *w, const int64_t *size);
void bench_wkv(bench_work *w, const int64_t *size);
void bench_wkv_back(bench_work *w, const int64_t *size);
void bench_wkv_train(bench_work *w, const int64_t *size);

typedef struct bench_row {
    const bench_case *c;
    bench_bar         bar; /* the case's; none on a GPU, for which nobody set any */
    double            seconds, least, most; /* median and range of a run */
    int               repeats;
    double            flops, bytes;
    const char       *bound;             /* "compute", "memory", or NULL where there is no limit */
    double            percent;           /* of that limit */
    double            streaming_percent; /* of the same passes with streaming stores; 0: none */
    double            peer;              /* percent of the peer's or rival's speed; 0: none */
    double            units;
    const char       *unit;
    size_t            memory; /* activations, prepared and bound */
} bench_row;

/* One run of the program: what all cases share. */
typedef struct bench_session {
    dra_device *device;
    dra_limits  limits;
    bool        gpu;
    int         repeats;
    bool        profile; /* one more run of each case, split by op, on stderr */
} bench_session;

/* Whether this is a device other than the CPU. */
bool bench_on_gpu(const dra_device *device);

/* ---- what a case is compared with (limit.c) -------------------------------------------- */

typedef struct bench_limit {
    const char *bound; /* "compute", "memory"; NULL: there is no limit */
    double      known; /* seconds of a run at the limits of the session; 0: measured in turns */
    dra_device *device;
    double (*peak)(dra_device *device);
    double         flops;
    dra_bandwidth *stream; /* NULL: bound by arithmetic */
    int64_t        passes;
    bool           stores;
} bench_limit; /* starts as {0} */

dra_status bench_limit_open(const bench_session *s, const bench_work *w, bench_limit *l,
                            dra_error *err);
void       bench_limit_close(bench_limit *l);
/* The percentage of the limit that a run of so many seconds is, and of memory with streaming
 * stores; 0: there is none. */
double bench_limit_percent(const bench_limit *l, double seconds, double *streaming);

/* ---- a peer: oneDNN's sgemm (peer.c) --------------------------------------------------- */

typedef struct bench_peer bench_peer;

/* The products of w, whose tensors it borrows, on threads of its own. NULL: there is no such
 * product, or no peer on this machine. */
bench_peer *bench_peer_create(const bench_work *w, int threads);
void        bench_peer_run(bench_peer *p);
void        bench_peer_destroy(bench_peer *p); /* NULL is allowed */

/* ---- rows ------------------------------------------------------------------------------------ */

dra_status bench_measure(const bench_session *s, const bench_case *c, bench_row *row,
                         dra_error *err);

/* Cases on 1, 2, 4, ... threads, up to `threads` (0: one for each processor); prints the table. */
dra_status bench_scaling(const bench_session *how, const bench_case *const *cases, size_t n,
                         int64_t threads, bool json, dra_error *err);

/* "flops": ..., "read": ...: the inside of a JSON object. */
void bench_write_json_limits(const dra_limits *l);
void bench_write_profile(const char *name, const dra_profile_row *rows, size_t n);
void bench_write_list(void);
void bench_write_table(const bench_session *s, const bench_row *rows, size_t n);
void bench_write_json(const bench_session *s, const bench_row *rows, size_t n);

#endif
