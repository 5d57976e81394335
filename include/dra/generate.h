/* dra/generate.h - writing text with a model: samplers and generators.
 *
 * Flow:    a dra_generator holds some sequences of a model. It reads prompts, then dra_generate()
 *          continues them, token by token, and hands out the text as it comes. What it has read
 *          is a state that can be saved; a generator that loads it continues with the same tokens.
 * Chance:  the number that picks a token follows from the seed and from the token's position in its
 *          sequence alone: not from chunks, rows or what was saved in between.
 * Rows:    every sequence of a generator gets the tokens it would get alone.
 * Threads: one thread at a time uses a sampler or a generator. */
#ifndef DRA_GENERATE_H
#define DRA_GENERATE_H

#include "dra/text.h"
#include "dra/train.h"
DRA_BEGIN_C

/* ---- samplers -------------------------------------------------------------------------------- */

typedef struct dra_token_bias {
    int32_t id;
    double  bias; /* added to its logit; -infinity: never */
} dra_token_bias;

/* What is done to the logits. All zero: greedy. The fields are those of dra/sampler.def, and act in
 * its order, which is Hugging Face's; docs/generate.md says what each of them does. Where the
 * temperature is 0, the most likely token is picked, of several the one with the least id, and no
 * filter matters. */
typedef struct dra_sampler_config {
    /* Added first; of a token that is listed twice the sum. Borrowed as long as the sampler, or the
     * generator that was given this config, may use it. */
    int64_t               n_bias;
    const dra_token_bias *bias;
#define DRA_SAMPLER_FIELD(with, kind, type, name, ...) type name;
    DRA_SAMPLER_OPTIONS(DRA_SAMPLER_FIELD, )
#undef DRA_SAMPLER_FIELD
    /* Filters see the model's own distribution, the temperature comes after them, as in
     * x-transformers. */
    bool     filter_first;
    uint64_t seed;
} dra_sampler_config;

typedef enum dra_sampler_kind {
    DRA_SAMPLER_TEXT,        /* adds to logits by the text      */
    DRA_SAMPLER_PENALTY,     /* changes logits by what was read */
    DRA_SAMPLER_TEMPERATURE, /* divides them                    */
    DRA_SAMPLER_FILTER       /* leaves few tokens to draw from  */
} dra_sampler_kind;

/* A line of dra/sampler.def, which says what each column is. */
typedef struct dra_sampler_option {
    const char      *name, *option, *json, *hugging_face, *help;
    dra_sampler_kind kind;
    bool             whole;  /* int64_t, else double */
    size_t           offset; /* in dra_sampler_config */
    double           least, most, usual;
} dra_sampler_option;

DRA_API const dra_sampler_option *dra_sampler_options(size_t *n);
DRA_API double dra_sampler_get(const dra_sampler_config *c, const dra_sampler_option *o);
DRA_API void   dra_sampler_set(dra_sampler_config *c, const dra_sampler_option *o, double x);
/* Whether it does anything: it is neither 0 nor what is usual. */
DRA_API bool dra_sampler_is_on(const dra_sampler_config *c, const dra_sampler_option *o);
/* The first option of a kind that is on; NULL: none is. */
DRA_API const dra_sampler_option *dra_sampler_find(const dra_sampler_config *c,
                                                   dra_sampler_kind          kind);

/* The usual values, to begin with: (dra_sampler_config){DRA_SAMPLER_USUAL}. */
#define DRA_SAMPLER_USUAL DRA_SAMPLER_OPTIONS(DRA_SAMPLER_USUAL_OF, )
#define DRA_SAMPLER_USUAL_OF(with, kind, type, name, option, json, hf, least, most, usual, help)   \
    .name = usual,

typedef struct dra_sampler dra_sampler; /* opaque */

/* `vocab` is the number of logits. On failure *out is NULL. */
DRA_API dra_status dra_sampler_create(const dra_sampler_config *config, int64_t vocab,
                                      dra_sampler **out, dra_error *err);
DRA_API void       dra_sampler_destroy(dra_sampler *s); /* NULL is allowed */

