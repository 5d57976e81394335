/* The state of B sequences, as the files of this layer see it, and where its tokens stand.
 *
 * Items are numbered from the last reset of their row on (by dra_states_reset); item number i of
 * row b is in row i - base[b] of its tensor. Bases are multiples of 64, so that moving items
 * down does not move them against the blocks of keys that attention takes at a time: sums keep
 * their order and results their bits. Item j of a context is in row j of its tensor; all tensors of
 * contexts have as many rows, a multiple of 64, so that programs can be used again.
 *
 * In a pool, item number i of row b is in page (i - base[b]) / 64 of its row: pages of 64 rows
 * belong to all tensors of one limit, are counted, and are shared by rows that were copied from
 * each other (pool.c). */
#ifndef DRA_SRC_STATES_H
#define DRA_SRC_STATES_H

#include "dra/sequence.h"

enum { DRA_ITEMS_STEP = DRA_ATTEND_PAGE };

typedef struct dra_page_list { /* of one row */
    int32_t *at;
    int64_t  n, room;
} dra_page_list;

typedef struct dra_pages { /* of all tensors that hold items of one limit */
    int64_t        limit, count;
    int64_t        most; /* it grows to these first, see dra_pool_most(); 0: by doubling alone */
    int32_t       *refs; /* (count): rows that have it; 0: it is free */
    int32_t       *free; /* a stack of those */
    int64_t        n_free;
    int64_t        fresh; /* pages from this one on have never been used: they are no zeros yet */
    dra_page_list *of;    /* (B) */
} dra_pages;

typedef struct dra_held { /* one tensor of the state */
    dra_array *data;      /* (B, ...), items and contexts (B, rows, ...) */
    int64_t    rows;      /* 1 where there are neither; items of a pool: (all rows, ...) */
    int64_t    size;      /* numbers of one row */
    dra_dtype  dtype;     /* of these */
    size_t     bytes;     /* of one row */
    int64_t   *base;      /* (B): the item in row 0 */
    dra_array *next;      /* larger memory, until all tensors have theirs */
    int64_t    next_rows;
} dra_held;

struct dra_states {
    dra_device      *device;
    const dra_specs *specs;
    int64_t          B;
    int64_t         *tokens;      /* (B): read since the last reset */
    int64_t         *begin, *end; /* (B): numbers of the items since the last reset */
    int64_t         *context;     /* (B): items of the context; -1: none */
    dra_held        *at;          /* one for each spec */
    bool             pool;
    int              n_pages;
    dra_pages        pages[DRA_TOKEN_KINDS]; /* of a pool */
};

/* Does a state hold one row for each item, of its own text or of a context? */
static inline bool dra_spec_has_rows(const dra_spec *p) { return p->items || p->context; }

/* All memory of tensor i that a program is bound to: (B, ...), items (B, rows, ...). */
dra_span dra_states_span(const dra_states *s, int i);

/* Makes room for T more items in every row. */
dra_status dra_states_reserve(dra_states *s, int64_t T, dra_error *err);

/* Makes room for n items of a context in every row. */
dra_status dra_states_reserve_context(dra_states *s, int64_t n, dra_error *err);

/* Starts a row at these numbers, its items and those of its context (-1: none) still to be
 * written. */
typedef struct dra_row_numbers {
    int64_t tokens, begin, end, context;
} dra_row_numbers;
dra_status dra_states_number(dra_states *s, int64_t row, dra_row_numbers at, dra_error *err);

dra_row_numbers dra_states_numbers(const dra_states *s, int64_t row);

/* Row `row` of `to` becomes like row `of` of `from`, in parts: neither may change meanwhile, but
 * other rows may, and pools may grow. Not for two rows of one pool. */
typedef struct dra_row_copy {
    dra_states       *to;
    const dra_states *from;
    int64_t           row, of;
    int               tensor; /* whose turn it is */
    int64_t           item;   /* its next one, from its first live one on */
    size_t            bytes;  /* so far, with those of pages that were made ready */
} dra_row_copy;
/* The numbers of `of`, and memory for what they say but pages of a pool; `from` may be unset. */
dra_status dra_row_copy_begin(dra_row_copy *c, dra_row_numbers at, dra_error *err);
/* Copies until c->bytes, which counts them, are this many or more: to the end of an item or a
 * page. *done: that was the rest. */
dra_status dra_row_copy_until(dra_row_copy *c, size_t bytes, bool *done, dra_error *err);

/* Copies with the same rows and bases, unlike dra_states_fork(), which may move items. */
dra_status dra_states_clone(const dra_states *s, dra_device *device, dra_states **out,
                            dra_error *err);

/* The live items of a row, or those of its context: from this number to the one before that. */
int64_t dra_states_first(const dra_states *s, int i, int64_t row);
int64_t dra_states_last(const dra_states *s, int i, int64_t row);

/* The items of a row from this number on that follow each other in memory; *n: how many there are
 * before `end`. */
dra_span dra_states_stretch(const dra_states *s, int i, int64_t row, int64_t item, int64_t end,
                            int64_t *n);

