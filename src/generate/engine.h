/* The token loop taken apart, as its files see it:
 *   engine.c    making one, figures
 *   submit.c    jobs as they come, in any thread; queue.c: waiting, cancelling
 *   step.c      who joins, reads, writes and leaves
 *   read.c      chunks of prompts and batches of single tokens; pace.c: how they take turns
 *   write.c     which tokens may follow; pick.c: picks them on the device; beam.c: searches
 *   logits.c    what follows sequences, on host and device; measure.c: log-probabilities
 *   history.c   what the text so far says about its next token
 *   hand_out.c  text of tokens; finish.c: how a job ends
 *   draft.c     guesses at what follows; verify.c: reading them
 *   contrast.c  logits against those of weaker models
 *   rows.c      rows of the pools and the memory they take
 *   prefix.c    states kept to begin other prompts with; saved.c: states that are held, and names
 *   filing.c    files of states, beside the steps
 *   generator.c a front for programs that wait: rows are states, calls are jobs
 *
 * A job is a list of tokens, of which the first `read` are in its row of the pool. Reading a
 * prompt, writing, and reading again what a stop string left are all the same: read what is not
 * read yet; when nothing is left, there are logits to pick the next token of, or it is done. */
#ifndef DRA_SRC_ENGINE_H
#define DRA_SRC_ENGINE_H

#include <pthread.h>

#include "base/arena.h"
#include "device/array.h"
#include "device/code.h"
#include "dra/engine.h"
#include "generate/grammar/grammar.h"
#include "generate/text_stream.h"

enum { DRA_STATE_NAME = 64, DRA_PREFIX_BUCKETS = 4096 };

/* ---- states that are kept -------------------------------------------------------------------- */

typedef struct dra_saved {  /* what a name stands for; never changed */
    struct dra_saved *next; /* of those that nobody holds any more */
    int               refs; /* names and jobs that hold it; guarded by the lock */
    int64_t           row, tokens;
    dra_real         *logits;      /* (lanes, V): what follows */
    bool             *seen;        /* (V) */
    dra_ids           text;        /* the tokens that it has read, where they are known */
    size_t            bytes, held; /* held: with all of its pages */
} dra_saved;

typedef struct dra_saved_name {
    char       name[DRA_STATE_NAME + 1];
    dra_saved *state;
    double     created, used; /* seconds since 1970 */
} dra_saved_name;

typedef struct dra_prefix {                   /* a state after n tokens of a text */
    struct dra_prefix *chain, *newer, *older; /* of its bucket; by use */
    struct dra_prefix *parent;                /* what it goes on from; NULL: nothing */
    int                refs;                  /* its row, what goes on from it, jobs */
    uint64_t           owner, hash;
    int64_t            row; /* -1: it was dropped, but its ids are needed */
    size_t             n, from;
    uint64_t           asked; /* by which prompt `same` was found: tokens in common */
    size_t             same;
    int32_t            ids[]; /* from..n */
} dra_prefix;

typedef struct dra_prefixes {
    dra_prefix *bucket[DRA_PREFIX_BUCKETS];
    dra_prefix *newest, *oldest;
    int64_t     n;
    size_t      ids;  /* in all */
    uint64_t    asks; /* prompts that were compared */
} dra_prefixes;

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef enum dra_engine_view {
    DRA_VIEW_LAST,
    DRA_VIEW_ALL,
    DRA_VIEW_HIDDEN,
    DRA_VIEW_BATCH,  /* as the first, of batches that run between slices of a prompt chunk */
    DRA_VIEW_STATES, /* of prompt chunks that more text follows */
    DRA_VIEW_VERIFY, /* of tokens with drafts */
    DRA_VIEWS
} dra_engine_view;

typedef struct dra_drafts dra_drafts; /* draft.c */

