/* The engine taken apart, as its files see it:
 *   engine.c    making one, figures
 *   submit.c    jobs as they come, in any thread; queue.c: waiting, cancelling
 *   step.c      who joins, reads, writes and leaves
 *   read.c      pieces of prompts and batches of single tokens; pace.c: how they take turns
 *   write.c     the next token; hand_out.c: its text; finish.c: how a job ends
 *   rows.c      rows of the pool and the memory they take
 *   prefix.c    states kept to begin other prompts with; saved.c: states by name
 *
 * A job is a list of tokens, of which the first `read` are in its row of the pool. Reading a
 * prompt, writing, and reading again what a stop string left are all the same: read what is not
 * read yet; when nothing is left, there are logits to pick the next token of, or it is done. */
#ifndef DRA_SRC_ENGINE_H
#define DRA_SRC_ENGINE_H

#include <pthread.h>

#include "base/arena.h"
#include "dra/engine.h"
#include "generate/grammar/grammar.h"
#include "generate/text_stream.h"

enum { DRA_STATE_NAME = 64, DRA_PREFIX_BUCKETS = 4096 };

/* ---- states that are kept -------------------------------------------------------------------- */

typedef struct dra_saved {  /* what a name stands for; never changed */
    struct dra_saved *next; /* of those that nobody holds any more */
    int               refs; /* names and jobs that hold it; guarded by the lock */
    int64_t           row, tokens;
    dra_real         *logits; /* (V): what follows */
    bool             *seen;   /* (V) */
    size_t            bytes;
} dra_saved;

typedef struct dra_saved_name {
    char       name[DRA_STATE_NAME + 1];
    dra_saved *state;
    double     created, used; /* seconds since 1970 */
} dra_saved_name;

typedef struct dra_prefix {                   /* a state after these tokens */
    struct dra_prefix *chain, *newer, *older; /* of its bucket; by use */
    uint64_t           hash;
    int64_t            row;
    size_t             n;
    int32_t            ids[];
} dra_prefix;

typedef struct dra_prefixes {
    dra_prefix *bucket[DRA_PREFIX_BUCKETS];
    dra_prefix *newest, *oldest;
    int64_t     n;
    size_t      ids; /* in all */
} dra_prefixes;

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef enum dra_engine_view {
    DRA_VIEW_LAST,
    DRA_VIEW_ALL,
    DRA_VIEW_HIDDEN,
    DRA_VIEW_BATCH,  /* as the first, of batches that run while a piece pauses */
    DRA_VIEW_STATES, /* of pieces that more text follows */
    DRA_VIEWS
} dra_engine_view;

typedef struct dra_untold { /* a token that was written and not handed out */
    int32_t id;
    bool    ends; /* as of dra_job_token */
    double  logprob;
    size_t  end;  /* of its bytes in the text */
    size_t  most; /* where its most likely ones begin */
    int64_t top;
} dra_untold;

typedef struct dra_rewind { /* before a token that a stop string may begin in */
    int64_t   row;          /* -1: none */
    size_t    read;
    dra_real *logits; /* (V) */
} dra_rewind;

typedef struct dra_job {
    struct dra_job *next; /* in the queue */
    uint64_t        id;
    bool            cancelled; /* guarded by the lock */
    bool            over;      /* its end was told */
    dra_job_config  config;    /* what it points to is in the arena, but user and grammar */
    dra_arena       arena;
    dra_saved      *begin; /* what it begins from; NULL: nothing */
    int64_t         base;  /* tokens of that */
    dra_sampler    *sampler;
    dra_constraint *constraint;
    size_t          need; /* bytes of state it may come to hold */

    int64_t         row; /* -1: none */
    dra_engine_view view;
    dra_ids         ids;          /* the prompt, then what was written */
    size_t          prompt, read; /* how many of them */
    size_t          cached;       /* of those read: begun with */
    bool            started;      /* the prompt is read, its first logits were seen */
    bool            closing;      /* nothing more is written */
    dra_finish      finish;
    dra_real       *logits; /* (V): what follows what was read */
    bool           *seen;   /* (V): tokens read; NULL: nobody asks */
    int32_t        *count;  /* (V): tokens written; NULL: no penalty on them */
    double         *sum;    /* (C): of hidden states */
    float          *vector; /* (width) */
    int64_t         width;

    size_t             bytes; /* of the text that was written */
    dra_text_stream    outlet;
    dra_grammar_state *place;
    dra_rewind         back;
    dra_untold        *untold;
    size_t             n_untold, untold_room;
    dra_logprob       *most; /* of untold tokens */
    size_t             n_most, most_room;
    char              *out; /* text that was not handed out */
    size_t             n_out, out_room;
    double             at_submit, at_join, at_start; /* seconds of a clock */
} dra_job;

