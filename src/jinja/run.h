/* Rendering: scopes, budgets and built-in functions. */
#ifndef DRA_SRC_JINJA_RUN_H
#define DRA_SRC_JINJA_RUN_H

#include "jinja/tree.h"

/* Whatever a template says, rendering ends soon, in bounded memory and stack. */
enum {
    DRA_TEMPLATE_STEPS = 10000000, /* nodes, members and every 16 bytes that are looked at */
    DRA_TEMPLATE_BYTES = 1 << 28,  /* of all values made */
    DRA_TEMPLATE_NESTED = 500,     /* nodes in one another, with those of macros */
    DRA_TEMPLATE_RANGE = 100000    /* members of a range, as in Jinja's sandbox */
};

typedef struct dra_tvariable {
    const char *name;
    size_t      n;
    dra_tvalue  value;
} dra_tvariable;

typedef struct dra_tscope { /* variables set in the template, in a turn of a loop, in a macro */
    struct dra_tscope *around;
    dra_tvariable     *at;
    size_t             n, room;
} dra_tscope;

typedef struct dra_tloop {
    const dra_tvalue *items;
    size_t            n, index;
} dra_tloop;

typedef struct dra_tmacro {
    const dra_tnode *node;
    dra_tscope      *scope; /* where it was defined */
} dra_tmacro;

typedef struct dra_tbuffer { /* a text that grows, in the arena */
    char  *at;
    size_t n, room;
} dra_tbuffer;

typedef struct dra_trun {
    const char       *name;
    dra_arena         arena;
    dra_error        *err;
    dra_status        status; /* the first failure */
    dra_tvalue        variables;
    dra_tscope       *scope;
    dra_tbuffer      *out;
    const dra_tvalue *filtered; /* what a block of set holds */
    int64_t           steps;    /* left */
    size_t            bytes;    /* used */
    int               line, depth;
} dra_trun;

/* ---- failures and budgets -------------------------------------------------------------------- */

/* Remembers "NAME: line LINE: ...", the first only. Returns false. */
bool  dra_trun_fail(dra_trun *r, const char *format, ...) DRA_PRINTF(2, 3);
bool  dra_trun_spend(dra_trun *r, size_t steps);              /* false: they are used up */
void *dra_trun_alloc(dra_trun *r, size_t count, size_t size); /* NULL: a failure */

bool                     dra_tbuffer_add(dra_trun *r, dra_tbuffer *b, const char *text, size_t n);
static inline dra_tvalue dra_tbuffer_value(const dra_tbuffer *b)
{
    return dra_tstring(b->n ? b->at : "", b->n);
}

/* ---- values (value.c, order.c) --------------------------------------------- */

/* Comparing spends steps and fails where values nest too deep. */
bool dra_tequal(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, bool *equal);
/* *order < 0: a comes first. Fails for values without an order. */
bool dra_torder(dra_trun *r, const dra_tvalue *a, const dra_tvalue *b, int *order);
bool dra_tcontains(dra_trun *r, const dra_tvalue *all, const dra_tvalue *x, bool *found);
bool dra_tlength(dra_trun *r, const dra_tvalue *x, int64_t *length);
/* The members of a value as a list: of a dict its keys, of a string its letters. */
bool dra_titerate(dra_trun *r, const dra_tvalue *x, dra_tvalue *list);
/* A member by name or number; undefined: there is none. By attribute: x.name, else x[key]. */
bool dra_tattribute(dra_trun *r, const dra_tvalue *x, const char *name, size_t n, dra_tvalue *out);
bool dra_titem(dra_trun *r, const dra_tvalue *x, const dra_tvalue *key, dra_tvalue *out);
const dra_tvalue *dra_tpairs_get(dra_trun *r, const dra_tpair *pairs, size_t n, const char *name,
                                 size_t bytes);
/* The same by any key. *found NULL: there is none. */
bool dra_tpairs_find(dra_trun *r, const dra_tpair *pairs, size_t n, const dra_tvalue *key,
                     const dra_tvalue **found);
/* "a.b.0" of a value, as filters name attributes; a number is an index. */
bool dra_tpath(dra_trun *r, const dra_tvalue *x, const dra_tvalue *path, dra_tvalue *out);
bool dra_tslice(dra_trun *r, const dra_tvalue *x, const dra_tvalue bounds[3], dra_tvalue *out);
bool dra_tcan_be_key(dra_trun *r, const dra_tvalue *x); /* else a failure */
bool dra_tmap_set(dra_trun *r, dra_tspace *space, const dra_tvalue *key, const dra_tvalue *value);

/* ---- texts (show.c) ----------------------------------------------------------------- */