typedef struct dra_sequence { /* tokens, of which a row of the pool has read the first `read` */
    struct dra_job *job;
    int64_t         row;    /* -1: none */
    dra_ids         ids;    /* the prompt, then what was written */
    size_t          read;   /* how many of them */
    size_t          fresh;  /* by the last read */
    int64_t         base;   /* tokens before them, in the state that it has begun from */
    size_t          prompt; /* how many were not written */
    /* The logits that follow are row `at` of the last read of this view; DRA_VIEWS: its own. */
    dra_engine_view    view;
    int64_t            at;
    dra_real          *logits; /* (lanes, V): its own */
    bool              *seen;   /* (V): tokens read; NULL: nobody asks */
    dra_grammar_state *place;
    /* Speculation: */
    dra_drafts *drafts; /* NULL: none are made */
    dra_ids     before; /* of the state that it has begun from; borrowed */
    int64_t     copy;   /* the row that reads them; -1: none */
    size_t      ahead;  /* tokens of ids that were read there and not in `row` */
} dra_sequence;

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
    dra_real *logits; /* (lanes, V) */
} dra_rewind;

typedef struct dra_search dra_search; /* beam.c */

/* What a job asks that is no part of the public config: to go on from a state without a name, and
 * to leave one. */
typedef struct dra_job_inside {
    dra_saved               *from;  /* NULL: nothing; held by the job */
    const dra_grammar_state *place; /* of the grammar, where the text has come to; NULL: begins */
    bool                     keep;  /* `kept` is called before the end */
    void (*kept)(void *user, dra_saved *state, dra_grammar_state **place); /* may take both */
} dra_job_inside;

typedef struct dra_job {
    struct dra_job *next; /* in the queue */
    uint64_t        id;
    bool            cancelled; /* guarded by the lock */
    bool            over;      /* its end was told */
    bool            asked;     /* whoever is told its tokens wants no more of them */
    dra_job_config  config;    /* what it points to is in the arena, but user and grammar */
    dra_job_inside  inside;
    dra_arena       arena;
    dra_saved      *begin; /* what it begins from; NULL: nothing */
    int64_t         base;  /* tokens of that */
    dra_sampler    *sampler;
    dra_constraint *constraint;
    size_t          need; /* bytes of state it may come to hold */

    dra_sequence    seq;
    dra_search     *search; /* of a job with beams, once it writes; its sequences take over */
    dra_engine_view view;   /* of the prompt */
    size_t          cached; /* tokens of the prompt that were read before */
    dra_prefix     *kept;   /* what is kept of its text so far; held, or NULL */
    uint64_t        hash;   /* of the first `hashed` tokens */
    size_t          hashed;
    int64_t         marks[DRA_JOB_MARKS]; /* after which tokens its state is kept; 0: none */
    bool            begun;                /* it has had its turn to read */
    uint64_t        leader;               /* the job that reads what it begins with, too; 0: none */
    size_t          until;                /* how far that one has to come */
    bool            started;              /* the prompt is read, its first logits were seen */
    bool            closing;              /* nothing more is written */
    dra_finish      finish;
    double         *sum;    /* (C): of hidden states */
    dra_real       *vector; /* (width) */
    int64_t         width;

    size_t          bytes; /* of the text that was written */
    dra_text_stream outlet;
    dra_rewind      back;
    dra_untold     *untold;
    size_t          n_untold, untold_room;
    dra_logprob    *most; /* of untold tokens */
    size_t          n_most, most_room;
    char           *out; /* text that was not handed out */
    size_t          n_out, out_room;
    double          at_submit, at_join, at_start; /* seconds of a clock */
    int64_t         drafted, accepted;
} dra_job;

enum { DRA_PACE_BATCHES = 5, DRA_PACE_SIZES = 4 /* of pieces: 64, 128, 256, 512 tokens */ };

typedef struct dra_pace {  /* how chunks of prompts and those that write take turns, in seconds */
    bool           slices; /* the device returns between instructions: chunks are read in slices */
    dra_time_slice slice;  /* of the chunk that is being read */
    int64_t        most;   /* tokens of the longest chunk of this step */
    double         batch[DRA_PACE_BATCHES]; /* of the last ones; 0: not yet */
    int64_t        batches;
    double         wrote;   /* when the last of them ended */
    double         stretch; /* of a token of a chunk, the longest time without return, lately */
    bool           whole;   /* this step reads chunks as a whole, while others write */
    double         began;   /* when this step began to read */
    double         took[DRA_PACE_SIZES]; /* chunks as a whole, lately; 0: not yet */
} dra_pace;

/* A model that reads what all sequences read. The first one writes; its amateurs are read beside it
 * and have rows of the same numbers in pools of their own. */