/* The token for place `position` of its sequence, by the options that act on a row: what looks at a
 * text is done by engines and generators. logits (vocab); -infinity: never. seen (vocab):
 * tokens the penalty is for; NULL: none. `stream` is added to the seed, so that sequences with the
 * same start diverge. Returns -1 if a logit is NaN or +infinity, or all are -infinity. */
DRA_API int32_t dra_sampler_pick(dra_sampler *s, const dra_real *logits, const bool *seen,
                                 uint64_t stream, int64_t position);

/* Contrast with a weaker model, the amateur [O'Brien and Lewis 2023]:
 *   z = (1 + beta) expert - beta amateur  where expert >= max expert + ln alpha,  else -infinity
 * All are (V); z may be one of the others. NaN stays NaN. */
DRA_API void dra_contrast(int64_t V, const dra_real *expert, const dra_real *amateur, double alpha,
                          double beta, dra_real *z);

/* ---- grammars -------------------------------------------------------------------------------- */

/* A set of texts. Generators that follow a grammar write texts of it: only tokens that some text of
 * it continues with can be picked, and the end of text only where a text ends. A grammar is
 * read-only once made and may be shared. */
typedef struct dra_grammar       dra_grammar;       /* opaque */
typedef struct dra_grammar_state dra_grammar_state; /* opaque: how far a text has come */

/* In GBNF, see docs/grammar.md: rules of literals, classes of characters, groups, alternatives,
 * repetitions and other rules; texts begin at `root`. Errors begin with name:line. DRA_ERR_FORMAT:
 * it is none, or a rule calls itself before it has read a character. On failure *out is NULL. */
DRA_API dra_status dra_grammar_parse(const char *name, const char *text, size_t bytes,
                                     dra_grammar **out, dra_error *err);
/* The JSON texts of a JSON schema: type, properties, required, additionalProperties, items, enum
 * and const; notes such as title are passed over, any other keyword is refused by its name. */
DRA_API dra_status dra_grammar_schema(const char *name, const char *json, size_t bytes,
                                      dra_grammar **out, dra_error *err);
typedef struct dra_schema_text {
    const char *json;
    size_t      bytes;
} dra_schema_text;
/* A grammar in GBNF whose rules schema0, schema1, ... are the texts of these schemas. Its own rules
 * have names with a dash, but for `root`. */
DRA_API dra_status dra_grammar_schemas(const char *name, const char *text, size_t n,
                                       const dra_schema_text *schema, dra_grammar **out,
                                       dra_error *err);
DRA_API void       dra_grammar_destroy(dra_grammar *g); /* NULL is allowed */

typedef enum dra_grammar_fit {
    DRA_GRAMMAR_NOT,  /* no text of the grammar begins like this */
    DRA_GRAMMAR_PART, /* some do, but this is none of them yet   */
    DRA_GRAMMAR_WHOLE /* it is a text of the grammar             */
} dra_grammar_fit;

/* DRA_ERR_VALUE: the text can be read in more ways than are followed, see docs/grammar.md. */
DRA_API dra_status dra_grammar_match(const dra_grammar *g, const char *text, size_t bytes,
                                     dra_grammar_fit *out, dra_error *err);

/* ---- generators ------------------------------------------------------------------------------ */

typedef struct dra_context { /* all that is needed to continue B sequences */
    dra_states         *states;
    dra_real           *logits; /* (B, V): what follows their last tokens            */
    bool               *seen;   /* (B, V): tokens read, for the repetition penalty   */
    int                 amateurs;
    struct dra_context *amateur; /* the same sequences, one for each amateur */
    dra_grammar_state  *grammar; /* of one sequence, how far its text has come; NULL: it begins */
} dra_context;

typedef struct dra_amateur { /* a model to contrast with; both are borrowed */
    const dra_model   *model;
    const dra_weights *weights;
} dra_amateur;

/* Speculation: tokens that may follow are guessed and read all at once, and kept as far as they are
 * what is picked anyway: on the CPU the text is the one without. */