enum { DRA_PACE_BATCHES = 5, DRA_PACE_SIZES = 4 /* of pieces: 64, 128, 256, 512 tokens */ };

typedef struct dra_pace { /* how pieces of prompts and those that write take turns, in seconds */
    bool       pauses;    /* the device lets others compute between instructions */
    bool       reading;   /* a piece is, while others write */
    int64_t    most;      /* tokens of the longest piece of this step */
    double     batch[DRA_PACE_BATCHES]; /* of the last ones; 0: not yet */
    int64_t    batches;
    double     wrote;                /* when the last of them ended */
    double     paused;               /* when the piece last did; 0: not yet */
    double     longest;              /* from one pause of the piece to the next */
    double     stretch;              /* the same for a token of a piece, lately */
    bool       whole;                /* this step reads pieces as a whole, while others write */
    double     began;                /* when it began to */
    double     took[DRA_PACE_SIZES]; /* pieces as a whole, lately; 0: not yet */
    dra_status status;               /* of what was written in between */
    dra_error  error;
} dra_pace;

struct dra_engine {
    dra_engine_config config;
    int64_t           V, C, cut, positions, pool_rows;
    dra_pace          pace;
    dra_view          view[DRA_VIEWS];
    dra_reader       *reader[DRA_VIEWS]; /* NULL: not yet */
    dra_states       *pool;
    int64_t          *free_rows; /* (pool_rows) */
    int64_t           n_free;
    int64_t           used; /* rows that are not free */
    /* (slots), in the order of joining; changed by the thread that steps, under the lock */
    dra_job    **active;
    int64_t      n_active;
    int32_t     *ids, *mark, *picks; /* of a read */
    int64_t     *rows;
    dra_job    **batch;   /* (slots) */
    dra_real    *offered; /* (V) */
    bool        *allowed; /* (V) */
    dra_prefixes prefixes;
    float       *norms; /* what dra_look shows */

    pthread_mutex_t  lock; /* of all below, and of what says so above */
    dra_job         *first, *last;
    uint64_t         jobs; /* taken so far */
    bool             draining;
    dra_saved_name  *names; /* by name; changed by the thread that steps alone */
    size_t           n_names, names_room;
    dra_saved       *dead;
    dra_engine_stats stats;
    void (*wake)(void *user);
    void *wake_user;
};

/* ---- jobs ------------------------------------------------------------------------------------ */

void dra_job_free(dra_engine *e, dra_job *job);
/* The first job that waits, or the first whose kind is not one that takes a slot; NULL: none. */
dra_job *dra_queue_first(dra_engine *e, bool at_once);
dra_job *dra_queue_take_cancelled(dra_engine *e);
void     dra_queue_remove(dra_engine *e, dra_job *job);
void     dra_queue_join(dra_engine *e, dra_job *job);  /* from the queue to those that run */
void     dra_queue_leave(dra_engine *e, dra_job *job); /* of those that run */
bool     dra_job_is_cancelled(dra_engine *e, const dra_job *job);
bool     dra_job_takes_slot(const dra_job *job);
/* Tells the end, and gives back what the job held; it is not freed. `error`: why it failed. */
void dra_job_end_with(dra_engine *e, dra_job *job, dra_job_end end, const dra_error *error);

dra_status dra_engine_no_memory(dra_error *err);
double     dra_engine_clock(void); /* seconds */
double     dra_engine_now(void);   /* since 1970 */

/* ---- reading: read.c ------------------------------------------------------------------------- */

/* How many tokens the job reads next as one piece; 0: none, at most one that a batch reads. */
int64_t    dra_piece_next(const dra_engine *e, const dra_job *job);
dra_status dra_piece_read(dra_engine *e, dra_job *job, int64_t T, dra_error *err);
/* One token of each of n jobs. */
dra_status dra_batch_read(dra_engine *e, int64_t n, dra_job *const *jobs, dra_error *err);
dra_status dra_engine_reader(dra_engine *e, dra_engine_view view, dra_reader **out, dra_error *err);

/* ---- taking turns: pace.c -------------------------------------------------------------------- */

