/* dra/sequence.h - reading sequences with a state that the caller owns.
 *
 * Flow:     a module (a mixer or a model) declares its parameters, its state and how its graph is
 *           built. A dra_states holds the state of B sequences. A dra_reader runs the module over
 *           the next T tokens of those sequences, in chunks of any length: reading whole, in chunks
 *           or token by token gives the same (docs/memories.md says where to the bit and where to
 *           rounding), as long as numbers are finite.
 * Marks:    every call may mark its tokens: pads, which change no state and at which the output of
 *           a mixer is 0 (a residual stream keeps its value), and resets, before which a sequence
 *           starts over. Pads may be anywhere. A skipped token reads the state but does not write
 *           it: state dropout.
 * Whole:    an encoder reads every call as a complete text: its tokens see those after them too,
 *           and no state joins one call to the next. See dra_module.
 * Prefix:   the first tokens of a sequence may see each other, before or after, and later ones are
 *           read as ever. A call has all of a prefix or none of it. See dra_module.
 * Context:  tokens may see a second text besides their own, which is read as a whole, once, and
 *           then is part of the state: the source of a translation. See dra_module.
 * Segments: a sequence may be read in parts of fixed length, each of which sees a memory of those
 *           before it (Transformer-XL). See dra_module.
 * Start:    a sequence may begin with learned vectors, which its layers see as tokens and the
 *           caller does not see at all. See dra_module.
 * Threads:  one thread at a time uses a reader or a dra_states. */
#ifndef DRA_SEQUENCE_H
#define DRA_SEQUENCE_H

#include "dra/file.h"
#include "dra/ops.h"
#include "dra/session.h"
DRA_BEGIN_C

/* ---- tensors by name: what a module's parameters and state are ------------------------------- */

typedef enum dra_fill {
    DRA_FILL_CONST,   /* every element is `number`              */
    DRA_FILL_NORMAL,  /* normal with standard deviation `number` */
    DRA_FILL_UNIFORM, /* uniform in -number .. number            */
    DRA_FILL_VALUES,  /* `values`, in order                      */
    DRA_FILL_FAVOR /* (..., F, D): orthogonal blocks of D rows, each as long as a normal vector */
} dra_fill;

/* The kind of a parameter for optimizers, which have a learning rate and a weight decay for each
 * group (dra_group_config). X(NAME, "its name in options and files") */
#define DRA_PARAM_EACH(X)                                                                          \
    X(MATRIX, "matrix")         /* products of layers */                                           \
    X(LOW_RANK, "low_rank")     /* the two factors of one */                                       \
    X(MAP, "map")               /* from heads, items or slots into another space */                \
    X(HEAD, "head")             /* of a model, where it is not the embedding */                    \
    X(EMBEDDING, "embedding")   /* of tokens */                                                    \
    X(POSITION, "position")     /* tables and maps of positions and distances */                   \
    X(INPUT, "input")           /* maps of inputs to the width of layers */                        \
    X(CONDITION, "condition")   /* maps of the condition of norms and branches */                  \
    X(VECTOR, "vector")         /* learned tokens, keys, values and streams */                     \
    X(NORM, "norm")             /* gains and biases of norms */                                    \
    X(BIAS, "bias")             /* of products */                                                  \
    X(DECAY, "decay")           /* logits of decays */                                             \
    X(TIME_DECAY, "time_decay") /* decays as RWKV has them */                                      \
    X(TIME_FIRST, "time_first") /* RWKV's weight of the token itself, as a logarithm */            \
    X(BONUS, "bonus")           /* that weight */                                                  \
    X(SHIFT, "shift")           /* shares of the token before */                                   \
    X(SHIFT_RANK, "shift_rank") /* factors of low rank that make such shares */                    \
    X(OTHER, "other")           /* gains, scales, temperatures */