typedef struct dra_draft {
    bool               text;  /* guesses what followed the same tokens earlier in the text */
    const dra_model   *model; /* or guesses by a smaller model of the same vocabulary; borrowed */
    const dra_weights *weights;
    int64_t            most; /* tokens at a time; 0: 15, the most */
} dra_draft;

typedef struct dra_generator dra_generator; /* opaque */

typedef struct dra_generator_config {
    const dra_model     *model; /* these four are borrowed until dra_generator_destroy */
    const dra_weights   *weights;
    dra_device          *device;
    const dra_tokenizer *tokenizer; /* NULL: tokens without text */
    dra_sampler_config   sampler;
    int64_t              rows;    /* sequences at a time; 0: 1 */
    int64_t              samples; /* of one prompt, row by row: row b draws with seed + b % samples;
                                     0: all rows are of one */
    double               state_limit; /* of the clamp of states; 0: DRA_STATE_LIMIT; below 0: off */
    /* Models of the same vocabulary that read every token, too, and by which the logits are
     * contrasted, see dra_contrast(), one after another: each sees as expert what those before it
     * made. The repetition penalty comes before, on the model's own logits, the temperature
     * after. Contrast does what filters are for, so a sampler with filters is refused. The list is
     * borrowed as the models are. */
    int                n_amateurs;
    const dra_amateur *amateurs;
    double             alpha, beta; /* above 0 and up to 1; 0 or more. Usual: 0.1 and 0.5 */
    dra_draft          draft;       /* not with amateurs */
    /* Of a model with visible prefix: what a row reads first is its prefix, read in one call.
     * Amateurs that have prefixes read it so, too. */
    bool prefix;
    /* What rows write after what they have read is a text of it; needs a tokenizer. Borrowed. NULL:
     * any text. A text begins when its row reads something or starts over, and goes on where it was
     * from one call of dra_generate() to the next. */
    const dra_grammar *grammar;
} dra_generator_config;

DRA_API dra_status dra_generator_create(const dra_generator_config *config, dra_generator **out,
                                        dra_error *err);
DRA_API void       dra_generator_destroy(dra_generator *g); /* NULL is allowed */

/* Row `row` reads tokens: a prompt, or what the other side of a chat says. Ids outside the model's
 * vocabulary, and more tokens than a model has learned positions, are refused before anything is
 * read. */
DRA_API dra_status dra_generator_read(dra_generator *g, int64_t row, size_t n, const int32_t *ids,
                                      dra_error *err);
/* The same for a model whose context is a text (dra_model_context_stack): the row starts over and
 * reads `n_source` tokens as its context, then those that its own text begins with, 1 or more. Not
 * with amateurs. */
DRA_API dra_status dra_generator_read_source(dra_generator *g, int64_t row, size_t n_source,
                                             const int32_t *source, size_t n, const int32_t *ids,
                                             dra_error *err);
/* Tokens that are read at a time: a text handed over in pieces of this size gives the same bits. */
enum { DRA_GENERATOR_PIECE = 512 };
/* Copies row `from` to row `to`. */
DRA_API dra_status dra_generator_copy(dra_generator *g, int64_t to, int64_t from, dra_error *err);
/* A row starts over, with nothing read. */
DRA_API dra_status dra_generator_reset(dra_generator *g, int64_t row, dra_error *err);
/* What a row has read, to go back to: one sequence, to be released by dra_context_free(). */
DRA_API dra_status dra_generator_keep(dra_generator *g, int64_t row, dra_context *out,
                                      dra_error *err);
/* Puts a row back to what dra_generator_keep() gave, perhaps nothing. `kept` stays as it is. */
DRA_API dra_status dra_generator_back(dra_generator *g, int64_t row, const dra_context *kept,
                                      dra_error *err);
/* Another sampler from the next token on. After an error the one before stays. */
DRA_API dra_status dra_generator_set_sampler(dra_generator *g, const dra_sampler_config *config,
                                             dra_error *err);
/* A row draws with a seed of its own from the next token on. */
DRA_API dra_status dra_generator_set_seed(dra_generator *g, int64_t row, uint64_t seed,
                                          dra_error *err);