typedef struct dra_lane {
    const dra_model   *model;
    const dra_weights *weights;
    dra_view           view[DRA_VIEWS];
    dra_reader        *reader[DRA_VIEWS]; /* NULL: not yet */
    dra_states        *pool;
    dra_array        **columns; /* copies of matrices, by parameter; NULL: none (columns.c) */
} dra_lane;

typedef struct dra_chunk_part {
    dra_job *job;
    int64_t  T; /* without padding */
} dra_chunk_part;

typedef struct dra_chunk { /* tokens of prompts that are being read: the first n of engine.part */
    dra_job        *job;   /* the first of them; NULL: none are */
    int64_t         n, P;  /* P: with padding, the same of all */
    dra_engine_view view;
    size_t          programs; /* of its reader, before */
    double          began;
} dra_chunk;

typedef struct dra_picker  dra_picker;  /* pick.c */
typedef struct dra_measure dra_measure; /* measure.c */
typedef struct dra_filing  dra_filing;  /* filing.c */

struct dra_engine {
    dra_engine_config config;
    int64_t           V, C, cut, positions, pool_rows;
    const dra_model  *shortest; /* the model whose positions end first */
    bool              cuts;     /* kept states can be cut anywhere */
    bool              encoder;  /* a text is read at once, and nothing is written */
    dra_pace          pace;
    dra_chunk         chunk;
    uint64_t          turn; /* the job that has read a chunk last: those after it come first, */
    uint64_t          turn_owner; /* and those of other owners than its own before them */
    dra_filing       *filing;     /* the file that is being read or written; NULL: none */
    int               lanes;
    int               pools;     /* one more if drafts are made by a model */
    dra_lane         *lane;      /* (pools) */
    int64_t          *free_rows; /* (pool_rows) */
    int64_t           n_free;
    int64_t           used; /* rows that are not free */
    /* (slots), in the order of joining; changed by the thread that steps, under the lock */
    dra_job       **active;
    int64_t         n_active;
    int64_t         slots;      /* how many have room */
    int64_t         room;       /* of a read: */
    int32_t        *ids, *mark; /* (room) */
    int32_t        *picks;      /* (slots, or the next power of two), and of these: */
    int64_t        *rows;
    dra_sequence  **batch;   /* (slots) */
    dra_chunk_part *part;    /* (slots) */
    dra_real       *offered; /* (V) */
    bool           *allowed; /* (V) */
    dra_picker     *picker;
    dra_measure    *measure;
    dra_prefixes    prefixes;
    float          *norms; /* what dra_look shows */

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

dra_status dra_engine_no_memory(dra_error *err);
bool       dra_engine_drafts(const dra_engine *e);
bool       dra_engine_can_run(const dra_model *model); /* it reads and writes from left to right */
/* Room for n tokens of a read. */
dra_status dra_engine_reserve(dra_engine *e, int64_t n, dra_error *err);
double     dra_engine_clock(void); /* seconds */
double     dra_engine_now(void);   /* since 1970 */
/* Room for this many sequences at a time, if there is less; only while nothing runs. */
dra_status dra_engine_widen(dra_engine *e, int64_t slots, dra_error *err);

/* ---- jobs ------------------------------------------------------------------------------------ */

/* As dra_engine_submit(). inside may be NULL. After an error the job was not taken, and the caller
 * still holds inside->from. */
dra_status dra_job_submit(dra_engine *e, const dra_job_config *config, const dra_job_inside *inside,
                          uint64_t *id, dra_error *err);
/* What a job may ask, whatever its text: for those who ask before there is one, too. */
dra_status dra_job_check_options(const dra_engine *e, const dra_job_config *c, dra_error *err);
void       dra_job_free(dra_engine *e, dra_job *job);
/* The next job that may join: the first of the owner who has the fewest sequences. NULL: none. */
dra_job *dra_queue_next(dra_engine *e);
/* The first job whose kind is not one that takes a slot, and that can be done now; NULL: none. */
dra_job *dra_queue_at_once(dra_engine *e);
dra_job *dra_queue_take_cancelled(dra_engine *e);
void     dra_queue_remove(dra_engine *e, dra_job *job);
void     dra_queue_join(dra_engine *e, dra_job *job);  /* from the queue to those that run */
void     dra_queue_leave(dra_engine *e, dra_job *job); /* of those that run */
bool     dra_job_is_cancelled(dra_engine *e, const dra_job *job);
bool     dra_job_takes_slot(const dra_job *job);
/* How many sequences it comes to have. */
int64_t dra_job_width(const dra_job *job);
/* Tells the end, and gives back what the job held; it is not freed. `error`: why it failed. */
void dra_job_end_with(dra_engine *e, dra_job *job, dra_job_end end, const dra_error *error);
/* The same, if it has not ended. */
void dra_job_fail(dra_engine *e, dra_job *job, const dra_error *why);

/* ---- reading: read.c ------------------------------------------------------------------------- */

/* How many of its tokens a job is to read by now. Of a text whose log-probabilities alone are asked
 * for, the last one is not. */
size_t dra_job_goal(const dra_job *job);
/* How many tokens the job reads next as one chunk; 0: none, at most one that a batch reads. */
int64_t dra_chunk_next(const dra_engine *e, const dra_job *job);
/* The same with pads. */
int64_t dra_chunk_padded(const dra_engine *e, const dra_job *job);
/* Whether the next chunks of two jobs can be read in one call. */
bool dra_chunk_joins(const dra_engine *e, const dra_job *a, const dra_job *b);
/* Begins to read the next chunks of n jobs, those of e->part, or goes on with them. They have been
 * read when e->chunk.job is NULL again; after an error they are given up. */
dra_status dra_chunk_read(dra_engine *e, int64_t n, dra_error *err);
dra_status dra_chunk_continue(dra_engine *e, dra_error *err);
/* Nothing of a text is read: tells its first token, whose log-probability is that of the state. */
dra_status dra_job_tell_first(dra_engine *e, dra_job *job, dra_error *err);
/* One token of each of n sequences. It is started: dra_pick() or dra_engine_finish() wait. */
dra_status dra_batch_read(dra_engine *e, int64_t n, dra_sequence *const *of, dra_error *err);
dra_status dra_engine_reader(dra_engine *e, int lane, dra_engine_view view, dra_reader **out,
                             dra_error *err);
/* Waits for all that was started with this view. */
dra_status dra_engine_finish(dra_engine *e, dra_engine_view view, dra_error *err);

/* ---- logits: logits.c ------------------------------------------------------------------------ */

typedef struct dra_made { /* logits that the host has made, and where the device sees them */
    int64_t    rows;
    dra_real  *host; /* (rows, V) */
    dra_array *array;
} dra_made;

void       dra_made_free(dra_made *m);
dra_status dra_made_reserve(dra_engine *e, dra_made *m, int64_t rows, dra_error *err);
dra_status dra_made_put(dra_engine *e, const dra_made *m, int64_t rows, dra_span *out,
                        dra_error *err);
/* Rows of the last read of a view, by the model itself; `room` is used where they are nowhere on
 * the device as a whole. */
dra_status dra_view_logits(dra_engine *e, dra_engine_view view, int64_t first, int64_t rows,
                           dra_made *room, dra_span *out, dra_error *err);
/* Those that follow the sequences of a batch, of which this is the first; where it has logits of
 * its own, it is the only one. */
dra_status dra_batch_logits(dra_engine *e, const dra_sequence *first, int64_t rows, dra_made *room,
                            dra_span *out, dra_error *err);
/* What a reader gave, as the host sees it until it reads again. NULL: see err. */
const dra_real *dra_engine_result(dra_reader *r, const char *name, dra_error *err);
/* The logits that follow a sequence, the same. */
dra_status dra_sequence_logits(dra_engine *e, const dra_sequence *s, int lane, const dra_real **out,
                               dra_error *err);
/* They become the sequence's own. */
dra_status dra_sequence_own_logits(dra_engine *e, dra_sequence *s, dra_error *err);
/* Those of all lanes, (lanes, V), copied. */
dra_status dra_sequence_keep_logits(dra_engine *e, const dra_sequence *s, dra_real *to,
                                    dra_error *err);

/* ---- log-probabilities: measure.c ------------------------------------------------------------ */

dra_status dra_measure_create(dra_engine *e, dra_measure **out, dra_error *err);
void       dra_measure_destroy(dra_measure *m); /* NULL is allowed */
dra_made  *dra_measure_made(dra_measure *m);    /* room for what it looks at */
/* How many rows are measured at a time, at most. */
int64_t dra_measure_rows(const dra_measure *m, int64_t top);
/* Of a token in each of B rows of logits (B, V), and of `top` most likely ones. Started: the
 * results are there when both have been fetched. */
dra_status dra_measure_start(dra_measure *m, int64_t B, dra_span logits, dra_span ids, int64_t top,
                             dra_fetch fetch[2], dra_error *err);
/* The same of ids (B) of the host, and waits. */
dra_status dra_measure_ids(dra_measure *m, int64_t B, dra_span logits, const int32_t *ids,
                           int64_t top, dra_error *err);
/* That of the token in a row, and of the most likely ones, up to as many as were asked for. */
double dra_measure_logprob(const dra_measure *m, int64_t row, int64_t top, dra_logprob *most);

/* ---- taking turns: pace.c -------------------------------------------------------------------- */

/* Before a step reads prompts: how long its chunks may be. Returns how many tokens it reads. */
int64_t dra_pace_step(dra_engine *e);
/* Whether nobody writes, so that chunks need not hurry. */
bool dra_pace_is_alone(const dra_engine *e);
/* Before a chunk is begun or goes on: until when. */
void dra_pace_slice(dra_engine *e);
/* A chunk of T tokens was read, in `seconds` if it ran as a whole. */
void dra_pace_end(dra_engine *e, int64_t T, double seconds);
/* Whether those that write have waited long enough for the chunks of this step. */
bool dra_pace_is_over(const dra_engine *e);
void dra_pace_wrote(dra_engine *e, double began); /* a batch has */

/* ---- writing: write.c, pick.c, hand_out.c, finish.c ------------------------------------------ */

/* step.c: tokens of the job were read. */
dra_status dra_job_note_read(dra_engine *e, dra_job *job, dra_error *err);
/* All tokens of the job are read, and its logits are there: begins to write, or ends. */
dra_status dra_job_ready(dra_engine *e, dra_job *job, dra_error *err);
/* What ends a text before its next token. */
dra_status dra_job_look_ahead(dra_engine *e, dra_job *job, dra_error *err);
/* Whether each state of a job may grow to this many tokens. */
bool dra_job_has_room(dra_engine *e, dra_job *job, int64_t tokens);
/* Whether a token ends the text of a sequence, and how. */
bool dra_sequence_ends(const dra_engine *e, const dra_sequence *s, int32_t id, dra_finish *how);
/* Whether anything is added to the logits of a sequence. */
bool dra_sequence_is_biased(const dra_sequence *s);
/* Puts it into bias (V): biases and penalties, and -infinity for what the grammar forbids. *ended:
 * no token may follow, and the text may end here. */
dra_status dra_sequence_bias(dra_engine *e, const dra_sequence *s, dra_real *bias, bool *ended,
                             dra_error *err);
/* Why nothing could be picked. */
dra_status dra_sequence_refuse(dra_engine *e, const dra_sequence *s, dra_error *err);

typedef struct dra_offer { /* what a sampler sees of a sequence */
    const dra_real *logits;
    const bool     *seen;
    bool            ended; /* no token may follow: the text ends here, and there are no logits */
} dra_offer;
/* On the host; good until the next call. */
dra_status dra_sequence_offer(dra_engine *e, const dra_sequence *s, dra_offer *out, dra_error *err);

dra_status dra_picker_create(dra_engine *e, dra_picker **out, dra_error *err);
void       dra_picker_destroy(dra_picker *p); /* NULL is allowed */
/* The next tokens of n sequences whose tokens are all read: rows of one read, or one that has
 * logits of its own. Each is accepted, or its job ends. Returns what went wrong with the device. */
dra_status dra_pick(dra_engine *e, int64_t n, dra_sequence *const *of, dra_error *err);

/* Token `id` was picked, in this row: it becomes text. */
dra_status dra_job_accept(dra_engine *e, dra_job *job, int32_t id, int64_t row, dra_error *err);
/* The same of one that ends the text. */
dra_status dra_job_finish(dra_engine *e, dra_job *job, int32_t id, int64_t row, dra_finish how,
                          dra_error *err);
/* The text of an embed job is read. */
dra_status dra_job_pool(dra_engine *e, dra_job *job, dra_error *err);
/* Nothing more is written: hands out all that is left, and reads what its state lacks. */
dra_status dra_job_close(dra_engine *e, dra_job *job, dra_finish finish, dra_error *err);
void       dra_job_tell(dra_engine *e, dra_job *job, const dra_job_token *token);
/* Tokens whose text ends by byte `end`, with the text that is there. */
void dra_job_tell_until(dra_engine *e, dra_job *job, size_t end);
/* The grammar of a sequence after another token. */
dra_status dra_sequence_advance(dra_engine *e, dra_sequence *s, int32_t id, dra_error *err);

/* ---- searching: beam.c ----------------------------------------------------------------------- */

dra_status dra_search_check(const dra_job_config *c, dra_error *err);
/* A job begins to write: its sequence becomes the first beam. */
dra_status dra_search_begin(dra_engine *e, dra_job *job, dra_error *err);
/* The sequences that have a token to read; returns how many, the job's width at most. */
int64_t dra_search_unread(dra_search *s, dra_sequence **out);
/* All of them have read it: the best continuations are kept, or the search ends. */
dra_status dra_search_step(dra_engine *e, dra_job *job, dra_error *err);
/* Its beams, the best first. */
int64_t dra_search_result(const dra_search *s, const dra_beam **beams);
void    dra_search_release(dra_engine *e, dra_search *s); /* its rows; NULL is allowed */
void    dra_search_free(dra_engine *e, dra_search *s);    /* NULL is allowed */

/* ---- matrices of small models: columns.c ----------------------------------------------------- */

dra_status dra_columns_create(const dra_engine *e, dra_lane *l, dra_error *err);
dra_status dra_columns_bind(const dra_lane *l, dra_reader *r, dra_error *err);
void       dra_columns_destroy(dra_lane *l);

/* ---- speculation: draft.c, verify.c ---------------------------------------------------------- */

enum { DRA_VERIFIED = 16 /* tokens of a sequence at a time */, DRA_DRAFTS = DRA_VERIFIED - 1 };

dra_status dra_drafts_create(dra_drafts **out, dra_error *err);
void       dra_drafts_free(dra_drafts *d);        /* NULL is allowed */
int64_t    dra_drafts_count(const dra_drafts *d); /* NULL: 0 */
int32_t    dra_drafts_at(const dra_drafts *d, int64_t i);
/* Makes some for a sequence that is to be read, and the copy of its row that reads them; or none.
 */
dra_status dra_drafts_make(dra_engine *e, dra_sequence *s, dra_error *err);
/* So many of them were right; they are gone. */
void dra_drafts_judge(dra_drafts *d, int64_t right);
/* Reads all tokens of n sequences that are not read, with their drafts, and picks what follows. */
dra_status dra_verify(dra_engine *e, int64_t n, dra_sequence *const *of, int64_t *written,
                      dra_error *err);
/* How many tokens the longest of them has. */
int64_t dra_verify_length(int64_t n, dra_sequence *const *of);

/* ---- amateurs: contrast.c -------------------------------------------------------------------- */

/* What the config says about contrast. */
dra_status dra_contrast_check(const dra_engine_config *c, dra_error *err);
/* Whether a sampler goes with it. */
dra_status dra_contrast_check_sampler(const dra_engine *e, const dra_sampler_config *s,
                                      dra_error *err);
/* What the sampler sees instead of x (V), the logits of a sequence with their bias: contrasted with
 * those of all amateurs, its penalty before. z may be x. */
dra_status dra_contrast_with(dra_engine *e, const dra_sequence *s, const dra_real *x, dra_real *z,
                             dra_error *err);

/* ---- rows and memory: rows.c ----------------------------------------------------------------- */

dra_status dra_rows_create(dra_engine *e, dra_error *err);
void       dra_rows_destroy(dra_engine *e);
/* A row in its initial state, or a copy of another (not -1). */
dra_status dra_rows_take(dra_engine *e, int64_t from, int64_t *row, dra_error *err);
void       dra_rows_give(dra_engine *e, int64_t *row); /* becomes -1; -1 is allowed */
/* Bytes that n tokens take. */
size_t dra_rows_need(const dra_engine *e, int64_t tokens);
/* Bytes of them that a copy shares: all but what both would write. */
size_t dra_rows_shared(const dra_engine *e, int64_t tokens);
/* Whether `more` bytes fit besides what is held and what running jobs may come to hold; drops kept
 * states where that helps, the oldest first, up to one (NULL: all). */
bool   dra_rows_fit(dra_engine *e, size_t more, const dra_prefix *but);
size_t dra_rows_bytes(const dra_engine *e);
/* What a job may come to hold besides what it does. */
size_t dra_rows_later(const dra_engine *e, const dra_job *job);
/* A copy of a row that goes on: what is of a fixed size, and the page that both would write. */
size_t dra_rows_copy(const dra_engine *e);
/* Whether n jobs can write a token each, keep states and end without more memory for the pool;
 * drops kept states where pages are missing. */
bool dra_rows_ready(dra_engine *e, int64_t n);

/* ---- kept states: prefix.c ------------------------------------------------------------------- */

/* The kept state that most of a job's prompt may begin with, *tokens of them, so that something is
 * left to read; NULL: none. */
dra_prefix *dra_prefix_find(dra_engine *e, const dra_job *job, size_t *tokens);
/* Keeps the row of a job, with what it has read, if its state follows from the text alone. */
void dra_prefix_keep(dra_engine *e, dra_job *job);
/* A job goes on from p; or from nothing. */
void dra_prefix_stay(dra_engine *e, dra_job *job, dra_prefix *p);
void dra_prefix_leave(dra_engine *e, dra_job *job);
/* Before a prompt is read: where its states are to be kept besides the usual places. */
void dra_prefix_mark(dra_engine *e, dra_job *job);
/* The next of these places, or the end of what is read: a chunk ends there. */
size_t dra_prefix_next(const dra_engine *e, const dra_job *job);
/* After a piece of a prompt: keeps it where it is one of the places for that. */
void dra_prefix_passed(dra_engine *e, dra_job *job);
bool dra_prefix_drop_oldest(dra_engine *e);
void dra_prefixes_free(dra_engine *e);

/* ---- states that are held: saved.c ----------------------------------------------------------- */

bool       dra_state_name_ok(const char *name);
dra_saved *dra_saved_hold(dra_engine *e, const char *name); /* NULL: none; takes the lock */
dra_saved *dra_saved_again(dra_engine *e, dra_saved *s);    /* held once more; NULL is allowed */
void       dra_saved_drop(dra_engine *e, dra_saved *s);     /* in any thread; NULL is allowed */
void       dra_saved_bury(dra_engine *e);                   /* states that nobody holds any more */
/* What a job has read becomes a state, held by the caller; the row goes with it. */
dra_status dra_saved_make(dra_engine *e, dra_job *job, dra_saved **out, dra_error *err);
/* The same, under the name that the job says. */
dra_status dra_saved_put(dra_engine *e, dra_job *job, dra_error *err);
/* Copies: n states as all that is needed to continue them elsewhere, and sequence `from` of such.
 */
dra_status dra_saved_export(dra_engine *e, int64_t n, dra_saved *const *of, dra_context *out,
                            dra_error *err);
dra_status dra_saved_import(dra_engine *e, const dra_context *c, int64_t from, dra_saved **out,
                            dra_error *err);
/* Fork, delete, export, import. */
dra_status dra_saved_run(dra_engine *e, dra_job *job, dra_error *err);
/* Whether what a file has said can become a state. */
dra_status dra_saved_check(dra_engine *e, const dra_job *job, const dra_context *c, dra_error *err);
/* All of an import but what rows hold: a row is taken. */
dra_status dra_saved_begin(dra_engine *e, const dra_context *c, int64_t from, dra_saved **out,
                           dra_error *err);
/* The name that the job says stands for s from now on; s is no longer the caller's. */
dra_status dra_saved_adopt(dra_engine *e, const dra_job *job, dra_saved *s, dra_error *err);
/* A job that reads or writes a file is begun beside the steps; false: it has to be done at once. */
bool   dra_filing_begin(dra_engine *e, dra_job *job);
void   dra_filing_step(dra_engine *e);   /* copies a slice, or ends the job whose file is done */
void   dra_filing_finish(dra_engine *e); /* all of it, waiting */
bool   dra_filing_copies(const dra_engine *e); /* the next step has something to copy */
size_t dra_filing_later(const dra_engine *e);  /* bytes that the pool has to have for it yet */
void   dra_saved_free(dra_engine *e);

/* ---- text ------------------------------------------------------------------------------------ */

dra_status dra_ids_add(dra_ids *ids, int32_t id, dra_error *err);

#endif