#define DRA_PARAM_NUMBER(k, name) DRA_PARAM_##k,
typedef enum dra_param_group {
    DRA_PARAM_AUTO, /* by its shape: MATRIX with two axes or more, else OTHER */
    DRA_PARAM_EACH(DRA_PARAM_NUMBER) DRA_PARAM_GROUPS
} dra_param_group;
#undef DRA_PARAM_NUMBER

/* NULL: no such group, or AUTO. */
DRA_API const char *dra_param_group_name(dra_param_group group);

typedef struct dra_spec {
    const char   *name;
    dra_shape     shape; /* of a parameter; of one sequence's state, without B; of one item */
    dra_fill      fill;  /* how a parameter is initialised; a state starts and restarts as
                          * `number` */
    double        number;
    const double *values;
    bool          frozen;    /* a parameter that is not trained                                  */
    bool          items;     /* a state that holds one item for each token written, oldest first */
    int64_t       limit;     /* of items that are kept; 0: all                                   */
    bool          context;   /* a state that holds one item for each token of the context        */
    bool          decay;     /* a parameter of decay logits: gamma = sigmoid of it               */
    bool          recurrent; /* a parameter W (..., n, width) that takes a state to the next     */
    bool          feeds;     /* the same of what takes x to the next state                       */
    bool          maximum;   /* a state that is a running maximum, relative to which others are
                              * stored */
    bool          product;   /* a parameter that only products and lookups read: in any layout */
    bool          table;     /* a state of rows that are written one by one: never clamped */
    bool          detached;  /* a state through which no gradient comes from later calls         */
    dra_param_group group;   /* of a parameter; in a list it is never AUTO                       */
    /* A matrix W (O, I) that is used as W + factor_scale B A: the number of A (r, I), which B (O,
     * r) follows in the list; 0: it is used as it is. */
    int    factors;
    double factor_scale;
    bool   added; /* a parameter that files of the model do not have: such an A or B, or a start */
    /* A state that starts at `number` plus a parameter, its number in the list of these; 0: at
     * `number`. What is kept between calls is without it. */
    int start;
    /* Items alone: they are kept in bf16. Whoever makes them rounds them, and reads what was
     * rounded in every call, so that a text has the same numbers however it is cut. */
    bool    bf16;
    int64_t experts; /* matrices of so many experts, one below the other; 0: one matrix */
} dra_spec;

/* What a state's numbers are kept in, and the bytes of one sequence's state or of one item. */
DRA_API dra_dtype dra_spec_dtype(const dra_spec *spec);
DRA_API size_t    dra_spec_bytes(const dra_spec *spec);

/* How the numbers of a parameter are stored. Products read every layout as it is. */
typedef struct dra_param_layout {
    dra_dtype dtype;
    bool      transposed;  /* a matrix (out, in) is stored as (in, out)                           */
    int       part, parts; /* part `part` of `parts` along the first axis of one tensor; 0: alone */
} dra_param_layout;

typedef struct dra_specs dra_specs; /* opaque: a list of specs, keeps its first error */

DRA_API dra_status dra_specs_create(dra_specs **out, dra_error *err);
DRA_API void       dra_specs_destroy(dra_specs *s); /* NULL is allowed */
/* Adds a copy of `spec`, named prefix + name (prefix may be NULL). Names are unique. */
DRA_API void            dra_specs_add(dra_specs *s, const char *prefix, const dra_spec *spec);
DRA_API dra_status      dra_specs_error(const dra_specs *s, dra_error *err);
DRA_API int             dra_specs_count(const dra_specs *s);
DRA_API const dra_spec *dra_specs_at(const dra_specs *s, int i);
DRA_API int             dra_specs_find(const dra_specs *s, const char *name); /* -1: none */
/* A fingerprint: equal only for lists with equal names, shapes and kinds. */
DRA_API uint64_t dra_specs_fingerprint(const dra_specs *s);
/* The initial values of parameter i, which follow from `seed` and its name. */
DRA_API void dra_specs_fill(const dra_specs *s, int i, uint64_t seed, dra_real *to);