/* ---- pools (pool.c) -------------------------------------------------------------------------- */

void dra_pool_free(dra_states *s);
/* Makes room for this many pages of every limit, `each` of them for a row, so that the pool grows
 * later or never. Memory is not touched before a page is used. */
dra_status dra_pool_room(dra_states *s, int64_t pages, int64_t each, dra_error *err);
/* The number of pages of the limit that the caller expects to need: growth stops there first, and
 * goes on if more are needed. */
void dra_pool_most(dra_states *s, int64_t limit, int64_t pages);
/* A number that changes when the pool grows; pools never shrink. */
int64_t dra_pool_size(const dra_states *s);
/* Whether the next item of this row needs a copy of its last page, as another row has it, too. */
bool dra_pool_shares_last(const dra_states *s, int64_t limit, int64_t row);
/* Releases the pages of a row. */
void dra_pool_release(dra_states *s, int64_t row);
/* A page of its own for items that a row has by its numbers; *bytes: what it takes, 0 where none
 * is missing. */
dra_status dra_pool_extend(dra_states *s, int64_t row, size_t *bytes, dra_error *err);
/* Row `to` becomes like row `from` of the same pool, whose pages it shares. */
dra_status dra_pool_share(dra_states *s, int64_t to, int64_t from, dra_error *err);
/* Makes room for T more items of a row, in pages of its own from its last item on. */
dra_status dra_pool_reserve(dra_states *s, int64_t row, int64_t T, dra_error *err);
/* The row of the tensors that has item number `item` of a row. */
int64_t dra_pool_row(const dra_states *s, const dra_pages *p, int64_t row, int64_t item);
/* The pages of a limit. */
const dra_pages *dra_pool_pages(const dra_states *s, int64_t limit);
/* The lowest base under which a row keeps what is live of tensor i. */
int64_t    dra_states_lowest_base(const dra_states *s, int i, int64_t row);
dra_status dra_states_fill_row(dra_states *s, int i, int64_t row, dra_error *err);

/* Whether a row of a pool can be cut: its state is items alone, none of which is forgotten. */
bool dra_pool_can_cut(const dra_specs *specs);
/* It has read its first `tokens` and no more, if it has read more. */
void dra_pool_cut(dra_states *s, int64_t row, int64_t tokens);

/* Where n rows of a pool stand (-1: padding, which counts as one that has read something), as
 * states without memory: what looks at numbers alone takes them; and back, after they have
 * advanced. *view is the one of an earlier call, which is used again where it can be, or NULL. */
dra_status dra_pool_view(const dra_states *s, int64_t n, const int64_t *rows, dra_states **view,
                         dra_error *err);
/* Refreshes a view after rows have been moved. */
void dra_pool_look(const dra_states *s, int64_t n, const int64_t *rows, dra_states *view);
void dra_pool_advance(dra_states *s, int64_t n, const int64_t *rows, const dra_states *view);
void dra_pool_view_free(dra_states *view); /* NULL is allowed */

/* ---- where tokens stand ---------------------------------------------------------------------- */

/* Where the next token of a row is, counted as its layers do: with the start vectors that it has
 * read. */
int64_t dra_states_position(const dra_states *s, int64_t start, int64_t row);

/* Counts the tokens of a call that has been run, and its items, also those of start vectors, of
 * which a sequence has `start`. */
void dra_states_advance(dra_states *s, int64_t start, int64_t T, const int32_t *mark);
/* The same for a call of a module that reads whole texts: counts start over. */
void dra_states_count(dra_states *s, int64_t T, const int32_t *mark);

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Declares the inputs of dra_tokens in g. */
void dra_tokens_declare(dra_graph *g, const dra_module *module, const dra_module_shape *shape,
                        dra_tokens *out);

/* Those of one text, whose names begin with "prefix."; out has B, T, given, start and whole. */
void dra_tokens_declare_text(dra_graph *g, const char *prefix, bool marked, bool skips, bool holes,
                             dra_tokens *out);

/* The different limits of a module's items; returns how many, -1: too many. */
int dra_token_limits(const dra_specs *state, int64_t limit[DRA_TOKEN_KINDS]);
enum { DRA_TOKEN_TEXT = 48 };
/* The name of an input of items with this limit. */
const char *dra_token_input(char text[DRA_TOKEN_TEXT], const char *what, int64_t limit);

typedef struct dra_extents { /* the numbers that the inputs of dra_tokens receive */
    bool     whole, prefix;  /* these and `start` as of the module: to be set before the rest */
    int64_t  start;
    int32_t *mark, *writes, *pos, *prev, *last, *lo, *hi, *take, *give, *place;
    struct {
        int64_t  limit;
        int32_t *at, *lo, *hi, *base;
        int32_t *pages, *own; /* of a pool */
        int64_t  span;
    } items[DRA_TOKEN_KINDS];
    int      n_items;
    bool     skips; /* some tokens are skipped; may be set for a graph that was built for such */
    bool     holes; /* as of dra_module_shape */
    bool     marked;
    int32_t *memory, *pages_memory;
    size_t   room, pages_room;
    int64_t  B, T, given;   /* T: tokens that layers see */
    int64_t  segment, kept; /* segment and memory of the module: to be set before the rest */
    int      max_event;     /* as of dra_module_shape */
    struct {
        int32_t *at, *lo, *hi, *base, *event;
    } segments;
} dra_extents; /* all zero = empty */

