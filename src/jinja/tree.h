/* A template as a tree, and how its text becomes one: tokens, then nodes. */
#ifndef DRA_SRC_JINJA_TREE_H
#define DRA_SRC_JINJA_TREE_H

#include "base/arena.h"
#include "base/error.h"
#include "jinja/value.h"

enum {
    DRA_TEMPLATE_DEPTH = 100, /* of tags and brackets in one another, and of any tree */
    DRA_TEMPLATE_ARGS = 32    /* of a call */
};

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef enum dra_tword {
    DRA_W_END,
    DRA_W_TEXT, /* outside of tags */
    DRA_W_PRINT,
    DRA_W_PRINT_END,
    DRA_W_BLOCK,
    DRA_W_BLOCK_END,
    DRA_W_NAME,
    DRA_W_STRING, /* `text`: without quotes and escapes */
    DRA_W_INT,
    DRA_W_FLOAT,
    DRA_W_SIGN
} dra_tword;

typedef struct dra_ttoken {
    dra_tword   kind;
    int         line;
    const char *text;
    size_t      n;
    dra_tvalue  number;
} dra_ttoken;

typedef struct dra_tsource { /* a template while it is read */
    const char *name;        /* for errors */
    dra_arena  *arena;
    dra_error  *err;
    const char *text;
    size_t      n, at;
    int         line, brackets;
    char        open[DRA_TEMPLATE_DEPTH]; /* what closes each of the brackets */
    bool        starts_line;              /* the tag before took the newline */
    dra_ttoken *token;                    /* all of them, for free() */
    size_t      tokens, room;
} dra_tsource;

/* The tokens of a text. Its line ends become newlines and the last one is dropped, as in Jinja. */
dra_status dra_template_lex(dra_tsource *s, const char *text, size_t bytes);

/* "NAME: line LINE: ..." */
dra_status dra_template_fail(const dra_tsource *s, int line, const char *format, ...)
    DRA_PRINTF(3, 4);

/* ---- nodes ----------------------------------------------------------------------------------- */

typedef enum dra_tnode_kind {
    /* expressions */
    DRA_N_CONST,
    DRA_N_NAME,
    DRA_N_LIST,  /* list */
    DRA_N_TUPLE, /* list */
    DRA_N_DICT,  /* list of DRA_N_PAIR a: b */
    DRA_N_PAIR,
    DRA_N_ATTRIBUTE, /* a.text */
    DRA_N_ITEM,      /* a[b] */
    DRA_N_SLICE,     /* a[list]: three, those not given are none */
    DRA_N_CALL,      /* text(list) */
    DRA_N_METHOD,    /* a.builtin(list) */
    DRA_N_FILTER,    /* a | builtin(list); a NULL: what a block of set holds */
    DRA_N_TEST,      /* a is builtin(list) */
    DRA_N_KEYWORD,   /* an argument text=a */
    DRA_N_NOT,
    DRA_N_NEGATIVE,
    DRA_N_POSITIVE,
    DRA_N_AND,
    DRA_N_OR,
    DRA_N_BINARY,  /* a op b */
    DRA_N_CONCAT,  /* list */
    DRA_N_COMPARE, /* a and a list of DRA_N_COMPARED op a */
    DRA_N_COMPARED,
    DRA_N_CHOICE, /* b if a else c; c NULL: undefined */
    /* statements */
    DRA_N_TEXT,
    DRA_N_PRINT, /* a */
    DRA_N_IF,    /* list of DRA_N_CLAUSE: list where a; a NULL: else */
    DRA_N_CLAUSE,
    DRA_N_FOR,   /* a in b if c: list, else other */
    DRA_N_SET,   /* a = b, or a = the text of list, filtered by b */
    DRA_N_MACRO, /* text(other: DRA_N_PARAM text=a): list */
    DRA_N_PARAM,
    DRA_N_BREAK,
    DRA_N_CONTINUE,
    DRA_N_BODY /* list */
} dra_tnode_kind;