/* ---- tokens: what a call knows about them, as values of its graph ---------------------------- */

enum { DRA_TOKEN_KINDS = 8 }; /* different limits of items in one module */

/* Items are numbered rows of their state. Where a sequence stands is known before a run, so these
 * are inputs, filled by the reader from its states. */
typedef struct dra_token_items {
    int64_t   limit;
    dra_value at;     /* i32 (B, T): the row token t's item is written to; -1: none */
    dra_value lo, hi; /* i32 (B, T): the rows a query may see, its own item included */
    dra_value base;   /* i32 (B, 1): the number of the item in row 0 */
    /* Of rows of a pool, else none: i32 (B, n), where DRA_ATTEND_PAGE rows each of a sequence are
     * among those of all sequences, in which its state comes as (1, all, ...) and `at` counts. lo
     * and hi count in rows of the sequence, and so does `own`, which else is `at`. */
    dra_value pages, own;
} dra_token_items;

/* What happens to the tables of a row before a call, see dra_tokens_apply_event(). */
typedef enum dra_segment_event {
    DRA_SEGMENT_CONTINUES, /* its segment continues */
    DRA_SEGMENT_CLEARS,    /* its sequence starts */
    DRA_SEGMENT_SHIFTS     /* a segment starts, after another */
} dra_segment_event;

/* Of a module that reads in segments, see dra_module. A table has `memory` rows for what a segment
 * sees of earlier ones, the latest last, then a row for each token of the segment. When fresh there
 * is no memory: rows are those of the call. */
typedef struct dra_token_segments {
    int64_t         length, memory; /* 0: the module does not read in segments */
    int             max_event;      /* the greatest event of all rows */
    int64_t         seen;           /* rows of memory, the last, that a segment which starts sees */
    dra_value       event;          /* i32 (B, 1): dra_segment_event of each */
    dra_token_items rows;           /* base: the position of row 0 */
} dra_token_segments;

typedef struct dra_tokens {
    int64_t   B, T;   /* as layers see them: with start vectors and padding */
    bool      fresh;  /* every sequence starts here; there is no state to come in */
    dra_value mark;   /* i32 (B, T), see DRA_MARK_PAD; none: all are plain tokens */
    dra_value writes; /* the same for memories: skipped tokens are pads */
    dra_value skip;   /* bool (B, T): skipped tokens; none: there are none        */
    dra_value pos;    /* i32 (B, T): tokens since the last reset, start vectors counted */
    dra_value prev;   /* i32 (B, T): 1 + the token before, 0: the one of the state, -1: none */
    dra_value last;   /* i32 (B, 1): the same for the token after these */
    /* Start vectors, see dra_module. In a call where no sequence starts, T is `given`. */
    int64_t   start, given; /* how many vectors; how many tokens the caller passes */
    dra_value take;  /* i32 (B, T): row of (start vectors, then the given tokens), -1: padding;
                      * none: T is `given` */
    dra_value give;  /* i32 (B, given): which of T tokens it is; none: T is `given` */
    dra_value place; /* i32 (B, given): pos without start vectors, for learned positions */
    /* Of a whole module, see dra_module; else false and none. Key j is token j of this call. */
    bool            whole;
    bool            prefix; /* of a module with prefixes: a query may see items after its own */
    dra_value       lo, hi; /* i32 (B, T): its text and start vectors, no pads at both ends */
    dra_value       seen;   /* bool (B, T): key t may be seen; none: all in lo <= j < hi may */
    int             n_items;
    dra_token_items items[DRA_TOKEN_KINDS];
    /* Of a module with a context: all tokens of row b see its first context_n[b] items. */
    int64_t            context;   /* rows that hold them; 0: there is no context */
    dra_value          context_n; /* i32 (B, 1) */
    dra_token_segments segments;
    /* Memories whose bits differ between chunks and single tokens read token by token, so that the
     * call has the bits of T calls of one token. */
    bool by_token;
} dra_tokens;

