/* dra/engine.h - many sequences of one model at a time, in steps that all of them share.
 *
 * Flow:    jobs come from any thread and wait in a queue, first come first served. One thread calls
 *          dra_engine_step() again and again: it lets jobs join, reads at most one chunk of
 *          prompts, whose jobs take turns, and one token of every sequence that writes, hands out
 *          what came of it, and lets those leave that are done. On a CPU a step may read a part of
 *          a chunk.
 *          Weights are read once for all sequences that write.
 * Bits:    sequences share no numbers, and prompts are cut at multiples of DRA_ENGINE_CUT tokens
 *          from their beginning whatever the company: on the CPU a job gives the same bits alone
 *          and with others, on CUDA it is equal within rounding.
 * States:  all are rows of one dra_states: of sequences that run, named ones, and those kept to
 *          begin other prompts with that start alike. Items that several share are held once.
 * Threads: dra_engine_submit(), dra_engine_cancel(), dra_engine_states(), dra_engine_stats_of()
 * and
 *          dra_engine_drain() may be called by any thread, also inside a call-back; everything else
 *          by the one that steps. Call-backs come in that thread and must not wait. */
#ifndef DRA_ENGINE_H
#define DRA_ENGINE_H

#include "dra/generate.h"
DRA_BEGIN_C

enum { DRA_ENGINE_CUT = 64, DRA_ENGINE_KEPT = 512 /* tokens from one kept state to the next */ };

typedef struct dra_engine dra_engine; /* opaque */

typedef struct dra_engine_config {
    const dra_model     *model; /* these four are borrowed until dra_engine_destroy */
    const dra_weights   *weights;
    dra_device          *device;
    const dra_tokenizer *tokenizer;    /* NULL: tokens without text */
    int64_t              slots;        /* sequences at a time; 0: 16                           */
    int64_t              queue;        /* jobs that may wait; 0: 256                           */
    int64_t              chunk;        /* tokens of prompts in a step, a multiple of DRA_ENGINE_CUT;
                                          0: 512                                               */
    size_t               memory_limit; /* bytes of all states; 0: 4 GiB. Kept ones go first,
                                          then jobs wait, then they are refused                */
    double               state_limit;  /* of the clamp; 0: DRA_STATE_LIMIT; below 0: off        */
    size_t               slice;        /* bytes of a state that a step copies for its file, while
                                          others write; 0: 4 MiB                               */
    bool                 forget;       /* keeps no states to begin other prompts with           */
    /* Models of the same vocabulary that read every token, too, and by which the logits are
     * contrasted, see dra_contrast(), one after another: each sees as expert what those before it
     * made. The repetition penalty comes before, on the model's own logits, the temperature after.
     * Contrast does what filters are for, so a sampler with filters is refused. The list is
     * borrowed as the models are. */
    int                n_amateurs;
    const dra_amateur *amateurs;
    double             alpha, beta; /* above 0 and up to 1; 0 or more. Usual: 0.1 and 0.5 */
    dra_draft          draft;       /* not with amateurs */
} dra_engine_config;

/* For language models, and others that read and write tokens. An encoder takes jobs that embed, of
 * hidden states; jobs that write are refused. */
DRA_API dra_status dra_engine_create(const dra_engine_config *config, dra_engine **out,
                                     dra_error *err);
DRA_API void       dra_engine_destroy(dra_engine *e); /* NULL is allowed; jobs end as cancelled */

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef enum dra_job_kind {
    DRA_JOB_GENERATE, /* reads a prompt, then writes                                       */
    DRA_JOB_EMBED,    /* reads a text; its result is a vector                              */
    DRA_JOB_FORK,     /* state `save` becomes what state `state` is                        */
    DRA_JOB_DELETE,   /* state `state` is forgotten                                        */
    DRA_JOB_EXPORT,   /* state `state` is written to the file `path`                       */
    DRA_JOB_IMPORT    /* state `save` becomes what the file `path` holds, see dra_context_load() */
} dra_job_kind;

/* What the vector of a text is: the mean of its hidden states, the last of them, all numbers of the
 * state that do not grow with it, in their order, or the first of its hidden states. */
typedef enum dra_pooling {
    DRA_EMBED_MEAN,
    DRA_EMBED_LAST,
    DRA_EMBED_STATE,
    DRA_EMBED_FIRST
} dra_pooling;

/* A token of a prompt (echo) or one that was written, as soon as it is known not to be part of a
 * stop string. */
typedef struct dra_job_token {
    int32_t id;
    bool    prompt;
    bool    ends; /* the text ends by it: it is no part of it and is not counted */
    /* Of the model's own distribution; NaN: the first of a text, not asked for, or read in place of
     * a token that a stop string has cut. */
    double             logprob;
    int64_t            top; /* most likely tokens at its place, the largest first */
    const dra_logprob *most;
    /* What it adds to the text that was written: whole characters, nothing that may be the start of
     * a stop string. May be empty. Of a prompt's token: none. */
    const char *text;
    size_t      bytes;
} dra_job_token;

typedef enum dra_job_end {
    DRA_JOB_DONE,
    DRA_JOB_CANCELLED,
    DRA_JOB_FAILED /* see `error` */
} dra_job_end;

typedef struct dra_job_result {
    dra_job_end     end;
    dra_finish      finish;
    dra_error       error;
    int64_t         prompt_tokens, cached_tokens, written_tokens;
    int64_t         drafted_tokens, accepted_tokens; /* guessed, and right */
    int64_t         width;                           /* of the vector */
    const dra_real *vector;                          /* these two are good during the call */
    const char     *text;                            /* what is left of the text */
    size_t          bytes;
    /* Of a search: its texts, the best first, with room for as many as were asked for; where there
     * are fewer, the score of the others is -infinity. */
    int64_t         n_beams;
    const dra_beam *beams;
    double          seconds_waited, seconds_read, seconds_written;
} dra_job_result;