/* Tokens a row has read or written since it started. */
DRA_API int64_t dra_generator_tokens(const dra_generator *g, int64_t row);
/* Numbers of states that were clamped so far, see dra_reader_clamped(). */
DRA_API int64_t dra_generator_clamped(const dra_generator *g);
/* Tokens that were guessed so far, see dra_draft, and how many of them were right. */
DRA_API void dra_generator_drafted(const dra_generator *g, int64_t *made, int64_t *right);
/* Bytes of the live state of all rows. */
DRA_API size_t dra_generator_state_bytes(const dra_generator *g);
/* Logits (vocab) of the model for the next token of a row that has read something, not contrasted.
 * If a token has been picked but not read yet, it is read first. */
DRA_API dra_status dra_generator_logits(dra_generator *g, int64_t row, const dra_real **logits,
                                        dra_error *err);

typedef enum dra_finish {
    DRA_FINISH_LENGTH,  /* as many tokens as were asked for           */
    DRA_FINISH_END,     /* the end of text, or of what a grammar has  */
    DRA_FINISH_STOP,    /* a stop string, or stop tokens              */
    DRA_FINISH_CONTEXT, /* the model has no further position          */
    DRA_FINISH_ASKED,   /* the caller did not want more               */
    DRA_FINISH_COUNT
} dra_finish;

DRA_API const char *dra_finish_name(dra_finish finish); /* "length", "end", ... */

/* Text of a row as it comes: valid UTF-8, whole characters, what is broken as U+FFFD. Nothing that
 * may still turn out to be a stop string. Also called without text, once for each token, so that it
 * can say no. false: the row shall finish. */
typedef bool (*dra_write_text)(void *user, int64_t row, const char *text, size_t bytes);

typedef struct dra_generated dra_generated;

/* A row has finished, and `done` is what it wrote; or it has read nothing yet, and `done` is NULL.
 * It may reset the row, let it read something else and set its seed. *tokens is how many the row
 * then writes at most, 0: as many as there is room for; below 0, as it is before the call: the row
 * stays as it is. */
typedef dra_status (*dra_next_text)(void *user, int64_t row, const dra_generated *done,
                                    int64_t *tokens, dra_error *err);

typedef struct dra_generate_config {
    int64_t tokens; /* to write at most, of each row; 0: as many as there is room for */
    /* Texts that end a row. Neither they nor what follows is handed out, and the row has read what
     * was handed out and nothing else: where a token is cut by a stop string, the tokens of the
     * part before it are read instead. Only looked for in what is written, not in prompts. */
    int                n_stop;
    const char *const *stop;
    int                n_ends; /* tokens that end a text as the tokenizer's own does */
    const int32_t     *ends;
    bool               ignore_end; /* all of these are tokens like any other */
    /* Lists of tokens: a text ends, as DRA_FINISH_STOP, by the token that completes one of them,
     * which is no part of it. Those before it have been written. */
    int            n_stop_tokens;
    const dra_ids *stop_tokens;
    dra_write_text write; /* may be NULL */
    void          *user;
    /* More than 0: log-probabilities of the tokens that are written, and of that many most likely
     * ones, at most the vocabulary, by the model's own logits: before bias, grammar, penalty,
     * contrast, temperature and filters. Not for beam search. */
    int64_t logprobs;
    /* Rows that finish make room for other texts. NULL: they wait for the others. */
    dra_next_text next;
} dra_generate_config;

typedef struct dra_logprob {
    int32_t id;
    double  logprob; /* NaN: of a token that was not picked, but read in place of one that a stop
                        string has cut */
} dra_logprob;

struct dra_generated {
    dra_finish     finish;
    size_t         n;   /* tokens written; the row has read them all */
    const int32_t *ids; /* good until the next call for this generator */
    /* (n, 1 + top): each token and then the most likely ones in order; NULL: not asked for */
    const dra_logprob *logprobs;
    int64_t            top;
};

/* Continues all rows, each of which must have read something, until each has finished. out: one for
 * each row, what it wrote last; with `next` it may be NULL, and rows that have read nothing are
 * asked for something to begin with. */
DRA_API dra_status dra_generate(dra_generator *g, const dra_generate_config *config,
                                dra_generated *out, dra_error *err);