/* Before a step reads prompts: how long its pieces may be. Returns how many tokens it reads. */
int64_t dra_pace_step(dra_engine *e);
/* Around the reading of a piece of T tokens. */
void dra_pace_begin(dra_engine *e);
void dra_pace_end(dra_engine *e, int64_t T, bool compiled);
/* Whether those that write have waited long enough for the pieces of this step. */
bool dra_pace_is_over(const dra_engine *e);
/* What a reader of pieces calls between instructions; `user` is the engine. */
void dra_pace_pause(void *user);
void dra_pace_wrote(dra_engine *e, double began); /* a batch has */
/* step.c: one token of every sequence that has one to read. */
dra_status dra_engine_write(dra_engine *e, dra_error *err);

/* ---- writing: write.c, hand_out.c, finish.c -------------------------------------------------- */

/* All its tokens are read, and its logits are there: picks the next one, or ends. */
dra_status dra_job_go_on(dra_engine *e, dra_job *job, dra_error *err);
/* Token `id` was picked: it becomes text. */
dra_status dra_job_accept(dra_engine *e, dra_job *job, int32_t id, dra_error *err);
/* The same of one that ends the text. */
dra_status dra_job_finish(dra_engine *e, dra_job *job, int32_t id, dra_error *err);
/* The text of an embed job is read. */
dra_status dra_job_pool(dra_engine *e, dra_job *job, dra_error *err);
/* Nothing more is written: hands out all that is left, and reads what its state lacks. */
dra_status dra_job_close(dra_engine *e, dra_job *job, dra_finish finish, dra_error *err);
void       dra_job_tell(dra_engine *e, dra_job *job, const dra_job_token *token);
/* Tokens whose text ends by byte `end`, with the text that is there. */
void dra_job_tell_until(dra_engine *e, dra_job *job, size_t end);

/* Log-probabilities by the logits as they are: of id, and of `top` most likely ones. Room for
 * them in `most`. Returns the first; the k-th largest, equal ones by id. */
double dra_logprobs(int64_t V, const dra_real *logits, int32_t id, int64_t top, dra_logprob *most);

/* ---- rows and memory: rows.c ----------------------------------------------------------------- */

dra_status dra_rows_create(dra_engine *e, dra_error *err);
void       dra_rows_destroy(dra_engine *e);
/* A row in its initial state, or a copy of another (not -1). */
dra_status dra_rows_take(dra_engine *e, int64_t from, int64_t *row, dra_error *err);
void       dra_rows_give(dra_engine *e, int64_t *row); /* becomes -1; -1 is allowed */
/* Bytes that n tokens take. */
size_t dra_rows_need(const dra_engine *e, int64_t tokens);
/* Whether `more` bytes fit besides what is held and what running jobs may come to hold; drops kept
 * states where that helps. */
bool   dra_rows_fit(dra_engine *e, size_t more);
size_t dra_rows_bytes(const dra_engine *e);
/* What a job may come to hold besides what it does. */
size_t dra_rows_later(const dra_engine *e, const dra_job *job);
/* A copy of a row that goes on: what is of a fixed size, and the page that both would write. */
size_t dra_rows_copy(const dra_engine *e);
/* Whether n jobs can write a token each, keep states and end without more memory for the pool;
 * drops kept states where pages are missing. */
bool dra_rows_ready(dra_engine *e, int64_t n);

/* ---- kept states: prefix.c ------------------------------------------------------------------- */

/* The longest kept state that a prompt of n tokens may begin with and that leaves something to
 * read; NULL: none. */
dra_prefix *dra_prefix_find(dra_engine *e, size_t n, const int32_t *ids);
/* Keeps the row of a job, which has read ids[0..read), if its state follows from the text alone. */
void dra_prefix_keep(dra_engine *e, const dra_job *job);
/* After a piece of a prompt: keeps it where it is one of the places for that. */
void dra_prefix_passed(dra_engine *e, const dra_job *job);
bool dra_prefix_drop_oldest(dra_engine *e);
void dra_prefixes_free(dra_engine *e);

/* ---- states by name: saved.c ----------------------------------------------------------------- */

bool       dra_state_name_ok(const char *name);
dra_saved *dra_saved_hold(dra_engine *e, const char *name); /* NULL: none; takes the lock */
void       dra_saved_drop(dra_engine *e, dra_saved *s);     /* in any thread; NULL is allowed */
void       dra_saved_bury(dra_engine *e);                   /* states that nobody holds any more */
/* What a job has read becomes a state of that name; the row goes with it. */
dra_status dra_saved_put(dra_engine *e, dra_job *job, dra_error *err);
/* Fork, delete, export, import. */
dra_status dra_saved_run(dra_engine *e, dra_job *job, dra_error *err);
void       dra_saved_free(dra_engine *e);

#endif