enum { DRA_JOB_MARKS = 4 };

typedef struct dra_job_config {
    dra_job_kind   kind;
    size_t         n; /* the prompt; copied */
    const int32_t *ids;
    /* Whose job it is: states that are kept to begin prompts with serve jobs of the same owner
     * only, and owners take turns to join. 0: nobody's in particular. */
    uint64_t owner;
    /* Places in the prompt, in tokens, where others are likely to go another way: its state is kept
     * there, too, as far as the model lets it be cut. 0: none. */
    int64_t marks[DRA_JOB_MARKS - 1];
    int64_t tokens; /* to write at most; 0: none; below 0: as many as there is room for */
    dra_sampler_config sampler; /* biases are copied */
    int                n_stop;  /* stop strings; copied */
    const char *const *stop;
    int                n_ends; /* tokens that end a text, besides the tokenizer's own; copied */
    const int32_t     *ends;
    bool               ignore_end;
    int                n_stop_tokens; /* as of dra_generate_config; copied */
    const dra_ids     *stop_tokens;
    int64_t            logprobs; /* most likely tokens to tell; below 0: no log-probabilities */
    /* Tell the prompt's tokens too. With log-probabilities nothing of the prompt is reused, and
     * where nothing is written or saved, its last token is not read. */
    bool echo;
    /* Of a model whose context is a text (dra_model_context_stack): that text, read before the
     * prompt; copied. */
    size_t         n_source;
    const int32_t *source;
    /* Of a model with visible prefix: the prompt is its prefix, read in one call. Amateurs that
     * have prefixes read it so, too. */
    bool prefix;
    /* 1 or more: the best texts of a search, see dra_beam_config, each in a slot of its own. Told
     * at the end, in the result; `token` is called after every step, with id -1. */
    dra_beam_config beam;

    dra_pooling        pooling;
    const dra_grammar *grammar; /* borrowed until the job has ended; NULL: any text */
    /* Names of states, [A-Za-z0-9._-]{1,64}; NULL: none. `state` is begun from and stays as it is;
     * `save` is replaced at once when the job is done, and only then. */
    const char *state, *save;
    const char *path;
    /* token may be NULL; false: the text shall end here, as DRA_FINISH_ASKED. end comes exactly
     * once for every job that was taken. */
    bool (*token)(void *user, const dra_job_token *token);
    void (*end)(void *user, const dra_job_result *result);
    void *user;
} dra_job_config;

/* Takes a job; *id is its number, from 1 on. DRA_ERR_BUSY: the queue is full, or the engine drains.
 * Errors that are seen at once (a token outside the vocabulary, no such state, a name that is none,
 * a prompt longer than positions reach, DRA_ERR_MEMORY: more state than the limit) are told here,
 * and the job is not taken. The state it begins from is held from now on, whatever becomes of its
 * name. */
DRA_API dra_status dra_engine_submit(dra_engine *e, const dra_job_config *config, uint64_t *id,
                                     dra_error *err);
/* Ends it within a step; nothing happens if it has ended. */
DRA_API void dra_engine_cancel(dra_engine *e, uint64_t id);

/* One step. *idle: there was nothing to do, and the caller may sleep until `wake` is called, by the
 * thread of a submit or cancel. An error of the device ends all jobs that took part, and
 * is told here too. */
DRA_API dra_status dra_engine_step(dra_engine *e, bool *idle, dra_error *err);
DRA_API void       dra_engine_on_wake(dra_engine *e, void (*wake)(void *user), void *user);
/* No further jobs are taken; those that were taken go on. */
DRA_API void dra_engine_drain(dra_engine *e);

/* ---- states and figures ---------------------------------------------------------------------- */

typedef struct dra_state_info {
    const char *name;
    int64_t     tokens;
    size_t      bytes;
    double      created, used; /* seconds since 1970 */
    size_t      held;          /* memory that it takes: whole pages, and what it shares, too */
} dra_state_info;

/* Calls `each` for every named state, in the order of names. */
DRA_API void dra_engine_states(dra_engine *e, void (*each)(void *user, const dra_state_info *state),
                               void       *user);

typedef struct dra_engine_stats {
    int64_t waiting, active, states, kept;
    size_t  state_bytes;
    size_t  copied; /* bytes of states, for files, between steps */
    int64_t tokens_read, tokens_reused, tokens_written;
    int64_t tokens_drafted, tokens_accepted; /* guessed, and right; see dra_draft */
    int64_t done, cancelled, failed;
    int64_t steps, programs;
    double  step_seconds;
} dra_engine_stats;

DRA_API dra_engine_stats dra_engine_stats_of(dra_engine *e);
/* Numbers of states that were clamped so far, see dra_reader_clamped(). */
DRA_API int64_t dra_engine_clamped(const dra_engine *e);

/* What the memory of a running job (while its call-back runs) or of a named state holds: tensor i
 * of the state, its name, heads, and the norm of each head's part, good until the next call. false:
 * there are no more. */
typedef struct dra_look {
    const char  *name;
    int64_t      heads;
    const float *norm; /* (heads) */
} dra_look;
DRA_API bool dra_engine_look_at(dra_engine *e, uint64_t job, const char *state, int i,
                                dra_look *out);

DRA_END_C
#endif