/* The same step by step, for a caller that has something else to do in between: a token of each row
 * that writes. `config` is borrowed until the stop, which ends rows that have not finished; these
 * stay as they were at the start. In between rows that write are not read to, reset or replaced.
 * out: what each row has written so far, good until the next step; finish DRA_FINISH_COUNT: it goes
 * on. *more: false where dra_generate() would return. */
DRA_API dra_status dra_generate_start(dra_generator *g, const dra_generate_config *config,
                                      dra_error *err);
DRA_API dra_status dra_generate_step(dra_generator *g, dra_generated *out, bool *more,
                                     dra_error *err);
DRA_API void       dra_generate_stop(dra_generator *g);

/* ---- beam search ----------------------------------------------------------------------------- */

enum { DRA_BEAMS = 1024 }; /* the most */

/* Keeps the best `beams` continuations of each row. In every step each beam is followed by its
 * `beams` most likely tokens, and of all these the best stay, in order; equal ones by beam, then by
 * token. A beam whose text ends keeps its score and its place among the others. */
typedef struct dra_beam_config {
    int64_t beams; /* 1 to DRA_BEAMS */
    /* score = sum of log-probabilities / length^length_penalty, the end of text counted in both. 0:
     * the sum; above 0 favours longer texts. */
    double length_penalty;
    /* A beam is followed by tokens that are drawn, without repetition: the sampler's filters and
     * temperature apply, Gumbel noise is added, and the largest are taken [Kool et al. 2019].
     * Scores are as without. Seed and position decide about the noise, as about all draws. */
    bool noise;
} dra_beam_config;

typedef struct dra_beam {
    dra_generated text;
    double        score; /* -infinity: there are not as many texts, this is none */
} dra_beam;

/* Continues all rows as dra_generate() does. out: (rows, beams), the best first. Each row has then
 * read its best text. Log-probabilities are those after bias, grammar, all penalties and contrast;
 * without noise temperature and filters do not matter. `write` gets the texts at the end, those of
 * row r as rows r * beams + k, and in every step no text for r * beams, so that it can say no. Stop
 * strings are refused. */
DRA_API dra_status dra_generate_beam(dra_generator *g, const dra_generate_config *config,
                                     const dra_beam_config *beam, dra_beam *out, dra_error *err);

/* ---- files ----------------------------------------------------------------------------------- */

/* A state file of all rows, see dra_context_save(). A file with one sequence is loaded into all
 * rows, else it must have as many. After an error the rows stay as they were. The states of
 * amateurs are in files next to it, path.amateur1 and so on, and each belongs to the state it was
 * saved with: any other is refused. A generator without amateurs does not look at them. */
DRA_API dra_status dra_generator_save(dra_generator *g, const char *path, dra_error *err);
DRA_API dra_status dra_generator_load(dra_generator *g, const char *path, dra_error *err);

/* ---- any other model: what it puts out becomes its next input -------------------------------- */

/* Continues B rows of inputs. The first call reads all of them, the context too, which is then
 * state; each further one reads what was put out: tokens that a sampler picks, of xVal with the
 * number that was predicted, or vectors. Every row gets what it would get alone. Refused: encoders,
 * whose tokens see later ones, and heads that put out something else than the model reads. */
typedef struct dra_continue_config {
    const dra_model   *model; /* these three are borrowed during the call */
    const dra_weights *weights;
    dra_device        *device;
    dra_sampler_config sampler;
    double             state_limit; /* as in dra_generator_config */
    /* What is read first: T tokens of each row, of which at least one is no pad, and the context;
     * inputs by name, see dra_model_input_at(). */
    int64_t                 B, T;
    const int32_t          *mark;    /* (B, T) or NULL */
    const dra_context_text *context; /* NULL: there is none */
    int                     n_inputs;
    const dra_named        *inputs;
    int64_t                 n;      /* tokens or vectors to add to each row, 1 or more */
    int                     n_ends; /* tokens that end a row; they are not put out */
    const int32_t          *ends;
    bool (*step)(
        void *user); /* asked before every one; false: all rows shall finish; may be NULL */
    void *user;
} dra_continue_config;