/* x (B, T, ...) one token later: x_{t-1}, at first `before` (B, ...), none: 0; over resets 0.
 * *after: what `before` is for the next call. */
DRA_API dra_value dra_tokens_shift(dra_graph *g, const dra_tokens *tokens, dra_value x,
                                   dra_value before, dra_value *after);
/* A table (B, memory + segment, ...) as this call finds it: zeros where a sequence starts; where a
 * segment starts, its last rows of memory are `memory` (B, at most memory, ...), the others zeros.
 * memory: read only where there is one to see. */
DRA_API dra_value dra_tokens_apply_event(dra_graph *g, const dra_tokens *tokens, dra_value table,
                                         dra_value memory);
/* The rows of items with this limit. */
DRA_API const dra_token_items *dra_tokens_items(const dra_tokens *tokens, int64_t limit);
/* The given tokens x (B, given, C) with the rows of `start` (M, C) inserted where sequences start:
 * (B, T, C). The gradient of `start` sums over all of them. It may be bf16 or f16. */
DRA_API dra_value dra_tokens_insert_prefix(dra_graph *g, const dra_tokens *tokens, dra_value start,
                                           dra_value x);
/* The given tokens of an output of layers, y (B, T, ...): (B, given, ...). */
DRA_API dra_value dra_tokens_drop_prefix(dra_graph *g, const dra_tokens *tokens, dra_value y);
/* y (B, T, ...) with 0, or another number, at pads. */
DRA_API dra_value dra_tokens_zero_pads(dra_graph *g, const dra_tokens *tokens, dra_value y);
DRA_API dra_value dra_tokens_fill_pads(dra_graph *g, const dra_tokens *tokens, dra_value y,
                                       double number);

/* State dropout: sets DRA_MARK_SKIP with probability p in mark (B, T), but not on pads. Row b is
 * number row + b of the data and starts at position pos[b] (NULL: 0): random numbers depend on
 * seed, step, row and position alone, not on how a sequence is cut. */
DRA_API void dra_marks_skip(int32_t *mark, int64_t B, int64_t T, double p, uint64_t seed,
                            int64_t step, int64_t row, const int64_t *pos);
/* The same with an exact count, as forgetful causal masking has it [Liu et al. 2022]: of a row with
 * n tokens, N = n + 1 if the last one has a target (n without targets), min(int(N p), N - 1) are
 * skipped, but never a pad or the first of a text, which has DRA_MARK_RESET. targets (B, T) or
 * NULL; positions count from 0 in each row. */
DRA_API dra_status dra_marks_forget(int32_t *mark, const int32_t *targets, int64_t B, int64_t T,
                                    double p, uint64_t seed, int64_t step, int64_t row,
                                    dra_error *err);

/* ---- modules --------------------------------------------------------------------------------- */

typedef struct dra_module_call {
    dra_tokens       tokens;
    const dra_value *param;
    /* (B, ...) each, items and those of a context (B, rows, ...); null values when fresh, and of a
     * context that this call reads. */
    const dra_value *state;
    bool             learning; /* built for its gradient, without the parts that only inference
                                * needs */
    dra_value        random;   /* i32 (4), the key of dropout; none: no dropout */
    /* i32 (B): where the tokens of this call start, for random numbers, among those that layers
     * see, and among the given ones. */
    dra_value at, given_at;
    /* Of a call that reads the context: the call by which it is read, as a text of its own, with
     * the same parameters and no state. NULL: its items are in the state. */
    const struct dra_module_call *context;
    /* i32 (B, tokens.context): which given token of it each item is, -1: none; none: all are in
     * order. Pads are no items. */
    dra_value context_take;
} dra_module_call;

/* The items of the context in order, taken from an output x (B, S, ...) of its call. */
DRA_API dra_value dra_context_take(dra_graph *g, const dra_module_call *call, dra_value x);
/* Dropout of x (B, T, ...) with probability p, if the call has a key; `name` is unique in its
 * scope. Dropped elements follow from key, name, row and position, not from how a row is cut. */
