/* Python's pickles, read without running anything: what a dict of tensors needs is made into
 * values, the rest is refused. A global is only a name here, and a call only says that it was
 * asked for. */
#ifndef DRA_SRC_FILE_PICKLE_H
#define DRA_SRC_FILE_PICKLE_H

#include "base/arena.h"
#include "dra/base.h"

typedef enum dra_pickle_kind {
    DRA_PICKLE_MARK, /* never in a value */
    DRA_PICKLE_NONE,
    DRA_PICKLE_BOOL,   /* number */
    DRA_PICKLE_INT,    /* number */
    DRA_PICKLE_REAL,   /* real */
    DRA_PICKLE_TEXT,   /* text, count bytes: not ended by a 0 */
    DRA_PICKLE_TUPLE,  /* items */
    DRA_PICKLE_LIST,   /* items */
    DRA_PICKLE_DICT,   /* items: a key, its value, the next key, ... */
    DRA_PICKLE_GLOBAL, /* text: "module.name" */
    DRA_PICKLE_CALL,   /* text: of what; items: arguments */
    DRA_PICKLE_STORED, /* items: what names a thing outside the pickle */
    DRA_PICKLE_COUNT
} dra_pickle_kind;

typedef struct dra_pickled {
    dra_pickle_kind      kind;
    int64_t              number;
    double               real;
    const char          *text;
    size_t               count, room;
    struct dra_pickled **item;
} dra_pickled;

typedef struct dra_pickle {    /* what to read, and how */
    const char          *path; /* named in errors */
    const unsigned char *file;
    size_t               from, to; /* the pickle: bytes of the file */
    const char *const   *globals;  /* that may be named; NULL at the end */
    dra_arena           *arena;    /* of what is made; texts point into the file */
} dra_pickle;

/* Values may share parts and lists may hold themselves: limit how deep you walk. *end: the byte
 * after the pickle. */
dra_status dra_pickle_read(const dra_pickle *p, const dra_pickled **out, size_t *end,
                           dra_error *err);

const char *dra_pickle_name(dra_pickle_kind kind); /* "a dict", ... */
/* What a dict holds under a text; NULL: nothing, or it is no dict. */
const dra_pickled *dra_pickle_find(const dra_pickled *dict, const char *key);
/* Whether a text is just this. */
bool dra_pickle_says(const dra_pickled *v, const char *text);

#endif