typedef enum dra_top {
    DRA_OP_ADD,
    DRA_OP_SUB,
    DRA_OP_MUL,
    DRA_OP_DIV,
    DRA_OP_FLOOR,
    DRA_OP_MOD,
    DRA_OP_POW,
    DRA_OP_EQ,
    DRA_OP_NE,
    DRA_OP_LT,
    DRA_OP_LE,
    DRA_OP_GT,
    DRA_OP_GE,
    DRA_OP_IN,
    DRA_OP_NOT_IN
} dra_top;

typedef struct dra_tnode dra_tnode;
struct dra_tnode {
    dra_tnode_kind kind;
    dra_top        op;
    int            line, height; /* height: of the tree below */
    const char    *text;         /* a name, or what stands outside of tags */
    size_t         n;
    dra_tvalue     value;
    dra_tnode     *a, *b, *c;
    dra_tnode     *list, *other; /* the first of nodes that follow one another */
    dra_tnode     *next;

    const struct dra_tbuiltin *builtin;
};

struct dra_template {
    dra_arena  arena; /* of all that follows */
    char      *name;
    dra_tnode *body;
    dra_tpair  token[4]; /* variables that are there unless given, as "bos_token" */
    size_t     tokens;
};

/* ---- parsing --------------------------------------------------------------------------------- */

typedef struct dra_tparser {
    dra_tsource *source;
    dra_ttoken  *at;
    int          depth, loops; /* tags and brackets around, and loops of these */
    dra_tnode   *calls;        /* all calls by name, by `other` */
    dra_tnode   *macros;       /* all macros, by `c` */
    dra_status   status;       /* the first failure; after it, nodes are NULL */
} dra_tparser;

dra_tnode *dra_template_statements(dra_tparser *p); /* of a whole template */

/* Expressions end where they cannot go on. A tuple: perhaps with commas and without brackets. */
dra_tnode *dra_texpression(dra_tparser *p);
dra_tnode *dra_ttuple(dra_tparser *p, bool with_choice);
dra_tnode *dra_tfilters(dra_tparser *p, dra_tnode *on); /* | name ..., on a value */

/* A value, with members and calls, with filters and tests (primary.c). */
dra_tnode *dra_tprimary(dra_tparser *p);
dra_tnode *dra_tpostfix(dra_tparser *p, dra_tnode *n);
dra_tnode *dra_tfiltered(dra_tparser *p, dra_tnode *n);

/* A node of a and b, at the line of a; NULL: there is no a. */
dra_tnode *dra_twrap(dra_tparser *p, dra_tnode_kind kind, dra_tnode *a, dra_tnode *b);
/* A node of a line; NULL: a failure, here or before. */
dra_tnode *dra_tnew(dra_tparser *p, dra_tnode_kind kind, int line);
/* Completes a node whose parts are all there: checks its height. */
dra_tnode *dra_tdone(dra_tparser *p, dra_tnode *n);
dra_tnode *dra_tname(dra_tparser *p, dra_tnode_kind kind); /* takes a name */
/* Remembers a failure at a token: "expected ..., found ...". Returns NULL. */
void *dra_texpected(dra_tparser *p, const char *what);
void *dra_trefuse(dra_tparser *p, int line, const char *format, ...) DRA_PRINTF(3, 4);
void *dra_tno_memory(dra_tparser *p);
bool  dra_tenter(dra_tparser *p); /* goes one level deeper; false: too deep */

bool dra_tat_sign(const dra_tparser *p, const char *sign);
bool dra_tat_word(const dra_tparser *p, const char *name);
bool dra_ttake_sign(dra_tparser *p, const char *sign); /* if it is there */
bool dra_ttake_word(dra_tparser *p, const char *name);
bool dra_tneed_sign(dra_tparser *p, const char *sign); /* else a failure */

/* Appends to a list of nodes, at whose end *end points. */
static inline void dra_tappend(dra_tnode ***end, dra_tnode *n)
{
    if (!n) return;
    **end = n;
    *end = &n->next;
}

#endif