DRA_API dra_value dra_module_dropout(dra_graph *g, const dra_module_call *call, const char *name,
                                     double p, dra_value x);
/* The same for x (B, given, ...). */
DRA_API dra_value dra_module_dropout_given(dra_graph *g, const dra_module_call *call,
                                           const char *name, double p, dra_value x);

/* Declares the inputs it wants besides (by dra_input) and its outputs (by dra_output), and puts
 * the new state into state_out. When fresh, items need no new state. Items of a context that this
 * call reads go out as (B, tokens.context, ...), of one that it does not read not at all. */
typedef void (*dra_module_build)(dra_graph *g, const void *self, const dra_module_call *call,
                                 dra_value *state_out);

/* A whole module reads every call as a complete text of each row, or as several, each starting at
 * DRA_MARK_RESET: a token sees all of its own text, later ones too, but not pads or skipped tokens.
 * Its programs are always fresh: what it declares as state, which must not be items, neither comes
 * in nor goes out, and keeps its initial value. Pads keep their places: pos counts all tokens since
 * the first of the text, and dra_tokens_shift takes the place before, 0 if that is a pad. Every
 * call starts over: a dra_states of it only counts the tokens of the last text of each row, and
 * there is nothing in it to resume from.
 *
 * A module with prefixes takes DRA_MARK_PREFIX: the tokens of a sequence from its first one on that
 * have it see all of them, start vectors too, whose items hi of dra_token_items includes. All of it
 * is in one call; pads may be between, and skipped tokens, which nobody sees.
 *
 * `start` learned vectors come before the first token of every sequence: the first that is no pad,
 * after dra_states_reset and after every DRA_MARK_RESET; of a whole module, before every text, pads
 * or not. To layers they are tokens, which have positions and write items and states, also where
 * the token after them is skipped. The module inserts them by dra_tokens_insert_prefix and drops
 * them by dra_tokens_drop_prefix, so that its inputs and outputs are those of the given tokens.
 * Rows in which fewer sequences start are padded at the end. A call with n starts in a row may use
 * a program for the next power of two.
 *
 * A module that reads in segments sees tokens p L .. p L + L - 1 of a sequence as segment p. What
 * later segments see of it may come from any layer, so no call of its graph crosses the border of a
 * segment in any row, nor a reset: the reader makes several calls of one, and puts their outputs
 * together. Then inputs are (B, T, ...), or the same for all of T; outputs (B, T, ...) or, of rank
 * 4, (B, H, T, ...), and "logits" as `keep` and `picks` say. Positions of tokens and the token
 * before start over in every segment; there are no start vectors and no skipped tokens. No gradient
 * passes the border of a segment. */
typedef struct dra_module {
    const dra_specs *params, *state;
    dra_module_build build;
    const void      *self;
    bool             whole;
    int64_t          start;
    /* Tokens see a context. The call that reads it, dra_reader_read_context(), builds it as a whole
     * text (dra_module_call.context) and puts its items into states that say `context`, which
     * later calls leave as they are. A reset keeps it. A whole module reads it in every call. */
    bool    context;
    int64_t context_start;   /* `start` of that text */
    int64_t segment, memory; /* L, and how many rows of memory a segment sees; 0: no segments */
    /* The tokens that the output "logits" (B, n, ...) has: those whose numbers are in the input
     * "picks", i32 (B, picks), else the last `keep` of the call; 0: all. Read of segments alone. */
    int64_t keep, picks;
    bool    prefix; /* it has prefixes */
} dra_module;

typedef struct dra_context_shape {
    int64_t T, inner; /* as those of dra_module_shape */
    bool    marked, holes;
} dra_context_shape;