bool dra_tshow(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x); /* str() */
bool dra_tstring_of(dra_trun *r, const dra_tvalue *x, dra_tvalue *out);

typedef struct dra_tjson { /* of json.dumps() */
    bool       ascii, sorted;
    dra_tvalue indent, comma, colon;
} dra_tjson;

bool dra_tjson_add(dra_trun *r, dra_tbuffer *b, const dra_tvalue *x, const dra_tjson *how);

/* ---- operators (number.c) ----------------------------------------------------------- */

bool dra_tbinary(dra_trun *r, dra_top op, const dra_tvalue *a, const dra_tvalue *b,
                 dra_tvalue *out);
bool dra_tcompare(dra_trun *r, dra_top op, const dra_tvalue *a, const dra_tvalue *b, bool *out);
bool dra_tnegate(dra_trun *r, const dra_tvalue *x, dra_tvalue *out);

/* ---- evaluating (eval.c) and running (run.c) ------------------------------- */

bool dra_teval(dra_trun *r, const dra_tnode *n, dra_tvalue *out);
/* All of a template, with r->variables. The text is in the arena. */
bool dra_trun_template(dra_trun *r, const dra_tnode *body, dra_tbuffer *text);
bool dra_tset(dra_trun *r, const char *name, size_t n, const dra_tvalue *value);
/* Runs a macro, whose text is the value. */
typedef struct dra_targs {
    const dra_tvalue  *at;
    const char *const *key; /* of each; NULL: by position */
    size_t             n;
} dra_targs;
bool dra_tmacro_call(dra_trun *r, const dra_tmacro *m, const dra_targs *a, dra_tvalue *out);

/* ---- built-ins ------------------------------------------------------------------------------- */

/* A built-in: a function of arguments and of `self`, the value that is filtered or tested or whose
 * method is called. With `params`, names separated by blanks, run() gets one argument for each of
 * them, perhaps DRA_T_ABSENT; without, it gets the arguments of the call. */
typedef struct dra_tbuiltin {
    const char *name, *params;
    size_t      needed; /* how many of them must be given */
    bool (*run)(dra_trun *r, const dra_tvalue *self, const dra_targs *a, dra_tvalue *out);
} dra_tbuiltin;

typedef struct dra_tbuiltins {
    const dra_tbuiltin *at;
    size_t              n;
} dra_tbuiltins;

extern const dra_tbuiltins dra_ttext_filters, dra_tlist_filters, dra_tnumber_filters;
extern const dra_tbuiltins dra_ttests, dra_tfunctions;
extern const dra_tbuiltins dra_ttext_methods, dra_tdict_methods;

const dra_tbuiltin *dra_tfilter_find(const char *name, size_t n);
const dra_tbuiltin *dra_tbuiltin_find(const dra_tbuiltins *all, const char *name, size_t n);
/* Calls a built-in; named arguments go to the parameters of these names. */
bool dra_tbuiltin_call(dra_trun *r, const dra_tbuiltin *b, const dra_tvalue *self,
                       const dra_targs *a, dra_tvalue *out);
/* The index of parameter `key`, -1 if there is none of that name; the number of parameters. */
int    dra_tparam_find(const char *params, const char *key, size_t n);
size_t dra_tparam_count(const char *params);

/* Used by several filters: str.strip(), and upper, lower or title case. */
typedef enum dra_tside { DRA_SIDE_LEFT = 1, DRA_SIDE_RIGHT = 2, DRA_SIDE_BOTH = 3 } dra_tside;
bool dra_tstrip(dra_trun *r, dra_tvalue text, const dra_tvalue *chars, dra_tside side,
                dra_tvalue *out);
typedef enum dra_tcase {
    DRA_CASE_UPPER,
    DRA_CASE_LOWER,
    DRA_CASE_FIRST,
    DRA_CASE_TITLE,
    DRA_CASE_WORDS
} dra_tcase;
bool dra_tcased(dra_trun *r, const dra_tvalue *text, dra_tcase how, dra_tvalue *out);
bool dra_treplace(dra_trun *r, const dra_tvalue *text, const dra_tvalue *from, const dra_tvalue *to,
                  int64_t most, dra_tvalue *out);
bool dra_tjoin(dra_trun *r, const dra_tvalue *list, const dra_tvalue *between, dra_tvalue *out);
/* Where `part` is in a text from `at` on; SIZE_MAX: nowhere. */
size_t dra_tfind(const dra_tvalue *text, size_t at, const dra_tvalue *part);
bool   dra_tpair_list(dra_trun *r, const dra_tvalue *dict, dra_tvalue *out); /* items() */

#endif
