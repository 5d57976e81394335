/* A grammar as its files see it: parse.c reads the text into phrases, compile.c
 * makes places of them, match.c moves from place to place by bytes (with sets.c and
 * value.c, see match.h), tokens.c asks which tokens may come next,
 * schema.c writes the grammar of a JSON schema. */
#ifndef DRA_SRC_GENERATE_GRAMMAR_GRAMMAR_H
#define DRA_SRC_GENERATE_GRAMMAR_GRAMMAR_H

#include "base/arena.h"
#include "dra/generate.h"

/* ---- phrases: what the text says ------------------------------------------------------------- */

typedef enum dra_phrase_kind {
    DRA_PHRASE_LITERAL,
    DRA_PHRASE_CLASS,
    DRA_PHRASE_RULE,
    DRA_PHRASE_SEQUENCE,
    DRA_PHRASE_CHOICE,
    DRA_PHRASE_REPEAT
} dra_phrase_kind;

typedef struct dra_code_range {
    int32_t first, last; /* code points, both included */
} dra_code_range;

typedef struct dra_phrase {
    dra_phrase_kind    kind;
    struct dra_phrase *first, *next; /* its first part; what follows it in a list of parts */
    int64_t            least, most;  /* REPEAT; most below 0: any number of times */
    const char        *bytes;        /* LITERAL */
    dra_code_range    *range;        /* CLASS */
    size_t             n;            /* of these two */
    bool               negated;
    bool               empty; /* may read nothing: found out by the compiler */
    int32_t            rule;
} dra_phrase;

typedef struct dra_rule_text {
    const char *name; /* not ended by a 0 */
    size_t      n;
    int         line; /* where it is defined, else where it was first used */
    dra_phrase *body; /* NULL: not defined */
} dra_rule_text;

typedef struct dra_grammar_text {
    const char    *name; /* of the file, for errors */
    dra_arena      arena;
    dra_rule_text *rule;
    int32_t        rules, root;
} dra_grammar_text;

dra_status dra_grammar_read(const char *name, const char *text, size_t bytes, dra_grammar_text *out,
                            dra_error *err);
void       dra_grammar_text_free(dra_grammar_text *t);

/* ---- places: what is run --------------------------------------------------------------------- */

typedef enum dra_grammar_place_kind {
    DRA_AT_END,  /* of a rule: returns to where it was called */
    DRA_AT_BYTE, /* one of the bytes of set `other`, then next */
    DRA_AT_FORK, /* next or other */
    DRA_AT_CALL  /* rule `other`, then next */
} dra_grammar_place_kind;

typedef struct dra_grammar_place {
    int32_t kind, next, other;
    int32_t loop; /* of a FORK before one of many copies that may be left out; 0: none */
} dra_grammar_place;

typedef struct dra_byte_set {
    uint32_t bits[8];
} dra_byte_set;

struct dra_grammar {
    dra_grammar_place *place; /* the first is the END of all rules */
    int32_t            places, place_room;
    dra_byte_set      *set;
    int32_t            sets, set_room;
    int32_t           *start; /* (rules): where each begins */
    int32_t            rules, root, loops;
    unsigned char      class_of[256], sample[256]; /* bytes in the same sets; one of each class */
    int32_t            classes;
    uint64_t           fingerprint;
};

static inline bool dra_byte_in(const dra_byte_set *s, unsigned byte)
{
    return s->bits[byte >> 5] >> (byte & 31) & 1;
}

dra_status dra_grammar_compile(const dra_grammar_text *t, dra_grammar **out, dra_error *err);

/* ---- a text on its way through a grammar ----------------------------------------------------- */

/* All the places a text may be at, with what each returns to: of one grammar, by value. NULL stands
 * for the beginning. */
struct dra_grammar_state {
    size_t  n;
    int32_t data[];
};

dra_status dra_grammar_state_copy(const dra_grammar_state *s, dra_grammar_state **out,
                                  dra_error *err);
bool dra_grammar_state_of(const dra_grammar_state *s, const dra_grammar *g); /* NULL: of any */

typedef struct dra_matcher dra_matcher; /* opaque: a grammar and what was found out about it */

enum { DRA_MATCH_NOT = -1, DRA_MATCH_FAILED = -2 };

dra_status dra_matcher_create(const dra_grammar *g, dra_matcher **out, dra_error *err);
void       dra_matcher_destroy(dra_matcher *m);
/* Begins a question: forgets, where much is remembered, and all steps until the next one may need
 * so many moves together. Without it, only each step is bounded. */
void dra_matcher_ask(dra_matcher *m, int64_t moves);
/* States have numbers that are good until dra_matcher_ask(). DRA_MATCH_NOT: no text goes on like
 * this; DRA_MATCH_FAILED: see dra_matcher_why(). */
int32_t    dra_matcher_enter(dra_matcher *m, const dra_grammar_state *s);
int32_t    dra_matcher_step(dra_matcher *m, int32_t state, unsigned char byte);
bool       dra_matcher_may_end(const dra_matcher *m, int32_t state);
bool       dra_matcher_must_end(const dra_matcher *m, int32_t state); /* no byte may follow */
dra_status dra_matcher_leave(const dra_matcher *m, int32_t state, dra_grammar_state **out,
                             dra_error *err);
dra_status dra_matcher_why(const dra_matcher *m, dra_error *err);
/* What its steps have cost so far: places and returns that were tried; and the most of one step. */
int64_t dra_matcher_moves(const dra_matcher *m);
int64_t dra_matcher_step_most(const dra_matcher *m);

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct dra_token_text {
    const char *bytes;
    size_t      n;
    int32_t     id;
} dra_token_text;

/* The bytes a token gives: none, if it is special or there is no tokenizer. */
const char *dra_token_piece(const dra_tokenizer *t, int32_t id, size_t *bytes);

typedef struct dra_constraint dra_constraint; /* opaque: a grammar for a vocabulary */

/* The texts of tokens are borrowed, the list is copied. Tokens without text never follow. */
dra_status dra_constraint_create(const dra_grammar *g, size_t n, const dra_token_text *tokens,
                                 dra_constraint **out, dra_error *err);
/* The same for all tokens of a tokenizer, which is borrowed. */
dra_status dra_constraint_open(const dra_grammar *g, const dra_tokenizer *t, dra_constraint **out,
                               dra_error *err);
void       dra_constraint_destroy(dra_constraint *c);
/* allowed[id] of all tokens that may come next becomes true; the others stay. Returns how many. */
dra_status dra_constraint_allow(dra_constraint *c, const dra_grammar_state *s, bool *allowed,
                                size_t *n, dra_error *err);
/* Whether a text may end here, and whether it has to. */
dra_status dra_constraint_end(dra_constraint *c, const dra_grammar_state *s, bool *may, bool *must,
                              dra_error *err);
/* The state after some bytes; one that no text reaches is an error. */
dra_status dra_constraint_advance(dra_constraint *c, dra_grammar_state **s, const char *bytes,
                                  size_t n, dra_error *err);

#endif