typedef struct dra_module_shape {
    int64_t        B, T;
    bool           marked; /* tokens carry marks: given ones, or padding */
    bool           fresh;
    const int64_t *rows;  /* one for each state, read where it holds items; NULL when fresh */
    bool           skips; /* some marks are DRA_MARK_SKIP; only if marked                   */
    bool           clamp; /* states are clamped as they come in and go out, see below */
    const dra_param_layout *layouts; /* of the parameters; NULL: all are real and dense */
    double                  limit;   /* of the clamp; 0: DRA_STATE_LIMIT */
    /* The call reads B rows of a pool that has this many; 0: not a pool. `rows` are then those of
     * all sequences, and spans, one for each state, those that one of these B may have. */
    int64_t                  pool;
    const int64_t           *spans;
    bool                     holes;   /* of a whole module: some keys between others are not seen */
    int64_t                  inner;   /* tokens that layers see; 0: T, no sequence starts */
    const dra_context_shape *context; /* the call reads the context; NULL: it is in the state */
    /* Of a module that reads in segments: the greatest event of all rows. DRA_SEGMENT_SHIFTS + n:
     * rows whose segment starts have read L 2^n tokens at most, or see all rows of memory. */
    int  max_event;
    bool by_token; /* see dra_tokens */
} dra_module_shape;

/* The clamp of states: what comes in and goes out of a call is held within +-limit, and set to 0
 * where it is not finite; items and maxima are left alone. An output "clamped", an i32 scalar,
 * counts the changes where there is anything to clamp. */
#define DRA_STATE_LIMIT 1e4

/* Declares parameters, states and tokens by name and builds the module into g. The arrays (each as
 * long as its list) receive the values; any may be NULL. A parameter in another layout is declared
 * with the shape it is stored in; its value is a view of that. State outputs are neither declared
 * nor donated: that is the caller's choice. */
DRA_API void dra_module_graph(dra_graph *g, const dra_module *module, const dra_module_shape *shape,
                              dra_value *param, dra_value *state, dra_value *state_out);

/* ---- the state of B sequences ---------------------------------------------------------------- */

typedef struct dra_states dra_states; /* opaque */

/* In memory of `device`. It and `specs` are borrowed, and specs must not grow, until
 * dra_states_destroy. Rows count from 0 to B-1; functions that return no status do not check the
 * row. */
DRA_API dra_status dra_states_create(dra_device *device, const dra_specs *specs, int64_t B,
                                     dra_states **out, dra_error *err);
/* A pool: a state whose rows come and go. Items of each row have memory of their own, which grows
 * with that row alone, and rows that were copied from each other share it until one of them is read
 * on. To be read by dra_reader_read_rows(). Contexts have room for the longest of all rows. */
DRA_API dra_status dra_states_create_pool(dra_device *device, const dra_specs *specs, int64_t B,
                                          dra_states **out, dra_error *err);
/* Adds rows to a pool, in their initial state; existing rows stay as they are. */
DRA_API dra_status dra_states_grow(dra_states *s, int64_t B, dra_error *err);
DRA_API void       dra_states_destroy(dra_states *s); /* NULL is allowed */
DRA_API int64_t    dra_states_batch(const dra_states *s);
/* Given tokens read since its reset, and items written since then, those of start vectors too. */
DRA_API int64_t dra_states_tokens(const dra_states *s, int64_t row);
DRA_API int64_t dra_states_items(const dra_states *s, int64_t row);
/* Items of the context of a row; -1: it has none. */
DRA_API int64_t dra_states_context(const dra_states *s, int64_t row);
/* Bytes that are live, in one row and in all, and bytes of all memory held. */
DRA_API size_t dra_states_row_bytes(const dra_states *s, int64_t row);
DRA_API size_t dra_states_bytes(const dra_states *s);
DRA_API size_t dra_states_held(const dra_states *s);