/* Sets what an extents takes from its module. */
void dra_extents_open(dra_extents *e, const dra_module *m);

/* What the shape of a call is: skips, holes, marked, T. */
void dra_extents_plan(dra_extents *e, const dra_states *s, int64_t B, int64_t T,
                      const int32_t *mark);
/* The same, and fills them for T tokens after `s` (NULL: every row of B starts fresh). specs may be
 * NULL: there are no items. */
dra_status dra_extents_fill(dra_extents *e, const dra_specs *specs, const dra_states *s, int64_t B,
                            int64_t T, const int32_t *mark, dra_error *err);
void       dra_extents_free(dra_extents *e);
/* How many rows of items of this limit programs have room for that read these rows of a pool: some
 * more than they need, so that programs can be used again. */
int64_t dra_pool_span(const dra_states *s, int64_t limit, int64_t n, const int64_t *rows,
                      int64_t T);
/* Takes extents of a view of a pool's rows to where their pages are; padding writes nothing. */
dra_status dra_extents_to_pool(dra_extents *e, const dra_states *pool, const int64_t *rows,
                               dra_error *err);

typedef struct dra_token_names { /* numbers of the inputs that dra_tokens_declare() makes */
    int mark, writes, pos, prev, last, lo, hi, take, give, place;
    struct {
        int at, lo, hi, base, pages, own;
    } items[DRA_TOKEN_KINDS];
    struct {
        int at, lo, hi, base, event;
    } segments;
} dra_token_names;

/* Those of a text whose names begin with "prefix."; state may be NULL: there are no items. */
void dra_tokens_name(dra_session *session, const char *prefix, const dra_specs *state,
                     dra_token_names *out);
/* Puts the extents into these inputs of the session's program. */
dra_status dra_extents_put(const dra_extents *e, dra_session *session, const dra_token_names *names,
                           dra_error *err);
/* How many sequences start among the next n tokens of a row that has read `tokens` since its reset:
 * at each first token that is no pad. mark may be NULL. */
int64_t dra_marks_starts(const int32_t *mark, int64_t n, int64_t tokens);
/* Prefixes of T tokens after s (NULL: fresh rows), where tokens have DRA_MARK_PREFIX (prefix.c): a
 * module that has none, and one that is not read as a whole, are refused; `who` begins errors. */
dra_status dra_prefix_check(const char *who, const dra_module *m, const dra_states *s, int64_t B,
                            int64_t T, const int32_t *mark, dra_error *err);
/* How many items the prefix has that starts at the first of n tokens. */
int64_t dra_prefix_items(const int32_t *mark, int64_t n);
/* Is any of n tokens marked DRA_MARK_SKIP? mark may be NULL. */
bool dra_marks_any_skip(const int32_t *mark, int64_t n);

/* ---- contexts -------------------------------------------------------------------------------- */

/* Declares what a call knows about the context, if the module has one; where the call reads it,
 * `text`, which has parameters and no state, becomes the call by which it does. */
void dra_context_declare(dra_graph *g, const dra_module *m, const dra_module_shape *shape,
                         dra_module_call *call, dra_module_call *text);

typedef struct dra_context_extents { /* the numbers that these inputs receive */
    dra_extents text;
    int32_t    *n;     /* (B): items; owns the memory of both */
    int32_t    *items; /* (B, T): which token each of them is, -1: none */
    size_t      room;
} dra_context_extents; /* all zero = empty */

/* Can B rows of a module read this context? `who` begins the error's text. */
dra_status dra_context_check(const char *who, const dra_module *m, const dra_context_text *text,
                             int64_t B, dra_error *err);
/* For a call that reads the context, and for one that has it in the state, where only n is set. */
dra_status dra_context_extents_fill(dra_context_extents *e, const dra_module *m, int64_t B,
                                    const dra_context_text *text, dra_error *err);
dra_status dra_context_extents_recall(dra_context_extents *e, const dra_states *s, dra_error *err);
void       dra_context_extents_free(dra_context_extents *e);

/* The shape of a context that is read as a part of the key of a program, and back. */
typedef struct dra_context_key {
    int64_t reads; /* 0: none is read, and the rest is 0 */
    int64_t T, inner, options;
} dra_context_key;
dra_context_key   dra_context_key_of(const dra_context_extents *e);
dra_context_shape dra_context_shape_of(const dra_context_key *key);

typedef struct dra_context_names { /* numbers of the inputs that dra_context_declare() makes */
    dra_token_names text;
    int             items, n;
} dra_context_names;

void dra_context_name(dra_session *session, dra_context_names *out);
/* Puts them into these inputs of the session's program; read: it reads the context. */
dra_status dra_context_extents_put(const dra_context_extents *e, int64_t B, bool read,
                                   dra_session *session, const dra_context_names *names,
                                   dra_error *err);

#endif