typedef struct dra_continued { /* n: of the longest row */
    int64_t     B, n, width;
    int64_t    *count;   /* (B): how many of each row */
    dra_finish *finish;  /* (B) */
    int32_t    *ids;     /* (B, n), 0 after the end of a row; NULL: the model writes vectors */
    dra_real   *numbers; /* (B, n): of xVal; NaN where the token has none; else NULL */
    dra_real   *vectors; /* (B, n, width) or NULL */
    int64_t     clamped; /* numbers of states, see dra_reader_clamped() */
} dra_continued;         /* to be released by dra_continued_free() */

DRA_API dra_status dra_continue(const dra_continue_config *config, dra_continued *out,
                                dra_error *err);
DRA_API void       dra_continued_free(dra_continued *c);

/* ---- encoders: unmasking --------------------------------------------------------------------- */

/* Fills in B rows of T tokens in which the mask token stands where one is to be found: some of a
 * text, or all of it. Every round fills in all that is hidden from the model's logits and then
 * hides the least likely of these again, fewer in each round: after round k (from 0) of `steps`
 * floor(share((k + 1) / steps) n) of the n that were hidden at the start, share as of
 * dra_mask_schedule. Of equally likely ones the first in the text are hidden. Tokens that were
 * given stay. The mask token itself is never found. For models that learned by the objective
 * masked, best with a mask_schedule. */
typedef struct dra_unmask_config {
    const dra_model   *model; /* these three are borrowed during the call */
    const dra_weights *weights;
    dra_device        *device;
    int64_t            B, T;
    int64_t            steps;      /* rounds, 1 or more */
    int64_t            mask_token; /* as of dra_objective_config */
    dra_mask_schedule  schedule;   /* constant: linear */
    /* Tokens found in earlier rounds may be hidden again, by what the model thinks of them now. */
    bool remask;
    /* How tokens are found. The temperature of round k is temperature (steps - 1 - k) / steps: the
     * last round is greedy. Filters stay as they are. Row b draws with seed + b; the number that
     * picks a token follows from that, its position and its round. What is least likely is told by
     * the model's own distribution, before penalty, temperature and filters. */
    dra_sampler_config sampler;
    bool (*step)(void *user); /* asked before every round; false: it is the last; may be NULL */
    void *user;
} dra_unmask_config;

/* ids (B, T), in place; after an error they are as they were. Every row gets what it would get
 * alone, with its seed. */
DRA_API dra_status dra_unmask(const dra_unmask_config *config, int32_t *ids, dra_error *err);

/* ---- a model's own settings ------------------------------------------------------------------ */

enum { DRA_GENERATION_ENDS = 8 };

typedef struct dra_generation_config {
    bool               given; /* there is a generation_config.json                     */
    dra_sampler_config sampler;
    int64_t            tokens; /* new ones; 0: not said                                 */
    int64_t            length; /* of prompt and new tokens; 0: not said                 */
    int                ends;   /* tokens that end a text, from there or from config.json */
    int32_t            end[DRA_GENERATION_ENDS];
    char               other[512]; /* keys that dra does not follow: "num_beams, ..." */
} dra_generation_config;

/* From the files of a model's folder, with the defaults of Hugging Face: greedy, or sampling from
 * the 50 most likely. */
DRA_API dra_status dra_generation_config_read(const char *folder, dra_generation_config *out,
                                              dra_error *err);

/* ---- state files ----------------------------------------------------------------------------- */

/* The file of dra_states_save() with logits and tokens next to the state, and a number computed
 * from the weights: loading it for another model or other weights, or when it is damaged, is an
 * error and gives nothing. */
DRA_API dra_status dra_context_save(const dra_model *model, const dra_weights *weights,
                                    const dra_context *context, const char *path, dra_error *err);
/* Makes all three, to be released by dra_context_free(). */
DRA_API dra_status dra_context_load(dra_device *device, const dra_model *model,
                                    const dra_weights *weights, const char *path, dra_context *out,
                                    dra_error *err);
DRA_API void       dra_context_free(dra_context *context);

DRA_END_C
#endif