/* Back to the initial state, without a context: one row, or all (-1). */
DRA_API dra_status dra_states_reset(dra_states *s, int64_t row, dra_error *err);
/* A new state whose row i is row rows[i] of s, to fork, reorder, slice or repeat rows. */
DRA_API dra_status dra_states_gather(const dra_states *s, int64_t n, const int64_t *rows,
                                     dra_states **out, dra_error *err);
DRA_API dra_status dra_states_fork(const dra_states *s, dra_states **out, dra_error *err);
/* Copies row `from` of `other`, a state of the same specs, to row `to` of s. */
DRA_API dra_status dra_states_copy(dra_states *s, int64_t to, const dra_states *other, int64_t from,
                                   dra_error *err);

/* State i of one sequence: dense, of the spec's shape; items, also of a context: its live ones,
 * (n, ...). What is kept in bf16 is rounded when it is written. */
DRA_API dra_status dra_states_read(const dra_states *s, int i, int64_t row, dra_real *to,
                                   size_t count, dra_error *err);
DRA_API dra_status dra_states_write(dra_states *s, int i, int64_t row, const dra_real *from,
                                    size_t count, dra_error *err);
/* These numbers in place, to be read and changed as long as the states live. NULL: they are
 * items, whose memory moves as they grow, or memory that the host does not see. */
DRA_API dra_real *dra_states_at(dra_states *s, int i, int64_t row);
/* How many of them: of the spec's shape times its live items. */
DRA_API size_t dra_states_size(const dra_states *s, int i, int64_t row);
/* Sets a row as if it had read `tokens` tokens and written `items` items, which are zeros for now.
 * Where tokens is more than 0 it has read its start vectors. Its context stays. */
DRA_API dra_status dra_states_place(dra_states *s, int64_t row, int64_t tokens, int64_t items,
                                    dra_error *err);

typedef struct dra_states_difference {
    double      worst; /* largest |a - b| / max(|b|) over all tensors; NaN if one is */
    const char *name;  /* of the tensor it was found in */
    bool        same;  /* bit for bit */
} dra_states_difference;

DRA_API dra_status dra_states_compare(const dra_states *a, const dra_states *b,
                                      dra_states_difference *out, dra_error *err);

/* A safetensors file with the live state. `fingerprint` names the model that it belongs to; loading
 * with another one, with other specs or from a damaged file is an error and gives no state. */
DRA_API dra_status dra_states_save(const dra_states *s, uint64_t fingerprint, const char *path,
                                   dra_error *err);
/* The same with further tensors in the file, whose names start with DRA_BESIDE: tensors that belong
 * to a state but are not part of it, such as the logits that follow it. Loading ignores them. */
#define DRA_BESIDE "beside."
DRA_API dra_status dra_states_save_with(const dra_states *s, uint64_t fingerprint, const char *path,
                                        size_t n_extra, const dra_tensor_item *extra,
                                        dra_error *err);
DRA_API dra_status dra_states_load(dra_device *device, const dra_specs *specs, uint64_t fingerprint,
                                   const char *path, dra_states **out, dra_error *err);

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct dra_reader dra_reader; /* opaque: compiled programs by shape, bound parameters */

typedef struct dra_named {
    const char *name;
    const void *data;
    size_t      bytes;
} dra_named;

/* Device, module and the memory of bound parameters are borrowed until dra_reader_destroy. */
DRA_API dra_status dra_reader_create(dra_device *device, const dra_module *module, dra_reader **out,
                                     dra_error *err);
DRA_API void       dra_reader_destroy(dra_reader *r); /* NULL is allowed */
/* Parameter data of the host, borrowed as long as the reader lives; bind again after changing it in
 * place. */
DRA_API dra_status dra_reader_bind(dra_reader *r, const char *name, const void *data, size_t bytes,
                                   dra_error *err);
/* The same in another layout; only where its spec says `product`. data, bytes: the whole tensor it
 * is stored in, also where that holds others. If it was read in another layout, programs are
 * compiled again and the results of the last read are gone. */
DRA_API dra_status dra_reader_borrow(dra_reader *r, const char *name, dra_param_layout form,
                                     const void *data, size_t bytes, dra_error *err);
/* The same for memory of the reader's device. */
DRA_API dra_status dra_reader_bind_as(dra_reader *r, const char *name, dra_param_layout form,
                                      dra_span memory, dra_error *err);
/* Initialises every parameter that is not bound from `seed`, in memory of the reader. */
DRA_API dra_status dra_reader_start(dra_reader *r, uint64_t seed, dra_error *err);
/* Reads the next T tokens of every sequence: mark (B, T) or NULL; inputs: those the module
 * declared, by name. The states advance. After an error of the run itself they must be reset; one
 * found before it leaves them as they were. A program is compiled and kept for every B, T and
 * capacity met, so keep the number of different lengths small. A sequence may have 2^31 - 1 tokens
 * between resets, start vectors counted. A long read makes room for all its items even if only the
 * last few are kept; a fork of the states has room only for what is live. */
DRA_API dra_status dra_reader_read(dra_reader *r, dra_states *states, int64_t T,
                                   const int32_t *mark, int n, const dra_named *inputs,
                                   dra_error *err);
/* The same for a module with a context, which is read first: T tokens of every row, mark (B, T) or
 * NULL, of which only DRA_MARK_PAD is allowed. Inputs are those of both texts. It replaces the one
 * that was there. dra_reader_read() fails where a row has none. */
typedef struct dra_context_text {
    int64_t        T;
    const int32_t *mark;
} dra_context_text;
DRA_API dra_status dra_reader_read_context(dra_reader *r, dra_states *states,
                                           const dra_context_text *context, int64_t T,
                                           const int32_t *mark, int n, const dra_named *inputs,
                                           dra_error *err);
/* Reads the next T tokens of n rows of a pool, none of them twice: mark (n, T) or NULL; inputs and
 * outputs are of n rows. A program is compiled for n and T, not for which rows they are. Index
 * -1 is padding: its output is discarded. */
DRA_API dra_status dra_reader_read_rows(dra_reader *r, dra_states *pool, int64_t n,
                                        const int64_t *rows, int64_t T, const int32_t *mark,
                                        int n_inputs, const dra_named *inputs, dra_error *err);
/* From now on reads are started and not waited for. dra_reader_finish() waits, once for all of
 * them, and returns the errors of the runs. */
DRA_API void       dra_reader_defer(dra_reader *r, bool on);
DRA_API dra_status dra_reader_finish(dra_reader *r, dra_error *err);
/* An output of the last read as the host sees it, valid until the next. NULL: there is none of this
 * name, or no memory, or the read has failed. */
DRA_API const void *dra_reader_result(dra_reader *r, const char *name);
/* The same in memory of the device. The null span: it is only on the host. */
DRA_API dra_span dra_reader_result_span(const dra_reader *r, const char *name);
/* Its shape. false: there is no such output. */
DRA_API bool   dra_reader_result_shape(const dra_reader *r, const char *name, dra_shape *shape);
DRA_API size_t dra_reader_programs(const dra_reader *r); /* how many were compiled */
/* What products compute in, see dra_set_precision(); before the first read. */
DRA_API void dra_reader_precision(dra_reader *r, dra_precision precision);
/* The clamp of states, on unless switched off; and how many numbers it has changed so far. If it
 * has changed any, reading in other chunks may give other results. */
DRA_API void dra_reader_clamp(dra_reader *r, bool on);
/* Its bound from the next read on; 0: DRA_STATE_LIMIT. A program is compiled for each bound. */
DRA_API void    dra_reader_clamp_limit(dra_reader *r, double limit);
DRA_API int64_t dra_reader_clamped(dra_reader *r);
/* From the next read on, tokens have the bits that they would have in calls of their own, unless a
 * state is clamped; meant for few tokens at a time. Off by default. */
DRA_API void dra_reader_by_token(dra_reader *r, bool on);

DRA_END_C
#endif
